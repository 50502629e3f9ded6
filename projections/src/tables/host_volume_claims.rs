//! `host_volume_claims`: which allocations of a group hold which sticky volume.

use drover_events::model::TaskGroupHostVolumeClaim;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, Table};

/// The table; its key is (namespace, job id, group, volume id).
pub struct HostVolumeClaims;

impl Table for HostVolumeClaims {
    const ID: u16 = 19;
    const NAME: &'static str = "host_volume_claims";
    type Key = (String, String, String, Id);
    type Row = TaskGroupHostVolumeClaim;
    const INDEXES: &'static [IndexDef<Self>] = &[IndexDef::of::<HostVolumeClaimsById>()];

    fn key(row: &TaskGroupHostVolumeClaim) -> (String, String, String, Id) {
        (
            row.namespace.clone(),
            row.job_id.clone(),
            row.task_group_name.clone(),
            Id::new(row.volume_id.as_str()),
        )
    }
}

/// The claim with this id.
pub struct HostVolumeClaimsById;

impl Index for HostVolumeClaimsById {
    type Table = HostVolumeClaims;
    const NO: u8 = 1;
    const NAME: &'static str = "claim_id";
    type Group = Id;
    type Order = ();

    fn entries(row: &TaskGroupHostVolumeClaim, out: &mut Entries) {
        out.add::<Self>(&row.id, ());
    }
}
