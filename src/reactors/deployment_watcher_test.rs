//! What the watcher makes of a deployment: from rows alone, and at times that the test names.

use drover_events::deployment::DeploymentStatusUpdated;
use drover_events::eval::EvalsUpserted;
use drover_events::gojson::Time;
use drover_events::model::{
    AllocDeploymentStatus, DeploymentState, DeploymentStatusUpdate, RescheduleEvent,
    RescheduleTracker,
};
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_projections::Outcome;

use super::*;
use crate::base::clock::Clock;
use crate::commands::job::RegisterJob;
use crate::commands::node::RegisterNode;
use crate::reactors::testing::Direct;
use drover_testkit::fixtures::{SECOND, job, node};

const NOW: i64 = 1_800_000_000 * SECOND;

/// One allocation of the deployment.
#[derive(Clone, Copy)]
struct Placed {
    id: &'static str,
    healthy: Option<bool>,
    client: &'static str,
    tried: usize,
}

const fn placed(id: &'static str, healthy: Option<bool>) -> Placed {
    Placed {
        id,
        healthy,
        client: "running",
        tried: 0,
    }
}

fn alloc(from: Placed) -> Allocation {
    let event = RescheduleEvent::default();
    Allocation {
        id: from.id.to_owned(),
        namespace: "default".into(),
        job_id: "j".into(),
        task_group: "g".into(),
        node_id: node(1).id,
        deployment_id: "d".into(),
        desired_status: "run".into(),
        client_status: from.client.to_owned(),
        deployment_status: from.healthy.map(|healthy| AllocDeploymentStatus {
            healthy: Some(healthy),
            ..Default::default()
        }),
        reschedule_tracker: (from.tried > 0).then(|| RescheduleTracker {
            events: vec![event; from.tried].into(),
            ..Default::default()
        }),
        ..Allocation::default()
    }
}

fn deployment(state: DeploymentState, version: u64) -> Deployment {
    Deployment {
        id: "d".into(),
        namespace: "default".into(),
        job_id: "j".into(),
        job_version: version,
        status: "running".into(),
        task_groups: [("g", state)].into(),
        ..Deployment::default()
    }
}

/// A group of two that has ten minutes for each step, the last of them at [`NOW`].
fn group() -> DeploymentState {
    DeploymentState {
        progress_deadline: 600 * SECOND,
        require_progress_by: Time(NOW),
        desired_total: 2,
        ..DeploymentState::default()
    }
}

/// A group with one canary that is promoted by itself.
fn canary() -> DeploymentState {
    DeploymentState {
        desired_canaries: 1,
        placed_canaries: vec!["a".to_owned()].into(),
        auto_promote: true,
        ..group()
    }
}

struct Stage {
    direct: Arc<Direct>,
    context: Context,
    watcher: DeploymentWatcher,
}

impl Stage {
    /// A node and a job; the clock stands at `now`.
    fn new(now: i64, attempts: Option<i64>) -> Self {
        let direct = Direct::new();
        let register = RegisterNode {
            node: node(1),
            create_node_pool: true,
        };
        direct.command(&register).unwrap();
        let context = Context {
            projections: Arc::clone(&direct.projections),
            proposer: direct.clone(),
            clock: Clock::stopped(now),
        };
        let stage = Self {
            direct,
            context,
            watcher: DeploymentWatcher::default(),
        };
        stage.register(20, attempts);
        stage
    }

    fn register(&self, cpu: i64, attempts: Option<i64>) {
        let mut job = job("service", 2);
        let group = &mut job.task_groups.to_mut()[0];
        if let Some(policy) = &mut group.reschedule_policy
            && let Some(attempts) = attempts
        {
            policy.unlimited = false;
            policy.attempts = attempts;
            policy.interval = 3600 * SECOND;
        }
        if let Some(resources) = &mut group.tasks.to_mut()[0].resources {
            resources.cpu = cpu;
        }
        let command = RegisterJob {
            job,
            eval_id: uuid::Uuid::new_v4().to_string(),
            ..RegisterJob::default()
        };
        self.direct.command(&command).unwrap();
    }

