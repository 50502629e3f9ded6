//! What is over now, a bounded number of things at a time. Rows that cannot be read are left out,
//! and so is what such rows depend on: removal would have to read them.

use drover_events::model::Job;
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
    Deployment(String),
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
struct Collectable {
    list: Vec<Over>,
    rows: usize,
}

impl Collectable {
    fn new() -> Self {
        Self {
            list: Vec::new(),
            rows: 0,
        }
    }

    /// Adds one thing; answers whether more fits, of things and of rows.
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
    sweep: &mut Sweep<'_>,
) -> Result<(Vec<Over>, bool), StorageError> {
    let mut found = Collectable::new();
    for job in view.by_index::<JobsCollectable>(()) {
        let Some(job) = sweep.each().row(job)? else {
            continue;
        };
        let what = What::Job(job.namespace.clone(), job.id.clone(), job.modify_index);
        let over = Over::alone(what);
        if sweep.is_deferred(&over) {
            continue;
        }
        let look = || with_its_own(view, &job, over, cutoffs);
        let Some(over) = sweep.each().judge(&job.id, look)?.flatten() else {
            continue;
        };
        if !found.add(over, BATCH, BATCH * BATCHES / 4) {
            return Ok((found.list, true));
        }
    }
    Ok((found.list, false))
}

/// A job with its evaluations and allocations, if nothing of it is needed any more.
fn with_its_own(
    view: &View,
    job: &Job,
    mut over: Over,
    cutoffs: &Cutoffs,
) -> Result<Option<Over>, StorageError> {
    if !job_is_over(view, job, cutoffs)? {
        return Ok(None);
    }
    let key = (job.namespace.as_str(), job.id.as_str());
    for eval in view.by_index::<EvalsByJob>(key) {
        over.evals.push(eval?.id);
    }
    for row in view.by_index::<AllocsByJob>(key) {
        over.allocs.push(row?.alloc.id);
    }
    Ok(Some(over))
}

/// Evaluations that are over, with their allocations; and whether there may be more than these.
pub(super) fn evals(
    view: &View,
    cutoffs: &Cutoffs,
    sweep: &mut Sweep<'_>,
) -> Result<(Vec<Over>, bool), StorageError> {
    let mut found = Collectable::new();
    for eval in view.scan::<Evals>(Scan::all()) {
        let Some(eval) = sweep.each().row(eval)? else {
            continue;
        };
        let look = || eval_is_over(view, &eval, cutoffs);
        let Some(allocs) = sweep.each().judge(&eval.id, look)?.flatten() else {
            continue;
        };
        let over = Over {
            what: What::Eval,
            evals: vec![eval.id],
            allocs,
        };
        if sweep.is_deferred(&over) {
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
    sweep: &mut Sweep<'_>,
) -> Result<Vec<Over>, StorageError> {
    let mut found = Vec::new();
    for deployment in view.scan::<Deployments>(Scan::all()) {
        let Some(deployment) = sweep.each().row(deployment)? else {
            continue;
        };
        let look = || deployment_is_over(view, &deployment, cutoffs);
        if sweep.each().judge(&deployment.id, look)? == Some(true) {
            found.push(Over::alone(What::Deployment(deployment.id)));
        }
    }
    found.retain(|over| !sweep.is_deferred(over));
    Ok(found)
}

/// Nodes that are long gone.
pub(super) fn nodes(
    view: &View,
    cutoffs: &Cutoffs,
    sweep: &mut Sweep<'_>,
) -> Result<Vec<Over>, StorageError> {
    let mut found = Vec::new();
    for row in view.scan::<Nodes>(Scan::all()) {
        let node = row.and_then(|row| nodes::get(view, &row.id));
        let Some(node) = sweep.each().row(node)?.flatten() else {
            continue;
        };
        let look = || node_is_over(view, &node, cutoffs);
        if sweep.each().judge(&node.id, look)? == Some(true) {
            found.push(Over::alone(What::Node(node.id)));
        }
    }
    found.retain(|over| !sweep.is_deferred(over));
    Ok(found)
}
