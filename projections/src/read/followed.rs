//! Which rows changed since a follower looked last: for caches that keep something about each row
//! of a table and read anew only what changed.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::engine::error::StorageError;
use crate::engine::key::Key;
use crate::engine::layer::RowKey;
use crate::engine::table::Table;
use crate::read::view::View;

/// Changed rows that are kept for a follower; beyond that it has to read all rows.
const MOST: usize = 100_000;

/// The changes of some tables since [`Followed::take`] was called last.
#[derive(Clone, Debug)]
pub struct Followed(Arc<Follower>);

#[derive(Debug)]
struct Follower {
    tables: Vec<u16>,
    changed: Mutex<Changed>,
}

#[derive(Debug, Default)]
struct Changed {
    /// The rows, each with the index of the last batch that wrote it.
    rows: HashMap<(u16, RowKey), u64, foldhash::fast::FixedState>,
    /// How many times all is to be read: what changed is not known.
    whole: u8,
    /// The last batch of whose rows nothing was kept: only a view that shows it makes up for that.
    behind: u64,
}

/// A row that was written or removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedRow {
    table: u16,
    key: RowKey,
}

impl ChangedRow {
    /// Its key, if it is a row of this table.
    pub fn key_of<T: Table>(&self) -> Option<T::Key> {
        (self.table == T::ID)
            .then(|| T::Key::from_bytes(&self.key).ok())
            .flatten()
    }
}

impl Followed {
    /// What changed up to the view and was not taken yet, in the order of keys; `None` where that
    /// is not known, as at first: then all rows are to be read in this view.
    pub fn take(&self, view: &View) -> Option<Vec<ChangedRow>> {
        let index = view.index();
        let mut changed = self.0.changed.lock();
        if index < changed.behind {
            return None;
        }
        let due = changed.rows.extract_if(|_, at| *at <= index);
        let mut due: Vec<_> = due
            .map(|((table, key), _)| ChangedRow { table, key })
            .collect();
        if changed.whole > 0 {
            changed.whole -= 1;
            return None;
        }
        due.sort_unstable();
        Some(due)
    }
}

/// A source of changes.
pub trait Notifies {
    /// Follows the rows of some tables from now on.
    fn follow(&self, tables: &[u16]) -> Followed;
}

impl<T: Notifies> Notifies for Arc<T> {
    fn follow(&self, tables: &[u16]) -> Followed {
        T::follow(self, tables)
    }
}

/// A cache of the view, which keeps something about each row of some tables.
pub trait Follow {
    /// The tables whose changes it follows.
    const TABLES: &'static [u16];
    /// What else it takes to read a row.
    type With;

    /// Where it finds what changed, once it follows.
    fn followed(&mut self) -> &mut Option<Followed>;

    /// Forgets what it knew, and reads all rows.
    ///
    /// # Errors
    /// They cannot be read.
    fn all(&mut self, view: &View, with: &mut Self::With) -> Result<(), StorageError>;

    /// Reads one row that was written or removed.
    ///
    /// # Errors
    /// It cannot be read.
    fn row(
        &mut self,
        view: &View,
        row: &ChangedRow,
        with: &mut Self::With,
    ) -> Result<(), StorageError>;

    /// Brings what is kept up to the view: by the rows that changed, in the order of their tables,
    /// or by all rows where it is not known which did. After an error the next call reads all rows.
    ///
    /// # Errors
    /// Rows cannot be read.
    fn refresh(
        &mut self,
        projections: &impl Notifies,
        view: &View,
        with: &mut Self::With,
    ) -> Result<(), StorageError> {
        let followed = self
            .followed()
            .get_or_insert_with(|| projections.follow(Self::TABLES));
        let done = match followed.take(view) {
            Some(changed) => changed.iter().try_for_each(|row| self.row(view, row, with)),
            None => self.all(view, with),
        };
        if done.is_err() {
            *self.followed() = None;
        }
        done
    }
}

/// All followers.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<Vec<Weak<Follower>>>);

impl Followers {
    /// Notes the rows a batch wrote; called before they become visible.
    pub(crate) fn note(&self, index: u64, rows: &[(u16, RowKey)]) {
        self.each(|follower| {
            let mut changed = follower.changed.lock();
            let mine = rows
                .iter()
                .filter(|(table, _)| follower.tables.contains(table));
            changed.rows.extend(mine.map(|row| (row.clone(), index)));
            if changed.rows.len() > MOST {
                changed.rows.clear();
                changed.whole = changed.whole.max(1);
                changed.behind = index;
            }
        });
    }

    /// The database was replaced: it is not known what changed. A follower may be about to read all
    /// rows in a view of the former one, and then reads all once more.
    pub(crate) fn forget(&self) {
        self.each(|follower| {
            *follower.changed.lock() = Changed {
                whole: 2,
                ..Changed::default()
            };
        });
    }

    /// A new follower of the rows of some tables.
    pub(crate) fn follow(&self, tables: &[u16]) -> Followed {
        let follower = Arc::new(Follower {
            tables: tables.to_vec(),
            changed: Mutex::new(Changed {
                whole: 1,
                ..Changed::default()
            }),
        });
        self.0.lock().push(Arc::downgrade(&follower));
        Followed(follower)
    }

