//! What a task sees of the host, what it may use of it, and what it has for itself: drivers are
//! given it, and executors carry it out.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What becomes visible in one mount when something is mounted below the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// Nothing.
    #[default]
    Private,
    /// What the host mounts is seen by the task.
    HostToTask,
    /// Both see what either mounts.
    Bidirectional,
}

impl Propagation {
    /// The mode that a job names; empty is private.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "" | "private" => Some(Self::Private),
            "host-to-task" => Some(Self::HostToTask),
            "bidirectional" => Some(Self::Bidirectional),
            _ => None,
        }
    }
}

/// Something of the host that a task sees at a place of its own: a directory, or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is on the host.
    pub host_path: PathBuf,
    /// Where the task sees it: below its root, or below its own directory where it has no root.
    pub task_path: PathBuf,
    /// The task may not write.
    #[serde(default)]
    pub read_only: bool,
    /// Which later mounts are seen.
    #[serde(default)]
    pub propagation: Propagation,
    /// The label that SELinux knows it by; empty for none.
    #[serde(default)]
    pub selinux_label: String,
    /// It has to be mounted there, and the path has no links in it: others write to the folder.
    #[serde(default)]
    pub is_mount: bool,
}

/// A device of the host that a task may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The device node on the host.
    pub host_path: PathBuf,
    /// Where the task finds it.
    pub task_path: PathBuf,
    /// What it may do with it: of `r`, `w` and `m`.
    #[serde(default)]
    pub permissions: String,
    /// As [`Mount::is_mount`].
    #[serde(default)]
    pub is_mount: bool,
}

/// How much a task may use; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLimits {
    /// Its part of the processors, MHz.
    #[serde(default)]
    pub cpu_shares: u64,
    /// Memory that is kept for it, bytes.
    #[serde(default)]
    pub memory: u64,
    /// Memory that it may use at most, bytes; 0: no more than what is kept; [`u64::MAX`]: all.
    #[serde(default)]
    pub memory_max: u64,
}

/// What a task has for itself instead of sharing the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Its own mounts.
    #[serde(default)]
    pub mount: bool,
    /// Its own process ids.
    #[serde(default)]
    pub pid: bool,
    /// Its own shared memory and message queues.
    #[serde(default)]
    pub ipc: bool,
    /// The network of this namespace file; none: the host's.
    #[serde(default)]
    pub network: Option<PathBuf>,
}
