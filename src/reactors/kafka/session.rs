//! One producer's life: topics, fencing of a former leader, position, batches. Any error ends it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResourceResult, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::super::runner::Failure;
use super::client::{PublisherContext, SilentContext, connection, explain, producer};
use super::cursor::{self, Cursor};
use super::reader::MessageBatch;
use super::record::Message;
use super::routes::Layout;
use super::status::{PublisherState, PublisherStatus};
use crate::config::KafkaConfig;

/// A connected producer.
pub(super) struct ProducerSession<'a> {
    config: &'a KafkaConfig,
    shared: &'a Arc<PublisherStatus>,
    layout: &'a Layout,
    producer: BaseProducer<PublisherContext>,
    cursor_topic: String,
    /// The transactional id, and the position's key.
    id: String,
    /// The epoch of the log whose events are published: an index counts within one only.
    log_epoch: String,
}

/// Timeout of one attempt of a long call, which is repeated: so its errors are reported meanwhile
/// and a stop is noticed.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// After this a message limit found by a binary search is reset, and searched for again.
const LIMIT_RESET_AFTER: Duration = Duration::from_secs(600);
/// Timeout of one poll for delivery reports.
const POLL: Duration = Duration::from_millis(1);
/// How often the brokers' presence is checked while nothing is published.
const PROBE: Duration = Duration::from_secs(2);

impl<'a> ProducerSession<'a> {
    /// Connects, fences the producer that published under `id` before, and returns the position.
    ///
    /// # Errors
    /// What to check, in words.
    pub(super) fn open(
        config: &'a KafkaConfig,
        shared: &'a Arc<PublisherStatus>,
        layout: &'a Layout,
        (id, log_epoch): (String, String),
    ) -> Result<(Self, Option<Cursor>), Failure> {
        let limit = shared.with(|state| {
            state.hint.clear();
            state.sessions += 1;
            // Where the topics do not report their limit, a binary search may have gone too low.
            if state
                .too_large_since
                .is_some_and(|at| at.elapsed() >= LIMIT_RESET_AFTER)
            {
                state.too_large_since = None;
                state.message_limit = state.max_limit;
            }
            state.message_limit
        });
        let client = producer(config, &id, limit);
        let producer = client
            .create_with_context(PublisherContext::new(shared))
            .map_err(|error| explain("starting a producer", &error, ""))?;
        let session = Self {
            config,
            shared,
            layout,
            producer,
            cursor_topic: config.cursor_topic(),
            id,
            log_epoch,
        };
        if config.exactly_once {
            session.retry_until_deadline("fencing the former producer", |producer| {
                producer.init_transactions(CALL_TIMEOUT)
            })?;
        }
        if config.create_topics {
            session.create_topics()?;
        }
        // A user without CREATE usually lacks DESCRIBE_CONFIGS too, so it is called only when
        // needed.
        if config.create_topics || shared.with(|state| state.too_large_since.is_some()) {
            session.ask_topics()?;
        }
        if shared.with(|state| state.message_limit) < limit {
            // The producer was configured with a larger limit; the next one gets this.
            let Self { id, log_epoch, .. } = session;
            return Self::open(config, shared, layout, (id, log_epoch));
        }
        let cursor =
            cursor::read(config, shared, &session.id).map_err(|error| session.with_hint(error))?;
        Ok((session, cursor))
    }

    /// The error with what librdkafka reported beside it.
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
    fn retry_until_deadline(
        &self,
        what: &str,
        call: impl Fn(&BaseProducer<PublisherContext>) -> Result<(), KafkaError>,
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

    /// Creates missing topics. A user without the permission is fine if no topic is missing.
    fn create_topics(&self) -> Result<(), Failure> {
        let what = "creating topics";
        let failed = |error: KafkaError| self.failure(what, &error);
        let admin: AdminClient<SilentContext> = connection(self.config)
            .create_with_context(SilentContext)
            .map_err(failed)?;
        // The brokers' own default.
        const REPLICATION: TopicReplication<'static> = TopicReplication::Fixed(-1);
        let partitions = i32::try_from(self.config.partitions)?;
        let names = self.layout.names().iter();
        // Messages have the time of their events: one that is older than the retention would be
        // dropped as soon as it is written.
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

    /// Queries how long the first topic keeps messages, and how large they may be in any of them.
    /// Without the permission for that it continues without an answer.
    fn ask_topics(&self) -> Result<(), Failure> {
        let admin: AdminClient<SilentContext> = connection(self.config)
            .create_with_context(SilentContext)
            .map_err(|error| self.failure("querying topics", &error))?;
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
            self.shared.with(|state| state.set_topic_limit(largest));
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
            self.retry_until_deadline("committing a transaction", |producer| {
                producer.commit_transaction(CALL_TIMEOUT)
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
            epoch: self.log_epoch.clone(),
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

    /// Checks that nothing failed, that no stop was requested, and that there is time left.
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

    /// Polls for errors while there is nothing to publish, and checks now and then whether a broker
    /// is there: no broker is called otherwise, and one that died would not be noticed.
    pub(super) fn listen(&self) {
        self.producer.poll(Duration::ZERO);
        let due = self
            .shared
            .with(|state| state.last_probe.is_none_or(|at| at.elapsed() >= PROBE));
        if !due {
            return;
        }
        let topic = self.layout.names().first().map(String::as_str);
        let answer = self.producer.client().fetch_metadata(topic, CALL_TIMEOUT);
        let hint = self.hint();
        self.shared.with(|state| {
            state.last_probe = Some(Instant::now());
            match answer {
                Ok(_) => state.set_connected(),
                Err(error) => {
                    state.connected = false;
                    state.error = explain("checking that brokers are there", &error, &hint);
                }
            }
        });
    }
}

/// A setting of a topic that is a number, where the broker returned it.
fn number(found: &ConfigResourceResult, name: &str) -> Option<i64> {
    let entries = &found.as_ref().ok()?.entries;
    let entry = entries.iter().find(|entry| entry.name == name)?;
    entry.value.as_ref()?.parse().ok()
}
