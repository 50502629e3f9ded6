//! The first root key: made once this server leads and there is none, or where the file of the
//! active one is gone, as after an import without the keystore: what it encrypted stays unreadable,
//! but everything else goes on.
//!
//! Leadership does not wait for it (KR-03); whoever needs a key copes with "not there yet". The
//! order is: file synced, then the event, then first use.

use std::sync::Arc;
use std::time::Duration;

use drover_projections::tables::root_keys::RootKeys;
use drover_projections::{Scan, View};

use super::Server;
use crate::commands::keyring::UpsertRootKey;
use crate::error::ApiError;
use crate::keyring::{KeyringError, Keystore};
use crate::net::aside;

/// How long a failed attempt waits before the next.
const RETRY: Duration = Duration::from_secs(1);

/// Whenever this server begins to lead, sees to it that there is an active root key. Ends with Raft.
pub(super) async fn keep_a_key(server: Arc<Server>) {
    let mut ready = server.proposer.ready();
    loop {
        if ready.borrow_and_update().is_some() {
            while let Err(error) = ensure(&server).await {
                tracing::warn!(%error, "no root key yet");
                if ready.has_changed().unwrap_or(true) {
                    break;
                }
                tokio::time::sleep(RETRY).await;
            }
        }
        if ready.changed().await.is_err() {
            return;
        }
    }
}

async fn ensure(server: &Arc<Server>) -> Result<(), ApiError> {
    if let Some(id) = aside(|| active(&server.projections.view()))?
        && !is_lost(server, &id)?
    {
        return Ok(());
    }
    let id = uuid::Uuid::new_v4().to_string();
    let keyring = Arc::clone(&server.keyring);
    let made =
        tokio::task::spawn_blocking(move || keyring.generate(id, crate::clock::unix_nanos()))
            .await
            .map_err(|error| ApiError::internal(error.to_string()))?;
    let key = made.map_err(|error| ApiError::internal(error.to_string()))?;
    let command = UpsertRootKey {
        key: key.meta("active"),
        public_key: key.public_identity().to_bytes().to_vec().into(),
        rekey: false,
    };
    server.submit(command, server.origin("keyring")).await?;
    let failed = |error: KeyringError| ApiError::internal(error.to_string());
    server.keyring.activate(key.id()).map_err(failed)?;
    tracing::info!(key = key.id(), "made a root key");
    Ok(())
}

/// Activates a key; answers whether it cannot be, because it has no file.
fn is_lost(server: &Server, id: &str) -> Result<bool, ApiError> {
    let failed = |error: KeyringError| ApiError::internal(error.to_string());
    match server.keyring.activate(id) {
        Ok(()) => return Ok(false),
        Err(KeyringError::MissingKey(_)) => {}
        Err(error) => return Err(failed(error)),
    }
    let files = Keystore::open(&server.dir.join("keystore")).and_then(|store| store.ids());
    if files.map_err(failed)?.iter().any(|known| known == id) {
        return Err(ApiError::internal(format!(
            "the file of root key {id} cannot be used: put it back, or wrap.key beside it, and \
             start again; if they are lost, remove it, and a new key is made"
        )));
    }
    tracing::error!(
        key = id,
        "the active root key is not in the keystore: what it encrypted cannot be read; a new key \
         is made"
    );
    Ok(true)
}

/// The id of the active root key, as the tables know it.
fn active(view: &View) -> Result<Option<String>, ApiError> {
    for key in view.scan::<RootKeys>(Scan::all()) {
        let key = key.map_err(|error| ApiError::internal(error.to_string()))?;
        if key.meta.state == "active" {
            return Ok(Some(key.meta.key_id));
        }
    }
    Ok(None)
}
