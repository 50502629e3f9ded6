//! Reports of allocations to the servers: which updates go out on which tick (HB-01 to HB-06).
//!
//! A pure structure; its ticks come from [`crate::agent`], which also sends. Runners put their
//! latest state in and continue; a slow call delays none of them.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::Allocation;
use drover_events::model::status::{client, task};

/// How often the buffer is looked at, milliseconds (HB-01).
pub const TICK_MS: u64 = 200;
/// Without anything urgent, a batch goes out on every such tick (HB-03): once a second.
pub const SLOW_TICKS: u32 = 5;

/// The description of an allocation that was to end and is not here.
const NOT_HERE: &str = "The allocation is not on this node";

/// How soon an update has to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The servers know it.
    None,
    /// With the next batch.
    Typical,
    /// On the next tick.
    Urgent,
}

/// Compares an update with what the servers last acknowledged (HB-02).
pub fn priority(acked: Option<&Allocation>, update: &Allocation) -> Priority {
    let known = acked.map_or(client::PENDING, |a| a.client_status.as_str());
    if known != update.client_status {
        return Priority::Urgent;
    }
    match acked {
        None => Priority::Typical,
        // Health decides a deployment's pace (DEP-08).
        Some(a) if a.health() != update.health() => Priority::Urgent,
        Some(a) if same(a, update) => Priority::None,
        Some(_) => Priority::Typical,
    }
}

fn same(a: &Allocation, b: &Allocation) -> bool {
    a.client_description == b.client_description
        && a.task_states == b.task_states
        && a.deployment_status == b.deployment_status
        && a.network_status == b.network_status
}

/// The report of an allocation that is not here.
fn over(shown: &Allocation) -> Allocation {
    let mut task_states = shown.task_states.clone();
    for state in task_states.values_mut() {
        task::DEAD.clone_into(&mut state.state);
    }
    Allocation {
        id: shown.id.clone(),
        node_id: shown.node_id.clone(),
        client_status: client::COMPLETE.to_owned(),
        client_description: NOT_HERE.to_owned(),
        task_states,
        network_status: shown.network_status.clone(),
        ..Allocation::default()
    }
}

/// Updates that wait, latest per allocation.
#[derive(Debug, Default)]
pub struct UpdateBuffer {
    pending: BTreeMap<String, Allocation>,
    acked: BTreeMap<String, Allocation>,
    /// Allocations that are being removed: nothing is reported of them.
    leaving: BTreeSet<String>,
    ticks: u32,
}

impl UpdateBuffer {
    /// Takes an allocation's latest state; only what clients report is kept of it.
    pub fn put(&mut self, update: Allocation) {
        if !self.leaving.contains(&update.id) {
            self.pending.insert(update.id.clone(), update);
        }
    }

    /// The servers show an allocation that is not here, and not over, as they show it: what was
    /// last known of it here is reported to them, or that it is over.
    pub fn put_absent(&mut self, shown: &Allocation) {
        if self.pending.contains_key(&shown.id) {
            return;
        }
        let known = self.acked.remove(&shown.id);
        let last = known.filter(Allocation::client_terminal);
        self.put(last.unwrap_or_else(|| over(shown)));
    }

    /// The servers know this state: after a restart of the agent.
    #[cfg(test)]
    pub(super) fn acknowledge(&mut self, update: Allocation) {
        self.acked.insert(update.id.clone(), update);
    }

    /// An allocation is being removed: nothing of it is reported, until it has
    /// [`left`](Self::left).
    pub fn leave(&mut self, id: &str) {
        self.pending.remove(id);
        self.acked.remove(id);
        self.leaving.insert(id.to_owned());
    }

    /// It is gone.
    pub fn left(&mut self, id: &str) {
        self.leaving.remove(id);
    }

    /// Whether it is being removed.
    pub fn is_leaving(&self, id: &str) -> bool {
        self.leaving.contains(id)
    }

    /// Forgets what was reported of allocations that neither servers nor client know any more.
    pub fn forget_unless(&mut self, known: impl Fn(&str) -> bool) {
        self.acked.retain(|id, _| known(id));
    }

    /// Everything that servers know of is to be reported again (HB-10).
    pub fn report_all(&mut self) {
        for (id, update) in std::mem::take(&mut self.acked) {
            self.pending.entry(id).or_insert(update);
        }
    }

