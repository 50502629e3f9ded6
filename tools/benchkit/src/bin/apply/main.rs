//! Apply and replay, alone: `apply [allocations] [directory]`.
//!
//! Prints a JSON line per measurement. Plans of 256 allocations go through the whole of apply, as
//! committed events do (guards, job specifications, node use, summaries, history, every index);
//! then clients report on all of them; then evaluations are deleted by filter at its dearest; then
//! events of about 300 bytes are decoded and folded into an empty database. `worst_ms` and
//! `longest_apply_ms` are of the longest batch: nothing else can be applied meanwhile.
//! `cpu_us` is what one allocation or event cost all threads, flushes and compactions included:
//! on a busy machine it says more than the rate.

mod deletion;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use drover_benchkit::arguments;
use drover_benchkit::floor::{self, Writes};
use drover_benchkit::sample::{self, NOW, envelope, eval, namespace, uuid, variable};
use drover_benchkit::usage::{cpu_seconds, rss_mb};
use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::job::JobRegistered;
use drover_events::model::{
    AllocMetric, AllocatedResources, AllocatedTaskResources, Allocation, Job, NodeScoreMeta,
    TaskGroup,
};
use drover_events::plan::{PlacedAlloc, PlanApplied};
use drover_events::{Event, Recorded};
use drover_projections::tables::Allocs;
use drover_projections::{DatabaseOptions, Outcome, Projections, Reply, Scan, Writer};

const NODES: u64 = 5_000;
const PER_JOB: u64 = 1_000;
const PER_PLAN: u64 = 256;
/// What placing an allocation writes at least: its row and eight small entries.
const PLACED: Writes = Writes {
    row: 900,
    small: 8,
    batch: 1_000,
};
/// What an event of 300 bytes writes at least: its row and three small entries.
const SMALL: Writes = Writes {
    row: 300,
    small: 3,
    batch: 1_000,
};

fn main() -> Result<()> {
    let (allocs, dir) = arguments(200_000_u64)?;
    let raw = floor::rows(dir.path(), 100_000, PLACED)?;
    println!("{{\"what\":\"floor: rows of allocations\",\"per_second\":{raw:.0}}}");
    place(&dir.path().join("place"), allocs)?;
    deletion::measure(&dir.path().join("deletion"))?;
    let raw = floor::rows(dir.path(), 300_000, SMALL)?;
    println!("{{\"what\":\"floor: rows of small events\",\"per_second\":{raw:.0}}}");
    replay(
        "replay of variables, 300 B",
        &dir.path().join("vars"),
        300_000,
        &variable,
    )?;
    replay(
        "replay of evaluations, 300 B",
        &dir.path().join("evals"),
        300_000,
        &eval,
    )?;
    Ok(())
}

/// Applies events and keeps the longest batch.
struct Bench {
    writer: Writer,
    index: u64,
    worst: f64,
    refused: u64,
    cpu: f64,
}

impl Bench {
    fn open(path: &Path) -> Result<(Arc<Projections>, Self)> {
        let (projections, writer) = Projections::open(path, DatabaseOptions::server())?;
        let bench = Self {
            writer,
            index: 0,
            worst: 0.0,
            refused: 0,
            cpu: 0.0,
        };
        Ok((projections, bench))
    }

    fn body(&mut self, event: Event) -> Result<Vec<u8>> {
        self.index += 1;
        Ok(sample::body(self.index, event)?.1)
    }

    fn recorded(&mut self, event: Event) -> Recorded {
        self.index += 1;
        let envelope = envelope(self.index, event);
        Recorded {
            index: self.index,
            term: 1,
            kind: envelope.event.kind(),
            time: envelope.time,
            envelope: Some(envelope),
        }
    }

