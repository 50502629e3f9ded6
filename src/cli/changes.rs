//! How events and what they changed are printed for people.

use super::answer;
use super::out::one_line;
use super::show::counted;
use crate::history::audit::{Field, RowChange};
use drover_events::gojson::Base64;
use drover_events::{Actor, ActorKind};
use serde::Deserialize;
use serde_json::Value as Json;
use std::borrow::Cow;

/// Longer values are cut, unless the output is verbose.
const WIDE: usize = 100;
/// Values that differ are shown whole up to here.
const WHOLE: usize = 2_000;
/// Fields that change with every write and say nothing new.
const NOISE: [&str; 5] = [
    "ModifyIndex",
    "ModifyTime",
    "JobModifyIndex",
    "AllocModifyIndex",
    "CreateIndex",
];

/// An event, as the audit trail reports it: the name of its kind and what its actor is may be ones
/// that this command does not know.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct AuditEntry {
    pub(super) index: u64,
    /// Unix nanoseconds.
    pub(super) time: i64,
    pub(super) kind: String,
    /// The actor that did it; none for Raft's own events.
    pub(super) actor: Option<Who>,
    #[serde(rename = "RequestID")]
    pub(super) request_id: String,
    /// The index of the event that it followed from.
    pub(super) cause: Option<u64>,
    /// `applied`, or `refused`: it changed nothing.
    pub(super) outcome: String,
    pub(super) reason: String,
    /// Why something of it cannot be read; empty where all can.
    pub(super) unreadable: String,
    pub(super) changes: Vec<RowChange>,
    pub(super) more_changes: u64,
}

impl AuditEntry {
    /// An event as it came; for one that cannot be read, its index and that it is unreadable.
    pub(super) fn reported(raw: Json) -> Self {
        let index = answer::index(&raw).unwrap_or_default();
        answer::of(raw).unwrap_or_else(|error| Self {
            index,
            kind: answer::unreadable(&error),
            actor: Some(Who::unknown()),
            ..Self::default()
        })
    }
}

/// An actor. Its kind is the text that came: an agent of another version may know kinds that this
/// command does not.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Who {
    kind: String,
    id: String,
    name: String,
    addr: String,
}

impl Who {
    /// The actor of an event that cannot be read.
    pub(super) fn unknown() -> Self {
        Self {
            kind: "?".to_owned(),
            ..Self::default()
        }
    }
}

impl From<&Actor> for Who {
    fn from(actor: &Actor) -> Self {
        Self {
            kind: actor.kind.name().to_owned(),
            id: actor.id.clone(),
            name: actor.name.clone(),
            addr: actor.addr.clone(),
        }
    }
}

/// An actor in a few words: its kind, and the name or the short id that says most.
pub(super) fn who(actor: Option<&Who>) -> String {
    let Some(actor) = actor else {
        return "raft".to_owned();
    };
    let kind = match actor.kind.as_str() {
        "" => ActorKind::default().name(),
        kind => kind,
    };
    let short: String = actor.id.chars().take(8).collect();
    let detail = [&actor.name, &short, &actor.addr];
    one_line(&match detail.into_iter().find(|text| !text.is_empty()) {
        Some(detail) => format!("{kind} {detail}"),
        None => kind.to_owned(),
    })
}

/// A changed row: what happened to it, and its fields below, indented. The fields of a row that was
/// removed are shown only where the output is verbose.
pub(super) fn row(change: &RowChange, verbose: bool, indent: &str) -> Vec<String> {
    let place = match change.key.is_empty() {
        true => change.namespace.clone(),
        false => change.key.join("/"),
    };
    let table = &change.table;
    let head = format!("{} {table} {place}", verb(change));
    let mut lines = vec![format!("{indent}{}", one_line(&head))];
    if !change.unreadable.is_empty() {
        let why = one_line(&change.unreadable);
        lines.push(format!("{indent}    cannot be read: {why}"));
    }
    let gone = change.operation == "delete";
    if gone && !verbose {
        return lines;
    }
    for field in &change.fields {
        if !verbose && NOISE.contains(&field.path.as_str()) {
            continue;
        }
        lines.push(format!("{indent}    {}", one_line(&one(field, verbose))));
    }
    match change.more_fields {
        0 => {}
        more => lines.push(format!("{indent}    and {}", counted(more, "more field"))),
    }
    lines
}

