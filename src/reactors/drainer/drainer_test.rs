//! Drains over real projections: the test plays the scheduler and the clients, and names the times.

use std::collections::BTreeMap;

use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::gojson::Time;
use drover_events::job::JobDeregistered;
use drover_events::model::{
    AllocDeploymentStatus, Allocation, DrainStrategy, Evaluation, MigrateStrategy,
};
use drover_events::node::{DrainUpdate, NodeDrainUpdated};
use drover_events::plan::{PlacedAlloc, PlanApplied, StoppedAlloc};
use drover_projections::Outcome;
use drover_projections::tables::allocs::AllocRow;
use drover_projections::tables::evals::EvalsByJob;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::nodes;

use super::*;
use crate::base::clock::Clock;
use crate::commands::job::RegisterJob;
use crate::commands::node::RegisterNode;
use crate::commands::node_drain::DrainAllocs;
use crate::reactors::testing::Direct;
use drover_testkit::fixtures::{SECOND, job, node};

const NOW: i64 = 1_800_000_000 * SECOND;
const HOUR: i64 = 3600 * SECOND;

struct Stage {
    direct: Arc<Direct>,
    now: i64,
    placed: usize,
}

/// An id made of a number.
fn alloc_id(number: usize) -> String {
    format!("{number:08x}-aaaa-4aaa-8aaa-aaaaaaaaaaaa")
}

fn drain(deadline: i64) -> DrainStrategy {
    DrainStrategy {
        deadline,
        force_deadline: match deadline {
            deadline if deadline > 0 => Time(NOW + deadline),
            _ => Time::default(),
        },
        started_at: Time(NOW),
        ..DrainStrategy::default()
    }
}

impl Stage {
    /// So many nodes.
    fn new(nodes: usize) -> Self {
        let direct = Direct::new();
        for number in 1..=nodes {
            let register = RegisterNode {
                node: node(number),
                create_node_pool: true,
            };
            direct.command(&register).unwrap();
        }
        Self {
            direct,
            now: NOW,
            placed: 0,
        }
    }

    fn given(&self, event: impl Into<drover_events::Event>) {
        let (_, outcome) = self.direct.apply(event);
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }

    fn job(&self, id: &str, kind: &str, count: i64, max_parallel: i64) {
        let mut spec = job(kind, count);
        spec.id = id.to_owned();
        spec.name = id.to_owned();
        spec.task_groups.to_mut()[0].migrate = Some(MigrateStrategy {
            max_parallel,
            ..MigrateStrategy::default()
        });
        let register = RegisterJob {
            job: spec,
            eval_id: uuid::Uuid::new_v4().to_string(),
            ..RegisterJob::default()
        };
        self.direct.command(&register).unwrap();
    }

    /// One more allocation of a job that runs on a node; what is known of its health.
    fn place(&mut self, job: &str, on: usize, healthy: Option<bool>) -> String {
        self.placed += 1;
        let id = alloc_id(self.placed);
        let spec = self.direct.projections.view().get::<Jobs>(("default", job));
        let alloc = Allocation {
            id: id.clone(),
            name: format!("{job}.g[{}]", self.placed),
            namespace: "default".into(),
            job_id: job.into(),
            task_group: "g".into(),
            node_id: node(on).id,
            desired_status: "run".into(),
            client_status: "pending".into(),
            ..Allocation::default()
        };
        self.given(PlanApplied {
            placed: vec![PlacedAlloc {
                alloc: Box::new(alloc),
                job_modify_index: spec.unwrap().unwrap().job_modify_index,
            }],
            ..PlanApplied::default()
        });
        self.client(&id, "running", healthy);
        id
    }

    /// A client reports.
    fn client(&self, id: &str, status: &str, healthy: Option<bool>) {
        let update = ClientAllocUpdate {
            id: id.to_owned(),
            client_status: status.to_owned(),
            deployment_status: healthy.map(|healthy| AllocDeploymentStatus {
                healthy: Some(healthy),
                ..AllocDeploymentStatus::default()
            }),
            ..ClientAllocUpdate::default()
        };
        self.given(AllocsUpdatedByClient {
            updates: vec![update],
            ..AllocsUpdatedByClient::default()
        });
    }

