//! Volumes in the cache: from rows to what the scheduler weighs, and what may continue when they
//! change.
//!
//! Volumes, their plugins and the allocations that use them are read from one view, so that a
//! decision never sees a volume of one index and its plugin of another (EV-10).

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::status::{access_mode, host_volume};
use drover_events::model::{CsiVolumeKey, Job};
use drover_projections::key::{Id, Key};
use drover_projections::query::csi;
use drover_projections::tables::alloc_jobs::AllocJobs;
use drover_projections::tables::allocs::{AllocRow, Allocs};
use drover_projections::tables::csi_plugins::{CsiPluginRow, CsiPlugins};
use drover_projections::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};
use drover_projections::tables::host_volume_claims::HostVolumeClaims;
use drover_projections::tables::host_volumes::HostVolumes;
use drover_projections::{Change, Operation, Scan, StorageError, Table, View};
use hashbrown::HashMap;

use super::cache::readable;
use crate::scheduler::cluster::{
    Cluster, CsiFacts, Holder, HostFacts, PluginFacts, VolumeKey, VolumeUse, reaches, uses_of,
};

/// A change after which something that waited for a volume may continue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeChange {
    /// This CSI volume is new, can be used again, or fewer claims hold it.
    Volume(CsiVolumeKey),
    /// Volumes of this plugin can be used.
    Plugin(String),
    /// A CSI volume can be reached from elsewhere.
    Reach,
    /// A volume of a host can be used.
    Host,
}

/// A use that a plan in flight brings to a node.
#[derive(Clone, Debug)]
struct Flying {
    alloc_id: String,
    node_id: String,
    one: VolumeUse,
}

/// Jobs whose groups are known, while everything is read.
pub type Jobs = BTreeMap<(String, String, u64), Option<Job>>;

/// What is kept of volumes beside the cluster.
#[derive(Default)]
pub struct VolumeCache {
    /// The volumes that an allocation holds claims on.
    held: HashMap<String, BTreeSet<VolumeKey>>,
    flying: HashMap<VolumeKey, Vec<Flying>>,
    changed: Vec<(VolumeChange, u64)>,
}

impl VolumeCache {
    /// Reads all volumes and plugins from a view. One that cannot be read is left out, and noted:
    /// nothing is placed with it.
    pub fn load(
        view: &View,
        cluster: &mut Cluster,
        left_out: &mut Vec<StorageError>,
    ) -> Result<Self, StorageError> {
        let mut cache = Self::default();
        for row in view.scan::<CsiPlugins>(Scan::all()) {
            let Some(row) = readable(row, left_out)? else {
                continue;
            };
            let facts = plugin_facts(&row);
            cluster
                .volumes_mut()
                .set_plugin(&row.plugin.id, Some(facts));
        }
        for row in view.scan::<CsiVolumes>(Scan::all()) {
            let Some(row) = readable(row, left_out)? else {
                continue;
            };
            let key = (row.volume.namespace.clone(), row.volume.id.clone());
            cache.set_csi(view, cluster, key, Some(&row), 0)?;
        }
        let mut claims = view.cursor::<HostVolumeClaims>(&Scan::all());
        while let Some(row) = claims.advance()? {
            // The key holds the whole claim.
            if let Ok(key) = <(String, String, String, Id)>::from_bytes(row.key) {
                let (namespace, job, group, id) = key;
                let claim = (namespace, job, group, id.as_str().to_owned());
                cluster.volumes_mut().set_sticky(claim, true);
            }
        }
        for row in view.scan::<HostVolumes>(Scan::all()) {
            let Some(row) = readable(row, left_out)? else {
                continue;
            };
            let id = row.id.clone();
            cluster.volumes_mut().set_host(id, Some(host_facts(row)));
        }
        cache.changed.clear();
        Ok(cache)
    }

    /// What has changed since the last call.
    pub fn take_changed(&mut self) -> Vec<(VolumeChange, u64)> {
        std::mem::take(&mut self.changed)
    }

