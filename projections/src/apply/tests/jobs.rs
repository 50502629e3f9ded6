use drover_events::job::*;
use drover_events::model::{JobSubmission, JobVersionTag, PeriodicConfig, ScalingPolicy};

use super::*;
use crate::engine::scan::Scan;
use crate::tables::job_submissions::JobSubmissions;
use crate::tables::job_summaries::JobSummaries;
use crate::tables::job_versions::JobVersions;
use crate::tables::jobs::Jobs;
use crate::tables::periodic_launches::PeriodicLaunches;
use crate::tables::scaling_policies::ScalingPolicies;

const WEB: (&str, &str) = ("default", "web");

fn get(world: &World) -> Job {
    world.view().get::<Jobs>(WEB).unwrap().unwrap()
}

fn versions(world: &World) -> Vec<u64> {
    let scan = Scan::with_key_prefix::<(String, String)>(WEB);
    world
        .view()
        .scan::<JobVersions>(scan)
        .map(|job| job.unwrap().version)
        .collect()
}

fn spec(count: i64) -> Job {
    let mut spec = job("web");
    spec.task_groups[0].count = count;
    spec
}

fn stable(version: u64) -> JobStabilityUpdated {
    JobStabilityUpdated {
        namespace: "default".into(),
        job_id: "web".into(),
        job_version: version,
        stable: true,
    }
}

#[test]
fn each_registration_is_a_version() {
    let mut world = World::new();
    world.given(submitted(spec(1)));
    let first = get(&world);
    assert_eq!(
        (first.version, first.create_index, first.job_modify_index),
        (0, 1, 1)
    );
    assert_eq!(first.status, "pending");
    let submission = Some(JobSubmission {
        source: "src".into(),
        ..Default::default()
    });
    world.given(JobRegistered {
        submission,
        ..submitted(spec(2))
    });
    let second = get(&world);
    assert_eq!(
        (second.version, second.create_index, second.job_modify_index),
        (1, 1, 2)
    );
    let kept = world
        .view()
        .get::<JobSubmissions>(("default", "web", 1))
        .unwrap()
        .unwrap();
    assert_eq!((kept.source.as_str(), kept.job_modify_index), ("src", 2));
}

#[test]
fn old_versions_go_but_tagged_and_the_last_stable_stay() {
    let mut world = World::new();
    for count in 0..3 {
        world.given(submitted(spec(count)));
    }
    world.given(stable(0));
    let tag = JobVersionTag {
        name: "golden".into(),
        ..Default::default()
    };
    let tagged = JobVersionTagged {
        namespace: "default".into(),
        job_id: "web".into(),
        name: "golden".into(),
        version: 1,
        tag: Some(tag),
    };
    world.given(tagged.clone());
    for count in 3..12 {
        world.given(submitted(spec(count)));
    }
    assert_eq!(
        versions(&world),
        [0, 1, 7, 8, 9, 10, 11],
        "6 with the stable one, and the tag"
    );

    let other = JobVersionTagged {
        version: 9,
        ..tagged.clone()
    };
    assert!(
        world
            .refused(other)
            .contains("already exists on a different version")
    );
    world.given(JobVersionTagged {
        tag: None,
        ..tagged.clone()
    });
    assert_eq!(
        world.refused(JobVersionTagged {
            tag: None,
            ..tagged
        }),
        "tag \"golden\" not found"
    );
}

#[test]
fn the_limit_of_versions_comes_with_the_event() {
    let mut world = World::new();
    for count in 0..5 {
        world.given(JobRegistered {
            tracked_versions: 2,
            ..submitted(spec(count))
        });
    }
    assert_eq!(versions(&world), [3, 4]);
}

#[test]
fn a_stopped_job_is_a_version_and_a_purged_one_is_gone() {
    let mut world = World::new();
    world.given(submitted(spec(1)));
    world.given(JobDeregistered {
        eval: Some(eval(1, "web", "pending")),
        ..stop(false)
    });
    assert!(get(&world).stop);
    assert_eq!(
        (get(&world).version, get(&world).status.as_str()),
        (1, "pending")
    );
    world.given(evals(vec![eval(1, "web", "complete")]));
    assert_eq!(get(&world).status, "dead");
    world.given(stop(true));
    assert!(world.view().get::<Jobs>(WEB).unwrap().is_none());
    assert!(world.view().get::<JobSummaries>(WEB).unwrap().is_none());
    assert!(versions(&world).is_empty());
    assert_eq!(world.refused(stop(true)), "job \"web\" not found");
}

#[test]
fn the_status_follows_evaluations_and_allocations() {
    let mut world = World::new();
    let status = |world: &World| get(world).status;
    world.given(registered(node(10)));
    world.given(JobRegistered {
        eval: Some(eval(1, "web", "pending")),
        ..submitted(spec(1))
    });
    assert_eq!(status(&world), "pending");
    world.given(placed(vec![alloc(40, "web", 10)], 2));
    assert_eq!(status(&world), "running");
    world.given(evals(vec![eval(1, "web", "complete")]));
    assert_eq!(status(&world), "running");
    world.given(super::allocs::update(40, "complete"));
    assert_eq!(status(&world), "dead");
    world.given(evals(vec![eval(2, "web", "blocked")]));
    assert_eq!(status(&world), "pending");
    let gone = drover_events::eval::EvalsDeleted {
        eval_ids: vec![id(1), id(2)],
        ..Default::default()
    };
    assert_eq!(world.given(gone), Reply::Count(2));
    assert_eq!(status(&world), "dead", "nothing is left of what was");
}

