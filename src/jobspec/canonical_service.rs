//! Canonical defaults of services and checks.

use super::canonical::{
    Above, default_text, drop_empty, fill, fill_each, fill_in, object, objects, text,
};
use super::canonical_task::fill_resources;
use super::value::JsonObject;
use drover_events::model::{
    CheckRestart, ConsulGatewayProxy, ConsulIngressListener, LogConfig, Service,
};
use serde_json::Value as Json;

/// Fills a service of a group, or of a task if one is named.
pub(super) fn service(o: &mut JsonObject, above: &Above, group: &str, task: Option<&str>) {
    fill::<Service>(o);
    let base = match task {
        Some(task) => format!("{}-{group}-{task}", above.name),
        None => format!("{}-{group}", above.name),
    };
    default_text(o, "Name", &base);
    let long = format!("{}-{group}-{}", above.name, task.unwrap_or("group"));
    let name = text(o, "Name")
        .replace("${JOB}", &above.name)
        .replace("${TASKGROUP}", group)
        .replace("${TASK}", task.unwrap_or("group"))
        .replace("${BASE}", &long);
    o.insert("Name".into(), name.clone().into());
    let nomad = text(o, "Provider") == "nomad";
    if nomad && !above.id.is_empty() {
        default_text(o, "Namespace", &above.namespace);
    } else {
        default_text(o, "Namespace", "default");
    }
    drop_empty::<Service>(o, |field| field.kind.is_map());
    checks(o, &name);
    if let Some(connect) = object(o, "Connect") {
        fill_connect(connect);
    }
}

fn checks(o: &mut JsonObject, name: &str) {
    let on_update = text(o, "OnUpdate");
    let owner = text(o, "TaskName");
    fill_in::<CheckRestart>(o, "CheckRestart");
    let shared = o.remove("CheckRestart").filter(|r| !r.is_null());
    for check in objects(o, "Checks") {
        default_text(check, "Name", &format!("service: {name:?} check"));
        default_text(check, "OnUpdate", &on_update);
        if !owner.is_empty() {
            default_text(check, "TaskName", &owner);
        }
        for key in [
            "SuccessBeforePassing",
            "FailuresBeforeCritical",
            "FailuresBeforeWarning",
        ] {
            if check.get(key).and_then(Json::as_i64).is_some_and(|n| n < 0) {
                check.insert(key.to_owned(), 0.into());
            }
        }
        merge_restart(check, shared.as_ref());
    }
}

/// A check's restart rule, the service's where the check says nothing.
fn merge_restart(check: &mut JsonObject, shared: Option<&Json>) {
    let Some(shared) = shared.and_then(Json::as_object) else {
        fill_in::<CheckRestart>(check, "CheckRestart");
        return;
    };
    let mut rule = shared.clone();
    if let Some(own) = object(check, "CheckRestart") {
        let is_set = |v: &Json| !v.is_null() && v != &Json::from(0) && v != &Json::from(false);
        rule.extend(
            own.iter()
                .filter(|(_, v)| is_set(v))
                .map(|(k, v)| (k.clone(), v.clone())),
        );
    }
    check.insert("CheckRestart".into(), Json::Object(rule));
}

fn fill_connect(o: &mut JsonObject) {
    if let Some(task) = object(o, "SidecarTask") {
        if let Some(resources) = object(task, "Resources") {
            fill_resources(resources);
        }
        fill_in::<LogConfig>(task, "LogConfig");
    }
    if let Some(gateway) = object(o, "Gateway") {
        fill_in::<ConsulGatewayProxy>(gateway, "Proxy");
        if let Some(ingress) = object(gateway, "Ingress") {
            fill_each::<ConsulIngressListener>(ingress, "Listeners");
        }
    }
}
