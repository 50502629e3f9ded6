//! Whether there is capacity for more: on the disk, and between what is applied and what is
//! written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drover_projections::{Projections, Stats};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::{Code, Refusal};
use crate::log::{DiskSpace, LogEngine};
use crate::raft::no_leader;

/// Events that may be applied and not written out before proposals wait. The projections' own
/// limit, at which apply waits, lies above: it is never met as long as proposals are held back.
const UNFLUSHED: u64 = 45_000;
/// How long an answer is taken for true, milliseconds.
const FRESH: u64 = 20;
/// How long a proposal waits for capacity before it is refused.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a committed event may wait for a disk that is full before its caller gets an answer.
const STUCK: Duration = Duration::from_secs(10);

/// Looks at the log and the projections, now and then.
pub(super) struct Backpressure {
    log: Arc<LogEngine>,
    projections: Arc<Projections>,
    began: Instant,
    looked: AtomicU64,
    found: Mutex<Option<Refusal>>,
}

impl Backpressure {
    pub(super) fn new(log: Arc<LogEngine>, projections: Arc<Projections>) -> Backpressure {
        Backpressure {
            log,
            projections,
            began: Instant::now(),
            looked: AtomicU64::new(0),
            found: Mutex::new(None),
        }
    }

    /// Why nothing can be written any more, if the log stopped.
    pub(super) fn fault(&self) -> Option<Refusal> {
        let why = crate::raft::fault(&self.log)?;
        Some(Refusal::new(Code::Unavailable, why))
    }

    /// Waits for capacity, but not for long.
    ///
    /// # Errors
    /// [`Code::Unavailable`] with the reason: at once for a log that stopped and for a full disk,
    /// after [`PATIENCE`] for a
    /// database that does not keep up.
    pub(super) async fn wait(&self) -> Result<(), Refusal> {
        let Some(mut error) = self.lack() else {
            return Ok(());
        };
        let deadline = Instant::now() + PATIENCE;
        while !self.full() && self.fault().is_none() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(FRESH)).await;
            match self.lack() {
                None => return Ok(()),
                Some(now) => error = now,
            }
        }
        Err(error)
    }

    /// An error, or the reason that lies behind it: a log that stopped.
    pub(super) fn or_fault(&self, error: Refusal) -> Refusal {
        self.fault().unwrap_or(error)
    }

    /// What became of a proposed event.
    ///
    /// # Errors
    /// As [`until`](Self::until), and those of the answer.
    pub(super) async fn answer<T>(
        &self,
        wait: oneshot::Receiver<Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let answer = self.until(wait).await?.unwrap_or_else(|_| Err(no_leader()));
        answer.map_err(|error| self.or_fault(error))
    }

    /// The answer of a proposed event.
    ///
    /// # Errors
    /// [`Code::Unavailable`] if the disk is full and stays so for [`STUCK`]: the event may be in
    /// the log and is then applied when there is space.
    pub(super) async fn until<T>(&self, answer: impl Future<Output = T>) -> Result<T, Refusal> {
        let mut answer = std::pin::pin!(answer);
        loop {
            match tokio::time::timeout(STUCK, &mut answer).await {
                Ok(answer) => return Ok(answer),
                Err(_) if self.full() => {
                    let text = format!("{}; this write may take effect later", self.no_space());
                    return Err(Refusal::new(Code::Unavailable, text));
                }
                Err(_) => {}
            }
        }
    }

    fn full(&self) -> bool {
        self.log.space() != DiskSpace::Enough || self.projections.is_full()
    }

    fn no_space(&self) -> String {
        format!(
            "no space left on the disk of {}: writes are refused until there is",
            self.log.dir().parent().unwrap_or(self.log.dir()).display()
        )
    }

    /// What is lacking.
    fn lack(&self) -> Option<Refusal> {
        if let Some(fault) = self.fault() {
            return Some(fault);
        }
        if self.full() {
            return Some(Refusal::new(Code::Unavailable, self.no_space()));
        }
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX) + FRESH;
        let looked = self.looked.load(Ordering::Relaxed);
        let due = now >= looked + FRESH
            && self
                .looked
                .compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if due {
            *self.found.lock() = self.projections.stats().ok().and_then(|s| slow(&s));
        }
        self.found.lock().clone()
    }
}

/// What the projections' sizes say.
fn slow(stats: &Stats) -> Option<Refusal> {
    let unflushed = stats.applied.saturating_sub(stats.flushed);
    let text = if unflushed > UNFLUSHED {
        format!("{unflushed} events are applied and not yet written out: writes wait for the disk")
    } else if stats.stalled {
        "the database cannot keep up with its writes: writes wait for it".to_owned()
    } else {
        return None;
    };
    Some(Refusal::new(Code::Unavailable, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogOptions;

    #[test]
    fn what_was_lacking_and_is_there_again_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let opened = LogEngine::open(&dir.path().join("log"), LogOptions::default());
        let (log, _) = opened.unwrap();
        let opened = Projections::open(dir.path().join("db"), Default::default());
        let (projections, _writer) = opened.unwrap();
        let space = Backpressure::new(Arc::new(log), projections);
        let slow = Refusal::new(Code::Unavailable, "writes wait for the disk");
        *space.found.lock() = Some(slow);
        assert_eq!(space.lack(), None);
    }

    #[test]
    fn what_is_not_written_out_in_time_is_said_with_its_number() {
        let mut stats = Stats {
            applied: 100_000,
            flushed: 60_000,
            ..Stats::default()
        };
        assert_eq!(slow(&stats), None);
        stats.flushed = 54_999;
        let error = slow(&stats).expect("too far apart");
        assert_eq!(crate::net::status(error.code), 503);
        assert!(error.message.starts_with("45001 events"), "{error}");
        stats.flushed = stats.applied;
        stats.stalled = true;
        assert!(slow(&stats).is_some_and(|e| e.message.contains("database")));
    }
}
