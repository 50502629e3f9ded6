//! One walk over what happened: `changes`, and the log itself where more than rows is wanted.

use std::collections::VecDeque;

use drover_events::{Actor, BodyParts, EventKind, Header, Recorded};
use drover_projections::ChangeCursor;
use drover_projections::changes::Change;
use drover_projections::view::View;

use crate::error::{Code, Refusal, chain};
use crate::http::list::storage;
use crate::log::{Entry, LogEngine, LogError};

/// Bytes of the log fetched at a time.
const FETCH: usize = 128 << 10;

/// Where what happened is read.
#[derive(Clone, Copy)]
pub(super) struct WalkSource<'a> {
    pub(super) view: &'a View,
    pub(super) log: &'a LogEngine,
}

impl WalkSource<'_> {
    /// The first index that is sent from here.
    pub(super) fn horizon(&self) -> u64 {
        horizon(self.view, self.log)
    }
}

/// The first index sent from here: behind the snapshot this server began with, and within its log.
pub(super) fn horizon(view: &View, log: &LogEngine) -> u64 {
    log.bounds().0.max(view.position().floor + 1)
}

/// Refuses a position below the horizon.
///
/// # Errors
/// 410 that names the first index there is.
pub(super) fn require_horizon(index: u64, horizon: u64) -> Result<(), Refusal> {
    if index >= horizon {
        return Ok(());
    }
    let text = format!(
        "the events at index {index} are gone: the first ones here are at {horizon}, the horizon"
    );
    Err(Refusal::new(Code::Gone, text))
}

fn unreadable(error: &LogError) -> Refusal {
    tracing::error!(%error, "the log cannot be read");
    Refusal::internal(format!("log error: {error}"))
}

/// One index.
#[derive(Debug)]
pub(super) struct WalkItem {
    pub(super) index: u64,
    /// The kind; none where what is kept of it cannot be read.
    pub(super) kind: Option<EventKind>,
    /// The topics of its rows, or its own topic.
    pub(super) topics: u64,
    /// The event as it is in the log, on walks over it.
    entry: Option<Entry>,
}

impl WalkItem {
    /// Whether the event itself is sent, not its rows.
    pub(super) fn is_own(&self) -> bool {
        self.kind.is_some_and(|kind| kind.own_topic().is_some())
    }

    /// Who did it; none for Raft's own entries.
    ///
    /// # Errors
    /// When the log's entry cannot be decoded.
    pub(super) fn actor(&self) -> Result<Option<Actor>, Refusal> {
        let (Some(entry), false) = (&self.entry, self.kind.is_none_or(EventKind::is_raft_own))
        else {
            return Ok(None);
        };
        let parts = BodyParts::split(&entry.body);
        let header = parts.and_then(|parts| Header::decode(parts.rest));
        let (header, _) = header.map_err(|e| Refusal::internal(chain(&e)))?;
        Ok(Some(header.actor))
    }

    /// The whole event, on walks over the log.
    ///
    /// # Errors
    /// When it cannot be decoded, or the walk is not one over the log.
    pub(super) fn recorded(&self) -> Result<Recorded, Refusal> {
        let index = self.index;
        let Some(entry) = &self.entry else {
            return Err(Refusal::internal(format!("no event at index {index}")));
        };
        drover_migrations::decode(&entry.body).map_err(|error| {
            let text = format!(
                "the event at index {index} cannot be read: {}",
                chain(&error)
            );
            Refusal::internal(text)
        })
    }
}

pub(super) struct StreamWalk<'a> {
    source: WalkSource<'a>,
    cursor: ChangeCursor<'a>,
    /// The index under the cursor; none at its end.
    at: Option<u64>,
    entries: Option<VecDeque<Entry>>,
    next: u64,
    last: u64,
}

impl<'a> StreamWalk<'a> {
    /// Over the indexes `first..=last`; with the log, or over those with changes only.
    ///
    /// # Errors
    /// When the changes cannot be read.
    pub(super) fn new(
        source: WalkSource<'a>,
        (first, last): (u64, u64),
        with_log: bool,
    ) -> Result<Self, Refusal> {
        let mut walk = Self {
            source,
            cursor: source.view.change_cursor(first, last),
            at: None,
            entries: with_log.then(VecDeque::new),
            next: first,
            last,
        };
        walk.step()?;
        Ok(walk)
    }

    fn step(&mut self) -> Result<(), Refusal> {
        self.at = match self.cursor.advance().map_err(storage)? {
            true => Some(self.cursor.index().map_err(storage)?),
            false => None,
        };
        Ok(())
    }

    /// The next index there is something about.
    ///
    /// # Errors
    /// When changes or log cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<WalkItem>, Refusal> {
        if self.next > self.last {
            return Ok(None);
        }
        let Some(entries) = &mut self.entries else {
            while self.at.is_some_and(|at| at < self.next) {
                self.step()?;
            }
            return Ok(self.at.map(|index| {
                self.next = index + 1;
                self.item(index, None)
            }));
        };
        if entries.is_empty() {
            let log = self.source.log;
            let read = log.read_range(self.next, self.last + 1, FETCH);
            entries.extend(read.map_err(|e| unreadable(&e))?);
        }
        let Some(entry) = entries.pop_front() else {
            return Ok(None);
        };
        self.next = entry.index + 1;
        while self.at.is_some_and(|at| at < entry.index) {
            self.step()?;
        }
        Ok(Some(self.item(entry.index, Some(entry))))
    }

    fn item(&self, index: u64, entry: Option<Entry>) -> WalkItem {
        let changed = (self.at == Some(index)).then(|| self.cursor.topics());
        let (mut kind, mut topics) = match changed {
            Some(Some((kind, topics))) => (Some(kind), topics),
            Some(None) => (None, 0),
            None => (
                entry.as_ref().and_then(|e| EventKind::from_number(e.kind)),
                0,
            ),
        };
        if let Some(topic) = kind.and_then(EventKind::own_topic) {
            topics = if entry.is_some() { topic.bit() } else { 0 };
        }
        if entry.is_none() && changed.is_none() {
            kind = None;
        }
        WalkItem {
            index,
            kind,
            topics,
            entry,
        }
    }

    /// The changes of the item the walk is at.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn changes(&self, item: &WalkItem) -> Result<Vec<Change>, Refusal> {
        match self.at {
            Some(at) if at == item.index => self.cursor.changes().map_err(storage),
            _ => Ok(Vec::new()),
        }
    }

    /// Whether the event changed nothing because apply refused it.
    ///
    /// # Errors
    /// When outcomes cannot be read.
    pub(super) fn was_refused(&self, item: &WalkItem) -> Result<bool, Refusal> {
        let rejection = self.source.view.rejection(item.index).map_err(storage)?;
        Ok(rejection.is_some())
    }
}
