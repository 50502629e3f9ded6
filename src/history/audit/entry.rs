//! One event as the audit trail shows it.

use std::borrow::Cow;

use drover_events::Recorded;
use drover_events::mask::Redact;
use drover_projections::changes::{Change, Operation};
use drover_projections::tables::{TableInfo, registry};
use drover_projections::{StorageError, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AuditError;
use super::cover::Cover;
use super::diff::{self, Field, Fields};
use super::object::ObjectHistory;
use crate::history::record::{Document, Payload, RecordedOutcome, Redactor};

/// Rows of one event of which it is looked up whether they were there before: one that changed many
/// leaves some of its page's to the others.
const LOOKUPS_OF_ONE: usize = 1_024;

/// How much of an event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Changed rows at most; 0 leaves them out.
    pub changes: usize,
    /// Changed fields of a row at most; 0 leaves them out.
    pub fields: usize,
    /// Rows of other things as well, where the query names a thing.
    pub all_changes: bool,
    /// The payload, its confidential values hidden as exports hide them.
    pub payload: bool,
}

impl Default for Detail {
    fn default() -> Self {
        Self {
            changes: 32,
            fields: 100,
            all_changes: false,
            payload: false,
        }
    }
}

/// A row that an event changed, or that differs between two states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RowChange {
    pub table: Cow<'static, str>,
    /// The row's key, component by component; empty for a deletion by rule.
    pub key: Vec<String>,
    /// The row's namespace, empty where it has none, and for a difference between two states.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `insert`, `update`, `delete`, `rule`: rows were deleted by a rule, or `unreadable`.
    pub operation: Cow<'static, str>,
    /// Why the row cannot be read as it was before or after; empty where it can.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unreadable: String,
    /// What changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
    /// How many more fields changed.
    #[serde(skip_serializing_if = "is_none")]
    pub more_fields: usize,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// An event as far as it can be read.
pub(super) struct ReadEvent {
    pub(super) kind: &'static str,
    pub(super) event: Recorded,
    pub(super) rejected: Option<String>,
    pub(super) unreadable: Option<String>,
}

/// An event of the audit trail.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name of its kind; `unknown` where only another version of drover knows it.
    pub kind: &'static str,
    /// The event; of one that cannot be read, what the log says of it.
    pub event: Recorded,
    /// Why it changed nothing; none where it was applied.
    pub rejected: Option<String>,
    /// Why something of it cannot be read; none where all can.
    pub unreadable: Option<String>,
    /// The rows it changed, as many as were requested.
    pub changes: Vec<RowChange>,
    /// How many rows it changed that are not shown.
    pub more_changes: usize,
    /// The payload, its confidential values hidden; none where it was not requested.
    pub payload: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ShownRow<'a> {
    #[serde(flatten)]
    record: Document<'a>,
    changes: &'a [RowChange],
    #[serde(skip_serializing_if = "is_none")]
    more_changes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<&'a str>,
    #[serde(rename = "Payload", skip_serializing_if = "Option::is_none")]
    covered: Option<&'a Value>,
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = ShownRow {
            record: Document {
                kind: self.kind,
                payload: None,
                ..Document::of(&self.event)
                    .became(Some(RecordedOutcome::of(self.rejected.as_deref())))
            },
            changes: &self.changes,
            more_changes: self.more_changes,
            unreadable: self.unreadable.as_deref(),
            covered: self.payload.as_ref(),
        };
        shown.serialize(serializer)
    }
}

impl Entry {
    /// The entry of an event, with the rows that it changed. Of so many rows as `lookups` says, and
    /// [`LOOKUPS_OF_ONE`] at most, it is looked up whether they were there before; those behind
    /// count as ones that came.
    pub(super) fn new(
        (view, redactor): (&View, &Redactor),
        read: ReadEvent,
        changes: &[Change],
        (detail, known): (Detail, Option<&ObjectHistory>),
        lookups: &mut usize,
    ) -> Result<Self, AuditError> {
        let wanted = |change: &&Change| {
            let mine =
                |known: &ObjectHistory| known.rows.contains(&(change.table, change.key.clone()));
            detail.all_changes || known.is_none_or(mine)
        };
        let wanted = changes.iter().filter(wanted).collect();
        let mut reported = Vec::new();
        let was_there = |change: &Change| was_there(view, change);
        for change in selected(wanted, detail.changes, lookups, was_there)? {
            reported.push(row_change((view, redactor), change, detail.fields)?);
        }
        reported.sort_by_key(|change: &RowChange| match &*change.operation {
            "update" => 0,
            "delete" => 2,
            _ => 1,
        });
        let payload = match &read.event.envelope {
            Some(envelope) if detail.payload => {
                let payload = Payload(&envelope.event);
                let payload = serde_json::to_value(redactor.redacted(&payload));
                Some(payload.map_err(|error| AuditError::Question(error.to_string()))?)
            }
            _ => None,
        };
        Ok(Self {
            kind: read.kind,
            event: read.event,
            rejected: read.rejected,
            unreadable: read.unreadable,
            more_changes: changes.len() - reported.len(),
            changes: reported,
            payload,
        })
    }
}

