//! What differs between two states: rows of every table whose past is kept, field by field.
//!
//! Where few changes lie between the two, `changes` names the rows; else both states are walked
//! side by side, and rows that the same event wrote are passed over unread. Every page reads the
//! changes again, so their number bounds what a page costs, and the memory that it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

use drover_projections::changes::{Change, Operation};
use drover_projections::tables::{TableInfo, registry};
use drover_projections::trail::{Budget, ComparisonPage};
use drover_projections::{History, View};
use serde_json::Value;

use super::cover::Cover;
use super::entry::{RowChange, RowSides, as_api_shows, compared, words};
use super::trail::{self, Shown};
use super::{AuditError, Trail};

/// Events between two states whose changes are read one by one.
const NEAR: u64 = 20_000;
/// How many changes they may be.
const CHANGES: usize = 100_000;
/// Rows looked at for one page at most.
const LOOKS: u64 = 1_000_000;
/// The same for a reader who may not see all of them: each is checked.
const LOOKS_OF_SOME: u64 = 10_000;
/// Keys that are compared at a time.
const STRIDE: usize = 256;
/// Events that are read at most to find the namespace of a damaged row.
const EVENTS_OF_ROW: usize = 16;

/// Which two states, and which of their rows.
#[derive(Clone, Debug)]
pub struct Between {
    /// The index of the one.
    pub from: u64,
    /// The index of the other, usually the later one.
    pub to: u64,
    /// The tables; all when empty.
    pub tables: Vec<&'static str>,
    /// Only rows of this namespace.
    pub namespace: Option<String>,
    /// Behind which row the page begins.
    pub start: Option<RowPosition>,
    /// Rows on a page at most.
    pub limit: usize,
    /// Fields of a row at most; 0 leaves them out.
    pub fields: usize,
}

/// A row's place in the order of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPosition {
    table: u16,
    key: Vec<u8>,
}

impl RowPosition {
    /// Reads a place as it is displayed.
    pub fn parse(text: &str) -> Option<Self> {
        let (table, key) = text.split_once('.')?;
        Some(Self {
            table: table.parse().ok()?,
            key: hex::decode(key).ok()?,
        })
    }
}

impl fmt::Display for RowPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, hex::encode(&self.key))
    }
}

/// The rows that the events between two states touched; none where those are too many, or where
/// what an event touched is damaged.
type Touched = Option<BTreeMap<u16, Keys>>;

/// Keys of one table that were touched.
#[derive(Default)]
struct Keys {
    keys: BTreeSet<Vec<u8>>,
    /// Rows were deleted by a rule, which names no keys.
    by_rule: bool,
}

impl Between {
    /// Compares, row by row; `take` says whether to continue. Answers where the next page begins.
    ///
    /// # Errors
    /// A state that is not kept, or what cannot be read; or those of `take`.
    pub fn answer<E: From<AuditError>>(
        &self,
        trail: &Trail<'_>,
        mut take: impl FnMut(&RowChange) -> Result<bool, E>,
    ) -> Result<Option<RowPosition>, E> {
        let sides = self.sides(trail).map_err(E::from)?;
        let touched = self.touched(trail.view(), CHANGES).map_err(E::from)?;
        let mut budget = Budget {
            rows: match trail.shows_all() {
                true => LOOKS,
                false => LOOKS_OF_SOME,
            },
            keys: 0,
        };
        let (mut taken, mut shown) = (0, Shown::default());
        for table in registry().tables().filter(|table| self.wants(table)) {
            let mut above = match &self.start {
                Some(place) if place.table == table.id() => Some(place.key.clone()),
                _ => None,
            };
            loop {
                budget.keys = STRIDE;
                let at = above.as_deref();
                let found = self.next(table, &sides, touched.as_ref(), at, &mut budget);
                let found = found.map_err(E::from)?;
                for key in &found.keys {
                    let row = self.compare(trail, &mut shown, table, key);
                    let more = match row.map_err(E::from)? {
                        Some(row) => {
                            taken += 1;
                            take(&row)? && taken < self.limit
                        }
                        None => true,
                    };
                    if !more || shown.read() > trail::CHANGES {
                        let (table, key) = (table.id(), key.clone());
                        return Ok(Some(RowPosition { table, key }));
                    }
                }
                match found.last {
                    None => break,
                    Some(last) if budget.rows == 0 => {
                        let (table, key) = (table.id(), last);
                        return Ok(Some(RowPosition { table, key }));
                    }
                    Some(last) => above = Some(last),
                }
            }
        }
        Ok(None)
    }

