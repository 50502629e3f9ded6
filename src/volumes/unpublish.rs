//! An allocation gives a volume back: held → node-detached → controller-detached → ready to free
//! (CSI-31). Each step is recorded once its call succeeded, and may be repeated.

use std::time::Duration;

use drover_events::csi::{CsiVolumeClaimed, claim_mode, state};
use drover_projections::StorageError;
use drover_projections::query::csi::{self, Volume};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::nodes::Nodes;
use futures_util::future::join_all;
use tracing::Instrument as _;

use super::in_doubt::CallStep;
use super::{
    ClaimKey, CsiVolumeKey, DELETION_KEY, PendingRelease, StepError, Volumes, attachment_node,
    external_node, keeps_attached, set_last_error,
};
use crate::base::clock::unix_nanos;
use crate::error::{Code, Refusal};
use crate::proposer::Origin;
use crate::rpc::csi::{
    ControllerDetachVolume, ControllerDetachVolumeRequest, NamedClaim, NodeDetachVolume,
    NodeDetachVolumeRequest,
};

/// The steps, as errors begin.
const NODE_STEP: &str = "could not detach from node: ";
const CONTROLLER_STEP: &str = "could not detach from controller: ";

impl Volumes {
    /// Gives a claim back, as far as it can be done now. What is done already is not done again;
    /// nothing is left to do for a claim that is not there.
    ///
    /// # Errors
    /// Why the next step cannot be done now; the claim stays where it is, and the watcher tries
    /// again.
    pub async fn unpublish(
        &self,
        (namespace, id): (&str, &str),
        alloc: &str,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        self.release((namespace, id), (alloc, false), origin).await
    }

    /// Continues a release that is pending ([`Volumes::to_release`]), as the watcher does: also
    /// with one that is free and whose detach is only unconfirmed.
    ///
    /// # Errors
    /// As [`Volumes::unpublish`], or that its detach is still unconfirmed.
    pub async fn retry_release(
        &self,
        volume_key: (&str, &str),
        waiting: &PendingRelease,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        match waiting {
            PendingRelease::Deletion => self.cancel_deletion(volume_key, origin).await,
            PendingRelease::Claim(alloc) => self.release(volume_key, (alloc, true), origin).await,
        }
    }

    async fn release(
        &self,
        (namespace, id): (&str, &str),
        (alloc, finish): (&str, bool),
        origin: &Origin,
    ) -> Result<u64, StepError> {
        self.must_lead()?;
        let key: ClaimKey = (namespace.to_owned(), id.to_owned(), alloc.to_owned());
        // Its cause is what became of the allocation, whether client, watcher or operator calls.
        let became = self.projections.view().modify_index::<Allocs>(alloc)?;
        // The client, the watcher and an operator may call at once: the first one's request does
        // it, the others find it done.
        let _guard = self.release_locks.lock(key.clone()).await;
        let mut release = Release {
            volumes: self,
            key: &key,
            origin: Origin {
                cause: became.or(origin.cause),
                ..origin.clone()
            },
            index: 0,
            span: tracing::info_span!("release", namespace, volume = id, alloc),
        };
        let span = release.span.clone();
        let work = async {
            release.run().await?;
            match finish {
                true => release.finish_unconfirmed().await,
                false => Ok(()),
            }
        };
        let mut done = work.instrument(span).await;
        if matches!(release.load(), Ok(None)) {
            self.in_doubt.forget(&key);
            // The volume may have gone meanwhile: nothing is left to do.
            done = Ok(());
        }
        set_last_error(
            &mut self.last_errors.lock(),
            key.clone(),
            done.as_ref().err(),
        );
        done.map(|()| release.index)
    }

    /// As [`Volumes::unpublish`], for the node that has the volume. Also detaches from that node a
    /// volume whose claim the state no longer has, e.g. because the node was down and its claim was
    /// freed without it.
    ///
    /// # Errors
    /// As [`Volumes::unpublish`].
    pub async fn release_by_node(
        &self,
        (namespace, id): (&str, &str),
        claim: &NamedClaim,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        let alloc = claim.allocation_id.as_str();
        let index = self.unpublish((namespace, id), alloc, origin).await?;
        let view = self.projections.view();
        let Some(volume) = csi::volume(&view, (namespace, id))? else {
            return Ok(index);
        };
        let known = view.contains::<Nodes>(claim.node_id.as_str())?;
        drop(view);
        // A claim whose detach is unconfirmed was released without its node, if that was down then.
        let held = volume.row.claim_of(alloc);
        let is_free = held.is_none_or(|claim| claim.state == state::DETACH_UNCONFIRMED);
        if index == 0 && known && is_free {
            let requested = CsiVolumeClaimed {
                namespace: namespace.to_owned(),
                volume_id: id.to_owned(),
                allocation_id: alloc.to_owned(),
                node_id: claim.node_id.clone(),
                mode: claim.mode,
                access_mode: claim.access_mode.clone(),
                attachment_mode: claim.attachment_mode.clone(),
                ..CsiVolumeClaimed::default()
            };
            self.detach_on_node(&volume, &requested).await?;
        }
        Ok(index)
    }

