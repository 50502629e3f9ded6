//! Opening the request log, and opening it again after a failed write.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::RequestLog;
use crate::error::chain;
use crate::log::{FileLayer, LogEngine, LogError, LogOptions, atomic_file};

/// Bytes of a segment.
const SEGMENT: u64 = 1 << 20;
/// Longest record, bytes; the longest texts of a request are cut to stay far below.
const LONGEST: usize = 64 << 10;
/// The first pause between two tries; each is twice as long as the one before.
const FIRST: Duration = Duration::from_millis(250);
/// The longest.
const MOST: Duration = Duration::from_secs(30);

/// The log that is open, or why there is none.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) log: Option<Arc<LogEngine>>,
    /// Why it could not be opened, or stopped.
    failed: Option<String>,
    /// Whether it is being opened again.
    mending: bool,
    /// How often that was tried in vain, and not before when it is tried again.
    pub(super) tries: u32,
    not_before: Option<Instant>,
}

impl Slot {
    /// Why nothing can be written.
    pub(super) fn why(&self) -> Option<String> {
        match &self.log {
            Some(log) => log.stopped(),
            None => Some(self.failed.clone().unwrap_or_default()),
        }
    }

    fn fails(&mut self, why: String) {
        let pause = FIRST.saturating_mul(1 << self.tries.min(16)).min(MOST);
        self.failed = Some(why);
        self.tries = self.tries.saturating_add(1);
        self.not_before = Some(Instant::now() + pause);
    }
}

impl RequestLog {
    /// Opens the log where it lies.
    pub(super) fn open_now(&self) -> Result<(), LogError> {
        let Some((files, dir)) = &self.place else {
            return Ok(());
        };
        let opened = open(files, dir);
        let mut slot = self.slot.lock();
        match opened {
            Ok((log, last)) => {
                let mut newest = self.last.lock();
                *newest = last.max(*newest);
                *slot = Slot {
                    log: Some(Arc::new(log)),
                    ..Slot::default()
                };
                Ok(())
            }
            Err(error) => {
                slot.fails(chain(&error));
                Err(error)
            }
        }
    }

    /// Opens a log again that cannot be written, on a thread of its own, if it is time to try.
    pub(super) fn mend(self: &Arc<Self>) {
        {
            let mut slot = self.slot.lock();
            let early = slot.not_before.is_some_and(|at| Instant::now() < at);
            if slot.mending || early || slot.why().is_none() {
                return;
            }
            slot.mending = true;
        }
        let own = Arc::clone(self);
        let again = std::thread::Builder::new().name("request-log".to_owned());
        if let Err(error) = again.spawn(move || own.open_again()) {
            let mut slot = self.slot.lock();
            slot.mending = false;
            slot.fails(error.to_string());
        }
    }

    fn open_again(&self) {
        let stopped = {
            let mut slot = self.slot.lock();
            slot.failed = slot.why();
            slot.log.take()
        };
        // Its directory is free once it is closed, and has no readers any more.
        drop(stopped);
        let opened = self.open_now();
        self.slot.lock().mending = false;
        match opened {
            Ok(()) => tracing::info!("the request log is written again"),
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "the request log cannot be opened again"
                );
            }
        }
    }
}

/// Opens the log in a directory; answers the time of its last record too.
fn open(files: &Arc<dyn FileLayer>, dir: &Path) -> Result<(LogEngine, i64), LogError> {
    let options = LogOptions {
        segment_bytes: SEGMENT,
        max_body: LONGEST,
        tail_bytes: 256 << 10,
        tree: true,
        ..LogOptions::journal()
    };
    write_again(&**files, dir)?;
    let (log, report) = LogEngine::open_with(Arc::clone(files), dir, options)?;
    tracing::debug!(?report, "opened the request log");
    let last = last_time(&log)?;
    Ok((log, last))
}

/// Writes what the open segments hold once more, and syncs it. After a sync that failed, what is
/// read may not be on the disk, and no later sync would put it there.
fn write_again(files: &dyn FileLayer, dir: &Path) -> Result<(), LogError> {
    // Where there is nothing to be listed there is nothing to be saved.
    let names = files.list(dir).unwrap_or_default();
    for name in names.iter().filter(|name| name.ends_with(".log")) {
        let path = dir.join(name);
        let copied = files.open(&path, true).and_then(|file| {
            file.write_at(&atomic_file::read_open(&*file)?, 0)?;
            file.sync()
        });
        copied.map_err(|error| LogError::Io {
            op: "write",
            path,
            source: Arc::new(error),
        })?;
    }
    Ok(())
}

/// The time of the last record, 0 without any.
fn last_time(log: &LogEngine) -> Result<i64, LogError> {
    let (first, next) = log.bounds();
    match next.checked_sub(1).filter(|last| *last >= first) {
        Some(last) => Ok(log.read(last)?.map_or(0, |record| record.time)),
        None => Ok(0),
    }
}
