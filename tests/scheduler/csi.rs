//! CSI volumes: which jobs are placed for one, which wait for it, and when those continue.

use drover_events::alloc::AllocsUpdatedByClient;
use drover_events::cluster::VersionBarrierRaised;
use drover_events::csi::{CSI_LEVEL, CsiVolumeClaimed, CsiVolumesRegistered, claim_mode, state};
use drover_events::eval::EvalsDeleted;
use drover_events::job::JobRegistered;
use drover_events::model::{
    Constraint, CsiControllerInfo, CsiInfo, CsiNodeInfo, CsiTopology, CsiVolume,
    CsiVolumeCapability, Job, Node, SchedulerConfiguration, VolumeRequest,
};
use drover_projections::tables::allocs::AllocsByJob;
use std::sync::Arc;

use super::world::World;
use drover::reactors::scheduling::core::Core;
use drover::reactors::scheduling::plan_check::prepare;
use drover_scheduler::Outcome;
use drover_scheduler::rank::{NodeVerdict, RefusalStep};
use drover_testkit::fixtures::{job, node};

const TAKEN: &str = "CSI volume data has exhausted its available writer claims";

/// A node where plugin `p` can mount so many volumes; 0 for any number.
fn mounts(number: usize, max_volumes: i64) -> Node {
    let mut node = node(number);
    let info = CsiInfo {
        plugin_id: "p".to_owned(),
        healthy: true,
        node_info: Some(CsiNodeInfo {
            id: node.id.clone(),
            max_volumes,
            ..CsiNodeInfo::default()
        }),
        ..CsiInfo::default()
    };
    node.csi_node_plugins.insert("p", info);
    node
}

fn volume(id: &str) -> CsiVolume {
    let capability = CsiVolumeCapability {
        access_mode: "single-node-writer".to_owned(),
        attachment_mode: "file-system".to_owned(),
    };
    CsiVolume {
        id: id.to_owned(),
        name: id.to_owned(),
        namespace: "default".to_owned(),
        plugin_id: "p".to_owned(),
        requested_capabilities: vec![capability].into(),
        ..CsiVolume::default()
    }
}

/// A job that writes a volume.
fn writes(id: &str, source: &str) -> Job {
    let request = VolumeRequest {
        name: "v".to_owned(),
        r#type: "csi".to_owned(),
        source: source.to_owned(),
        access_mode: "single-node-writer".to_owned(),
        attachment_mode: "file-system".to_owned(),
        ..VolumeRequest::default()
    };
    let mut spec = job("service", 1);
    spec.id = id.to_owned();
    spec.name = id.to_owned();
    spec.task_groups[0].volumes = [("v".to_owned(), request)].into_iter().collect();
    spec
}

/// Two nodes with the plugin, these volumes, and job `j`, which writes `data`.
fn world(volumes: &[&str]) -> World {
    let mut world = World::new(0, writes("j", "data"));
    world.apply(VersionBarrierRaised {
        level: CSI_LEVEL,
        ..VersionBarrierRaised::default()
    });
    for number in [1, 2] {
        world.add_node(mounts(number, 0));
    }
    world.apply(CsiVolumesRegistered {
        volumes: volumes.iter().map(|id| volume(id)).collect(),
        timestamp: 1,
    });
    world
}

fn register(world: &mut World, spec: Job) {
    world.apply(JobRegistered {
        job: Arc::new(spec),
        ..JobRegistered::default()
    });
}

fn run(world: &mut World, job: &str) -> Outcome {
    let eval = world.eval_of(job, "job-register");
    world.run_eval(&eval)
}

/// Why group `g` found no place.
fn why(outcome: &Outcome) -> Vec<&str> {
    let metric = outcome.failed.get("g").into_iter();
    let reasons = metric.flat_map(|metric| metric.constraint_filtered.keys());
    reasons.map(String::as_str).collect()
}

/// The ids of the allocations of a job.
fn allocs(world: &World, job: &str) -> Vec<String> {
    let view = world.view();
    let rows = view.by_index::<AllocsByJob>(("default", job));
    rows.map(|row| row.unwrap().alloc.id).collect()
}

