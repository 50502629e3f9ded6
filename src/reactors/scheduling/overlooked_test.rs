//! A system job and a node that become known at the same time find each other, in every order of
//! their decisions and commits, whichever server leads by then.

use drover_events::job::JobRegistered;
use drover_events::model::{DrainSpec, Evaluation};
use drover_events::{Event, EventId, Guard};
use drover_projections::tables::allocs::AllocsByJob;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Id, Outcome, Scan, unreadable};

use super::*;
use crate::commands::job::RegisterJob;
use crate::commands::node::{
    RegisterNode, UpdateNodeDrain, UpdateNodeEligibility, UpdateNodeStatus,
};
use crate::commands::system_jobs::{overlooked, overlooked_by};
use crate::commands::{Command, Decision, Stamp};
use crate::error::Code;
use crate::reactors::testing::{Direct, Fault, Faulty, spoil};
use drover_testkit::fixtures::{job, node};

/// What keeps the node from being used, and what ends that.
#[derive(Clone, Copy, Debug)]
enum Way {
    Status,
    Eligibility,
    Drain,
    Registration,
}

const WAYS: [Way; 4] = [Way::Status, Way::Eligibility, Way::Drain, Way::Registration];

impl Way {
    fn begins(self, direct: &Direct) {
        let mut known = node(1);
        if let Self::Status = self {
            known.status = "initializing".into();
        }
        let node_id = known.id.clone();
        if !matches!(self, Self::Registration) {
            let register = RegisterNode {
                node: known,
                create_node_pool: true,
            };
            direct.command(&register).unwrap();
        }
        match self {
            Self::Status | Self::Registration => {}
            Self::Eligibility => {
                let eligibility = "ineligible".into();
                let command = UpdateNodeEligibility {
                    node_id,
                    eligibility,
                };
                direct.command(&command).unwrap();
            }
            Self::Drain => {
                let command = UpdateNodeDrain {
                    node_id,
                    spec: Some(DrainSpec::default()),
                    ..UpdateNodeDrain::default()
                };
                direct.command(&command).unwrap();
            }
        }
    }

    fn ends(self) -> Box<dyn Command> {
        let node = node(1);
        let node_id = node.id.clone();
        match self {
            Self::Status => Box::new(UpdateNodeStatus {
                node_id,
                status: "ready".into(),
                event: None,
            }),
            Self::Eligibility => Box::new(UpdateNodeEligibility {
                node_id,
                eligibility: "eligible".into(),
            }),
            Self::Drain => Box::new(UpdateNodeDrain {
                node_id,
                mark_eligible: true,
                ..UpdateNodeDrain::default()
            }),
            Self::Registration => Box::new(RegisterNode {
                node,
                create_node_pool: true,
            }),
        }
    }
}

fn register(direct: &Direct, kind: &str) -> String {
    register_as(direct, "s", kind)
}

fn register_as(direct: &Direct, id: &str, kind: &str) -> String {
    let mut spec = job(kind, 1);
    spec.id = id.into();
    spec.name = id.into();
    let eval_id = uuid::Uuid::new_v4().to_string();
    let command = RegisterJob {
        job: spec,
        eval_id: eval_id.clone(),
        ..RegisterJob::default()
    };
    direct.command(&command).unwrap();
    eval_id
}

fn start(direct: &Arc<Direct>) -> Scheduling {
    let settings = SchedulingSettings {
        workers: 2,
        ..SchedulingSettings::default()
    };
    Scheduling::start(Arc::clone(&direct.projections), direct.clone(), settings).unwrap()
}

fn evals(direct: &Direct) -> Vec<Evaluation> {
    let view = direct.projections.view();
    let evals = view.scan::<Evals>(Scan::all());
    evals.map(Result::unwrap).collect()
}

async fn until(what: &str, direct: &Direct, done: impl Fn(&Direct) -> bool) {
    let seen = || match done(direct) {
        true => Ok(()),
        false => Err(format!("{:?}", evals(direct))),
    };
    let limit = Duration::from_secs(30);
    drover_testkit::eventually(what, limit, seen).await.unwrap();
}

fn placed(direct: &Direct) -> usize {
    let view = direct.projections.view();
    view.by_index::<AllocsByJob>(("default", "s")).count()
}

fn is_placed(direct: &Direct) -> bool {
    placed(direct) == 1
}

