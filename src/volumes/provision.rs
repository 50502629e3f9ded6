//! Volumes as operators have them made, checked, grown and deleted, and snapshots of them: the
//! plugin is asked first, or last, so that whatever breaks off can be asked for again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_events::gojson::{List, Map};
use drover_events::model::{CsiControllerInfo, CsiSnapshot, CsiVolume, CsiVolumeExternalStub};
use drover_projections::claims as rules;
use drover_projections::query::csi::{self, PluginNodes, Volume};
use drover_projections::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};
use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::grow::Growing;
use super::{Key, StepError, Volumes, filled};
use crate::base::keyed::Turn;
use crate::commands::csi::{
    DeregisterVolumes, RegisterVolumes, has_namespace, removable, validate,
};
use crate::error::{ApiError, Code};
use crate::proposer::Origin;
use crate::rpc::csi::{
    ControllerCreateSnapshot, ControllerCreateSnapshotRequest, ControllerDeleteSnapshot,
    ControllerDeleteSnapshotRequest, ControllerDeleteVolume, ControllerDeleteVolumeRequest,
    ControllerListSnapshots, ControllerListSnapshotsRequest, ControllerListVolumes,
    ControllerListVolumesRequest, ControllerValidateVolume, ControllerValidateVolumeRequest,
    Secrets,
};

