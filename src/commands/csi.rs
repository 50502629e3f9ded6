//! Commands about CSI volumes and plugins. Their secrets are sealed already, and what their plugin
//! says of them was queried before: here is only what the state says. Apply checks all of it again.

use drover_events::csi::*;
use drover_events::gojson::{Map, Time};
use drover_events::model::status::{DEFAULT_NAMESPACE, access_mode, attachment_mode};
use drover_events::model::{CsiTopology, CsiVolume, VolumeRequest};
use drover_projections::query::csi::{self, Volume};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::{Reply, View, claims};

use super::support::{all_servers_support, check_names, require_all_servers_support};
use super::{Command, Decision, Stamp};
use drover_error::{Code, Refusal};

/// Volumes are registered, created or described again. All are in one namespace each, none empty.
#[derive(Clone, Debug)]
pub struct RegisterVolumes {
    /// The volumes, secrets sealed.
    pub volumes: Vec<CsiVolume>,
}

impl Command for RegisterVolumes {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.volumes.is_empty() {
            return Err(Refusal::bad_request("missing volume definition"));
        }
        require_all_servers_support(view, CSI_LEVEL, "volumes")?;
        let mut news = false;
        for volume in &self.volumes {
            validate(volume)?;
            let sealed = |secret: &String| as_sealed(secret).is_some();
            if !volume.secrets.values().all(sealed) {
                let text = "secrets of a volume must be encrypted before they are written";
                return Err(Refusal::internal(text));
            }
            has_namespace(view, volume)?;
            has_plugin(view, volume)?;
            let known = csi::volume(view, (&volume.namespace, &volume.id))?;
            news |= match known {
                Some(known) => {
                    let was = &known.row.volume;
                    claims::check_topologies_unchanged(was, volume).map_err(Refusal::by_rule)?;
                    let is = claims::merge(was, volume).map_err(Refusal::by_rule)?;
                    is != *was
                }
                None => true,
            };
        }
        match news {
            true => Ok(Decision::unguarded(CsiVolumesRegistered {
                volumes: self.volumes.iter().map(described).collect(),
                timestamp: stamp.now,
            })),
            false => Ok(Decision::Nothing(Reply::None)),
        }
    }
}

/// A volume without anything that is the cluster's to say (CSI-03): such values are ignored, also
/// where a caller sends back what was read, and are in no log. A new volume that came with the time
/// at which its provider had no capacity could not be claimed.
fn described(volume: &CsiVolume) -> CsiVolume {
    CsiVolume {
        access_mode: String::new(),
        attachment_mode: String::new(),
        controller_required: false,
        controllers_expected: 0,
        controllers_healthy: 0,
        create_index: 0,
        create_time: 0,
        modify_index: 0,
        modify_time: 0,
        nodes_expected: 0,
        nodes_healthy: 0,
        provider: String::new(),
        provider_version: String::new(),
        read_allocs: Map::nil(),
        resource_exhausted: Time::ZERO,
        schedulable: false,
        write_allocs: Map::nil(),
        ..volume.clone()
    }
}

/// Refuses a volume that lacks what every volume has.
///
/// # Errors
/// All that is wrong, in one text.
pub fn validate(volume: &CsiVolume) -> Result<(), Refusal> {
    check_names([
        ("volume id", volume.id.as_str()),
        ("plugin id", &volume.plugin_id),
    ])?;
    let mut wrong = Vec::new();
    for (missing, text) in [
        (volume.id.is_empty(), "missing volume id"),
        (volume.plugin_id.is_empty(), "missing plugin id"),
        (volume.namespace.is_empty(), "missing namespace"),
        (
            !volume.snapshot_id.is_empty() && !volume.clone_id.is_empty(),
            "only one of snapshot_id and clone_id is allowed",
        ),
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
        if !access_mode::ALL.contains(&capability.access_mode.as_str()) {
            wrong.push(format!(
                "unknown access mode \"{}\"",
                capability.access_mode
            ));
        }
        if !attachment_mode::ALL.contains(&capability.attachment_mode.as_str()) {
            let mode = &capability.attachment_mode;
            wrong.push(format!("unknown attachment mode \"{mode}\""));
        }
    }
    if let Some(topologies) = &volume.requested_topologies {
        let empty = |one: &CsiTopology| one.segments.is_empty();
        if topologies.required.iter().any(empty) {
            wrong.push("required topology is missing segments field".to_owned());
        }
        if topologies.preferred.iter().any(empty) {
            wrong.push("preferred topology is missing segments field".to_owned());
        }
    }
    let (min, max) = (volume.requested_capacity_min, volume.requested_capacity_max);
    if min < 0 || max < 0 || (max != 0 && min > max) {
        wrong.push(format!("capacity from {min} to {max} bytes is no range"));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Refusal::bad_request(format!(
            "validation: {}",
            wrong.join(", ")
        ))),
    }
}

