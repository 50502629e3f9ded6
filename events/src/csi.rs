//! Events about CSI volumes and plugins. Whatever is about a volume names its namespace (NS-02).

use crate::gojson::Map;
use crate::model::CsiVolume;
use crate::wire;

/// The feature level from which on volumes and plugins are applied.
pub const CSI_LEVEL: u32 = 8;

/// What a claim takes: [`CsiVolumeClaimed::claim`].
pub mod mode {
    /// The allocation reads.
    pub const READ: u8 = 0;
    /// The allocation writes, and reads.
    pub const WRITE: u8 = 1;
    /// No claim: a signal of garbage collection (CSI-33).
    pub const GC: u8 = 2;
}

/// How far a claim has been taken back: [`CsiVolumeClaimed::state`]. Numbers are Nomad's; the
/// order of the steps is that of [`rank`](state::rank).
pub mod state {
    /// It is held.
    pub const TAKEN: u8 = 0;
    /// The node unmounted the volume.
    pub const NODE_DETACHED: u8 = 1;
    /// The controller detached it from the node.
    pub const CONTROLLER_DETACHED: u8 = 2;
    /// Nothing is left to be done.
    pub const READY_TO_FREE: u8 = 3;
    /// It is being given back; no step is done yet.
    pub const UNPUBLISHING: u8 = 4;

    /// The place of a state in their order; that of a number nobody knows is none.
    #[must_use]
    pub fn rank(state: u8) -> Option<u8> {
        [
            TAKEN,
            UNPUBLISHING,
            NODE_DETACHED,
            CONTROLLER_DETACHED,
            READY_TO_FREE,
        ]
        .iter()
        .position(|known| *known == state)
        .and_then(|at| u8::try_from(at).ok())
    }

    /// The word for a state.
    #[must_use]
    pub fn name(state: u8) -> &'static str {
        match state {
            TAKEN => "taken",
            NODE_DETACHED => "node-detached",
            CONTROLLER_DETACHED => "controller-detached",
            READY_TO_FREE => "ready-to-free",
            UNPUBLISHING => "unpublishing",
            _ => "unknown",
        }
    }
}

/// What a secret of a volume looks like before it is an event: the key it was sealed with, and
/// ciphertext.
#[must_use]
pub fn sealed(key_id: &str, ciphertext: &str) -> String {
    format!("sealed:{key_id}:{ciphertext}")
}

/// The key id and the ciphertext of a sealed secret; none for anything else.
#[must_use]
pub fn as_sealed(secret: &str) -> Option<(&str, &str)> {
    let (key_id, ciphertext) = secret.strip_prefix("sealed:")?.split_once(':')?;
    (!key_id.is_empty() && !ciphertext.is_empty()).then_some((key_id, ciphertext))
}

wire! {
    /// Volumes were registered or created.
    pub struct CsiVolumesRegistered {
        volumes: Vec<CsiVolume> = "Volumes",
        /// Unix nanoseconds.
        timestamp: i64 = "Timestamp",
    }

    /// Volumes were removed.
    pub struct CsiVolumeDeregistered {
        namespace: String = "Namespace",
        volume_ids: Vec<String> = "VolumeIDs",
        /// Also with claims, as long as no live allocation holds one (CSI-42).
        force: bool = "Force",
    }

    /// A claim was made, moved on, or released. It names the allocation, it does not carry it
    /// (CSI-21). A claim, unlike a signal of garbage collection, always has its modes (EV-11); no
    /// node means that of its allocation.
    pub struct CsiVolumeClaimed {
        namespace: String = "Namespace",
        volume_id: String = "VolumeID",
        allocation_id: String = "AllocationID",
        node_id: String = "NodeID",
        external_node_id: String = "ExternalNodeID",
        /// 0 read, 1 write, 2 a signal of garbage collection that is no claim (CSI-33).
        claim: u8 = "Claim",
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        /// 0 taken, 1 node detached, 2 controller detached, 3 ready to free, 4 unpublishing.
        state: u8 = "State",
        /// Unix nanoseconds.
        timestamp: i64 = "Timestamp",
        /// The controller has attached the volume to the node, and this is what it said.
        published: bool = "Published" omit,
        publish_context: Map<String> = "PublishContext" omit,
    }

    /// Several claims in one event; not written (VW-07).
    pub struct CsiVolumeClaimsApplied {
        claims: Vec<CsiVolumeClaimed> = "Claims",
    }

    /// A plugin left over was removed.
    pub struct CsiPluginDeleted {
        id: String = "ID",
    }
}
