//! A walk over `changes` that takes apart only what its caller reads.
//!
//! A reader that wants few of many entries looks at the kind and the topics of each, which costs no
//! allocation, and decodes the changes only where it may want them.

use drover_events::EventKind;

use crate::engine::db::Family;
use crate::engine::error::StorageError;
use crate::engine::scan::{EntryCursor, Range};
use crate::past::changes::{self, Change};
use crate::read::view::View;

/// A walk over the changes of events, one event at a time.
pub struct ChangeCursor<'a> {
    walk: EntryCursor<'a>,
}

impl View {
    /// The changes of the events from `first` to `last`, as far as this view reaches.
    pub fn change_cursor(&self, first: u64, last: u64) -> ChangeCursor<'_> {
        self.walk_changes(first, last, false)
    }

    fn walk_changes(&self, first: u64, last: u64, reverse: bool) -> ChangeCursor<'_> {
        let end = last.min(self.index()).checked_add(1);
        let range = Range {
            lower: first.to_be_bytes().to_vec(),
            upper: end.map(|end| end.to_be_bytes().to_vec()),
            reverse,
        };
        let walk = self.source().walk(Family::Changes, range);
        ChangeCursor { walk }
    }

    /// The indexes of the newest events that a topic has, `most` at most, oldest first.
    pub fn newest_published(&self, most: usize) -> Result<Vec<u64>, StorageError> {
        let mut cursor = self.walk_changes(0, u64::MAX, true);
        let mut indexes = Vec::new();
        while indexes.len() < most && cursor.advance()? {
            if cursor.topics().is_none_or(|(_, topics)| topics != 0) {
                indexes.push(cursor.index()?);
            }
        }
        indexes.reverse();
        Ok(indexes)
    }
}

impl ChangeCursor<'_> {
    /// Moves to the next event; false at the end.
    pub fn advance(&mut self) -> Result<bool, StorageError> {
        self.walk.advance()
    }

    /// The event's index.
    pub fn index(&self) -> Result<u64, StorageError> {
        let index = self.walk.key().try_into().map(u64::from_be_bytes);
        index.map_err(|_| StorageError::damaged("change", self.walk.key()))
    }

    /// The event's kind and the set of the topics its rows are published under
    /// ([`drover_events::Topic::bit`]); none where the entry is damaged.
    pub fn topics(&self) -> Option<(EventKind, u64)> {
        changes::topics(self.walk.value())
    }

    /// All changes of the event.
    pub fn changes(&self) -> Result<Vec<Change>, StorageError> {
        changes::decode(self.index()?, self.walk.value())
    }
}
