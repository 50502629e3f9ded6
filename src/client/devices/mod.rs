//! The device manager (MOD-07): plugins that are files in `plugin_dir` report which devices a node
//! has, make them ready for tasks, and measure them.
//!
//! `supervise` keeps each plugin running, `start` is one run of its process, `describe` puts what
//! it reports into the node, `hook` gives devices to tasks.
//!
//! Invariants:
//! - No two processes of one plugin run: a process that is to be started has an id of its own in
//!   the journal before it is, and processes with the id of a former run are ended first.
//! - A plugin that died takes no device with it: they stay known, unhealthy, until it is back.
//!   Those of a former agent's plugin stay what they were until it answered this one, or did not.

mod describe;
mod hook;
mod start;
mod supervise;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{
    AllocResourceUsage, AllocatedDeviceResource, Allocation, DeviceGroupStats, Node,
    NodeDeviceResource, ResourceUsage,
};
use drover_plugins::Plugin;
use drover_plugins::proto::device::ContainerReservation;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::config::ClientSettings;
use super::hooks::task::TaskHook;
use super::hooks::task::list::MakeTaskHook;
use super::journal::Journal;
use super::volumes::host::executables;
use drover_config::PluginConfig;

/// What keys in the journal begin with.
const KEY: &str = "devices/";
/// What they end in, and what no name has in it: what is forgotten of one is nothing of another.
const END_OF_NAME: char = '/';
/// How long a task waits for a plugin that is just starting.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long plugins may take to end when the agent does.
const END: Duration = Duration::from_secs(1);

/// What the journal keeps of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct JournaledPlugin {
    /// The id of its last run, which is in the environment of that run's processes.
    #[serde(rename = "mark")]
    run_id: String,
    groups: Vec<NodeDeviceResource>,
}

/// What is known of a plugin.
#[derive(Default)]
struct PluginState {
    kept: JournaledPlugin,
    /// The process that answers.
    live: Option<Plugin>,
    /// What it measured last.
    figures: Vec<DeviceGroupStats>,
}

/// The plugins of a node, and their devices.
pub struct Devices {
    /// The files, by name.
    files: BTreeMap<String, PathBuf>,
    /// Their settings in the configuration.
    configs: BTreeMap<String, PluginConfig>,
    /// Their environment.
    env: BTreeMap<String, String>,
    /// How often they measure.
    interval: Duration,
    node: Arc<Mutex<Arc<Node>>>,
    journal: Arc<dyn Journal>,
    /// By name.
    known: Mutex<BTreeMap<String, PluginState>>,
    /// Something of what is known is another.
    changed: watch::Sender<()>,
    /// The node is described otherwise than before.
    described: Notify,
    /// The agent ends.
    ending: watch::Sender<bool>,
    followers: TaskTracker,
}

impl Devices {
    /// What a client with these settings has. Devices of a former agent are known again.
    ///
    /// # Errors
    /// A plugin has settings, and there is no file of its name.
    pub fn restore(
        settings: &ClientSettings,
        node: &Arc<Mutex<Arc<Node>>>,
        journal: &Arc<dyn Journal>,
    ) -> Result<Arc<Self>, String> {
        let files: BTreeMap<_, _> = executables(&settings.plugin_dir).into_iter().collect();
        let configs = settings.plugins.iter();
        let configs: BTreeMap<_, _> = configs
            .filter(|(name, _)| PluginConfig::is_file(name))
            .map(|(name, config)| (name.clone(), config.clone()))
            .collect();
        if let Some(name) = configs.keys().find(|name| !files.contains_key(*name)) {
            let folder = settings.plugin_dir.display();
            return Err(format!(
                "plugin {name:?} has settings, but there is no driver of that name, and no \
                 executable in {folder}"
            ));
        }
        let known = kept(&**journal).into_iter().map(|(name, kept)| {
            let known = PluginState {
                kept,
                ..PluginState::default()
            };
            (name, known)
        });
        let devices = Self {
            configs,
            env: settings.host_env.clone(),
            interval: settings.collection_interval.max(Duration::from_secs(1)),
            node: Arc::clone(node),
            journal: Arc::clone(journal),
            known: Mutex::new(known.collect()),
            changed: watch::Sender::default(),
            described: Notify::new(),
            ending: watch::Sender::new(false),
            followers: TaskTracker::new(),
            files,
        };
        devices.describe();
        Ok(Arc::new(devices))
    }

    /// Keeps all plugins running; ends when there are no plugins, or when [`Devices::end`] is
    /// called.
    pub async fn keep(self: Arc<Self>) {
        let mut all = JoinSet::new();
        for (name, file) in self.files.clone() {
            let follower = Arc::clone(&self).follow(name, file);
            all.spawn(self.followers.track_future(follower));
        }
        self.followers.close();
        let known: Vec<String> = self.known.lock().keys().cloned().collect();
        for name in known.iter().filter(|name| !self.files.contains_key(*name)) {
            self.forget(name).await;
        }
        while all.join_next().await.is_some() {}
    }

    /// Ends all plugins, and waits for that a while.
    pub async fn end(&self) {
        self.ending.send_replace(true);
        if timeout(END + END, self.followers.wait()).await.is_err() {
            tracing::warn!("plugins of devices do not end");
        }
    }

    /// Waits until the node is described otherwise than before.
    pub async fn described(&self) {
        self.described.notified().await;
    }

