//! The tasks of scheduling. They run where reactors run: they read tables as they please, and no
//! request waits with them.

use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::reactors::runner::threads;
use crate::table_reads::offload_all;

/// The tasks of one run of scheduling.
pub(super) struct Tasks {
    threads: Handle,
    stopped: CancellationToken,
    running: Arc<RunningCount>,
}

/// How many there are.
#[derive(Default)]
struct RunningCount {
    count: Mutex<usize>,
    none: Condvar,
}

/// One of them, from its start to its end, however it ends.
struct UnderWay(Arc<RunningCount>);

impl UnderWay {
    fn begin(running: &Arc<RunningCount>) -> Self {
        *running.count.lock() += 1;
        Self(Arc::clone(running))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

impl Tasks {
    /// None yet; to be called in a runtime.
    pub(super) fn new() -> Self {
        Self {
            threads: threads(),
            stopped: CancellationToken::new(),
            running: Arc::default(),
        }
    }

    /// Starts one. Any thread may call this.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (stopped, under_way) = (self.stopped.clone(), UnderWay::begin(&self.running));
        let work = work.boxed();
        self.threads.spawn(offload_all(async move {
            // It is over once what it held is dropped.
            let _under_way = under_way;
            stopped.run_until_cancelled(work).await;
        }));
    }

    /// Lets each do nothing more than it does now, and those that are still started nothing.
    pub(super) fn stop(&self) {
        self.stopped.cancel();
    }

    /// Waits until no task is left. A task may not call this.
    pub(super) fn wait(&self) {
        let mut count = self.running.count.lock();
        while *count > 0 {
            self.running.none.wait(&mut count);
        }
    }
}
