//! One subscriber: a position, and what is sent to it from there on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_projections::Projections;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::form::Checkpoint;
use super::report::{PIECE, PastWalk, Subscription};
use super::right;
use super::ring::{RingLookup, RingSubscriber};
use super::walk::{WalkSource, require_horizon};
use crate::error::{Code, Refusal};
use crate::history::record::numbers::Numbers;
use crate::http::past;
use crate::log::LogEngine;
use crate::table_reads::offload;

/// Time between heartbeats where there is nothing to send.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(30);
/// Time between two checkpoints at least.
const CALM: Duration = Duration::from_secs(1);
/// Pieces that may wait for a slow reader.
pub(super) const BACKLOG: usize = 2;
/// Bytes of a page that is passed on as it is; smaller ones are put together.
const WORTHY: usize = 8 << 10;

/// One subscriber.
pub(super) struct StreamReader {
    pub(super) projections: Arc<Projections>,
    pub(super) log: Arc<LogEngine>,
    pub(super) subscription: Subscription,
    /// The next index to look at.
    pub(super) position: u64,
    pub(super) past: PastWalk,
    pub(super) subscriber: RingSubscriber,
    pub(super) sender: mpsc::Sender<Bytes>,
    /// Whether a frame was sent.
    pub(super) begun: bool,
}

/// What there is to do next.
enum ReadStep {
    /// These bytes go out; there may be none.
    Send(Bytes),
    /// Everything was sent; the last event happened at this time.
    Idle(i64),
}

/// The position that was reported, and when.
pub(super) struct PositionReport {
    pub(super) position: u64,
    pub(super) at: Instant,
}

impl StreamReader {
    /// Serves the subscriber until it leaves, cannot be served, or `right` ends.
    pub(super) async fn run(mut self, right: impl Future<Output = ()>) {
        tokio::select! {
            () = self.serve() => return,
            () = right => {}
        }
        self.leave(&right::ended()).await;
    }