/// Refuses a volume of a namespace that is not there. Checked before a volume is created at its
/// plugin.
///
/// # Errors
/// The refusal, or the state cannot be read.
pub fn has_namespace(view: &View, volume: &CsiVolume) -> Result<(), Refusal> {
    let namespace = volume.namespace.as_str();
    let there = namespace == DEFAULT_NAMESPACE || view.contains::<Namespaces>(namespace)?;
    match there {
        true => Ok(()),
        false => Err(Refusal::by_rule(format!(
            "volume \"{}\" is in nonexistent namespace \"{namespace}\"",
            volume.id
        ))),
    }
}

/// A volume's plugin must run, so that a wrong name is found early (CSI-02).
fn has_plugin(view: &View, volume: &CsiVolume) -> Result<(), Refusal> {
    let id = &volume.plugin_id;
    let Some(row) = view.get::<CsiPlugins>(id.as_str())? else {
        return Err(Refusal::by_rule(format!(
            "no CSI plugin named: {id} could be found"
        )));
    };
    let plugin = &row.plugin;
    let runs = match plugin.controller_required {
        true => plugin.controllers_healthy > 0,
        false => plugin.controllers_healthy + plugin.nodes_healthy > 0,
    };
    match runs {
        true => Ok(()),
        false => Err(Refusal::by_rule(format!(
            "CSI plugin \"{id}\" of volume \"{}\" has no healthy instance",
            volume.id
        ))),
    }
}

/// Volumes of a namespace are removed.
#[derive(Clone, Debug)]
pub struct DeregisterVolumes {
    /// Their namespace.
    pub namespace: String,
    /// Their ids.
    pub ids: Vec<String>,
    /// Also with claims, as long as no live allocation holds one (CSI-42).
    pub force: bool,
    /// They were deleted at their provider. A volume that may still be deleted there is removed by
    /// no other command: a new one of its name would be deleted instead of it.
    pub deleted: bool,
}

impl Command for DeregisterVolumes {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.ids.is_empty() || self.ids.iter().any(String::is_empty) {
            return Err(Refusal::bad_request("missing volume IDs"));
        }
        require_all_servers_support(view, CSI_LEVEL, "volumes")?;
        let mut guards = Vec::new();
        for id in &self.ids {
            let key = (self.namespace.as_str(), id.as_str());
            let known = removable(view, key, self.force)?;
            if known.row.deleting != 0 && !self.deleted {
                let text = format!("volume \"{id}\" is being deleted");
                return Err(Refusal::new(Code::Unavailable, text));
            }
            // A delete that begins meanwhile is seen.
            guards.push(view.guard::<CsiVolumes>(key)?);
        }
        let event = CsiVolumeDeregistered {
            namespace: self.namespace.clone(),
            volume_ids: self.ids.clone(),
            force: self.force,
        };
        Ok(Decision::guarded(event, guards))
    }
}

/// The volume, if it may be removed now. Checked before it is deleted at its plugin.
///
/// # Errors
/// It is not there, or it is used.
pub fn removable(view: &View, key: (&str, &str), force: bool) -> Result<Volume, Refusal> {
    let id = key.1;
    let Some(known) = csi::volume(view, key)? else {
        return Err(Refusal::by_rule(format!("volume not found: {id}")));
    };
    let used = match force {
        true => csi::live_holder(view, &known.row)?.is_some(),
        false => known.row.in_use(),
    };
    match used {
        true => Err(Refusal::by_rule(format!("volume in use: {id}"))),
        false => Ok(known),
    }
}

/// A claim is taken, is taken back by a step, or its volume is only signalled. A step that is done
/// already, and a claim that is held already, is no event.
#[derive(Clone, Debug, Default)]
pub struct ClaimVolume {
    /// The claim; its time is the server's. With [`claim_mode::GC`] and [`state::CLAIMED`] it is a
    /// signal that moves the volume's index and nothing else (VW-12). With [`claim_mode::DELETE`]
    /// the volume can no longer be claimed from now on, or can be again.
    pub claim: CsiVolumeClaimed,
}

