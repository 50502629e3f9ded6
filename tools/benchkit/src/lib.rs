//! drover-benchkit: what the benchmarks share.
//!
//! Every benchmark is a program under `src/bin/` that prints one JSON line per measurement, with
//! the floor of the same run beside it: absolute figures move with the machine, ratios less. The
//! program `drover-benchkit` turns those lines into a table with the goals; `tools/bench` runs all.
//!
//! It must not reach into what it measures: it drives the public API of a crate, or the program.

pub mod floor;
pub mod sample;
pub mod usage;

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Map, Value};

/// As in the program that is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What most programs are started with: `program [much] [directory]`. How many events (seconds,
/// allocations), and a directory of the run's own, which is gone with what is answered.
///
/// # Errors
/// A first argument that cannot be read; a directory that cannot be made.
pub fn arguments<T: FromStr<Err: Display>>(much: T) -> Result<(T, tempfile::TempDir)> {
    let mut args = std::env::args().skip(1);
    let much = match args.next() {
        Some(text) => text.parse().map_err(|why| anyhow!("{text:?}: {why}"))?,
        None => much,
    };
    let base = args
        .next()
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let base = std::fs::canonicalize(&base).with_context(|| base.display().to_string())?;
    Ok((much, tempfile::tempdir_in(base)?))
}

/// A runtime of two threads, as an agent on the reference machine has.
///
/// # Errors
/// Those of the system.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

/// A measurement in the making: a name and figures.
#[derive(Debug, Clone, Default)]
pub struct Line(Map<String, Value>);

impl Line {
    /// A measurement of `what`. The name is what the table looks goals up by.
    pub fn new(what: &str) -> Line {
        let mut line = Line::default();
        line.0.insert("what".to_owned(), what.into());
        line
    }

    /// Adds a number, rounded to what is worth reading.
    #[must_use]
    pub fn number(mut self, name: &str, value: f64) -> Line {
        let rounded = if value.abs() >= 100.0 {
            value.round()
        } else {
            (value * 1000.0).round() / 1000.0
        };
        self.0.insert(name.to_owned(), rounded.into());
        self
    }

    /// Adds a text.
    #[must_use]
    pub fn text(mut self, name: &str, value: impl Into<String>) -> Line {
        self.0.insert(name.to_owned(), value.into().into());
        self
    }

    /// Adds the quantiles of latencies.
    #[must_use]
    pub fn latencies(self, latencies: &mut [Duration]) -> Line {
        latencies.sort_unstable();
        if latencies.is_empty() {
            return self;
        }
        let micros = |thousandths: usize| {
            let at = (latencies.len() - 1) * thousandths / 1000;
            latencies[at].as_secs_f64() * 1e6
        };
        let (p50, p99, p999) = (micros(500), micros(990), micros(999));
        self.number("p50_us", p50)
            .number("p99_us", p99)
            .number("p999_us", p999)
    }

    /// Prints the measurement on a line of its own.
    pub fn print(&self) {
        println!("{}", Value::Object(self.0.clone()));
    }
}

/// What [`run`] measured.
#[derive(Debug, Default)]
pub struct Run {
    /// How long all of it took.
    pub elapsed: Duration,
    /// How long each operation took.
    pub latencies: Vec<Duration>,
    /// How many operations failed, and the first reason.
    pub errors: usize,
    /// Why the first one failed.
    pub first_error: Option<String>,
    /// Bytes received.
    pub bytes: u64,
}

impl Run {
    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// The measurement as a line.
    pub fn line(&mut self, what: &str) -> Line {
        let rate = self.per_second();
        let line = Line::new(what)
            .number("per_second", rate)
            .latencies(&mut self.latencies);
        match &self.first_error {
            None => line,
            Some(error) => line
                .number("errors", self.errors as f64)
                .text("first_error", error),
        }
    }
}

/// Runs `count` operations on `clients` threads. Each thread makes its own client with `connect`;
/// `operation` gets the number of the operation and answers how many bytes it received.
pub fn run<C>(
    count: usize,
    clients: usize,
    connect: impl Fn() -> C + Sync,
    operation: impl Fn(&mut C, usize) -> anyhow::Result<usize> + Sync,
) -> Run {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let start = Instant::now();
    let parts: Vec<Run> = std::thread::scope(|scope| {
        let work = || {
            let mut client = connect();
            let mut part = Run::default();
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number >= count {
                    return part;
                }
                let began = Instant::now();
                match operation(&mut client, number) {
                    Ok(bytes) => part.bytes += bytes as u64,
                    Err(error) => {
                        part.errors += 1;
                        part.first_error.get_or_insert(format!("{error:#}"));
                    }
                }
                part.latencies.push(began.elapsed());
            }
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    });
    let mut whole = Run {
        elapsed: start.elapsed(),
        ..Run::default()
    };
    for part in parts {
        whole.latencies.extend(part.latencies);
        whole.errors += part.errors;
        whole.first_error = whole.first_error.or(part.first_error);
        whole.bytes += part.bytes;
    }
    whole
}