fn verb(change: &RowChange) -> &'static str {
    match &*change.operation {
        "insert" => "+",
        "delete" => "-",
        "rule" => "- by rule:",
        "unreadable" => "?",
        _ => "~",
    }
}

fn one(field: &Field, verbose: bool) -> String {
    let path = &field.path;
    if field.secret {
        return format!("{path}: changed (secret)");
    }
    let wide = match (&field.before, &field.after) {
        _ if verbose => usize::MAX,
        (None, _) | (_, None) => WIDE,
        _ => WHOLE,
    };
    let side = |value: &Json| match value {
        Json::String(text) => cut(format!("{:?}", clear(path, text)), wide),
        other => cut(other.to_string(), wide),
    };
    let sides = [&field.before, &field.after].map(Option::as_ref);
    match sides.map(|value| value.map(side)) {
        [None, Some(after)] => format!("{path}: {after}"),
        [Some(before), None] => format!("{path}: {before} -> {}", nothing(field.before.as_ref())),
        [Some(before), Some(after)] => format!("{path}: {before} -> {after}"),
        [None, None] => format!("{path}: changed"),
    }
}

/// What a field is that says nothing any more: rows hold no zeros.
fn nothing(before: Option<&Json>) -> &'static str {
    match before {
        Some(Json::Bool(_)) => "false",
        Some(Json::Number(_)) => "0",
        Some(Json::Array(_)) => "[]",
        _ => "(removed)",
    }
}

/// Bytes that are a text are shown as text: what a job was dispatched with.
fn clear<'a>(path: &str, value: &'a str) -> Cow<'a, str> {
    let reported = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).ok()?;
        let plain = |c: char| !c.is_control() || c.is_whitespace();
        text.chars().all(plain).then_some(text)
    };
    let bytes = (path == "Payload").then(|| Base64::decode(value)).flatten();
    bytes
        .and_then(reported)
        .map_or(Cow::Borrowed(value), Cow::Owned)
}

