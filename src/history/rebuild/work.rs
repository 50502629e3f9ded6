//! What a running server builds or compares at the moment, one thing at a time: callers can query
//! how far it is, and can stop it.

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

/// What is done, or was done last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Status {
    /// `rebuild` or `verify`; empty before the first.
    pub kind: String,
    /// Whether it is being done now.
    pub running: bool,
    /// What it does: a [`Stage`]; empty before the first.
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
    /// The result of the work.
    pub result: Option<Value>,
}

struct RunningWork {
    status: Status,
    began: Instant,
}

/// The one place where a server's rebuilds and comparisons are done.
#[derive(Default)]
pub struct Work {
    state: Mutex<Option<RunningWork>>,
    cancelled: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is done on a thread of its own: it sees whether it is cancelled and reports its progress.
pub(crate) type Job = Box<
    dyn FnOnce(&AtomicBool, &mut (dyn FnMut(RebuildProgress) + Send)) -> Result<Value, RebuildError>
        + Send,
>;

impl Work {
    /// Begins something; false while something else is being done.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(self: &Arc<Self>, kind: &str, job: Job) -> std::io::Result<bool> {
        let mut thread = self.thread.lock();
        if self.status().running {
            return Ok(false);
        }
        self.cancelled.store(false, Ordering::Relaxed);
        *self.state.lock() = Some(RunningWork {
            status: Status {
                kind: kind.to_owned(),
                running: true,
                stage: Stage::Fold.as_str().to_owned(),
                ..Status::default()
            },
            began: Instant::now(),
        });
        let (own, cancelled) = (Arc::clone(self), Arc::clone(&self.cancelled));
        let started = std::thread::Builder::new()
            .name("rebuild".to_owned())
            .spawn(move || {
                let work = || job(&cancelled, &mut |progress| own.note(progress));
                // The work has an end, also after a panic.
                own.end(catch_unwind(AssertUnwindSafe(work)));
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

    /// How far it is.
    pub fn status(&self) -> Status {
        let state = self.state.lock();
        let Some(running) = &*state else {
            return Status::default();
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

    /// Requests that whatever is done stops.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Stops whatever is done, and waits for it. Not for a thread that serves others.
    pub fn stop(&self) {
        self.cancel();
        let thread = self.thread.lock().take();
        // A panic of the thread was noted.
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
                    "tables are done"
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
    fn work_that_panics_has_failed_and_other_work_can_begin() {
        let work: Arc<Work> = Arc::default();
        let begun = work.begin("rebuild", Box::new(|_, _| panic!("torn at {}", 7)));
        assert!(begun.unwrap());
        work.stop();
        let status = work.status();
        assert!(!status.running, "{status:?}");
        assert_eq!(status.stage, "failed");
        assert_eq!(status.error, "it panicked: torn at 7");
        let begun = work.begin("verify", Box::new(|_, _| Ok(Value::Null)));
        assert!(begun.unwrap());
        work.stop();
        assert_eq!(work.status().stage, "done");
    }
}
