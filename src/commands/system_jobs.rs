//! System jobs that a node's coming has missed.
//!
//! What makes a node usable brings an evaluation of every system job that belongs there, read from
//! a view of before. A job that was registered in between is in none of them, and its own
//! evaluation may have been worked on while the node was not usable yet: neither of the two sees
//! the other. The reactor that follows the state finds the pair by their indexes, on whichever
//! server leads by then.

use std::collections::BTreeSet;

use drover_events::EventKind;
use drover_events::eval::EvalsUpserted;
use drover_events::model::status::{eligibility, job_type, node as status, trigger};
use drover_events::model::{Job, Node};
use drover_projections::key::{Id, Key};
use drover_projections::tables::evals::EvalsByJob;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::{
    Change, Operation, ReadRows, Reply, Scan, StorageError, Table, View, query,
};

use super::support::{eval_of, runs_on, system_jobs};
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// The system jobs of a node are evaluated that were not evaluated since it became usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluateOverlooked {
    pub node_id: String,
    /// The index at which it became usable.
    pub since: u64,
}

impl Command for EvaluateOverlooked {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let node = nodes::get(view, &self.node_id)?.filter(is_usable);
        let Some(node) = node else {
            return Ok(Decision::Nothing(Reply::None));
        };
        // What cannot be read was noted by the look that found the node.
        let (mut evals, mut left_out) = (Vec::new(), Vec::new());
        for job in system_jobs(view)? {
            if is_overlooked(view, &job, (&node, self.since), &mut left_out)? {
                let id = stamp.uuid(evals.len() as u64);
                let mut made = eval_of(id, &job, trigger::NODE_UPDATE, stamp.now);
                made.node_id.clone_from(&node.id);
                made.node_modify_index = node.modify_index;
                evals.push(made);
            }
        }
        if evals.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        let decision = None;
        Ok(Decision::unguarded(EvalsUpserted { evals, decision }))
    }

    /// It follows from what made the node usable.
    fn cause(&self, _: &View) -> Option<u64> {
        Some(self.since)
    }
}

/// The nodes that one event made usable and whose evaluations leave a system job out. Jobs and
/// nodes of which a row cannot be read are not looked at: why goes to `left_out`.
///
/// # Errors
/// The database fails.
pub fn overlooked_by(
    view: &View,
    changes: &[Change],
    left_out: &mut Vec<StorageError>,
) -> Result<Vec<EvaluateOverlooked>, StorageError> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for change in changes.iter().filter(|change| makes_usable(change)) {
        let Ok(id) = Id::from_bytes(&change.key) else {
            continue;
        };
        let node = or_left_out(nodes::get(view, id.as_str()), left_out)?.flatten();
        let Some(node) = node.filter(is_usable) else {
            continue;
        };
        let again = change.kind == EventKind::NodeRegistered && node.create_index != change.index;
        if again || !seen.insert(node.id.clone()) {
            continue;
        }
        for job in system_jobs(view)? {
            if is_overlooked(view, &job, (&node, change.index), left_out)? {
                found.push(EvaluateOverlooked {
                    node_id: node.id,
                    since: change.index,
                });
                break;
            }
        }
    }
    Ok(found)
}

/// The same read from the state alone, for a reader that has not followed earlier events. A node
/// that runs a job was looked at; where no evaluation of a job is left, so was one that ever ran
/// it. What cannot be read is left out as in [`overlooked_by`].
///
/// # Errors
/// The database fails.
pub fn overlooked(
    view: &View,
    left_out: &mut Vec<StorageError>,
) -> Result<Vec<EvaluateOverlooked>, StorageError> {
    let mut jobs = Vec::new();
    for job in system_jobs(view)? {
        if let Some((looked, on)) = or_left_out(looked_and_on(view, &job), left_out)? {
            jobs.push((looked, on, job));
        }
    }
    let mut found = Vec::new();
    if jobs.is_empty() {
        return Ok(found);
    }
    for row in view.scan::<Nodes>(Scan::all()) {
        let node = row.and_then(|row| nodes::get(view, &row.id));
        let node = or_left_out(node, left_out)?.flatten();
        let Some(node) = node.filter(is_usable) else {
            continue;
        };
        let left_out = jobs.iter().any(|(looked, on, job)| {
            *looked < node.modify_index && !on.contains(&node.id) && runs_on(job, &node)
        });
        if left_out {
            found.push(EvaluateOverlooked {
                node_id: node.id,
                since: node.modify_index,
            });
        }
    }
    Ok(found)
}

/// When a job was evaluated last, and the nodes that it was looked at for.
fn looked_and_on(view: &View, job: &Job) -> Result<(u64, BTreeSet<String>), StorageError> {
    let forgotten = newest(view, job)?.is_none();
    let mut allocs = query::allocs_of_job(view, (job.namespace.as_str(), job.id.as_str()))?;
    // What ended well on a node is not wanted there again.
    let once = job.r#type == job_type::SYSBATCH;
    allocs.retain(|row| forgotten || once || !row.terminal_status());
    let on = allocs.iter().map(|row| row.node_id.clone()).collect();
    Ok((last_looked_at(view, job)?, on))
}

/// Whether a job that belongs on a node was not evaluated since the node became usable. Of a job
/// with an evaluation that cannot be read nothing can be written.
fn is_overlooked(
    view: &View,
    job: &Job,
    (node, since): (&Node, u64),
    left_out: &mut Vec<StorageError>,
) -> Result<bool, StorageError> {
    if !runs_on(job, node) {
        return Ok(false);
    }
    let looked = or_left_out(last_looked_at(view, job), left_out)?;
    Ok(looked.is_some_and(|looked| looked < since))
}

/// What was read; nothing where one row cannot be, and why is kept.
fn or_left_out<T>(
    read: Result<T, StorageError>,
    left_out: &mut Vec<StorageError>,
) -> Result<Option<T>, StorageError> {
    match read {
        Err(error) if error.is_single_entry() => {
            left_out.push(error);
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Whether an event of this kind can make a node usable.
fn makes_usable(change: &Change) -> bool {
    let kind = matches!(
        change.kind,
        EventKind::NodeRegistered
            | EventKind::NodeStatusUpdated
            | EventKind::NodeDrainUpdated
            | EventKind::NodeEligibilityUpdated
    );
    kind && change.operation == Operation::Put && matches!(change.table, Nodes::ID | NodeStates::ID)
}

fn is_usable(node: &Node) -> bool {
    node.status == status::READY
        && node.scheduling_eligibility == eligibility::ELIGIBLE
        && node.drain_strategy.is_none()
}

/// The index of the newest evaluation of a job.
fn newest(view: &View, job: &Job) -> Result<Option<u64>, StorageError> {
    let key = (job.namespace.as_str(), job.id.as_str());
    let newest = Scan::with_key_prefix::<(String, String)>(key).reverse();
    let newest = view.rows_by::<EvalsByJob>(newest).next().transpose()?;
    Ok(newest.map(|eval| eval.create_index))
}

/// When a job was evaluated last; its specification came with an evaluation.
fn last_looked_at(view: &View, job: &Job) -> Result<u64, StorageError> {
    Ok(newest(view, job)?.unwrap_or(0).max(job.job_modify_index))
}
