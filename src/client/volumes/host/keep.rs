//! What of volumes is in the journal, and in memory as it is there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plugin::Made;
use super::{Held, HostVolumes};
use crate::client::journal::Journal;
use crate::error::{ApiError, Code};
use crate::rpc::host_volume::ClientHostVolumeCreateRequest;

/// What keys of the journal begin with.
const KEY: &str = "hostvolume/";

/// A volume as the journal has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// What was asked for; without a plugin it was there before.
    pub(super) asked: ClientHostVolumeCreateRequest,
    /// Where it lies; empty while it is being made for the first time.
    pub(super) path: String,
    /// Its size, bytes.
    pub(super) bytes: i64,
}

impl HostVolumes {
    pub(super) fn kept_of(&self, id: &str) -> Option<Kept> {
        self.held.lock().get(id).map(|held| held.kept.clone())
    }

    pub(super) fn offers(&self, id: &str, offered: bool) {
        if let Some(held) = self.held.lock().get_mut(id) {
            held.offered = offered;
        }
    }

    /// Keeps where a volume lies, and offers it.
    pub(super) async fn offer(&self, id: &str, made: Made) -> Result<(), ApiError> {
        let kept = {
            let mut held = self.held.lock();
            let Some(held) = held.get_mut(id) else {
                return Ok(());
            };
            held.kept.path = made.path;
            held.kept.bytes = made.bytes;
            held.kept.clone()
        };
        self.keep(&kept).await?;
        self.offers(id, true);
        Ok(())
    }

    pub(super) async fn keep(&self, kept: &Kept) -> Result<(), ApiError> {
        let unkept = |error: String| {
            let text = format!("the volume cannot be kept: {error}");
            ApiError::new(Code::Unavailable, text)
        };
        let bytes = rmp_serde::to_vec_named(kept).map_err(|error| unkept(error.to_string()))?;
        let put = self.journal.put(&key(&kept.asked.id), bytes);
        put.await.map_err(|error| unkept(error.to_string()))
    }

    /// Takes a name for a volume, and its description; answers what was there before.
    pub(super) fn take(
        &self,
        asked: &ClientHostVolumeCreateRequest,
    ) -> Result<Option<Kept>, ApiError> {
        valid(asked)?;
        let mut held = self.held.lock();
        let mut others = held.values().map(|other| &other.kept.asked);
        if others.any(|other| other.name == asked.name && other.id != asked.id) {
            let name = &asked.name;
            return Err(ApiError::new(
                Code::Conflict,
                format!("this node has another volume with the name {name:?}"),
            ));
        }
        let before = held.get(&asked.id).map(|known| known.kept.clone());
        let (path, bytes) = before
            .as_ref()
            .map_or_else(Default::default, |kept| (kept.path.clone(), kept.bytes));
        let offered = held.get(&asked.id).is_some_and(|known| known.offered);
        let kept = Kept {
            asked: asked.clone(),
            path,
            bytes,
        };
        held.insert(asked.id.clone(), Held { kept, offered });
        Ok(before)
    }

    /// Goes back to what was there before, after a call that failed.
    pub(super) async fn restored(&self, id: &str, before: Option<Kept>) {
        match before {
            Some(before) => {
                if let Some(held) = self.held.lock().get_mut(id) {
                    held.kept = before.clone();
                }
                if let Err(error) = self.keep(&before).await {
                    tracing::warn!(volume = id, "{error}");
                }
            }
            None => {
                self.held.lock().remove(id);
                if let Err(error) = self.journal.delete(&key(id)).await {
                    tracing::warn!(volume = id, "{error}");
                }
            }
        }
    }
}

pub(super) fn key(id: &str) -> String {
    format!("{KEY}{id}")
}

/// The volumes that a former agent kept. Those that were made are offered at once: what is only
/// being looked for is no news.
pub(super) fn kept(journal: &dyn Journal) -> BTreeMap<String, Held> {
    let mut held = BTreeMap::new();
    let all = journal.load();
    for (key, bytes) in all.range(KEY.to_owned()..) {
        let Some(id) = key.strip_prefix(KEY) else {
            break;
        };
        match rmp_serde::from_slice::<Kept>(bytes) {
            Ok(kept) => {
                let offered = !kept.path.is_empty();
                held.insert(id.to_owned(), Held { kept, offered });
            }
            Err(error) => tracing::error!(volume = id, "cannot be restored: {error}"),
        }
    }
    held
}

/// Whether an id is written as all that servers make are: it becomes the name of a directory.
pub(super) fn is_id(id: &str) -> bool {
    uuid::Uuid::try_parse(id).is_ok_and(|uuid| uuid.hyphenated().to_string() == id)
}

fn valid(asked: &ClientHostVolumeCreateRequest) -> Result<(), ApiError> {
    let wrong = |text: String| Err(ApiError::bad_request(text));
    if !is_id(&asked.id) {
        return wrong(format!("invalid volume ID {:?}", asked.id));
    }
    if asked.name.is_empty() || asked.name.contains(['/', '\0']) {
        return wrong(format!("invalid volume name {:?}", asked.name));
    }
    Ok(())
}
