//! Blocked evaluations: what found no place, until something changes that may give it one.
//!
//! One for each job. It waits for classes of nodes that could run it, or for any node where its
//! constraints look at more than the class. It is a cache and can be thrown away.
//!
//! Invariant: nothing is missed between a scheduler's snapshot and its evaluation's arrival here:
//! the index of the last change of each class is kept and compared, and whatever was decided before
//! the tracker began to follow is tried once more. So it is with a new leader, and after a pause.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::status::trigger;
use drover_events::model::{Evaluation, JobKey};

use super::broker::SHOWN;
use crate::scheduler::feasible::{WaitsFor, waits_for};
use crate::scheduling_view::volume_cache::VolumeChange;

/// What the tracker holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedStats {
    /// Evaluations that wait.
    pub total: usize,
    /// Those that wait for any node.
    pub escaped: usize,
}

/// What a job found no place for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub namespace: String,
    /// The job, by id.
    pub job: String,
    /// MHz.
    pub cpu: i64,
    /// MiB.
    pub memory: i64,
}

/// The blocked evaluations.
#[derive(Debug, Default)]
pub struct Blocked {
    enabled: bool,
    /// The index up to which changes are not known.
    began: u64,
    jobs: BTreeMap<JobKey, Evaluation>,
    /// System evaluations, by node and job.
    system: BTreeMap<(String, JobKey), Evaluation>,
    duplicates: Vec<Evaluation>,
    /// The index of the last change of each class.
    changed: BTreeMap<String, u64>,
    last_change: u64,
    /// The jobs that wait for a volume; some may wait no longer.
    for_volumes: BTreeMap<VolumeChange, BTreeSet<JobKey>>,
    /// The index of the last change of each volume.
    changed_volumes: BTreeMap<VolumeChange, u64>,
    /// Of volumes that changed before this, it is not known any more.
    forgotten_volumes: u64,
}

/// Of how many volumes it is known when they changed last.
const VOLUMES: usize = 100_000;

fn job_of(eval: &Evaluation) -> JobKey {
    (eval.namespace.clone(), eval.job_id.clone())
}

/// Which of two is the newer view of a job.
fn age(eval: &Evaluation) -> u64 {
    eval.create_index.max(eval.snapshot_index)
}

impl Blocked {
    /// Starts to take evaluations. What changed up to an index was not followed: whatever was
    /// decided before it is given back once.
    pub fn enable(&mut self, index: u64) {
        self.enabled = true;
        self.began = index;
    }

    /// Forgets everything and takes nothing any more.
    pub fn disable(&mut self) {
        *self = Self::default();
    }

    /// Takes a blocked evaluation; gives it back if what it waits for has happened since it was
    /// decided.
    pub fn block(&mut self, eval: Evaluation) -> Option<Evaluation> {
        if !self.enabled {
            return None;
        }
        if self.missed(&eval) {
            return Some(eval);
        }
        let job = job_of(&eval);
        if !eval.node_id.is_empty() {
            self.system.insert((eval.node_id.clone(), job), eval);
            return None;
        }
        match self.jobs.get(&job) {
            Some(known) if known.id != eval.id && age(known) > age(&eval) => {
                self.duplicates.push(eval);
            }
            Some(known) if known.id == eval.id && known.modify_index > eval.modify_index => {}
            _ => {
                for change in waited_for(&eval) {
                    let waiting = self.for_volumes.entry(change).or_default();
                    waiting.insert(job.clone());
                }
                let replaced = self.jobs.insert(job, eval.clone());
                self.duplicates.extend(replaced.filter(|r| r.id != eval.id));
            }
        }
        None
    }

    fn missed(&self, eval: &Evaluation) -> bool {
        if eval.snapshot_index < self.began {
            return true;
        }
        let waited = waited_for(eval);
        let after = |index: &u64| *index > eval.snapshot_index;
        let volumes = || {
            let known = waited
                .iter()
                .filter_map(|one| self.changed_volumes.get(one));
            known.chain(Some(&self.forgotten_volumes)).any(after)
        };
        if !waited.is_empty() && volumes() {
            return true;
        }
        if eval.escaped_computed_class {
            return self.last_change > eval.snapshot_index;
        }
        self.changed
            .iter()
            .any(|(class, index)| *index > eval.snapshot_index && could_run(eval, class))
    }

    /// Something was freed, or became usable, on these nodes of this class: answers what may
    /// continue.
    pub fn unblock(
        &mut self,
        class: &str,
        nodes: &BTreeSet<String>,
        index: u64,
    ) -> Vec<Evaluation> {
        if !self.enabled {
            return Vec::new();
        }
        self.changed.insert(class.to_owned(), index);
        self.last_change = self.last_change.max(index);
        let mut freed = Vec::new();
        self.jobs.retain(|_, eval| {
            let goes = eval.escaped_computed_class || could_run(eval, class);
            if goes {
                freed.push(eval.clone());
            }
            !goes
        });
        self.system.retain(|(node, _), eval| {
            let goes = nodes.contains(node);
            if goes {
                freed.push(eval.clone());
            }
            !goes
        });
        freed
    }

