//! Puts a task's environment together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use drover_events::model::{
    AllocatedTaskResources, Allocation, Job, NetworkResource, Node, Task, TaskGroup,
};
use serde_json::Value;

use super::interpolate::interpolate;
use super::names::{clean, cpu_set};

/// Directories as the task sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPaths {
    /// Shared by the allocation's tasks.
    pub alloc: PathBuf,
    /// The task's own (`local`).
    pub local: PathBuf,
    /// For secrets.
    pub secrets: PathBuf,
    /// The task's root, above the three of its own.
    pub root: PathBuf,
}

impl TaskPaths {
    /// As a task sees them that has a root of its own.
    pub fn isolated() -> Self {
        Self {
            alloc: "/alloc".into(),
            local: "/local".into(),
            secrets: "/secrets".into(),
            root: "/".into(),
        }
    }
}

/// All that an environment is made of.
#[derive(Clone, Copy, Debug)]
pub struct TaskEnvInput<'a> {
    /// Where it runs.
    pub node: &'a Node,
    /// The region of the agent.
    pub region: &'a str,
    /// What it belongs to.
    pub alloc: &'a Allocation,
    /// The allocation's job.
    pub job: &'a Job,
    pub group: &'a TaskGroup,
    pub task: &'a Task,
    /// Directories.
    pub paths: &'a TaskPaths,
    /// What tasks inherit of the agent's environment ([`super::inherited`]).
    pub host: &'a BTreeMap<String, String>,
    /// What hooks add.
    pub hooks: &'a BTreeMap<String, String>,
}

/// A finished environment: variables, and the names that `${…}` can name besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskEnv {
    vars: BTreeMap<String, String>,
    node: BTreeMap<String, String>,
}

