//! How many rows an event may write.
//!
//! Rules that touch many rows of the state are paged by their commands
//! ([`Decision::Page`](super::Decision::Page)). The proposer counts what an event's lists name, and
//! cuts or refuses what is larger.

/// How many rows an event writes at most.
pub const MAX_ROWS: usize = 4_096;
/// How many rows the parts of a larger one write at most: each apply of a page stays short (EV-13).
pub const PAGE_ROWS: usize = 1_024;

/// Rows of a node: its description, its state, its use. Its host volumes, which no event names, are
/// counted where it is decided that the node goes.
pub const NODE: usize = 3;