    async fn serve(&mut self) {
        let greeting = Bytes::from_static(self.subscription.form.greeting());
        if !self.send(greeting).await {
            return;
        }
        let mut last_report = PositionReport {
            position: 0,
            at: Instant::now(),
        };
        loop {
            self.subscriber.ignore_earlier_pushes();
            let goes_on = match self.next() {
                Ok(ReadStep::Send(bytes)) if bytes.is_empty() => {
                    tokio::task::yield_now().await;
                    self.say_while_searching(&mut last_report).await
                }
                Ok(ReadStep::Send(bytes)) => self.send(bytes).await,
                Ok(ReadStep::Idle(time)) => self.wait(time, &mut last_report).await,
                Err(error) => {
                    self.leave(&error).await;
                    return;
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Waits for something to happen, and says now and then that nothing does.
    async fn wait(&mut self, time: i64, last_report: &mut PositionReport) -> bool {
        let checkpoints = self.subscription.form.checkpoints;
        let pause = match checkpoints && last_report.position != self.position {
            true if last_report.position == 0 => Duration::ZERO,
            true => (last_report.at + CALM).saturating_duration_since(Instant::now()),
            false => (last_report.at + HEARTBEAT).saturating_duration_since(Instant::now()),
        };
        tokio::select! {
            biased;
            pushed = self.subscriber.pushed() => return pushed,
            () = self.sender.closed() => return false,
            () = tokio::time::sleep(pause) => {}
        }
        *last_report = PositionReport {
            position: self.position,
            at: Instant::now(),
        };
        let frame = match checkpoints {
            true => self.checkpoint(time),
            false => Bytes::from_static(self.subscription.form.heartbeat()),
        };
        self.send(frame).await
    }

    /// Says that a long search goes on, and where checkpoints are wanted how far it is.
    pub(super) async fn say_while_searching(&mut self, last_report: &mut PositionReport) -> bool {
        if self.sender.is_closed() {
            return false;
        }
        let checkpoints = self.subscription.form.checkpoints;
        let pause = if checkpoints { CALM } else { HEARTBEAT };
        if last_report.at.elapsed() < pause || self.past.within().is_some() {
            return true;
        }
        *last_report = PositionReport {
            position: self.position,
            at: Instant::now(),
        };
        if !checkpoints {
            return self
                .send(Bytes::from_static(self.subscription.form.heartbeat()))
                .await;
        }
        let sent = self.position.saturating_sub(1);
        let Ok(time) = offload(|| past::time_at(&self.log, sent)) else {
            return true;
        };
        self.send(self.checkpoint(time)).await
    }

    fn checkpoint(&self, time: i64) -> Bytes {
        let index = self.position.saturating_sub(1);
        let at = Checkpoint {
            index,
            time,
            lag: self.projections.watch().applied().saturating_sub(index),
            epoch: self.subscription.clouds.epoch,
        };
        self.subscription.form.checkpoint(&at).into()
    }

    async fn leave(&mut self, error: &Refusal) {
        match error.code {
            Code::Gone | Code::PermissionDenied => {
                tracing::info!(%error, "a subscriber has to start again");
            }
            Code::BadRequest => tracing::info!(%error, "a subscriber's filter cannot be decided"),
            _ => tracing::error!(%error, "the event stream cannot go on"),
        }
        let frame = self.subscription.form.error(error);
        if !frame.is_empty() && self.past.within().is_none() {
            self.send(frame.into()).await;
        }
    }

    /// What is there now.
    fn next(&mut self) -> Result<ReadStep, Refusal> {
        if let Some(index) = self.past.within() {
            return offload(|| self.read_past(index));
        }
        let mut out = Vec::new();
        loop {
            let found = self
                .subscriber
                .ring()
                .read(self.position, self.subscriber.needs());
            match found {
                RingLookup::Nothing(time) if out.is_empty() => return Ok(ReadStep::Idle(time)),
                RingLookup::Past(upto) if out.is_empty() => {
                    return offload(|| self.read_past(upto));
                }
                RingLookup::Nothing(_) | RingLookup::Past(_) => {
                    return Ok(ReadStep::Send(out.into()));
                }
                RingLookup::Page(page) if self.subscription.takes_lines() => {
                    let lines = page.lines(self.position);
                    if lines.len() >= WORTHY && !out.is_empty() {
                        return Ok(ReadStep::Send(out.into()));
                    }
                    self.position = page.upto + 1;
                    if lines.len() >= WORTHY {
                        return Ok(ReadStep::Send(lines));
                    }
                    out.extend_from_slice(&lines);
                }
                RingLookup::Page(page) => {
                    for batch in page.from(self.position) {
                        self.subscription.report(batch, &mut out)?;
                        self.position = batch.index + 1;
                        if out.len() >= PIECE {
                            return Ok(ReadStep::Send(out.into()));
                        }
                    }
                    self.position = page.upto + 1;
                }
            }
            if out.len() >= PIECE {
                return Ok(ReadStep::Send(out.into()));
            }
        }
    }

    /// Some of the indexes up to one that the ring has no longer.
    fn read_past(&mut self, upto: u64) -> Result<ReadStep, Refusal> {
        let view = self.projections.view();
        let source = WalkSource {
            view: &view,
            log: &self.log,
        };
        require_horizon(self.position, source.horizon())?;
        let mut out = Vec::new();
        let range = (self.position, upto);
        self.position = self
            .past
            .report(source, &self.subscription, range, &mut out)?;
        Ok(ReadStep::Send(out.into()))
    }

    /// Sends whole frames, in the way the subscriber wants them.
    async fn send(&mut self, bytes: Bytes) -> bool {
        let bytes = self.dressed(bytes);
        self.sender.send(bytes).await.is_ok()
    }

    fn dressed(&mut self, bytes: Bytes) -> Bytes {
        let form = self.subscription.form;
        let opening = match bytes == form.heartbeat() || bytes == form.greeting() || self.begun {
            true => &[][..],
            false => form.opening(),
        };
        self.begun |= !opening.is_empty();
        if opening.is_empty() && form.numbers == Numbers::Plain {
            return bytes;
        }
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16 + 32);
        out.extend_from_slice(opening);
        form.numbers.copy(&bytes, &mut out);
        out.into()
    }
}
