//! The scheduler: what an evaluation changes, worked out from one picture of the state.
//!
//! [`schedule`] is a pure function: the same state and the same [`Inputs`] give the same
//! [`Outcome`], to the last bit, on every machine. So a decision can be made again at any past
//! index, to explain it or to ask what would happen.
//!
//! It must not know: Raft, events, commands, clocks, threads, other evaluations.
//!
//! Start reading at [`schedule`]: `reconcile` says what should run, `rank` finds places for it
//! (with `feasible` saying where it may run at all, and `fit` whether there is room), `cluster` is
//! the picture of the nodes.

pub mod cluster;
pub mod feasible;
pub mod fit;
mod outcome;
pub mod rank;
pub mod reconcile;
pub mod rng;
mod state;

pub use outcome::{Inputs, Outcome, Placement, Plan, SCHEDULER_VERSION, Stop};
pub use state::{ReadError, StateView};