/// The step, as errors begin.
pub(super) const CREATE: &str = "controller create volume: ";
/// How long a write waits for the cluster's first key.
const FIRST_KEY: Duration = Duration::from_secs(5);

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default)]
pub struct PageQuery {
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
        let volumes = self.checked(volumes)?;
        let _turns = self.alone(&volumes).await;
        let keys: Vec<_> = volumes.iter().map(key_of).collect();
        let mut growing = Growing::of((CREATE, origin));
        let rest = async {
            let mut rest = Vec::new();
            for volume in volumes {
                rest.extend(match self.known(&volume)? {
                    Some(known) => self.grown(known, volume, &mut growing).await?,
                    None => Some(self.made(volume).await?),
                });
            }
            Ok(rest)
        };
        let rest = Box::pin(rest).await;
        Box::pin(self.finished(&keys, rest, growing)).await
    }

    /// Records the rest, beside what has grown; all as they are then, and the index of the last.
    /// Nodes do their part of what has grown, whatever became of the rest.
    async fn finished(
        &self,
        keys: &[Key],
        rest: Result<Vec<CsiVolume>, StepError>,
        growing: Growing<'_>,
    ) -> Result<(Vec<CsiVolume>, u64), StepError> {
        let recorded = match rest {
            Ok(rest) if rest.is_empty() => Ok(0),
            Ok(rest) => self.registered(rest, growing.by).await,
            Err(error) => Err(error),
        };
        let grown = self.grow_on_nodes(growing).await;
        let index = recorded?.max(grown?);
        let view = self.projections.view();
        let mut now = Vec::new();
        for (namespace, id) in keys {
            let known = csi::volume(&view, (namespace, id))?;
            now.extend(known.map(|known| known.shown()));
        }
        Ok((now, index))
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
        let volumes = self.checked(volumes)?;
        let _turns = self.alone(&volumes).await;
        let keys: Vec<_> = volumes.iter().map(key_of).collect();
        let mut growing = Growing::of(("", origin));
        let rest = Box::pin(self.valid(volumes, &mut growing)).await;
        Box::pin(self.finished(&keys, rest, growing)).await
    }

    /// Volumes that may be registered, once a controller has said so; what has grown is recorded.
    async fn valid(
        &self,
        volumes: Vec<CsiVolume>,
        growing: &mut Growing<'_>,
    ) -> Result<Vec<CsiVolume>, StepError> {
        let mut rest = Vec::new();
        for volume in volumes {
            let known = self.known(&volume)?;
            if let Some(known) = &known {
                // What it has, its secrets too, is shown to no plugin but its own.
                fits(known, &volume)?;
            }
            let volume = match &known {
                Some(_) => volume,
                None => placed(volume)?,
            };
            self.validated(&volume, known.as_ref()).await?;
            rest.extend(match known {
                Some(known) => self.grown(known, volume, growing).await?,
                None => Some(volume),
            });
        }
        Ok(rest)
    }

    /// Deletes a volume at its provider, and then removes it. One that is used is refused before
    /// any call, and nobody can take it meanwhile, nor while it may still be deleted by a call
    /// that nobody answered.
    ///
    /// # Errors
    /// It is used, or the plugin does not delete it.
    pub async fn delete(
        &self,
        key: &Key,
        secrets: Secrets,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        let _made = self.making.turn(key.clone()).await;
        let _turn = self.taking.turn(key.clone()).await;
        self.must_lead()?;
        let place = (key.0.as_str(), key.1.as_str());
        let volume = removable(&self.projections.view(), place, false)?;
        let plugin = volume.row.volume.plugin_id.clone();
        self.can(&plugin, "create and delete volumes", |can| {
            can.supports_create_delete
        })?;
        let mut with = self.secrets(&volume)?;
        with.0.extend(secrets.0);
        let requested = ControllerDeleteVolumeRequest {
            plugin_id: plugin,
            controller_node_id: String::new(),
            external_volume_id: volume.plugin_name().to_owned(),
            secrets: with,
        };
        // Whoever leads from now on gives it to nobody; for how long counts from each call.
        let marks = || async {
            let marked = self.deletes(place, true, origin).await;
            marked.map(drop).map_err(ApiError::from)
        };
        let before = || marks().boxed();
        let shim = &self.shim;
        let reported = shim.controllers_begun::<ControllerDeleteVolume>(requested, &before);
        let (deleted, all) = reported.await;
        let deleted = deleted.map_err(StepError::of("controller delete volume: "));
        if deleted.is_err() && all && volume.row.deleting == 0 {
            // It is not deleted, and will not be, unless by a call of an earlier delete: it may be
            // used again. Where that cannot be recorded, the watcher gives it back.
            let kept = self.deletes(place, false, origin).await;
            drop(kept.inspect_err(|error| tracing::warn!(%error, "it stays given to nobody")));
        }
        let removed = match deleted {
            Ok(_) => self.removed(key, origin).await,
            Err(error) => Err(error),
        };
        // Told as long as it is being deleted, whoever asked for it.
        self.deletion_hindered(place, removed.as_ref().err());
        removed
    }

    /// Records that a volume is gone at its provider; the index of that.
    async fn removed(&self, key: &Key, origin: &Origin) -> Result<u64, StepError> {
        let command = DeregisterVolumes {
            namespace: key.0.clone(),
            ids: vec![key.1.clone()],
            force: false,
            deleted: true,
        };
        let gone = self.record.record(Arc::new(command), origin.clone());
        Ok(gone.await?.index)
    }

    /// The volumes that a plugin's provider has.
    ///
    /// # Errors
    /// The plugin does not tell.
    pub async fn external(
        &self,
        plugin: &str,
        page: PageQuery,
    ) -> Result<(List<CsiVolumeExternalStub>, String), StepError> {
        self.can(plugin, "list volumes", |can| can.supports_list_volumes)?;
        let _turn = self.shim.listing(plugin)?;
        let requested = ControllerListVolumesRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            max_entries: page.most,
            starting_token: page.token,
        };
        let answer = self
            .shim
            .controller::<ControllerListVolumes>(requested)
            .await;
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
        if snapshots.is_empty() {
            return Err(ApiError::bad_request("missing snapshot definition").into());
        }
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
        let requested = ControllerCreateSnapshotRequest {
            plugin_id: plugin.clone(),
            controller_node_id: String::new(),
            volume_id: volume.plugin_name().to_owned(),
            name: snapshot.name.clone(),
            secrets,
            parameters: filled(&snapshot.parameters),
        };
        let answer = self
            .shim
            .controller::<ControllerCreateSnapshot>(requested)
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
        let requested = ControllerDeleteSnapshotRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            id: id.to_owned(),
            secrets,
        };
        let deleted = self
            .shim
            .controller::<ControllerDeleteSnapshot>(requested)
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
        page: PageQuery,
        secrets: Secrets,
    ) -> Result<(List<CsiSnapshot>, String), StepError> {
        self.can(plugin, "list snapshots", |can| can.supports_list_snapshots)?;
        let _turn = self.shim.listing(plugin)?;
        let requested = ControllerListSnapshotsRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            max_entries: page.most,
            starting_token: page.token,
            secrets,
        };
        let answer = self
            .shim
            .controller::<ControllerListSnapshots>(requested)
            .await;
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
        let view = self.projections.view();
        for volume in &volumes {
            validate(volume)?;
            // Nothing is made at a provider that could not be registered then.
            has_namespace(&view, volume)?;
            if !seen.insert((&volume.namespace, &volume.id)) {
                let text = format!("volume \"{}\" is named twice", volume.id);
                return Err(ApiError::bad_request(text).into());
            }
            self.plugin(&volume.plugin_id)?;
        }
        Ok(volumes)
    }

    /// Waits until nobody else has one of these volumes made, registered, grown or deleted. All
    /// come in one order, so that nobody waits for who waits for him.
    async fn alone(&self, volumes: &[CsiVolume]) -> Vec<Turn<'_, Key>> {
        let mut turns = Vec::new();
        for key in volumes.iter().map(key_of).collect::<BTreeSet<Key>>() {
            turns.push(self.making.turn(key).await);
        }
        turns
    }

    /// Refuses new volumes that are ones that other rows stand for: two rows would let two writers
    /// in, and what is deleted as the one would be used as the other. A provider that goes by names
    /// answers so to a name that is taken.
    fn are_new(&self, volumes: &[CsiVolume], step: &'static str) -> Result<(), StepError> {
        let view = self.projections.view();
        for (number, volume) in volumes.iter().enumerate() {
            let key = (volume.namespace.as_str(), volume.id.as_str());
            if view.modified::<CsiVolumes>(key)?.is_some() {
                continue;
            }
            let (plugin, name) = (&volume.plugin_id, name_at_plugin(volume));
            let rows = csi::volumes_of_plugin(&view, plugin)?;
            let rows = rows.iter().map(|row: &Arc<CsiVolumeRow>| &row.volume);
            let same =
                |other: &&CsiVolume| other.plugin_id == *plugin && name_at_plugin(other) == name;
            let Some(other) = rows.chain(&volumes[..number]).find(same) else {
                continue;
            };
            let (begins, ends) = match step {
                CREATE => (
                    format!("plugin \"{plugin}\" answers with volume \"{name}\", which"),
                    "; give the new one another name",
                ),
                _ => (format!("volume \"{name}\" of plugin \"{plugin}\""), ""),
            };
            let text = format!(
                "{begins} is registered as \"{}\" in namespace \"{}\"{ends}",
                other.id, other.namespace
            );
            return Err(StepError {
                step,
                ..ApiError::refused(text).into()
            });
        }
        Ok(())
    }

    pub(super) fn known(&self, volume: &CsiVolume) -> Result<Option<Volume>, StepError> {
        let view = self.projections.view();
        let known = csi::volume(&view, (&volume.namespace, &volume.id))?;
        match known {
            Some(known) if known.row.deleting != 0 => {
                let text = format!("volume \"{}\" is being deleted", volume.id);
                Err(ApiError::new(Code::Unavailable, text).into())
            }
            known => Ok(known),
        }
    }

    pub(super) fn plugin(&self, id: &str) -> Result<PluginNodes, StepError> {
        let view = self.projections.view();
        let missing = || ApiError::refused(format!("no CSI plugin named: {id} could be found"));
        let plugin = csi::plugin(&view, id)?;
        plugin.ok_or_else(missing).map_err(StepError::from)
    }

    /// Refuses what the plugin's controllers say they cannot.
    pub(super) fn can(
        &self,
        plugin: &str,
        what: &str,
        can: impl Fn(&CsiControllerInfo) -> bool,
    ) -> Result<(), StepError> {
        let known = self.plugin(plugin)?;
        let mut reported = known
            .controllers
            .values()
            .filter_map(|info| info.controller_info.as_ref());
        let first = reported.next();
        match first.is_none_or(|first| can(first) || reported.any(can)) {
            true => Ok(()),
            false => {
                let text = format!("plugin \"{plugin}\" does not {what}");
                Err(ApiError::refused(text).into())
            }
        }
    }

    /// The secrets of a volume as they are once it is described anew.
    pub(super) fn secrets_with(
        &self,
        known: &Volume,
        new: &CsiVolume,
    ) -> Result<Secrets, StepError> {
        let mut secrets = self.secrets(known)?;
        secrets.0.extend(clear(new).0);
        Ok(secrets)
    }

    /// Whether the provider has the volume, and it can be used as it is to be. Only a controller
    /// can say so.
    async fn validated(&self, volume: &CsiVolume, known: Option<&Volume>) -> Result<(), StepError> {
        let plugin = self.plugin(&volume.plugin_id)?;
        if !plugin.row.plugin.controller_required {
            return Ok(());
        }
        let secrets = match known {
            Some(known) => self.secrets_with(known, volume)?,
            None => clear(volume),
        };
        let requested = ControllerValidateVolumeRequest {
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
            .controller::<ControllerValidateVolume>(requested)
            .await;
        valid.map_err(StepError::of("controller validate volume: "))?;
        Ok(())
    }

    pub(super) async fn registered(
        &self,
        volumes: Vec<CsiVolume>,
        (step, origin): (&'static str, &Origin),
    ) -> Result<u64, StepError> {
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
        let plugins: BTreeSet<_> = sealed.iter().map(|volume| &volume.plugin_id).collect();
        let mut turns = Vec::new();
        for plugin in plugins {
            turns.push(self.naming.turn(plugin.clone()).await);
        }
        self.are_new(&sealed, step)?;
        let command = RegisterVolumes { volumes: sealed };
        let done = self.record.record(Arc::new(command), origin.clone());
        Ok(done.await?.index)
    }
}

/// Which volume it is.
pub(super) fn key_of(volume: &CsiVolume) -> Key {
    (volume.namespace.clone(), volume.id.clone())
}

/// A volume that its provider has already, with where it can be reached: of one that is made, its
/// plugin says so.
fn placed(mut volume: CsiVolume) -> Result<CsiVolume, StepError> {
    let Some(requested) = &volume.requested_topologies else {
        return Ok(volume);
    };
    if !requested.preferred.is_empty() {
        let text = "validation: preferred topologies are for volumes that are created";
        return Err(ApiError::bad_request(text).into());
    }
    if volume.topologies.is_empty() {
        volume.topologies = requested.required.clone();
    }
    Ok(volume)
}

/// Refuses what describes another volume than the one that is known; it may have another size and
/// other secrets.
pub(super) fn fits(known: &Volume, volume: &CsiVolume) -> Result<(), StepError> {
    let unchanged = CsiVolume {
        requested_capacity_min: 0,
        requested_capacity_max: 0,
        capacity: 0,
        secrets: Map::nil(),
        ..volume.clone()
    };
    rules::stays_in_place(&known.row.volume, &unchanged).map_err(ApiError::refused)?;
    rules::merge(&known.row.volume, &unchanged).map_err(ApiError::refused)?;
    Ok(())
}

/// What its plugin calls a volume.
fn name_at_plugin(volume: &CsiVolume) -> &str {
    match volume.external_id.as_str() {
        "" => &volume.id,
        external => external,
    }
}

/// The secrets that come with a request.
pub(super) fn clear(volume: &CsiVolume) -> Secrets {
    Secrets(filled(&volume.secrets).iter().map(owned).collect())
}

fn owned((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

#[cfg(test)]
#[path = "provision_test.rs"]
mod tests;
