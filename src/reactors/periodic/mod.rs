//! The periodic dispatcher: launches periodic jobs when their time comes (scheduler.md 9).
//!
//! What is due follows from the specification and the last launch in the state ([`slots`]); a slot
//! is taken by an event that is guarded by that row, so that it is taken once, whoever asks and how
//! often. What was missed while nobody led is caught up with by one launch at most.

pub mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use drover_events::model::Job;
use drover_projections::tables::jobs::{Jobs, JobsPeriodic};
use drover_projections::tables::periodic_launches::PeriodicLaunches;
use drover_projections::{Followed, Interest, Projections, StorageError, Table, View};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::driver::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::job::LaunchPeriodic;

/// The longest sleep: the clock on the wall may be set meanwhile.
const LONGEST: Duration = Duration::from_secs(10);
/// What happens to jobs within this time is dealt with together.
const TOGETHER: Duration = Duration::from_millis(20);
/// After a launch was refused.
const AGAIN: Duration = Duration::from_secs(1);
/// How many launches one activation asks for, and how many at a time.
const BATCH: usize = 1_024;
const AT_ONCE: usize = 32;

/// The dispatcher.
#[derive(Debug, Default)]
pub struct PeriodicDispatcher {
    known: Mutex<Known>,
}

type Name = (String, String);

/// When which job is due: a cache of the view.
#[derive(Clone, Debug, Default)]
struct Known {
    followed: Option<Followed>,
    /// By (namespace, id): when it is due, Unix nanoseconds.
    jobs: BTreeMap<Name, i64>,
    /// The same, by when they are due.
    order: BTreeSet<(i64, Name)>,
    /// How many jobs were read.
    read: usize,
}

/// What is due, and when to look again.
#[derive(Debug, Default)]
struct Found {
    due: Vec<LaunchPeriodic>,
    next: Option<i64>,
}

impl Known {
    /// Reads the jobs that changed.
    fn refresh(&mut self, projections: &Projections, view: &View) -> Result<(), StorageError> {
        let followed = self
            .followed
            .get_or_insert_with(|| projections.follow(&[Jobs::ID]));
        let Some(changed) = followed.take(view) else {
            self.jobs.clear();
            self.order.clear();
            for job in view.by_index::<JobsPeriodic>(()) {
                self.note(view, &job?)?;
            }
            return Ok(());
        };
        for (namespace, id) in changed.iter().filter_map(|row| row.key_of::<Jobs>()) {
            let job = view.get::<Jobs>((namespace.as_str(), id.as_str()))?;
            match job.filter(Job::is_periodic) {
                Some(job) => self.note(view, &job)?,
                None => self.set((namespace, id), None),
            }
        }
        Ok(())
    }

    fn note(&mut self, view: &View, job: &Job) -> Result<(), StorageError> {
        self.read += 1;
        let next = slots::next(job, launched(view, job)?);
        self.set((job.namespace.clone(), job.id.clone()), next);
        Ok(())
    }

    /// A job is due then; none: never.
    fn set(&mut self, name: Name, at: Option<i64>) {
        let before = match at {
            Some(at) => self.jobs.insert(name.clone(), at),
            None => self.jobs.remove(&name),
        };
        if let Some(before) = before {
            self.order.remove(&(before, name.clone()));
        }
        self.order.extend(at.map(|at| (at, name)));
    }

    fn find(&mut self, view: &View, wall: i64) -> Result<Found, StorageError> {
        let mut found = Found::default();
        let due = self.order.iter().take_while(|(at, _)| *at <= wall);
        let due: Vec<Name> = due.map(|(_, name)| name.clone()).collect();
        for (namespace, id) in due {
            if found.due.len() >= BATCH {
                break;
            }
            self.read += 1;
            // The job, and when it was launched, may have changed since they were read.
            let job = view.get::<Jobs>((namespace.as_str(), id.as_str()))?;
            let (slot, next) = match &job {
                Some(job) => slots::due(job, launched(view, job)?, wall),
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
                self.set((namespace, id), next);
            }
        }
        found.next = self.order.first().map(|(at, _)| *at);
        Ok(found)
    }
}

/// When a job was launched last; 0 for never.
fn launched(view: &View, job: &Job) -> Result<i64, StorageError> {
    let row = view.get::<PeriodicLaunches>((job.namespace.as_str(), job.id.as_str()))?;
    Ok(row.map_or(0, |row| row.launch))
}

/// Reads what changed, and finds what is due.
fn look(
    projections: &Projections,
    mut known: Known,
    wall: i64,
) -> Result<(Known, Found), StorageError> {
    let view = projections.view();
    known.refresh(projections, &view)?;
    let found = known.find(&view, wall)?;
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
            let wall = context.clock.wall();
            let projections = Arc::clone(&context.projections);
            // Where the look fails everything is read anew.
            let known = std::mem::take(&mut *self.known.lock());
            let looked = move || look(&projections, known, wall);
            let (known, found) = tokio::task::spawn_blocking(looked).await??;
            let tracked = known.jobs.len();
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
            let status = serde_json::json!({
                "Tracked": tracked,
                "Launched": due - failed,
                "Failed": failed,
                "Next": found.next.unwrap_or(0),
            });
            Ok(Activation { sleep, status })
        })
    }
}

#[cfg(test)]
#[path = "periodic_test.rs"]
mod tests;
