//! The threads: one that talks to Kafka, and beside it, while a producer lives, one that reads the
//! log and makes batches, one ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drover_projections::Projections;
use drover_projections::tables::cluster_meta::ClusterMetaTable;

use super::super::runner::Failure;
use super::KafkaSource;
use super::reader::{LogSource, MessageBatch};
use super::session::ProducerSession;
use super::status::{PublisherStatus, StatusSnapshot};
use crate::config::KafkaConfig;
use crate::log::LogEngine;

/// How long after a failure the next producer starts, at first and at last.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// How long a thread that has nothing to do sleeps at most.
const IDLE: Duration = Duration::from_secs(1);
/// A position behind which nothing was wanted is written this often.
const RESTATE: Duration = Duration::from_secs(10);

/// The publisher's thread. Dropping this stops it within a call's deadline.
pub(super) struct RunningPublisher {
    shared: Arc<PublisherStatus>,
    thread: JoinHandle<()>,
}

impl RunningPublisher {
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Why it ended although it was not stopped.
    pub(super) fn why(&self) -> &'static str {
        "the publisher's thread has ended; it starts again"
    }

    pub(super) fn wake(&self) {
        self.shared.ring();
    }

    /// How far it is behind, and why.
    pub(super) fn see(
        &self,
        projections: &Projections,
        log: &LogEngine,
        now: i64,
    ) -> StatusSnapshot {
        self.shared.see(projections, log, now)
    }
}

impl Drop for RunningPublisher {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Starts the thread.
///
/// # Errors
/// The system has no thread for it.
pub(super) fn start(
    source: &KafkaSource,
    projections: &Arc<Projections>,
) -> std::io::Result<RunningPublisher> {
    let config = Arc::clone(&source.config);
    let shared = Arc::new(PublisherStatus::new(&config));
    let worker = Worker {
        config,
        shared: Arc::clone(&shared),
        source: LogSource::new(source, projections),
    };
    let thread = std::thread::Builder::new().name("event-publisher".to_owned());
    Ok(RunningPublisher {
        shared,
        thread: thread.spawn(move || worker.run())?,
    })
}

struct Worker {
    config: Arc<KafkaConfig>,
    shared: Arc<PublisherStatus>,
    source: LogSource,
}

impl Worker {
    fn run(&self) {
        let mut delay = FIRST_DELAY;
        while !self.shared.is_stopped() {
            let before = self.shared.with(|state| state.batches);
            let Err(error) = self.session() else { continue };
            if self.shared.is_stopped() {
                return;
            }
            self.report(&error.to_string());
            if self.shared.with(|state| state.batches) > before {
                delay = FIRST_DELAY;
            }
            self.shared.pause(delay);
            delay = (delay * 2).min(LONGEST_DELAY);
        }
    }

    /// Notes an error; the log has it once, not at every attempt.
    fn report(&self, error: &str) {
        let reported = self.shared.with(|state| {
            state.connected = false;
            error.clone_into(&mut state.error);
            std::mem::replace(&mut state.reported, true)
        });
        if reported {
            tracing::debug!(error, "events still cannot be published");
        } else {
            tracing::warn!(
                error,
                "events cannot be published to Kafka; the log keeps them"
            );
        }
    }

