//! One allocation on this node: its tasks' order and end, its health.
//!
//! [`machine::AllocMachine`] is the runner as a pure state machine; [`runner`] carries its actions
//! out and brings the answers back; [`crate::alloc_runner`] is the seam where a smaller runner can
//! stand instead.
//!
//! It must not know: servers, other allocations, how updates are sent.

mod actor;
#[cfg(test)]
mod actor_test;
#[cfg(test)]
mod claims_test;
pub mod coordinator;
mod counted;
mod effects;
pub mod health;
mod hooked;
mod jobs;
pub mod machine;
mod offers;
#[cfg(test)]
mod offers_test;
mod restart_requests;
pub mod runner;
#[cfg(test)]
pub(crate) mod runner_test;
