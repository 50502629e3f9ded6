//! The cluster as the scheduler sees it: every node, its used resources, and the mark of their use.
//!
//! It is a cache of the projections, kept up from changes, in dense slots. A snapshot is a clone:
//! slots lie in shared chunks that are copied when one of them changes, so a snapshot costs a few
//! hundred reference counts and an evaluation reads plain arrays.
//!
//! It must not know: tables, events, evaluations, time. Invariant: a slot's use is the sum over the
//! allocations that take resources on its node ([`takes_resources`]), and its mark is the event
//! that last changed what fits there.

mod node;
mod ports;
mod usage;
#[cfg(test)]
mod use_test;
mod volumes;

use std::sync::{Arc, OnceLock};

use drover_events::EventId;
use drover_events::model::Node;
use imbl::OrdMap;

pub use node::{Address, NodeInfo, is_ready};
pub use ports::{PortKey, PortSet, parse_ranges};
pub use usage::{
    Demand, Phase, Special, Usage, demand, demand_of, device_key, phase, takes_resources,
};
pub use volumes::{
    CsiFacts, Denied, GroupClaim, Holder, HostFacts, PluginFacts, VolumeKey, VolumeUse, Volumes,
    reaches, uses_of, uses_of_alloc,
};

const CHUNK: usize = 64;

/// One node's place in the cluster.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    /// The node; none when the slot is free.
    pub info: Option<Arc<NodeInfo>>,
    /// The resources in use.
    pub used: Usage,
    /// The event that last changed what fits there.
    pub mark: EventId,
}

/// Names that occur on many nodes, as small numbers. Numbers are only compared, never ordered by.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    ids: OrdMap<String, u32>,
    names: imbl::Vector<String>,
}

impl Interner {
    /// The place of a name among `names`; a new one is added behind them.
    pub fn id(&mut self, name: &str) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.names.len() as u32;
        self.ids.insert(name.to_owned(), id);
        self.names.push_back(name.to_owned());
        id
    }

    /// The number of a name, if it has one.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// The name with a number; empty if there is no name.
    pub fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or("", String::as_str)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// All nodes and their use at one index.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    chunks: Vec<Arc<Vec<Slot>>>,
    by_id: OrdMap<String, u32>,
    free: Vec<u32>,
    names: Interner,
    volumes: Volumes,
    order: OnceLock<Arc<Vec<u32>>>,
    index: u64,
}

impl Cluster {
    /// The index the cluster is as of.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// States the index the cluster is as of.
    pub fn set_index(&mut self, index: u64) {
        self.index = index;
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// A bound above every slot's number.
    pub fn slots(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// The names of classes, datacenters and pools.
    pub fn names(&self) -> &Interner {
        &self.names
    }

    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// The volumes, to be changed.
    pub fn volumes_mut(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// The slot of a node.
    pub fn find(&self, node_id: &str) -> Option<u32> {
        self.by_id.get(node_id).copied()
    }

    /// Whether a node has this slot now.
    pub fn is_taken(&self, slot: u32) -> bool {
        self.slot(slot).info.is_some()
    }

    /// A slot by its number, which must come from this cluster.
    pub fn slot(&self, slot: u32) -> &Slot {
        let slot = slot as usize;
        &self.chunks[slot / CHUNK][slot % CHUNK]
    }

    /// A node by its id.
    pub fn node(&self, node_id: &str) -> Option<&Arc<NodeInfo>> {
        self.slot(self.find(node_id)?).info.as_ref()
    }

    /// A slot to be changed.
    pub fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        let slot = slot as usize;
        &mut Arc::make_mut(&mut self.chunks[slot / CHUNK])[slot % CHUNK]
    }

    /// All nodes in the order of their ids: where every decision starts from, so that it does not
    /// depend on the order in which this process met them.
    pub fn by_node_id(&self) -> &[u32] {
        self.order
            .get_or_init(|| Arc::new(self.by_id.values().copied().collect()))
    }

    /// Adds a node, or replaces its description; its use and mark stay.
    pub fn upsert_node(&mut self, node: Node) -> u32 {
        let slot = match self.find(&node.id) {
            Some(slot) => slot,
            None => self.allocate(&node.id),
        };
        let info = NodeInfo::new(node, &mut self.names);
        self.slot_mut(slot).info = Some(Arc::new(info));
        slot
    }

    pub fn remove_node(&mut self, node_id: &str) {
        if let Some(slot) = self.by_id.remove(node_id) {
            *self.slot_mut(slot) = Slot::default();
            self.free.push(slot);
            self.order = OnceLock::new();
        }
    }

    fn allocate(&mut self, node_id: &str) -> u32 {
        if self.free.is_empty() {
            let first = self.slots() as u32;
            self.chunks.push(Arc::new(vec![Slot::default(); CHUNK]));
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        let slot = self
            .free
            .pop()
            .expect("a chunk of free slots was just added");
        self.by_id.insert(node_id.to_owned(), slot);
        self.order = OnceLock::new();
        slot
    }
}