    /// The scheduler stops one, as it does with what is marked.
    fn stop(&self, id: &str) {
        self.given(PlanApplied {
            stopped: vec![StoppedAlloc {
                id: id.to_owned(),
                ..StoppedAlloc::default()
            }],
            ..PlanApplied::default()
        });
    }

    fn set(&self, on: usize, strategy: Option<DrainStrategy>) {
        let update = DrainUpdate {
            drain_strategy: strategy,
            ..DrainUpdate::default()
        };
        self.given(NodeDrainUpdated {
            updates: BTreeMap::from([(node(on).id, update)]),
            updated_at: NOW,
            ..NodeDrainUpdated::default()
        });
    }

    fn context(&self) -> Context {
        Context {
            projections: Arc::clone(&self.direct.projections),
            proposer: self.direct.clone(),
            clock: Clock::stopped(self.now),
        }
    }

    /// The next steps are worked out and executed.
    async fn round(&self) -> Steps {
        let (_, steps, mut each) =
            next_steps_if_due(&self.direct.projections, DrainCache::default(), self.now).unwrap();
        let drainer = Drainer::default();
        drainer
            .execute(&self.context(), steps.clone(), &mut each)
            .await;
        assert_eq!(each.failed(), 0);
        steps
    }

    /// How many are marked in one round.
    async fn marked(&self) -> usize {
        self.round().await.moves.transitions.len()
    }

    fn alloc(&self, id: &str) -> AllocRow {
        let view = self.direct.projections.view();
        view.get::<Allocs>(id).unwrap().unwrap()
    }

    fn moves(&self, id: &str) -> bool {
        self.alloc(id).desired_transition.migrate == Some(true)
    }

    fn node(&self, number: usize) -> Node {
        let view = self.direct.projections.view();
        nodes::get(&view, &node(number).id).unwrap().unwrap()
    }

    fn evals(&self, job: &str) -> Vec<Evaluation> {
        let view = self.direct.projections.view();
        let evals = view.by_index::<EvalsByJob>(("default", job));
        evals
            .map(Result::unwrap)
            .filter(|eval| eval.triggered_by == "node-drain")
            .collect()
    }
}

#[tokio::test]
async fn services_move_as_many_at_a_time_as_their_migrate_block_allows() {
    for (parallel, expected) in [(1, 1), (2, 2), (7, 3)] {
        let mut stage = Stage::new(2);
        stage.job("web", "service", 3, parallel);
        let ids: Vec<_> = (0..3).map(|_| stage.place("web", 1, Some(true))).collect();
        assert_eq!(stage.marked().await, 0, "nothing drains");
        stage.set(1, Some(drain(0)));
        let steps = stage.round().await;
        assert_eq!(
            steps.moves.transitions.len(),
            expected,
            "max_parallel {parallel}"
        );
        assert_eq!(ids.iter().filter(|id| stage.moves(id)).count(), expected);
        assert_eq!(
            stage.evals("web").len(),
            1,
            "one evaluation for all of a job"
        );
        assert_eq!(stage.marked().await, 0, "they are on their way");
    }
}

#[tokio::test]
async fn the_next_one_moves_when_the_last_ones_successor_is_known_to_be_well() {
    let mut stage = Stage::new(2);
    stage.job("web", "service", 2, 1);
    let first = stage.place("web", 1, Some(true));
    let second = stage.place("web", 1, Some(true));
    stage.set(1, Some(drain(0)));
    assert_eq!(stage.marked().await, 1);
    let (gone, left) = if stage.moves(&first) {
        (first, second)
    } else {
        (second, first)
    };
    stage.stop(&gone);
    let successor = stage.place("web", 2, None);
    assert_eq!(stage.marked().await, 0, "nobody knows yet how it is");
    stage.client(&gone, "complete", Some(true));
    assert_eq!(stage.marked().await, 0);
    stage.client(&successor, "running", Some(false));
    assert_eq!(
        stage.marked().await,
        1,
        "its healthy_deadline has passed: it goes on"
    );
    assert!(stage.moves(&left) && !stage.moves(&successor));
}

#[tokio::test]
async fn a_group_that_moves_none_waits_for_the_deadline() {
    let mut stage = Stage::new(1);
    stage.job("web", "service", 1, 0);
    stage.place("web", 1, Some(true));
    stage.set(1, Some(drain(HOUR)));
    let steps = stage.round().await;
    assert!(steps.moves.transitions.is_empty());
    assert_eq!(steps.next, Some(NOW + HOUR));
    stage.now = NOW + HOUR;
    assert_eq!(stage.marked().await, 1);
}

