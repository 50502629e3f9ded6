//! How one volume is claimed and mounted for an allocation, and given back by it.

use std::time::Duration;

use drover_csi::mounts::{MountError, MountSpec, Secrets, Usage};
use drover_csi::proto::CapacityRange;
use drover_events::csi::state;
use drover_events::model::CsiVolume;
use drover_events::model::status::attachment_mode;
use tokio::time::{Instant, sleep};

use super::{ClaimRequest, CsiHook, MountedVolume};
use crate::clock::{Jitter, nanos};
use crate::hooks::alloc::AllocGiven;
use crate::volumes::csi::registry::CsiPart;
use drover_rpc::RpcError;
use drover_rpc::csi::{
    CsiVolumeClaim, CsiVolumeClaimRequest, CsiVolumeClaimResponse, CsiVolumeUnpublish,
    CsiVolumeUnpublishRequest, NamedClaim,
};

/// How long one call may take: a controller may attach the volume meanwhile.
const CALL: Duration = Duration::from_secs(150);
/// How long a report that may be missed may take: its allocation waits for it.
const REPORT: Duration = Duration::from_secs(5);
/// The first wait after a failure, and the longest, nanoseconds.
const PAUSE: i64 = 100_000_000;
const LONGEST_PAUSE: i64 = 2_000_000_000;
/// How long a refusal that may pass is waited out before the allocation fails.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long it is tried to make a volume larger before it is used as it is.
const GROWING: Duration = Duration::from_secs(60);
/// How long it is tried to give a volume back; afterwards the servers do it alone.
const LEAVING: Duration = Duration::from_secs(60);

impl CsiHook {
    /// Claims a volume and mounts it; tried again while that may help.
    pub(super) async fn bring(
        &self,
        given: &AllocGiven,
        requested: &ClaimRequest,
    ) -> Result<MountedVolume, String> {
        let begun = Instant::now();
        let mut pause = Pause::default();
        // Since when it is tried to make it larger; whatever else took its time does not count.
        let mut growing = None;
        loop {
            let now = self.csi.clock.passed();
            let grows = growing.is_none_or(|since| nanos(now - since) < GROWING);
            match self.brought(given, requested, grows).await {
                Ok(held) => return Ok(held),
                Err(error) if !error.passes => return Err(error.text),
                // It is there, and is used as it is soon.
                Err(error) if begun.elapsed() > PATIENCE && !error.grows => return Err(error.text),
                Err(error) => {
                    if error.grows {
                        growing.get_or_insert_with(|| self.csi.clock.passed());
                    }
                    let (alloc, volume) = (&given.alloc.id, &requested.volume);
                    tracing::debug!(alloc, volume, "{}", error.text);
                }
            }
            pause.wait().await;
        }
    }

    /// It may be made larger, or is taken as large as it is: the next allocation has it done then.
    async fn brought(
        &self,
        given: &AllocGiven,
        requested: &ClaimRequest,
        grows: bool,
    ) -> Result<MountedVolume, Trouble> {
        let claimed = self.claimed(given, requested).await?;
        let growth = claimed.node_expansion;
        let missing =
            || Trouble::lasting(&requested.volume, "the answer to the claim has no volume");
        let volume = claimed.volume.ok_or_else(missing)?;
        let live = self.csi.part(CsiPart::Node, &volume.plugin_id).await;
        let live = live.map_err(|text| Trouble::passing(&requested.volume, &text))?;
        let can = live.found.features.node.unwrap_or_default();
        let wanted = MountSpec {
            alloc: given.alloc.id.clone(),
            namespace: given.alloc.namespace.clone(),
            volume: requested.volume.clone(),
            remote: remote(&volume).to_owned(),
            usage: usage(requested, &volume),
            publish_context: claimed.publish_context.into_map(),
            context: volume.context.clone().into_map(),
            secrets: Secrets(volume.secrets.clone().into_map()),
            size: size(requested, &volume).filter(|_| grows && growth != 0 && can.expand),
        };
        let (plugin, root) = (&live.plugin, self.csi.root(&live.instance));
        let mounts = &self.csi.mounts;
        let mounted = mounts.mount(plugin, can.stage, &root, &wanted).await;
        let mounted = mounted.map_err(|error| Trouble {
            grows: matches!(error, MountError::Grows(_)),
            ..Trouble::of(
                &requested.volume,
                &error.to_string(),
                error.is_recoverable(),
            )
        })?;
        match &mounted.too_small {
            Some(why) => {
                tracing::warn!(volume = requested.volume, "mounted, not made larger: {why}")
            }
            None if wanted.size.is_some() => self.expanded(given, requested, growth).await,
            None => {}
        }
        Ok(MountedVolume {
            path: mounted.path,
            is_mount: mounted.is_mount,
            is_device: requested.request.attachment_mode == attachment_mode::BLOCK_DEVICE,
            read_only: requested.request.read_only,
        })
    }

