//! What the client remembers over restarts: keys and values on the log engine (MOD-16).
//!
//! Every change is one entry; the state is their fold. When most of the log is outdated, the live
//! values are written once more at its end and what lies before is dropped, so a crash at any point
//! leaves either the old entries or both. A torn tail is cut by the engine; what it held was never
//! acknowledged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use drover_base::clock::unix_nanos;
use drover_error::chain;
use drover_log::{Entry, FileLayer, LogEngine, LogError, LogOptions, OpenReport, RealFiles};

/// Key of an allocation's machine, as its runner keeps it.
pub fn state_key(id: &str) -> String {
    format!("alloc/{id}/state")
}

/// Key of an allocation as it came from the servers.
pub fn alloc_key(id: &str) -> String {
    format!("alloc/{id}/alloc")
}

/// Why the journal failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// An error of the log.
    #[error("journal: {}", chain(.0))]
    Log(LogError),
    /// What had been durable is damaged.
    #[error(
        "journal: damage in {segment} at offset {offset}, entry {entry}: {what}; no other machine \
         has it: stop the tasks that still run here, move the directory `journal` out of the \
         client's state_dir and start the agent, which keeps its node id and is given its \
         allocations anew"
    )]
    Damaged {
        segment: String,
        /// Byte offset of what is damaged.
        offset: u64,
        /// The first entry that cannot be read.
        entry: u64,
        /// What is wrong there.
        what: String,
    },
    /// An entry cannot be read: it was written by another release, or by a bug.
    #[error("journal entry {index}: {message}")]
    Entry {
        index: u64,
        /// What is wrong with it.
        message: String,
    },
}

impl From<LogError> for JournalError {
    /// A server's log can be had from its peers, a journal cannot: it has advice of its own.
    fn from(error: LogError) -> Self {
        match error {
            LogError::Corrupt {
                segment,
                offset,
                index,
                what,
            } => Self::Damaged {
                segment,
                offset,
                entry: index,
                what,
            },
            other => Self::Log(other),
        }
    }
}

/// Something that keeps values by key.
pub trait Journal: Send + Sync {
    /// Sets a value; the future ends when it is durable. An unchanged value is not written, unless
    /// it is not known to be durable: then it is written again.
    fn put(&self, key: &str, value: Vec<u8>) -> BoxFuture<'static, Result<(), JournalError>>;

    /// Forgets all keys that begin with `prefix`.
    fn delete(&self, prefix: &str) -> BoxFuture<'static, Result<(), JournalError>>;

    /// All that it holds.
    fn load(&self) -> BTreeMap<String, Bytes>;
}

/// Entry kinds in the journal's log.
const PUT: u16 = 1;
const DELETE: u16 = 2;
/// The form of the entries; the first byte of each.
const FORM: u8 = 1;
/// An entry may be as long as an event.
const MAX_ENTRY: usize = 8 << 20;
/// A segment holds more than the longest entry.
const SEGMENT: u64 = 16 << 20;
/// Below this many outdated bytes nothing is compacted.
const SLACK: usize = 4 << 20;

#[derive(Serialize, Deserialize)]
struct JournalRecord<'a> {
    #[serde(borrow)]
    key: &'a str,
    #[serde(with = "serde_bytes", borrow)]
    value: &'a [u8],
}

/// The journal of a client.
pub struct LogJournal {
    shared: Arc<JournalShared>,
}

struct JournalShared {
    log: LogEngine,
    state: Mutex<JournalState>,
}

#[derive(Default)]
struct JournalState {
    live: BTreeMap<String, Bytes>,
    live_bytes: usize,
    /// Bytes written since the last compaction.
    written: usize,
    /// Changes that are not known to be durable, each with the number of its last attempt. One
    /// whose future was dropped is among them too, and is at most written once more.
    unsure: BTreeMap<(u16, String), u64>,
    attempts: u64,
}

impl JournalState {
    fn put(&mut self, key: &str, value: Bytes) {
        self.live_bytes += key.len() + value.len();
        if let Some(old) = self.live.insert(key.to_owned(), value) {
            self.live_bytes -= key.len() + old.len();
        }
    }

    fn is_unsure(&self, kind: u16, key: &str) -> bool {
        !self.unsure.is_empty() && self.unsure.contains_key(&(kind, key.to_owned()))
    }

    /// A change is about to be written; gives the number of the attempt.
    fn attempt(&mut self, kind: u16, key: &str) -> u64 {
        self.attempts += 1;
        self.unsure.insert((kind, key.to_owned()), self.attempts);
        self.attempts
    }

    /// An attempt is durable: so is its change, where none came after it.
    fn mark_durable(&mut self, kind: u16, key: String, attempt: u64) {
        let change = (kind, key);
        if self.unsure.get(&change) == Some(&attempt) {
            self.unsure.remove(&change);
        }
    }

    fn delete(&mut self, prefix: &str) -> bool {
        let keys: Vec<String> = self
            .live
            .range(prefix.to_owned()..)
            .take_while(|(k, _)| k.starts_with(prefix))
            .map(|(k, _)| k.clone())
            .collect();
        for key in &keys {
            if let Some(old) = self.live.remove(key) {
                self.live_bytes -= key.len() + old.len();
            }
        }
        !keys.is_empty()
    }
}

impl LogJournal {
    /// Opens the journal in `dir`, or makes one, and says what recovery found.
    ///
    /// # Errors
    /// Damage of what had been durable, and entries that cannot be read.
    pub fn open(dir: &Path) -> Result<(Self, OpenReport), JournalError> {
        Self::open_with(Arc::new(RealFiles), dir)
    }

