//! drover: a workload orchestrator whose state is its history.

pub mod agent;
pub mod client;
pub mod commands;
pub mod config;
pub mod error;
pub mod http;
pub mod identity;
pub mod jobspec;
pub mod keyring;
pub mod log;
pub mod raft;
pub mod reactors;
pub mod rpc;
pub mod scheduler;
pub mod server;
pub mod telemetry;
