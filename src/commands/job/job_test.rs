use drover_events::Event;
use drover_events::model::{ParameterizedJobConfig, PeriodicConfig, SchedulerConfiguration};
use drover_projections::tables::evals::Evals;
use drover_projections::tables::scaling_events::ScalingEvents;

use super::*;
use crate::cluster::SetSchedulerConfig;
use crate::testing::{World, id, job};
use drover_error::Code;

fn register(spec: Job) -> RegisterJob {
    RegisterJob {
        job: spec,
        eval_id: id(1),
        ..RegisterJob::default()
    }
}

fn get(world: &World) -> Job {
    world.row::<Jobs>(("default", "web")).unwrap()
}

#[test]
fn a_registration_makes_a_version_and_an_evaluation() {
    let mut world = World::new();
    let now = world.now();
    world.done(&RegisterJob {
        eval_priority: 70,
        ..register(job("web"))
    });
    assert_eq!((get(&world).version, get(&world).submit_time), (0, now));
    let made = world.row::<Evals>(&id(1)).unwrap();
    assert_eq!(
        (made.priority, made.triggered_by.as_str()),
        (70, "job-register")
    );
    assert_eq!((made.job_modify_index, made.create_time), (1, now));
}

#[test]
fn the_same_specification_only_makes_an_evaluation() {
    let mut world = World::new();
    world.done(&register(job("web")));
    let again = RegisterJob {
        eval_id: id(2),
        ..register(job("web"))
    };
    assert!(matches!(world.event(&again), Event::EvalsUpserted(_)));
    world.done(&again);
    assert_eq!((get(&world).version, get(&world).job_modify_index), (0, 1));
    assert!(world.row::<Evals>(&id(2)).is_some());
}

#[test]
fn the_index_a_caller_knows_is_enforced() {
    let mut world = World::new();
    let enforce = |index| RegisterJob {
        enforce_index: Some(index),
        ..register(job("web"))
    };
    assert_eq!(
        world.refusal(&enforce(5)).1,
        "Enforcing job modify index 5: job does not exist"
    );
    world.done(&enforce(0));
    assert_eq!(
        world.refusal(&enforce(0)).1,
        "Enforcing job modify index 0: job already exists"
    );
    assert_eq!(
        world.refusal(&enforce(9)),
        (
            Code::Refused,
            "Enforcing job modify index 9: job exists with conflicting job modify index: 1".into()
        )
    );
    world.done(&enforce(1));
}

#[test]
fn two_registrations_decided_on_one_view_do_not_both_pass() {
    let mut world = World::new();
    let first = RegisterJob {
        enforce_index: Some(0),
        ..register(job("web"))
    };
    let Decision::Event { event, guards } = world.decide(&first).unwrap() else {
        panic!()
    };
    world.done(&first);
    let late = world.append(event, guards);
    assert!(matches!(late, drover_projections::Outcome::Rejected(_)));
    assert!(
        world.decide(&first).is_err(),
        "decided again, it ends in the peer's refusal"
    );
}

#[test]
fn what_a_job_is_changes_only_so_far() {
    let periodic = |spec: &mut Job| spec.periodic = Some(PeriodicConfig::default());
    let parameterized =
        |spec: &mut Job| spec.parameterized_job = Some(ParameterizedJobConfig::default());
    let none = |_: &mut Job| {};
    type Change = fn(&mut Job);
    let table: [(Change, Change, &str); 6] = [
        (
            none,
            |spec| spec.r#type = "batch".into(),
            "cannot update job from type \"service\" to \"batch\"",
        ),
        (
            periodic,
            none,
            "cannot update periodic job to being non-periodic",
        ),
        (
            none,
            periodic,
            "cannot update non-periodic job to being periodic",
        ),
        (
            parameterized,
            none,
            "cannot update parameterized job to being non-parameterized",
        ),
        (
            none,
            parameterized,
            "cannot update non-parameterized job to being parameterized",
        ),
        (
            none,
            |spec| spec.dispatched = true,
            "field 'Dispatched' is read-only",
        ),
    ];
    for (before, after, text) in table {
        let mut world = World::new();
        let (mut old, mut new) = (job("web"), job("web"));
        before(&mut old);
        after(&mut new);
        world.done(&register(old));
        assert_eq!(world.refusal(&register(new)).1, text);
    }
    let mut dispatched = job("web");
    dispatched.dispatched = true;
    let text = "job can't be submitted with 'Dispatched' set";
    assert_eq!(World::new().refusal(&register(dispatched)).1, text);
}

