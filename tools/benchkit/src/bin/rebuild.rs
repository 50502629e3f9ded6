//! Projections built again from a log: `rebuild [events] [directory]`.
//!
//! Prints a JSON line per measurement. A log of events of about 300 bytes is written; then it is
//! read and decoded alone, applied through write batches, folded, and rebuilt as an operator's
//! rebuild does it (folded, read again, switched). All of them read the same log in the same run;
//! `times_batches` is what counts. `cpu_us` is what one event cost all threads: on a busy machine
//! it says more than the rate.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Result, ensure};
use drover::history::rebuild::Rebuild;
use drover::history::replay::{self, FOLD_BYTES};
use drover::log::{Entry, LogEngine, LogOptions, ReadOnlyLog};
use drover_benchkit::sample::{self, NOW, eval, namespace, variable};
use drover_benchkit::usage::{cpu_seconds, rss_mb};
use drover_benchkit::{Line, arguments};
use drover_events::Event;
use drover_projections::{DatabaseOptions, Projections, TableDigest};

fn main() -> Result<()> {
    let (events, dir) = arguments(1_000_000_u64)?;
    for (name, event) in [
        ("variables", &variable as &dyn Fn(u64) -> Event),
        ("evaluations", &eval),
    ] {
        let bench = Bench {
            name,
            events,
            dir: dir.path().join(name),
        };
        bench.write(event)?;
        bench.run()?;
        std::fs::remove_dir_all(&bench.dir)?;
    }
    Ok(())
}

struct Bench {
    name: &'static str,
    events: u64,
    dir: PathBuf,
}

impl Bench {
    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Writes the log: a membership, a namespace, and the events.
    fn write(&self, event: &dyn Fn(u64) -> Event) -> Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let options = LogOptions {
            auto_commit: true,
            ..LogOptions::default()
        };
        let (log, _) = LogEngine::open(&self.log(), options)?;
        for index in 0..self.events + 2 {
            let (kind, body) = body(index, event)?;
            let entry = Entry {
                index,
                kind,
                time: NOW + index as i64,
                body: body.into(),
            };
            log.append(vec![entry], Box::new(|_| ()))?;
        }
        log.sync()?;
        log.close();
        Ok(())
    }

    fn run(&self) -> Result<()> {
        let log = ReadOnlyLog::open(&self.log())?;
        let last = self.events + 1;
        self.measure("decode", None, &|| {
            replay::feed(&log, 0, last, &mut |_| Ok(()))?;
            Ok(())
        })?;
        let (batches, digests) = self.batches(&log, last)?;
        self.measure("fold", Some(batches), &|| {
            let path = self.dir.join("fold");
            let (projections, writer) = Projections::open(&path, DatabaseOptions::server())?;
            let mut fold = writer.fold(FOLD_BYTES)?;
            replay::feed(&log, 0, last, &mut |batch| Ok(fold.apply(batch)?))?;
            fold.finish()?;
            ensure!(projections.view().digests() == digests, "another state");
            Ok(())
        })?;
        self.measure("rebuild", Some(batches), &|| {
            let (log, live) = (self.log(), self.dir.join("batches"));
            let cancelled = AtomicBool::new(false);
            let rebuild = Rebuild::of(&log, &live, &DatabaseOptions::server(), &cancelled);
            let rebuilt = rebuild.run(&mut |_| ())?;
            ensure!(rebuilt.state.digests == digests, "another state");
            Ok(())
        })?;
        Ok(())
    }

    /// The path through write batches: its rate, and the digests it gives.
    fn batches(&self, log: &ReadOnlyLog, last: u64) -> Result<(f64, Vec<TableDigest>)> {
        let path = self.dir.join("batches");
        drover_migrations::schema::prepare(&path, &DatabaseOptions::server())?;
        let rate = self.measure("write batches", None, &|| {
            let (_, mut writer) = Projections::open(&path, DatabaseOptions::server())?;
            replay::feed(log, 0, last, &mut |batch| {
                Ok(writer.apply_each(batch, drop)?)
            })?;
            writer.flush()?;
            Ok(())
        })?;
        let (projections, _) = Projections::open(&path, DatabaseOptions::server())?;
        let digests = projections.view().digests();
        Ok((rate, digests))
    }

    fn measure(
        &self,
        what: &str,
        batches: Option<f64>,
        work: &dyn Fn() -> Result<()>,
    ) -> Result<f64> {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        work()?;
        let rate = self.events as f64 / start.elapsed().as_secs_f64();
        let cpu = (cpu_seconds() - cpu) * 1e6 / self.events as f64;
        let mut line = Line::new(&format!("{what} of {}, 300 B", self.name))
            .number("per_second", rate)
            .number("cpu_us", cpu)
            .number("rss_mb", rss_mb());
        if let Some(batches) = batches {
            line = line.number("times_batches", rate / batches);
        }
        line.print();
        Ok(rate)
    }
}

/// A membership, a namespace, and then the events.
fn body(index: u64, event: &dyn Fn(u64) -> Event) -> Result<(u16, Vec<u8>)> {
    match index {
        0 => Ok(sample::beginning()),
        1 => sample::body(index, namespace()),
        _ => sample::body(index, event(index - 2)),
    }
}
