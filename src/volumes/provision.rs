//! Volumes that operators create, register, expand and delete, and snapshots of them. The plugin
//! call comes before the row is written on create, and after it is marked on delete, so that an
//! interrupted operation can be retried.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_events::gojson::{List, Map};
use drover_events::model::{CsiControllerInfo, CsiSnapshot, CsiVolume, CsiVolumeExternalStub};
use drover_projections::claims;
use drover_projections::query::csi::{self, PluginNodes, Volume};
use drover_projections::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};
use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::grow::Expansions;
use super::{CsiVolumeKey, PageQuery, StepError, Volumes, or_empty};
use crate::base::keyed_locks::KeyGuard;
use crate::commands::csi::{
    DeregisterVolumes, RegisterVolumes, has_namespace, removable, validate,
};
use crate::error::{Code, Refusal};
use crate::proposer::Origin;
use crate::rpc::csi::{
    ControllerCreateSnapshot, ControllerCreateSnapshotRequest, ControllerDeleteSnapshot,
    ControllerDeleteSnapshotRequest, ControllerDeleteVolume, ControllerDeleteVolumeRequest,
    ControllerListSnapshots, ControllerListSnapshotsRequest, ControllerListVolumes,
    ControllerListVolumesRequest, ControllerValidateVolume, ControllerValidateVolumeRequest,
    Secrets,
};

/// The prefix of errors of this step.
pub(super) const CREATE_STEP: &str = "controller create volume: ";
/// How long a write waits for the cluster's first key.
const FIRST_KEY: Duration = Duration::from_secs(5);

impl Volumes {
    /// Creates volumes that do not exist, expands those for which a larger size is requested, and
    /// registers them; returns them as they are then, secrets encrypted. Repeating it changes
    /// nothing (CSI-05).
    ///
    /// # Errors
    /// A refusal, before any call or of the plugin.
    pub async fn create(
        &self,
        volumes: Vec<CsiVolume>,
        origin: &Origin,
    ) -> Result<(Vec<CsiVolume>, u64), StepError> {
        let volumes = self.check_request(volumes)?;
        let _guards = self.lock_all(&volumes).await;
        let keys: Vec<_> = volumes.iter().map(key_of).collect();
        let mut expansions = Expansions::of(CREATE_STEP, origin);
        let to_register = async {
            let mut to_register = Vec::new();
            for volume in volumes {
                to_register.extend(match self.load_not_deleting(&volume)? {
                    Some(known) => self.expand_existing(known, volume, &mut expansions).await?,
                    None => Some(self.create_at_provider(volume).await?),
                });
            }
            Ok(to_register)
        };
        let to_register = Box::pin(to_register).await;
        Box::pin(self.register_and_expand(&keys, to_register, expansions)).await
    }

    /// Registers `to_register` and completes expansions on nodes, even if the registration fails.
    /// Returns all requested volumes as they are afterwards, and the index of the last write.
    async fn register_and_expand(
        &self,
        keys: &[CsiVolumeKey],
        to_register: Result<Vec<CsiVolume>, StepError>,
        expansions: Expansions<'_>,
    ) -> Result<(Vec<CsiVolume>, u64), StepError> {
        let (step, origin) = (expansions.step, expansions.origin);
        let recorded = match to_register {
            Ok(volumes) if volumes.is_empty() => Ok(0),
            Ok(volumes) => self.record_registration(volumes, (step, origin)).await,
            Err(error) => Err(error),
        };
        let grown = self.expand_on_nodes(expansions).await;
        let index = recorded?.max(grown?);
        let view = self.projections.view();
        let mut now = Vec::new();
        for (namespace, id) in keys {
            let known = csi::volume(&view, (namespace, id))?;
            now.extend(known.map(|known| known.shown()));
        }
        Ok((now, index))
    }

    /// Registers volumes that their provider has already, once a controller has confirmed that they
    /// can be used as requested (CSI-02); expands those for which a larger size is requested.
    ///
    /// # Errors
    /// A refusal, before any call or of the plugin.
    pub async fn register(
        &self,
        volumes: Vec<CsiVolume>,
        origin: &Origin,
    ) -> Result<(Vec<CsiVolume>, u64), StepError> {
        let volumes = self.check_request(volumes)?;
        let _guards = self.lock_all(&volumes).await;
        let keys: Vec<_> = volumes.iter().map(key_of).collect();
        let mut expansions = Expansions::of("", origin);
        let to_register = Box::pin(self.validate_all(volumes, &mut expansions)).await;
        Box::pin(self.register_and_expand(&keys, to_register, expansions)).await
    }

