//! Lists, pages and single reads, each beside its floor, plain and compressed.

use anyhow::{Result, ensure};
use drover_benchkit::{Run, run};
use drover_testkit::{Agent, Http};

use crate::floor;
use crate::jobs::{job, register};

struct Read {
    what: &'static str,
    path: &'static str,
    count: usize,
    clients: usize,
}

const READS: &[Read] = &[
    Read {
        what: "list allocations",
        path: "/v1/allocations",
        count: 40,
        clients: 2,
    },
    Read {
        what: "list nodes",
        path: "/v1/nodes",
        count: 100,
        clients: 2,
    },
    Read {
        what: "page of 100 allocations",
        path: "/v1/allocations?per_page=100",
        count: 8000,
        clients: 4,
    },
    Read {
        what: "one job",
        path: "/v1/job/read-one",
        count: 30_000,
        clients: 16,
    },
];

/// All reads.
pub(crate) fn all(agent: &Agent) -> Result<()> {
    register(&mut agent.http(), &job("read-one", 0, false))?;
    for read in READS {
        let size = one(&mut agent.http(), read.path)?;
        let constant = floor::serve(size)?;
        let mut floor = run(
            read.count,
            read.clients,
            || Http::new(constant),
            |http, _| one(http, "/"),
        );
        let mut plain = run(
            read.count,
            read.clients,
            || agent.http(),
            |http, _| one(http, read.path),
        );
        print(read.what, &mut plain, &mut floor);
        let zipped = || agent.http().header("Accept-Encoding", "gzip");
        let mut zipped = run(read.count, read.clients, zipped, |http, _| {
            one(http, read.path)
        });
        let bytes = zipped.bytes as f64 / read.count as f64;
        zipped
            .line(&format!("{}, gzip", read.what))
            .number("bytes", bytes)
            .print();
    }
    Ok(())
}

fn one(http: &mut Http, path: &str) -> Result<usize> {
    let answer = http.get(path)?;
    ensure!(
        answer.status == 200,
        "{path}: {} {}",
        answer.status,
        answer.text()
    );
    Ok(answer.body.len())
}

fn print(what: &str, run: &mut Run, floor: &mut Run) {
    let bytes = run.bytes as f64 / run.latencies.len().max(1) as f64;
    floor.latencies.sort_unstable();
    run.latencies.sort_unstable();
    let middle = |run: &Run| run.latencies.get(run.latencies.len() / 2).copied();
    let (ours, theirs) = (
        middle(run).unwrap_or_default(),
        middle(floor).unwrap_or_default(),
    );
    let times = ours.as_secs_f64() / theirs.as_secs_f64();
    let (rate, floor_rate) = (run.per_second(), floor.per_second());
    run.line(what)
        .number("bytes", bytes)
        .number("times_floor", times)
        .number("of_floor", rate / floor_rate)
        .number("floor_per_second", floor_rate)
        .print();
}