    /// Applies events, and gives what those answered that were not refused.
    fn apply(&mut self, entries: &[Recorded]) -> Result<Vec<Reply>> {
        let mut last = Instant::now();
        let (mut worst, mut refused) = (self.worst, 0);
        let mut replies = Vec::new();
        self.writer.apply_each(entries, |applied| {
            worst = worst.max(last.elapsed().as_secs_f64() * 1e3);
            last = Instant::now();
            for one in applied {
                match one.outcome {
                    Outcome::Applied(reply) => replies.push(reply),
                    Outcome::Rejected(reason) => {
                        if refused == 0 {
                            println!("refused: {reason:?}");
                        }
                        refused += 1;
                    }
                }
            }
        })?;
        (self.worst, self.refused) = (worst, self.refused + refused);
        Ok(replies)
    }
}

fn job(number: u64) -> Job {
    Job {
        id: format!("job-{number}"),
        name: format!("job-{number}"),
        namespace: "default".into(),
        r#type: "service".into(),
        priority: 50,
        region: "global".into(),
        datacenters: vec!["dc1".to_owned()].into(),
        node_pool: "default".into(),
        task_groups: vec![TaskGroup {
            name: "web".into(),
            count: 1_000,
            ..TaskGroup::default()
        }]
        .into(),
        ..Job::default()
    }
}

fn alloc(number: u64) -> Allocation {
    let task = AllocatedTaskResources {
        cpu: drover_events::model::AllocatedCpuResources {
            cpu_shares: 100,
            ..Default::default()
        },
        memory: drover_events::model::AllocatedMemoryResources {
            memory_mb: 128,
            ..Default::default()
        },
        ..AllocatedTaskResources::default()
    };
    let node = uuid(2, number % NODES);
    let scores: std::collections::BTreeMap<String, f64> = [
        ("binpack".to_owned(), 0.42),
        ("job-anti-affinity".to_owned(), 0.0),
    ]
    .into();
    Allocation {
        id: uuid(1, number),
        namespace: "default".into(),
        eval_id: uuid(3, number / PER_JOB),
        name: format!("job-{}.web[{}]", number / PER_JOB, number % PER_JOB),
        node_id: node.clone(),
        node_name: format!("node-{}", number % NODES),
        job_id: format!("job-{}", number / PER_JOB),
        task_group: "web".into(),
        allocated_resources: Some(AllocatedResources {
            tasks: std::collections::BTreeMap::from([("server".to_owned(), task)]).into(),
            ..AllocatedResources::default()
        }),
        metrics: Some(AllocMetric {
            nodes_evaluated: 14,
            nodes_in_pool: 5_000,
            node_pool: "default".into(),
            nodes_available: std::collections::BTreeMap::from([("dc1".to_owned(), 5_000)]).into(),
            score_meta_data: vec![NodeScoreMeta {
                node_id: node,
                scores: scores.into(),
                norm_score: 0.42,
            }]
            .into(),
            allocation_time: 41_000,
            ..AllocMetric::default()
        }),
        desired_status: "run".into(),
        client_status: "pending".into(),
        signing_key_id: uuid(5, 1),
        deployment_id: String::new(),
        ..Allocation::default()
    }
}

