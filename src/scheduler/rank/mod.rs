//! Which of the nodes that may run a group is the best: scores, and the search over nodes.
//!
//! It must not know: why an allocation is wanted (that is [`crate::reconcile`]).
//! The search is Nomad's: nodes in a random order that one evaluation goes round, a limited
//! number of candidates for each allocation, the highest score wins, the first seen on a tie.

mod ask;
mod explain;
mod give;
mod group;
mod ports;
mod property;
mod score;
mod spread;
mod stack;
#[cfg(test)]
mod stack_test;
mod tally;

pub use ask::GroupAsk;
pub use explain::{NodeReport, NodeVerdict, RefusalStep, Search};
pub use score::fit_score;
pub use stack::{Choice, PlacementRequest, Selection, Stack, StackOptions};
pub use tally::add_exhausted;
