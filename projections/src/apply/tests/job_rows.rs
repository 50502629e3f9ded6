//! What the rows of a job say after each event: indexes, counts, and what goes with it.

use drover_events::alloc::ClientAllocUpdate;
use drover_events::job::*;
use drover_events::model::{
    Deployment, JobSubmission, JobSummary, JobVersionTag, ScalingEvent, ScalingPolicy,
    TaskGroupSummary,
};

use super::*;
use crate::store::indexes_test::Change;
use crate::tables::alloc_job_counts::AllocJobCounts;
use crate::tables::allocs::Allocs;
use crate::tables::deployments::Deployments;
use crate::tables::job_submissions::JobSubmissions;
use crate::tables::job_summaries::JobSummaries;
use crate::tables::job_versions::JobVersions;
use crate::tables::jobs::Jobs;
use crate::tables::scaling_events::ScalingEvents;
use crate::tables::scaling_policies::ScalingPolicies;

const WEB: (&str, &str) = ("default", "web");

fn get(world: &World, name: &str) -> Job {
    let row = world.view().get::<Jobs>(("default", name)).unwrap();
    row.unwrap()
}

fn summary(world: &World, name: &str) -> JobSummary {
    let row = world.view().get::<JobSummaries>(("default", name));
    row.unwrap().unwrap()
}

fn group(world: &World) -> TaskGroupSummary {
    summary(world, "web").summary.get("g").unwrap().clone()
}

fn child(name: &str) -> Job {
    let mut child = job(name);
    child.parent_id = "web".into();
    child
}

#[test]
fn what_is_created_with_a_registration_is_of_its_version() {
    let mut world = World::new();
    world.given(submitted(job("web")));
    let deployment = Deployment {
        id: id(30),
        namespace: "default".into(),
        job_id: "web".into(),
        status: "running".into(),
        ..Default::default()
    };
    let scaling = GroupScaling {
        task_group: "g".into(),
        event: ScalingEvent {
            count: Some(2),
            ..Default::default()
        },
    };
    world.given(JobRegistered {
        deployment: Some(deployment),
        scaling: Some(scaling),
        eval: Some(eval(1, "web", "pending")),
        ..submitted(job("web"))
    });
    let view = world.view();
    let row = view.get::<Deployments>(&id(30)).unwrap().unwrap();
    assert_eq!((row.job_version, row.job_create_index), (1, 1));
    assert_eq!((row.job_modify_index, row.job_spec_modify_index), (2, 2));
    assert_eq!((row.create_index, row.modify_index), (2, 2));
    let row = view.get::<ScalingEvents>(WEB).unwrap().unwrap();
    let events = row.scaling_events.get("g").unwrap();
    assert_eq!((events[0].count, events[0].create_index), (Some(2), 2));
    let row = view.get::<crate::tables::evals::Evals>(&id(1)).unwrap();
    assert_eq!(row.unwrap().job_modify_index, 2);
    world.given(stop(true));
    assert!(world.view().get::<ScalingEvents>(WEB).unwrap().is_none());
}

#[test]
fn the_servers_alone_give_a_registration_its_version_status_and_tag() {
    let mut world = World::new();
    let mut forged = job("web");
    forged.version = 7;
    forged.modify_index = 70;
    forged.version_tag = Some(JobVersionTag::default());
    world.given(JobRegistered {
        submission: Some(JobSubmission::default()),
        ..submitted(forged)
    });
    let row = get(&world, "web");
    assert_eq!(
        (row.version, row.modify_index, row.version_tag),
        (0, 1, None)
    );
    world.given(registered(node(10)));
    world.given(placed(vec![alloc(40, "web", 10)], 1));
    let row = get(&world, "web");
    let indexes = (row.modify_index, row.job_modify_index);
    assert_eq!((row.status.as_str(), indexes), ("running", (3, 1)));
    world.given(JobStabilityUpdated {
        namespace: "default".into(),
        job_id: "web".into(),
        job_version: 0,
        stable: true,
    });
    let version = world.view().get::<JobVersions>(("default", "web", 0));
    assert_eq!(version.unwrap().unwrap().modify_index, world.index);
    assert_eq!(get(&world, "web").modify_index, world.index);
    world.given(stop(true));
    let kept = world.view().get::<JobSubmissions>(("default", "web", 0));
    assert!(kept.unwrap().is_none(), "its source goes with it");
}

