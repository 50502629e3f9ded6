//! Events about CSI volumes and plugins. Whatever is about a volume names its namespace (NS-02).

use crate::gojson::Map;
use crate::model::CsiVolume;
use crate::model::status::AccessMode;
use crate::wire;

/// The feature level from which on every server applies events about volumes and plugins; below it
/// they are refused.
pub const CSI_LEVEL: u32 = 8;

/// The feature level from which on every claim's own access mode counts, not only the one that was
/// claimed last, and from which on a claim that is attached keeps the name of its node.
pub const CLAIMS_LEVEL: u32 = 9;

/// The feature level from which on a claim may be
/// [`DETACH_UNCONFIRMED`](state::DETACH_UNCONFIRMED), and no allocation gets a volume that is
/// being deleted at its provider.
pub const UNCONFIRMED_DETACH_LEVEL: u32 = 11;

/// The feature level from which on it is known of a volume that has grown whether a node has still
/// to make it larger.
pub const GROWN_LEVEL: u32 = 12;

/// Whether an access mode allows one more claim beside these readers and writers. An empty one
/// allows it, an unknown one does not.
#[must_use]
pub fn has_capacity(access_mode: &str, writes: bool, readers: usize, writers: usize) -> bool {
    let Some(known) = AccessMode::of(access_mode) else {
        return access_mode.is_empty();
    };
    match (known, writes) {
        (AccessMode::SingleNodeReader, false) | (AccessMode::SingleNodeWriter, _) => {
            readers + writers == 0
        }
        (AccessMode::MultiNodeReader, false) => writers == 0,
        (AccessMode::MultiNodeSingleWriter, writes) => !writes || writers == 0,
        (AccessMode::MultiNodeMultiWriter, _) => true,
        (AccessMode::SingleNodeReader | AccessMode::MultiNodeReader, true) => false,
        // Modes of host volumes.
        (AccessMode::SingleNodeSingleWriter | AccessMode::SingleNodeMultiWriter, _) => false,
    }
}

/// What a claim is for: [`CsiVolumeClaimed::mode`]. 0 to 2 are Nomad's.
pub mod claim_mode {
    /// The allocation reads.
    pub const READ: u8 = 0;
    /// The allocation writes, and reads.
    pub const WRITE: u8 = 1;
    /// No claim: a signal of garbage collection (CSI-33).
    pub const GC: u8 = 2;
    /// No claim: the volume is being deleted at its provider, and no allocation may take it; as a
    /// release: the deletion was given up. From
    /// [`UNCONFIRMED_DETACH_LEVEL`](super::UNCONFIRMED_DETACH_LEVEL) on.
    pub const DELETE: u8 = 3;
    /// No claim: the volume has grown at its provider, and a node has still to make it larger; as a
    /// release: that is done. From [`GROWN_LEVEL`](super::GROWN_LEVEL) on.
    pub const GROWN: u8 = 4;

    /// Whether events of a feature level know a mode.
    #[must_use]
    pub fn is_known(mode: u8, level: u32) -> bool {
        match mode {
            READ | WRITE | GC => true,
            DELETE => level >= super::UNCONFIRMED_DETACH_LEVEL,
            GROWN => level >= super::GROWN_LEVEL,
            _ => false,
        }
    }
}

/// How far a claim has been given back: [`CsiVolumeClaimed::state`]. 0 to 4 are Nomad's numbers, 5
/// is drover's own; the order of the steps is that of [`rank`](state::rank).
pub mod state {
    /// It is held.
    pub const CLAIMED: u8 = 0;
    /// The node unmounted the volume.
    pub const NODE_DETACHED: u8 = 1;
    /// The controller detached it from the node.
    pub const CONTROLLER_DETACHED: u8 = 2;
    /// Nothing is left to be done.
    pub const READY_TO_FREE: u8 = 3;
    /// It is being given back; no step is done yet.
    pub const UNPUBLISHING: u8 = 4;
    /// It is free, and holds up no other claim; but a call that was made for it may still be under
    /// way, so its detach is repeated until that has ended. From
    /// [`UNCONFIRMED_DETACH_LEVEL`](super::UNCONFIRMED_DETACH_LEVEL) on.
    pub const DETACH_UNCONFIRMED: u8 = 5;

    /// Whether events of a feature level know a state.
    #[must_use]
    pub fn is_known(state: u8, level: u32) -> bool {
        rank(state).is_some()
            && (state != DETACH_UNCONFIRMED || level >= super::UNCONFIRMED_DETACH_LEVEL)
    }

    /// The place of a state in their order; an unknown number has none.
    #[must_use]
    pub fn rank(state: u8) -> Option<u8> {
        [
            CLAIMED,
            UNPUBLISHING,
            NODE_DETACHED,
            CONTROLLER_DETACHED,
            DETACH_UNCONFIRMED,
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
            CLAIMED => "held",
            NODE_DETACHED => "node-detached",
            CONTROLLER_DETACHED => "controller-detached",
            READY_TO_FREE => "ready-to-free",
            UNPUBLISHING => "unpublishing",
            DETACH_UNCONFIRMED => "detach-unconfirmed",
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

    /// Volumes are known here no more: what is stored in them stays, or was deleted before. They
    /// may be several, despite the name.
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
        /// 0 read, 1 write; 2 a signal of garbage collection (CSI-33), 3 a deletion and 4 a volume
        /// that has grown are no claims.
        mode: u8 = "Claim",
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        /// 0 held, 1 node detached, 2 controller detached, 3 ready to free, 4 unpublishing, 5 free,
        /// with a detach that is unconfirmed. With another than 0 an event is a release.
        state: u8 = "State",
        /// Unix nanoseconds.
        timestamp: i64 = "Timestamp",
        /// The controller attached the volume to the node (`ControllerPublishVolume`).
        published: bool = "Published" omit,
        /// What the controller answered.
        publish_context: Map<String> = "PublishContext" omit (Sensitive),
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
