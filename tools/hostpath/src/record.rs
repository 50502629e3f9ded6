//! The record of calls, which tests read: a line when one begins and a line when it ends.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::faults::When;
use crate::requested::RequestRecord;

pub(crate) struct Record {
    path: Option<PathBuf>,
    calls: AtomicU64,
}

#[derive(Serialize)]
struct Begun<'a> {
    at: u128,
    pid: u32,
    seq: u64,
    node: &'a str,
    call: &'a str,
    begin: &'a RequestRecord,
}

#[derive(Serialize)]
struct Ended<'a> {
    at: u128,
    pid: u32,
    seq: u64,
    node: &'a str,
    call: &'a str,
    #[serde(flatten)]
    end: End<'a>,
}

#[derive(Serialize)]
struct Held<'a> {
    at: u128,
    pid: u32,
    seq: u64,
    node: &'a str,
    call: &'a str,
    held: When,
    volume: &'a str,
}

/// How a call ends.
#[derive(Serialize)]
pub(crate) struct End<'a> {
    /// The name of the code of gRPC.
    pub(crate) code: String,
    pub(crate) text: &'a str,
    /// The caller has stopped waiting for the answer.
    pub(crate) late: bool,
}

impl Record {
    pub(crate) fn new(path: Option<PathBuf>) -> Record {
        let calls = AtomicU64::new(1);
        Record { path, calls }
    }

    /// A call begins; the number it has.
    pub(crate) fn begin(&self, node: &str, call: &str, begin: &RequestRecord) -> u64 {
        let seq = self.calls.fetch_add(1, Ordering::Relaxed);
        let (at, pid) = (now(), std::process::id());
        self.write(&Begun {
            at,
            pid,
            seq,
            node,
            call,
            begin,
        });
        seq
    }

    /// It waits, before its work or after it.
    pub(crate) fn held(&self, node: &str, call: &str, seq: u64, (held, volume): (When, &str)) {
        let (at, pid) = (now(), std::process::id());
        self.write(&Held {
            at,
            pid,
            seq,
            node,
            call,
            held,
            volume,
        });
    }

    pub(crate) fn end(&self, node: &str, call: &str, seq: u64, end: End<'_>) {
        let (at, pid) = (now(), std::process::id());
        self.write(&Ended {
            at,
            pid,
            seq,
            node,
            call,
            end,
        });
    }

    /// A line is written with one call, so that lines of several plugins do not mix.
    fn write(&self, line: &impl Serialize) {
        let Some(path) = &self.path else { return };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| {
            let mut line = serde_json::to_vec(line)?;
            line.push(b'\n');
            file.write_all(&line)
        });
        if let Err(error) = written {
            eprintln!("drover-hostpath: {}: {error}", path.display());
        }
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}
