//! Plugins that are processes of their own, as Nomad's are: how one says where it listens, the
//! calls to it, and the form of its settings.
//!
//! [`handshake`] is what passes before the first call; [`Plugin`] makes the calls; [`schema`] turns
//! the settings of an operator into those that a plugin takes. Processes are started and watched
//! elsewhere. The messages are [`proto`].

pub mod handshake;
mod plugin;
pub mod schema;
#[cfg(test)]
mod schema_test;

pub use plugin::{CallError, Info, Plugin};
pub use tonic::Streaming;

/// The messages and services, generated (`generated/ORIGIN.md`).
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
    /// What every plugin answers.
    pub mod base {
        include!("generated/hashicorp.nomad.plugins.base.proto.rs");
    }
    /// How a plugin is requested to end.
    pub mod controller {
        include!("generated/plugin.rs");
    }
    /// What plugins of devices answer.
    pub mod device {
        include!("generated/hashicorp.nomad.plugins.device.rs");
    }
}
