//! Volumes that are made larger: at their provider first, then on every node that has them.

use drover_events::csi::CsiVolumeClaimed;
use drover_events::model::CsiVolume;
use drover_projections::query::csi::Volume;
use futures_util::future::join_all;

use super::provision::fits;
use super::{StepError, Volumes};
use crate::error::Code;
use crate::rpc::asked::Unanswered;
use crate::rpc::csi::{
    ControllerExpandVolume, ControllerExpandVolumeRequest, NodeExpandVolume,
    NodeExpandVolumeRequest,
};

/// A volume that its provider has made larger, and what it is to be.
pub(super) struct Grown {
    known: Volume,
    wanted: CsiVolume,
}

/// The claims of a volume that nobody gives back.
fn live(volume: &Volume) -> impl Iterator<Item = &CsiVolumeClaimed> {
    let past = &volume.row.past_claims;
    let claims = volume.row.claims();
    claims.filter_map(|(alloc, claim)| (!past.contains_key(alloc)).then_some(claim))
}

impl Volumes {
    /// The new description of a volume that is there; grown first, where it is to be larger. What
    /// nodes have to do then is added to `grown`. Where it is used and as large as it is to be, it
    /// is asked for again: a node may not have done its part.
    pub(super) async fn grown(
        &self,
        known: Volume,
        mut volume: CsiVolume,
        grown: &mut Vec<Grown>,
    ) -> Result<CsiVolume, StepError> {
        let row = &known.row.volume;
        let least = volume.requested_capacity_min;
        volume.capacity = 0;
        let can = || self.can(&row.plugin_id, "expand volumes", |can| can.supports_expand);
        let same = least == row.requested_capacity_min;
        // What nobody knows the size of was made larger for nobody, so no node has a part to do.
        let again = same && row.capacity != 0 && live(&known).next().is_some() && can().is_ok();
        // Of one that was registered nobody may know how large it is: its provider does.
        let fits_as_it_is = match row.capacity {
            0 => same,
            capacity => least <= capacity,
        };
        if least == 0 || (fits_as_it_is && !again) {
            return Ok(volume);
        }
        // All else must be as it may be, before anything is grown.
        fits(&known, &volume)?;
        can()?;
        let asked = ControllerExpandVolumeRequest {
            plugin_id: row.plugin_id.clone(),
            controller_node_id: String::new(),
            external_volume_id: known.plugin_name().to_owned(),
            required_bytes: least,
            limit_bytes: volume.requested_capacity_max,
            secrets: self.secrets_with(&known, &volume)?,
            volume_capability: row.requested_capabilities.first().cloned(),
            mount_options: row.mount_options.clone(),
            in_use: !known.row.is_at_rest(),
        };
        self.must_lead()?;
        let answer = self.shim.controller::<ControllerExpandVolume>(asked).await;
        if let Err(Unanswered::Refused(error)) = &answer
            && error.code == Code::Conflict
            && fits_as_it_is
        {
            // Its plugin grows nothing that is used: then no node has to do anything either.
            return Ok(volume);
        }
        let answer = answer.map_err(StepError::of("controller expand volume: "))?;
        volume.capacity = answer.capacity_bytes.max(least);
        if answer.node_expansion_required {
            let wanted = volume.clone();
            grown.push(Grown { known, wanted });
        }
        Ok(volume)
    }

    /// Has nodes do their part, all at once: what has grown is recorded, and one that cannot now
    /// keeps no other from it.
    pub(super) async fn grow_on_nodes(&self, grown: Vec<Grown>) -> Result<(), StepError> {
        let each = grown.iter().flat_map(|grown| {
            live(&grown.known).map(|claim| self.grow_on_node(&grown.known, claim, &grown.wanted))
        });
        let all = join_all(each).await;
        all.into_iter().collect()
    }

    async fn grow_on_node(
        &self,
        known: &Volume,
        claim: &CsiVolumeClaimed,
        wanted: &CsiVolume,
    ) -> Result<(), StepError> {
        let row = &known.row.volume;
        let asked = NodeExpandVolumeRequest {
            plugin_id: row.plugin_id.clone(),
            volume_id: row.id.clone(),
            volume_namespace: row.namespace.clone(),
            external_id: known.plugin_name().to_owned(),
            alloc_id: claim.allocation_id.clone(),
            node_id: claim.node_id.clone(),
            attachment_mode: claim.attachment_mode.clone(),
            access_mode: claim.access_mode.clone(),
            read_only: claim.claim == drover_events::csi::mode::READ,
            required_bytes: wanted.requested_capacity_min,
            limit_bytes: wanted.requested_capacity_max,
            mount_options: row.mount_options.clone(),
            secrets: self.secrets_with(known, wanted)?,
        };
        let grown = self
            .shim
            .node::<NodeExpandVolume>((&claim.node_id, &row.plugin_id), &asked)
            .await;
        grown.map_err(StepError::of("node expand volume: "))?;
        Ok(())
    }
}
