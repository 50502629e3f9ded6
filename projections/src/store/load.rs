//! What is visible of a database that was just opened or filled.

use std::sync::Arc;

use crate::engine::db::{Database, DbSnapshot, Family};
use crate::engine::error::StorageError;
use crate::engine::position;
use crate::engine::registry::Registry;
use crate::engine::row;
use crate::engine::scan::{Scan, ScanSource};
use crate::engine::table::Table;
use crate::read::view::Visible;
use crate::tables::table_indexes::TableIndexes;

/// Reads what is visible.
pub(crate) fn load(
    db: &Arc<Database>,
    registry: &'static Registry,
) -> Result<Visible, StorageError> {
    let (position, digests) = position::stored(db)?;
    let mut visible = Visible::new(db, position, digests, Vec::new(), registry);
    visible.tables = tables(&visible.db_snapshot)?;
    Ok(visible)
}

/// The tables' indexes, from their rows.
fn tables(db_snapshot: &DbSnapshot) -> Result<Vec<u64>, StorageError> {
    let range = Scan::all().absolute(&TableIndexes::ID.to_be_bytes());
    let mut walk = ScanSource::Snapshot(db_snapshot).walk(Family::Rows, range);
    let mut tables = Vec::new();
    while walk.advance()? {
        let body = row::body(walk.key(), walk.value())?;
        let row = row::decode_body::<TableIndexes>(walk.key(), body)?;
        tables.resize(usize::from(row.table) + 1, 0);
        tables[usize::from(row.table)] = row.value;
    }
    Ok(tables)
}
