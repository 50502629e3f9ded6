//! What a new leader says first: that it leads, and, in a new cluster, what a cluster begins with.

use drover_events::Event;
use drover_events::cluster::{
    ClusterIdSet, LeaderElected, SchedulerConfigured, VersionBarrierRaised,
};
use drover_events::eval::EvalsUpserted;
use drover_events::model::status::trigger;
use drover_events::model::{Evaluation, SchedulerConfiguration};
use drover_projections::tables::cluster_meta::{ClusterMeta, ClusterMetas};
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::scheduler_config::SchedulerConfig;
use drover_projections::{Scan, Table as _, View};

use super::Myself;

/// The first events of a leader, in order. They depend on the view alone, and on who leads.
///
/// In an epoch that a restore opened, every job is evaluated once: what ran when the backup was
/// made need not be what runs now.  A lone server raises the feature level to its own; a cluster
/// waits until every member reports it.
pub(super) fn first_events(
    view: &View,
    me: &Myself,
    configured: &SchedulerConfiguration,
    lone: bool,
    epoch_first: u64,
) -> Vec<Event> {
    let meta: ClusterMeta = view
        .get::<ClusterMetas>(())
        .ok()
        .flatten()
        .unwrap_or_default();
    let level = drover_migrations::FEATURE_LEVEL;
    let mut events: Vec<Event> = Vec::with_capacity(4);
    if lone && meta.feature_level < level {
        let servers = [(me.id.clone(), level)].into();
        events.push(VersionBarrierRaised { level, servers }.into());
    }
    events.push(
        LeaderElected {
            server_id: me.id.clone(),
            name: me.name.clone(),
            addr: me.rpc_addr.clone(),
            level,
            version: super::VERSION.to_owned(),
        }
        .into(),
    );
    if meta.cluster_id.is_empty() {
        let cluster_id = uuid::Uuid::new_v4().to_string();
        let create_time = crate::clock::unix_nanos();
        events.push(
            ClusterIdSet {
                cluster_id,
                create_time,
            }
            .into(),
        );
    }
    if matches!(view.get::<SchedulerConfig>(()), Ok(None)) {
        events.push(
            SchedulerConfigured {
                config: configured.clone(),
                cas: false,
            }
            .into(),
        );
    }
    if epoch_first > 0 && view.table_index_of(Evals::ID) <= epoch_first {
        events.extend(evals_of_all(view));
    }
    events
}

/// What the evaluations of a restored state say.
const RESTORED: &str = "the cluster was restored from a backup";
/// Evaluations of one event at most; so many jobs are looked at together or not at all.
const EVALS: usize = 1_000;

/// An evaluation of every job that has allocations of its own.
fn evals_of_all(view: &View) -> Vec<Event> {
    let now = crate::clock::unix_nanos();
    let jobs = view.scan::<Jobs>(Scan::all()).filter_map(|job| {
        job.inspect_err(|error| tracing::error!(%error, "a restored job cannot be read"))
            .ok()
    });
    let evals: Vec<Evaluation> = jobs
        .filter(|job| !job.has_children())
        .map(|job| {
            let id = uuid::Uuid::new_v4().to_string();
            let mut eval = Evaluation::for_job(id, &job, trigger::JOB_REGISTER);
            eval.job_modify_index = job.modify_index;
            eval.status_description = RESTORED.to_owned();
            (eval.create_time, eval.modify_time) = (now, now);
            eval
        })
        .collect();
    let events = evals.chunks(EVALS).map(|evals| EvalsUpserted {
        evals: evals.to_vec(),
        decision: None,
    });
    events.map(Event::from).collect()
}

#[cfg(test)]
#[path = "bootstrap_test.rs"]
mod tests;
