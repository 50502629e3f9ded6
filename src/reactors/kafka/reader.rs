//! From the log to batches of messages: by index, bounded in events, bytes and time, nothing kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_events::public::PublicFields;
use drover_projections::{Change, Projections, View};

use super::super::runner::Failure;
use super::KafkaSource;
use super::record::{Encoder, Format, Header, Message, Style};
use super::routes::{Filter, Layout};
use crate::config::KafkaConfig;
use crate::history::record::Redactor;
use crate::history::record::numbers::Numbers;
use crate::keyring::Keyring;
use crate::log::{Entry, LogEngine};

/// Messages of consecutive events.
#[derive(Debug)]
pub(super) struct MessageBatch {
    /// The last index that was looked at; the position after this batch.
    pub last: u64,
    pub bytes: Vec<u8>,
    /// The values of all headers.
    pub text: String,
    pub headers: Vec<Header>,
    pub messages: Vec<Message>,
    /// Of these messages: markers of events too large.
    pub oversized: u64,
    /// How many events the log no longer held.
    pub missed: u64,
}

impl MessageBatch {
    /// A position alone.
    pub(super) fn empty(last: u64) -> Self {
        Self {
            last,
            bytes: Vec::new(),
            text: String::new(),
            headers: Vec::new(),
            messages: Vec::new(),
            oversized: 0,
            missed: 0,
        }
    }
}

/// The payloads of one batch end with the event that passes this.
const BATCH_BYTES: usize = 16 << 20;
/// The same of its messages: an event may be thousands of them.
const BATCH_MESSAGES: usize = 50_000;
/// What is read from the log at once.
const READ_BYTES: usize = 1 << 20;
/// How many entries beside one of Raft's own are looked at for a time.
const BESIDE: u64 = 16;
/// A view holds back the database's clean-up: it is let go after this long.
const VIEW: Duration = Duration::from_millis(500);

/// Reads the log.
pub(super) struct LogSource {
    pub log: Arc<LogEngine>,
    pub keyring: Arc<Keyring>,
    pub projections: Arc<Projections>,
    pub layout: Layout,
    pub filter: Filter,
    pub style: Style,
    pub public: PublicFields,
    pub batch_events: usize,
    /// Whether it is one that the log has dropped events before they were published.
    pub stops_missed: bool,
}

impl LogSource {
    pub(super) fn new(source: &KafkaSource, projections: &Arc<Projections>) -> Self {
        let config: &KafkaConfig = &source.config;
        Self {
            log: Arc::clone(&source.log),
            keyring: Arc::clone(&source.keyring),
            projections: Arc::clone(projections),
            layout: Layout::of(config),
            filter: Filter::of(config),
            style: Style {
                format: Format::named(&config.format),
                // Unknown names were refused with the configuration.
                numbers: Numbers::named(&config.numbers).unwrap_or_default(),
                split: config.split,
                stops: config.oversized == "stop",
                epoch: source.log.epoch().id,
                agent: source.agent.clone(),
            },
            public: PublicFields::read(&config.public_fields).unwrap_or_default(),
            batch_events: config.batch_events,
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
             horizon is {last}. Nothing is published until that is resolved: an archive may hold \
             them (drover log export -archive URL -from {next} -to {last}); to continue at {first} \
             with a marker in their place set event_publisher.kafka.missed = \"mark\""
        )
        .into())
    }

    /// The batch that begins at `from`, with no message above `limit` bytes; none while nothing
    /// more is applied.
    ///
    /// # Errors
    /// The log or the projections cannot be read, or an event cannot be decoded.
    pub(super) fn read(&self, from: u64, limit: usize) -> Result<Option<MessageBatch>, Failure> {
        let began = Instant::now();
        let view = self.projections.view();
        if from > view.index() {
            return Ok(None);
        }
        let redactor = Redactor::of(&self.keyring).showing(self.public.clone());
        let mut encoder = Encoder::new(&self.layout, &redactor, &self.style, limit);
        let first = self.log.bounds().0;
        let mut next = from;
        let mut missed = 0;
        self.check_horizon(from)?;
        if from < first {
            encoder.missed(from, first)?;
            missed = first - from;
            next = first;
        }
        let mut time = self.time_beside(next)?;
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
                time = Some(entry.time).filter(|time| *time != 0).or(time);
                self.one(&mut encoder, &view, (&entry, time), &changed)?;
                next = index + 1;
            }
            let full =
                encoder.bytes.len() >= BATCH_BYTES || encoder.messages.len() >= BATCH_MESSAGES;
            if full || began.elapsed() >= VIEW {
                break;
            }
        }
        Ok(Some(MessageBatch {
            last: next - 1,
            bytes: encoder.bytes,
            text: encoder.text,
            headers: encoder.headers,
            messages: encoder.messages,
            oversized: encoder.oversized,
            missed,
        }))
    }

    /// The time of the last event before an index, or of the first from there on: what Raft's own
    /// entries are published with. `None` where no event is near.
    fn time_beside(&self, index: u64) -> Result<Option<i64>, Failure> {
        let (first, next) = self.log.bounds();
        let before = index.saturating_sub(BESIDE).max(first)..index;
        for other in before
            .rev()
            .chain(index..index.saturating_add(BESIDE).min(next))
        {
            let entry = self.log.read(other)?;
            if let Some(time) = entry.map(|entry| entry.time).filter(|time| *time != 0) {
                return Ok(Some(time));
            }
        }
        Ok(None)
    }

    fn one(
        &self,
        encoder: &mut Encoder<'_>,
        view: &View,
        (entry, time): (&Entry, Option<i64>),
        changed: &[Change],
    ) -> Result<(), Failure> {
        if !self.filter.takes_kind(entry.kind) {
            return Ok(());
        }
        // A rejected event has left nothing behind but its outcome.
        let rejection = match changed {
            [] => view.rejection(entry.index)?,
            _ => None,
        };
        if rejection.is_some() && !self.filter.takes_rejected() {
            return Ok(());
        }
        let is_reported = changed.iter().any(|change| change.topic.is_some());
        if is_reported && !self.filter.takes_changes(changed) {
            return Ok(());
        }
        let event = drover_migrations::decode(&entry.body)?;
        if is_reported || self.filter.takes_unpublished(&event) {
            encoder.add(&event, changed, rejection.as_ref(), time)?;
        }
        Ok(())
    }
}

type FoundChanges = Result<Vec<Change>, drover_projections::StorageError>;

/// The changes found are of an event before `index`.
fn behind(found: &FoundChanges, index: u64) -> bool {
    let first = found.as_ref().ok().and_then(|changes| changes.first());
    first.is_some_and(|change| change.index < index)
}

/// The changes found are of an event after `index`.
fn ahead(found: &FoundChanges, index: u64) -> bool {
    let first = found.as_ref().ok().and_then(|changes| changes.first());
    first.is_some_and(|change| change.index > index)
}
