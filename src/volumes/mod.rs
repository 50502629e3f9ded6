//! CSI volumes at work: what has to be done at plugins so that what the state says becomes true.
//!
//! An allocation takes a volume (`claim`), gives it back step by step (`unpublish`), an
//! operator has one made, grown or deleted (`provision`). The state is the tables'; every change
//! of it is a command, and every call to a plugin goes through one place
//! ([`csi_calls`](crate::csi_calls)). Clients, operators and the volume watcher all call the same
//! functions (VW-06).
//!
//! It must not know: HTTP, sessions ([`Reach`] is the way to a client), how events are replicated
//! ([`VolumeStore`]).
//!
//! Invariants:
//! 1. A volume is claimed in the log before its controller attaches it, so two writers never come
//!    to the plugin at once (CSI-24).
//! 2. A step is recorded after its call succeeded, never before (CSI-31), and nothing is recorded
//!    that changes nothing. The next call after a crash repeats at most the step that was under
//!    way, which plugins bear (CSI-34).
//! 3. A controller detaches a volume from a node only when no allocation there holds it, or still
//!    has to let go of it: found in the state at that moment, while no call attaches it there
//!    (CSI-35). What it attaches for several on one node it attaches in one way.
//! 4. A call without an answer may be done late. A claim of which an attach may still be under way
//!    is free once it is detached, and its volume is detached from there again until that has
//!    ended; where a detach may be under way, no call attaches for a while. Both are noted with the
//!    claim, whose detach is unconfirmed (`in_doubt`).
//! 5. A volume that is being deleted at its provider is given to no allocation, whichever server
//!    leads, before the call is made and until it has ended.
//! 6. A volume that is being made larger at its provider is given to no allocation meanwhile, nor
//!    while a call without an answer may still make it larger. That a node may have a part to do
//!    then is in the log before the call is made, and until a node that has it says that it did, or
//!    the plugin that it need not.
//! 7. A server that does not lead calls no plugin (VW-02): each call is made in the term in which
//!    it was decided, after a majority has confirmed that this server leads. Lists change nothing
//!    and are made on every server.

mod claim;
mod grow;
#[cfg(test)]
mod grown_test;
#[cfg(test)]
pub(crate) mod harness;
mod in_doubt;
#[cfg(test)]
mod late_test;
#[cfg(test)]
mod lines_test;
mod made;
#[cfg(test)]
mod model_test;
mod provision;
#[cfg(test)]
mod servers_test;
#[cfg(test)]
mod steps_test;
#[cfg(test)]
mod storage;
#[cfg(test)]
pub(crate) mod testing;
mod unpublish;
#[cfg(test)]
mod volumes_test;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_events::csi::{CsiVolumeClaimed, state};
use drover_events::gojson::Map;
use drover_events::model::CsiVolumeKey;
use drover_projections::query::csi::{self, Volume};
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::{Projections, StorageError, View};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use self::in_doubt::InDoubtCalls;
use crate::base::clock::unix_nanos;
use crate::base::keyed_locks::KeyedLocks;
use crate::commands::Command;
use crate::csi_calls::{Lead, PluginCalls};
use crate::error::{Code, Refusal};
use crate::keyring::Keyring;
use crate::proposer::{Committed, Origin};
use crate::rpc::client_calls::{Reach, Unanswered};
use crate::rpc::csi::Secrets;

pub use crate::csi_calls::PluginCallLimits;
pub use claim::ClaimGrant;

/// A claim: the volume's namespace, its id, and the allocation.
type ClaimKey = (String, String, String);

/// Stands for the allocation in the key of a deletion, which belongs to none.
const DELETION_KEY: &str = "";

/// The way to change the state.
pub trait VolumeStore: Lead {
    /// Decides, replicates and applies a command.
    fn submit(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> BoxFuture<'_, Result<Committed, Refusal>>;
}

/// Why a step was not done, by the name of the step (PLG-10).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}{text}")]
pub struct StepError {
    /// The step, as a text begins; empty where none was begun.
    pub step: &'static str,
    /// Why: a plugin's own text, mostly.
    pub text: String,
    /// The kind of the refusal.
    pub code: Code,
}

impl StepError {
    /// Whether the same may succeed later. A caller on another agent has the code alone, and reads
    /// it in the same way.
    pub fn is_recoverable(&self) -> bool {
        !self.code.lasts()
    }

    fn of(step: &'static str) -> impl Fn(Unanswered) -> Self {
        move |error| Self {
            step,
            code: match (&error, error.is_recoverable()) {
                (Unanswered::Refused(error), true) if error.code == Code::NoLeader => error.code,
                (_, true) => Code::Unavailable,
                (_, false) => Code::Refused,
            },
            text: error.to_string(),
        }
    }
}

impl From<Refusal> for StepError {
    fn from(error: Refusal) -> Self {
        Self {
            step: "",
            text: error.message,
            code: error.code,
        }
    }
}

impl From<drover_projections::StorageError> for StepError {
    fn from(error: drover_projections::StorageError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<StepError> for Refusal {
    fn from(error: StepError) -> Self {
        Self::new(error.code, error.to_string())
    }
}

/// The last error of a claim's next step.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LastError {
    /// What is to be done next, and why it was not.
    pub error: String,
    /// When it failed first, Unix nanoseconds.
    pub since: i64,
    /// How often it failed.
    pub tries: u64,
}

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default)]
pub struct PageQuery {
    /// How many at most; 0 for as many as there are.
    pub most: i32,
    /// Where it begins.
    pub token: String,
}

