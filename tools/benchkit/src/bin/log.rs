//! The log engine against the raw disk, in one run: `log [seconds] [directory]`.
//!
//! Prints a JSON line per measurement: the raw `fdatasync` floor (a preallocated, zeroed file,
//! overwritten in place), one client, 256 appends in flight with and without the Merkle tree, and
//! a scan. Bodies are 300 bytes. The ratio to the floor of the same run is what counts.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use drover::log::{Entry, LogEngine, LogOptions};
use drover_benchkit::{arguments, floor, usage};

const BODY: usize = 300;

fn main() -> Result<()> {
    let (seconds, dir) = arguments(3.0)?;
    let span = Duration::from_secs_f64(seconds);
    let syncs = floor::syncs(dir.path(), span)?;
    let one = one_client(dir.path(), span)?;
    line("append, 1 client", &one, syncs);
    let again = floor::syncs(dir.path(), span)?;
    println!("{{\"what\":\"floor again\",\"per_second\":{again:.0}}}");
    for (name, tree, seal) in [
        ("append, 256 in flight, no tree, no sealing", false, false),
        ("append, 256 in flight, tree, no sealing", true, false),
        ("append, 256 in flight, tree, sealing", true, true),
    ] {
        let found = in_flight(dir.path(), span, tree, seal)?;
        line(name, &found, syncs);
    }
    Ok(())
}

struct Measured {
    rate: f64,
    micros: Vec<u64>,
}

fn line(what: &str, m: &Measured, floor: f64) {
    let mut sorted = m.micros.clone();
    sorted.sort_unstable();
    let p = |q: f64| sorted[((sorted.len() - 1) as f64 * q) as usize];
    let line = serde_json::json!({
        "what": what,
        "per_second": m.rate.round(),
        "of_floor": (m.rate / floor * 1000.0).round() / 1000.0,
        "p50_us": p(0.5),
        "p99_us": p(0.99),
        "p999_us": p(0.999),
        "rss_mb": usage::rss_mb().round(),
    });
    println!("{line}");
}

fn open(dir: &Path, name: &str, tree: bool, seal: bool) -> Result<LogEngine> {
    let options = LogOptions {
        tree,
        seal,
        auto_commit: true,
        ..LogOptions::default()
    };
    Ok(LogEngine::open(&dir.join(name), options)?.0)
}

fn one_client(dir: &Path, span: Duration) -> Result<Measured> {
    let log = open(dir, "one", true, true)?;
    let body = bytes(0);
    let (start, mut micros) = (Instant::now(), Vec::new());
    while start.elapsed() < span {
        let at = Instant::now();
        log.append_one(1, 1, body.clone())?;
        micros.push(at.elapsed().as_micros() as u64);
    }
    Ok(Measured {
        rate: micros.len() as f64 / start.elapsed().as_secs_f64(),
        micros,
    })
}

/// Keeps 256 single appends in flight.
fn in_flight(dir: &Path, span: Duration, tree: bool, seal: bool) -> Result<Measured> {
    let log = open(dir, &format!("many-{tree}-{seal}"), tree, seal)?;
    let gate = Arc::new((Mutex::new(256usize), Condvar::new()));
    let times = Arc::new(Mutex::new(Vec::<u64>::with_capacity(1 << 20)));
    let acked = Arc::new(AtomicU64::new(0));
    let (start, mut index) = (Instant::now(), 0u64);
    while start.elapsed() < span {
        {
            let (free, wake) = &*gate;
            let mut free = free.lock().expect("no panic under the lock");
            while *free == 0 {
                free = wake.wait(free).expect("no panic under the lock");
            }
            *free -= 1;
        }
        let (gate, times, acked) = (Arc::clone(&gate), Arc::clone(&times), Arc::clone(&acked));
        let at = Instant::now();
        let done = move |r: Result<(), _>| {
            assert!(r.is_ok(), "an append failed");
            times
                .lock()
                .expect("no panic")
                .push(at.elapsed().as_micros() as u64);
            acked.fetch_add(1, Ordering::Relaxed);
            *gate.0.lock().expect("no panic") += 1;
            gate.1.notify_one();
        };
        let entry = Entry {
            index,
            kind: 1,
            time: 1,
            body: bytes(index),
        };
        log.append(vec![entry], Box::new(done))?;
        index += 1;
    }
    log.sync()?;
    let elapsed = start.elapsed().as_secs_f64();
    let micros = std::mem::take(&mut *times.lock().expect("no panic"));
    Ok(Measured {
        rate: acked.load(Ordering::Relaxed) as f64 / elapsed,
        micros,
    })
}

/// A body that does not compress to nothing.
fn bytes(seed: u64) -> bytes::Bytes {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = vec![0u8; BODY];
    for chunk in out.chunks_mut(16) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let word = x.to_le_bytes();
        let n = chunk.len().min(8);
        chunk[..n].copy_from_slice(&word[..n]);
    }
    out.into()
}