fn periodic(name: &str) -> Job {
    let mut periodic = job(name);
    periodic.periodic = Some(PeriodicConfig {
        enabled: true,
        ..Default::default()
    });
    periodic
}

#[test]
fn a_parent_counts_its_children() {
    let mut world = World::new();
    world.given(JobRegistered {
        launch: 7,
        ..submitted(periodic("cron"))
    });
    assert_eq!(
        world
            .view()
            .get::<Jobs>(("default", "cron"))
            .unwrap()
            .unwrap()
            .status,
        "running"
    );
    let mut child = job("cron/periodic-1");
    child.parent_id = "cron".into();
    world.given(submitted(child));
    let count = |world: &World| {
        let row = world
            .view()
            .get::<JobSummaries>(("default", "cron"))
            .unwrap()
            .unwrap();
        let children = row.children.unwrap();
        (children.pending, children.running, children.dead)
    };
    assert_eq!(count(&world), (1, 0, 0));
    world.given(registered(node(10)));
    world.given(placed(vec![alloc(40, "cron/periodic-1", 10)], 2));
    assert_eq!(count(&world), (0, 1, 0));
    world.given(super::allocs::update(40, "complete"));
    assert_eq!(count(&world), (0, 0, 1));
}

#[test]
fn a_purged_child_is_dead_for_its_parent_and_a_purged_parent_has_no_launch() {
    let mut world = World::new();
    world.given(JobRegistered {
        launch: 7,
        ..submitted(job("cron"))
    });
    let key = ("default", "cron");
    let launch = |world: &World| world.view().get::<PeriodicLaunches>(key).unwrap();
    assert!(launch(&world).is_some());
    let mut child = job("cron/periodic-1");
    child.parent_id = "cron".into();
    world.given(submitted(child));
    let purged = |name: &str| JobDeregistered {
        job_id: name.into(),
        ..stop(true)
    };
    world.given(purged("cron/periodic-1"));
    let summary = world.view().get::<JobSummaries>(key).unwrap().unwrap();
    let children = summary.children.unwrap();
    assert_eq!(
        (children.pending, children.running, children.dead),
        (0, 0, 1)
    );
    world.given(purged("cron"));
    assert!(launch(&world).is_none());
}

#[test]
fn a_registration_settles_its_job_whatever_its_evaluation_is_of() {
    let mut world = World::new();
    world.given(JobRegistered {
        eval: Some(eval(1, "other", "pending")),
        launch: 7,
        ..submitted(periodic("web"))
    });
    assert_eq!(
        get(&world).status,
        "running",
        "a periodic job waits for its time"
    );
}

#[test]
fn a_dispatch_with_a_token_happens_once() {
    let mut world = World::new();
    world.given(submitted(job("work")));
    let child = |name: &str| {
        let mut child = job(name);
        child.parent_id = "work".into();
        child.dispatched = true;
        child.dispatch_idempotency_token = "once".into();
        child
    };
    world.given(submitted(child("work/dispatch-1-a")));
    world.given(submitted(child("work/dispatch-2-b")));
    assert!(
        world
            .view()
            .get::<Jobs>(("default", "work/dispatch-1-a"))
            .unwrap()
            .is_some()
    );
    assert!(
        world
            .view()
            .get::<Jobs>(("default", "work/dispatch-2-b"))
            .unwrap()
            .is_none()
    );
}

#[test]
fn ev_18_errors_name_the_object_and_what_is_wrong_with_it() {
    let mut world = World::new();
    let mut elsewhere = job("web");
    elsewhere.namespace = "prod".into();
    assert_eq!(
        world.refused(submitted(elsewhere)),
        "job \"web\" is in nonexistent namespace \"prod\""
    );
    let mut elsewhere = job("web");
    elsewhere.node_pool = "gpu".into();
    assert_eq!(
        world.refused(submitted(elsewhere)),
        "job \"web\" is in nonexistent node pool \"gpu\""
    );
    assert_eq!(
        world.refused(stable(3)),
        "job \"web\" in namespace \"default\" at version 3 not found"
    );
    world.given(registered(node(10)));
    assert_eq!(
        world.refused(placed(vec![alloc(40, "web", 10)], 2)),
        format!(
            "attempting to upsert allocation \"{}\" without a job",
            id(40)
        )
    );
}

#[test]
fn policies_follow_the_groups_and_keep_their_ids() {
    let mut world = World::new();
    let scaled = |policy: Option<&str>, max| {
        let mut spec = spec(1);
        spec.task_groups[0].scaling = policy.map(|id| ScalingPolicy {
            id: id.into(),
            max,
            ..Default::default()
        });
        spec
    };
    world.given(submitted(scaled(Some(&id(70)), 3)));
    world.given(submitted(scaled(Some(&id(71)), 5)));
    let row = world
        .view()
        .get::<ScalingPolicies>(&id(70))
        .unwrap()
        .unwrap();
    assert_eq!((row.max, row.create_index, row.modify_index), (5, 1, 2));
    assert_eq!(row.target.get("Group").map(String::as_str), Some("g"));
    assert!(
        world
            .view()
            .get::<ScalingPolicies>(&id(71))
            .unwrap()
            .is_none()
    );
    world.given(submitted(scaled(None, 0)));
    assert!(
        world
            .view()
            .get::<ScalingPolicies>(&id(70))
            .unwrap()
            .is_none()
    );
}