/// The part of a volume that waits to be given back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingRelease {
    /// The claim of an allocation, by its id.
    Claim(String),
    /// The volume: it was to be deleted.
    Deletion,
}

impl PendingRelease {
    /// The allocation whose claim it is; empty for a deletion.
    pub fn alloc(&self) -> &str {
        match self {
            Self::Claim(alloc) => alloc,
            Self::Deletion => DELETION_KEY,
        }
    }
}

/// What the next step of a claim needs: where it is another than at the last try, the step may be
/// possible now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// The index at which the claim's node described itself last, and its status.
    node: Option<(u64, String)>,
    /// How many controllers of the plugin are healthy, and how many nodes.
    plugin: Option<(i64, i64)>,
}

/// The volumes of one server.
pub struct Volumes {
    projections: Arc<Projections>,
    commands: Arc<dyn VolumeStore>,
    plugin_calls: PluginCalls,
    keyring: Arc<Keyring>,
    /// Held while a volume is claimed or deleted.
    claim_locks: KeyedLocks<CsiVolumeKey>,
    /// Held while a volume is created, registered, expanded or deleted.
    provision_locks: KeyedLocks<CsiVolumeKey>,
    /// Held while volumes of a plugin are registered, from the check of their names on.
    plugin_locks: KeyedLocks<String>,
    /// Held while a claim is released.
    release_locks: KeyedLocks<ClaimKey>,
    /// Held while a volume is attached to a node or detached from it: namespace, id, and where it
    /// is attached.
    attach_locks: KeyedLocks<ClaimKey>,
    last_errors: Mutex<BTreeMap<ClaimKey, LastError>>,
    in_doubt: InDoubtCalls,
    /// For how long a call without an answer may still be executed.
    max_call_age: Duration,
}

impl Volumes {
    /// The volumes of the state, whose plugins are reached by `reach`.
    pub fn new(
        projections: Arc<Projections>,
        commands: Arc<dyn VolumeStore>,
        reach: Arc<dyn Reach>,
        keyring: Arc<Keyring>,
    ) -> Arc<Self> {
        Self::with_limits(
            projections,
            commands,
            (reach, PluginCallLimits::USUAL),
            keyring,
        )
    }

    /// The same, with limits of the caller's.
    pub fn with_limits(
        projections: Arc<Projections>,
        commands: Arc<dyn VolumeStore>,
        (reach, limits): (Arc<dyn Reach>, PluginCallLimits),
        keyring: Arc<Keyring>,
    ) -> Arc<Self> {
        let (max_call_age, quiet) = (limits.late, limits.quiet);
        let lead = Arc::clone(&commands);
        Arc::new(Self {
            in_doubt: InDoubtCalls::new((max_call_age, quiet)),
            max_call_age,
            plugin_calls: PluginCalls::new(Arc::clone(&projections), lead, (reach, limits)),
            projections,
            commands,
            keyring,
            claim_locks: KeyedLocks::default(),
            provision_locks: KeyedLocks::default(),
            plugin_locks: KeyedLocks::default(),
            release_locks: KeyedLocks::default(),
            attach_locks: KeyedLocks::default(),
            last_errors: Mutex::default(),
        })
    }

    /// The last errors of the claims of a volume, by allocation.
    pub fn last_errors(&self, (namespace, id): (&str, &str)) -> BTreeMap<String, LastError> {
        let last_errors = self.last_errors.lock();
        let of = last_errors
            .iter()
            .filter(|(key, _)| key.0 == namespace && key.1 == id);
        of.map(|(key, last_error)| (key.2.clone(), last_error.clone()))
            .collect()
    }

    /// All of them: namespace, volume, allocation, and the error.
    pub fn all_last_errors(&self, most: usize) -> Vec<(ClaimKey, LastError)> {
        let last_errors = self.last_errors.lock();
        let first = last_errors.iter().take(most);
        first
            .map(|(key, last_error)| (key.clone(), last_error.clone()))
            .collect()
    }

    /// Forgets, of a volume of which nothing waits to be given back, the errors of claims that do
    /// not wait to be attached, and what is known of claims that no allocation holds.
    pub fn forget(&self, (namespace, id): (&str, &str)) {
        let mut last_errors = self.last_errors.lock();
        let known = csi::volume(&self.projections.view(), (namespace, id));
        // Where it cannot be read, that is found at the next step.
        let Ok(known) = known else { return };
        let row = known.map(|volume| volume.row);
        let row = row.as_ref();
        let holds = |alloc: &str| row.is_some_and(|row| row.claim_of(alloc).is_some());
        self.in_doubt.retain((namespace, id), holds);
        let comes = |alloc: &str| row.is_some_and(|row| row.waits_to_be_attached(alloc));
        last_errors
            .retain(|(of, volume, alloc), _| of != namespace || volume != id || comes(alloc));
    }

