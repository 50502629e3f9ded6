//! What the past costs: `history [events] [directory]`.
//!
//! Prints a JSON line per measurement. A log of variables of about 300 bytes, over 20,000 keys, is
//! written in full (tree and sealing on), then its tree is hashed again, it is verified as an
//! auditor would, decoded, and folded into tables; then the past is read at random indexes, one
//! object and a list of a thousand at a time, and held against what the events say. In the end
//! everything is opened again, by a process of its own. SHA-256 over the same bytes is the floor of
//! hashing and verifying.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use drover::history::proof::{Blocks, Verify, verify};
use drover::history::replay;
use drover::log::{Entry, LogEngine, LogOptions};
use drover_benchkit::sample::{self, NOW, VARIABLES, variable, variable_path};
use drover_benchkit::usage::rss_mb;
use drover_benchkit::{Line, arguments};
use drover_projections::tables::variables::Variables;
use drover_projections::{Prefix, Projections, Scan, View};
use sha2::{Digest, Sha256};

/// Entries appended at a time.
const CHUNK: u64 = 1_024;
/// Points of the past that are read.
const POINTS: u64 = 1_000;
/// Where the tables are that a process of its own opens.
const REOPEN: &str = "HISTORY_REOPEN";
/// The index of the first variable: after Raft's beginning and the namespace.
const FIRST: u64 = 2;

fn main() -> Result<()> {
    if let Some(tables) = std::env::var_os(REOPEN) {
        return reopen(Path::new(&tables));
    }
    let (events, dir) = arguments(1_000_000_u64)?;
    let (log_dir, tables) = (dir.path().join("log"), dir.path().join("projections"));
    let size = build(&log_dir, events)?;
    let floor = floor(events, size);
    hash(&log_dir, events, floor)?;
    audit(&log_dir, dir.path(), events, floor)?;
    decode(&log_dir, events)?;
    let began = Instant::now();
    let last = events + FIRST - 1;
    let replayed = replay::replay(&log_dir, &tables, Some(last), &mut |_, _| ())?;
    ensure!(replayed.state.index == last, "{:?}", replayed.state.index);
    rate("decode and fold into tables", events, began.elapsed()).print();
    let options = drover_projections::DatabaseOptions::server();
    let (projections, writer) = Projections::open(&tables, options)?;
    read_past(&projections.view(), events)?;
    drop((projections, writer));
    restart(&log_dir, &tables, events)
}

fn rate(what: &str, events: u64, took: Duration) -> Line {
    Line::new(&format!("{what} ({events} events)"))
        .number("per_second", events as f64 / took.as_secs_f64())
        .number("seconds", took.as_secs_f64())
}

fn entry(index: u64) -> Result<Entry> {
    let time = NOW + i64::try_from(index)?;
    let (kind, body) = match index {
        0 => sample::beginning(),
        1 => sample::body(index, sample::namespace())?,
        _ => sample::body(index, variable(index - FIRST))?,
    };
    Ok(Entry {
        index,
        kind,
        time: if index == 0 { 0 } else { time },
        body: body.into(),
    })
}

/// Writes the log; answers the bytes of a body.
fn build(dir: &Path, events: u64) -> Result<usize> {
    let options = LogOptions {
        auto_commit: true,
        ..LogOptions::default()
    };
    let log = LogEngine::open(dir, options)?.0;
    let (began, mut size, mut index) = (Instant::now(), 0, 0);
    let last = events + FIRST;
    while index < last {
        let end = (index + CHUNK).min(last);
        let entries: Vec<Entry> = (index..end).map(entry).collect::<Result<_>>()?;
        size = entries.last().map_or(size, |entry| entry.body.len());
        log.append(entries, Box::new(|_| ()))?;
        index = end;
    }
    log.sync()?;
    rate("encode and append", events, began.elapsed())
        .number("body_bytes", size as f64)
        .print();
    Ok(size)
}

/// SHA-256 over as many bytes as the log has, a leaf at a time: events per second.
fn floor(events: u64, size: usize) -> f64 {
    let (bytes, count) = (vec![0x5a_u8; size], events.min(500_000));
    let (began, mut last) = (Instant::now(), [0_u8; 32]);
    for _ in 0..count {
        let mut hash = Sha256::new();
        hash.update([0]);
        hash.update(&bytes);
        hash.update(last);
        last = hash.finalize().into();
    }
    let per_second = count as f64 / began.elapsed().as_secs_f64();
    Line::new("floor: SHA-256 of a body")
        .number("per_second", per_second)
        .text("last", format!("{:02x}", last[0]))
        .print();
    per_second
}

