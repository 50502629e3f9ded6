//! The event publisher: every committed event into Kafka, in the log's order, exactly once.
//!
//! A thread of the leader reads the log from its position on, by index and in bounded batches,
//! makes messages of it (`record.rs`, `routes.rs`), and writes each batch, with the position after
//! it, in one Kafka transaction (`session.rs`). The position lives in a compacted topic of its own
//! (`cursor.rs`) and nowhere else; the next leader fences the former producer by its transactional
//! id, reads the last committed position and continues there.
//!
//! It must not know: HTTP, how events are replicated, what they mean.
//!
//! Invariants:
//! 1. Nothing is queued that the log does not hold: while brokers are away only the position stands
//!    still. In memory are two batches and librdkafka's bounded queue at most.
//! 2. Every call to Kafka has a deadline and runs on the publisher's threads.
//! 3. After any failure the producer is thrown away; the next one begins at the committed position.
//!    There is no other way to recover.
//! 4. No committed event is left out without a sign: what is too large has a marker in its place;
//!    where the log dropped what was not published it stops and says so, or leaves a marker if so
//!    configured.
//! 5. Values of configured properties are never shown.
//!
//! Start reading at `publisher.rs`.

mod client;
mod cursor;
mod held;
mod lag;
mod publisher;
mod reader;
mod record;
mod report;
mod routes;
mod session;
mod source;
mod status;

use std::time::Duration;

use drover_projections::Interest;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use self::status::StatusSnapshot;
use super::runner::{Activation, Context, Failure, Reactor, Scope};

pub use client::validate;
pub use held::{Hold, PublisherPosition};
pub use report::PublisherReport;
pub use source::KafkaSource;

/// How often progress is looked at while events come, and how often the status is renewed.
const GRAIN: Duration = Duration::from_millis(20);
const RENEW: Duration = Duration::from_secs(1);

/// The reactor: starts the thread, wakes it, and says how it fares.
pub struct KafkaPublisher {
    source: KafkaSource,
    running: Mutex<Option<publisher::RunningPublisher>>,
}

impl KafkaPublisher {
    /// A publisher that starts with its first activation.
    pub fn new(source: KafkaSource) -> Self {
        Self {
            source,
            running: Mutex::new(None),
        }
    }

    /// Wakes the thread, or starts it, and reads how far it is.
    fn look(&self, context: &Context) -> Result<StatusSnapshot, Failure> {
        let mut running = self.running.lock();
        if let Some(ended) = running.take_if(|running| running.has_ended()) {
            return Err(ended.why().into());
        }
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(publisher::start(&self.source, &context.projections)?),
        };
        running.wake();
        let seen = running.see(&context.projections, &self.source.log, context.clock.now());
        self.source
            .held
            .set(Some(seen.state.published.unwrap_or(0)));
        Ok(seen)
    }
}

impl Drop for KafkaPublisher {
    fn drop(&mut self) {
        if self.running.lock().is_some() {
            self.source.held.set(None);
        }
    }
}

impl Reactor for KafkaPublisher {
    fn name(&self) -> &'static str {
        "event_publisher"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        &[Interest::Progress]
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            // While events come, every one of them would wake it.
            tokio::time::sleep(GRAIN).await;
            let seen = self.look(context)?;
            let status = lag::report(&self.source.config, &seen, context, self.name()).await?;
            Ok(Activation {
                sleep: RENEW,
                status,
            })
        })
    }
}

#[cfg(test)]
mod kafka_test;
