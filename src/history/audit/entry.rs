//! One event as the audit trail shows it.

use drover_events::Recorded;
use drover_projections::changes::{Change, Operation};
use drover_projections::tables::registry;
use drover_projections::{Rejection, View};
use serde::Serialize;
use serde_json::Value;

use super::AuditError;
use super::cover::Cover;
use super::diff::{self, Field, Fields};
use super::object::ObjectHistory;
use crate::history::record::{Document, Payload, RecordedOutcome, Redactor, reason};

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

/// A row that an event changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RowChange {
    pub table: &'static str,
    /// The row's key, component by component; empty for a deletion by rule.
    pub key: Vec<String>,
    /// The row's namespace, empty where it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `insert`, `update`, `delete`, or `rule`: rows were deleted by a rule.
    pub operation: &'static str,
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

/// An event of the audit trail.
#[derive(Clone, Debug)]
pub struct Entry {
    pub event: Recorded,
    /// Why it changed nothing; none where it was applied.
    pub rejected: Option<String>,
    /// The rows it changed, as many as were requested.
    pub changes: Vec<RowChange>,
    /// How many rows it changed that are not shown.
    pub more_changes: usize,
    payload: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ShownRow<'a> {
    #[serde(flatten)]
    record: Document<'a>,
    changes: &'a [RowChange],
    #[serde(skip_serializing_if = "is_none")]
    more_changes: usize,
    #[serde(rename = "Payload", skip_serializing_if = "Option::is_none")]
    covered: Option<&'a Value>,
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = ShownRow {
            record: Document {
                payload: None,
                ..Document::of(&self.event)
                    .became(Some(RecordedOutcome::of(self.rejected.as_deref())))
            },
            changes: &self.changes,
            more_changes: self.more_changes,
            covered: self.payload.as_ref(),
        };
        shown.serialize(serializer)
    }
}

impl Entry {
    /// The entry of an event, with the rows that it changed. Of so many rows as `lookups` says it
    /// is looked up whether they were there before; those behind count as ones that came.
    pub(super) fn new(
        (view, redactor): (&View, &Redactor),
        event: Recorded,
        rejection: Option<&Rejection>,
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
        reported.sort_by_key(|change: &RowChange| match change.operation {
            "update" => 0,
            "delete" => 2,
            _ => 1,
        });
        let payload = match &event.envelope {
            Some(envelope) if detail.payload => {
                let payload = Payload(&envelope.event);
                let payload = serde_json::to_value(redactor.redacted(&payload));
                Some(payload.map_err(|error| AuditError::Question(error.to_string()))?)
            }
            _ => None,
        };
        Ok(Self {
            rejected: rejection.map(reason),
            more_changes: changes.len() - reported.len(),
            changes: reported,
            payload,
            event,
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
    for change in changes {
        if changed.len() >= most {
            break;
        }
        let kind = match change.operation {
            Operation::Put if *lookups > 0 => {
                *lookups -= 1;
                match was_there(change) {
                    Ok(true) => &mut changed,
                    Ok(false) => &mut came,
                    // Only its place among the others depends on it.
                    Err(AuditError::Storage(error)) if error.is_single_entry() => &mut came,
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
    let name = info.map_or("unknown", |table| table.name());
    let (Some(info), true) = (info, change.operation != Operation::Rule) else {
        return Ok(RowChange {
            table: name,
            key: Vec::new(),
            namespace: change.namespace.clone(),
            operation: "rule",
            fields: Vec::new(),
            more_fields: 0,
        });
    };
    let cover = Cover(redactor);
    let versions = Versions {
        before: match change.index.checked_sub(1) {
            Some(before) => info.row_at(view, &change.key, before, &cover)?,
            None => None,
        },
        after: match change.operation {
            Operation::Put => info.row_at(view, &change.key, change.index, &cover)?,
            _ => None,
        },
    };
    let found = match fields {
        0 => Fields::default(),
        limit => versions.compare(name, limit),
    };
    Ok(RowChange {
        table: name,
        key: info.words(&change.key)?,
        namespace: change.namespace.clone(),
        operation: versions.operation(),
        fields: found.list,
        more_fields: found.more,
    })
}

/// A row on both sides of a change.
pub(super) struct Versions {
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
}

impl Versions {
    /// What changed, with the names of the API.
    pub(super) fn compare(&self, table: &str, limit: usize) -> Fields {
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
    use drover_projections::StorageError;

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
}
