//! Frozen values of CSI events, version 1, and how they are repaired.
//!
//! Volumes had no namespace at first, and then one that could be empty (NS-02). Claims got their
//! namespace, access mode and attachment mode later than the rest (CSI-26); one that lacks them is
//! completed from what it says of itself, so that no reader meets half a claim (EV-11).

use drover_events::csi::CsiVolumeClaimed;
use drover_events::gojson::{List, Map, Time};
use drover_events::model::{
    CsiMountOptions, CsiTopology, CsiTopologyRequest, CsiVolume, CsiVolumeCapability,
};
use drover_events::wire;

/// The namespace of whatever was written without one.
const DEFAULT_NAMESPACE: &str = "default";
/// A claim that is a signal of garbage collection and has no modes.
const GC: u8 = 2;

/// The namespace, made explicit.
pub(crate) fn namespace(written: String) -> String {
    match written.is_empty() {
        true => DEFAULT_NAMESPACE.to_owned(),
        false => written,
    }
}

wire! {
    /// The frozen shape of a volume. The allocations of a volume are joined when it is read; a
    /// registration never carried them.
    pub struct CsiVolumeV1 {
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        capacity: i64 = "Capacity",
        clone_id: String = "CloneID",
        context: Map<String> = "Context",
        controller_required: bool = "ControllerRequired",
        controllers_expected: i64 = "ControllersExpected",
        controllers_healthy: i64 = "ControllersHealthy",
        create_index: u64 = "CreateIndex",
        create_time: i64 = "CreateTime",
        external_id: String = "ExternalID",
        id: String = "ID",
        modify_index: u64 = "ModifyIndex",
        modify_time: i64 = "ModifyTime",
        mount_options: Option<MountOptionsV1> = "MountOptions",
        name: String = "Name",
        namespace: String = "Namespace",
        nodes_expected: i64 = "NodesExpected",
        nodes_healthy: i64 = "NodesHealthy",
        parameters: Map<String> = "Parameters",
        plugin_id: String = "PluginID",
        provider: String = "Provider",
        provider_version: String = "ProviderVersion",
        requested_capabilities: List<CapabilityV1> = "RequestedCapabilities",
        requested_capacity_max: i64 = "RequestedCapacityMax",
        requested_capacity_min: i64 = "RequestedCapacityMin",
        requested_topologies: Option<TopologyRequestV1> = "RequestedTopologies",
        resource_exhausted: Time = "ResourceExhausted",
        schedulable: bool = "Schedulable",
        secrets: Map<String> = "Secrets",
        snapshot_id: String = "SnapshotID",
        topologies: List<TopologyV1> = "Topologies",
    }

    /// How a volume is mounted.
    pub struct MountOptionsV1 {
        fs_type: String = "FSType",
        mount_flags: List<String> = "MountFlags",
    }

    /// A way in which a volume may be used.
    pub struct CapabilityV1 {
        attachment_mode: String = "AttachmentMode",
        access_mode: String = "AccessMode",
    }

    /// Where a volume is wanted.
    pub struct TopologyRequestV1 {
        required: List<TopologyV1> = "Required",
        preferred: List<TopologyV1> = "Preferred",
    }

    /// A place, as its plugin names it.
    pub struct TopologyV1 {
        segments: Map<String> = "Segments",
    }

    /// The frozen shape of a claim.
    pub struct ClaimV1 {
        namespace: String = "Namespace",
        volume_id: String = "VolumeID",
        allocation_id: String = "AllocationID",
        node_id: String = "NodeID",
        external_node_id: String = "ExternalNodeID",
        claim: u8 = "Claim",
        access_mode: String = "AccessMode",
        attachment_mode: String = "AttachmentMode",
        state: u8 = "State",
        timestamp: i64 = "Timestamp",
    }
}

impl CsiVolumeV1 {
    /// The volume of today: in a namespace, and with the capabilities that its one pair of modes
    /// stood for.
    pub(crate) fn upcast(self) -> CsiVolume {
        let pair = CsiVolumeCapability {
            attachment_mode: self.attachment_mode.clone(),
            access_mode: self.access_mode.clone(),
        };
        let capabilities = match self.requested_capabilities.is_empty() {
            true if !pair.access_mode.is_empty() => List::from([pair]),
            true => List::nil(),
            false => list(self.requested_capabilities, CapabilityV1::upcast),
        };
        CsiVolume {
            access_mode: self.access_mode,
            attachment_mode: self.attachment_mode,
            capacity: self.capacity,
            clone_id: self.clone_id,
            context: self.context,
            controller_required: self.controller_required,
            controllers_expected: self.controllers_expected,
            controllers_healthy: self.controllers_healthy,
            create_index: self.create_index,
            create_time: self.create_time,
            external_id: self.external_id,
            id: self.id,
            modify_index: self.modify_index,
            modify_time: self.modify_time,
            mount_options: self.mount_options.map(|options| CsiMountOptions {
                fs_type: options.fs_type,
                mount_flags: options.mount_flags,
            }),
            name: self.name,
            namespace: namespace(self.namespace),
            nodes_expected: self.nodes_expected,
            nodes_healthy: self.nodes_healthy,
            parameters: self.parameters,
            plugin_id: self.plugin_id,
            provider: self.provider,
            provider_version: self.provider_version,
            read_allocs: Map::nil(),
            requested_capabilities: capabilities,
            requested_capacity_max: self.requested_capacity_max,
            requested_capacity_min: self.requested_capacity_min,
            requested_topologies: self.requested_topologies.map(|wanted| CsiTopologyRequest {
                required: list(wanted.required, TopologyV1::upcast),
                preferred: list(wanted.preferred, TopologyV1::upcast),
            }),
            resource_exhausted: self.resource_exhausted,
            schedulable: self.schedulable,
            secrets: self.secrets,
            snapshot_id: self.snapshot_id,
            topologies: list(self.topologies, TopologyV1::upcast),
            write_allocs: Map::nil(),
        }
    }
}

