//! Where the past ends of a database that is in use, and what makes its past quick to read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::error::StorageError;
use crate::engine::position;
use crate::engine::staged::TableBatch;
use crate::past::alive;
use crate::past::prune::{self, Pruned};
use crate::read::view::Visible;
use crate::store::projections::Projections;
use crate::store::writer::Writer;

impl Writer {
    /// Raises the index at which the past begins that is kept here; on the disk when this returns.
    ///
    /// # Errors
    /// A failed write.
    pub fn raise_floor(&mut self, floor: u64) -> Result<(), StorageError> {
        let position = self.position_mut();
        if floor <= position.floor || floor > position.index {
            return Ok(());
        }
        let projections = Arc::clone(self.projections());
        let db = projections.database();
        let mut batch = TableBatch::new(&db);
        position::put_floor(&mut batch, floor);
        batch.write()?;
        db.flush(true)?;
        self.position_mut().floor = floor;
        let now = projections.visible();
        let mut position = now.position;
        position.floor = floor;
        projections.show(Visible::new(
            &db,
            position,
            now.digests.clone(),
            now.tables.clone(),
            now.registry,
        ));
        Ok(())
    }
}

impl Projections {
    /// Forgets what only questions below the floor could want: changes, postings and outcomes up
    /// to it, and of every key the versions and index entries that had ended by then. Any thread
    /// may call this while the writer continues; what was forgotten up to this floor before costs
    /// nothing.
    ///
    /// # Errors
    /// A failed read or write; the next call continues.
    pub fn prune(&self) -> Result<Pruned, StorageError> {
        let floor = self.visible().position.floor;
        prune::prune(&self.database(), self.registry(), floor)
    }

    /// Builds the sets of live rows that are due: of every table whose past is kept, at its next
    /// mark. Returns the newest mark built; none if nothing was due. Any thread may call this while
    /// the writer continues.
    ///
    /// Tables in `left_out` are passed over. One of which something cannot be read that its set
    /// needs is added to them, and the others have their turn.
    ///
    /// # Errors
    /// The first failed read or write, once the others had their turn; calling it again begins that
    /// set anew.
    pub fn build_due_live_sets(
        &self,
        left_out: &mut BTreeMap<&'static str, StorageError>,
    ) -> Result<Option<u64>, StorageError> {
        let (db, position) = (self.database(), self.visible().position);
        alive::build_due_sets(&db, self.registry(), &position, left_out)
    }
}
