//! One event that holds updates of many rows, taken apart by the event that each followed from.
//!
//! Servers gather the reports of clients into one event; each update names the event that caused
//! it. Evaluations that are no longer needed are ended together as well, each following from the
//! event that created it. A cause chain keeps only the updates whose cause is in the chain, and
//! their consequences.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::{Evaluation, JobKey};
use drover_events::{Event, Recorded};
use drover_projections::changes::Change;
use drover_projections::key::{Id, Key};
use drover_projections::tables::{Allocs, Deployments, Evals, Jobs};
use drover_projections::{StorageError, Table, View};

use super::object::RowKey;
use super::{AuditError, Trail};

/// The updates of an event that followed from several others, by the index of their cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UpdatesByCause(BTreeMap<u64, CauseUpdates>);

/// The updates that followed from one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CauseUpdates {
    /// Keys of allocations.
    allocs: BTreeSet<Vec<u8>>,
    jobs: BTreeSet<JobKey>,
}

impl UpdatesByCause {
    /// The updates of an event, if they have more than one cause.
    pub(super) fn of(trail: &Trail<'_>, event: &Recorded) -> Result<Option<Self>, StorageError> {
        let reports = match event.envelope.as_ref().map(|e| (&e.event, e.cause)) {
            Some((Event::AllocsUpdatedByClient(reports), _)) => reports,
            Some((Event::EvalsUpserted(upserted), None)) => {
                return Self::of_evals(trail, &upserted.evals, event.index);
            }
            _ => return Ok(None),
        };
        let causes: BTreeSet<u64> = reports.updates.iter().map(|update| update.cause).collect();
        if causes.len() < 2 {
            return Ok(None);
        }
        let mut parts: BTreeMap<u64, CauseUpdates> = BTreeMap::new();
        for update in &reports.updates {
            let part = parts.entry(update.cause).or_default();
            let alloc = trail
                .view()
                .get_at::<Allocs>(update.id.as_str(), event.index);
            let alloc = trail.unless_others_damaged(alloc)?;
            part.jobs
                .extend(alloc.map(|row| (row.namespace.clone(), row.job_id.clone())));
            part.allocs
                .insert(Id::new(update.id.as_str()).to_bytes().to_vec());
        }
        Ok(Some(Self(parts)))
    }

    /// The evaluations of several jobs in one event that names no cause: each followed from the
    /// event that made it, or the one that it comes after.
    fn of_evals(
        trail: &Trail<'_>,
        evals: &[Evaluation],
        index: u64,
    ) -> Result<Option<Self>, StorageError> {
        let mut parts: BTreeMap<u64, CauseUpdates> = BTreeMap::new();
        for eval in evals {
            let mut cause = 0;
            for id in [&eval.id, &eval.previous_eval] {
                let row = trail.view().get_at::<Evals>(id.as_str(), index);
                let row = trail.unless_others_damaged(row)?;
                let made = row.map_or(0, |row| row.create_index);
                if made > 0 && made < index {
                    cause = made;
                    break;
                }
            }
            let job = (eval.namespace.clone(), eval.job_id.clone());
            parts.entry(cause).or_default().jobs.insert(job);
        }
        let several = parts.keys().filter(|cause| **cause > 0).count() > 1;
        Ok(several.then_some(Self(parts)))
    }

    /// The causes: the events that the updates followed from.
    pub(super) fn causes(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied().filter(|cause| *cause > 0)
    }

    /// Keeps the updates whose cause is in a chain, or all where none of their causes is.
    pub(super) fn within(mut self, in_chain: impl Fn(u64) -> bool) -> Self {
        if self.causes().any(&in_chain) {
            self.0.retain(|cause, _| in_chain(*cause));
        }
        self
    }

    /// The causes of the updates of some rows or jobs; all causes where no update is of them.
    pub(super) fn causes_of(&self, rows: &[RowKey], jobs: &BTreeSet<JobKey>) -> BTreeSet<u64> {
        let of_row = |part: &CauseUpdates| {
            let mut allocs = rows.iter().filter(|(table, _)| *table == Allocs::ID);
            allocs.any(|(_, key)| part.allocs.contains(key))
        };
        let of_job = |part: &CauseUpdates| !part.jobs.is_disjoint(jobs);
        for test in [&of_row as &dyn Fn(&CauseUpdates) -> bool, &of_job] {
            let found: BTreeSet<u64> = self
                .0
                .iter()
                .filter(|(cause, part)| **cause > 0 && test(part))
                .map(|(cause, _)| *cause)
                .collect();
            if !found.is_empty() {
                return found;
            }
        }
        self.causes().collect()
    }

