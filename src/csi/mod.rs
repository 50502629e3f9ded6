//! The Container Storage Interface, as an orchestrator speaks it: one plugin behind a unix socket,
//! calls that end in time, and errors that say whether to try again.
//!
//! [`Plugin`] makes the calls; [`CallError`] says what came of one that failed; [`capability`] and
//! [`features`] translate what plugins say into the words that jobs and nodes use; [`mounts`]
//! brings volumes to a node and takes them back. The messages are those of the specification
//! ([`proto`]), with this difference: no `Debug` shows a secret.

mod call;
pub mod capability;
mod disk;
mod error;
pub mod features;
mod lines;
mod mark;
mod mounted;
pub mod mounts;
#[cfg(test)]
mod mounts_test;
mod plugin;
#[cfg(test)]
mod plugin_test;
#[cfg(test)]
mod published_test;
mod usage;

pub use call::CallLimits;
pub use error::{CallError, Cause, RetryDecision};
pub use plugin::{Identity, NodeInfo, Plugin};
pub use tonic::Code;

/// The messages and services of the specification, generated (`generated/ORIGIN.md`).
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::large_futures,
    clippy::cast_lossless,
    missing_docs,
    unreachable_pub,
    rustdoc::all
)]
pub mod proto {
    include!("generated/csi.v1.rs");
}
