//! The hook of allocations that use CSI volumes: they are claimed and mounted before the tasks, and
//! given back after them (CSI-22, CSI-44).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_csi::mounts::{self, Mounted, Secrets, Usage, Wanted};
use drover_events::csi::{mode, state};
use drover_events::model::{Allocation, CsiVolume, VolumeRequest};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::registry::Part;
use super::{CSI, Csi, root};
use crate::client::alloc::hooks::{AllocAnswer, AllocGiven, AllocHook, Hooked};
use crate::client::clock::{Jitter, nanos};
use crate::error::Code;
use crate::rpc::RpcError;
use crate::rpc::csi::{
    CsiVolumeClaim, CsiVolumeClaimRequest, CsiVolumeClaimResponse, CsiVolumeUnpublish,
    CsiVolumeUnpublishRequest, NamedClaim,
};

/// How long one call may take: a controller may attach the volume meanwhile.
const CALL: Duration = Duration::from_secs(150);
/// The first wait after a failure, and the longest, nanoseconds.
const PAUSE: i64 = 100_000_000;
const LONGEST_PAUSE: i64 = 2_000_000_000;
/// How long a refusal that may pass is waited out before the allocation fails.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long it is tried to give a volume back; afterwards the servers do it alone.
const LEAVING: Duration = Duration::from_secs(60);

/// A volume that an allocation asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    /// Its name in the group.
    name: String,
    /// The volume.
    volume: String,
    /// How it is used.
    request: VolumeRequest,
}

impl Asked {
    fn mode(&self) -> u8 {
        match self.request.read_only {
            true => mode::READ,
            false => mode::WRITE,
        }
    }
}

/// The CSI volumes that an allocation asks for, by their names in the group.
pub(super) fn asked(alloc: &Allocation) -> Vec<Asked> {
    let requests = alloc
        .group()
        .into_iter()
        .flat_map(|group| group.volumes.iter());
    let csi = requests.filter(|(_, request)| request.r#type == CSI);
    csi.map(|(name, request)| Asked {
        name: name.clone(),
        volume: request.source_for(&alloc.name).into_owned(),
        request: request.clone(),
    })
    .collect()
}

/// A volume that is mounted for an allocation: what the journal keeps, and what tasks need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Where, on this node.
    pub path: PathBuf,
    /// Something is mounted there.
    pub is_mount: bool,
    /// It is a device.
    pub is_device: bool,
    /// Nobody may write.
    pub read_only: bool,
}

/// What is mounted for an allocation, by the names in its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes(pub BTreeMap<String, Held>);

/// The hook.
pub(super) struct CsiHook {
    csi: Arc<Csi>,
    volumes: Vec<Asked>,
}

impl CsiHook {
    pub(super) fn new(csi: &Arc<Csi>, volumes: Vec<Asked>) -> Self {
        let csi = Arc::clone(csi);
        Self { csi, volumes }
    }

    /// Claims a volume and mounts it; tried again while that may help.
    async fn bring(&self, given: &AllocGiven, asked: &Asked) -> Result<Held, String> {
        let begun = Instant::now();
        let mut pause = Pause::default();
        loop {
            match self.brought(given, asked).await {
                Ok(held) => return Ok(held),
                Err(error) if !error.passes || begun.elapsed() > PATIENCE => return Err(error.text),
                Err(error) => {
                    let (alloc, volume) = (&given.alloc.id, &asked.volume);
                    tracing::debug!(alloc, volume, "{}", error.text);
                }
            }
            pause.wait().await;
        }
    }

