//! What a read sees of its view: one thing after another as it likes, for its route's access was
//! checked for that; many at once only by what its caller may.
//!
//! Invariant: rows of a range come as [`Unchecked`], which is nothing that can be walked. Only a
//! check makes [`Rows`] of them: a handler that lists, counts or searches without that does not
//! compile.

use std::sync::Arc;

use drover_projections::view::View;
use drover_projections::{AsKey, Index, Prefix, Scan, StorageError, Table};

use crate::acl::{Acl, NamespaceCapability as Ns};
use crate::identity::Identity;

/// Rows that were checked, in a list's order.
pub(super) type Rows<'v, R> = Box<dyn Iterator<Item = Result<R, StorageError>> + 'v>;

/// The keys that rows were found under, encoded, with the rows.
pub(super) type Keyed<R> = (Vec<u8>, R);

/// A view, and who reads it.
pub(super) struct Sight {
    view: View,
    who: Arc<Identity>,
    /// Whether the route's access let its caller see every row that the request names.
    whole: bool,
}

/// Rows that were not checked yet: whether the caller may see them is not known.
#[must_use = "rows that are not checked are shown to no caller"]
pub(super) struct Unchecked<'v, R> {
    rows: Rows<'v, R>,
    who: &'v Arc<Identity>,
    whole: bool,
}

/// The proof that a caller may see every row of a list; only with it is a rendered list given.
#[derive(Clone, Copy)]
pub(super) struct SeesAll(());

impl Sight {
    /// What a caller sees of a view; `whole`: every row that the request names.
    pub(super) const fn new(view: View, who: Arc<Identity>, whole: bool) -> Self {
        Self { view, who, whole }
    }

    /// The view itself, from which rows come unchecked: for what works out the one thing that the
    /// request names, for which the route's access was checked. It is not for lists.
    pub(super) const fn unfiltered(&self) -> &View {
        &self.view
    }

    /// The index of the last event in it.
    pub(super) fn index(&self) -> u64 {
        self.view.index()
    }

    /// Whether it is of the past.
    pub(super) fn is_past(&self) -> bool {
        self.view.is_past()
    }

    /// The index of the last change of a table.
    pub(super) fn table_index<T: Table>(&self) -> u64 {
        self.view.table_index::<T>()
    }

    /// The same of a table by its number.
    pub(super) fn last_changed_at(&self, table: u16) -> u64 {
        self.view.last_changed_at(table)
    }

