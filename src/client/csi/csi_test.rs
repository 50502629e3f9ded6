use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use drover_csi::harness::Fake;
use drover_csi::{Identity, NodeInfo, Plugin};
use drover_events::gojson::from_value;
use drover_events::model::{Allocation, CsiVolume};
use drover_testkit::{LONG, eventually, so};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::claim::{CsiHook, Held, Volumes, asked};
use super::registry::{Change, Found, Instance, Kind};
use super::*;
use crate::client::alloc::dir::AllocDir;
use crate::client::alloc::hooks::AllocGiven;
use crate::client::alloc::runner::alloc_key;
use crate::client::config::Settings;
use crate::client::journal::LogJournal;
use crate::error::{ApiError, Code};
use crate::rpc::Rpc;
use crate::rpc::csi::*;
use crate::rpc::duplex::{Duplex, Pace};
use crate::rpc::methods::WriteResponse;
use crate::rpc::service::{Call, Dispatch};

/// The servers: they give what is claimed, or refuse.
#[derive(Default)]
struct Servers {
    refuses: Mutex<Option<ApiError>>,
    claims: AtomicUsize,
    given_back: Mutex<Vec<CsiVolumeUnpublishRequest>>,
}

impl Servers {
    async fn called(&self, name: &str, body: &[u8]) -> Result<Bytes, ApiError> {
        if let Some(refusal) = self.refuses.lock().clone() {
            return Err(refusal);
        }
        match name {
            CsiVolumeClaim::NAME => {
                with::<CsiVolumeClaim>(body, async |asked| Ok(self.claimed(asked))).await
            }
            CsiVolumeUnpublish::NAME => {
                with::<CsiVolumeUnpublish>(body, async |asked| {
                    self.given_back.lock().push(asked);
                    Ok(WriteResponse::default())
                })
                .await
            }
            _ => Err(ApiError::not_found(name)),
        }
    }

    fn claimed(&self, asked: CsiVolumeClaimRequest) -> CsiVolumeClaimResponse {
        self.claims.fetch_add(1, Ordering::Relaxed);
        CsiVolumeClaimResponse {
            publish_context: [("device", "/dev/x".to_owned())].into(),
            volume: Some(CsiVolume {
                id: asked.volume_id,
                external_id: "far-vol".to_owned(),
                plugin_id: "p".to_owned(),
                secrets: [("key", "correct-horse".to_owned())].into(),
                ..CsiVolume::default()
            }),
            index: 7,
        }
    }
}

/// Answers with what a method makes of a request.
async fn with<R: Rpc>(
    body: &[u8],
    work: impl AsyncFnOnce(R::Req) -> Result<R::Res, ApiError>,
) -> Result<Bytes, ApiError> {
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
    ) -> BoxFuture<'static, Result<Bytes, ApiError>> {
        let (servers, name) = (Arc::clone(&self.0), name.to_owned());
        async move { servers.called(&name, &body).await }.boxed()
    }

    fn streams(&self, _: &str) -> Option<Pace> {
        None
    }

    fn open(&self, _: &str, _: Call, _: Duplex) -> BoxFuture<'static, Result<(), ApiError>> {
        std::future::ready(Err(ApiError::not_found("no stream"))).boxed()
    }

    fn knows(&self, _: &Call) -> BoxFuture<'static, bool> {
        std::future::ready(true).boxed()
    }
}

struct World {
    folder: TempDir,
    servers: Arc<Servers>,
    journal: Arc<dyn Journal>,
    node: Arc<Mutex<Arc<Node>>>,
}

impl World {
    fn new() -> Self {
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
            folder,
        }
    }

    fn csi(&self) -> Arc<Csi> {
        let caller = Caller::process(Arc::new(Front(Arc::clone(&self.servers))), "");
        let more = (caller, Clock::System);
        Csi::restore(self.folder.path(), &self.node, &self.journal, more)
    }

    fn fake(&self) -> Fake {
        Fake::at(&self.folder.path().join("csi.sock"))
    }

    fn instance(&self, alloc: &str, kind: Kind) -> Instance {
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

    async fn register(&self, csi: &Csi, alloc: &str, kind: Kind, found: Found) {
        let instance = self.instance(alloc, kind);
        let plugin = Plugin::at(&instance.socket);
        csi.registry.register(instance, plugin, found).await;
    }

    fn given(&self, alloc: Allocation) -> AllocGiven {
        AllocGiven {
            dir: AllocDir::new(&self.folder.path().join("alloc"), &alloc.id),
            alloc: Arc::new(alloc),
            node: self.node.lock().clone(),
            settings: Arc::new(Settings::default()),
            resources: Arc::default(),
            previous: Vec::new(),
        }
    }
}