    /// Requests a node to detach a volume that an allocation has.
    async fn detach_on_node(
        &self,
        volume: &Volume,
        claim: &CsiVolumeClaimed,
    ) -> Result<(), StepError> {
        let requested = NodeDetachVolumeRequest {
            plugin_id: volume.row.volume.plugin_id.clone(),
            volume_id: claim.volume_id.clone(),
            volume_namespace: claim.namespace.clone(),
            external_id: volume.name_at_plugin().to_owned(),
            alloc_id: claim.allocation_id.clone(),
            node_id: claim.node_id.clone(),
            attachment_mode: claim.attachment_mode.clone(),
            access_mode: claim.access_mode.clone(),
            read_only: claim.mode == claim_mode::READ,
        };
        let node_plugin = (claim.node_id.as_str(), requested.plugin_id.as_str());
        let detached = self
            .plugin_calls
            .node::<NodeDetachVolume>(node_plugin, &requested)
            .await;
        detached.map(drop).map_err(StepError::of(NODE_STEP))
    }

    /// Requests a controller to detach the volume from the node; an empty node id means from all
    /// nodes. The caller holds the lock of that place.
    async fn controller_detach(
        &self,
        volume: &Volume,
        (at, node): (&ClaimKey, String),
    ) -> Result<(), StepError> {
        self.must_lead()?;
        let requested = ControllerDetachVolumeRequest {
            plugin_id: volume.row.volume.plugin_id.clone(),
            controller_node_id: String::new(),
            volume_id: volume.name_at_plugin().to_owned(),
            client_csi_node_id: node,
            secrets: self.secrets(volume)?,
        };
        let call = self.in_doubt.record_start(CallStep::Detach, at.clone());
        let reported = self
            .plugin_calls
            .call_controllers::<ControllerDetachVolume>(requested);
        let (detached, all_answered) = reported.await;
        if all_answered {
            call.answered();
        }
        detached.map(drop).map_err(StepError::of(CONTROLLER_STEP))
    }

    /// Cancels the deletion of a volume, once no delete of it can be under way.
    ///
    /// # Errors
    /// A delete may still be under way.
    async fn cancel_deletion(
        &self,
        (namespace, id): (&str, &str),
        origin: &Origin,
    ) -> Result<u64, StepError> {
        self.must_lead()?;
        let under_way = || {
            let text = format!("volume \"{id}\" is being deleted");
            StepError::from(Refusal::new(Code::Unavailable, text))
        };
        let turn = self
            .provision_locks
            .try_lock((namespace.to_owned(), id.to_owned()));
        let _guard = turn.ok_or_else(under_way)?;
        let volume = csi::volume(&self.projections.view(), (namespace, id))?;
        let since = volume.map_or(0, |volume| volume.row.deleting);
        if since == 0 {
            return Ok(0);
        }
        let passed = u64::try_from(unix_nanos().saturating_sub(since)).unwrap_or_default();
        if Duration::from_nanos(passed) < self.max_call_age {
            let known = self.last_errors((namespace, id)).contains_key(DELETION_KEY);
            let text = "a delete of it without an answer may still be under way";
            let unsure = StepError::from(Refusal::new(Code::Unavailable, text));
            // The reason a delete got no answer is kept where that delete was requested.
            if !known {
                self.set_delete_error((namespace, id), Some(&unsure));
            }
            return Err(unsure);
        }
        let kept = self.set_deleting((namespace, id), false, origin).await;
        self.set_delete_error((namespace, id), kept.as_ref().err());
        kept
    }

    /// Stores why a volume that is being deleted is not gone yet; removes it once the volume is
    /// gone, or its deletion is cancelled.
    pub(super) fn set_delete_error(
        &self,
        (namespace, id): (&str, &str),
        error: Option<&StepError>,
    ) {
        let key = (namespace.to_owned(), id.to_owned(), DELETION_KEY.to_owned());
        let mut last_errors = self.last_errors.lock();
        // Read under the lock, so that it is not removed meanwhile.
        let row = self.projections.view().get::<CsiVolumes>((namespace, id));
        let deleting = row.ok().flatten().is_some_and(|row| row.deleting != 0);
        set_last_error(&mut last_errors, key, error.filter(|_| deleting));
    }

