//! Blocked evaluations: what found no place, until something changes that may give it one.
//!
//! One for each job. It waits for classes of nodes that could run it, or for any node where its
//! constraints look at more than the class (scheduler.md 3). It is a cache and can be thrown away.
//!
//! Invariant: nothing is missed between a scheduler's snapshot and its evaluation's arrival here:
//! the index of the last change of each class is kept and compared.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::Evaluation;

use super::volumes::{Ask, Usable, Volumes};

type JobKey = (String, String);

/// What the tracker holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedStats {
    /// Evaluations that wait.
    pub total: usize,
    /// Those that wait for any node.
    pub escaped: usize,
}

/// The blocked evaluations.
#[derive(Debug, Default)]
pub struct Blocked {
    enabled: bool,
    jobs: BTreeMap<JobKey, Evaluation>,
    /// System evaluations, by node and job.
    system: BTreeMap<(String, JobKey), Evaluation>,
    duplicates: Vec<Evaluation>,
    volumes: Volumes,
    /// The index of the last change of each class.
    changed: BTreeMap<String, u64>,
    last_change: u64,
}

fn job_of(eval: &Evaluation) -> JobKey {
    (eval.namespace.clone(), eval.job_id.clone())
}

/// Which of two is the newer view of a job.
fn age(eval: &Evaluation) -> u64 {
    eval.create_index.max(eval.snapshot_index)
}

impl Blocked {
    /// Starts to take evaluations.
    pub fn enable(&mut self) {
        self.enabled = true;
    }

    /// Forgets everything and takes nothing any more.
    pub fn disable(&mut self) {
        *self = Self::default();
    }

