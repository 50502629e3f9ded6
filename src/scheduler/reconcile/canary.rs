//! Canaries: a few allocations that try a new version out before the rest follows.

use std::collections::BTreeSet;

use drover_events::model::status::deployment;
use drover_events::model::{Deployment, DeploymentState, TaskGroup};

use super::classify::Classes;
use super::names::NameIndex;
use super::stop::{MIGRATING, NOT_NEEDED};
use super::{Alloc, Place, Reconciler};

fn placed(deployment: &Deployment, promoted_too: bool) -> BTreeSet<String> {
    let states = deployment
        .task_groups
        .values()
        .filter(|s| promoted_too || !s.promoted);
    states
        .flat_map(|state| state.placed_canaries.iter().cloned())
        .collect()
}

impl Reconciler<'_> {
    /// Stops canaries that are no longer waited for (of an older or a failed deployment); answers
    /// the canaries of the current deployment, and all allocations that are left.
    pub(super) fn reconcile_canaries(
        &mut self,
        group: &str,
        allocs: Vec<Alloc>,
    ) -> (Vec<Alloc>, Vec<Alloc>) {
        let mut unwanted = BTreeSet::new();
        if let Some(old) = &self.old_deployment {
            unwanted.extend(placed(old, false));
        }
        if let Some(failed) = self
            .deployment
            .as_ref()
            .filter(|d| d.status == deployment::FAILED)
        {
            unwanted.extend(placed(failed, false));
        }
        let (gone, mut allocs): (Vec<Alloc>, Vec<Alloc>) =
            allocs.into_iter().partition(|a| unwanted.contains(&a.id));
        let gone: Vec<Alloc> = gone
            .into_iter()
            .filter(|a| !super::classify::is_server_terminal(a))
            .collect();
        self.result
            .desired
            .entry(group.to_owned())
            .or_default()
            .stop += gone.len() as u64;
        for alloc in gone {
            self.stop_one(alloc, "", NOT_NEEDED);
        }
        let mut canaries = Vec::new();
        if let Some(deployment) = &self.deployment {
            let ids = placed(deployment, true);
            let (current, rest): (Vec<Alloc>, Vec<Alloc>) =
                allocs.into_iter().partition(|a| ids.contains(&a.id));
            allocs = rest;
            let Classes {
                untainted,
                migrate,
                lost,
                disconnecting,
                reconnecting,
                expired,
            } = self.classify(current);
            for alloc in migrate {
                self.stop_one(alloc, "", MIGRATING);
            }
            for alloc in lost.into_iter().chain(expired) {
                self.stop_lost(alloc, String::new());
            }
            allocs.extend(untainted.iter().cloned());
            // One that was stopped tries nothing out any more.
            canaries = untainted;
            canaries.retain(|canary| !super::classify::is_server_terminal(canary));
            allocs.extend(disconnecting);
            allocs.extend(reconnecting);
        }
        (canaries, allocs)
    }

    /// Places the canaries that are still missing.
    pub(super) fn place_canaries(
        &mut self,
        group: &TaskGroup,
        state: &mut DeploymentState,
        destructive: &[Alloc],
        canaries: &[Alloc],
        names: &mut NameIndex,
    ) {
        let wanted = group.update.as_ref().map_or(0, |update| update.canary);
        state.desired_canaries = wanted;
        if self.paused || self.failed {
            return;
        }
        let missing = usize::try_from(wanted)
            .unwrap_or(0)
            .saturating_sub(canaries.len());
        self.result
            .desired
            .entry(group.name.clone())
            .or_default()
            .canary += missing as u64;
        let existing: BTreeSet<&str> = canaries.iter().map(|c| c.name.as_str()).collect();
        let replaced: Vec<&str> = destructive.iter().map(|a| a.name.as_str()).collect();
        for name in names.next_canaries(missing, &existing, &replaced) {
            self.result.place.push(Place {
                name,
                group: group.name.clone(),
                canary: true,
                ..Place::default()
            });
        }
    }
}

/// Whether canaries have to be placed before anything is replaced: the first ones, and those that
/// take the place of others that were drained or lost while they were out.
pub(super) fn needed(
    group: &TaskGroup,
    state: &DeploymentState,
    destructive: &[Alloc],
    canaries: &[Alloc],
) -> bool {
    let wanted = group.update.as_ref().map_or(0, |update| update.canary);
    let enough = canaries.len() >= usize::try_from(wanted).unwrap_or(0);
    let names: BTreeSet<&str> = canaries.iter().map(|c| c.name.as_str()).collect();
    let replaced_by_name = destructive
        .iter()
        .filter(|a| names.contains(a.name.as_str()))
        .count();
    let out = state.desired_canaries > 0;
    wanted > 0 && !state.promoted && !enough && (out || destructive.len() > replaced_by_name)
}
