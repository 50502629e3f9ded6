//! The periodic dispatcher: launches periodic jobs when their time comes.
//!
//! What is due follows from the specification and the last launch in the state ([`launch_times`]);
//! a launch time is taken by an event that is guarded by that row, so that it is taken once,
//! however often it is tried. What was missed while there was no leader is caught up with by one
//! launch at most.

pub mod launch_times;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{Job, JobKey};
use drover_projections::tables::jobs::{Jobs, JobsPeriodic};
use drover_projections::tables::periodic_launches::PeriodicLaunches;
use drover_projections::{
    ChangedRow, Follow, Followed, Interest, Projections, StorageError, Table, View,
};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use self::launch_times::due;
use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::job::LaunchPeriodic;

/// The longest sleep: the clock on the wall may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(10);
/// What happens to jobs within this time is dealt with together.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// When a job has another turn whose launch was refused, nanoseconds.
const AGAIN: i64 = 1_000_000_000;
/// How many launches one activation requests, and how many at a time.
const BATCH: usize = 1_024;
const AT_ONCE: usize = 32;

#[derive(Debug, Default)]
pub struct PeriodicDispatcher {
    known: Mutex<LaunchCache>,
}

/// When which job is due: a cache of the view.
#[derive(Clone, Debug, Default)]
struct LaunchCache {
    followed: Option<Followed>,
    /// When each has its next turn, Unix nanoseconds: when it is due, or later where it could not
    /// be launched, behind the others.
    jobs: BTreeMap<JobKey, i64>,
    /// The same, by when that is.
    order: BTreeSet<(i64, JobKey)>,
    /// How many jobs were read.
    read: usize,
}

/// What is due, and when to look again.
#[derive(Debug, Default)]
struct DueJobs {
    due: Vec<LaunchPeriodic>,
    next: Option<i64>,
}

impl Follow for LaunchCache {
    const TABLES: &'static [u16] = &[Jobs::ID];
    type With = Each;

    fn followed(&mut self) -> &mut Option<Followed> {
        &mut self.followed
    }

    fn all(&mut self, view: &View, each: &mut Each) -> Result<(), StorageError> {
        self.jobs.clear();
        self.order.clear();
        for job in view.by_index::<JobsPeriodic>(()) {
            if let Some(job) = each.row(job)? {
                self.note(view, &job, each);
            }
        }
        Ok(())
    }

    fn row(&mut self, view: &View, row: &ChangedRow, each: &mut Each) -> Result<(), StorageError> {
        let Some((namespace, id)) = row.key_of::<Jobs>() else {
            return Ok(());
        };
        let read = || view.get::<Jobs>((namespace.as_str(), id.as_str()));
        match each.look(&id, read) {
            Some(Some(job)) if job.is_periodic() => self.note(view, &job, each),
            Some(_) => self.set((namespace, id), None),
            // It has a turn, and is read again then.
            None => self.set((namespace, id), Some(0)),
        }
        Ok(())
    }
}

impl LaunchCache {
    fn note(&mut self, view: &View, job: &Job, each: &mut Each) {
        self.read += 1;
        let next = each.look(&job.id, || -> Result<_, Failure> {
            Ok(launch_times::next(job, launched(view, job)?)?)
        });
        // What failed is looked at again when it is its turn.
        let key = (job.namespace.clone(), job.id.clone());
        self.set(key, next.unwrap_or(Some(0)));
    }

    /// A job has its turn then; none: never.
    fn set(&mut self, key: JobKey, at: Option<i64>) {
        let before = match at {
            Some(at) => self.jobs.insert(key.clone(), at),
            None => self.jobs.remove(&key),
        };
        if let Some(before) = before {
            self.order.remove(&(before, key.clone()));
        }
        self.order.extend(at.map(|at| (at, key)));
    }

    fn find(&mut self, view: &View, wall: i64, each: &mut Each) -> DueJobs {
        let mut found = DueJobs::default();
        let due = self.order.iter().take_while(|(at, _)| *at <= wall);
        let due: Vec<JobKey> = due.map(|(_, key)| key.clone()).collect();
        for key in due {
            if found.due.len() == BATCH {
                break;
            }
            self.read += 1;
            match each.look(&key.1, || look_at(view, (&key.0, &key.1), wall)) {
                Some((Some(launch), _)) => found.due.push(launch),
                Some((None, next)) => self.set(key, next),
                None => self.set(key, Some(again(wall))),
            }
        }
        found.next = self.order.first().map(|(at, _)| *at);
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
) -> Result<(Option<LaunchPeriodic>, Option<i64>), Failure> {
    let Some(job) = view.get::<Jobs>(key)? else {
        return Ok((None, None));
    };
    let (launch_time, next) = due(&job, launched(view, &job)?, wall)?;
    let launch = launch_time.map(|launch_time| LaunchPeriodic {
        namespace: job.namespace,
        job_id: job.id,
        job_modify_index: job.job_modify_index,
        launch_time,
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
    mut known: LaunchCache,
    wall: i64,
) -> Result<(LaunchCache, DueJobs, Each), StorageError> {
    let view = projections.view();
    let mut each = Each::default();
    known.refresh(projections, &view, &mut each)?;
    let found = known.find(&view, wall, &mut each);
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
                self.known.lock().set(key, Some(again));
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
            tokio::time::sleep(BATCH_DELAY).await;
            let wall = context.clock.wall();
            let projections = Arc::clone(&context.projections);
            // Where the look fails everything is read anew.
            let known = std::mem::take(&mut *self.known.lock());
            let looked = move || look(&projections, known, wall);
            let (known, found, mut each) = tokio::task::spawn_blocking(looked).await??;
            let tracked = known.jobs.len();
            *self.known.lock() = known;
            let (due, before) = (found.due.len(), each.failed());
            self.launch(context, found.due, &mut each).await;
            let failed = each.failed() - before;
            let left = |next: i64| next.saturating_sub(context.clock.wall()).max(0);
            let sleep = found.next.map_or(MAX_SLEEP, |next| {
                Duration::from_nanos(left(next).unsigned_abs()).min(MAX_SLEEP)
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
            each.report(&mut status);
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "periodic_test.rs"]
mod tests;
