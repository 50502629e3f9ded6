//! Volumes as operators have them made, checked, grown and deleted, and snapshots of them: the
//! plugin is asked first, or last, so that whatever breaks off can be asked for again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_events::csi::CsiVolumeClaimed;
use drover_events::gojson::{List, Map};
use drover_events::model::{
    CsiControllerInfo, CsiSnapshot, CsiTopology, CsiVolume, CsiVolumeExternalStub,
};
use drover_projections::claims as rules;
use drover_projections::query::csi::{self, Plugin, Volume};

use tokio::time::timeout;

use super::{Key, StepError, Volumes, claims, filled};
use crate::commands::csi::{DeregisterVolumes, RegisterVolumes, removable, validate};
use crate::error::ApiError;
use crate::proposer::Origin;
use crate::rpc::csi::{
    ControllerCreateSnapshot, ControllerCreateSnapshotRequest, ControllerCreateVolume,
    ControllerCreateVolumeRequest, ControllerDeleteSnapshot, ControllerDeleteSnapshotRequest,
    ControllerDeleteVolume, ControllerDeleteVolumeRequest, ControllerExpandVolume,
    ControllerExpandVolumeRequest, ControllerListSnapshots, ControllerListSnapshotsRequest,
    ControllerListVolumes, ControllerListVolumesRequest, ControllerValidateVolume,
    ControllerValidateVolumeRequest, NodeExpandVolume, NodeExpandVolumeRequest, Secrets,
};

/// How long a write waits for the cluster's first key.
const FIRST_KEY: Duration = Duration::from_secs(5);

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// How many at most; 0 for as many as there are.
    pub most: i32,
    /// Where it begins.
    pub token: String,
}

impl Volumes {
    /// Has volumes made that are not there, grows those that are asked to be larger, and registers
    /// them; as they are then, secrets sealed. The same again changes nothing (CSI-05).
    ///
    /// # Errors
    /// A refusal, before any call or of the plugin.
    pub async fn create(
        &self,
        volumes: Vec<CsiVolume>,
        origin: &Origin,
    ) -> Result<(Vec<CsiVolume>, u64), StepError> {
        let mut made = Vec::new();
        for volume in self.checked(volumes)? {
            let known = self.known(&volume)?;
            made.push(match known {
                Some(known) => self.grown(known, volume).await?,
                None => self.made(volume).await?,
            });
        }
        self.registered(made, origin).await
    }

    /// Registers volumes that their provider has already, once a controller says that they can be
    /// used as they are to be (CSI-02); grows those that are asked to be larger.
    ///
    /// # Errors
    /// A refusal, before any call or of the plugin.
    pub async fn register(
        &self,
        volumes: Vec<CsiVolume>,
        origin: &Origin,
    ) -> Result<(Vec<CsiVolume>, u64), StepError> {
        let mut valid = Vec::new();
        for volume in self.checked(volumes)? {
            let known = self.known(&volume)?;
            self.validated(&volume, known.as_ref()).await?;
            valid.push(match known {
                Some(known) => self.grown(known, volume).await?,
                None => volume,
            });
        }
        self.registered(valid, origin).await
    }

    /// Deletes a volume at its provider, and then removes it. One that is used is refused before
    /// any call, and nobody can take it meanwhile.
    ///
    /// # Errors
    /// It is used, or the plugin does not delete it.
    pub async fn delete(
        &self,
        key: &Key,
        secrets: Secrets,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        self.must_lead()?;
        let _turn = self.taking.turn(key.clone()).await;
        let place = (key.0.as_str(), key.1.as_str());
        let volume = removable(&self.projections.view(), place, false)?;
        let plugin = volume.row.volume.plugin_id.clone();
        self.can(&plugin, "create and delete volumes", |can| {
            can.supports_create_delete
        })?;
        let mut with = self.secrets(&volume)?;
        with.0.extend(secrets.0);
        let asked = ControllerDeleteVolumeRequest {
            plugin_id: plugin,
            controller_node_id: String::new(),
            external_volume_id: volume.plugin_name().to_owned(),
            secrets: with,
        };
        let deleted = self.shim.controller::<ControllerDeleteVolume>(asked).await;
        deleted.map_err(StepError::of("controller delete volume: "))?;
        let command = DeregisterVolumes {
            namespace: key.0.clone(),
            ids: vec![key.1.clone()],
            force: false,
        };
        Ok(self
            .record
            .record(Arc::new(command), origin.clone())
            .await?
            .index)
    }

