//! The request log: the requests to this server that change nothing but matter.
//!
//! Reads of secrets and of files, commands run inside allocations, sign-ins, reads of the audit
//! trail, and every request that was denied. These requests are no events and do not go through
//! Raft: each server keeps its own, in the same engine and behind the same header as the cluster's
//! log. A request is written twice, when it is received and when it is answered: a request during
//! which the server died shows that as well.
//!
//! - It must not know HTTP or what a request means; the caller names the class of a record.
//! - It cannot silently stop: with [`Guarantee::Enforced`] a request is refused that cannot be
//!   written and synced; with [`Guarantee::BestEffort`] it is appended before the answer, and
//!   what could not be written is counted.
//! - After a failed write it is opened again, with growing pauses; until then it cannot be written.
//! - What retention drops goes by whole segments, the oldest first, and its end is recorded.
//! - Of what strangers are denied so much of one address is written, and so much of all, and of the
//!   rest how much there was ([`LeftOut`]).
//! - Queries, bodies and tokens are never in it; for a command that is run beside a task, its words
//!   and the number of bytes in and out are, and so are the addresses of the servers that a client
//!   is given.

mod mend;
mod read;
mod record;
mod strangers;

#[cfg(test)]
pub(crate) mod requests_test;

use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::base::clock::unix_nanos;
pub use crate::config::Guarantee;
use crate::error::{Code, Refusal, chain};
use crate::log::{FileLayer, LogEngine, LogError, OnSynced, RealFiles, RetentionPolicy};

use mend::Slot;
pub use read::{Listing, Records, RequestLogEntry, RequestQuery, beginning, list};
use record::{COMPLETED, RECEIVED, body};
pub use record::{Class, Completed, Ran, Received, Session};
pub use strangers::LeftOut;
use strangers::{Strangers, SuppressedCount};

/// The statuses that say that nothing was done.
const REFUSED: Range<u16> = 400..500;
/// A segment spans this part of the age that is kept, at most: what is dropped is older than that
/// by no more.
const ROLLED: u32 = 4;

/// What is answered instead where a request must be written down and cannot be.
pub fn unwritten(error: LogError) -> Refusal {
    let why = chain(&error);
    tracing::error!(
        error = why,
        "a request is refused: the request log cannot be written"
    );
    let text = format!("the request is refused: the request log cannot be written: {why}");
    Refusal::new(Code::Unavailable, text)
}

/// The request log of one server.
pub struct RequestLog {
    /// Where it lies; none where it is switched off.
    place: Option<(Arc<dyn FileLayer>, PathBuf)>,
    slot: Mutex<Slot>,
    guarantee: Guarantee,
    lost: Arc<AtomicU64>,
    /// The time of the last record: times do not run backwards.
    last: Mutex<i64>,
    strangers: Strangers,
    /// Why the last record was refused that had to be written; none where it was not.
    refused: Mutex<Option<String>>,
}

/// A request that was received and waits for its end. Dropped without one, it is written down as
/// given up: its caller left, or its handler failed.
#[must_use = "a request without an end looks as if it had been given up"]
pub struct Ticket {
    requests: Arc<RequestLog>,
    state: OpenRequest,
}

/// What is known of a request without an end.
enum OpenRequest {
    /// It is written if it is not refused; the request of a stranger at this address, which has no
    /// quota left.
    Waits(Box<Received>, IpAddr),
    /// It was written, here and then (Unix nanoseconds).
    Open(u64, i64),
    /// It could not be written.
    Lost,
    /// Its end is written, or need not be.
    Done,
}

impl RequestLog {
    /// Opens the log in `dir`, or makes one.
    ///
    /// # Errors
    /// With [`Guarantee::Enforced`], that it cannot be opened; else that is logged, every request
    /// counts as lost, and the server starts.
    pub fn open(dir: &Path, guarantee: Guarantee) -> Result<Self, LogError> {
        Self::open_with(Arc::new(RealFiles), dir, guarantee)
    }

