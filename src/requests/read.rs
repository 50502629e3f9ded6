//! Reading the request log, of a running server or from its files: requests with their ends.

use std::collections::HashMap;

use serde::Serialize;

use super::record::{COMPLETED, RECEIVED, parse};
use super::{Class, Completed, Received, Session};
use crate::log::{Entry as Record, LogEngine, LogError, ReadOnlyLog};

/// Records that are looked at for one page at most.
const LOOKS: u64 = 100_000;
/// Records after the last request of a page among which its end is looked for.
const AHEAD: u64 = 100_000;
/// Records read at a time.
const STRIDE: u64 = 512;
/// Bytes read at a time, about.
const CHUNK: usize = 1 << 20;

/// Records that can be read by their places.
pub trait Records {
    /// The first record, and the one after the last.
    fn bounds(&self) -> (u64, u64);

    /// Some of the records `from..to`, at least one if there is any.
    ///
    /// # Errors
    /// Damage, or records that are no longer kept.
    fn some(&self, from: u64, to: u64) -> Result<Vec<Record>, LogError>;
}

impl Records for LogEngine {
    fn bounds(&self) -> (u64, u64) {
        self.bounds()
    }

    fn some(&self, from: u64, to: u64) -> Result<Vec<Record>, LogError> {
        self.read_range(from, to, CHUNK)
    }
}

impl Records for ReadOnlyLog {
    fn bounds(&self) -> (u64, u64) {
        self.bounds()
    }

    fn some(&self, from: u64, to: u64) -> Result<Vec<Record>, LogError> {
        self.read_range(from, to, CHUNK)
    }
}

/// The queries of the request log.
#[derive(Clone, Debug, Default)]
pub struct RequestQuery {
    /// Only requests of this class.
    pub class: Option<Class>,
    /// Only requests of this actor: its kind, name, address, or the beginning of its id.
    pub actor: Option<String>,
    /// Only requests whose path has this beginning.
    pub path: Option<String>,
    /// The first record.
    pub from: u64,
    /// The last record; the newest without one.
    pub to: Option<u64>,
    /// Not before this time, Unix nanoseconds.
    pub since: Option<i64>,
    /// Not after this time, Unix nanoseconds.
    pub until: Option<i64>,
    pub newest_first: bool,
    /// Requests on a page at most.
    pub limit: usize,
}

/// A request, and its end where it has one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RequestLogEntry {
    /// Its place in this server's request log.
    pub index: u64,
    /// When it was received, Unix nanoseconds.
    pub time: i64,
    /// The request.
    #[serde(flatten)]
    pub received: Received,
    /// Whether it has an end, as far as this log knows: without one it is still being answered,
    /// or the server died over it.
    pub complete: bool,
    /// The status of the answer; 0 where there is no answer.
    pub status: u16,
    /// Nanoseconds it took; 0 where it has no end.
    pub took: i64,
    /// What came of the command that it ran, where it ran one to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// A page of requests.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub entries: Vec<RequestLogEntry>,
    /// Where the next page begins; none after the last.
    pub next: Option<u64>,
}

/// The requests that are requested.
///
/// # Errors
/// What cannot be read.
pub fn list(records: &dyn Records, requested: &RequestQuery) -> Result<Listing, LogError> {
    loop {
        match list_once(records, requested) {
            // Its beginning went meanwhile.
            Err(LogError::Purged { index, .. }) if index < records.bounds().0 => {}
            other => return other,
        }
    }
}

/// The first record that is kept and when it was written, of a log that lost its beginning.
///
/// # Errors
/// What cannot be read.
pub fn beginning(records: &dyn Records) -> Result<Option<(u64, i64)>, LogError> {
    match records.bounds() {
        (0, _) => Ok(None),
        (first, next) => {
            let found = records.some(first, next.min(first + 1))?;
            Ok(found.first().map(|record| (record.index, record.time)))
        }
    }
}

