//! Whether a node may run a group at all: drivers, constraints, networks, volumes, devices.
//!
//! What depends on a node's computed class alone is worked out once for each class. It must not
//! know: how much is used of a node (that is [`crate::rank`]).
//! Invariant: whatever a check in [`Level`] reads of a node is in [`computed_class`], or the check
//! escapes the class.

mod class;
mod devices;
mod glob;
mod operand;
mod target;
mod version;
mod volumes;

use std::collections::BTreeSet;

use drover_events::model::{Constraint, Job, Node, TaskGroup};

use super::cluster::NodeInfo;

pub use class::computed_class;
pub use devices::{DeviceAsk, device_offer};
pub use glob::matches as glob_matches;
pub use operand::OperandCache;
pub use target::{escapes_class, resolve};
pub use volumes::{Missing, PlanVolumes, VolumeAsks, WaitsFor, waits_for};

/// What the class cache knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassVerdict {
    /// Nothing yet.
    #[default]
    Unknown,
    /// Nodes of the class pass.
    Eligible,
    /// Nodes of the class do not pass.
    Ineligible,
}

/// One level's checks (the job's, or a group's) and what is known of them by class.
#[derive(Clone, Debug, Default)]
pub struct Level {
    constraints: Vec<Constraint>,
    drivers: BTreeSet<String>,
    networks: Vec<NetworkNeed>,
    devices: Vec<DeviceAsk>,
    escaped: bool,
    known: Vec<ClassVerdict>,
}

#[derive(Clone, Debug)]
struct NetworkNeed {
    mode: String,
    host_networks: Vec<(String, String)>,
}

/// The answer for one node.
pub enum Verdict {
    /// It may run the group.
    Pass,
    /// It may not, for this reason.
    Filter(String),
}

/// What a class is called when it was found unfit before.
const CLASS_INELIGIBLE: &str = "computed class ineligible";

impl Level {
    /// The job's own constraints.
    pub fn of_job(job: &Job) -> Self {
        Self::default().with_constraints(job.constraints.iter())
    }

    /// A group's constraints with those of its tasks, its drivers, networks and devices.
    pub fn of_group(group: &TaskGroup) -> Self {
        let tasks = || group.tasks.iter();
        let constraints = group
            .constraints
            .iter()
            .chain(tasks().flat_map(|t| t.constraints.iter()));
        let mut level = Self::default().with_constraints(constraints);
        level.drivers = tasks().map(|t| t.driver.clone()).collect();
        level.devices = tasks()
            .filter_map(|t| t.resources.as_ref())
            .flat_map(|r| r.devices.iter())
            .map(DeviceAsk::new)
            .collect();
        level.networks = group
            .networks
            .iter()
            .map(|network| NetworkNeed {
                mode: network.mode.clone(),
                host_networks: network
                    .reserved_ports
                    .iter()
                    .chain(network.dynamic_ports.iter())
                    .filter(|p| !matches!(p.host_network.as_str(), "" | "default"))
                    .map(|p| (p.host_network.clone(), p.label.clone()))
                    .collect(),
            })
            .collect();
        let host_networks = level.networks.iter().flat_map(|n| n.host_networks.iter());
        level.escaped |= level.devices.iter().any(DeviceAsk::escapes_class)
            || host_networks
                .into_iter()
                .any(|(name, _)| escapes_class(name));
        level
    }