    /// Whether a change belongs to the updates of one cause, or of any that is kept. A change of
    /// a row that belongs to no job always does.
    pub(super) fn contains(
        &self,
        trail: &Trail<'_>,
        change: &Change,
        cause: Option<u64>,
    ) -> Result<bool, StorageError> {
        let parts = || {
            let of = |(own, _): &(&u64, &CauseUpdates)| cause.is_none_or(|cause| **own == cause);
            self.0.iter().filter(of).map(|(_, part)| part)
        };
        if change.table == Allocs::ID {
            return Ok(parts().any(|part| part.allocs.contains(&change.key)));
        }
        Ok(match job_of(trail, change)? {
            Some(job) => parts().any(|part| part.jobs.contains(&job)),
            None => true,
        })
    }

    /// Whether a later event about `jobs` can follow from the updates of one cause: it is about a
    /// job of theirs, or about no job.
    pub(super) fn leads_to(&self, cause: u64, jobs: &BTreeSet<JobKey>) -> bool {
        let part = self.0.get(&cause);
        part.is_some_and(|part| jobs.is_empty() || !part.jobs.is_disjoint(jobs))
    }
}

/// The jobs that an event is about.
pub(super) fn jobs_of(trail: &Trail<'_>, index: u64) -> Result<BTreeSet<JobKey>, AuditError> {
    let mut jobs = BTreeSet::new();
    for change in trail.changes(index)? {
        jobs.extend(job_of(trail, &change)?);
    }
    Ok(jobs)
}

/// The jobs that some rows belong to which an event touched.
pub(super) fn jobs_of_rows(
    trail: &Trail<'_>,
    index: u64,
    rows: &[RowKey],
) -> Result<BTreeSet<JobKey>, AuditError> {
    let mut jobs = BTreeSet::new();
    for change in trail.changes(index)? {
        let is_in_rows = |row: &RowKey| row.0 == change.table && *row.1 == *change.key;
        if rows.iter().any(is_in_rows) {
            jobs.extend(job_of(trail, &change)?);
        }
    }
    Ok(jobs)
}

/// The job that the row of a change belongs to, where it belongs to one and can be read.
fn job_of(trail: &Trail<'_>, change: &Change) -> Result<Option<JobKey>, StorageError> {
    trail.unless_damaged(job_of_row(trail.view(), change))
}

fn job_of_row(view: &View, change: &Change) -> Result<Option<JobKey>, StorageError> {
    let (key, index) = (&change.key, change.index);
    Ok(match change.table {
        Jobs::ID => <JobKey as Key>::from_bytes(key).ok(),
        Evals::ID => view
            .get_at_encoded::<Evals>(key, index)?
            .map(|row| (row.namespace, row.job_id)),
        Allocs::ID => view
            .get_at_encoded::<Allocs>(key, index)?
            .map(|row| (row.namespace.clone(), row.job_id.clone())),
        Deployments::ID => view
            .get_at_encoded::<Deployments>(key, index)?
            .map(|row| (row.namespace, row.job_id)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use drover_events::eval::EvalsUpserted;

    use super::super::Eyes;
    use super::*;
    use crate::history::record::Redactor;
    use crate::log::{LogEngine, LogOptions};
    use crate::reactors::testing::{Direct, spoil};

    #[test]
    fn a_row_that_cannot_be_read_is_of_no_job() {
        let ids = [1, 2].map(|n| format!("00000000-0000-4000-8000-00000000000{n}"));
        let server = Direct::new();
        let eval = |id: &String| Evaluation {
            id: id.clone(),
            namespace: "default".to_owned(),
            job_id: "job".to_owned(),
            status: "pending".to_owned(),
            ..Evaluation::default()
        };
        let (index, _) = server.apply(EvalsUpserted {
            evals: ids.iter().map(eval).collect(),
            decision: None,
        });
        let damaged = Id::new(ids[1].as_str());
        let server = server.reopened(|database| spoil::<Evals>(database, &damaged));
        let view = server.projections.view();
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = LogEngine::open(dir.path(), LogOptions::default()).unwrap();
        let redactor = Redactor::default();
        let trail = Trail::new(&view, &log, &redactor, Eyes::All);
        let changes = view.changes(index).next().unwrap().unwrap();
        let changes = changes.iter().filter(|change| change.table == Evals::ID);
        let jobs: Vec<_> = changes
            .map(|change| job_of(&trail, change).unwrap())
            .collect();
        let job = ("default".to_owned(), "job".to_owned());
        assert_eq!(jobs, [Some(job), None]);
        assert!(trail.is_damaged());
    }
}
