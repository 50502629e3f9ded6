//! A node for tests: servers that give what is claimed, and a plugin that answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use bytes::Bytes;
use drover_csi::{Identity, NodeInfo, Plugin};
use drover_csifake::Fake;
use drover_events::gojson::from_value;
use drover_events::model::{Allocation, CsiVolume};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::claim::{CsiHook, MountedVolume, MountedVolumes, claim_requests};
use super::registry::{Instance, PluginKind, PluginProbe};
use super::*;
use crate::alloc_dir::AllocDir;
use crate::config::ClientSettings;
use crate::hooks::alloc::AllocGiven;
use crate::journal::LogJournal;
use drover_base::clock::unix_nanos;
use drover_error::Refusal;
use drover_rpc::Rpc;
use drover_rpc::csi::*;
use drover_rpc::duplex::{Duplex, Keepalive};
use drover_rpc::methods::WriteResponse;
use drover_rpc::service::{Call, Dispatch};

/// The servers: they give what is claimed, or refuse.
#[derive(Default)]
pub(super) struct Servers {
    pub(super) refuses: Mutex<Option<Refusal>>,
    pub(super) claims: AtomicUsize,
    /// The namespaces in which volumes were claimed.
    pub(super) claimed_in: Mutex<Vec<String>>,
    pub(super) given_back: Mutex<Vec<CsiVolumeUnpublishRequest>>,
    /// The volume that they give, where it is not the usual one.
    pub(super) gives: Mutex<Option<CsiVolume>>,
    /// The growth of it that a node has a part to do of.
    pub(super) growth: AtomicI64,
    /// The growths that a node reported as done.
    pub(super) expanded: Mutex<Vec<i64>>,
}

impl Servers {
    async fn called(&self, name: &str, body: &[u8]) -> Result<Bytes, Refusal> {
        if let Some(refusal) = self.refuses.lock().clone() {
            return Err(refusal);
        }
        match name {
            CsiVolumeClaim::NAME => {
                with::<CsiVolumeClaim>(body, async |requested| Ok(self.claimed(requested))).await
            }
            CsiVolumeUnpublish::NAME => {
                with::<CsiVolumeUnpublish>(body, async |requested| {
                    self.given_back.lock().push(requested);
                    Ok(WriteResponse::default())
                })
                .await
            }
            _ => Err(Refusal::not_found(name)),
        }
    }

    fn claimed(&self, requested: CsiVolumeClaimRequest) -> CsiVolumeClaimResponse {
        if requested.expanded != 0 {
            self.expanded.lock().push(requested.expanded);
            return CsiVolumeClaimResponse::default();
        }
        self.claimed_in.lock().push(requested.namespace);
        self.claims.fetch_add(1, Ordering::Relaxed);
        let given = self.gives.lock().clone();
        CsiVolumeClaimResponse {
            publish_context: [("device", "/dev/x".to_owned())].into(),
            volume: given.or(Some(CsiVolume {
                id: requested.volume_id,
                external_id: "far-vol".to_owned(),
                plugin_id: "p".to_owned(),
                secrets: [("key", "correct-horse".to_owned())].into(),
                ..CsiVolume::default()
            })),
            index: 7,
            node_expansion: self.growth.load(Ordering::Relaxed),
        }
    }
}

/// Answers with what a method makes of a request.
async fn with<R: Rpc>(
    body: &[u8],
    work: impl AsyncFnOnce(R::Req) -> Result<R::Res, Refusal>,
) -> Result<Bytes, Refusal> {
    let answer = work(rmp_serde::from_slice(body).unwrap()).await?;
    Ok(rmp_serde::to_vec_named(&answer).unwrap().into())
}

struct Front(Arc<Servers>);

impl Dispatch for Front {
    fn dispatch(
        &self,
        name: &str,
        _: Call,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let (servers, name) = (Arc::clone(&self.0), name.to_owned());
        async move { servers.called(&name, &body).await }.boxed()
    }

    fn streams(&self, _: &str) -> Option<Keepalive> {
        None
    }

    fn open(&self, _: &str, _: Call, _: Duplex) -> BoxFuture<'static, Result<(), Refusal>> {
        std::future::ready(Err(Refusal::not_found("no stream"))).boxed()
    }

    fn knows(&self, _: &Call) -> BoxFuture<'static, bool> {
        std::future::ready(true).boxed()
    }
}

/// A node, whose agent may be started again.
pub(super) struct World {
    pub(super) folder: TempDir,
    pub(super) servers: Arc<Servers>,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) node: Arc<Mutex<Arc<Node>>>,
    /// What time it is, where it matters how long something lasts.
    pub(super) now: Arc<Mutex<i64>>,
}

