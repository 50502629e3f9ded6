//! The record of a volume in the journal, and the volume in memory as it is there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plugin::Made;
use super::{HostVolumes, NodeVolume};
use crate::journal::Journal;
use crate::proc::boot_id;
use drover_error::{Code, Refusal};
use drover_rpc::host_volume::ClientHostVolumeCreateRequest;

/// What keys of the journal begin with.
const KEY: &str = "hostvolume/";

/// A volume as the journal has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct JournaledVolume {
    /// What was requested; without a plugin it was there before.
    #[serde(rename = "asked")]
    pub(super) requested: ClientHostVolumeCreateRequest,
    /// Where it lies; empty while it is being made for the first time.
    pub(super) path: String,
    /// Its size, bytes.
    pub(super) bytes: i64,
    /// When it was last there: the boot of this machine; empty where an older agent wrote it.
    #[serde(default)]
    pub(super) boot: String,
}

impl HostVolumes {
    pub(super) fn kept_of(&self, id: &str) -> Option<JournaledVolume> {
        self.held.lock().get(id).map(|held| held.kept.clone())
    }

    pub(super) fn offers(&self, id: &str, offered: bool) {
        if let Some(held) = self.held.lock().get_mut(id) {
            held.offered = offered;
        }
    }

    /// Keeps where a volume lies, and offers it.
    pub(super) async fn offer(&self, id: &str, made: Made) -> Result<(), Refusal> {
        let (before, kept) = {
            let mut held = self.held.lock();
            let Some(held) = held.get_mut(id) else {
                return Ok(());
            };
            let before = held.kept.clone();
            held.kept.path = made.path;
            held.kept.bytes = made.bytes;
            held.kept.boot = boot_id();
            (before, held.kept.clone())
        };
        if let Err(error) = self.keep(&kept).await {
            if let Some(held) = self.held.lock().get_mut(id) {
                held.kept = before;
            }
            return Err(error);
        }
        self.offers(id, true);
        Ok(())
    }

    pub(super) async fn keep(&self, kept: &JournaledVolume) -> Result<(), Refusal> {
        let unkept = |error: String| {
            let text = format!("the volume cannot be kept: {error}");
            Refusal::new(Code::Unavailable, text)
        };
        let bytes = rmp_serde::to_vec_named(kept).map_err(|error| unkept(error.to_string()))?;
        let put = self.journal.put(&key(&kept.requested.id), bytes);
        put.await.map_err(|error| unkept(error.to_string()))
    }

    /// Takes a name for a volume, and its description; answers what was there before.
    pub(super) fn take(
        &self,
        requested: &ClientHostVolumeCreateRequest,
    ) -> Result<Option<JournaledVolume>, Refusal> {
        valid(requested)?;
        let mut held = self.held.lock();
        let mut others = held.values().map(|other| &other.kept.requested);
        if others.any(|other| other.name == requested.name && other.id != requested.id) {
            let name = &requested.name;
            return Err(Refusal::new(
                Code::Conflict,
                format!("this node has another volume with the name {name:?}"),
            ));
        }
        let before = held.get(&requested.id).map(|known| known.kept.clone());
        let offered = held.get(&requested.id).is_some_and(|known| known.offered);
        let kept = JournaledVolume {
            requested: requested.clone(),
            ..before.clone().unwrap_or_default()
        };
        held.insert(requested.id.clone(), NodeVolume { kept, offered });
        Ok(before)
    }

    /// Goes back to what was there before a call that failed.
    pub(super) async fn restored(&self, id: &str, before: JournaledVolume) {
        if let Some(held) = self.held.lock().get_mut(id) {
            held.kept = before.clone();
        }
        if let Err(error) = self.keep(&before).await {
            tracing::warn!(volume = id, "{error}");
        }
    }

    /// Knows nothing of a volume any more, now and after a restart.
    pub(super) async fn forgotten(&self, id: &str) -> Result<(), Refusal> {
        let forgotten = self.journal.delete(&key(id)).await;
        forgotten.map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))?;
        self.held.lock().remove(id);
        Ok(())
    }
}

pub(super) fn key(id: &str) -> String {
    format!("{KEY}{id}")
}

/// The volumes that a former agent kept. Those that were there are offered at once, for what is
/// only being looked for is no news; but not after the machine was off: mounts are lost then, and
/// tasks would write to what lies beneath.
pub(super) fn kept(journal: &dyn Journal) -> BTreeMap<String, NodeVolume> {
    let boot = boot_id();
    let mut held = BTreeMap::new();
    let all = journal.load();
    for (key, bytes) in all.range(KEY.to_owned()..) {
        let Some(id) = key.strip_prefix(KEY) else {
            break;
        };
        match rmp_serde::from_slice::<JournaledVolume>(bytes) {
            Ok(kept) => {
                let same = kept.boot.is_empty() || kept.boot == boot;
                let offered = !kept.path.is_empty() && same;
                held.insert(id.to_owned(), NodeVolume { kept, offered });
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

fn valid(requested: &ClientHostVolumeCreateRequest) -> Result<(), Refusal> {
    let wrong = |text: String| Err(Refusal::bad_request(text));
    if !is_id(&requested.id) {
        return wrong(format!("invalid volume ID {:?}", requested.id));
    }
    if requested.name.is_empty() || requested.name.contains(['/', '\0']) {
        return wrong(format!("invalid volume name {:?}", requested.name));
    }
    Ok(())
}