    /// So many ticks passed while nothing waited.
    pub fn idle(&mut self, ticks: u32) {
        self.ticks = self.ticks.saturating_add(ticks);
    }

    /// One tick: a batch that is to be sent now, with all that waits (HB-04).
    pub fn tick(&mut self) -> Option<Vec<Allocation>> {
        self.ticks = self.ticks.saturating_add(1);
        let acked = &self.acked;
        let mut top = Priority::None;
        self.pending.retain(|id, update| {
            let priority = priority(acked.get(id), update);
            top = top.max(priority);
            priority > Priority::None
        });
        let due = match top {
            Priority::None => false,
            Priority::Typical => self.ticks >= SLOW_TICKS,
            Priority::Urgent => true,
        };
        if !due {
            return None;
        }
        self.ticks = 0;
        Some(std::mem::take(&mut self.pending).into_values().collect())
    }

    /// The batch arrived.
    pub fn sent(&mut self, batch: Vec<Allocation>) {
        for update in batch {
            if !self.leaving.contains(&update.id) {
                self.acked.insert(update.id.clone(), update);
            }
        }
    }

    /// It did not: its updates wait again, but for those that have a newer one (HB-06).
    pub fn failed(&mut self, batch: Vec<Allocation>) {
        let leaving = &self.leaving;
        let here = batch.into_iter().filter(|u| !leaving.contains(&u.id));
        for update in here {
            self.pending.entry(update.id.clone()).or_insert(update);
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }
}

#[cfg(test)]
mod tests {
    use drover_events::model::{AllocDeploymentStatus, TaskState};

    use super::*;

    fn alloc(id: &str, status: &str, restarts: u64) -> Allocation {
        let state = TaskState {
            restarts,
            ..TaskState::default()
        };
        Allocation {
            id: id.into(),
            client_status: status.into(),
            task_states: [("web", state)].into(),
            ..Allocation::default()
        }
    }

    fn ids(batch: Option<Vec<Allocation>>) -> Vec<String> {
        batch
            .unwrap_or_default()
            .into_iter()
            .map(|a| a.id)
            .collect()
    }

    #[test]
    fn hb_02_priority_against_what_was_acknowledged() {
        let running = alloc("a", "running", 0);
        let mut healthy = running.clone();
        healthy.deployment_status = Some(AllocDeploymentStatus {
            healthy: Some(true),
            ..Default::default()
        });
        for (acked, update, expected) in [
            (None, alloc("a", "pending", 0), Priority::Typical),
            (None, running.clone(), Priority::Urgent),
            (Some(&running), running.clone(), Priority::None),
            (Some(&running), alloc("a", "running", 1), Priority::Typical),
            (Some(&running), healthy, Priority::Urgent),
            (Some(&running), alloc("a", "failed", 0), Priority::Urgent),
        ] {
            assert_eq!(priority(acked, &update), expected, "{acked:?} {update:?}");
        }
    }

    #[test]
    fn dep_08_health_is_told_with_the_next_tick() {
        let mut buffer = UpdateBuffer::default();
        let waits = alloc("a", "running", 0);
        buffer.acknowledge(waits.clone());
        for (healthy, canary) in [(true, false), (false, true)] {
            let mut reported = waits.clone();
            reported.deployment_status = Some(AllocDeploymentStatus {
                healthy: Some(healthy),
                canary,
                ..Default::default()
            });
            buffer.put(reported);
            let batch = buffer.tick().expect("with this tick, not once a second");
            buffer.sent(batch);
        }
    }

    #[test]
    fn hb_03_ticks_that_nobody_needed_count_for_what_comes_then() {
        let mut buffer = UpdateBuffer::default();
        buffer.put(alloc("a", "running", 0));
        let batch = buffer.tick().unwrap();
        buffer.sent(batch);
        buffer.idle(SLOW_TICKS - 2);
        buffer.put(alloc("a", "running", 1));
        assert_eq!(buffer.tick(), None, "one tick too early");
        assert_eq!(ids(buffer.tick()), ["a"]);
    }