    /// One row.
    ///
    /// # Errors
    /// Those of the tables.
    pub(super) fn get<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
    ) -> Result<Option<T::Row>, StorageError> {
        self.view.get::<T>(key)
    }

    /// The index at which a row was last written.
    ///
    /// # Errors
    /// Those of the tables.
    pub(super) fn modify_index<T: Table>(
        &self,
        key: impl AsKey<T::Key>,
    ) -> Result<Option<u64>, StorageError> {
        self.view.modify_index::<T>(key)
    }

    /// Rows that were found otherwise.
    pub(super) fn found<'v, R: 'v>(
        &'v self,
        rows: impl Iterator<Item = Result<R, StorageError>> + 'v,
    ) -> Unchecked<'v, R> {
        Unchecked {
            rows: Box::new(rows),
            who: &self.who,
            whole: self.whole,
        }
    }

    /// The rows of a range of a table.
    pub(super) fn rows<T: Table>(&self, scan: Scan) -> Unchecked<'_, T::Row> {
        self.found(self.view.scan::<T>(scan))
    }

    /// The rows of ranges of a table, one after another.
    pub(super) fn ranges<T: Table>(&self, scans: Vec<Scan>) -> Unchecked<'_, T::Row> {
        let rows = scans.into_iter().flat_map(|scan| self.view.scan::<T>(scan));
        self.found(rows)
    }

    /// The rows of a range of an index.
    pub(super) fn rows_by<I: Index>(&self, scan: Scan) -> Unchecked<'_, <I::Table as Table>::Row> {
        self.found(self.view.by_index_scan::<I>(scan))
    }

    /// The rows of a range of a table with their keys.
    pub(super) fn keyed<T: Table>(&self, scan: Scan) -> Unchecked<'_, Keyed<T::Row>> {
        self.found(self.view.scan_keyed::<T>(scan))
    }

    /// The rows of a range of an index with the keys of their entries.
    pub(super) fn keyed_by<I: Index>(
        &self,
        scan: Scan,
    ) -> Unchecked<'_, Keyed<<I::Table as Table>::Row>> {
        self.found(self.view.by_index_keyed::<I>(scan))
    }

    /// How many rows of a namespace an index has, if the caller has one of these rights there;
    /// none of them is read.
    ///
    /// # Errors
    /// Those of the tables.
    pub(super) fn count_in<I>(&self, namespace: &str, any_of: &[Ns]) -> Result<u64, StorageError>
    where
        I: Index<Group = String>,
    {
        let mut count = 0;
        if self.sees(namespace, any_of) {
            let scan = Scan::prefix(Prefix::new().str(namespace));
            let mut cursor = self.view.index_cursor::<I>(&scan);
            while cursor.advance()?.is_some() {
                count += 1;
            }
        }
        Ok(count)
    }

    /// Whether a row of this namespace may be seen, by one of these rights.
    pub(super) fn sees(&self, namespace: &str, any_of: &[Ns]) -> bool {
        self.who.acl.namespace_allows_any(namespace, any_of)
    }

    /// That every row of a namespace may be seen, or of all where it is `*`, by one of these
    /// rights.
    pub(super) fn all_in(&self, namespace: &str, any_of: &[Ns]) -> Option<SeesAll> {
        let every = self.who.acl.is_management();
        (every || (namespace != "*" && self.sees(namespace, any_of))).then_some(SeesAll(()))
    }

    /// That every row may be seen that the request names: the route's access covers that.
    pub(super) fn all_of_route(&self) -> Option<SeesAll> {
        self.whole.then_some(SeesAll(()))
    }
}

impl<'v, R: 'v> Unchecked<'v, R> {
    /// The same in another form.
    pub(super) fn map<S: 'v>(self, form: impl Fn(R) -> S + 'v) -> Unchecked<'v, S> {
        Unchecked {
            rows: Box::new(self.rows.map(move |row| row.map(&form))),
            who: self.who,
            whole: self.whole,
        }
    }

    /// No more than so many of them are looked at.
    pub(super) fn at_most(self, rows: usize) -> Self {
        Self {
            rows: Box::new(self.rows.take(rows)),
            ..self
        }
    }

    /// Those that a rule over the caller's rights lets it see.
    pub(super) fn seen_by(self, may: impl Fn(&Acl, &R) -> bool + 'v) -> Rows<'v, R> {
        let acl = &self.who.acl;
        let seen = move |row: &Result<R, _>| row.as_ref().map_or(true, |row| may(acl, row));
        Box::new(self.rows.filter(seen))
    }

    /// Those of one namespace, which all of them are in, by one of these rights there.
    pub(super) fn in_namespace(self, namespace: &str, any_of: &[Ns]) -> Rows<'v, R> {
        match self.who.acl.namespace_allows_any(namespace, any_of) {
            true => self.rows,
            false => Box::new(std::iter::empty()),
        }
    }

    /// All of them, which the request names and the route's access covers; none where it did not,
    /// as where rows are shown by their own right.
    pub(super) fn of_route(self) -> Rows<'v, R> {
        match self.whole {
            true => self.rows,
            false => Box::new(std::iter::empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ways to be walked: for what has both, which one is meant is not clear.
    trait Walked<Way> {
        fn is_not() {}
    }

    struct AsItIs;

    impl<T> Walked<()> for T {}
    impl<T: IntoIterator> Walked<AsItIs> for T {}

    /// The compiler shows it: if rows that were not checked could be walked, this would not
    /// compile.
    #[test]
    fn rows_that_nobody_asked_about_cannot_be_walked() {
        <Unchecked<'_, String> as Walked<_>>::is_not();
    }
}