fn found(healthy: bool) -> Found {
    let mut found = Found {
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
        ..Found::default()
    };
    found.features.plugin.controller = true;
    found.features.node.get_or_insert_default().stage = true;
    found
}

fn user(options: &Value) -> Allocation {
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

#[tokio::test]
async fn mod_08_plugins_are_known_by_name_and_part_and_again_after_a_restart() {
    let world = World::new();
    let csi = world.csi();
    let mut changes = csi.registry.subscribe();
    world
        .register(&csi, "old", Kind::Monolith, found(true))
        .await;
    world.register(&csi, "new", Kind::Node, found(false)).await;
    for alloc in ["old", "new"] {
        let registered = Change::Registered(match alloc {
            "old" => world.instance(alloc, Kind::Monolith),
            _ => world.instance(alloc, Kind::Node),
        });
        assert_eq!(changes.try_recv().unwrap(), registered);
    }
    let asked = |csi: &Csi, part| {
        let found = csi.registry.find(part, "p");
        found.map(|live| live.instance.alloc)
    };
    // PLG-11: the newest that is healthy, during an update.
    assert_eq!(asked(&csi, Part::Node), Some("old".to_owned()));
    assert!(csi.registry.update(("new", "t"), found(true)));
    assert_eq!(asked(&csi, Part::Node), Some("new".to_owned()));
    assert_eq!(asked(&csi, Part::Controller), Some("old".to_owned()));
    assert!(csi.part(Part::Node, "other").await.is_err());

    // A new agent, which knows one of the two allocations.
    world
        .journal
        .put(&alloc_key("old"), b"x".to_vec())
        .await
        .unwrap();
    let later = world.csi();
    assert_eq!(asked(&later, Part::Node), Some("old".to_owned()));
    assert_eq!(later.registry.all().len(), 1);
    later.describe();
    assert!(
        world.node.lock().csi_node_plugins.is_empty(),
        "it has not answered yet"
    );

    // Nothing is done with it before it has said what it can.
    assert!(later.part(Part::Node, "p").await.is_err());
    let _fake = world.fake();
    let live = later.part(Part::Node, "p").await.unwrap();
    assert!(live.found.features.node.unwrap().stage);

    assert!(csi.registry.deregister("old", "t").await);
    assert!(!csi.registry.deregister("old", "t").await);
    let gone = Change::Deregistered(world.instance("old", Kind::Monolith));
    assert_eq!(changes.try_recv().unwrap(), gone);
    assert!(changes.try_recv().is_err(), "nothing else happened");
    assert!(csi.part(Part::Controller, "p").await.is_err());
}

#[tokio::test]
async fn plg_04_the_node_says_which_plugins_it_has_and_how_they_are() {
    let world = World::new();
    let csi = world.csi();
    let told = |node: &Node| {
        let shown = |(name, info): (&String, &drover_events::model::CsiInfo)| {
            let of = (
                info.alloc_id.clone(),
                info.healthy,
                info.health_description.clone(),
            );
            (name.clone(), of)
        };
        let nodes: BTreeMap<_, _> = node.csi_node_plugins.iter().map(shown).collect();
        let controllers = node.csi_controller_plugins.len();
        (nodes.get("p").cloned(), controllers)
    };
    let of = |alloc: &str, healthy, text: &str| Some((alloc.to_owned(), healthy, text.to_owned()));
    world
        .register(&csi, "a1", Kind::Monolith, found(true))
        .await;
    csi.describe();
    csi.described().await;
    let node = world.node.lock().clone();
    assert_eq!(told(&node), (of("a1", true, "healthy"), 1));
    let info = &node.csi_node_plugins["p"];
    assert_eq!(
        (&*info.provider, &*info.provider_version),
        ("fake.example.com", "1.2.3")
    );
    assert!(info.requires_controller_plugin && info.controller_info.is_none());
    let of_node = info.node_info.as_ref().unwrap();
    assert!(of_node.requires_node_stage_volume);
    assert_eq!(of_node.id, "far-node");

    // The same again is no news.
    csi.describe();
    assert!(csi.described().now_or_never().is_none());
    // One that is not healthy does not hide one that is.
    world.register(&csi, "a2", Kind::Node, found(false)).await;
    csi.describe();
    assert_eq!(told(&world.node.lock()), (of("a1", true, "healthy"), 1));
    csi.registry.update(("a1", "t"), found(false));
    csi.describe();
    let sick = of("a2", false, "it says nothing");
    assert_eq!(told(&world.node.lock()), (sick, 1));
    for alloc in ["a1", "a2"] {
        csi.registry.deregister(alloc, "t").await;
    }
    csi.describe();
    assert_eq!(told(&world.node.lock()), (None, 0));
}

#[tokio::test]
async fn cl_27_an_allocation_waits_for_its_claim_and_its_mount_and_gives_them_back() {
    let world = World::new();
    let csi = world.csi();
    let alloc = user(&Value::Null);
    let volumes = asked(&alloc);
    assert_eq!(volumes.len(), 1, "the volume of the host is not claimed");
    let hook = CsiHook::new(&csi, volumes);
    let given = world.given(alloc);
    // The servers hold the claim back; then there is no plugin; then it is broken.
    let held_back = ApiError::refused("volume max claims reached");
    *world.servers.refuses.lock() = Some(held_back);
    let mut prerun = hook.prerun(&given, &Value::Null);
    assert!((&mut prerun).now_or_never().is_none());
    *world.servers.refuses.lock() = None;
    let claims = || world.servers.claims.load(Ordering::Relaxed);
    tokio::select! {
        _ = &mut prerun => panic!("there is no plugin"),
        claimed = eventually("a claim", LONG, || so(claims() > 0)) => claimed.unwrap(),
    }
    let fake = world.fake();
    world
        .register(&csi, "plug", Kind::Monolith, found(true))
        .await;
    let answer = prerun.await.unwrap();
    assert!(answer.done);
    assert!(
        !answer.kept.to_string().contains("correct-horse"),
        "{}",
        answer.kept
    );
    let held = given.resources.get::<Volumes>().unwrap().0["data"].clone();
    let place = "csi/monolith/p/per-alloc/a1/vol[2]/rw-file-system-single-node-writer";
    assert_eq!(held.path, world.folder.path().join(place));
    {
        let seen = fake.says.seen.lock().unwrap();
        let published = seen
            .iter()
            .find(|(shown, _)| shown.starts_with("NodePublish"))
            .unwrap();
        assert!(published.0.contains("\"far-vol\"") && published.0.contains("/dev/x"));
    }

    // A new agent finds it without servers (CL-13).
    *world.servers.refuses.lock() = Some(ApiError::new(Code::NoLeader, "no leader"));
    let given = world.given((*given.alloc).clone());
    hook.restore(&given, &answer.kept).await.unwrap();
    assert_eq!(given.resources.get::<Volumes>().unwrap().0["data"], held);
    // What is gone is made good.
    *world.servers.refuses.lock() = None;
    std::fs::remove_dir(&held.path).unwrap();
    hook.restore(&given, &answer.kept).await.unwrap();
    assert!(held.path.is_dir());

    // CSI-44: given back, also by who knows nothing of it.
    let answer = hook.postrun(&given, &Value::Null).await.unwrap();
    assert!(answer.done);
    let given_back = world.servers.given_back.lock().clone();
    let claim = given_back[0].claim.clone().unwrap();
    assert_eq!((given_back.len(), &*given_back[0].volume_id), (1, "vol[2]"));
    assert_eq!(
        (&*claim.allocation_id, &*claim.node_id, claim.mode),
        ("a1", "n1", 1)
    );
}

#[tokio::test]
async fn what_never_passes_is_not_waited_out() {
    let world = World::new();
    let csi = world.csi();
    let alloc = user(&Value::Null);
    let hook = CsiHook::new(&csi, asked(&alloc));
    let given = world.given(alloc);
    *world.servers.refuses.lock() = Some(ApiError::not_found("volume not found: vol[2]"));
    let error = hook.prerun(&given, &Value::Null).await.unwrap_err();
    assert_eq!(
        error,
        "could not claim volume vol[2]: volume not found: vol[2]"
    );
    assert!(given.resources.get::<Volumes>().is_none());
    hook.postrun(&given, &Value::Null).await.unwrap();

    // PLG-10: a plugin that refuses, in its own words.
    *world.servers.refuses.lock() = None;
    let fake = world.fake();
    world
        .register(&csi, "plug", Kind::Monolith, found(true))
        .await;
    let no = drover_csi::Code::InvalidArgument;
    *fake.says.refuses.lock().unwrap() = Some(fake.status(no, "no such file system"));
    let error = hook.prerun(&given, &Value::Null).await.unwrap_err();
    assert_eq!(
        error,
        "could not mount volume vol[2]: NodeStageVolume: InvalidArgument: no such file system"
    );
}

#[tokio::test]
async fn csi_15_options_of_the_job_replace_the_volumes() {
    let world = World::new();
    let csi = world.csi();
    let fake = world.fake();
    world
        .register(&csi, "plug", Kind::Monolith, found(true))
        .await;
    let options = json!({"FSType": "ext4", "MountFlags": ["noatime"]});
    let alloc = user(&options);
    let hook = CsiHook::new(&csi, asked(&alloc));
    let given = world.given(alloc);
    hook.prerun(&given, &Value::Null).await.unwrap();
    let held: Held = given.resources.get::<Volumes>().unwrap().0["data"].clone();
    let name = held
        .path
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    assert!(
        name.starts_with("rw-file-system-single-node-writer-"),
        "{name}"
    );
    let seen = fake.says.seen.lock().unwrap();
    let published = seen
        .iter()
        .find(|(shown, _)| shown.starts_with("NodePublish"))
        .unwrap();
    assert!(
        published.0.contains("ext4") && published.0.contains("noatime"),
        "{}",
        published.0
    );
}

fn detaching() -> NodeDetachVolumeRequest {
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

#[tokio::test]
async fn plg_09_servers_reach_plugins_and_every_call_may_be_repeated() {
    async fn call<R: Rpc>(csi: &Arc<Csi>, asked: &R::Req) -> Result<R::Res, ApiError> {
        let body = rmp_serde::to_vec_named(asked).unwrap();
        let service = super::answer::service(csi);
        let answer = service
            .dispatch(R::NAME, Call::default(), body.into())
            .await?;
        Ok(rmp_serde::from_slice(&answer).unwrap())
    }
    let world = World::new();
    let csi = world.csi();
    let detach = detaching();
    // CSI-45: without the plugin it is not said to be done.
    let error = call::<NodeDetachVolume>(&csi, &detach).await.unwrap_err();
    let text = "node detach volume: no node plugin \"p\" runs on this node";
    assert_eq!((error.code, &*error.message), (Code::Unavailable, text));

    let fake = world.fake();
    world
        .register(&csi, "plug", Kind::Monolith, found(true))
        .await;
    let alloc = user(&Value::Null);
    let hook = CsiHook::new(&csi, asked(&alloc));
    hook.prerun(&world.given(alloc), &Value::Null)
        .await
        .unwrap();
    let count = |name: &str| {
        let seen = fake.says.seen.lock().unwrap();
        seen.iter()
            .filter(|(shown, _)| shown.starts_with(name))
            .count()
    };
    for _ in 0..2 {
        call::<NodeDetachVolume>(&csi, &detach).await.unwrap();
        assert_eq!(
            (count("NodeUnpublish"), count("NodeUnstage")),
            (1, 1),
            "CSI-34"
        );
    }

    let attach = ControllerAttachVolumeRequest {
        plugin_id: "p".to_owned(),
        volume_id: "far-vol".to_owned(),
        attachment_mode: "file-system".to_owned(),
        access_mode: "single-node-writer".to_owned(),
        ..ControllerAttachVolumeRequest::default()
    };
    call::<ControllerAttachVolume>(&csi, &attach).await.unwrap();
    let mut odd = attach.clone();
    odd.access_mode = "everybody".to_owned();
    let error = call::<ControllerAttachVolume>(&csi, &odd)
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::BadRequest);
    let gone = drover_csi::Code::NotFound;
    *fake.says.refuses.lock().unwrap() = Some(fake.status(gone, "no volume"));
    let error = call::<ControllerAttachVolume>(&csi, &attach)
        .await
        .unwrap_err();
    let text = "controller attach volume: ControllerPublishVolume: NotFound: no volume";
    assert_eq!((error.code, &*error.message), (Code::Refused, text));
}
