//! The client agent: starts what was there before, then keeps in touch with the servers (MOD-24).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use drover_events::model::status::client as client_status;
use drover_events::model::{Allocation, Node};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::alloc_runner::{AllocRunner, AllocRunnerFactory, Report};
use super::clock::Clock;
use super::config::ClientSettings;
use super::control::{self, Answers};
use super::devices::Devices;
use super::endpoints::host::Meter;
use super::fingerprint::configured_meta;
use super::journal::{Journal, alloc_key, state_key};
use super::metadata::MetadataSources;
use super::service::book::Book;
use super::sync::UpdateBuffer;
use super::uses::Uses;
use super::volumes::csi::Csi;
use super::volumes::host::HostVolumes;
use super::{contact, gc, measure, pull, register, send};
use drover_config::{ClientConfig, Shared};
use drover_rpc::caller::Caller;
use drover_rpc::service::Dispatch;

/// How long the end of all allocations is waited for.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// How long the end of each of its own loops is waited for; they end at once unless they are stuck.
const LOOP_LIMIT: Duration = Duration::from_millis(200);

/// What a client is made of.
pub struct ClientStart {
    pub settings: Shared<ClientSettings>,
    /// Itself, as it registers.
    pub node: Arc<Mutex<Arc<Node>>>,
    /// The servers.
    pub caller: Caller,
    /// What runs allocations.
    pub factory: Arc<dyn AllocRunnerFactory>,
    /// What survives.
    pub journal: Arc<dyn Journal>,
    /// The services of its allocations.
    pub services: Arc<Book>,
    /// The time.
    pub clock: Clock,
    /// Its plugins and volumes; none where nothing real is run.
    pub csi: Option<Arc<Csi>>,
}

/// A running client.
pub struct Client {
    pub(super) core: Arc<Core>,
    /// What answers calls of servers.
    handlers: OnceLock<Arc<dyn Dispatch>>,
    /// The volumes of this node that the cluster manages.
    host_volumes: OnceLock<Arc<HostVolumes>>,
    devices: OnceLock<Arc<Devices>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What the loops share.
pub(super) struct Core {
    pub(super) settings: Shared<ClientSettings>,
    pub(super) node: Arc<Mutex<Arc<Node>>>,
    pub(super) caller: Caller,
    pub(super) factory: Arc<dyn AllocRunnerFactory>,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) services: Arc<Book>,
    pub(super) clock: Clock,
    pub(super) allocs: Mutex<BTreeMap<String, Arc<dyn AllocRunner>>>,
    /// Those that are being removed.
    pub(super) leaving: Arc<Mutex<BTreeMap<String, Arc<dyn AllocRunner>>>>,
    /// Those of a former agent that this one cannot run: something of them may.
    pub(super) unrestored: Mutex<BTreeSet<String>>,
    pub(super) updates: Arc<Updates>,
    pub(super) contact: watch::Sender<Contact>,
    /// A heartbeat is wanted before its time.
    pub(super) hurry: Notify,
    /// The node is no longer described as it was last reported to the servers.
    pub(super) described: Notify,
    /// Descriptions of the node are reported one after another: the last one received is valid.
    pub(super) reporting: tokio::sync::Mutex<()>,
    pub(super) metadata: MetadataSources,
    /// What the machine does.
    pub(super) meter: Meter,
    /// Its plugins and volumes.
    pub(super) csi: Option<Arc<Csi>>,
}

/// How things stand with the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    /// The node is registered.
    pub registered: bool,
    /// The last answered heartbeat, unix nanoseconds; 0 for none.
    pub last_heartbeat: i64,
    /// The time to the next one that the servers gave, nanoseconds.
    pub ttl: i64,
    /// The index of the node's last change that the servers reported.
    pub node_index: u64,
    /// Whether allocations may come, in the servers' word; empty before the first contact.
    pub eligibility: String,
    /// The epoch of the servers' log; empty before the first contact.
    pub epoch: String,
    /// The allocations were requested and a response came.
    pub allocs_known: bool,
    /// Why the last call failed; empty after one that did not.
    pub trouble: String,
}

/// Updates that wait, and what waits for them.
#[derive(Default)]
pub(super) struct Updates {
    pub(super) buffer: Mutex<UpdateBuffer>,
    pub(super) some: Notify,
}

impl Updates {
    pub(super) fn put(&self, update: Allocation) {
        self.buffer.lock().put(update);
        self.some.notify_one();
    }
}

