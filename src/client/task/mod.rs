//! One task of an allocation: events, restart policy, hooks, and the runner as a pure state
//! machine.
//!
//! [`machine::TaskMachine`] takes inputs (the coordinator lets it run, a driver answered, a time is
//! over, its end is requested) and gives back actions; it does no I/O and reads no clock. What it
//! is made of is what the journal keeps, so a restarted agent continues from the very state.

pub mod lifecycle;
pub mod machine;
pub mod restart;
