//! Volumes on this node: those that plugins bring to it, those that lie on it, and what tasks see
//! of both.
//!
//! | module | what |
//! |---|---|
//! | [`csi`] | plugins that run here as tasks, and the volumes that they bring to allocations |
//! | [`host`] | volumes of this node that the cluster manages |
//! | [`task`] | the hook by which a task has them where it wants them |
//!
//! The mounts themselves are made by the executor, in the namespace of the task.
//!
//! It must not know: claims of others, the permissions to a volume, where another node has one.

pub mod csi;
pub mod host;
mod look;
pub mod task;