impl Client {
    /// Restores what ran before, without any server (CL-13), and begins to talk to them.
    pub fn start(start: ClientStart) -> Arc<Self> {
        let ClientStart {
            settings,
            node,
            caller,
            factory,
            journal,
            services,
            clock,
            csi,
        } = start;
        let metadata = MetadataSources::restore(&node, &*journal);
        let core = Arc::new(Core {
            settings,
            node,
            caller,
            factory,
            journal,
            services,
            clock,
            allocs: Mutex::default(),
            leaving: Arc::default(),
            unrestored: Mutex::default(),
            updates: Arc::default(),
            contact: watch::Sender::new(Contact::default()),
            hurry: Notify::new(),
            described: Notify::new(),
            reporting: tokio::sync::Mutex::default(),
            metadata,
            meter: Meter::default(),
            csi,
        });
        core.restore();
        measure::measure(&core);
        let tasks = vec![
            tokio::spawn(contact::keep(core.clone())),
            tokio::spawn(pull::keep(core.clone())),
            tokio::spawn(send::keep(core.clone())),
            tokio::spawn(register::keep(core.clone())),
            tokio::spawn(gc::keep(core.clone())),
            tokio::spawn(measure::keep(core.clone())),
            tokio::spawn(report_plugins(core.clone())),
        ];
        Arc::new(Self {
            core,
            handlers: OnceLock::new(),
            host_volumes: OnceLock::new(),
            devices: OnceLock::new(),
            tasks: Mutex::new(tasks),
        })
    }

    /// Answers calls of servers by these handlers from now on; the first ones stay.
    pub fn handle_calls(&self, handlers: Arc<dyn Dispatch>) {
        let _ = self.handlers.set(handlers);
    }

    /// Offers these volumes from now on; the first ones stay. Changes are reported to the servers.
    pub fn offer(&self, volumes: Arc<HostVolumes>) {
        if self.host_volumes.set(Arc::clone(&volumes)).is_err() {
            return;
        }
        volumes.used_by(Box::new(Uses::of(&self.core)));
        let reported = {
            let (core, volumes) = (Arc::clone(&self.core), Arc::clone(&volumes));
            async move {
                loop {
                    volumes.described().await;
                    core.described.notify_one();
                }
            }
        };
        let mut tasks = self.tasks.lock();
        tasks.push(tokio::spawn(reported));
        tasks.push(tokio::spawn(volumes.resume()));
    }

    /// Keeps these devices' plugins running from now on; the first ones stay. Changes of devices
    /// are reported to the servers.
    pub fn manage(&self, devices: Arc<Devices>) {
        if self.devices.set(Arc::clone(&devices)).is_err() {
            return;
        }
        let (core, reported) = (Arc::clone(&self.core), Arc::clone(&devices));
        let mut tasks = self.tasks.lock();
        tasks.push(tokio::spawn(async move {
            loop {
                reported.described().await;
                core.described.notify_one();
            }
        }));
        tasks.push(tokio::spawn(devices.keep()));
    }

    /// Its devices; none where no plugin can run.
    pub fn devices(&self) -> Option<&Arc<Devices>> {
        self.devices.get()
    }

    /// What answers calls of servers; none where no plugin can run.
    pub fn handlers(&self) -> Option<Arc<dyn Dispatch>> {
        self.handlers.get().cloned()
    }

    /// Lets servers reach this client: `answers` answers their requests. A server in this process
    /// needs no session here.
    pub fn answer_servers(&self, answers: Arc<dyn Answers>) {
        if self.core.caller.servers().is_some() {
            let kept = tokio::spawn(control::keep(Arc::clone(&self.core), answers));
            self.tasks.lock().push(kept);
        }
    }

    /// The way to the servers.
    pub fn caller(&self) -> Caller {
        self.core.caller.clone()
    }

    /// The function to which runners of allocations hand what is reported to the servers.
    pub fn report(&self) -> Report {
        self.core.report()
    }

    pub fn node_id(&self) -> String {
        self.core.id()
    }

    /// How things stand with the servers.
    pub fn contact(&self) -> watch::Receiver<Contact> {
        self.core.contact.subscribe()
    }

    /// Whether the client is of use: registered, and in touch.
    ///
    /// # Errors
    /// Why it is not.
    pub fn health(&self) -> Result<(), String> {
        let contact = self.core.contact.borrow();
        if contact.registered && contact.trouble.is_empty() {
            return Ok(());
        }
        Err(if contact.trouble.is_empty() {
            "no known servers".into()
        } else {
            contact.trouble.clone()
        })
    }

    /// The runner of an allocation.
    pub fn runner(&self, alloc: &str) -> Option<Arc<dyn AllocRunner>> {
        self.core.allocs.lock().get(alloc).cloned()
    }

    /// The runner of an allocation, also of one that is being removed.
    pub fn any_runner(&self, alloc: &str) -> Option<Arc<dyn AllocRunner>> {
        let leaving = || self.core.leaving.lock().get(alloc).cloned();
        self.runner(alloc).or_else(leaving)
    }

    /// Ids of all allocations here.
    pub fn alloc_ids(&self) -> Vec<String> {
        self.core.allocs.lock().keys().cloned().collect()
    }