    /// More of a volume can be had: answers what may continue.
    pub fn unblock_volume(&mut self, change: &VolumeChange, index: u64) -> Vec<Evaluation> {
        if !self.enabled {
            return Vec::new();
        }
        if self.changed_volumes.len() >= VOLUMES {
            let last = self.changed_volumes.values().max().copied();
            self.forgotten_volumes = last.unwrap_or_default();
            self.changed_volumes.clear();
        }
        self.changed_volumes.insert(change.clone(), index);
        let waiting = self.for_volumes.remove(change).unwrap_or_default();
        let mut freed = Vec::new();
        for job in waiting {
            let waits = |eval: &Evaluation| waited_for(eval).contains(change);
            if self.jobs.get(&job).is_some_and(waits) {
                freed.extend(self.jobs.remove(&job));
            }
        }
        self.system.retain(|_, eval| {
            let goes = waited_for(eval).contains(change);
            if goes {
                freed.push(eval.clone());
            }
            !goes
        });
        freed
    }

    /// Evaluations that were blocked because their plans were rejected too often.
    pub fn unblock_failed(&mut self) -> Vec<Evaluation> {
        let mut freed = Vec::new();
        self.jobs.retain(|_, eval| {
            let goes = eval.triggered_by == trigger::MAX_PLAN_ATTEMPTS;
            if goes {
                freed.push(eval.clone());
            }
            !goes
        });
        freed
    }

    /// A job has all it wants, or is gone: nothing of it waits any more.
    pub fn untrack(&mut self, namespace: &str, job_id: &str) {
        let job = (namespace.to_owned(), job_id.to_owned());
        self.jobs.remove(&job);
        self.system.retain(|(_, other), _| *other != job);
    }

    /// An evaluation is over.
    pub fn ended(&mut self, eval: &Evaluation) {
        let job = job_of(eval);
        if self.jobs.get(&job).is_some_and(|known| known.id == eval.id) {
            self.jobs.remove(&job);
        }
        let of_node = (eval.node_id.clone(), job);
        if self
            .system
            .get(&of_node)
            .is_some_and(|known| known.id == eval.id)
        {
            self.system.remove(&of_node);
        }
    }

    /// Forgets an evaluation that was deleted.
    pub fn forget(&mut self, id: &str) {
        self.jobs.retain(|_, eval| eval.id != id);
        self.system.retain(|_, eval| eval.id != id);
    }

    /// Evaluations that lost to a newer one of their job.
    pub fn take_duplicates(&mut self) -> Vec<Evaluation> {
        std::mem::take(&mut self.duplicates)
    }

    /// MHz and MiB that blocked evaluations found no place for.
    pub fn wanted(&self) -> (i64, i64) {
        wanted(self.jobs.values().chain(self.system.values()))
    }

    /// The same for each job, those that want most first, as many as are shown.
    pub fn wanted_by_job(&self) -> Vec<Wanted> {
        let mut by_job: BTreeMap<(&str, &str), (i64, i64)> = BTreeMap::new();
        for eval in self.jobs.values().chain(self.system.values()) {
            let (cpu, memory) = wanted([eval]);
            let job = (eval.namespace.as_str(), eval.job_id.as_str());
            let all = by_job.entry(job).or_default();
            *all = (all.0.saturating_add(cpu), all.1.saturating_add(memory));
        }
        let mut jobs: Vec<_> = by_job.into_iter().collect();
        jobs.retain(|(_, wanted)| *wanted != (0, 0));
        jobs.sort_by_key(|(_, wanted)| Reverse(*wanted));
        let first = jobs.into_iter().take(SHOWN);
        first
            .map(|((namespace, job), (cpu, memory))| Wanted {
                namespace: namespace.to_owned(),
                job: job.to_owned(),
                cpu,
                memory,
            })
            .collect()
    }

    /// Numbers.
    pub fn stats(&self) -> BlockedStats {
        let all = || self.jobs.values().chain(self.system.values());
        BlockedStats {
            total: all().count(),
            escaped: all().filter(|eval| eval.escaped_computed_class).count(),
        }
    }
}

/// MHz and MiB that these found no place for.
fn wanted<'a>(evals: impl IntoIterator<Item = &'a Evaluation>) -> (i64, i64) {
    let exhausted = evals
        .into_iter()
        .flat_map(|eval| eval.failed_tg_allocs.values())
        .flat_map(|metric| metric.resources_exhausted.values());
    exhausted.fold((0, 0), |(cpu, memory), of_task| {
        (
            cpu.saturating_add(of_task.cpu),
            memory.saturating_add(of_task.memory_mb),
        )
    })
}