fn claim(world: &mut World, alloc: &str, state: u8) {
    world.apply(CsiVolumeClaimed {
        namespace: "default".to_owned(),
        volume_id: "data".to_owned(),
        allocation_id: alloc.to_owned(),
        mode: claim_mode::WRITE,
        access_mode: "single-node-writer".to_owned(),
        attachment_mode: "file-system".to_owned(),
        state,
        ..CsiVolumeClaimed::default()
    });
}

fn ends(world: &mut World, alloc: &str) {
    world.apply(AllocsUpdatedByClient {
        updates: vec![drover_events::alloc::ClientAllocUpdate {
            id: alloc.to_owned(),
            client_status: "complete".to_owned(),
            ..Default::default()
        }],
        updated_at: world.now,
        ..AllocsUpdatedByClient::default()
    });
}

#[test]
fn csi_29_a_volume_goes_to_one_job_and_the_next_one_waits_until_it_is_free() {
    let mut world = world(&["data"]);
    register(&mut world, writes("other", "data"));
    assert!(run(&mut world, "j").failed.is_empty());
    let first = allocs(&world, "j").remove(0);
    // It is placed and has claimed nothing yet.
    let outcome = run(&mut world, "other");
    assert_eq!(why(&outcome), [TAKEN]);
    let blocked = outcome.blocked.expect("it waits");
    assert!(blocked.class_eligibility.values().all(|eligible| *eligible));
    // The reason is given for every node.
    let eval = world.eval_of("other", "job-register");
    let explained = world.explain(&eval);
    let verdicts: Vec<&NodeVerdict> = explained.searches[0]
        .nodes
        .iter()
        .map(|n| &n.verdict)
        .collect();
    let refused = NodeVerdict::Refused {
        step: RefusalStep::Infeasible,
        reason: TAKEN.to_owned(),
    };
    assert_eq!(verdicts, [&refused, &refused]);
    claim(&mut world, &first, state::CLAIMED);
    assert_eq!(why(&run(&mut world, "other")), [TAKEN]);
    // It has ended, and its volume is not free yet.
    ends(&mut world, &first);
    assert_eq!(why(&run(&mut world, "other")), [TAKEN]);
    claim(&mut world, &first, state::NODE_DETACHED);
    assert_eq!(why(&run(&mut world, "other")), [TAKEN]);
    claim(&mut world, &first, state::READY_TO_FREE);
    assert!(run(&mut world, "other").failed.is_empty());
    assert_eq!(allocs(&world, "other").len(), 1);
}

#[test]
fn csi_29_what_is_left_of_one_who_is_gone_is_told_apart_and_waited_for() {
    let mut world = world(&["data"]);
    register(&mut world, writes("other", "data"));
    run(&mut world, "j");
    let first = allocs(&world, "j").remove(0);
    claim(&mut world, &first, state::CLAIMED);
    ends(&mut world, &first);
    world.apply(EvalsDeleted {
        alloc_ids: vec![first.clone()],
        ..EvalsDeleted::default()
    });
    assert!(allocs(&world, "j").is_empty(), "collected");
    let left = format!(
        "{TAKEN} and is claimed by a garbage collected allocation {first}; waiting for claim to \
         be released"
    );
    assert_eq!(why(&run(&mut world, "other")), [&left]);
    let mut core = world.idle_core();
    assert_eq!(core.blocked.stats().total, 1);
    claim(&mut world, &first, state::READY_TO_FREE);
    core.catch_up(&world.view(), world.now).unwrap();
    assert_eq!(core.blocked.stats().total, 0, "released");
    let (eval, _) = core
        .broker
        .dequeue(&["service"], world.now)
        .expect("it goes on");
    assert!(world.run_eval(&eval).failed.is_empty());
}

#[test]
fn csi_30_a_new_version_of_the_same_job_is_placed_beside_the_claim_of_the_old_one() {
    let mut world = world(&["data"]);
    run(&mut world, "j");
    let first = allocs(&world, "j").remove(0);
    claim(&mut world, &first, state::CLAIMED);
    world.all_are("running");
    world.change(|job| job.task_groups[0].tasks[0].user = "somebody".to_owned());
    let outcome = world.run("job-register");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_eq!(allocs(&world, "j").len(), 2);
}

