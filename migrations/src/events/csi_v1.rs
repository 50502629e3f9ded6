//! The events about CSI volumes, version 1: they could be written without a namespace, and claims
//! without their modes.

use drover_events::csi::{CsiVolumeClaimsApplied, CsiVolumeDeregistered, CsiVolumesRegistered};
use drover_events::wire;

use super::csi_volume_v1::{ClaimV1, CsiVolumeV1, namespace};

wire! {
    /// The frozen shape of `CsiVolumesRegistered`.
    pub struct CsiVolumesRegisteredV1 {
        volumes: Vec<CsiVolumeV1> = "Volumes",
        timestamp: i64 = "Timestamp",
    }

    /// The frozen shape of `CsiVolumeDeregistered`.
    pub struct CsiVolumeDeregisteredV1 {
        namespace: String = "Namespace",
        volume_ids: Vec<String> = "VolumeIDs",
        force: bool = "Force",
    }

    /// The frozen shape of `CsiVolumeClaimsApplied`.
    pub struct CsiVolumeClaimsAppliedV1 {
        claims: Vec<ClaimV1> = "Claims",
    }
}

impl CsiVolumesRegisteredV1 {
    /// One step up: every volume is in a namespace.
    pub(crate) fn upcast(self) -> CsiVolumesRegistered {
        CsiVolumesRegistered {
            volumes: self.volumes.into_iter().map(CsiVolumeV1::upcast).collect(),
            timestamp: self.timestamp,
        }
    }
}

impl CsiVolumeDeregisteredV1 {
    /// One step up: the volumes are those of a namespace.
    pub(crate) fn upcast(self) -> CsiVolumeDeregistered {
        CsiVolumeDeregistered {
            namespace: namespace(self.namespace),
            volume_ids: self.volume_ids,
            force: self.force,
        }
    }
}

impl CsiVolumeClaimsAppliedV1 {
    /// One step up: every claim is complete.
    pub(crate) fn upcast(self) -> CsiVolumeClaimsApplied {
        CsiVolumeClaimsApplied {
            claims: self.claims.into_iter().map(ClaimV1::upcast).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ns_02_volumes_are_removed_from_the_namespace_they_were_in() {
        let old = CsiVolumeDeregisteredV1 {
            volume_ids: vec!["data".into()],
            force: true,
            ..CsiVolumeDeregisteredV1::default()
        };
        let new = old.upcast();
        assert_eq!((new.namespace.as_str(), new.force), ("default", true));
        assert_eq!(new.volume_ids, ["data"]);
    }

    #[test]
    fn ev_11_each_of_several_claims_is_completed() {
        let claims = vec![ClaimV1::default(), ClaimV1::default()];
        let new = CsiVolumeClaimsAppliedV1 { claims }.upcast();
        assert_eq!(new.claims.len(), 2);
        assert!(new.claims.iter().all(|claim| !claim.access_mode.is_empty()));
    }
}
