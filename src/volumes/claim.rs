//! An allocation takes a volume: the claim is in the log first, then the controller attaches the
//! volume to the node, and its answer is in the log before the client gets it.

use std::sync::Arc;

use drover_events::csi::{CsiVolumeClaimed, claim_mode, state};
use drover_events::gojson::Map;
use drover_events::model::CsiVolume;
use drover_events::model::status::access_mode;
use drover_projections::query::csi::{self, Volume};
use drover_projections::tables::allocs::Allocs;

use tokio::time::sleep_until;

use super::in_doubt::CallStep;
use super::{
    ClaimKey, CsiVolumeKey, StepError, Volumes, attachment_node, external_node, keeps_attached,
    or_empty, set_last_error,
};
use crate::commands::csi::ClaimVolume;
use crate::error::Refusal;
use crate::proposer::Origin;
use crate::rpc::csi::{ControllerAttachVolume, ControllerAttachVolumeRequest};

/// The step, as errors begin.
const PUBLISH_STEP: &str = "controller publish: ";

/// A claim that was taken.
#[derive(Clone, Debug)]
pub struct ClaimGrant {
    /// The volume as a client needs it: with its secrets in clear, and its mount options.
    pub volume: CsiVolume,
    /// What the controller answered when it attached the volume.
    pub publish_context: Map<String>,
    /// The index of the last event of it.
    pub index: u64,
    /// Since when the volume is larger at its provider than a node has made it, Unix nanoseconds;
    /// 0 where no node has to do that.
    pub node_expansion: i64,
}

impl Volumes {
    /// Takes a claim for an allocation. One that is taken already is answered as it was (CSI-23):
    /// a client whose answer was lost requests it again.
    ///
    /// # Errors
    /// It is refused, or its controller cannot attach the volume.
    pub async fn claim(
        &self,
        requested: CsiVolumeClaimed,
        mut origin: Origin,
    ) -> Result<ClaimGrant, StepError> {
        self.must_lead()?;
        let claim = self.completed(requested.clone())?;
        // It follows from the allocation's being placed.
        let alloc = claim.allocation_id.as_str();
        let placed = self.projections.view().get::<Allocs>(alloc)?;
        let placed = placed.map(|row| row.alloc.create_index);
        origin.cause = origin.cause.or(placed.filter(|index| *index > 0));
        let key = (claim.namespace.clone(), claim.volume_id.clone());
        let (claim, index) = match self.held(&claim) {
            // What it has is not given once more, so it waits for no other claim.
            Ok(_) => (claim.clone(), self.note(claim, &origin).await?),
            Err(_) => self.takes(&key, requested, &origin).await?,
        };
        origin.cause = Some(index).filter(|index| *index > 0).or(origin.cause);
        let view = self.projections.view();
        let volume = self.load(&view, (&key.0, &key.1))?;
        drop(view);
        if !volume.row.volume.controller_required {
            return self.taken(&claim, Map::empty(), index);
        }
        let attached = self.attach(&claim, &origin).await;
        self.hindered(&claim, attached.as_ref().err());
        let (context, attached) = attached?;
        self.taken(&claim, context, attached.max(index))
    }

    /// Records a claim that is not there; it, and its index.
    async fn takes(
        &self,
        key: &CsiVolumeKey,
        requested: CsiVolumeClaimed,
        origin: &Origin,
    ) -> Result<(CsiVolumeClaimed, u64), StepError> {
        // A plugin may still make it larger, and may not be able to while it is used. A claim that
        // waits for that holds up no other.
        let _guard = loop {
            let turn = self.claim_locks.lock(key.clone()).await;
            if self.in_doubt.growth_in_doubt(key).is_none() {
                break turn;
            }
            drop(turn);
            self.in_doubt.wait_for_growth(key).await;
        };
        // That may have been long.
        self.must_lead()?;
        let claim = self.completed(requested)?;
        let new = self.held(&claim).is_err();
        let index = self.note(claim.clone(), origin).await?;
        if new {
            self.in_doubt.record_claim(key_of(&claim));
        }
        Ok((claim, index))
    }

