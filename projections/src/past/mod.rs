//! The past: what rows were, what events changed, and how far back that is kept.
//!
//! **What it is.** The encodings of `history` ([`history`], [`alive`]), `changes` and `postings`
//! ([`changes`]); the [`recorder`] that writes them while an event ends; walks over tables and
//! indexes as they were ([`walks`]); and the end of it all below the floor ([`prune`]).
//!
//! **What it must not know.** No view, no writer, no table of drover's: it is given the database, a
//! snapshot of it, or the registry, and imports the engine alone. It never says what is so now.
//!
//! **Invariants.** Each version of a row and each index entry that ended is here once, with the
//! index of its end; the living ones are not here. An event's changes are one entry. Nothing is
//! forgotten above the floor, and no read asks for the state below it. Sets of live rows answer
//! nothing by themselves: without them only the way is longer.
//!
//! Start reading at [`history`], then [`walks`].

pub(crate) mod alive;
#[cfg(test)]
mod alive_test;
pub mod changes;
pub mod history;
pub(crate) mod prune;
pub(crate) mod recorder;
pub(crate) mod walks;
