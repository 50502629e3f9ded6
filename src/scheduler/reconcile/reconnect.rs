//! Allocations that come back from being out of contact: one of each name continues (SCH-03,
//! SCH-07, SCH-20).

use std::collections::BTreeSet;

use drover_events::gojson::Time;
use drover_events::model::status::{client, desired};
use drover_events::model::{AllocState, Allocation};

use super::classify::{is_terminal, own_group};
use super::{Alloc, Reconciler};

/// Why the loser of a reconnect is stopped.
const RECONNECTED: &str = "alloc not needed due to disconnected client reconnect";

impl Reconciler<'_> {
    /// Reconciles the allocations of a group that came back; answers those that continue, and the
    /// ids of those, among all of the group, that are stopped.
    pub(super) fn reconcile_reconnecting(
        &mut self,
        reconnecting: Vec<Alloc>,
        all: &[Alloc],
    ) -> (Vec<Alloc>, BTreeSet<String>) {
        let mut stopped: BTreeSet<String> = BTreeSet::new();
        let mut keep: Vec<Alloc> = Vec::new();
        for alloc in reconnecting {
            if !self.may_go_on(&alloc) {
                stopped.insert(alloc.id.clone());
                continue;
            }
            let rivals: Vec<&Alloc> = all
                .iter()
                .filter(|other| is_replacement(&alloc, other) && !is_terminal(other))
                .collect();
            let loses = rivals.iter().any(|rival| !original_wins(&alloc, rival));
            if loses {
                stopped.insert(alloc.id.clone());
            } else {
                stopped.extend(rivals.iter().map(|rival| rival.id.clone()));
                keep.push(alloc);
            }
        }
        for alloc in all
            .iter()
            .filter(|a| stopped.contains(&a.id) && !is_server_stopped(a))
        {
            self.stop_one(Alloc::clone(alloc), "", RECONNECTED);
        }
        (keep, stopped)
    }

    fn may_go_on(&self, alloc: &Allocation) -> bool {
        let same_version = match (&self.job, &alloc.job) {
            (Some(job), Some(own)) => {
                own.version == job.version && own.create_index == job.create_index
            }
            _ => false,
        };
        alloc.client_status != client::FAILED
            && alloc.desired_status == desired::RUN
            && alloc.desired_transition.migrate != Some(true)
            && alloc.desired_transition.reschedule != Some(true)
            && alloc.desired_transition.force_reschedule != Some(true)
            && same_version
    }

    /// Notes on the continuing allocations that their return is dealt with (SCH-04).
    pub(super) fn note_reconnected(&mut self, group: &str, keep: &[Alloc]) {
        let desired = self.result.desired.entry(group.to_owned()).or_default();
        desired.reconnect = keep.len() as u64;
        for alloc in keep {
            let mut updated = Allocation::clone(alloc);
            let status = alloc.client_status.clone();
            updated.alloc_states.push(AllocState {
                field: 0,
                value: status,
                time: Time(self.now),
            });
            self.result.attributes.push((Alloc::clone(alloc), updated));
        }
    }
}

fn is_server_stopped(alloc: &Allocation) -> bool {
    alloc.server_terminal()
}

fn is_replacement(original: &Allocation, other: &Allocation) -> bool {
    other.id != original.id
        && other.name == original.name
        && !super::classify::needs_reconnect(other)
}

/// Which of an original and its replacement continues.
fn original_wins(original: &Allocation, replacement: &Allocation) -> bool {
    let version = |a: &Allocation| a.job.as_ref().map_or(0, |job| job.version);
    if version(replacement) > version(original) {
        return false;
    }
    let strategy = own_group(original)
        .and_then(|g| g.disconnect.as_ref())
        .map_or("best_score", |d| d.reconcile.as_str());
    match strategy {
        "keep_original" => true,
        "keep_replacement" => false,
        "longest_running" => runs_since(original) <= runs_since(replacement),
        _ => {
            if replacement.client_status != client::RUNNING {
                return true;
            }
            score(original) >= score(replacement)
        }
    }
}

/// When the leader task, or the oldest main task, started; the end of time if none did.
fn runs_since(alloc: &Allocation) -> i64 {
    let Some(group) = own_group(alloc) else {
        return i64::MAX;
    };
    let leader = group.tasks.iter().find(|task| task.leader);
    let started = |name: &str| {
        let state = alloc.task_states.get(name)?;
        Some(state.started_at.0).filter(|time| *time != 0)
    };
    if let Some(task) = leader {
        return started(&task.name).unwrap_or(i64::MAX);
    }
    let main = group.tasks.iter().filter(|task| task.lifecycle.is_none());
    main.filter_map(|task| started(&task.name))
        .min()
        .unwrap_or(i64::MAX)
}

fn score(alloc: &Allocation) -> f64 {
    let metrics = alloc.metrics.as_ref();
    metrics
        .and_then(|m| m.score_meta_data.first())
        .map_or(0.0, |best| best.norm_score)
}
