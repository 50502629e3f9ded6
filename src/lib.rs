//! drover: a workload orchestrator whose state is its history.

pub mod error;
pub mod identity;
