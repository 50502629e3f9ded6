//! How volumes are made, taken as they are, and deleted.

use std::path::PathBuf;

use super::HostVolumes;
use super::keep::{is_id, key};
use super::plugin::{Made, PluginError};
use crate::error::{ApiError, Code};
use crate::rpc::host_volume::{
    ClientHostVolumeCreateRequest, ClientHostVolumeDeleteRequest, ClientHostVolumeRegisterRequest,
};

impl HostVolumes {
    /// Makes a volume of a former agent again. One that was deleted meanwhile is gone.
    pub(super) async fn again(&self, id: &str) -> Result<(), ApiError> {
        let _turn = self.turns.turn(id.to_owned()).await;
        let Some(kept) = self.kept_of(id) else {
            return Ok(());
        };
        let made = match kept.asked.plugin_id.is_empty() {
            true => is_there(&kept.path).await.map(|()| Made {
                path: kept.path.clone(),
                bytes: kept.bytes,
            }),
            false => self.made(&kept.asked).await,
        };
        let outcome = match made {
            Ok(made) => self.offer(id, made).await,
            Err(error) => {
                self.offers(id, false);
                Err(ApiError::refused(error.to_string()))
            }
        };
        self.describe();
        outcome
    }

    async fn made(&self, asked: &ClientHostVolumeCreateRequest) -> Result<Made, PluginError> {
        let plugin = self.plugins.named(&asked.plugin_id)?;
        let made = self.plugins.create(&plugin, asked).await?;
        is_there(&made.path).await?;
        Ok(made)
    }

    pub(super) async fn create(
        &self,
        asked: ClientHostVolumeCreateRequest,
    ) -> Result<Made, ApiError> {
        let id = asked.id.clone();
        let _turn = self.turns.turn(id.clone()).await;
        let plugin = self.plugins.named(&asked.plugin_id)?;
        let before = self.take(&asked)?;
        let intent = self.kept_of(&id);
        if let Some(Err(error)) = match &intent {
            Some(intent) => Some(self.keep(intent).await),
            None => None,
        } {
            self.restored(&id, before).await;
            return Err(error);
        }
        let made = match self.made(&asked).await {
            Ok(made) => made,
            Err(error) => {
                let mut text = error.to_string();
                // What a former call made stays; of this one nothing is left behind.
                if before.as_ref().is_none_or(|before| before.path.is_empty()) {
                    let undone = self.plugins.delete(&plugin, &undoing(&asked)).await;
                    if let Err(error) = undone {
                        text = format!("{text}; what it left could not be deleted: {error}");
                    }
                    self.restored(&id, None).await;
                } else {
                    self.restored(&id, before).await;
                }
                return Err(ApiError::refused(text));
            }
        };
        self.offer(&id, made.clone()).await?;
        self.describe();
        Ok(made)
    }

    pub(super) async fn register(
        &self,
        asked: ClientHostVolumeRegisterRequest,
    ) -> Result<(), ApiError> {
        let id = asked.id.clone();
        let _turn = self.turns.turn(id.clone()).await;
        is_there(&asked.host_path).await?;
        let before = self.take(&ClientHostVolumeCreateRequest {
            id: asked.id,
            name: asked.name,
            namespace: asked.namespace,
            node_id: asked.node_id,
            parameters: asked.parameters,
            ..ClientHostVolumeCreateRequest::default()
        })?;
        let there = Made {
            path: asked.host_path,
            bytes: asked.capacity_bytes,
        };
        if let Err(error) = self.offer(&id, there).await {
            self.restored(&id, before).await;
            return Err(error);
        }
        self.describe();
        Ok(())
    }

    pub(super) async fn delete(
        &self,
        mut asked: ClientHostVolumeDeleteRequest,
    ) -> Result<(), ApiError> {
        let id = asked.id.clone();
        if !is_id(&id) {
            return Err(ApiError::bad_request(format!("invalid volume ID {id:?}")));
        }
        let _turn = self.turns.turn(id.clone()).await;
        let known = self.kept_of(&id);
        if let Some(known) = &known {
            // What the servers missed of a call that was cut off, this node knows.
            asked.name.clone_from(&known.asked.name);
            asked.namespace.clone_from(&known.asked.namespace);
            if asked.host_path.is_empty() {
                asked.host_path.clone_from(&known.path);
            }
        }
        let offered = self.held.lock().get(&id).is_some_and(|held| held.offered);
        self.offers(&id, false);
        self.describe();
        if let Err(error) = self.gone(&asked, known.is_some()).await {
            self.offers(&id, offered);
            self.describe();
            return Err(error);
        }
        let forgotten = self.journal.delete(&key(&id)).await;
        forgotten.map_err(|error| ApiError::new(Code::Unavailable, error.to_string()))?;
        self.held.lock().remove(&id);
        self.describe();
        Ok(())
    }

    /// Has what was made deleted, unless it is used.
    async fn gone(
        &self,
        asked: &ClientHostVolumeDeleteRequest,
        is_known: bool,
    ) -> Result<(), ApiError> {
        let users = match (is_known, self.users.get()) {
            (true, Some(users)) => users(&asked.namespace, &asked.name),
            _ => Vec::new(),
        };
        if !users.is_empty() {
            let text = format!(
                "volume {} in use by allocations: [{}]",
                asked.id,
                users.join(" ")
            );
            return Err(ApiError::new(Code::Conflict, text));
        }
        if asked.plugin_id.is_empty() {
            return Ok(());
        }
        let plugin = self.plugins.named(&asked.plugin_id)?;
        self.plugins.delete(&plugin, asked).await?;
        Ok(())
    }
}

/// What undoes a call that made a volume, or did not.
pub(super) fn undoing(asked: &ClientHostVolumeCreateRequest) -> ClientHostVolumeDeleteRequest {
    ClientHostVolumeDeleteRequest {
        id: asked.id.clone(),
        name: asked.name.clone(),
        plugin_id: asked.plugin_id.clone(),
        namespace: asked.namespace.clone(),
        node_id: asked.node_id.clone(),
        host_path: String::new(),
        parameters: asked.parameters.clone(),
    }
}

/// Refuses a path where nothing is.
async fn is_there(path: &str) -> Result<(), PluginError> {
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        let text = format!("path {path:?} of the volume is not absolute");
        return Err(PluginError::new(text));
    }
    let looked = path.clone();
    // A file system may be lost, and hang.
    let found = tokio::task::spawn_blocking(move || looked.metadata().map(drop)).await;
    let missing = |error: &dyn std::fmt::Display| {
        let path = path.display();
        PluginError::new(format!("volume at {path} is not there: {error}"))
    };
    match found {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(missing(&error)),
        Err(error) => Err(missing(&error)),
    }
}