#[test]
fn of_plans_that_want_one_volume_at_once_one_goes_on() {
    let mut world = world(&["data"]);
    register(&mut world, writes("other", "data"));
    let evals = ["j", "other"].map(|job| world.eval_of(job, "job-register"));
    // Both were decided before either is committed.
    let requests = evals.each_ref().map(|eval| {
        let outcome = world.decide(eval);
        assert!(outcome.failed.is_empty());
        world.request(eval, outcome)
    });
    let mut core = world.core();
    let refused =
        requests.map(|request| prepare(&mut core, request, world.now).rejected_nodes.len());
    assert_eq!(refused, [0, 1]);
}

#[test]
fn csi_43_a_release_wakes_who_waits_for_the_volume_and_nobody_else() {
    let mut world = world(&["data", "spare"]);
    register(&mut world, writes("other", "data"));
    register(&mut world, writes("third", "none"));
    run(&mut world, "j");
    let first = allocs(&world, "j").remove(0);
    claim(&mut world, &first, state::CLAIMED);
    for job in ["other", "third"] {
        assert!(run(&mut world, job).blocked.is_some());
    }
    ends(&mut world, &first);
    let mut core = world.idle_core();
    assert_eq!(core.blocked.stats().total, 2);
    claim(&mut world, &first, state::UNPUBLISHING);
    core.catch_up(&world.view(), world.now).unwrap();
    assert_eq!(core.blocked.stats().total, 2, "it is not free");
    claim(&mut world, &first, state::READY_TO_FREE);
    core.catch_up(&world.view(), world.now).unwrap();
    assert_eq!(core.blocked.stats().total, 1);
    let (eval, _) = core.broker.dequeue(&["service"], world.now).expect("woken");
    assert_eq!(eval.job_id, "other");
    // A volume that is registered wakes the jobs that missed it.
    world.apply(CsiVolumesRegistered {
        volumes: vec![volume("none")],
        timestamp: 2,
    });
    core.catch_up(&world.view(), world.now).unwrap();
    assert_eq!(core.blocked.stats().total, 0);
}

#[test]
fn a_node_takes_no_more_volumes_than_its_plugin_says() {
    let mut world = world(&["data", "more", "many"]);
    for number in [1, 2] {
        world.add_node(mounts(number, 1));
    }
    for (job, source) in [("second", "more"), ("third", "many")] {
        register(&mut world, writes(job, source));
    }
    assert!(run(&mut world, "j").failed.is_empty());
    assert!(run(&mut world, "second").failed.is_empty());
    let outcome = run(&mut world, "third");
    let full = |number: usize| {
        let client = node(number).id;
        format!("CSI plugin p has the maximum number of volumes on client {client}")
    };
    assert_eq!(why(&outcome), [full(1), full(2)]);
    // What is taken off a node leaves a slot for another volume.
    let first = allocs(&world, "j").remove(0);
    claim(&mut world, &first, state::CLAIMED);
    ends(&mut world, &first);
    let mut core = world.idle_core();
    assert_eq!(core.blocked.stats().total, 1);
    claim(&mut world, &first, state::READY_TO_FREE);
    core.catch_up(&world.view(), world.now).unwrap();
    assert_eq!(core.blocked.stats().total, 0);
    let (eval, _) = core.broker.dequeue(&["service"], world.now).expect("woken");
    assert_eq!(eval.job_id, "third");
    // The same where two plans are decided before either is committed.
    register(&mut world, writes("fourth", "data"));
    let evals = ["third", "fourth"].map(|job| world.eval_of(job, "job-register"));
    let requests = evals.each_ref().map(|eval| {
        let outcome = world.decide(eval);
        world.request(eval, outcome)
    });
    let mut core = world.core();
    let refused =
        requests.map(|request| prepare(&mut core, request, world.now).rejected_nodes.len());
    assert_eq!(refused, [0, 1]);
}

