//! Another database in the place of the one in use, while readers continue.
//!
//! The writer is the one that switches, between two batches: what it shows next is of the new
//! database. A view keeps the database alive that it was taken from, so its reader continues there.
//! Waiters for changes stay ([`crate::Watch`] stays), and are woken at once where the two databases
//! are not equal.

use std::sync::Arc;

use crate::engine::db::Database;
use crate::engine::error::StorageError;
use crate::engine::unreadable;
use crate::read::view::Visible;
use crate::store::writer::{Flusher, Writer};

/// The database that was in use. It closes when this is dropped and no view reads from it; what it
/// has in memory is flushed then, so the thread that drops it waits for the disk.
pub struct Former {
    /// Its last flush, waited for before it closes.
    _flusher: Flusher,
    db: Arc<Database>,
}

impl Former {
    /// Whether a view still reads from it, or a flush of it is on its way: its files may not be
    /// moved.
    pub fn is_read(&self) -> bool {
        Arc::strong_count(&self.db) > 1
    }
}

/// Why the databases did not change places.
pub enum Unswitched {
    /// The new one stands at another index: its writer, to continue with.
    Elsewhere(Writer),
    /// These tables are different: its writer, for a caller that switches all the same.
    Different(Writer, Vec<&'static str>),
    /// One of the databases fails.
    Failed(StorageError),
}

impl Writer {
    /// The last index that this writer applied; none before the first.
    pub fn applied(&self) -> Option<u64> {
        self.position.begun.then_some(self.position.index)
    }

    /// The tables whose digests are others than in the database of `other`.
    pub fn differences(&self, other: &Writer) -> Vec<&'static str> {
        let tables = self.projections().registry().tables();
        tables
            .filter(|table| self.digests.get(table.id()) != other.digests.get(table.id()))
            .map(|table| table.name())
            .collect()
    }

    /// Puts the database that `new` writes in the place of this writer's own: both must stand at
    /// one index, and unless `force` their digests must be equal. `commit` is called just before,
    /// when nothing else can fail: what it refuses does not happen.
    ///
    /// # Errors
    /// [`Unswitched`]: everything is as it was.
    #[expect(clippy::result_large_err, reason = "the writer is handed back")]
    pub fn switch(
        &mut self,
        new: Writer,
        force: bool,
        commit: &mut dyn FnMut() -> Result<(), StorageError>,
    ) -> Result<Former, Unswitched> {
        if new.position.index != self.position.index || !new.position.begun {
            return Err(Unswitched::Elsewhere(new));
        }
        let different = self.differences(&new);
        if !different.is_empty() && !force {
            return Err(Unswitched::Different(new, different));
        }
        commit().map_err(Unswitched::Failed)?;
        let db = new.projections().database();
        let projections = Arc::clone(self.projections());
        let former = projections.put_database(Arc::clone(&db));
        let registry = projections.registry();
        let flusher = self.take_over(new);
        projections.show(Visible::new(
            &db,
            self.position,
            self.digests.clone(),
            self.tables.clone(),
            registry,
        ));
        unreadable::made_again();
        projections.set_full(false);
        if !different.is_empty() {
            projections.lists().forget();
            projections.followers().forget();
            projections.watch().renew(self.position.index);
        }
        Ok(Former {
            _flusher: flusher,
            db: former,
        })
    }
}
