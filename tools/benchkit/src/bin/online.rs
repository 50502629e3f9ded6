//! Projections built again while a server appends: `online [events] [directory]`.
//!
//! Prints JSON lines. A log of variables is written through Raft; then the same writers append, 256
//! in flight, before, during and after a rebuild, while a reader reads all the time. `kept` is the
//! rate during the rebuild, its cut-over included, over that without.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use drover::history::rebuild::{Online, OnlineSettings};
use drover::log::{LogEngine, LogOptions};
use drover::raft::network::Alone;
use drover::raft::{Member, Payload, Projector, RaftNode, RaftSettings, RaftStart};
use drover_benchkit::{Line, arguments, runtime, sample};
use drover_events::{Event, RaftPayload};
use drover_projections::tables::variables::Variables;
use drover_projections::{DatabaseOptions, Projections, Scan};

const IN_FLIGHT: u64 = 256;
/// How long the rate without a rebuild is measured, before and after it.
const IDLE: Duration = Duration::from_secs(8);

fn main() -> Result<()> {
    let (events, dir) = arguments(1_000_000_u64)?;
    let runtime = runtime()?;
    runtime.block_on(measure(dir.path(), events))
}

/// The server's parts that matter here, and what is appended.
struct Bench {
    node: Arc<RaftNode>,
    projections: Arc<Projections>,
    next: AtomicU64,
}

async fn measure(dir: &Path, events: u64) -> Result<()> {
    let home = dir.join("projections");
    drover_migrations::schema::prepare(&home, &DatabaseOptions::server())?;
    let (projections, writer) = Projections::open(&home, DatabaseOptions::server())?;
    let node = RaftNode::start(RaftStart {
        number: 1,
        log: Arc::new(LogEngine::open(&dir.join("log"), LogOptions::default())?.0),
        fold: Box::new(Projector::new(writer)),
        snapshots: dir.join("snapshots"),
        transport: Arc::new(Alone),
        settings: RaftSettings::default(),
        bootstrap: Some([(1, Member::default())].into()),
    })
    .await?;
    let bench = Arc::new(Bench {
        node,
        projections,
        next: AtomicU64::new(1),
    });
    let mut leadership = bench.node.leadership();
    leadership
        .wait_for(|now| matches!(now, drover::raft::Leadership::Leading { .. }))
        .await?;
    bench.node.commit(payload(0, sample::namespace())?).await?;
    let filled = bench.append(move |done, _| done >= events).await?;
    let before = bench.append(|_, took| took >= IDLE).await?;
    let (during, rebuilt, reads) = bench.rebuild(&home).await?;
    let after = bench.append(|_, took| took >= IDLE).await?;
    let idle = f64::midpoint(before, after);
    Line::new("append while the tables are built again")
        .number("filled_per_second", filled)
        .number("idle_per_second", idle)
        .number("idle_before", before)
        .number("idle_after", after)
        .number("per_second", during)
        .number("kept", during / idle)
        .print();
    let took = rebuilt.took.as_secs_f64();
    let cut_over = rebuilt.cut_over.unwrap_or_default();
    Line::new("rebuild beside a server")
        .number("events", rebuilt.entries as f64)
        .number("seconds", took)
        .number("per_second", rebuilt.entries as f64 / took)
        .number("cut_over_ms", cut_over.as_secs_f64() * 1e3)
        .number("reads", reads.0 as f64)
        .number("worst_ms", reads.1.as_secs_f64() * 1e3)
        .print();
    bench.node.shutdown().await;
    Ok(())
}

impl Bench {
    /// Appends, so many in flight, until it is enough; answers the rate.
    async fn append(
        self: &Arc<Self>,
        enough: impl Fn(u64, Duration) -> bool + Send + Sync + Clone + 'static,
    ) -> Result<f64> {
        let (began, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for _ in 0..IN_FLIGHT {
            let (own, done, enough) = (Arc::clone(self), Arc::clone(&done), enough.clone());
            tasks.push(tokio::spawn(async move {
                while !enough(done.load(Ordering::Relaxed), began.elapsed()) {
                    let number = own.next.fetch_add(1, Ordering::Relaxed);
                    own.node
                        .commit(payload(number, sample::variable(number))?)
                        .await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok(done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
    }

    /// Rebuilds while it appends and reads; answers the rate, what was rebuilt, and how many reads
    /// there were and how long the longest took.
    async fn rebuild(
        self: &Arc<Self>,
        home: &Path,
    ) -> Result<(f64, drover::history::rebuild::Rebuilt, (u64, Duration))> {
        let over = Arc::new(AtomicBool::new(false));
        let reader = {
            let (own, over) = (Arc::clone(self), Arc::clone(&over));
            std::thread::spawn(move || own.read(&over))
        };
        let builder = {
            let (own, over, home) = (Arc::clone(self), Arc::clone(&over), home.to_owned());
            std::thread::spawn(move || {
                let cancelled = AtomicBool::new(false);
                let online = Online {
                    home,
                    node: &own.node,
                    projections: &own.projections,
                    options: DatabaseOptions::server(),
                    settings: OnlineSettings::default(),
                    cancelled: &cancelled,
                };
                let mut stage = None;
                let began = Instant::now();
                let done = online.run(&mut |progress| {
                    if stage != Some(progress.stage) {
                        stage = Some(progress.stage);
                        eprintln!("{:?} {progress:?}", began.elapsed());
                    }
                });
                over.store(true, Ordering::Relaxed);
                done
            })
        };
        let ended = Arc::clone(&over);
        let rate = self
            .append(move |_, _| ended.load(Ordering::Relaxed))
            .await?;
        let joined = tokio::task::spawn_blocking(move || (builder.join(), reader.join())).await?;
        let (Ok(rebuilt), Ok(reads)) = joined else {
            anyhow::bail!("a thread panicked");
        };
        let rebuilt = rebuilt?;
        ensure!(!rebuilt.is_another(), "another state");
        Ok((rate, rebuilt, reads?))
    }

    /// Reads a page now and then: every read succeeds.
    fn read(&self, over: &AtomicBool) -> Result<(u64, Duration)> {
        let (mut reads, mut longest) = (0, Duration::ZERO);
        while !over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let view = self.projections.view();
            let mut rows = 0;
            for row in view.scan::<Variables>(Scan::all()).take(20) {
                row?;
                rows += 1;
            }
            ensure!(rows == 20, "{rows} rows");
            longest = longest.max(began.elapsed());
            reads += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok((reads, longest))
    }
}

fn payload(index: u64, event: Event) -> Result<Payload> {
    Ok(Payload(
        RaftPayload::encode(&sample::envelope(index, event))?.0,
    ))
}
