//! What differs between the uses of the engine: sizes, and what a full disk means.

use std::time::Duration;

use super::format::Epoch;

/// What the writer does when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// The append fails with [`LogError::DiskFull`](super::LogError::DiskFull); later ones may
    /// succeed once there is space.
    Fail,
    /// The writer holds what is queued, unacknowledged, and tries again until there is space. For
    /// callers (Raft) for which a failed append is fatal.
    Wait,
}

/// The parameters of one log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of a segment file, allocated when it is created. At most 1 GiB.
    pub segment_bytes: u64,
    /// Bytes zeroed ahead of the writer in a fresh file, so that most syncs change no metadata.
    pub zero_ahead: u64,
    /// Bytes of durable bodies kept in memory for readers that follow the end of the log.
    pub tail_bytes: usize,
    /// Longest body in bytes.
    pub max_body: usize,
    /// How soon an idle log writes a mark that covers all it holds.
    pub mark_after: Duration,
    /// Full segments are compressed once committed.
    pub seal: bool,
    /// A file is allocated ahead of need, and files of sealed segments are used again.
    pub prepare: bool,
    /// Maintains the Merkle tree over the bodies of entries.
    pub tree: bool,
    /// Every durable entry counts as committed (a log without consensus).
    pub auto_commit: bool,
    /// What a full disk means.
    pub on_full: OnFull,
    /// The epoch of a log that is created; by default a random id and first index 0.
    pub epoch: Option<Epoch>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 64 << 20,
            zero_ahead: 256 << 10,
            tail_bytes: 4 << 20,
            max_body: 8 << 20,
            mark_after: Duration::from_millis(50),
            seal: true,
            prepare: true,
            tree: true,
            auto_commit: false,
            on_full: OnFull::Wait,
            epoch: None,
        }
    }
}

impl LogOptions {
    /// A small log without consensus, tree or background thread's spare files: the client's
    /// journal. A full disk is reported to the caller.
    pub fn journal() -> LogOptions {
        LogOptions {
            segment_bytes: 1 << 20,
            zero_ahead: 16 << 10,
            tail_bytes: 64 << 10,
            max_body: 512 << 10,
            prepare: false,
            tree: false,
            auto_commit: true,
            on_full: OnFull::Fail,
            ..LogOptions::default()
        }
    }
}
