//! The scheduling state of a leader: broker, blocked evaluations, the cluster, and what plans in
//! flight do to it. All of it follows the projections, and is no source of truth.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::EventId;
use drover_events::model::Evaluation;
use drover_events::model::status::EvalStatus;
use drover_projections::tables::evals::{Evals, EvalsOpenByJob};
use drover_projections::tables::scheduler_config::SchedulerConfigTable;
use drover_projections::{Change, Operation, Scan, StorageError, Table, View, query};

use super::blocked::Blocked;
use super::broker::{Broker, BrokerSettings};
use super::retry::Retry;
use crate::commands::system_jobs::{self, EvaluateOverlooked};
use crate::reactors::each::Each;
use crate::scheduler::cluster::Usage;
use crate::scheduling_view::cache::{Cache, Freed, text_key};

/// What a plan in flight makes of a node.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// What is used of it then.
    pub used: Usage,
    /// The event it will be marked by.
    pub mark: EventId,
}

/// The state, behind one lock.
pub struct Core {
    /// Pending evaluations.
    pub broker: Broker,
    /// Blocked evaluations.
    pub blocked: Blocked,
    /// The cluster as committed.
    pub cache: Cache,
    /// Nodes as they will be once what is in flight is committed, by slot.
    pub in_flight: BTreeMap<u32, InFlight>,
    /// An operator has paused the broker (EVAL-09).
    pub paused: bool,
    /// Evaluations whose end could not be written yet, in lists that hang together.
    pub unwritten: Vec<Retry<Vec<Evaluation>>>,
    /// Nodes that can be placed on, and system jobs that were not looked at since: by node.
    overlooked: BTreeMap<String, Retry<EvaluateOverlooked>>,
    /// What could not be read.
    each: Each,
    /// Jobs with an open evaluation that cannot be read. Writing the end of another evaluation of
    /// such a job would have to read it, so its evaluations are not worked on before the tables are
    /// made again.
    held: BTreeSet<(String, String)>,
    /// How often the tables had been made again when this was found.
    made: u64,
    /// When it is looked again whether what is held back or closed can be read, Unix nanoseconds.
    look_at: i64,
    /// When all nodes are looked over again for system jobs that missed them, Unix nanoseconds:
    /// the last look could not read everything.
    look_over: Option<i64>,
    followed: u64,
}

/// Between two looks whether what could not be read can be, nanoseconds.
const LOOK_AGAIN: i64 = 10_000_000_000;

impl Core {
    /// Reads the state from a view. What cannot be read is left out, as far as an evaluation goes;
    /// what the cluster is made of has [`Cache`]'s answer to it.
    pub fn load(view: &View, settings: BrokerSettings, now: i64) -> Result<Self, StorageError> {
        let mut core = Self {
            broker: Broker::new(settings),
            blocked: Blocked::default(),
            cache: Cache::load(view)?,
            in_flight: BTreeMap::new(),
            paused: is_paused(view)?,
            unwritten: Vec::new(),
            overlooked: BTreeMap::new(),
            each: Each::default(),
            held: BTreeSet::new(),
            made: view.made(),
            look_at: 0,
            look_over: Some(now),
            followed: view.index(),
        };
        core.look_over(view, now)?;
        core.note_left_out()?;
        if !core.paused {
            core.restore(view, now)?;
        }
        Ok(core)
    }

    /// Takes every open evaluation there is. Those that are over say nothing here: one that ended
    /// long ago does not mean that its job has all it wants now.
    fn restore(&mut self, view: &View, now: i64) -> Result<(), StorageError> {
        self.broker.enable();
        self.blocked.enable(view.index());
        self.held.clear();
        let failed = self.each.failed();
        for eval in view.scan::<Evals>(Scan::all()) {
            let open = self.each.row(eval)?;
            if let Some(eval) = open.filter(|eval| !eval.terminal_status()) {
                self.take(eval, now);
            }
        }
        self.hold(view, failed)
    }

