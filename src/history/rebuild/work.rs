//! The rebuild or verification that a running server does: at most one at a time. Callers can query
//! its progress, and can stop it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RebuildError, RebuildProgress, Stage};
use crate::error::{chain, panic_text};

/// Progress of the running or last rebuild or verification.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RebuildStatus {
    /// `rebuild` or `verify`; empty before the first.
    pub kind: String,
    /// Whether it runs now.
    pub running: bool,
    /// Its current stage, or how it ended: a [`Stage`]; empty before the first.
    pub stage: String,
    /// The index reached.
    pub at: u64,
    /// The last index.
    pub last: u64,
    /// The index where this run began.
    pub from: u64,
    /// Entries a second since it began.
    pub per_second: f64,
    /// Seconds left at that rate; none where that is unknown.
    pub seconds_left: Option<f64>,
    /// Seconds since it began.
    pub seconds: f64,
    /// Why it failed.
    pub error: String,
    /// Its result, where it succeeded.
    pub result: Option<Value>,
}

/// The running or last one.
struct RebuildRun {
    status: RebuildStatus,
    began: Instant,
}

/// Runs at most one rebuild or verification of a server at a time.
#[derive(Default)]
pub struct RebuildRunner {
    state: Mutex<Option<RebuildRun>>,
    cancelled: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A rebuild or verification, run on a thread of its own: it is given the flag that cancels it, and
/// what it reports its progress to.
pub(crate) type RebuildFn = Box<
    dyn FnOnce(&AtomicBool, &mut (dyn FnMut(RebuildProgress) + Send)) -> Result<Value, RebuildError>
        + Send,
>;

impl RebuildRunner {
    /// Begins a rebuild or verification; false while another runs.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(self: &Arc<Self>, kind: &str, run: RebuildFn) -> std::io::Result<bool> {
        let mut thread = self.thread.lock();
        if self.status().running {
            return Ok(false);
        }
        self.cancelled.store(false, Ordering::Relaxed);
        *self.state.lock() = Some(RebuildRun {
            status: RebuildStatus {
                kind: kind.to_owned(),
                running: true,
                stage: Stage::Fold.as_str().to_owned(),
                ..RebuildStatus::default()
            },
            began: Instant::now(),
        });
        let (own, cancelled) = (Arc::clone(self), Arc::clone(&self.cancelled));
        let started = std::thread::Builder::new()
            .name("rebuild".to_owned())
            .spawn(move || {
                let guarded = || run(&cancelled, &mut |progress| own.note(progress));
                // Its end is recorded after a panic too.
                own.end(catch_unwind(AssertUnwindSafe(guarded)));
            });
        match started {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                *self.state.lock() = None;
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Progress of the running or last one.
    pub fn status(&self) -> RebuildStatus {
        let state = self.state.lock();
        let Some(running) = &*state else {
            return RebuildStatus::default();
        };
        let mut status = running.status.clone();
        if status.running {
            status.seconds = running.began.elapsed().as_secs_f64();
            let done = status.at.saturating_sub(status.from) as f64;
            status.per_second = done / status.seconds.max(0.001);
            let left = status.last.saturating_sub(status.at) as f64;
            status.seconds_left = (done > 0.0).then(|| left / status.per_second);
        }
        status
    }

    /// Requests that what runs stops; does not wait for it.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Stops what runs, and waits for its end. Not for a thread that serves others.
    pub fn stop(&self) {
        self.cancel();
        let thread = self.thread.lock().take();
        // `end` has already recorded a panic.
        let _ = thread.map(JoinHandle::join);
    }

    fn note(&self, progress: RebuildProgress) {
        let mut state = self.state.lock();
        let Some(running) = &mut *state else { return };
        let status = &mut running.status;
        if status.from == 0 && status.at == 0 {
            status.from = progress.at;
        }
        (status.at, status.last) = (progress.at, progress.last);
        status.stage = progress.stage.as_str().to_owned();
    }

    fn end(&self, done: Result<Result<Value, RebuildError>, Box<dyn Any + Send>>) {
        let mut status = self.status();
        status.running = false;
        status.seconds_left = None;
        match done {
            Ok(Ok(result)) => {
                status.stage = Stage::Done.as_str().to_owned();
                status.result = Some(result);
                tracing::info!(
                    kind = status.kind,
                    seconds = status.seconds,
                    "rebuild finished"
                );
            }
            Ok(Err(error)) => {
                let stage = match error.is_cancelled() {
                    true => Stage::Cancelled,
                    false => Stage::Failed,
                };
                status.stage = stage.as_str().to_owned();
                status.error = chain(&error);
            }
            Err(panic) => {
                status.stage = Stage::Failed.as_str().to_owned();
                status.error = format!("it panicked: {}", panic_text(&*panic));
            }
        }
        if !status.error.is_empty() {
            let (kind, error) = (&status.kind, &status.error);
            tracing::warn!(kind, error, "the tables in use stay as they are");
        }
        if let Some(running) = &mut *self.state.lock() {
            running.status = status;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_that_panics_has_failed_and_another_can_begin() {
        let runner: Arc<RebuildRunner> = Arc::default();
        let begun = runner.begin("rebuild", Box::new(|_, _| panic!("torn at {}", 7)));
        assert!(begun.unwrap());
        runner.stop();
        let status = runner.status();
        assert!(!status.running, "{status:?}");
        assert_eq!(status.stage, "failed");
        assert_eq!(status.error, "it panicked: torn at 7");
        let begun = runner.begin("verify", Box::new(|_, _| Ok(Value::Null)));
        assert!(begun.unwrap());
        runner.stop();
        assert_eq!(runner.status().stage, "done");
    }
}