    fn wants(&self, table: &TableInfo) -> bool {
        table.history() == History::Full
            && (self.tables.is_empty() || self.tables.contains(&table.name()))
            && self
                .start
                .as_ref()
                .is_none_or(|place| place.table <= table.id())
    }

    fn sides(&self, trail: &Trail<'_>) -> Result<(View, View), AuditError> {
        let side = |index: u64| {
            let (first, last) = (trail.first(), trail.last());
            let view = trail.view().as_of(index, 0);
            // The state before the first event known here is the one that a snapshot brought.
            view.filter(|_| index + 1 >= first).ok_or_else(|| match index > last {
                true => AuditError::Question(format!("{index} has not happened yet")),
                false => AuditError::Gone(format!(
                    "the state as of {index} is not kept; what this server knows begins at {first}"
                )),
            })
        };
        Ok((side(self.from)?, side(self.to)?))
    }

    fn touched(&self, view: &View, most: usize) -> Result<Touched, AuditError> {
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        if high - low > NEAR {
            return Ok(None);
        }
        let wanted = registry().tables().filter(|table| self.wants(table));
        let wanted: BTreeSet<u16> = wanted.map(TableInfo::id).collect();
        let mut touched: BTreeMap<u16, Keys> = BTreeMap::new();
        let mut seen = 0;
        for changes in view.changes(low + 1) {
            let changes = match changes {
                // A walk over both states does without them.
                Err(error) if error.is_damage() => return Ok(None),
                changes => changes?,
            };
            for change in changes {
                if change.index > high {
                    return Ok(Some(touched));
                }
                seen += 1;
                if seen > most {
                    return Ok(None);
                }
                if !wanted.contains(&change.table) {
                    continue;
                }
                let table = touched.entry(change.table).or_default();
                match change.operation {
                    Operation::Rule => table.by_rule = true,
                    _ => drop(table.keys.insert(change.key)),
                }
            }
        }
        Ok(Some(touched))
    }

    /// Some of a table's rows, in order, among which are all that differ.
    fn next(
        &self,
        table: &TableInfo,
        (before, after): &(View, View),
        touched: Option<&BTreeMap<u16, Keys>>,
        above: Option<&[u8]>,
        budget: &mut Budget,
    ) -> Result<ComparisonPage, AuditError> {
        let low = self.from.min(self.to);
        match touched.map(|touched| touched.get(&table.id())) {
            Some(None) => Ok(ComparisonPage::default()),
            Some(Some(touched)) if !touched.by_rule => Ok(some_of(&touched.keys, above, budget)),
            // Nothing of the table changed since the earlier state.
            _ if before.present().last_changed_at(table.id()) <= low => {
                Ok(ComparisonPage::default())
            }
            _ => Ok(table.differing(before, after, above, budget)?),
        }
    }

    fn compare(
        &self,
        trail: &Trail<'_>,
        shown: &mut Shown,
        table: &TableInfo,
        key: &[u8],
    ) -> Result<Option<RowChange>, AuditError> {
        // First, as a reader with limited rights may see few of all rows.
        if !trail.shows_row(shown, table.id(), key)? {
            return Ok(None);
        }
        let (view, cover) = (trail.view(), Cover(trail.redactor()));
        let sides = [self.from, self.to].map(Some);
        let sides = RowSides::read(view, table, key, sides, &cover)?;
        if !self.is_inside(trail, table, key, &sides)? {
            return Ok(None);
        }
        let versions = sides.both();
        if let Ok(versions) = &versions
            && versions.before == versions.after
        {
            return Ok(None);
        }
        let mut found = compared(versions, table.name(), self.fields)?;
        trail.cover_why(&mut found.unreadable);
        Ok(Some(RowChange {
            table: table.name().into(),
            key: words(table, key)?,
            namespace: String::new(),
            operation: found.operation.into(),
            unreadable: found.unreadable,
            fields: found.fields.list,
            more_fields: found.fields.more,
        }))
    }