#[tokio::test]
async fn batch_work_may_end_by_itself_until_the_deadline_and_is_not_begun_anew() {
    let mut stage = Stage::new(1);
    stage.job("sums", "batch", 2, 1);
    stage.job("all", "sysbatch", 1, 1);
    let (ends, stays) = (stage.place("sums", 1, None), stage.place("sums", 1, None));
    let everywhere = stage.place("all", 1, None);
    stage.set(1, Some(drain(HOUR)));
    assert_eq!(stage.marked().await, 0);
    stage.client(&ends, "complete", None);
    stage.now = NOW + HOUR - 1;
    assert_eq!(stage.marked().await, 0, "a nanosecond is left");
    stage.now = NOW + HOUR;
    assert_eq!(stage.marked().await, 2);
    assert!(!stage.moves(&ends));
    for id in [&stays, &everywhere] {
        let request = stage.alloc(id).alloc.desired_transition;
        assert_eq!(request.migrate, Some(true));
        assert_eq!(request.migrate_disable_placement, Some(true));
    }
}

#[tokio::test]
async fn batch_work_without_a_deadline_is_waited_for() {
    let mut stage = Stage::new(1);
    stage.job("sums", "batch", 1, 1);
    let id = stage.place("sums", 1, None);
    stage.set(1, Some(drain(0)));
    stage.now = NOW + 1_000 * HOUR;
    assert_eq!(stage.marked().await, 0);
    assert!(stage.node(1).draining());
    stage.client(&id, "complete", None);
    assert_eq!(stage.round().await.done.len(), 1);
    assert!(!stage.node(1).draining());
}

#[tokio::test]
async fn a_forced_drain_moves_everything_at_once() {
    let mut stage = Stage::new(1);
    for (id, kind) in [("web", "service"), ("sums", "batch"), ("agent", "system")] {
        stage.job(id, kind, 2, 1);
        stage.place(id, 1, Some(true));
        stage.place(id, 1, None);
    }
    stage.set(1, Some(drain(-1)));
    assert_eq!(stage.marked().await, 6);
    assert_eq!(stage.marked().await, 0, "once");
    for job in ["web", "sums", "agent"] {
        assert_eq!(stage.evals(job).len(), 1, "{job}");
    }
}

#[tokio::test]
async fn system_jobs_go_last_or_not_at_all() {
    for ignored in [false, true] {
        let mut stage = Stage::new(1);
        stage.job("agent", "system", 1, 1);
        stage.job("web", "service", 1, 1);
        let agent = stage.place("agent", 1, None);
        let web = stage.place("web", 1, Some(true));
        stage.set(
            1,
            Some(DrainStrategy {
                ignore_system_jobs: ignored,
                ..drain(HOUR)
            }),
        );
        assert_eq!(stage.marked().await, 1);
        assert!(stage.moves(&web) && !stage.moves(&agent));
        stage.stop(&web);
        assert_eq!(stage.marked().await, 0, "it still runs there");
        stage.client(&web, "complete", None);
        let steps = stage.round().await;
        assert_eq!(stage.moves(&agent), !ignored);
        assert_eq!(steps.done.len(), usize::from(ignored));
        if !ignored {
            stage.stop(&agent);
            assert!(stage.round().await.done.is_empty());
            stage.client(&agent, "complete", None);
            stage.round().await;
        }
        assert!(!stage.node(1).draining());
    }
}

#[tokio::test]
async fn a_drain_is_complete_when_the_client_has_stopped_everything() {
    let mut stage = Stage::new(1);
    stage.job("web", "service", 1, 1);
    let id = stage.place("web", 1, Some(true));
    stage.set(1, Some(drain(HOUR)));
    stage.round().await;
    stage.stop(&id);
    assert!(
        stage.round().await.done.is_empty(),
        "the client has not said so"
    );
    assert!(stage.node(1).draining());
    stage.client(&id, "complete", None);
    assert_eq!(stage.round().await.done.len(), 1);
    let after = stage.node(1);
    assert!(after.drain_strategy.is_none());
    assert_eq!(
        after.scheduling_eligibility, "ineligible",
        "until an operator says so"
    );
    assert_eq!(after.last_drain.as_ref().unwrap().status, "complete");
    let event = after.events.last().unwrap();
    assert_eq!(event.message, "Node drain complete");
    assert_eq!(event.subsystem, "Drain");
    assert!(event.details.is_empty(), "its deadline had not come");
    assert!(stage.round().await.done.is_empty(), "once");
}

