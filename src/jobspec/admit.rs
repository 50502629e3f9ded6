//! What a server changes on admission: implied constraints and implicit identities.

use drover_events::gojson::List;
use drover_events::model::{Constraint, Job, Service, Task, TaskGroup, WorkloadIdentity};
use std::collections::BTreeSet;

/// The audience of the identity every task gets.
const AUDIENCE: &str = "nomadproject.io";

/// Adds what the parts of a job imply. Running it again changes nothing.
pub fn adapt(job: &mut Job) {
    for group in job.task_groups.iter_mut() {
        implied(group);
        for task in group.tasks.iter_mut() {
            identity(task);
        }
    }
}

fn implied(group: &mut TaskGroup) {
    let mut rules: Vec<[String; 3]> = Vec::new();
    let mut rule = |left: &str, operand: &str, right: &str| {
        rules.push([left.to_owned(), operand.to_owned(), right.to_owned()]);
    };
    for cluster in vault_clusters(group) {
        rule(&attribute("vault", &cluster), "semver", ">= 0.6.1");
    }
    let services: Vec<&Service> = group
        .services
        .iter()
        .chain(group.tasks.iter().flat_map(|t| t.services.iter()))
        .collect();
    let consul: BTreeSet<&str> = services
        .iter()
        .filter(|s| s.provider == "consul")
        .map(|s| s.cluster.as_str())
        .collect();
    for cluster in consul {
        rule(&attribute("consul", cluster), "semver", ">= 1.8.0");
    }
    let nomad: Vec<&&Service> = services.iter().filter(|s| s.provider == "nomad").collect();
    if !nomad.is_empty() {
        rule("${attr.nomad.service_discovery}", "=", "true");
    }
    if nomad.iter().any(|s| !s.checks.is_empty()) {
        rule("${attr.nomad.version}", "semver", ">= 1.4.0");
    }
    let signals = signals(group);
    if !signals.is_empty() {
        rule(
            "${attr.os.signals}",
            "set_contains",
            &signals.into_iter().collect::<Vec<_>>().join(","),
        );
    }
    if group.tasks.iter().any(|t| {
        t.resources
            .as_ref()
            .and_then(|r| r.numa.as_ref())
            .is_some_and(|n| !matches!(n.affinity.as_str(), "" | "none"))
    }) {
        rule("${attr.nomad.version}", "semver", ">= 1.6.3-dev");
        rule("${attr.kernel.name}", "=", "linux");
    }
    if group.networks.iter().any(|n| n.mode == "bridge") {
        for plugin in ["bridge", "firewall", "host-local", "loopback", "portmap"] {
            rule(
                &format!("${{attr.plugins.cni.version.{plugin}}}"),
                "semver",
                ">= 0.4.0",
            );
        }
    }
    if group.tasks.iter().any(|t| t.schedule.is_some()) {
        rule("${attr.nomad.version}", "semver", ">= 1.8.0-dev");
    }
    let providers: BTreeSet<&str> = group
        .tasks
        .iter()
        .flat_map(|t| t.secrets.iter())
        .map(|s| s.provider.as_str())
        .filter(|p| !matches!(*p, "nomad" | "vault"))
        .collect();
    for provider in providers {
        rule(
            &format!("${{attr.plugins.secrets.{provider}.version}}"),
            "is_set",
            "",
        );
    }
    for [left, operand, right] in rules {
        let exists = group.constraints.iter().any(|c| {
            c.l_target == left && c.operand == operand && (operand != "=" || c.r_target == right)
        });
        if !exists {
            let constraint = Constraint {
                l_target: left,
                r_target: right,
                operand,
            };
            group.constraints.extend([constraint]);
        }
    }
}

fn attribute(what: &str, cluster: &str) -> String {
    match cluster {
        "" | "default" => format!("${{attr.{what}.version}}"),
        cluster => format!("${{attr.{what}.{cluster}.version}}"),
    }
}

fn vault_clusters(group: &TaskGroup) -> BTreeSet<String> {
    group
        .tasks
        .iter()
        .filter_map(|t| t.vault.as_ref())
        .map(|v| v.cluster.clone())
        .collect()
}

/// Signals that tasks want to be sent.
fn signals(group: &TaskGroup) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for task in group.tasks.iter() {
        if !task.kill_signal.is_empty() {
            out.insert(task.kill_signal.to_uppercase());
        }
        if let Some(vault) = task.vault.as_ref().filter(|v| v.change_mode == "signal") {
            out.insert(vault.change_signal.to_uppercase());
        }
        for template in task.templates.iter().filter(|t| t.change_mode == "signal") {
            out.insert(template.change_signal.to_uppercase());
        }
        for identity in task.identity.iter().chain(task.identities.iter()) {
            if identity.change_mode == "signal" {
                out.insert(identity.change_signal.to_uppercase());
            }
        }
    }
    out
}

fn identity(task: &mut Task) {
    let identity = task.identity.get_or_insert_with(WorkloadIdentity::default);
    if identity.name.is_empty() {
        identity.name = "default".to_owned();
    }
    if identity.audience.is_empty() {
        identity.audience = List::from(vec![AUDIENCE.to_owned()]);
    }
}
