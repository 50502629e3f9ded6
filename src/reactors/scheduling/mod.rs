//! Scheduling on the leader: from pending evaluations to committed plans.
//!
//! [`Core`] (broker, blocked evaluations, the cluster) follows the projections;
//! workers, threads of their own, take evaluations from it, run the pure scheduler on a snapshot
//! and hand the plan to the plan queue, which checks it against what is in flight and proposes it.
//! What waits runs where reactors run (`tasks.rs`): nothing here reads tables on a thread that
//! serves.
//!
//! It must not know: Raft, HTTP, how apply writes a plan.
//! Invariants: nothing here is truth; whatever is lost with leadership is found again in the
//! projections. One evaluation of a job is worked on at a time. What an evaluation leads to and its
//! end are one event wherever the plan fits into one.

pub mod blocked;
pub mod broker;
pub mod core;
pub mod plan_check;
pub mod plan_queue;
mod reaper;
pub mod retry;
mod tasks;
pub mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use drover_events::model::Evaluation;
use drover_events::model::status::job_type;
use drover_projections::{Projections, StorageError};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use tokio::sync::Notify;

use self::blocked::Wanted;
use self::broker::BrokerSettings;
use self::core::Core;
use self::plan_queue::PlanQueue;
use self::retry::Retry;
use self::tasks::Tasks;
use crate::base::clock::Clock;
use crate::commands::system_jobs::EvaluateOverlooked;
use crate::error::chain;
use crate::proposer::decided::Propose;
use crate::table_reads::offload;

#[derive(Clone, Copy, Debug)]
pub struct SchedulingSettings {
    /// How many workers there are (`num_schedulers`).
    pub workers: usize,
    /// Which types of evaluations are worked on (`enabled_schedulers`).
    pub types: Types,
    /// How the broker gives evaluations out.
    pub broker: BrokerSettings,
}

/// Types of evaluations that workers take; others stay pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types([bool; 4]);

impl Types {
    const NAMES: [&str; 4] = [
        job_type::SERVICE,
        job_type::BATCH,
        job_type::SYSTEM,
        job_type::SYSBATCH,
    ];

    /// Those that are named, or all if none is. `_core` is always worked on, elsewhere.
    pub fn of(names: &[String]) -> Self {
        let named = |name: &&str| names.iter().any(|other| other == name);
        Self(Self::NAMES.map(|name| names.is_empty() || named(&name)))
    }

    fn names(self) -> Vec<&'static str> {
        let all = Self::NAMES.into_iter().zip(self.0);
        all.filter_map(|(name, taken)| taken.then_some(name))
            .collect()
    }
}

impl Default for SchedulingSettings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            workers: cores,
            types: Types::of(&[]),
            broker: BrokerSettings::default(),
        }
    }
}

/// What workers, the plan queue and the follower share.
pub struct SchedulingShared {
    core: Mutex<Core>,
    ready: Condvar,
    plans: PlanQueue,
    /// Evaluations whose plans were rejected.
    again: Mutex<VecDeque<worker::EvalItem>>,
    /// How many evaluations are on their way to their end.
    unfinished: AtomicUsize,
    projections: Arc<Projections>,
    proposer: Arc<dyn Propose>,
    tasks: Tasks,
    clock: Clock,
    settings: SchedulingSettings,
    stopped: AtomicBool,
    /// Something is due sooner than the follower knows.
    hurry: Notify,
    /// How many workers were woken.
    #[cfg(test)]
    woken: AtomicUsize,
}

impl SchedulingShared {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Wakes as many workers as there is something to do for, all of them at the end. The lock is
    /// taken first, so that none of them is between its look and its sleep; the caller must not
    /// hold it.
    fn changed(&self) {
        let types = self.settings.types.names();
        let ready = self.core.lock().broker.ready_of(&types);
        if self.is_stopped() {
            self.ready.notify_all();
            return;
        }
        let due = ready.min(self.space()) + self.again.lock().len();
        for _ in 0..due.min(self.settings.workers.max(1)) {
            #[cfg(test)]
            self.woken.fetch_add(1, Ordering::AcqRel);
            self.ready.notify_one();
        }
    }