#[tokio::test]
async fn an_empty_node_is_drained_at_once_and_its_deadline_is_told_where_it_came() {
    let stage = Stage::new(2);
    stage.set(1, Some(drain(-1)));
    stage.round().await;
    assert!(!stage.node(1).draining());
    let mut stage = Stage::new(1);
    stage.set(1, Some(drain(HOUR)));
    stage.now = NOW + HOUR;
    stage.round().await;
    let event = stage.node(1).events.last().cloned().unwrap();
    assert_eq!(event.details["deadline_reached"], "true");
}

#[tokio::test]
async fn nodes_whose_deadlines_are_close_are_dealt_with_in_one_event() {
    let mut stage = Stage::new(3);
    stage.job("sums", "batch", 3, 1);
    let allocs: Vec<_> = (1..=3).map(|on| stage.place("sums", on, None)).collect();
    for (on, deadline) in [(1, HOUR), (2, HOUR + 2 * SECOND), (3, HOUR + 9 * SECOND)] {
        stage.set(on, Some(drain(deadline)));
    }
    stage.now = NOW + HOUR - SECOND;
    assert_eq!(stage.marked().await, 0, "none has come");
    stage.now = NOW + HOUR;
    let steps = stage.round().await;
    assert_eq!(steps.moves.transitions.len(), 2);
    assert_eq!(steps.next, Some(NOW + HOUR + 9 * SECOND));
    assert!(!stage.moves(&allocs[2]));
    let (one, two) = (stage.alloc(&allocs[0]), stage.alloc(&allocs[1]));
    assert_eq!(one.modify_index, two.modify_index, "one event");
}

#[tokio::test]
async fn groups_on_several_draining_nodes_share_their_limit() {
    let mut stage = Stage::new(3);
    stage.job("web", "service", 3, 1);
    for on in 1..=3 {
        stage.place("web", on, Some(true));
    }
    stage.set(1, Some(drain(0)));
    stage.set(2, Some(drain(0)));
    assert_eq!(stage.marked().await, 1);
    assert_eq!(stage.marked().await, 0);
}

#[tokio::test]
async fn a_drain_that_is_cancelled_moves_nothing_any_more() {
    let mut stage = Stage::new(1);
    stage.job("web", "service", 1, 1);
    let id = stage.place("web", 1, Some(true));
    stage.set(1, Some(drain(0)));
    let (_, steps, _) =
        next_steps_if_due(&stage.direct.projections, DrainCache::default(), NOW).unwrap();
    assert_eq!(steps.moves.transitions.len(), 1);
    // The operator is faster than the event that was decided on.
    stage.set(1, None);
    let mut each = Each::default();
    Drainer::default()
        .execute(&stage.context(), steps, &mut each)
        .await;
    assert_eq!(each.failed(), 0, "it is no fault");
    assert!(!stage.moves(&id));
    assert_eq!(stage.node(1).last_drain.unwrap().status, "canceled");
    assert_eq!(stage.marked().await, 0);
}

#[test]
fn a_mark_is_guarded_by_the_nodes_it_was_decided_for() {
    let mut stage = Stage::new(1);
    stage.job("web", "service", 1, 1);
    stage.place("web", 1, Some(true));
    stage.set(1, Some(drain(0)));
    let (_, steps, _) =
        next_steps_if_due(&stage.direct.projections, DrainCache::default(), NOW).unwrap();
    let stamp = crate::commands::Stamp {
        id: drover_events::EventId([1; 16]),
        now: NOW,
    };
    let view = stage.direct.projections.view();
    let moves: &DrainAllocs = &steps.moves;
    let decided = moves.decide(&view, &stamp).unwrap();
    let crate::commands::Decision::Event { guards, .. } = decided else {
        panic!("an event: {decided:?}");
    };
    assert_eq!(guards, [view.guard::<Nodes>(node(1).id.as_str()).unwrap()]);
    assert_eq!(
        moves.cause(&view),
        view.modify_index::<Nodes>(node(1).id.as_str()).unwrap()
    );
}