    /// Volumes that may be registered, once a controller has validated each; those that were
    /// expanded are recorded already.
    async fn validate_all(
        &self,
        volumes: Vec<CsiVolume>,
        expansions: &mut Expansions<'_>,
    ) -> Result<Vec<CsiVolume>, StepError> {
        let mut to_register = Vec::new();
        for volume in volumes {
            let known = self.load_not_deleting(&volume)?;
            if let Some(known) = &known {
                // What it has, its secrets too, is shown to no plugin but its own.
                require_same_volume(known, &volume)?;
            }
            let volume = match &known {
                Some(_) => volume,
                None => topologies_from_request(volume)?,
            };
            self.validate_at_controller(&volume, known.as_ref()).await?;
            to_register.extend(match known {
                Some(known) => self.expand_existing(known, volume, expansions).await?,
                None => Some(volume),
            });
        }
        Ok(to_register)
    }

    /// Deletes a volume at its provider, and then removes it. One that is used is refused before
    /// any call, and no allocation can claim it meanwhile, nor while a call without an answer may
    /// still delete it.
    ///
    /// # Errors
    /// It is used, or the plugin does not delete it.
    pub async fn delete(
        &self,
        key: &CsiVolumeKey,
        secrets: Secrets,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        let _provision_guard = self.provision_locks.lock(key.clone()).await;
        let _guard = self.claim_locks.lock(key.clone()).await;
        self.must_lead()?;
        let volume_key = (key.0.as_str(), key.1.as_str());
        let volume = removable(&self.projections.view(), volume_key, false)?;
        let plugin = volume.row.volume.plugin_id.clone();
        self.require_capability(&plugin, "create and delete volumes", |can| {
            can.supports_create_delete
        })?;
        let mut all_secrets = self.secrets(&volume)?;
        all_secrets.0.extend(secrets.0);
        let requested = ControllerDeleteVolumeRequest {
            plugin_id: plugin,
            controller_node_id: String::new(),
            external_volume_id: volume.name_at_plugin().to_owned(),
            secrets: all_secrets,
        };
        // From now on no leader grants a claim on it. The volume watcher may remove the mark some
        // time after it was set, so it is set anew before each call.
        let mark_deleting = || async {
            let marked = self.set_deleting(volume_key, true, origin).await;
            marked.map(drop).map_err(Refusal::from)
        };
        let before = || mark_deleting().boxed();
        let calls = &self.plugin_calls;
        let reported =
            calls.call_controllers_with_hook::<ControllerDeleteVolume>(requested, &before);
        let (deleted, all_answered) = reported.await;
        let deleted = deleted.map_err(StepError::of("controller delete volume: "));
        if deleted.is_err() && all_answered && volume.row.deleting == 0 {
            // Every controller called has answered, and no earlier delete was marked: none happens
            // later, so the mark is removed. If that cannot be written, the volume watcher does it.
            let kept = self.set_deleting(volume_key, false, origin).await;
            drop(kept.inspect_err(
                |error| tracing::warn!(%error, "the volume stays marked as being deleted"),
            ));
        }
        let removed = match deleted {
            Ok(_) => self.deregister(key, origin).await,
            Err(error) => Err(error),
        };
        // Shown while it is being deleted.
        self.set_delete_error(volume_key, removed.as_ref().err());
        removed
    }

    /// Records that a volume is gone at its provider; the index of that.
    async fn deregister(&self, key: &CsiVolumeKey, origin: &Origin) -> Result<u64, StepError> {
        let command = DeregisterVolumes {
            namespace: key.0.clone(),
            ids: vec![key.1.clone()],
            force: false,
            deleted: true,
        };
        let gone = self.commands.submit(Arc::new(command), origin.clone());
        Ok(gone.await?.index)
    }

