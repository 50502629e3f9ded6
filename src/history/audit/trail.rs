//! The walk over the past that answers a question.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use drover_events::{EventKind, Recorded};
use drover_projections::changes::Change;
use drover_projections::key::{Id, Key as _};
use drover_projections::{Rejection, StorageError, Table, View};

use super::entry::{Detail, Entry as AuditEntry, ReadEvent};
use super::object::ObjectHistory;
use super::question::{AuditPage, OutcomeFilter, Question};
use super::{AuditError, or_why};
use crate::history::record::redact::Finder;
use crate::history::record::{Payload, Redactor, reason};
use crate::log::{Entry as Logged, LogEngine};

/// Events that are looked at for one page at most.
pub const LOOKS: usize = 20_000;
/// Changes that are read for about one page for a reader with limited rights: those hidden from
/// this reader end no page. No event has as many.
pub(super) const CHANGES: usize = 200_000;
/// Rows of which it is looked up for one page whether they were there before an event changed them.
const LOOKUPS: usize = 8_192;
/// Events read from the log at a time.
const STRIDE: u64 = 64;
/// Bytes read from the log at a time, about.
const CHUNK: usize = 1 << 20;

/// Things that begin with the same letters of which one is looked for that may be seen.
const MANY: usize = 64;

/// What answers: one view, and the log it came from.
pub struct Trail<'a> {
    view: &'a View,
    log: &'a LogEngine,
    redactor: &'a Redactor,
    eyes: Eyes<'a>,
    /// Something was left out because it is damaged.
    is_damaged: Cell<bool>,
}

/// What the caller may see of the past.
#[derive(Clone, Copy)]
pub enum Eyes<'a> {
    /// Everything.
    All,
    /// The changes that this function accepts: others are hidden from the caller, and events
    /// without an accepted change are left out.
    Some(Sees<'a>),
}

/// Says of a change whether the caller may see it.
pub type Sees<'a> = &'a dyn Fn(&Change) -> bool;

/// Rows of events, and whether they may be seen: a caller who queries row after row has each event
/// read once and not once for each of its rows.
#[derive(Default)]
pub(super) struct Shown {
    events: HashMap<u64, RowVisibility>,
    held: usize,
    read: usize,
}

/// A row of a table by its key; whether it may be seen.
type RowVisibility = HashMap<(u16, Vec<u8>), bool>;

impl Shown {
    /// How many changes were read.
    pub(super) fn read(&self) -> usize {
        self.read
    }

    fn rows(
        &mut self,
        trail: &Trail<'_>,
        sees: Sees<'_>,
        at: u64,
    ) -> Result<&RowVisibility, AuditError> {
        if self.held > CHANGES && !self.events.contains_key(&at) {
            (self.events, self.held) = (HashMap::new(), 0);
        }
        match self.events.entry(at) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let changes = trail.all_changes(at)?;
                self.held += changes.len() + 1;
                self.read += changes.len();
                let mut rows = RowVisibility::new();
                for change in changes {
                    let seen = sees(&change);
                    rows.entry((change.table, change.key)).or_insert(seen);
                }
                Ok(place.insert(rows))
            }
        }
    }
}

impl<'a> Trail<'a> {
    /// A trail that ends where the view does, as `eyes` see it; `redactor` hides what is
    /// confidential.
    pub fn new(view: &'a View, log: &'a LogEngine, redactor: &'a Redactor, eyes: Eyes<'a>) -> Self {
        Self {
            view,
            log,
            redactor,
            eyes,
            is_damaged: Cell::new(false),
        }
    }

    /// What was read; nothing where it is damaged, which keeps no other from being shown.
    pub(super) fn unless_damaged<T: Default>(
        &self,
        found: Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        match found {
            Err(error) if error.is_damage() => {
                self.is_damaged.set(true);
                Ok(T::default())
            }
            found => found,
        }
    }

    /// The same of a row that may be others': who may not see everything learns nothing of it.
    pub(super) fn unless_others_damaged<T: Default>(
        &self,
        found: Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        match found {
            Err(error) if error.is_damage() && !self.shows_all() => Ok(T::default()),
            found => self.unless_damaged(found),
        }
    }

    /// Why an event was rejected, if it was, as far as the reader may know it.
    pub(super) fn rejection(&self, index: u64) -> Result<Option<String>, AuditError> {
        let (mut rejected, unknown) = rejected(self.view.rejection(index))?;
        if unknown.is_some() {
            self.is_damaged.set(true);
            if let Some(why) = &mut rejected {
                self.cover_why(why);
            }
        }
        Ok(rejected)
    }

