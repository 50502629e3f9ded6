//! Volumes of this node that the cluster manages: made by a plugin, or directories that were there.
//!
//! `make` makes volumes, `delete` deletes them, `hook` lets allocations wait for them, `keep` has
//! what of them outlives the agent, `plugin` runs plugins, `mkdir` is the one that is built in,
//! `describe` puts what is there into the node, [`answer`] is the way in for servers. What is made
//! is in the client's journal, and made again when the agent starts: plugins find what is there,
//! and mounts may be lost.
//!
//! It must not know: namespaces' rights, the permissions to a volume, where another node has one.
//!
//! Invariants:
//! 1. What is to be made is in the journal before the plugin is called, so that a call which was
//!    cut off is made again.
//! 2. A name is one volume's, from before it is made until it is gone.
//! 3. A volume is offered while it is there; after the machine was off, once it is there again.
//! 4. It is taken out of the node, and servers know that, before its users are looked up; it is
//!    not deleted while an allocation uses it, or is to do so.

pub mod answer;
mod delete;
mod describe;
#[cfg(test)]
mod fault_test;
mod hook;
#[cfg(test)]
mod host_test;
mod keep;
mod make;
mod mkdir;
mod plugin;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drover_events::model::Node;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::config::ClientSettings;
use crate::journal::Journal;
use drover_base::keyed_locks::KeyedLocks;
use drover_config::Shared;
pub(crate) use hook::named;
use keep::{JournaledVolume, kept};
use plugin::Plugins;
pub(crate) use plugin::executables;

/// Plugins that run at once when the agent starts.
const AT_ONCE: usize = 4;
/// The first wait before a volume that could not be made again is tried once more, and the longest.
const RETRY: [Duration; 2] = [Duration::from_secs(5), Duration::from_mins(5)];

/// How long another volume waits for one that is made again: a plugin that takes longer most likely
/// waits itself.
const LATE: Duration = Duration::from_secs(30);

/// The allocations of this node that use a volume, by its namespace and name.
pub trait Users: Send + Sync {
    /// Those that are here, and have not ended.
    fn here(&self, namespace: &str, name: &str) -> Vec<String>;

    /// The same with those that servers sent here meanwhile: how the node is now is reported to
    /// them first, and they send no more. The error is that no server can be reached.
    fn anew(&self, namespace: &str, name: &str) -> BoxFuture<'static, Result<Vec<String>, String>>;
}

struct NodeVolume {
    kept: JournaledVolume,
    /// Jobs may come for it.
    offered: bool,
}

/// The volumes of this node.
pub struct HostVolumes {
    settings: Shared<ClientSettings>,
    journal: Arc<dyn Journal>,
    node: Arc<Mutex<Arc<Node>>>,
    plugins: Plugins,
    /// By id.
    held: Mutex<BTreeMap<String, NodeVolume>>,
    /// Versions of plugins that answer, by name.
    versions: Mutex<BTreeMap<String, String>>,
    /// One call at a time for each volume.
    locks: KeyedLocks<String>,
    /// The node is described otherwise than before.
    described: Notify,
    /// Something of what is offered may be another.
    changed: watch::Sender<()>,
    users: OnceLock<Box<dyn Users>>,
}

impl HostVolumes {
    /// What a client with these settings has: volumes of a former agent are offered again.
    pub fn restore(
        settings: &Shared<ClientSettings>,
        node: &Arc<Mutex<Arc<Node>>>,
        journal: &Arc<dyn Journal>,
    ) -> Arc<Self> {
        let now = settings.get();
        let plugins = {
            let node = node.lock();
            Plugins {
                volumes: now.host_volumes_dir.clone(),
                folder: now.host_volume_plugin_dir.clone(),
                node: (node.id.clone(), node.node_pool.clone()),
            }
        };
        let volumes = Arc::new(Self {
            settings: settings.clone(),
            journal: Arc::clone(journal),
            node: Arc::clone(node),
            plugins,
            held: Mutex::new(kept(&**journal)),
            versions: Mutex::new(plugin::built_in()),
            locks: KeyedLocks::default(),
            described: Notify::new(),
            changed: watch::Sender::default(),
            users: OnceLock::new(),
        });
        volumes.describe();
        volumes
    }

    /// Waits until the node is described otherwise than before.
    pub async fn described(&self) {
        self.described.notified().await;
    }

    /// Sets how users of volumes are found; the first one stays.
    pub fn used_by(&self, users: Box<dyn Users>) {
        let _ = self.users.set(users);
    }

    /// Queries plugins for their identity, and makes volumes of a former agent again; those that
    /// cannot be are tried until they can. It ends when all are there.
    pub async fn resume(self: Arc<Self>) {
        self.scan().await;
        let ids: Vec<String> = self.held.lock().keys().cloned().collect();
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let again = ids.into_iter().map(|id| {
            let (volumes, turns) = (Arc::clone(&self), Arc::clone(&turns));
            async move { volumes.keep_trying(&id, &turns, LATE).await }
        });
        futures_util::future::join_all(again).await;
    }

    /// Looks which plugins there are, and reports those that are new or gone to the servers.
    pub async fn scan(&self) {
        let found = self.plugins.scan().await;
        *self.versions.lock() = found;
        self.describe();
    }

    async fn keep_trying(&self, id: &str, turns: &Semaphore, late: Duration) {
        let [mut wait, longest] = RETRY;
        loop {
            // Never closed.
            let turn = turns.acquire().await;
            let mut work = std::pin::pin!(self.again(id));
            let made = match timeout(late, &mut work).await {
                Ok(made) => made,
                Err(_) => {
                    drop(turn);
                    work.await
                }
            };
            match made {
                Ok(()) => return,
                Err(error) => tracing::warn!(volume = id, "host volume is not there: {error}"),
            }
            sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }
}
