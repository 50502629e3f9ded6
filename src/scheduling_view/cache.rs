//! The cluster kept up with the projections: which nodes there are, what is used of them, and the
//! marks of their use.
//!
//! It is filled from a view once and then follows `changes`. Allocations that this server's own
//! plans placed are known before they are committed ([`Cache::expect`]), so their rows are not read
//! again. Whatever it holds can be read anew from the projections.
//!
//! A row that cannot be read does not end scheduling elsewhere. A node that cannot be read, or one
//! of whose allocations cannot, keeps what runs on it and gets nothing more: taken for gone, what
//! runs there would be started elsewhere, and resources that are in use would be given away.

use std::collections::BTreeSet;

use drover_events::model::Node;
use drover_events::model::status::{client, eligibility, node as node_status};
use drover_events::{EventId, EventKind};
use drover_projections::key::{Id, Key};
use drover_projections::tables::allocs::{AllocRow, Allocs, AllocsByNode};
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::node_use::NodeUses;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::{Change, Operation, Scan, StorageError, Table, View};
use hashbrown::HashMap;

use super::volume_cache::{self, Jobs, VolumeCache, VolumeChange};
use crate::error::chain;
use crate::scheduler::cluster::{Cluster, Demand, VolumeUse, demand_of, takes_resources};

/// A live allocation: where it is and what it takes.
#[derive(Clone, Debug)]
struct Live {
    slot: u32,
    demand: Demand,
    unknown: bool,
    /// What volumes it uses could be read.
    whole: bool,
}

/// What a plan in flight does to an allocation.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It takes this of a node.
    Takes {
        /// The node's slot.
        slot: u32,
        /// What it takes.
        demand: Demand,
        /// It is out of contact.
        unknown: bool,
    },
    /// It takes nothing any more.
    Gone {
        /// The slot of the node it was on: the plan marks it whether or not the client ended the
        /// allocation before.
        slot: u32,
    },
}

impl Effect {
    fn slot(&self) -> u32 {
        match self {
            Self::Takes { slot, .. } | Self::Gone { slot } => *slot,
        }
    }
}

/// Something became free or usable on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freed {
    pub node_id: String,
    pub class: String,
    /// When.
    pub index: u64,
}

/// The cluster and what is needed to keep it up.
#[derive(Default)]
pub struct Cache {
    cluster: Cluster,
    live: HashMap<String, Live>,
    expected: HashMap<String, (EventId, Effect)>,
    volumes: VolumeCache,
    /// Nodes that get nothing more until all of them can be read ([`Cache::open`]).
    closed: BTreeSet<String>,
    left_out: Vec<StorageError>,
}

impl Cache {
    /// Reads everything from a view.
    pub fn load(view: &View) -> Result<Self, StorageError> {
        let mut cache = Self::default();
        cache.load_nodes(view)?;
        cache.volumes = VolumeCache::load(view, &mut cache.cluster, &mut cache.left_out)?;
        cache.load_allocs(view)?;
        cache.cluster.set_index(view.index());
        Ok(cache)
    }

    fn load_nodes(&mut self, view: &View) -> Result<(), StorageError> {
        let mut rows = view.cursor::<Nodes>(&Scan::all());
        while let Some(row) = rows.advance()? {
            let Some(id) = text_key(row.key) else {
                continue;
            };
            let node = readable(row.decode::<Nodes>(), &mut self.left_out)?;
            let state = readable(view.get::<NodeStates>(id.as_str()), &mut self.left_out)?;
            let node = match (node, state) {
                (Some(node), Some(state)) => nodes::join(node, state.unwrap_or_default()),
                _ => self.stand_in(&id),
            };
            let slot = self.put_node(node);
            self.read_mark(view, &id, slot)?;
        }
        Ok(())
    }

    fn load_allocs(&mut self, view: &View) -> Result<(), StorageError> {
        let (mut jobs, mut unread) = (Jobs::default(), BTreeSet::new());
        let mut rows = view.cursor::<Allocs>(&Scan::all());
        while let Some(row) = rows.advance()? {
            match readable(row.decode::<Allocs>(), &mut self.left_out)? {
                Some(alloc) => {
                    self.put_alloc(view, &alloc, &mut jobs)?;
                }
                None => {
                    unread.insert(row.key.to_vec());
                }
            }
        }
        if !unread.is_empty() {
            self.close_nodes_of(view, &unread)?;
        }
        Ok(())
    }

