//! Volumes that a group requests, on a node.
//!
//! Invariant: no answer of this module is kept for a class of nodes. A volume is a node's own, and
//! where every allocation has one of its own, it is another one for each index (HV-04).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::model::status::{access_mode, attachment_mode, volume_type};
use drover_events::model::{ClientHostVolumeConfig, JobKey, Node, TaskGroup, VolumeRequest};

use crate::cluster::{
    CsiFacts, Denied, HostFacts, VolumeKey, VolumeUse, Volumes, reaches, uses_of,
};

/// The reason against a node without a volume that would do.
const MISSING_HOST: &str = "missing compatible host volumes";
/// The reason against a node from which a volume cannot be reached.
const TOPOLOGY: &str = "did not meet topology requirement";

/// What the plan changes so far of what volumes are used.
#[derive(Clone, Debug, Default)]
pub struct PlanVolumes {
    /// By how many writers more, or fewer.
    writers: BTreeMap<VolumeKey, i64>,
    /// By how many users of the job more, or fewer.
    users: BTreeMap<VolumeKey, i64>,
    /// What comes to nodes.
    added: BTreeSet<(String, VolumeKey)>,
}

impl PlanVolumes {
    /// The plan adds an allocation with these on a node, or takes one away.
    pub fn change(&mut self, node_id: &str, uses: &[VolumeUse], adds: bool) {
        for one in uses {
            *self.users.entry(one.key.clone()).or_default() += if adds { 1 } else { -1 };
            if one.writes {
                let writers = self.writers.entry(one.key.clone()).or_default();
                *writers += if adds { 1 } else { -1 };
            }
            let place = (node_id.to_owned(), one.key.clone());
            match adds {
                true => drop(self.added.insert(place)),
                false => drop(self.added.remove(&place)),
            }
        }
    }
}

/// Why a node cannot give what is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// In words.
    pub reason: String,
    /// Where the words name the node: the same without it, for nodes beyond the first few.
    pub of_others: Option<String>,
}

impl From<String> for Missing {
    fn from(reason: String) -> Self {
        Self {
            reason,
            of_others: None,
        }
    }
}

/// What a group requests.
#[derive(Clone, Debug, Default)]
pub struct VolumeAsks {
    job: JobKey,
    host: Vec<Ask>,
    csi: Vec<Ask>,
    group: TaskGroup,
    name: String,
}

/// One volume that is requested.
#[derive(Clone, Debug)]
struct Ask {
    request: VolumeRequest,
    /// What it is for the allocation that is looked for: the source, with the index of the
    /// allocation where each has its own (HV-01).
    source: String,
    /// The CSI volume.
    facts: Option<Arc<CsiFacts>>,
    /// Why it cannot be claimed, wherever.
    denied: Option<String>,
}

