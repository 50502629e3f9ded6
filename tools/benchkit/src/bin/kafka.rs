//! Events into Kafka, exactly once and at least once: `kafka [events] [directory]`.
//!
//! A log of events of about 300 bytes is written and applied, then published to a real broker on
//! this machine by the reactor that a leader runs, in turns with transactions and without, each
//! time to topics of its own. `of_at_least_once` is the rate with transactions by that without, the
//! best of each. The broker takes its part of the same processors.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use drover::base::clock::Clock;
use drover::commands::Command;
use drover::config::KafkaConfig;
use drover::error::Refusal;
use drover::keyring::Keyring;
use drover::log::{Entry, LogEngine};
use drover::proposer::Committed;
use drover::proposer::decided::{Decided, PendingOutcome, Propose};
use drover::reactors::kafka::{KafkaPublisher, KafkaSource, PublisherPosition};
use drover::reactors::runner::{Context, Reactor};
use drover_benchkit::sample::{self, NOW};
use drover_benchkit::{Line, arguments};
use drover_projections::{DatabaseOptions, Projections};
use drover_testkit::kafka::Broker;

/// How often each way is measured.
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let (events, dir) = arguments(300_000_u64)?;
    let Some(mut broker) = Broker::or_skip(&dir.path().join("broker"))? else {
        return Ok(());
    };
    broker.start()?;
    let (log, projections) = history(dir.path(), events)?;
    let keyring = Arc::new(Keyring::open(&dir.path().join("keystore"))?.0);
    let runtime = tokio::runtime::Runtime::new()?;
    let mut best = [0.0_f64; 2];
    for round in 0..ROUNDS {
        for exactly_once in [false, true] {
            let config = KafkaConfig {
                brokers: vec![broker.addr()],
                topic: format!("events-{round}-{exactly_once}"),
                transactional_id: format!("bench-{round}-{exactly_once}"),
                exactly_once,
                ..KafkaConfig::default()
            };
            let source = KafkaSource {
                config: Arc::new(config),
                log: Arc::clone(&log),
                keyring: Arc::clone(&keyring),
                held: Arc::new(PublisherPosition::new(Duration::ZERO)),
                agent: String::new(),
            };
            let spent = runtime.block_on(publish(source, &projections, events))?;
            let rate = events as f64 / spent.as_secs_f64();
            eprintln!("bench: exactly once {exactly_once}: {rate:.0} events/s");
            let best = &mut best[usize::from(exactly_once)];
            *best = best.max(rate);
        }
    }
    Line::new("events into Kafka, at least once")
        .number("per_second", best[0])
        .print();
    Line::new("events into Kafka, exactly once")
        .number("per_second", best[1])
        .number("of_at_least_once", best[1] / best[0])
        .print();
    Ok(())
}

/// A log whose events are applied.
fn history(dir: &Path, events: u64) -> Result<(Arc<LogEngine>, Arc<Projections>)> {
    let (log, _) = LogEngine::open(&dir.join("log"), drover::log::LogOptions::default())?;
    let (projections, mut writer) =
        Projections::open(dir.join("state"), DatabaseOptions::server())?;
    let mut next = 0;
    while next <= events {
        let mut entries = Vec::new();
        let mut decoded = Vec::new();
        for index in next..(next + 1_000).min(events + 1) {
            let (kind, body) = match index {
                0 => sample::beginning(),
                _ => sample::body(index, sample::eval(index))?,
            };
            decoded.push(drover_migrations::decode(&body)?);
            entries.push(Entry {
                index,
                kind,
                time: NOW,
                body: body.into(),
            });
        }
        next += entries.len() as u64;
        log.append(entries, Box::new(|_| {}))?;
        log.commit(next - 1, bytes::Bytes::new());
        writer.apply_each(&decoded, |_| {})?;
    }
    log.sync()?;
    Ok((Arc::new(log), projections))
}

/// Runs the reactor until everything is published; the time from its connection on.
async fn publish(
    source: KafkaSource,
    projections: &Arc<Projections>,
    events: u64,
) -> Result<Duration> {
    let reactor = KafkaPublisher::new(source);
    let context = Context {
        projections: Arc::clone(projections),
        proposer: Arc::new(Nobody),
        clock: Clock::default(),
    };
    let began = Instant::now();
    let mut connected = None;
    loop {
        ensure!(
            began.elapsed() < Duration::from_secs(300),
            "not in five minutes"
        );
        let activation = reactor.activate(&context).await;
        let status = activation.map_err(|error| anyhow!("{error}"))?.status;
        if status["Connected"] == true {
            let since = connected.get_or_insert_with(Instant::now);
            if status["Published"].as_u64() == Some(events) {
                return Ok(since.elapsed());
            }
        }
    }
}

/// Nothing is proposed here.
struct Nobody;

impl Propose for Nobody {
    fn queue(
        &self,
        _: Decided,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<PendingOutcome, Refusal>> + Send + '_>> {
        Box::pin(async { Err(Refusal::internal("nothing is proposed here")) })
    }

    fn submit(
        &self,
        _: Arc<dyn Command>,
        _: &'static str,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Committed, Refusal>> + Send + '_>> {
        Box::pin(async { Err(Refusal::internal("nothing is proposed here")) })
    }
}