    fn job(&self) -> Job {
        let view = self.direct.projections.view();
        view.get::<Jobs>(("default", "j")).unwrap().unwrap()
    }

    fn deploy(&self, deployment: &Deployment, allocs: &[Placed]) {
        let job_modify_index = self.job().job_modify_index;
        let place = |from: &Placed| PlacedAlloc {
            alloc: Box::new(alloc(*from)),
            job_modify_index,
        };
        let plan = PlanApplied {
            deployment: Some(deployment.clone()),
            placed: allocs.iter().map(place).collect(),
            ..PlanApplied::default()
        };
        let (_, outcome) = self.direct.apply(plan);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }

    fn look(&self, deployment: &Deployment) -> (Option<DeploymentStep>, Option<i64>) {
        let view = self.direct.projections.view();
        look(&view, deployment, self.context.clock.now()).unwrap()
    }

    fn stored(&self) -> Deployment {
        let view = self.direct.projections.view();
        view.get::<Deployments>("d").unwrap().unwrap()
    }

    fn evals(&self) -> Vec<Evaluation> {
        let view = self.direct.projections.view();
        let evals = view.by_index::<EvalsByJob>(("default", "j"));
        let evals = evals.map(Result::unwrap);
        evals
            .filter(|eval| eval.triggered_by == "deployment-watcher")
            .collect()
    }

    async fn activate(&self) -> Activation {
        self.watcher.activate(&self.context).await.unwrap()
    }
}

/// A second before the deadline.
const BEFORE: i64 = NOW - SECOND;
const HEALTHY: Placed = placed("a", Some(true));
const FAILED: Placed = Placed {
    client: "failed",
    ..placed("a", Some(false))
};

/// What is to be done about a deployment with this group and these allocations.
fn step(
    now: i64,
    state: DeploymentState,
    allocs: &[Placed],
    attempts: Option<i64>,
) -> Option<DeploymentStep> {
    let stage = Stage::new(now, attempts);
    let deployment = deployment(state, 0);
    stage.deploy(&deployment, allocs);
    stage.look(&deployment).0
}

fn goes_on() -> Option<DeploymentStep> {
    Some(DeploymentStep::Evaluate(Vec::new()))
}

#[test]
fn health_makes_it_go_on_and_its_lack_replaces_or_fails() {
    let fails = Some(DeploymentStep::Fail(DeploymentChange::UnhealthyAllocations));
    let replaces = Some(DeploymentStep::Evaluate(vec!["a".to_owned()]));
    let ended = Placed {
        client: "complete",
        ..FAILED
    };
    let tried = |tried| Placed { tried, ..FAILED };
    let cases = [
        ("nothing yet", placed("a", None), None, None),
        ("it is healthy", HEALTHY, None, goes_on()),
        ("it is not", FAILED, None, replaces.clone()),
        ("tries are left", tried(1), Some(2), replaces),
        ("none is left", tried(2), Some(2), fails.clone()),
        ("it ended by itself", ended, None, None),
    ];
    for (what, alloc, attempts, expected) in cases {
        assert_eq!(
            step(BEFORE, group(), &[alloc], attempts),
            expected,
            "{what}"
        );
    }
    let no_deadline = DeploymentState {
        progress_deadline: 0,
        ..group()
    };
    assert_eq!(
        step(BEFORE, no_deadline, &[FAILED], None),
        fails,
        "nobody waits"
    );
}

#[test]
fn without_progress_until_the_deadline_it_fails_unless_all_is_healthy_or_an_operator_is_to_act() {
    let late = Some(DeploymentStep::Fail(DeploymentChange::ProgressDeadline));
    let done = DeploymentState {
        healthy_allocs: 2,
        ..group()
    };
    let for_operator = DeploymentState {
        healthy_allocs: 1,
        auto_promote: false,
        ..canary()
    };
    // Its time begins with its first allocation.
    let without_capacity = DeploymentState {
        require_progress_by: Time(0),
        ..group()
    };
    let cases = [
        ("in time", BEFORE, group(), None),
        ("too late", NOW, group(), late),
        ("all healthy", NOW, done, None),
        ("an operator has time", NOW, for_operator, None),
        ("it waits for capacity", NOW, without_capacity, None),
    ];
    for (what, now, state, expected) in cases {
        assert_eq!(step(now, state, &[], None), expected, "{what}");
    }
}

