//! The executor: our own binary, started again as `drover executor <run directory>`, which owns one
//! task's process tree.
//!
//! It is a small process without threads or runtime: it leads a session of its own, holds the
//! task's output pipes, rotates the log files, adopts every process the task leaves behind (child
//! subreaper) and records how the task ended in a file before it leaves. So a task and its logs
//! outlive any death of the agent, and what happened meanwhile is found in the run directory.
//!
//! It must not know: allocations, drivers, servers. Agent and executor share nothing but the files
//! of a run directory ([`files`]), two signals, and a socket by which commands are run beside the
//! task: the agent hands over the descriptors they talk by and reads and writes the other ends
//! itself ([`exec`]), so that no byte goes through the executor. By the same socket it receives, as
//! a stream, what the task uses ([`measure`]).
//!
//! Invariants:
//! - The executor holds the lock of its run directory for its whole life; a process that finds the
//!   lock free may conclude that nothing runs. An agent that gives a run up marks it cancelled
//!   while it holds the lock, so that an executor that comes late starts nothing.
//! - A task is started at most once per run directory.
//! - `exit.json` is there, synced, before the executor ends by itself.
//! - When it ends, no process of the task's tree is left: it ends only when it has no children, and
//!   every process that the task left behind becomes its child, or that of an init which dies with
//!   it.
//!
//! A task that is kept apart ([`files::ExecSpec::namespaces`]) lives in namespaces that an init of
//! its own made and holds: that is process 1 there and does nothing but to take the statuses of
//! what the task left behind. The task and commands beside it are children of the executor all the
//! same, which enter these namespaces between fork and exec, so that everything above holds for
//! them as for others.

pub mod cgroup;
pub(crate) mod cores;
mod device_program;
#[cfg(test)]
mod device_program_test;
pub(crate) mod devices;
pub mod exec;
#[cfg(test)]
pub(crate) mod executor_test;
pub mod files;
#[cfg(test)]
mod groups_test;
mod guests;
#[cfg(test)]
mod hostile_test;
mod keyring;
#[cfg(test)]
mod keyring_test;
pub(crate) mod labels;
pub mod launch;
pub mod measure;
#[cfg(test)]
mod measure_test;
mod measured;
pub(crate) mod mounts;
mod output;
pub mod rotate;
mod spawn;
mod supervise;
pub(crate) mod sweep;
mod tree;
mod world;
#[cfg(test)]
mod world_test;

pub use supervise::run;

/// The hidden verb of the command line; to be looked for before anything else starts a thread.
///
/// `Some(exit code)` when the process was started as an executor and has done its work.
pub fn dispatch(args: impl IntoIterator<Item = std::ffi::OsString>) -> Option<i32> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != "executor" {
        return None;
    }
    let dir = args.next()?;
    Some(run(std::path::Path::new(&dir)))
}
