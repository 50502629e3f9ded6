//! What the callers, the writer and the housekeeper of one log share.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::error::LogError;
use super::file::FileLayer;
use super::format::{Entry, Epoch};
use super::housekeeper::HousekeeperState;
use super::options::{LogOptions, OnFull};
use super::scan::EntrySource;
use super::segment_set::SegmentSet;
use super::tree::{CompactRange, Tree};

/// Called once, when what a call requested is durable or has failed. It runs on the writer's thread
/// and must not block.
pub type OnSynced = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// How much space the log has on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskSpace {
    /// As far as it knows, enough.
    #[default]
    Enough,
    /// The next segment could not be allocated; what is in flight still fits. New work should be
    /// refused.
    Low,
    /// Nothing can be written.
    Full,
}

pub(super) enum Job {
    Append(Vec<Entry>, OnSynced),
    Vote(Bytes, OnSynced),
    Truncate(u64, OnSynced),
    Purge(u64, Bytes, OnSynced),
    Begin(u64, OnSynced),
    /// The next entry begins a segment.
    Roll(OnSynced),
    Barrier(OnSynced),
}

impl Job {
    pub(super) fn fail(self, e: &LogError) {
        let (Job::Append(_, done)
        | Job::Vote(_, done)
        | Job::Truncate(_, done)
        | Job::Purge(_, _, done)
        | Job::Begin(_, done)
        | Job::Roll(done)
        | Job::Barrier(done)) = self;
        done(Err(e.clone()));
    }
}

/// An index and what the caller keeps with it.
pub(super) type Position = (u64, Bytes);

#[derive(Default)]
pub(super) struct LogState {
    pub(super) queue: VecDeque<Job>,
    /// The index the next append must have.
    pub(super) next: u64,
    /// The first index that can be read.
    pub(super) first: u64,
    /// The next durable index, as far as the writer has reported.
    pub(super) durable_next: u64,
    /// Entries `tail_first..next`, in memory.
    pub(super) tail: VecDeque<Entry>,
    pub(super) tail_first: u64,
    pub(super) tail_bytes: usize,
    pub(super) vote: Option<Bytes>,
    pub(super) committed: Option<Position>,
    /// Written down: what is still queued is in `first` alone.
    pub(super) purged: Option<Position>,
    /// The compact range expected after an index that is about to be purged (a snapshot's).
    pub(super) base: Option<(u64, CompactRange)>,
    /// Counts truncations; the writer's durable index is only taken over when it has caught up.
    pub(super) generation: u64,
    /// The truncations that the writer has carried out.
    pub(super) carried_out: u64,
    /// The writer sleeps without a deadline.
    pub(super) asleep: bool,
    pub(super) space: DiskSpace,
    pub(super) stopped: Option<String>,
    pub(super) closed: bool,
}

impl LogState {
    pub(super) fn check(&self) -> Result<(), LogError> {
        match &self.stopped {
            Some(why) => Err(LogError::Stopped(why.clone())),
            None if self.closed => Err(LogError::Closed),
            None => Ok(()),
        }
    }

    /// Queues entries, which must follow the last one.
    pub(super) fn append(
        &mut self,
        entries: Vec<Entry>,
        done: OnSynced,
        max: usize,
    ) -> Result<(), LogError> {
        let mut expected = self.next;
        for e in &entries {
            let (index, len) = (e.index, e.body.len());
            if len > max {
                return Err(LogError::TooLarge { index, len, max });
            }
            if index != expected {
                let got = index;
                return Err(LogError::Gap { expected, got });
            }
            expected += 1;
        }
        self.next = expected;
        self.tail_bytes += entries.iter().map(|e| e.body.len()).sum::<usize>();
        self.tail.extend(entries.iter().cloned());
        self.queue.push_back(Job::Append(entries, done));
        Ok(())
    }

    /// Queues that the entries up to `index` are dropped.
    pub(super) fn purge(&mut self, index: u64, position: Bytes, done: OnSynced) {
        if index + 1 > self.next {
            self.cut(index + 1);
        }
        self.first = self.first.max(index + 1);
        self.queue.push_back(Job::Purge(index, position, done));
    }

    /// Forgets the entries from `next` on.
    pub(super) fn cut(&mut self, next: u64) {
        let keep = next.saturating_sub(self.tail_first) as usize;
        if keep == 0 || keep > self.tail.len() {
            self.tail.clear();
            self.tail_first = next;
        } else {
            self.tail.truncate(keep);
        }
        self.next = next;
        self.durable_next = self.durable_next.min(next);
        self.tail_bytes = self.tail.iter().map(|e| e.body.len()).sum();
        self.generation += 1;
    }

    /// Drops durable entries from memory beyond `keep` bytes.
    pub(super) fn evict(&mut self, keep: usize) {
        while self.tail_bytes > keep && self.tail_first < self.durable_next {
            let Some(entry) = self.tail.pop_front() else {
                break;
            };
            self.tail_bytes -= entry.body.len();
            self.tail_first += 1;
        }
    }

    pub(super) fn committed_index(&self) -> Option<u64> {
        self.committed.as_ref().map(|(i, _)| *i)
    }

    /// The committed index, unless a truncation waits: what is written at it may be what goes.
    pub(super) fn commit_unless_truncating(&self) -> Option<u64> {
        self.committed_index()
            .filter(|_| self.generation == self.carried_out)
    }
}

pub(super) struct LogShared {
    pub(super) dir: PathBuf,
    pub(super) options: LogOptions,
    pub(super) files: Arc<dyn FileLayer>,
    pub(super) epoch: Mutex<Epoch>,
    pub(super) state: Mutex<LogState>,
    pub(super) wake: Condvar,
    pub(super) segments: SegmentSet,
    pub(super) tree: Mutex<Tree>,
    pub(super) housekeeper: Mutex<HousekeeperState>,
    pub(super) housekeeper_wake: Condvar,
}

impl EntrySource for LogShared {
    fn read_range(&self, from: u64, to: u64, max_bytes: usize) -> Result<Vec<Entry>, LogError> {
        loop {
            let to = {
                let state = self.state.lock();
                if from < state.first {
                    return Err(LogError::Purged {
                        index: from,
                        first: state.first,
                    });
                }
                let to = to.min(state.next);
                if from >= to {
                    return Ok(Vec::new());
                }
                if from >= state.tail_first {
                    return Ok(from_tail(&state, from, to, max_bytes));
                }
                to.min(state.tail_first)
            };
            let entries = self.segments.read(from, to, max_bytes)?;
            if !entries.is_empty() {
                return Ok(entries);
            }
            // A truncation or purge came between; look again.
            std::thread::yield_now();
        }
    }
}

fn from_tail(state: &LogState, from: u64, to: u64, max_bytes: usize) -> Vec<Entry> {
    let skip = (from - state.tail_first) as usize;
    let mut bytes = 0;
    let mut out = Vec::new();
    for e in state.tail.iter().skip(skip).take((to - from) as usize) {
        if bytes > max_bytes {
            break;
        }
        bytes += e.body.len();
        out.push(e.clone());
    }
    out
}

impl LogShared {
    pub(super) fn set_space(&self, space: DiskSpace) {
        let mut state = self.state.lock();
        if state.space != space {
            match space {
                DiskSpace::Enough => {
                    tracing::info!(dir = %self.dir.display(), "log has space again")
                }
                _ => tracing::error!(dir = %self.dir.display(), ?space, "log is short of space"),
            }
            state.space = space;
        }
    }

    pub(super) fn waits_when_full(&self) -> bool {
        self.options.on_full == OnFull::Wait
    }
}