#[test]
fn canaries_are_promoted_when_all_of_them_are_healthy_and_the_job_says_so() {
    let by_hand = DeploymentState {
        auto_promote: false,
        ..canary()
    };
    let two = DeploymentState {
        desired_canaries: 2,
        ..canary()
    };
    let promoted = DeploymentState {
        promoted: true,
        ..canary()
    };
    let other = placed("b", Some(true));
    let cases = [
        ("healthy", canary(), HEALTHY, Some(DeploymentStep::Promote)),
        ("to come", canary(), placed("a", None), None),
        ("not a canary", canary(), other, goes_on()),
        ("one of two", two, HEALTHY, goes_on()),
        ("promoted before", promoted, HEALTHY, goes_on()),
        ("by an operator", by_hand, HEALTHY, goes_on()),
    ];
    for (what, state, alloc, expected) in cases {
        assert_eq!(step(BEFORE, state, &[alloc], None), expected, "{what}");
    }
}

#[test]
fn it_is_looked_at_again_when_its_deadline_passes_unless_it_is_paused() {
    let stage = Stage::new(NOW - SECOND, None);
    let mut deployment = deployment(group(), 0);
    stage.deploy(&deployment, &[placed("a", None)]);
    assert_eq!(stage.look(&deployment), (None, Some(NOW)));
    deployment.status = "paused".into();
    let later = Stage {
        context: Context {
            clock: Clock::stopped(NOW + SECOND),
            ..stage.context.clone()
        },
        direct: Arc::clone(&stage.direct),
        watcher: DeploymentWatcher::default(),
    };
    assert_eq!(later.look(&deployment), (None, None), "nor at its deadline");
}

#[test]
fn health_that_an_evaluation_has_seen_needs_no_other_one() {
    let stage = Stage::new(NOW - SECOND, None);
    let deployment = deployment(group(), 0);
    stage.deploy(&deployment, &[placed("a", Some(true))]);
    assert!(stage.look(&deployment).0.is_some());
    let eval = Evaluation {
        id: "e".into(),
        namespace: "default".into(),
        job_id: "j".into(),
        status: "pending".into(),
        ..Evaluation::default()
    };
    stage.direct.apply(EvalsUpserted {
        evals: vec![eval],
        ..EvalsUpserted::default()
    });
    assert_eq!(stage.look(&deployment).0, None);
}

#[tokio::test]
async fn what_is_unhealthy_may_be_replaced_once_and_its_job_is_looked_at() {
    let stage = Stage::new(NOW - SECOND, None);
    let failed = Placed {
        client: "failed",
        ..placed("a", Some(false))
    };
    stage.deploy(&deployment(group(), 0), &[failed]);
    let activation = stage.activate().await;
    assert_eq!(activation.status["Steps"], 1);
    assert_eq!(
        activation.sleep,
        Duration::from_secs(1),
        "the deadline is next"
    );
    let view = stage.direct.projections.view();
    let row = view.get::<Allocs>("a").unwrap().unwrap();
    assert_eq!(row.alloc.desired_transition.reschedule, Some(true));
    assert_eq!(stage.evals().len(), 1);
    assert_eq!(stage.activate().await.status["Steps"], 0, "it is known now");
    assert_eq!(stage.evals().len(), 1);
}

#[tokio::test]
async fn healthy_canaries_are_promoted_and_the_job_goes_on() {
    let stage = Stage::new(NOW - SECOND, None);
    stage.deploy(&deployment(canary(), 0), &[placed("a", Some(true))]);
    stage.activate().await;
    assert!(stage.stored().task_groups.get("g").unwrap().promoted);
    assert_eq!(stage.evals().len(), 1);
}

