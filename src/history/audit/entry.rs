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

/// Rows of an event of which it is looked up whether they were there before; those behind count as
/// ones that came.
const CLASSIFIED: usize = 1_024;

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
    /// The entry of an event, with the rows that it changed.
    pub(super) fn new(
        (view, redactor): (&View, &Redactor),
        event: Recorded,
        rejection: Option<&Rejection>,
        changes: &[Change],
        (detail, known): (Detail, Option<&ObjectHistory>),
    ) -> Result<Self, AuditError> {
        let wanted = |change: &&Change| {
            let mine =
                |known: &ObjectHistory| known.rows.contains(&(change.table, change.key.clone()));
            detail.all_changes || known.is_none_or(mine)
        };
        let wanted = changes.iter().filter(wanted).collect();
        let mut reported = Vec::new();
        for change in selected(view, wanted, detail.changes)? {
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
    view: &View,
    changes: Vec<&'a Change>,
    most: usize,
) -> Result<Vec<&'a Change>, AuditError> {
    if changes.len() <= most {
        return Ok(changes);
    }
    let (mut changed, mut came, mut went) = (Vec::new(), Vec::new(), Vec::new());
    let mut looks = CLASSIFIED;
    for change in changes {
        if changed.len() >= most {
            break;
        }
        let kind = match change.operation {
            Operation::Put if looks > 0 => {
                looks -= 1;
                match was_there(view, change)? {
                    true => &mut changed,
                    false => &mut came,
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
