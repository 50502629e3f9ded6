//! Rules of services, of groups and of tasks.

use super::{many, service_check, short, when};
use drover_events::model::names::tags_too_long;
use drover_events::model::{NetworkResource, Service, Task, TaskGroup};
use std::collections::{BTreeMap, BTreeSet};

/// Services of a group, and what must hold over all services in it.
pub(super) fn group(g: &TaskGroup, errors: &mut Vec<String>) {
    together(g, errors);
    for (i, s) in g.services.iter().enumerate() {
        let mut inner = Vec::new();
        one(s, &mut inner);
        if !inner.is_empty() {
            let text = many(&inner);
            errors.push(format!("Service[{i}] {} validation failed: {text}", s.name));
        }
        when(errors, s.address_mode == "driver", || {
            format!(
                "service {:?} cannot use address_mode=\"driver\", only services defined in a \
                 \"task\" block can use this mode",
                s.name
            )
        });
        for check in s.checks.iter() {
            let (task, name) = (&check.task_name, &check.name);
            let unknown = !task.is_empty() && !g.tasks.iter().any(|t| t.name == *task);
            when(errors, unknown, || {
                format!("Check {name} invalid: refers to non-existent task {task}")
            });
            let homeless = task.is_empty() && s.task_name.is_empty();
            when(errors, check.r#type == "script" && homeless, || {
                let service = &s.name;
                format!("Service [{service}]->{name} or Check {name} must specify task parameter")
            });
        }
        connect(s, g, errors);
    }
    let networks: Vec<&NetworkResource> = g.networks.iter().collect();
    ports(&g.services, &networks, errors);
}

/// What must hold over all services in a group.
fn together(g: &TaskGroup, errors: &mut Vec<String>) {
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    let mut providers = BTreeSet::new();
    let of_tasks = g
        .tasks
        .iter()
        .flat_map(|t| t.services.iter().map(move |s| (Some(t), s)));
    for (task, s) in g.services.iter().map(|s| (None, s)).chain(of_tasks) {
        let owner = task.map_or("", |t| t.name.as_str());
        if !seen.insert((&s.name, &s.port_label, owner)) {
            twice.insert(s.name.clone());
        }
        providers.insert(&s.provider);
        when(
            errors,
            task.is_some() && !s.task_name.is_empty() && s.task_name != owner,
            || {
                format!(
                    "Service {} is invalid: may only specify task the service belongs to, got {:?}",
                    s.name, s.task_name
                )
            },
        );
    }
    when(errors, !twice.is_empty(), || {
        let names = twice.iter().cloned().collect::<Vec<_>>().join(", ");
        format!("Services are not unique: {names}")
    });
    when(errors, providers.len() > 1, || {
        "Multiple service providers used: task group services must use the same provider".into()
    });
}

fn connect(s: &Service, g: &TaskGroup, errors: &mut Vec<String>) {
    let Some(connect) = &s.connect else { return };
    let kinds = [
        connect.native,
        connect.sidecar_service.is_some(),
        connect.gateway.is_some(),
    ];
    if kinds.iter().filter(|k| **k).count() != 1 {
        errors.push(
            "Consul Connect must be exclusively native, make use of a sidecar, or represent a \
                Gateway"
                .into(),
        );
        return;
    }
    when(errors, s.name.chars().any(char::is_uppercase), || {
        format!(
            "Consul Connect service name {:?} in group {:?} must not contain uppercase characters",
            s.name, g.name
        )
    });
    if connect.native {
        when(errors, s.task_name.is_empty(), || {
            format!(
                "Service {} is Connect Native and requires setting the task",
                s.name
            )
        });
        when(errors, s.port_label.is_empty(), || {
            format!(
                "Service {} is Connect Native and requires setting the port",
                s.name
            )
        });
        return;
    }
    let (what, modes): (_, &[&str]) = if connect.gateway.is_some() {
        ("connect gateway", &["bridge", "host"])
    } else {
        ("connect sidecar", &["bridge"])
    };
    let [network] = &g.networks[..] else {
        errors.push(format!(
            "{what}: must have exactly one network for Consul Connect: group {:?} has {} networks",
            g.name,
            g.networks.len()
        ));
        return;
    };
    let mode = network.mode.as_str();
    when(
        errors,
        !modes.contains(&mode) && !mode.starts_with("cni/"),
        || {
            let all: Vec<String> = modes.iter().map(|m| format!("{m:?}")).collect();
            let joined = match all.as_slice() {
                [one] => format!("{one} or \"cni/*\""),
                many => format!("{}, or \"cni/*\"", many.join(", ")),
            };
            format!(
                "{what}: invalid network mode for Consul Connect: group {:?} uses network mode \
                    {mode:?}; must be {joined}",
                g.name
            )
        },
    );
}

