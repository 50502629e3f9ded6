//! For the tests of commands: a database to decide on, without Raft.

use std::sync::Arc;

use drover_events::cluster::VersionBarrierRaised;
use drover_events::model::{Allocation, Evaluation, Job, Node, TaskGroup};
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_events::{Actor, Envelope, Event, EventId, Recorded};
use drover_projections::{DatabaseOptions, Outcome, Projections, Reply, Table, View, Writer};

use super::{Command, Decision, Stamp};
use drover_error::{Code, Refusal};

/// The time of the first event; each later one is a second after the one before.
pub(super) const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

pub(super) struct World {
    projections: Arc<Projections>,
    writer: Writer,
    pub(super) index: u64,
    /// Dropped last: a database whose files are gone tries for a second to write them.
    _directory: tempfile::TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let (projections, writer) = Projections::open(path, DatabaseOptions::default()).unwrap();
        Self {
            _directory: directory,
            projections,
            writer,
            index: 0,
        }
    }

    /// Every server reads what there is today.
    pub(super) fn raise(&mut self) {
        self.given(VersionBarrierRaised {
            level: drover_migrations::FEATURE_LEVEL,
            ..VersionBarrierRaised::default()
        });
    }

    pub(super) fn view(&self) -> View {
        self.projections.view()
    }

    pub(super) fn now(&self) -> i64 {
        START + self.index as i64 * SECOND
    }

    fn stamp(&self) -> Stamp {
        let mut id = [7; 16];
        id[8..].copy_from_slice(&self.index.to_be_bytes());
        Stamp {
            id: EventId(id),
            now: self.now(),
        }
    }

    /// What the command comes to now.
    pub(super) fn decide(&self, command: &impl Command) -> Result<Decision, Refusal> {
        command.decide(&self.view(), &self.stamp())
    }

    /// The event the command becomes.
    pub(super) fn event(&self, command: &impl Command) -> Event {
        match self.decide(command).unwrap() {
            Decision::Event { event, .. } | Decision::Page { event, .. } => event,
            Decision::Nothing(reply) => panic!("nothing is to be done: {reply:?}"),
        }
    }

    /// Decides and applies.
    pub(super) fn commit(&mut self, command: &impl Command) -> Outcome {
        for _ in 0..1_000 {
            let (event, guards, last) = match self.decide(command).unwrap() {
                Decision::Event { event, guards } => (event, guards, true),
                Decision::Page { event, guards } => (event, guards, false),
                Decision::Nothing(reply) => return Outcome::Applied(reply),
            };
            let outcome = self.append(event, guards);
            if last || matches!(outcome, Outcome::Rejected(_)) {
                return outcome;
            }
        }
        panic!("pages without end");
    }

    /// Decides and applies what must be accepted.
    pub(super) fn done(&mut self, command: &impl Command) -> Reply {
        match self.commit(command) {
            Outcome::Applied(reply) => reply,
            Outcome::Rejected(rejection) => panic!("rejected: {rejection:?}"),
        }
    }

    pub(super) fn given(&mut self, event: impl Into<Event>) {
        let outcome = self.append(event.into(), Vec::new());
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }

    pub(super) fn append(&mut self, event: Event, guards: Vec<drover_events::Guard>) -> Outcome {
        self.index += 1;
        let mut id = [0; 16];
        id[8..].copy_from_slice(&self.index.to_be_bytes());
        let envelope = Envelope {
            time: self.now(),
            id: EventId(id),
            actor: Actor::default(),
            request_id: String::new(),
            cause: None,
            trace: String::new(),
            guards,
            event,
        };
        let kind = envelope.event.kind();
        let (index, time) = (self.index, envelope.time);
        let recorded = Recorded {
            index,
            term: 1,
            kind,
            time,
            envelope: Some(envelope),
        };
        self.writer.apply(&[recorded]).unwrap().remove(0).outcome
    }

    /// Code and text of the refusal.
    pub(super) fn refusal(&self, command: &impl Command) -> (Code, String) {
        let error = self.decide(command).unwrap_err();
        (error.code, error.message)
    }

    pub(super) fn row<T: Table>(
        &self,
        key: impl drover_projections::AsKey<T::Key>,
    ) -> Option<T::Row> {
        self.view().get::<T>(key).unwrap()
    }
}

pub(super) fn id(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

pub(super) fn node(number: u32) -> Node {
    Node {
        id: id(number),
        name: format!("n{number}"),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        status: "ready".into(),
        ..Node::default()
    }
}

pub(super) fn job(name: &str) -> Job {
    let group = TaskGroup {
        name: "g".into(),
        count: 2,
        ..TaskGroup::default()
    };
    Job {
        id: name.into(),
        name: name.into(),
        namespace: "default".into(),
        r#type: "service".into(),
        priority: 50,
        node_pool: "default".into(),
        datacenters: vec!["*".to_owned()].into(),
        task_groups: vec![group].into(),
        ..Job::default()
    }
}

pub(super) fn eval(number: u32, status: &str) -> Evaluation {
    Evaluation {
        id: id(number),
        namespace: "default".into(),
        job_id: "web".into(),
        r#type: "service".into(),
        status: status.into(),
        ..Evaluation::default()
    }
}

pub(super) fn alloc(number: u32, job: &str, node: u32) -> Allocation {
    Allocation {
        id: id(number),
        namespace: "default".into(),
        eval_id: id(1),
        name: format!("{job}.g[0]"),
        node_id: id(node),
        job_id: job.into(),
        task_group: "g".into(),
        desired_status: "run".into(),
        client_status: "pending".into(),
        ..Allocation::default()
    }
}

pub(super) fn placed(alloc: Allocation, job_modify_index: u64) -> PlanApplied {
    let placed = vec![PlacedAlloc {
        alloc: Box::new(alloc),
        job_modify_index,
    }];
    PlanApplied {
        placed,
        updated_at: START,
        ..PlanApplied::default()
    }
}
