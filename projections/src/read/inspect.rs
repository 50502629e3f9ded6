//! What a database holds, table by table, and where two of them differ.

use crate::engine::db::Family;
use crate::engine::digest::Digest;
use crate::engine::error::StorageError;
use crate::engine::maintenance::HEADER;
use crate::engine::registry::TableInfo;
use crate::engine::row;
use crate::engine::scan::{EntryCursor, Scan, ScanSource};
use crate::engine::table::History;
use crate::past::alive::ALIVE;
use crate::past::prune::PRUNED;
use crate::read::view::View;

/// What a table holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TableSize {
    /// Its `Table::ID`.
    pub table: u16,
    pub name: &'static str,
    /// Whether its past is kept.
    pub history: History,
    /// How many rows it has.
    pub rows: u64,
    /// Bytes of keys and values, before compression.
    pub bytes: u64,
    /// The index of the last event that changed it; 0 for an untouched one.
    pub index: u64,
    /// How many secondary indexes it has.
    pub indexes: usize,
    /// Its digest, as it was kept.
    pub digest: Digest,
}

/// An entry that one database has and another has not, or has with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryDifference {
    /// The column family.
    pub family: &'static str,
    /// The table, where the family's keys name one.
    pub table: Option<&'static str>,
    /// The key, in hexadecimal.
    pub key: String,
    /// What is different.
    pub what: &'static str,
}

/// Bookkeeping of one replica, not compared: it may be in one of two databases that are equal.
fn is_replica_local(family: Family, key: &[u8]) -> bool {
    match family {
        Family::Meta => [HEADER, PRUNED].contains(&key),
        Family::History => key.first() == Some(&ALIVE),
        _ => false,
    }
}

impl View {
    /// What each table holds, by number. Every row is passed over, so this takes as long as a walk
    /// over all of them.
    ///
    /// # Errors
    /// Those of the database.
    pub fn sizes(&self) -> Result<Vec<TableSize>, StorageError> {
        let mut sizes = Vec::new();
        for table in self.visible.registry.tables() {
            let prefix = table.id().to_be_bytes();
            let mut walk = self.walk_of(Family::Rows, &prefix);
            let (mut rows, mut bytes) = (0, 0);
            while walk.advance()? {
                rows += 1;
                bytes += (walk.key().len() + walk.value().len()) as u64;
            }
            sizes.push(TableSize {
                table: table.id(),
                name: table.name(),
                history: table.history(),
                rows,
                bytes,
                index: self.last_changed_at(table.id()),
                indexes: table.indexes().len(),
                digest: self.visible.digests.get(table.id()),
            });
        }
        Ok(sizes)
    }

    /// Calls `each` with the modify index and the row, as JSON with the model's names, of every row
    /// of a table in the order of their keys, until it returns false. Of the present only.
    ///
    /// # Errors
    /// Those of the database.
    pub fn each_row(
        &self,
        table: &TableInfo,
        each: &mut dyn FnMut(u64, serde_json::Value) -> bool,
    ) -> Result<(), StorageError> {
        let mut walk = self.walk_of(Family::Rows, &table.id().to_be_bytes());
        while walk.advance()? {
            let key = walk.key().get(2..).unwrap_or_default();
            let (modified, _, body) = row::split(key, walk.value())?;
            if !each(modified, table.json(key, body, None)?) {
                break;
            }
        }
        Ok(())
    }