    /// A producer's life.
    fn session(&self) -> Result<(), Failure> {
        let Some(id) = self.identity()? else {
            return Ok(());
        };
        let epoch = hex::encode(self.source.log.epoch().id);
        let layout = &self.source.layout;
        let (session, cursor) =
            ProducerSession::open(&self.config, &self.shared, layout, (id, epoch))?;
        let applied = self.source.projections.applied_index();
        let position = match cursor {
            Some(cursor) if cursor.index > applied => {
                let index = cursor.index;
                return Err(format!(
                    "{} says that events up to {index} are published, but the log ends at \
                     {applied}: another cluster publishes under this transactional id, or this \
                     one was put back; set another transactional_id and topic",
                    self.config.cursor_topic()
                )
                .into());
            }
            // A log that began anew after a restore has none of the indexes in between.
            Some(cursor) if cursor.epoch != hex::encode(self.source.log.epoch().id) => {
                let begin = self.source.log.epoch().first_index.saturating_sub(1);
                cursor.index.max(begin)
            }
            Some(cursor) => cursor.index,
            None if self.config.start == "now" => {
                session.publish(&MessageBatch::empty(applied))?;
                applied
            }
            None => self.source.log.bounds().0.saturating_sub(1),
        };
        self.source.check_horizon(position + 1)?;
        tracing::info!(position, "events are published to Kafka");
        self.shared.with(|state| {
            state.set_connected();
            state.published = Some(position);
        });
        self.stream(&session, position)
    }

    /// The transactional id; `None` when stopped.
    fn identity(&self) -> Result<Option<String>, Failure> {
        if !self.config.transactional_id.is_empty() {
            return Ok(Some(self.config.transactional_id.clone()));
        }
        while !self.shared.is_stopped() {
            let meta = self.source.projections.view().get::<ClusterMetaTable>(())?;
            if let Some(meta) = meta.filter(|meta| !meta.cluster_id.is_empty()) {
                return Ok(Some(format!("drover-{}", meta.cluster_id)));
            }
            // The first events of a new cluster are on their way.
            let heard = self.shared.rings();
            self.shared.wait_ring(heard, FIRST_DELAY);
        }
        Ok(None)
    }

    /// Publishes what the reader makes until something fails or it is stopped.
    fn stream(&self, session: &ProducerSession<'_>, position: u64) -> Result<(), Failure> {
        let ended = AtomicBool::new(false);
        let (sender, receiver) = sync_channel(1);
        std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("event-encoder".to_owned());
            let ended = &ended;
            reader.spawn_scoped(scope, move || self.read(position + 1, &sender, ended))?;
            let result = self.drain(session, &receiver);
            ended.store(true, Ordering::Release);
            drop(receiver);
            self.shared.ring();
            result
        })
    }

    fn drain(
        &self,
        session: &ProducerSession<'_>,
        batches: &Receiver<Result<MessageBatch, Failure>>,
    ) -> Result<(), Failure> {
        let mut stated = Instant::now();
        loop {
            let batch = match batches.recv_timeout(IDLE) {
                Ok(batch) => batch?,
                Err(RecvTimeoutError::Timeout) => {
                    session.listen();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let silent = batch.messages.is_empty() && stated.elapsed() < RESTATE;
            if !silent {
                session.publish(&batch)?;
                stated = Instant::now();
            }
            let messages = batch.messages.len() as u64;
            self.shared.count(messages, batch.oversized);
            self.shared.with(|state| {
                state.published = Some(batch.last);
                state.batches += u64::from(!silent);
                state.missed += batch.missed;
                if !silent {
                    state.set_connected();
                }
                state.reported &= silent;
            });
        }
    }

    /// The reader's loop.
    fn read(
        &self,
        from: u64,
        batches: &SyncSender<Result<MessageBatch, Failure>>,
        ended: &AtomicBool,
    ) {
        let mut next = from;
        while !ended.load(Ordering::Acquire) && !self.shared.is_stopped() {
            let heard = self.shared.rings();
            let applied = self.source.projections.applied_index();
            if applied < next {
                self.shared.wait_ring(heard, IDLE);
                continue;
            }
            if applied - next < self.config.batch_events as u64 {
                self.shared.pause(self.config.linger);
            }
            let limit = self.shared.with(|state| state.message_limit);
            let batch = match self.source.read(next, limit) {
                Ok(None) => continue,
                Ok(Some(batch)) => {
                    next = batch.last + 1;
                    Ok(batch)
                }
                Err(error) => Err(error),
            };
            let failed = batch.is_err();
            if batches.send(batch).is_err() || failed {
                return;
            }
        }
    }
}
