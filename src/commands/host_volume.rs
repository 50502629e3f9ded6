//! Commands about host volumes that the cluster manages.

use drover_events::csi::CSI_LEVEL;
use drover_events::host_volume::*;
use drover_events::model::HostVolume;
use drover_events::model::status::{access_mode, attachment_mode};
use drover_projections::query::host_volumes;
use drover_projections::tables::host_volume_claims::HostVolumeClaimsById;
use drover_projections::tables::host_volumes::HostVolumes;
use drover_projections::tables::nodes::Nodes;
use drover_projections::{Id, Scan, View};

use super::support::{is_name, require_all_servers_support};
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// Ways in which a host volume may be used: those of CSI volumes on one node, and two of its own.
const ACCESS: [&str; 4] = [
    access_mode::SINGLE_NODE_READER,
    access_mode::SINGLE_NODE_WRITER,
    // Its own two:
    access_mode::SINGLE_NODE_SINGLE_WRITER,
    access_mode::SINGLE_NODE_MULTI_WRITER,
];

/// A host volume is created, registered or changed: its node has made it, or has it.
#[derive(Clone, Debug)]
pub struct RegisterHostVolume {
    /// The volume; without an id it is a new one.
    pub volume: HostVolume,
}

impl Command for RegisterHostVolume {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        require_all_servers_support(view, CSI_LEVEL, "volumes")?;
        let mut volume = self.volume.clone();
        validate(&volume, true)?;
        if volume.id.is_empty() {
            volume.id = stamp.uuid(0);
        }
        if view.get::<Nodes>(volume.node_id.as_str())?.is_none() {
            return Err(Refusal::by_rule(format!(
                "node {} not found",
                volume.node_id
            )));
        }
        let key = (volume.namespace.as_str(), volume.id.as_str());
        if let Some(known) = view.get::<HostVolumes>(key)? {
            let kept =
                drover_projections::apply::check_host_volume_immutable_fields(&known, &volume);
            kept.map_err(Refusal::by_rule)?;
        }
        Ok(Decision::unguarded(HostVolumeRegistered { volume }))
    }
}

/// Refuses a volume that lacks what every volume has; with `require_node` a node is among that.
///
/// # Errors
/// All that is wrong, in one text.
pub fn validate(volume: &HostVolume, require_node: bool) -> Result<(), Refusal> {
    let mut wrong = Vec::new();
    if !is_name(&volume.name, &['_', '.', '[', ']']) {
        wrong.push(format!("invalid volume name \"{}\"", volume.name));
    }
    for (missing, text) in [
        (volume.namespace.is_empty(), "missing namespace"),
        (require_node && volume.node_id.is_empty(), "missing node ID"),
        (
            volume.requested_capabilities.is_empty(),
            "must include at least one capability block",
        ),
    ] {
        if missing {
            wrong.push(text.to_owned());
        }
    }
    for capability in volume.requested_capabilities.iter() {
        let (access, attachment) = (&capability.access_mode, &capability.attachment_mode);
        if !ACCESS.contains(&access.as_str()) {
            wrong.push(format!("invalid access mode: \"{access}\""));
        }
        if !attachment_mode::ALL.contains(&attachment.as_str()) {
            wrong.push(format!("invalid attachment mode: \"{attachment}\""));
        }
    }
    let (min, max) = (
        volume.requested_capacity_min_bytes,
        volume.requested_capacity_max_bytes,
    );
    if min < 0 || max < 0 || (max != 0 && max < min) {
        wrong.push(format!(
            "capacity_max ({max}) must be larger than capacity_min ({min})"
        ));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Refusal::bad_request(format!(
            "volume validation failed: {}",
            wrong.join(", ")
        ))),
    }
}

/// A host volume is removed.
#[derive(Clone, Debug)]
pub struct DeleteHostVolume {
    pub namespace: String,
    pub id: String,
    /// Also when its node is gone.
    pub force: bool,
}

impl Command for DeleteHostVolume {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        require_all_servers_support(view, CSI_LEVEL, "volumes")?;
        if self.id.is_empty() {
            return Err(Refusal::bad_request("missing volume ID"));
        }
        let key = (self.namespace.as_str(), self.id.as_str());
        let Some(known) = view.get::<HostVolumes>(key)? else {
            return Err(Refusal::by_rule(format!("no such volume: {}", self.id)));
        };
        let users = host_volumes::users(view, &known)?;
        if !users.is_empty() {
            let text = drover_projections::apply::host_volume_in_use(&self.id, &users);
            return Err(Refusal::by_rule(text));
        }
        Ok(Decision::unguarded(HostVolumeDeleted {
            namespace: self.namespace.clone(),
            volume_id: self.id.clone(),
            force: self.force,
        }))
    }
}

/// A group's claim on a sticky volume is given back.
#[derive(Clone, Debug)]
pub struct ReleaseHostVolumeClaim {
    /// The claim's id.
    pub id: String,
}

impl Command for ReleaseHostVolumeClaim {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        require_all_servers_support(view, CSI_LEVEL, "volumes")?;
        let scan = Scan::with_key_prefix::<Id>(self.id.as_str());
        let known = view.by_index_scan::<HostVolumeClaimsById>(scan).next();
        if known.transpose()?.is_none() {
            return Err(Refusal::by_rule("claim not found"));
        }
        let claim_id = self.id.clone();
        Ok(Decision::unguarded(HostVolumeClaimReleased { claim_id }))
    }
}