    /// The volumes that a plugin's provider has.
    ///
    /// # Errors
    /// The plugin does not list them.
    pub async fn external(
        &self,
        plugin: &str,
        page: PageQuery,
    ) -> Result<(List<CsiVolumeExternalStub>, String), StepError> {
        self.require_capability(plugin, "list volumes", |can| can.supports_list_volumes)?;
        let _permit = self.plugin_calls.listing_permit(plugin)?;
        let requested = ControllerListVolumesRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            max_entries: page.most,
            starting_token: page.token,
        };
        let answer = self
            .plugin_calls
            .controller::<ControllerListVolumes>(requested)
            .await;
        let answer = answer.map_err(StepError::of("controller list volumes: "))?;
        Ok((answer.entries, answer.next_token))
    }

    /// Makes snapshots of volumes of a namespace.
    ///
    /// # Errors
    /// The volume does not exist, or the plugin does not make one.
    pub async fn create_snapshots(
        &self,
        namespace: &str,
        snapshots: Vec<CsiSnapshot>,
    ) -> Result<Vec<CsiSnapshot>, StepError> {
        self.must_lead()?;
        if snapshots.is_empty() {
            return Err(Refusal::bad_request("missing snapshot definition").into());
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
            return Err(Refusal::bad_request("missing volume ID").into());
        }
        let volume = self.load(&self.projections.view(), (namespace, id))?;
        let plugin = volume.row.volume.plugin_id.clone();
        self.require_capability(&plugin, "create and delete snapshots", |can| {
            can.supports_create_delete_snapshot
        })?;
        let mut secrets = self.secrets(&volume)?;
        secrets
            .0
            .extend(or_empty(&snapshot.secrets).iter().map(owned));
        let requested = ControllerCreateSnapshotRequest {
            plugin_id: plugin.clone(),
            controller_node_id: String::new(),
            volume_id: volume.name_at_plugin().to_owned(),
            name: snapshot.name.clone(),
            secrets,
            parameters: or_empty(&snapshot.parameters),
        };
        let answer = self
            .plugin_calls
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
        self.require_capability(plugin, "create and delete snapshots", |can| {
            can.supports_create_delete_snapshot
        })?;
        let requested = ControllerDeleteSnapshotRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            id: id.to_owned(),
            secrets,
        };
        let deleted = self
            .plugin_calls
            .controller::<ControllerDeleteSnapshot>(requested)
            .await;
        deleted.map_err(StepError::of("controller delete snapshot: "))?;
        Ok(())
    }

    /// The snapshots that a plugin's provider has.
    ///
    /// # Errors
    /// The plugin does not list them.
    pub async fn snapshots(
        &self,
        plugin: &str,
        page: PageQuery,
        secrets: Secrets,
    ) -> Result<(List<CsiSnapshot>, String), StepError> {
        self.require_capability(plugin, "list snapshots", |can| can.supports_list_snapshots)?;
        let _permit = self.plugin_calls.listing_permit(plugin)?;
        let requested = ControllerListSnapshotsRequest {
            plugin_id: plugin.to_owned(),
            controller_node_id: String::new(),
            max_entries: page.most,
            starting_token: page.token,
            secrets,
        };
        let answer = self
            .plugin_calls
            .controller::<ControllerListSnapshots>(requested)
            .await;
        let answer = answer.map_err(StepError::of("controller list snapshots: "))?;
        Ok((answer.entries, answer.next_token))
    }

    /// Refuses what can be refused before any plugin is called.
    fn check_request(&self, volumes: Vec<CsiVolume>) -> Result<Vec<CsiVolume>, StepError> {
        self.must_lead()?;
        if volumes.is_empty() {
            return Err(Refusal::bad_request("missing volume definition").into());
        }
        let mut seen = BTreeSet::new();
        let view = self.projections.view();
        for volume in &volumes {
            validate(volume)?;
            // No volume is created at a provider that could not be registered then.
            has_namespace(&view, volume)?;
            if !seen.insert((&volume.namespace, &volume.id)) {
                let text = format!("volume \"{}\" is named twice", volume.id);
                return Err(Refusal::bad_request(text).into());
            }
            self.plugin(&volume.plugin_id)?;
        }
        Ok(volumes)
    }

    /// Waits until no other request creates, registers, expands or deletes one of these volumes.
    /// The locks are taken in one order, so that requests cannot deadlock.
    async fn lock_all(&self, volumes: &[CsiVolume]) -> Vec<KeyGuard<'_, CsiVolumeKey>> {
        let mut guards = Vec::new();
        for key in BTreeSet::from_iter(volumes.iter().map(key_of)) {
            guards.push(self.provision_locks.lock(key).await);
        }
        guards
    }

    /// Refuses a volume whose external id is registered already: two rows would let two writers in,
    /// and deleting one would delete the volume of the other. Providers that identify volumes by
    /// name return the existing one for a name in use.
    fn require_unregistered(
        &self,
        volumes: &[CsiVolume],
        step: &'static str,
    ) -> Result<(), StepError> {
        let view = self.projections.view();
        for (number, volume) in volumes.iter().enumerate() {
            let key = (volume.namespace.as_str(), volume.id.as_str());
            if view.contains::<CsiVolumes>(key)? {
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
                CREATE_STEP => (
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
                ..Refusal::by_rule(text).into()
            });
        }
        Ok(())
    }

    pub(super) fn load_not_deleting(
        &self,
        volume: &CsiVolume,
    ) -> Result<Option<Volume>, StepError> {
        let view = self.projections.view();
        let known = csi::volume(&view, (&volume.namespace, &volume.id))?;
        match known {
            Some(known) if known.row.deleting != 0 => {
                let text = format!("volume \"{}\" is being deleted", volume.id);
                Err(Refusal::new(Code::Unavailable, text).into())
            }
            known => Ok(known),
        }
    }

    pub(super) fn plugin(&self, id: &str) -> Result<PluginNodes, StepError> {
        let view = self.projections.view();
        let missing = || Refusal::by_rule(format!("no CSI plugin named: {id} could be found"));
        let plugin = csi::plugin(&view, id)?;
        plugin.ok_or_else(missing).map_err(StepError::from)
    }

    /// Refuses what the plugin's controllers say they cannot.
    pub(super) fn require_capability(
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
                Err(Refusal::by_rule(text).into())
            }
        }
    }

    /// The secrets of a known volume, with those of a new description of it over them.
    pub(super) fn secrets_with(
        &self,
        known: &Volume,
        new: &CsiVolume,
    ) -> Result<Secrets, StepError> {
        let mut secrets = self.secrets(known)?;
        secrets.0.extend(plaintext_secrets(new).0);
        Ok(secrets)
    }

    /// Calls a controller to learn whether the provider has the volume, and whether it can be used
    /// as requested; a plugin without controllers is not called.
    async fn validate_at_controller(
        &self,
        volume: &CsiVolume,
        known: Option<&Volume>,
    ) -> Result<(), StepError> {
        let plugin = self.plugin(&volume.plugin_id)?;
        if !plugin.row.plugin.controller_required {
            return Ok(());
        }
        let secrets = match known {
            Some(known) => self.secrets_with(known, volume)?,
            None => plaintext_secrets(volume),
        };
        let requested = ControllerValidateVolumeRequest {
            plugin_id: volume.plugin_id.clone(),
            controller_node_id: String::new(),
            volume_id: match (volume.external_id.as_str(), known) {
                ("", Some(known)) => known.name_at_plugin().to_owned(),
                ("", None) => volume.id.clone(),
                (external, _) => external.to_owned(),
            },
            volume_capabilities: volume.requested_capabilities.clone(),
            mount_options: volume.mount_options.clone(),
            secrets,
            parameters: or_empty(&volume.parameters),
            context: or_empty(&volume.context),
        };
        let valid = self
            .plugin_calls
            .controller::<ControllerValidateVolume>(requested)
            .await;
        valid.map_err(StepError::of("controller validate volume: "))?;
        Ok(())
    }

    pub(super) async fn record_registration(
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
            let volume_key = (volume.namespace.as_str(), volume.id.as_str());
            let secrets = self
                .keyring
                .seal_volume_secrets(volume_key, &volume.secrets);
            volume.secrets = secrets.map_err(|error| Refusal::internal(error.to_string()))?;
            sealed.push(volume);
        }
        let plugins: BTreeSet<_> = sealed.iter().map(|volume| &volume.plugin_id).collect();
        let mut guards = Vec::new();
        for plugin in plugins {
            guards.push(self.plugin_locks.lock(plugin.clone()).await);
        }
        self.require_unregistered(&sealed, step)?;
        let command = RegisterVolumes { volumes: sealed };
        let done = self.commands.submit(Arc::new(command), origin.clone());
        Ok(done.await?.index)
    }
}