/// The changes of volumes after which an evaluation is to be tried again.
fn waited_for(eval: &Evaluation) -> BTreeSet<VolumeChange> {
    let metrics = eval.failed_tg_allocs.values();
    let reasons = metrics.flat_map(|metric| metric.constraint_filtered.keys());
    let change = |waits| match waits {
        WaitsFor::Volume(id) => VolumeChange::Volume((eval.namespace.clone(), id)),
        WaitsFor::Plugin(id) => VolumeChange::Plugin(id),
        WaitsFor::Topology => VolumeChange::Reach,
        WaitsFor::Host => VolumeChange::Host,
    };
    let waits = reasons.filter_map(|reason| waits_for(reason));
    waits.map(change).collect()
}

/// A class that was not looked at may be the right one.
fn could_run(eval: &Evaluation, class: &str) -> bool {
    eval.class_eligibility.get(class).copied().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(id: &str, job: &str, classes: &[(&str, bool)], snapshot: u64) -> Evaluation {
        Evaluation {
            id: id.into(),
            job_id: job.into(),
            status: "blocked".into(),
            snapshot_index: snapshot,
            create_index: snapshot,
            class_eligibility: classes.iter().copied().collect(),
            ..Evaluation::default()
        }
    }

    fn nodes(id: &str) -> BTreeSet<String> {
        BTreeSet::from([id.to_owned()])
    }

    fn tracker() -> Blocked {
        let mut tracker = Blocked::default();
        tracker.enable(0);
        tracker
    }

    fn ids(evals: &[Evaluation]) -> Vec<&str> {
        evals.iter().map(|eval| eval.id.as_str()).collect()
    }

    #[test]
    fn a_class_frees_those_it_can_run_and_those_that_do_not_know_it() {
        let mut tracker = tracker();
        tracker.block(blocked("a", "1", &[("big", true)], 5));
        tracker.block(blocked("b", "2", &[("big", false)], 5));
        tracker.block(blocked("c", "3", &[], 5));
        let mut escaped = blocked("d", "4", &[("big", false)], 5);
        escaped.escaped_computed_class = true;
        tracker.block(escaped);
        assert_eq!(
            tracker.stats(),
            BlockedStats {
                total: 4,
                escaped: 1
            }
        );
        assert_eq!(
            ids(&tracker.unblock("big", &nodes("n"), 6)),
            ["a", "c", "d"]
        );
        assert_eq!(tracker.stats().total, 1);
    }

    #[test]
    fn what_happened_after_the_snapshot_is_not_missed() {
        let mut tracker = tracker();
        tracker.unblock("big", &nodes("n"), 10);
        let back = tracker.block(blocked("a", "1", &[("big", true)], 9));
        assert_eq!(back.unwrap().id, "a");
        assert!(
            tracker
                .block(blocked("b", "1", &[("big", true)], 10))
                .is_none()
        );
        assert!(
            tracker
                .block(blocked("c", "2", &[("big", false)], 9))
                .is_none()
        );
    }

    #[test]
    fn what_was_decided_before_changes_were_followed_is_tried_once_more() {
        let mut tracker = Blocked::default();
        tracker.enable(10);
        let escaped = Evaluation {
            escaped_computed_class: true,
            ..blocked("b", "2", &[], 9)
        };
        let of_node = Evaluation {
            node_id: "n".into(),
            ..blocked("c", "3", &[], 9)
        };
        for eval in [blocked("a", "1", &[("big", false)], 9), escaped, of_node] {
            let id = eval.id.clone();
            assert_eq!(tracker.block(eval).unwrap().id, id);
        }
        assert!(
            tracker
                .block(blocked("a", "1", &[("big", false)], 10))
                .is_none()
        );
        tracker.disable();
        tracker.enable(20);
        assert!(tracker.block(blocked("a", "1", &[], 19)).is_some());
    }

    #[test]
    fn what_blocked_evaluations_want_is_added_up() {
        let mut tracker = tracker();
        for (id, job) in [("a", "1"), ("b", "2")] {
            let mut eval = blocked(id, job, &[], 5);
            let mut metric = drover_events::model::AllocMetric::default();
            let wanted = drover_events::model::Resources {
                cpu: 500,
                memory_mb: 256,
                ..Default::default()
            };
            metric.resources_exhausted.insert("t", wanted);
            eval.failed_tg_allocs.insert("g", metric);
            tracker.block(eval);
        }
        assert_eq!(tracker.wanted(), (1_000, 512));
        let by_job = |tracker: &Blocked| {
            let all = tracker.wanted_by_job().into_iter();
            all.map(|one| (one.job, one.cpu, one.memory))
                .collect::<Vec<_>>()
        };
        let each = |job: &str| (job.to_owned(), 500, 256);
        assert_eq!(by_job(&tracker), [each("1"), each("2")]);
        // An evaluation that waits for something else wants no resources, and of very many some are
        // shown.
        tracker.block(blocked("c", "3", &[], 5));
        assert_eq!(by_job(&tracker).len(), 2);
        for number in 0..2 * SHOWN {
            let mut eval = blocked(&format!("d-{number}"), &format!("4-{number}"), &[], 5);
            let mut metric = drover_events::model::AllocMetric::default();
            let wanted = drover_events::model::Resources {
                cpu: 1_000 + i64::try_from(number).unwrap(),
                ..Default::default()
            };
            metric.resources_exhausted.insert("t", wanted);
            eval.failed_tg_allocs.insert("g", metric);
            tracker.block(eval);
        }
        let shown = by_job(&tracker);
        assert_eq!((shown.len(), shown[0].1), (SHOWN, 1_199));
    }

    #[test]
    fn the_newer_of_two_of_a_job_stays() {
        let mut tracker = tracker();
        tracker.block(blocked("a", "job", &[], 5));
        tracker.block(blocked("b", "job", &[], 7));
        tracker.block(blocked("c", "job", &[], 6));
        assert_eq!(ids(&tracker.take_duplicates()), ["a", "c"]);
        tracker.untrack("", "job");
        assert_eq!(tracker.stats().total, 0);
    }

    #[test]
    fn csi_43_what_waits_for_a_volume_goes_on_when_more_of_it_can_be_had_and_nothing_else() {
        let mut tracker = tracker();
        let waits = |id: &str, job: &str, reason: &str, snapshot| {
            let mut eval = blocked(id, job, &[("big", false)], snapshot);
            eval.namespace = "default".to_owned();
            let mut metric = drover_events::model::AllocMetric::default();
            metric.constraint_filtered.insert(reason, 1);
            eval.failed_tg_allocs.insert("g", metric);
            eval
        };
        let taken = "CSI volume data has exhausted its available writer claims";
        let of = |id: &str| VolumeChange::Volume(("default".to_owned(), id.to_owned()));
        tracker.block(waits("a", "1", taken, 5));
        tracker.block(waits("b", "2", "missing CSI Volume other", 5));
        tracker.block(waits("c", "3", "CSI plugin p is missing from client n", 5));
        tracker.block(waits("d", "4", "missing compatible host volumes", 5));
        assert_eq!(ids(&tracker.unblock_volume(&of("data"), 6)), ["a"]);
        assert!(tracker.unblock_volume(&of("data"), 7).is_empty(), "once");
        let plugin = VolumeChange::Plugin("p".to_owned());
        assert_eq!(ids(&tracker.unblock_volume(&plugin, 8)), ["c"]);
        assert_eq!(ids(&tracker.unblock_volume(&VolumeChange::Host, 9)), ["d"]);
        assert_eq!(tracker.stats().total, 1);
        // What happened between the decision and its arrival is not missed.
        assert!(tracker.block(waits("e", "5", taken, 6)).is_some());
        assert!(tracker.block(waits("f", "6", taken, 7)).is_none());
        // Another reason since: it waits for that one.
        tracker.block(waits("f", "6", "missing CSI Volume third", 7));
        assert!(tracker.unblock_volume(&of("data"), 10).is_empty());
        assert_eq!(ids(&tracker.unblock_volume(&of("third"), 11)), ["f"]);
        // So do those of system jobs, which wait for their node, and those of an index.
        let mut of_node = waits("g", "7", "missing CSI Volume data[2]", 11);
        of_node.node_id = "n".into();
        tracker.block(of_node);
        assert!(tracker.unblock_volume(&of("data"), 12).is_empty());
        assert_eq!(ids(&tracker.unblock_volume(&of("data[2]"), 13)), ["g"]);
    }

    #[test]
    fn what_was_refused_too_often_is_tried_again_and_nothing_else() {
        let mut tracker = tracker();
        let mut refused = blocked("a", "1", &[("big", false)], 5);
        refused.triggered_by = "max-plan-attempts".into();
        tracker.block(refused);
        tracker.block(blocked("b", "2", &[("big", false)], 5));
        assert_eq!(ids(&tracker.unblock_failed()), ["a"]);
        assert!(tracker.unblock_failed().is_empty(), "once");
        assert_eq!(tracker.stats().total, 1, "the other one waits for room");
    }

    #[test]
    fn a_system_evaluation_waits_for_its_node() {
        let mut tracker = tracker();
        let mut eval = blocked("a", "job", &[("big", true)], 5);
        eval.node_id = "n1".into();
        tracker.block(eval);
        assert!(tracker.unblock("big", &nodes("n2"), 6).is_empty());
        assert_eq!(ids(&tracker.unblock("big", &nodes("n1"), 7)), ["a"]);
    }
}