#[test]
fn registration_can_be_switched_off_and_bad_places_are_named() {
    let mut world = World::new();
    let config = SchedulerConfiguration {
        reject_job_registration: true,
        ..Default::default()
    };
    let mut elsewhere = job("web");
    elsewhere.namespace = "prod".into();
    assert_eq!(
        world.refusal(&register(elsewhere)).1,
        "nonexistent namespace \"prod\""
    );
    let odd = RegisterJob {
        eval_priority: 101,
        ..register(job("web"))
    };
    assert_eq!(world.refusal(&odd).0, Code::BadRequest);
    world.done(&SetSchedulerConfig {
        config,
        cas: false,
        initial: false,
    });
    assert_eq!(
        world.refusal(&register(job("web"))).0,
        Code::PermissionDenied
    );
    world.done(&RegisterJob {
        override_rejection: true,
        ..register(job("web"))
    });
}

#[test]
fn counts_that_exist_are_preserved_when_asked() {
    let mut world = World::new();
    let mut spec = job("web");
    spec.task_groups[0].count = 7;
    world.done(&register(spec));
    let mut changed = job("web");
    changed.priority = 60;
    world.done(&RegisterJob {
        preserve_counts: true,
        ..register(changed)
    });
    assert_eq!(
        (get(&world).task_groups[0].count, get(&world).priority),
        (7, 60)
    );
}

#[test]
fn a_periodic_job_gets_no_evaluation_and_counts_as_launched() {
    let mut world = World::new();
    let mut spec = job("web");
    spec.periodic = Some(PeriodicConfig {
        enabled: true,
        ..Default::default()
    });
    let Event::JobRegistered(event) = world.event(&register(spec.clone())) else {
        panic!()
    };
    assert!(event.eval.is_none() && event.launch == world.now());
    world.done(&register(spec.clone()));
    spec.priority = 51;
    let Event::JobRegistered(event) = world.event(&register(spec)) else {
        panic!()
    };
    assert_eq!(event.launch, 0, "only the first time");
    let evaluate = EvaluateJob {
        namespace: "default".into(),
        job_id: "web".into(),
        force_reschedule: false,
        eval_id: id(2),
    };
    assert_eq!(world.refusal(&evaluate).1, "can't evaluate periodic job");
}

#[test]
fn an_unknown_job_is_stopped_without_an_event() {
    let mut world = World::new();
    let stop = DeregisterJob {
        namespace: "default".into(),
        job_id: "web".into(),
        eval_id: id(3),
        ..DeregisterJob::default()
    };
    assert!(matches!(world.decide(&stop).unwrap(), Decision::Nothing(_)));
    world.done(&register(job("web")));
    world.done(&stop);
    assert!(get(&world).stop);
    assert_eq!(
        world.row::<Evals>(&id(3)).unwrap().triggered_by,
        "job-deregister"
    );
}

#[test]
fn garbage_collection_purges_only_what_has_not_moved() {
    let mut world = World::new();
    world.done(&register(job("web")));
    let purge = |index| PurgeJobs {
        jobs: vec![("default".into(), "web".into(), index)],
    };
    assert!(matches!(
        world.decide(&purge(99)).unwrap(),
        Decision::Nothing(_)
    ));
    world.done(&purge(1));
    assert!(world.row::<Jobs>(("default", "web")).is_none());
}

fn scale(count: Option<i64>) -> ScaleJob {
    ScaleJob {
        namespace: "default".into(),
        job_id: "web".into(),
        group: "g".into(),
        count,
        eval_id: id(5),
        ..ScaleJob::default()
    }
}

#[test]
fn scaling_changes_the_count_and_is_recorded_with_it() {
    let mut world = World::new();
    assert_eq!(world.refusal(&scale(Some(1))).0, Code::NotFound);
    world.done(&register(job("web")));
    world.done(&scale(Some(5)));
    assert_eq!(
        (get(&world).task_groups[0].count, get(&world).version),
        (5, 1)
    );
    assert_eq!(
        world.row::<Evals>(&id(5)).unwrap().triggered_by,
        "job-scaling"
    );
    world.done(&ScaleJob {
        message: "only said".into(),
        ..scale(None)
    });
    assert_eq!(get(&world).version, 1);
    let events = world.row::<ScalingEvents>(("default", "web")).unwrap();
    let events = events.scaling_events.get("g").unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!((events[1].count, events[1].previous_count), (Some(5), 2));
}

#[test]
fn bad_scaling_requests_are_refused_in_words() {
    let mut world = World::new();
    world.done(&register(job("web")));
    let table = [
        (scale(Some(-1)), "scaling action count can't be negative"),
        (
            ScaleJob {
                error: true,
                ..scale(Some(1))
            },
            "scaling action should not contain count if error is true",
        ),
        (
            ScaleJob {
                group: String::new(),
                ..scale(Some(1))
            },
            "missing task group name for scaling action",
        ),
        (
            ScaleJob {
                group: "x".into(),
                ..scale(Some(1))
            },
            "task group \"x\" specified for scaling does not exist in job",
        ),
        (
            scale(Some(1 << 40)),
            "new scaling count is too large for TaskGroup.Count (int): 1099511627776",
        ),
        (
            ScaleJob {
                job_max_count: 10,
                ..scale(Some(11))
            },
            "total count was greater than configured job_max_count: 11 > 10",
        ),
    ];
    for (command, text) in table {
        assert_eq!(world.refusal(&command).1, text);
    }
}