    /// Holds back what is open of jobs that have an evaluation which cannot be read, where more
    /// failed than so many. What is worked on already is refused when its end is to be written.
    fn hold(&mut self, view: &View, failed: usize) -> Result<(), StorageError> {
        if self.each.failed() == failed {
            return Ok(());
        }
        for (namespace, id) in query::jobs_of_unreadable_evals(view)? {
            for eval in view.by_index::<EvalsOpenByJob>((namespace.as_str(), id.as_str())) {
                match eval {
                    Ok(eval) => {
                        self.broker.forget(&eval.id);
                        self.blocked.forget(&eval.id);
                    }
                    // It was counted and noted when it was first met.
                    Err(error) if error.is_single_entry() => {}
                    Err(error) => return Err(error),
                }
            }
            if self.held.insert((namespace.clone(), id.clone())) {
                tracing::error!(
                    namespace,
                    job = id,
                    "nothing is scheduled of a job with an evaluation that cannot be read, until \
                     `drover projection rebuild` makes the tables again"
                );
            }
        }
        Ok(())
    }

    /// Takes what was held back, and nodes that were closed, once the tables were made again: each
    /// as soon as all its rows can be read, independent of the others. The view may be of the
    /// tables before: then it is looked again.
    fn release(&mut self, view: &View, now: i64) -> Result<(), StorageError> {
        let made = view.made();
        if self.made == made || now < self.look_at {
            return Ok(());
        }
        self.look_at = now.saturating_add(LOOK_AGAIN);
        let freed = self.cache.reopen(view);
        self.unblock(freed, now);
        for job in self.held.clone() {
            if let Some(open) = self.read_open(view, &job)? {
                self.held.remove(&job);
                for eval in open {
                    self.take(eval, now);
                }
            }
        }
        if self.held.is_empty() && !self.cache.has_closed() {
            self.made = made;
            // System jobs were left out of looks as long as they could not be read.
            self.look_over = Some(now);
        }
        Ok(())
    }

    /// The open evaluations of a job; `None` where one cannot be read.
    fn read_open(
        &mut self,
        view: &View,
        (namespace, id): &(String, String),
    ) -> Result<Option<Vec<Evaluation>>, StorageError> {
        let failed = self.each.failed();
        let mut open = Vec::new();
        for eval in view.by_index::<EvalsOpenByJob>((namespace.as_str(), id.as_str())) {
            open.extend(self.each.row(eval)?);
        }
        Ok((self.each.failed() == failed).then_some(open))
    }

    fn is_held(&self, eval: &Evaluation) -> bool {
        let of_job =
            |(namespace, id): &(String, String)| *namespace == eval.namespace && *id == eval.job_id;
        self.held.iter().any(of_job)
    }

    /// Takes an evaluation as it is now.
    fn take(&mut self, eval: Evaluation, now: i64) {
        if !eval.terminal_status() && self.is_held(&eval) {
            return;
        }
        match eval.status() {
            Some(EvalStatus::Pending) => self.broker.enqueue(eval, now),
            Some(EvalStatus::Blocked) => {
                if let Some(back) = self.blocked.block(eval) {
                    self.broker.enqueue(back, now);
                }
            }
            over @ (Some(EvalStatus::Complete | EvalStatus::Failed | EvalStatus::Canceled)
            | None) => {
                if over == Some(EvalStatus::Complete) && eval.failed_tg_allocs.is_empty() {
                    self.blocked.untrack(&eval.namespace, &eval.job_id);
                }
                self.broker.forget(&eval.id);
                self.blocked.ended(&eval);
            }
        }
    }

    /// The index up to which changes were followed.
    pub fn followed(&self) -> u64 {
        self.followed
    }

    /// How often a row was left out that could not be read, and what the first one was.
    pub fn unread(&self) -> (usize, Option<&str>) {
        (self.each.failed(), self.each.first())
    }

    /// Counts what the cluster was read without, and says each once.
    fn note_left_out(&mut self) -> Result<(), StorageError> {
        for error in self.cache.take_left_out() {
            self.each.row::<()>(Err(error))?;
        }
        Ok(())
    }

