//! The hook of allocations that use CSI volumes: they are claimed and mounted before the tasks, and
//! given back after them (CSI-22, CSI-44). How one volume comes and goes is in `bring`.

mod bring;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use drover_csi::mounts::{self, Mounted};
use drover_events::csi::claim_mode;
use drover_events::model::status::volume_type;
use drover_events::model::{Allocation, VolumeRequest};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Csi;
use super::leftover::UnmountPlan;
use super::registry::CsiPart;
use crate::hooks::alloc::{AllocAnswer, AllocGiven, AllocHook, Hooked};

/// A volume that an allocation requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimRequest {
    /// Its name in the group.
    name: String,
    volume: String,
    /// How it is used.
    request: VolumeRequest,
}

impl ClaimRequest {
    fn mode(&self) -> u8 {
        match self.request.read_only {
            true => claim_mode::READ,
            false => claim_mode::WRITE,
        }
    }
}

/// The CSI volumes that an allocation requests, by their names in the group.
pub(super) fn claim_requests(alloc: &Allocation) -> Vec<ClaimRequest> {
    let requests = alloc
        .group()
        .into_iter()
        .flat_map(|group| group.volumes.iter());
    let csi = requests.filter(|(_, request)| request.r#type == volume_type::CSI);
    csi.map(|(name, request)| ClaimRequest {
        name: name.clone(),
        volume: request.source_for(&alloc.name).into_owned(),
        request: request.clone(),
    })
    .collect()
}

/// A volume that is mounted for an allocation: what the journal keeps, and what tasks need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedVolume {
    /// Where, on this node.
    pub path: PathBuf,
    /// Something is mounted there.
    pub is_mount: bool,
    pub is_device: bool,
    /// The allocation may not write.
    pub read_only: bool,
}

/// What is mounted for an allocation, by the names in its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedVolumes(pub BTreeMap<String, MountedVolume>);

pub(super) struct CsiHook {
    csi: Arc<Csi>,
    volumes: Vec<ClaimRequest>,
}

impl CsiHook {
    pub(super) fn new(csi: &Arc<Csi>, volumes: Vec<ClaimRequest>) -> Self {
        let csi = Arc::clone(csi);
        Self { csi, volumes }
    }

    fn hold(&self, given: &AllocGiven, held: &BTreeMap<String, MountedVolume>) {
        given.resources.change(|volumes: &mut MountedVolumes| {
            volumes
                .0
                .extend(held.iter().map(|(name, one)| (name.clone(), one.clone())));
        });
    }

    /// All of them at once: each may take its plugin a while.
    async fn bring_all(
        &self,
        given: &AllocGiven,
    ) -> Result<BTreeMap<String, MountedVolume>, String> {
        let each = self.volumes.iter().map(|requested| async {
            let held = self.bring(given, requested).await?;
            Ok::<_, String>((requested.name.clone(), held))
        });
        // With the first that fails for good the others need not be waited for.
        let all = futures_util::future::try_join_all(each).await?;
        Ok(all.into_iter().collect())
    }

    /// Takes back what the servers, which know of no claim any more, did not request.
    async fn take_rest(&self, given: &AllocGiven) {
        let alloc = &given.alloc.id;
        let all = self.csi.registry.all();
        let mut seen = BTreeSet::new();
        for live in all
            .iter()
            .rev()
            .filter(|live| live.instance.kind.has(CsiPart::Node))
        {
            if live.found.identity.is_some() && seen.insert(&live.instance.plugin) {
                let is_own = |other: &str| other == alloc;
                self.csi.take_rest(live, UnmountPlan::Waits, is_own).await;
            }
        }
    }
}

impl AllocHook for CsiHook {
    fn name(&self) -> &'static str {
        "csi_hook"
    }

    fn prerun<'a>(&'a self, given: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            let held = self.bring_all(given).await?;
            self.hold(given, &held);
            let kept = serde_json::to_value(&held).map_err(|error| error.to_string())?;
            Ok(AllocAnswer::keeping(kept))
        }
        .boxed()
    }

    /// What is still mounted is used without calling a server (CL-13); what is gone, after the
    /// machine was off, is brought again.
    fn restore<'a>(&'a self, given: &'a AllocGiven, kept: &'a Value) -> Hooked<'a, ()> {
        async move {
            let held: BTreeMap<String, MountedVolume> = match kept {
                Value::Null => return Ok(()),
                kept => Deserialize::deserialize(kept)
                    .map_err(|error: serde_json::Error| error.to_string())?,
            };
            for (name, one) in held {
                let mounted = Mounted {
                    path: one.path.clone(),
                    is_mount: one.is_mount,
                    too_small: None,
                };
                let there = mounts::is_there(&mounted).await;
                let one = match there.map_err(|error| error.to_string())? {
                    true => one,
                    false => {
                        let requested =
                            self.volumes.iter().find(|requested| requested.name == name);
                        let gone = || format!("the group has no volume {name:?} any more");
                        self.bring(given, requested.ok_or_else(gone)?).await?
                    }
                };
                self.hold(given, &BTreeMap::from([(name, one)]));
            }
            Ok(())
        }
        .boxed()
    }

    fn postrun<'a>(&'a self, given: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async move {
            let each = self
                .volumes
                .iter()
                .map(|requested| self.give_back(given, requested));
            let all = futures_util::future::join_all(each).await;
            let failed: Vec<String> = all.into_iter().filter_map(Result::err).collect();
            if !failed.is_empty() {
                return Err(failed.join("; "));
            }
            self.take_rest(given).await;
            Ok(AllocAnswer::done())
        }
        .boxed()
    }
}