    /// Takes over what of another `client` block counts while the client runs: what the node is
    /// named as, when finished allocations go, how long tasks may take to end, the options that
    /// tasks are started with. It waits for changes of metadata under way, so it must not be called
    /// where others are served.
    pub fn reconfigure(&self, wanted: &ClientConfig) {
        self.core.settings.update(|settings| {
            settings.client.copy_changing(wanted);
        });
        let meta = configured_meta(&self.core.settings.get().client);
        self.core.configure_metadata(meta);
        if let Some(volumes) = self.host_volumes.get().cloned() {
            let scan = tokio::spawn(async move { volumes.scan().await });
            self.tasks.lock().push(scan);
        }
    }

    pub fn settings(&self) -> &Shared<ClientSettings> {
        &self.core.settings
    }

    /// Stops following; tasks run on, unless nothing is to be kept.
    pub async fn shutdown(&self) {
        if let Some(devices) = self.devices.get() {
            devices.end().await;
        }
        let loops = std::mem::take(&mut *self.tasks.lock());
        for task in loops {
            task.abort();
            // Its end is waited for: until then it holds the journal.
            if tokio::time::timeout(LOOP_LIMIT, task).await.is_err() {
                tracing::warn!("a loop of the client does not end");
            }
        }
        let runners: Vec<_> = self.core.allocs.lock().values().cloned().collect();
        let ephemeral = self.core.settings.get().ephemeral;
        let ends = runners
            .iter()
            .map(|r| if ephemeral { r.destroy() } else { r.detach() });
        // Executors end their tasks once requested, whether or not it is waited for.
        let _ = tokio::time::timeout(STOP_LIMIT, futures_util::future::join_all(ends)).await;
    }

    /// Removes what is left of a finished allocation.
    ///
    /// # Errors
    /// It is not here, or not finished.
    pub async fn collect(&self, alloc: &str) -> Result<(), String> {
        gc::collect(&self.core, alloc).await
    }

    /// Removes what is left of all finished allocations.
    pub async fn collect_all(&self) {
        gc::collect_all(&self.core).await;
    }
}

/// Reports the node to the servers when its plugins change.
async fn report_plugins(core: Arc<Core>) {
    let Some(csi) = &core.csi else { return };
    loop {
        csi.described().await;
        core.described.notify_one();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }
}

impl Core {
    /// This node's id.
    pub(super) fn id(&self) -> String {
        self.node.lock().id.clone()
    }

    fn restore(&self) {
        let kept = self.journal.load();
        for (key, bytes) in kept.range("alloc/".to_owned()..) {
            let Some(id) = key
                .strip_prefix("alloc/")
                .and_then(|k| k.strip_suffix("/alloc"))
            else {
                continue;
            };
            match rmp_serde::from_slice::<Allocation>(bytes) {
                Ok(alloc) => self.add(Arc::new(alloc), kept.get(&state_key(id)).cloned()),
                Err(e) => {
                    tracing::error!(alloc = id, key = alloc_key(id), "cannot be restored: {e}");
                    self.unrestored.lock().insert(id.to_owned());
                }
            }
        }
    }

    pub(super) fn report(&self) -> Report {
        let updates = self.updates.clone();
        Arc::new(move |update| updates.put(update))
    }

    /// Runs an allocation; one that cannot be run is reported as failed.
    pub(super) fn add(&self, alloc: Arc<Allocation>, state: Option<Bytes>) {
        let mut allocs = self.allocs.lock();
        if allocs.contains_key(&alloc.id) {
            return;
        }
        let had_state = state.is_some();
        let previous = std::iter::once(&alloc.previous_allocation)
            .chain(alloc.preempted_allocations.iter())
            .filter_map(|id| allocs.get(id).cloned())
            .collect();
        match self
            .factory
            .start(alloc.clone(), state, previous, self.report())
        {
            Ok(runner) => {
                self.unrestored.lock().remove(&alloc.id);
                allocs.insert(alloc.id.clone(), runner);
            }
            Err(reason) => {
                if had_state {
                    self.unrestored.lock().insert(alloc.id.clone());
                }
                self.updates.put(Allocation {
                    id: alloc.id.clone(),
                    node_id: alloc.node_id.clone(),
                    client_status: client_status::FAILED.to_owned(),
                    client_description: reason,
                    ..Allocation::default()
                });
            }
        }
    }

    /// Destroys an allocation that the servers no longer know, or want from its beginning. Nothing
    /// more is reported of it; until it is gone another of its id is not to be run.
    pub(super) fn remove(&self, id: &str) {
        let mut allocs = self.allocs.lock();
        let Some(runner) = allocs.remove(id) else {
            return;
        };
        // In one of the two it always is.
        self.leaving.lock().insert(id.to_owned(), runner.clone());
        drop(allocs);
        self.updates.buffer.lock().leave(id);
        let (leaving, updates) = (Arc::clone(&self.leaving), Arc::clone(&self.updates));
        let id = id.to_owned();
        tokio::spawn(async move {
            runner.destroy().await;
            leaving.lock().remove(&id);
            updates.buffer.lock().left(&id);
        });
    }
}
