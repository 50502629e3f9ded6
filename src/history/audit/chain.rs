//! The events of a cause chain, found by the things they created and the causes they name.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::EventKind;
use drover_events::model::JobKey;
use drover_projections::changes::{Change, Operation};
use drover_projections::key::{Id, Key};
use drover_projections::tables::allocs::AllocsByEval;
use drover_projections::tables::evals::EvalsByJob;
use drover_projections::tables::{Allocs, Deployments, Evals, Jobs};
use drover_projections::{StorageError, Table};

use super::object::RowKey;
use super::updates_by_cause::UpdatesByCause;
use super::{AuditError, Trail};

/// Events of one chain at most.
const MOST: usize = 2_000;
/// Steps to the first event of a chain at most.
const STEPS: usize = 200;

/// How an event belongs to the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKind {
    /// It names it as its cause.
    Cause,
    /// It is about a thing that followed from the other event.
    Thing,
}

/// How an event hangs in a chain.
#[derive(Debug, Default)]
struct Link {
    /// The cause it names.
    cause: Option<u64>,
    /// The last event before it whose thing it is about.
    thing: Option<u64>,
    /// The updates of several causes that the event holds, those of this chain.
    updates: Option<UpdatesByCause>,
}

/// The events of a chain.
#[derive(Debug, Default)]
pub(super) struct Chain {
    events: BTreeMap<u64, Link>,
    /// Whether there are more.
    pub(super) truncated: bool,
}

impl Chain {
    /// Adds events and all that followed, in the order of their indexes: what an event followed
    /// from is known before it.
    pub(super) fn follow(
        &mut self,
        trail: &Trail<'_>,
        roots: &BTreeSet<u64>,
    ) -> Result<(), AuditError> {
        let mut waiting: BTreeSet<_> = roots.iter().map(|root| (*root, None)).collect();
        while let Some((index, from)) = waiting.pop_first() {
            if let Some(link) = self.events.get_mut(&index) {
                // The last thing is the nearest.
                link.thing = from.max(link.thing);
                continue;
            }
            if self.events.len() >= MOST {
                self.truncated = true;
                break;
            }
            let Some(event) = trail.event(index)? else {
                continue;
            };
            // What it followed from came before it, and is known by now.
            let updates = UpdatesByCause::of(trail, &event)?
                .map(|updates| updates.within(|cause| self.events.contains_key(&cause)));
            let cause = event.envelope.and_then(|envelope| envelope.cause);
            for next in followers(trail, index, updates.as_ref())? {
                waiting.insert((next, Some(index)));
            }
            let link = Link {
                cause,
                thing: from,
                updates,
            };
            self.events.insert(index, link);
        }
        Ok(())
    }

    /// Whether an event is shown.
    pub(super) fn holds(&self, index: u64) -> bool {
        self.events.contains_key(&index)
    }

    /// The updates of several causes that an event holds.
    pub(super) fn updates(&self, index: u64) -> Option<&UpdatesByCause> {
        self.events.get(&index)?.updates.as_ref()
    }

    /// Which events each belongs to, and how; none for the first ones. Only updates that were
    /// gathered into one event belong to several.
    pub(super) fn parents(&self) -> BTreeMap<u64, Vec<(u64, LinkKind)>> {
        let before =
            |index: u64| move |parent: &u64| *parent < index && self.events.contains_key(parent);
        let parents = |index: u64, link: &Link| -> Vec<(u64, LinkKind)> {
            if let Some(updates) = &link.updates {
                let causes = updates.causes().filter(before(index));
                let found: Vec<_> = causes.map(|cause| (cause, LinkKind::Cause)).collect();
                if !found.is_empty() {
                    return found;
                }
            }
            let cause = link.cause.filter(before(index));
            let thing = || {
                link.thing
                    .filter(before(index))
                    .map(|t| (t, LinkKind::Thing))
            };
            let one = cause.map(|cause| (cause, LinkKind::Cause)).or_else(thing);
            one.into_iter().collect()
        };
        let events = self.events.iter();
        events
            .map(|(index, link)| (*index, parents(*index, link)))
            .collect()
    }
}

/// The later events that are about things which the event at an index created.
fn followers(
    trail: &Trail<'_>,
    index: u64,
    updates: Option<&UpdatesByCause>,
) -> Result<BTreeSet<u64>, AuditError> {
    let view = trail.view();
    let mut found = BTreeSet::new();
    for change in trail.changes(index)? {
        let is_others = match updates {
            Some(updates) => !updates.contains(trail, &change, None)?,
            None => false,
        };
        if change.operation != Operation::Put || is_others {
            continue;
        }
        match change.table {
            Jobs::ID => found.extend(evals_of(trail, &change)?),
            Evals::ID if is_new(trail, &change)? => {
                let id = Id::from_bytes(&change.key).unwrap_or_default();
                for alloc in trail.unless_damaged(view.members_ever::<AllocsByEval>(&id))? {
                    let change_indexes = change_indexes(trail, (Allocs::ID, &alloc), 0)?;
                    found.extend(change_indexes.first());
                }
                found.extend(change_indexes(trail, (Evals::ID, &change.key), index)?);
            }
            Allocs::ID | Deployments::ID if is_new(trail, &change)? => {
                found.extend(change_indexes(trail, (change.table, &change.key), index)?);
            }
            _ => {}
        }
    }
    Ok(found.split_off(&index.saturating_add(1)))
}

