//! Apply as stories over a real database: given these events, when this one is applied, then the
//! rows are so.

mod acl;
mod allocs;
mod csi;
mod csi_changes;
mod csi_histories;
mod csi_reads;
mod csi_space;
mod deployments;
mod evals;
mod host;
mod job_rows;
mod jobs;
mod keys;
mod node_rows;
mod nodes;
mod plan_rows;
mod replicas;
mod rest;
mod rest_rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::eval::EvalsUpserted;
use drover_events::job::{JobDeregistered, JobRegistered};
use drover_events::model::{
    AllocatedCpuResources, AllocatedMemoryResources, AllocatedResources, AllocatedTaskResources,
    Allocation, Evaluation, Job, Node, TaskGroup,
};
use drover_events::node::NodeRegistered;
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_events::{Actor, Envelope, Event, EventId, Guard, Recorded};

use crate::{DatabaseOptions, Outcome, Projections, Rejection, Reply, View, Writer};

/// The time of the first event; each later one is a second after the one before.
pub(super) const START: i64 = 1_700_000_000_000_000_000;

pub(super) struct World {
    pub(super) projections: Arc<Projections>,
    writer: Writer,
    pub(super) index: u64,
    /// Goes last: a database whose files are gone tries for a second to write them.
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

    pub(super) fn view(&self) -> View {
        self.projections.view()
    }

    /// Applies events that must be accepted; the reply of the last one.
    pub(super) fn given(&mut self, event: impl Into<Event>) -> Reply {
        let event = event.into();
        let kind = event.kind();
        match self.when(event) {
            Outcome::Applied(reply) => reply,
            Outcome::Rejected(rejection) => panic!("{kind} was rejected: {rejection:?}"),
        }
    }

    pub(super) fn when(&mut self, event: impl Into<Event>) -> Outcome {
        self.guarded(event, Vec::new())
    }

    pub(super) fn guarded(&mut self, event: impl Into<Event>, guards: Vec<Guard>) -> Outcome {
        self.index += 1;
        let recorded = recorded(self.index, event.into(), guards);
        let applied = self.writer.apply(&[recorded]).unwrap();
        applied.into_iter().next().unwrap().outcome
    }

    /// The text of the rule that refuses the event, and that nothing was written (EV-20).
    pub(super) fn refused(&mut self, event: impl Into<Event>) -> String {
        let before = self.digests();
        let outcome = self.when(event);
        assert_eq!(self.digests(), before, "a refusal leaves no write");
        match outcome {
            Outcome::Rejected(Rejection::Rule { message }) => message,
            other => panic!("not refused by rule: {other:?}"),
        }
    }

    pub(super) fn digests(&self) -> Vec<(u16, String)> {
        let digests = self.view().digests();
        digests
            .iter()
            .map(|table| (table.table, format!("{:?}", table.digest)))
            .collect()
    }

    pub(super) fn apply_all(&mut self, recorded: &[Recorded]) {
        self.writer.apply(recorded).unwrap();
        self.index = recorded.last().map_or(self.index, |last| last.index);
    }
}

pub(super) fn recorded(index: u64, event: Event, guards: Vec<Guard>) -> Recorded {
    let time = START + index as i64 * 1_000_000_000;
    let mut id = [0; 16];
    id[8..].copy_from_slice(&index.to_be_bytes());
    let envelope = Envelope {
        time,
        id: EventId(id),
        actor: Actor::default(),
        request_id: String::new(),
        cause: None,
        trace: String::new(),
        guards,
        event,
    };
    Recorded {
        index,
        term: 1,
        kind: envelope.event.kind(),
        time,
        envelope: Some(envelope),
    }
}

/// The id of the event at an index.
pub(super) fn event_id(index: u64) -> EventId {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&index.to_be_bytes());
    EventId(id)
}

/// The time of the last event.
pub(super) fn now(world: &World) -> i64 {
    START + world.index as i64 * 1_000_000_000
}

/// A UUID that is easy to read.
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

pub(super) fn registered(node: Node) -> NodeRegistered {
    NodeRegistered {
        node: Box::new(node),
        ..NodeRegistered::default()
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
        task_groups: vec![group].into(),
        ..Job::default()
    }
}

pub(super) fn submitted(job: Job) -> JobRegistered {
    JobRegistered {
        job: Arc::new(job),
        ..JobRegistered::default()
    }
}

/// The job `web` is stopped.
pub(super) fn stop(purge: bool) -> JobDeregistered {
    JobDeregistered {
        namespace: "default".into(),
        job_id: "web".into(),
        purge,
        ..Default::default()
    }
}

pub(super) fn eval(number: u32, job: &str, status: &str) -> Evaluation {
    Evaluation {
        id: id(number),
        namespace: "default".into(),
        priority: 50,
        r#type: "service".into(),
        triggered_by: "job-register".into(),
        job_id: job.into(),
        status: status.into(),
        ..Evaluation::default()
    }
}

pub(super) fn evals(evals: Vec<Evaluation>) -> EvalsUpserted {
    EvalsUpserted {
        evals,
        decision: None,
    }
}

pub(super) fn alloc(number: u32, job: &str, node: u32) -> Allocation {
    let task = AllocatedTaskResources {
        cpu: AllocatedCpuResources {
            cpu_shares: 500,
            ..Default::default()
        },
        memory: AllocatedMemoryResources {
            memory_mb: 256,
            ..Default::default()
        },
        ..Default::default()
    };
    Allocation {
        id: id(number),
        namespace: "default".into(),
        eval_id: id(1),
        name: format!("{job}.g[{number}]"),
        node_id: id(node),
        job_id: job.into(),
        task_group: "g".into(),
        allocated_resources: Some(AllocatedResources {
            tasks: BTreeMap::from([("t".to_owned(), task)]).into(),
            ..Default::default()
        }),
        desired_status: "run".into(),
        client_status: "pending".into(),
        ..Allocation::default()
    }
}

pub(super) fn placed(allocs: Vec<Allocation>, job_modify_index: u64) -> PlanApplied {
    let placed = allocs
        .into_iter()
        .map(|alloc| PlacedAlloc {
            alloc: Box::new(alloc),
            job_modify_index,
        })
        .collect();
    PlanApplied {
        plan_id: id(900),
        eval_id: id(1),
        placed,
        updated_at: START,
        ..PlanApplied::default()
    }
}

/// A ready node, a job at index 2, and two allocations of it placed at index 3.
pub(super) fn running_job() -> World {
    let mut world = World::new();
    world.given(registered(node(10)));
    world.given(submitted(job("web")));
    world.given(placed(vec![alloc(40, "web", 10), alloc(41, "web", 10)], 2));
    world
}