    #[test]
    fn hb_01_hb_03_urgent_goes_with_the_next_tick_and_the_rest_once_a_second() {
        let mut buffer = UpdateBuffer::default();
        buffer.put(alloc("a", "running", 0));
        let batch = buffer.tick();
        assert_eq!(ids(batch.clone()), ["a"]);
        buffer.sent(batch.unwrap());
        let mut sent_on = Vec::new();
        for tick in 1..=20_u64 {
            buffer.put(alloc("a", "running", tick));
            if let Some(batch) = buffer.tick() {
                sent_on.push(tick * TICK_MS);
                buffer.sent(batch);
            }
        }
        assert_eq!(sent_on, [1000, 2000, 3000, 4000]);
        assert_eq!(buffer.tick(), None);
    }

    #[test]
    fn hb_04_a_batch_holds_all_that_waits() {
        let mut buffer = UpdateBuffer::default();
        buffer.acknowledge(alloc("slow", "running", 0));
        buffer.put(alloc("slow", "running", 1));
        buffer.put(alloc("fast", "failed", 0));
        assert_eq!(ids(buffer.tick()), ["fast", "slow"]);
    }

    #[test]
    fn hb_05_one_entry_per_allocation_while_a_call_is_slow() {
        let mut buffer = UpdateBuffer::default();
        buffer.put(alloc("a", "running", 0));
        let under_way = buffer.tick().unwrap();
        for n in 1..100 {
            buffer.put(alloc("a", "running", n));
        }
        assert_eq!(buffer.waiting(), 1);
        buffer.sent(under_way);
        for _ in 1..SLOW_TICKS {
            assert_eq!(buffer.tick(), None);
        }
        assert_eq!(buffer.tick().unwrap()[0].task_states["web"].restarts, 99);
    }

    #[test]
    fn hb_06_a_failed_batch_waits_again_behind_newer_updates() {
        let mut buffer = UpdateBuffer::default();
        buffer.put(alloc("a", "running", 0));
        buffer.put(alloc("b", "running", 0));
        let batch = buffer.tick().unwrap();
        buffer.put(alloc("a", "failed", 0));
        buffer.failed(batch);
        let batch = buffer.tick().unwrap();
        let reported: Vec<_> = batch
            .iter()
            .map(|a| (a.id.as_str(), a.client_status.as_str()))
            .collect();
        assert_eq!(reported, [("a", "failed"), ("b", "running")]);
    }

    #[test]
    fn hb_10_after_a_loss_of_contact_everything_is_told_again() {
        let mut buffer = UpdateBuffer::default();
        for id in ["a", "b"] {
            buffer.put(alloc(id, "running", 0));
        }
        let batch = buffer.tick().unwrap();
        buffer.sent(batch);
        buffer.report_all();
        assert_eq!(ids(buffer.tick()), ["a", "b"]);
    }
    #[test]
    fn what_the_servers_miss_of_an_allocation_that_is_not_here_is_told() {
        let mut buffer = UpdateBuffer::default();
        buffer.put_absent(&alloc("gone", "running", 1));
        let batch = buffer.tick().unwrap();
        assert_eq!(batch[0].client_status, "complete");
        assert_eq!(batch[0].client_description, NOT_HERE);
        assert_eq!(batch[0].task_states["web"].state, "dead");
        buffer.sent(batch);
        // What was reported of it last is reported again where the servers lost it.
        let mut failed = alloc("was", "failed", 2);
        failed.client_description = "Failed tasks".into();
        buffer.acknowledge(failed.clone());
        buffer.put_absent(&alloc("was", "running", 0));
        assert_eq!(buffer.tick().unwrap(), [failed]);
    }

    #[test]
    fn nothing_is_told_of_what_is_being_removed() {
        let mut buffer = UpdateBuffer::default();
        buffer.put(alloc("a", "running", 0));
        let under_way = buffer.tick().unwrap();
        buffer.put(alloc("a", "complete", 0));
        buffer.leave("a");
        buffer.put(alloc("a", "complete", 1));
        buffer.failed(under_way);
        assert!(buffer.is_leaving("a") && buffer.waiting() == 0);
        buffer.left("a");
        buffer.put(alloc("a", "pending", 0));
        assert_eq!(ids((0..SLOW_TICKS).find_map(|_| buffer.tick())), ["a"]);
        buffer.acknowledge(alloc("b", "complete", 0));
        buffer.forget_unless(|id| id == "a");
        buffer.report_all();
        assert_eq!(buffer.tick(), None, "the servers do not know it either");
    }
}
