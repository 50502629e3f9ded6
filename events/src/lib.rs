//! drover-events: the language of the cluster's history.
//!
//! A *kind* ([`kind`]) is what can happen, an *event* ([`event`]) what did, an *envelope*
//! ([`envelope`]) the record of it. [`codec`] turns that into the bytes that are replicated,
//! hashed and stored, once. The payload structs live in one file per resource, the same names as
//! in `projections/src/apply` and `src/commands`; the values they carry are the model that tables
//! and the HTTP API share.
//!
//! It knows no table, no Raft and no clock. Names are past tense. Ids and times are in the
//! payload, stamped by the leader: readers of an event invent nothing.
//!
//! **To add a kind:** a line in [`kind`], a struct in the resource's file, its name in [`event`],
//! an arm in the dispatcher of apply, frozen bytes (`cargo xtask freeze-event`), and a line in
//! `drover-migrations`' change log.
//! **To change one:** an optional field with a default needs only a new line in the change log;
//! anything else is a new version, with the old struct frozen and an upcaster beside it.
#![deny(missing_docs)]

pub mod acl;
pub mod actor;
pub mod alloc;
pub mod class;
pub mod cluster;
pub mod codec;
pub mod csi;
pub mod deployment;
pub mod duration;
pub mod envelope;
pub mod eval;
pub mod event;
pub mod field;
pub mod gojson;
pub mod guard;
pub mod host_volume;
pub mod job;
pub mod keyring;
pub mod kind;
pub mod mask;
pub mod model;
pub mod namespace;
pub mod node;
pub mod node_pool;
pub mod plan;
pub mod public;
pub mod scaling;
pub mod service;
pub mod topic;
pub mod variable;

pub use actor::{Actor, ActorKind};
pub use codec::{BodyParts, CodecError, Draft, Header, MAX_PAYLOAD, RaftPayload};
pub use envelope::{Envelope, EventId, Recorded};
pub use event::Event;
pub use guard::Guard;
pub use kind::EventKind;
pub use topic::{Publication, Topic};

/// What the code that [`wire!`] writes needs; not for others.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;
}
