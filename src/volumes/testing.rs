//! A plugin in memory that refuses whatever comes in the wrong order and remembers what should
//! never have been requested of it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use drover_testkit::LONG;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::storage::Storage;
use crate::endpoints::testing::encoded;
use crate::error::{Code, Refusal};
use crate::rpc::client_calls::{Reach, Unanswered};
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
    /// The plugin takes so many turns, also when no caller waits for it any more.
    Slow(usize),
    /// The plugin takes its time until it is [let go on](Strict::let_go), also when no caller waits
    /// for it any more.
    Held,
    /// The plugin does it later, and before the next request; no caller gets its answer.
    Late,
    /// The plugin does it after it has detached a volume, or before it attaches one; no caller gets
    /// its answer.
    Later,
    /// It comes to the plugin twice.
    Twice,
    /// The plugin does it and names another volume.
    Lies,
}

/// The volume that a plugin names when it lies.
pub(crate) const ANOTHER: &str = "made-another";

/// Lets other tasks run, so often.
pub(crate) async fn turns(mut many: usize) {
    poll_fn(|context| {
        if many == 0 {
            return Poll::Ready(());
        }
        many -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Lets other tasks run until this is so: it is noticed at once, and before they do more.
pub(crate) async fn reached(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + LONG;
    poll_fn(|context| {
        if is_so() {
            return Poll::Ready(());
        }
        assert!(Instant::now() < limit, "waited {LONG:?} for {what}");
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The plugin, and the clients of all its nodes.
pub(crate) struct Strict {
    storage: Mutex<Storage>,
    faults: Mutex<BTreeMap<&'static str, Vec<Fault>>>,
    /// Volumes that more than one may have.
    pub shared: AtomicBool,
    /// Volumes that only one may write to.
    pub one_writer: AtomicBool,
    /// It takes no volume from a node that is gone with the volume mounted there.
    pub stern: AtomicBool,
    /// Its process is not there.
    pub dead: AtomicBool,
    /// What it makes larger is so on every node at once.
    pub alone: AtomicBool,
    goes_on: Semaphore,
    handlers: Mutex<Option<Arc<dyn Dispatch>>>,
}

impl Strict {
    pub(crate) fn new() -> Arc<Self> {
        let strict = Arc::new(Self {
            storage: Mutex::default(),
            faults: Mutex::default(),
            shared: AtomicBool::new(false),
            one_writer: AtomicBool::new(false),
            stern: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            goes_on: Semaphore::new(0),
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
                    |strict: Arc<Weakly>, _: Call, requested: $req| async move {
                        strict.0.upgrade().map_or_else(
                            || Err(Refusal::internal("it is gone")),
                            |strict| strict.$handler(requested),
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
            NodeExpandVolume(NodeExpandVolumeRequest) => expand_on_node;
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
        self.dead.store(false, Ordering::SeqCst);
    }

    /// A node is given up with everything mounted there, though it lives.
    pub(crate) fn give_up(&self, node: &str) {
        self.storage.lock().gone.insert(node.to_owned());
    }

    /// It knows nothing any more of where a volume is.
    pub(crate) fn forget(&self, volume: &str) {
        let mut storage = self.storage.lock();
        storage.attached.retain(|(of, _), _| of != volume);
        storage.mounted.retain(|(of, _, _), _| of != volume);
        storage.stale.retain(|(of, _, _)| of != volume);
    }

    /// A node lets go of a volume by itself.
    pub(crate) fn lets_go(&self, volume: &str, node: &str, alloc: &str) {
        let key = (volume.to_owned(), node.to_owned(), alloc.to_owned());
        self.storage.lock().mounted.remove(&key);
    }

    /// How a volume is attached to a node.
    pub(crate) fn attached_as(&self, volume: &str, node: &str) -> String {
        let place = (volume.to_owned(), node.to_owned());
        self.storage.lock().attached[&place].clone()
    }

    /// The allocations that have volumes mounted on a node: volume, allocation.
    pub(crate) fn mounted_on(&self, node: &str) -> Vec<(String, String)> {
        let storage = self.storage.lock();
        let there = storage.mounted.keys().filter(|(_, at, _)| at == node);
        there.map(|(of, _, by)| (of.clone(), by.clone())).collect()
    }

    /// Whether calls are under way that no caller may wait for.
    pub(crate) fn is_busy(&self) -> bool {
        let storage = self.storage.lock();
        storage.busy > 0 || !storage.late.is_empty() || !storage.later.is_empty()
    }

    /// What was requested before is done before anything else; whether there was anything.
    pub(crate) async fn catches_up(&self) -> bool {
        let late = std::mem::take(&mut self.storage.lock().late);
        let any = !late.is_empty();
        for (method, body) in late {
            let handlers = self.handlers.lock().clone().expect("they are set");
            let _ = handlers.dispatch(method, Call::default(), body).await;
        }
        any
    }

    /// What was requested long before is done at last.
    pub(crate) async fn strays(&self) {
        let later = std::mem::take(&mut self.storage.lock().later);
        for (method, body) in later {
            let handlers = self.handlers.lock().clone().expect("they are set");
            self.storage.lock().strays = true;
            let _ = handlers.dispatch(method, Call::default(), body).await;
            self.storage.lock().strays = false;
        }
    }

    /// A node, with everything on it, is gone for ever.
    pub(crate) fn lose(&self, node: &str) {
        let mut storage = self.storage.lock();
        storage.gone.insert(node.to_owned());
        storage.mounted.retain(|(_, at, _), _| at != node);
        storage.stale.retain(|(_, at, _)| at != node);
    }

    /// A node of that name is there again, with nothing on it.
    pub(crate) fn is_new(&self, node: &str) {
        self.storage.lock().gone.remove(node);
    }

    /// The requests, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.storage.lock().calls.clone()
    }

    /// A call that is held continues, or the next one that would be.
    pub(crate) fn let_go(&self) {
        self.goes_on.add_permits(1);
    }

    pub(crate) fn count(&self, begins: &str) -> usize {
        self.calls()
            .iter()
            .filter(|call| call.starts_with(begins))
            .count()
    }

    /// What should never have been requested.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.storage.lock().wrong.clone()
    }

    /// What was requested when a volume was made.
    pub(crate) fn made_as(&self, volume: &str) -> ControllerCreateVolumeRequest {
        self.storage.lock().made[volume].clone()
    }

    /// What was requested when an allocation let go of its volume last.
    pub(crate) fn unmounted_as(&self, alloc: &str) -> NodeDetachVolumeRequest {
        self.storage.lock().unmounted[alloc].clone()
    }

    /// How large a volume is, where that is known.
    pub(crate) fn size(&self, volume: &str) -> Option<i64> {
        self.storage.lock().sizes.get(volume).copied()
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
        if !storage.attached.contains_key(&place) {
            let text = format!("{alloc} mounts {volume} on {node}, where it is not attached");
            storage.wrong.push(text);
        }
        // What a node that was given up still shows is not the volume any more.
        let others = storage
            .mounted
            .iter()
            .filter(|(key, _)| key.0 == volume && key.2 != alloc && !storage.stale.contains(*key));
        let others: Vec<bool> = others.map(|(_, writes)| *writes).collect();
        if !others.is_empty() && !self.shared.load(Ordering::SeqCst) {
            let text = format!("{alloc} is the second that has {volume}");
            storage.wrong.push(text);
        }
        if writes && others.contains(&true) && self.one_writer.load(Ordering::SeqCst) {
            let text = format!("{alloc} is the second that writes to {volume}");
            storage.wrong.push(text);
        }
        let key = (volume.to_owned(), node.to_owned(), alloc.to_owned());
        storage.stale.remove(&key);
        storage.mounted.insert(key, writes);
    }

    fn attach(
        &self,
        requested: ControllerAttachVolumeRequest,
    ) -> Result<ControllerAttachVolumeResponse, Refusal> {
        let mut storage = self.storage.lock();
        let (volume, node) = (requested.volume_id, requested.client_csi_node_id);
        let elsewhere = storage
            .attached
            .iter()
            .find(|((of, at), _)| *of == volume && *at != node);
        let place = (volume.clone(), node.clone());
        if let Some(((_, at), _)) = elsewhere
            && !self.shared.load(Ordering::SeqCst)
        {
            let text = format!("{volume} goes to {node} while it is on {at}");
            // What was attached too late is not known, until it is detached again.
            let known = !storage.stray.contains(&(volume, at.clone()));
            if known && !storage.strays {
                storage.wrong.push(text.clone());
            }
            return Err(Refusal::new(Code::Unavailable, text));
        }
        if !storage.strays {
            storage.stray.remove(&place);
        } else if !storage.attached.contains_key(&place) {
            storage.stray.insert(place.clone());
        }
        let (access, kind) = (requested.access_mode, requested.attachment_mode);
        let how = format!("{access} {kind} {}", requested.read_only);
        let known = storage.attached.entry(place).or_insert_with(|| how.clone());
        if *known != how {
            let text = format!("{volume} is on {node} as {known} and not as {how}");
            storage.wrong.push(text.clone());
            return Err(Refusal::by_rule(text));
        }
        Ok(ControllerAttachVolumeResponse {
            publish_context: [("device", format!("{volume} on {node}"))].into(),
        })
    }

    fn detach(&self, requested: ControllerDetachVolumeRequest) -> Result<Done, Refusal> {
        let mut storage = self.storage.lock();
        let (volume, node) = (requested.volume_id, requested.client_csi_node_id);
        let all = node.is_empty();
        let of = |at: &String| all || *at == node;
        let mut mounted = storage.mounted.keys();
        let mounted =
            mounted.find(|key| key.0 == volume && of(&key.1) && !storage.stale.contains(*key));
        if let Some((_, at, by)) = mounted.cloned() {
            let text = format!("{volume} is taken from {at}, where {by} has it mounted");
            let gone = storage.gone.contains(&at);
            if !gone {
                storage.wrong.push(text.clone());
            }
            if !gone || self.stern.load(Ordering::SeqCst) {
                return Err(Refusal::by_rule(text));
            }
            let there = storage
                .mounted
                .keys()
                .filter(|key| key.0 == volume && key.1 == at);
            let there: Vec<_> = there.cloned().collect();
            storage.stale.extend(there);
        }
        storage
            .attached
            .retain(|(id, at), _| *id != volume || !of(at));
        storage.stray.retain(|(id, at)| *id != volume || !of(at));
        Ok(Done {})
    }

    fn unmount(&self, requested: NodeDetachVolumeRequest) -> Result<Done, Refusal> {
        let mut storage = self.storage.lock();
        let unmounted = &mut storage.unmounted;
        unmounted.insert(requested.alloc_id.clone(), requested.clone());
        let key = (requested.external_id, requested.node_id, requested.alloc_id);
        storage.mounted.remove(&key);
        storage.stale.remove(&key);
        Ok(Done {})
    }

    fn create(
        &self,
        requested: ControllerCreateVolumeRequest,
    ) -> Result<ControllerCreateVolumeResponse, Refusal> {
        let mut storage = self.storage.lock();
        let id = format!("made-{}", requested.name);
        storage.made.insert(id.clone(), requested.clone());
        Ok(ControllerCreateVolumeResponse {
            capacity_bytes: storage.at_least(&id, requested.capacity_min),
            external_volume_id: id,
            snapshot_id: requested.snapshot_id,
            clone_id: requested.clone_id,
            volume_context: [("from", "strict".to_owned())].into(),
            ..ControllerCreateVolumeResponse::default()
        })
    }

    fn delete(&self, requested: ControllerDeleteVolumeRequest) -> Result<Done, Refusal> {
        let mut storage = self.storage.lock();
        let volume = requested.external_volume_id;
        let attached = storage.attached.keys().find(|(id, _)| *id == volume);
        if let Some((_, at)) = attached.cloned() {
            let text = format!("{volume} is deleted while it is on {at}");
            storage.wrong.push(text.clone());
            return Err(Refusal::by_rule(text));
        }
        storage.made.remove(&volume);
        storage.sizes.remove(&volume);
        Ok(Done {})
    }

    fn validate(&self, requested: ControllerValidateVolumeRequest) -> Result<Done, Refusal> {
        match requested.volume_id.starts_with("bad") {
            true => Err(Refusal::by_rule(
                "ValidateVolumeCapabilities: NotFound: no such volume",
            )),
            false => Ok(Done {}),
        }
    }

    fn expand(
        &self,
        requested: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Refusal> {
        let mut storage = self.storage.lock();
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: storage
                .at_least(&requested.external_volume_id, requested.required_bytes),
            node_expansion_required: !self.alone.load(Ordering::SeqCst),
        })
    }

    fn expand_on_node(
        &self,
        requested: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Refusal> {
        let key = (requested.external_id, requested.node_id, requested.alloc_id);
        let there = self.storage.lock().mounted.contains_key(&key);
        Ok(NodeExpandVolumeResponse {
            capacity_bytes: requested.required_bytes,
            places: u64::from(there),
        })
    }
}

struct Weakly(std::sync::Weak<Strict>);

/// The way to the plugin.
pub(crate) struct Way {
    strict: Arc<Strict>,
    /// Nodes that no way leads to.
    pub cut: Mutex<BTreeSet<String>>,
    /// How often it was taken.
    pub calls: AtomicUsize,
}

impl Way {
    pub(crate) fn to(strict: &Arc<Strict>) -> Self {
        Self {
            strict: Arc::clone(strict),
            cut: Mutex::default(),
            calls: AtomicUsize::new(0),
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
        self.calls.fetch_add(1, Ordering::SeqCst);
        let (strict, node) = (Arc::clone(&self.strict), node.to_owned());
        async move {
            let name = method.trim_start_matches("CSI.");
            let lost = || Unanswered::Unsure("the node was lost: it broke off".to_owned());
            if strict.dead.load(Ordering::SeqCst) {
                return Err(lost());
            }
            let fault = strict.next_fault(name);
            if name == "ControllerAttachVolume" {
                strict.strays().await;
            }
            let call = format!("{name} @{node} {fault:?}");
            strict.storage.lock().calls.push(call);
            let answer = strict.carry_out((name, method), body, fault).await;
            if name == "ControllerDetachVolume" {
                strict.strays().await;
            }
            answer
        }
        .boxed()
    }
}

/// The answer, with another volume in it, which was made from nothing.
fn renamed(answer: &Bytes) -> Bytes {
    let answer: ControllerCreateVolumeResponse = rmp_serde::from_slice(answer).expect("an answer");
    let renamed = ControllerCreateVolumeResponse {
        external_volume_id: ANOTHER.to_owned(),
        snapshot_id: String::new(),
        clone_id: String::new(),
        ..answer
    };
    encoded(&renamed)
}

impl Strict {
    fn next_fault(&self, name: &str) -> Option<Fault> {
        let mut faults = self.faults.lock();
        let of = faults.get_mut(name).filter(|of| !of.is_empty());
        of.map(|of| of.remove(0))
    }

    /// What becomes of a call.
    async fn carry_out(
        self: &Arc<Self>,
        (name, method): (&str, &'static str),
        body: Bytes,
        fault: Option<Fault>,
    ) -> Result<Bytes, Unanswered> {
        let lost = || Unanswered::Unsure("the node was lost: it broke off".to_owned());
        if self.catches_up().await || self.storage.lock().busy > 0 {
            let aborted = Refusal::new(Code::Timeout, "Aborted: another call goes on");
            return Err(Unanswered::Refused(aborted));
        }
        match fault {
            Some(Fault::Before) => return Err(lost()),
            Some(Fault::Hangs) => return std::future::pending().await,
            Some(Fault::Says(code)) => {
                let error = Refusal::new(code, format!("{name}: the plugin says {code:?}"));
                return Err(Unanswered::Refused(error));
            }
            Some(Fault::Late) => {
                self.storage.lock().late.push((method, body));
                return Err(lost());
            }
            Some(Fault::Later) => {
                self.storage.lock().later.push((method, body));
                return Err(lost());
            }
            _ => {}
        }
        let handlers = self.handlers.lock().clone().expect("they are set");
        let work = move || handlers.dispatch(method, Call::default(), body.clone());
        let answer = match fault {
            Some(Fault::Slow(many)) => self.slowly(turns(many), work()).await?,
            Some(Fault::Held) => {
                let strict = Arc::clone(self);
                let held = async move {
                    let goes_on = strict.goes_on.acquire().await;
                    goes_on.expect("it is never closed").forget();
                };
                self.slowly(held, work()).await?
            }
            Some(Fault::Twice) => {
                let _ = work().await;
                work().await
            }
            Some(Fault::Lies) if name == "ControllerCreateVolume" => {
                work().await.map(|answer| renamed(&answer))
            }
            _ => work().await,
        };
        match fault {
            Some(Fault::Lost) => Err(lost()),
            _ => answer.map_err(Unanswered::Refused),
        }
    }

    /// What was begun is ended, whether or not a caller waits for it.
    async fn slowly(
        self: &Arc<Self>,
        pause: impl Future<Output = ()> + Send + 'static,
        work: impl Future<Output = Result<Bytes, Refusal>> + Send + 'static,
    ) -> Result<Result<Bytes, Refusal>, Unanswered> {
        self.storage.lock().busy += 1;
        let strict = Arc::clone(self);
        let ended = tokio::spawn(async move {
            pause.await;
            let answer = work.await;
            strict.storage.lock().busy -= 1;
            answer
        });
        ended
            .await
            .map_err(|error| Unanswered::Unsure(error.to_string()))
    }
}