    /// Whether a row is of the wanted namespace. Of a damaged one the side that can be read says
    /// so, or what is known of its changes; where neither does, it is shown only if any will do.
    fn is_inside(
        &self,
        trail: &Trail<'_>,
        table: &TableInfo,
        key: &[u8],
        sides: &RowSides,
    ) -> Result<bool, AuditError> {
        let Some(wanted) = self.namespace.as_deref() else {
            return Ok(true);
        };
        let Some(row) = sides.readable() else {
            let found = match sides.is_damaged() {
                true => namespace_of(trail, table.id(), key)?,
                false => None,
            };
            return Ok(found.as_deref() == Some(wanted));
        };
        let namespace = as_api_shows(table.name(), row).get("Namespace");
        Ok(namespace.and_then(Value::as_str) == Some(wanted))
    }
}

/// The namespace of a row by its last change that is known.
fn namespace_of(trail: &Trail<'_>, table: u16, key: &[u8]) -> Result<Option<String>, AuditError> {
    let change_indexes = trail.unless_damaged(trail.view().change_indexes_of(table, key, 0))?;
    for index in change_indexes.into_iter().rev().take(EVENTS_OF_ROW) {
        let changes = trail.changes(index)?;
        let of_row = |change: &Change| change.table == table && change.key == key;
        if let Some(change) = changes.into_iter().find(of_row) {
            return Ok(Some(change.namespace));
        }
    }
    Ok(None)
}

