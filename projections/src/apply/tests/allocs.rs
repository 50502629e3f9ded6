use drover_events::Guard;
use drover_events::alloc::*;
use drover_events::gojson::Time;
use drover_events::model::{
    AllocDeploymentStatus, AllocNetworkStatus, AllocState, DesiredTransition, ServiceRegistration,
    TaskState,
};
use drover_events::plan::*;
use drover_events::service::ServiceRegistrationsUpserted;

use super::*;
use crate::engine::scan::Scan;
use crate::engine::txn::ReadRows;
use crate::query;
use crate::tables::alloc_jobs::AllocJobs;
use crate::tables::allocs::{AllocRow, Allocs, AllocsBySigningKey};
use crate::tables::job_summaries::JobSummaries;
use crate::tables::jobs::Jobs;
use crate::tables::node_use::NodeUses;
use crate::tables::services::Services;

/// A client's report of one allocation.
pub(in crate::apply) fn update(number: u32, status: &str) -> AllocsUpdatedByClient {
    let update = ClientAllocUpdate {
        id: id(number),
        client_status: status.into(),
        ..Default::default()
    };
    AllocsUpdatedByClient {
        updates: vec![update],
        evals: Vec::new(),
        updated_at: START + 5,
        ..Default::default()
    }
}

fn get(world: &World, number: u32) -> AllocRow {
    world.view().get::<Allocs>(&id(number)).unwrap().unwrap()
}

fn usage(world: &World) -> (u64, i64, i64) {
    let row = world.view().get::<NodeUses>(&id(10)).unwrap().unwrap();
    (row.allocs, row.cpu, row.memory_mb)
}

fn summary(world: &World) -> drover_events::model::TaskGroupSummary {
    let row = world
        .view()
        .get::<JobSummaries>(("default", "web"))
        .unwrap()
        .unwrap();
    row.summary.get("g").unwrap().clone()
}

fn stopped(number: u32, client_status: &str) -> PlanApplied {
    let stop = StoppedAlloc {
        id: id(number),
        desired_description: "alloc not needed due to job update".into(),
        client_status: client_status.into(),
        ..Default::default()
    };
    PlanApplied {
        stopped: vec![stop],
        updated_at: START,
        ..Default::default()
    }
}

#[test]
fn a_plan_places_and_what_follows_is_counted() {
    let world = running_job();
    let row = get(&world, 40);
    assert_eq!(
        (row.create_index, row.modify_index, row.alloc_modify_index),
        (3, 3, 3)
    );
    assert_eq!((row.job_version, row.job_type.as_str()), (0, "service"));
    assert_eq!(usage(&world), (2, 1000, 512));
    assert_eq!(summary(&world).starting, 2);
    let spec = row.with_job(&world.view()).unwrap().job.unwrap();
    assert_eq!((spec.id.as_str(), spec.job_modify_index), ("web", 2));
}

#[test]
fn the_servers_change_keeps_what_belongs_to_the_client() {
    let mut world = running_job();
    let mut report = update(40, "running");
    let state = TaskState {
        state: "running".into(),
        ..Default::default()
    };
    report.updates[0].task_states.insert("t".into(), state);
    world.given(report);
    let mut in_place = alloc(40, "web", 10);
    in_place.desired_description = "alloc updating in-place".into();
    world.given(placed(vec![in_place], 2));
    let row = get(&world, 40);
    assert_eq!(row.client_status, "running");
    assert!(row.task_states.contains_key("t"));
    assert_eq!(
        (row.create_index, row.modify_index, row.alloc_modify_index),
        (3, 5, 5)
    );
    world.given(stopped(40, "lost"));
    let row = get(&world, 40);
    assert_eq!(
        (row.client_status.as_str(), row.desired_status.as_str()),
        ("lost", "stop")
    );
    assert_eq!(usage(&world), (1, 500, 256));
}

#[test]
fn sch_06_a_plan_persists_a_history_that_alone_changed() {
    let mut world = running_job();
    let mut row = get(&world, 40).alloc;
    row.alloc_states = vec![AllocState {
        value: "running".into(),
        ..Default::default()
    }]
    .into();
    world.given(placed(vec![row], 2));
    assert_eq!(get(&world, 40).alloc_states.len(), 1);
}

#[test]
fn a_replacement_is_linked_to_what_it_replaces() {
    let mut world = running_job();
    let mut next = alloc(42, "web", 10);
    next.previous_allocation = id(40);
    world.given(placed(vec![next], 2));
    assert_eq!(get(&world, 40).next_allocation, id(42));
}

