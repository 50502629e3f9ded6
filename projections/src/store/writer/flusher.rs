//! Flushes that nobody waits for. To ask RocksDB for one can take long: it waits until that would
//! stall no writer. So a thread of its own asks, one at a time, and never the applier.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::engine::db::Database;
use crate::engine::error::StorageError;

/// At most one flush that was asked for. Dropping it waits for that, so that the database is free.
#[derive(Default)]
pub(super) struct Flusher(Option<JoinHandle<Result<(), StorageError>>>);

impl Flusher {
    /// Asks for a flush, unless one is on its way; answers whether it did.
    pub(super) fn start(&mut self, db: &Arc<Database>) -> Result<bool, StorageError> {
        if self.0.is_some() {
            return Ok(false);
        }
        let its = Arc::clone(db);
        let thread = std::thread::Builder::new().name("projections-flush".to_owned());
        match thread.spawn(move || its.flush(false)) {
            Ok(thread) => self.0 = Some(thread),
            // Without a thread it is asked for here.
            Err(_) => db.flush(false)?,
        }
        Ok(true)
    }

    /// What became of the last one, if it is over.
    pub(super) fn failed(&mut self) -> Result<(), StorageError> {
        match self.0.take_if(|thread| thread.is_finished()) {
            Some(thread) => thread.join().unwrap_or(Ok(())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
impl Flusher {
    /// Waits for the one on its way.
    pub(super) fn settle(&mut self) {
        if let Some(thread) = self.0.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // What failed is found by the next flush: nothing is lost that the log does not have.
            let _ = thread.join();
        }
    }
}