#[tokio::test]
async fn without_progress_it_fails_and_the_job_goes_back_to_its_stable_version() {
    let stage = Stage::new(NOW, None);
    let first = deployment(group(), 0);
    stage.deploy(&first, &[]);
    let update = DeploymentStatusUpdate {
        deployment_id: "d".into(),
        status: "successful".into(),
        ..DeploymentStatusUpdate::default()
    };
    stage.direct.apply(DeploymentStatusUpdated {
        update,
        ..DeploymentStatusUpdated::default()
    });
    stage.register(40, None);
    assert_eq!(stage.job().version, 1);
    let reverts = DeploymentState {
        auto_revert: true,
        ..group()
    };
    stage.deploy(&deployment(reverts, 1), &[]);
    stage.activate().await;
    let stored = stage.stored();
    assert_eq!(stored.status, "failed");
    let expected = "Failed due to progress deadline - rolling back to job version 0";
    assert_eq!(stored.status_description, expected);
    let job = stage.job();
    let cpu = job.task_groups[0].tasks[0].resources.as_ref().unwrap().cpu;
    assert_eq!((job.version, cpu), (2, 20));
    assert_eq!(stage.evals().len(), 1);
    assert_eq!(stage.activate().await.status["Active"], 0);
}

#[test]
fn what_it_does_follows_from_what_it_saw() {
    let stage = Stage::new(BEFORE, None);
    stage.deploy(&deployment(group(), 0), &[HEALTHY]);
    let stored = stage.stored();
    let view = stage.direct.projections.view();
    let alloc = view.get::<Allocs>("a").unwrap().unwrap();
    let reported = alloc.deployment_status.as_ref().unwrap().modify_index;
    let allocs = [goes_on().unwrap(), DeploymentStep::Promote];
    for step in allocs {
        let cause = seen(&view, &stored, &step).unwrap();
        assert!(
            cause > 0 && (cause == reported || reported == 0),
            "{step:?}: {cause}"
        );
    }
    let late = DeploymentStep::Fail(DeploymentChange::ProgressDeadline);
    assert_eq!(seen(&view, &stored, &late).unwrap(), stored.modify_index);
    let other = Arc::new(SetDeploymentStatus {
        deployment_id: "d".to_owned(),
        change: DeploymentChange::ProgressDeadline,
        eval_id: String::new(),
        reverted: Default::default(),
    });
    let following = |cause| Following {
        command: other.clone(),
        cause,
    };
    assert_eq!(following(7).cause(&view), Some(7));
    assert_eq!(following(0).cause(&view), None);
}

#[tokio::test]
async fn deployments_that_are_over_are_not_read_again() {
    let stage = Stage::new(BEFORE, None);
    for number in 0..60 {
        let over = Deployment {
            id: format!("over-{number}"),
            status: "successful".into(),
            ..deployment(group(), 0)
        };
        stage.deploy(&over, &[]);
    }
    stage.deploy(&deployment(group(), 0), &[placed("a", None)]);
    let read = async || {
        let activation = stage.activate().await;
        let read = std::mem::take(&mut stage.watcher.known.lock().read);
        (activation.status["Active"].as_u64().unwrap(), read)
    };
    assert_eq!(read().await, (1, 61 + 1), "all at first, and the open one");
    assert_eq!(read().await, (1, 1), "nothing changed");
    let new = Deployment {
        id: "new".into(),
        ..deployment(group(), 0)
    };
    stage.deploy(&new, &[]);
    assert_eq!(read().await, (2, 1 + 2), "it is read for it is new");
    stage.direct.apply(DeploymentStatusUpdated {
        update: DeploymentStatusUpdate {
            deployment_id: "d".into(),
            status: "successful".into(),
            ..DeploymentStatusUpdate::default()
        },
        ..DeploymentStatusUpdated::default()
    });
    assert_eq!(read().await, (1, 1 + 1), "one is over");
}