    /// The volumes that a plugin's provider has.
    ///
    /// # Errors
    /// The plugin does not tell.
    pub async fn external(
        &self,
        plugin: &str,
        page: Page,
    ) -> Result<(List<CsiVolumeExternalStub>, String), StepError> {
        self.can(plugin, "list volumes", |can| can.supports_list_volumes)?;
        let asked = ControllerListVolumesRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            max_entries: page.most,
            starting_token: page.token,
        };
        let answer = self.shim.controller::<ControllerListVolumes>(asked).await;
        let answer = answer.map_err(StepError::of("controller list volumes: "))?;
        Ok((answer.entries, answer.next_token))
    }

    /// Makes snapshots of volumes of a namespace.
    ///
    /// # Errors
    /// There is no such volume, or the plugin does not make one.
    pub async fn create_snapshots(
        &self,
        namespace: &str,
        snapshots: Vec<CsiSnapshot>,
    ) -> Result<Vec<CsiSnapshot>, StepError> {
        self.must_lead()?;
        let mut made = Vec::new();
        for snapshot in snapshots {
            made.push(self.create_snapshot(namespace, snapshot).await?);
        }
        Ok(made)
    }

    async fn create_snapshot(
        &self,
        namespace: &str,
        snapshot: CsiSnapshot,
    ) -> Result<CsiSnapshot, StepError> {
        let id = snapshot.source_volume_id.as_str();
        if id.is_empty() {
            return Err(ApiError::bad_request("missing volume ID").into());
        }
        let volume = self.load(&self.projections.view(), (namespace, id))?;
        let plugin = volume.row.volume.plugin_id.clone();
        self.can(&plugin, "create and delete snapshots", |can| {
            can.supports_create_delete_snapshot
        })?;
        let mut secrets = self.secrets(&volume)?;
        secrets
            .0
            .extend(filled(&snapshot.secrets).iter().map(owned));
        let asked = ControllerCreateSnapshotRequest {
            plugin_id: plugin.clone(),
            controller_node_id: String::new(),
            volume_id: volume.plugin_name().to_owned(),
            name: snapshot.name.clone(),
            secrets,
            parameters: filled(&snapshot.parameters),
        };
        let answer = self
            .shim
            .controller::<ControllerCreateSnapshot>(asked)
            .await;
        let answer = answer.map_err(StepError::of("controller create snapshot: "))?;
        Ok(CsiSnapshot {
            id: answer.id,
            external_source_volume_id: answer.external_source_volume_id,
            size_bytes: answer.size_bytes,
            create_time: answer.create_time,
            is_ready: answer.is_ready,
            plugin_id: plugin,
            secrets: Map::nil(),
            ..snapshot
        })
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// The plugin does not delete it.
    pub async fn delete_snapshot(
        &self,
        plugin: &str,
        id: &str,
        secrets: Secrets,
    ) -> Result<(), StepError> {
        self.must_lead()?;
        self.can(plugin, "create and delete snapshots", |can| {
            can.supports_create_delete_snapshot
        })?;
        let asked = ControllerDeleteSnapshotRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            id: id.to_owned(),
            secrets,
        };
        let deleted = self
            .shim
            .controller::<ControllerDeleteSnapshot>(asked)
            .await;
        deleted.map_err(StepError::of("controller delete snapshot: "))?;
        Ok(())
    }

    /// The snapshots that a plugin's provider has.
    ///
    /// # Errors
    /// The plugin does not tell.
    pub async fn snapshots(
        &self,
        plugin: &str,
        page: Page,
        secrets: Secrets,
    ) -> Result<(List<CsiSnapshot>, String), StepError> {
        self.can(plugin, "list snapshots", |can| can.supports_list_snapshots)?;
        let asked = ControllerListSnapshotsRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            max_entries: page.most,
            starting_token: page.token,
            secrets,
        };
        let answer = self.shim.controller::<ControllerListSnapshots>(asked).await;
        let answer = answer.map_err(StepError::of("controller list snapshots: "))?;
        Ok((answer.entries, answer.next_token))
    }

    /// What can be refused before anything is asked.
    fn checked(&self, volumes: Vec<CsiVolume>) -> Result<Vec<CsiVolume>, StepError> {
        self.must_lead()?;
        if volumes.is_empty() {
            return Err(ApiError::bad_request("missing volume definition").into());
        }
        let mut seen = BTreeSet::new();
        for volume in &volumes {
            validate(volume)?;
            if !seen.insert((&volume.namespace, &volume.id)) {
                let text = format!("volume \"{}\" is named twice", volume.id);
                return Err(ApiError::bad_request(text).into());
            }
            self.plugin(&volume.plugin_id)?;
        }
        Ok(volumes)
    }

    fn known(&self, volume: &CsiVolume) -> Result<Option<Volume>, StepError> {
        let view = self.projections.view();
        Ok(csi::volume(&view, (&volume.namespace, &volume.id))?)
    }

    fn plugin(&self, id: &str) -> Result<Plugin, StepError> {
        let view = self.projections.view();
        let missing = || ApiError::refused(format!("no CSI plugin named: {id} could be found"));
        let plugin = csi::plugin(&view, id)?;
        plugin.ok_or_else(missing).map_err(StepError::from)
    }

    /// Refuses what the plugin's controllers say they cannot.
    fn can(
        &self,
        plugin: &str,
        what: &str,
        can: impl Fn(&CsiControllerInfo) -> bool,
    ) -> Result<(), StepError> {
        let known = self.plugin(plugin)?;
        let mut told = known
            .controllers
            .values()
            .filter_map(|info| info.controller_info.as_ref());
        let first = told.next();
        match first.is_none_or(|first| can(first) || told.any(can)) {
            true => Ok(()),
            false => {
                let text = format!("plugin \"{plugin}\" does not {what}");
                Err(ApiError::refused(text).into())
            }
        }
    }

    async fn made(&self, mut volume: CsiVolume) -> Result<CsiVolume, StepError> {
        self.can(&volume.plugin_id, "create and delete volumes", |can| {
            can.supports_create_delete
        })?;
        let name = match volume.name.as_str() {
            "" => volume.id.clone(),
            name => name.to_owned(),
        };
        let asked = ControllerCreateVolumeRequest {
            plugin_id: volume.plugin_id.clone(),
            controller_node_id: String::new(),
            name,
            volume_capabilities: volume.requested_capabilities.clone(),
            mount_options: volume.mount_options.clone(),
            parameters: filled(&volume.parameters),
            secrets: Secrets(filled(&volume.secrets).iter().map(owned).collect()),
            capacity_min: volume.requested_capacity_min,
            capacity_max: volume.requested_capacity_max,
            snapshot_id: volume.snapshot_id.clone(),
            clone_id: volume.clone_id.clone(),
            requested_topologies: volume.requested_topologies.clone(),
        };
        let answer = self.shim.controller::<ControllerCreateVolume>(asked).await;
        let answer = answer.map_err(StepError::of("controller create volume: "))?;
        volume.external_id = answer.external_volume_id;
        volume.capacity = answer.capacity_bytes;
        volume.context = answer.volume_context;
        volume.topologies = answer.topologies;
        let nothing = |topology: &CsiTopology| topology.segments.is_empty();
        if volume.topologies.iter().any(nothing) {
            volume
                .topologies
                .to_mut()
                .retain(|topology| !nothing(topology));
        }
        Ok(volume)
    }

    /// Whether the provider has the volume, and it can be used as it is to be. Only a controller
    /// can say so.
    async fn validated(&self, volume: &CsiVolume, known: Option<&Volume>) -> Result<(), StepError> {
        let plugin = self.plugin(&volume.plugin_id)?;
        if !plugin.row.plugin.controller_required {
            return Ok(());
        }
        let mut secrets = match known {
            Some(known) => self.secrets(known)?,
            None => Secrets::default(),
        };
        secrets.0.extend(filled(&volume.secrets).iter().map(owned));
        let asked = ControllerValidateVolumeRequest {
            plugin_id: volume.plugin_id.clone(),
            controller_node_id: String::new(),
            volume_id: match (volume.external_id.as_str(), known) {
                ("", Some(known)) => known.plugin_name().to_owned(),
                ("", None) => volume.id.clone(),
                (external, _) => external.to_owned(),
            },
            volume_capabilities: volume.requested_capabilities.clone(),
            mount_options: volume.mount_options.clone(),
            secrets,
            parameters: filled(&volume.parameters),
            context: filled(&volume.context),
        };
        let valid = self
            .shim
            .controller::<ControllerValidateVolume>(asked)
            .await;
        valid.map_err(StepError::of("controller validate volume: "))?;
        Ok(())
    }

    /// The new description of a volume that is there; grown first, where it is to be larger.
    async fn grown(&self, known: Volume, mut volume: CsiVolume) -> Result<CsiVolume, StepError> {
        let row = &known.row.volume;
        let least = volume.requested_capacity_min;
        volume.capacity = 0;
        if least == 0 || row.capacity == 0 || least <= row.capacity {
            return Ok(volume);
        }
        // All else must be as it may be, before anything is grown.
        let unchanged = CsiVolume {
            requested_capacity_min: 0,
            requested_capacity_max: 0,
            secrets: Map::nil(),
            ..volume.clone()
        };
        rules::merge(row, &unchanged).map_err(ApiError::refused)?;
        self.can(&row.plugin_id, "expand volumes", |can| can.supports_expand)?;
        let asked = ControllerExpandVolumeRequest {
            plugin_id: row.plugin_id.clone(),
            controller_node_id: String::new(),
            external_volume_id: known.plugin_name().to_owned(),
            required_bytes: least,
            limit_bytes: volume.requested_capacity_max,
            secrets: self.secrets(&known)?,
            volume_capability: row.requested_capabilities.first().cloned(),
        };
        let answer = self.shim.controller::<ControllerExpandVolume>(asked).await;
        let answer = answer.map_err(StepError::of("controller expand volume: "))?;
        if answer.node_expansion_required {
            let live = claims(&known).into_values();
            for claim in
                live.filter(|claim| !known.row.past_claims.contains_key(&claim.allocation_id))
            {
                self.grow_on_node(&known, claim, &volume).await?;
            }
        }
        volume.capacity = answer.capacity_bytes.max(least);
        Ok(volume)
    }

    async fn grow_on_node(
        &self,
        known: &Volume,
        claim: &CsiVolumeClaimed,
        wanted: &CsiVolume,
    ) -> Result<(), StepError> {
        let row = &known.row.volume;
        let asked = NodeExpandVolumeRequest {
            plugin_id: row.plugin_id.clone(),
            volume_id: row.id.clone(),
            volume_namespace: row.namespace.clone(),
            external_id: known.plugin_name().to_owned(),
            alloc_id: claim.allocation_id.clone(),
            node_id: claim.node_id.clone(),
            attachment_mode: claim.attachment_mode.clone(),
            access_mode: claim.access_mode.clone(),
            read_only: claim.claim == drover_events::csi::mode::READ,
            required_bytes: wanted.requested_capacity_min,
            limit_bytes: wanted.requested_capacity_max,
        };
        let grown = self
            .shim
            .node::<NodeExpandVolume>((&claim.node_id, &row.plugin_id), &asked)
            .await;
        grown.map_err(StepError::of("node expand volume: "))?;
        Ok(())
    }

    async fn registered(
        &self,
        volumes: Vec<CsiVolume>,
        origin: &Origin,
    ) -> Result<(Vec<CsiVolume>, u64), StepError> {
        if volumes.iter().any(|volume| !volume.secrets.is_empty()) {
            // A new cluster has a key a moment after it has a leader (KR-03).
            let _ = timeout(FIRST_KEY, self.keyring.wait_active()).await;
        }
        let mut sealed = Vec::new();
        for mut volume in volumes {
            let place = (volume.namespace.as_str(), volume.id.as_str());
            let secrets = self.keyring.seal_volume_secrets(place, &volume.secrets);
            volume.secrets = secrets.map_err(|error| ApiError::internal(error.to_string()))?;
            sealed.push(volume);
        }
        let command = RegisterVolumes {
            volumes: sealed.clone(),
        };
        let done = self
            .record
            .record(Arc::new(command), origin.clone())
            .await?;
        let view = self.projections.view();
        let mut now = Vec::new();
        for volume in sealed {
            let known = csi::volume(&view, (&volume.namespace, &volume.id))?;
            now.extend(known.map(|known| known.shown()));
        }
        Ok((now, done.index))
    }
}

fn owned((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}