fn list_once(records: &dyn Records, requested: &RequestQuery) -> Result<Listing, LogError> {
    let (first, next) = records.bounds();
    let mut low = requested.from.max(first);
    let mut high = requested
        .to
        .map_or(next, |to| next.min(to.saturating_add(1)));
    if let Some(since) = requested.since {
        low = low.max(first_from(records, (first, next), since)?);
    }
    if let Some(until) = requested.until {
        high = high.min(first_from(records, (first, next), until.saturating_add(1))?);
    }
    let mut listing = Listing::default();
    let mut looks = 0;
    'pages: while low < high {
        let (from, to) = match requested.newest_first {
            true => (high.saturating_sub(STRIDE).max(low), high),
            false => (low, high.min(low + STRIDE)),
        };
        let mut stride = stretch(records, from, to)?;
        if requested.newest_first {
            stride.reverse();
            high = from;
        } else {
            low = to;
        }
        for record in stride {
            if listing.entries.len() >= requested.limit || looks >= LOOKS {
                listing.next = Some(record.index);
                break 'pages;
            }
            looks += 1;
            listing.entries.extend(entry(&record, requested));
        }
    }
    find_ends(records, &mut listing.entries, next)?;
    Ok(listing)
}

/// All records `from..to`.
fn stretch(records: &dyn Records, from: u64, to: u64) -> Result<Vec<Record>, LogError> {
    let mut all = Vec::new();
    let mut at = from;
    while at < to {
        let some = records.some(at, to)?;
        let Some(last) = some.last() else { break };
        at = last.index + 1;
        all.extend(some);
    }
    Ok(all)
}

/// The first record at or after a time.
fn first_from(
    records: &dyn Records,
    (mut low, mut high): (u64, u64),
    time: i64,
) -> Result<u64, LogError> {
    // Times never run backwards.
    while low < high {
        let middle = low + (high - low) / 2;
        let found = records.some(middle, middle + 1)?;
        match found.first() {
            Some(record) if record.time < time => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

fn entry(record: &Record, requested: &RequestQuery) -> Option<RequestLogEntry> {
    if record.kind != RECEIVED {
        return None;
    }
    let received: Received = parse(&record.body)?;
    let by = |actor: &String| received.actor.is_called(actor);
    let below = |path: &String| received.path.starts_with(path.as_str());
    let wanted = requested.class.is_none_or(|class| class == received.class)
        && requested.actor.as_ref().is_none_or(by)
        && requested.path.as_ref().is_none_or(below);
    wanted.then_some(RequestLogEntry {
        index: record.index,
        time: record.time,
        received,
        complete: false,
        status: 0,
        took: 0,
        session: None,
    })
}

/// Finds the ends of requests among the records behind them.
fn find_ends(
    records: &dyn Records,
    entries: &mut [RequestLogEntry],
    next: u64,
) -> Result<(), LogError> {
    let places = entries.iter().enumerate();
    let mut open: HashMap<(u64, i64), usize> = places
        .map(|(place, entry)| ((entry.index, entry.time), place))
        .collect();
    let indexes = || entries.iter().map(|entry| entry.index);
    let (Some(first), Some(last)) = (indexes().min(), indexes().max()) else {
        return Ok(());
    };
    let (mut at, end) = (first, next.min(last.saturating_add(AHEAD)));
    while at < end && !open.is_empty() {
        let some = records.some(at, end)?;
        let Some(last) = some.last() else { break };
        at = last.index + 1;
        for record in some.iter().filter(|record| record.kind == COMPLETED) {
            let Some(end) = parse::<Completed>(&record.body) else {
                continue;
            };
            if let Some(place) = open.remove(&(end.received, end.received_time)) {
                let entry = &mut entries[place];
                (entry.complete, entry.status, entry.took) = (true, end.status, end.took);
                entry.session = end.session;
            }
        }
    }
    Ok(())
}
