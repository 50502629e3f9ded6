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
//!    that changes nothing. Whoever comes after a crash repeats at most the step that was under
//!    way, which plugins bear (CSI-34).
//! 3. A controller detaches a volume from a node only when nobody there holds it, or still has to
//!    let go of it: found in the state at that moment, while nobody attaches it there (CSI-35).
//!    What it attaches for several on one node it attaches in one way.
//! 4. What nobody answered may be done late. A claim of which an attach may still be under way is
//!    free once it is detached, and its volume is detached from there again until that has ended;
//!    where a detach may be under way, nobody attaches for a while. Both are noted with the claim,
//!    which settles (`doubt`).
//! 5. A volume that is being deleted at its provider is given to nobody, whoever leads, before the
//!    call is made and until it has ended.
//! 6. A volume that is being made larger at its provider is given to nobody meanwhile, nor while a
//!    call that nobody answered may still make it larger. That a node may have a part to do then
//!    is in the log before the call is made, and until a node that has it says that it did, or the
//!    plugin that it need not.
//! 7. A server that does not lead calls no plugin (VW-02): each call is made in the term in which
//!    it was decided, after a majority has confirmed that this server leads. Lists change nothing
//!    and are asked for by anybody.

mod claim;
mod doubt;
mod grow;
#[cfg(test)]
mod grown_test;
#[cfg(test)]
pub(crate) mod harness;
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
use drover_projections::query::csi::{self, Volume};
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::{Projections, StorageError, View};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use self::doubt::Doubts;
use crate::base::clock::unix_nanos;
use crate::base::keyed::Keyed;
use crate::commands::Command;
use crate::csi_calls::{Lead, Shim};
use crate::error::{ApiError, Code};
use crate::keyring::Keyring;
use crate::proposer::{Committed, Origin};
use crate::rpc::csi::Secrets;
use crate::rpc::requested::{Reach, Unanswered};

pub use crate::csi_calls::PluginCallLimits;
pub use claim::ClaimGrant;
pub use provision::PageQuery;
pub use unpublish::Waiting;

/// A volume: its namespace and its id.
pub type Key = (String, String);
/// A claim: the volume's namespace, its id, and the allocation.
type ClaimKey = (String, String, String);

/// The way to change the state.
pub trait VolumeStore: Lead {
    /// Decides, replicates and applies a command.
    fn record(
        &self,
        command: Arc<dyn Command>,
        origin: Origin,
    ) -> BoxFuture<'_, Result<Committed, ApiError>>;
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
    /// Whether the same may succeed later. Who asks from elsewhere has the code alone, and reads it
    /// in the same way.
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

impl From<ApiError> for StepError {
    fn from(error: ApiError) -> Self {
        Self {
            step: "",
            text: error.message,
            code: error.code,
        }
    }
}

impl From<drover_projections::StorageError> for StepError {
    fn from(error: drover_projections::StorageError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<StepError> for ApiError {
    fn from(error: StepError) -> Self {
        Self::new(error.code, error.to_string())
    }
}

/// What holds a claim up.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Trouble {
    /// What is to be done next, and why it was not.
    pub error: String,
    /// When it failed first, Unix nanoseconds.
    pub since: i64,
    /// How often it failed.
    pub tries: u64,
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
    record: Arc<dyn VolumeStore>,
    shim: Shim,
    keyring: Arc<Keyring>,
    /// Who takes a volume, and who deletes it.
    taking: Keyed<Key>,
    /// Who has a volume made, registered, grown or deleted.
    making: Keyed<Key>,
    /// Who registers volumes of a plugin, from the look at their names on.
    naming: Keyed<String>,
    /// Who gives a claim back: one at a time.
    releasing: Keyed<ClaimKey>,
    /// Who attaches a volume to a node, or detaches it: namespace, id, and where it is attached.
    attaching: Keyed<ClaimKey>,
    troubles: Mutex<BTreeMap<ClaimKey, Trouble>>,
    doubts: Doubts,
    /// For how long what nobody answered may be done late.
    late: Duration,
}

impl Volumes {
    /// The volumes of the state, whose plugins are reached by `reach`.
    pub fn new(
        projections: Arc<Projections>,
        record: Arc<dyn VolumeStore>,
        reach: Arc<dyn Reach>,
        keyring: Arc<Keyring>,
    ) -> Arc<Self> {
        Self::with_limits(
            projections,
            record,
            (reach, PluginCallLimits::USUAL),
            keyring,
        )
    }

