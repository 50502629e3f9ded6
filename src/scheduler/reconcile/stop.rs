//! Which allocations are too many, and how they are stopped.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::TaskGroup;
use drover_events::model::status::{client, trigger};

use super::classify::{Classes, client_stops_at, is_server_terminal, is_terminal};
use super::names::NameIndex;
use super::{Alloc, Reconciler};
use crate::outcome::Stop;

pub(super) const NOT_NEEDED: &str = "alloc not needed due to job update";
pub(super) const LOST: &str = "alloc is lost since its node is down";
pub(super) const MIGRATING: &str = "alloc is being migrated";
pub(super) const RESCHEDULED: &str = "alloc was rescheduled because it failed";

/// What a group has when it is decided which allocations are too many.
pub(super) struct Excess<'a> {
    pub group: &'a TaskGroup,
    pub names: &'a mut NameIndex,
    pub canaries: &'a [Alloc],
    pub canarying: bool,
}

impl Reconciler<'_> {
    /// Stops one allocation.
    pub(super) fn stop_one(&mut self, alloc: Alloc, status: &'static str, why: &'static str) {
        self.result.stop.push(Stop {
            alloc,
            description: why,
            client_status: status,
            followup_eval_id: String::new(),
            alloc_states: None,
            reschedule_tracker: None,
        });
    }

    /// Stops everything the server still wants of a group; answers how many that are.
    pub(super) fn stop_all(&mut self, allocs: Vec<Alloc>) -> u64 {
        let wanted: Vec<Alloc> = allocs
            .into_iter()
            .filter(|a| !is_server_terminal(a))
            .collect();
        let count = wanted.len() as u64;
        let Classes {
            untainted,
            migrate,
            lost,
            disconnecting,
            reconnecting,
            expired,
        } = self.classify(wanted);
        for alloc in untainted
            .into_iter()
            .chain(migrate)
            .chain(disconnecting)
            .chain(reconnecting)
        {
            self.stop_one(alloc, "", NOT_NEEDED);
        }
        for alloc in lost.into_iter().chain(expired) {
            self.stop_lost(alloc, String::new());
        }
        count
    }

    /// Stops an allocation that is lost, with the note of it in its history.
    pub(super) fn stop_lost(&mut self, alloc: Alloc, followup_eval_id: String) {
        let mut states = alloc.alloc_states.to_vec();
        states.push(drover_events::model::AllocState {
            field: 0,
            value: client::LOST.to_owned(),
            time: drover_events::gojson::Time(self.now),
        });
        self.result.stop.push(Stop {
            alloc,
            description: LOST,
            client_status: client::LOST,
            followup_eval_id,
            alloc_states: Some(states),
            reschedule_tracker: None,
        });
    }

    /// Lost allocations whose clients stop them by themselves: their replacement waits. Answers
    /// the follow-up of each that waits.
    pub(super) fn delay_lost(&mut self, lost: &[Alloc]) -> BTreeMap<String, String> {
        let mut waiting: Vec<(Alloc, i64)> = lost
            .iter()
            .filter(|alloc| alloc.client_status != client::LOST)
            .filter_map(|alloc| Some((alloc.clone(), client_stops_at(alloc, self.now)?)))
            .filter(|(_, time)| *time > self.now)
            .collect();
        waiting.sort_by(|a, b| (a.1, &a.0.id).cmp(&(b.1, &b.0.id)));
        let reason = (trigger::ALLOC_FAILURE, "created for delayed rescheduling");
        let batched = self.batched(waiting, reason);
        batched
            .into_iter()
            .map(|(alloc, eval)| (alloc.id.clone(), eval))
            .collect()
    }

    /// Stops what is lost and what is more than the group's count; answers how many, and what is
    /// left of the untainted and the migrating.
    pub(super) fn stop_excess(
        &mut self,
        excess: Excess<'_>,
        lost: &[Alloc],
        waiting: &BTreeMap<String, String>,
        untainted: Vec<Alloc>,
        migrate: Vec<Alloc>,
    ) -> (u64, Vec<Alloc>, Vec<Alloc>) {
        for alloc in lost {
            let follow_up = waiting.get(&alloc.id).cloned().unwrap_or_default();
            self.stop_lost(Alloc::clone(alloc), follow_up);
        }
        let doomed = choose(excess, &untainted, &migrate);
        let count = (lost.len() + doomed.len()) as u64;
        let mut keep = |list: Vec<Alloc>| -> Vec<Alloc> {
            let (gone, kept): (Vec<Alloc>, Vec<Alloc>) = list
                .into_iter()
                .partition(|alloc| doomed.contains(&alloc.id));
            for alloc in gone {
                self.stop_one(alloc, "", NOT_NEEDED);
            }
            kept
        };
        (count, keep(untainted), keep(migrate))
    }
}

/// The ids of those that are too many.
fn choose(excess: Excess<'_>, untainted: &[Alloc], migrate: &[Alloc]) -> BTreeSet<String> {
    let Excess {
        group,
        names,
        canaries,
        canarying,
    } = excess;
    let canary_ids: BTreeSet<&str> = canaries.iter().map(|c| c.id.as_str()).collect();
    let known: Vec<&Alloc> = untainted
        .iter()
        .filter(|a| a.client_status != client::UNKNOWN)
        .filter(|a| !(canarying && canary_ids.contains(a.id.as_str())))
        .collect();
    let count = usize::try_from(group.count).unwrap_or(0);
    let mut remove = (known.len() + migrate.len()).saturating_sub(count);
    let mut doomed = BTreeSet::new();
    let live: Vec<&Alloc> = known.into_iter().filter(|a| !is_terminal(a)).collect();
    let mut doom = |alloc: &Alloc, remove: &mut usize| {
        if *remove > 0 && doomed.insert(alloc.id.clone()) {
            *remove -= 1;
        }
    };
    if !canarying && !canaries.is_empty() {
        let canary_names: BTreeSet<&str> = canaries.iter().map(|c| c.name.as_str()).collect();
        for alloc in &live {
            let is_canary = canary_ids.contains(alloc.id.as_str());
            if !is_canary && canary_names.contains(alloc.name.as_str()) {
                doom(alloc, &mut remove);
            }
        }
    }
    if remove > 0 && !migrate.is_empty() {
        let job = migrate[0].job_id.as_str();
        let mut index = NameIndex::new(
            job,
            &group.name,
            count,
            migrate.iter().map(|a| a.name.as_str()),
        );
        let highest = index.take_highest(remove);
        for alloc in migrate.iter().filter(|a| highest.contains(&a.name)) {
            doom(alloc, &mut remove);
        }
    }
    if remove > 0 {
        let highest = names.take_highest(remove);
        for alloc in live.iter().rev().filter(|a| highest.contains(&a.name)) {
            doom(alloc, &mut remove);
        }
    }
    for alloc in live.iter().rev() {
        doom(alloc, &mut remove);
    }
    doomed
}
