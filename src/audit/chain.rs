//! The events of a cause chain, found by the things they created and the causes they name.

use std::collections::{BTreeMap, BTreeSet};

use drover_projections::changes::{Change, Operation};
use drover_projections::key::{Id, Key};
use drover_projections::tables::allocs::AllocsByEval;
use drover_projections::tables::evals::EvalsByJob;
use drover_projections::tables::{Allocs, Deployments, Evals, Jobs};
use drover_projections::{StorageError, Table, View};

use super::{AuditError, Trail};

/// Events of one chain at most.
const MOST: usize = 2_000;
/// Steps to the first event of a chain at most.
const STEPS: usize = 200;

/// How an event belongs to the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It names it as its cause.
    Cause,
    /// It is about a thing that came of it.
    Thing,
}

/// The events of a chain.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// By index: the cause each names, and the last event before it whose thing it is about.
    events: BTreeMap<u64, (Option<u64>, Option<u64>)>,
    /// Whether there are more.
    pub(super) truncated: bool,
}

impl Chain {
    /// Adds an event and all that followed.
    pub(super) fn follow(&mut self, trail: &Trail<'_>, root: u64) -> Result<(), AuditError> {
        let mut waiting = BTreeSet::from([(root, None)]);
        while let Some((index, from)) = waiting.pop_first() {
            if let Some((_, known)) = self.events.get_mut(&index) {
                // The last thing is the nearest.
                *known = from.max(*known);
                continue;
            }
            if self.events.len() >= MOST {
                self.truncated = true;
                break;
            }
            let Some(event) = trail.event(index)? else {
                continue;
            };
            let cause = event.envelope.and_then(|envelope| envelope.cause);
            self.events.insert(index, (cause, from));
            for next in followers(trail, index)? {
                waiting.insert((next, Some(index)));
            }
        }
        Ok(())
    }

    /// Which event each belongs to, and how; none for the first ones.
    pub(super) fn parents(&self) -> BTreeMap<u64, Option<(u64, Way)>> {
        let known = |index: &u64| self.events.contains_key(index);
        let parent = |index: u64, cause: Option<u64>, thing: Option<u64>| {
            let before = |parent: &u64| *parent < index && known(parent);
            let cause = cause.filter(before).map(|cause| (cause, Way::Cause));
            cause.or(thing.filter(before).map(|thing| (thing, Way::Thing)))
        };
        let events = self.events.iter();
        events
            .map(|(index, (cause, thing))| (*index, parent(*index, *cause, *thing)))
            .collect()
    }
}

/// The later events that are about things which the event at an index created.
fn followers(trail: &Trail<'_>, index: u64) -> Result<BTreeSet<u64>, AuditError> {
    let view = trail.view();
    let mut found = BTreeSet::new();
    for change in trail.changes(index)? {
        if change.operation != Operation::Put {
            continue;
        }
        match change.table {
            Jobs::ID => found.extend(evals_of(view, &change)?),
            Evals::ID if is_new(view, &change)? => {
                let id = Id::from_bytes(&change.key).unwrap_or_default();
                for alloc in view.members_ever::<AllocsByEval>(&id)? {
                    let moments = view.moments_of(Allocs::ID, &alloc, 0)?;
                    found.extend(moments.first());
                }
                found.extend(view.moments_of(Evals::ID, &change.key, index)?);
            }
            Allocs::ID | Deployments::ID if is_new(view, &change)? => {
                found.extend(view.moments_of(change.table, &change.key, index)?);
            }
            _ => {}
        }
    }
    Ok(found.split_off(&index.saturating_add(1)))
}

/// Whether the change is the row's first.
fn is_new(view: &View, change: &Change) -> Result<bool, AuditError> {
    let moments = view.moments_of(change.table, &change.key, 0)?;
    Ok(moments.first() == Some(&change.index))
}

/// When the evaluations of a job's version were created, if the change is its registration.
fn evals_of(view: &View, change: &Change) -> Result<BTreeSet<u64>, StorageError> {
    let mut found = BTreeSet::new();
    let index = change.index;
    let job = view.get_at_encoded::<Jobs>(&change.key, index)?;
    let Some(job) = job.filter(|job| job.job_modify_index == index) else {
        return Ok(found);
    };
    for key in view.members_ever::<EvalsByJob>((job.namespace.as_str(), job.id.as_str()))? {
        let Some(created) = view.moments_of(Evals::ID, &key, 0)?.first().copied() else {
            continue;
        };
        let eval = view.get_at_encoded::<Evals>(&key, created)?;
        if eval.is_some_and(|eval| eval.job_modify_index == index) {
            found.insert(created);
        }
    }
    Ok(found)
}

/// The first event of the chain that the event at an index belongs to.
pub(super) fn root(trail: &Trail<'_>, index: u64) -> Result<u64, AuditError> {
    let mut at = index;
    for _ in 0..STEPS {
        match before(trail, at)? {
            Some(earlier) if earlier < at && earlier >= trail.first() => at = earlier,
            _ => break,
        }
    }
    Ok(at)
}

/// The event that the one at an index belongs to.
fn before(trail: &Trail<'_>, index: u64) -> Result<Option<u64>, AuditError> {
    let event = trail.event(index)?;
    let cause = event.and_then(|event| event.envelope?.cause);
    if cause.is_some() {
        return Ok(cause);
    }
    let view = trail.view();
    let mut registered = None;
    for change in trail.changes(index)? {
        let is_thing = [Evals::ID, Allocs::ID, Deployments::ID].contains(&change.table);
        if change.table == Jobs::ID && change.operation == Operation::Put {
            let job = view.get_at_encoded::<Jobs>(&change.key, index)?;
            if job.is_some_and(|job| job.job_modify_index == index) {
                // Whoever registers a job begins a chain.
                return Ok(None);
            }
        }
        if !is_thing || change.operation == Operation::Rule {
            continue;
        }
        let created = view
            .moments_of(change.table, &change.key, 0)?
            .first()
            .copied();
        if created.is_some_and(|created| created < index) {
            return Ok(created);
        }
        if change.table == Evals::ID {
            let eval = view.get_at_encoded::<Evals>(&change.key, index)?;
            let job = eval.map(|eval| eval.job_modify_index);
            registered = registered.or(job.filter(|job| (1..index).contains(job)));
        }
    }
    Ok(registered)
}
