//! A small cluster for tests: the real projections, and the scheduler's decisions committed to them
//! as the plan queue commits them.

use std::sync::Arc;

use drover_events::alloc::{
    AllocsDesiredTransitionUpdated, AllocsUpdatedByClient, ClientAllocUpdate,
};
use drover_events::cluster::SchedulerConfigured;
use drover_events::deployment::{DeploymentPromoted, DeploymentStatusUpdated};
use drover_events::envelope::{Envelope, Recorded};
use drover_events::eval::EvalsUpserted;
use drover_events::gojson::Time;
use drover_events::job::JobRegistered;
use drover_events::model::{
    Allocation, Deployment, DeploymentStatusUpdate, Evaluation, Job, Node, NodePool,
    SchedulerConfiguration, TaskState,
};
use drover_events::node::{NodeEligibilityUpdated, NodeRegistered, NodeStatusUpdated};
use drover_events::node_pool::NodePoolsUpserted;
use drover_events::{Actor, Event, EventId, Guard};
use drover_projections::tables::deployments::DeploymentsByJob;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{DatabaseOptions, Projections, Scan, View, Writer};
use drover_projections::{Outcome as Applied, Table};

use drover::commands::{Command, Decision, Stamp};
use drover::error::Refusal;
use drover::reactors::scheduling::broker::BrokerSettings;
use drover::reactors::scheduling::core::Core;
use drover::reactors::scheduling::plan_check::{PlanRequest, prepare};
use drover::scheduling_view::Snapshot;
use drover_scheduler::rng::{Rng, seed_of};
use drover_scheduler::{Inputs, Outcome, SCHEDULER_VERSION, StateView, explain, schedule};
use drover_testkit::fixtures::{SECOND, node};

/// The namespace and the id of the one job there is.
const JOB: (&str, &str) = ("default", "j");

/// The state, and how plans change it.
/// The types of evaluations.
const KINDS: [&str; 4] = ["service", "batch", "system", "sysbatch"];

pub(crate) struct World {
    projections: Arc<Projections>,
    writer: Writer,
    index: u64,
    /// The time, Unix nanoseconds: the servers' and the clients'.
    pub(crate) now: i64,
    evals: u64,
    /// Goes last: a database whose files are gone tries for a second to write them.
    _directory: tempfile::TempDir,
}

impl World {
    /// So many nodes, and a job.
    pub(crate) fn new(nodes: usize, job: Job) -> Self {
        Self::of(0..nodes, job)
    }

