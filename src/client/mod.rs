//! The client agent: runs the allocations that the servers placed on this node.

pub mod clock;
pub mod executor;
pub mod proc;