/// As many changes as are shown. What differs says the most: rows that changed, then those that
/// came, then those that went.
fn selected<'a>(
    changes: Vec<&'a Change>,
    most: usize,
    lookups: &mut usize,
    was_there: impl Fn(&Change) -> Result<bool, AuditError>,
) -> Result<Vec<&'a Change>, AuditError> {
    if changes.len() <= most {
        return Ok(changes);
    }
    let (mut changed, mut came, mut went) = (Vec::new(), Vec::new(), Vec::new());
    let least = lookups.saturating_sub(LOOKUPS_OF_ONE);
    for change in changes {
        if changed.len() >= most {
            break;
        }
        let kind = match change.operation {
            Operation::Put if *lookups > least => {
                *lookups -= 1;
                match was_there(change) {
                    Ok(true) => &mut changed,
                    Ok(false) => &mut came,
                    // Only its place among the others depends on it.
                    Err(error) if error.is_damage() => &mut came,
                    Err(error) => return Err(error),
                }
            }
            Operation::Put | Operation::Rule => &mut came,
            Operation::Delete => &mut went,
        };
        if kind.len() < most {
            kind.push(change);
        }
    }
    Ok([changed, came, went]
        .into_iter()
        .flatten()
        .take(most)
        .collect())
}

/// Whether a row was there before an event changed it.
fn was_there(view: &View, change: &Change) -> Result<bool, AuditError> {
    let info = registry().table(change.table);
    let (Some(info), Some(before)) = (info, change.index.checked_sub(1)) else {
        return Ok(false);
    };
    Ok(info.existed_at(view, &change.key, before)?)
}

/// What an event did to one row.
pub(super) fn row_change(
    (view, redactor): (&View, &Redactor),
    change: &Change,
    fields: usize,
) -> Result<RowChange, AuditError> {
    let info = registry().table(change.table);
    let mut shown = RowChange {
        table: info.map_or("unknown", |table| table.name()).into(),
        key: Vec::new(),
        namespace: change.namespace.clone(),
        operation: "rule".into(),
        unreadable: String::new(),
        fields: Vec::new(),
        more_fields: 0,
    };
    let (Some(info), true) = (info, change.operation != Operation::Rule) else {
        return Ok(shown);
    };
    let after = (change.operation == Operation::Put).then_some(change.index);
    let sides = [change.index.checked_sub(1), after];
    let sides = RowSides::read(view, info, &change.key, sides, &Cover(redactor))?;
    let found = compared(sides.both(), &shown.table, fields)?;
    shown.key = words(info, &change.key)?;
    shown.operation = found.operation.into();
    shown.unreadable = found.unreadable;
    (shown.fields, shown.more_fields) = (found.fields.list, found.fields.more);
    Ok(shown)
}

/// A key, component by component; in hexadecimal where it is none.
pub(super) fn words(table: &TableInfo, key: &[u8]) -> Result<Vec<String>, AuditError> {
    match table.words(key) {
        Err(error) if error.is_single_entry() => Ok(vec![hex::encode(key)]),
        words => Ok(words?),
    }
}

/// What happened to a row.
pub(super) struct Compared {
    pub(super) operation: &'static str,
    pub(super) unreadable: String,
    pub(super) fields: Fields,
}

