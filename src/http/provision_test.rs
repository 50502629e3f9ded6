//! Volumes at their plugins over HTTP, with a client that answers as one does.

use std::sync::Arc;

use drover_events::model::{CsiControllerInfo, CsiInfo, CsiNodeInfo};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::commands::node::RegisterNode;
use crate::error::Refusal;
use crate::http::harness::{Harness, Reply};
use crate::proposer::Origin;
use crate::rpc::client_calls::{Head, answer};
use crate::rpc::csi::*;
use crate::rpc::duplex::{Duplex, Keepalive};
use crate::rpc::service::{Access, Call, Dispatch, Service};
use crate::rpc::sessions::{Dial, SessionRequest, Sessions};
use drover_testkit::fixtures;

/// What was requested of the plugin.
#[derive(Default)]
pub(super) struct PluginRequests(pub(super) Mutex<Vec<String>>);

macro_rules! plugin {
    ($requested:expr; $($method:ident($req:ty) => $answer:expr;)*) => {
        Service::new($requested)$(.method::<$method, _, _>(
            Access::Server,
            async |requested: Arc<PluginRequests>, _: Call, request: $req| {
                let mut reported: Value = serde_json::to_value(&request).unwrap();
                reported["Method"] = stringify!($method).into();
                requested.0.lock().push(reported.to_string());
                let answer: fn($req) -> Result<_, Refusal> = $answer;
                answer(request)
            },
        ))*
    };
}

fn plugin(requested: Arc<PluginRequests>) -> Arc<dyn Dispatch> {
    Arc::new(plugin! { requested;
        ControllerCreateVolume(ControllerCreateVolumeRequest) => |request| {
            Ok(ControllerCreateVolumeResponse {
                external_volume_id: format!("ext-{}", request.name),
                capacity_bytes: request.capacity_min,
                ..ControllerCreateVolumeResponse::default()
            })
        };
        ControllerDeleteVolume(ControllerDeleteVolumeRequest) => |request| {
            match request.secrets.0.contains_key("bad") {
                true => Err(Refusal::by_rule("DeleteVolume: PermissionDenied: no")),
                false => Ok(Done {}),
            }
        };
        ControllerCreateSnapshot(ControllerCreateSnapshotRequest) => |request| {
            Ok(ControllerCreateSnapshotResponse {
                id: format!("snap-{}", request.name),
                external_source_volume_id: request.volume_id,
                is_ready: true,
                ..ControllerCreateSnapshotResponse::default()
            })
        };
        ControllerDeleteSnapshot(ControllerDeleteSnapshotRequest) => |_| Ok(Done {});
        ControllerValidateVolume(ControllerValidateVolumeRequest) => |_| Ok(Done {});
        ControllerListVolumes(ControllerListVolumesRequest) => |request| {
            Ok(ControllerListVolumesResponse {
                next_token: format!("after-{}-{}", request.starting_token, request.max_entries),
                ..ControllerListVolumesResponse::default()
            })
        };
    })
}

/// A client whose control stream the server holds.
pub(super) fn client(sessions: &Arc<Sessions>, node: String, handlers: Arc<dyn Dispatch>) {
    let (near, far) = Duplex::pair(Keepalive::STANDING);
    sessions.hold(&node, far);
    let sessions = Arc::clone(sessions);
    tokio::spawn(async move {
        let Duplex {
            mut inflow,
            outflow: _open,
        } = near;
        while let Ok(dial) = inflow.message::<Dial>().await {
            let (mut here, there) = Duplex::pair(Keepalive::SESSION);
            let requested = SessionRequest {
                node_id: node.clone(),
                session: dial.session,
            };
            let _ = sessions.join(&requested, there);
            let handlers = Some(Arc::clone(&handlers));
            tokio::spawn(async move {
                let head: Head = here.inflow.message().await.unwrap();
                let _ = answer(handlers, &head.target, (here.inflow, here.outflow)).await;
            });
        }
    });
}

