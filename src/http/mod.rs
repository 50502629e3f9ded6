//! The HTTP API: Nomad's, and what drover adds to it.
//!
//! The route table is `router/table.rs`, that of an agent without a server `edge/table.rs`; what a
//! route asks of its caller is `gate.rs`. What every request goes through is in `front.rs`, once
//! (`entrance.rs` for the steps until it is taken in, at an agent without a server too):
//! authentication, body limit, blocking queries, errors, compression, the headers of the state's
//! position. A handler is what is left: parse, authorise, read a view *or* send one command,
//! respond. Reads are plain functions of a view; a blocking query is the same function run again.
//!
//! It must not know Raft, RocksDB or apply. What differs from the model on the wire (list stubs,
//! answers with an index) is a struct here; everything else is the model itself.
//!
//! Invariants: nothing panics on input, and a panic is a 500; a waiter registers before it reads
//! and holds no view while it waits; every error has one status and Nomad's text.

mod absent;
mod acl;
mod agent;
mod allocations;
mod answer;
pub(crate) mod answers;
mod audit;
pub mod auth;
mod autopilot;
mod body;
mod called;
mod client;
mod cors;
mod decoded;
mod deployments;
mod edge;
mod entrance;
mod evaluations;
mod explain;
mod follow;
mod forward;
mod front;
mod gate;
pub mod gzip;
mod ignored;
mod job_path;
mod jobs;
mod list;
mod log;
mod measure;
mod methods;
mod namespaces;
mod no_route;
mod node_pools;
mod nodes;
mod operator;
mod past;
mod pending_read;
mod permit;
mod pieces;
mod pretty;
mod projections;
#[cfg(test)]
mod provision_test;
mod proxies;
mod query;
mod ready;
mod rendered;
mod request;
mod requests;
mod router;
mod rows;
mod scaling;
mod schema;
mod search;
mod serve;
mod services;
mod sight;
mod snapshot;
mod socket;
mod state;
mod stream;
mod system;
mod target;
mod variables;
#[cfg(test)]
mod volume_calls_test;
#[cfg(test)]
mod volume_ends_test;
#[cfg(test)]
mod volume_namespaces_test;
#[cfg(test)]
mod volume_rights_test;
#[cfg(test)]
mod volume_world_test;
mod volumes;
#[cfg(test)]
mod volumes_more_test;
#[cfg(test)]
mod volumes_test;

#[cfg(test)]
mod attacks_test;
#[cfg(test)]
mod both_world_test;
#[cfg(test)]
mod bounds_test;
#[cfg(test)]
mod by_id_test;
#[cfg(test)]
mod called_test;
#[cfg(test)]
mod contract_test;
#[cfg(test)]
mod follow_test;
#[cfg(test)]
mod forward_test;
#[cfg(test)]
mod front_test;
#[cfg(test)]
mod gaps_test;
#[cfg(test)]
mod gate_more_test;
#[cfg(test)]
mod gate_test;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod host_volumes_test;
#[cfg(test)]
mod http_test;
#[cfg(test)]
mod identity_test;
#[cfg(test)]
mod job_shapes_test;
#[cfg(test)]
mod lists_test;
#[cfg(test)]
mod mixed_test;
#[cfg(test)]
mod one_view_test;
#[cfg(test)]
mod past_rights_test;
#[cfg(test)]
mod projections_test;
#[cfg(test)]
mod rates_test;
#[cfg(test)]
mod reads_test;
#[cfg(test)]
mod reports_test;
#[cfg(test)]
mod routes_test;
#[cfg(test)]
mod shown_test;
#[cfg(test)]
mod signed_test;
#[cfg(test)]
mod success_test;
#[cfg(test)]
mod tokens_test;
#[cfg(test)]
mod whole_test;
#[cfg(test)]
mod workload_test;

/// A new random id, as the API names things.
fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

pub use client::far::Near;
pub use edge::{Edge, edge};
pub use follow::{Leading, follow};
pub(crate) use ignored::{HEADER as IGNORED, MEANS_NOTHING};
pub use proxies::through;
pub(crate) use query::encode;
pub use rendered::Rendered;
pub use request::Remote;
pub use router::router;
pub use serve::{Forwarded, serve};
pub use state::{Api, BODY_LIMIT, Live, Settings};
pub use stream::{Publisher, Shape};