    /// Follows all changes up to a view.
    pub fn catch_up(&mut self, view: &View, now: i64) -> Result<(), StorageError> {
        self.release(view, now)?;
        self.look_over(view, now)?;
        if view.index() <= self.followed {
            return Ok(());
        }
        let mut reload = false;
        let mut freed = Vec::new();
        for changes in view.changes(self.followed + 1) {
            let changes = changes?;
            freed.extend(self.cache.follow(view, &changes)?);
            let mut left_out = Vec::new();
            let found = system_jobs::overlooked_by(view, &changes, &mut left_out);
            self.note_overlooked(found, left_out, now)?;
            reload |= self.follow_evals(view, &changes, now)?;
        }
        self.note_left_out()?;
        self.unblock(freed, now);
        for (change, index) in self.cache.take_changed_volumes() {
            for eval in self.blocked.unblock_volume(&change, index) {
                self.broker.enqueue(eval, now);
            }
        }
        self.followed = view.index();
        self.cache.followed(view.index());
        if reload {
            self.follow_config(view, now)?;
        }
        Ok(())
    }

    /// Looks all nodes over for system jobs that missed them, where that is due.
    fn look_over(&mut self, view: &View, now: i64) -> Result<(), StorageError> {
        if self.look_over.is_none_or(|due| now < due) {
            return Ok(());
        }
        self.look_over = None;
        let mut left_out = Vec::new();
        let found = system_jobs::overlooked(view, &mut left_out);
        self.note_overlooked(found, left_out, now)
    }

    /// Notes what was overlooked, and what was left out of the look. It is a second look: where the
    /// database fails, that must not hold up all scheduling, and all is looked over after a while.
    fn note_overlooked(
        &mut self,
        found: Result<Vec<EvaluateOverlooked>, StorageError>,
        left_out: Vec<StorageError>,
        now: i64,
    ) -> Result<(), StorageError> {
        for error in left_out {
            self.each.row::<()>(Err(error))?;
        }
        match found {
            Ok(found) => found
                .into_iter()
                .for_each(|command| self.add_overlooked(Retry::new(command))),
            Err(error) => {
                tracing::warn!(%error, "system jobs may wait: nodes are looked over again");
                self.look_over = Some(now.saturating_add(LOOK_AGAIN));
            }
        }
        Ok(())
    }

    /// Adds what was overlooked on a node, once a node: the jobs without a look since a later index
    /// include those without a look since an earlier one.
    pub(super) fn add_overlooked(&mut self, mut one: Retry<EvaluateOverlooked>) {
        if let Some(known) = self.overlooked.get(&one.what.node_id) {
            one.what.since = one.what.since.max(known.what.since);
            one.join(known);
        }
        self.overlooked.insert(one.what.node_id.clone(), one);
    }