    /// How many more evaluations may be taken: none while plans pile up.
    fn space(&self) -> usize {
        match self.plans.len() < worker::MAX_WAITING_PLANS {
            true => worker::UNFINISHED.saturating_sub(self.unfinished.load(Ordering::Acquire)),
            false => 0,
        }
    }

    /// What scheduling does, in numbers. It waits for readers that hold the lock, and others are
    /// served meanwhile.
    pub fn status(&self) -> SchedulingStatus {
        let core = offload(|| self.core.lock());
        let (broker, blocked) = (core.broker.stats(), core.blocked.stats());
        let (blocked_cpu, blocked_memory) = core.blocked.wanted();
        let (failed, first) = core.unread();
        SchedulingStatus {
            paused: core.paused,
            ready: broker.ready,
            unacked: broker.unacked,
            pending: broker.pending,
            waiting: broker.waiting,
            blocked: blocked.total,
            escaped: blocked.escaped,
            plans: self.plans.len(),
            in_flight: core.in_flight.len(),
            followed: core.followed(),
            cancelable: broker.cancelable,
            blocked_cpu,
            blocked_memory,
            blocked_jobs: core.blocked.wanted_by_job(),
            failed,
            last_error: first.map(str::to_owned),
            by_type: core.broker.by_type(),
        }
    }
}

/// What scheduling does, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct SchedulingStatus {
    /// The broker is paused by an operator.
    pub paused: bool,
    /// Evaluations that can be worked on.
    pub ready: usize,
    /// Evaluations that are worked on.
    pub unacked: usize,
    /// Evaluations that wait for another one of their job.
    pub pending: usize,
    /// Evaluations that wait for a time.
    pub waiting: usize,
    /// Evaluations that found no place.
    pub blocked: usize,
    /// Of those, the ones that wait for any node.
    pub escaped: usize,
    /// Plans that wait for their check.
    pub plans: usize,
    /// Nodes that plans in flight touch.
    pub in_flight: usize,
    /// The index up to which the projections were followed.
    pub followed: u64,
    /// Evaluations that are about to be cancelled.
    pub cancelable: usize,
    /// MHz that blocked evaluations found no place for.
    pub blocked_cpu: i64,
    /// MiB that blocked evaluations found no place for.
    pub blocked_memory: i64,
    /// The same by job, those that want most first; for metrics, and not all of them.
    #[serde(skip)]
    pub blocked_jobs: Vec<Wanted>,
    /// How often a row was left out that could not be read, since this server leads.
    pub failed: usize,
    /// Why the first one was, as reactors say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The same by type of evaluations: those that can be worked on, and those that are.
    pub by_type: BTreeMap<String, (usize, usize)>,
}

/// Scheduling while this server leads. Dropping it stops everything.
pub struct Scheduling {
    shared: Arc<SchedulingShared>,
    workers: Vec<std::thread::JoinHandle<()>>,
}

impl Scheduling {
    /// Reads the state, however long that takes, and starts; to be called in a runtime, by a thread
    /// that serves no requests.
    ///
    /// # Errors
    /// The projections cannot be read, or no thread can be had.
    pub fn start(
        projections: Arc<Projections>,
        proposer: Arc<dyn Propose>,
        settings: SchedulingSettings,
    ) -> Result<Self, StartError> {
        let clock = Clock::default();
        let core = Core::load(&projections.view(), settings.broker, clock.now())?;
        let shared = Arc::new(SchedulingShared {
            core: Mutex::new(core),
            ready: Condvar::new(),
            plans: PlanQueue::default(),
            again: Mutex::default(),
            unfinished: AtomicUsize::new(0),
            projections,
            proposer,
            tasks: Tasks::new(),
            clock,
            settings,
            stopped: AtomicBool::new(false),
            hurry: Notify::new(),
            #[cfg(test)]
            woken: AtomicUsize::new(0),
        });
        let mut started = Self {
            shared,
            workers: Vec::new(),
        };
        let shared = &started.shared;
        shared.tasks.spawn(plan_queue::run(Arc::clone(shared)));
        shared.tasks.spawn(follow(Arc::clone(shared)));
        for number in 0..settings.workers.max(1) {
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new().name(format!("scheduler-{number}"));
            let worker = thread.spawn(move || worker::run(&shared))?;
            started.workers.push(worker);
        }
        Ok(started)
    }