impl TaskEnv {
    /// Builds the environment of a task.
    pub fn build(input: &TaskEnvInput<'_>) -> Self {
        let mut env = Self {
            vars: BTreeMap::new(),
            node: node_names(input),
        };
        env.built_ins(input);
        env.meta(input);
        env.ports(input);
        let own: Vec<(String, String)> = input
            .task
            .env
            .iter()
            .map(|(k, v)| (env.replace(k), env.replace(v)))
            .collect();
        for (name, value) in input.host {
            env.vars
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
        env.vars.extend(own);
        env.vars.extend(input.hooks.clone());
        env
    }

    /// The variables the task is started with.
    pub fn vars(&self) -> &BTreeMap<String, String> {
        &self.vars
    }

    /// Replaces `${…}` in a text.
    pub fn replace(&self, text: &str) -> String {
        interpolate(text, |name| {
            self.vars.get(name).or_else(|| self.node.get(name)).cloned()
        })
    }

    /// Replaces `${…}` in every text of a driver's configuration.
    pub fn replace_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.replace(text)),
            Value::Array(items) => items.iter().map(|v| self.replace_value(v)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(k, v)| (self.replace(k), self.replace_value(v)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.vars.insert(name.into(), value.into());
    }

    fn built_ins(&mut self, input: &TaskEnvInput<'_>) {
        let TaskEnvInput {
            alloc,
            job,
            group,
            task,
            paths,
            node,
            ..
        } = input;
        self.set("NOMAD_ALLOC_DIR", paths.alloc.display().to_string());
        self.set("NOMAD_TASK_DIR", paths.local.display().to_string());
        self.set("NOMAD_SECRETS_DIR", paths.secrets.display().to_string());
        self.set("NOMAD_ALLOC_ID", &alloc.id);
        self.set(
            "NOMAD_SHORT_ALLOC_ID",
            alloc.id.get(..8).unwrap_or(&alloc.id),
        );
        self.set("NOMAD_ALLOC_NAME", &alloc.name);
        self.set(
            "NOMAD_ALLOC_INDEX",
            alloc.index().unwrap_or_default().to_string(),
        );
        self.set("NOMAD_TASK_NAME", &task.name);
        self.set("NOMAD_GROUP_NAME", &group.name);
        self.set("NOMAD_JOB_ID", &job.id);
        self.set("NOMAD_JOB_NAME", &job.name);
        if !job.parent_id.is_empty() {
            self.set("NOMAD_JOB_PARENT_ID", &job.parent_id);
        }
        self.set("NOMAD_DC", &node.datacenter);
        self.set("NOMAD_REGION", input.region);
        self.set("NOMAD_NAMESPACE", &alloc.namespace);
        if !node.cgroup_parent.is_empty() {
            self.set("NOMAD_PARENT_CGROUP", &node.cgroup_parent);
        }
        if let Some(given) = given(alloc, &task.name) {
            self.set("NOMAD_CPU_LIMIT", given.cpu.cpu_shares.to_string());
            self.set("NOMAD_MEMORY_LIMIT", given.memory.memory_mb.to_string());
            if given.memory.memory_max_mb > 0 {
                self.set(
                    "NOMAD_MEMORY_MAX_LIMIT",
                    given.memory.memory_max_mb.to_string(),
                );
            }
            if !given.cpu.reserved_cores.is_empty() {
                self.set("NOMAD_CPU_CORES", cpu_set(&given.cpu.reserved_cores));
            }
        }
    }

    /// Every key twice: as it is written, and in capitals.
    fn meta(&mut self, input: &TaskEnvInput<'_>) {
        for (key, value) in input.job.combined_meta(&input.group.name, &input.task.name) {
            let value = self.replace(&value);
            let key = clean(&key);
            self.set(format!("NOMAD_META_{}", key.to_uppercase()), value.clone());
            self.set(format!("NOMAD_META_{key}"), value);
        }
    }

    fn ports(&mut self, input: &TaskEnvInput<'_>) {
        let Some(all) = &input.alloc.allocated_resources else {
            return;
        };
        for port in &all.shared.ports {
            self.port("", &port.label, &port.host_ip, port.value, port.to);
        }
        if all.shared.ports.is_empty() {
            for network in &all.shared.networks {
                self.network("", network);
            }
        }
        for (name, given) in &all.tasks {
            let own = *name == input.task.name;
            for network in &given.networks {
                self.network(if own { "" } else { name }, network);
            }
        }
    }

    fn network(&mut self, task: &str, network: &NetworkResource) {
        for port in network
            .reserved_ports
            .iter()
            .chain(network.dynamic_ports.iter())
        {
            self.port(task, &port.label, &network.ip, port.value, port.to);
        }
    }

    /// `task` is empty for the allocation's and the task's own ports.
    fn port(&mut self, task: &str, label: &str, ip: &str, value: i64, to: i64) {
        let inner = if to > 0 { to } else { value }.to_string();
        let addr = if ip.contains(':') {
            format!("[{ip}]:{value}")
        } else {
            format!("{ip}:{value}")
        };
        if !task.is_empty() {
            let name = format!("{}_{}", clean(task), clean(label));
            self.set(format!("NOMAD_ADDR_{name}"), addr);
            self.set(format!("NOMAD_IP_{name}"), ip);
            self.set(format!("NOMAD_PORT_{name}"), value.to_string());
            return;
        }
        let name = clean(label);
        self.set(format!("NOMAD_IP_{name}"), ip);
        self.set(format!("NOMAD_PORT_{name}"), inner.clone());
        self.set(format!("NOMAD_ADDR_{name}"), addr.clone());
        self.set(format!("NOMAD_HOST_IP_{name}"), ip);
        self.set(format!("NOMAD_HOST_PORT_{name}"), value.to_string());
        self.set(format!("NOMAD_HOST_ADDR_{name}"), addr);
        self.set(format!("NOMAD_ALLOC_PORT_{name}"), inner);
    }
}

fn given<'a>(alloc: &'a Allocation, task: &str) -> Option<&'a AllocatedTaskResources> {
    alloc.allocated_resources.as_ref()?.tasks.get(task)
}

fn node_names(input: &TaskEnvInput<'_>) -> BTreeMap<String, String> {
    let node = input.node;
    let mut out: BTreeMap<String, String> = [
        ("node.unique.id", node.id.as_str()),
        ("node.datacenter", &node.datacenter),
        ("node.region", input.region),
        ("node.unique.name", &node.name),
        ("node.class", &node.node_class),
        ("node.pool", &node.node_pool),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into();
    out.extend(
        node.attributes
            .iter()
            .map(|(k, v)| (format!("attr.{k}"), v.clone())),
    );
    out.extend(
        node.meta
            .iter()
            .map(|(k, v)| (format!("meta.{k}"), v.clone())),
    );
    out
}

#[cfg(test)]
#[path = "builder_test.rs"]
mod tests;
