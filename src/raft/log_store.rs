//! openraft's log store over the log engine. An entry's body is index ‖ term ‖ payload.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::vote::RaftLeaderId;
use openraft::{LogState, OptionalSend, RaftLogReader};
use tokio::sync::oneshot;

use super::pace::LogPace;
use super::types::{Entry, LogId, Payload, TypeConfig, Vote, log_id};
use crate::log::{self, LogEngine, LogError, OnSynced};
use crate::telemetry::took;

/// Bytes of index and term before the payload.
const POSITION: usize = 16;
/// Where an envelope's time lies in a payload: kind, version, map marker, "time", u64 marker.
const TIME_AT: usize = 4 + 1 + 5 + 1;
/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// The log store; clones share one log.
#[derive(Clone)]
pub struct LogStore {
    log: Arc<LogEngine>,
    /// What is measured; nothing where the log is no server's.
    pace: Option<Arc<LogPace>>,
}

impl LogStore {
    /// A store over an open log.
    pub fn new(log: Arc<LogEngine>) -> LogStore {
        LogStore { log, pace: None }
    }

    /// The same, of the server with this number: what it writes as the leader is timed.
    #[must_use]
    pub fn of(self, number: u64) -> LogStore {
        let pace = Some(Arc::new(LogPace::new(number)));
        LogStore { pace, ..self }
    }

    /// The entries `from..to` that exist, all of them.
    fn entries(&self, from: u64, to: u64) -> io::Result<Vec<Entry>> {
        let mut out = Vec::new();
        let mut next = from;
        while next < to {
            let some = self.log.read_range(next, to, CHUNK)?;
            if some.is_empty() {
                break;
            }
            next += some.len() as u64;
            for e in some {
                out.push(decode_entry(&e)?);
            }
        }
        Ok(out)
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(i) => *i,
        Bound::Excluded(i) => i + 1,
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(i) => i.saturating_add(1),
        Bound::Excluded(i) => *i,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

/// The entry in the log engine's form; its body is what is hashed.
fn encode_entry(entry: &Entry) -> log::Entry {
    let (leader, index) = entry.log_id_parts();
    let payload = &entry.payload;
    let mut body = Vec::with_capacity(POSITION + payload.0.len());
    body.extend_from_slice(&index.to_le_bytes());
    body.extend_from_slice(&leader.to_le_bytes());
    body.extend_from_slice(&payload.0);
    log::Entry {
        index,
        kind: payload.kind_number(),
        time: time_of(&payload.0),
        body: body.into(),
    }
}

/// An event's time; 0 for Raft's own entries, which are shorter than an envelope or hold no map.
fn time_of(payload: &[u8]) -> i64 {
    let named = payload.get(5..10) == Some(b"\xa4time");
    match payload.get(TIME_AT..TIME_AT + 8) {
        Some(b) if named => i64::from_be_bytes(b.try_into().expect("eight bytes")),
        _ => 0,
    }
}

pub(super) fn decode_entry(entry: &log::Entry) -> io::Result<Entry> {
    let body = &entry.body;
    let malformed = || {
        let text = format!("the body at index {} has no index and term", entry.index);
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?))
    };
    let (index, term) = number(0).zip(number(8)).ok_or_else(malformed)?;
    if index != entry.index {
        return Err(malformed());
    }
    Ok(Entry::new(
        log_id(term, index),
        Payload(body.slice(POSITION..)),
    ))
}

pub(super) fn encode_vote(vote: &Vote) -> Bytes {
    let leader = vote.leader_id();
    let mut out = Vec::with_capacity(17);
    out.extend_from_slice(&leader.term().to_le_bytes());
    out.extend_from_slice(&leader.node_id().to_le_bytes());
    out.push(u8::from(vote.is_committed()));
    out.into()
}

fn decode_vote(bytes: &[u8]) -> io::Result<Vote> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed vote record");
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let (term, node) = number(0).zip(number(8)).ok_or_else(malformed)?;
    match bytes.get(16) {
        Some(1) => Ok(Vote::new_committed(term, node)),
        Some(0) => Ok(Vote::new(term, node)),
        _ => Err(malformed()),
    }
}

