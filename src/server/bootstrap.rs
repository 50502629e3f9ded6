//! What a new leader says first: that it leads, and, in a new cluster, what a cluster begins with.

use std::collections::BTreeSet;

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
    if epoch_first > 0 {
        events.extend(evals_of_restored(view, epoch_first));
    }
    events
}

/// What the evaluations of a restored state say.
const RESTORED: &str = "the cluster was restored from a backup";
/// Evaluations of one event at most; so many jobs are looked at together or not at all.
const EVALS: usize = 1_000;

/// The jobs that an epoch's leaders have made evaluations of so far; none where that is over: one
/// of them was worked on, which begins when all are made, or they are gone, which takes longer.
fn evaluated(view: &View, epoch_first: u64) -> Option<BTreeSet<(String, String)>> {
    let mut jobs = BTreeSet::new();
    for eval in view.scan::<Evals>(Scan::all()) {
        let Ok(eval) = eval.inspect_err(|error| {
            tracing::error!(%error, "a restored evaluation cannot be read");
        }) else {
            continue;
        };
        if eval.create_index <= epoch_first {
            continue;
        }
        if eval.modify_index > eval.create_index {
            return None;
        }
        jobs.insert((eval.namespace, eval.job_id));
    }
    let over = jobs.is_empty() && view.table_index_of(Evals::ID) > epoch_first;
    (!over).then_some(jobs)
}

/// An evaluation of every job that has allocations of its own and was not evaluated since the
/// restore: a leader that ended in between leaves some to the next one.
fn evals_of_restored(view: &View, epoch_first: u64) -> Vec<Event> {
    let Some(evaluated) = evaluated(view, epoch_first) else {
        return Vec::new();
    };
    let now = crate::clock::unix_nanos();
    let jobs = view.scan::<Jobs>(Scan::all()).filter_map(|job| {
        job.inspect_err(|error| tracing::error!(%error, "a restored job cannot be read"))
            .ok()
    });
    let evals: Vec<Evaluation> = jobs
        .filter(|job| !job.has_children())
        .filter(|job| !evaluated.contains(&(job.namespace.clone(), job.id.clone())))
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