    /// What was overlooked and is to be looked at now.
    pub(super) fn take_overlooked(&mut self, now: i64) -> Vec<Retry<EvaluateOverlooked>> {
        let all = std::mem::take(&mut self.overlooked);
        let (due, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(|(_, one)| one.is_due(now));
        self.overlooked = rest;
        due.into_values().collect()
    }

    fn follow_evals(
        &mut self,
        view: &View,
        changes: &[Change],
        now: i64,
    ) -> Result<bool, StorageError> {
        let mut reload = false;
        let failed = self.each.failed();
        for change in changes {
            if change.table == SchedulerConfigTable::ID {
                reload = true;
            }
            if change.table != Evals::ID || self.paused {
                continue;
            }
            let Some(id) = text_key(&change.key) else {
                continue;
            };
            // An evaluation whose end could not be written is not worked on.
            let eval = match change.operation {
                Operation::Put => self.each.row(view.get::<Evals>(id.as_str()))?.flatten(),
                _ => None,
            };
            match eval {
                Some(eval) => self.take(eval, now),
                None => {
                    self.broker.forget(&id);
                    self.blocked.forget(&id);
                }
            }
        }
        self.hold(view, failed)?;
        Ok(reload)
    }

    fn unblock(&mut self, freed: Vec<Freed>, now: i64) {
        let mut classes: BTreeMap<String, (u64, BTreeSet<String>)> = BTreeMap::new();
        for one in freed {
            let (index, nodes) = classes.entry(one.class).or_default();
            *index = one.index.max(*index);
            nodes.insert(one.node_id);
        }
        for (class, (index, nodes)) in classes {
            for eval in self.blocked.unblock(&class, &nodes, index) {
                self.broker.enqueue(eval, now);
            }
        }
    }

    /// The configuration may say that the broker pauses, or continues.
    fn follow_config(&mut self, view: &View, now: i64) -> Result<(), StorageError> {
        let paused = is_paused(view)?;
        if paused && !self.paused {
            self.broker.disable();
            self.blocked.disable();
        } else if !paused && self.paused {
            self.restore(view, now)?;
        }
        self.paused = paused;
        Ok(())
    }
}

fn is_paused(view: &View) -> Result<bool, StorageError> {
    Ok(view
        .get::<SchedulerConfigTable>(())?
        .is_some_and(|config| config.pause_eval_broker))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_projections::Id;

    use super::*;
    use crate::reactors::starvation_test::{LATER, add_eval, uuid};
    use crate::reactors::testing::{Direct, spoil};

    /// An evaluation of each of two jobs; the rows with these numbers are damaged.
    fn with_damaged(numbers: &[usize]) -> Arc<Direct> {
        let direct = Direct::new();
        add_eval(&direct, 1, "a", "pending");
        add_eval(&direct, 2, "b", "pending");
        direct.reopened(|database| {
            for number in numbers {
                spoil::<Evals>(database, &Id::new(uuid(*number)));
            }
        })
    }

    #[test]
    fn a_job_of_which_all_can_be_read_again_goes_on_whatever_of_another_cannot() {
        let (both, one, none) = (with_damaged(&[1, 2]), with_damaged(&[2]), with_damaged(&[]));
        let view = both.projections.view();
        let mut core = Core::load(&view, BrokerSettings::default(), LATER).unwrap();
        assert_eq!((core.broker.stats().ready, core.held.len()), (0, 2));
        // The tables were made again since.
        core.made = u64::MAX;
        core.release(&one.projections.view(), LATER).unwrap();
        assert_eq!((core.broker.stats().ready, core.held.len()), (1, 1));
        let later = LATER + LOOK_AGAIN;
        core.release(&none.projections.view(), later).unwrap();
        assert_eq!((core.broker.stats().ready, core.held.len()), (2, 0));
        assert_ne!(core.made, u64::MAX, "nothing is left to look at");
    }

    /// The tables are others by the time the view is loaded, and by the time it is followed.
    #[test]
    fn what_a_view_of_the_tables_before_holds_back_goes_on_with_those_made_again() {
        let (damaged, sound) = (with_damaged(&[1]), with_damaged(&[]));
        let view = damaged.projections.view();
        let dir = tempfile::tempdir().unwrap();
        let snapshot = dir.path().join("snapshot");
        let written = sound
            .projections
            .view()
            .write_snapshot(&snapshot, 1 << 20, &|_| Ok(()));
        written.unwrap();
        sound.install(&snapshot);
        let mut core = Core::load(&view, BrokerSettings::default(), LATER).unwrap();
        core.release(&view, LATER).unwrap();
        assert_eq!((core.broker.stats().ready, core.held.len()), (1, 1));
        core.release(&sound.projections.view(), LATER).unwrap();
        assert_eq!((core.broker.stats().ready, core.held.len()), (2, 0));
    }

    #[test]
    fn nodes_are_looked_over_again_after_a_look_that_the_database_failed() {
        let direct = Direct::new();
        let view = direct.projections.view();
        let mut core = Core::load(&view, BrokerSettings::default(), 0).unwrap();
        assert_eq!(core.look_over, None);
        let gone = StorageError::Snapshot("it is gone".to_owned());
        core.note_overlooked(Err(gone), Vec::new(), 0).unwrap();
        core.catch_up(&view, LOOK_AGAIN - 1).unwrap();
        assert_eq!(core.look_over, Some(LOOK_AGAIN));
        core.catch_up(&view, LOOK_AGAIN).unwrap();
        assert_eq!(core.look_over, None);
    }
}
