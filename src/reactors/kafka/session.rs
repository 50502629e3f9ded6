//! One producer's life: topics, fencing of a former leader, position, batches. Any error ends it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResourceResult, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::super::driver::Failure;
use super::client::{Ears, Quiet, connection, explain, producer};
use super::cursor::{self, Cursor};
use super::reader::MessageBatch;
use super::record::Message;
use super::routes::Layout;
use super::status::{PublisherState, PublisherStatus};
use crate::config::KafkaConfig;

/// A connected producer.
pub(super) struct Session<'a> {
    config: &'a KafkaConfig,
    shared: &'a Arc<PublisherStatus>,
    layout: &'a Layout,
    producer: BaseProducer<Ears>,
    cursor_topic: String,
    /// The transactional id, and the position's key.
    id: String,
    epoch: String,
}

/// Long calls are made in pieces of this, so that their errors are heard and a stop is noticed.
const PIECE: Duration = Duration::from_secs(1);
/// After this a limit that was searched for is searched for anew.
const REGAIN: Duration = Duration::from_secs(600);
/// How long reports are waited for at once.
const POLL: Duration = Duration::from_millis(1);
/// How often brokers are asked whether they are there while nothing is published.
const PROBE: Duration = Duration::from_secs(2);

impl<'a> Session<'a> {
    /// Connects, fences whoever published under `id` before, and answers the position.
    ///
    /// # Errors
    /// What to check, in words.
    pub(super) fn open(
        config: &'a KafkaConfig,
        shared: &'a Arc<PublisherStatus>,
        layout: &'a Layout,
        (id, epoch): (String, String),
    ) -> Result<(Self, Option<Cursor>), Failure> {
        let limit = shared.with(|state| {
            state.hint.clear();
            state.sessions += 1;
            // Where nobody says what the topics take, a search by halves may have gone too low.
            if state.refused.is_some_and(|at| at.elapsed() >= REGAIN) {
                state.refused = None;
                state.message_limit = state.most;
            }
            state.message_limit
        });
        let client = producer(config, &id, limit);
        let producer = client
            .create_with_context(Ears::new(shared))
            .map_err(|error| explain("starting a producer", &error, ""))?;
        let session = Self {
            config,
            shared,
            layout,
            producer,
            cursor_topic: config.cursor_topic(),
            id,
            epoch,
        };
        if config.exactly_once {
            session.insist("fencing the former producer", |producer| {
                producer.init_transactions(PIECE)
            })?;
        }
        if config.create_topics {
            session.create_topics()?;
        }
        // Who may not create topics may not ask either: only where it matters.
        if config.create_topics || shared.with(|state| state.refused.is_some()) {
            session.ask_topics()?;
        }
        if shared.with(|state| state.message_limit) < limit {
            // The producer was told of a larger one; the next is told of this.
            let Self { id, epoch, .. } = session;
            return Self::open(config, shared, layout, (id, epoch));
        }
        let cursor =
            cursor::read(config, shared, &session.id).map_err(|error| session.with_hint(error))?;
        Ok((session, cursor))
    }

    /// The error with what librdkafka said beside it.
    fn with_hint(&self, error: Failure) -> Failure {
        match self.hint().as_str() {
            "" => error,
            hint => format!("{error}; {hint}").into(),
        }
    }

    fn hint(&self) -> String {
        for _ in 0..16 {
            self.producer.poll(Duration::ZERO);
        }
        self.shared.with(|state| state.hint.clone())
    }

    fn failure(&self, what: &str, error: &KafkaError) -> Failure {
        if error.rdkafka_error_code() == Some(Code::MessageSizeTooLarge) {
            self.shared.with(PublisherState::too_large);
        }
        explain(what, error, &self.hint()).into()
    }

