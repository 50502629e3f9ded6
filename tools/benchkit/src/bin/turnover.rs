//! Whole lists of the past where most of what ever lived is gone: `turnover [events] [directory]`.
//!
//! Variables come and go, a thousand at a time. All that were there are listed as of random
//! indexes: once by a walk over what is and was there, then with the sets of rows alive. Every list
//! is held against what the events say.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};
use drover_benchkit::sample::{self, NOW, variable_applied};
use drover_benchkit::{Line, arguments};
use drover_events::Event;
use drover_events::variable::VarOp;
use drover_projections::tables::variables::Variables;
use drover_projections::{DatabaseOptions, Projections, Scan, View, Writer};

/// Rows that are there at a time.
const ALIVE: u64 = 1_000;
/// Points of the past that are read.
const POINTS: u64 = 100;
/// Events applied at a time.
const CHUNK: u64 = 4_096;

fn path(number: u64) -> String {
    format!("turnover/{number:08}")
}

/// Index 1 makes the namespace; then each even index brings a row, each odd one takes the oldest of
/// more than [`ALIVE`].
fn event(index: u64) -> Event {
    match index {
        1 => sample::namespace(),
        _ if index.is_multiple_of(2) => variable_applied(VarOp::Set, path(index / 2)),
        _ => variable_applied(VarOp::Delete, path((index / 2).saturating_sub(ALIVE))),
    }
}

/// The numbers of the rows that are there after an index.
fn alive(index: u64) -> std::ops::RangeInclusive<u64> {
    let gone = index.saturating_sub(1) / 2;
    1.max((gone + 1).saturating_sub(ALIVE))..=index / 2
}

fn main() -> Result<()> {
    let (events, dir) = arguments(1_000_000_u64)?;
    let (projections, mut writer) =
        Projections::open(dir.path().join("db"), DatabaseOptions::server())?;
    apply(&mut writer, 1..=events)?;
    list("whole list as of, walked", &projections.view(), events)?;
    let began = Instant::now();
    let mut left_out = BTreeMap::new();
    while projections.build_due_live_sets(&mut left_out)?.is_some() {}
    ensure!(left_out.is_empty(), "no set of some tables: {left_out:?}");
    Line::new(&format!("sets of rows alive ({events} events)"))
        .number("per_second", events as f64 / began.elapsed().as_secs_f64())
        .print();
    // A view shows what was there when the last batch was written.
    apply(&mut writer, events + 1..=events + 1)?;
    list("whole list as of, 1,000 alive", &projections.view(), events)
}

fn apply(writer: &mut Writer, mut indexes: std::ops::RangeInclusive<u64>) -> Result<()> {
    loop {
        let mut batch = Vec::new();
        for index in indexes.by_ref().take(CHUNK as usize) {
            let (_, body) = sample::body(index, event(index))?;
            batch.push(drover_migrations::decode(&body)?);
        }
        if batch.is_empty() {
            return Ok(());
        }
        writer.apply_each(&batch, drop)?;
    }
}

fn list(what: &str, view: &View, events: u64) -> Result<()> {
    let mut took = Vec::new();
    for point in 0..POINTS {
        let at = events / POINTS * point + point;
        let at = at.clamp(1, events);
        let past = view.as_of(at, NOW);
        let began = Instant::now();
        let past = past.ok_or_else(|| anyhow::anyhow!("the state as of {at} is gone"))?;
        let rows = past.scan::<Variables>(Scan::all());
        let paths = rows.map(|row| row.map(|row| row.path));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        took.push(began.elapsed());
        ensure!(paths.into_iter().eq(alive(at).map(path)), "as of {at}");
    }
    Line::new(&format!("{what} ({events} events)"))
        .latencies(&mut took)
        .print();
    Ok(())
}