    /// Opens the journal over another file layer.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        files: Arc<dyn FileLayer>,
        dir: &Path,
    ) -> Result<(Self, OpenReport), JournalError> {
        let options = LogOptions {
            max_body: MAX_ENTRY,
            segment_bytes: SEGMENT,
            ..LogOptions::journal()
        };
        let (log, report) = LogEngine::open_with(files, dir, options)?;
        let mut state = JournalState::default();
        for entry in log.scan(log.bounds().0) {
            let entry = entry?;
            fold(&mut state, &entry)?;
        }
        let shared = Arc::new(JournalShared {
            log,
            state: Mutex::new(state),
        });
        Ok((Self { shared }, report))
    }
}

fn fold(state: &mut JournalState, entry: &Entry) -> Result<(), JournalError> {
    let wrong = |message: String| JournalError::Entry {
        index: entry.index,
        message,
    };
    let (form, body) = entry
        .body
        .split_first()
        .ok_or_else(|| wrong("empty".into()))?;
    if *form != FORM {
        return Err(wrong(format!("unknown form {form}")));
    }
    state.written += body.len();
    let record: JournalRecord<'_> =
        rmp_serde::from_slice(body).map_err(|e| wrong(e.to_string()))?;
    match entry.kind {
        PUT => state.put(record.key, Bytes::copy_from_slice(record.value)),
        DELETE => {
            state.delete(record.key);
        }
        kind => return Err(wrong(format!("unknown kind {kind}"))),
    }
    Ok(())
}

fn encode(key: &str, value: &[u8]) -> Bytes {
    let mut out = vec![FORM];
    rmp_serde::encode::write(&mut out, &JournalRecord { key, value })
        .expect("a text and bytes always encode, and a vector takes all");
    out.into()
}

impl JournalShared {
    /// Writes a change that was made in memory; its future resolves when it is durable.
    fn write(
        self: &Arc<Self>,
        state: &mut JournalState,
        (kind, key): (u16, &str),
        body: Bytes,
    ) -> BoxFuture<'static, Result<(), JournalError>> {
        let attempt = state.attempt(kind, key);
        let written = self.append(state, (kind, body));
        let (shared, key) = (Arc::clone(self), key.to_owned());
        async move {
            written.await?;
            shared.state.lock().mark_durable(kind, key, attempt);
            Ok(())
        }
        .boxed()
    }

    /// The next entries of the log.
    fn entries(&self, state: &mut JournalState, bodies: Vec<(u16, Bytes)>) -> Vec<Entry> {
        let time = unix_nanos();
        let entry = |(index, (kind, body)): (u64, (u16, Bytes))| {
            state.written += body.len();
            Entry {
                index,
                kind,
                time,
                body,
            }
        };
        (self.log.bounds().1..).zip(bodies).map(entry).collect()
    }

    /// Appends under the state's lock, so that the log's order is the order of the changes.
    fn append(
        &self,
        state: &mut JournalState,
        change: (u16, Bytes),
    ) -> BoxFuture<'static, Result<(), JournalError>> {
        let entries = self.entries(state, vec![change]);
        let (tx, rx) = oneshot::channel();
        let done = Box::new(move |result| drop(tx.send(result)));
        if let Err(e) = self.log.append(entries, done) {
            return std::future::ready(Err(e.into())).boxed();
        }
        async move { Ok(rx.await.unwrap_or(Err(LogError::Closed))?) }.boxed()
    }

    /// Writes the live values once more and drops what lies before, both or neither: where that
    /// fails, on a full disk, the old entries stay, and it is tried again after as many changes.
    fn compact(&self, state: &mut JournalState) {
        if state.written < SLACK + 2 * state.live_bytes {
            return;
        }
        state.written = 0;
        let live = state.live.iter().map(|(k, v)| (PUT, encode(k, v)));
        let live = live.collect();
        let entries = self.entries(state, live);
        let report = |result: Result<(), LogError>| {
            if let Err(e) = result {
                tracing::warn!("the journal's old entries are kept: {e}");
            }
        };
        if let Err(e) = self.log.replace(entries, Box::new(report)) {
            report(Err(e));
        }
    }
}

impl Journal for LogJournal {
    fn put(&self, key: &str, value: Vec<u8>) -> BoxFuture<'static, Result<(), JournalError>> {
        let mut state = self.shared.state.lock();
        let same = state.live.get(key).is_some_and(|old| **old == *value);
        if same && !state.is_unsure(PUT, key) {
            return std::future::ready(Ok(())).boxed();
        }
        let body = encode(key, &value);
        state.put(key, value.into());
        let done = self.shared.write(&mut state, (PUT, key), body);
        self.shared.compact(&mut state);
        done
    }

    fn delete(&self, prefix: &str) -> BoxFuture<'static, Result<(), JournalError>> {
        let mut state = self.shared.state.lock();
        if !state.delete(prefix) && !state.is_unsure(DELETE, prefix) {
            return std::future::ready(Ok(())).boxed();
        }
        // What is gone need not be written again.
        state
            .unsure
            .retain(|(kind, key), _| *kind != PUT || !key.starts_with(prefix));
        let body = encode(prefix, b"");
        self.shared.write(&mut state, (DELETE, prefix), body)
    }

    fn load(&self) -> BTreeMap<String, Bytes> {
        self.shared.state.lock().live.clone()
    }
}

/// Remembers nothing over a restart: for development mode without a data directory, and for
/// simulated nodes.
#[derive(Debug, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn put(&self, _: &str, _: Vec<u8>) -> BoxFuture<'static, Result<(), JournalError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn delete(&self, _: &str) -> BoxFuture<'static, Result<(), JournalError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn load(&self) -> BTreeMap<String, Bytes> {
        BTreeMap::new()
    }
}

#[cfg(test)]
#[path = "journal_test.rs"]
mod tests;
