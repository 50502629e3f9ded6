//! What an event did to rows, as it is reported to what writes history. The layers know what ended
//! and what changed; how that is kept, and whether it is, they do not.

use crate::engine::table::{IndexEntry, StreamKey};

/// Writes the history of one event.
pub(crate) trait HistoryWriter {
    /// The event ended a version of a row.
    fn ended(&mut self, version: &EndedVersion<'_>);
    /// An index entry of a table, first written at the index `birth`, ended with the event.
    fn died(&mut self, table: u16, entry: &IndexEntry, birth: u64);
    /// The event wrote or deleted a row.
    fn changed(&mut self, change: &Changed<'_>);
}

/// A version of a row that ended.
pub(crate) struct EndedVersion<'a> {
    pub(crate) table: u16,
    pub(crate) key: &'a [u8],
    /// The index of the event that wrote it.
    pub(crate) from: u64,
    /// Whether it ended by deletion.
    pub(crate) deleted: bool,
    /// Its canonical bytes.
    pub(crate) body: &'a [u8],
}

/// A row that was written or deleted.
pub(crate) struct Changed<'a> {
    pub(crate) table: u16,
    pub(crate) key: &'a [u8],
    pub(crate) namespace: &'a str,
    pub(crate) deleted: bool,
    /// Whether a rule deleted it: one of many, which make one change together.
    pub(crate) by_rule: bool,
    /// How it appears on the stream; none where it does not.
    pub(crate) stream: Option<StreamKey<'a>>,
    /// Which filter keys no index of the table answers.
    pub(crate) posted: &'static [usize],
    /// A row beside another one of the same stream key: not published twice.
    pub(crate) side: bool,
}