    /// Records that a volume is being deleted, so that no claim on it is granted, or that it is not
    /// any more.
    pub(super) async fn set_deleting(
        &self,
        (namespace, id): (&str, &str),
        begins: bool,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        let claim = CsiVolumeClaimed {
            namespace: namespace.to_owned(),
            volume_id: id.to_owned(),
            mode: claim_mode::DELETE,
            state: match begins {
                true => state::CLAIMED,
                false => state::READY_TO_FREE,
            },
            ..CsiVolumeClaimed::default()
        };
        self.note(claim, origin).await
    }

    /// The parts of a volume that are to be given back: past claims, and what was to be deleted
    /// (CSI-27).
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn to_release(
        &self,
        (namespace, id): (&str, &str),
    ) -> Result<Vec<PendingRelease>, StorageError> {
        let view = self.projections.view();
        let volume = csi::volume(&view, (namespace, id))?;
        let Some(volume) = volume else {
            return Ok(Vec::new());
        };
        let past = volume.row.past_claims.keys();
        let claims = past.map(|alloc| PendingRelease::Claim(alloc.clone()));
        let deleting = (volume.row.deleting != 0).then_some(PendingRelease::Deletion);
        Ok(claims.chain(deleting).collect())
    }

    /// Gives back whatever allocations that have ended, or are gone, still hold of a volume on a
    /// node (CSI-38). Those that live are not touched. By force its controller is called to detach
    /// it from there also where no claim on that node is known.
    ///
    /// # Errors
    /// There is nothing to detach from the node, or a step cannot be done.
    pub async fn detach(
        &self,
        key: &CsiVolumeKey,
        (node, force): (&str, bool),
        origin: &Origin,
    ) -> Result<u64, StepError> {
        self.must_lead()?;
        let (namespace, id) = (key.0.as_str(), key.1.as_str());
        let view = self.projections.view();
        let volume = self.load(&view, (namespace, id))?;
        let known = view.contains::<Nodes>(node)?;
        drop(view);
        let on_node = |claim: &&CsiVolumeClaimed| {
            claim.node_id == node && claim.state != state::DETACH_UNCONFIRMED
        };
        let past: Vec<String> = volume
            .row
            .past_claims
            .values()
            .filter(on_node)
            .map(|claim| claim.allocation_id.clone())
            .collect();
        if past.is_empty() {
            let held = volume.row.claims().any(|(_, claim)| claim.node_id == node);
            if force && !held {
                return self.detach_unclaimed(key, node).await;
            }
            let text = match (held, known) {
                (true, _) => format!("volume \"{id}\" is in use on node \"{node}\""),
                (false, true) => format!("volume \"{id}\" has no claims on node \"{node}\""),
                (false, false) => format!("Unknown node \"{node}\""),
            };
            return Err(Refusal::by_rule(text).into());
        }
        let all = past
            .iter()
            .map(|alloc| self.unpublish((namespace, id), alloc, origin));
        let mut index = 0;
        for done in join_all(all).await {
            index = index.max(done?);
        }
        Ok(index)
    }

    /// Detaches a volume from a node on which no allocation claims it, whatever its plugin knows.
    async fn detach_unclaimed(&self, key: &CsiVolumeKey, node: &str) -> Result<u64, StepError> {
        let view = self.projections.view();
        let volume = self.load(&view, (&key.0, &key.1))?;
        let plugin = &volume.row.volume.plugin_id;
        // Where the node is gone, its plugin may have called it as the cluster did.
        let name = match external_node(&view, plugin, node)? {
            name if name.is_empty() => node.to_owned(),
            name => name,
        };
        drop(view);
        if !volume.row.volume.controller_required {
            let text = format!("plugin \"{plugin}\" attaches no volumes to nodes");
            return Err(Refusal::by_rule(text).into());
        }
        let at = (key.0.clone(), key.1.clone(), name.clone());
        let _guard = self.attach_locks.lock(at.clone()).await;
        let volume = self.load(&self.projections.view(), (&key.0, &key.1))?;
        let here =
            |claim: &CsiVolumeClaimed| claim.node_id == node || attachment_node(claim) == name;
        if volume.row.claims().any(|(_, claim)| here(claim)) {
            let text = format!("volume \"{}\" is in use on node \"{node}\"", key.1);
            return Err(Refusal::by_rule(text).into());
        }
        self.controller_detach(&volume, (&at, name)).await?;
        Ok(0)
    }
}

