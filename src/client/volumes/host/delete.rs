//! How volumes are deleted: never beneath an allocation, also beneath none that is on its way here.

use super::HostVolumes;
use super::keep::is_id;
use drover_error::{Code, Refusal};
use drover_rpc::host_volume::ClientHostVolumeDeleteRequest;

impl HostVolumes {
    pub(super) async fn delete(
        &self,
        mut requested: ClientHostVolumeDeleteRequest,
    ) -> Result<(), Refusal> {
        let id = requested.id.clone();
        if !is_id(&id) {
            return Err(Refusal::bad_request(format!("invalid volume ID {id:?}")));
        }
        let _guard = self.locks.lock(id.clone()).await;
        let known = self.kept_of(&id);
        if let Some(known) = &known {
            // This node knows what the servers missed of a call that was cut off.
            requested.name.clone_from(&known.requested.name);
            requested.namespace.clone_from(&known.requested.namespace);
            if requested.host_path.is_empty() {
                requested.host_path.clone_from(&known.path);
            }
        }
        let offered = self.held.lock().get(&id).is_some_and(|held| held.offered);
        self.offers(&id, false);
        if let Err(error) = self.gone(&requested, known.is_some()).await {
            self.offers(&id, offered);
            self.describe();
            return Err(error);
        }
        self.forgotten(&id).await?;
        self.describe();
        Ok(())
    }

    /// Has what was made deleted, unless it is used.
    async fn gone(
        &self,
        requested: &ClientHostVolumeDeleteRequest,
        is_known: bool,
    ) -> Result<(), Refusal> {
        if let (true, Some(users)) = (is_known, self.users.get()) {
            let (namespace, name) = (&requested.namespace, &requested.name);
            // Allocations that came before it was withdrawn are among these; later ones wait. Where
            // it is used, its withdrawal need not be reported.
            unused(&requested.id, &users.here(namespace, name))?;
            self.describe();
            let all = users.anew(namespace, name).await.map_err(|why| {
                let text = format!(
                    "it is not known whether volume {} is to be used: {why}",
                    requested.id
                );
                Refusal::new(Code::Unavailable, text)
            })?;
            unused(&requested.id, &all)?;
        }
        self.describe();
        if requested.plugin_id.is_empty() {
            return Ok(());
        }
        let plugin = self.plugins.named(&requested.plugin_id)?;
        self.plugins.delete(&plugin, requested).await?;
        Ok(())
    }
}

fn unused(id: &str, users: &[String]) -> Result<(), Refusal> {
    if users.is_empty() {
        return Ok(());
    }
    let users = users.join(" ");
    let text = format!("volume {id} in use by allocations: [{users}]");
    Err(Refusal::new(Code::Conflict, text))
}