impl World {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = LogJournal::open(&folder.path().join("journal")).unwrap();
        let node = Node {
            id: "n1".to_owned(),
            ..Node::default()
        };
        Self {
            servers: Arc::default(),
            journal: Arc::new(journal),
            node: Arc::new(Mutex::new(Arc::new(node))),
            now: Arc::new(Mutex::new(unix_nanos())),
            folder,
        }
    }

    pub(super) fn csi(&self) -> Arc<Csi> {
        let caller = Caller::process(Arc::new(Front(Arc::clone(&self.servers))), "");
        let more = (caller, Clock::Manual(Arc::clone(&self.now)));
        let csi = Csi::restore(self.folder.path(), &self.node, &self.journal, more);
        let mut csi = Arc::into_inner(csi).expect("it is not shared yet");
        // The fake does not mount.
        csi.mounts = Arc::new(Mounts::new(false));
        Arc::new(csi)
    }

    /// What another agent has, which begins with the journal and knows nothing else.
    pub(super) fn restarted(&self) -> Arc<Csi> {
        let node = Node {
            id: "n1".to_owned(),
            ..Node::default()
        };
        *self.node.lock() = Arc::new(node);
        self.csi()
    }

    pub(super) fn fake(&self) -> Fake {
        Fake::at(&self.folder.path().join("csi.sock"))
    }

    pub(super) fn instance(&self, alloc: &str, kind: PluginKind) -> Instance {
        let host = self.folder.path().join("csi").join(kind.word()).join("p");
        Instance {
            plugin: "p".to_owned(),
            kind,
            alloc: alloc.to_owned(),
            task: "t".to_owned(),
            socket: self.folder.path().join("csi.sock"),
            seen: host.clone(),
            host,
        }
    }

    pub(super) async fn register(
        &self,
        csi: &Csi,
        alloc: &str,
        kind: PluginKind,
        found: PluginProbe,
    ) {
        let instance = self.instance(alloc, kind);
        let plugin = Plugin::at(&instance.socket);
        csi.registry.register(instance, plugin, found).await;
    }

    /// A node with a plugin that answers.
    pub(super) async fn ready() -> (Self, Arc<Csi>, Fake) {
        let world = Self::new();
        let (csi, fake) = (world.csi(), world.fake());
        world
            .register(&csi, "plug", PluginKind::Monolith, found(true))
            .await;
        (world, csi, fake)
    }

    /// The hook of an allocation, and what its calls are given.
    pub(super) fn hook(&self, csi: &Arc<Csi>, alloc: Allocation) -> (CsiHook, AllocGiven) {
        let hook = CsiHook::new(csi, claim_requests(&alloc));
        (hook, self.given(alloc))
    }

    pub(super) fn given(&self, alloc: Allocation) -> AllocGiven {
        AllocGiven {
            dir: AllocDir::new(&self.folder.path().join("alloc"), &alloc.id),
            alloc: Arc::new(alloc),
            node: self.node.lock().clone(),
            settings: Arc::new(ClientSettings::default()),
            resources: Arc::default(),
            previous: Vec::new(),
            report: Arc::new(|_: &str, _: &str| {}),
        }
    }
}

pub(super) fn found(healthy: bool) -> PluginProbe {
    let mut found = PluginProbe {
        identity: Some(Identity {
            name: "fake.example.com".to_owned(),
            version: "1.2.3".to_owned(),
        }),
        node: Some(NodeInfo {
            id: "far-node".to_owned(),
            ..NodeInfo::default()
        }),
        healthy,
        trouble: if healthy { "" } else { "it says nothing" }.to_owned(),
        ..PluginProbe::default()
    };
    found.features.plugin.controller = true;
    found.features.node.get_or_insert_default().stage = true;
    found
}

/// An allocation with one CSI volume, and one of the host's.
pub(super) fn user(options: &Value) -> Allocation {
    from_value(json!({
        "ID": "a1", "Name": "j.g[2]", "Namespace": "default", "TaskGroup": "g",
        "Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Volumes": {
            "data": {"Name": "data", "Type": "csi", "Source": "vol", "PerAlloc": true,
                "AccessMode": "single-node-writer", "AttachmentMode": "file-system",
                "MountOptions": options},
            "host": {"Name": "host", "Type": "host", "Source": "h"},
        }}]},
    }))
    .unwrap()
}

pub(super) fn detaching() -> NodeDetachVolumeRequest {
    NodeDetachVolumeRequest {
        plugin_id: "p".to_owned(),
        volume_id: "vol[2]".to_owned(),
        volume_namespace: "default".to_owned(),
        alloc_id: "a1".to_owned(),
        external_id: "far-vol".to_owned(),
        attachment_mode: "file-system".to_owned(),
        access_mode: "single-node-writer".to_owned(),
        ..NodeDetachVolumeRequest::default()
    }
}

/// What servers are answered.
pub(super) async fn call<R: Rpc>(csi: &Arc<Csi>, requested: &R::Req) -> Result<R::Res, Refusal> {
    let body = rmp_serde::to_vec_named(requested).unwrap();
    let service = answer::service(csi);
    let answer = service
        .dispatch(R::NAME, Call::default(), body.into())
        .await?;
    Ok(rmp_serde::from_slice(&answer).unwrap())
}

/// The requests of this kind to a plugin.
pub(super) fn seen(fake: &Fake, name: &str) -> Vec<String> {
    let seen = fake.says.seen.lock().unwrap();
    let of = seen.iter().filter(|(shown, _)| shown.starts_with(name));
    of.map(|(shown, _)| shown.clone()).collect()
}

/// The volumes that a hook left.
pub(super) fn left(given: &AllocGiven) -> BTreeMap<String, MountedVolume> {
    let volumes = given.resources.get::<MountedVolumes>();
    volumes.unwrap_or_default().0
}