#[test]
fn preempted_allocations_are_evicted_and_free_their_room() {
    let mut world = running_job();
    let preempted = PreemptedAlloc {
        id: id(40),
        preempted_by: id(99),
    };
    world.given(PlanApplied {
        preempted: vec![preempted],
        ..Default::default()
    });
    let row = get(&world, 40);
    assert_eq!(row.desired_status, "evict");
    assert_eq!(
        row.desired_description,
        format!("Preempted by alloc ID {}", id(99))
    );
    assert_eq!(usage(&world).0, 1);
}

#[test]
fn a_job_s_specification_lives_as_long_as_an_allocation_names_it() {
    let mut world = running_job();
    let purge = drover_events::job::JobDeregistered {
        namespace: "default".into(),
        job_id: "web".into(),
        purge: true,
        ..Default::default()
    };
    world.given(purge);
    let key = ("default", "web", 2);
    assert!(world.view().get::<AllocJobs>(key).unwrap().is_some());
    world.given(update(40, "complete"));
    let reap = |ids: Vec<String>| drover_events::eval::EvalsDeleted {
        alloc_ids: ids,
        ..Default::default()
    };
    world.given(reap(vec![id(40)]));
    assert!(world.view().get::<AllocJobs>(key).unwrap().is_some());
    world.given(reap(vec![id(41)]));
    assert!(world.view().get::<AllocJobs>(key).unwrap().is_none());
    assert_eq!(usage(&world), (0, 0, 0));
}

#[test]
fn ev_14_a_client_changes_only_what_is_a_client_s() {
    let mut world = running_job();
    let before = get(&world, 40);
    let mut report = update(40, "failed");
    let network = AllocNetworkStatus {
        address: "10.1.0.5".into(),
        ..Default::default()
    };
    report.updates[0].client_description = "a task failed".into();
    report.updates[0].network_status = Some(network.clone());
    world.given(report);
    let mut after = get(&world, 40);
    assert_eq!(after.client_status, "failed");
    let described = std::mem::take(&mut after.client_description);
    assert_eq!(described, "a task failed");
    assert_eq!(after.network_status.take(), Some(network));
    assert_eq!((after.modify_index, after.alloc_modify_index), (4, 3));
    after.client_status.clone_from(&before.client_status);
    after.modify_index = before.modify_index;
    after.modify_time = before.modify_time;
    after.task_states = before.task_states.clone();
    assert_eq!(after, before);
    assert_eq!(summary(&world).failed, 1);
}

#[test]
fn ev_15_a_client_s_clock_decides_nothing() {
    let mut world = running_job();
    for skew in [-3_600_000_000_000, 3_600_000_000_000] {
        let mut report = update(40, "running");
        let finished_at = Time(START + skew);
        let state = TaskState {
            finished_at,
            ..Default::default()
        };
        report.updates[0].task_states.insert("t".into(), state);
        world.given(report);
        let row = get(&world, 40);
        assert_eq!(row.modify_time, START + 5, "the servers' time");
        let node = crate::tables::nodes::get(&world.view(), &id(10))
            .unwrap()
            .unwrap();
        assert_eq!(node.last_alloc_update_index, world.index, "the log's index");
    }
}

#[test]
fn an_allocation_that_comes_back_marks_its_node_and_ends_the_wait() {
    let mut world = running_job();
    world.given(evals(vec![eval(7, "web", "pending")]));
    let mut unknown = stopped(40, "unknown");
    unknown.stopped[0].followup_eval_id = id(7);
    world.given(unknown);
    world.given(update(40, "running"));
    let mark = world.view().get::<NodeUses>(&id(10)).unwrap().unwrap().mark;
    assert_eq!(mark, event_id(world.index));
    let waiting = world
        .view()
        .get::<crate::tables::evals::Evals>(&id(7))
        .unwrap()
        .unwrap();
    assert_eq!(waiting.status, "canceled");
    let text = "allocation reconnected before it was given up";
    assert_eq!(
        (waiting.status_description.as_str(), waiting.modify_index),
        (text, world.index)
    );
    assert_eq!(waiting.modify_time, now(&world));
}

