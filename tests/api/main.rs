//! The HTTP API as its users see it: a real agent, plain requests, and the official Go client.

mod acl;
mod audit;
mod bad_input;
mod client;
mod clients;
mod contract;
mod csi;
mod diagnostics;
mod drain;
mod edges;
mod evaluations;
mod exec;
mod jobs;
mod limits;
mod node_calls;
mod official_client;
mod periodic;
mod redaction;
mod remote;
mod requests;
mod stream;
mod stream_forms;
mod support;
mod tls;
mod variables;
