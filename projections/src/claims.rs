//! The claims of a CSI volume: what one may take, how it is taken back step by step, and what a
//! description may change. Pure: rows in, rows or refusals out. Apply and the leader's decisions
//! both ask here, so that both say the same (CSI-06, CSI-24).

use drover_events::csi::{CsiVolumeClaimed, mode, state};
use drover_events::model::status::access_mode;
use drover_events::model::{CsiVolume, CsiVolumeCapability};

use crate::tables::csi_volumes::CsiVolumeRow;

impl CsiVolumeRow {
    /// What an allocation holds, released or not.
    pub fn claim_of(&self, alloc: &str) -> Option<&CsiVolumeClaimed> {
        let known = [&self.past_claims, &self.write_claims, &self.read_claims];
        known.into_iter().find_map(|claims| claims.get(alloc))
    }

    /// Whether anybody holds anything of it, or what he held is not yet free (CSI-37).
    pub fn in_use(&self) -> bool {
        let claims = [&self.read_claims, &self.write_claims, &self.past_claims];
        claims.into_iter().any(|claims| !claims.is_empty())
    }

    /// The allocations that hold it, those whose claims are being taken back among them.
    pub fn holders(&self) -> impl Iterator<Item = &str> {
        let readers = self.read_claims.keys();
        let writers = self.write_claims.keys();
        let past = self.past_claims.keys();
        let past = past.filter(|alloc| {
            !self.read_claims.contains_key(*alloc) && !self.write_claims.contains_key(*alloc)
        });
        readers.chain(writers).chain(past).map(String::as_str)
    }

    /// Whether an allocation may have a claim beside those there are. Both what the volume is used
    /// as now and what is asked for must allow it.
    pub fn has_room(&self, alloc: &str, mode: u8, wanted: &str) -> bool {
        let others = |claims: &crate::claims::Claims| {
            claims.keys().filter(|holder| *holder != alloc).count()
        };
        // What is past is not free: its allocations count as long as the lists hold them.
        let (readers, writers) = (others(&self.read_claims), others(&self.write_claims));
        let allows = |access: &str| match (access, mode) {
            ("", _) => true,
            (access_mode::SINGLE_NODE_READER, mode::READ) => readers + writers == 0,
            (access_mode::SINGLE_NODE_WRITER, _) => readers + writers == 0,
            (access_mode::MULTI_NODE_READER, mode::READ) => writers == 0,
            (access_mode::MULTI_NODE_SINGLE_WRITER, mode::READ) => true,
            (access_mode::MULTI_NODE_SINGLE_WRITER, _) => writers == 0,
            (access_mode::MULTI_NODE_MULTI_WRITER, _) => true,
            _ => false,
        };
        let held = match readers + writers {
            0 => "",
            _ => self.volume.access_mode.as_str(),
        };
        allows(held) && allows(wanted)
    }

    /// Takes a claim: whether that changes anything.
    ///
    /// # Errors
    /// The refusal, in the words of an operator.
    pub fn take(&mut self, claim: &CsiVolumeClaimed) -> Result<bool, String> {
        let alloc = claim.allocation_id.as_str();
        let (id, namespace) = (&self.volume.id, &self.volume.namespace);
        if self.past_claims.contains_key(alloc) {
            return Err(format!(
                "claim of allocation \"{alloc}\" on volume \"{id}\" in namespace \"{namespace}\" \
                 is being released"
            ));
        }
        if !self.has_room(alloc, claim.claim, &claim.access_mode) {
            return Err(format!(
                "volume \"{id}\" in namespace \"{namespace}\": volume max claims reached"
            ));
        }
        let others = self.holders().any(|holder| holder != alloc);
        let attached = &self.volume.attachment_mode;
        if others && !attached.is_empty() && *attached != claim.attachment_mode {
            return Err(format!(
                "volume \"{id}\" in namespace \"{namespace}\" is attached as {attached} and \
                 cannot be claimed as {}",
                claim.attachment_mode
            ));
        }
        Ok(self.write(claim))
    }

    fn write(&mut self, claim: &CsiVolumeClaimed) -> bool {
        let alloc = claim.allocation_id.as_str();
        let writes = self.write_claims.contains_key(alloc) || claim.claim == mode::WRITE;
        let claims = match writes {
            true => &mut self.write_claims,
            false => &mut self.read_claims,
        };
        if let Some(known) = claims.get_mut(alloc) {
            let node = &claim.external_node_id;
            let named = !node.is_empty() && known.external_node_id != *node;
            if named {
                known.external_node_id.clone_from(node);
            }
            let published = claim.published && !known.published;
            if published {
                known.published = true;
                known.publish_context = claim.publish_context.clone();
            }
            return named || published;
        }
        claims.insert(alloc, claim.clone());
        if writes {
            self.read_claims.remove(alloc);
        }
        self.volume.access_mode.clone_from(&claim.access_mode);
        self.volume
            .attachment_mode
            .clone_from(&claim.attachment_mode);
        true
    }

