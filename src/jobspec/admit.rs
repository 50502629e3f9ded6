//! What a server changes on admission: implied constraints and implicit identities.

use drover_events::gojson::List;
use drover_events::model::{Constraint, Job, Service, Task, TaskGroup, WorkloadIdentity};
use std::collections::BTreeSet;

/// The audience of the identity every task gets.
const AUDIENCE: &str = "nomadproject.io";

/// Adds what the parts of a job imply. Running it again changes nothing.
pub(super) fn adapt(job: &mut Job) {
    for group in job.task_groups.iter_mut() {
        native(group);
        implied(group);
        for task in group.tasks.iter_mut() {
            identity(task);
        }
    }
}

/// A service that speaks Connect itself is that of the only task there is.
fn native(group: &mut TaskGroup) {
    let [task] = &group.tasks[..] else { return };
    let name = task.name.clone();
    for service in group.services.iter_mut() {
        let native = service.connect.as_ref().is_some_and(|c| c.native);
        if native && service.task_name.is_empty() {
            service.task_name.clone_from(&name);
        }
    }
}

fn implied(group: &mut TaskGroup) {
    let mut rules = Rules::default();
    for cluster in vault_clusters(group) {
        rules.add(&attribute("vault", &cluster), "semver", ">= 0.6.1");
    }
    services(group, &mut rules);
    let signals = signals(group);
    if !signals.is_empty() {
        let all = signals.into_iter().collect::<Vec<_>>().join(",");
        rules.add("${attr.os.signals}", "set_contains", &all);
    }
    tasks(group, &mut rules);
    for [left, operand, right] in rules.0 {
        let same = |c: &Constraint| {
            c.l_target == left && c.operand == operand && (operand != "=" || c.r_target == right)
        };
        if !group.constraints.iter().any(same) {
            let constraint = Constraint {
                l_target: left,
                r_target: right,
                operand,
            };
            group.constraints.extend([constraint]);
        }
    }
}

/// Left target, operand and right target of each implied constraint.
#[derive(Default)]
struct Rules(Vec<[String; 3]>);

impl Rules {
    fn add(&mut self, left: &str, operand: &str, right: &str) {
        self.0.push([left, operand, right].map(str::to_owned));
    }
}

fn services(group: &TaskGroup, rules: &mut Rules) {
    let of_tasks = group.tasks.iter().flat_map(|t| t.services.iter());
    let all: Vec<&Service> = group.services.iter().chain(of_tasks).collect();
    let consul = all.iter().filter(|s| s.provider == "consul");
    for cluster in consul.map(|s| s.cluster.as_str()).collect::<BTreeSet<_>>() {
        rules.add(&attribute("consul", cluster), "semver", ">= 1.8.0");
    }
    let nomad: Vec<_> = all.iter().filter(|s| s.provider == "nomad").collect();
    if !nomad.is_empty() {
        rules.add("${attr.nomad.service_discovery}", "=", "true");
    }
    if nomad.iter().any(|s| !s.checks.is_empty()) {
        rules.add("${attr.nomad.version}", "semver", ">= 1.4.0");
    }
}

fn tasks(group: &TaskGroup, rules: &mut Rules) {
    let numa = |t: &Task| {
        let wanted = t.resources.as_ref().and_then(|r| r.numa.as_ref());
        wanted.is_some_and(|n| !matches!(n.affinity.as_str(), "" | "none"))
    };
    if group.tasks.iter().any(numa) {
        rules.add("${attr.nomad.version}", "semver", ">= 1.6.3-dev");
        rules.add("${attr.kernel.name}", "=", "linux");
    }
    if group.networks.iter().any(|n| n.mode == "bridge") {
        for plugin in ["bridge", "firewall", "host-local", "loopback", "portmap"] {
            rules.add(
                &format!("${{attr.plugins.cni.version.{plugin}}}"),
                "semver",
                ">= 0.4.0",
            );
        }
    }
    if group.tasks.iter().any(|t| t.schedule.is_some()) {
        rules.add("${attr.nomad.version}", "semver", ">= 1.8.0-dev");
    }
    let providers = group
        .tasks
        .iter()
        .flat_map(|t| t.secrets.iter())
        .map(|s| s.provider.as_str());
    let custom = providers.filter(|p| !matches!(*p, "nomad" | "vault"));
    for provider in custom.collect::<BTreeSet<_>>() {
        rules.add(
            &format!("${{attr.plugins.secrets.{provider}.version}}"),
            "is_set",
            "",
        );
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