    /// Takes nodes in again of which some row could not be read, where all rows can be now. A node
    /// that the database fails for stays closed, and does not keep others closed.
    pub fn reopen(&mut self, view: &View) -> Vec<Freed> {
        let mut freed = Vec::new();
        let mut failed = None;
        for id in self.closed.clone() {
            match self.open(view, &id) {
                Ok(Some(slot)) => self.note_freed(slot, view.index(), true, &mut freed),
                // It is gone, which is followed as for any other.
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            let error = chain(&error);
            tracing::warn!(error, "nodes stay closed: the database fails");
        }
        freed
    }

    /// Whether a node gets nothing more, as something of it could not be read.
    pub fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// What could not be read since the last call.
    pub fn take_left_out(&mut self) -> Vec<StorageError> {
        std::mem::take(&mut self.left_out)
    }

    /// Adds a node, or describes it anew.
    fn put_node(&mut self, mut node: Node) -> u32 {
        if self.closed.contains(&node.id) {
            node.scheduling_eligibility = eligibility::INELIGIBLE.into();
        }
        self.cluster.upsert_node(node)
    }

    /// A node gets nothing more.
    fn close(&mut self, id: &str) {
        self.closed.insert(id.to_owned());
        if let Some(info) = self.cluster.node(id) {
            let node = Node::clone(&info.node);
            self.put_node(node);
        }
    }

    /// What a node that cannot be read is taken for: as it was known, else one that has nothing to
    /// give. It is there, so that what runs on it is not lost.
    fn stand_in(&mut self, id: &str) -> Node {
        self.closed.insert(id.to_owned());
        match self.cluster.node(id) {
            Some(info) => Node::clone(&info.node),
            None => Node {
                id: id.into(),
                status: node_status::READY.into(),
                ..Node::default()
            },
        }
    }

    /// Closes the nodes that these allocations are on, which are given by their keys: what they
    /// take there is not known.
    fn close_nodes_of(
        &mut self,
        view: &View,
        unread: &BTreeSet<Vec<u8>>,
    ) -> Result<(), StorageError> {
        let mut entries = view.index_cursor::<AllocsByNode>(&Scan::all());
        while let Some(entry) = entries.advance()? {
            let mut key = entry.key;
            if unread.contains(entry.primary)
                && let Ok(node) = Id::decode(&mut key)
            {
                self.close(node.as_str());
            }
        }
        Ok(())
    }

    /// The cluster as of the last change that was followed.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What a live allocation takes, and where.
    pub fn demand(&self, alloc_id: &str) -> Option<(u32, &Demand)> {
        self.live
            .get(alloc_id)
            .map(|live| (live.slot, &live.demand))
    }

    /// Says what an event in flight will do to an allocation.
    pub fn expect(&mut self, alloc_id: String, event: EventId, effect: Effect) {
        if let Effect::Takes { slot, demand, .. } = &effect
            && let Some(info) = &self.cluster.slot(*slot).info
        {
            self.volumes
                .expect(&alloc_id, &info.node.id, &demand.volumes);
        }
        self.expected.insert(alloc_id, (event, effect));
    }

    /// Whether a plan may place an allocation that uses this volume on a node.
    ///
    /// # Errors
    /// Why not.
    pub fn check_volume(
        &self,
        node_id: &str,
        one: &VolumeUse,
        stopped: &[&str],
    ) -> Result<(), &'static str> {
        self.volumes.check(&self.cluster, node_id, one, stopped)
    }

    /// What has changed of volumes since the last call.
    pub fn take_changed_volumes(&mut self) -> Vec<(VolumeChange, u64)> {
        self.volumes.take_changed()
    }