#[tokio::test]
async fn what_a_purged_job_left_goes_at_once() {
    let mut stage = Stage::new(1);
    stage.job("web", "service", 3, 1);
    for _ in 0..3 {
        stage.place("web", 1, Some(true));
    }
    stage.given(JobDeregistered {
        namespace: "default".into(),
        job_id: "web".into(),
        purge: true,
        ..JobDeregistered::default()
    });
    stage.set(1, Some(drain(0)));
    assert_eq!(stage.marked().await, 3);
    assert_eq!(stage.evals("web").len(), 1);
}

#[tokio::test]
async fn the_reactor_reads_new_drains_and_says_what_it_did() {
    let mut stage = Stage::new(1);
    stage.job("web", "service", 1, 1);
    stage.place("web", 1, Some(true));
    let drainer = Drainer::default();
    let idle = drainer.activate(&stage.context()).await.unwrap();
    assert_eq!(
        (idle.sleep, &idle.status["Draining"]),
        (MAX_SLEEP, &0.into())
    );
    stage.set(1, Some(drain(HOUR)));
    let busy = drainer.activate(&stage.context()).await.unwrap();
    assert_eq!(
        (&busy.status["Draining"], &busy.status["Marked"]),
        (&1.into(), &1.into())
    );
    assert!(busy.sleep <= MAX_SLEEP);
}

/// A task that does not die, and a client that is out of contact, keep no drain from its end.
#[tokio::test]
async fn a_drain_ends_after_its_deadline_whatever_still_runs() {
    for (deadline, begins) in [(HOUR, NOW + HOUR), (-1, NOW)] {
        let mut stage = Stage::new(2);
        stage.job("web", "service", 1, 1);
        let stuck = stage.place("web", 1, Some(true));
        stage.set(1, Some(drain(deadline)));
        stage.now = begins;
        assert_eq!(stage.marked().await, 1);
        stage.stop(&stuck);
        let steps = stage.round().await;
        assert_eq!(
            steps.next,
            Some(begins + 60 * SECOND),
            "its end is waited for"
        );
        assert!(steps.done.is_empty());
        stage.now = begins + 60 * SECOND;
        stage.round().await;
        let node = stage.node(1);
        assert!(node.drain_strategy.is_none(), "{deadline}");
        assert_eq!(node.last_drain.unwrap().status, "complete");
        let reported = node
            .events
            .last()
            .unwrap()
            .details
            .get("deadline_reached")
            .cloned();
        assert_eq!(reported.as_deref(), (deadline > 0).then_some("true"));
    }
    let mut stage = Stage::new(2);
    stage.job("web", "service", 1, 1);
    let away = stage.place("web", 1, Some(true));
    stage.set(1, Some(drain(HOUR)));
    stage.client(&away, "unknown", None);
    stage.now = NOW + HOUR;
    stage.round().await;
    stage.stop(&away);
    stage.round().await;
    assert!(
        stage.node(1).drain_strategy.is_none(),
        "nobody will report its end"
    );
}

/// One node that describes itself anew holds up no other's drain.
#[tokio::test]
async fn a_node_that_changes_meanwhile_holds_up_no_other() {
    let mut stage = Stage::new(2);
    stage.job("sums", "batch", 2, 1);
    let ids = [stage.place("sums", 1, None), stage.place("sums", 2, None)];
    for on in [1, 2] {
        stage.set(on, Some(drain(-1)));
    }
    let (_, steps, mut each) =
        next_steps_if_due(&stage.direct.projections, DrainCache::default(), NOW).unwrap();
    assert_eq!(steps.moves.transitions.len(), 2);
    let mut again = node(1);
    again.meta.insert("a", "b".to_owned());
    let register = RegisterNode {
        node: again,
        create_node_pool: true,
    };
    stage.direct.command(&register).unwrap();
    let drainer = Drainer::default();
    drainer.execute(&stage.context(), steps, &mut each).await;
    assert!(!stage.moves(&ids[0]) && stage.moves(&ids[1]));
    assert_eq!(
        stage.marked().await,
        1,
        "it has its turn with the next steps"
    );
}

#[path = "concerns_test.rs"]
mod concerns;