    /// What a claim needs to be given back, as it is now.
    ///
    /// # Errors
    /// What the tables say.
    pub fn signs(&self, key: (&str, &str), alloc: &str) -> Result<Signs, StorageError> {
        let view = self.projections.view();
        let Some(row) = view.get::<CsiVolumes>(key)? else {
            return Ok(Signs::default());
        };
        let plugin = view.get::<CsiPlugins>(row.volume.plugin_id.as_str())?;
        let plugin = plugin.map(|row| row.plugin);
        let volume = csi::repaired(&row);
        let node = volume.claim_of(alloc).map(|claim| claim.node_id.as_str());
        let node = match node {
            Some(id) => nodes::get(&view, id)?.zip(view.modify_index::<Nodes>(id)?),
            None => None,
        };
        Ok(Signs {
            node: node.map(|(node, at)| (at, node.status.clone())),
            plugin: plugin.map(|plugin| (plugin.controllers_healthy, plugin.nodes_healthy)),
        })
    }

    /// How much it keeps in memory of volumes, claims and turns.
    #[cfg(test)]
    pub(crate) fn remembers(&self) -> usize {
        let turns = self.claim_locks.len() + self.provision_locks.len() + self.plugin_locks.len();
        let turns = turns + self.release_locks.len() + self.attach_locks.len();
        turns + self.last_errors.lock().len() + self.in_doubt.len()
    }

    /// Forgets the errors of claims of volumes other than these: no event reports what changed
    /// while another server led.
    pub fn forget_others(&self, used: &[CsiVolumeKey]) {
        let used: BTreeSet<(&str, &str)> = used.iter().map(|(of, id)| (&**of, &**id)).collect();
        let mut last_errors = self.last_errors.lock();
        last_errors.retain(|(of, volume, _), _| used.contains(&(of.as_str(), volume.as_str())));
    }

    fn load(&self, view: &View, (namespace, id): (&str, &str)) -> Result<Volume, StepError> {
        let volume = csi::volume(view, (namespace, id))?;
        let missing = || Refusal::by_rule(format!("volume not found: {id}"));
        volume.ok_or_else(missing).map_err(StepError::from)
    }

    /// A server that does not lead must not change anything outside.
    fn must_lead(&self) -> Result<(), StepError> {
        match self.commands.term() {
            Some(term) => {
                self.in_doubt.enter_term(term);
                Ok(())
            }
            None => Err(Refusal::no_leader().into()),
        }
    }

    /// The secrets of a volume, in clear.
    fn secrets(&self, volume: &Volume) -> Result<Secrets, StepError> {
        let row = &volume.row.volume;
        let volume_key = (row.namespace.as_str(), row.id.as_str());
        let opened = self.keyring.open_volume_secrets(volume_key, &row.secrets);
        let opened = opened.map_err(|error| Refusal::internal(error.to_string()))?;
        let clear = opened
            .into_iter()
            .map(|(name, secret)| (name, secret.to_string()));
        Ok(Secrets(clear.collect()))
    }
}

/// Stores the last error of a claim; removes it where there is none.
fn set_last_error(
    last_errors: &mut BTreeMap<ClaimKey, LastError>,
    key: ClaimKey,
    error: Option<&StepError>,
) {
    let Some(error) = error else {
        last_errors.remove(&key);
        return;
    };
    let last_error = last_errors.entry(key).or_insert_with(|| LastError {
        error: String::new(),
        since: unix_nanos(),
        tries: 0,
    });
    last_error.error = error.to_string();
    last_error.tries += 1;
}

/// Whether a claim still keeps its volume attached to its node.
fn keeps_attached(claim: &CsiVolumeClaimed) -> bool {
    state::rank(claim.state) < state::rank(state::CONTROLLER_DETACHED)
}

/// Where a claim has its volume attached: what the plugin calls the node, for two of the cluster's
/// nodes may be one to it, where a machine came back as a new node.
fn attachment_node(claim: &CsiVolumeClaimed) -> &str {
    match claim.external_node_id.as_str() {
        "" => &claim.node_id,
        external => external,
    }
}

/// What a plugin calls a node; empty where the node does not say.
fn external_node(view: &View, plugin: &str, node: &str) -> Result<String, StepError> {
    let node = view.get::<Nodes>(node)?;
    let info = node
        .as_ref()
        .and_then(|node| node.csi_node_plugins.get(plugin));
    let reported = info.and_then(|info| info.node_info.as_ref());
    Ok(reported
        .map(|reported| reported.id.clone())
        .unwrap_or_default())
}

/// A copy of the map; an empty one if it is nil.
fn or_empty(map: &Map<String>) -> Map<String> {
    map.iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
