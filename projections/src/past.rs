//! Walks over tables and indexes as they were after an earlier event.
//!
//! A row that lives since before that event is still in `rows`; one that was changed or deleted
//! since left the version of then in `history`. The two never hold the same key at one index, so a
//! walk over the past is a merge of both, in key order, with the same interface as one over the
//! present.

use std::iter::Peekable;
use std::vec::IntoIter;

use crate::db::{Family, Frozen, RawCursor};
use crate::error::StorageError;
use crate::history;
use crate::row;
use crate::scan::{Range, Scan, Source, Walk};
use crate::table::{Index, Table};

/// Longer than the index that follows a key in `history`: above every version of the key.
const ABOVE_VERSIONS: [u8; 9] = [0xff; 9];

/// The rows of a range as of an index.
pub(crate) struct PastRows<'a> {
    index: u64,
    living: Walk<'a>,
    ended: Ended<'a>,
    /// Which side stands at an entry that was not yet given.
    ready: (Side, Side),
    current: Current,
    reverse: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Behind,
    At,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Current {
    None,
    Living,
    Ended,
}

impl<'a> PastRows<'a> {
    /// The rows of `range` (table ‖ key) after the event at `index`.
    pub(crate) fn new(frozen: &'a Frozen, range: Range, index: u64) -> Self {
        Self {
            index,
            reverse: range.reverse,
            ended: Ended::new(frozen, range.clone(), index),
            living: Source::Frozen(frozen).walk(Family::Rows, range),
            ready: (Side::Behind, Side::Behind),
            current: Current::None,
        }
    }

    /// Moves to the next row; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, StorageError> {
        match self.current {
            Current::Living => self.ready.0 = Side::Behind,
            Current::Ended => self.ready.1 = Side::Behind,
            Current::None => {}
        }
        if self.ready.0 == Side::Behind {
            self.ready.0 = self.next_living()?;
        }
        if self.ready.1 == Side::Behind {
            self.ready.1 = at_or_done(self.ended.advance()?);
        }
        self.current = match self.ready {
            (Side::At, Side::At) => {
                let living_first = (self.living.key() < self.ended.key()) != self.reverse;
                if living_first {
                    Current::Living
                } else {
                    Current::Ended
                }
            }
            (Side::At, _) => Current::Living,
            (_, Side::At) => Current::Ended,
            _ => Current::None,
        };
        Ok(self.current != Current::None)
    }

    /// The next living row that was written at or before the index.
    fn next_living(&mut self) -> Result<Side, StorageError> {
        while self.living.advance()? {
            let modified = row::modified(self.living.value())
                .ok_or_else(|| StorageError::damaged("row", self.living.key()))?;
            if modified <= self.index {
                return Ok(Side::At);
            }
        }
        Ok(Side::Done)
    }

    /// table ‖ key.
    pub(crate) fn key(&self) -> &[u8] {
        match self.current {
            Current::Ended => self.ended.key(),
            _ => self.living.key(),
        }
    }

    /// The value as `rows` would hold it.
    pub(crate) fn value(&self) -> &[u8] {
        match self.current {
            Current::Ended => &self.ended.value,
            _ => self.living.value(),
        }
    }
}

fn at_or_done(found: bool) -> Side {
    if found { Side::At } else { Side::Done }
}

/// The ended versions of a range that were alive at an index, one a key at most.
struct Ended<'a> {
    cursor: RawCursor<'a>,
    range: Range,
    index: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    begun: bool,
}