    /// Takes a claim back by one step or several; whether that changes anything. A claim that is
    /// not there and a step that is done already change nothing, so that every step may be told
    /// twice (CSI-34); a claim keeps what it was (CSI-32).
    pub fn release(&mut self, step: &CsiVolumeClaimed) -> bool {
        let alloc = step.allocation_id.as_str();
        let Some(mut known) = self.claim_of(alloc).cloned() else {
            return false;
        };
        let begun = self.past_claims.contains_key(alloc);
        if begun && state::rank(step.state) <= state::rank(known.state) {
            return false;
        }
        known.state = step.state;
        known.timestamp = step.timestamp;
        if known.external_node_id.is_empty() {
            known.external_node_id.clone_from(&step.external_node_id);
        }
        if step.state != state::READY_TO_FREE {
            self.past_claims.insert(alloc, known);
            return true;
        }
        self.past_claims.remove(alloc);
        self.read_claims.remove(alloc);
        self.write_claims.remove(alloc);
        if !self.in_use() {
            // CSI-07: the next one to claim it says what it is used as.
            self.volume.access_mode.clear();
            self.volume.attachment_mode.clear();
        }
        true
    }
}

type Claims = drover_events::gojson::Map<CsiVolumeClaimed>;

/// The description of a volume that is known, as a new one changes it: what an operator may change
/// is changed, what cannot change must be as it is, and what belongs to the cluster stays (CSI-03,
/// CSI-04). What the new one leaves out stays.
///
/// # Errors
/// The refusal, which names the field.
pub fn merge(known: &CsiVolume, new: &CsiVolume) -> Result<CsiVolume, String> {
    let fixed = |field: &str, known: &str, new: &str| match new.is_empty() || known == new {
        true => Ok(()),
        false => Err(format!("volume {field} cannot be updated")),
    };
    let id = &known.id;
    if known.plugin_id != new.plugin_id {
        return Err(format!("volume identity cannot be updated: {id}"));
    }
    if !new.external_id.is_empty() && known.external_id != new.external_id {
        return Err(format!("volume identity cannot be updated: {id}"));
    }
    fixed("snapshot ID", &known.snapshot_id, &new.snapshot_id)?;
    fixed("clone ID", &known.clone_id, &new.clone_id)?;
    if !new.parameters.is_empty() && *new.parameters != *known.parameters {
        return Err("volume parameters cannot be updated".to_owned());
    }
    let mut wanted = new.requested_topologies.clone().unwrap_or_default();
    let mut held = known.requested_topologies.clone().unwrap_or_default();
    for topologies in [&mut wanted, &mut held] {
        topologies.required = topologies.required.clone().or_empty();
        topologies.preferred = topologies.preferred.clone().or_empty();
    }
    if wanted != Default::default() && has_topologies(&wanted) && wanted != held {
        return Err(
            "volume topology request update was not compatible with existing topology".to_owned(),
        );
    }
    if !new.requested_capabilities.is_empty() && !same_capabilities(known, new) {
        return Err(
            "volume requested capabilities update was not compatible with existing capability \
             in use"
                .to_owned(),
        );
    }
    check_capacity(known, new)?;
    Ok(changed(known, new))
}

fn has_topologies(request: &drover_events::model::CsiTopologyRequest) -> bool {
    !request.required.is_empty() || !request.preferred.is_empty()
}

fn same_capabilities(known: &CsiVolume, new: &CsiVolume) -> bool {
    let sorted = |volume: &CsiVolume| {
        let pair =
            |one: &CsiVolumeCapability| (one.access_mode.clone(), one.attachment_mode.clone());
        let mut pairs: Vec<_> = volume.requested_capabilities.iter().map(pair).collect();
        pairs.sort();
        pairs.dedup();
        pairs
    };
    known.requested_capabilities.is_empty() || sorted(known) == sorted(new)
}

fn check_capacity(known: &CsiVolume, new: &CsiVolume) -> Result<(), String> {
    let (min, max) = (new.requested_capacity_min, new.requested_capacity_max);
    // A volume that its plugin has grown is described with what it holds now.
    let holds = match new.capacity {
        0 => known.capacity,
        grown => grown,
    };
    let small = min != 0 && min > holds;
    let large = max != 0 && max < holds;
    if holds != 0 && (small || large) {
        return Err(
            "volume requested capacity update was not compatible with existing capacity".to_owned(),
        );
    }
    Ok(())
}

fn changed(known: &CsiVolume, new: &CsiVolume) -> CsiVolume {
    let mut row = known.clone();
    if !new.name.is_empty() {
        row.name.clone_from(&new.name);
    }
    if new.mount_options.is_some() {
        row.mount_options.clone_from(&new.mount_options);
    }
    if !new.secrets.is_empty() {
        row.secrets = new.secrets.clone();
    }
    if !new.context.is_empty() {
        row.context = new.context.clone();
    }
    if !new.topologies.is_empty() {
        row.topologies = new.topologies.clone();
    }
    if row.requested_capabilities.is_empty() {
        row.requested_capabilities = new.requested_capabilities.clone();
    }
    for (known, new) in [
        (&mut row.capacity, new.capacity),
        (&mut row.requested_capacity_min, new.requested_capacity_min),
        (&mut row.requested_capacity_max, new.requested_capacity_max),
    ] {
        if new != 0 {
            *known = new;
        }
    }
    row
}
