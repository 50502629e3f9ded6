//! The periodic dispatcher: launches periodic jobs when their time comes (scheduler.md 9).
//!
//! What is due follows from the specification and the last launch in the state ([`slots`]); a slot
//! is taken by an event that is guarded by that row, so that it is taken once, whoever asks and how
//! often. What was missed while nobody led is caught up with by one launch at most.

pub mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
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
/// When a job has another turn whose launch was refused, nanoseconds.
const AGAIN: i64 = 1_000_000_000;
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
    /// By (namespace, id): when it is due, Unix nanoseconds; none for never.
    jobs: BTreeMap<JobKey, Option<i64>>,
    /// Jobs that could not be launched, and when they have another turn: behind the others.
    failed: BTreeMap<JobKey, i64>,
}

type JobKey = (String, String);

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
        self.jobs.clear();
        for job in view.by_index::<JobsPeriodic>(()) {
            let job = job?;
            let next = each.look(&job.id, || {
                Ok::<_, StorageError>(slots::next(&job, launched(view, &job)?))
            });
            self.jobs
                .insert((job.namespace, job.id), next.unwrap_or(Some(0)));
        }
        (self.index, self.read_at) = (index, clock);
        Ok(None)
    }

    /// What is due, the longest first; whatever cannot be worked out has another turn.
    fn find(&mut self, view: &View, wall: i64, each: &mut Each) -> Found {
        let mut found = Found::default();
        self.failed.retain(|_, again| *again > wall);
        let turn = |key: &JobKey, at: i64| self.failed.get(key).map_or(at, |again| at.max(*again));
        let due_by_time: BTreeSet<(i64, JobKey)> = self
            .jobs
            .iter()
            .filter_map(|(key, at)| Some((turn(key, (*at)?), key.clone())))
            .filter(|(at, _)| *at <= wall)
            .collect();
        for (_, key) in due_by_time {
            if found.due.len() == BATCH {
                break;
            }
            match each.look(&key.1, || look_at(view, (&key.0, &key.1), wall)) {
                Some((Some(launch), _)) => found.due.push(launch),
                Some((None, next)) => {
                    self.jobs.insert(key, next);
                }
                None => {
                    self.failed.insert(key, again(wall));
                }
            }
        }
        let times = self.jobs.iter().filter_map(|(key, at)| {
            let at = (*at)?;
            Some(self.failed.get(key).map_or(at, |again| at.max(*again)))
        });
        found.next = times.min();
        found
    }
}

/// The next turn of what failed.
fn again(wall: i64) -> i64 {
    wall.saturating_add(AGAIN)
}

/// What is due of a job, or when something is. The job, and when it was launched, may have changed
/// since they were read.
fn look_at(
    view: &View,
    key: (&str, &str),
    wall: i64,
) -> Result<(Option<LaunchPeriodic>, Option<i64>), StorageError> {
    let Some(job) = view.get::<Jobs>(key)? else {
        return Ok((None, None));
    };
    let (slot, next) = due(&job, launched(view, &job)?, wall);
    let launch = slot.map(|slot| LaunchPeriodic {
        namespace: job.namespace,
        job_id: job.id,
        job_modify_index: job.job_modify_index,
        slot,
    });
    Ok((launch, next))
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
) -> Result<(Known, Found, Each), StorageError> {
    let view = projections.view();
    let mut each = Each::default();
    let left = known.refresh(&view, clock, &mut each)?;
    let mut found = known.find(&view, wall, &mut each);
    let again = left.map(|left| wall.saturating_add(left));
    found.next = found.next.into_iter().chain(again).min();
    Ok((known, found, each))
}

impl PeriodicDispatcher {
    /// Launches. One that is refused does not hold up the others: they go first the next time.
    async fn launch(&self, context: &Context, due: Vec<LaunchPeriodic>, each: &mut Each) {
        let launches = due.into_iter().map(|command| async move {
            let key = (command.namespace.clone(), command.job_id.clone());
            let done = context.proposer.submit(Arc::new(command), self.name());
            (key, done.await)
        });
        let mut launches = futures_util::stream::iter(launches).buffer_unordered(AT_ONCE);
        while let Some((key, done)) = launches.next().await {
            if let Err(error) = done {
                each.fail(&key.1, &error);
                let again = again(context.clock.wall());
                self.known.lock().failed.insert(key, again);
            }
        }
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
            let looked = move || look(&projections, known, times);
            let (known, found, mut each) = tokio::task::spawn_blocking(looked).await??;
            let tracked = known.jobs.values().flatten().count();
            *self.known.lock() = known;
            let (due, before) = (found.due.len(), each.failed());
            self.launch(context, found.due, &mut each).await;
            let failed = each.failed() - before;
            let left = |next: i64| next.saturating_sub(context.clock.wall()).max(0);
            let sleep = found.next.map_or(LONGEST, |next| {
                Duration::from_nanos(left(next).unsigned_abs()).min(LONGEST)
            });
            // What failed is due, and has its next turn after a while.
            let sleep = match each.failed() {
                0 => sleep,
                _ => sleep.max(Duration::from_nanos(AGAIN.unsigned_abs())),
            };
            let mut status = serde_json::json!({
                "Tracked": tracked,
                "Launched": due - failed,
                "Next": found.next.unwrap_or(0),
            });
            each.tell(&mut status);
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "periodic_test.rs"]
mod tests;
