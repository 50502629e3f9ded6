//! Events about host volumes.

use crate::model::HostVolume;
use crate::wire;

/// The feature level from which on volumes follow their nodes: what is reported of a node says
/// which of its volumes are there, and where they lie.
pub const HOST_VOLUME_LEVEL: u32 = 10;

wire! {
    /// A host volume was created, registered or changed.
    pub struct HostVolumeRegistered {
        volume: HostVolume = "Volume",
    }

    /// A host volume was removed.
    pub struct HostVolumeDeleted {
        namespace: String = "Namespace",
        volume_id: String = "VolumeID",
        /// Also when its node is gone.
        force: bool = "Force",
    }

    /// A group's claim on a volume was released.
    pub struct HostVolumeClaimReleased {
        claim_id: String = "ClaimID",
    }
}