#[test]
fn dep_08_a_later_report_of_health_brings_its_own_time_and_index() {
    let mut world = running_job();
    for (healthy, timestamp) in [(true, 1), (false, 2)] {
        let mut report = update(40, "running");
        report.updates[0].deployment_status = Some(AllocDeploymentStatus {
            healthy: Some(healthy),
            timestamp: Time(START + timestamp),
            ..Default::default()
        });
        world.given(report);
        let reported = AllocDeploymentStatus {
            healthy: Some(healthy),
            timestamp: Time(START + timestamp),
            modify_index: world.index,
            ..Default::default()
        };
        assert_eq!(get(&world, 40).deployment_status, Some(reported));
    }
    // The same health once more, and a report without one, say nothing new of it.
    let known = get(&world, 40).alloc.deployment_status;
    for healthy in [Some(false), None] {
        let mut report = update(40, "running");
        report.updates[0].deployment_status = Some(AllocDeploymentStatus {
            healthy,
            timestamp: Time(START + 3),
            ..Default::default()
        });
        world.given(report);
        assert_eq!(get(&world, 40).deployment_status, known, "{healthy:?}");
    }
}

#[test]
fn transitions_are_merged_and_pulled_by_the_client() {
    let mut world = running_job();
    let request = |request: DesiredTransition| AllocsDesiredTransitionUpdated {
        transitions: BTreeMap::from([(id(40), request), (id(999), DesiredTransition::default())]),
        ..Default::default()
    };
    world.given(request(DesiredTransition {
        migrate: Some(true),
        ..Default::default()
    }));
    world.given(request(DesiredTransition {
        reschedule: Some(true),
        ..Default::default()
    }));
    let row = get(&world, 40);
    assert_eq!(row.desired_transition.migrate, Some(true));
    assert_eq!(row.desired_transition.reschedule, Some(true));
    assert_eq!(row.alloc_modify_index, world.index);
}

#[test]
fn services_go_with_the_allocation_that_ended() {
    let mut world = running_job();
    let service = ServiceRegistration {
        id: "_s".into(),
        namespace: "default".into(),
        alloc_id: id(40),
        ..Default::default()
    };
    world.given(ServiceRegistrationsUpserted {
        services: vec![service],
    });
    assert!(
        world
            .view()
            .get::<Services>(("default", "_s"))
            .unwrap()
            .is_some()
    );
    for status in ["running", "unknown", "running"] {
        world.given(update(40, status));
        let service = world.view().get::<Services>(("default", "_s")).unwrap();
        assert!(service.is_some(), "{status}");
    }
    world.given(update(40, "complete"));
    assert!(
        world
            .view()
            .get::<Services>(("default", "_s"))
            .unwrap()
            .is_none()
    );
}

#[test]
fn ev_17_signing_keys_list_exactly_the_live_allocations() {
    let mut world = running_job();
    let signed: Vec<_> = (50..56)
        .map(|n| Allocation {
            signing_key_id: id(n % 2),
            ..alloc(n, "web", 10)
        })
        .collect();
    world.given(placed(signed.clone(), 2));
    let check = |world: &World, lengths: [usize; 3]| {
        let view = world.view();
        for (key, length) in [id(0), id(1), id(2)].into_iter().zip(lengths) {
            let scan = Scan::with_key_prefix::<crate::Id>(key.as_str());
            let mut by_index: Vec<_> = view
                .rows_by::<AllocsBySigningKey>(scan)
                .map(|row| row.unwrap().id.clone())
                .collect();
            let mut by_scan: Vec<_> = view
                .rows::<Allocs>(Scan::all())
                .map(|row| row.unwrap())
                .filter(|row| row.signing_key_id == key && !row.client_terminal())
                .map(|row| row.id.clone())
                .collect();
            by_index.sort();
            by_scan.sort();
            assert_eq!(by_index, by_scan);
            assert_eq!(by_index.len(), length, "{key}");
        }
    };
    check(&world, [3, 3, 0]);
    for status in ["running", "unknown"] {
        world.given(update(50, status));
        check(&world, [3, 3, 0]);
    }
    for (n, status, of_0) in [(50, "failed", 2), (52, "complete", 1), (54, "lost", 0)] {
        world.given(update(n, status));
        check(&world, [of_0, 3, 0]);
    }
    // Signed again with another key.
    let again = Allocation {
        signing_key_id: id(2),
        ..signed[1].clone()
    };
    world.given(placed(vec![again], 2));
    check(&world, [0, 2, 1]);
    let reap = drover_events::eval::EvalsDeleted {
        alloc_ids: vec![id(51), id(53)],
        ..Default::default()
    };
    world.given(reap);
    check(&world, [0, 1, 0]);
}