fn place(path: &Path, allocs: u64) -> Result<()> {
    let (projections, mut bench) = Bench::open(path)?;
    let mut setup = Vec::new();
    setup.push(bench.recorded(namespace()));
    let mut job_index = Vec::new();
    for number in 0..allocs.div_ceil(PER_JOB) {
        let registered = JobRegistered {
            job: Arc::new(job(number)),
            tracked_versions: 6,
            ..JobRegistered::default()
        };
        setup.push(bench.recorded(registered.into()));
        job_index.push(bench.index);
    }
    bench.apply(&setup)?;
    (bench.worst, bench.cpu) = (0.0, 0.0);
    let (mut spent, mut number) = (0.0, 0);
    while number < allocs {
        let mut plans = Vec::new();
        while plans.len() < 8 && number < allocs {
            let end = (number + PER_PLAN).min(allocs);
            let placed = (number..end).map(|number| PlacedAlloc {
                alloc: Box::new(alloc(number)),
                job_modify_index: job_index[usize::try_from(number / PER_JOB).unwrap_or(0)],
            });
            let plan = PlanApplied {
                plan_id: uuid(6, number),
                eval_id: uuid(3, number / PER_JOB),
                placed: placed.collect(),
                updated_at: NOW,
                ..PlanApplied::default()
            };
            plans.push(bench.recorded(plan.into()));
            number = end;
        }
        let (start, cpu) = (Instant::now(), cpu_seconds());
        bench.apply(&plans)?;
        spent += start.elapsed().as_secs_f64();
        bench.cpu += cpu_seconds() - cpu;
    }
    line("allocations placed, plans of 256", allocs, spent, &bench);
    let rows = projections.view().scan::<Allocs>(Scan::all()).count() as u64;
    anyhow::ensure!(rows == allocs, "{rows} rows of {allocs} allocations");
    client_updates(&mut bench, allocs)?;
    println!("{:?}", projections.stats()?);
    let start = Instant::now();
    bench.writer.flush()?;
    drop((projections, bench));
    let flushed = start.elapsed();
    let start = Instant::now();
    let (projections, _bench) = Bench::open(path)?;
    println!(
        "{{\"what\":\"open\",\"flush_ms\":{},\"open_ms\":{:.1},\"index\":{}}}",
        flushed.as_millis(),
        start.elapsed().as_secs_f64() * 1e3,
        projections.applied_index()
    );
    Ok(())
}

fn client_updates(bench: &mut Bench, allocs: u64) -> Result<()> {
    let count = allocs.min(50_000);
    let (mut spent, mut number) = (0.0, 0);
    (bench.worst, bench.cpu) = (0.0, 0.0);
    while number < count {
        let end = (number + 64).min(count);
        let updates = (number..end).map(|number| ClientAllocUpdate {
            id: uuid(1, number),
            client_status: "running".into(),
            ..ClientAllocUpdate::default()
        });
        let update = AllocsUpdatedByClient {
            updates: updates.collect(),
            updated_at: NOW,
            ..AllocsUpdatedByClient::default()
        };
        let entry = bench.recorded(update.into());
        let (start, cpu) = (Instant::now(), cpu_seconds());
        bench.apply(&[entry])?;
        spent += start.elapsed().as_secs_f64();
        bench.cpu += cpu_seconds() - cpu;
        number = end;
    }
    line(
        "allocations updated by clients, 64 at once",
        count,
        spent,
        bench,
    );
    Ok(())
}

fn replay(what: &str, path: &Path, count: u64, event: &dyn Fn(u64) -> Event) -> Result<()> {
    let (projections, mut bench) = Bench::open(path)?;
    let mut bodies = vec![bench.body(namespace())?];
    for number in 0..count {
        bodies.push(bench.body(event(number))?);
    }
    let size = bodies.last().map_or(0, Vec::len);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    for chunk in bodies.chunks(1_024) {
        let decoded: Vec<_> = chunk
            .iter()
            .map(|body| drover_migrations::decode(body))
            .collect::<Result<_, _>>()?;
        bench.apply(&decoded)?;
    }
    let spent = start.elapsed().as_secs_f64();
    bench.cpu = cpu_seconds() - cpu;
    line(
        &format!("{what} (last body {size} B)"),
        count,
        spent,
        &bench,
    );
    anyhow::ensure!(projections.applied_index() == count + 1);
    Ok(())
}

fn line(what: &str, count: u64, seconds: f64, bench: &Bench) {
    println!(
        "{{\"what\":\"{what}\",\"per_second\":{:.0},\"cpu_us\":{:.1},\"worst_ms\":{:.1},\
         \"refused\":{},\"rss_mb\":{:.0}}}",
        count as f64 / seconds,
        bench.cpu * 1e6 / count as f64,
        bench.worst,
        bench.refused,
        rss_mb()
    );
}