/// Which volume it is.
pub(super) fn key_of(volume: &CsiVolume) -> CsiVolumeKey {
    (volume.namespace.clone(), volume.id.clone())
}

/// Fills in from the request the topologies of a volume that its provider has and drover registers
/// for the first time; for a created one the plugin returns them.
fn topologies_from_request(mut volume: CsiVolume) -> Result<CsiVolume, StepError> {
    let Some(requested) = &volume.requested_topologies else {
        return Ok(volume);
    };
    if !requested.preferred.is_empty() {
        let text = "validation: preferred topologies are for volumes that are created";
        return Err(Refusal::bad_request(text).into());
    }
    if volume.topologies.is_empty() {
        volume.topologies = requested.required.clone();
    }
    Ok(volume)
}

/// Refuses what describes another volume than the one that is known; it may have another size and
/// other secrets. `merge` is called for its refusals only.
pub(super) fn require_same_volume(known: &Volume, volume: &CsiVolume) -> Result<(), StepError> {
    let unchanged = CsiVolume {
        requested_capacity_min: 0,
        requested_capacity_max: 0,
        capacity: 0,
        secrets: Map::nil(),
        ..volume.clone()
    };
    claims::check_topologies_unchanged(&known.row.volume, &unchanged).map_err(Refusal::by_rule)?;
    claims::merge(&known.row.volume, &unchanged).map_err(Refusal::by_rule)?;
    Ok(())
}

/// What its plugin calls a volume.
fn name_at_plugin(volume: &CsiVolume) -> &str {
    match volume.external_id.as_str() {
        "" => &volume.id,
        external => external,
    }
}

/// The secrets that come with a request, in plain text.
pub(super) fn plaintext_secrets(volume: &CsiVolume) -> Secrets {
    Secrets(or_empty(&volume.secrets).iter().map(owned).collect())
}

fn owned((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

#[cfg(test)]
#[path = "provision_test.rs"]
mod tests;
