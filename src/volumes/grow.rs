//! Volumes that are made larger: at their provider first, then on every node that has them.

use std::future::ready;
use std::sync::Arc;

use drover_events::csi::{CsiVolumeClaimed, claim_mode};
use drover_events::model::CsiVolume;
use drover_projections::query::csi::Volume;
use futures_util::FutureExt as _;
use futures_util::future::join_all;

use super::in_doubt::PendingCall;
use super::provision::{key_of, require_same_volume};
use super::{CsiVolumeKey, StepError, Volumes};
use crate::commands::csi::NoteGrowth;
use crate::error::Code;
use crate::proposer::Origin;
use crate::rpc::client_calls::Unanswered;
use crate::rpc::csi::{
    ControllerExpandVolume, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    NodeExpandVolume, NodeExpandVolumeRequest, Secrets,
};

/// A volume that its provider has made larger, and what it is to be.
struct Grown {
    known: Volume,
    wanted: CsiVolume,
}

/// The volumes of one request that are made larger.
pub(super) struct Expansions<'o> {
    /// The growths in which nodes have a part to do.
    grown: Vec<Grown>,
    /// The index of the last that is recorded.
    index: u64,
    /// The prefix of errors of the step that records them.
    pub(super) step: &'static str,
    /// In whose name they are recorded.
    pub(super) origin: &'o Origin,
}

impl<'o> Expansions<'o> {
    /// Holds no growth yet.
    pub(super) fn of(step: &'static str, origin: &'o Origin) -> Self {
        Self {
            grown: Vec::new(),
            index: 0,
            step,
            origin,
        }
    }
}

/// What makes the volumes of a plugin larger.
#[derive(Clone, Copy, PartialEq)]
enum Grower {
    /// A controller, and nodes where it says so.
    Controller,
    /// Nodes alone.
    Nodes,
}

/// Whether a plugin says that it makes nothing larger that is used.
fn is_in_use(error: &Unanswered) -> bool {
    matches!(error, Unanswered::Refused(error) if error.code == Code::Conflict)
}

/// Whether a volume is as large as it was: not known where a plugin has trouble of its own.
fn changed_nothing(error: &Unanswered) -> bool {
    matches!(error, Unanswered::Unreached(_)) || is_in_use(error) || !error.is_recoverable()
}

/// The claims of a volume that are not given back.
fn live(volume: &Volume) -> impl Iterator<Item = &CsiVolumeClaimed> {
    let past = &volume.row.past_claims;
    let claims = volume.row.claims();
    claims.filter_map(|(alloc, claim)| (!past.contains_key(alloc)).then_some(claim))
}

impl Volumes {
    /// Makes a volume that is there larger, where it is to be, and records that; the description
    /// that is still to be recorded, where it is as large as it is to be. What nodes have to do
    /// then is added to `expansions`. One that is used is requested again where it has its size:
    /// a node may not have done its part.
    pub(super) async fn expand_existing(
        &self,
        known: Volume,
        mut volume: CsiVolume,
        expansions: &mut Expansions<'_>,
    ) -> Result<Option<CsiVolume>, StepError> {
        let row = &known.row.volume;
        let least = volume.requested_capacity_min;
        volume.capacity = 0;
        let (fits_as_it_is, again) = self.fits_as_it_is(&known, least);
        if least == 0 || (fits_as_it_is && !again) {
            return Ok(Some(volume));
        }
        // All else must be as it may be, before anything is grown.
        require_same_volume(&known, &volume)?;
        let grower = self.grower(&row.plugin_id)?;
        let key = key_of(row);
        // It is given to no allocation until its size is recorded: a plugin may make nothing larger
        // that is used, and a later claim then gets the size to reach.
        let _guard = self.claim_locks.lock(key.clone()).await;
        // That wait may have been long. The volume with claims that were taken before:
        self.must_lead()?;
        self.load_not_deleting(&volume)?;
        let known = self.load(&self.projections.view(), (&key.0, &key.1))?;
        let how = (grower, fits_as_it_is);
        self.expand_locked(known, volume, how, expansions).await
    }

