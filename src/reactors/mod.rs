//! Reactors: what watches the state and acts on it.
//!
//! A reactor holds no truth. It is woken by progress of the projections, by a timer or by its
//! start; it takes no input but a view; what it wants changed it proposes as an event, like any
//! other command. Whatever it keeps in memory is a cache and is built again at its next start.
//!
//! It must not know: how events are replicated ([`propose::Propose`]), HTTP.
//! Start reading at `driver.rs` for how they run, and at [`scheduling`] for the largest.

pub mod propose;
pub mod scheduling;
