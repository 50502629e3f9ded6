//! The client agent: runs the allocations that the servers placed on this node (MOD-24).
//!
//! Pure state machines decide ([`alloc::machine`], [`task::machine`], [`sync`]); small actors carry
//! their actions out and bring the answers back; the [`journal`] keeps every state before it has an
//! effect. A task runs under an [`executor`], a process of its own, so neither the death of the
//! agent nor its return touches it.
//!
//! It must not know: projections, Raft, the scheduler. Servers are reached through [`drover_rpc`]
//! only.
//!
//! Invariants:
//! - What is to be done is in the journal before it is done; so a restarted agent finds every task
//!   again, starts none twice and loses no task event (CL-12 to CL-14, DRV-08).
//! - Restoring needs no server (CL-13).
//! - What lies where tasks can write is reached through [`beneath`] only, and never on a thread
//!   that serves others: a task makes links, pipes and file systems that hang as it likes.
//! - The three calls to servers (status, allocation updates, allocation fetch) are loops of their
//!   own; nothing relies on an order between them (HB-08).

pub mod agent;
pub mod alloc;
pub mod alloc_dir;
pub mod alloc_runner;
pub mod beneath;
pub mod clock;
pub mod config;
mod contact;
pub mod control;
mod cpu;
pub mod devices;
pub mod drivers;
pub mod endpoints;
pub mod env;
pub mod executor;
pub mod fingerprint;
mod gauges;
mod gc;
pub mod hooks;
pub mod ids;
pub mod isolation;
pub mod journal;
mod leave;
mod measure;
pub mod metadata;
#[cfg(test)]
mod moving_test;
pub mod proc;
pub mod pull;
mod register;
mod send;
pub mod service;
pub mod start;
pub mod stats;
pub mod sync;
pub mod task;
pub mod task_events;
#[cfg(test)]
mod testing;
mod uses;
pub mod volumes;