    /// Whether something was left out until now because it is damaged.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged.get()
    }

    /// Whether everything may be seen.
    pub(super) fn shows_all(&self) -> bool {
        matches!(self.eyes, Eyes::All)
    }

    /// Keeps from who may not see everything what says where on the disk the damage is.
    pub(super) fn cover_why(&self, why: &mut String) {
        if !why.is_empty() && !self.shows_all() {
            "it is damaged".clone_into(why);
        }
    }

    /// Whether something may be seen of what an event changed.
    pub(super) fn shows(&self, index: u64) -> Result<bool, AuditError> {
        Ok(self.shows_all() || !self.changes(index)?.is_empty())
    }

    /// Whether a row may be seen, by the first of its changes that is known. One is not whose
    /// changes are damaged. What `shown` holds of its event is not read again.
    pub(super) fn shows_row(
        &self,
        shown: &mut Shown,
        table: u16,
        key: &[u8],
    ) -> Result<bool, AuditError> {
        let Eyes::Some(sees) = self.eyes else {
            return Ok(true);
        };
        let seen = self.sees_row((sees, shown), table, key);
        Ok(or_why(seen)?.0)
    }

    fn sees_row(
        &self,
        (sees, shown): (Sees<'_>, &mut Shown),
        table: u16,
        key: &[u8],
    ) -> Result<bool, AuditError> {
        let row = (table, key.to_vec());
        for index in self.view.change_indexes_of(table, key, 0)? {
            if let Some(seen) = shown.rows(self, sees, index)?.get(&row) {
                return Ok(*seen);
            }
        }
        Ok(false)
    }

    /// What hides confidential values.
    pub(super) fn redactor(&self) -> &'a Redactor {
        self.redactor
    }

    pub(super) fn view(&self) -> &'a View {
        self.view
    }

    /// The first event that is known here: what is older is gone from the log, or was taken in with
    /// a snapshot.
    pub fn first(&self) -> u64 {
        let floor = self.view.position().floor;
        let first = if floor == 0 { 0 } else { floor + 1 };
        first.max(self.log.bounds().0)
    }

    /// The first event that is known and the Unix nanoseconds of it, where what came before was
    /// dropped.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn beginning(&self) -> Result<Option<(u64, i64)>, AuditError> {
        if self.view.position().floor == 0 {
            return Ok(None);
        }
        let first = self.first();
        // Raft's own entries have no time.
        let events = self.log.read_range(first, first + STRIDE, CHUNK)?;
        let mut times = events.iter().map(|event| event.time);
        let time = times.find(|time| *time != 0);
        Ok(time.map(|time| (first, time)))
    }

    /// The last event that is known.
    pub fn last(&self) -> u64 {
        self.view.index()
    }

    /// The event at an index; none beyond the end.
    pub(super) fn event(&self, index: u64) -> Result<Option<Recorded>, AuditError> {
        Ok(self.named_event(index)?.map(|(event, _)| event))
    }

    /// The same, with the name of its kind: of one that only another version knows it is `unknown`.
    pub(super) fn named_event(
        &self,
        index: u64,
    ) -> Result<Option<(Recorded, &'static str)>, AuditError> {
        if index > self.last() || index < self.first() {
            return Ok(None);
        }
        if !self.shows(index)? {
            return Ok(None);
        }
        let Some(entry) = self.log.read(index)? else {
            return Ok(None);
        };
        let (event, undecoded) = recorded(&entry)?;
        if undecoded.is_some() {
            self.is_damaged.set(true);
        }
        let is_shown = undecoded.is_none() || self.shows_all();
        Ok(is_shown.then_some((event, kind_name(&entry))))
    }

    /// The identifiers with this beginning that may be seen, some at most.
    pub(super) fn ids<T: Table<Key = Id>>(
        &self,
        text: &str,
        most: usize,
    ) -> Result<Vec<String>, AuditError> {
        if self.shows_all() {
            return Ok(self.view.ids_including_deleted::<T>(text, most)?);
        }
        let (mut found, mut shown) = (Vec::new(), Shown::default());
        for id in self.view.ids_including_deleted::<T>(text, MANY)? {
            let key = Id::new(id.as_str()).to_bytes().to_vec();
            if found.len() < most && self.shows_row(&mut shown, T::ID, &key)? {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// What the event at an index changed, as far as it may be seen; nothing where that is damaged.
    pub(super) fn changes(&self, index: u64) -> Result<Vec<Change>, AuditError> {
        Ok(self.readable_changes(index)?.0)
    }

    /// The same, and whether it is damaged: then why.
    pub(super) fn readable_changes(
        &self,
        index: u64,
    ) -> Result<(Vec<Change>, Option<String>), AuditError> {
        let (mut changes, damaged) = or_why(self.all_changes(index))?;
        // Whether it may be seen is not known then.
        if damaged.is_some() && self.shows_all() {
            self.is_damaged.set(true);
        }
        if let Eyes::Some(sees) = self.eyes {
            changes.retain(sees);
        }
        Ok((changes, damaged))
    }

    /// What the event at an index changed. What others changed is not read: it may be damaged.
    fn all_changes(&self, index: u64) -> Result<Vec<Change>, AuditError> {
        let mut cursor = self.view.change_cursor(index, index);
        match cursor.advance()? {
            true => Ok(cursor.changes()?),
            false => Ok(Vec::new()),
        }
    }

    /// Answers a question, entry by entry; `take` says whether to continue.
    ///
    /// # Errors
    /// The thing or event in question never existed, is gone, or cannot be read; or those of
    /// `take`.
    pub fn answer<E: From<AuditError>>(
        &self,
        question: &Question,
        mut take: impl FnMut(&AuditEntry) -> Result<bool, E>,
    ) -> Result<AuditPage, E> {
        let known = match &question.object {
            Some(object) => Some(object.find(self).map_err(E::from)?),
            None => None,
        };
        let finder = match &question.value {
            Some(value) => {
                let finder = self.redactor.finder(value);
                Some(finder.ok_or_else(|| E::from(AuditError::NoKey))?)
            }
            None => None,
        };
        let mut walk = TrailWalk::new(self, question, known.as_ref());
        let mut page = AuditPage::default();
        let (mut looks, mut read, mut lookups) = (0, 0, LOOKUPS);
        while let Some(logged) = walk.next().map_err(E::from)? {
            if page.entries >= question.limit || looks >= LOOKS || read >= CHANGES {
                page.next = Some(logged.index);
                break;
            }
            looks += 1;
            let entry = self.entry_of(
                &logged,
                question,
                (known.as_ref(), finder.as_ref()),
                (&mut read, &mut lookups),
            );
            let Some(entry) = entry.map_err(E::from)? else {
                continue;
            };
            page.entries += 1;
            if !take(&entry)? {
                page.next = walk.next().map_err(E::from)?.map(|logged| logged.index);
                break;
            }
        }
        Ok(page)
    }

    /// The entry of an event, if it is wanted; the number of changes whose visibility was checked
    /// is added to `read`, that of rows that were looked up is taken from `lookups`. One of which
    /// something cannot be read says so, and is left out for a reader who may not see everything.
    fn entry_of(
        &self,
        logged: &Logged,
        question: &Question,
        (known, finder): (Option<&ObjectHistory>, Option<&Finder<'_>>),
        (read, lookups): (&mut usize, &mut usize),
    ) -> Result<Option<AuditEntry>, AuditError> {
        if !question.takes_kind(logged.kind) {
            return Ok(None);
        }
        let (changes, damaged) = or_why(self.all_changes(logged.index))?;
        let all = changes.len();
        let changes = match self.eyes {
            Eyes::All => changes,
            Eyes::Some(sees) => {
                *read += all;
                changes.into_iter().filter(sees).collect()
            }
        };
        // An event is shown for the changes that may be seen; its payload, and what stands in it,
        // where all of its changes may.
        let (hidden, whole) = (changes.is_empty(), changes.len() == all);
        if !self.shows_all() && (hidden || (finder.is_some() && !whole)) {
            return Ok(None);
        }
        let (event, undecoded) = recorded(logged)?;
        if !question.takes(&event) || finder.is_some_and(|finder| !holds(&event, finder)) {
            return Ok(None);
        }
        let (rejected, unknown) = rejected(self.view.rejection(logged.index))?;
        let unreadable = undecoded.or(damaged).or(unknown);
        if unreadable.is_some() && !self.shows_all() {
            return Ok(None);
        }
        let applied = rejected.is_none();
        match question.wanted {
            OutcomeFilter::Applied if !applied => return Ok(None),
            OutcomeFilter::Rejected if applied => return Ok(None),
            _ => {}
        }
        let inside = |name: &String| changes.iter().any(|change| change.namespace == *name);
        if !question.namespace.as_ref().is_none_or(inside) {
            return Ok(None);
        }
        let detail = Detail {
            payload: question.detail.payload && (whole || self.shows_all()),
            ..question.detail
        };
        let mut entry = AuditEntry::new(
            (self.view, self.redactor),
            ReadEvent {
                kind: kind_name(logged),
                event,
                rejected,
                unreadable,
            },
            &changes,
            (detail, known),
            lookups,
        )?;
        for change in &mut entry.changes {
            self.cover_why(&mut change.unreadable);
        }
        Ok(Some(entry))
    }
}

fn kind_name(logged: &Logged) -> &'static str {
    EventKind::from_number(logged.kind).map_or("unknown", EventKind::name)
}

/// An event; where it cannot be decoded what the log says of it, and why.
fn recorded(logged: &Logged) -> Result<(Recorded, Option<String>), AuditError> {
    let (event, undecoded) = or_why(decode(logged).map(Some))?;
    let named = || Recorded {
        index: logged.index,
        term: 0,
        kind: EventKind::from_number(logged.kind).unwrap_or(EventKind::RaftBlank),
        time: logged.time,
        envelope: None,
    };
    Ok((event.unwrap_or_else(named), undecoded))
}

/// Why an event was rejected, if it was, and where the reason is damaged why: only of events that
/// were rejected one is kept.
pub(super) fn rejected(
    found: Result<Option<Rejection>, StorageError>,
) -> Result<(Option<String>, Option<String>), AuditError> {
    match found {
        Ok(rejection) => Ok((rejection.as_ref().map(reason), None)),
        Err(error) if error.is_single_entry() => {
            let why = crate::error::chain(&error);
            Ok((Some(why.clone()), Some(why)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a sensitive field of an event holds what is looked for.
fn holds(event: &Recorded, finder: &Finder<'_>) -> bool {
    let envelope = event.envelope.as_ref();
    envelope.is_some_and(|envelope| finder.is_in(&Payload(&envelope.event)))
}

/// Decodes what the log holds.
pub(super) fn decode(logged: &Logged) -> Result<Recorded, AuditError> {
    drover_migrations::decode(&logged.body).map_err(|source| AuditError::Decode {
        index: logged.index,
        source,
    })
}

/// Events in the order of a question, read from the log a stride at a time.
struct TrailWalk<'a> {
    trail: &'a Trail<'a>,
    /// The indexes that may matter; all where the query names no thing.
    known: Option<&'a ObjectHistory>,
    newest_first: bool,
    /// What is left, both ends included; none when nothing is.
    left: Option<(u64, u64)>,
    ready: std::collections::VecDeque<Logged>,
}

impl<'a> TrailWalk<'a> {
    fn new(trail: &'a Trail<'a>, question: &Question, known: Option<&'a ObjectHistory>) -> Self {
        let from = question.from.max(trail.first());
        let to = question.to.min(trail.last());
        Self {
            trail,
            known,
            newest_first: question.newest_first,
            left: (from <= to).then_some((from, to)),
            ready: Default::default(),
        }
    }

    fn next(&mut self) -> Result<Option<Logged>, AuditError> {
        while self.ready.is_empty() {
            let Some((from, to)) = self.left else {
                return Ok(None);
            };
            match self.known {
                Some(known) => self.next_known(known, from, to)?,
                None => self.next_stride(from, to)?,
            }
        }
        Ok(self.ready.pop_front())
    }

    fn next_known(&mut self, known: &ObjectHistory, from: u64, to: u64) -> Result<(), AuditError> {
        let mut range = known.change_indexes.range(from..=to);
        let at = match self.newest_first {
            true => range.next_back(),
            false => range.next(),
        };
        let Some(&at) = at else {
            self.left = None;
            return Ok(());
        };
        self.left = match self.newest_first {
            true => at
                .checked_sub(1)
                .filter(|to| from <= *to)
                .map(|to| (from, to)),
            false => (at < to).then_some((at + 1, to)),
        };
        self.ready.extend(self.trail.log.read(at)?);
        Ok(())
    }

    fn next_stride(&mut self, from: u64, to: u64) -> Result<(), AuditError> {
        if self.newest_first {
            return self.stride_back(from, to);
        }
        let end = to.saturating_add(1);
        let entries = self.trail.log.read_range(from, end, CHUNK)?;
        let next = from + entries.len() as u64;
        self.left = (next <= to && !entries.is_empty()).then_some((next, to));
        self.ready.extend(entries);
        Ok(())
    }

    fn stride_back(&mut self, from: u64, to: u64) -> Result<(), AuditError> {
        let first = from.max((to + 1).saturating_sub(STRIDE));
        let mut at = first;
        while at <= to {
            let entries = self.trail.log.read_range(at, to + 1, CHUNK)?;
            if entries.is_empty() {
                break;
            }
            at += entries.len() as u64;
            self.ready.extend(entries);
        }
        self.ready.make_contiguous().reverse();
        self.left = first
            .checked_sub(1)
            .filter(|to| from <= *to)
            .map(|to| (from, to));
        Ok(())
    }
}

#[cfg(test)]
#[path = "trail_test.rs"]
mod tests;
