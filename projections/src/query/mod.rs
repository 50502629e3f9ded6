//! Queries over drover's tables: one implementation each.
//!
//! **What it is.** The queries that apply and the leader's decisions share, over whatever can be
//! read ([`ReadRows`]: EV-08, EV-09), and where a subscription finds its events (`positions`).
//!
//! **What it must not know.** No event and nothing that writes: apply calls it, never the other way
//! round. It imports the tables, and what a view and the past can read.
//!
//! **Invariants.** The same rows give the same answer, be they read from a view or from the
//! transaction of an event. Nothing is remembered from one question to the next.

pub mod acl;
pub mod csi;
pub mod host_volumes;
mod positions;

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_events::model::{Evaluation, Job, Node, ScalingPolicy, ServiceRegistration};

use crate::engine::error::StorageError;
use crate::engine::key::{AsKey, Id, Key};
use crate::engine::scan::{Prefix, Scan};
use crate::engine::txn::ReadRows;
use crate::read::view::View;
use crate::tables::acl_tokens::AclTokensByKey;
use crate::tables::alloc_job_counts::AllocJobCounts;
use crate::tables::allocs::{AllocRow, AllocsByJob, AllocsByNode, AllocsBySigningKey};
use crate::tables::csi_volumes::CsiVolumesByKey;
use crate::tables::deployments::DeploymentsByJob;
use crate::tables::evals::{Evals, EvalsByJob, EvalsOpenByJob};
use crate::tables::jobs::{Jobs, JobsByPool};
use crate::tables::node_states::NodeStates;
use crate::tables::nodes::{self, Nodes, NodesByPool};
use crate::tables::scaling_policies::ScalingPoliciesByTarget;
use crate::tables::services::{ServicesByAlloc, ServicesByNode};
use crate::tables::variables::{Variables, VariablesByKey};

/// Which job, borrowed: its namespace and its id.
pub type JobKeyRef<'a> = (&'a str, &'a str);

type QueryResult<T> = Result<T, StorageError>;

