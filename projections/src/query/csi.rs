//! Volumes and plugins as they are read: joined on copies, never in the rows (EV-06, CSI-14), with
//! claims whose allocations are gone shown as past ones by one function (CSI-27).

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::csi::{CsiVolumeClaimed, claim_mode};
use drover_events::gojson::{List, Map};
use drover_events::model::status::{access_mode, attachment_mode, volume_type};
use drover_events::model::{
    Allocation, CsiInfo, CsiPlugin, CsiVolListStub, CsiVolume, Job, TaskGroup, VolumeRequest,
};

use super::QueryResult;
use crate::engine::key::Id;
use crate::engine::scan::{Prefix, Scan};
use crate::engine::txn::ReadRows;
use crate::read::view::View;
use crate::tables::alloc_jobs::AllocJobs;
use crate::tables::allocs::{AllocRow, Allocs, AllocsByNode};
use crate::tables::csi_plugins::{CsiPluginRow, CsiPlugins};
use crate::tables::csi_volumes::{CsiVolumeRow, CsiVolumes, CsiVolumesByPlugin};
use crate::tables::nodes::NodesByPlugin;

/// A volume as one view sees it, and its plugin from the same view (EV-10).
#[derive(Clone, Debug)]
pub struct Volume {
    /// The volume and its claims, complete; those of allocations that are gone or have ended are
    /// among the past ones.
    pub row: CsiVolumeRow,
    /// Its plugin; none while nothing runs it and no job wants it.
    pub plugin: Option<Arc<CsiPluginRow>>,
}

/// Shows that a volume has mount flags, and not which: passwords may stand there.
pub fn hide_mount_flags(volume: &mut CsiVolume) {
    if let Some(options) = &mut volume.mount_options
        && !options.mount_flags.is_empty()
    {
        options.mount_flags = List::from(vec!["[REDACTED]".to_owned()]);
    }
}

impl Volume {
    /// Whether claims can be served now: a node runs the plugin, and a controller where it needs
    /// one.
    pub fn schedulable(&self) -> bool {
        let Some(plugin) = &self.plugin else {
            return false;
        };
        let plugin = &plugin.plugin;
        plugin.nodes_healthy > 0
            && (!self.row.volume.controller_required || plugin.controllers_healthy > 0)
    }

    /// The volume as the API shows it: with the health of its plugin and its holders, and without
    /// its secrets (CSI-09).
    pub fn shown(&self) -> CsiVolume {
        let mut shown = self.row.volume.clone();
        shown.schedulable = self.schedulable();
        if let Some(plugin) = &self.plugin {
            let plugin = &plugin.plugin;
            shown.controllers_healthy = plugin.controllers_healthy;
            shown.controllers_expected = plugin.controllers_expected;
            shown.nodes_healthy = plugin.nodes_healthy;
            shown.nodes_expected = plugin.nodes_expected;
            if !plugin.provider.is_empty() {
                shown.provider.clone_from(&plugin.provider);
                shown.provider_version.clone_from(&plugin.version);
            }
        }
        let holders = |claims: &Map<CsiVolumeClaimed>| -> Map<Option<Allocation>> {
            claims.keys().map(|alloc| (alloc.clone(), None)).collect()
        };
        shown.read_allocs = holders(&self.row.read_claims);
        shown.write_allocs = holders(&self.row.write_claims);
        shown.secrets = Map::nil();
        hide_mount_flags(&mut shown);
        shown
    }

    /// The volume as lists show it.
    pub fn stub(&self) -> CsiVolListStub {
        let shown = self.shown();
        let count =
            |claims: &Map<CsiVolumeClaimed>| i64::try_from(claims.len()).unwrap_or(i64::MAX);
        CsiVolListStub {
            current_readers: count(&self.row.read_claims),
            current_writers: count(&self.row.write_claims),
            id: shown.id,
            namespace: shown.namespace,
            name: shown.name,
            external_id: shown.external_id,
            topologies: shown.topologies,
            access_mode: shown.access_mode,
            attachment_mode: shown.attachment_mode,
            schedulable: shown.schedulable,
            plugin_id: shown.plugin_id,
            provider: shown.provider,
            provider_version: shown.provider_version,
            controller_required: shown.controller_required,
            controllers_healthy: shown.controllers_healthy,
            controllers_expected: shown.controllers_expected,
            nodes_healthy: shown.nodes_healthy,
            nodes_expected: shown.nodes_expected,
            resource_exhausted: shown.resource_exhausted,
            create_index: shown.create_index,
            modify_index: shown.modify_index,
            create_time: shown.create_time,
            modify_time: shown.modify_time,
        }
    }

    /// What the plugin calls the volume (CSI-10).
    pub fn name_at_plugin(&self) -> &str {
        match self.row.volume.external_id.as_str() {
            "" => &self.row.volume.id,
            external => external,
        }
    }
}

