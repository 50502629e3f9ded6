//! CSI on this node: the plugins that run here as tasks, the volumes that they bring to
//! allocations, and what servers ask of them.
//!
//! [`registry`] knows the plugins, `supervise` follows each of them, `describe` puts them into
//! the node, `claim` is the hook of allocations that use volumes,
//! `answer` is the way in for servers. What is staged and published is known by the file system
//! alone ([`drover_csi::mounts`]).
//!
//! It must not know: claims of others, who may use a volume, what a controller elsewhere does.

pub mod answer;
pub mod claim;
#[cfg(test)]
mod csi_test;
mod describe;
pub mod registry;
mod supervise;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_csi::mounts::{Mounts, Root};
use drover_events::model::Node;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::alloc::hooks::AllocHook;
use super::alloc::hooks::list::MakeAllocHook;
use super::clock::Clock;
use super::journal::Journal;
use super::task::hooks::TaskHook;
use super::task::hooks::list::MakeTaskHook;
use crate::rpc::caller::Caller;
use registry::{Live, Part, Registry};

/// The type of volumes that this is about.
const CSI: &str = "csi";

/// What the parts share.
pub struct Csi {
    /// The plugins.
    pub registry: Registry,
    mounts: Mounts,
    /// The folder of sockets and volumes.
    folder: PathBuf,
    node: Arc<Mutex<Arc<Node>>>,
    caller: Caller,
    clock: Clock,
    /// The node is described otherwise than before.
    described: Notify,
}

impl Csi {
    /// What a client that keeps its state in `state_dir` has. Plugins of a former agent are known
    /// again.
    pub fn restore(
        state_dir: &Path,
        node: &Arc<Mutex<Arc<Node>>>,
        journal: &Arc<dyn Journal>,
        (caller, clock): (Caller, Clock),
    ) -> Arc<Self> {
        let csi = Self {
            registry: Registry::restore(Arc::clone(journal)),
            mounts: Mounts::default(),
            folder: state_dir.join("csi"),
            node: Arc::clone(node),
            caller,
            clock,
            described: Notify::new(),
        };
        Arc::new(csi)
    }

    /// Waits until the node is described otherwise than before.
    pub async fn described(&self) {
        self.described.notified().await;
    }

    /// The hook of allocations that use volumes.
    pub fn alloc_hook(self: &Arc<Self>) -> MakeAllocHook {
        let csi = Arc::clone(self);
        Arc::new(move |_, alloc| {
            let volumes = claim::asked(alloc);
            let hook =
                || Box::new(claim::CsiHook::new(&csi, volumes.clone())) as Box<dyn AllocHook>;
            (!volumes.is_empty()).then(hook)
        })
    }

    /// The hook of tasks that are plugins.
    pub fn task_hook(self: &Arc<Self>) -> MakeTaskHook {
        let csi = Arc::clone(self);
        Arc::new(move |_, alloc, task| {
            let hook = supervise::Supervisor::of(&csi, alloc, task)?;
            Some(Box::new(hook) as Box<dyn TaskHook>)
        })
    }

    /// The newest plugin of a name that has a part, healthy ones first. One that a former agent
    /// knew is asked what it can: without that nothing is to be done with it.
    ///
    /// # Errors
    /// There is none, or it does not answer.
    async fn part(&self, part: Part, id: &str) -> Result<Live, String> {
        let found = self.registry.find(part, id);
        let mut live = found.ok_or_else(|| format!("no {part} plugin {id:?} runs on this node"))?;
        if live.found.identity.is_none() {
            let instance = &live.instance;
            let now = self.clock.now();
            live.found = supervise::look(&live.plugin, instance.kind, now).await?;
            let key = (&*instance.alloc, &*instance.task);
            self.registry.update(key, live.found.clone());
        }
        Ok(live)
    }
}

/// Where the folders of a plugin's volumes lie.
fn root(live: &Live) -> Root {
    Root {
        host: live.instance.host.clone(),
        seen: live.instance.seen.clone(),
    }
}