    /// An allocation's node has made the volume as large as it became with a growth: that is noted,
    /// and the next node that mounts it has nothing to do; the index of it. What has grown since is
    /// another growth's.
    ///
    /// # Errors
    /// The allocation does not hold it attached and to write to it.
    pub async fn record_node_expansion(
        &self,
        claim: &CsiVolumeClaimed,
        growth: i64,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        self.must_lead()?;
        let (volume, held) = self.held(claim)?;
        let attached = held.published || !volume.row.volume.controller_required;
        if held.mode != claim_mode::WRITE || !attached {
            let (id, alloc) = (&claim.volume_id, &claim.allocation_id);
            let text =
                format!("allocation \"{alloc}\" does not have volume \"{id}\" to write to it");
            return Err(Refusal::by_rule(text).into());
        }
        let key = (claim.namespace.clone(), claim.volume_id.clone());
        self.growth_ends(&key, growth, origin).await
    }

    /// The claim with what servers know of it (CSI-21).
    fn completed(&self, mut claim: CsiVolumeClaimed) -> Result<CsiVolumeClaimed, StepError> {
        let view = self.projections.view();
        let volume = self.load(&view, (&claim.namespace, &claim.volume_id))?;
        claim.state = state::CLAIMED;
        claim.published = false;
        claim.publish_context = Map::nil();
        claim.external_node_id = String::new();
        if let Some(alloc) = view.get::<Allocs>(claim.allocation_id.as_str())? {
            // It is known before the controller is called, so that whatever becomes of that call,
            // the volume can be detached again.
            let plugin = &volume.row.volume.plugin_id;
            claim.external_node_id = external_node(&view, plugin, &alloc.alloc.node_id)?;
            if volume.row.volume.controller_required && claim.external_node_id.is_empty() {
                let text = format!(
                    "CSI plugin \"{plugin}\" does not run on node \"{}\" yet",
                    alloc.alloc.node_id
                );
                return Err(StepError {
                    step: PUBLISH_STEP,
                    text,
                    code: crate::error::Code::Unavailable,
                });
            }
        }
        Ok(claim)
    }

    /// Records a claim, or a step of it; its index, 0 where nothing changed.
    pub(super) async fn note(
        &self,
        claim: CsiVolumeClaimed,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        let command = Arc::new(ClaimVolume { claim });
        let done = self.commands.submit(command, origin.clone()).await?;
        Ok(if done.is_written { done.index } else { 0 })
    }

    /// Lets the controller attach the volume, once; its answer, and the index of that.
    async fn attach(
        &self,
        claim: &CsiVolumeClaimed,
        origin: &Origin,
    ) -> Result<(Map<String>, u64), StepError> {
        let (namespace, id) = (&claim.namespace, &claim.volume_id);
        let held = self.held(claim)?.1;
        let at = (
            namespace.clone(),
            id.clone(),
            attachment_node(&held).to_owned(),
        );
        let _guard = self.attach_locks.lock(at.clone()).await;
        // What takes the volume from there, and may be done late, is not to take it from this one.
        while let Some(until) = self.in_doubt.detach_in_doubt(&self.held(claim)?.0, &at) {
            sleep_until(until).await;
        }
        // While it waited for its turn, the claim may have been attached, or given back.
        let (volume, held) = self.held(claim)?;
        if held.published {
            return Ok((held.publish_context, 0));
        }
        self.must_lead()?;
        let row = &volume.row.volume;
        let (access_mode, attachment_mode) = attached_as(&volume, &held);
        let requested = ControllerAttachVolumeRequest {
            plugin_id: row.plugin_id.clone(),
            controller_node_id: String::new(),
            volume_id: volume.name_at_plugin().to_owned(),
            client_csi_node_id: held.external_node_id.clone(),
            read_only: reads_only(&access_mode) && self.attaches_read_only(&row.plugin_id)?,
            attachment_mode,
            access_mode,
            mount_options: row.mount_options.clone(),
            secrets: self.secrets(&volume)?,
            volume_context: or_empty(&row.context),
        };
        let call = self.in_doubt.record_start(CallStep::Attach, at);
        let calls = &self.plugin_calls;
        let (answer, all_answered) = calls
            .call_controllers::<ControllerAttachVolume>(requested)
            .await;
        if all_answered {
            call.answered();
        }
        let context = answer.map_err(StepError::of(PUBLISH_STEP))?.publish_context;
        let mut attached = held;
        attached.published = true;
        attached.publish_context.clone_from(&context);
        let index = self.note(attached, origin).await?;
        self.in_doubt.record_attached(&key_of(claim));
        Ok((context, index))
    }

