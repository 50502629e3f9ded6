//! A few fields of many rows: a caller that needs two of them does not pay for all.

use serde::de::DeserializeOwned;

use crate::engine::canonical::Canonical;
use crate::engine::db::Family;
use crate::engine::error::StorageError;
use crate::engine::layer::absolute;
use crate::engine::row;
use crate::engine::table::{Index, Table};
use crate::read::view::{IndexCursor, View};

impl<I: Index> IndexCursor<'_, I> {
    /// Some fields of the next entry's row: those of `P`, under the names they have in the row.
    ///
    /// # Errors
    /// The row cannot be read, or has not this shape.
    pub fn next_part<P: DeserializeOwned>(&mut self) -> Result<Option<P>, StorageError> {
        let view = self.view;
        let entry = self.advance()?;
        entry
            .map(|entry| view.part_encoded::<I::Table, P>(entry.primary))
            .transpose()
    }
}

impl View {
    fn part_encoded<T: Table, P: DeserializeOwned>(&self, key: &[u8]) -> Result<P, StorageError> {
        let gone = || StorageError::damaged("index entry (no row)", key);
        let decoded =
            |body: &[u8]| rmp_serde::from_slice(body).map_err(|_| StorageError::row(T::NAME, key));
        if self.is_past() {
            let (row, _) = self.get_encoded::<T>(key)?.ok_or_else(gone)?;
            let mut encoder = Canonical::default();
            let body = encoder.encode(&row);
            return decoded(body.map_err(|source| StorageError::Encode {
                table: T::NAME,
                source,
            })?);
        }
        let value = self
            .visible
            .db_snapshot
            .get(Family::Rows, &absolute::<T>(key))?;
        decoded(row::body(key, &value.ok_or_else(gone)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scan::Scan;
    use crate::store::things_test::{BySpace, Op, Step, TABLES, Thing};
    use crate::{DatabaseOptions, Projections};

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct PartKey {
        id: String,
        #[serde(default)]
        size: u64,
    }

    #[test]
    fn some_fields_are_those_of_the_row() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("parts");
        let (projections, mut writer) =
            Projections::open_with(&path, DatabaseOptions::dev(), &TABLES).unwrap();
        let id = |n: u64| format!("{n:08x}-0000-4000-8000-000000000000");
        let put = |n: u64, size: u64| {
            Op::Put(Thing {
                id: id(n),
                space: "s".to_owned(),
                color: "red".to_owned(),
                size,
            })
        };
        let step = |index: u64, op: Op| Step {
            index,
            ops: vec![op],
            guards: Vec::new(),
        };
        let steps = [step(1, put(1, 0)), step(2, put(2, 5)), step(3, put(1, 7))];
        assert_eq!(writer.apply_batch(&steps).unwrap().len(), 3);
        let parts = |view: &View| {
            let mut cursor = view.index_cursor::<BySpace>(&Scan::with_key_prefix::<String>("s"));
            let next = || cursor.next_part::<PartKey>().unwrap();
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        let part = |n: u64, size: u64| PartKey { id: id(n), size };
        let view = projections.view();
        assert_eq!(parts(&view), [part(2, 5), part(1, 7)]);
        // Also as they were.
        assert_eq!(
            parts(&view.as_of(2, 2_000).unwrap()),
            [part(1, 0), part(2, 5)]
        );
    }
}