    fn each(&self, mut report: impl FnMut(&Follower)) {
        self.0.lock().retain(|follower| {
            let alive = follower.upgrade();
            alive.iter().for_each(|follower| report(follower));
            alive.is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::engine_test::{Op, Things, apply, open, step, thing};

    fn ids(changed: Option<Vec<ChangedRow>>) -> Option<Vec<String>> {
        let id = |row: ChangedRow| row.key_of::<Things>().unwrap().into_string();
        changed.map(|rows| rows.into_iter().map(id).collect())
    }

    /// The things there are.
    #[derive(Default)]
    struct KnownIds {
        followed: Option<Followed>,
        ids: std::collections::BTreeSet<String>,
        read: Vec<String>,
        fails: bool,
    }

    impl Follow for KnownIds {
        const TABLES: &'static [u16] = &[Things::ID];
        type With = ();

        fn followed(&mut self) -> &mut Option<Followed> {
            &mut self.followed
        }

        fn all(&mut self, view: &View, (): &mut ()) -> Result<(), StorageError> {
            self.ids.clear();
            for row in view.scan::<Things>(crate::Scan::all()) {
                self.ids.insert(Things::key(&row?).into_string());
            }
            self.read.push("all".to_owned());
            Ok(())
        }

        fn row(&mut self, view: &View, row: &ChangedRow, (): &mut ()) -> Result<(), StorageError> {
            if self.fails {
                return Err(StorageError::damaged("row", b"a test says so"));
            }
            let id = row.key_of::<Things>().unwrap();
            match view.get::<Things>(id.as_str())? {
                Some(_) => self.ids.insert(id.as_str().to_owned()),
                None => self.ids.remove(id.as_str()),
            };
            self.read.push(id.into_string());
            Ok(())
        }
    }

    #[test]
    fn what_is_kept_is_brought_up_by_what_changed_and_by_all_after_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) = open(dir.path());
        let put = |id: &str| Op::Put(thing(id, 1));
        apply(&mut writer, &[step(1, vec![put("a"), put("b")])], &[1]);
        let mut known = KnownIds::default();
        let mut read = |fails: bool| {
            known.fails = fails;
            let done = known.refresh(&projections, &projections.view(), &mut ());
            let ids: Vec<String> = known.ids.iter().cloned().collect();
            (done.is_ok(), std::mem::take(&mut known.read), ids.join(" "))
        };
        assert_eq!(
            read(false),
            (true, vec!["all".to_owned()], "a b".to_owned())
        );
        assert_eq!(read(false), (true, vec![], "a b".to_owned()));
        let gone = Op::Delete("a".to_owned());
        apply(&mut writer, &[step(2, vec![put("c"), gone])], &[1]);
        let both = vec!["a".to_owned(), "c".to_owned()];
        assert_eq!(read(false), (true, both, "b c".to_owned()));
        apply(&mut writer, &[step(3, vec![put("d")])], &[1]);
        assert_eq!(read(true), (false, vec![], "b c".to_owned()));
        let all = vec!["all".to_owned()];
        assert_eq!(read(false), (true, all, "b c d".to_owned()));
    }

    #[test]
    fn what_changed_is_told_once_and_never_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) = open(dir.path());
        let put = |id: &str| Op::Put(thing(id, 1));
        apply(&mut writer, &[step(1, vec![put("a")])], &[1]);
        let followed = projections.follow(&[Things::ID]);
        let elsewhere = projections.follow(&[41]);
        assert_eq!(ids(elsewhere.take(&projections.view())), None);
        let early = projections.view();
        let steps = [step(2, vec![put("b")]), step(3, vec![put("c"), put("b")])];
        apply(&mut writer, &steps, &[1]);
        assert_eq!(ids(followed.take(&early)), None, "at first all is read");
        assert_eq!(ids(followed.take(&early)), Some(vec![]), "not in this view");
        let now = projections.view();
        let both = Some(vec!["b".to_owned(), "c".to_owned()]);
        assert_eq!(ids(followed.take(&now)), both);
        assert_eq!(ids(followed.take(&now)), Some(vec![]));
        let gone = step(4, vec![Op::Delete("c".to_owned())]);
        apply(&mut writer, &[gone], &[1]);
        let reported = ids(followed.take(&projections.view()));
        assert_eq!(reported, Some(vec!["c".to_owned()]));
        assert_eq!(ids(elsewhere.take(&projections.view())), Some(vec![]));
        // More than is kept: all is to be read.
        let many = (0..=MOST).map(|id| put(&id.to_string())).collect();
        apply(&mut writer, &[step(5, many)], &[1]);
        assert_eq!(ids(followed.take(&now)), None, "it is not in this view");
        assert_eq!(ids(followed.take(&projections.view())), None);
        assert_eq!(ids(followed.take(&projections.view())), Some(vec![]));
        projections.followers().forget();
        assert_eq!(
            ids(followed.take(&now)),
            None,
            "of what was before, perhaps"
        );
        assert_eq!(ids(followed.take(&projections.view())), None);
        assert_eq!(ids(followed.take(&projections.view())), Some(vec![]));
        drop(followed);
        apply(&mut writer, &[step(6, vec![put("a")])], &[1]);
        assert_eq!(projections.followers().0.lock().len(), 1);
    }
}
