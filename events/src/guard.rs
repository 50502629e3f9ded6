//! What must still be so when an event is applied.
//!
//! A guard is a plain comparison with the state at that index. It holds no rule that could change
//! with the code.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::envelope::EventId;

/// One precondition of an event. Apply checks all of them before it writes anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guard {
    /// The row exists and was last written at this index.
    RowAt {
        /// Its `Table::ID` in the projections.
        table: u16,
        /// The row's encoded key.
        key: Bytes,
        /// The modify index the decision was made from.
        index: u64,
    },
    /// There is no such row.
    RowAbsent {
        /// Its `Table::ID` in the projections.
        table: u16,
        /// The row's encoded key.
        key: Bytes,
    },
    /// Fewer than `limit` rows have a key that starts so.
    CountBelow {
        /// Its `Table::ID` in the projections.
        table: u16,
        /// The encoded prefix.
        prefix: Bytes,
        /// The first count that is too many.
        limit: u64,
    },
    /// Nothing has changed what fits on the node since this event.
    NodeMark {
        /// The node, by id.
        node: String,
        /// The event that last changed the node's use; zero when nothing has yet.
        mark: EventId,
    },
}