impl Command for ClaimVolume {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let mut claim = self.claim.clone();
        if claim.volume_id.is_empty() {
            return Err(Refusal::bad_request("missing volume ID"));
        }
        if !claim_mode::is_known(claim.mode, UNCONFIRMED_DETACH_LEVEL)
            || state::rank(claim.state).is_none()
        {
            let text = format!("unknown claim mode {} or state {}", claim.mode, claim.state);
            return Err(Refusal::bad_request(text));
        }
        if claim.namespace.is_empty() {
            claim.namespace = DEFAULT_NAMESPACE.to_owned();
        }
        require_all_servers_support(view, CSI_LEVEL, "volumes")?;
        claim.timestamp = stamp.now;
        let key = (claim.namespace.as_str(), claim.volume_id.as_str());
        let Some(known) = csi::volume(view, key)? else {
            return Err(Refusal::by_rule(format!("volume not found: {}", key.1)));
        };
        if claim.mode == claim_mode::DELETE {
            return deleting(view, claim);
        }
        if claim.mode == claim_mode::GC && claim.state == state::CLAIMED {
            claim.allocation_id.clear();
            claim.node_id.clear();
            return Ok(Decision::unguarded(claim));
        }
        if claim.allocation_id.is_empty() {
            return Err(Refusal::bad_request("missing allocation ID"));
        }
        if claim.state == state::DETACH_UNCONFIRMED
            && !all_servers_support(view, UNCONFIRMED_DETACH_LEVEL)?
        {
            claim.state = state::READY_TO_FREE;
        }
        let changes = match claim.state {
            state::CLAIMED => taken(view, &known, &mut claim)?,
            _ => stored(view, key)?.release(&claim),
        };
        match changes {
            true => Ok(Decision::unguarded(claim)),
            false => Ok(Decision::Nothing(Reply::None)),
        }
    }
}

/// A volume has grown at its provider, and a node has still to make it larger; or that is done.
/// Nothing where not every server knows of that.
#[derive(Clone, Debug)]
pub struct NoteGrowth {
    /// The volume's namespace.
    pub namespace: String,
    /// The volume.
    pub id: String,
    /// The growth of which a node has done its part, as its row had it
    /// ([`CsiVolumeRow::node_expansion`]): one that came later is not done with it. 0 for a volume
    /// that has grown now.
    pub done: i64,
}

impl Command for NoteGrowth {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let key = (self.namespace.as_str(), self.id.as_str());
        let Some(row) = view.get::<CsiVolumes>(key)? else {
            return Err(Refusal::by_rule(format!("volume not found: {}", self.id)));
        };
        let other = self.done != 0 && self.done != row.node_expansion;
        if other || !all_servers_support(view, GROWN_LEVEL)? {
            return Ok(Decision::Nothing(Reply::None));
        }
        let event = CsiVolumeClaimed {
            namespace: self.namespace.clone(),
            volume_id: self.id.clone(),
            mode: claim_mode::GROWN,
            state: match self.done {
                0 => state::CLAIMED,
                _ => state::READY_TO_FREE,
            },
            timestamp: stamp.now,
            ..CsiVolumeClaimed::default()
        };
        // A growth that is noted meanwhile is seen.
        let guards = vec![view.guard::<CsiVolumes>(key)?];
        Ok(Decision::guarded(event, guards))
    }
}

/// A volume cannot be claimed while it is being deleted, or can be claimed again; nothing where not
/// every server supports that.
fn deleting(view: &View, mut claim: CsiVolumeClaimed) -> Result<Decision, Refusal> {
    if !all_servers_support(view, UNCONFIRMED_DETACH_LEVEL)? {
        return Ok(Decision::Nothing(Reply::None));
    }
    claim.allocation_id.clear();
    claim.node_id.clear();
    let since = match claim.state {
        state::CLAIMED => claim.timestamp,
        _ => 0,
    };
    let mut row = stored(view, (&claim.namespace, &claim.volume_id))?;
    match row.deletes(since).map_err(Refusal::by_rule)? {
        true => Ok(Decision::unguarded(claim)),
        false => Ok(Decision::Nothing(Reply::None)),
    }
}

