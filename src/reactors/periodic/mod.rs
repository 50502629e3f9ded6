//! The periodic dispatcher: launches periodic jobs when their time comes (scheduler.md 9).
//!
//! What is due follows from the specification and the last launch in the state ([`slots`]); a slot
//! is taken by an event that is guarded by that row, so that it is taken once, whoever asks and how
//! often. What was missed while nobody led is caught up with by one launch at most.

pub mod slots;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use drover_events::model::Job;
use drover_projections::tables::jobs::{Jobs, JobsPeriodic};
use drover_projections::tables::periodic_launches::PeriodicLaunches;
use drover_projections::{Interest, Projections, StorageError, View};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use self::slots::due;
use super::driver::{Activation, Context, Failure, Reactor, Scope};
use super::each::Each;
use crate::commands::job::LaunchPeriodic;

/// The longest sleep: the clock on the wall may be set meanwhile.
const LONGEST: Duration = Duration::from_secs(10);
/// What happens to jobs within this time is dealt with together.
const TOGETHER: Duration = Duration::from_millis(20);
/// After a launch was refused.
const AGAIN: Duration = Duration::from_secs(1);
/// How often all periodic jobs are read at most, nanoseconds.
const JOBS_EVERY: i64 = 250_000_000;
/// How many launches one activation asks for, and how many at a time.
const BATCH: usize = 1_024;
const AT_ONCE: usize = 32;

/// The dispatcher.
#[derive(Debug, Default)]
pub struct PeriodicDispatcher {
    known: Mutex<Known>,
}

/// When which job is due: a cache of the view.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The index of the table of jobs that it was read at.
    index: u64,
    /// When, by the reactor's clock.
    read_at: i64,
    /// By (namespace, id).
    jobs: BTreeMap<(String, String), Due>,
}

/// When a job is due, and from what that follows: it is not worked out again while these stay.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    modify_index: u64,
    launched: i64,
    /// Unix nanoseconds; none for never, and for what cannot be looked through.
    at: Option<i64>,
}

/// What is due, and when to look again.
#[derive(Debug, Default)]
struct Found {
    due: Vec<LaunchPeriodic>,
    next: Option<i64>,
}

impl Known {
    /// Reads the periodic jobs where one may have changed; answers when to look again, where it is
    /// too early for that.
    fn refresh(
        &mut self,
        view: &View,
        clock: i64,
        each: &mut Each,
    ) -> Result<Option<i64>, StorageError> {
        let index = view.table_index::<Jobs>();
        if index == self.index {
            return Ok(None);
        }
        let left = JOBS_EVERY - clock.saturating_sub(self.read_at);
        if self.index != 0 && left > 0 {
            return Ok(Some(left));
        }
        let mut before = std::mem::take(&mut self.jobs);
        for job in view.by_index::<JobsPeriodic>(()) {
            let job = job?;
            let launched = launched(view, &job)?;
            let key = (job.namespace.clone(), job.id.clone());
            let same = |due: &Due| due.modify_index == job.modify_index && due.launched == launched;
            let due = before.remove(&key).filter(same).unwrap_or_else(|| Due {
                modify_index: job.modify_index,
                launched,
                at: each.look(&job.id, || slots::next(&job, launched)).flatten(),
            });
            self.jobs.insert(key, due);
        }
        (self.index, self.read_at) = (index, clock);
        Ok(None)
    }

    fn find(&mut self, view: &View, wall: i64, each: &mut Each) -> Result<Found, StorageError> {
        let mut found = Found::default();
        for ((namespace, id), Due { at, .. }) in &mut self.jobs {
            if at.is_some_and(|at| at <= wall) && found.due.len() < BATCH {
                // The job, and when it was launched, may have changed since they were read.
                let job = view.get::<Jobs>((namespace.as_str(), id.as_str()))?;
                let (slot, next) = match &job {
                    Some(job) => {
                        let launched = launched(view, job)?;
                        let due = each.look(id, || due(job, launched, wall));
                        due.unwrap_or_default()
                    }
                    None => (None, None),
                };
                if let (Some(slot), Some(job)) = (slot, job) {
                    found.due.push(LaunchPeriodic {
                        namespace: job.namespace,
                        job_id: job.id,
                        job_modify_index: job.job_modify_index,
                        slot,
                    });
                } else {
                    *at = next;
                }
            }
            found.next = found.next.into_iter().chain(*at).min();
        }
        Ok(found)
    }
}

/// When a job was launched last; 0 for never.
fn launched(view: &View, job: &Job) -> Result<i64, StorageError> {
    let row = view.get::<PeriodicLaunches>((job.namespace.as_str(), job.id.as_str()))?;
    Ok(row.map_or(0, |row| row.launch))
}

/// Reads what may have changed, and finds what is due.
fn look(
    projections: &Projections,
    mut known: Known,
    (clock, wall): (i64, i64),
    each: &mut Each,
) -> Result<(Known, Found), StorageError> {
    let view = projections.view();
    let left = known.refresh(&view, clock, each)?;
    let mut found = known.find(&view, wall, each)?;
    let again = left.map(|left| wall.saturating_add(left));
    found.next = found.next.into_iter().chain(again).min();
    Ok((known, found))
}

impl PeriodicDispatcher {
    /// Launches; answers how many were refused. One that is does not hold up the others.
    async fn launch(&self, context: &Context, due: Vec<LaunchPeriodic>) -> usize {
        let failed = AtomicUsize::new(0);
        let failed_here = &failed;
        futures_util::stream::iter(due)
            .for_each_concurrent(AT_ONCE, |command| async move {
                let (namespace, job) = (command.namespace.clone(), command.job_id.clone());
                let done = context.proposer.submit(Arc::new(command), self.name());
                if let Err(error) = done.await {
                    tracing::warn!(%error, namespace, job, "a periodic job was not launched");
                    failed_here.fetch_add(1, Ordering::Relaxed);
                }
            })
            .await;
        failed.into_inner()
    }
}

impl Reactor for PeriodicDispatcher {
    fn name(&self) -> &'static str {
        "periodic_dispatcher"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        const INTERESTS: &[Interest] = &[Interest::table::<Jobs>()];
        INTERESTS
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            tokio::time::sleep(TOGETHER).await;
            let times = (context.clock.now(), context.clock.wall());
            let projections = Arc::clone(&context.projections);
            // Where the look fails everything is read anew.
            let known = std::mem::take(&mut *self.known.lock());
            let looked = move || {
                let mut each = Each::default();
                look(&projections, known, times, &mut each).map(|found| (found, each))
            };
            let ((known, found), each) = tokio::task::spawn_blocking(looked).await??;
            let tracked = known.jobs.values().filter(|due| due.at.is_some()).count();
            *self.known.lock() = known;
            let due = found.due.len();
            let failed = self.launch(context, found.due).await;
            let sleep = match (failed, found.next) {
                (0, None) => LONGEST,
                (0, Some(next)) => {
                    let left = next.saturating_sub(context.clock.wall()).max(0);
                    Duration::from_nanos(left.unsigned_abs()).min(LONGEST)
                }
                _ => AGAIN,
            };
            let mut status = serde_json::json!({
                "Tracked": tracked,
                "Launched": due - failed,
                "Next": found.next.unwrap_or(0),
            });
            each.tell(&mut status);
            status["Failed"] = (failed + each.failed()).into();
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "periodic_test.rs"]
mod tests;