    /// The same, with limits of the caller's.
    pub fn with_limits(
        projections: Arc<Projections>,
        record: Arc<dyn VolumeStore>,
        (reach, limits): (Arc<dyn Reach>, PluginCallLimits),
        keyring: Arc<Keyring>,
    ) -> Arc<Self> {
        let (late, quiet) = (limits.late, limits.quiet);
        let lead = Arc::clone(&record);
        Arc::new(Self {
            doubts: Doubts::new((late, quiet)),
            late,
            shim: Shim::new(Arc::clone(&projections), lead, (reach, limits)),
            projections,
            record,
            keyring,
            taking: Keyed::default(),
            making: Keyed::default(),
            naming: Keyed::default(),
            releasing: Keyed::default(),
            attaching: Keyed::default(),
            troubles: Mutex::default(),
        })
    }

    /// What holds up the claims of a volume, by allocation.
    pub fn troubles(&self, (namespace, id): (&str, &str)) -> BTreeMap<String, Trouble> {
        let troubles = self.troubles.lock();
        let of = troubles
            .iter()
            .filter(|(key, _)| key.0 == namespace && key.1 == id);
        of.map(|(key, trouble)| (key.2.clone(), trouble.clone()))
            .collect()
    }

    /// All of that: namespace, volume, allocation, and what holds it up.
    pub fn all_troubles(&self, most: usize) -> Vec<(ClaimKey, Trouble)> {
        let troubles = self.troubles.lock();
        let first = troubles.iter().take(most);
        first
            .map(|(key, trouble)| (key.clone(), trouble.clone()))
            .collect()
    }

    /// Forgets what held up claims that are no more, and what is known of claims that nobody holds.
    pub fn forget(&self, (namespace, id): (&str, &str), held: &[String]) {
        let mut troubles = self.troubles.lock();
        let known = csi::volume(&self.projections.view(), (namespace, id));
        // Where it cannot be read, that is found at the next step.
        let Ok(known) = known else { return };
        let row = known.map(|volume| volume.row);
        let row = row.as_ref();
        let holds = |alloc: &str| row.is_some_and(|row| row.claim_of(alloc).is_some());
        self.doubts.keep((namespace, id), holds);
        let comes = |alloc: &str| row.is_some_and(|row| row.waits_to_be_attached(alloc));
        troubles.retain(|(of, volume, alloc), _| {
            of != namespace || volume != id || held.contains(alloc) || comes(alloc)
        });
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
            Some(id) => nodes::get(&view, id)?.zip(view.modified::<Nodes>(id)?),
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
        let turns = self.taking.len() + self.making.len() + self.naming.len();
        let turns = turns + self.releasing.len() + self.attaching.len();
        turns + self.troubles.lock().len() + self.doubts.len()
    }

    /// Forgets what held up claims of volumes other than these: of what was while another server
    /// led, nobody tells.
    pub fn forget_others(&self, used: &[Key]) {
        let used: BTreeSet<(&str, &str)> = used.iter().map(|(of, id)| (&**of, &**id)).collect();
        let mut troubles = self.troubles.lock();
        troubles.retain(|(of, volume, _), _| used.contains(&(of.as_str(), volume.as_str())));
    }

    fn load(&self, view: &View, (namespace, id): (&str, &str)) -> Result<Volume, StepError> {
        let volume = csi::volume(view, (namespace, id))?;
        let missing = || ApiError::refused(format!("volume not found: {id}"));
        volume.ok_or_else(missing).map_err(StepError::from)
    }

    /// A server that does not lead must not change anything outside.
    fn must_lead(&self) -> Result<(), StepError> {
        match self.record.term() {
            Some(term) => {
                self.doubts.leads(term);
                Ok(())
            }
            None => Err(ApiError::no_leader().into()),
        }
    }

    /// The secrets of a volume, in clear.
    fn secrets(&self, volume: &Volume) -> Result<Secrets, StepError> {
        let row = &volume.row.volume;
        let place = (row.namespace.as_str(), row.id.as_str());
        let opened = self.keyring.open_volume_secrets(place, &row.secrets);
        let opened = opened.map_err(|error| ApiError::internal(error.to_string()))?;
        let clear = opened
            .into_iter()
            .map(|(name, secret)| (name, secret.to_string()));
        Ok(Secrets(clear.collect()))
    }
}

/// Keeps why a claim comes no further; forgets it when it does.
fn remember(troubles: &mut BTreeMap<ClaimKey, Trouble>, key: ClaimKey, error: Option<&StepError>) {
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

/// Whether a claim still keeps its volume attached to its node.
fn keeps_attached(claim: &CsiVolumeClaimed) -> bool {
    state::rank(claim.state) < state::rank(state::CONTROLLER_DETACHED)
}

/// Where a claim has its volume attached: what the plugin calls the node, for two of the cluster's
/// nodes may be one to it, where a machine came back as a new node.
fn place(claim: &CsiVolumeClaimed) -> &str {
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

/// Nothing, where a map is nil.
fn filled(map: &Map<String>) -> Map<String> {
    map.iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
