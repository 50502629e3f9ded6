//! Events about CSI volumes and plugins. Whatever is about a volume names its namespace (NS-02).

use crate::model::CsiVolume;
use crate::wire;

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
