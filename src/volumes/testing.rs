//! A plugin in memory that refuses whatever comes in the wrong order and remembers what should
//! never have been asked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::error::{ApiError, Code};
use crate::rpc::asked::{Reach, Unanswered};
use crate::rpc::csi::*;
use crate::rpc::service::{Access, Call, Dispatch, Service};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It never comes to the plugin.
    Before,
    /// The plugin does it, and the answer is lost.
    Lost,
    /// The plugin answers so, and does nothing.
    Says(Code),
    /// It hangs until the caller gives up.
    Hangs,
}

/// What the storage is like, as the plugin sees it.
#[derive(Debug, Default)]
struct Storage {
    /// Volume, node.
    attached: BTreeSet<(String, String)>,
    /// Volume, node and allocation; and whether it writes.
    mounted: BTreeMap<(String, String, String), bool>,
    made: BTreeSet<String>,
    sizes: BTreeMap<String, i64>,
    calls: Vec<String>,
    wrong: Vec<String>,
    gone: BTreeSet<String>,
}

/// The plugin, and the clients of all its nodes.
pub(crate) struct Strict {
    storage: Mutex<Storage>,
    faults: Mutex<BTreeMap<&'static str, Vec<Fault>>>,
    /// Volumes that more than one may write to.
    pub shared: AtomicBool,
    handlers: Mutex<Option<Arc<dyn Dispatch>>>,
}

impl Strict {
    pub(crate) fn new() -> Arc<Self> {
        let strict = Arc::new(Self {
            storage: Mutex::default(),
            faults: Mutex::default(),
            shared: AtomicBool::new(false),
            handlers: Mutex::new(None),
        });
        *strict.handlers.lock() = Some(strict.service());
        strict
    }

    fn service(self: &Arc<Self>) -> Arc<dyn Dispatch> {
        macro_rules! handled {
            ($service:ident; $($method:ident($req:ty) => $handler:ident;)*) => {
                $service$(.method::<$method, _, _>(
                    Access::Server,
                    |strict: Arc<Weakly>, _: Call, asked: $req| async move {
                        strict.0.upgrade().map_or_else(
                            || Err(ApiError::internal("it is gone")),
                            |strict| strict.$handler(asked),
                        )
                    },
                ))*
            };
        }
        let service = Service::new(Arc::new(Weakly(Arc::downgrade(self))));
        let service = handled! { service;
            ControllerAttachVolume(ControllerAttachVolumeRequest) => attach;
            ControllerDetachVolume(ControllerDetachVolumeRequest) => detach;
            NodeDetachVolume(NodeDetachVolumeRequest) => unmount;
            ControllerCreateVolume(ControllerCreateVolumeRequest) => create;
            ControllerDeleteVolume(ControllerDeleteVolumeRequest) => delete;
            ControllerValidateVolume(ControllerValidateVolumeRequest) => validate;
            ControllerExpandVolume(ControllerExpandVolumeRequest) => expand;
        };
        Arc::new(service)
    }

    /// The next calls by this method end so, one after the other.
    pub(crate) fn fault(&self, method: &'static str, faults: &[Fault]) {
        let mut known = self.faults.lock();
        known.entry(method).or_default().extend(faults);
    }

    pub(crate) fn heal(&self) {
        self.faults.lock().clear();
    }

    /// A node, with everything on it, is gone for ever.
    pub(crate) fn lose(&self, node: &str) {
        let mut storage = self.storage.lock();
        storage.gone.insert(node.to_owned());
        storage.mounted.retain(|(_, at, _), _| at != node);
    }

    /// A node of that name is there again, with nothing on it.
    pub(crate) fn is_new(&self, node: &str) {
        self.storage.lock().gone.remove(node);
    }