    /// The same, while no claim on it is taken.
    async fn expand_locked(
        &self,
        known: Volume,
        mut volume: CsiVolume,
        (grower, fits_as_it_is): (Grower, bool),
        expansions: &mut Expansions<'_>,
    ) -> Result<Option<CsiVolume>, StepError> {
        let (key, least) = (key_of(&volume), volume.requested_capacity_min);
        let origin = expansions.origin;
        let before = known.row.node_expansion;
        let secrets = self.secrets_with(&known, &volume)?;
        // Allocations that have it already get no news of it until its size is recorded.
        let call = self.in_doubt.record_growth_start(&key, least);
        // Before any call: a server that leads after this one died then has it done for them.
        let noted = match fits_as_it_is {
            true => 0,
            false => self.growth_begins(&key, origin).await?,
        };
        let by_nodes = match grower {
            Grower::Nodes => {
                volume.capacity = known.row.volume.capacity.max(least);
                true
            }
            Grower::Controller => {
                let reported = self.grow_at_provider(&known, (&volume, secrets), &call);
                match reported.await {
                    (Ok(answer), _) => {
                        volume.capacity = answer.capacity_bytes.max(least);
                        answer.node_expansion_required
                    }
                    (Err(error), all_answered) => {
                        if all_answered || fits_as_it_is {
                            call.answered();
                        }
                        // Its plugin grows nothing that is used.
                        if fits_as_it_is && is_in_use(&error) {
                            let wanted = volume.clone();
                            let behind = (before != 0).then_some(Grown { known, wanted });
                            expansions.grown.extend(behind);
                            return Ok(Some(volume));
                        }
                        if all_answered && before == 0 && changed_nothing(&error) {
                            let kept = self.growth_ends(&key, noted, origin).await;
                            let warn = |error: &StepError| tracing::warn!(%error, "a growth stays");
                            drop(kept.inspect_err(warn));
                        }
                        return Err(StepError::of("controller expand volume: ")(error));
                    }
                }
            }
        };
        expansions.index = self
            .record_registration(vec![volume.clone()], (expansions.step, origin))
            .await?;
        call.grown(volume.capacity);
        if by_nodes || before != 0 {
            let wanted = volume;
            expansions.grown.push(Grown { known, wanted });
        } else {
            self.growth_ends(&key, noted, origin).await?;
        }
        Ok(None)
    }

    /// Whether a volume is as large as that, and whether that is requested again: so that nodes do
    /// their part.
    fn fits_as_it_is(&self, known: &Volume, least: i64) -> (bool, bool) {
        let row = &known.row.volume;
        let same = least == row.requested_capacity_min;
        // A volume of unknown size was made larger for no claim, so no node has a part to do.
        let used = live(known).next().is_some();
        let again = same && row.capacity != 0 && used && self.grower(&row.plugin_id).is_ok();
        // The size of a registered volume may not be known here: its provider knows it.
        let fits = match row.capacity {
            0 => same,
            capacity => least <= capacity,
        };
        (fits, again)
    }

    /// What makes volumes of a plugin larger.
    fn grower(&self, plugin: &str) -> Result<Grower, StepError> {
        let known = self.plugin(plugin)?;
        let mut nodes = known
            .nodes
            .values()
            .filter_map(|info| info.node_info.as_ref());
        let by_nodes = nodes.any(|can| can.supports_expand);
        let no_controller = known.controllers.is_empty() && !known.row.plugin.controller_required;
        let can = self.require_capability(plugin, "expand volumes", |can| can.supports_expand);
        match can {
            _ if by_nodes && no_controller => Ok(Grower::Nodes),
            Err(_) if by_nodes => Ok(Grower::Nodes),
            can => can.map(|()| Grower::Controller),
        }
    }

    /// Calls a controller; what it answered, and whether all that were called did.
    async fn grow_at_provider(
        &self,
        known: &Volume,
        (wanted, secrets): (&CsiVolume, Secrets),
        call: &PendingCall<'_>,
    ) -> (Result<ControllerExpandVolumeResponse, Unanswered>, bool) {
        let row = &known.row.volume;
        let requested = ControllerExpandVolumeRequest {
            plugin_id: row.plugin_id.clone(),
            controller_node_id: String::new(),
            external_volume_id: known.name_at_plugin().to_owned(),
            required_bytes: wanted.requested_capacity_min,
            limit_bytes: wanted.requested_capacity_max,
            secrets,
            volume_capability: row.requested_capabilities.first().cloned(),
            mount_options: row.mount_options.clone(),
            in_use: !known.row.is_at_rest(),
        };
        let before = || {
            call.again();
            ready(Ok(())).boxed()
        };
        let calls = &self.plugin_calls;
        let reported =
            calls.call_controllers_with_hook::<ControllerExpandVolume>(requested, &before);
        reported.await
    }