#[test]
fn dispatches_and_launches_are_refused_in_words() {
    let mut world = World::new();
    world.done(&register(job("web")));
    let mut mill = job("mill");
    mill.parameterized_job = Some(ParameterizedJobConfig {
        payload: "required".into(),
        ..ParameterizedJobConfig::default()
    });
    world.done(&register(mill.clone()));
    let mut shut = mill;
    shut.id = "shut".into();
    shut.stop = true;
    world.done(&register(shut));
    let dispatch = |id: &str, payload: usize| DispatchJob {
        namespace: "default".into(),
        job_id: id.into(),
        child_id: format!("{id}/dispatch-1"),
        payload: vec![7; payload],
        eval_id: id.into(),
        ..DispatchJob::default()
    };
    for (command, text) in [
        (dispatch("none", 1), "parameterized job not found"),
        (
            dispatch("web", 1),
            "Specified job \"web\" is not a parameterized job",
        ),
        (dispatch("shut", 1), "Specified job \"shut\" is stopped"),
        (
            dispatch("mill", 0),
            "Payload is not provided but required by parameterized job",
        ),
        (
            dispatch("mill", 16_385),
            "Payload exceeds maximum size; 16385 > 16384",
        ),
    ] {
        assert_eq!(world.refusal(&command), (Code::Refused, text.to_owned()));
    }
    world.done(&dispatch("mill", 16_384));
    let child = world.row::<Jobs>(("default", "mill/dispatch-1")).unwrap();
    assert_eq!((child.parent_id.as_str(), child.dispatched), ("mill", true));
    assert_eq!(
        DispatchJob::child_id("mill", "", 5, "0a0b0c0d"),
        "mill/dispatch-5-0a0b0c0d"
    );
}

#[test]
fn what_names_a_dispatch_and_what_it_brings_is_bounded() {
    let mut world = World::new();
    let mut mill = job("mill");
    mill.parameterized_job = Some(ParameterizedJobConfig {
        meta_optional: vec!["a".to_owned(), "b".to_owned()].into(),
        ..ParameterizedJobConfig::default()
    });
    world.done(&register(mill));
    let dispatch = || DispatchJob {
        namespace: "default".into(),
        job_id: "mill".into(),
        child_id: "mill/dispatch-1".into(),
        eval_id: "e".into(),
        ..DispatchJob::default()
    };
    type Change = fn(&mut DispatchJob, usize);
    let parts: [(&str, usize, Change); 3] = [
        ("the dispatched job's ID prefix", 1_024, |d, n| {
            d.child_id = format!("mill{}", "x".repeat(n));
        }),
        ("the idempotency token", 1_024, |d, n| {
            d.idempotency_token = "x".repeat(n);
        }),
        ("Meta of a dispatch", 128 << 10, |d, n| {
            d.meta = [("a", n / 2 - 1), ("b", n - n / 2 - 1)]
                .map(|(key, n)| (key.to_owned(), "x".repeat(n)))
                .into();
        }),
    ];
    for (what, most, change) in parts {
        let mut command = dispatch();
        change(&mut command, most + 1);
        let (code, text) = world.refusal(&command);
        assert_eq!(code, Code::BadRequest, "{text}");
        assert!(text.contains(what), "{text}");
        assert!(text.contains(&format!("at most {most}")), "{text}");
        change(&mut command, most);
        assert!(world.decide(&command).is_ok(), "{what}");
    }
}

#[test]
fn a_dispatch_has_the_highest_priority_that_is_configured_and_no_higher() {
    let mut world = World::new();
    let mut mill = job("mill");
    mill.parameterized_job = Some(ParameterizedJobConfig::default());
    world.done(&register(mill));
    let with = |priority: i64, most| DispatchJob {
        namespace: "default".into(),
        job_id: "mill".into(),
        child_id: format!("mill/dispatch-{priority}"),
        eval_id: id(2),
        priority,
        max_priority: most,
        ..DispatchJob::default()
    };
    for (priority, most, highest) in [(101, 0, 100), (201, 200, 200), (-1, 200, 200)] {
        let text = format!("dispatch job priority must be between [1, {highest}]");
        let refused = world.refusal(&with(priority, most));
        assert_eq!(refused, (Code::Refused, text));
    }
    world.done(&with(150, 200));
    let child = world.row::<Jobs>(("default", "mill/dispatch-150")).unwrap();
    assert_eq!(child.priority, 150);
    assert_eq!(world.row::<Evals>(&id(2)).unwrap().priority, 150);
}