    /// What was asked, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.storage.lock().calls.clone()
    }

    pub(crate) fn count(&self, begins: &str) -> usize {
        self.calls()
            .iter()
            .filter(|call| call.starts_with(begins))
            .count()
    }

    /// What should never have been asked.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.storage.lock().wrong.clone()
    }

    /// Whether nothing is attached or mounted any more.
    pub(crate) fn is_idle(&self) -> bool {
        let storage = self.storage.lock();
        storage.attached.is_empty() && storage.mounted.is_empty()
    }

    /// The client mounts a volume for an allocation, as it does after its claim.
    pub(crate) fn mount(&self, volume: &str, node: &str, alloc: &str, writes: bool) {
        let mut storage = self.storage.lock();
        let place = (volume.to_owned(), node.to_owned());
        if !storage.attached.contains(&place) {
            let text = format!("{alloc} mounts {volume} on {node}, where it is not attached");
            storage.wrong.push(text);
        }
        let others = storage
            .mounted
            .iter()
            .filter(|((of, at, by), _)| of == volume && !storage.gone.contains(at) && by != alloc);
        let others = others.count();
        if others > 0 && !self.shared.load(Ordering::SeqCst) {
            storage
                .wrong
                .push(format!("{alloc} is the second that has {volume}"));
        }
        let key = (volume.to_owned(), node.to_owned(), alloc.to_owned());
        storage.mounted.insert(key, writes);
    }

    fn attach(
        &self,
        asked: ControllerAttachVolumeRequest,
    ) -> Result<ControllerAttachVolumeResponse, ApiError> {
        let mut storage = self.storage.lock();
        let (volume, node) = (asked.volume_id, asked.client_csi_node_id);
        let elsewhere = storage
            .attached
            .iter()
            .find(|(of, at)| *of == volume && *at != node);
        if let Some((_, at)) = elsewhere
            && !self.shared.load(Ordering::SeqCst)
        {
            let text = format!("{volume} goes to {node} while it is on {at}");
            storage.wrong.push(text.clone());
            return Err(ApiError::new(Code::Unavailable, text));
        }
        storage.attached.insert((volume.clone(), node.clone()));
        Ok(ControllerAttachVolumeResponse {
            publish_context: [("device", format!("{volume} on {node}"))].into(),
        })
    }

    fn detach(&self, asked: ControllerDetachVolumeRequest) -> Result<Done, ApiError> {
        let mut storage = self.storage.lock();
        let (volume, node) = (asked.volume_id, asked.client_csi_node_id);
        let all = node.is_empty();
        let of = |at: &String| all || *at == node;
        let mounted = storage
            .mounted
            .keys()
            .find(|(id, at, _)| *id == volume && of(at))
            .cloned();
        if let Some((_, at, by)) = mounted {
            let text = format!("{volume} is taken from {at}, where {by} has it mounted");
            storage.wrong.push(text.clone());
            return Err(ApiError::refused(text));
        }
        storage.attached.retain(|(id, at)| *id != volume || !of(at));
        Ok(Done {})
    }

    fn unmount(&self, asked: NodeDetachVolumeRequest) -> Result<Done, ApiError> {
        let mut storage = self.storage.lock();
        let key = (asked.external_id, asked.node_id, asked.alloc_id);
        storage.mounted.remove(&key);
        Ok(Done {})
    }

    fn create(
        &self,
        asked: ControllerCreateVolumeRequest,
    ) -> Result<ControllerCreateVolumeResponse, ApiError> {
        let mut storage = self.storage.lock();
        let id = format!("made-{}", asked.name);
        storage.made.insert(id.clone());
        storage.sizes.insert(id.clone(), asked.capacity_min);
        Ok(ControllerCreateVolumeResponse {
            external_volume_id: id,
            capacity_bytes: asked.capacity_min,
            volume_context: [("from", "strict".to_owned())].into(),
            ..ControllerCreateVolumeResponse::default()
        })
    }

    fn delete(&self, asked: ControllerDeleteVolumeRequest) -> Result<Done, ApiError> {
        self.storage.lock().made.remove(&asked.external_volume_id);
        Ok(Done {})
    }

    fn validate(&self, asked: ControllerValidateVolumeRequest) -> Result<Done, ApiError> {
        match asked.volume_id.starts_with("bad") {
            true => Err(ApiError::refused(
                "ValidateVolumeCapabilities: NotFound: no such volume",
            )),
            false => Ok(Done {}),
        }
    }

    fn expand(
        &self,
        asked: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, ApiError> {
        let mut storage = self.storage.lock();
        storage
            .sizes
            .insert(asked.external_volume_id, asked.required_bytes);
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: asked.required_bytes,
            node_expansion_required: false,
        })
    }
}

struct Weakly(std::sync::Weak<Strict>);

/// The way to the plugin.
pub(crate) struct Way {
    strict: Arc<Strict>,
    /// Nodes that no way leads to.
    pub cut: Mutex<BTreeSet<String>>,
}

impl Way {
    pub(crate) fn to(strict: &Arc<Strict>) -> Self {
        Self {
            strict: Arc::clone(strict),
            cut: Mutex::default(),
        }
    }
}

impl Reach for Way {
    fn reaches(&self, node: &str) -> bool {
        !self.cut.lock().contains(node)
    }

    fn ask(
        &self,
        node: &str,
        method: &'static str,
        body: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unanswered>> {
        if !self.reaches(node) {
            let lost = Unanswered::Unreached("No path to node".to_owned());
            return std::future::ready(Err(lost)).boxed();
        }
        let (strict, node) = (Arc::clone(&self.strict), node.to_owned());
        async move {
            let name = method.trim_start_matches("CSI.");
            let fault = {
                let mut faults = strict.faults.lock();
                let of = faults.get_mut(name).filter(|of| !of.is_empty());
                of.map(|of| of.remove(0))
            };
            let lost = || Unanswered::Unsure("the node was lost: it broke off".to_owned());
            strict
                .storage
                .lock()
                .calls
                .push(format!("{name} @{node} {fault:?}"));
            match fault {
                Some(Fault::Before) => return Err(lost()),
                Some(Fault::Hangs) => return std::future::pending().await,
                Some(Fault::Says(code)) => {
                    let error = ApiError::new(code, format!("{name}: the plugin says {code:?}"));
                    return Err(Unanswered::Refused(error));
                }
                Some(Fault::Lost) | None => {}
            }
            let handlers = strict.handlers.lock().clone().expect("they are set");
            let answer = handlers.dispatch(method, Call::default(), body).await;
            match fault {
                Some(_) => Err(lost()),
                None => answer.map_err(Unanswered::Refused),
            }
        }
        .boxed()
    }
}
