//! What an event did to a thing, in a few words, for cause chains.

use std::borrow::Cow;

use drover_events::mask::NoSecrets;
use drover_projections::changes::{Change, Operation};
use drover_projections::tables::registry;
use drover_projections::{Table, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AuditError;
use super::entry::{RowSides, Versions, as_api_shows, words};
use drover_projections::tables::{
    Allocs, Deployments, Evals, JobSummaries, JobVersions, Jobs, Namespaces, NodePools, NodeStates,
    Nodes, ScalingPolicies, Services, Variables,
};

/// A thing that an event touched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Touched {
    /// Its type.
    #[serde(rename = "Type")]
    pub kind: Cow<'static, str>,
    /// Its id, after its namespace where it has one.
    #[serde(rename = "ID")]
    pub id: String,
    /// What happened to it.
    pub what: String,
    /// What happened to its tasks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskReport>,
}

/// Something that happened to a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskReport {
    pub task: String,
    /// What sort of thing.
    #[serde(rename = "Type")]
    pub kind: String,
    /// When, by the client's clock, Unix nanoseconds.
    pub time: i64,
    /// In words.
    pub message: String,
}

impl Touched {
    /// A thing of which it cannot be read what happened to it.
    pub(super) fn unreadable(kind: &'static str, id: String) -> Self {
        Self {
            kind: kind.into(),
            id,
            what: "unreadable".to_owned(),
            tasks: Vec::new(),
        }
    }
}

/// What an event did to the thing of a change; none for rows that say nothing to people.
pub(super) fn touched(view: &View, change: &Change) -> Result<Option<Touched>, AuditError> {
    let Some(info) = registry().table(change.table) else {
        return Ok(None);
    };
    let kind = match change.table {
        Jobs::ID => "job",
        Evals::ID => "evaluation",
        Allocs::ID => "allocation",
        Deployments::ID => "deployment",
        Nodes::ID | NodeStates::ID => "node",
        NodePools::ID => "node pool",
        Namespaces::ID => "namespace",
        Variables::ID => "variable",
        Services::ID => "service",
        JobVersions::ID | JobSummaries::ID | ScalingPolicies::ID => return Ok(None),
        _ if change.topic.is_none() => return Ok(None),
        _ => info.name(),
    };
    if change.operation == Operation::Rule {
        let what = "deleted by a rule".to_owned();
        return Ok(Some(Touched {
            kind: kind.into(),
            what,
            ..Touched::default()
        }));
    }
    let id = words(info, &change.key)?.join("/");
    let after = (change.operation == Operation::Put).then_some(change.index);
    let sides = [change.index.checked_sub(1), after];
    let sides = RowSides::read(view, info, &change.key, sides, &NoSecrets)?;
    let Ok(Versions { before, after }) = sides.both() else {
        return Ok(Some(Touched::unreadable(kind, id)));
    };
    let shown = |row: Option<Value>| row.map(|row| as_api_shows(info.name(), &row).clone());
    let versions = Versions {
        before: shown(before),
        after: shown(after),
    };
    Ok(Some(Touched {
        kind: kind.into(),
        id,
        what: what(change.table, &versions),
        tasks: tasks(&versions),
    }))
}

fn text<'a>(row: &'a Option<Value>, name: &str) -> &'a str {
    let field = row.as_ref().and_then(|row| row.get(name));
    field.and_then(Value::as_str).unwrap_or_default()
}

fn what(table: u16, versions: &Versions) -> String {
    let (before, after) = (&versions.before, &versions.after);
    if versions.operation() == "delete" {
        return "deleted".to_owned();
    }
    if before.is_none() {
        return match table {
            Evals::ID => format!(
                "{}, because of {}",
                text(after, "Status"),
                text(after, "TriggeredBy")
            ),
            Allocs::ID => format!(
                "{} placed on {}",
                text(after, "Name"),
                [text(after, "NodeName"), text(after, "NodeID")]
                    .into_iter()
                    .find(|name| !name.is_empty())
                    .unwrap_or_default()
            ),
            Jobs::ID => format!("registered, {}", text(after, "Status")),
            Deployments::ID => text(after, "Status").to_owned(),
            _ => "created".to_owned(),
        };
    }
    let mut words = Vec::new();
    let fields: &[(&str, &str)] = match table {
        Allocs::ID => &[("ClientStatus", ""), ("DesiredStatus", "desired ")],
        Nodes::ID => &[("SchedulingEligibility", "")],
        _ => &[("Status", "")],
    };
    for (name, label) in fields {
        let (old, new) = (text(before, name), text(after, name));
        if old != new {
            words.push(format!("{label}{old} -> {new}"));
        }
    }
    let version = |row: &Option<Value>| row.as_ref().and_then(|row| row.get("Version")?.as_u64());
    if let (Jobs::ID, Some(old), Some(new)) = (table, version(before), version(after))
        && old != new
    {
        words.insert(0, format!("version {old} -> {new}"));
    }
    let described = text(after, "StatusDescription");
    if described != text(before, "StatusDescription") && !described.is_empty() {
        words.push(described.to_owned());
    }
    let healthy = |row: &Option<Value>| {
        let status = row.as_ref().and_then(|row| row.get("DeploymentStatus"));
        status.and_then(|status| status.get("Healthy")?.as_bool())
    };
    if healthy(before) != healthy(after) {
        words.push(match healthy(after) {
            Some(true) => "healthy".to_owned(),
            Some(false) => "unhealthy".to_owned(),
            None => "health unknown".to_owned(),
        });
    }
    match words.is_empty() {
        true => "changed".to_owned(),
        false => words.join(", "),
    }
}