/// Whether an allocation of the job is not terminal.
pub fn has_live_alloc(from: &impl ReadRows, (namespace, id): JobKeyRef<'_>) -> QueryResult<bool> {
    let scan = Scan::with_key_prefix::<(String, String)>((namespace, id));
    for row in from.rows::<AllocJobCounts>(scan) {
        if row?.live > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether there is an allocation of the job.
pub fn has_alloc(from: &impl ReadRows, (namespace, id): JobKeyRef<'_>) -> QueryResult<bool> {
    let scan = Scan::with_key_prefix::<(String, String)>((namespace, id));
    from.any::<AllocJobCounts>(scan)
}

/// The allocations of a job.
pub fn allocs_of_job(from: &impl ReadRows, key: JobKeyRef<'_>) -> QueryResult<Vec<Arc<AllocRow>>> {
    from.rows_by::<AllocsByJob>(Scan::with_key_prefix::<(String, String)>(key))
        .collect()
}

/// The ids of the allocations of a job that are not terminal.
pub fn alloc_ids_of_job(from: &impl ReadRows, key: JobKeyRef<'_>) -> QueryResult<Vec<String>> {
    let rows = allocs_of_job(from, key)?;
    let live = rows.iter().filter(|row| !row.alloc.terminal_status());
    Ok(live.map(|row| row.alloc.id.clone()).collect())
}

/// The allocations on a node that are not terminal.
pub fn live_allocs_of_node(from: &impl ReadRows, node: &str) -> QueryResult<Vec<Arc<AllocRow>>> {
    from.rows_by::<AllocsByNode>(Scan::with_key_prefix::<(Id, bool)>((node, false)))
        .collect()
}

/// Whether a deployment of the job is still going on.
pub fn has_active_deployment(from: &impl ReadRows, key: JobKeyRef<'_>) -> QueryResult<bool> {
    let scan = Scan::with_key_prefix::<(String, String)>(key).reverse();
    for row in from.rows_by::<DeploymentsByJob>(scan) {
        if row?.active() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The newest deployment of the job that is still going on.
pub fn active_deployment(from: &impl ReadRows, key: JobKeyRef<'_>) -> QueryResult<Option<String>> {
    let scan = Scan::with_key_prefix::<(String, String)>(key).reverse();
    for row in from.rows_by::<DeploymentsByJob>(scan) {
        let row = row?;
        if row.active() {
            return Ok(Some(row.id.clone()));
        }
    }
    Ok(None)
}

/// Deployments of the job, at most so many, the oldest first.
pub fn deployments_of_job(
    from: &impl ReadRows,
    key: JobKeyRef<'_>,
    most: usize,
) -> QueryResult<Vec<String>> {
    let scan = Scan::with_key_prefix::<(String, String)>(key);
    let rows = from.rows_by::<DeploymentsByJob>(scan).take(most);
    rows.map(|row| Ok(row?.id.clone())).collect()
}

/// Whether an evaluation of the job is not terminal.
pub fn has_open_eval(from: &impl ReadRows, key: JobKeyRef<'_>) -> QueryResult<bool> {
    let scan = Scan::with_key_prefix::<(String, String)>(key);
    from.any_by::<EvalsOpenByJob>(scan)
}

/// Whether there is an evaluation of the job.
pub fn has_eval(from: &impl ReadRows, key: JobKeyRef<'_>) -> QueryResult<bool> {
    let scan = Scan::with_key_prefix::<(String, String)>(key);
    from.any_by::<EvalsByJob>(scan)
}

/// The evaluations of the job that wait for capacity.
pub fn blocked_evals(
    from: &impl ReadRows,
    key: JobKeyRef<'_>,
) -> QueryResult<Vec<Arc<Evaluation>>> {
    let scan = Scan::with_key_prefix::<(String, String)>(key);
    let mut blocked = Vec::new();
    for row in from.rows_by::<EvalsOpenByJob>(scan) {
        let row = row?;
        if row.should_block() {
            blocked.push(row);
        }
    }
    Ok(blocked)
}

/// The jobs with an open evaluation that cannot be read: for these [`blocked_evals`] fails, and
/// with it the applier of an event that ends one of their evaluations.
///
/// # Errors
/// Those of the database.
pub fn jobs_of_unreadable_evals(view: &View) -> QueryResult<BTreeSet<(String, String)>> {
    let mut jobs = BTreeSet::new();
    let mut entries = view.index_cursor::<EvalsOpenByJob>(&Scan::all());
    loop {
        let entry = match entries.advance() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(jobs),
            // An entry that is damaged itself names no job.
            Err(error) if error.is_single_entry() => continue,
            Err(error) => return Err(error),
        };
        let unreadable = match view.get_encoded::<Evals>(entry.primary) {
            Ok(eval) => eval.is_none(),
            Err(error) if error.is_single_entry() => true,
            Err(error) => return Err(error),
        };
        let mut group = entry.key;
        if unreadable && let Ok(job) = <(String, String)>::decode(&mut group) {
            jobs.insert(job);
        }
    }
}

/// The children of a periodic or parameterized job: their ids begin with its own.
pub fn children_of_job(
    from: &impl ReadRows,
    (namespace, id): JobKeyRef<'_>,
) -> QueryResult<Vec<Arc<Job>>> {
    let prefix = Prefix::new().str(namespace).str_prefix(&format!("{id}/"));
    let mut children = Vec::new();
    for job in from.rows::<Jobs>(Scan::prefix(prefix)) {
        let job = job?;
        if job.parent_id == id {
            children.push(job);
        }
    }
    Ok(children)
}

/// A page of jobs in the order of (namespace, id), and the token of the next one.
pub fn page_of_jobs(
    from: &impl ReadRows,
    token: &str,
    per_page: u32,
) -> QueryResult<(Vec<Arc<Job>>, String)> {
    let mut scan = Scan::all();
    if let Some((namespace, id)) = token.split_once('.') {
        scan = scan.from(Prefix::new().str(namespace).str(id).as_bytes());
    }
    let mut page = Vec::new();
    for job in from.rows::<Jobs>(scan) {
        let job = job?;
        if per_page != 0 && page.len() >= per_page as usize {
            return Ok((page, format!("{}.{}", job.namespace, job.id)));
        }
        page.push(job);
    }
    Ok((page, String::new()))
}

/// The scaling policies of a job's groups.
pub fn policies_of_job(
    from: &impl ReadRows,
    key: JobKeyRef<'_>,
) -> QueryResult<Vec<Arc<ScalingPolicy>>> {
    from.rows_by::<ScalingPoliciesByTarget>(Scan::with_key_prefix::<(String, String)>(key))
        .collect()
}

/// Whether nodes are in the pool.
pub fn pool_has_nodes(from: &impl ReadRows, pool: &str) -> QueryResult<bool> {
    let scan = Scan::with_key_prefix::<String>(pool);
    from.any_by::<NodesByPool>(scan)
}

/// Whether jobs that are not dead are in the pool.
pub fn pool_has_live_jobs(from: &impl ReadRows, pool: &str) -> QueryResult<bool> {
    for job in from.rows_by::<JobsByPool>(Scan::with_key_prefix::<String>(pool)) {
        if !job?.is_dead() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The id of a job of the namespace that is not dead.
pub fn live_job_of_namespace(from: &impl ReadRows, namespace: &str) -> QueryResult<Option<String>> {
    for job in from.rows::<Jobs>(Scan::prefix(Prefix::new().str(namespace))) {
        let job = job?;
        if !job.is_dead() {
            return Ok(Some(job.id.clone()));
        }
    }
    Ok(None)
}

/// Whether the namespace holds variables.
pub fn namespace_has_variables(from: &impl ReadRows, namespace: &str) -> QueryResult<bool> {
    let scan = Scan::prefix(Prefix::new().str(namespace));
    from.any::<Variables>(scan)
}

/// The registrations of services that run on a node.
pub fn services_of_node(
    from: &impl ReadRows,
    node: &str,
) -> QueryResult<Vec<Arc<ServiceRegistration>>> {
    from.rows_by::<ServicesByNode>(Scan::with_key_prefix::<Id>(node))
        .collect()
}

/// The services of an allocation.
pub fn services_of_alloc(
    from: &impl ReadRows,
    alloc: &str,
) -> QueryResult<Vec<Arc<ServiceRegistration>>> {
    from.rows_by::<ServicesByAlloc>(Scan::with_key_prefix::<Id>(alloc))
        .collect()
}

/// Whether something that lives was signed or encrypted with the key (KR-04).
pub fn root_key_in_use(from: &impl ReadRows, key: &str) -> QueryResult<bool> {
    let scan = Scan::with_key_prefix::<Id>(key);
    Ok(from.any_by::<AllocsBySigningKey>(scan.clone())?
        || from.any_by::<VariablesByKey>(scan.clone())?
        || from.any_by::<CsiVolumesByKey>(scan.clone())?
        || from.any_by::<AclTokensByKey>(scan)?)
}

/// The whole node as it was after the event at `index`.
///
/// # Errors
/// Those of the database.
pub fn node_at(view: &View, id: impl AsKey<Id> + Copy, index: u64) -> QueryResult<Option<Node>> {
    let Some(node) = view.get_at::<Nodes>(id, index)? else {
        return Ok(None);
    };
    let state = view.get_at::<NodeStates>(id, index)?.unwrap_or_default();
    Ok(Some(nodes::join(node, state)))
}