/// The volume with past claims and its plugin.
pub fn volume(from: &impl ReadRows, (namespace, id): (&str, &str)) -> QueryResult<Option<Volume>> {
    let Some(row) = from.row::<CsiVolumes>((namespace, id))? else {
        return Ok(None);
    };
    with_past_claims(from, &row).map(Some)
}

/// A volume's row as it is read: complete, whatever wrote it (EV-11, CSI-26), its plugin beside
/// it, and the claims of allocations that are gone or have ended among the past ones (CSI-27).
pub fn with_past_claims(from: &impl ReadRows, row: &CsiVolumeRow) -> QueryResult<Volume> {
    let mut row = repaired(row);
    let mut past = Vec::new();
    for (claims, holds) in [
        (&mut row.read_claims, true),
        (&mut row.write_claims, true),
        (&mut row.past_claims, false),
    ] {
        for (alloc, claim) in claims.iter_mut() {
            let held = from.row::<Allocs>(alloc.as_str())?;
            if let Some(held) = &held
                && claim.node_id.is_empty()
            {
                claim.node_id.clone_from(&held.alloc.node_id);
            }
            if holds && is_over(held.as_deref()) {
                past.push(claim.clone());
            }
        }
    }
    for claim in past {
        let known = row.past_claims.to_mut().entry(claim.allocation_id.clone());
        let known = known.or_insert_with(|| claim.clone());
        // Its allocation may be gone, and the holder's list may know it still.
        if known.node_id.is_empty() {
            known.node_id = claim.node_id;
        }
    }
    let plugin = from.row::<CsiPlugins>(row.volume.plugin_id.as_str())?;
    let mut volume = Volume { row, plugin };
    if let Some(required) = volume.plugin.as_deref().and_then(controller_required) {
        volume.row.volume.controller_required = required;
    }
    Ok(volume)
}

/// Whether what an allocation holds is to be given back: it has ended, or is gone (CSI-27).
fn is_over(held: Option<&AllocRow>) -> bool {
    held.is_none_or(|held| held.alloc.client_terminal())
}

/// The volumes (namespace, id) on which the change of an allocation at an index may have left a
/// past claim: those that it requests, once it is over. For an allocation that is gone they are
/// those it requested before; `None` where that is not known any more: then it may be any volume.
pub fn left_by(view: &View, alloc: &Id, index: u64) -> QueryResult<Option<Vec<(String, String)>>> {
    let held = view.row::<Allocs>(alloc)?;
    if !is_over(held.as_deref()) {
        return Ok(Some(Vec::new()));
    }
    let requested = |from: &View, row: &AllocRow| -> QueryResult<Vec<(String, String)>> {
        let requested = requests_of_alloc(from, row)?.into_iter();
        let volumes = requested.map(|(source, _)| (row.alloc.namespace.clone(), source));
        Ok(volumes.collect())
    };
    if let Some(row) = held {
        return requested(view, &row).map(Some);
    }
    let Some(before) = view.as_of(index.saturating_sub(1), 0) else {
        return Ok(None);
    };
    let row = before.row::<Allocs>(alloc)?;
    row.map(|row| requested(&before, &row)).transpose()
}

/// Fills in what rows of other ages lack: a claim for each allocation that the volume lists, and
/// what a claim says of itself.
pub fn repaired(row: &CsiVolumeRow) -> CsiVolumeRow {
    let mut row = row.clone();
    for alloc in row.volume.read_allocs.keys() {
        row.read_claims.to_mut().entry(alloc.clone()).or_default();
    }
    for alloc in row.volume.write_allocs.keys() {
        row.write_claims
            .to_mut()
            .entry(alloc.clone())
            .or_default()
            .mode = claim_mode::WRITE;
    }
    row.volume.read_allocs = Map::nil();
    row.volume.write_allocs = Map::nil();
    let volume = &row.volume;
    let complete = |alloc: &String, claim: &mut CsiVolumeClaimed| {
        claim.namespace.clone_from(&volume.namespace);
        claim.volume_id.clone_from(&volume.id);
        claim.allocation_id.clone_from(alloc);
        if claim.access_mode.is_empty() {
            claim.access_mode = match (volume.access_mode.as_str(), claim.mode) {
                ("", claim_mode::WRITE) => access_mode::SINGLE_NODE_WRITER.to_owned(),
                ("", _) => access_mode::MULTI_NODE_READER.to_owned(),
                (known, _) => known.to_owned(),
            };
        }
        if claim.attachment_mode.is_empty() {
            claim.attachment_mode = match volume.attachment_mode.as_str() {
                "" => attachment_mode::FILE_SYSTEM.to_owned(),
                known => known.to_owned(),
            };
        }
    };
    for claims in [
        &mut row.read_claims,
        &mut row.write_claims,
        &mut row.past_claims,
    ] {
        for (alloc, claim) in claims.iter_mut() {
            complete(alloc, claim);
        }
    }
    let held = [&row.write_claims, &row.read_claims].into_iter();
    let first = held.flat_map(|claims| claims.values()).next().cloned();
    if let Some(first) = first
        && row.volume.access_mode.is_empty()
    {
        row.volume.access_mode = first.access_mode;
        row.volume.attachment_mode = first.attachment_mode;
    }
    row
}