    /// Takes a change, if it is one of volumes or plugins. What cannot be read is as if it was
    /// gone.
    pub fn follow(
        &mut self,
        view: &View,
        cluster: &mut Cluster,
        change: &Change,
        left_out: &mut Vec<StorageError>,
    ) -> Result<(), StorageError> {
        match change.table {
            CsiVolumes::ID => {
                if let Some(key) = key::<(String, String)>(change) {
                    let row = view.get::<CsiVolumes>((key.0.as_str(), key.1.as_str()));
                    let row = readable(row, left_out)?.flatten();
                    self.set_csi(view, cluster, key, row.as_ref(), change.index)?;
                }
            }
            CsiPlugins::ID => {
                if let Some(id) = key::<String>(change) {
                    let row = readable(view.get::<CsiPlugins>(id.as_str()), left_out)?.flatten();
                    let facts = row.as_ref().map(plugin_facts);
                    for key in cluster.volumes_mut().set_plugin(&id, facts) {
                        self.note_volume(key, change.index);
                    }
                    self.note(VolumeChange::Plugin(id), change.index);
                }
            }
            HostVolumes::ID => {
                if let Some((namespace, id)) = key::<(String, Id)>(change) {
                    let row = view.get::<HostVolumes>((namespace.as_str(), id.as_str()));
                    let row = readable(row, left_out)?.flatten();
                    let facts = row.map(host_facts);
                    let usable = facts.as_ref().is_some_and(|facts| facts.ready);
                    let id = id.as_str().to_owned();
                    cluster.volumes_mut().set_host(id, facts);
                    if usable {
                        self.note(VolumeChange::Host, change.index);
                    }
                }
            }
            HostVolumeClaims::ID => {
                let key = key::<(String, String, String, Id)>(change);
                if let Some((namespace, job, group, id)) = key {
                    let claim = (namespace, job, group, id.as_str().to_owned());
                    let held = change.operation == Operation::Put;
                    cluster.volumes_mut().set_sticky(claim, held);
                    if !held {
                        // A group that stuck to it may go elsewhere.
                        self.note(VolumeChange::Host, change.index);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note(&mut self, change: VolumeChange, index: u64) {
        self.changed.push((change, index));
    }

    fn note_volume(&mut self, key: VolumeKey, index: u64) {
        let change = match key {
            VolumeKey::Csi(namespace, id) => VolumeChange::Volume((namespace, id)),
            VolumeKey::Host(..) => VolumeChange::Host,
        };
        self.note(change, index);
    }

    fn set_csi(
        &mut self,
        view: &View,
        cluster: &mut Cluster,
        name: (String, String),
        row: Option<&CsiVolumeRow>,
        index: u64,
    ) -> Result<(), StorageError> {
        let key = VolumeKey::Csi(name.0.clone(), name.1.clone());
        let facts = row.map(|row| csi_facts(view, row)).transpose()?;
        let before = cluster.volumes().csi(&key).cloned();
        for holder in before.iter().flat_map(|facts| &facts.holders) {
            if let Some(held) = self.held.get_mut(&holder.alloc_id) {
                held.remove(&key);
                if held.is_empty() {
                    self.held.remove(&holder.alloc_id);
                }
            }
        }
        if let Some(facts) = &facts {
            for holder in &facts.holders {
                let held = self.held.entry(holder.alloc_id.clone()).or_default();
                held.insert(key.clone());
            }
            if before
                .as_ref()
                .is_none_or(|before| gives_more(before, facts))
            {
                self.note(VolumeChange::Volume(name), index);
                let plugin = VolumeChange::Plugin(facts.plugin_id.clone());
                // A node that had as many volumes as it takes may take another one.
                self.note(plugin, index);
            }
            if before
                .as_ref()
                .is_none_or(|before| before.topologies != facts.topologies)
            {
                self.note(VolumeChange::Reach, index);
            }
        }
        cluster.volumes_mut().set_csi(key, facts);
        Ok(())
    }

    /// An allocation is gone: the claims that it leaves behind are another matter.
    pub fn allocation_gone(
        &mut self,
        view: &View,
        cluster: &mut Cluster,
        alloc_id: &str,
        left_out: &mut Vec<StorageError>,
    ) -> Result<(), StorageError> {
        let held = self.held.get(alloc_id).cloned();
        for key in held.into_iter().flatten() {
            let VolumeKey::Csi(namespace, id) = key else {
                continue;
            };
            let row = view.get::<CsiVolumes>((namespace.as_str(), id.as_str()));
            let row = readable(row, left_out)?.flatten();
            self.set_csi(view, cluster, (namespace, id), row.as_ref(), 0)?;
        }
        Ok(())
    }

    /// An allocation takes no resources any more and may never have claimed what it was placed for.
    pub fn released(&mut self, uses: &[VolumeUse], index: u64) {
        for one in uses {
            self.note_volume(one.key.clone(), index);
        }
    }

    /// A plan in flight places an allocation that uses these.
    pub fn expect(&mut self, alloc_id: &str, node_id: &str, uses: &[VolumeUse]) {
        for one in uses {
            let flying = self.flying.entry(one.key.clone()).or_default();
            flying.push(Flying {
                alloc_id: alloc_id.to_owned(),
                node_id: node_id.to_owned(),
                one: one.clone(),
            });
        }
    }

    /// It is in flight no longer.
    pub fn landed(&mut self, alloc_id: &str, uses: &[VolumeUse]) {
        for one in uses {
            if let Some(flying) = self.flying.get_mut(&one.key) {
                flying.retain(|other| other.alloc_id != alloc_id);
                if flying.is_empty() {
                    self.flying.remove(&one.key);
                }
            }
        }
    }

    /// Whether a plan may place an allocation that uses this on a node, beside what is committed
    /// and what is in flight; `stopped` are the allocations that the plan itself takes away.
    ///
    /// # Errors
    /// Why not.
    pub fn check(
        &self,
        cluster: &Cluster,
        node_id: &str,
        one: &VolumeUse,
        stopped: &[&str],
    ) -> Result<(), &'static str> {
        let volumes = cluster.volumes();
        let flying = self.flying.get(&one.key).into_iter().flatten();
        if let VolumeKey::Host(..) = &one.key {
            if one.access_mode != access_mode::SINGLE_NODE_SINGLE_WRITER {
                return Ok(());
            }
            let mut writers = volumes.writers(&one.key);
            let written = writers.any(|alloc| !stopped.contains(&alloc));
            let mut flying = flying.map(|flying| flying.one.writes);
            return match one.writes && (written || flying.any(|writes| writes)) {
                true => Err("volume is written by another"),
                false => Ok(()),
            };
        }
        let others = flying.map(|flying| &flying.one);
        volumes
            .claimable(one, others)
            .map_err(|_| "volume cannot be claimed")?;
        self.check_node(cluster, node_id, &one.key)
    }

    /// Whether the node can still mount it.
    fn check_node(
        &self,
        cluster: &Cluster,
        node_id: &str,
        key: &VolumeKey,
    ) -> Result<(), &'static str> {
        let volumes = cluster.volumes();
        let facts = volumes.csi(key).ok_or("volume is gone")?;
        let node = cluster.node(node_id).ok_or("node is gone")?;
        let plugin = node.node.csi_node_plugins.get(&facts.plugin_id);
        let plugin = plugin.filter(|plugin| plugin.healthy);
        let reported = plugin
            .ok_or("node cannot mount the volume")?
            .node_info
            .as_ref();
        if !reaches(
            &facts.topologies,
            reported.and_then(|t| t.accessible_topology.as_ref()),
        ) {
            return Err("node cannot reach the volume");
        }
        let most = reported.map_or(0, |reported| reported.max_volumes);
        if most <= 0 {
            return Ok(());
        }
        let here = volumes.of_plugin_on(node_id, &facts.plugin_id);
        let mut here: BTreeSet<&VolumeKey> = here.into_iter().collect();
        let flying = self.flying.values().flatten();
        let flying = flying.filter(|flying| flying.node_id == node_id);
        here.extend(flying.map(|flying| &flying.one.key).filter(|key| {
            let other = volumes.csi(key);
            other.is_some_and(|other| other.plugin_id == facts.plugin_id)
        }));
        here.remove(key);
        match i64::try_from(here.len()).unwrap_or(i64::MAX) >= most {
            true => Err("node has the maximum number of volumes"),
            false => Ok(()),
        }
    }
}

/// What an allocation uses of volumes, by its version of its job.
pub fn uses(view: &View, row: &AllocRow, jobs: &mut Jobs) -> Result<Vec<VolumeUse>, StorageError> {
    let key = row.job_key();
    if !jobs.contains_key(&key) {
        let job = view.get::<AllocJobs>(&key)?;
        jobs.insert(key.clone(), job);
    }
    let alloc = &row.alloc;
    let job = jobs.get(&key).and_then(Option::as_ref);
    let group = job.and_then(|job| job.task_group(&alloc.task_group));
    Ok(group.map_or_else(Vec::new, |group| {
        let job = (alloc.namespace.as_str(), alloc.job_id.as_str());
        uses_of(group, job, (&alloc.name, &alloc.node_id))
    }))
}

/// Whether there is more to be had of a volume than before.
fn gives_more(before: &CsiFacts, after: &CsiFacts) -> bool {
    let held = |alloc: &str| after.holders.iter().any(|holder| holder.alloc_id == alloc);
    let freed = before.holders.iter().any(|holder| !held(&holder.alloc_id));
    let described = |facts: &CsiFacts| {
        let modes = facts.modes.clone();
        let rest = (facts.exhausted, facts.controller_required);
        (
            facts.plugin_id.clone(),
            modes,
            rest,
            facts.topologies.clone(),
        )
    };
    freed || described(before) != described(after)
}

fn csi_facts(view: &View, row: &CsiVolumeRow) -> Result<CsiFacts, StorageError> {
    let row = csi::repaired(row);
    let mut holders: BTreeMap<String, Holder> = BTreeMap::new();
    for claims in [&row.past_claims, &row.read_claims, &row.write_claims] {
        for (alloc_id, claim) in claims {
            if claim.state == drover_events::csi::state::DETACH_UNCONFIRMED {
                continue;
            }
            let alloc = match view.get::<Allocs>(alloc_id.as_str()) {
                // The claim stands all the same; the row is left out where allocations are read.
                Err(error) if error.is_single_entry() => None,
                read => read?.map(|row| row.alloc),
            };
            let node = alloc.as_ref().map(|alloc| alloc.node_id.clone());
            let holder = Holder {
                alloc_id: alloc_id.clone(),
                node_id: match claim.node_id.as_str() {
                    "" => node.unwrap_or_default(),
                    node => node.to_owned(),
                },
                job: alloc.map(|alloc| (alloc.namespace, alloc.job_id)),
                writes: claim.mode == drover_events::csi::claim_mode::WRITE,
                access_mode: claim.access_mode.clone(),
                attachment_mode: match claim.attachment_mode.as_str() {
                    "" => row.volume.attachment_mode.clone(),
                    own => own.to_owned(),
                },
            };
            holders.insert(alloc_id.clone(), holder);
        }
    }
    let volume = row.volume;
    let modes = volume.requested_capabilities.iter();
    Ok(CsiFacts {
        modes: modes
            .map(|one| (one.access_mode.clone(), one.attachment_mode.clone()))
            .collect(),
        plugin_id: volume.plugin_id,
        controller_required: volume.controller_required,
        access_mode: volume.access_mode,
        topologies: volume.topologies.to_vec(),
        exhausted: !volume.resource_exhausted.is_unset(),
        holders: holders.into_values().collect(),
    })
}

fn plugin_facts(row: &CsiPluginRow) -> PluginFacts {
    PluginFacts {
        controllers: row.plugin.controllers_healthy,
        nodes: row.plugin.nodes_healthy,
        controller_required: csi::controller_required(row),
    }
}

fn host_facts(row: drover_events::model::HostVolume) -> HostFacts {
    HostFacts {
        ready: row.state == host_volume::READY,
        capabilities: row.requested_capabilities.to_vec(),
        namespace: row.namespace,
        node_id: row.node_id,
        name: row.name,
    }
}

fn key<K: Key>(change: &Change) -> Option<K> {
    K::from_bytes(&change.key).ok()
}