    /// Whether evaluations are on their way to their end.
    pub fn is_placing(&self) -> bool {
        self.shared.unfinished.load(Ordering::Acquire) > 0
    }

    /// What it does, in numbers.
    pub fn status(&self) -> SchedulingStatus {
        self.shared.status()
    }

    /// What is shared of it: for a status call that holds no lock meanwhile.
    pub fn shared(&self) -> Arc<SchedulingShared> {
        Arc::clone(&self.shared)
    }
}

/// Stops everything and waits for the workers, which are done within one evaluation, and for the
/// tasks: what they read is closed by its opener, and not by a thread that was left behind. A plan
/// that was proposed may still be committed; it is not waited for here.
impl Drop for Scheduling {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.tasks.stop();
        // A submitter that waits for a plan gets no answer any more.
        self.shared.plans.close();
        self.shared.changed();
        for worker in self.workers.drain(..) {
            // A panic of theirs was logged.
            let _ = worker.join();
        }
        self.shared.tasks.wait();
    }
}

/// Why scheduling could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The projections cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no thread to be had.
    #[error("no thread for a worker: {0}")]
    Thread(#[from] std::io::Error),
}

/// How often evaluations are tried again whose plans were rejected too often.
const RETRY_REJECTED: i64 = 60_000_000_000;
/// How long the follower sleeps at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// Follows the projections, and does what is due.
async fn follow(shared: Arc<SchedulingShared>) {
    let mut retried = shared.clock.now();
    loop {
        let stepped = AssertUnwindSafe(|| step(&shared, &mut retried));
        let (followed, due, evals, overlooked) = match std::panic::catch_unwind(stepped) {
            Ok(Ok(step)) => step,
            Ok(Err(error)) => {
                tracing::error!(
                    error = chain(&error),
                    "scheduling cannot follow the projections"
                );
                tokio::time::sleep(LONGEST_SLEEP).await;
                continue;
            }
            Err(_) => {
                tracing::error!("following the projections panicked");
                tokio::time::sleep(LONGEST_SLEEP).await;
                continue;
            }
        };
        shared.changed();
        for list in evals {
            reaper::write_evals(&shared, list).await;
        }
        for one in overlooked {
            reaper::look_again(&shared, one).await;
        }
        let sleep = due.map_or(LONGEST_SLEEP, |due| {
            let left = due.saturating_sub(shared.clock.now()).max(0);
            Duration::from_nanos(left.unsigned_abs()).min(LONGEST_SLEEP)
        });
        let changed = shared.projections.watch().beyond(followed);
        tokio::select! {
            _ = tokio::time::timeout(sleep, changed) => {}
            () = shared.hurry.notified() => {}
        }
    }
}

type Step = (
    u64,
    Option<i64>,
    Vec<Retry<Vec<Evaluation>>>,
    Vec<Retry<EvaluateOverlooked>>,
);

fn step(shared: &SchedulingShared, retried: &mut i64) -> Result<Step, StorageError> {
    let now = shared.clock.now();
    let mut core = shared.core.lock();
    let view = shared.projections.view();
    core.catch_up(&view, now)?;
    core.broker.tick(now);
    if now - *retried >= RETRY_REJECTED {
        *retried = now;
        for eval in core.blocked.unblock_failed() {
            core.broker.enqueue(eval, now);
        }
    }
    let jitter = i64::from(rand::random::<u32>()).saturating_mul(100);
    let limit = shared.settings.broker.delivery_limit;
    let events = reaper::reap(&mut core, limit, jitter, now);
    let overlooked = core.take_overlooked(now);
    Ok((core.followed(), core.broker.next_due(), events, overlooked))
}

#[cfg(test)]
#[path = "scheduling_test.rs"]
mod tests;

#[cfg(test)]
#[path = "overlooked_test.rs"]
mod overlooked_tests;
