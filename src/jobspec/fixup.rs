//! The special cases of decoding: shorthands, ports, job-level tasks, scaling labels, identities.

use super::decode::Decoder;
use super::tree::Block;
use super::value::JsonObject;
use drover_events::field::Shape;
use serde_json::{Value as Json, json};

/// Runs what a shape needs once its fields are decoded.
pub(super) fn after(
    decoder: &mut Decoder<'_>,
    shape: &'static Shape,
    block: &Block,
    out: &mut JsonObject,
) {
    if let Some(Json::Array(constraints)) = out.get_mut("Constraints") {
        constraints.retain(|c| c["Operand"] != "distinct_hosts" || c["RTarget"] != "false");
    }
    match shape.name {
        "job" => job(block, out),
        "group" => group(decoder, block, out),
        "task" => task(decoder, block, out),
        "constraint" => constraint(out),
        "affinity" => shorthands(out),
        "network" => network(out),
        _ => {}
    }
}

fn take_list(out: &mut JsonObject, key: &str) -> Vec<Json> {
    match out.remove(key) {
        Some(Json::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn job(block: &Block, out: &mut JsonObject) {
    if let Some(label) = block.labels.first() {
        out.entry("ID")
            .or_insert_with(|| Json::String(label.clone()));
    }
    if !out.contains_key("Name")
        && let Some(label) = block.labels.first()
    {
        out.insert("Name".into(), Json::String(label.clone()));
    }
    let single = take_list(out, "@Tasks");
    if !single.is_empty() {
        let groups: Vec<Json> = single
            .into_iter()
            .map(|task| json!({"Name": task["Name"].clone(), "Count": 1, "Tasks": [task]}))
            .chain(take_list(out, "TaskGroups"))
            .collect();
        out.insert("TaskGroups".into(), Json::Array(groups));
    }
    let (vault, secrets) = (out.remove("@Vault"), take_list(out, "@Secrets"));
    for group in out
        .get_mut("TaskGroups")
        .and_then(Json::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(group) = group.as_object_mut() {
            hand_down(group, vault.as_ref(), &secrets);
        }
    }
}

/// Gives a vault block to tasks without one, and appends secrets to every task.
fn hand_down(group: &mut JsonObject, vault: Option<&Json>, secrets: &[Json]) {
    for task in group
        .get_mut("Tasks")
        .and_then(Json::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Some(task) = task.as_object_mut() else {
            continue;
        };
        if let Some(vault) = vault {
            task.entry("Vault").or_insert_with(|| vault.clone());
        }
        if !secrets.is_empty() {
            let list = task
                .entry("Secrets")
                .or_insert_with(|| Json::Array(Vec::new()));
            if let Json::Array(list) = list {
                list.extend(secrets.iter().cloned());
            }
        }
    }
}

fn group(decoder: &mut Decoder<'_>, block: &Block, out: &mut JsonObject) {
    let (vault, secrets) = (out.remove("@Vault"), take_list(out, "@Secrets"));
    hand_down(out, vault.as_ref(), &secrets);
    let Some(Json::Object(scaling)) = out.get_mut("Scaling") else {
        return;
    };
    match scaling.get("Type").and_then(Json::as_str) {
        None | Some("") => {
            scaling.insert("Type".into(), "horizontal".into());
        }
        Some("horizontal") => {}
        Some(other) => {
            let detail = format!("task group scaling policy had invalid type: {other:?}");
            let location = block
                .blocks
                .iter()
                .find(|b| b.name == "scaling")
                .and_then(|b| b.location.clone());
            decoder.problem(location, "Invalid group scaling type", detail);
        }
    }
}

fn task(decoder: &mut Decoder<'_>, block: &Block, out: &mut JsonObject) {
    let mut named = Vec::new();
    for identity in take_list(out, "@Identities") {
        match identity.get("Name").and_then(Json::as_str) {
            None | Some("" | "default") => {
                if out.insert("Identity".into(), identity).is_some() {
                    let detail = "Only one identity block may be the default one.";
                    decoder.problem(
                        block.location.clone(),
                        "Duplicate default identities found",
                        detail,
                    );
                }
            }
            Some(_) => named.push(identity),
        }
    }
    if !named.is_empty() {
        out.insert("Identities".into(), Json::Array(named));
    }
    task_scaling(decoder, block, out);
}

fn task_scaling(decoder: &mut Decoder<'_>, block: &Block, out: &mut JsonObject) {
    let Some(Json::Array(policies)) = out.get_mut("ScalingPolicies") else {
        return;
    };
    let mut seen = Vec::new();
    for policy in policies.iter_mut().filter_map(Json::as_object_mut) {
        let label = policy
            .remove("@Label")
            .and_then(|l| l.as_str().map(str::to_owned))
            .unwrap_or_default();
        let forced = match label.as_str() {
            "cpu" => "vertical_cpu",
            "mem" => "vertical_mem",
            _ => {
                let detail = "scaling policy name must be \"cpu\" or \"mem\"";
                decoder.problem(
                    block.location.clone(),
                    "Invalid scaling policy name",
                    detail,
                );
                continue;
            }
        };
        if seen.contains(&label) {
            let detail = format!("Only one scaling {label:?} block is allowed.");
            decoder.problem(
                block.location.clone(),
                format!("Duplicate scaling {label:?} block"),
                detail,
            );
        }
        let former = policy.insert("Type".into(), forced.into());
        if let Some(former) = former
            .as_ref()
            .and_then(Json::as_str)
            .filter(|s| !s.is_empty() && *s != forced)
        {
            let detail = format!("Invalid policy type, expected {forced:?} but found {former:?}");
            decoder.problem(
                block.location.clone(),
                "Invalid scaling policy type",
                detail,
            );
        }
        seen.push(label);
    }
}

/// `version = ">= 1"` is operator `version` with that value, and so on.
fn shorthands(out: &mut JsonObject) {
    for operator in [
        "version",
        "semver",
        "regexp",
        "set_contains",
        "set_contains_any",
        "set_contains_all",
    ] {
        if let Some(value) = out.remove(&format!("@{operator}")) {
            out.insert("Operand".into(), operator.into());
            out.insert("RTarget".into(), value);
        }
    }
    out.entry("Operand").or_insert_with(|| "=".into());
}

fn constraint(out: &mut JsonObject) {
    let hosts = out.remove("@distinct_hosts");
    let property = out.remove("@distinct_property");
    match hosts {
        Some(Json::Bool(true)) => {
            out.insert("Operand".into(), "distinct_hosts".into());
            out.insert("RTarget".into(), "true".into());
        }
        // A rule that is switched off; dropped where lists are read.
        Some(_) => {
            out.insert("Operand".into(), "distinct_hosts".into());
            out.insert("RTarget".into(), "false".into());
        }
        None => {}
    }
    if let Some(property) = property {
        out.insert("Operand".into(), "distinct_property".into());
        out.insert("LTarget".into(), property);
    }
    shorthands(out);
}

/// Ports with a fixed number are reserved, the others dynamic; both keep their order.
fn network(out: &mut JsonObject) {
    let (mut reserved, mut dynamic) = (Vec::new(), Vec::new());
    for port in take_list(out, "@Ports") {
        let fixed = port.get("Value").and_then(Json::as_i64).unwrap_or(0) > 0;
        if fixed {
            reserved.push(port)
        } else {
            dynamic.push(port)
        }
    }
    if !reserved.is_empty() {
        out.insert("ReservedPorts".into(), Json::Array(reserved));
    }
    if !dynamic.is_empty() {
        out.insert("DynamicPorts".into(), Json::Array(dynamic));
    }
}