/// A server, with a node that runs the plugin `p`.
pub(super) async fn world() -> (Harness, Arc<PluginRequests>) {
    let h = Harness::start().await;
    let mut node = fixtures::node(1);
    let info = CsiInfo {
        plugin_id: "p".into(),
        healthy: true,
        requires_controller_plugin: true,
        controller_info: Some(CsiControllerInfo {
            supports_create_delete: true,
            supports_create_delete_snapshot: true,
            supports_list_volumes: true,
            ..CsiControllerInfo::default()
        }),
        node_info: Some(CsiNodeInfo {
            id: "n".into(),
            ..CsiNodeInfo::default()
        }),
        ..CsiInfo::default()
    };
    node.csi_controller_plugins = [("p", info.clone())].into();
    node.csi_node_plugins = [("p", info)].into();
    let (id, requested) = (node.id.clone(), Arc::<PluginRequests>::default());
    let command = RegisterNode {
        node,
        create_node_pool: true,
    };
    h.server.submit(command, Origin::default()).await.unwrap();
    let ready = crate::commands::node::UpdateNodeStatus {
        node_id: id.clone(),
        status: "ready".into(),
        event: None,
    };
    h.server.submit(ready, Origin::default()).await.unwrap();
    client(&h.server.sessions, id, plugin(Arc::clone(&requested)));
    (h, requested)
}

pub(super) fn volume(name: &str) -> Value {
    json!({"Volumes": [{
        "ID": name, "Name": name, "PluginID": "p", "RequestedCapacityMin": 7,
        "RequestedCapabilities": [
            {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}],
        "Secrets": {"password": "canary"},
    }]})
}