    /// Makes a call again until it succeeds, fails for good, or time is up.
    fn insist(
        &self,
        what: &str,
        call: impl Fn(&BaseProducer<Ears>) -> Result<(), KafkaError>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + self.config.timeout;
        loop {
            match call(&self.producer) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error))
                    if error.is_retriable()
                        && Instant::now() < deadline
                        && !self.shared.is_stopped() =>
                {
                    let hint = self.hint();
                    if !hint.is_empty() {
                        self.shared
                            .with(|state| state.error = format!("{what}: {hint}"));
                    }
                }
                Err(error) => return Err(self.failure(what, &error)),
            }
        }
    }

    /// Creates what is missing. A user who may not is fine where nothing is.
    fn create_topics(&self) -> Result<(), Failure> {
        let what = "creating topics";
        let failed = |error: KafkaError| self.failure(what, &error);
        let admin: AdminClient<Quiet> = connection(self.config)
            .create_with_context(Quiet)
            .map_err(failed)?;
        // The brokers' own default.
        const REPLICATION: TopicReplication<'static> = TopicReplication::Fixed(-1);
        let partitions = i32::try_from(self.config.partitions)?;
        let names = self.layout.names().iter();
        // Messages have the time of their events: what is older than what the brokers keep would
        // be gone as soon as it is there.
        let retention = self.config.retention_ms().to_string();
        let mut topics: Vec<_> = names
            .map(|name| {
                let topic = NewTopic::new(name, partitions, REPLICATION);
                topic
                    .set("retention.ms", &retention)
                    .set("retention.bytes", "-1")
            })
            .collect();
        let cursor = NewTopic::new(&self.cursor_topic, 1, REPLICATION);
        topics.push(cursor.set("cleanup.policy", "compact"));
        let options = AdminOptions::new()
            .request_timeout(Some(self.config.timeout))
            .operation_timeout(Some(self.config.timeout));
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let results = runtime.block_on(admin.create_topics(&topics, &options));
        for result in results.map_err(failed)? {
            match result {
                Ok(name) => tracing::info!(topic = name, "created a topic"),
                Err((_, Code::TopicAlreadyExists)) => {}
                Err((name, code)) => {
                    // Whether it is there all the same shows when it is written to.
                    tracing::warn!(topic = name, %code, "cannot create a topic");
                }
            }
        }
        Ok(())
    }

    /// Asks how long the first topic keeps messages, and how large they may be in any of them. A
    /// user who may not ask goes on without.
    fn ask_topics(&self) -> Result<(), Failure> {
        let admin: AdminClient<Quiet> = connection(self.config)
            .create_with_context(Quiet)
            .map_err(|error| self.failure("asking about topics", &error))?;
        let options = AdminOptions::new().request_timeout(Some(self.config.timeout));
        let names = self.layout.names().iter();
        let topics: Vec<_> = names
            .map(|n| ResourceSpecifier::Topic(n.as_str()))
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let described = runtime.block_on(admin.describe_configs(&topics, &options));
        let described = described.unwrap_or_default();
        let largest = described
            .iter()
            .filter_map(|found| number(found, "max.message.bytes"));
        if let Some(largest) = largest.min().and_then(|bytes| usize::try_from(bytes).ok()) {
            self.shared.with(|state| state.topics_take(largest));
        }
        self.note_retention(
            described
                .first()
                .and_then(|found| number(found, "retention.ms")),
        );
        Ok(())
    }

    /// Notes how long the topic keeps messages, where that is known.
    fn note_retention(&self, kept: Option<i64>) {
        let wanted = self.config.retention_ms();
        if let Some(kept) = kept.filter(|kept| *kept != wanted) {
            tracing::warn!(
                topic = self.layout.names()[0],
                retention_ms = kept,
                wanted,
                "the topic was there, and keeps messages for another time than \
                 event_publisher.kafka.retention says: events older than that are dropped by Kafka"
            );
        }
        self.shared.with(|state| state.retention_ms = kept);
    }

    /// Publishes a batch and the position after it, all or nothing with exactly-once.
    ///
    /// # Errors
    /// What to check, in words. The session is of no use afterwards.
    pub(super) fn publish(&self, batch: &MessageBatch) -> Result<(), Failure> {
        let exactly_once = self.config.exactly_once;
        if exactly_once {
            let begun = self.producer.begin_transaction();
            begun.map_err(|error| self.failure("beginning a transaction", &error))?;
        }
        self.producer.context().reset();
        let deadline = Instant::now() + self.config.timeout;
        for message in &batch.messages {
            self.send(batch, message, deadline)?;
        }
        if !exactly_once {
            // The position must not be there before what it covers.
            self.wait_for_acks(batch.messages.len(), deadline)?;
        }
        self.send_cursor(batch.last, deadline)?;
        self.wait_for_acks(batch.messages.len() + 1, deadline)?;
        if exactly_once {
            self.insist("committing a transaction", |producer| {
                producer.commit_transaction(PIECE)
            })?;
        }
        Ok(())
    }

    fn send(
        &self,
        batch: &MessageBatch,
        message: &Message,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let all = &batch.headers[message.headers.clone()];
        let mut headers = OwnedHeaders::new_with_capacity(all.len());
        for (key, value) in all {
            headers = headers.insert(Header {
                key,
                value: Some(&batch.text[value.clone()]),
            });
        }
        let mut record = BaseRecord::to(&self.layout.names()[usize::from(message.topic)])
            .key(message.key.as_str())
            .payload(&batch.bytes[message.payload.clone()])
            .headers(headers);
        if let Some(stamp) = message.stamp {
            record = record.timestamp(stamp);
        }
        self.enqueue(record, deadline)
    }

    fn send_cursor(&self, index: u64, deadline: Instant) -> Result<(), Failure> {
        let cursor = Cursor {
            index,
            epoch: self.epoch.clone(),
        };
        let payload = serde_json::to_vec(&cursor)?;
        let record = BaseRecord::to(&self.cursor_topic)
            .partition(0)
            .key(self.id.as_str())
            .payload(payload.as_slice());
        self.enqueue(record, deadline)
    }

    /// Hands a record to librdkafka, waiting while its queue is full.
    fn enqueue(
        &self,
        mut record: BaseRecord<'_, str, [u8]>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(Code::QueueFull), returned)) => {
                    record = returned;
                    self.check(deadline)?;
                    self.producer.poll(POLL);
                }
                Err((error, _)) => return Err(self.failure("publishing", &error)),
            }
        }
    }

    /// Waits until so many messages of this batch are acknowledged.
    fn wait_for_acks(&self, wanted: usize, deadline: Instant) -> Result<(), Failure> {
        loop {
            if self.producer.context().tally().delivered >= wanted {
                return Ok(());
            }
            self.check(deadline)?;
            self.producer.poll(POLL);
        }
    }

    /// Nothing failed, nobody stops us, and there is time left.
    fn check(&self, deadline: Instant) -> Result<(), Failure> {
        if let Some(error) = self.producer.context().tally().failed {
            return Err(self.failure("publishing", &error));
        }
        if self.shared.is_stopped() {
            return Err("stopped".into());
        }
        if Instant::now() > deadline {
            let error = KafkaError::Global(Code::OperationTimedOut);
            return Err(self.failure("publishing", &error));
        }
        Ok(())
    }

    /// Lets errors be heard while there is nothing to publish, and asks now and then whether a
    /// broker is there: none is spoken to otherwise, and one that died would not be missed.
    pub(super) fn listen(&self) {
        self.producer.poll(Duration::ZERO);
        let due = self
            .shared
            .with(|state| state.requested.is_none_or(|at| at.elapsed() >= PROBE));
        if !due {
            return;
        }
        let topic = self.layout.names().first().map(String::as_str);
        let answer = self.producer.client().fetch_metadata(topic, PIECE);
        let hint = self.hint();
        self.shared.with(|state| {
            state.requested = Some(Instant::now());
            match answer {
                Ok(_) => state.reached(),
                Err(error) => {
                    state.connected = false;
                    state.error = explain("asking whether brokers are there", &error, &hint);
                }
            }
        });
    }
}

/// A setting of a topic that is a number, where it was told.
fn number(found: &ConfigResourceResult, name: &str) -> Option<i64> {
    let entries = &found.as_ref().ok()?.entries;
    let entry = entries.iter().find(|entry| entry.name == name)?;
    entry.value.as_ref()?.parse().ok()
}