/// The keys above one, as many as the budget allows; one at least, so that a page that ends says
/// where.
fn some_of(keys: &BTreeSet<Vec<u8>>, above: Option<&[u8]>, budget: &mut Budget) -> ComparisonPage {
    let mut found = ComparisonPage::default();
    let low = above.map_or(Bound::Unbounded, Bound::Excluded);
    let mut keys = keys.range::<[u8], _>((low, Bound::Unbounded)).peekable();
    while let Some(key) = keys.next() {
        budget.keys = budget.keys.saturating_sub(1);
        budget.rows = budget.rows.saturating_sub(1);
        found.keys.push(key.clone());
        if keys.peek().is_some() && (budget.keys == 0 || budget.rows == 0) {
            found.last = Some(key.clone());
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use drover_events::eval::EvalsUpserted;
    use drover_events::model::{Evaluation, Namespace};
    use drover_events::namespace::NamespacesUpserted;
    use drover_projections::tables::{Evals, Namespaces};
    use drover_projections::{Id, Table as _};

    use super::*;
    use crate::history::audit::Eyes;
    use crate::history::record::Redactor;
    use crate::log::{LogEngine, LogOptions};
    use crate::reactors::testing::{Direct, spoil, spoil_changes};

    #[test]
    fn keys_are_held_of_few_changes_and_wanted_tables_only() {
        let server = Direct::new();
        let named = |name: String| Namespace {
            name,
            ..Namespace::default()
        };
        for event in 0..3 {
            let names = (0..4).map(|n| format!("n{event}-{n}"));
            server.apply(NamespacesUpserted {
                namespaces: names.map(named).collect(),
            });
        }
        let view = server.projections.view();
        let mut between = Between {
            from: 0,
            to: view.index(),
            tables: Vec::new(),
            namespace: None,
            start: None,
            limit: 10,
            fields: 0,
        };
        let touched = between.touched(&view, 12).unwrap();
        let touched = touched.expect("they are few");
        assert_eq!(touched[&Namespaces::ID].keys.len(), 12);
        assert!(between.touched(&view, 11).unwrap().is_none());
        between.tables = vec!["jobs"];
        assert!(between.touched(&view, 12).unwrap().unwrap().is_empty());
        // Where it is not known what an event changed, both states are walked.
        drop(view);
        let server = server.reopened(|database| spoil_changes(database, 2));
        let view = server.projections.view();
        assert!(between.touched(&view, 12).unwrap().is_none());
    }

    /// What became of evaluations until the second event.
    fn evals(from: u64, namespace: Option<&str>) -> Between {
        Between {
            from,
            to: 2,
            tables: vec!["evals"],
            namespace: namespace.map(str::to_owned),
            start: None,
            limit: 10,
            fields: 1,
        }
    }

    #[test]
    fn a_damaged_row_is_shown_where_its_namespace_is_looked_at() {
        const DAMAGED: &str = "00000000-0000-4000-8000-000000000002";
        let server = Direct::new();
        for status in ["pending", "complete"] {
            let eval = |(namespace, id): (&str, &str)| Evaluation {
                id: id.to_owned(),
                namespace: namespace.to_owned(),
                job_id: "job".to_owned(),
                status: status.to_owned(),
                ..Evaluation::default()
            };
            let all = [
                ("a", "00000000-0000-4000-8000-000000000001"),
                ("b", DAMAGED),
            ];
            server.apply(EvalsUpserted {
                evals: all.map(eval).into(),
                decision: None,
            });
        }
        let server = server.reopened(|database| spoil::<Evals>(database, &Id::new(DAMAGED)));
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = LogEngine::open(dir.path(), LogOptions::default()).unwrap();
        let (view, redactor) = (server.projections.view(), Redactor::default());
        let trail = Trail::new(&view, &log, &redactor, Eyes::All);
        // The one side says of which namespace it is, or what changed it.
        for from in [1, 0] {
            for (namespace, expected) in [
                (None, vec!["a", "b"]),
                (Some("a"), vec!["a"]),
                (Some("b"), vec!["b"]),
                (Some("c"), Vec::new()),
            ] {
                let mut found = Vec::new();
                let next = evals(from, namespace).answer(&trail, |row| {
                    let is_damaged = row.key == [DAMAGED];
                    assert_eq!(row.operation == "unreadable", is_damaged, "{row:?}");
                    found.push(if is_damaged { "b" } else { "a" });
                    Ok::<bool, AuditError>(true)
                });
                assert_eq!((next.unwrap(), found), (None, expected), "{from}");
            }
        }
        // Where on the disk the damage is, is for who may see everything.
        let sees = |_: &Change| true;
        for (eyes, whole) in [(Eyes::All, true), (Eyes::Some(&sees), false)] {
            let trail = Trail::new(&view, &log, &redactor, eyes);
            let mut found = Vec::new();
            let next = evals(1, None).answer(&trail, |row| {
                found.extend((row.key == [DAMAGED]).then(|| row.unreadable.clone()));
                Ok::<bool, AuditError>(true)
            });
            next.unwrap();
            assert_eq!(found.len(), 1, "{whole}");
            assert_eq!(found[0] != "it is damaged", whole, "{found:?}");
        }
        log.close();
    }

    #[test]
    fn a_page_that_ends_with_a_table_passes_over_no_row_of_the_next() {
        let keys = BTreeSet::from([vec![1], vec![2], vec![3]]);
        let mut budget = Budget { rows: 3, keys: 10 };
        let first = some_of(&keys, None, &mut budget);
        assert_eq!((first.keys.len(), first.last), (3, None));
        // Nothing is left for the next table, which says all the same where it continues.
        let next = some_of(&keys, None, &mut budget);
        assert_eq!((next.keys, next.last), (vec![vec![1]], Some(vec![1])));
        let rest = some_of(&keys, Some(&[1]), &mut Budget { rows: 9, keys: 2 });
        assert_eq!((rest.keys.len(), rest.last), (2, None));
    }

    #[test]
    fn places_return_from_their_text() {
        let place = RowPosition {
            table: 13,
            key: vec![1, 0xfe, 0],
        };
        assert_eq!(place.to_string(), "13.01fe00");
        assert_eq!(RowPosition::parse("13.01fe00"), Some(place));
        for text in ["", "13", "x.00", "13.0", "13.zz", "13.日本", "-1.00"] {
            assert_eq!(RowPosition::parse(text), None, "{text}");
        }
    }
}
