//! From the log to batches of messages: by index, bounded in events, bytes and time, nothing kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_projections::{Change, Projections, View};

use super::super::driver::Failure;
use super::KafkaSource;
use super::record::{Encoder, Filter, Layout, Message};
use crate::keyring::Keyring;
use crate::log::{Entry, LogEngine};
use crate::record::Redactor;

/// Messages of consecutive events.
#[derive(Debug)]
pub(super) struct Batch {
    /// The last index that was looked at; the position after this batch.
    pub last: u64,
    pub bytes: Vec<u8>,
    pub messages: Vec<Message>,
    /// Of these messages: markers of events too large.
    pub oversized: u64,
    /// How many events the log no longer held.
    pub missed: u64,
}

impl Batch {
    /// A position alone.
    pub(super) fn empty(last: u64) -> Self {
        Self {
            last,
            bytes: Vec::new(),
            messages: Vec::new(),
            oversized: 0,
            missed: 0,
        }
    }
}

/// The payloads of one batch end with the event that passes this.
const BATCH_BYTES: usize = 16 << 20;
/// What is read from the log at once.
const READ_BYTES: usize = 1 << 20;
/// A view holds back the database's clean-up: it is let go after this long.
const VIEW: Duration = Duration::from_millis(500);

/// Reads the log.
pub(super) struct Source {
    pub log: Arc<LogEngine>,
    pub keyring: Arc<Keyring>,
    pub projections: Arc<Projections>,
    pub layout: Layout,
    pub filter: Filter,
    pub batch_events: usize,
    /// Whether an event that is too large is an error.
    pub stops: bool,
    /// Whether it is one that the log has dropped events before they were published.
    pub stops_missed: bool,
}

impl Source {
    pub(super) fn new(source: &KafkaSource, projections: &Arc<Projections>) -> Self {
        let config = &source.config;
        Self {
            log: Arc::clone(&source.log),
            keyring: Arc::clone(&source.keyring),
            projections: Arc::clone(projections),
            layout: Layout::of(config),
            filter: Filter::of(config),
            batch_events: config.batch_events,
            stops: config.oversized == "stop",
            stops_missed: config.missed == "stop",
        }
    }

    /// Whether the log still has what comes next.
    ///
    /// # Errors
    /// What is missing and what can be done, where that is not to be marked.
    pub(super) fn check_horizon(&self, next: u64) -> Result<(), Failure> {
        let first = self.log.bounds().0;
        if next >= first || !self.stops_missed {
            return Ok(());
        }
        let last = first - 1;
        Err(format!(
            "the events {next} to {last} were dropped from the log before Kafka received them: its \
             horizon is {last}. Nothing is published until that is settled: an archive may hold \
             them (drover log export -archive URL -from {next} -to {last}); to go on at {first} \
             with a marker in their place set event_publisher.kafka.missed = \"mark\""
        )
        .into())
    }

    /// The batch that begins at `from`, with no message above `limit` bytes; none while nothing
    /// more is applied.
    ///
    /// # Errors
    /// The log or the projections cannot be read, or an event cannot be decoded.
    pub(super) fn read(&self, from: u64, limit: usize) -> Result<Option<Batch>, Failure> {
        let began = Instant::now();
        let view = self.projections.view();
        if from > view.index() {
            return Ok(None);
        }
        let redactor = Redactor::of(&self.keyring);
        let mut encoder = Encoder {
            layout: &self.layout,
            redactor: &redactor,
            limit,
            stops: self.stops,
            bytes: Vec::new(),
            messages: Vec::new(),
            oversized: 0,
        };
        let first = self.log.bounds().0;
        let mut next = from;
        let mut missed = 0;
        self.check_horizon(from)?;
        if from < first {
            encoder.missed(from, first)?;
            missed = first - from;
            next = first;
        }
        let mut changes = view.changes(next).peekable();
        let most = from.saturating_add(self.batch_events as u64);
        while next <= view.index() && next < most {
            let until = most.min(view.index() + 1);
            let entries = self.log.read_range(next, until, READ_BYTES)?;
            if entries.is_empty() {
                return Err(format!("the log ends before the applied event {next}").into());
            }
            for entry in entries {
                let index = entry.index;
                while changes.next_if(|found| behind(found, index)).is_some() {}
                let changed = match changes.next_if(|found| !ahead(found, index)) {
                    Some(changed) => changed?,
                    None => Vec::new(),
                };
                self.one(&mut encoder, &view, &entry, &changed)?;
                next = index + 1;
            }
            if encoder.bytes.len() >= BATCH_BYTES || began.elapsed() >= VIEW {
                break;
            }
        }
        Ok(Some(Batch {
            last: next - 1,
            bytes: encoder.bytes,
            messages: encoder.messages,
            oversized: encoder.oversized,
            missed,
        }))
    }

    fn one(
        &self,
        encoder: &mut Encoder<'_>,
        view: &View,
        entry: &Entry,
        changed: &[Change],
    ) -> Result<(), Failure> {
        if !self.filter.takes_kind(entry.kind) {
            return Ok(());
        }
        // A refused event has left nothing behind but its outcome.
        let rejection = match changed {
            [] => view.rejection(entry.index)?,
            _ => None,
        };
        let wanted = match rejection {
            Some(_) => self.filter.takes_rejected(),
            None => self.filter.takes_changes(changed),
        };
        if wanted {
            let event = drover_migrations::decode(&entry.body)?;
            encoder.add(&event, changed, rejection.as_ref())?;
        }
        Ok(())
    }
}

type Found = Result<Vec<Change>, drover_projections::StorageError>;

/// The changes found are of an event before `index`.
fn behind(found: &Found, index: u64) -> bool {
    let first = found.as_ref().ok().and_then(|changes| changes.first());
    first.is_some_and(|change| change.index < index)
}

/// The changes found are of an event after `index`.
fn ahead(found: &Found, index: u64) -> bool {
    let first = found.as_ref().ok().and_then(|changes| changes.first());
    first.is_some_and(|change| change.index > index)
}