#[test]
fn a_volume_without_a_healthy_plugin_is_waited_for() {
    let mut world = World::new(2, writes("j", "data"));
    world.apply(VersionBarrierRaised {
        level: CSI_LEVEL,
        ..VersionBarrierRaised::default()
    });
    let missing = run(&mut world, "j");
    assert_eq!(why(&missing), ["missing CSI Volume data"]);
    let mut core = world.idle_core();
    world.add_node(mounts(1, 0));
    world.apply(CsiVolumesRegistered {
        volumes: vec![volume("data")],
        timestamp: 1,
    });
    core.catch_up(&world.view(), world.now).unwrap();
    let (eval, _) = core.broker.dequeue(&["service"], world.now).expect("woken");
    assert!(world.run_eval(&eval).failed.is_empty());
}

/// A volume that is held, and waited for by `other`.
fn held_and_waited_for() -> (World, String) {
    let mut world = world(&["data"]);
    register(&mut world, writes("other", "data"));
    run(&mut world, "j");
    let first = allocs(&world, "j").remove(0);
    claim(&mut world, &first, state::CLAIMED);
    assert_eq!(why(&run(&mut world, "other")), [TAKEN]);
    (world, first)
}

#[test]
fn csi_43_the_next_leader_wakes_who_waited_for_what_the_last_one_saw_released() {
    let (mut world, first) = held_and_waited_for();
    ends(&mut world, &first);
    claim(&mut world, &first, state::READY_TO_FREE);
    let mut core = world.core();
    let (eval, token) = core.broker.dequeue(&["service"], world.now).expect("woken");
    assert_eq!(eval.job_id, "other");
    assert!(world.run_eval(&eval).failed.is_empty());
    core.catch_up(&world.view(), world.now).unwrap();
    core.broker.ack(&eval.id, token, world.now).unwrap();
    assert!(core.broker.dequeue(&["service"], world.now).is_none());
    assert_eq!(core.blocked.stats().total, 0);
}

#[test]
fn csi_43_what_was_released_while_the_broker_paused_wakes_who_waits_for_it() {
    let (mut world, first) = held_and_waited_for();
    let mut core = world.idle_core();
    assert_eq!(core.blocked.stats().total, 1);
    let pause = |world: &mut World, core: &mut Core, pause_eval_broker| {
        world.configure(SchedulerConfiguration {
            pause_eval_broker,
            ..SchedulerConfiguration::default()
        });
        core.catch_up(&world.view(), world.now).unwrap();
    };
    pause(&mut world, &mut core, true);
    ends(&mut world, &first);
    claim(&mut world, &first, state::READY_TO_FREE);
    core.catch_up(&world.view(), world.now).unwrap();
    assert!(core.broker.dequeue(&["service"], world.now).is_none());
    pause(&mut world, &mut core, false);
    let (eval, _) = core.broker.dequeue(&["service"], world.now).expect("woken");
    assert_eq!(eval.job_id, "other");
    assert!(world.run_eval(&eval).failed.is_empty());
}