fn cut(text: String, wide: usize) -> String {
    if text.chars().count() <= wide {
        return text;
    }
    let head: String = text.chars().take(wide).collect();
    format!("{head}...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::audit::Entry;
    use drover_events::namespace::NamespacesDeleted;
    use drover_events::{Envelope, EventId, EventKind, Recorded};
    use serde_json::json;

    /// A caller of whom all is known that is shown.
    fn deploy() -> Actor {
        Actor {
            kind: ActorKind::Token,
            id: "0123".to_owned(),
            name: "deploy".to_owned(),
            addr: "10.0.0.7".to_owned(),
            ..Actor::default()
        }
    }

    #[test]
    fn every_field_of_an_event_that_the_audit_trail_reports_is_read() {
        let envelope = Envelope {
            time: 5,
            id: EventId([1; 16]),
            actor: deploy(),
            request_id: "request".to_owned(),
            cause: Some(6),
            trace: String::new(),
            guards: Vec::new(),
            event: NamespacesDeleted { names: Vec::new() }.into(),
        };
        let change = RowChange {
            table: "namespaces".into(),
            ..RowChange::default()
        };
        let reported = Entry {
            kind: EventKind::NamespacesDeleted.name(),
            event: Recorded {
                index: 7,
                term: 3,
                kind: EventKind::NamespacesDeleted,
                time: 5,
                envelope: Some(envelope),
            },
            rejected: Some("it has jobs".to_owned()),
            unreadable: Some("it is damaged".to_owned()),
            changes: vec![change.clone()],
            more_changes: 4,
            payload: None,
        };
        let reported = serde_json::to_value(reported).unwrap();
        assert_eq!(answer::index(&reported), Some(7));
        let AuditEntry {
            index,
            time,
            kind,
            actor,
            request_id,
            cause,
            outcome,
            reason,
            unreadable,
            changes,
            more_changes,
        } = answer::of(reported).unwrap();
        assert_eq!((index, time, cause, more_changes), (7, 5, Some(6), 4));
        assert_eq!((&*kind, &*request_id), ("NamespacesDeleted", "request"));
        assert_eq!((&*outcome, &*reason), ("refused", "it has jobs"));
        assert_eq!((&*unreadable, changes), ("it is damaged", vec![change]));
        let Who {
            kind,
            id,
            name,
            addr,
        } = actor.unwrap();
        assert_eq!(
            [kind, id, name, addr],
            ["token", "0123", "deploy", "10.0.0.7"]
        );
    }

    #[test]
    fn the_actor_of_a_change_is_shown_whatever_its_kind() {
        for (actor, reported) in [
            (
                json!({"kind": "robot", "id": "0123456789"}),
                "robot 01234567",
            ),
            (
                json!({"kind": "token", "name": "deploy", "id": "7"}),
                "token deploy",
            ),
            (json!({"addr": "10.0.0.7"}), "anonymous 10.0.0.7"),
            (Json::Null, "raft"),
        ] {
            let entry =
                AuditEntry::reported(json!({"Index": 7, "Kind": "JobRegistered", "Actor": actor}));
            assert_eq!(entry.kind, "JobRegistered");
            assert_eq!(who(entry.actor.as_ref()), reported);
        }
        let own = Actor::server("", "scheduler");
        assert_eq!(who(Some(&Who::from(&own))), "server scheduler");
        let unread = AuditEntry::reported(json!({"Index": 8, "Kind": {}}));
        let reported = "unreadable: Kind: invalid type";
        assert!(unread.kind.starts_with(reported), "{}", unread.kind);
        assert_eq!(
            (unread.index, who(unread.actor.as_ref())),
            (8, "?".to_owned())
        );
    }

    #[test]
    fn what_others_named_ends_no_line() {
        let actor = json!({"kind": "token", "name": "a\n       9  JobRegistered"});
        let actor: Who = answer::of(actor).unwrap();
        assert_eq!(who(Some(&actor)), "token a\\u{a}       9  JobRegistered");
        let change = json!({
            "Table": "jobs", "Key": ["default", "a\nb"], "Operation": "update",
            "Fields": [{"Path": "Meta.x\ny", "Before": "1", "After": "2"}],
        });
        let lines = row(&answer::of(change).unwrap(), false, "");
        let wanted = [r"~ jobs default/a\u{a}b", r#"    Meta.x\u{a}y: "1" -> "2""#];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn of_a_row_that_cannot_be_read_it_is_shown_which_one_and_why() {
        let change = answer::of(json!({
            "Table": "jobs", "Key": ["default", "web"], "Operation": "unreadable",
            "Unreadable": "a row of jobs is damaged",
        }));
        let lines = row(&change.unwrap(), false, "  ");
        let why = "      cannot be read: a row of jobs is damaged";
        assert_eq!(lines, ["  ? jobs default/web", why]);
    }

    #[test]
    fn a_row_is_told_without_noise() {
        let change = answer::of(json!({
            "Table": "jobs", "Key": ["default", "web"], "Operation": "update",
            "Fields": [
                {"Path": "ModifyIndex", "Before": 1, "After": 2},
                {"Path": "Status", "Before": "pending", "After": "running"},
                {"Path": "SecretID", "Secret": true},
                {"Path": "Meta", "After": {"a": "x".repeat(200)}},
                {"Path": "Stop", "Before": true},
                {"Path": "Payload", "Before": "aGVsbG8=", "After": "/w=="},
                {"Path": "Command", "Before": "a".repeat(300), "After": "b"},
                {"Path": "Region", "Before": "x"},
            ],
            "MoreFields": 3,
        }));
        let change: RowChange = change.unwrap();
        let lines = row(&change, false, "  ");
        assert_eq!(lines[0], "  ~ jobs default/web");
        assert_eq!(lines[1], r#"      Status: "pending" -> "running""#);
        assert_eq!(lines[2], "      SecretID: changed (secret)");
        assert!(lines[3].ends_with("xxx..."), "{}", lines[3]);
        assert_eq!(lines[4], "      Stop: true -> false");
        assert_eq!(lines[5], r#"      Payload: "hello" -> "/w==""#);
        let whole = format!("{:?} -> \"b\"", "a".repeat(300));
        assert!(lines[6].ends_with(&whole), "{}", lines[6]);
        assert_eq!(lines[7], r#"      Region: "x" -> (removed)"#);
        assert_eq!(lines[8], "      and 3 more fields");
        assert!(row(&change, true, "")[1].contains("ModifyIndex"));
        let change = RowChange {
            more_fields: 1,
            ..change
        };
        assert_eq!(row(&change, false, "")[8], "    and 1 more field");
        let gone = RowChange {
            operation: "delete".into(),
            ..change
        };
        assert_eq!(row(&gone, false, ""), ["- jobs default/web"]);
        assert!(row(&gone, true, "").len() > 8, "all of it on request");
    }
}