    /// Opens the log over another file layer.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        files: Arc<dyn FileLayer>,
        dir: &Path,
        guarantee: Guarantee,
    ) -> Result<Self, LogError> {
        let requests = Self {
            guarantee,
            place: Some((files, dir.to_owned())),
            ..Self::off()
        };
        match requests.open_now() {
            Ok(()) => {}
            Err(error) if guarantee == Guarantee::Enforced => return Err(error),
            Err(error) => {
                let error = crate::error::chain(&error);
                tracing::error!(error, "the request log cannot be opened: requests are lost");
            }
        }
        Ok(requests)
    }

    /// A log that is switched off: nothing is written and nothing counts as lost.
    pub fn off() -> Self {
        Self {
            place: None,
            slot: Mutex::default(),
            guarantee: Guarantee::default(),
            lost: Arc::default(),
            last: Mutex::default(),
            strangers: Strangers::default(),
            refused: Mutex::default(),
        }
    }

    /// Records that could not be written since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// What happens where a request cannot be written.
    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// Whether requests are to be written at all.
    pub fn is_on(&self) -> bool {
        self.place.is_some()
    }

    /// Why nothing can be written at the moment; none while it can. This call tries again, where it
    /// is time to.
    pub fn broken(self: &Arc<Self>) -> Option<String> {
        if !self.is_on() {
            return None;
        }
        let why = self.slot.lock().why();
        if why.is_some() {
            self.mend();
        }
        why
    }

    /// What was written; none where there is no log, or none that is open.
    pub fn records(&self) -> Option<Arc<LogEngine>> {
        self.slot.lock().log.clone()
    }

    /// Drops what need not be kept at this time (Unix nanoseconds), by whole segments; the one that
    /// is written stays, but is followed by another once its oldest record has a part of the age.
    /// Answers the first record that is kept. It waits for the disk.
    ///
    /// # Errors
    /// What cannot be written or removed.
    pub fn forget(&self, keep: &RetentionPolicy, now: i64) -> Result<u64, LogError> {
        let Some(log) = self.records() else {
            return Ok(0);
        };
        let (first, next) = log.bounds();
        let last = next.saturating_sub(1);
        let aged = RetentionPolicy {
            age: keep.part(ROLLED).age,
            ..RetentionPolicy::default()
        };
        let aged = aged.droppable(&log, last, now)?;
        let written = log.segments().pop().map_or(next, |segment| segment.first);
        if aged.is_some_and(|index| index >= written) {
            log.roll()?;
        }
        let mut segments = log.segments();
        let droppable = keep.droppable(&log, last, now)?;
        segments.pop();
        let ends = segments.iter().map(|one| one.first + one.entries);
        let whole = ends.filter(|end| droppable.is_some_and(|last| *end <= last + 1));
        match whole.max().filter(|end| *end > first) {
            Some(end) => {
                log.purge(end - 1, Bytes::new(), Box::new(drop))?;
                log.sync()?;
                tracing::info!(first = end, "the request log lost its beginning");
                Ok(end)
            }
            None => Ok(first),
        }
    }

    /// Writes that a request was received.
    ///
    /// # Errors
    /// With [`Guarantee::Enforced`], that it could not be written: the request must not continue.
    pub async fn receive(self: &Arc<Self>, received: &Received) -> Result<Ticket, LogError> {
        self.receive_with(received, SuppressedCount::default())
            .await
    }

    /// The same; `stranger` is the address of a caller without any rights. Where its quota is used
    /// up, the request is counted as refused; should it succeed, it is written at its end.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_of(
        self: &Arc<Self>,
        received: Received,
        stranger: Option<IpAddr>,
    ) -> Result<Ticket, LogError> {
        let Some(from) = stranger else {
            return self.receive(&received).await;
        };
        if self.has_capacity_for_stranger(from) {
            return self.receive_reporting(received).await;
        }
        let requests = Arc::clone(self);
        let state = OpenRequest::Waits(Box::new(received), from);
        Ok(Ticket { requests, state })
    }

    /// Writes that a request was received, and what was left out before.
    async fn receive_reporting(self: &Arc<Self>, mut record: Received) -> Result<Ticket, LogError> {
        let taken = self.strangers.take();
        record.left_out.clone_from(taken.left_out());
        self.receive_with(&record, taken).await
    }

    async fn receive_with(
        self: &Arc<Self>,
        received: &Received,
        taken: SuppressedCount,
    ) -> Result<Ticket, LogError> {
        let requests = Arc::clone(self);
        if !self.is_on() {
            let state = OpenRequest::Done;
            return Ok(Ticket { requests, state });
        }
        let received = received.cut();
        let make = |index, _| body(index, RECEIVED, &received);
        let written = self.write(RECEIVED, make, taken);
        let state = match written.await? {
            Some((index, time)) => OpenRequest::Open(index, time),
            None => OpenRequest::Lost,
        };
        Ok(Ticket { requests, state })
    }

    /// Whether one more denial of a stranger at this address is written; the call counts it as one.
    pub fn has_capacity_for_stranger(&self, address: IpAddr) -> bool {
        !self.is_on() || self.strangers.have_capacity(address)
    }

    /// Writes that a request was denied, and with which status; with it what was left out before.
    ///
    /// # Errors
    /// With [`Guarantee::Enforced`], that it could not be written: the denial must not go out.
    pub async fn denied(self: &Arc<Self>, record: Received, status: u16) -> Result<(), LogError> {
        let received = self.receive_reporting(record).await?;
        received.complete(status).await
    }

    /// Counts a refusal of a stranger at this address beyond its quota.
    ///
    /// # Errors
    /// As [`denied`](Self::denied), where nothing could be written now: whether the log can be
    /// written is not shown to the denied caller.
    pub fn leave_out(self: &Arc<Self>, address: IpAddr) -> Result<(), LogError> {
        self.strangers.leave_out(address);
        let why = match self.guarantee {
            Guarantee::BestEffort => None,
            Guarantee::Enforced => self.broken().or_else(|| self.refused.lock().clone()),
        };
        match why {
            Some(why) => Err(LogError::Stopped(why)),
            None => Ok(()),
        }
    }

    /// Writes a record and, with [`Guarantee::Enforced`], waits until it is durable. None: it was
    /// lost, which is counted.
    async fn write(
        self: &Arc<Self>,
        kind: u16,
        make: impl FnOnce(u64, i64) -> Bytes,
        taken: SuppressedCount,
    ) -> Result<Option<(u64, i64)>, LogError> {
        if self.guarantee == Guarantee::BestEffort {
            return Ok(self.write_at_best(kind, make, taken));
        }
        let written = self.write_surely(kind, make, taken).await;
        *self.refused.lock() = written.as_ref().err().map(|error| chain(error));
        written.map(Some)
    }

    async fn write_surely(
        self: &Arc<Self>,
        kind: u16,
        make: impl FnOnce(u64, i64) -> Bytes,
        taken: SuppressedCount,
    ) -> Result<(u64, i64), LogError> {
        let (reported, durable) = tokio::sync::oneshot::channel();
        let done = Box::new(move |outcome: Result<(), LogError>| {
            if outcome.is_ok() {
                taken.written();
            }
            // This fails where the caller has left.
            let _ = reported.send(outcome);
        });
        let place = self.append(kind, make, done)?;
        durable.await.map_err(|_| LogError::Closed)??;
        Ok(place)
    }

    /// Writes a record as far as that is possible now, and counts it as lost where it is not.
    fn write_at_best(
        self: &Arc<Self>,
        kind: u16,
        make: impl FnOnce(u64, i64) -> Bytes,
        taken: SuppressedCount,
    ) -> Option<(u64, i64)> {
        let lost = Arc::clone(&self.lost);
        let done = Box::new(move |outcome: Result<(), LogError>| match outcome {
            Ok(()) => taken.written(),
            Err(error) => count(&lost, &error),
        });
        let appended = self.append(kind, make, done);
        appended.map_err(|error| count(&self.lost, &error)).ok()
    }

    fn append(
        self: &Arc<Self>,
        kind: u16,
        make: impl FnOnce(u64, i64) -> Bytes,
        done: OnSynced,
    ) -> Result<(u64, i64), LogError> {
        if let Some(why) = self.broken() {
            return Err(LogError::Stopped(why));
        }
        let log = self.records().ok_or(LogError::Closed)?;
        let mut last = self.last.lock();
        let time = unix_nanos().max(last.saturating_add(1));
        let index = log.append_next(kind, time, |index| make(index, time), done)?;
        *last = time;
        Ok((index, time))
    }
}