#[test]
fn ev_20_a_plan_that_fails_half_way_leaves_nothing() {
    let mut world = running_job();
    let mut plan = placed(vec![alloc(43, "web", 10), alloc(44, "gone", 10)], 2);
    plan.stopped = stopped(40, "").stopped;
    assert!(world.refused(plan).contains("without a job"));
    assert_eq!(get(&world, 40).modify_index, 3);
    assert!(world.view().get::<Allocs>(&id(43)).unwrap().is_none());
    assert_eq!(usage(&world), (2, 1000, 512));
}

#[test]
fn a_plan_made_before_another_on_the_same_node_is_rejected() {
    let mut world = running_job();
    let guard = |mark| vec![Guard::NodeMark { node: id(10), mark }];
    let late = world.guarded(placed(vec![alloc(42, "web", 10)], 2), guard(event_id(1)));
    assert!(matches!(
        late,
        Outcome::Rejected(Rejection::Guard {
            position: 0,
            found: 3
        })
    ));
    let fresh = world.guarded(placed(vec![alloc(42, "web", 10)], 2), guard(event_id(3)));
    assert_eq!(fresh, Outcome::Applied(Reply::None));
    // The next in line knows its predecessor's id before it is committed.
    let next = world.guarded(placed(vec![alloc(43, "web", 10)], 2), guard(event_id(5)));
    assert_eq!(next, Outcome::Applied(Reply::None));
}

#[test]
fn ev_09_a_query_gives_the_same_inside_and_outside_a_transaction() {
    // The job's status is decided by the query inside the transaction; outside it says the same.
    let mut world = running_job();
    let key = ("default", "web");
    for (event, live) in [
        (update(40, "complete"), true),
        (update(41, "failed"), false),
    ] {
        world.given(event);
        let view = world.view();
        assert_eq!(query::has_live_alloc(&view, key).unwrap(), live);
        let job = view.get::<Jobs>(key).unwrap().unwrap();
        assert_eq!(job.status == "running", live);
    }
}

#[test]
fn ev_08_a_query_sees_what_its_own_event_wrote() {
    let mut world = running_job();
    // Both end in one event: seen from outside the transaction, the other one would still run.
    let mut both = update(40, "complete");
    both.updates.extend(update(41, "complete").updates);
    world.given(both);
    let job = world
        .view()
        .get::<Jobs>(("default", "web"))
        .unwrap()
        .unwrap();
    assert_eq!(job.status, "dead");
}

#[test]
fn ev_08_counts_after_many_changes_in_one_batch_equal_a_recount() {
    let mut world = running_job();
    let numbers: Vec<u32> = (40..70).collect();
    let rest = numbers[2..].iter().map(|n| alloc(*n, "web", 10));
    world.given(placed(rest.collect(), 2));
    // What has ended stays so: the last round ends some, the others go to and fro.
    let last = ["running", "failed", "complete", "pending", "running"];
    let mut batch = Vec::new();
    for round in 0..4_u32 {
        for pair in numbers.chunks(2) {
            let mut event = AllocsUpdatedByClient::default();
            for n in pair {
                let status = match round {
                    3 => last[(n % 5) as usize],
                    _ => ["running", "pending"][((n + round) % 2) as usize],
                };
                event.updates.extend(update(*n, status).updates);
            }
            let index = world.index + batch.len() as u64 + 1;
            batch.push(recorded(index, event.into(), Vec::new()));
        }
    }
    world.apply_all(&batch);
    let rows: Vec<AllocRow> = numbers.iter().map(|n| get(&world, *n)).collect();
    let count = |status: &str| {
        rows.iter()
            .filter(|row| row.client_status == status)
            .count()
    };
    let reported = summary(&world);
    let counted = [
        ("pending", reported.starting),
        ("running", reported.running),
        ("complete", reported.complete),
        ("failed", reported.failed),
    ];
    for (status, counter) in counted {
        assert_eq!(
            usize::try_from(counter).unwrap(),
            count(status),
            "{status}: {reported:?}"
        );
    }
    let held = count("pending") + count("running");
    let (allocs, cpu, memory) = usage(&world);
    assert_eq!(allocs, held as u64);
    assert_eq!((cpu, memory), (500 * held as i64, 256 * held as i64));
}
