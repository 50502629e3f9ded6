//! CSI on this node: the plugins that run here as tasks, the volumes that they bring to
//! allocations, and the requests of servers to them.
//!
//! [`registry`] knows the plugins, `supervise` is the hook of their tasks and `follow` looks after
//! each of them, `leftover` takes back what has no claim, `describe` puts them into the node,
//! [`claim`] is the hook of allocations that use volumes, [`answer`] is the way in for servers.
//! What is staged and published is known by the file system alone ([`drover_csi::mounts`]).
//!
//! It must not know: claims of others, the permissions to a volume, what a controller elsewhere
//! does.

pub mod answer;
#[cfg(test)]
mod answer_test;
pub mod claim;
#[cfg(test)]
mod claim_test;
mod describe;
mod follow;
mod instance;
mod leftover;
#[cfg(test)]
mod leftover_test;
#[cfg(test)]
mod options_test;
pub mod registry;
#[cfg(test)]
mod registry_test;
mod supervise;
#[cfg(test)]
mod testing;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use drover_csi::mounts::{FOLDERS, Mounts, Root, part};
use drover_events::model::Node;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::hooks::alloc::AllocHook;
use crate::hooks::alloc::list::MakeAllocHook;
use crate::hooks::task::TaskHook;
use crate::hooks::task::list::MakeTaskHook;
use crate::journal::Journal;
use drover_base::keyed_locks::KeyedLocks;
use drover_rpc::caller::Caller;
use registry::{CsiPart, Instance, Live, PluginKind, Registry};

/// What the parts share.
pub struct Csi {
    /// The plugins.
    pub registry: Registry,
    mounts: Arc<Mounts>,
    /// The folder of sockets and volumes.
    folder: PathBuf,
    node: Arc<Mutex<Arc<Node>>>,
    caller: Caller,
    clock: Clock,
    /// The node is described otherwise than before.
    described: Notify,
    /// Held by a call that attaches, detaches or deletes a volume of a plugin.
    locks: KeyedLocks<(String, String)>,
    /// What this node knows of allocations.
    allocs: OnceLock<Knows>,
}

/// What a node knows of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocKnowledge {
    /// Nothing.
    Not,
    /// Nothing of it runs any more.
    Ended,
    /// Something of it may run.
    Lives,
}

type Knows = Box<dyn Fn(&str) -> AllocKnowledge + Send + Sync>;

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
            // An agent that is not root has only plugins that cannot mount.
            mounts: Arc::new(Mounts::new(rustix::process::geteuid().is_root())),
            folder: state_dir.join("csi"),
            node: Arc::clone(node),
            caller,
            clock,
            described: Notify::new(),
            locks: KeyedLocks::default(),
            allocs: OnceLock::new(),
        };
        // What servers know of it stays so until its task is found, or is not.
        csi.describe();
        Arc::new(csi)
    }

    /// What is known of the allocations here: to be set once, before servers request anything. From
    /// an allocation that lives no volume is taken; one that is not known gives back what it left.
    pub fn knows(&self, allocs: impl Fn(&str) -> AllocKnowledge + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.allocs.set(Box::new(allocs));
    }

    /// What is known of an allocation; `None` before [`Csi::knows`] was called.
    fn known(&self, alloc: &str) -> Option<AllocKnowledge> {
        self.allocs.get().map(|allocs| allocs(alloc))
    }

    /// Where the volumes of a plugin are on this node. Its name is a job's, and leads nowhere else.
    /// One that is of another kind in a new version of its job keeps the folder in which they are.
    fn host(&self, kind: PluginKind, plugin: &str) -> PathBuf {
        let of = |kind: PluginKind| self.folder.join(kind.word()).join(part(plugin));
        let holds = |kind: &PluginKind| FOLDERS.iter().any(|name| of(*kind).join(name).exists());
        let kept = [PluginKind::Node, PluginKind::Monolith]
            .into_iter()
            .find(holds);
        of(kept.filter(|_| kind.has(CsiPart::Node)).unwrap_or(kind))
    }

    /// Where the users of a plugin's volumes are counted.
    fn users(&self, plugin: &str) -> PathBuf {
        self.folder.join("users").join(part(plugin))
    }

    /// Where the folders of a plugin's volumes lie.
    fn root(&self, instance: &Instance) -> Root {
        Root {
            host: instance.host.clone(),
            seen: instance.seen.clone(),
            users: self.users(&instance.plugin),
        }
    }

    /// Waits until the node is described otherwise than before.
    pub async fn described(&self) {
        self.described.notified().await;
    }

    /// The hook of allocations that use volumes.
    pub fn alloc_hook(self: &Arc<Self>) -> MakeAllocHook {
        let csi = Arc::clone(self);
        Arc::new(move |_, alloc| {
            let volumes = claim::claim_requests(alloc);
            let hook =
                || Box::new(claim::CsiHook::new(&csi, volumes.clone())) as Box<dyn AllocHook>;
            (!volumes.is_empty()).then(hook)
        })
    }

    /// The hook of tasks that are plugins.
    pub fn task_hook(self: &Arc<Self>) -> MakeTaskHook {
        let csi = Arc::clone(self);
        Arc::new(move |alloc, task| {
            let hook = supervise::Supervisor::of(&csi, alloc, task)?;
            Some(Box::new(hook) as Box<dyn TaskHook>)
        })
    }

    /// The newest plugin of a name that has a part, healthy ones first. One that a former agent
    /// knew is queried for what it can: without that nothing is to be done with it.
    ///
    /// # Errors
    /// No plugin has the part, or it does not answer.
    async fn part(&self, part: CsiPart, id: &str) -> Result<Live, String> {
        let mut silent = None;
        for mut live in self.registry.find(part, id) {
            if live.found.identity.is_some() {
                return Ok(live);
            }
            let instance = &live.instance;
            match follow::look(&live.plugin, instance.kind, self.clock.now()).await {
                Ok(found) => {
                    let key = (&*instance.alloc, &*instance.task);
                    self.registry.update(key, found.clone()).await;
                    self.describe();
                    live.found = found;
                    return Ok(live);
                }
                Err(trouble) => _ = silent.get_or_insert(trouble),
            }
        }
        Err(silent.unwrap_or_else(|| format!("no {part} plugin {id:?} runs on this node")))
    }
}