/// The plugin's controller runs where the job may not: nothing of its own nodes changes when it is
/// in health again.
#[test]
fn csi_43_a_job_goes_on_when_the_controller_of_its_volume_is_back_on_another_class_of_nodes() {
    let mut spec = writes("j", "data");
    spec.constraints = vec![Constraint {
        l_target: "${node.class}".to_owned(),
        r_target: "app".to_owned(),
        operand: "=".to_owned(),
    }]
    .into();
    let mut world = World::new(0, spec);
    world.apply(VersionBarrierRaised {
        level: CSI_LEVEL,
        ..VersionBarrierRaised::default()
    });
    let with_controller = |mut node: Node, healthy: Option<bool>| {
        let class = if healthy.is_some() { "infra" } else { "app" };
        node.node_class = class.to_owned();
        node.computed_class = class.to_owned();
        for (_, info) in node.csi_node_plugins.iter_mut() {
            info.requires_controller_plugin = true;
        }
        if let Some(healthy) = healthy {
            let info = CsiInfo {
                plugin_id: "p".to_owned(),
                healthy,
                requires_controller_plugin: true,
                controller_info: Some(CsiControllerInfo {
                    supports_attach_detach: true,
                    ..CsiControllerInfo::default()
                }),
                ..CsiInfo::default()
            };
            node.csi_controller_plugins.insert("p", info);
        }
        node
    };
    world.add_node(with_controller(mounts(1, 0), None));
    world.add_node(with_controller(node(2), Some(false)));
    world.apply(CsiVolumesRegistered {
        volumes: vec![volume("data")],
        timestamp: 1,
    });
    let unusable = "CSI volume data is unschedulable or is read-only";
    let outcome = run(&mut world, "j");
    assert!(why(&outcome).contains(&unusable), "{:?}", why(&outcome));
    let mut core = world.idle_core();
    assert_eq!(core.blocked.stats().total, 1);
    world.add_node(with_controller(node(2), Some(true)));
    core.catch_up(&world.view(), world.now).unwrap();
    let (eval, _) = core.broker.dequeue(&["service"], world.now).expect("woken");
    assert!(world.run_eval(&eval).failed.is_empty());
}

/// Each allocation has the volume of its index, wherever that one can be mounted, and names for its
/// own volume why it is not placed.
#[test]
fn hv_01_hv_04_each_allocation_gets_the_csi_volume_of_its_index() {
    let mut spec = writes("j", "data");
    spec.task_groups[0].count = 3;
    let request = spec.task_groups[0].volumes.get_mut("v").unwrap();
    request.per_alloc = true;
    let mut world = World::new(0, spec);
    world.apply(VersionBarrierRaised {
        level: CSI_LEVEL,
        ..VersionBarrierRaised::default()
    });
    let zone = |zone: &str| CsiTopology {
        segments: [("zone".to_owned(), zone.to_owned())].into_iter().collect(),
    };
    for number in 0..3 {
        let mut node = mounts(number, 0);
        let info = node.csi_node_plugins.get_mut("p").unwrap();
        let reported = info.node_info.as_mut().unwrap();
        reported.accessible_topology = Some(zone(&format!("z{number}")));
        world.add_node(node);
    }
    // All nodes are of one class. The volume without an index is not one of theirs.
    let within = |id: &str, of: &str| CsiVolume {
        topologies: vec![zone(of)].into(),
        ..volume(id)
    };
    world.apply(CsiVolumesRegistered {
        volumes: vec![
            within("data[0]", "z2"),
            within("data[1]", "z0"),
            within("data", "z1"),
        ],
        timestamp: 1,
    });
    let outcome = world.run("job-register");
    let metric = &outcome.failed["g"];
    let reasons: Vec<_> = metric.constraint_filtered.iter().collect();
    assert_eq!(reasons, [(&"missing CSI Volume data[2]".to_owned(), &3)]);
    let places = |world: &World| -> Vec<(String, String)> {
        let live = world.live().into_iter().map(|id| world.alloc(&id));
        live.map(|alloc| (alloc.name, alloc.node_name)).collect()
    };
    let placed = |name: &str, number: usize| (name.to_owned(), node(number).name);
    let first = [placed("j.g[0]", 2), placed("j.g[1]", 0)];
    assert_eq!(places(&world), first);
    // Another job that wants one of them is not in the way of the others.
    register(&mut world, writes("other", "data[1]"));
    let taken = "CSI volume data[1] has exhausted its available writer claims";
    assert!(why(&run(&mut world, "other")).contains(&taken));
    let mut core = world.idle_core();
    assert_eq!(core.blocked.stats().total, 2);
    world.apply(CsiVolumesRegistered {
        volumes: vec![within("data[2]", "z1")],
        timestamp: 2,
    });
    core.catch_up(&world.view(), world.now).unwrap();
    let (eval, _) = core.broker.dequeue(&["service"], world.now).expect("woken");
    assert_eq!(eval.job_id, "j");
    assert!(world.run_eval(&eval).failed.is_empty());
    assert_eq!(places(&world)[2], placed("j.g[2]", 1));
}
