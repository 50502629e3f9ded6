//! Flushes that no thread awaits without a limit. A request to RocksDB can take long: it waits
//! until a flush would stall no writer. So a thread of its own makes them, one at a time, and never
//! the applier.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::engine::db::Database;
use crate::engine::error::StorageError;

/// At most one requested flush. Dropping it waits for the flush, so that the database is free.
#[derive(Default)]
pub(crate) struct Flusher {
    requested: Option<Requested>,
    /// Set by a test whose machine has no thread for it.
    #[cfg(test)]
    pub(super) threads_are_out: bool,
    /// Held by a test whose disk takes its time.
    #[cfg(test)]
    pub(super) gate: Arc<Mutex<()>>,
}

struct Requested {
    thread: JoinHandle<Result<(), StorageError>>,
    over: Arc<Over>,
}

/// Whether a flush is over.
#[derive(Default)]
struct Over {
    is: Mutex<bool>,
    changed: Condvar,
}

/// Notifies that the flush is over when it is dropped, after a panic too.
struct NotifyOnDrop(Arc<Over>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        *self.0.is.lock() = true;
        self.0.changed.notify_all();
    }
}

impl Requested {
    /// What became of it, once its thread is over. A panic was printed, and the next flush finds
    /// what is wrong.
    fn end(self) -> Result<(), StorageError> {
        self.thread.join().unwrap_or(Ok(()))
    }

    /// Waits for it, so long at most; returns whether it is over.
    fn wait(&self, most: Duration) -> bool {
        let mut over = self.over.is.lock();
        self.over
            .changed
            .wait_while_for(&mut over, |over| !*over, most);
        *over
    }
}

impl Flusher {
    /// Requests a flush, unless one is on its way or there is no thread for it; returns whether it
    /// did. Whether it is over when all is on the disk, or as soon as RocksDB has taken it, is what
    /// `whole` says.
    pub(super) fn start(&mut self, db: &Arc<Database>, whole: bool) -> bool {
        if self.requested.is_some() {
            return false;
        }
        let (its, over) = (Arc::clone(db), Arc::<Over>::default());
        let notify_on_drop = NotifyOnDrop(Arc::clone(&over));
        #[cfg(test)]
        let gate = Arc::clone(&self.gate);
        let thread = std::thread::Builder::new().name("projections-flush".to_owned());
        #[cfg(test)]
        let thread = match self.threads_are_out {
            // No machine has as much memory for a stack.
            true => thread.stack_size(1 << 60),
            false => thread,
        };
        let requested = thread.spawn(move || {
            let _notify_on_drop = notify_on_drop;
            #[cfg(test)]
            let _open = gate.lock();
            its.flush(whole)
        });
        match requested {
            Ok(thread) => {
                self.requested = Some(Requested { thread, over });
                true
            }
            // It stays due: the applier, which is here, would be held for as long as it takes. The
            // writer counts it; nothing here writes to a log.
            Err(_) => false,
        }
    }

    /// Whether none is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.requested.is_none()
    }

    /// What became of the last one, if it is over.
    pub(super) fn failed(&mut self) -> Result<(), StorageError> {
        let over = self
            .requested
            .take_if(|requested| requested.thread.is_finished());
        over.map_or(Ok(()), Requested::end)
    }

    /// Waits for the flush on its way, so long at most; returns whether none is left.
    pub(super) fn wait(&mut self, most: Duration) -> Result<bool, StorageError> {
        match self.requested.take_if(|requested| requested.wait(most)) {
            Some(requested) => requested.end().map(|()| true),
            None => Ok(self.requested.is_none()),
        }
    }
}

#[cfg(test)]
impl Flusher {
    /// Waits for the one on its way, however long it takes.
    pub(super) fn wait_to_end(&mut self) {
        if let Some(requested) = self.requested.take() {
            requested.end().unwrap();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        if let Some(requested) = self.requested.take() {
            // What failed is found by the next flush: nothing is lost that the log does not have.
            let _ = requested.end();
        }
    }
}
