//! A deletion by filter, through Raft into real projections: `evals [evaluations] [directory]`.
//!
//! Prints JSON lines: how long the deletion took, the longest and the usual time that the applier
//! was busy with one page, and how long a barrier waited that was written every 100 ms meanwhile.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover::commands::cluster::SetSchedulerConfig;
use drover::commands::eval::{DeleteEvalsPage, UpsertEvals};
use drover::log::{LogEngine, LogOptions};
use drover::proposer::{Origin, Proposer};
use drover::raft::network::Alone;
use drover::raft::{
    Entry, Fold, FoldError, FoldPosition, Member, Payload, Projector, RaftNode, RaftSettings,
    RaftStart, Save,
};
use drover_benchkit::{Line, arguments, runtime};
use drover_events::Actor;
use drover_events::model::{Evaluation, SchedulerConfiguration};
use drover_projections::{Outcome, Projections, Reply};

/// The projections' fold, each call timed.
struct Timed(Projector, Arc<Mutex<Vec<Duration>>>);

impl Fold for Timed {
    fn place(&self) -> Option<FoldPosition> {
        self.0.place()
    }

    fn apply(
        &mut self,
        entries: &[Entry],
        done: &mut dyn FnMut(u64, Option<Outcome>),
    ) -> std::result::Result<(), FoldError> {
        let began = Instant::now();
        let result = self.0.apply(entries, done);
        self.1.lock().expect("no panic").push(began.elapsed());
        result
    }

    fn save(&mut self) -> Save {
        self.0.save()
    }

    fn load(&mut self, dir: &Path) -> std::io::Result<()> {
        self.0.load(dir)
    }

    fn forget(&mut self, index: u64) -> std::io::Result<()> {
        self.0.forget(index)
    }
}

fn main() -> Result<()> {
    let (count, dir) = arguments(1_000_000_usize)?;
    let runtime = runtime()?;
    runtime.block_on(measure(dir.path(), count))
}

async fn measure(dir: &Path, count: usize) -> Result<()> {
    let (projections, writer) = Projections::open(dir.join("db"), Default::default())?;
    let times = Arc::new(Mutex::new(Vec::new()));
    let node = RaftNode::start(RaftStart {
        number: 1,
        log: Arc::new(LogEngine::open(&dir.join("log"), LogOptions::default())?.0),
        fold: Box::new(Timed(Projector::new(writer), Arc::clone(&times))),
        snapshots: dir.join("snapshots"),
        transport: Arc::new(Alone),
        settings: RaftSettings::default(),
        bootstrap: Some([(1, Member::default())].into()),
    })
    .await?;
    let actor = Actor::server("1", "bench");
    let shared = Arc::clone(&projections);
    let proposer = Proposer::start(
        Arc::clone(&node),
        shared,
        actor,
        Arc::new(|_: &_| Ok(Vec::new())),
    );
    proposer.ready().wait_for(Option::is_some).await?;
    fill(&proposer, count).await?;
    times.lock().expect("no panic").clear();
    let barrier = tokio::spawn(barriers(Arc::clone(&node)));
    let began = Instant::now();
    let pages = delete(&proposer, count).await?;
    let seconds = began.elapsed().as_secs_f64();
    barrier.abort();
    let mut times = std::mem::take(&mut *times.lock().expect("no panic"));
    let longest = times.iter().max().copied().unwrap_or_default();
    let over = times
        .iter()
        .filter(|t| **t > Duration::from_millis(20))
        .count();
    Line::new("delete 1,000,000 evaluations by filter")
        .number("evaluations", count as f64)
        .number("seconds", seconds)
        .number("pages", pages as f64)
        .number("longest_apply_ms", longest.as_secs_f64() * 1e3)
        .number("applies_over_20_ms", over as f64)
        .latencies(&mut times)
        .print();
    let mut waits = std::mem::take(&mut *BARRIERS.lock().expect("no panic"));
    Line::new("barrier during the deletion")
        .number("count", waits.len() as f64)
        .latencies(&mut waits)
        .print();
    node.shutdown().await;
    Ok(())
}

static BARRIERS: Mutex<Vec<Duration>> = Mutex::new(Vec::new());

/// Writes an entry that changes nothing every 100 ms.
async fn barriers(node: Arc<RaftNode>) {
    loop {
        let began = Instant::now();
        let blank = Payload(drover_events::RaftPayload::blank().0);
        if node.commit(blank).await.is_err() {
            return;
        }
        BARRIERS.lock().expect("no panic").push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn fill(proposer: &Proposer, count: usize) -> Result<()> {
    let one = |i: usize| Evaluation {
        id: format!(
            "{:08x}-0000-4000-8000-{i:012x}",
            (i as u32).wrapping_mul(0x9e37_79b1)
        ),
        namespace: "default".to_owned(),
        priority: 50,
        r#type: "service".to_owned(),
        triggered_by: "job-register".to_owned(),
        job_id: format!("job-{}", i % 1_000),
        status: "pending".to_owned(),
        ..Evaluation::default()
    };
    for first in (0..count).step_by(1_000) {
        let evals = (first..count.min(first + 1_000)).map(one).collect();
        let command = UpsertEvals {
            evals,
            decision: None,
        };
        proposer
            .submit(Arc::new(command), Origin::default())
            .await?;
    }
    let command = SetSchedulerConfig {
        config: SchedulerConfiguration {
            pause_eval_broker: true,
            ..SchedulerConfiguration::default()
        },
        cas: false,
        initial: false,
    };
    proposer
        .submit(Arc::new(command), Origin::default())
        .await?;
    Ok(())
}

async fn delete(proposer: &Proposer, count: usize) -> Result<usize> {
    let (mut page_token, mut pages, mut gone) = (String::new(), 0, 0);
    loop {
        let command = DeleteEvalsPage {
            filter: "Status == \"pending\"".to_owned(),
            page_token,
        };
        let done = proposer
            .submit(Arc::new(command), Origin::default())
            .await?;
        let Reply::Page { count, next } = done.reply else {
            bail!("{:?}", done.reply);
        };
        gone += usize::try_from(count).context("a count")?;
        pages += 1;
        if next.is_empty() {
            break;
        }
        page_token = next;
    }
    anyhow::ensure!(gone == count, "{gone} of {count} are gone");
    Ok(pages)
}