impl<'a> Ended<'a> {
    fn new(frozen: &'a Frozen, range: Range, index: u64) -> Self {
        Self {
            cursor: frozen.cursor(Family::History, None),
            range,
            index,
            key: Vec::new(),
            value: Vec::new(),
            begun: false,
        }
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn advance(&mut self) -> Result<bool, StorageError> {
        if self.range.is_empty() {
            return Ok(false);
        }
        match (self.begun, self.range.reverse) {
            (false, false) => self
                .cursor
                .seek(history::version_key(&self.range.lower, &[])),
            (false, true) => self.seek_last(),
            (true, _) => self.leave_key(),
        }
        self.begun = true;
        while self.read_key()? {
            if self.find_version()? {
                return Ok(true);
            }
            self.leave_key();
        }
        Ok(false)
    }

    /// To the last version of the last key below the upper bound, or somewhat above it.
    fn seek_last(&mut self) {
        match &self.range.upper {
            // A bound that includes a key is that key and a zero byte; its versions lie above that.
            Some(upper) => {
                let (open, tail) = match upper.split_last() {
                    Some((0, key)) => (key, ABOVE_VERSIONS.as_slice()),
                    _ => (upper.as_slice(), [].as_slice()),
                };
                self.cursor.seek_for_prev(history::version_key(open, tail));
            }
            None => self
                .cursor
                .seek_for_prev(history::version_key(&[], &ABOVE_VERSIONS)),
        }
    }

    /// To the first entry of the next key in the walk's direction.
    fn leave_key(&mut self) {
        if self.range.reverse {
            self.cursor
                .seek_for_prev(history::version_key(&self.key, &[]));
        } else {
            self.cursor
                .seek(history::version_key(&self.key, &ABOVE_VERSIONS));
        }
    }

    /// Takes the key of the entry under the cursor; false where the range ends.
    fn read_key(&mut self) -> Result<bool, StorageError> {
        loop {
            let Some(entry) = self.cursor.key() else {
                self.cursor
                    .status()
                    .map_err(StorageError::database("walk"))?;
                return Ok(false);
            };
            let Some(key) = history::key_of_version(entry) else {
                // Dead index entries follow the versions; nothing precedes them.
                return Ok(false);
            };
            self.key.clear();
            self.key.extend_from_slice(key);
            let below = self.key < self.range.lower;
            let above = self
                .range
                .upper
                .as_ref()
                .is_some_and(|upper| self.key >= *upper);
            match (below, above, self.range.reverse) {
                (false, false, _) => return Ok(true),
                (true, _, true) | (_, true, false) => return Ok(false),
                _ => self.leave_key(),
            }
        }
    }

    /// Makes the value of the version alive at the index; false if the key had none.
    fn find_version(&mut self) -> Result<bool, StorageError> {
        let mut target = self.key.clone();
        for attempt in 0..2 {
            let Some((entry, value)) = self.cursor.item() else {
                return Ok(false);
            };
            if history::key_of_version(entry) != Some(self.key.as_slice()) {
                return Ok(false);
            }
            let from = history::beginning(entry)?;
            let (until, _, body) = row::split_past(entry, value)?;
            if from <= self.index {
                if self.index < until {
                    row::write_without_entries(&mut self.value, from, body);
                    return Ok(true);
                }
                if self.range.reverse {
                    // The newest version had ended by then.
                    return Ok(false);
                }
            } else if !self.range.reverse {
                // The oldest version had not begun.
                return Ok(false);
            }
            if attempt == 0 {
                target.extend_from_slice(&self.index.to_be_bytes());
                self.cursor
                    .seek_for_prev(history::version_key(&target, &[]));
            }
        }
        Ok(false)
    }
}

/// The entries of a range of one index as of an index of the log: group ‖ order ‖ key.
pub(crate) struct PastEntries<'a> {
    index: u64,
    living: Walk<'a>,
    living_ready: Side,
    ended: Peekable<IntoIter<(Vec<u8>, u64)>>,
    current: (Vec<u8>, u64),
    reverse: bool,
}

impl<'a> PastEntries<'a> {
    /// The entries of `scan` after the event at `index`.
    pub(crate) fn new<I: Index>(
        frozen: &'a Frozen,
        scan: &Scan,
        index: u64,
    ) -> Result<Self, StorageError> {
        let [high, low] = I::Table::ID.to_be_bytes();
        let range = scan.absolute(&[high, low, I::NO]);
        let source = Source::Frozen(frozen);
        let mut ended = match range.is_empty() {
            true => Vec::new(),
            false => history::alive_then::<I>(source, scan.leading(), index)?,
        };
        ended
            .retain(|(entry, _)| range.contains(&[&[high, low, I::NO], entry.as_slice()].concat()));
        ended.sort_unstable();
        if range.reverse {
            ended.reverse();
        }
        Ok(Self {
            index,
            reverse: range.reverse,
            living: source.walk(Family::Index, range),
            living_ready: Side::Behind,
            ended: ended.into_iter().peekable(),
            current: Default::default(),
        })
    }

    /// Moves to the next entry; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, StorageError> {
        while self.living_ready == Side::Behind {
            if !self.living.advance()? {
                self.living_ready = Side::Done;
            } else if birth(&self.living)? <= self.index {
                self.living_ready = Side::At;
            }
        }
        let living = (self.living_ready == Side::At).then(|| &self.living.key()[3..]);
        let take_living = match (living, self.ended.peek()) {
            (None, None) => return Ok(false),
            (None, Some(_)) => false,
            (Some(_), None) => true,
            (Some(living), Some((ended, _))) => (living < ended.as_slice()) != self.reverse,
        };
        if take_living {
            self.current = (self.living.key()[3..].to_vec(), birth(&self.living)?);
            self.living_ready = Side::Behind;
        } else if let Some(ended) = self.ended.next() {
            self.current = ended;
        }
        Ok(true)
    }

    /// group ‖ order ‖ key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.current.0
    }

    /// The index of the event that brought the entry.
    pub(crate) fn birth(&self) -> u64 {
        self.current.1
    }
}

/// The birth of the entry of a table index under a walk.
fn birth(walk: &Walk<'_>) -> Result<u64, StorageError> {
    row::take_varint(&mut walk.value())
        .ok_or_else(|| StorageError::damaged("index entry", walk.key()))
}
