//! Volumes that a plugin makes: what may be requested of it, and which part of its answer is taken.

use drover_events::model::{CsiTopology, CsiTopologyRequest, CsiVolume};

use super::provision::{CREATE_STEP, plaintext_secrets};
use super::{StepError, Volumes, or_empty};
use crate::error::Refusal;
use crate::rpc::csi::{
    ControllerCreateVolume, ControllerCreateVolumeRequest, ControllerCreateVolumeResponse,
};

impl Volumes {
    /// Has a volume made; as it is to be registered then.
    pub(super) async fn create_at_provider(
        &self,
        mut volume: CsiVolume,
    ) -> Result<CsiVolume, StepError> {
        self.require_capability(&volume.plugin_id, "create and delete volumes", |can| {
            can.supports_create_delete
        })?;
        let places = self.places(&volume)?;
        let name = match volume.name.as_str() {
            "" => volume.id.clone(),
            name => name.to_owned(),
        };
        let requested = ControllerCreateVolumeRequest {
            plugin_id: volume.plugin_id.clone(),
            controller_node_id: String::new(),
            name,
            volume_capabilities: volume.requested_capabilities.clone(),
            mount_options: volume.mount_options.clone(),
            parameters: or_empty(&volume.parameters),
            secrets: plaintext_secrets(&volume),
            capacity_min: volume.requested_capacity_min,
            capacity_max: volume.requested_capacity_max,
            snapshot_id: volume.snapshot_id.clone(),
            clone_id: volume.clone_id.clone(),
            requested_topologies: places,
        };
        self.must_lead()?;
        let answer = self
            .plugin_calls
            .controller::<ControllerCreateVolume>(requested)
            .await;
        let answer = answer.map_err(StepError::of(CREATE_STEP))?;
        is_made_from(&volume, &answer)?;
        volume.external_id = answer.external_volume_id;
        volume.capacity = answer.capacity_bytes;
        volume.context = answer.volume_context;
        volume.topologies = answer.topologies;
        let nothing = |topology: &CsiTopology| topology.segments.is_empty();
        if volume.topologies.iter().any(nothing) {
            volume
                .topologies
                .to_mut()
                .retain(|topology| !nothing(topology));
        }
        Ok(volume)
    }

    /// Where a volume is to be, if that is given. A plugin that knows of no places gets no such
    /// request: the specification forbids it.
    fn places(&self, volume: &CsiVolume) -> Result<Option<CsiTopologyRequest>, StepError> {
        let is_set = |requested: &&CsiTopologyRequest| {
            !requested.required.is_empty() || !requested.preferred.is_empty()
        };
        let Some(requested) = volume.requested_topologies.as_ref().filter(is_set) else {
            return Ok(None);
        };
        let plugin = self.plugin(&volume.plugin_id)?;
        let mut parts = plugin.controllers.values().chain(plugin.nodes.values());
        match parts.any(|part| part.requires_topologies) {
            true => Ok(Some(requested.clone())),
            false => {
                let text = format!(
                    "plugin \"{}\" makes volumes for every node: it takes no topology_request",
                    volume.plugin_id
                );
                Err(Refusal::by_rule(text).into())
            }
        }
    }
}

/// Refuses a volume that its plugin made from something else than was requested.
fn is_made_from(
    requested: &CsiVolume,
    made: &ControllerCreateVolumeResponse,
) -> Result<(), StepError> {
    // A snapshot goes before a volume, as where it is requested.
    let wanted = match (requested.snapshot_id.as_str(), requested.clone_id.as_str()) {
        ("", clone) => ("", clone),
        (snapshot, _) => (snapshot, ""),
    };
    let (snapshot, clone) = (made.snapshot_id.as_str(), made.clone_id.as_str());
    // Where nothing was requested, what it is filled from is the plugin's own affair.
    if wanted == ("", "") || wanted == (snapshot, clone) {
        return Ok(());
    }
    let of = |(snapshot, clone): (&str, &str)| match (snapshot, clone) {
        ("", "") => "nothing".to_owned(),
        ("", clone) => format!("volume \"{clone}\""),
        (snapshot, _) => format!("snapshot \"{snapshot}\""),
    };
    let text = format!(
        "plugin \"{}\" made volume \"{}\" from {} and not from {}; it stays at the provider: \
         delete it there, or give the new one another name",
        requested.plugin_id,
        made.external_volume_id,
        of((snapshot, clone)),
        of(wanted)
    );
    Err(StepError {
        step: CREATE_STEP,
        ..Refusal::by_rule(text).into()
    })
}

#[cfg(test)]
#[path = "made_test.rs"]
mod tests;