fn status_and_text(reply: &Reply) -> (u16, String) {
    (reply.status, reply.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_46_volumes_and_snapshots_are_made_and_deleted_at_their_plugin() {
    let (h, requested) = world().await;
    let made = h.put("/v1/volume/csi/new/create", &volume("new")).await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert!(made.index() > 0);
    let shown = &made.json()["Volumes"][0];
    assert_eq!(
        (&shown["ExternalID"], &shown["Capacity"]),
        (&json!("ext-new"), &json!(7))
    );
    assert_eq!(shown["Secrets"], Value::Null);
    assert!(
        requested.0.lock()[0].contains("canary"),
        "the plugin gets what it needs"
    );
    let other = h.put("/v1/volume/csi/other/create", &volume("new")).await;
    assert_eq!(
        status_and_text(&other),
        (400, "Volume ID does not match request path".to_owned())
    );
    let snapshot = json!({"Snapshots": [{"SourceVolumeID": "new", "Name": "s"}]});
    let made = h.put("/v1/volumes/snapshot", &snapshot).await;
    assert_eq!(
        made.json()["Snapshots"][0]["ID"],
        "snap-s",
        "{}",
        made.text()
    );
    let gone = h
        .ask(
            "DELETE",
            "/v1/volumes/snapshot?plugin_id=p&snapshot_id=snap-s",
            "",
        )
        .await;
    assert_eq!(status_and_text(&gone), (200, String::new()));
    let listed = h
        .get("/v1/volumes/external?plugin_id=p&per_page=3&next_token=x")
        .await;
    assert_eq!(listed.json()["NextToken"], "after-x-3");
    let listed = h.get("/v1/volumes/snapshot?plugin_id=p").await;
    let cannot = "plugin \"p\" does not list snapshots".to_owned();
    assert_eq!(status_and_text(&listed), (500, cannot));
    let deleted = h.ask("DELETE", "/v1/volume/csi/new/delete", "").await;
    assert_eq!((deleted.status, deleted.text()), (200, String::new()));
    assert_eq!(h.get("/v1/volume/csi/new").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_01_no_verb_takes_an_empty_body_list_or_id() {
    const EMPTY: &str = "Request body is empty";
    let (h, requested) = world().await;
    let index = h.get("/v1/volumes?type=csi").await.index();
    let (volume, snapshot) = ("missing volume definition", "missing snapshot definition");
    let (create, register) = ("/v1/volume/csi/x/create", "/v1/volume/csi/x");
    let snapshots = "/v1/volumes/snapshot";
    let mut wrong = Vec::new();
    for (method, target, body, text) in [
        ("PUT", register, "", EMPTY),
        ("PUT", register, "{}", volume),
        ("PUT", register, r#"{"Volumes": []}"#, volume),
        ("PUT", register, r#"{"Volumes": [{}]}"#, "missing plugin id"),
        (
            "PUT",
            "/v1/volume/csi/",
            r#"{"Volumes": [{"PluginID": "p"}]}"#,
            "resource not found",
        ),
        ("PUT", create, "", EMPTY),
        ("PUT", create, "{}", volume),
        ("PUT", create, r#"{"Volumes": []}"#, volume),
        ("PUT", create, r#"{"Volumes": [{}]}"#, "does not match"),
        ("PUT", snapshots, "", EMPTY),
        ("PUT", snapshots, "{}", snapshot),
        ("PUT", snapshots, r#"{"Snapshots": []}"#, snapshot),
        (
            "PUT",
            snapshots,
            r#"{"Snapshots": [{}]}"#,
            "missing volume ID",
        ),
        ("DELETE", snapshots, "", "missing plugin ID"),
        (
            "DELETE",
            "/v1/volumes/snapshot?plugin_id=p",
            "",
            "missing snapshot ID",
        ),
        (
            "DELETE",
            "/v1/volume/csi/x/detach",
            "",
            "detach requires node ID",
        ),
        ("DELETE", "/v1/volume/csi/", "", "resource not found"),
    ] {
        let reply = h.ask(method, target, body).await;
        let (status, reported) = status_and_text(&reply);
        if !(400..500).contains(&status) || !reported.contains(text) {
            wrong.push(format!("{method} {target} {body}: {status} {reported}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let after = h.get("/v1/volumes?type=csi").await.index();
    assert_eq!(after, index, "nothing of it reached the log");
    assert!(requested.0.lock().is_empty(), "nor the plugin");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_39_what_cannot_be_done_is_refused_in_words() {
    let (h, requested) = world().await;
    for (target, status, text) in [
        ("/v1/volume/csi/x/detach", 400, "detach requires node ID"),
        ("/v1/volume/csi/x/detach?node=n", 500, "volume not found: x"),
        ("/v1/volume/csi/x/delete", 500, "volume not found: x"),
        ("/v1/volumes/snapshot", 400, "missing plugin ID"),
        (
            "/v1/volumes/snapshot?plugin_id=p",
            400,
            "missing snapshot ID",
        ),
        (
            "/v1/volumes/snapshot?plugin_id=q&snapshot_id=s",
            500,
            "no CSI plugin named: q could be found",
        ),
    ] {
        let reply = h.ask("DELETE", target, "").await;
        assert_eq!(
            status_and_text(&reply),
            (status, text.to_owned()),
            "{target}"
        );
    }
    let none = h
        .put("/v1/volume/csi/x/create", &json!({"Volumes": []}))
        .await;
    assert_eq!(
        status_and_text(&none),
        (400, "missing volume definition".to_owned())
    );
    assert!(
        requested.0.lock().is_empty(),
        "nothing of it came to the plugin"
    );
    h.put("/v1/volume/csi/new/create", &volume("new")).await;
    let free = h
        .ask("DELETE", "/v1/volume/csi/new/detach?node=nowhere", "")
        .await;
    assert_eq!(
        status_and_text(&free),
        (500, "Unknown node \"nowhere\"".to_owned())
    );
    let request = hyper::Request::delete("/v1/volume/csi/new/delete")
        .header("X-Nomad-CSI-Secrets", "bad=yes,password=other")
        .body(http_body_util::Full::default())
        .unwrap();
    let refused = h.send(request).await;
    let text = "controller delete volume: DeleteVolume: PermissionDenied: no";
    assert_eq!(status_and_text(&refused), (500, text.to_owned()));
}
