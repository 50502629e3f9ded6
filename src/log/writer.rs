//! The one thread that writes. A batch encodes all that is queued, writes it with one `pwrite`,
//! syncs once, publishes what is durable and fires the callbacks in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::error::LogError;
use super::format::{Entry, Record, Stamp, frame_size, put_frame};
use super::segment::{OpenSegment, Segment};
use super::state::{DiskSpace, Job, LogShared, LogState, OnSynced, Position};
use super::tree::{Hash, leaf_hash};

/// Space left in a segment for marks and local records.
const RESERVE: u64 = 4096;
/// How often a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_millis(50);
/// A batch that leaves this much written zeroes no further ahead: the file is growing fast, and
/// zeroing would only write it twice.
const LARGE_ROUND: usize = 32 << 10;

/// Where the writer stands when it begins.
pub(super) struct Active {
    pub(super) segment: Arc<Segment>,
    /// End of the frames.
    pub(super) pos: u64,
    /// Bytes of the file that were written before and need no metadata change.
    pub(super) zeroed: u64,
    /// The index of the next entry.
    pub(super) next: u64,
}

pub(super) struct Writer {
    pub(super) shared: Arc<LogShared>,
    pub(super) segment: Arc<Segment>,
    pub(super) pos: u64,
    pub(super) synced: u64,
    pub(super) zeroed: u64,
    pub(super) next: u64,
    pub(super) buf: Vec<u8>,
    pub(super) offsets: Vec<u32>,
    pub(super) leaves: Vec<Hash>,
    /// Fired by the next flush.
    pub(super) done: Vec<OnSynced>,
    /// Callbacks of the job at hand: not fired before all of it is written.
    pub(super) held: Vec<OnSynced>,
    /// The committed position that the files hold.
    pub(super) committed: Option<Position>,
    pub(super) marked: bool,
    /// Whether the housekeeper is to prepare the next file, or has.
    pub(super) next_file_requested: bool,
    pub(super) seal_at: Option<u64>,
}

enum BatchEnd {
    Jobs(VecDeque<Job>),
    Idle,
    Closed,
}

impl Writer {
    pub(super) fn new(shared: Arc<LogShared>, active: Active) -> Writer {
        let committed = shared.state.lock().committed.clone();
        Writer {
            segment: active.segment,
            pos: active.pos,
            synced: active.pos,
            zeroed: active.zeroed,
            next: active.next,
            buf: Vec::new(),
            offsets: Vec::new(),
            leaves: Vec::new(),
            done: Vec::new(),
            held: Vec::new(),
            committed,
            marked: true,
            next_file_requested: false,
            seal_at: None,
            shared,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let result = match self.take() {
                BatchEnd::Jobs(jobs) => self.write_batch(jobs),
                BatchEnd::Idle => self.write_mark(),
                BatchEnd::Closed => {
                    if !self.marked || self.new_commit().is_some() {
                        let _ = self.write_mark();
                    }
                    return;
                }
            };
            if let Err(e) = result {
                self.stop(&e);
                return;
            }
        }
    }

    fn take(&mut self) -> BatchEnd {
        let mut state = self.shared.state.lock();
        let deadline = Instant::now() + self.shared.options.mark_after;
        loop {
            if !state.queue.is_empty() {
                return BatchEnd::Jobs(std::mem::take(&mut state.queue));
            }
            if state.closed {
                return BatchEnd::Closed;
            }
            if self.marked && self.commit_to_report(&state, self.next).is_none() {
                state.asleep = true;
                self.shared.wake.wait(&mut state);
                state.asleep = false;
                if state.queue.is_empty() && !state.closed {
                    self.marked = false;
                }
                continue;
            }
            let waited = self.shared.wake.wait_until(&mut state, deadline);
            if waited.timed_out() && state.queue.is_empty() {
                return BatchEnd::Idle;
            }
        }
    }

    fn stamp(&self) -> Stamp {
        let durable_to = u32::try_from(self.synced).expect("segments are far below 4 GiB");
        Stamp {
            seed: self.segment.header().seed,
            durable_to,
        }
    }

    /// Writes all jobs. With [`OnFull::Fail`](super::OnFull::Fail) a full disk fails them and the
    /// log continues; any other error ends the writer.
    fn write_batch(&mut self, mut jobs: VecDeque<Job>) -> Result<(), LogError> {
        self.marked = false;
        while let Some(job) = jobs.pop_front() {
            if let Err(e) = self.one(job) {
                return self.fail(&e, jobs);
            }
        }
        match self.flush() {
            Ok(()) => Ok(()),
            Err(e) => self.fail(&e, jobs),
        }
    }

