//! What was: ended versions, changes, postings, and where they end.

pub(crate) mod alive;
#[cfg(test)]
mod alive_test;
pub mod changes;
pub mod history;
pub(crate) mod prune;
pub(crate) mod recorder;
pub(crate) mod walks;