/// The row as it is stored: past claims that follow from ended allocations are not in it yet.
fn stored(view: &View, key: (&str, &str)) -> Result<CsiVolumeRow, Refusal> {
    let row = view.get::<CsiVolumes>(key)?;
    Ok(row.map(|row| csi::repaired(&row)).unwrap_or_default())
}

fn taken(view: &View, known: &Volume, claim: &mut CsiVolumeClaimed) -> Result<bool, Refusal> {
    if let Some(why) = csi::unserved(view, claim)? {
        return Err(Refusal::by_rule(why));
    }
    let alloc = view.get::<Allocs>(claim.allocation_id.as_str())?;
    let Some(alloc) = alloc else {
        let text = format!("alloc \"{}\" not found", claim.allocation_id);
        return Err(Refusal::by_rule(text));
    };
    claim.node_id.clone_from(&alloc.alloc.node_id);
    let requests = csi::requests_of_alloc(view, &alloc)?;
    let requested = requested(&requests, claim)?;
    complete(claim, requested);
    let volume = &known.row.volume;
    let offered = volume.requested_capabilities.iter().any(|offered| {
        offered.access_mode == claim.access_mode && offered.attachment_mode == claim.attachment_mode
    });
    if !offered && !volume.requested_capabilities.is_empty() {
        return Err(Refusal::by_rule(format!(
            "volume \"{}\" in namespace \"{}\" is not offered as {} with {}",
            volume.id, volume.namespace, claim.attachment_mode, claim.access_mode
        )));
    }
    let held = known.row.claim_of(&claim.allocation_id).is_some();
    if !held && !known.schedulable() {
        let text = format!(
            "volume \"{}\" in namespace \"{}\": volume is currently unschedulable",
            volume.id, volume.namespace
        );
        return Err(Refusal::new(Code::Unavailable, text));
    }
    let mut row = stored(view, (&claim.namespace, &claim.volume_id))?;
    let over = row.past_claims.get(&claim.allocation_id);
    let over = over.is_some_and(|past| past.state != state::DETACH_UNCONFIRMED);
    row.take(claim, CLAIMS_LEVEL).map_err(|text| match over {
        true => Refusal::by_rule(text),
        // Others hold it, and may give it back.
        false => Refusal::new(Code::Conflict, text),
    })
}

/// The allocation's own request for the volume: a claim without one is forged (CSI-20). Where it
/// has several such requests, it has one claim, which writes if any of the requests does.
fn requested<'r>(
    requests: &'r [(String, VolumeRequest)],
    claim: &CsiVolumeClaimed,
) -> Result<&'r VolumeRequest, Refusal> {
    let own = || {
        let own = requests.iter();
        let own = own.filter(|(source, _)| *source == claim.volume_id);
        own.map(|(_, request)| request)
    };
    let writes = own().find(|request| !request.read_only);
    let found = match claim.mode {
        claim_mode::WRITE => writes,
        _ => writes.or_else(|| own().next()),
    };
    found.ok_or_else(|| {
        let how = if claim.mode == claim_mode::WRITE {
            " to write to"
        } else {
            ""
        };
        Refusal::by_rule(format!(
            "allocation \"{}\" does not ask for volume \"{}\"{how}",
            claim.allocation_id, claim.volume_id
        ))
    })
}

/// A claim always has its modes (EV-11): those of the request, whatever the node says.
fn complete(claim: &mut CsiVolumeClaimed, requested: &VolumeRequest) {
    claim.mode = match requested.read_only {
        true => claim_mode::READ,
        false => claim_mode::WRITE,
    };
    let (access, attachment) = requested.csi_modes();
    access.clone_into(&mut claim.access_mode);
    attachment.clone_into(&mut claim.attachment_mode);
}

/// A plugin left over is removed.
#[derive(Clone, Debug)]
pub struct DeleteCsiPlugin {
    pub id: String,
}

impl Command for DeleteCsiPlugin {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.id.is_empty() {
            return Err(Refusal::bad_request("missing plugin ID"));
        }
        require_all_servers_support(view, CSI_LEVEL, "volumes")?;
        let Some(row) = view.get::<CsiPlugins>(self.id.as_str())? else {
            return Err(Refusal::by_rule(format!(
                "plugin \"{}\" not found",
                self.id
            )));
        };
        if row.in_use() {
            return Err(Refusal::by_rule("plugin in use"));
        }
        let id = self.id.clone();
        Ok(Decision::unguarded(CsiPluginDeleted { id }))
    }
}
