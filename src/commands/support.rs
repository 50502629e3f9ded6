//! What several commands need: evaluations of jobs, guards, words for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::gojson::Time;
use drover_events::model::names::too_long;
use drover_events::model::status::{DEFAULT_NODE_POOL, DEFAULT_PRIORITY, eval, job_type, trigger};
use drover_events::model::{Evaluation, Job, Node, NodeEvent};
use drover_projections::tables::alloc_jobs::AllocJobs;
use drover_projections::tables::allocs::AllocsByNode;
use drover_projections::tables::cluster_meta::ClusterMetaTable;
use drover_projections::tables::jobs::{Jobs, JobsByType};
use drover_projections::{Id, ReadRows, Scan, StorageError, View};

use super::Stamp;
use drover_acl::Glob;
use drover_error::{Code, Refusal};

/// Refuses names that are too long to keep others by.
pub(super) fn check_names<'n>(
    names: impl IntoIterator<Item = (&'static str, &'n str)>,
) -> Result<(), Refusal> {
    let mut texts = names
        .into_iter()
        .filter_map(|(what, name)| too_long(what, name));
    texts
        .next()
        .map_or(Ok(()), |text| Err(Refusal::bad_request(text)))
}

/// An evaluation of a job, pending, made now.
pub(super) fn eval_of(id: String, job: &Job, triggered_by: &str, now: i64) -> Evaluation {
    let mut made = Evaluation::for_job(id, job, triggered_by);
    made.job_modify_index = job.modify_index;
    made.create_time = now;
    made.modify_time = now;
    made
}

/// Whether every server supports a feature level: only then is what it brought written.
pub(super) fn all_servers_support(view: &View, level: u32) -> Result<bool, Refusal> {
    let known = view.get::<ClusterMetaTable>(())?;
    Ok(known.is_some_and(|known| known.feature_level >= level))
}

/// Refuses while a server may not support a feature level: it would not apply what that brought,
/// and the servers' states would differ.
pub(super) fn require_all_servers_support(
    view: &View,
    level: u32,
    what: &str,
) -> Result<(), Refusal> {
    match all_servers_support(view, level)? {
        true => Ok(()),
        false => Err(Refusal::new(
            Code::Unavailable,
            format!(
                "{what} cannot be changed until every server runs a version that knows them; \
                 try again"
            ),
        )),
    }
}

/// An evaluation of a job whose row is gone.
pub(super) fn eval_of_missing(
    id: String,
    (namespace, job_id): (&str, &str),
    triggered_by: &str,
    now: i64,
) -> Evaluation {
    Evaluation {
        id,
        namespace: namespace.to_owned(),
        priority: DEFAULT_PRIORITY,
        r#type: job_type::SERVICE.to_owned(),
        triggered_by: triggered_by.to_owned(),
        job_id: job_id.to_owned(),
        status: eval::PENDING.to_owned(),
        create_time: now,
        modify_time: now,
        ..Evaluation::default()
    }
}

/// Evaluations of every job that has something on the node, and of every system job that may run
/// there.
pub(super) fn evals_of_node(
    view: &View,
    node: &Node,
    stamp: &Stamp,
) -> Result<Vec<Evaluation>, Refusal> {
    let mut jobs: BTreeMap<(String, String), Job> = BTreeMap::new();
    for row in view.rows_by::<AllocsByNode>(Scan::with_key_prefix::<Id>(node.id.as_str())) {
        let row = row?;
        let key = (row.namespace.clone(), row.job_id.clone());
        if jobs.contains_key(&key) {
            continue;
        }
        let current = view.get::<Jobs>((key.0.as_str(), key.1.as_str()))?;
        let job = match current {
            Some(job) => Some(job),
            None => view.get::<AllocJobs>(&row.job_key())?,
        };
        if let Some(job) = job {
            jobs.insert(key, job);
        }
    }
    for job in system_jobs(view)? {
        if runs_on(&job, node) {
            let key = (job.namespace.clone(), job.id.clone());
            jobs.entry(key).or_insert_with(|| Job::clone(&job));
        }
    }
    let mut evals = Vec::with_capacity(jobs.len());
    for (n, job) in jobs.values().enumerate() {
        let mut made = eval_of(stamp.uuid(n as u64), job, trigger::NODE_UPDATE, stamp.now);
        made.node_id.clone_from(&node.id);
        made.node_modify_index = node.modify_index;
        evals.push(made);
    }
    Ok(evals)
}

/// The jobs that run on every node they may (system, sysbatch). One whose row is damaged is left
/// out, and reported: nothing of it could be placed, and no node and no other job waits for it.
///
/// # Errors
/// The database fails.
pub(super) fn system_jobs(view: &View) -> Result<Vec<Arc<Job>>, StorageError> {
    let mut jobs = Vec::new();
    for kind in [job_type::SYSTEM, job_type::SYSBATCH] {
        for job in view.rows_by::<JobsByType>(Scan::with_key_prefix::<String>(kind)) {
            match job {
                Ok(job) => jobs.push(job),
                Err(error) if error.is_single_entry() => {
                    tracing::warn!(%error, "a system job cannot be evaluated");
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(jobs)
}

/// Whether a job that runs on every node it may (system, sysbatch) is wanted on this one.
pub(super) fn runs_on(job: &Job, node: &Node) -> bool {
    !job.stop && !job.has_children() && may_run(job, node)
}

fn may_run(job: &Job, node: &Node) -> bool {
    let pool = if job.node_pool.is_empty() {
        DEFAULT_NODE_POOL
    } else {
        &job.node_pool
    };
    let centre = |pattern: &String| Glob::new(pattern).matches(&node.datacenter);
    node.in_pool(pool) && (job.datacenters.is_empty() || job.datacenters.iter().any(centre))
}

/// An event of a node, stamped by the leader.
pub(super) fn node_event(subsystem: &str, message: &str, now: i64) -> NodeEvent {
    NodeEvent {
        message: message.to_owned(),
        subsystem: subsystem.to_owned(),
        timestamp: Time(now),
        ..NodeEvent::default()
    }
}

/// Whether a name is 1 to 128 letters, digits, dashes and what else is allowed.
pub(super) fn is_name(name: &str, also: &[char]) -> bool {
    (1..=128).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || also.contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_datacenters() {
        for (pattern, text, matches) in [
            ("*", "dc1", true),
            ("dc*", "dc1", true),
            ("dc*", "eu-dc1", false),
            ("*-west-*", "us-west-2", true),
            ("dc1", "dc1", true),
            ("dc1", "dc10", false),
            ("", "", true),
            ("é*", "école", true),
        ] {
            let job = Job {
                datacenters: vec![pattern.to_owned()].into(),
                ..Job::default()
            };
            let node = Node {
                datacenter: text.to_owned(),
                node_pool: DEFAULT_NODE_POOL.to_owned(),
                ..Node::default()
            };
            assert_eq!(may_run(&job, &node), matches, "{pattern} {text}");
        }
    }
}