/// When a row changed, from an index on; nothing where it is damaged.
fn change_indexes(
    trail: &Trail<'_>,
    (table, key): (u16, &[u8]),
    first: u64,
) -> Result<BTreeSet<u64>, StorageError> {
    trail.unless_damaged(trail.view().change_indexes_of(table, key, first))
}

/// Whether the change is the row's first.
fn is_new(trail: &Trail<'_>, change: &Change) -> Result<bool, AuditError> {
    let change_indexes = change_indexes(trail, (change.table, &change.key), 0)?;
    Ok(change_indexes.first() == Some(&change.index))
}

/// When the evaluations of a job's version were created, if the change is its registration.
fn evals_of(trail: &Trail<'_>, change: &Change) -> Result<BTreeSet<u64>, StorageError> {
    let view = trail.view();
    let mut found = BTreeSet::new();
    let index = change.index;
    let job = trail.unless_damaged(view.get_at_encoded::<Jobs>(&change.key, index))?;
    let Some(job) = job.filter(|job| job.job_modify_index == index) else {
        return Ok(found);
    };
    let evals = view.members_ever::<EvalsByJob>((job.namespace.as_str(), job.id.as_str()));
    for key in trail.unless_damaged(evals)? {
        let Some(created) = change_indexes(trail, (Evals::ID, &key), 0)?
            .first()
            .copied()
        else {
            continue;
        };
        let eval = trail.unless_damaged(view.get_at_encoded::<Evals>(&key, created))?;
        if eval.is_some_and(|eval| eval.job_modify_index == index) {
            found.insert(created);
        }
    }
    Ok(found)
}

/// The first events of the chains that the event at an index belongs to: several only where it
/// holds updates of several. Of these those of `rows` count, if any are among them.
pub(super) fn roots(
    trail: &Trail<'_>,
    index: u64,
    rows: &[RowKey],
) -> Result<BTreeSet<u64>, AuditError> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut waiting = vec![(
        index,
        super::updates_by_cause::jobs_of_rows(trail, index, rows)?,
    )];
    while let Some((at, jobs)) = waiting.pop() {
        if !seen.insert(at) {
            continue;
        }
        let mut earlier = before(trail, at, rows, &jobs)?;
        earlier.retain(|earlier| *earlier < at && *earlier >= trail.first());
        if !trail.shows_all() {
            // A chain begins for its reader with the first event that this one may see.
            for hidden in earlier.clone() {
                if trail.event(hidden)?.is_none() {
                    earlier.remove(&hidden);
                }
            }
        }
        if earlier.is_empty() || seen.len() > STEPS {
            found.insert(at);
            continue;
        }
        for earlier in earlier {
            let jobs = match is_gathered(trail, earlier)? {
                true => super::updates_by_cause::jobs_of(trail, at)?,
                false => BTreeSet::new(),
            };
            waiting.push((earlier, jobs));
        }
    }
    Ok(found)
}

/// Whether an event may hold updates of several causes.
fn is_gathered(trail: &Trail<'_>, index: u64) -> Result<bool, AuditError> {
    let event = trail.event(index)?;
    Ok(event.is_some_and(|event| {
        let gathered = [EventKind::AllocsUpdatedByClient, EventKind::EvalsUpserted];
        gathered.contains(&event.kind)
    }))
}

/// The events that the one at an index belongs to, which was reached from events about `jobs`.
fn before(
    trail: &Trail<'_>,
    index: u64,
    rows: &[RowKey],
    jobs: &BTreeSet<JobKey>,
) -> Result<BTreeSet<u64>, AuditError> {
    let event = trail.event(index)?;
    if let Some(event) = &event
        && let Some(updates) = UpdatesByCause::of(trail, event)?
    {
        return Ok(updates.causes_of(rows, jobs));
    }
    let cause = event.and_then(|event| event.envelope?.cause);
    if cause.is_some() {
        return Ok(cause.into_iter().collect());
    }
    Ok(created_by(trail, index)?.into_iter().collect())
}

/// The event that created the thing which the one at an index is about.
fn created_by(trail: &Trail<'_>, index: u64) -> Result<Option<u64>, AuditError> {
    let view = trail.view();
    let mut registered = None;
    for change in trail.changes(index)? {
        let is_thing = [Evals::ID, Allocs::ID, Deployments::ID].contains(&change.table);
        if change.table == Jobs::ID && change.operation == Operation::Put {
            let job = trail.unless_damaged(view.get_at_encoded::<Jobs>(&change.key, index))?;
            if job.is_some_and(|job| job.job_modify_index == index) {
                // A job's registration begins a chain.
                return Ok(None);
            }
        }
        if !is_thing || change.operation == Operation::Rule {
            continue;
        }
        let created = change_indexes(trail, (change.table, &change.key), 0)?;
        let created = created.first().copied();
        if created.is_some_and(|created| created < index) {
            return Ok(created);
        }
        if change.table == Evals::ID {
            let eval = trail.unless_damaged(view.get_at_encoded::<Evals>(&change.key, index))?;
            let job = eval.map(|eval| eval.job_modify_index);
            registered = registered.or(job.filter(|job| (1..index).contains(job)));
        }
    }
    Ok(registered)
}
