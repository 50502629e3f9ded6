//! The claims of a CSI volume: what one may take, how it is taken back step by step, and what a
//! description may change. Pure: rows in, rows or refusals out. Apply and the leader's decisions
//! both call this, so that both say the same (CSI-06, CSI-24).

use std::collections::BTreeMap;

use drover_events::csi::state::rank;
use drover_events::csi::{CLAIMS_LEVEL, CsiVolumeClaimed, claim_mode, has_capacity, state};
use drover_events::model::{CsiVolume, CsiVolumeCapability};

use crate::tables::csi_volumes::CsiVolumeRow;

impl CsiVolumeRow {
    /// What an allocation holds, released or not.
    pub fn claim_of(&self, alloc: &str) -> Option<&CsiVolumeClaimed> {
        let known = [&self.past_claims, &self.write_claims, &self.read_claims];
        known.into_iter().find_map(|claims| claims.get(alloc))
    }

    /// Whether an allocation holds it, or held it and the claim is not yet free (CSI-37).
    pub fn in_use(&self) -> bool {
        self.holders().next().is_some()
    }

    /// Whether nothing is left to do for it: it is not used, no detach of it is unconfirmed, and it
    /// is not being deleted.
    pub fn is_at_rest(&self) -> bool {
        !self.in_use() && self.past_claims.is_empty() && self.deleting == 0
    }

    /// What is free already, while a call of it may still be under way.
    pub fn detach_unconfirmed(&self) -> impl Iterator<Item = (&str, &CsiVolumeClaimed)> {
        let past = self.past_claims.iter();
        let unconfirmed = past.filter(|(_, claim)| claim.state == state::DETACH_UNCONFIRMED);
        unconfirmed.map(|(alloc, claim)| (alloc.as_str(), claim))
    }

    /// Whether an allocation holds it, and its controller has still to attach it to the node.
    pub fn waits_to_be_attached(&self, alloc: &str) -> bool {
        let live = !self.past_claims.contains_key(alloc);
        let held = self.claim_of(alloc).filter(|_| live);
        held.is_some_and(|claim| self.volume.controller_required && !claim.published)
    }

    /// Every claim that is held, each as far as it was given back, with its allocation; not those
    /// whose detach is only unconfirmed.
    pub fn claims(&self) -> impl Iterator<Item = (&str, &CsiVolumeClaimed)> {
        let mut known = BTreeMap::new();
        // A past claim is further on than the lists of holders say; an allocation that reads and
        // writes counts as a writer.
        for claims in [&self.read_claims, &self.write_claims, &self.past_claims] {
            let held = claims.iter().filter(|(_, claim)| is_held(claim));
            known.extend(held.map(|(alloc, claim)| (alloc.as_str(), claim)));
        }
        known.into_iter()
    }

    /// The allocations that hold it, those whose claims are being taken back among them.
    pub fn holders(&self) -> impl Iterator<Item = &str> {
        let readers = self.read_claims.keys();
        let writers = self.write_claims.keys();
        let past = self.past_claims.iter().filter(|(alloc, claim)| {
            let listed = self.read_claims.contains_key(*alloc);
            !listed && !self.write_claims.contains_key(*alloc) && is_held(claim)
        });
        let past = past.map(|(alloc, _)| alloc);
        readers.chain(writers).chain(past).map(String::as_str)
    }

    /// Whether an allocation may have a claim beside those there are: the requested mode must allow
    /// it, and so must every claim that others hold.
    pub fn has_capacity(&self, alloc: &str, mode: u8, wanted: &str) -> bool {
        // What is past is not free: its allocations count as long as the lists hold them.
        let (readers, writers) = self.others(alloc);
        let allows = |access_mode: &str| {
            has_capacity(
                access_mode,
                mode != claim_mode::READ,
                readers.len(),
                writers.len(),
            )
        };
        let mut held = readers.iter().chain(&writers);
        allows(wanted)
            && held.all(|claim| match claim.access_mode.as_str() {
                "" => allows(&self.volume.access_mode),
                own => allows(own),
            })
    }

    /// The same as events below [`CLAIMS_LEVEL`] mean it: of what is held, the mode that was
    /// claimed last counts.
    fn had_capacity(&self, alloc: &str, mode: u8, wanted: &str) -> bool {
        let (readers, writers) = self.others(alloc);
        let (readers, writers) = (readers.len(), writers.len());
        let allows = |access_mode: &str| {
            has_capacity(access_mode, mode != claim_mode::READ, readers, writers)
        };
        (readers + writers == 0 || allows(&self.volume.access_mode)) && allows(wanted)
    }

