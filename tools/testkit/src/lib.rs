//! drover-testkit: what the test suites and benchmarks share.
//!
//! It starts the real program ([`Agent`]), speaks to it over a plain HTTP client of its own
//! ([`Http`]), and waits for conditions with a deadline ([`wait_for`],
//! [`eventually`]). It knows the words of events and nothing else of the product, so that nodes and
//! jobs for tests ([`fixtures`]) are made once: a suite sees what a user sees.
//!
//! Invariants: every process it starts ends with the value that stands for it, and what its agents
//! started with the test's process at the latest; nothing waits without a deadline, and a test that
//! does is named and ends the run; ports are chosen by the system.

mod agent;
pub mod certs;
pub mod counting;
mod documented;
pub mod fixtures;
mod http;
pub mod kafka;
mod leftovers;
mod limit;
pub mod lint;
mod skip;
mod wait;
mod wire;

pub use agent::{Agent, Setup, free_port};
pub use documented::client;
pub use http::{Http, Lines, Response};
pub use jsonschema;
pub use leftovers::Leftovers;
pub use skip::{has_program, python, skip};
pub use wait::{LONG, eventually, eventually_async, moment, so, until, wait_for};
pub use wire::Wire;