/// All volumes of a namespace, or of all of them.
pub fn volumes(
    from: &impl ReadRows,
    namespace: Option<&str>,
) -> QueryResult<Vec<Arc<CsiVolumeRow>>> {
    let scan = namespace.map_or_else(Scan::all, |namespace| {
        Scan::prefix(Prefix::new().str(namespace))
    });
    from.rows::<CsiVolumes>(scan).collect()
}

/// The volumes of a plugin, in every namespace.
pub fn volumes_of_plugin(
    from: &impl ReadRows,
    plugin: &str,
) -> QueryResult<Vec<Arc<CsiVolumeRow>>> {
    let scan = Scan::with_key_prefix::<String>(plugin);
    from.rows_by::<CsiVolumesByPlugin>(scan).collect()
}

/// The CSI volumes that a group requests, by the source each allocation of its own gets.
pub fn requested_for(group: &TaskGroup, alloc_name: &str) -> Vec<(String, VolumeRequest)> {
    requested_of_type(group, alloc_name, volume_type::CSI)
}

pub(super) fn requested_of_type(
    group: &TaskGroup,
    alloc_name: &str,
    r#type: &str,
) -> Vec<(String, VolumeRequest)> {
    let requested = group
        .volumes
        .values()
        .filter(|requested| requested.r#type == r#type);
    requested
        .map(|requested| {
            (
                requested.source_for(alloc_name).into_owned(),
                requested.clone(),
            )
        })
        .collect()
}

/// The requests of an allocation for CSI volumes: source, and how it is requested.
pub fn requests_of_alloc(
    from: &impl ReadRows,
    row: &AllocRow,
) -> QueryResult<Vec<(String, VolumeRequest)>> {
    let Some(job) = from.row::<AllocJobs>(&row.job_key())? else {
        return Ok(Vec::new());
    };
    let group = group_of(&job, &row.alloc.task_group);
    Ok(group.map_or_else(Vec::new, |group| requested_for(group, &row.alloc.name)))
}

/// The volumes that the allocations of a node request, by (namespace, id) (CSI-47).
pub fn volumes_of_node(from: &impl ReadRows, node: &str) -> QueryResult<Vec<Arc<CsiVolumeRow>>> {
    let mut found = BTreeMap::new();
    for row in from.rows_by::<AllocsByNode>(Scan::with_key_prefix::<Id>(node)) {
        let row = row?;
        for (source, _) in requests_of_alloc(from, &row)? {
            let key = (row.alloc.namespace.clone(), source);
            if found.contains_key(&key) {
                continue;
            }
            let volume = from.row::<CsiVolumes>((key.0.as_str(), key.1.as_str()))?;
            if let Some(volume) = volume {
                found.insert(key, volume);
            }
        }
    }
    Ok(found.into_values().collect())
}

/// A plugin, and where it runs.
#[derive(Clone, Debug)]
pub struct PluginNodes {
    /// Counts, provider and jobs.
    pub row: Arc<CsiPluginRow>,
    /// Its controllers, by node.
    pub controllers: BTreeMap<String, CsiInfo>,
    /// Its nodes, by node.
    pub nodes: BTreeMap<String, CsiInfo>,
}

impl PluginNodes {
    /// The plugin as the API shows it, without its allocations.
    pub fn shown(&self) -> CsiPlugin {
        CsiPlugin {
            controllers: Map::from(self.controllers.clone()),
            nodes: Map::from(self.nodes.clone()),
            ..self.row.plugin.clone()
        }
    }

    /// The nodes with a healthy controller.
    pub fn healthy_controllers(&self) -> impl Iterator<Item = (&String, &CsiInfo)> {
        self.controllers.iter().filter(|(_, info)| info.healthy)
    }

    /// The nodes where it can mount.
    pub fn healthy_nodes(&self) -> impl Iterator<Item = (&String, &CsiInfo)> {
        self.nodes.iter().filter(|(_, info)| info.healthy)
    }
}

/// The plugin with its controllers and nodes, healthy or not.
pub fn plugin(from: &impl ReadRows, id: &str) -> QueryResult<Option<PluginNodes>> {
    let Some(row) = from.row::<CsiPlugins>(id)? else {
        return Ok(None);
    };
    let mut plugin = PluginNodes {
        row,
        controllers: BTreeMap::new(),
        nodes: BTreeMap::new(),
    };
    for node in from.rows_by::<NodesByPlugin>(Scan::with_key_prefix::<String>(id)) {
        let node = node?;
        let parts = [
            (&node.csi_controller_plugins, &mut plugin.controllers),
            (&node.csi_node_plugins, &mut plugin.nodes),
        ];
        for (reported, known) in parts {
            if let Some(info) = reported.get(id)
                && counts(from, id, info)?
            {
                known.insert(node.id.clone(), info.clone());
            }
        }
    }
    Ok(Some(plugin))
}

/// Whether what a node reports of a plugin still stands: the allocation that runs it has not ended.
/// A node reports that some seconds later than the allocation does. A plugin that no allocation
/// runs stands by itself.
pub(crate) fn counts(from: &impl ReadRows, plugin: &str, info: &CsiInfo) -> QueryResult<bool> {
    if info.alloc_id.is_empty() {
        return Ok(true);
    }
    let Some(row) = from.row::<Allocs>(info.alloc_id.as_str())? else {
        return Ok(false);
    };
    if row.alloc.client_terminal() {
        return Ok(false);
    }
    let job = from.row::<AllocJobs>(&row.job_key())?;
    Ok(job.is_some_and(|job| {
        group_of(&job, &row.alloc.task_group).is_some_and(|group| runs(group, plugin).is_some())
    }))
}

/// What a group runs of a plugin: (a controller, a node).
pub(crate) fn runs(group: &TaskGroup, plugin: &str) -> Option<(bool, bool)> {
    let tasks = group
        .tasks
        .iter()
        .filter_map(|task| task.csi_plugin_config.as_ref());
    let mut found = None;
    for config in tasks.filter(|config| config.id == plugin) {
        let (controller, node) = found.unwrap_or((false, false));
        let monolith = config.r#type == "monolith";
        found = Some((
            controller || monolith || config.r#type == "controller",
            node || monolith || config.r#type == "node",
        ));
    }
    found
}

/// The ids of the plugins that a job runs.
pub(crate) fn plugins_of_job(job: &Job) -> std::collections::BTreeSet<String> {
    let tasks = job.task_groups.iter().flat_map(|group| group.tasks.iter());
    let configs = tasks.filter_map(|task| task.csi_plugin_config.as_ref());
    configs.map(|config| config.id.clone()).collect()
}

pub(crate) fn group_of<'j>(job: &'j Job, name: &str) -> Option<&'j TaskGroup> {
    job.task_groups.iter().find(|group| group.name == name)
}

