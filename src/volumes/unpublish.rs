//! An allocation gives a volume back: taken → node-detached → controller-detached → ready to free
//! (CSI-31). Each step is recorded once its call succeeded, and may be repeated.

use drover_events::csi::{CsiVolumeClaimed, mode, state};
use drover_projections::query::csi::{self, Volume};
use drover_projections::tables::nodes::Nodes;
use futures_util::future::join_all;

use super::{ClaimKey, Key, StepError, Trouble, Volumes, claims, external_node, keeps_attached};
use crate::clock::unix_nanos;
use crate::error::ApiError;
use crate::proposer::Origin;
use crate::rpc::csi::{
    ControllerDetachVolume, ControllerDetachVolumeRequest, NodeDetachVolume,
    NodeDetachVolumeRequest,
};

/// The steps, as errors begin.
const NODE: &str = "could not detach from node: ";
const CONTROLLER: &str = "could not detach from controller: ";

impl Volumes {
    /// Gives a claim back, as far as it can be done now. What is done already is not done again;
    /// of a claim that is not there nothing is left to do.
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
        self.must_lead()?;
        let key: ClaimKey = (namespace.to_owned(), id.to_owned(), alloc.to_owned());
        // The client, the watcher and an operator may come at once: one does it, the others find
        // it done.
        let _turn = self.releasing.turn(key.clone()).await;
        let mut release = Release {
            volumes: self,
            key: &key,
            origin: origin.clone(),
            index: 0,
        };
        let done = release.run().await;
        self.remember(key.clone(), done.as_ref().err());
        done.map(|()| release.index)
    }

    /// Keeps why a claim is not given back; forgets it when it is.
    fn remember(&self, key: ClaimKey, error: Option<&StepError>) {
        let mut troubles = self.troubles.lock();
        let Some(error) = error else {
            troubles.remove(&key);
            return;
        };
        let trouble = troubles.entry(key).or_insert_with(|| Trouble {
            error: String::new(),
            since: unix_nanos(),
            tries: 0,
        });
        trouble.error = error.to_string();
        trouble.tries += 1;
    }

    /// The allocations whose claims are to be given back, each with its node (CSI-27).
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn to_release(&self, (namespace, id): (&str, &str)) -> Result<Vec<Waiting>, StepError> {
        let view = self.projections.view();
        let volume = csi::volume(&view, (namespace, id))?;
        let past = volume
            .map(|volume| volume.row.past_claims)
            .unwrap_or_default();
        let waiting = past.iter().map(|(alloc, claim)| Waiting {
            alloc: alloc.clone(),
            node: claim.node_id.clone(),
        });
        Ok(waiting.collect())
    }

    /// Gives back whatever allocations that have ended, or are gone, still hold of a volume on a
    /// node (CSI-38). Those that live are not touched.
    ///
    /// # Errors
    /// There is nothing of the kind, or a step cannot be done.
    pub async fn detach(&self, key: &Key, node: &str, origin: &Origin) -> Result<u64, StepError> {
        self.must_lead()?;
        let (namespace, id) = (key.0.as_str(), key.1.as_str());
        let view = self.projections.view();
        let volume = self.load(&view, (namespace, id))?;
        let known = view.modified::<Nodes>(node)?.is_some();
        drop(view);
        let on_node = |claim: &&CsiVolumeClaimed| claim.node_id == node;
        let past: Vec<String> = volume
            .row
            .past_claims
            .values()
            .filter(on_node)
            .map(|claim| claim.allocation_id.clone())
            .collect();
        if past.is_empty() {
            let held = claims(&volume)
                .into_values()
                .any(|claim| claim.node_id == node);
            let text = match (held, known) {
                (true, _) => format!("volume \"{id}\" is in use on node \"{node}\""),
                (false, true) => format!("volume \"{id}\" has no claims on node \"{node}\""),
                (false, false) => format!("Unknown node \"{node}\""),
            };
            return Err(ApiError::refused(text).into());
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
}

/// A claim that waits to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Whose it is.
    pub alloc: String,
    /// On which node.
    pub node: String,
}

/// A claim on its way back.
struct Release<'v> {
    volumes: &'v Volumes,
    key: &'v ClaimKey,
    origin: Origin,
    index: u64,
}

