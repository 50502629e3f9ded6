//! The calls: append, read, commit, truncate, purge. What they share with the writer is
//! `LogShared`.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::error::LogError;
use super::file::{FileLayer, RealFiles};
use super::format::{Entry, Epoch};
use super::housekeeper::{self, HousekeeperState};
use super::open::{self, OpenReport};
use super::options::LogOptions;
use super::scan::{EntrySource, Scan};
use super::segment::SegmentInfo;
use super::segment_set::SegmentSet;
use super::state::{DiskSpace, Job, LogShared, OnSynced};
use super::tree::{CompactRange, Hash};
use super::writer::Writer;

/// A log that is open for writing. Dropping it writes a last mark and stops its threads.
pub struct LogEngine {
    shared: Arc<LogShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _lock: Box<dyn Any + Send + Sync>,
}

impl LogEngine {
    /// Opens the log in `dir`, or creates it, and says what was found.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if what had been durable is damaged, [`LogError::Locked`] if another
    /// process writes it.
    pub fn open(dir: &Path, options: LogOptions) -> Result<(LogEngine, OpenReport), LogError> {
        LogEngine::open_with(Arc::new(RealFiles), dir, options)
    }

    /// Opens the log over another file layer.
    pub fn open_with(
        files: Arc<dyn FileLayer>,
        dir: &Path,
        options: LogOptions,
    ) -> Result<(LogEngine, OpenReport), LogError> {
        files
            .create_dir(dir)
            .map_err(|e| LogError::io("create", dir, e))?;
        // One that a kill left may be in memory alone.
        let above = super::file::parent_dir(dir);
        files
            .sync_dir(above)
            .map_err(|e| LogError::io("sync", above, e))?;
        // The directories further up are synced too, as they may be new as well; a failure there is
        // ignored.
        let mut above = above;
        while super::file::parent_dir(above) != above && above != Path::new(".") {
            above = super::file::parent_dir(above);
            let _ = files.sync_dir(above);
        }
        let lock = files
            .lock(dir)
            .map_err(|e| LogError::io("lock", dir, e))?
            .ok_or_else(|| LogError::Locked {
                path: dir.to_owned(),
            })?;
        let opened = open::open(&files, dir, &options)?;
        // So may the names of the files that were found.
        files
            .sync_dir(dir)
            .map_err(|e| LogError::io("sync", dir, e))?;
        let report = opened.report.clone();
        let housekeeper = HousekeeperState::new(opened.spares);
        let shared = Arc::new(LogShared {
            dir: dir.to_owned(),
            files,
            epoch: Mutex::new(opened.epoch),
            state: Mutex::new(opened.state),
            wake: Condvar::new(),
            segments: SegmentSet::new(opened.segments),
            tree: Mutex::new(opened.tree),
            housekeeper: Mutex::new(housekeeper),
            housekeeper_wake: Condvar::new(),
            options,
        });
        let writer = Writer::new(Arc::clone(&shared), opened.active);
        let mut threads = vec![spawn("log-writer", move || writer.run())?];
        if shared.options.prepare || shared.options.seal {
            let shared = Arc::clone(&shared);
            threads.push(spawn("log-keeper", move || housekeeper::run(&shared))?);
        }
        let engine = LogEngine {
            shared,
            threads: Mutex::new(threads),
            _lock: lock,
        };
        Ok((engine, report))
    }