    fn one(&mut self, job: Job) -> Result<(), LogError> {
        match job {
            Job::Append(entries, done) => {
                self.held.push(done);
                for e in &entries {
                    self.entry(e)?;
                }
            }
            Job::Vote(vote, done) => {
                self.held.push(done);
                self.local(Record::Vote, 0, &vote);
            }
            Job::Truncate(from, done) => {
                self.held.push(done);
                self.truncate(from)?;
            }
            Job::Purge(index, position, done) => {
                self.held.push(done);
                self.purge(index, position)?;
            }
            Job::Begin(index, done) => {
                self.held.push(done);
                self.flush()?;
                self.begin(index)?;
            }
            Job::Roll(done) => {
                self.held.push(done);
                self.roll()?;
            }
            Job::Barrier(done) => self.held.push(done),
        }
        self.done.append(&mut self.held);
        Ok(())
    }

    fn entry(&mut self, e: &Entry) -> Result<(), LogError> {
        let end = self.pos + (self.buf.len() + frame_size(e.body.len())) as u64;
        let limit = self.shared.options.segment_bytes.saturating_sub(RESERVE);
        if end > limit && self.next > self.segment.first() {
            self.flush()?;
            self.rotate()?;
        }
        let stamp = self.stamp();
        let offset = self.pos + self.buf.len() as u64;
        put_frame(
            &mut self.buf,
            stamp,
            Record::Entry,
            (e.kind, e.index, e.time),
            &e.body,
        );
        self.offsets
            .push(u32::try_from(offset).expect("segments are far below 4 GiB"));
        if self.shared.options.tree {
            self.leaves.push(leaf_hash(&e.body));
        }
        self.next = e.index + 1;
        Ok(())
    }

    pub(super) fn local(&mut self, record: Record, index: u64, body: &[u8]) {
        let stamp = self.stamp();
        put_frame(&mut self.buf, stamp, record, (0, index, 0), body);
    }

    /// The vote, the committed and the purged position, of a log whose next entry is `next`.
    pub(super) fn locals(&mut self, next: u64) {
        let (vote, committed, purged) = {
            let state = self.shared.state.lock();
            let committed = self.commit_to_report(&state, next);
            (state.vote.clone(), committed, state.purged.clone())
        };
        let committed = committed.or_else(|| self.committed.clone());
        if let Some(vote) = vote {
            self.local(Record::Vote, 0, &vote);
        }
        if let Some((index, position)) = committed {
            self.local(Record::Committed, index, &position);
            self.committed = Some((index, position));
        }
        if let Some((index, position)) = purged {
            self.local(Record::Purged, index, &position);
        }
    }

    fn write_mark(&mut self) -> Result<(), LogError> {
        self.local(Record::Mark, 0, &[]);
        match self.flush() {
            Err(e) if e.is_full() => {
                self.buf.clear();
                self.marked = true;
                Ok(())
            }
            other => {
                self.marked = true;
                other
            }
        }
    }

    /// Writes and syncs the buffer, publishes it, and fires the callbacks.
    pub(super) fn flush(&mut self) -> Result<(), LogError> {
        if let Some((index, position)) = self.new_commit() {
            self.local(Record::Committed, index, &position);
            self.committed = Some((index, position));
        }
        if !self.buf.is_empty() {
            let len = self.buf.len();
            self.zero_ahead();
            let segment = Arc::clone(&self.segment);
            let open = segment.open().expect("the active segment is open");
            self.write(open)?;
            open.file
                .sync()
                .map_err(|e| stopped(LogError::io("sync", &open.path, e)))?;
            self.zeroed = self.zeroed.max(self.pos + self.buf.len() as u64);
            self.pos += len as u64;
            self.synced = self.pos;
            self.buf.clear();
            self.publish(open);
        }
        for done in self.done.drain(..) {
            done(Ok(()));
        }
        Ok(())
    }

    fn new_commit(&self) -> Option<Position> {
        self.commit_to_report(&self.shared.state.lock(), self.next)
    }

    /// The committed position, if the files do not hold it yet and may. An entry that is not
    /// written here yet does not count as committed, though a majority may hold it; nor does any
    /// while a truncation waits: the entry at that index may be the one that is removed.
    fn commit_to_report(&self, state: &LogState, next: u64) -> Option<Position> {
        let in_files = self.committed.as_ref().map(|(index, _)| *index);
        let caught_up = state.generation == state.carried_out;
        let committed = state.committed.as_ref().filter(|_| caught_up);
        committed
            .filter(|(index, _)| Some(*index) != in_files && *index < next)
            .cloned()
    }

    /// Pads the buffer with zeros up to the next step of `zero_ahead` when it leaves the part of
    /// the file that was written before.
    fn zero_ahead(&mut self) {
        let end = self.pos + self.buf.len() as u64;
        let ahead = self.shared.options.zero_ahead;
        if end > self.zeroed && ahead > 0 && self.buf.len() < LARGE_ROUND {
            let to = (end + 1)
                .next_multiple_of(ahead)
                .min(self.shared.options.segment_bytes);
            if to > end {
                self.buf.resize((to - self.pos) as usize, 0);
            }
        }
    }