impl Release<'_> {
    async fn run(&mut self) -> Result<(), StepError> {
        let Some((volume, claim)) = self.load()? else {
            return Ok(());
        };
        let span = (&self.key.0, &self.key.1, &self.key.2);
        if claim.state == state::TAKEN {
            tracing::trace!(claim = ?span, "a claim is given back");
            self.note(&claim, state::UNPUBLISHING).await?;
        }
        if state::rank(claim.state) < state::rank(state::NODE_DETACHED)
            && self.detach_node(&volume, &claim).await?
        {
            tracing::trace!(claim = ?span, "its node has detached the volume");
            self.note(&claim, state::NODE_DETACHED).await?;
        }
        if volume.row.volume.controller_required && keeps_attached(&claim) {
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
        let claim = claims(&volume)
            .get(self.key.2.as_str())
            .map(|claim| (*claim).clone());
        Ok(claim.map(|claim| (volume, claim)))
    }

    /// Records a step; nothing where it is recorded already.
    async fn note(&mut self, claim: &CsiVolumeClaimed, step: u8) -> Result<(), StepError> {
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
        Ok(())
    }

    async fn free(&mut self, claim: &CsiVolumeClaimed) -> Result<(), StepError> {
        self.note(claim, state::READY_TO_FREE).await?;
        tracing::trace!(claim = ?self.key, "a claim is free");
        match self.load()? {
            None => Ok(()),
            // It must not look done: whoever waits for it would ask again at once.
            Some(_) => Err(ApiError::internal("the end of the claim could not be recorded").into()),
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
            false => self.volumes.projections.view().modified::<Nodes>(node)?,
        };
        if known.is_none() {
            return Ok(false);
        }
        self.volumes.must_lead()?;
        let asked = NodeDetachVolumeRequest {
            plugin_id: volume.row.volume.plugin_id.clone(),
            volume_id: self.key.1.clone(),
            volume_namespace: self.key.0.clone(),
            external_id: volume.plugin_name().to_owned(),
            alloc_id: self.key.2.clone(),
            node_id: node.to_owned(),
            attachment_mode: claim.attachment_mode.clone(),
            access_mode: claim.access_mode.clone(),
            read_only: claim.claim == mode::READ,
        };
        let detached = self
            .volumes
            .shim
            .node::<NodeDetachVolume>((node, &asked.plugin_id), &asked)
            .await;
        detached.map_err(StepError::of(NODE))?;
        Ok(true)
    }

    /// Lets the controller detach the volume from the node, unless somebody else there keeps it;
    /// then the claim is free, before anybody else looks whether he is the last (CSI-35).
    async fn detach_controller(&mut self, claim: &CsiVolumeClaimed) -> Result<(), StepError> {
        let (namespace, id, alloc) = self.key.clone();
        let place = (namespace, id, claim.node_id.clone());
        let volumes = self.volumes;
        let _turn = volumes.attaching.turn(place).await;
        let Some((volume, claim)) = self.load()? else {
            return Ok(());
        };
        let others: Vec<_> = claims(&volume)
            .into_iter()
            .filter(|(holder, other)| *holder != alloc && keeps_attached(other))
            .map(|(_, other)| other.node_id.clone())
            .collect();
        if !claim.node_id.is_empty() && others.contains(&claim.node_id) {
            return self.free(&claim).await;
        }
        let node = self.external_node(&volume, &claim, !others.is_empty())?;
        volumes.must_lead()?;
        let asked = ControllerDetachVolumeRequest {
            plugin_id: volume.row.volume.plugin_id.clone(),
            controller_node_id: String::new(),
            volume_id: volume.plugin_name().to_owned(),
            client_csi_node_id: node,
            secrets: volumes.secrets(&volume)?,
        };
        let detached = volumes
            .shim
            .controller::<ControllerDetachVolume>(asked)
            .await;
        detached.map_err(StepError::of(CONTROLLER))?;
        tracing::trace!(claim = ?self.key, "its controller has detached the volume");
        self.note(&claim, state::CONTROLLER_DETACHED).await?;
        self.free(&claim).await
    }

    /// What the plugin calls the claim's node. Where nobody knows any more, and nobody else has
    /// the volume, it is detached from all nodes: an empty name says so.
    fn external_node(
        &self,
        volume: &Volume,
        claim: &CsiVolumeClaimed,
        shared: bool,
    ) -> Result<String, StepError> {
        if !claim.external_node_id.is_empty() {
            return Ok(claim.external_node_id.clone());
        }
        let view = self.volumes.projections.view();
        let plugin = &volume.row.volume.plugin_id;
        let known = external_node(&view, plugin, &claim.node_id)?;
        if known.is_empty() && shared {
            return Err(StepError {
                step: CONTROLLER,
                text: format!(
                    "what plugin \"{plugin}\" calls node \"{}\" is not known",
                    claim.node_id
                ),
                code: crate::error::Code::Unavailable,
                recoverable: true,
            });
        }
        Ok(known)
    }
}