    /// What others than an allocation hold: those that read, and those that write.
    fn others(&self, alloc: &str) -> (Vec<&CsiVolumeClaimed>, Vec<&CsiVolumeClaimed>) {
        (
            beside(&self.read_claims, alloc),
            beside(&self.write_claims, alloc),
        )
    }

    /// Takes a claim, by the rules of a feature level: whether that changes anything.
    ///
    /// # Errors
    /// The refusal, in the words of an operator.
    pub fn take(&mut self, claim: &CsiVolumeClaimed, level: u32) -> Result<bool, String> {
        let alloc = claim.allocation_id.as_str();
        let (id, namespace) = (&self.volume.id, &self.volume.namespace);
        if self.past_claims.get(alloc).is_some_and(is_held) {
            return Err(format!(
                "claim of allocation \"{alloc}\" on volume \"{id}\" in namespace \"{namespace}\" \
                 is being released"
            ));
        }
        if self.deleting != 0 {
            return Err(format!(
                "volume \"{id}\" in namespace \"{namespace}\" is being deleted"
            ));
        }
        let has_capacity = match level >= CLAIMS_LEVEL {
            true => self.has_capacity(alloc, claim.mode, &claim.access_mode),
            false => self.had_capacity(alloc, claim.mode, &claim.access_mode),
        };
        if !has_capacity {
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
        Ok(self.write(claim, level))
    }

    fn write(&mut self, claim: &CsiVolumeClaimed, level: u32) -> bool {
        let alloc = claim.allocation_id.as_str();
        let writes = self.write_claims.contains_key(alloc) || claim.mode == claim_mode::WRITE;
        let claims = match writes {
            true => &mut self.write_claims,
            false => &mut self.read_claims,
        };
        if let Some(known) = claims.get_mut(alloc) {
            let node = &claim.external_node_id;
            let named = !node.is_empty() && known.external_node_id != *node;
            // What is attached is detached from where it was attached.
            let named = named && !(known.published && level >= CLAIMS_LEVEL);
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
        self.past_claims.remove(alloc);
        self.volume.access_mode.clone_from(&claim.access_mode);
        self.volume
            .attachment_mode
            .clone_from(&claim.attachment_mode);
        true
    }

    /// Takes a claim back by one step or several; whether that changes anything. A claim that is
    /// not there and a step that is done already change nothing, so that every step may be reported
    /// twice (CSI-34); a claim keeps what it was (CSI-32).
    pub fn release(&mut self, step: &CsiVolumeClaimed) -> bool {
        let alloc = step.allocation_id.as_str();
        let Some(mut known) = self.claim_of(alloc).cloned() else {
            return false;
        };
        let begun = self.past_claims.contains_key(alloc);
        if begun && rank(step.state) <= rank(known.state) {
            return false;
        }
        known.state = step.state;
        known.timestamp = step.timestamp;
        if step.state == state::DETACH_UNCONFIRMED {
            // Whether the end of its attach is known.
            known.published = step.published;
        }
        if known.external_node_id.is_empty() {
            known.external_node_id.clone_from(&step.external_node_id);
        }
        let listed = rank(step.state) < rank(state::DETACH_UNCONFIRMED);
        match step.state {
            state::READY_TO_FREE => drop(self.past_claims.remove(alloc)),
            _ => drop(self.past_claims.insert(alloc, known)),
        }
        if listed {
            return true;
        }
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

impl CsiVolumeRow {
    /// No allocation may take it from now on, for it is being deleted at its provider; or, where
    /// `since` is 0, it is not deleted after all. Since when, Unix nanoseconds.
    ///
    /// # Errors
    /// It is in use.
    pub fn deletes(&mut self, since: i64) -> Result<bool, String> {
        if since != 0 && self.in_use() {
            return Err(format!("volume in use: {}", self.volume.id));
        }
        let changed = self.deleting != since;
        self.deleting = since;
        Ok(changed)
    }

    /// It has grown at its provider, and a node has still to make it larger; or, where `since` is
    /// 0, that is done. Since when, Unix nanoseconds. Whether that changes anything.
    pub fn grows(&mut self, since: i64) -> bool {
        let changed = self.node_expansion != since;
        self.node_expansion = since;
        changed
    }
}

/// Whether a claim counts as one: one whose detach is only unconfirmed is free.
fn is_held(claim: &CsiVolumeClaimed) -> bool {
    claim.state != state::DETACH_UNCONFIRMED
}

type Claims = drover_events::gojson::Map<CsiVolumeClaimed>;

fn beside<'c>(claims: &'c Claims, alloc: &str) -> Vec<&'c CsiVolumeClaimed> {
    let others = claims.iter().filter(|(holder, _)| *holder != alloc);
    others.map(|(_, claim)| claim).collect()
}

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
    if has_topologies(&wanted) && wanted != held {
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

/// Refuses other topologies for a volume than it has. This is checked where a description is
/// decided on, and not by [`merge`]: logs hold descriptions that apply has taken.
///
/// # Errors
/// The refusal.
pub fn check_topologies_unchanged(known: &CsiVolume, new: &CsiVolume) -> Result<(), String> {
    let (is, wanted) = (&known.topologies, &new.topologies);
    let same = is.len() == wanted.len() && wanted.iter().all(|one| is.contains(one));
    match is.is_empty() || wanted.is_empty() || same {
        true => Ok(()),
        false => Err("volume topology cannot be updated".to_owned()),
    }
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

#[cfg(test)]
mod tests {
    use drover_events::csi::GROWN_LEVEL;
    use drover_events::gojson::Map;
    use drover_events::model::status::access_mode;
    use drover_events::model::{CsiTopology, CsiTopologyRequest};

    use super::*;

    fn claim(alloc: &str, access_mode: &str) -> CsiVolumeClaimed {
        CsiVolumeClaimed {
            allocation_id: alloc.to_owned(),
            access_mode: access_mode.to_owned(),
            ..CsiVolumeClaimed::default()
        }
    }

    fn by_alloc(claims: Vec<CsiVolumeClaimed>) -> Claims {
        let claims = claims.into_iter();
        claims
            .map(|claim| (claim.allocation_id.clone(), claim))
            .collect()
    }

    #[test]
    fn a_claim_that_is_being_taken_back_is_held_and_counts_once() {
        let past = |alloc: &str, to: u8| CsiVolumeClaimed {
            state: to,
            ..claim(alloc, "")
        };
        let row = CsiVolumeRow {
            read_claims: by_alloc(vec![claim("reader", "")]),
            write_claims: by_alloc(vec![claim("writer", "")]),
            past_claims: by_alloc(vec![
                past("free", state::DETACH_UNCONFIRMED),
                past("gone", state::NODE_DETACHED),
                past("reader", state::NODE_DETACHED),
                past("writer", state::NODE_DETACHED),
            ]),
            ..CsiVolumeRow::default()
        };
        let holders: Vec<_> = row.holders().collect();
        assert_eq!(holders, ["reader", "writer", "gone"]);
    }

    #[test]
    fn a_claim_without_an_access_mode_has_that_of_its_volume() {
        let allows = |of_volume: &str| {
            let row = CsiVolumeRow {
                volume: CsiVolume {
                    access_mode: of_volume.to_owned(),
                    ..CsiVolume::default()
                },
                read_claims: by_alloc(vec![claim("one", "")]),
                ..CsiVolumeRow::default()
            };
            row.has_capacity("other", claim_mode::READ, access_mode::MULTI_NODE_READER)
        };
        assert!(allows(access_mode::MULTI_NODE_READER));
        assert!(!allows(access_mode::SINGLE_NODE_WRITER));
    }

    #[test]
    fn an_attached_volume_is_written_once() {
        let mut row = CsiVolumeRow {
            volume: CsiVolume {
                controller_required: true,
                ..CsiVolume::default()
            },
            ..CsiVolumeRow::default()
        };
        let mut taken = claim("one", access_mode::SINGLE_NODE_WRITER);
        assert_eq!(row.take(&taken, GROWN_LEVEL), Ok(true));
        assert!(row.waits_to_be_attached("one"));
        taken.published = true;
        assert_eq!(row.take(&taken, GROWN_LEVEL), Ok(true));
        assert!(!row.waits_to_be_attached("one"));
        assert_eq!(row.take(&taken, GROWN_LEVEL), Ok(false), "it is known");
    }

    #[test]
    fn a_description_that_requests_no_topologies_keeps_those_of_before() {
        let segments = Map::from([("rack", "r1".to_owned())]);
        let requested = CsiTopologyRequest {
            required: vec![CsiTopology { segments }].into(),
            ..CsiTopologyRequest::default()
        };
        let known = CsiVolume {
            requested_topologies: Some(requested),
            ..CsiVolume::default()
        };
        for none in [None, Some(CsiTopologyRequest::default())] {
            let new = CsiVolume {
                requested_topologies: none,
                ..CsiVolume::default()
            };
            assert_eq!(merge(&known, &new), Ok(known.clone()));
        }
    }
}