/// The node's way back as it is decided now.
fn decided(way: Way, direct: &Direct) -> (Event, Vec<Guard>) {
    let stamp = Stamp {
        id: EventId(*uuid::Uuid::now_v7().as_bytes()),
        now: crate::base::clock::unix_nanos(),
    };
    let ends = way.ends();
    let decision = ends.decide(&direct.projections.view(), &stamp).unwrap();
    let Decision::Event { event, guards } = decision else {
        panic!("{decision:?}");
    };
    (event, guards)
}

fn is_over(direct: &Direct, eval: &str) -> bool {
    let evals = evals(direct);
    evals.iter().any(|e| e.id == eval && e.terminal_status())
}

/// The node's way back is decided, then the job is registered and looked at in vain, then the node
/// is back.
async fn crossed(way: Way, kind: &str, follows: bool) {
    let direct = Direct::new();
    direct.first_key();
    way.begins(&direct);
    let scheduling = start(&direct);
    let (event, guards) = decided(way, &direct);
    let eval = register(&direct, kind);
    until("it was looked at in vain", &direct, |d| is_over(d, &eval)).await;
    assert!(!is_placed(&direct), "{way:?}");
    // Another leader has only the state to read.
    let scheduling = match follows {
        true => Some(scheduling),
        false => {
            drop(scheduling);
            None
        }
    };
    let (_, outcome) = direct.apply_guarded(event, guards);
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    let scheduling = scheduling.unwrap_or_else(|| start(&direct));
    let what = format!("{kind} after {way:?}, follows: {follows}");
    until(&what, &direct, is_placed).await;
    drop(scheduling);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_job_is_placed_on_a_node_that_came_as_it_was_registered() {
    for way in WAYS {
        for kind in ["system", "sysbatch"] {
            crossed(way, kind, true).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_places_it_where_the_first_one_did_not() {
    for way in WAYS {
        crossed(way, "system", false).await;
    }
}

/// Where each knows of the other nothing is evaluated twice: not while it is followed, and not by
/// the next leader.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_evaluated_again_that_was_looked_at() {
    let direct = Direct::new();
    direct.first_key();
    Way::Status.begins(&direct);
    let scheduling = start(&direct);
    register(&direct, "system");
    direct.command(&*Way::Status.ends()).unwrap();
    until("it is placed", &direct, is_placed).await;
    let over = |direct: &Direct| evals(direct).iter().all(|eval| eval.terminal_status());
    until("all are over", &direct, over).await;
    let followed = direct.projections.applied_index();
    let caught_up = |_: &Direct| scheduling.status().followed >= followed;
    until("all was followed", &direct, caught_up).await;
    drop(scheduling);
    let view = direct.projections.view();
    let mut left_out = Vec::new();
    let missed = overlooked(&view, &mut left_out).unwrap();
    assert!(missed.is_empty() && left_out.is_empty(), "{missed:?}");
    assert_eq!(evals(&direct).len(), 2, "its own and the node's");
}

/// A row of one system job is damaged: scheduling begins and continues, and the other is placed on
/// the node that it was overlooked on, and on one that comes later.
#[tokio::test(flavor = "multi_thread")]
async fn a_system_job_that_cannot_be_read_keeps_no_other_waiting() {
    for follows in [true, false] {
        let direct = Direct::new();
        direct.first_key();
        Way::Status.begins(&direct);
        let (event, guards) = decided(Way::Status, &direct);
        // Nothing is to be written of it: the applier stops at a damaged row.
        let mut damaged = job("system", 1);
        damaged.id = "damaged".into();
        direct.apply(JobRegistered {
            job: Arc::new(damaged),
            ..JobRegistered::default()
        });
        let eval = register(&direct, "system");
        let direct = direct.reopened(|database| {
            spoil::<Jobs>(database, &("default".to_owned(), "damaged".to_owned()));
        });
        let read = direct
            .projections
            .view()
            .get::<Jobs>(("default", "damaged"));
        assert!(read.unwrap_err().is_damage());
        let mut scheduling = Some(start(&direct));
        until("it was looked at in vain", &direct, |d| is_over(d, &eval)).await;
        assert!(!is_placed(&direct));
        if !follows {
            scheduling = None;
        }
        let (_, outcome) = direct.apply_guarded(event, guards);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        let scheduling = scheduling.unwrap_or_else(|| start(&direct));
        until("it is placed where it was overlooked", &direct, is_placed).await;
        let command = RegisterNode {
            node: node(2),
            create_node_pool: true,
        };
        direct.command(&command).unwrap();
        let on_both = |direct: &Direct| placed(direct) == 2;
        until("it is placed on the next node", &direct, on_both).await;
        drop(scheduling);
    }
}

/// What cannot be requested now is requested after a pause: once a node, and as widely as any of it
/// was.
#[test]
fn what_was_overlooked_is_kept_once_a_node_and_waits_where_it_fails() {
    let direct = Direct::new();
    let made = unreadable::made();
    let mut core = Core::load(&direct.projections.view(), BrokerSettings::default(), 0).unwrap();
    let one = |since| {
        let node_id = "n".to_owned();
        Retry::new(EvaluateOverlooked { node_id, since })
    };
    for since in [3, 7, 5] {
        core.add_overlooked(one(since));
    }
    let mut taken = core.take_overlooked(0);
    assert_eq!((taken.len(), taken[0].what.since), (1, 7));
    core.add_overlooked(taken.remove(0).later(0));
    let early = core.take_overlooked(1);
    // Another test may make tables again: then it does not wait.
    let others = unreadable::made() != made;
    assert!(early.is_empty() || others);
    early.into_iter().for_each(|one| core.add_overlooked(one));
    // The node is usable once more: that is looked at at once.
    core.add_overlooked(one(9));
    let taken = core.take_overlooked(1);
    assert_eq!((taken.len(), taken[0].what.since), (1, 9));
}

/// System jobs that are registered while the event that makes a node usable is on its way: their
/// evaluations, and the event.
fn with_pairs(direct: &Direct, ids: [&str; 2]) -> (Vec<String>, Event, Vec<Guard>) {
    Way::Status.begins(direct);
    let (event, guards) = decided(Way::Status, direct);
    let evals = ids.map(|id| register_as(direct, id, "system"));
    (evals.into(), event, guards)
}

/// The newest evaluation of one system job is damaged: the other is found by each of the looks, and
/// evaluated.
#[test]
fn an_evaluation_that_cannot_be_read_keeps_no_other_system_job_overlooked() {
    let direct = Direct::new();
    let (evals, event, guards) = with_pairs(&direct, ["damaged", "s"]);
    let direct = direct.reopened(|database| {
        spoil::<Evals>(database, &Id::new(evals[0].as_str()));
    });
    let (since, outcome) = direct.apply_guarded(event, guards);
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    let view = direct.projections.view();
    let mut left_out = Vec::new();
    let found = overlooked(&view, &mut left_out).unwrap();
    assert_eq!((found.len(), left_out.len()), (1, 1));
    let changes = view.changes(since).next().unwrap().unwrap();
    let followed = overlooked_by(&view, &changes, &mut left_out).unwrap();
    assert_eq!((followed.len(), left_out.len()), (1, 2));
    let stamp = Stamp {
        id: EventId([7; 16]),
        now: 1,
    };
    let decision = followed[0].decide(&view, &stamp).unwrap();
    let Decision::Event { event, .. } = decision else {
        panic!("{decision:?}");
    };
    let Event::EvalsUpserted(made) = event else {
        panic!("{event:?}");
    };
    let jobs: Vec<&str> = made.evals.iter().map(|eval| eval.job_id.as_str()).collect();
    assert_eq!(jobs, ["s"]);
}

/// A pause would only come on top of the time in which nothing can be written at all.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_fails_for_its_own_reason_waits_for_a_while() {
    for (code, due) in [(Code::NoLeader, [1_usize, 1]), (Code::Internal, [0, 0])] {
        let direct = Direct::new();
        let node_id = node(1).id;
        let faulty = Faulty::new(&direct, &node_id, Fault::Error(code));
        let projections = Arc::clone(&direct.projections);
        let started = Scheduling::start(projections, faulty, SchedulingSettings::default());
        let scheduling = started.unwrap();
        let shared = scheduling.shared();
        tokio::task::block_in_place(|| drop(scheduling));
        let (_, event, guards) = with_pairs(&direct, ["a", "s"]);
        let (since, _) = direct.apply_guarded(event, guards);
        let made = unreadable::made();
        let end = Evaluation {
            id: uuid::Uuid::new_v4().to_string(),
            node_id: node_id.clone(),
            status: "canceled".into(),
            ..Evaluation::default()
        };
        let one = EvaluateOverlooked { node_id, since };
        reaper::look_again(&shared, Retry::new(one)).await;
        reaper::write_evals(&shared, Retry::new(vec![end])).await;
        let now = shared.clock.now();
        let mut core = shared.core.lock();
        assert_eq!(core.unwritten.len(), 1);
        let ends = core.unwritten.iter().filter(|list| list.is_due(now));
        let are_due = [ends.count(), core.take_overlooked(now).len()];
        // Another test may make tables again: then nothing waits.
        let others = unreadable::made() != made;
        assert!(are_due == due || others, "{code:?}: {are_due:?}");
    }
}