    fn write(&self, open: &OpenSegment) -> Result<(), LogError> {
        loop {
            let Err(e) = open.file.write_at(&self.buf, self.pos) else {
                self.has_space();
                return Ok(());
            };
            let e = LogError::io("write", &open.path, e);
            if !e.is_full() {
                return Err(e);
            }
            if !self.shared.waits_when_full() {
                // What was written in part must not be taken for frames later.
                let zeros = vec![0; self.buf.len()];
                let used = open
                    .file
                    .size()
                    .map_err(|e| LogError::io("read", &open.path, e))?;
                let part = zeros.len().min(used.saturating_sub(self.pos) as usize);
                open.file
                    .write_at(&zeros[..part], self.pos)
                    .map_err(|e| stopped(LogError::io("write", &open.path, e)))?;
                self.shared.set_space(DiskSpace::Full);
                return Err(e);
            }
            self.wait_for_space()?;
        }
    }

    pub(super) fn has_space(&self) {
        if self.shared.state.lock().space == DiskSpace::Full {
            self.shared.set_space(DiskSpace::Enough);
        }
    }

    pub(super) fn wait_for_space(&self) -> Result<(), LogError> {
        self.shared.set_space(DiskSpace::Full);
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(LogError::Closed);
        }
        let until = Instant::now() + FULL_RETRY;
        while !state.closed && !self.shared.wake.wait_until(&mut state, until).timed_out() {}
        Ok(())
    }

    fn publish(&mut self, open: &OpenSegment) {
        {
            let mut frames = open.frames.write();
            frames.offsets.append(&mut self.offsets);
            frames.end = self.pos;
        }
        let committed = {
            let mut state = self.shared.state.lock();
            if state.generation == state.carried_out {
                state.durable_next = self.next;
            }
            if self.shared.options.auto_commit && self.next > 0 {
                state.committed = Some((self.next - 1, Bytes::new()));
                self.committed = state.committed.clone();
            }
            state.evict(self.shared.options.tail_bytes);
            state.commit_unless_truncating()
        };
        if self.shared.options.tree {
            let mut tree = self.shared.tree.lock();
            for leaf in self.leaves.drain(..) {
                tree.append(leaf);
            }
            if let Some(index) = committed {
                tree.commit(index);
            }
        }
        self.nudge_housekeeper(committed);
    }

    /// Requests the next file in time, and for sealing when a full segment is committed.
    fn nudge_housekeeper(&mut self, committed: Option<u64>) {
        let options = &self.shared.options;
        let prepare =
            options.prepare && !self.next_file_requested && self.pos > options.segment_bytes / 2;
        let seal = options.seal && self.seal_at.is_some_and(|i| committed >= Some(i));
        if prepare || seal {
            let mut housekeeper = self.shared.housekeeper.lock();
            housekeeper.want |= prepare;
            housekeeper.seal |= seal;
            self.shared.housekeeper_wake.notify_one();
            self.next_file_requested |= prepare;
            if seal {
                self.seal_at = None;
            }
        }
    }

    /// Fails this batch and what is queued. Only after a full disk does the writer continue.
    fn fail(&mut self, e: &LogError, rest: VecDeque<Job>) -> Result<(), LogError> {
        let mut jobs = rest;
        if e.is_full() {
            let begin = self.shared.segments.all()[0].first();
            let mut state = self.shared.state.lock();
            jobs.append(&mut state.queue);
            // What was to be dropped is there.
            state.first = state.purged.as_ref().map_or(begin, |(i, _)| i + 1);
            let segment_next = self.segment.next();
            state.cut(segment_next);
            state.durable_next = segment_next;
            self.next = segment_next;
            state.carried_out = state.generation;
        }
        if !e.is_full() {
            // A caller that gets the failure finds the log stopped.
            self.shared.state.lock().stopped = Some(drover_error::chain(e));
        }
        self.buf.clear();
        self.offsets.clear();
        self.leaves.clear();
        for done in self.done.drain(..).chain(self.held.drain(..)) {
            done(Err(e.clone()));
        }
        for job in jobs {
            job.fail(e);
        }
        if e.is_full() { Ok(()) } else { Err(e.clone()) }
    }

    fn stop(&self, e: &LogError) {
        let queue = {
            let mut state = self.shared.state.lock();
            if !state.closed {
                let (dir, error) = (self.shared.dir.display(), drover_error::chain(e));
                tracing::error!(%dir, error, "the log stops: nothing more is written");
            }
            state.stopped = Some(drover_error::chain(e));
            std::mem::take(&mut state.queue)
        };
        for job in queue {
            job.fail(e);
        }
    }
}

/// A failure after which the state of the file is unknown, even if the disk was merely full.
pub(super) fn stopped(e: LogError) -> LogError {
    match e {
        LogError::DiskFull { path } => LogError::Stopped(format!("disk full: {}", path.display())),
        other => other,
    }
}