impl VolumeAsks {
    /// What a group of a job requests.
    pub fn new(job: JobKey, group: &TaskGroup) -> Self {
        let of = |kind: &str| {
            let requests = group.volumes.values();
            let requests = requests.filter(|request| request.r#type == kind);
            let ask = |request: &VolumeRequest| Ask {
                source: request.source.clone(),
                request: request.clone(),
                facts: None,
                denied: None,
            };
            requests.map(ask).collect()
        };
        let (host, csi): (Vec<Ask>, Vec<Ask>) = (of(volume_type::HOST), of(volume_type::CSI));
        let any = !(host.is_empty() && csi.is_empty());
        Self {
            job,
            host,
            csi,
            group: TaskGroup {
                name: group.name.clone(),
                volumes: if any {
                    group.volumes.clone()
                } else {
                    Default::default()
                },
                ..TaskGroup::default()
            },
            name: String::new(),
        }
    }

    /// Whether it requests nothing.
    pub fn is_empty(&self) -> bool {
        self.host.is_empty() && self.csi.is_empty()
    }

    /// From here on it is about the allocation with this name.
    pub fn seek(&mut self, name: &str, volumes: &Volumes) {
        if self.is_empty() {
            return;
        }
        self.name = name.to_owned();
        for ask in self.host.iter_mut().chain(&mut self.csi) {
            ask.source = ask.request.source_for(name).into_owned();
        }
        let uses = self.uses("");
        for ask in &mut self.csi {
            let key = VolumeKey::Csi(self.job.0.clone(), ask.source.clone());
            ask.facts = volumes.csi(&key).cloned();
            let wanted = uses.iter().find(|one| one.key == key);
            let denied = wanted.and_then(|one| volumes.claimable(one, std::iter::empty()).err());
            ask.denied = denied.map(|why| denial(&ask.source, &why, ask.request.read_only));
        }
    }

    /// What an allocation takes of volumes on a node.
    pub fn uses(&self, node_id: &str) -> Vec<VolumeUse> {
        let job = (self.job.0.as_str(), self.job.1.as_str());
        uses_of(&self.group, job, (&self.name, node_id))
    }

    /// Why a node cannot give what is requested.
    pub fn missing(&self, node: &Node, volumes: &Volumes, plan: &PlanVolumes) -> Option<Missing> {
        let is_on = |ask: &Ask| self.host_is_on(ask, node, volumes, plan);
        if !self.host.iter().all(is_on) {
            return Some(MISSING_HOST.to_owned().into());
        }
        let mut asks = self.csi.iter();
        asks.find_map(|ask| self.csi_missing(ask, node, volumes, plan))
    }

    fn host_is_on(&self, ask: &Ask, node: &Node, volumes: &Volumes, plan: &PlanVolumes) -> bool {
        let Some(offered) = node.host_volumes.get(&ask.source) else {
            return false;
        };
        if offered.id.is_empty() {
            return ask.request.read_only || !offered.read_only;
        }
        let facts = volumes.host(&offered.id);
        let Some(facts) = facts.filter(|facts| facts.namespace == self.job.0) else {
            return false;
        };
        ask.suits(facts, offered)
            && self.is_free(ask, node, volumes, plan)
            && self.sticks(ask, &offered.id, volumes, plan)
    }

    /// A group that sticks to volumes returns to those of its own that no allocation uses now;
    /// where no such volume exists, any other will do.
    fn sticks(&self, ask: &Ask, id: &str, volumes: &Volumes, plan: &PlanVolumes) -> bool {
        if !ask.request.sticky {
            return true;
        }
        let job = (self.job.0.as_str(), self.job.1.as_str());
        let held = volumes.held_by(job, &self.group.name, &ask.source);
        let left = |facts: &HostFacts| {
            let key = VolumeKey::Host(facts.node_id.clone(), ask.source.clone());
            let committed = i64::try_from(volumes.used_by(&key, &self.job)).unwrap_or(i64::MAX);
            let planned = plan.users.get(&key).copied().unwrap_or(0);
            committed.saturating_add(planned) <= 0
        };
        let mut left = held.iter().filter(|(_, facts)| left(facts)).peekable();
        left.peek().is_none() || left.any(|(held, _)| *held == id)
    }

    /// Where only one allocation may write, no other does.
    fn is_free(&self, ask: &Ask, node: &Node, volumes: &Volumes, plan: &PlanVolumes) -> bool {
        if ask.request.access_mode != access_mode::SINGLE_NODE_SINGLE_WRITER
            || ask.request.read_only
        {
            return true;
        }
        let key = VolumeKey::Host(node.id.clone(), ask.source.clone());
        let committed = i64::try_from(volumes.writers(&key).count()).unwrap_or(i64::MAX);
        let planned = plan.writers.get(&key).copied().unwrap_or(0);
        committed.saturating_add(planned) <= 0
    }

    fn csi_missing(
        &self,
        ask: &Ask,
        node: &Node,
        volumes: &Volumes,
        plan: &PlanVolumes,
    ) -> Option<Missing> {
        let id = &ask.source;
        let Some(facts) = &ask.facts else {
            return Some(format!("missing CSI Volume {id}").into());
        };
        let plugin_id = &facts.plugin_id;
        let of_node = |what: &str| {
            let client = &node.id;
            Some(Missing {
                reason: format!("CSI plugin {plugin_id} {what} client {client}"),
                of_others: Some(format!("CSI plugin {plugin_id} {what} other clients")),
            })
        };
        let Some(plugin) = node.csi_node_plugins.get(plugin_id) else {
            return of_node("is missing from");
        };
        if !plugin.healthy {
            return of_node("is unhealthy on");
        }
        let plugin_node = plugin.node_info.as_ref();
        if let Some(most) = plugin_node
            .map(|info| info.max_volumes)
            .filter(|most| *most > 0)
        {
            let key = VolumeKey::Csi(self.job.0.clone(), id.clone());
            let mut here: BTreeSet<&VolumeKey> = volumes
                .of_plugin_on(&node.id, plugin_id)
                .into_iter()
                .collect();
            let added = plan.added.iter().filter(|(other, _)| *other == node.id);
            here.extend(added.map(|(_, key)| key).filter(|key| {
                volumes
                    .csi(key)
                    .is_some_and(|other| other.plugin_id == *plugin_id)
            }));
            here.remove(&key);
            if i64::try_from(here.len()).unwrap_or(i64::MAX) >= most {
                return of_node("has the maximum number of volumes on");
            }
        }
        if !reaches(
            &facts.topologies,
            plugin_node.and_then(|info| info.accessible_topology.as_ref()),
        ) {
            return Some(TOPOLOGY.to_owned().into());
        }
        ask.denied.clone().map(Missing::from)
    }
}

impl Ask {
    /// Whether a volume that the cluster manages can be used as requested.
    fn suits(&self, facts: &HostFacts, offered: &ClientHostVolumeConfig) -> bool {
        let or = |set: &str, otherwise: &'static str| match set {
            "" => otherwise.to_owned(),
            set => set.to_owned(),
        };
        // Whether a volume is one of these is known here only, so is what it means to say nothing.
        let mode = match self.request.read_only {
            true => or(&self.request.access_mode, access_mode::SINGLE_NODE_READER),
            false => or(&self.request.access_mode, access_mode::SINGLE_NODE_WRITER),
        };
        let attachment = or(&self.request.attachment_mode, attachment_mode::FILE_SYSTEM);
        let mut capabilities = facts.capabilities.iter();
        let capable =
            capabilities.any(|one| one.access_mode == mode && one.attachment_mode == attachment);
        let reads = self.request.read_only;
        let writes = !reads && !offered.read_only && mode != access_mode::SINGLE_NODE_READER;
        facts.ready && capable && (reads || writes)
    }
}