/// Services of a task.
pub(super) fn task(t: &Task, g: &TaskGroup, errors: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for s in t.services.iter() {
        let mut inner = Vec::new();
        one(s, &mut inner);
        let name = &s.name;
        if !inner.is_empty() {
            errors.push(format!(
                "service {name:?} validation failed: {}",
                many(&inner)
            ));
        }
        when(errors, s.address_mode == "alloc", || {
            format!(
                "service {name:?} cannot use address_mode=\"alloc\", only services defined in a \
                 \"group\" block can use this mode"
            )
        });
        when(errors, s.connect.is_some(), || {
            format!(
                "service {name:?} cannot have \"connect\" block, only services defined in a \
                 \"group\" block can"
            )
        });
        when(errors, !seen.insert((&s.name, &s.port_label)), || {
            format!("service {name:?} is duplicate")
        });
        let mut checks = BTreeSet::new();
        for check in s.checks.iter() {
            when(errors, !checks.insert(&check.name), || {
                format!("check {:?} is duplicate", check.name)
            });
        }
    }
    if t.kind.starts_with("connect-") {
        when(errors, !t.services.is_empty(), || {
            "Connect proxy task must not have a service block".into()
        });
        when(errors, t.leader, || {
            "Connect proxy task must not have leader set".into()
        });
    }
    let of_task = t.resources.iter().flat_map(|r| r.networks.iter());
    let networks: Vec<&NetworkResource> = g.networks.iter().chain(of_task).collect();
    ports(&t.services, &networks, errors);
}

/// Every label that a service or check names must be a port's: it would be registered at no port.
fn ports(services: &[Service], networks: &[&NetworkResource], errors: &mut Vec<String>) {
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for s in services {
        // An exposed check has its port made.
        let checks = s.checks.iter().filter(|check| !check.expose);
        let of_checks = checks.map(|c| c.port_label.as_str());
        for label in of_checks
            .chain([s.port_label.as_str()])
            .filter(|l| is_label(l))
        {
            wanted.entry(label).or_default().insert(&s.name);
        }
    }
    for (label, users) in wanted {
        let known = networks
            .iter()
            .flat_map(|n| n.reserved_ports.iter().chain(n.dynamic_ports.iter()))
            .any(|p| p.label == label);
        when(errors, !known, || {
            let users = users.into_iter().collect::<Vec<_>>().join(", ");
            format!("port label {label:?} referenced by services {users} does not exist")
        });
    }
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.parse::<u16>().is_err() && !text.contains("${")
}

fn one(s: &Service, errors: &mut Vec<String>) {
    when(errors, !valid_name(&s.name), || {
        format!(
            "Service name must be valid per RFC 1123 and can contain only alphanumeric characters \
                or dashes and \
             must be no longer than 63 characters: {:?}",
            s.name
        )
    });
    short(
        errors,
        [
            ("Service port", &s.port_label),
            ("Service address", &s.address),
        ],
    );
    for tags in [&s.tags, &s.canary_tags] {
        let text = tags_too_long(tags).map(|text| format!("Service {:?}: {text}", s.name));
        errors.extend(text);
    }
    match s.address_mode.as_str() {
        "" | "auto" => {}
        "alloc" | "alloc_ipv6" | "driver" | "host" => when(errors, !s.address.is_empty(), || {
            "Service address_mode must be \"auto\" if address is set".into()
        }),
        other => errors.push(format!(
            "Service address_mode must be \"auto\", \"alloc\", \"host\", or \"driver\"; not \
                {other:?}"
        )),
    }
    match s.on_update.as_str() {
        "" | "require_healthy" | "ignore_warnings" | "ignore" => {}
        other => errors.push(format!(
            "Service on_update must be \"require_healthy\", \"ignore_warnings\", or \"ignore\"; \
                not {other:?}"
        )),
    }
    match s.provider.as_str() {
        "consul" => {}
        "nomad" => when(errors, s.connect.is_some(), || {
            "Service with provider nomad cannot include Connect blocks".into()
        }),
        other => {
            errors.push(format!(
                "Service provider must be \"consul\", or \"nomad\"; not {other:?}"
            ));
        }
    }
    if let Some(identity) = &s.identity {
        when(errors, identity.audience.is_empty(), || {
            "Service identity must provide at least one target aud value".into()
        });
    }
    for check in s.checks.iter() {
        service_check::check(check, s, errors);
    }
}

/// RFC 1123 once placeholders are taken out.
fn valid_name(name: &str) -> bool {
    let mut plain = String::new();
    let mut rest = name;
    while let Some(start) = rest.find("${") {
        plain += &rest[..start];
        match rest[start..].find('}') {
            // A placeholder stands for some letter.
            Some(end) => {
                plain.push('a');
                rest = &rest[start + end + 1..];
            }
            None => return false,
        }
    }
    plain += rest;
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    plain.len() <= 63
        && edge(plain.chars().next())
        && edge(plain.chars().last())
        && plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}
