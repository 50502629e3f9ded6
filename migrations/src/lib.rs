//! drover-migrations: how old events and old tables become today's.
//!
//! [`decode`] is the only way from a body of the log to an event: it upcasts once, so nothing to
//! its right ever meets an old shape. [`events`] holds the change log of the language and the
//! frozen structs; [`schema`] the steps of the projections' tables. The frozen bytes of every
//! version ever written are under `golden/`, never edited; the crate `drover-golden` writes them.
//!
//! It knows no Raft, no clock and no HTTP. Decoding never panics, whatever the bytes are: an
//! unknown kind or a newer version is a typed error, at which a server parks its applier and says
//! so.
//!
//! **To change an event** (other than by an optional field with a default): freeze the old struct
//! under `events/`, give it an upcaster one step up, raise the version in `drover_events::kind`,
//! add a line to the change log, and run `cargo xtask freeze-event`. **To change a table:** add
//! `schema/mNNNN_<what>.rs` and its line in `schema`.
#![deny(missing_docs)]

mod decode;
pub mod events;
pub mod schema;

#[cfg(test)]
extern crate self as drover_migrations;
/// The source of the crate `drover-golden`, compiled into these tests too; the alias above makes
/// its paths `drover_migrations::…` mean this crate.
#[cfg(test)]
pub mod golden;

pub use decode::{DecodeError, decode};
pub use events::changelog::{EVENT_CHANGE_LOG, FEATURE_LEVEL};
