//! The model: one set of plain values for events, tables and the HTTP API.
//!
//! Every type has Nomad's JSON names and two encodings of the same shape (see
//! [`wire!`](crate::wire)): JSON as clients expect it, and MessagePack maps as they are stored.
//! Durations are nanoseconds in `i64`, times [`Time`](crate::gojson::Time), ids plain strings.
//! Statuses are plain strings with the constants of [`status`], so that a value a later version
//! adds can still be read; code that handles each of them takes the enum of the set.
//!
//! The model must not know tables or HTTP. A field of a job says how specifications name it and
//! what it is where it is not set ([`field`](crate::field)); that is done by the job
//! specification, and no value of the model is changed by it. Invariants: a value decodes with
//! any field missing; `copy == x`, absent and empty kept apart (EV-16).

mod acl;
mod acl_auth;
mod alloc;
mod alloc_metric;
mod alloc_resources;
mod alloc_rules;
mod alloc_stats;
mod comparable;
mod csi;
mod csi_plugin;
mod deployment;
mod deployment_rules;
mod eval;
mod eval_rules;
mod host_volume;
mod job;
mod keyring;
pub mod names;
mod namespace;
mod node;
mod node_pool;
mod node_resources;
mod node_rules;
mod operator;
mod plan;
mod scaling;
mod scheduler_config;
mod service_registration;
mod stats;
pub mod status;
mod status_rules;
mod task_state;
mod variable;

#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod invent;
#[cfg(test)]
mod property_test;

pub use acl::*;
pub use acl_auth::*;
pub use alloc::*;
pub use alloc_metric::*;
pub use alloc_resources::*;
pub use alloc_stats::*;
pub use comparable::ComparableResources;
pub use csi::*;
pub use csi_plugin::*;
pub use deployment::*;
pub use eval::*;
pub use host_volume::*;
pub use job::*;
pub use keyring::*;
pub use namespace::*;
pub use node::*;
pub use node_pool::*;
pub use node_resources::*;
pub use operator::*;
pub use plan::*;
pub use scaling::*;
pub use scheduler_config::*;
pub use service_registration::*;
pub use stats::*;
pub use task_state::*;
pub use variable::*;