pub(super) fn position(id: &LogId) -> Bytes {
    Bytes::copy_from_slice(&id.leader_id.to_le_bytes())
}

fn decode_position((index, bytes): (u64, Bytes)) -> io::Result<LogId> {
    let term = bytes
        .get(..8)
        .and_then(|b| b.try_into().ok())
        .map(u64::from_le_bytes);
    let term = term
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed position record"))?;
    Ok(log_id(term, index))
}

/// A callback to wait for.
fn waiter() -> (OnSynced, impl Future<Output = io::Result<()>>) {
    let (tx, rx) = oneshot::channel();
    let done: OnSynced = Box::new(move |r| {
        let _ = tx.send(r);
    });
    let wait = async move { Ok(rx.await.unwrap_or(Err(LogError::Closed))?) };
    (done, wait)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (from, to) = bounds(&range);
        let (first, _) = self.log.bounds();
        self.entries(from.max(first), to)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        self.log.vote().map(|v| decode_vote(&v)).transpose()
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let some = self.log.read_range(start, end, CHUNK)?;
        some.iter().map(decode_entry).collect()
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        let log = Arc::clone(&self.log);
        let chunks = Chunks {
            log,
            next: from,
            to,
            ready: Vec::new().into_iter(),
        };
        futures_util::stream::iter(chunks)
    }
}

/// Entries read chunk by chunk, so that a long catch-up needs little memory.
struct Chunks {
    log: Arc<LogEngine>,
    next: u64,
    to: u64,
    ready: std::vec::IntoIter<log::Entry>,
}

impl Iterator for Chunks {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        if let Some(e) = self.ready.next() {
            return Some(decode_entry(&e));
        }
        if self.next >= self.to {
            return None;
        }
        match self.log.read_range(self.next, self.to, CHUNK) {
            Ok(some) => {
                self.next += some.len() as u64;
                if some.is_empty() {
                    self.to = self.next;
                }
                self.ready = some.into_iter();
                self.ready.next().map(|e| decode_entry(&e))
            }
            Err(e) => {
                self.to = self.next;
                Some(Err(e.into()))
            }
        }
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let purged = self.log.purged().map(decode_position).transpose()?;
        let (first, next) = self.log.bounds();
        let last = if next > first {
            self.log
                .read(next - 1)?
                .map(|e| decode_entry(&e))
                .transpose()?
                .map(|e| e.log_id())
        } else {
            None
        };
        Ok(LogState {
            last_purged_log_id: purged,
            last_log_id: last.or(purged),
        })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let (done, wait) = waiter();
        self.log.save_vote(encode_vote(vote), done)?;
        wait.await?;
        if let Some(pace) = &self.pace {
            pace.voted(*vote.leader_id().node_id(), vote.is_committed());
        }
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        if let Some(id) = committed {
            self.log.commit(id.index, position(&id));
            if let Some(pace) = &self.pace {
                pace.committed(id.index);
            }
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        self.log.committed().map(decode_position).transpose()
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<log::Entry> = entries.into_iter().map(|e| encode_entry(&e)).collect();
        let (first, next) = self.log.bounds();
        let begin = entries.first().map(|e| e.index).filter(|i| *i > next);
        if let Some(index) = begin.filter(|_| first == next && self.log.purged().is_none()) {
            let (done, wait) = waiter();
            self.log.begin_at(index, done)?;
            wait.await?;
        }
        let last = entries.last().map(|e| e.index);
        let led = last.and_then(|last| self.pace.as_ref()?.writes(last));
        let done: OnSynced = Box::new(move |r| {
            if let (Some(began), Ok(())) = (led, &r) {
                took("nomad.raft.leader.dispatchLog", began);
            }
            callback.io_completed(r.map_err(io::Error::from));
        });
        Ok(self.log.append(entries, done)?)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let (done, wait) = waiter();
        self.log
            .truncate_after(last_log_id.map(|id| id.index), done)?;
        wait.await
    }

    async fn purge(&mut self, id: LogId) -> io::Result<()> {
        let (done, wait) = waiter();
        self.log.purge(id.index, position(&id), done)?;
        wait.await
    }
}