    async fn claimed(
        &self,
        given: &AllocGiven,
        requested: &ClaimRequest,
    ) -> Result<CsiVolumeClaimResponse, Trouble> {
        let request = request(given, requested);
        let answer = self.csi.caller.once::<CsiVolumeClaim>(&request, CALL).await;
        answer.map_err(|error| {
            let text = format!("could not claim volume {}: {error}", requested.volume);
            Trouble {
                text,
                passes: may_pass(&error),
                grows: false,
            }
        })
    }

    /// Reports that this node has made the volume as large as it became with a growth. Where the
    /// report is lost, the next node that mounts it does it again.
    async fn expanded(&self, given: &AllocGiven, requested: &ClaimRequest, growth: i64) {
        let request = CsiVolumeClaimRequest {
            expanded: growth,
            ..request(given, requested)
        };
        let reported = self
            .csi
            .caller
            .once::<CsiVolumeClaim>(&request, REPORT)
            .await;
        if let Err(error) = reported {
            tracing::debug!(
                volume = requested.volume,
                "that it was made larger: {error}"
            );
        }
    }

    /// Gives a volume back: the servers have it taken from this node and its controller. One that
    /// was never claimed is given back as well; an agent that died in between does not know.
    pub(super) async fn give_back(
        &self,
        given: &AllocGiven,
        requested: &ClaimRequest,
    ) -> Result<(), String> {
        let claim = NamedClaim {
            allocation_id: given.alloc.id.clone(),
            node_id: given.node.id.clone(),
            external_node_id: String::new(),
            mode: requested.mode(),
            access_mode: requested.request.access_mode.clone(),
            attachment_mode: requested.request.attachment_mode.clone(),
            state: state::UNPUBLISHING,
        };
        let request = CsiVolumeUnpublishRequest {
            volume_id: requested.volume.clone(),
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
                Err(error) if !may_pass(&error) || begun.elapsed() > LEAVING => {
                    return Err(format!(
                        "could not unpublish volume {}: {error}",
                        requested.volume
                    ));
                }
                Err(error) => tracing::debug!(volume = requested.volume, "unpublish: {error}"),
            }
            pause.wait().await;
        }
    }
}

/// The claim of an allocation, as it is requested.
fn request(given: &AllocGiven, requested: &ClaimRequest) -> CsiVolumeClaimRequest {
    CsiVolumeClaimRequest {
        volume_id: requested.volume.clone(),
        namespace: given.alloc.namespace.clone(),
        allocation_id: given.alloc.id.clone(),
        node_id: given.node.id.clone(),
        external_node_id: String::new(),
        mode: requested.mode(),
        access_mode: requested.request.access_mode.clone(),
        attachment_mode: requested.request.attachment_mode.clone(),
        state: state::CLAIMED,
        expanded: 0,
    }
}

/// What the plugin calls the volume (CSI-10).
fn remote(volume: &CsiVolume) -> &str {
    match volume.external_id.is_empty() {
        true => &volume.id,
        false => &volume.external_id,
    }
}

/// How large a volume is to be for an allocation that writes; `None` for one that only reads.
fn size(requested: &ClaimRequest, volume: &CsiVolume) -> Option<CapacityRange> {
    let most = volume.requested_capacity_max;
    (!requested.request.read_only).then_some(CapacityRange {
        required_bytes: volume.requested_capacity_min,
        // A limit of before it grew does not count: it may be below what was requested since.
        limit_bytes: if most >= volume.capacity { most } else { 0 },
    })
}

/// How a volume is used: options of the job's replace the volume's (CSI-15).
fn usage(requested: &ClaimRequest, volume: &CsiVolume) -> Usage {
    let own = requested.request.mount_options.as_ref();
    let own = own.filter(|own| !own.fs_type.is_empty() || !own.mount_flags.is_empty());
    let options = own.or(volume.mount_options.as_ref());
    Usage {
        read_only: requested.request.read_only,
        attachment: requested.request.attachment_mode.clone(),
        access: requested.request.access_mode.clone(),
        fs_type: options.map_or_else(String::new, |options| options.fs_type.clone()),
        flags: options.map_or_else(Vec::new, |options| options.mount_flags.to_vec()),
        own_options: own.is_some(),
    }
}

/// Why a volume is not there, whether that may pass, and whether its plugin may still make it
/// larger.
struct Trouble {
    text: String,
    passes: bool,
    grows: bool,
}

impl Trouble {
    fn of(volume: &str, text: &str, passes: bool) -> Self {
        let text = format!("could not mount volume {volume}: {text}");
        Self {
            text,
            passes,
            grows: false,
        }
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
        RpcError::Api(error) => !error.code.lasts(),
        RpcError::Unreachable(_) | RpcError::TimedOut(_) => true,
        RpcError::Malformed(_) => false,
    }
}

/// Waits that grow, and differ among many that wait for the same.
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
