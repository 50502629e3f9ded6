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
    /// `host_path` must itself be a mount point, and is found without following links, since others
    /// may write to the directory that it is in.
    #[serde(default, rename = "is_mount")]
    pub require_mount_point: bool,
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
    /// As [`Mount::require_mount_point`].
    #[serde(default, rename = "is_mount")]
    pub require_mount_point: bool,
}

/// A task's CPU weight and memory limits; 0 in `cpu_shares` or `memory` sets nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLimits {
    /// Its weight among all that run, in MHz as jobs request them.
    #[serde(default)]
    pub cpu_shares: u64,
    /// The hard limit, bytes; where `memory_max` is larger, what the kernel takes from it last when
    /// memory is short.
    #[serde(default)]
    pub memory: u64,
    /// The hard limit, bytes, where it is larger than `memory`; [`u64::MAX`]: there is none.
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
