//! Reactors: what watches the state and acts on it.
//!
//! A reactor holds no truth. It is woken by progress of the projections, by a timer or by its
//! start; it takes no input but a view; what it wants changed it proposes as an event or a command.
//! Whatever it keeps in memory is a cache and is built again at its next start.
//!
//! It must not know: how events are replicated ([`crate::proposer::decided::Propose`]), HTTP.
//! Start reading at `runner.rs` for how they run, `wiring.rs` for which there are, and at
//! [`scheduling`] for the largest.

pub mod checkpoint_signer;
pub mod core_gc;
pub mod deployment_watcher;
pub mod digest_recorder;
pub mod drainer;
mod each;
pub mod heartbeat_expiry;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(not(feature = "kafka"))]
#[path = "kafka/absent.rs"]
pub mod kafka;
pub mod live_key_sets;
pub mod periodic;
pub mod retention;
pub mod runner;
pub mod scheduling;
pub mod token_expiry;
pub mod volume_watcher;
mod wiring;

pub use wiring::{Activity, ReactorSettings, Reactors, ReactorsStatus, Sources};

#[cfg(test)]
mod starvation_rest_test;
#[cfg(test)]
mod starvation_test;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod unreadable_test;