    /// Notes that a volume is being made larger, and a node may have a part to do then; which
    /// growth it is, 0 where not every server knows of that.
    async fn growth_begins(&self, key: &CsiVolumeKey, origin: &Origin) -> Result<i64, StepError> {
        self.growth(key, 0, origin).await?;
        let known = self.load(&self.projections.view(), (&key.0, &key.1))?;
        Ok(known.row.node_expansion)
    }

    /// Notes that of a growth nothing is left to do; the index of that, 0 where there is none.
    pub(super) async fn growth_ends(
        &self,
        key: &CsiVolumeKey,
        done: i64,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        match done {
            0 => Ok(0),
            done => self.growth(key, done, origin).await,
        }
    }

    async fn growth(
        &self,
        key: &CsiVolumeKey,
        done: i64,
        origin: &Origin,
    ) -> Result<u64, StepError> {
        let command = NoteGrowth {
            namespace: key.0.clone(),
            id: key.1.clone(),
            done,
        };
        let noted = self.commands.submit(Arc::new(command), origin.clone());
        Ok(noted.await?.index)
    }

    /// Has nodes do their part, all at once: what has grown is recorded, and one that cannot now
    /// keeps no other from it. The index of the last that was recorded before, 0 for none.
    pub(super) async fn expand_on_nodes(
        &self,
        expansions: Expansions<'_>,
    ) -> Result<u64, StepError> {
        let origin = expansions.origin;
        let each = expansions.grown.iter();
        let each = each.map(|one| self.grow_where_it_is(one, origin));
        for done in join_all(each).await {
            done?;
        }
        Ok(expansions.index)
    }

    /// Has all nodes that have a volume do their part. The next node that mounts it need not where
    /// they did.
    async fn grow_where_it_is(&self, grown: &Grown, origin: &Origin) -> Result<(), StepError> {
        let (known, wanted) = (&grown.known, &grown.wanted);
        let key = key_of(wanted);
        let now = self.load(&self.projections.view(), (&key.0, &key.1))?;
        let growth = now.row.node_expansion;
        // A claim that only reads has no part in it.
        let writers = || live(known).filter(|claim| claim.mode == claim_mode::WRITE);
        let each = writers().map(|claim| self.grow_on_node(known, claim, wanted));
        let mut done = growth != 0 && writers().next().is_some();
        for places in join_all(each).await {
            // Where it was not mounted yet, nothing was made larger.
            done &= places? > 0;
        }
        if done {
            self.growth_ends(&key, growth, origin).await?;
        }
        Ok(())
    }

    /// At how many places it was made larger.
    async fn grow_on_node(
        &self,
        known: &Volume,
        claim: &CsiVolumeClaimed,
        wanted: &CsiVolume,
    ) -> Result<u64, StepError> {
        let row = &known.row.volume;
        let requested = NodeExpandVolumeRequest {
            plugin_id: row.plugin_id.clone(),
            volume_id: row.id.clone(),
            volume_namespace: row.namespace.clone(),
            external_id: known.name_at_plugin().to_owned(),
            alloc_id: claim.allocation_id.clone(),
            node_id: claim.node_id.clone(),
            attachment_mode: claim.attachment_mode.clone(),
            access_mode: claim.access_mode.clone(),
            read_only: false,
            required_bytes: wanted.requested_capacity_min,
            limit_bytes: wanted.requested_capacity_max,
            mount_options: row.mount_options.clone(),
            secrets: self.secrets_with(known, wanted)?,
        };
        let grown = self
            .plugin_calls
            .node::<NodeExpandVolume>((&claim.node_id, &row.plugin_id), &requested)
            .await;
        let grown = grown.map_err(StepError::of("node expand volume: "))?;
        Ok(grown.places)
    }
}
