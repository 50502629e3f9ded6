//! Reading a log from an index on, in order.

use std::collections::VecDeque;

use super::engine::LogEngine;
use super::error::LogError;
use super::format::{Entry, Epoch};
use super::readonly::ReadOnlyLog;

/// Bytes fetched at a time.
const CHUNK: usize = 256 << 10;

/// Anything entries can be read from by range.
pub(super) trait EntrySource {
    /// Some of the entries `from..to`, at least one if there is any.
    fn read_range(&self, from: u64, to: u64, max_bytes: usize) -> Result<Vec<Entry>, LogError>;
}

/// A log that can be read in order: a server's own log, or its segment files opened read-only.
pub trait ReadableLog: Sync {
    /// The entries from `from` on. Of a log that is written to ([`LogEngine`]) also those that are
    /// appended before the scan ends; of a [`ReadOnlyLog`] those that were there when it was opened
    /// or last refreshed.
    fn scan(&self, from: u64) -> Scan<'_>;
    /// One entry; `None` beyond the end.
    ///
    /// # Errors
    /// [`LogError::Purged`], or damage, which is never served.
    fn read(&self, index: u64) -> Result<Option<Entry>, LogError>;
    /// The first index, and the index after the last one.
    fn bounds(&self) -> (u64, u64);
    fn epoch(&self) -> Epoch;
}

impl ReadableLog for ReadOnlyLog {
    fn scan(&self, from: u64) -> Scan<'_> {
        ReadOnlyLog::scan(self, from)
    }

    fn read(&self, index: u64) -> Result<Option<Entry>, LogError> {
        ReadOnlyLog::read(self, index)
    }

    fn bounds(&self) -> (u64, u64) {
        ReadOnlyLog::bounds(self)
    }

    fn epoch(&self) -> Epoch {
        ReadOnlyLog::epoch(self)
    }
}

impl ReadableLog for LogEngine {
    fn scan(&self, from: u64) -> Scan<'_> {
        LogEngine::scan(self, from)
    }

    fn read(&self, index: u64) -> Result<Option<Entry>, LogError> {
        LogEngine::read(self, index)
    }

    fn bounds(&self) -> (u64, u64) {
        LogEngine::bounds(self)
    }

    fn epoch(&self) -> Epoch {
        LogEngine::epoch(self)
    }
}

/// An iterator over the entries from an index to the end of the log. Over a log that is written to
/// it ends where the log ends when it gets there; over one that is opened read-only, where that
/// ended when it was opened or last refreshed. After an error it ends.
pub struct Scan<'a> {
    source: &'a dyn EntrySource,
    next: u64,
    to: u64,
    ready: VecDeque<Entry>,
    done: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(source: &'a dyn EntrySource, from: u64, to: u64) -> Scan<'a> {
        Scan {
            source,
            next: from,
            to,
            ready: VecDeque::new(),
            done: false,
        }
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Entry, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && !self.done && self.next < self.to {
            match self.source.read_range(self.next, self.to, CHUNK) {
                Ok(entries) => {
                    self.done = entries.is_empty();
                    self.next += entries.len() as u64;
                    self.ready.extend(entries);
                }
                Err(e) => {
                    self.done = true;
                    return Some(Err(e));
                }
            }
        }
        self.ready.pop_front().map(Ok)
    }
}