    /// Queues entries, which must follow the last one. They can be read when this returns; `done`
    /// is called when they are durable.
    ///
    /// # Errors
    /// At once for a gap, a body that is too long, or a log that has stopped; `done` is dropped
    /// then. Later through `done`: [`LogError::DiskFull`] (where the options say that a full disk
    /// fails) or a failed write, and then none of the entries queued at that time is kept.
    pub fn append(&self, entries: Vec<Entry>, done: OnSynced) -> Result<(), LogError> {
        let mut state = self.shared.state.lock();
        state.check()?;
        state.append(entries, done, self.shared.options.max_body)?;
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Queues entries as [`append`](Self::append) does, and drops what lies before them once they
    /// are durable; where they cannot be written nothing is dropped, and `done` gets the error.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn replace(&self, entries: Vec<Entry>, done: OnSynced) -> Result<(), LogError> {
        let mut state = self.shared.state.lock();
        state.check()?;
        let before = state.next.checked_sub(1);
        state.append(entries, Box::new(drop), self.shared.options.max_body)?;
        match before {
            Some(last) => state.purge(last, Bytes::new(), done),
            None => state.queue.push_back(Job::Barrier(done)),
        }
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Appends one entry after the last and waits until it is durable; answers its index.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_one(&self, kind: u16, time: i64, body: Bytes) -> Result<u64, LogError> {
        let (tx, rx) = mpsc::sync_channel(1);
        let done: OnSynced = Box::new(move |r| {
            let _ = tx.send(r);
        });
        let index = self.append_next(kind, time, |_| body, done)?;
        rx.recv().map_err(|_| LogError::Closed)??;
        Ok(index)
    }

    /// Queues one entry after the last, whose body may name its place; answers its index. `done`
    /// is called when it is durable.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_next(
        &self,
        kind: u16,
        time: i64,
        make: impl FnOnce(u64) -> Bytes,
        done: OnSynced,
    ) -> Result<u64, LogError> {
        let index = {
            let mut state = self.shared.state.lock();
            state.check()?;
            let body = make(state.next);
            let (index, len, max) = (state.next, body.len(), self.shared.options.max_body);
            if len > max {
                return Err(LogError::TooLarge { index, len, max });
            }
            let entry = Entry {
                index,
                kind,
                time,
                body,
            };
            state.next += 1;
            state.tail_bytes += len;
            state.tail.push_back(entry.clone());
            state.queue.push_back(Job::Append(vec![entry], done));
            index
        };
        self.shared.wake.notify_one();
        Ok(index)
    }

