//! The plugins that run on this node as tasks (MOD-08).
//!
//! Several of one name may run at once, during an update: the newest healthy one is asked. They are
//! in the journal, so that after a restart of the agent volumes can be used before every task has
//! been found again; whoever runs no more takes itself out.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use drover_csi::Plugin;
use drover_csi::features::Features;
use drover_csi::{Identity, NodeInfo};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::client::alloc::runner::alloc_key;
use crate::client::journal::Journal;

/// Where the journal has them.
const KEY: &str = "dynamicplugins/registry_state";
/// Changes that a slow subscriber may not have heard yet.
const UNHEARD: usize = 64;

/// What a plugin's task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It attaches volumes to nodes.
    Controller,
    /// It brings them to allocations of this node.
    Node,
    /// Both.
    Monolith,
}

impl Kind {
    /// The word of a job.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "controller" => Some(Self::Controller),
            "node" => Some(Self::Node),
            "monolith" => Some(Self::Monolith),
            _ => None,
        }
    }

    /// The word of a job.
    pub fn word(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
            Self::Monolith => "monolith",
        }
    }

    /// Whether it has a part.
    pub fn has(self, part: Part) -> bool {
        match part {
            Part::Controller => self != Self::Node,
            Part::Node => self != Self::Controller,
        }
    }
}

/// A part of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The controller.
    Controller,
    /// The node part.
    Node,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "controller",
            Self::Node => "node",
        })
    }
}

/// A task that is a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The plugin's name.
    pub plugin: String,
    /// What it is.
    pub kind: Kind,
    /// Its allocation.
    pub alloc: String,
    /// Its task.
    pub task: String,
    /// Where it listens.
    pub socket: PathBuf,
    /// Where its volumes are on this node.
    pub host: PathBuf,
    /// The same folder as the plugin sees it.
    pub seen: PathBuf,
}

impl Instance {
    fn is_of(&self, alloc: &str, task: &str) -> bool {
        self.alloc == alloc && self.task == task
    }
}

/// What a plugin said of itself, and how it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Who it is; none before it answered.
    pub identity: Option<Identity>,
    /// What it can.
    pub features: Features,
    /// Where its node part runs.
    pub node: Option<NodeInfo>,
    /// It answers, and says that it is ready.
    pub healthy: bool,
    /// Why it is not.
    pub trouble: String,
    /// When that began, unix nanoseconds.
    pub since: i64,
}

/// A plugin that is registered.
#[derive(Clone)]
pub struct Live {
    /// Its task.
    pub instance: Instance,
    /// The way to it.
    pub plugin: Plugin,
    /// What it said.
    pub found: Found,
}

/// What happens to plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// One can be used, or runs in another way than before.
    Registered(Instance),
    /// One runs no more.
    Deregistered(Instance),
}

/// The plugins of this node, in the order in which they came.
pub struct Registry {
    journal: Arc<dyn Journal>,
    live: Mutex<Vec<Live>>,
    changes: broadcast::Sender<Change>,
}

impl Registry {
    /// Those of a former agent whose allocations are still known. Call it inside of a runtime.
    pub fn restore(journal: Arc<dyn Journal>) -> Self {
        let kept = journal.load();
        let instances = kept.get(KEY).map(|bytes| rmp_serde::from_slice(bytes));
        let instances: Vec<Instance> = match instances {
            Some(Ok(instances)) => instances,
            // They take themselves in again when their tasks are found.
            Some(Err(error)) => {
                tracing::warn!("the plugins of a former agent cannot be read: {error}");
                Vec::new()
            }
            None => Vec::new(),
        };
        let known = |instance: &Instance| kept.contains_key(&alloc_key(&instance.alloc));
        let live = instances.into_iter().filter(known).map(|instance| Live {
            plugin: Plugin::at(&instance.socket),
            found: Found::default(),
            instance,
        });
        Self {
            live: Mutex::new(live.collect()),
            journal,
            changes: broadcast::Sender::new(UNHEARD),
        }
    }

    /// Hears of every change from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Live> {
        self.live.lock().clone()
    }

    /// The newest of a name that has a part, healthy ones first.
    pub fn find(&self, part: Part, plugin: &str) -> Option<Live> {
        let live = self.live.lock();
        let of_name = |live: &&Live| live.instance.plugin == plugin && live.instance.kind.has(part);
        let mut all = live.iter().rev().filter(of_name);
        let newest = all.clone().next();
        all.find(|live| live.found.healthy).or(newest).cloned()
    }

    /// A plugin can be used, from now on: it is the newest. It is the same one if its task was
    /// registered before, and then keeps its place.
    pub async fn register(&self, instance: Instance, plugin: Plugin, found: Found) {
        let news = Live {
            instance: instance.clone(),
            plugin,
            found,
        };
        let written = {
            let mut live = self.live.lock();
            let same = |live: &&mut Live| live.instance.is_of(&instance.alloc, &instance.task);
            match live.iter_mut().find(same) {
                Some(known) => *known = news,
                None => live.push(news),
            }
            self.kept(&live)
        };
        self.told(written.await, Change::Registered(instance));
    }

    /// How a plugin is has changed; whether it is registered.
    pub fn update(&self, (alloc, task): (&str, &str), found: Found) -> bool {
        let mut live = self.live.lock();
        let known = live
            .iter_mut()
            .find(|live| live.instance.is_of(alloc, task));
        let known = known.map(|live| live.found = found);
        known.is_some()
    }

    /// A plugin runs no more; whether it was registered.
    pub async fn deregister(&self, alloc: &str, task: &str) -> bool {
        let (gone, written) = {
            let mut live = self.live.lock();
            let at = live
                .iter()
                .position(|live| live.instance.is_of(alloc, task));
            let Some(at) = at else { return false };
            let gone = live.remove(at);
            (gone.instance, self.kept(&live))
        };
        self.told(written.await, Change::Deregistered(gone));
        true
    }

    fn kept(&self, live: &[Live]) -> impl Future<Output = Result<(), String>> + use<> {
        let instances: Vec<&Instance> = live.iter().map(|live| &live.instance).collect();
        let bytes = rmp_serde::to_vec_named(&instances).expect("instances are plain values");
        let written = self.journal.put(KEY, bytes);
        async move { written.await.map_err(|error| error.to_string()) }
    }

    fn told(&self, written: Result<(), String>, change: Change) {
        if let Err(error) = written {
            // What is in memory is right; the next change writes all of it.
            tracing::warn!("the plugins of this node are not durable: {error}");
        }
        // Nobody need listen.
        let _ = self.changes.send(change);
    }
}