    /// Nodes of these numbers, met in this order, and a job.
    pub(crate) fn of(nodes: impl IntoIterator<Item = usize>, job: Job) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (projections, writer) =
            Projections::open(directory.path(), DatabaseOptions::dev()).unwrap();
        let mut world = Self {
            _directory: directory,
            projections,
            writer,
            index: 0,
            now: 1_000 * SECOND,
            evals: 0,
        };
        for number in nodes {
            world.add_node(node(number));
        }
        world.register(job);
        world
    }

    pub(crate) fn view(&self) -> View {
        self.projections.view()
    }

    /// Something happens that must not be refused.
    pub(crate) fn apply(&mut self, event: impl Into<Event>) {
        let mut id = [0; 16];
        id[8..].copy_from_slice(&(self.index + 1).to_be_bytes());
        let applied = self.append(EventId(id), event.into(), Vec::new());
        assert!(matches!(applied, Applied::Applied(_)), "{applied:?}");
    }

    fn append(&mut self, id: EventId, event: Event, guards: Vec<Guard>) -> Applied {
        self.index += 1;
        let kind = event.kind();
        let envelope = Envelope {
            time: self.now,
            id,
            actor: Actor::server("test", "test"),
            request_id: String::new(),
            cause: None,
            trace: String::new(),
            guards,
            event,
        };
        let recorded = Recorded {
            index: self.index,
            term: 1,
            kind,
            time: self.now,
            envelope: Some(envelope),
        };
        self.writer.apply(&[recorded]).unwrap().remove(0).outcome
    }

    /// A command is sent: it is decided and committed, or refused.
    pub(crate) fn command(&mut self, command: &impl Command) -> Result<(), Refusal> {
        let mut id = [1; 16];
        id[8..].copy_from_slice(&(self.index + 1).to_be_bytes());
        let stamp = Stamp {
            id: EventId(id),
            now: self.now,
        };
        let decision = command.decide(&self.view(), &stamp)?;
        if let Decision::Event { event, guards } | Decision::Page { event, guards } = decision {
            let applied = self.append(stamp.id, event, guards);
            assert!(matches!(applied, Applied::Applied(_)), "{applied:?}");
        }
        Ok(())
    }

    pub(crate) fn add_node(&mut self, node: Node) {
        self.apply(NodeRegistered {
            node: Box::new(node),
            create_node_pool: true,
            ..NodeRegistered::default()
        });
    }

    pub(crate) fn register(&mut self, job: Job) {
        let pool = job.node_pool.as_str();
        if !matches!(pool, "" | "default" | "all") {
            let pool = NodePool {
                name: pool.to_owned(),
                ..NodePool::default()
            };
            self.apply(NodePoolsUpserted {
                node_pools: vec![pool],
            });
        }
        self.apply(JobRegistered {
            job: Arc::new(job),
            ..JobRegistered::default()
        });
    }

    pub(crate) fn job(&self) -> Job {
        self.view().get::<Jobs>(JOB).unwrap().unwrap()
    }

    /// Registers the job again with a change.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Job)) {
        let mut job = self.job();
        change(&mut job);
        self.register(job);
    }

    /// An operator sets the scheduler's settings.
    pub(crate) fn configure(&mut self, config: SchedulerConfiguration) {
        self.apply(SchedulerConfigured { config, cas: false });
    }

    /// An evaluation that waits to be worked on.
    pub(crate) fn eval(&mut self, trigger: &str) -> Evaluation {
        self.eval_of(JOB.1, trigger)
    }

    /// The same of another job.
    pub(crate) fn eval_of(&mut self, job: &str, trigger: &str) -> Evaluation {
        self.evals += 1;
        let known = self.view().get::<Jobs>((JOB.0, job)).unwrap().unwrap();
        let eval = Evaluation {
            id: Rng::new(self.evals).uuid(),
            namespace: JOB.0.into(),
            r#type: known.r#type,
            priority: 50,
            triggered_by: trigger.into(),
            job_id: job.into(),
            status: "pending".into(),
            ..Evaluation::default()
        };
        let id = eval.id.clone();
        self.apply(EvalsUpserted {
            evals: vec![eval],
            decision: None,
        });
        self.view().get::<Evals>(id.as_str()).unwrap().unwrap()
    }

    pub(crate) fn decide(&self, eval: &Evaluation) -> Outcome {
        let snapshot = Snapshot::read(self.view()).unwrap();
        schedule(&snapshot, eval, &self.inputs(eval)).unwrap()
    }

    /// What there is to say of every node in every search for an evaluation.
    pub(crate) fn explain(&self, eval: &Evaluation) -> Outcome {
        let snapshot = Snapshot::read(self.view()).unwrap();
        explain(&snapshot, eval, &self.inputs(eval)).unwrap()
    }

    fn inputs(&self, eval: &Evaluation) -> Inputs {
        Inputs {
            snapshot_index: self.index,
            now: self.now,
            seed: seed_of(&eval.id, self.index),
            scheduler_version: SCHEDULER_VERSION,
        }
    }

    /// Decides an evaluation and commits what comes of it.
    pub(crate) fn run(&mut self, trigger: &str) -> Outcome {
        let eval = self.eval(trigger);
        self.run_eval(&eval)
    }

    pub(crate) fn run_eval(&mut self, eval: &Evaluation) -> Outcome {
        let outcome = self.decide(eval);
        let inputs = self.inputs(eval);
        if outcome.plan.is_empty() {
            let mut evals = vec![outcome.finished.clone()];
            evals.extend(outcome.blocked.clone());
            evals.extend(outcome.next.clone());
            evals.extend(outcome.follow_ups.clone());
            self.apply(EvalsUpserted {
                evals,
                decision: Some(inputs.into()),
            });
            return outcome;
        }
        let mut core = self.core();
        let request = self.request(eval, outcome.clone());
        let prepared = prepare(&mut core, request, self.now);
        assert!(
            prepared.rejected_nodes.is_empty(),
            "{:?}",
            prepared.rejected_nodes
        );
        assert!(!prepared.cut_short);
        for decided in prepared.events {
            let applied = self.append(decided.id, decided.event, decided.guards);
            assert!(matches!(applied, Applied::Applied(_)), "{applied:?}");
        }
        outcome
    }

    /// The scheduling state of a server that begins to lead.
    pub(crate) fn core(&self) -> Core {
        Core::load(&self.view(), BrokerSettings::default(), self.now).unwrap()
    }

    /// The same once that server has tried everything it found.
    pub(crate) fn idle_core(&mut self) -> Core {
        let mut core = self.core();
        let mut tried = 0;
        while let Some((eval, token)) = core.broker.dequeue(&KINDS, self.now) {
            tried += 1;
            assert!(tried < 10_000, "evaluations without end: {eval:?}");
            self.run_eval(&eval);
            core.catch_up(&self.view(), self.now).unwrap();
            core.broker.ack(&eval.id, token, self.now).unwrap();
        }
        core
    }

    /// What was decided of an evaluation, to be checked and committed.
    pub(crate) fn request(&self, eval: &Evaluation, outcome: Outcome) -> PlanRequest {
        PlanRequest {
            eval: eval.clone(),
            token: 0,
            guard: self.view().guard::<Evals>(eval.id.as_str()).unwrap(),
            outcome,
            inputs: self.inputs(eval),
            signing_key: String::new(),
        }
    }

    /// A change of an allocation: by its client what a client may report, by the servers what is
    /// desired of it.
    pub(crate) fn client(&mut self, id: &str, change: impl FnOnce(&mut Allocation)) {
        let before = self.alloc(id);
        let mut after = before.clone();
        change(&mut after);
        if after.desired_transition != before.desired_transition {
            let request = after.desired_transition.clone();
            self.apply(AllocsDesiredTransitionUpdated {
                transitions: [(id.to_owned(), request)].into(),
                updated_at: self.now,
                ..AllocsDesiredTransitionUpdated::default()
            });
        }
        let update = |alloc: &Allocation| ClientAllocUpdate {
            id: id.to_owned(),
            client_status: alloc.client_status.clone(),
            client_description: alloc.client_description.clone(),
            task_states: alloc.task_states.clone().into_map(),
            network_status: alloc.network_status.clone(),
            deployment_status: alloc.deployment_status.clone(),
            ..ClientAllocUpdate::default()
        };
        if update(&after) != update(&before) {
            self.apply(AllocsUpdatedByClient {
                updates: vec![update(&after)],
                updated_at: self.now,
                ..AllocsUpdatedByClient::default()
            });
        }
    }

    /// Every live allocation gets this client status.
    pub(crate) fn all_are(&mut self, status: &str) {
        for id in self.live() {
            self.client(&id, |alloc| alloc.client_status = status.into());
        }
    }

    pub(crate) fn fail(&mut self, id: &str) {
        let now = self.now;
        self.client(id, |alloc| {
            alloc.client_status = "failed".into();
            let state = TaskState {
                state: "dead".into(),
                failed: true,
                finished_at: Time(now),
                ..TaskState::default()
            };
            alloc.task_states.insert("t", state);
        });
    }

    pub(crate) fn node_status(&mut self, id: &str, status: &str) {
        self.apply(NodeStatusUpdated {
            node_id: id.to_owned(),
            status: status.into(),
            updated_at: self.now / SECOND,
            ..NodeStatusUpdated::default()
        });
    }

    pub(crate) fn ineligible(&mut self, id: &str) {
        self.apply(NodeEligibilityUpdated {
            node_id: id.to_owned(),
            eligibility: "ineligible".into(),
            updated_at: self.now,
            ..NodeEligibilityUpdated::default()
        });
    }

    pub(crate) fn eligible(&mut self, id: &str) {
        self.apply(NodeEligibilityUpdated {
            node_id: id.to_owned(),
            eligibility: "eligible".into(),
            updated_at: self.now,
            ..NodeEligibilityUpdated::default()
        });
    }

    /// All allocations there still are, in the order of their names.
    pub(crate) fn allocs(&self) -> Vec<Arc<Allocation>> {
        let snapshot = Snapshot::read(self.view()).unwrap();
        let mut allocs = snapshot.allocs_of_job(JOB.0, JOB.1).unwrap();
        allocs.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        allocs
    }

    /// Ids of allocations that should run, in the order of their names.
    pub(crate) fn live(&self) -> Vec<String> {
        let runs = |status: &str| matches!(status, "pending" | "running" | "unknown");
        let mut live = self.allocs();
        live.retain(|a| a.desired_status == "run" && runs(&a.client_status));
        live.iter().map(|alloc| alloc.id.clone()).collect()
    }

    pub(crate) fn alloc(&self, id: &str) -> Allocation {
        let found = self.allocs().into_iter().find(|alloc| alloc.id == id);
        Arc::unwrap_or_clone(found.unwrap())
    }

    /// The newest deployment.
    pub(crate) fn deployment(&self) -> Deployment {
        let view = self.view();
        let scan = Scan::with_key_prefix::<(String, String)>(JOB).reverse();
        let mut newest = view.by_index_scan::<DeploymentsByJob>(scan);
        newest.next().unwrap().unwrap()
    }

    /// All live allocations of the newest deployment are healthy.
    pub(crate) fn heal(&mut self) {
        let deployment = self.deployment().id;
        for id in self.live() {
            self.client(&id, |alloc| {
                alloc.client_status = "running".into();
                if alloc.deployment_id == deployment {
                    alloc.deployment_status.get_or_insert_default().healthy = Some(true);
                }
            });
        }
    }

    /// The canaries of the newest deployment are promoted.
    pub(crate) fn promote(&mut self) {
        self.apply(DeploymentPromoted {
            deployment_id: self.deployment().id,
            all: true,
            promoted_at: self.now,
            ..DeploymentPromoted::default()
        });
    }

    /// The newest deployment fails.
    pub(crate) fn fail_deployment(&mut self) {
        self.set_deployment("failed");
    }

    /// The newest deployment is given this status.
    pub(crate) fn set_deployment(&mut self, status: &str) {
        self.apply(DeploymentStatusUpdated {
            update: DeploymentStatusUpdate {
                deployment_id: self.deployment().id,
                status: status.into(),
                status_description: format!("Deployment marked as {status}"),
                updated_at: self.now,
            },
            ..DeploymentStatusUpdated::default()
        });
    }

    /// A row, as the tables have it.
    pub(crate) fn row<T: Table>(
        &self,
        key: impl drover_projections::AsKey<T::Key>,
    ) -> Option<T::Row> {
        self.view().get::<T>(key).unwrap()
    }
}
