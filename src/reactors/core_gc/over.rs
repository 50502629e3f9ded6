//! What is over now, a bounded number of things at a time.

use drover_projections::tables::allocs::AllocsByJob;
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::{Evals, EvalsByJob};
use drover_projections::tables::jobs::JobsCollectable;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::{Scan, StorageError, View};

use super::sweep::{BATCH, Sweep};
use super::{Cutoffs, deployment_is_over, eval_is_over, job_is_over, node_is_over};

/// How many batches one look finds at most.
const BATCHES: usize = 64;

/// One thing that can go, and the evaluations and allocations that go before it.
#[derive(Clone, Debug)]
pub(super) struct Over {
    pub(super) what: What,
    pub(super) evals: Vec<String>,
    pub(super) allocs: Vec<String>,
}

/// What can go.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// An evaluation, which is the one that goes.
    Eval,
    /// A job: its namespace, its id, and the modify index at which it was found to be over.
    Job(String, String, u64),
    /// A deployment.
    Deployment(String),
    /// A node.
    Node(String),
}

impl Over {
    fn alone(what: What) -> Self {
        let (evals, allocs) = (Vec::new(), Vec::new());
        Self {
            what,
            evals,
            allocs,
        }
    }

    /// What it is called where it could not be removed.
    pub(super) fn name(&self) -> String {
        match &self.what {
            What::Eval => format!("evaluation {}", self.evals.join(", ")),
            What::Job(namespace, id, _) => format!("job {id} of namespace {namespace}"),
            What::Deployment(id) => format!("deployment {id}"),
            What::Node(id) => format!("node {id}"),
        }
    }

    /// How many rows it is, roughly.
    pub(super) fn rows(&self) -> usize {
        1 + self.evals.len() + self.allocs.len()
    }
}

/// What one look found.
struct Found {
    list: Vec<Over>,
    rows: usize,
}

impl Found {
    fn new() -> Self {
        Self {
            list: Vec::new(),
            rows: 0,
        }
    }

    /// Adds one thing; whether there is room for more, of things and of rows.
    fn add(&mut self, over: Over, things: usize, rows: usize) -> bool {
        self.rows += over.rows();
        self.list.push(over);
        self.list.len() < things && self.rows < rows
    }
}

/// Jobs of which nothing is needed any more; and whether there may be more than these.
pub(super) fn jobs(
    view: &View,
    cutoffs: &Cutoffs,
    sweep: &Sweep<'_>,
) -> Result<(Vec<Over>, bool), StorageError> {
    let mut found = Found::new();
    for job in view.by_index::<JobsCollectable>(()) {
        let job = job?;
        let key = (job.namespace.as_str(), job.id.as_str());
        let what = What::Job(job.namespace.clone(), job.id.clone(), job.modify_index);
        let mut over = Over::alone(what);
        if sweep.is_aside(&over) || !job_is_over(view, &job, cutoffs)? {
            continue;
        }
        for eval in view.by_index::<EvalsByJob>(key) {
            over.evals.push(eval?.id);
        }
        for row in view.by_index::<AllocsByJob>(key) {
            over.allocs.push(row?.alloc.id);
        }
        if !found.add(over, BATCH, BATCH * BATCHES / 4) {
            return Ok((found.list, true));
        }
    }
    Ok((found.list, false))
}

/// Evaluations that are over, with their allocations; and whether there may be more than these.
pub(super) fn evals(
    view: &View,
    cutoffs: &Cutoffs,
    sweep: &Sweep<'_>,
) -> Result<(Vec<Over>, bool), StorageError> {
    let mut found = Found::new();
    for eval in view.scan::<Evals>(Scan::all()) {
        let eval = eval?;
        let Some(allocs) = eval_is_over(view, &eval, cutoffs)? else {
            continue;
        };
        let over = Over {
            what: What::Eval,
            evals: vec![eval.id],
            allocs,
        };
        if sweep.is_aside(&over) {
            continue;
        }
        if !found.add(over, usize::MAX, BATCH * BATCHES) {
            return Ok((found.list, true));
        }
    }
    Ok((found.list, false))
}

/// Deployments that are over.
pub(super) fn deployments(
    view: &View,
    cutoffs: &Cutoffs,
    sweep: &Sweep<'_>,
) -> Result<Vec<Over>, StorageError> {
    let mut found = Vec::new();
    for deployment in view.scan::<Deployments>(Scan::all()) {
        let deployment = deployment?;
        if deployment_is_over(view, &deployment, cutoffs)? {
            found.push(Over::alone(What::Deployment(deployment.id)));
        }
    }
    found.retain(|over| !sweep.is_aside(over));
    Ok(found)
}

/// Nodes that are long gone.
pub(super) fn nodes(
    view: &View,
    cutoffs: &Cutoffs,
    sweep: &Sweep<'_>,
) -> Result<Vec<Over>, StorageError> {
    let mut found = Vec::new();
    for row in view.scan::<Nodes>(Scan::all()) {
        let Some(node) = nodes::get(view, &row?.id)? else {
            continue;
        };
        if node_is_over(view, &node, cutoffs)? {
            found.push(Over::alone(What::Node(node.id)));
        }
    }
    found.retain(|over| !sweep.is_aside(over));
    Ok(found)
}