    async fn brought(&self, given: &AllocGiven, asked: &Asked) -> Result<Held, Trouble> {
        let claimed = self.claimed(given, asked).await?;
        let missing = || Trouble::lasting(&asked.volume, "the answer to the claim has no volume");
        let volume = claimed.volume.ok_or_else(missing)?;
        let live = self.csi.part(Part::Node, &volume.plugin_id).await;
        let live = live.map_err(|text| Trouble::passing(&asked.volume, &text))?;
        let wanted = Wanted {
            alloc: given.alloc.id.clone(),
            namespace: given.alloc.namespace.clone(),
            volume: asked.volume.clone(),
            remote: remote(&volume).to_owned(),
            usage: usage(asked, &volume),
            publish_context: claimed.publish_context.into_map(),
            context: volume.context.clone().into_map(),
            secrets: Secrets(volume.secrets.clone().into_map()),
        };
        let stages = live.found.features.node.unwrap_or_default().stage;
        let (plugin, root) = (&live.plugin, root(&live));
        let mounted = self.csi.mounts.mount(plugin, stages, &root, &wanted).await;
        let mounted = mounted.map_err(|error| match error.is_recoverable() {
            true => Trouble::passing(&asked.volume, &error.to_string()),
            false => Trouble::lasting(&asked.volume, &error.to_string()),
        })?;
        Ok(Held {
            path: mounted.path,
            is_mount: mounted.is_mount,
            is_device: asked.request.attachment_mode == "block-device",
            read_only: asked.request.read_only,
        })
    }

    async fn claimed(
        &self,
        given: &AllocGiven,
        asked: &Asked,
    ) -> Result<CsiVolumeClaimResponse, Trouble> {
        let request = CsiVolumeClaimRequest {
            volume_id: asked.volume.clone(),
            namespace: given.alloc.namespace.clone(),
            allocation_id: given.alloc.id.clone(),
            node_id: given.node.id.clone(),
            external_node_id: String::new(),
            claim: asked.mode(),
            access_mode: asked.request.access_mode.clone(),
            attachment_mode: asked.request.attachment_mode.clone(),
            state: state::TAKEN,
        };
        let answer = self.csi.caller.once::<CsiVolumeClaim>(&request, CALL).await;
        answer.map_err(|error| {
            let text = format!("could not claim volume {}: {error}", asked.volume);
            let passes = may_pass(&error);
            Trouble { text, passes }
        })
    }

    /// Gives a volume back: the servers have it taken from this node and its controller. One that
    /// was never claimed is given back as well; who died in between does not know.
    async fn give_back(&self, given: &AllocGiven, asked: &Asked) -> Result<(), String> {
        let claim = NamedClaim {
            allocation_id: given.alloc.id.clone(),
            node_id: given.node.id.clone(),
            external_node_id: String::new(),
            mode: asked.mode(),
            access_mode: asked.request.access_mode.clone(),
            attachment_mode: asked.request.attachment_mode.clone(),
            state: state::UNPUBLISHING,
        };
        let request = CsiVolumeUnpublishRequest {
            volume_id: asked.volume.clone(),
            namespace: given.alloc.namespace.clone(),
            claim: Some(claim),
        };
        let begun = Instant::now();
        let mut pause = Pause::default();
        loop {
            let answer = self
                .csi
                .caller
                .once::<CsiVolumeUnpublish>(&request, CALL)
                .await;
            match answer {
                Ok(_) => return Ok(()),
                // The volume is no more.
                Err(RpcError::Api(error)) if error.code == Code::NotFound => return Ok(()),
                Err(error) if !may_pass(&error) || begun.elapsed() > LEAVING => {
                    return Err(format!(
                        "could not unpublish volume {}: {error}",
                        asked.volume
                    ));
                }
                Err(error) => tracing::debug!(volume = asked.volume, "unpublish: {error}"),
            }
            pause.wait().await;
        }
    }

    fn hold(&self, given: &AllocGiven, held: &BTreeMap<String, Held>) {
        given.resources.change(|volumes: &mut Volumes| {
            volumes
                .0
                .extend(held.iter().map(|(name, one)| (name.clone(), one.clone())));
        });
    }

    /// All of them at once: each may take its plugin a while.
    async fn bring_all(&self, given: &AllocGiven) -> Result<BTreeMap<String, Held>, String> {
        let each = self.volumes.iter().map(|asked| async {
            let held = self.bring(given, asked).await?;
            Ok::<_, String>((asked.name.clone(), held))
        });
        let all = futures_util::future::join_all(each).await;
        all.into_iter().collect()
    }
}