    /// Compares every entry of every family with another database's, which should be at the same
    /// index; returns the first `most` that are not equal. `progress` hears how many entries were
    /// compared.
    ///
    /// # Errors
    /// Those of the databases.
    pub fn differences(
        &self,
        other: &Self,
        most: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<EntryDifference>, StorageError> {
        let mut found = Vec::new();
        let mut compared = 0;
        for family in Family::ALL {
            let (mut mine, mut theirs) = (self.walk_of(family, &[]), other.walk_of(family, &[]));
            let (mut here, mut there) = (mine.advance()?, theirs.advance()?);
            while (here || there) && found.len() < most {
                let order = match (here, there) {
                    (true, true) => mine.key().cmp(theirs.key()),
                    (true, false) => std::cmp::Ordering::Less,
                    _ => std::cmp::Ordering::Greater,
                };
                let what = match order {
                    std::cmp::Ordering::Less => Some((mine.key(), "is extra")),
                    std::cmp::Ordering::Greater => Some((theirs.key(), "is missing")),
                    _ if mine.value() == theirs.value() => None,
                    _ => Some((mine.key(), "has another value")),
                };
                let what = what.filter(|(key, _)| !is_replica_local(family, key));
                if let Some((key, what)) = what {
                    found.push(self.difference(family, key, what));
                }
                compared += 1;
                if compared % 65_536 == 0 {
                    progress(compared);
                }
                if order.is_le() {
                    here = mine.advance()?;
                }
                if order.is_ge() {
                    there = theirs.advance()?;
                }
            }
        }
        progress(compared);
        Ok(found)
    }

    fn difference(&self, family: Family, key: &[u8], what: &'static str) -> EntryDifference {
        let number = match family {
            Family::Rows | Family::Index => key.first_chunk::<2>(),
            Family::History => key.get(1..).and_then(<[u8]>::first_chunk::<2>),
            _ => None,
        };
        let table = number.and_then(|number| {
            let number = u16::from_be_bytes(*number);
            self.visible.registry.table(number)
        });
        EntryDifference {
            family: family.name(),
            table: table.map(|table| table.name()),
            key: hex::encode(key),
            what,
        }
    }

    fn walk_of(&self, family: Family, prefix: &[u8]) -> EntryCursor<'_> {
        ScanSource::Snapshot(&self.visible.db_snapshot).walk(family, Scan::all().absolute(prefix))
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::table::Table;
    use crate::store::engine_test::{Op, Things, apply, many_ops, numbered, open, step, thing};

    #[test]
    fn equal_databases_have_no_difference_and_others_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let steps = numbered(many_ops(50));
        let (one, mut writer) = open(&dir.path().join("one"));
        apply(&mut writer, &steps, &[7]);
        let (two, mut other) = open(&dir.path().join("two"));
        apply(&mut other, &steps, &[3]);
        let compare = |most| {
            let (one, two) = (one.view(), two.view());
            one.differences(&two, most, &mut |_| ()).unwrap()
        };
        assert_eq!(compare(10), []);
        apply(&mut writer, &[step(51, vec![Op::Put(thing("x", 1))])], &[1]);
        apply(&mut other, &[step(51, vec![Op::Put(thing("x", 2))])], &[1]);
        let found = compare(100);
        let reported: Vec<_> = found.iter().map(|d| (d.family, d.table, d.what)).collect();
        let things = Some("things");
        assert!(
            reported.contains(&("rows", things, "has another value")),
            "{reported:?}"
        );
        assert!(
            reported.contains(&("index", things, "is extra")),
            "{reported:?}"
        );
        assert!(
            reported.contains(&("index", things, "is missing")),
            "{reported:?}"
        );
        assert_eq!(compare(2).len(), 2);
    }

    #[test]
    fn sizes_count_rows_and_give_the_kept_digests() {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) = open(dir.path());
        let puts = ["a", "b", "c"].map(|id| Op::Put(thing(id, 1)));
        let steps = [
            step(1, puts.to_vec()),
            step(2, vec![Op::Delete("b".into())]),
        ];
        apply(&mut writer, &steps, &[1]);
        let view = projections.view();
        let sizes = view.sizes().unwrap();
        let things = sizes.iter().find(|size| size.table == Things::ID).unwrap();
        assert_eq!((things.rows, things.index, things.indexes), (2, 2, 2));
        assert_eq!(things.digest, view.digest_of_rows(Things::ID).unwrap());
        assert!(things.bytes > 0);
    }
}