fn count(lost: &AtomicU64, error: &LogError) {
    lost.fetch_add(1, Ordering::Relaxed);
    metrics::counter!("drover.requests.lost_total").increment(1);
    tracing::warn!(%error, "a record could not be written to the request log");
}

impl Ticket {
    /// Writes how the request ended.
    ///
    /// # Errors
    /// With [`Guarantee::Enforced`], that it could not be written: the answer must not go out.
    pub async fn complete(self, status: u16) -> Result<(), LogError> {
        self.complete_with(status, None).await
    }

    /// The same, of a request that ran a command.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub async fn complete_with(
        mut self,
        status: u16,
        session: Option<Session>,
    ) -> Result<(), LogError> {
        let requests = Arc::clone(&self.requests);
        match std::mem::replace(&mut self.state, OpenRequest::Done) {
            OpenRequest::Waits(_, from) if REFUSED.contains(&status) => requests.leave_out(from),
            OpenRequest::Waits(received, _) => {
                let late = requests.receive(&received).await?;
                Box::pin(late.complete_with(status, session)).await
            }
            OpenRequest::Open(index, time) => {
                let make = |at, now| end(at, (index, time), now, (status, session));
                let ended = requests.write(COMPLETED, make, SuppressedCount::default());
                ended.await.map(drop)
            }
            OpenRequest::Lost => {
                let why = LogError::Stopped("its beginning was lost".to_owned());
                count(&requests.lost, &why);
                Ok(())
            }
            OpenRequest::Done => Ok(()),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        match self.state {
            OpenRequest::Open(index, time) => {
                let make = |at, now| end(at, (index, time), now, (0, None));
                let nothing = SuppressedCount::default();
                self.requests.write_at_best(COMPLETED, make, nothing);
            }
            OpenRequest::Waits(_, from) => self.requests.strangers.leave_out(from),
            OpenRequest::Lost | OpenRequest::Done => {}
        }
    }
}

/// The record of a request's end, at a place and time.
fn end(
    at: u64,
    (received, received_time): (u64, i64),
    now: i64,
    (status, session): (u16, Option<Session>),
) -> Bytes {
    let completed = Completed {
        received,
        received_time,
        status,
        took: now.saturating_sub(received_time).max(0),
        session,
    };
    body(at, COMPLETED, &completed)
}