/// A claim on its way back.
struct Release<'v> {
    volumes: &'v Volumes,
    key: &'v ClaimKey,
    origin: Origin,
    index: u64,
    /// The span of the log's lines about one release.
    span: tracing::Span,
}

impl Release<'_> {
    async fn run(&mut self) -> Result<(), StepError> {
        let Some((volume, claim)) = self.load()? else {
            return Ok(());
        };
        if claim.state == state::DETACH_UNCONFIRMED {
            return Ok(());
        }
        if claim.state == state::CLAIMED {
            tracing::trace!("a claim is given back");
            if self.note(&claim, state::UNPUBLISHING).await? {
                self.volumes.in_doubt.record_release(self.key.clone());
                // What kept it from being attached does not count any more.
                self.volumes.last_errors.lock().remove(self.key);
            }
        }
        if state::rank(claim.state) < state::rank(state::NODE_DETACHED)
            && self.detach_node(&volume, &claim).await?
        {
            tracing::trace!("its node has detached the volume");
            self.note(&claim, state::NODE_DETACHED).await?;
        }
        // What its controller attached it detaches, whatever nodes say now of the plugin.
        let attached = volume.row.volume.controller_required || claim.published;
        if attached && keeps_attached(&claim) {
            return self.detach_controller(&claim).await;
        }
        self.free(&claim).await
    }

    /// The volume and the claim as they are now; none where nothing is left to do: also where the
    /// volume is no more.
    fn load(&self) -> Result<Option<(Volume, CsiVolumeClaimed)>, StepError> {
        let view = self.volumes.projections.view();
        let volume = csi::volume(&view, (self.key.0.as_str(), self.key.1.as_str()))?;
        let Some(volume) = volume else {
            return Ok(None);
        };
        let claim = volume.row.claim_of(&self.key.2).cloned();
        Ok(claim.map(|claim| (volume, claim)))
    }

    /// Records a step; nothing, and false, where it is recorded already.
    async fn note(&mut self, claim: &CsiVolumeClaimed, step: u8) -> Result<bool, StepError> {
        let step = CsiVolumeClaimed {
            state: step,
            timestamp: 0,
            ..claim.clone()
        };
        let index = self.volumes.note(step, &self.origin).await?;
        if index > 0 {
            self.index = self.index.max(index);
            self.origin.cause = Some(index);
        }
        Ok(index > 0)
    }

    async fn free(&mut self, claim: &CsiVolumeClaimed) -> Result<(), StepError> {
        self.note(claim, state::READY_TO_FREE).await?;
        tracing::trace!("a claim is free");
        match self.load()? {
            None => Ok(()),
            // It must not look done: a client that waits for it would request it again at once.
            Some(_) => Err(Refusal::internal("the end of the claim could not be recorded").into()),
        }
    }

    /// Lets the node detach the volume. False: there is no such node any more, and nothing that
    /// could be detached; that is not recorded as done.
    async fn detach_node(
        &self,
        volume: &Volume,
        claim: &CsiVolumeClaimed,
    ) -> Result<bool, StepError> {
        let node = claim.node_id.as_str();
        let known = match node.is_empty() {
            true => None,
            false => self
                .volumes
                .projections
                .view()
                .modify_index::<Nodes>(node)?,
        };
        if known.is_none() {
            return Ok(false);
        }
        self.volumes.must_lead()?;
        self.volumes.detach_on_node(volume, claim).await?;
        Ok(true)
    }

    /// Lets the controller detach the volume from the node, unless another claim still needs it on
    /// that node; then this one is freed before that lock is released, so that exactly one of them
    /// finds that it is the last (CSI-35). Where an attach of the claim is in doubt, the claim is
    /// noted as not `published`: so the state says that a late attach may have to be undone.
    async fn detach_controller(&mut self, claim: &CsiVolumeClaimed) -> Result<(), StepError> {
        let (namespace, id, alloc) = self.key.clone();
        let at = (
            namespace.clone(),
            id.clone(),
            attachment_node(claim).to_owned(),
        );
        let volumes = self.volumes;
        let _guard = volumes.attach_locks.lock(at.clone()).await;
        // Where it is detached from every node, no allocation claims it meanwhile.
        let everywhere = self.name_of_node(claim)?.is_empty();
        let _alone = match everywhere {
            true => Some(volumes.claim_locks.lock((namespace, id)).await),
            false => None,
        };
        let Some((volume, claim)) = self.load()? else {
            return Ok(());
        };
        let kept =
            |(holder, other): &(&str, &CsiVolumeClaimed)| *holder != alloc && keeps_attached(other);
        let others: Vec<_> = volume.row.claims().filter(kept).collect();
        let node = self.name_of_node(&claim)?;
        let here = |(_, other): &(&str, &CsiVolumeClaimed)| {
            let same = !claim.node_id.is_empty() && other.node_id == claim.node_id;
            same || (!node.is_empty() && attachment_node(other) == node)
        };
        if others.iter().any(here) {
            return self.free(&claim).await;
        }
        if node.is_empty() && !(others.is_empty() && everywhere) {
            return Err(self.unnamed(&volume, &claim));
        }
        // Calls made before that may still be executed late.
        let attach_in_doubt = volumes.in_doubt.attach_in_doubt(self.key, &claim);
        let detach_in_doubt = volumes.in_doubt.detach_in_doubt(&volume, &at).is_some();
        volumes.controller_detach(&volume, (&at, node)).await?;
        tracing::trace!("its controller has detached the volume");
        if attach_in_doubt || detach_in_doubt {
            tracing::trace!("a call of it may still be under way");
            // Where it is not the attach, nothing is to be detached again.
            let published = claim.published && !attach_in_doubt;
            let claim = CsiVolumeClaimed { published, ..claim };
            return self.note(&claim, state::DETACH_UNCONFIRMED).await.map(drop);
        }
        self.note(&claim, state::CONTROLLER_DETACHED).await?;
        self.free(&claim).await
    }

    /// Detaches what a late attach may have attached, unless another claim has the volume there
    /// again; the claim is removed once no such call can be under way any more. A claim in this
    /// state that is not `published` has an attach in doubt ([`Release::detach_controller`]).
    async fn finish_unconfirmed(&mut self) -> Result<(), StepError> {
        let volumes = self.volumes;
        let unconfirmed =
            |known: &(Volume, CsiVolumeClaimed)| known.1.state == state::DETACH_UNCONFIRMED;
        let Some((_, claim)) = self.load()?.filter(unconfirmed) else {
            return Ok(());
        };
        let (namespace, id, _) = self.key.clone();
        let at = (namespace, id, attachment_node(&claim).to_owned());
        let _guard = volumes.attach_locks.lock(at.clone()).await;
        let Some((volume, claim)) = self.load()?.filter(unconfirmed) else {
            return Ok(());
        };
        let node = claim.node_id.as_str();
        let here = |(_, other): (&str, &CsiVolumeClaimed)| {
            attachment_node(other) == at.2 || (!node.is_empty() && other.node_id == node)
        };
        let held = volume.row.claims().any(here);
        let since = unix_nanos().saturating_sub(claim.timestamp);
        let since = Duration::from_nanos(u64::try_from(since).unwrap_or_default());
        let attach_in_doubt = !claim.published;
        if attach_in_doubt && !held {
            let at_node = (&at, claim.external_node_id.clone());
            volumes.controller_detach(&volume, at_node).await?;
            tracing::trace!("its controller has detached the volume again");
        }
        if (attach_in_doubt && since < volumes.max_call_age)
            || volumes.in_doubt.detach_in_doubt(&volume, &at).is_some()
        {
            let text = "a call whose end is not known may still be under way".to_owned();
            return Err(StepError {
                step: CONTROLLER_STEP,
                text,
                code: Code::Unavailable,
            });
        }
        self.free(&claim).await
    }

    /// What the plugin calls the claim's node. Where that is not known any more, and no other claim
    /// has the volume, it is detached from all nodes: an empty name means that.
    fn name_of_node(&self, claim: &CsiVolumeClaimed) -> Result<String, StepError> {
        if !claim.external_node_id.is_empty() {
            return Ok(claim.external_node_id.clone());
        }
        let view = self.volumes.projections.view();
        let volume = csi::volume(&view, (&self.key.0, &self.key.1))?;
        let plugin = volume.map(|volume| volume.row.volume.plugin_id);
        external_node(&view, &plugin.unwrap_or_default(), &claim.node_id)
    }

    fn unnamed(&self, volume: &Volume, claim: &CsiVolumeClaimed) -> StepError {
        let plugin = &volume.row.volume.plugin_id;
        StepError {
            step: CONTROLLER_STEP,
            text: format!(
                "what plugin \"{plugin}\" calls node \"{}\" is not known",
                claim.node_id
            ),
            code: Code::Unavailable,
        }
    }
}
