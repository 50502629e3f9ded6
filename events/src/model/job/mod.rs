//! The job tree, file by file: job, groups, tasks, and what hangs below them.

mod connect;
mod diff;
mod gateway;
mod group;
#[allow(clippy::module_inception)]
mod job;
mod network;
mod placement;
mod resources;
mod rules;
mod service;
mod task;

pub use connect::*;
pub use diff::*;
pub use gateway::*;
pub use group::*;
pub use job::*;
pub use network::*;
pub use placement::*;
pub use resources::*;
pub use service::*;
pub use task::*;
