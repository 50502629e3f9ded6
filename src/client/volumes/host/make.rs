//! How volumes are made, and taken as they are.

use std::path::PathBuf;

use super::HostVolumes;
use super::keep::JournaledVolume;
use super::plugin::{HostPlugin, Made, PluginError};
use crate::volumes::look::look;
use drover_error::{Code, Refusal};
use drover_rpc::host_volume::{
    ClientHostVolumeCreateRequest, ClientHostVolumeDeleteRequest, ClientHostVolumeRegisterRequest,
};

impl HostVolumes {
    /// Makes a volume of a former agent again. One that was deleted meanwhile is gone.
    pub(super) async fn again(&self, id: &str) -> Result<(), Refusal> {
        let before = self.kept_of(id);
        let looked = match &before {
            // The lock is not held during a look at storage that may be lost.
            Some(kept) if kept.requested.plugin_id.is_empty() => Some(is_there(&kept.path).await),
            _ => None,
        };
        let _guard = self.locks.lock(id.to_owned()).await;
        let Some(kept) = self.kept_of(id) else {
            return Ok(());
        };
        let made = match looked {
            // Another call reported meanwhile what it is now, and that it is there.
            Some(_) if before.as_ref() != Some(&kept) => return Ok(()),
            Some(looked) => looked.map(|()| Made {
                path: kept.path,
                bytes: kept.bytes,
            }),
            None => self.made(&kept.requested).await,
        };
        let outcome = match made {
            Ok(made) => self.offer(id, made).await,
            Err(error) => {
                self.offers(id, false);
                Err(Refusal::by_rule(error.to_string()))
            }
        };
        self.describe();
        outcome
    }

    async fn made(&self, requested: &ClientHostVolumeCreateRequest) -> Result<Made, PluginError> {
        let plugin = self.plugins.named(&requested.plugin_id)?;
        let made = self.plugins.create(&plugin, requested).await?;
        is_there(&made.path).await?;
        Ok(made)
    }

    pub(super) async fn create(
        &self,
        requested: ClientHostVolumeCreateRequest,
    ) -> Result<Made, Refusal> {
        let id = requested.id.clone();
        let _guard = self.locks.lock(id.clone()).await;
        let plugin = self.plugins.named(&requested.plugin_id)?;
        let before = self.take(&requested)?;
        // What a former call made stays; of this one nothing is to be left behind.
        let before = before.filter(|before| !before.path.is_empty());
        if let Some(intent) = self.kept_of(&id)
            && let Err(error) = self.keep(&intent).await
        {
            return Err(match before {
                Some(before) => self.stays(&id, before, error).await,
                None => self.unmade(&id, None, error).await,
            });
        }
        let made = self.made(&requested).await;
        let made = made.map_err(|error| Refusal::by_rule(error.to_string()));
        let (path, offered) = match made {
            Ok(made) => (
                made.path.clone(),
                self.offer(&id, made.clone()).await.map(|()| made),
            ),
            Err(error) => (String::new(), Err(error)),
        };
        let made = match (offered, before) {
            (Ok(made), _) => made,
            (Err(error), Some(before)) => return Err(self.stays(&id, before, error).await),
            (Err(error), None) => {
                let mut undoing = undoing(&requested);
                undoing.host_path = path;
                return Err(self.unmade(&id, Some((&plugin, undoing)), error).await);
            }
        };
        self.describe();
        Ok(made)
    }

    /// Continues with what there was before a call that failed, and says why it did.
    async fn stays(&self, id: &str, before: JournaledVolume, error: Refusal) -> Refusal {
        self.restored(id, before).await;
        error
    }

    /// Undoes what may have been made for the first time, and says why. Where that fails too, the
    /// volume is still known here, so that it can be deleted, and no caller gets the answer that
    /// there is nothing.
    async fn unmade(
        &self,
        id: &str,
        by: Option<(&HostPlugin, ClientHostVolumeDeleteRequest)>,
        error: Refusal,
    ) -> Refusal {
        let undone = match by {
            Some((plugin, undoing)) => self.plugins.delete(plugin, &undoing).await,
            None => Ok(()),
        };
        let forgotten = match undone {
            Ok(()) => self.forgotten(id).await,
            Err(error) => Err(error.into()),
        };
        let text = error.message;
        match forgotten {
            Ok(()) => Refusal::by_rule(text),
            Err(left) => {
                let left = left.message;
                let text = format!("{text}; what it left could not be deleted: {left}");
                Refusal::new(Code::Unavailable, text)
            }
        }
    }

    pub(super) async fn register(
        &self,
        requested: ClientHostVolumeRegisterRequest,
    ) -> Result<(), Refusal> {
        let id = requested.id.clone();
        // The lock is not held during a look at storage that may be lost.
        is_there(&requested.host_path).await?;
        let _guard = self.locks.lock(id.clone()).await;
        let mut there = Made {
            path: requested.host_path,
            bytes: requested.capacity_bytes,
        };
        let mut wanted = ClientHostVolumeCreateRequest {
            id: requested.id,
            name: requested.name,
            namespace: requested.namespace,
            node_id: requested.node_id,
            parameters: requested.parameters,
            ..ClientHostVolumeCreateRequest::default()
        };
        let known = self.kept_of(&id);
        if let Some(known) = known.filter(|known| !known.requested.plugin_id.is_empty()) {
            keeps_its_plugin(&known, &mut wanted, &mut there)?;
        }
        let before = self.take(&wanted)?;
        if let Err(error) = self.offer(&id, there).await {
            return Err(match before {
                Some(before) => self.stays(&id, before, error).await,
                None => self.unmade(&id, None, error).await,
            });
        }
        self.describe();
        Ok(())
    }
}

/// What a plugin made stays the plugin's: it makes it again after a restart, and deletes it. So it
/// lies where the plugin reported.
fn keeps_its_plugin(
    known: &JournaledVolume,
    wanted: &mut ClientHostVolumeCreateRequest,
    there: &mut Made,
) -> Result<(), Refusal> {
    let (id, plugin) = (&known.requested.id, &known.requested.plugin_id);
    if known.path != there.path {
        let text = match known.path.as_str() {
            "" => format!("volume {id} is plugin {plugin:?}'s to make, and is not made yet"),
            path => format!("volume {id} was made by plugin {plugin:?} and lies at {path}"),
        };
        return Err(Refusal::by_rule(text));
    }
    wanted.plugin_id.clone_from(plugin);
    wanted.requested_capacity_min_bytes = known.requested.requested_capacity_min_bytes;
    wanted.requested_capacity_max_bytes = known.requested.requested_capacity_max_bytes;
    if there.bytes == 0 {
        there.bytes = known.bytes;
    }
    Ok(())
}

/// What undoes a call that made a volume, or did not.
pub(super) fn undoing(requested: &ClientHostVolumeCreateRequest) -> ClientHostVolumeDeleteRequest {
    ClientHostVolumeDeleteRequest {
        id: requested.id.clone(),
        name: requested.name.clone(),
        plugin_id: requested.plugin_id.clone(),
        namespace: requested.namespace.clone(),
        node_id: requested.node_id.clone(),
        host_path: String::new(),
        parameters: requested.parameters.clone(),
    }
}

/// Refuses a path where nothing is.
async fn is_there(path: &str) -> Result<(), PluginError> {
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        let text = format!("path {path:?} of the volume is not absolute");
        return Err(PluginError::new(text));
    }
    look(&path).await.map_err(|error| {
        let path = path.display();
        PluginError::new(format!("volume at {path} is not there: {error}"))
    })
}
