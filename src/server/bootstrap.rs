//! What a new leader says first: that it leads, and, in a new cluster, what a cluster begins with.

use drover_events::Event;
use drover_events::cluster::{
    ClusterIdSet, LeaderElected, SchedulerConfigured, VersionBarrierRaised,
};
use drover_events::eval::EvalsUpserted;
use drover_events::model::status::{self, trigger};
use drover_events::model::{Evaluation, Job, SchedulerConfiguration};
use drover_projections::tables::allocs::AllocsByJob;
use drover_projections::tables::cluster_meta::{ClusterMeta, ClusterMetaTable};
use drover_projections::tables::evals::EvalsByJob;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::scheduler_config::SchedulerConfigTable;
use drover_projections::{ReadRows, Scan, StorageError, View};

use super::Myself;
use crate::error::chain;

/// The first events of a leader, in order. They follow from the view and from the leadership, but
/// for new ids and the time.
///
/// In an epoch that a restore opened, every job that is not over is evaluated once: what ran when
/// the backup was made need not be what runs now. That comes before `LeaderElected`, so that in an
/// epoch that had no leader yet it is still to do; a job that has an evaluation of the epoch is not
/// looked at again. A lone server raises the feature level to its own; a cluster waits until every
/// member reports it.
///
/// # Errors
/// Those of reading: what cannot be read is not taken for a new cluster.
pub(super) fn first_events(
    view: &View,
    me: &Myself,
    configured: &SchedulerConfiguration,
    lone: bool,
    epoch_first: u64,
) -> Result<Vec<Event>, StorageError> {
    let meta: ClusterMeta = view.get::<ClusterMetaTable>(())?.unwrap_or_default();
    let level = drover_migrations::FEATURE_LEVEL;
    let mut events: Vec<Event> = Vec::with_capacity(4);
    if lone && meta.feature_level < level {
        let servers = [(me.id.clone(), level)].into();
        events.push(VersionBarrierRaised { level, servers }.into());
    }
    if epoch_first > 0 && meta.leader_since <= epoch_first {
        events.extend(evals_of_all(view, epoch_first));
    }
    events.push(
        LeaderElected {
            server_id: me.id.clone(),
            name: me.name.clone(),
            addr: me.rpc_addr.clone(),
            level,
            version: crate::base::version::VERSION.to_owned(),
        }
        .into(),
    );
    if meta.cluster_id.is_empty() {
        let cluster_id = uuid::Uuid::new_v4().to_string();
        let create_time = crate::base::clock::unix_nanos();
        events.push(
            ClusterIdSet {
                cluster_id,
                create_time,
            }
            .into(),
        );
    }
    if view.get::<SchedulerConfigTable>(())?.is_none() {
        events.push(
            SchedulerConfigured {
                config: configured.clone(),
                cas: false,
            }
            .into(),
        );
    }
    Ok(events)
}

/// What the evaluations of a restored state say.
const RESTORED: &str = "the cluster was restored from a backup";
/// Evaluations of one event at most, and the bytes of their texts; what is larger all the same is
/// cut where it is proposed.
const EVALS: usize = 1_000;
const EVAL_BYTES: usize = 1 << 20;

/// An evaluation of every job that has allocations of its own, may need some, and was not looked
/// at in this epoch yet.
fn evals_of_all(view: &View, epoch_first: u64) -> Vec<Event> {
    let now = crate::base::clock::unix_nanos();
    let mut events = Vec::new();
    let (mut evals, mut bytes) = (Vec::new(), 0);
    for job in view.scan::<Jobs>(Scan::all()) {
        let due = job.and_then(|job| Ok(is_due(view, &job, epoch_first)?.then_some(job)));
        let job = match due {
            Ok(Some(job)) => job,
            Ok(None) => continue,
            Err(error) => {
                let error = chain(&error);
                tracing::error!(error, "a restored job cannot be read");
                continue;
            }
        };
        if evals.len() >= EVALS || bytes >= EVAL_BYTES {
            events.push(upserted(std::mem::take(&mut evals)));
            bytes = 0;
        }
        let id = uuid::Uuid::new_v4().to_string();
        let mut eval = Evaluation::for_job(id, &job, trigger::JOB_REGISTER);
        eval.job_modify_index = job.modify_index;
        eval.status_description = RESTORED.to_owned();
        (eval.create_time, eval.modify_time) = (now, now);
        bytes += eval.namespace.len() + eval.job_id.len();
        evals.push(eval);
    }
    if !evals.is_empty() {
        events.push(upserted(evals));
    }
    events
}

fn upserted(evals: Vec<Evaluation>) -> Event {
    EvalsUpserted {
        evals,
        decision: None,
    }
    .into()
}

/// Whether a restored job is to be looked at. One that is over stays so, whether or not there is
/// still something that says it ran: evaluated, a batch job without allocations would run again.
fn is_due(view: &View, job: &Job, epoch_first: u64) -> Result<bool, StorageError> {
    if job.has_children() {
        return Ok(false);
    }
    let key = (job.namespace.as_str(), job.id.as_str());
    if job.status == status::job::DEAD {
        let mut allocs =
            view.rows_by::<AllocsByJob>(Scan::with_key_prefix::<(String, String)>(key));
        let running = allocs.find_map(|alloc| match alloc {
            Ok(alloc) if alloc.client_terminal() => None,
            other => Some(other.map(|_| ())),
        });
        if running.transpose()?.is_none() {
            return Ok(false);
        }
    }
    for eval in view.rows_by::<EvalsByJob>(Scan::with_key_prefix::<(String, String)>(key)) {
        if eval?.create_index > epoch_first {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
#[path = "bootstrap_test.rs"]
mod tests;