#[test]
fn a_child_that_is_registered_again_is_counted_once() {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(submitted(job("web")));
    let count = |world: &World| {
        let children = summary(world, "web").children.unwrap();
        (children.pending, children.running, children.dead)
    };
    for _ in 0..2 {
        world.given(submitted(child("web/a")));
        assert_eq!(count(&world), (1, 0, 0));
    }
    let spec = get(&world, "web/a").job_modify_index;
    world.given(placed(vec![alloc(40, "web/a", 10)], spec));
    for _ in 0..2 {
        assert_eq!(count(&world), (0, 1, 0));
        world.given(submitted(child("web/a")));
    }
    // Without a token each dispatch is one of its own.
    world.given(submitted(child("web/b")));
    assert_eq!(count(&world), (1, 1, 0));
    assert_eq!(summary(&world, "web").modify_index, world.index);
}

#[test]
fn a_stop_says_when_it_was_submitted_and_asks_allocations_to_hurry() {
    let mut world = running_job();
    world.given(JobDeregistered {
        submit_time: 77,
        no_shutdown_delay: true,
        ..stop(false)
    });
    assert_eq!(get(&world, "web").submit_time, 77);
    let row = world.view().get::<Allocs>(&id(40)).unwrap().unwrap();
    assert_eq!(row.desired_transition.no_shutdown_delay, Some(true));
    assert_eq!((row.modify_index, row.modify_time), (world.index, 77));
    world.given(stop(false));
    assert_eq!(
        get(&world, "web").submit_time,
        77,
        "an event without a time"
    );
}

#[test]
fn policies_of_a_stopped_job_stay_disabled_or_go() {
    let mut world = World::new();
    let scaled = |policy: u32| {
        let mut spec = job("web");
        spec.task_groups[0].scaling = Some(ScalingPolicy {
            id: id(policy),
            enabled: true,
            ..Default::default()
        });
        spec
    };
    let get = |world: &World| world.view().get::<ScalingPolicies>(&id(70)).unwrap();
    world.given(submitted(scaled(70)));
    let first = get(&world).unwrap();
    assert!(first.enabled);
    assert_eq!((first.create_index, first.modify_index), (1, 1));
    world.given(submitted(scaled(71)));
    assert_eq!(get(&world).unwrap().modify_index, 1, "it is as it was");
    world.given(JobDeregistered {
        keep_policies: true,
        ..stop(false)
    });
    let stopped = get(&world).unwrap();
    assert_eq!((stopped.enabled, stopped.modify_index), (false, 3));
    world.given(submitted(scaled(72)));
    assert!(get(&world).unwrap().enabled);
    world.given(stop(false));
    assert_eq!(get(&world), None);
    // All at once, as garbage collection stops jobs.
    world.given(submitted(scaled(70)));
    let all = |purge| {
        let job = DeregisteredJob {
            namespace: "default".into(),
            job_id: "web".into(),
            purge,
        };
        JobsDeregistered {
            jobs: vec![job],
            submit_time: 78,
            keep_policies: true,
            evals: vec![eval(5, "web", "pending")],
            ..Default::default()
        }
    };
    world.given(all(false));
    assert!(!get(&world).unwrap().enabled);
    let row = super::job_rows::get(&world, "web");
    assert_eq!((row.status.as_str(), row.submit_time), ("pending", 78));
    world.given(all(true));
    assert_eq!(get(&world), None);
}

#[test]
fn a_job_without_allocations_is_dead_once_it_is_stopped_or_was_evaluated() {
    let status = |world: &World| get(world, "web").status;
    let mut world = World::new();
    world.given(submitted(job("web")));
    assert_eq!(status(&world), "pending");
    world.given(stop(false));
    assert_eq!(status(&world), "dead", "nothing is to be done for it");
    let mut world = World::new();
    world.given(submitted(job("web")));
    world.given(evals(vec![eval(1, "web", "pending")]));
    assert_eq!(status(&world), "pending");
    world.given(drover_events::eval::EvalsDeleted {
        eval_ids: vec![id(1)],
        ..Default::default()
    });
    assert_eq!(status(&world), "dead", "its evaluations are over");
}