/// The events of tasks that are new on the one side.
fn tasks(versions: &Versions) -> Vec<TaskReport> {
    let states = |row: &Option<Value>| {
        let states = row.as_ref().and_then(|row| row.get("TaskStates"));
        states
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let (before, after) = (states(&versions.before), states(&versions.after));
    let events = |state: Option<&Value>| {
        let list = state.and_then(|state| state.get("Events")?.as_array());
        list.cloned().unwrap_or_default()
    };
    let mut added = Vec::new();
    for (task, state) in &after {
        let known = events(before.get(task));
        for event in events(Some(state)) {
            if known.contains(&event) {
                continue;
            }
            let event = Some(event);
            let message = [text(&event, "DisplayMessage"), text(&event, "Message")];
            added.push(TaskReport {
                task: task.clone(),
                kind: text(&event, "Type").to_owned(),
                time: event
                    .as_ref()
                    .and_then(|e| e.get("Time")?.as_i64())
                    .unwrap_or(0),
                message: message
                    .into_iter()
                    .find(|m| !m.is_empty())
                    .unwrap_or("")
                    .to_owned(),
            });
        }
    }
    added.sort_by_key(|event| event.time);
    added
}

#[cfg(test)]
mod tests {
    use drover_events::model::Namespace;
    use drover_events::namespace::NamespacesUpserted;
    use serde_json::json;

    use super::*;
    use crate::reactors::testing::{Direct, spoil};

    #[test]
    fn a_change_is_told_in_few_words() {
        let words = |table, before: Value, after: Value| {
            let side = |value: Value| Some(value).filter(|value| !value.is_null());
            let versions = Versions {
                before: side(before),
                after: side(after),
            };
            what(table, &versions)
        };
        let eval = |status: &str| json!({"Status": status, "TriggeredBy": "job-register"});
        assert_eq!(
            words(Evals::ID, Value::Null, eval("pending")),
            "pending, because of job-register"
        );
        assert_eq!(
            words(Evals::ID, eval("pending"), eval("complete")),
            "pending -> complete"
        );
        assert_eq!(words(Evals::ID, eval("pending"), Value::Null), "deleted");
        let job = |version, status: &str| json!({"Version": version, "Status": status});
        assert_eq!(
            words(Jobs::ID, job(0, "running"), job(1, "pending")),
            "version 0 -> 1, running -> pending"
        );
        let alloc = |client: &str, healthy: Value| {
            json!({"ClientStatus": client, "DesiredStatus": "run",
                "DeploymentStatus": {"Healthy": healthy}})
        };
        assert_eq!(
            words(
                Allocs::ID,
                alloc("pending", Value::Null),
                alloc("running", json!(true))
            ),
            "pending -> running, healthy"
        );
    }

    #[test]
    fn a_thing_whose_row_cannot_be_read_is_shown_as_unreadable() {
        let server = Direct::new();
        let namespace = Namespace {
            name: "space".to_owned(),
            ..Namespace::default()
        };
        let (index, _) = server.apply(NamespacesUpserted {
            namespaces: vec![namespace],
        });
        let key = "space".to_owned();
        let server = server.reopened(|database| spoil::<Namespaces>(database, &key));
        let view = server.projections.view();
        let changes = view.changes(index).next().unwrap().unwrap();
        let mut changes = changes.iter();
        let change = changes.find(|change| change.table == Namespaces::ID);
        let thing = touched(&view, change.unwrap()).unwrap();
        let unreadable = Touched::unreadable("namespace", key);
        assert_eq!(thing, Some(unreadable));
    }

    #[test]
    fn only_new_events_of_tasks_are_told_in_the_order_of_time() {
        let event = |kind: &str, time: i64| json!({"Type": kind, "Time": time, "Message": "m"});
        let row = |events: Value| Some(json!({"TaskStates": {"t": {"Events": events}}}));
        let versions = Versions {
            before: row(json!([event("Received", 1)])),
            after: row(json!([
                event("Received", 1),
                event("Started", 3),
                event("Setup", 2)
            ])),
        };
        let shown: Vec<_> = tasks(&versions)
            .into_iter()
            .map(|event| (event.task, event.kind, event.time, event.message))
            .collect();
        let one = |kind: &str, time| ("t".to_owned(), kind.to_owned(), time, "m".to_owned());
        assert_eq!(shown, [one("Setup", 2), one("Started", 3)]);
    }
}
