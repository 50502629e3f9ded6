//! Canonical defaults of tasks.

use super::canonical::{Above, Object, default, default_text, object, objects, restart, text};
use super::canonical_service as service;
use serde_json::{Value as Json, json};

const SECOND: i64 = 1_000_000_000;

pub(super) fn task(o: &mut Object, above: &Above, group: &str, group_restart: &Object) {
    let name = text(o, "Name");
    default(o, "KillTimeout", 5 * SECOND);
    default(o, "Resources", json!({}));
    if let Some(resources) = object(o, "Resources") {
        fill_resources(resources);
    }
    logs(o);
    let own = o.get("RestartPolicy").and_then(Json::as_object).cloned();
    o.insert("RestartPolicy".into(), restart(group_restart, own));
    for affinity in objects(o, "Affinities") {
        default(affinity, "Weight", 50);
    }
    if let Some(vault) = object(o, "Vault") {
        fill_vault(vault);
    }
    if let Some(consul) = object(o, "Consul") {
        default_text(consul, "Cluster", "default");
    }
    for artifact in objects(o, "Artifacts") {
        fill_artifact(artifact);
    }
    for template in objects(o, "Templates") {
        fill_template(template);
    }
    for mount in objects(o, "VolumeMounts") {
        default_text(mount, "PropagationMode", "private");
        for key in ["Volume", "Destination", "SELinuxLabel"] {
            default(mount, key, "");
        }
        default(mount, "ReadOnly", false);
    }
    if let Some(plugin) = object(o, "CSIPluginConfig") {
        default_text(plugin, "MountDir", "/csi");
        default_text(plugin, "StagePublishBaseDir", "/local/csi");
        if plugin
            .get("HealthTimeout")
            .and_then(Json::as_i64)
            .unwrap_or(0)
            == 0
        {
            plugin.insert("HealthTimeout".into(), (30 * SECOND).into());
        }
    }
    let empty_lifecycle = o
        .get("Lifecycle")
        .and_then(Json::as_object)
        .is_some_and(|l| {
            text(l, "Hook").is_empty() && l.get("Sidecar").and_then(Json::as_bool) != Some(true)
        });
    if empty_lifecycle {
        o.remove("Lifecycle");
    }
    for policy in objects(o, "ScalingPolicies") {
        default(policy, "Enabled", true);
    }
    for s in objects(o, "Services") {
        service::service(s, above, group, Some(&name));
    }
}

fn logs(o: &mut Object) {
    default(o, "LogConfig", json!({}));
    let Some(logs) = object(o, "LogConfig") else {
        return;
    };
    default(logs, "MaxFiles", 10);
    default(logs, "MaxFileSizeMB", 10);
    let enabled = logs.get("Enabled").and_then(Json::as_bool).unwrap_or(true);
    default(logs, "Disabled", !enabled);
}

pub(super) fn fill_resources(o: &mut Object) {
    let cores = o.get("Cores").and_then(Json::as_i64).unwrap_or(0);
    default(o, "Cores", 0);
    default(o, "CPU", if cores > 0 { 0 } else { 100 });
    default(o, "MemoryMB", 300);
    for device in objects(o, "Devices") {
        default(device, "Count", 1);
        for affinity in objects(device, "Affinities") {
            default(affinity, "Weight", 50);
        }
    }
    if let Some(numa) = object(o, "NUMA") {
        default_text(numa, "Affinity", "none");
    }
}

fn fill_vault(o: &mut Object) {
    default(o, "Env", true);
    default(o, "DisableFile", false);
    default(o, "Namespace", "");
    default_text(o, "Cluster", "default");
    default_text(o, "ChangeMode", "restart");
    default(o, "ChangeSignal", "SIGHUP");
    default(o, "AllowTokenExpiration", false);
}

fn fill_artifact(o: &mut Object) {
    default(o, "GetterSource", "");
    default_text(o, "GetterMode", "any");
    default(o, "GetterInsecure", false);
    if o.get("RelativeDest").is_none_or(Json::is_null) {
        let source = text(o, "GetterSource");
        let dest = match text(o, "GetterMode").as_str() {
            "file" => format!("local/{}", source.rsplit('/').next().unwrap_or("")),
            _ => "local/".to_owned(),
        };
        o.insert("RelativeDest".into(), dest.into());
    }
    for key in ["GetterOptions", "GetterHeaders"] {
        if o.get(key)
            .and_then(Json::as_object)
            .is_some_and(serde_json::Map::is_empty)
        {
            o.remove(key);
        }
    }
}

fn fill_template(o: &mut Object) {
    for key in ["SourcePath", "DestPath", "EmbeddedTmpl"] {
        default(o, key, "");
    }
    default_text(o, "ChangeMode", "restart");
    let mode = text(o, "ChangeMode");
    default(
        o,
        "ChangeSignal",
        if mode == "signal" { "SIGHUP" } else { "" },
    );
    let signal = text(o, "ChangeSignal").to_uppercase();
    o.insert("ChangeSignal".into(), signal.into());
    if let Some(script) = object(o, "ChangeScript") {
        default(script, "Command", "");
        default(script, "Args", json!([]));
        default(script, "Timeout", 5 * SECOND);
        default(script, "FailOnError", false);
        default(script, "RunOnFirstRender", false);
    }
    default(o, "Once", false);
    default(o, "Splay", 5 * SECOND);
    default(o, "Perms", "0644");
    default(o, "LeftDelim", "{{");
    default(o, "RightDelim", "}}");
    default(o, "Envvars", false);
    default(o, "ErrMissingKey", false);
    default(o, "VaultGrace", 0);
    if let Some(wait) = object(o, "Wait") {
        default(wait, "Min", 5 * SECOND);
        default(wait, "Max", 4 * 60 * SECOND);
    }
}