/// Whether volumes of the plugin must be attached by its controller: it has one that can (CSI-13).
/// None while no controller has reported what it can: then what was known stays.
pub fn controller_required(row: &CsiPluginRow) -> Option<bool> {
    let required = row.plugin.controller_required;
    match (row.nodes > 0 && !required, row.reported) {
        (true, _) => Some(false),
        (false, true) => Some(required && row.attaches),
        (false, false) => None,
    }
}

/// Why a claim that is taken cannot be served, whatever access modes say: none if it can.
pub fn unserved(from: &impl ReadRows, claim: &CsiVolumeClaimed) -> QueryResult<Option<String>> {
    let id = claim.allocation_id.as_str();
    let volume = &claim.volume_id;
    let Some(row) = from.row::<Allocs>(id)? else {
        return Ok(Some(format!("alloc \"{id}\" not found")));
    };
    let alloc = &row.alloc;
    let why = if alloc.terminal_status() {
        format!("allocation \"{id}\" has ended and cannot claim volume \"{volume}\"")
    } else if alloc.namespace != claim.namespace {
        format!(
            "allocation \"{id}\" is in namespace \"{}\" and cannot claim volume \"{volume}\" of \
             namespace \"{}\"",
            alloc.namespace, claim.namespace
        )
    } else if !claim.node_id.is_empty() && claim.node_id != alloc.node_id {
        format!(
            "allocation \"{id}\" does not run on node \"{}\"",
            claim.node_id
        )
    } else {
        return Ok(None);
    };
    Ok(Some(why))
}

/// Whether an allocation that holds the volume still lives; its id.
pub fn live_holder(from: &impl ReadRows, row: &CsiVolumeRow) -> QueryResult<Option<String>> {
    for alloc in row.holders() {
        let held = from.row::<Allocs>(alloc)?;
        if held.is_some_and(|held| !held.alloc.client_terminal()) {
            return Ok(Some(alloc.to_owned()));
        }
    }
    Ok(None)
}

/// The id of a volume of the namespace (NS-07).
pub fn volume_of_namespace(from: &impl ReadRows, namespace: &str) -> QueryResult<Option<String>> {
    let scan = Scan::prefix(Prefix::new().str(namespace));
    let found = from.rows::<CsiVolumes>(scan).next().transpose()?;
    Ok(found.map(|row| row.volume.id.clone()))
}