fn hash(dir: &Path, events: u64, floor: f64) -> Result<()> {
    let log = drover::log::ReadOnlyLog::open(dir)?;
    let began = Instant::now();
    Blocks::empty().follow(&log, events)?;
    let took = began.elapsed();
    let of_floor = events as f64 / took.as_secs_f64() / floor;
    rate("merkle leaves", events, took)
        .number("of_floor", of_floor)
        .print();
    Ok(())
}

fn audit(log_dir: &Path, server: &Path, events: u64, floor: f64) -> Result<()> {
    let began = Instant::now();
    let verified = verify(log_dir, server, &Verify::default(), &mut |_, _| ())?;
    let took = began.elapsed();
    ensure!(verified.entries == events + FIRST, "{verified:?}");
    ensure!(verified.findings.is_empty(), "{:?}", verified.findings);
    let per_second = events as f64 / took.as_secs_f64();
    rate("verify", events, took)
        .number("of_floor", per_second / floor)
        .print();
    Ok(())
}

fn decode(dir: &Path, events: u64) -> Result<()> {
    let log = drover::log::ReadOnlyLog::open(dir)?;
    let (began, mut last) = (Instant::now(), 0);
    for entry in log.scan(0) {
        last = drover_migrations::decode(&entry?.body)?.index;
    }
    ensure!(last == events + FIRST - 1, "the last event was {last}");
    rate("scan and decode", events, began.elapsed()).print();
    Ok(())
}

/// The index of the last write of a key at or before `at`.
fn written(key: u64, at: u64) -> Option<u64> {
    let first = FIRST + key;
    (at >= first).then(|| first + (at - first) / VARIABLES * VARIABLES)
}

fn read_past(view: &View, events: u64) -> Result<()> {
    let (mut single, mut lists, mut random) = (Vec::new(), Vec::new(), 0x9e37_79b9_u64);
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for point in 0..POINTS {
        let (at, key) = (FIRST + draw(events), draw(VARIABLES));
        let name = variable_path(key);
        let began = Instant::now();
        let past = view.as_of(at, NOW).expect("nothing was dropped");
        let found = past.get::<Variables>(("default", name.as_str()))?;
        single.push(began.elapsed());
        let index = found.map(|row| row.modify_index);
        ensure!(index == written(key, at), "{name} as of {at}: {index:?}");
        if point % 10 != 0 {
            continue;
        }
        let group = draw(VARIABLES / 1_000);
        let prefix = Prefix::new()
            .str("default")
            .str_prefix(&format!("app/{group:02}"));
        let began = Instant::now();
        let rows = past.scan::<Variables>(Scan::prefix(prefix));
        let indexes = rows.map(|row| row.map(|row| row.modify_index));
        let indexes = indexes.collect::<Result<Vec<_>, _>>()?;
        lists.push(began.elapsed());
        let wanted = (group * 1_000..(group + 1) * 1_000).filter_map(|key| written(key, at));
        ensure!(indexes.into_iter().eq(wanted), "app/{group:02} as of {at}");
    }
    Line::new(&format!("read as of, one object ({events} events)"))
        .latencies(&mut single)
        .print();
    Line::new(&format!("read as of, list of 1,000 ({events} events)"))
        .latencies(&mut lists)
        .print();
    Ok(())
}

/// What a start costs, in a process of its own, for memory is measured too.
fn restart(log_dir: &Path, tables: &Path, events: u64) -> Result<()> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(program);
    child
        .env(REOPEN, tables)
        .arg(events.to_string())
        .arg(log_dir);
    let status = child.status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Opens the log in `log_dir` and the tables beside it.
fn reopen(tables: &Path) -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (events, log_dir) = args.next().zip(args.next()).context("what to open")?;
    let events: u64 = events.parse()?;
    let began = Instant::now();
    let log = LogEngine::open(Path::new(&log_dir), LogOptions::default())?.0;
    let options = drover_projections::DatabaseOptions::server();
    let opened: (Arc<Projections>, _) = Projections::open(tables, options)?;
    let took = began.elapsed();
    ensure!(opened.0.applied_index() == events + FIRST - 1);
    Line::new(&format!("open log and tables ({events} events)"))
        .number("seconds", took.as_secs_f64())
        .number("rss_mb", rss_mb())
        .print();
    drop((opened, log));
    Ok(())
}