    fn push(&self, job: Job) -> Result<(), LogError> {
        let mut state = self.shared.state.lock();
        state.check()?;
        state.queue.push_back(job);
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Stores the vote. [`vote`](Self::vote) answers it at once; `done` is called when durable.
    ///
    /// # Errors
    /// If the log has stopped.
    pub fn save_vote(&self, vote: Bytes, done: OnSynced) -> Result<(), LogError> {
        let mut state = self.shared.state.lock();
        state.check()?;
        state.vote = Some(vote.clone());
        state.queue.push_back(Job::Vote(vote, done));
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// The last stored vote.
    pub fn vote(&self) -> Option<Bytes> {
        self.shared.state.lock().vote.clone()
    }

    /// Reports up to where the log is committed, with what the caller wants back after a restart.
    /// It is written with the next batch, within the mark's delay at the latest, and never synced
    /// for its own sake: after a crash an older position may be found.
    pub fn commit(&self, index: u64, position: Bytes) {
        let mut state = self.shared.state.lock();
        if state.committed_index().is_none_or(|c| index >= c) {
            state.committed = Some((index, position));
            if state.asleep {
                drop(state);
                self.shared.wake.notify_one();
            }
        }
    }

    /// The committed position.
    pub fn committed(&self) -> Option<(u64, Bytes)> {
        self.shared.state.lock().committed.clone()
    }

    /// Removes the entries above `after` (all, if `None`), which must not be committed.
    ///
    /// # Errors
    /// [`LogError::Committed`], or a log that has stopped.
    pub fn truncate_after(&self, after: Option<u64>, done: OnSynced) -> Result<(), LogError> {
        let mut state = self.shared.state.lock();
        state.check()?;
        let from = after.map_or(0, |a| a + 1).max(state.first);
        if let Some(committed) = state.committed_index().filter(|c| *c >= from) {
            let after = from.saturating_sub(1);
            if state.next > from {
                return Err(LogError::Committed { after, committed });
            }
        }
        if from < state.next {
            state.cut(from);
            state.queue.push_back(Job::Truncate(from, done));
        } else {
            state.queue.push_back(Job::Barrier(done));
        }
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Drops the entries up to `index`, inclusive, and remembers `position`, which may lie beyond
    /// the last entry (a snapshot was installed): appending then continues after it. They cannot be
    /// read from now on, unless `done` gets a failure.
    ///
    /// # Errors
    /// If the log has stopped.
    pub fn purge(&self, index: u64, position: Bytes, done: OnSynced) -> Result<(), LogError> {
        let mut state = self.shared.state.lock();
        state.check()?;
        state.purge(index, position, done);
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Lets a log that never held an entry begin at `index`, which becomes its epoch's first.
    ///
    /// # Errors
    /// [`LogError::Gap`] if it is not empty, or a log that has stopped.
    pub fn begin_at(&self, index: u64, done: OnSynced) -> Result<(), LogError> {
        let mut state = self.shared.state.lock();
        state.check()?;
        if state.next != state.first || state.purged.is_some() || index < state.next {
            let expected = state.next;
            return Err(LogError::Gap {
                expected,
                got: index,
            });
        }
        if index > state.next {
            state.cut(index);
            state.first = index;
            state.queue.push_back(Job::Begin(index, done));
        } else {
            state.queue.push_back(Job::Barrier(done));
        }
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Ends the segment that is written, if it holds anything: it can be sealed, and dropped, while
    /// the log continues in another. Waits for the disk.
    ///
    /// # Errors
    /// If a write failed or the log has stopped.
    pub fn roll(&self) -> Result<(), LogError> {
        self.wait_for(Job::Roll)
    }

    /// Announces the tree's state after `index`, so that a purge beyond the last entry can continue
    /// from it (a Raft snapshot carries it).
    pub fn set_base(&self, index: u64, range: CompactRange) {
        self.shared.state.lock().base = Some((index, range));
    }

    /// The purged position, once it is durable.
    pub fn purged(&self) -> Option<(u64, Bytes)> {
        self.shared.state.lock().purged.clone()
    }

    /// Waits until all that was queued is durable.
    ///
    /// # Errors
    /// If a write failed or the log has stopped.
    pub fn sync(&self) -> Result<(), LogError> {
        self.wait_for(Job::Barrier)
    }

    fn wait_for(&self, job: impl FnOnce(OnSynced) -> Job) -> Result<(), LogError> {
        let (tx, rx) = mpsc::sync_channel(1);
        self.push(job(Box::new(move |r| {
            let _ = tx.send(r);
        })))?;
        rx.recv().map_err(|_| LogError::Closed)?
    }

    /// The first index that can be read, and the index after the last.
    pub fn bounds(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (state.first, state.next)
    }

    /// The index after the last durable entry.
    pub fn durable_next(&self) -> u64 {
        self.shared.state.lock().durable_next
    }

    /// One entry; `None` beyond the end.
    ///
    /// # Errors
    /// [`LogError::Purged`], or damage, which is never served.
    pub fn read(&self, index: u64) -> Result<Option<Entry>, LogError> {
        Ok(self
            .shared
            .read_range(index, index.saturating_add(1), 0)?
            .pop())
    }

    /// Some of the entries `from..to`: at least one if there is any, about `max_bytes` at most.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_range(&self, from: u64, to: u64, max_bytes: usize) -> Result<Vec<Entry>, LogError> {
        self.shared.read_range(from, to, max_bytes)
    }

    /// All entries from `from` to the end, with those that are appended before the scan gets there.
    pub fn scan(&self, from: u64) -> Scan<'_> {
        Scan::new(&*self.shared, from, u64::MAX)
    }

    /// The epoch of this log.
    pub fn epoch(&self) -> Epoch {
        *self.shared.epoch.lock()
    }

    /// The tree over the committed and durable entries; `None` without a tree.
    pub fn compact_range(&self) -> Option<CompactRange> {
        let committed = self.shared.state.lock().commit_unless_truncating();
        let mut tree = self.shared.tree.lock();
        if let Some(index) = committed {
            tree.commit(index);
        }
        tree.range.clone()
    }

    /// Size and root of that tree.
    pub fn root(&self) -> Option<(u64, Hash)> {
        self.compact_range().map(|r| (r.size(), r.root()))
    }

    /// The tree after entry `index`, folded from the start of its segment; `None` if it is not
    /// durable here or there is no tree.
    ///
    /// # Errors
    /// Damage in that segment.
    pub fn range_at(&self, index: u64) -> Result<Option<CompactRange>, LogError> {
        self.shared.segments.range_at(index)
    }

    /// The segments, in order.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.shared.segments.infos()
    }

    /// Whether there is space.
    pub fn space(&self) -> DiskSpace {
        self.shared.state.lock().space
    }

    /// Why the log stopped, if it did.
    pub fn stopped(&self) -> Option<String> {
        self.shared.state.lock().stopped.clone()
    }

    /// The log's directory.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Writes what is queued and a last mark, and stops the threads. Later calls fail.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_all();
        self.shared.housekeeper.lock().closed = true;
        self.shared.housekeeper_wake.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
impl LogEngine {
    /// Calls `done` when all that was queued before is durable.
    pub(crate) fn barrier(&self, done: OnSynced) -> Result<(), LogError> {
        self.push(Job::Barrier(done))
    }
}

impl Drop for LogEngine {
    fn drop(&mut self) {
        self.close();
    }
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LogError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(f)
        .map_err(|e| LogError::io("start a thread for", Path::new(name), e))
}