impl AllocHook for CsiHook {
    fn name(&self) -> &'static str {
        "csi_hook"
    }

    fn prerun<'a>(&'a self, given: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            let held = self.bring_all(given).await?;
            self.hold(given, &held);
            let kept = serde_json::to_value(&held).map_err(|error| error.to_string())?;
            Ok(AllocAnswer::keeping(kept))
        }
        .boxed()
    }

    /// What is still mounted is used without asking anybody (CL-13); what is gone, after the
    /// machine was off, is brought again.
    fn restore<'a>(&'a self, given: &'a AllocGiven, kept: &'a Value) -> Hooked<'a, ()> {
        async move {
            let held: BTreeMap<String, Held> = match kept {
                Value::Null => return Ok(()),
                kept => Deserialize::deserialize(kept)
                    .map_err(|error: serde_json::Error| error.to_string())?,
            };
            for (name, one) in held {
                let mounted = Mounted {
                    path: one.path.clone(),
                    is_mount: one.is_mount,
                };
                let there = mounts::is_there(&mounted).await;
                let one = match there.map_err(|error| error.to_string())? {
                    true => one,
                    false => {
                        let asked = self.volumes.iter().find(|asked| asked.name == name);
                        let gone = || format!("the group has no volume {name:?} any more");
                        self.bring(given, asked.ok_or_else(gone)?).await?
                    }
                };
                self.hold(given, &BTreeMap::from([(name, one)]));
            }
            Ok(())
        }
        .boxed()
    }

    fn postrun<'a>(&'a self, given: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            let each = self
                .volumes
                .iter()
                .map(|asked| self.give_back(given, asked));
            let all = futures_util::future::join_all(each).await;
            let failed: Vec<String> = all.into_iter().filter_map(Result::err).collect();
            match failed.is_empty() {
                true => Ok(AllocAnswer::done()),
                false => Err(failed.join("; ")),
            }
        }
        .boxed()
    }
}

/// What the plugin calls the volume (CSI-10).
fn remote(volume: &CsiVolume) -> &str {
    match volume.external_id.is_empty() {
        true => &volume.id,
        false => &volume.external_id,
    }
}

/// How a volume is used: options of the job's replace the volume's (CSI-15).
fn usage(asked: &Asked, volume: &CsiVolume) -> Usage {
    let own = asked.request.mount_options.as_ref();
    let own = own.filter(|own| !own.fs_type.is_empty() || !own.mount_flags.is_empty());
    let options = own.or(volume.mount_options.as_ref());
    Usage {
        read_only: asked.request.read_only,
        attachment: asked.request.attachment_mode.clone(),
        access: asked.request.access_mode.clone(),
        fs_type: options.map_or_else(String::new, |options| options.fs_type.clone()),
        flags: options.map_or_else(Vec::new, |options| options.mount_flags.to_vec()),
        own_options: own.is_some(),
    }
}

/// Why a volume is not there, and whether that may pass.
struct Trouble {
    text: String,
    passes: bool,
}

impl Trouble {
    fn of(volume: &str, text: &str, passes: bool) -> Self {
        let text = format!("could not mount volume {volume}: {text}");
        Self { text, passes }
    }

    fn passing(volume: &str, text: &str) -> Self {
        Self::of(volume, text, true)
    }

    fn lasting(volume: &str, text: &str) -> Self {
        Self::of(volume, text, false)
    }
}

/// Whether the same call may do better later: servers may be without a leader, a volume may be
/// released. What is wrong with the request itself stays wrong.
fn may_pass(error: &RpcError) -> bool {
    match error {
        RpcError::Api(error) => !matches!(
            error.code,
            Code::BadRequest
                | Code::Unauthorized
                | Code::PermissionDenied
                | Code::NotFound
                | Code::NotImplemented
        ),
        RpcError::Unreachable(_) | RpcError::TimedOut(_) => true,
        RpcError::Malformed(_) => false,
    }
}

/// Waits that grow, and differ among many who wait for the same.
struct Pause {
    next: i64,
    chance: Jitter,
}

impl Default for Pause {
    fn default() -> Self {
        Self {
            next: PAUSE,
            chance: Jitter::random(),
        }
    }
}

impl Pause {
    async fn wait(&mut self) {
        let random = self.chance.below(self.next / 4);
        sleep(nanos(self.next - random)).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }
}