/// Why a volume cannot be claimed, in the words users know (CSI-29).
fn denial(id: &str, why: &Denied, read_only: bool) -> String {
    let taken = format!("CSI volume {id} has exhausted its available writer claims");
    match (why, read_only) {
        (Denied::Left(alloc), false) => format!(
            "{taken} and is claimed by a garbage collected allocation {alloc}; waiting for claim \
             to be released"
        ),
        (Denied::InUse, false) => taken,
        (Denied::Unusable, false) => {
            format!("CSI volume {id} is unschedulable or is read-only")
        }
        (_, true) => {
            format!("CSI volume {id} is unschedulable or has exhausted its available reader claims")
        }
    }
}

/// What must change before a node that was refused can be tried again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitsFor {
    /// The CSI volume with this id, in the namespace of the job.
    Volume(String),
    /// The volumes of this plugin.
    Plugin(String),
    /// Any CSI volume.
    Topology,
    /// A volume of a host.
    Host,
}

/// What a reason that was given for a node waits for, if it is about volumes.
pub fn waits_for(reason: &str) -> Option<WaitsFor> {
    let before = |text: &str, ends: &[&str]| {
        let ends = ends.iter().filter_map(|end| text.find(end));
        ends.min().map(|at| text[..at].to_owned())
    };
    match reason {
        MISSING_HOST => return Some(WaitsFor::Host),
        TOPOLOGY => return Some(WaitsFor::Topology),
        _ => {}
    }
    if let Some(id) = reason.strip_prefix("missing CSI Volume ") {
        return Some(WaitsFor::Volume(id.to_owned()));
    }
    if let Some(rest) = reason.strip_prefix("CSI volume ") {
        return before(rest, &[" is unschedulable or ", " has exhausted "]).map(WaitsFor::Volume);
    }
    let rest = reason.strip_prefix("CSI plugin ")?;
    let ends = [
        " is missing from ",
        " is unhealthy on ",
        " has the maximum number ",
    ];
    before(rest, &ends).map(WaitsFor::Plugin)
}

#[cfg(test)]
#[path = "volumes_test.rs"]
mod tests;
