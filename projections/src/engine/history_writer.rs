//! What an event did to rows: the overlay (`Layer`) of each table whose past is kept
//! (`History::Full`) reports it here when the event ends, and `Recorder`, in `past`, writes it
//! down. How it is kept the engine does not know.

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
    /// Deleted by an event that names a rule (a filter) and not each row: recorded once per table
    /// and namespace.
    pub(crate) by_rule: bool,
    /// How it appears on the stream; none where it does not.
    pub(crate) stream: Option<StreamKey<'a>>,
    /// Positions in `stream.filter_keys` that get a posting (`Table::POSTED`).
    pub(crate) posted: &'static [usize],
    /// The table continues another one's objects (`node_states` those of `nodes`); if one event
    /// changes both, only the other is published.
    pub(crate) continues_another: bool,
}