    fn with_constraints<'a>(mut self, constraints: impl Iterator<Item = &'a Constraint>) -> Self {
        self.constraints = constraints
            .filter(|c| !matches!(c.operand.as_str(), "distinct_hosts" | "distinct_property"))
            .cloned()
            .collect();
        self.escaped = self
            .constraints
            .iter()
            .any(|c| escapes_class(&c.l_target) || escapes_class(&c.r_target));
        self
    }

    /// Whether its answer depends on more than the class.
    pub fn escaped(&self) -> bool {
        self.escaped
    }

    /// Forgets what is known of classes.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// What is known of a class.
    pub fn known(&self, class: u32) -> ClassVerdict {
        self.known.get(class as usize).copied().unwrap_or_default()
    }

    /// Classes that were looked at, with what is known of them.
    pub fn classes(&self) -> impl Iterator<Item = (u32, ClassVerdict)> + '_ {
        let known = self.known.iter().enumerate();
        known
            .map(|(i, k)| (i as u32, *k))
            .filter(|(_, k)| *k != ClassVerdict::Unknown)
    }

    /// Checks a node, by its class if that is known.
    pub fn check(&mut self, info: &NodeInfo, operands: &mut OperandCache) -> Verdict {
        if !self.escaped {
            match self.known(info.class) {
                ClassVerdict::Eligible => return Verdict::Pass,
                ClassVerdict::Ineligible => return Verdict::Filter(CLASS_INELIGIBLE.to_owned()),
                ClassVerdict::Unknown => {}
            }
        }
        let reason = self.reason(&info.node, operands);
        if !self.escaped {
            let class = info.class as usize;
            if self.known.len() <= class {
                self.known.resize(class + 1, ClassVerdict::Unknown);
            }
            self.known[class] = if reason.is_none() {
                ClassVerdict::Eligible
            } else {
                ClassVerdict::Ineligible
            };
        }
        reason.map_or(Verdict::Pass, Verdict::Filter)
    }

    fn reason(&self, node: &Node, operands: &mut OperandCache) -> Option<String> {
        if !self.drivers.iter().all(|driver| has_driver(node, driver)) {
            return Some("missing drivers".to_owned());
        }
        for constraint in &self.constraints {
            if !holds(constraint, node, operands) {
                return Some(constraint_text(constraint));
            }
        }
        if self.devices.iter().any(|ask| !ask.possible(node, operands)) {
            return Some("missing devices".to_owned());
        }
        self.networks
            .iter()
            .find_map(|need| missing_network(need, node))
    }
}

/// Whether a constraint holds on a node.
pub fn holds(constraint: &Constraint, node: &Node, operands: &mut OperandCache) -> bool {
    let left = resolve(&constraint.l_target, node);
    let right = resolve(&constraint.r_target, node);
    operands.check(&constraint.operand, left, right)
}

/// A constraint as metrics name it.
pub fn constraint_text(constraint: &Constraint) -> String {
    format!(
        "{} {} {}",
        constraint.l_target, constraint.operand, constraint.r_target
    )
}

/// Whether a node has a driver and it is healthy; for nodes that do not report the driver, the
/// attribute counts.
fn has_driver(node: &Node, driver: &str) -> bool {
    if let Some(info) = node.drivers.get(driver) {
        return info.detected && info.healthy;
    }
    let value = node.attributes.get(&format!("driver.{driver}"));
    value.is_some_and(|v| matches!(v.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn missing_network(need: &NetworkNeed, node: &Node) -> Option<String> {
    let resources = node.node_resources.as_ref();
    let mode = match need.mode.as_str() {
        "" | "none" => "host",
        mode => mode,
    };
    let has_mode = mode == "host"
        || resources.is_some_and(|r| {
            r.networks.iter().any(|n| n.mode == mode)
                || r.node_networks.iter().any(|n| n.mode == mode)
        });
    if !has_mode {
        return Some("missing network".to_owned());
    }
    for (host_network, label) in &need.host_networks {
        let wanted = resolve(host_network, node).unwrap_or(host_network);
        let known = node.host_networks.contains_key(wanted)
            || resources.is_some_and(|r| {
                let addresses = r.node_networks.iter().flat_map(|n| n.addresses.iter());
                addresses.into_iter().any(|a| a.alias == wanted)
            });
        if !known {
            return Some(format!(
                "missing host network \"{wanted}\" for port \"{label}\""
            ));
        }
    }
    None
}

#[cfg(test)]
#[path = "class_test.rs"]
mod tests;