    /// An event in flight has come to an end: its expected changes no longer count.
    pub fn forget_in_flight<'a>(&mut self, alloc_ids: impl Iterator<Item = &'a String>) {
        for id in alloc_ids {
            self.take_expected(id);
        }
    }

    fn take_expected(&mut self, id: &str) -> Option<(EventId, Effect)> {
        let (event, effect) = self.expected.remove(id)?;
        if let Effect::Takes { demand, .. } = &effect {
            self.volumes.landed(id, &demand.volumes);
        }
        Some((event, effect))
    }

    fn read_mark(&mut self, view: &View, node_id: &str, slot: u32) -> Result<(), StorageError> {
        match readable(view.get::<NodeUses>(node_id), &mut self.left_out)? {
            Some(Some(row)) => self.cluster.slot_mut(slot).mark = row.mark,
            Some(None) => {}
            None => self.close(node_id),
        }
        Ok(())
    }

    /// Takes one event's changes. Everything in `view` is at or after them.
    pub fn follow(&mut self, view: &View, changes: &[Change]) -> Result<Vec<Freed>, StorageError> {
        let mut freed = Vec::new();
        let mut marks = BTreeSet::new();
        for change in changes {
            match change.table {
                Nodes::ID | NodeStates::ID => self.follow_node(view, change, &mut freed)?,
                Allocs::ID => {
                    let slot = self.follow_alloc(view, change, &mut freed)?;
                    marks.extend(slot);
                }
                _ => {
                    let (cluster, left_out) = (&mut self.cluster, &mut self.left_out);
                    self.volumes.follow(view, cluster, change, left_out)?;
                }
            }
        }
        for slot in marks {
            let info = self.cluster.slot(slot).info.clone();
            if let Some(info) = info {
                self.read_mark(view, &info.node.id, slot)?;
            }
        }
        Ok(freed)
    }

    /// States that every change up to an index was followed.
    pub fn followed(&mut self, index: u64) {
        self.cluster.set_index(index);
    }

    fn follow_node(
        &mut self,
        view: &View,
        change: &Change,
        freed: &mut Vec<Freed>,
    ) -> Result<(), StorageError> {
        // A client's report touches its node's row only to note the time of it.
        if change.kind == EventKind::AllocsUpdatedByClient {
            return Ok(());
        }
        let Some(id) = text_key(&change.key) else {
            return Ok(());
        };
        let deleted = change.table == Nodes::ID && change.operation == Operation::Delete;
        match self.open(view, &id)? {
            Some(slot) => self.note_freed(slot, change.index, true, freed),
            None if deleted => self.remove_node(&id, change.index),
            None => {}
        }
        Ok(())
    }

    /// Takes a node as it is, with all that is on it where it was closed or not known. Where
    /// something of that cannot be read it is closed, also where the database fails: a node that is
    /// read in half gets no placements. Answers its slot; none where the node is gone.
    fn open(&mut self, view: &View, id: &str) -> Result<Option<u32>, StorageError> {
        let whole = self.closed.remove(id) || self.cluster.find(id).is_none();
        let opened = self.read_node(view, id, whole);
        if whole && opened.is_err() {
            self.close(id);
        }
        opened
    }

    fn read_node(
        &mut self,
        view: &View,
        id: &str,
        whole: bool,
    ) -> Result<Option<u32>, StorageError> {
        let node = match readable(nodes::get(view, id), &mut self.left_out)? {
            Some(Some(node)) => node,
            Some(None) => return Ok(None),
            None => self.stand_in(id),
        };
        let slot = self.put_node(node);
        self.read_mark(view, id, slot)?;
        if whole {
            // One that was purged may come back while its allocations are still there.
            let mut jobs = Jobs::default();
            for row in view.by_index::<AllocsByNode>(id) {
                match readable(row, &mut self.left_out)? {
                    Some(row) => {
                        self.put_alloc(view, &row, &mut jobs)?;
                    }
                    None => self.close(id),
                }
            }
        }
        Ok(Some(slot))
    }

    /// A node goes, and with it what is noted of its allocations: its slot is another's soon.
    fn remove_node(&mut self, id: &str, index: u64) {
        self.closed.remove(id);
        if let Some(slot) = self.cluster.find(id) {
            let volumes = self.cluster.volumes_mut();
            let noted = &mut self.volumes;
            self.live.retain(|alloc_id, live| {
                let stays = live.slot != slot;
                if !stays {
                    volumes.remove_user(alloc_id, id, &live.demand.volumes);
                    noted.released(&live.demand.volumes, index);
                }
                stays
            });
            let gone = self.expected.iter();
            let gone = gone.filter(|(_, (_, effect))| effect.slot() == slot);
            let gone: Vec<String> = gone.map(|(alloc_id, _)| alloc_id.clone()).collect();
            self.forget_in_flight(gone.iter());
            self.cluster.remove_node(id);
        }
    }

    fn note_freed(&self, slot: u32, index: u64, ready: bool, freed: &mut Vec<Freed>) {
        let Some(info) = &self.cluster.slot(slot).info else {
            return;
        };
        if ready && !info.ready {
            return;
        }
        let class = info.node.computed_class.clone();
        freed.push(Freed {
            node_id: info.node.id.clone(),
            class,
            index,
        });
    }

    /// Answers the slot whose mark has to be read again.
    fn follow_alloc(
        &mut self,
        view: &View,
        change: &Change,
        freed: &mut Vec<Freed>,
    ) -> Result<Option<u32>, StorageError> {
        let Some(id) = text_key(&change.key) else {
            return Ok(None);
        };
        if change.kind == EventKind::PlanApplied
            && let Some((event, effect)) = self.take_expected(&id)
        {
            self.take_effect(id, event, effect, change.index, freed);
            return Ok(None);
        }
        let read = view.get::<Allocs>(id.as_str());
        let Some(row) = readable(read, &mut self.left_out)? else {
            // What is known of it stays: it may still take its resources.
            self.close_nodes_of(view, &BTreeSet::from([change.key.clone()]))?;
            return Ok(None);
        };
        let before = self.live.get(&id).map(|live| (live.slot, live.unknown));
        let after = match &row {
            Some(row) => self.put_alloc(view, row, &mut Jobs::default())?,
            None => {
                self.remove_live(&id, change.index);
                let (cluster, left_out) = (&mut self.cluster, &mut self.left_out);
                self.volumes.allocation_gone(view, cluster, &id, left_out)?;
                None
            }
        };
        if let (Some((slot, _)), None) = (before, after) {
            self.note_freed(slot, change.index, false, freed);
        }
        let by_client = change.kind == EventKind::AllocsUpdatedByClient;
        let was_unknown = before.is_some_and(|(_, unknown)| unknown);
        // A plan marks the node of whatever it writes, of an allocation that ended long ago too.
        let written = || row.and_then(|row| self.cluster.find(&row.alloc.node_id));
        let slot = after.or(before.map(|(slot, _)| slot)).or_else(written);
        Ok(slot.filter(|_| !by_client || was_unknown))
    }

    fn take_effect(
        &mut self,
        id: String,
        event: EventId,
        effect: Effect,
        index: u64,
        freed: &mut Vec<Freed>,
    ) {
        let before = self.remove_live(&id, index);
        if !self.cluster.is_taken(effect.slot()) {
            return;
        }
        match effect {
            Effect::Takes {
                slot,
                demand,
                unknown,
            } => {
                let place = self.cluster.slot_mut(slot);
                place.used.add(&demand);
                place.mark = event;
                self.use_volumes(&id, slot, &demand);
                self.live.insert(
                    id,
                    Live {
                        slot,
                        demand,
                        unknown,
                        whole: true,
                    },
                );
            }
            Effect::Gone { slot } => {
                self.cluster.slot_mut(slot).mark = event;
                if before.is_some() {
                    self.note_freed(slot, index, false, freed);
                }
            }
        }
    }

    fn remove_live(&mut self, id: &str, index: u64) -> Option<u32> {
        let live = self.live.remove(id)?;
        self.cluster.slot_mut(live.slot).used.sub(&live.demand);
        let uses = &live.demand.volumes;
        if !uses.is_empty()
            && let Some(info) = self.cluster.slot(live.slot).info.clone()
        {
            let volumes = self.cluster.volumes_mut();
            volumes.remove_user(id, &info.node.id, uses);
            self.volumes.released(uses, index);
        }
        Some(live.slot)
    }

    fn use_volumes(&mut self, id: &str, slot: u32, demand: &Demand) {
        if !demand.volumes.is_empty()
            && let Some(info) = self.cluster.slot(slot).info.clone()
        {
            let volumes = self.cluster.volumes_mut();
            volumes.add_user(id, &info.node.id, &demand.volumes);
        }
    }

    /// Answers the slot if the allocation takes resources.
    fn put_alloc(
        &mut self,
        view: &View,
        row: &AllocRow,
        jobs: &mut Jobs,
    ) -> Result<Option<u32>, StorageError> {
        let alloc = &row.alloc;
        let unknown = alloc.client_status == client::UNKNOWN;
        let space = takes_resources(alloc);
        if space && let Some(live) = self.live.get_mut(&alloc.id) {
            // What a live allocation takes is changed by plans alone; most reports change nothing.
            // Its volumes are what it was placed for.
            let demand = Demand {
                volumes: live.demand.volumes.clone(),
                ..demand_of(alloc)
            };
            live.unknown = unknown;
            if live.demand == demand && live.whole {
                return Ok(Some(live.slot));
            }
        }
        self.remove_live(&alloc.id, row.alloc.modify_index);
        if !space {
            return Ok(None);
        }
        let Some(slot) = self.cluster.find(&alloc.node_id) else {
            return Ok(None);
        };
        let (mut demand, mut whole) = (demand_of(alloc), true);
        // Where the cluster manages no volumes, nothing is looked up.
        if !self.cluster.volumes().is_empty() {
            let uses = volume_cache::uses(view, row, jobs);
            match readable(uses, &mut self.left_out)? {
                Some(uses) => demand.volumes = uses,
                None => {
                    whole = false;
                    self.close(&alloc.node_id);
                }
            }
        }
        self.cluster.slot_mut(slot).used.add(&demand);
        self.use_volumes(&alloc.id, slot, &demand);
        self.live.insert(
            alloc.id.clone(),
            Live {
                slot,
                demand,
                unknown,
                whole,
            },
        );
        Ok(Some(slot))
    }
}

/// What was read; none where it is damaged, which is noted.
pub(super) fn readable<R>(
    read: Result<R, StorageError>,
    left_out: &mut Vec<StorageError>,
) -> Result<Option<R>, StorageError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_single_entry() => {
            left_out.push(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The text of an identifier's key.
pub fn text_key(key: &[u8]) -> Option<String> {
    Id::from_bytes(key).ok().map(|id| id.as_str().to_owned())
}

#[cfg(test)]
#[path = "cache_test.rs"]
mod tests;