    /// The hook that gives devices to tasks that request some.
    pub fn task_hook(self: &Arc<Self>) -> MakeTaskHook {
        let devices = Arc::clone(self);
        Arc::new(move |_, task| {
            let resources = task.resources.as_ref()?;
            let hook = hook::Reserve(Arc::clone(&devices));
            (!resources.devices.is_empty()).then(|| Box::new(hook) as Box<dyn TaskHook>)
        })
    }

    /// Makes devices ready for a task; what it needs to use them. A plugin that is just starting is
    /// waited for.
    ///
    /// # Errors
    /// No plugin has them, or it does not give them.
    pub async fn reserve(
        &self,
        wanted: &AllocatedDeviceResource,
    ) -> Result<ContainerReservation, String> {
        let mut changed = self.changed.subscribe();
        let found = async {
            loop {
                if let Some(plugin) = self.having(wanted) {
                    return plugin;
                }
                // The sender is part of this very value.
                let _ = changed.changed().await;
            }
        };
        let name = || describe::full_name(&wanted.vendor, &wanted.r#type, &wanted.name);
        let nobody = |_| format!("no plugin that runs here has the device {}", name());
        let plugin = timeout(PATIENCE, found).await.map_err(nobody)?;
        let reserved = plugin.reserve(wanted.device_ids.to_vec()).await;
        reserved.map_err(|error| format!("device {}: {error}", name()))
    }

    /// The plugin that has all of these devices.
    fn having(&self, wanted: &AllocatedDeviceResource) -> Option<Plugin> {
        let has = |group: &NodeDeviceResource| {
            let ids = |id: &String| group.instances.iter().any(|one| one.id == *id);
            let names = [&group.vendor, &group.r#type, &group.name];
            names == [&wanted.vendor, &wanted.r#type, &wanted.name]
                && wanted.device_ids.iter().all(ids)
        };
        let known = self.known.lock();
        let mut live = known.values().filter(|one| one.kept.groups.iter().any(has));
        live.find_map(|one| one.live.clone())
    }

    /// What all devices did.
    pub fn figures(&self) -> Vec<DeviceGroupStats> {
        let known = self.known.lock();
        known.values().flat_map(|one| one.figures.clone()).collect()
    }

    /// Adds what the devices of an allocation did to what it uses.
    pub fn add_figures(&self, alloc: &Allocation, usage: &mut AllocResourceUsage) {
        let Some(allocated) = &alloc.allocated_resources else {
            return;
        };
        let mut all = Vec::new();
        for (name, task) in usage.tasks.to_mut() {
            let given = allocated.tasks.get(name);
            let given = given.into_iter().flat_map(|task| task.devices.iter());
            let figures: Vec<_> = given.filter_map(|one| self.figures_of(one)).collect();
            if figures.is_empty() {
                continue;
            }
            all.extend(figures.iter().cloned());
            let usage = task
                .resource_usage
                .get_or_insert_with(ResourceUsage::default);
            usage.device_stats = figures.into();
        }
        if let (false, Some(usage)) = (all.is_empty(), &mut usage.resource_usage) {
            usage.device_stats = all.into();
        }
    }

    fn figures_of(&self, given: &AllocatedDeviceResource) -> Option<DeviceGroupStats> {
        let known = self.known.lock();
        let mut groups = known.values().flat_map(|one| &one.figures);
        let group = groups.find(|group| {
            [&group.vendor, &group.r#type, &group.name]
                == [&given.vendor, &given.r#type, &given.name]
        })?;
        let of = |id: &String| Some((id.clone(), group.instance_stats.get(id)?.clone()));
        Some(DeviceGroupStats {
            instance_stats: given.device_ids.iter().filter_map(of).collect(),
            ..group.clone()
        })
    }
}

/// Where the journal keeps what it knows of a plugin.
fn key(name: &str) -> String {
    format!("{KEY}{name}{END_OF_NAME}")
}

/// What the journal knows of plugins.
fn kept(journal: &dyn Journal) -> BTreeMap<String, JournaledPlugin> {
    let mut out = BTreeMap::new();
    for (key, bytes) in journal.load().range(KEY.to_owned()..) {
        let Some(rest) = key.strip_prefix(KEY) else {
            break;
        };
        let name = rest.strip_suffix(END_OF_NAME).unwrap_or(rest);
        match rmp_serde::from_slice(bytes) {
            Ok(kept) => _ = out.insert(name.to_owned(), kept),
            Err(error) => tracing::error!(key, "cannot be restored: {error}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::LogJournal;

    #[tokio::test]
    async fn a_plugin_that_is_forgotten_takes_none_with_it_whose_name_begins_so() {
        let tmp = tempfile::tempdir().unwrap();
        let (journal, _) = LogJournal::open(tmp.path()).unwrap();
        let journal: Arc<dyn Journal> = Arc::new(journal);
        let node = Arc::default();
        let devices = Devices::restore(&ClientSettings::default(), &node, &journal).unwrap();
        let group = NodeDeviceResource {
            name: "card".to_owned(),
            ..NodeDeviceResource::default()
        };
        let known = JournaledPlugin {
            run_id: String::new(),
            groups: vec![group],
        };
        for name in ["gpu", "gpu-1.1"] {
            devices.keep_known(name, known.clone(), None).await.unwrap();
        }
        devices.forget("gpu").await;
        let left = BTreeMap::from([("gpu-1.1".to_owned(), known)]);
        assert_eq!(kept(&*journal), left);
    }
}
