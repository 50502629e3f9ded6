//! Rules of a group's networks and ports.

use super::{many, short, when};
use drover_events::model::{NetworkResource, Port, TaskGroup};
use std::collections::BTreeMap;

pub(super) fn check(g: &TaskGroup, errors: &mut Vec<String>) {
    let mut inner = Vec::new();
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut fixed: BTreeMap<(String, i64), String> = BTreeMap::new();
    for network in g.networks.iter() {
        ports(
            network,
            "taskgroup network",
            &mut labels,
            &mut fixed,
            &mut inner,
        );
        extras(network, &mut inner);
    }
    for task in g.tasks.iter() {
        for network in task.resources.iter().flat_map(|r| r.networks.iter()) {
            let owner = format!("task {:?} network", task.name);
            ports(network, &owner, &mut labels, &mut fixed, &mut inner);
        }
    }
    if !inner.is_empty() {
        errors.push(format!(
            "Task group network validation failed: {}",
            many(&inner)
        ));
    }
}

fn ports(
    network: &NetworkResource,
    owner: &str,
    labels: &mut BTreeMap<String, String>,
    fixed: &mut BTreeMap<(String, i64), String>,
    errors: &mut Vec<String>,
) {
    let host = matches!(network.mode.as_str(), "" | "host");
    let all: Vec<&Port> = network
        .reserved_ports
        .iter()
        .chain(network.dynamic_ports.iter())
        .collect();
    for port in all {
        let label = &port.label;
        short(
            errors,
            [("Port label", label), ("Host network", &port.host_network)],
        );
        if let Some(first) = labels.get(label) {
            errors.push(format!("Port label {label} already in use by {first}"));
        } else {
            labels.insert(label.clone(), owner.to_owned());
        }
        if port.value != 0 {
            let key = (port.host_network.clone(), port.value);
            let used = format!("{owner}:{label}");
            match fixed.get(&key) {
                Some(first) if !port.ignore_collision => {
                    errors.push(format!(
                        "Static port {} already reserved by {first}",
                        port.value
                    ));
                }
                _ => {
                    fixed.insert(key, used);
                }
            }
            when(errors, port.value > 65_535, || {
                format!("Port {label} ({}) cannot be greater than 65535", port.value)
            });
            when(errors, port.value < 0, || {
                format!(
                    "Port {label:?} cannot be mapped to negative value {}",
                    port.value
                )
            });
        }
        when(errors, port.to < -1, || {
            format!(
                "Port {label:?} cannot be mapped to negative value {}",
                port.to
            )
        });
        when(errors, port.to > 65_535, || {
            format!(
                "Port {label:?} cannot be mapped to a port ({}) greater than 65535",
                port.to
            )
        });
        when(errors, port.ignore_collision && !host, || {
            format!(
                "Port {label:?} collision may not be ignored on non-host network mode {:?}",
                network.mode
            )
        });
    }
}

fn extras(network: &NetworkResource, errors: &mut Vec<String>) {
    let plain = !network.hostname.contains("${");
    when(
        errors,
        plain && !network.hostname.is_empty() && !dns_name(&network.hostname),
        || "Hostname is not a valid DNS name".into(),
    );
    for (key, value) in network.cni.iter().flat_map(|c| c.args.iter()) {
        when(errors, key.contains(';'), || {
            format!("invalid ';' character in CNI arg key {key:?}")
        });
        when(errors, value.contains(';'), || {
            format!("invalid ';' character in CNI arg value {value:?}")
        });
    }
}

/// RFC 1123: labels of letters, digits and inner dashes.
fn dns_name(name: &str) -> bool {
    name.len() <= 253
        && name.trim_end_matches('.').split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}