    /// Takes a blocked evaluation, whose job asks for these volumes; gives it back if what it waits
    /// for has happened since it was decided.
    pub fn block(&mut self, eval: Evaluation, asks: Vec<Ask>) -> Option<Evaluation> {
        if !self.enabled {
            return None;
        }
        let missed = self
            .volumes
            .missed(&eval.namespace, &asks, eval.snapshot_index);
        if missed || self.missed(&eval) {
            return Some(eval);
        }
        let job = job_of(&eval);
        self.volumes.wait(job.clone(), asks);
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
                let replaced = self.jobs.insert(job, eval.clone());
                self.duplicates.extend(replaced.filter(|r| r.id != eval.id));
            }
        }
        None
    }

    fn missed(&self, eval: &Evaluation) -> bool {
        if eval.escaped_computed_class {
            return self.last_change > eval.snapshot_index;
        }
        self.changed
            .iter()
            .any(|(class, index)| *index > eval.snapshot_index && could_run(eval, class))
    }

    /// Something was freed, or became usable, on these nodes of this class: answers what may go on.
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

    /// A volume became usable (CSI-43): answers what may go on, whatever it waits for besides.
    pub fn unblock_volume(&mut self, usable: &Usable, index: u64) -> Vec<Evaluation> {
        if !self.enabled {
            return Vec::new();
        }
        self.volumes.note(usable, index);
        let mut freed = Vec::new();
        let volumes = &self.volumes;
        self.jobs.retain(|job, eval| {
            let goes = volumes.awaited(job, usable);
            if goes {
                freed.push(eval.clone());
            }
            !goes
        });
        self.system.retain(|(_, job), eval| {
            let goes = volumes.awaited(job, usable);
            if goes {
                freed.push(eval.clone());
            }
            !goes
        });
        let of_nodes: BTreeSet<&JobKey> = self.system.keys().map(|(_, job)| job).collect();
        let jobs = &self.jobs;
        self.volumes
            .keep(|job| jobs.contains_key(job) || of_nodes.contains(job));
        freed
    }

    /// Evaluations that were blocked because their plans were refused too often.
    pub fn unblock_failed(&mut self) -> Vec<Evaluation> {
        let mut freed = Vec::new();
        self.jobs.retain(|_, eval| {
            let goes = eval.triggered_by == "max-plan-attempts";
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
        let all = self.jobs.values().chain(self.system.values());
        let exhausted = all
            .flat_map(|eval| eval.failed_tg_allocs.values())
            .flat_map(|metric| metric.resources_exhausted.values());
        exhausted.fold((0, 0), |(cpu, memory), of_task| {
            (
                cpu.saturating_add(of_task.cpu),
                memory.saturating_add(of_task.memory_mb),
            )
        })
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

/// A class nobody has looked at may be the right one.
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
        tracker.enable();
        tracker
    }

    fn ids(evals: &[Evaluation]) -> Vec<&str> {
        evals.iter().map(|eval| eval.id.as_str()).collect()
    }

    #[test]
    fn a_class_frees_those_it_can_run_and_those_that_do_not_know_it() {
        let mut tracker = tracker();
        tracker.block(blocked("a", "1", &[("big", true)], 5), Vec::new());
        tracker.block(blocked("b", "2", &[("big", false)], 5), Vec::new());
        tracker.block(blocked("c", "3", &[], 5), Vec::new());
        let mut escaped = blocked("d", "4", &[("big", false)], 5);
        escaped.escaped_computed_class = true;
        tracker.block(escaped, Vec::new());
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
    fn csi_43_a_volume_frees_those_that_ask_for_it_whatever_class_they_wait_for() {
        let mut tracker = tracker();
        let data = |id: &str| Usable::Csi(String::new(), id.to_owned());
        tracker.block(
            blocked("a", "1", &[("big", false)], 5),
            vec![Ask::csi("data")],
        );
        tracker.block(
            blocked("b", "2", &[("big", false)], 5),
            vec![Ask::csi("other")],
        );
        tracker.block(blocked("c", "3", &[("big", false)], 5), Vec::new());
        let mut of_node = blocked("d", "4", &[], 5);
        of_node.node_id = "n".into();
        tracker.block(of_node, vec![Ask::csi("data")]);
        assert_eq!(ids(&tracker.unblock_volume(&data("data"), 6)), ["a", "d"]);
        assert_eq!(tracker.stats().total, 2);
        // One that was decided before that comes too late to wait.
        let late = tracker.block(blocked("e", "5", &[], 5), vec![Ask::csi("data")]);
        assert_eq!(late.unwrap().id, "e");
        let later = tracker.block(blocked("f", "6", &[], 6), vec![Ask::csi("data")]);
        assert!(later.is_none());
        assert_eq!(ids(&tracker.unblock_volume(&Usable::Plugin, 7)), ["b", "f"]);
    }

    #[test]
    fn what_happened_after_the_snapshot_is_not_missed() {
        let mut tracker = tracker();
        tracker.unblock("big", &nodes("n"), 10);
        let back = tracker.block(blocked("a", "1", &[("big", true)], 9), Vec::new());
        assert_eq!(back.unwrap().id, "a");
        assert!(
            tracker
                .block(blocked("b", "1", &[("big", true)], 10), Vec::new())
                .is_none()
        );
        assert!(
            tracker
                .block(blocked("c", "2", &[("big", false)], 9), Vec::new())
                .is_none()
        );
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
            tracker.block(eval, Vec::new());
        }
        assert_eq!(tracker.wanted(), (1_000, 512));
    }

    #[test]
    fn the_newer_of_two_of_a_job_stays() {
        let mut tracker = tracker();
        tracker.block(blocked("a", "job", &[], 5), Vec::new());
        tracker.block(blocked("b", "job", &[], 7), Vec::new());
        tracker.block(blocked("c", "job", &[], 6), Vec::new());
        assert_eq!(ids(&tracker.take_duplicates()), ["a", "c"]);
        tracker.untrack("", "job");
        assert_eq!(tracker.stats().total, 0);
    }

    #[test]
    fn what_was_refused_too_often_is_tried_again_and_nothing_else() {
        let mut tracker = tracker();
        let mut refused = blocked("a", "1", &[("big", false)], 5);
        refused.triggered_by = "max-plan-attempts".into();
        tracker.block(refused, Vec::new());
        tracker.block(blocked("b", "2", &[("big", false)], 5), Vec::new());
        assert_eq!(ids(&tracker.unblock_failed()), ["a"]);
        assert!(tracker.unblock_failed().is_empty(), "once");
        assert_eq!(tracker.stats().total, 1, "the other one waits for room");
    }

    #[test]
    fn a_system_evaluation_waits_for_its_node() {
        let mut tracker = tracker();
        let mut eval = blocked("a", "job", &[("big", true)], 5);
        eval.node_id = "n1".into();
        tracker.block(eval, Vec::new());
        assert!(tracker.unblock("big", &nodes("n2"), 6).is_empty());
        assert_eq!(ids(&tracker.unblock("big", &nodes("n1"), 7)), ["a"]);
    }
}
