//! How reactors run: each in a task of its own, woken by what it waits for, with back-off after a
//! failure. One that panics is reported and continues with its next activation.
//!
//! It knows nothing of any single reactor.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use drover_projections::{Interest, Projections};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::base::clock::Clock;
use crate::error::chain;
pub(super) use crate::error::panic_text;
use crate::proposer::decided::Propose;
use crate::table_reads::offload_all;

/// Threads that all reactors share; what takes long continues beside them.
const THREADS_OF_REACTORS: usize = 2;

/// Where a reactor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Scope {
    /// On the leader only.
    Leader,
    /// On every server.
    EveryServer,
}

/// What a reactor works with.
#[derive(Clone)]
pub struct Context {
    /// The state.
    pub projections: Arc<Projections>,
    /// The way to change it.
    pub proposer: Arc<dyn Propose>,
    /// The time.
    pub clock: Clock,
}

/// The end of one activation.
#[derive(Clone, Debug)]
pub struct Activation {
    /// When to be woken if nothing else happens.
    pub sleep: Duration,
    /// What happened, for operators.
    pub status: serde_json::Value,
}

/// Why an activation failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Something that watches the state and acts on it.
pub trait Reactor: Send + Sync + 'static {
    fn name(&self) -> &'static str;
    /// Where it runs.
    fn scope(&self) -> Scope;
    /// What wakes it, beside time.
    fn interests(&self) -> &'static [Interest];
    /// Looks at the state and does what is to be done: a bounded amount of work.
    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>>;
}

/// What is known of a reactor.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReactorStatus {
    /// Where it runs.
    pub scope: Scope,
    /// Whether it runs now.
    pub running: bool,
    /// How often it was activated.
    pub activations: u64,
    /// How often that failed.
    pub failures: u64,
    /// How often it panicked.
    pub panics: u64,
    /// Why it failed last.
    pub last_error: String,
    /// What it reported last.
    pub status: serde_json::Value,
}

/// The states of all reactors, by name.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<BTreeMap<&'static str, ReactorStatus>>>);

impl Board {
    /// The states as they are now.
    pub fn all(&self) -> BTreeMap<&'static str, ReactorStatus> {
        self.0.lock().clone()
    }

    fn update(&self, reactor: &dyn Reactor, change: impl FnOnce(&mut ReactorStatus)) {
        let mut board = self.0.lock();
        let status = board
            .entry(reactor.name())
            .or_insert_with(|| ReactorStatus {
                scope: reactor.scope(),
                running: false,
                activations: 0,
                failures: 0,
                panics: 0,
                last_error: String::new(),
                status: serde_json::Value::Null,
            });
        change(status);
    }
}

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// A running reactor. Dropping it stops it.
pub struct RunningReactor {
    task: JoinHandle<()>,
    board: Board,
    reactor: Arc<dyn Reactor>,
}

impl RunningReactor {
    /// Lets it do nothing more.
    pub fn halt(&self) {
        self.task.abort();
    }

    /// Stops it, and waits until it holds nothing any more.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for RunningReactor {
    fn drop(&mut self) {
        self.task.abort();
        self.board
            .update(&*self.reactor, |status| status.running = false);
    }
}

/// Starts a reactor.
pub fn start(reactor: Arc<dyn Reactor>, context: Context, board: Board) -> RunningReactor {
    board.update(&*reactor, |status| status.running = true);
    let task = threads().spawn(run(Arc::clone(&reactor), context, board.clone()));
    RunningReactor {
        task,
        board,
        reactor,
    }
}

/// Where reactors run: they read tables as they please, which may wait for the disk, and no request
/// waits with them. Shared by all servers of a process; without it they run where they are started.
pub(super) fn threads() -> Handle {
    static THREADS: LazyLock<Option<Runtime>> = LazyLock::new(|| {
        let made = Builder::new_multi_thread()
            .worker_threads(THREADS_OF_REACTORS)
            .thread_name("reactors")
            .enable_all()
            .build();
        made.map_err(|error| tracing::warn!(%error, "reactors have no threads of their own"))
            .ok()
    });
    match &*THREADS {
        Some(runtime) => runtime.handle().clone(),
        None => Handle::current(),
    }
}

async fn run(reactor: Arc<dyn Reactor>, context: Context, board: Board) {
    let mut delay = FIRST_DELAY;
    loop {
        let waiter = context.projections.watch().register(reactor.interests());
        let activation = AssertUnwindSafe(reactor.activate(&context)).catch_unwind();
        // However long it looks at tables between two awaits, the others continue elsewhere.
        let activation = offload_all(activation).await;
        board.update(&*reactor, |status| status.activations += 1);
        match activation {
            Ok(Ok(Activation { sleep, status })) => {
                delay = FIRST_DELAY;
                board.update(&*reactor, |known| {
                    // One of many things failed, and the others did not.
                    if let Some(error) = status["LastError"].as_str() {
                        known.last_error = error.to_owned();
                    }
                    known.status = status;
                });
                let _ = tokio::time::timeout(sleep, waiter).await;
                continue;
            }
            Ok(Err(error)) => {
                let error = chain(&*error);
                tracing::warn!(reactor = reactor.name(), error, "a reactor failed");
                board.update(&*reactor, |status| {
                    status.failures += 1;
                    status.last_error = error;
                });
            }
            Err(panic) => {
                let why = panic_text(&*panic);
                tracing::error!(reactor = reactor.name(), why, "a reactor panicked");
                board.update(&*reactor, |status| {
                    status.panics += 1;
                    status.last_error = why.to_owned();
                });
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}

#[cfg(test)]
#[path = "runner_test.rs"]
mod tests;
