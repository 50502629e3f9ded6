//! The plugins that run on this node as tasks (MOD-08).
//!
//! Several of one name may run at once, during an update: the newest healthy one is called. They
//! are in the journal, with what was reported of them to the servers, so that after a restart of
//! the agent volumes can be used, and placed, before every task has been found again; a plugin that
//! runs no more takes itself out.

use std::sync::Arc;

use drover_csi::Plugin;
use drover_events::model::CsiInfo;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::describe::reported;
pub use super::instance::{CsiPart, Instance, PluginKind, PluginProbe};
use crate::journal::{Journal, alloc_key};

/// Where the journal has them.
const KEY: &str = "dynamicplugins/registry_state";

/// A plugin that is registered.
#[derive(Clone)]
pub struct Live {
    /// Its task.
    pub instance: Instance,
    /// The way to it.
    pub plugin: Plugin,
    /// What it reported.
    pub found: PluginProbe,
    /// What was reported of it before this agent began; of use until the plugin has answered.
    pub(super) former: PluginReport,
}

/// What is reported to the servers of a plugin's parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PluginReport {
    #[serde(default)]
    pub controller: Option<CsiInfo>,
    #[serde(default)]
    pub node: Option<CsiInfo>,
}

/// A plugin in the journal.
#[derive(Serialize, Deserialize)]
struct JournaledPlugin {
    #[serde(flatten)]
    instance: Instance,
    /// Nothing of those that older agents wrote.
    #[serde(default, rename = "told")]
    reported: PluginReport,
}

/// The plugins of this node, in the order in which they came.
pub struct Registry {
    journal: Arc<dyn Journal>,
    live: Mutex<Vec<Live>>,
}

impl Registry {
    /// Those of a former agent whose allocations are still known. Call it inside of a runtime.
    pub fn restore(journal: Arc<dyn Journal>) -> Self {
        let kept = journal.load();
        let plugins = kept.get(KEY).map(|bytes| rmp_serde::from_slice(bytes));
        let plugins: Vec<JournaledPlugin> = match plugins {
            Some(Ok(plugins)) => plugins,
            // They take themselves in again when their tasks are found.
            Some(Err(error)) => {
                tracing::warn!("the plugins of a former agent cannot be read: {error}");
                Vec::new()
            }
            None => Vec::new(),
        };
        let known =
            |plugin: &JournaledPlugin| kept.contains_key(&alloc_key(&plugin.instance.alloc));
        let live = plugins.into_iter().filter(known).map(|kept| Live {
            plugin: Plugin::at(&kept.instance.socket),
            found: PluginProbe::default(),
            instance: kept.instance,
            former: kept.reported,
        });
        Self {
            live: Mutex::new(live.collect()),
            journal,
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<Live> {
        self.live.lock().clone()
    }

    /// Those of a name that have a part: healthy ones first, and of those the newest.
    pub fn find(&self, part: CsiPart, plugin: &str) -> Vec<Live> {
        let live = self.live.lock();
        let of_name = |live: &&Live| live.instance.plugin == plugin && live.instance.kind.has(part);
        let mut all: Vec<Live> = live.iter().rev().filter(of_name).cloned().collect();
        all.sort_by_key(|live| !live.found.healthy);
        all
    }

    /// A plugin can be used, from now on: it is the newest. It is the same one if its task was
    /// registered before, and then keeps its place.
    pub async fn register(&self, instance: Instance, plugin: Plugin, found: PluginProbe) {
        let news = Live {
            instance,
            plugin,
            found,
            former: PluginReport::default(),
        };
        let written = {
            let mut live = self.live.lock();
            let instance = &news.instance;
            let same = |live: &&mut Live| live.instance.is_of(&instance.alloc, &instance.task);
            match live.iter_mut().find(same) {
                Some(known) => *known = news,
                None => live.push(news),
            }
            self.kept(&live)
        };
        warn(written.await);
    }

    /// How a plugin is has changed; whether it is registered.
    pub async fn update(&self, (alloc, task): (&str, &str), found: PluginProbe) -> bool {
        let written = {
            let mut live = self.live.lock();
            let mut known = live.iter_mut();
            let Some(known) = known.find(|live| live.instance.is_of(alloc, task)) else {
                return false;
            };
            known.found = found;
            self.kept(&live)
        };
        warn(written.await);
        true
    }

    /// A plugin runs no more; whether it was registered.
    pub async fn deregister(&self, alloc: &str, task: &str) -> bool {
        let written = {
            let mut live = self.live.lock();
            let at = live
                .iter()
                .position(|live| live.instance.is_of(alloc, task));
            let Some(at) = at else { return false };
            live.remove(at);
            self.kept(&live)
        };
        warn(written.await);
        true
    }

    fn kept(&self, live: &[Live]) -> impl Future<Output = Result<(), String>> + use<> {
        let of = |live: &Live| JournaledPlugin {
            instance: live.instance.clone(),
            reported: PluginReport {
                controller: reported(live, CsiPart::Controller),
                node: reported(live, CsiPart::Node),
            },
        };
        let plugins: Vec<JournaledPlugin> = live.iter().map(of).collect();
        let bytes = rmp_serde::to_vec_named(&plugins).expect("plugins are plain values");
        let written = self.journal.put(KEY, bytes);
        async move { written.await.map_err(|error| error.to_string()) }
    }
}

fn warn(written: Result<(), String>) {
    if let Err(error) = written {
        // What is in memory is right; the next change writes all of it.
        tracing::warn!("the plugins of this node are not durable: {error}");
    }
}
