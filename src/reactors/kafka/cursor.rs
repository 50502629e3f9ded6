//! The position: the last index that is published, in a compacted topic, under the transactional
//! id. It is written in the transaction of the events it covers and read with `read_committed`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::super::runner::Failure;
use super::client::{SilentContext, consumer, explain};
use super::status::PublisherStatus;
use crate::config::KafkaConfig;

/// The position, as it lies in the topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Cursor {
    /// Everything up to this index is published.
    pub index: u64,
    /// The log it belongs to.
    pub epoch: String,
}

/// How many records before the end are read first; twice as many, and so on, if none is ours.
const TAIL: i64 = 256;
/// How long a record is waited for at once.
const POLL: Duration = Duration::from_millis(100);

/// Reads the last committed position of `id`; none if there has never been one.
///
/// # Errors
/// The brokers do not answer in time, or another producer's transaction is open in the topic.
pub(super) fn read(
    config: &KafkaConfig,
    shared: &Arc<PublisherStatus>,
    id: &str,
) -> Result<Option<Cursor>, Failure> {
    let topic = config.cursor_topic();
    let what = format!("reading the position from {topic}");
    let failed = |error: KafkaError| explain(&what, &error, "");
    let open = |committed| -> Result<BaseConsumer<SilentContext>, String> {
        let client = consumer(config, id, committed);
        client.create_with_context(SilentContext).map_err(failed)
    };
    let (committed, all) = (open(true)?, open(false)?);
    let deadline = Instant::now() + config.timeout;
    let (low, high) = loop {
        let watermarks = committed.fetch_watermarks(&topic, 0, config.timeout);
        let (low, stable) = watermarks.map_err(failed)?;
        let (_, high) = all
            .fetch_watermarks(&topic, 0, config.timeout)
            .map_err(failed)?;
        // Behind an open transaction the position could be hidden. Ours are closed by now.
        if stable >= high {
            break (low, high);
        }
        if Instant::now() > deadline || shared.is_stopped() {
            return Err(format!("{what}: a transaction of another producer is open in it").into());
        }
        shared.pause(POLL);
    };
    let mut back = TAIL;
    loop {
        let start = low.max(high.saturating_sub(back));
        let found = match start < high {
            true => last(&committed, (&topic, start), id, deadline)?,
            false => None,
        };
        if found.is_some() || start == low {
            return Ok(found);
        }
        back = back.saturating_mul(4);
    }
}

/// The last record of `id` from `start` to the end.
fn last(
    consumer: &BaseConsumer<SilentContext>,
    (topic, start): (&str, i64),
    id: &str,
    deadline: Instant,
) -> Result<Option<Cursor>, Failure> {
    let what = format!("reading the position from {topic}");
    let failed = |error: KafkaError| explain(&what, &error, "");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(start))
        .map_err(failed)?;
    consumer.assign(&list).map_err(failed)?;
    let mut found = None;
    loop {
        match consumer.poll(POLL) {
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(found),
            Some(Err(error)) => return Err(failed(error).into()),
            Some(Ok(message)) if message.key() == Some(id.as_bytes()) => {
                let payload = message.payload().unwrap_or_default();
                found = Some(serde_json::from_slice(payload).map_err(|error| {
                    format!(
                        "{what}: the record at offset {} is no position: {error}",
                        message.offset()
                    )
                })?);
            }
            Some(Ok(_)) | None => {}
        }
        if Instant::now() > deadline {
            return Err(format!("{what}: the brokers do not send it in time").into());
        }
    }
}
