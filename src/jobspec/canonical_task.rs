//! Canonical defaults of tasks.

use super::canonical::{
    Above, default, drop_empty, fill, fill_each, fill_in, object, objects, restart, text,
};
use super::canonical_service as service;
use super::value::JsonObject;
use drover_events::model::{
    Affinity, ChangeScript, Consul, LogConfig, Numa, RequestedDevice, Resources, ScalingPolicy,
    Task, TaskArtifact, TaskCsiPluginConfig, Template, Vault, VolumeMount, WaitConfig,
};
use serde_json::{Value as Json, json};

pub(super) fn task(o: &mut JsonObject, above: &Above, group: &str, group_restart: &JsonObject) {
    fill::<Task>(o);
    let name = text(o, "Name");
    default(o, "Resources", json!({}));
    if let Some(resources) = object(o, "Resources") {
        fill_resources(resources);
    }
    logs(o);
    let own = o.get("RestartPolicy").and_then(Json::as_object).cloned();
    o.insert("RestartPolicy".into(), restart(group_restart, own));
    fill_each::<Affinity>(o, "Affinities");
    fill_in::<Vault>(o, "Vault");
    fill_in::<Consul>(o, "Consul");
    for artifact in objects(o, "Artifacts") {
        fill_artifact(artifact);
    }
    for template in objects(o, "Templates") {
        fill_template(template);
    }
    fill_each::<VolumeMount>(o, "VolumeMounts");
    fill_in::<TaskCsiPluginConfig>(o, "CSIPluginConfig");
    let empty_lifecycle = o
        .get("Lifecycle")
        .and_then(Json::as_object)
        .is_some_and(|l| {
            text(l, "Hook").is_empty() && l.get("Sidecar").and_then(Json::as_bool) != Some(true)
        });
    if empty_lifecycle {
        o.remove("Lifecycle");
    }
    fill_each::<ScalingPolicy>(o, "ScalingPolicies");
    for s in objects(o, "Services") {
        service::service(s, above, group, Some(&name));
    }
}

fn logs(o: &mut JsonObject) {
    default(o, "LogConfig", json!({}));
    let Some(logs) = object(o, "LogConfig") else {
        return;
    };
    fill::<LogConfig>(logs);
    let enabled = logs.get("Enabled").and_then(Json::as_bool).unwrap_or(true);
    default(logs, "Disabled", !enabled);
}

pub(super) fn fill_resources(o: &mut JsonObject) {
    fill::<Resources>(o);
    let cores = o.get("Cores").and_then(Json::as_i64).unwrap_or(0);
    default(o, "CPU", if cores > 0 { 0 } else { 100 });
    for device in objects(o, "Devices") {
        fill::<RequestedDevice>(device);
        fill_each::<Affinity>(device, "Affinities");
    }
    fill_in::<Numa>(o, "NUMA");
}

fn fill_artifact(o: &mut JsonObject) {
    fill::<TaskArtifact>(o);
    if o.get("RelativeDest").is_none_or(Json::is_null) {
        let source = text(o, "GetterSource");
        let dest = match text(o, "GetterMode").as_str() {
            "file" => format!("local/{}", source.rsplit('/').next().unwrap_or("")),
            _ => "local/".to_owned(),
        };
        o.insert("RelativeDest".into(), dest.into());
    }
    drop_empty::<TaskArtifact>(o, |field| field.kind.is_map());
}

fn fill_template(o: &mut JsonObject) {
    fill::<Template>(o);
    let mode = text(o, "ChangeMode");
    default(
        o,
        "ChangeSignal",
        if mode == "signal" { "SIGHUP" } else { "" },
    );
    let signal = text(o, "ChangeSignal").to_uppercase();
    o.insert("ChangeSignal".into(), signal.into());
    fill_in::<ChangeScript>(o, "ChangeScript");
    fill_in::<WaitConfig>(o, "Wait");
}