impl CapabilityV1 {
    fn upcast(self) -> CsiVolumeCapability {
        CsiVolumeCapability {
            attachment_mode: self.attachment_mode,
            access_mode: self.access_mode,
        }
    }
}

impl TopologyV1 {
    fn upcast(self) -> CsiTopology {
        CsiTopology {
            segments: self.segments,
        }
    }
}

impl ClaimV1 {
    /// The claim of today: it names its namespace and its modes. A reader needed no more than a
    /// mode for readers; a writer had the volume alone, since version 1 had no other way to write.
    pub(crate) fn upcast(self) -> CsiVolumeClaimed {
        let claims = self.claim != GC;
        let or = |written: String, known: &str| match claims && written.is_empty() {
            true => known.to_owned(),
            false => written,
        };
        let access = match self.claim {
            0 => "multi-node-reader-only",
            _ => "single-node-writer",
        };
        CsiVolumeClaimed {
            namespace: namespace(self.namespace),
            volume_id: self.volume_id,
            allocation_id: self.allocation_id,
            node_id: self.node_id,
            external_node_id: self.external_node_id,
            mode: self.claim,
            access_mode: or(self.access_mode, access),
            attachment_mode: or(self.attachment_mode, "file-system"),
            state: self.state,
            timestamp: self.timestamp,
            ..CsiVolumeClaimed::default()
        }
    }
}

/// Each element one step up; nil stays nil.
fn list<A, B>(old: List<A>, up: impl Fn(A) -> B) -> List<B> {
    match old.is_nil() {
        true => List::nil(),
        false => old.into_iter().map(up).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csi_26_ev_11_a_claim_of_any_age_comes_out_complete() {
        let oldest = ClaimV1 {
            volume_id: "data".into(),
            allocation_id: "a1".into(),
            claim: 1,
            ..ClaimV1::default()
        };
        let claim = oldest.clone().upcast();
        assert_eq!(claim.namespace, "default");
        assert_eq!(claim.access_mode, "single-node-writer");
        assert_eq!(claim.attachment_mode, "file-system");
        let reader = ClaimV1 {
            claim: 0,
            namespace: "prod".into(),
            ..oldest.clone()
        };
        let reader = reader.upcast();
        assert_eq!(reader.namespace, "prod");
        assert_eq!(reader.access_mode, "multi-node-reader-only");
        let signal = ClaimV1 {
            claim: GC,
            ..oldest
        };
        assert_eq!(
            signal.upcast().access_mode,
            "",
            "garbage collection claims nothing"
        );
    }

    #[test]
    fn csi_26_what_a_claim_says_of_itself_stays() {
        let complete = ClaimV1 {
            namespace: "prod".into(),
            volume_id: "data".into(),
            node_id: "n1".into(),
            external_node_id: "i-1".into(),
            claim: 1,
            access_mode: "multi-node-multi-writer".into(),
            attachment_mode: "block-device".into(),
            state: 2,
            timestamp: 7,
            ..ClaimV1::default()
        };
        let claim = complete.upcast();
        assert_eq!(claim.access_mode, "multi-node-multi-writer");
        assert_eq!(claim.attachment_mode, "block-device");
        assert_eq!((claim.state, claim.timestamp), (2, 7));
        assert_eq!(
            (claim.node_id.as_str(), claim.external_node_id.as_str()),
            ("n1", "i-1")
        );
    }

    #[test]
    fn ns_02_a_volume_of_any_age_is_in_a_namespace() {
        let old = CsiVolumeV1 {
            id: "data".into(),
            access_mode: "single-node-writer".into(),
            attachment_mode: "file-system".into(),
            ..CsiVolumeV1::default()
        };
        let volume = old.clone().upcast();
        assert_eq!(volume.namespace, "default");
        assert_eq!(volume.requested_capabilities.len(), 1);
        assert_eq!(
            volume.requested_capabilities[0].access_mode,
            "single-node-writer"
        );
        let placed = CsiVolumeV1 {
            namespace: "prod".into(),
            requested_capabilities: vec![CapabilityV1::default(), CapabilityV1::default()].into(),
            ..old
        };
        let volume = placed.upcast();
        assert_eq!(volume.namespace, "prod");
        assert_eq!(volume.requested_capabilities.len(), 2);
        assert!(CsiVolumeV1::default().upcast().topologies.is_nil());
    }
}