    /// Keeps why a claim is not attached; of one that is given back meanwhile its release does.
    fn hindered(&self, claim: &CsiVolumeClaimed, error: Option<&StepError>) {
        let mut last_errors = self.last_errors.lock();
        if self.held(claim).is_ok() {
            set_last_error(&mut last_errors, key_of(claim), error);
        }
    }

    /// Whether the plugin's controllers know volumes that are only to be read: without that the
    /// specification forbids to request one.
    fn attaches_read_only(&self, plugin: &str) -> Result<bool, StepError> {
        let plugin = csi::plugin(&self.projections.view(), plugin)?;
        let reported = plugin.into_iter().flat_map(|plugin| plugin.controllers);
        let mut reported = reported.filter_map(|(_, info)| info.controller_info);
        Ok(reported.any(|can| can.supports_read_only_attach))
    }

    /// The volume, and the claim as it is held.
    fn held(&self, claim: &CsiVolumeClaimed) -> Result<(Volume, CsiVolumeClaimed), StepError> {
        let view = self.projections.view();
        let volume = self.load(&view, (&claim.namespace, &claim.volume_id))?;
        let alloc = claim.allocation_id.as_str();
        let held = volume.row.claim_of(alloc);
        let held = held.filter(|_| !volume.row.past_claims.contains_key(alloc));
        match held.cloned() {
            Some(held) => Ok((volume, held)),
            None => Err(Refusal::by_rule(format!(
                "claim of allocation \"{alloc}\" on volume \"{}\" was released",
                claim.volume_id
            ))
            .into()),
        }
    }

    fn taken(
        &self,
        claim: &CsiVolumeClaimed,
        publish_context: Map<String>,
        index: u64,
    ) -> Result<ClaimGrant, StepError> {
        let (volume, held) = self.held(claim)?;
        // A claim that only reads has no part in it; and while the volume grows no claim has one
        // yet.
        let key = (claim.namespace.clone(), claim.volume_id.clone());
        let growth = volume.row.node_expansion;
        let grows = self.in_doubt.is_growing(&key);
        let node_expansion = match held.mode {
            claim_mode::WRITE if !grows => growth,
            _ => 0,
        };
        let mut shown = volume.shown();
        shown
            .mount_options
            .clone_from(&volume.row.volume.mount_options);
        shown.secrets = self.secrets(&volume)?.0.into();
        Ok(ClaimGrant {
            volume: shown,
            publish_context,
            index,
            node_expansion,
        })
    }
}

fn key_of(claim: &CsiVolumeClaimed) -> ClaimKey {
    (
        claim.namespace.clone(),
        claim.volume_id.clone(),
        claim.allocation_id.clone(),
    )
}

/// The modes in which a volume is attached for a claim: those in which it is on that node already.
/// A controller refuses to attach what is there in another way; a claim that only reads there is
/// held to that by the node.
fn attached_as(volume: &Volume, claim: &CsiVolumeClaimed) -> (String, String) {
    let mut claims = volume.row.claims().map(|(_, other)| other);
    let there = |other: &&CsiVolumeClaimed| {
        other.published && keeps_attached(other) && attachment_node(other) == attachment_node(claim)
    };
    let like = claims.find(there).unwrap_or(claim);
    (like.access_mode.clone(), like.attachment_mode.clone())
}

/// Whether a claim with this mode may only read.
fn reads_only(access: &str) -> bool {
    [
        access_mode::SINGLE_NODE_READER,
        access_mode::MULTI_NODE_READER,
    ]
    .contains(&access)
}