/// What differs between two versions of a row, `limit` fields at most. One row that is damaged is
/// named as such, and keeps nobody from those beside it.
///
/// # Errors
/// When more than this row cannot be read.
pub(super) fn compared(
    versions: Result<Versions, StorageError>,
    table: &str,
    limit: usize,
) -> Result<Compared, AuditError> {
    match versions {
        Ok(versions) => Ok(Compared {
            operation: versions.operation(),
            unreadable: String::new(),
            fields: match limit {
                0 => Fields::default(),
                limit => versions.compare(table, limit),
            },
        }),
        Err(error) if error.is_damage() => Ok(Compared {
            operation: "unreadable",
            unreadable: crate::error::chain(&error),
            fields: Fields::default(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// A row on both sides of a change, each of which may be damaged.
pub(super) struct RowSides {
    before: Result<Option<Value>, StorageError>,
    after: Result<Option<Value>, StorageError>,
}

impl RowSides {
    /// The row as it was at two indexes, where it was there at all.
    ///
    /// # Errors
    /// When more than this row cannot be read.
    pub(super) fn read(
        view: &View,
        table: &TableInfo,
        key: &[u8],
        indexes: [Option<u64>; 2],
        cover: &dyn Redact,
    ) -> Result<Self, StorageError> {
        let at = |index: Option<u64>| match index {
            Some(index) => match table.row_at(view, key, index, cover) {
                Err(error) if !error.is_damage() => Err(error),
                row => Ok(row),
            },
            None => Ok(Ok(None)),
        };
        let [before, after] = indexes;
        Ok(Self {
            before: at(before)?,
            after: at(after)?,
        })
    }

    /// Whether one of them is damaged.
    pub(super) fn is_damaged(&self) -> bool {
        self.before.is_err() || self.after.is_err()
    }

    /// The row on the last side that can be read and has it.
    pub(super) fn readable(&self) -> Option<&Value> {
        let (before, after) = (self.before.as_ref().ok(), self.after.as_ref().ok());
        [after, before].into_iter().flatten().flatten().next()
    }

    /// Both, where both can be read.
    pub(super) fn both(self) -> Result<Versions, StorageError> {
        Ok(Versions {
            before: self.before?,
            after: self.after?,
        })
    }
}

/// A row on both sides of a change.
pub(super) struct Versions {
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
}

impl Versions {
    /// What changed, with the names of the API.
    fn compare(&self, table: &str, limit: usize) -> Fields {
        let shown = |row: &Option<Value>| row.as_ref().map(|row| as_api_shows(table, row).clone());
        let (before, after) = (shown(&self.before), shown(&self.after));
        diff::compare(before.as_ref(), after.as_ref(), limit)
    }

    /// What happened to the row.
    pub(super) fn operation(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "insert",
            (_, None) => "delete",
            _ => "update",
        }
    }
}

/// The part of a row that the API shows; some rows hold more.
pub(super) fn as_api_shows<'a>(table: &str, row: &'a Value) -> &'a Value {
    let part = match table {
        "allocs" => row.get("Alloc"),
        "root_keys" => row.get("Meta"),
        _ => None,
    };
    part.unwrap_or(row)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use drover_events::EventKind;
    use serde_json::json;

    use super::*;

    /// Changes of rows with these keys.
    fn puts(keys: &[u8]) -> Vec<Change> {
        let put = |(seq, key): (u32, &u8)| Change {
            index: 7,
            seq,
            kind: EventKind::RaftBlank,
            table: 0,
            operation: Operation::Put,
            topic: None,
            key: vec![*key],
            namespace: String::new(),
            stream_keys: Vec::new(),
        };
        (0..).zip(keys).map(put).collect()
    }

    #[test]
    fn a_page_looks_up_so_many_rows_and_the_others_count_as_ones_that_came() {
        let (mut lookups, looked) = (4, Cell::new(0));
        let all = puts(&[1, 2, 3]);
        for (changed, wanted) in [(3, 3), (3, 1), (1, 1)] {
            let was_there = |change: &Change| {
                looked.set(looked.get() + 1);
                Ok(change.key == [changed])
            };
            let found = selected(all.iter().collect(), 1, &mut lookups, was_there).unwrap();
            let keys: Vec<&[u8]> = found.iter().map(|change| &*change.key).collect();
            assert_eq!(keys, [[wanted]], "{changed}");
        }
        assert_eq!((lookups, looked.get()), (0, 4));
        // One event leaves some of them to the others.
        let many = puts(&[1; LOOKUPS_OF_ONE + 1]);
        let mut lookups = LOOKUPS_OF_ONE + 5;
        let found = selected(many.iter().collect(), 1, &mut lookups, |_| Ok(false)).unwrap();
        assert_eq!((found.len(), lookups), (1, 5));
    }

    #[test]
    fn a_row_that_cannot_be_looked_up_counts_as_one_that_came() {
        let all = puts(&[1, 2]);
        let unreadable = |change: &Change| match change.key == [1] {
            true => Err(AuditError::Storage(StorageError::Row {
                table: "jobs",
                key: String::new(),
            })),
            false => Ok(true),
        };
        let found = selected(all.iter().collect(), 1, &mut 9, unreadable).unwrap();
        assert_eq!(found[0].key, [2]);
        let broken = |_: &Change| Err(AuditError::Storage(StorageError::WouldBlock));
        assert!(selected(all.iter().collect(), 1, &mut 9, broken).is_err());
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named_and_keeps_no_other_from_being_shown() {
        let damaged = StorageError::Row {
            table: "jobs",
            key: "6a6f62".to_owned(),
        };
        let found = compared(Err(damaged), "jobs", 5).unwrap();
        assert_eq!(found.operation, "unreadable");
        assert!(found.unreadable.contains("6a6f62"), "{}", found.unreadable);
        assert!(found.fields.list.is_empty());
        assert!(compared(Err(StorageError::WouldBlock), "jobs", 5).is_err());
        let (before, after) = (Some(json!({"A": 1, "B": 1})), Some(json!({"A": 2, "B": 2})));
        for (limit, shown, more) in [(0, 0, 0), (1, 1, 1), (5, 2, 0)] {
            let (before, after) = (before.clone(), after.clone());
            let found = compared(Ok(Versions { before, after }), "jobs", limit).unwrap();
            let counts = (found.fields.list.len(), found.fields.more);
            assert_eq!((found.operation, counts), ("update", (shown, more)));
            assert!(found.unreadable.is_empty());
        }
    }
}