#[test]
fn a_summary_counts_each_status_of_a_client() {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(submitted(job("web")));
    let mut blocked = eval(1, "web", "blocked");
    blocked.queued_allocations.insert("g", 3);
    world.given(evals(vec![blocked]));
    assert_eq!(summary(&world, "web").modify_index, world.index);
    world.given(placed(vec![alloc(40, "web", 10), alloc(41, "web", 10)], 2));
    assert_eq!((group(&world).queued, group(&world).starting), (1, 2));
    assert_eq!(summary(&world, "web").modify_index, world.index);
    let mut reported = |status: &str| {
        let update = ClientAllocUpdate {
            id: id(40),
            client_status: status.into(),
            ..Default::default()
        };
        world.given(drover_events::alloc::AllocsUpdatedByClient {
            updates: vec![update],
            ..Default::default()
        });
        let group = group(&world);
        (group.running, group.lost, group.unknown, group.complete)
    };
    assert_eq!(reported("running"), (1, 0, 0, 0));
    assert_eq!(reported("unknown"), (0, 0, 1, 0));
    assert_eq!(reported("lost"), (0, 1, 0, 0));
    assert_eq!(reported("running"), (1, 0, 0, 0));
    assert_eq!(reported("complete"), (0, 0, 0, 1));
    // A group that a version adds is counted from then on.
    let mut wider = job("web");
    let mut more = wider.task_groups[0].clone();
    more.name = "h".into();
    wider.task_groups = vec![wider.task_groups[0].clone(), more].into();
    world.given(submitted(wider));
    let row = summary(&world, "web");
    assert!(row.summary.contains_key("h"));
    assert_eq!(row.modify_index, world.index);
}

#[test]
fn the_counts_of_a_specification_go_with_its_last_allocation() {
    let mut world = running_job();
    let counts = |world: &World| {
        let row = world.view().get::<AllocJobCounts>(("default", "web", 2));
        row.unwrap().map(|row| (row.count, row.live))
    };
    assert_eq!(counts(&world), Some((2, 2)));
    world.given(super::allocs::update(40, "complete"));
    assert_eq!(counts(&world), Some((2, 1)));
    world.given(drover_events::eval::EvalsDeleted {
        alloc_ids: vec![id(40), id(41)],
        ..Default::default()
    });
    assert_eq!(counts(&world), None);
}

#[test]
fn a_registration_settles_its_job_though_its_evaluation_is_of_another_namespace() {
    let mut world = World::new();
    let mut elsewhere = eval(1, "web", "pending");
    elsewhere.namespace = "prod".into();
    let mut periodic = job("web");
    periodic.periodic = Some(drover_events::model::PeriodicConfig::default());
    world.given(JobRegistered {
        eval: Some(elsewhere),
        ..submitted(periodic)
    });
    assert_eq!(get(&world, "web").status, "running");
}

/// Every count of a job's group is wrong, and a second group has counts without allocations.
fn spoil(world: &mut World, name: &str) {
    let mut row = summary(world, name);
    let wrong = |queued| TaskGroupSummary {
        queued,
        complete: 9,
        failed: 9,
        running: 9,
        starting: 9,
        lost: 9,
        unknown: 9,
    };
    row.summary.insert("g", wrong(4));
    row.summary.insert("h", wrong(5));
    world.index += 1;
    // As no event writes one.
    let change = Change::<JobSummaries> {
        index: world.index,
        row,
        is_put: true,
    };
    let applied = world.writer.apply_batch(&[change]).unwrap();
    assert_eq!(applied[0].outcome, Outcome::Applied(Reply::None));
}

#[test]
fn summaries_are_counted_anew_page_by_page_and_keep_what_is_queued() {
    let mut world = running_job();
    world.given(super::allocs::update(40, "running"));
    world.given(submitted(job("api")));
    let spec = world.index;
    world.given(placed(vec![alloc(42, "api", 10)], spec));
    world.given(super::allocs::update(42, "failed"));
    spoil(&mut world, "api");
    spoil(&mut world, "web");
    let spoiled = summary(&world, "web");
    let page = |token: &str| JobSummariesReconciled {
        page_token: token.into(),
        per_page: 1,
    };
    let counted = |group: TaskGroupSummary| {
        let empty = TaskGroupSummary {
            queued: 5,
            ..Default::default()
        };
        BTreeMap::from([("g".to_owned(), group), ("h".to_owned(), empty)])
    };

    let reply = world.given(page(""));
    let next = "default.web".to_owned();
    assert_eq!(reply, Reply::Page { count: 1, next });
    let api = counted(TaskGroupSummary {
        queued: 4,
        failed: 1,
        ..Default::default()
    });
    let first = summary(&world, "api");
    assert_eq!(*first.summary, api);
    assert_eq!(first.modify_index, world.index);
    assert_eq!(summary(&world, "web"), spoiled, "it is of the next page");

    let reply = world.given(page("default.web"));
    let next = String::new();
    assert_eq!(reply, Reply::Page { count: 1, next });
    let web = counted(TaskGroupSummary {
        queued: 4,
        running: 1,
        starting: 1,
        ..Default::default()
    });
    let second = summary(&world, "web");
    assert_eq!(*second.summary, web);
    assert_eq!(second.modify_index, world.index);
    assert_eq!(summary(&world, "api"), first, "it is of the page before");
}
