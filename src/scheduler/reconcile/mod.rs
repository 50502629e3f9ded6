//! What should run: the difference between a job and its allocations.
//!
//! It must not know: nodes' resources, scores.

pub mod names;
