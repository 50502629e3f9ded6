//! Host volumes over HTTP, with a client that answers as one does: what is requested of it, what is
//! left of what it refuses, and who may request it.

use std::sync::Arc;

use drover_projections::tables::host_volumes::HostVolumes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::gate_test::two_namespaces;
use super::harness::Harness;
use super::provision_test::client;
use crate::commands::node::{RegisterNode, UpdateNodeStatus};
use crate::error::{Code, Refusal};
use crate::proposer::Origin;
use crate::rpc::csi::Done;
use crate::rpc::host_volume::*;
use crate::rpc::service::{Access, Call, Dispatch, Service};
use drover_testkit::fixtures;

/// What was requested of the node, and what it refuses.
#[derive(Default)]
struct NodeRequests {
    calls: Mutex<Vec<Value>>,
    refuses: Mutex<&'static str>,
    /// How it does, where not for good.
    code: Mutex<Option<Code>>,
}

impl NodeRequests {
    fn note(&self, method: &str, request: &impl serde::Serialize) -> Result<(), Refusal> {
        let mut reported = serde_json::to_value(request).unwrap();
        reported["Method"] = method.into();
        self.calls.lock().push(reported);
        match *self.refuses.lock() {
            refused if refused == method => {
                let code = self.code.lock().unwrap_or(Code::Refused);
                Err(Refusal::new(code, "no room"))
            }
            _ => Ok(()),
        }
    }

    fn methods(&self) -> Vec<String> {
        let calls = self.calls.lock();
        let methods = calls.iter().map(|call| call["Method"].as_str().unwrap());
        methods.map(str::to_owned).collect()
    }
}

fn handlers(requested: &Arc<NodeRequests>) -> Arc<dyn Dispatch> {
    Arc::new(
        Service::new(Arc::clone(requested))
            .method::<ClientHostVolumeCreate, _, _>(
                Access::Server,
                async |requested: Arc<NodeRequests>,
                       _: Call,
                       request: ClientHostVolumeCreateRequest| {
                    requested.note("create", &request)?;
                    Ok(ClientHostVolumeCreateResponse {
                        host_path: format!("/volumes/{}", request.id),
                        capacity_bytes: request.requested_capacity_min_bytes,
                        volume_name: request.name,
                        volume_id: request.id,
                    })
                },
            )
            .method::<ClientHostVolumeRegister, _, _>(
                Access::Server,
                async |requested: Arc<NodeRequests>,
                       _: Call,
                       request: ClientHostVolumeRegisterRequest| {
                    requested.note("register", &request).map(|()| Done {})
                },
            )
            .method::<ClientHostVolumeDelete, _, _>(
                Access::Server,
                async |requested: Arc<NodeRequests>,
                       _: Call,
                       request: ClientHostVolumeDeleteRequest| {
                    requested.note("delete", &request)?;
                    Ok(ClientHostVolumeDeleteResponse::default())
                },
            ),
    )
}

/// Adds a node that is ready and runs the plugin `mkdir`; its id.
async fn node(h: &Harness) -> String {
    let mut node = fixtures::node(7);
    let version = "plugins.host_volume.mkdir.version";
    node.attributes.insert(version, "0.0.1".to_owned());
    let id = node.id.clone();
    let create_node_pool = true;
    let command = RegisterNode {
        node,
        create_node_pool,
    };
    h.server.submit(command, Origin::default()).await.unwrap();
    heard(h, &id, "ready").await;
    id
}

async fn heard(h: &Harness, node: &str, status: &str) {
    let command = UpdateNodeStatus {
        node_id: node.to_owned(),
        status: status.into(),
        event: None,
    };
    h.server.submit(command, Origin::default()).await.unwrap();
}

/// A server, the id of its node that runs the plugin, and what is requested of that.
async fn world() -> (Harness, String, Arc<NodeRequests>) {
    let h = Harness::start().await;
    let id = node(&h).await;
    let requested = Arc::<NodeRequests>::default();
    client(&h.server.sessions, id.clone(), handlers(&requested));
    (h, id, requested)
}

fn volume(name: &str) -> Value {
    json!({"Volume": {
        "Name": name, "PluginID": "mkdir", "RequestedCapacityMinBytes": 7,
        "RequestedCapabilities": [
            {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}],
        "Parameters": {"mode": "0711"},
    }})
}

/// The kinds of the events of a volume, first ones first.
async fn history(h: &Harness, id: &str) -> Vec<String> {
    let target = format!("/v1/audit?type=host-volume&id={id}");
    let reported = h.get(&target).await.json();
    let entries = reported.as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .map(|entry| entry["Kind"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_in_the_log_before_its_node_is_asked_and_lies_where_that_says() {
    let (h, node, requested) = world().await;
    let made = h.put("/v1/volume/host/create", &volume("data")).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let answer = made.json();
    assert_eq!(answer["Index"], json!(made.index()));
    let shown = &answer["Volume"];
    let id = shown["ID"].as_str().unwrap();
    for (field, value) in [
        ("State", json!("pending")),
        ("NodeID", json!(node)),
        ("NodePool", json!("default")),
        ("Namespace", json!("default")),
        ("HostPath", json!(format!("/volumes/{id}"))),
        ("CapacityBytes", json!(7)),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    assert!(shown["ModifyIndex"].as_u64() > shown["CreateIndex"].as_u64());
    let call = requested.calls.lock()[0].clone();
    assert_eq!((&call["ID"], &call["Name"]), (&json!(id), &json!("data")));
    assert_eq!(call["Parameters"], json!({"mode": "0711"}));
    let mut again = volume("data");
    again["Volume"]["ID"] = json!(id);
    again["Volume"]["RequestedCapacityMinBytes"] = json!(9);
    let grown = h.put("/v1/volume/host/create", &again).await;
    assert_eq!(
        grown.json()["Volume"]["CapacityBytes"],
        9,
        "{}",
        grown.text()
    );
    again["Volume"]["PluginID"] = json!("other");
    let changed = h.put("/v1/volume/host/create", &again).await;
    let text = "volume plugin ID cannot be updated";
    assert_eq!((changed.status, changed.text().as_str()), (500, text));
    let gone = h
        .ask("DELETE", &format!("/v1/volume/host/{id}/delete"), "")
        .await;
    assert_eq!(gone.json(), json!({"Index": gone.index()}));
    assert_eq!(requested.methods(), ["create", "create", "delete"]);
    assert_eq!(
        requested.calls.lock()[2]["HostPath"],
        json!(format!("/volumes/{id}"))
    );
    let missing = h.ask("DELETE", &format!("/v1/volume/host/{id}"), "").await;
    let text = format!("no such volume: {id}");
    assert_eq!((missing.status, missing.text()), (500, text));
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_acts_on_is_named_in_the_answer_and_its_warnings() {
    let (h, node, _) = world().await;
    let mut body = volume("data");
    body["PolicyOverride"] = json!(true);
    let made = h.put("/v1/volume/host/create", &body).await;
    body["Volume"]["NodeID"] = json!(node);
    body["Volume"]["HostPath"] = json!("/volumes/there");
    body["Volume"]["Name"] = json!("there");
    body["Volume"].as_object_mut().unwrap().remove("PluginID");
    let registered = h.put("/v1/volume/host/register", &body).await;
    for answer in [made, registered] {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-drover-ignored"), "field PolicyOverride");
        let text = "\"field PolicyOverride\" means nothing here and was ignored";
        assert_eq!(answer.json()["Warnings"], text);
    }
    let plain = h.put("/v1/volume/host/create", &volume("plain")).await;
    assert_eq!(plain.json()["Warnings"], "");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_refuses_leaves_nothing_and_what_it_keeps_stays() {
    let (h, node, requested) = world().await;
    *requested.refuses.lock() = "create";
    let refused = h.put("/v1/volume/host/create", &volume("data")).await;
    let text = format!("volume \"data\" was not taken by node {node}: no room");
    assert_eq!((refused.status, refused.text()), (500, text));
    assert_eq!(h.get("/v1/volumes?type=host").await.json(), json!([]));
    *requested.refuses.lock() = "delete";
    let made = h
        .put("/v1/volume/host/create", &volume("data"))
        .await
        .json();
    let id = made["Volume"]["ID"].as_str().unwrap();
    let target = format!("/v1/volume/host/{id}");
    let refused = h.ask("DELETE", &target, "").await;
    let text = format!("volume {id} was not deleted: no room");
    assert_eq!((refused.status, refused.text()), (500, text));
    // Force is for nodes that are gone, not for those that refuse.
    let forced = h.ask("DELETE", &format!("{target}?force=true"), "").await;
    assert_eq!(forced.status, 500);
    let bad = h.ask("DELETE", &format!("{target}?force=maybe"), "").await;
    let text = "invalid force value";
    assert_eq!((bad.status, bad.text().as_str()), (400, text));
    assert_eq!(h.get(&target).await.status, 200);
    let list = history(&h, id).await;
    assert_eq!(list, ["HostVolumeRegistered", "HostVolumeRegistered"]);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_may_have_made_although_it_failed_stays_pending() {
    let (h, _, requested) = world().await;
    *requested.refuses.lock() = "create";
    for (n, code) in [Code::Internal, Code::Unavailable, Code::Timeout]
        .into_iter()
        .enumerate()
    {
        *requested.code.lock() = Some(code);
        let failed = h
            .put("/v1/volume/host/create", &volume(&format!("v{n}")))
            .await;
        assert_eq!(failed.status, 503, "{}", failed.text());
        let end = "which may have it: say the same again with this id, or delete it";
        assert!(failed.text().ends_with(end), "{}", failed.text());
        let left = h.get("/v1/volumes?type=host").await.json();
        assert_eq!(left.as_array().map(Vec::len), Some(1), "{code:?}: {left}");
        let id = left[0]["ID"].as_str().unwrap();
        let deleted = h.ask("DELETE", &format!("/v1/volume/host/{id}"), "").await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_a_plugin_made_is_registered_at_no_other_place() {
    let (h, _, requested) = world().await;
    let made = h
        .put("/v1/volume/host/create", &volume("data"))
        .await
        .json();
    let mut again = volume("data");
    again["Volume"]["ID"] = made["Volume"]["ID"].clone();
    again["Volume"]["HostPath"] = json!("/srv");
    let refused = h.put("/v1/volume/host/register", &again).await;
    let why = "lies where its plugin \"mkdir\" made it";
    assert!(refused.text().ends_with(why), "{}", refused.text());
    again["Volume"]["HostPath"] = made["Volume"]["HostPath"].clone();
    let done = h.put("/v1/volume/host/register", &again).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(requested.methods(), ["create", "register"]);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_of_a_node_that_is_gone_is_removed_by_force_alone() {
    let h = Harness::start().await;
    let node = node(&h).await;
    // No server reaches it: nothing was requested, and nothing is left.
    let refused = h.put("/v1/volume/host/create", &volume("data")).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(h.get("/v1/volumes?type=host").await.json(), json!([]));
    let requested = Arc::<NodeRequests>::default();
    client(&h.server.sessions, node.clone(), handlers(&requested));
    let made = h
        .put("/v1/volume/host/create", &volume("data"))
        .await
        .json();
    let id = made["Volume"]["ID"].as_str().unwrap();
    let target = format!("/v1/volume/host/{id}");
    let purged = h.put(&format!("/v1/node/{node}/purge"), &json!({})).await;
    assert_eq!(purged.status, 200, "{}", purged.text());
    let shown = h.get(&target).await.json();
    assert_eq!(shown["State"], "pending", "it never was there");
    let refused = h.ask("DELETE", &target, "").await;
    let text = format!(
        "volume {id} was not deleted: node {node} is gone: by force it is removed all the same"
    );
    assert_eq!((refused.status, refused.text()), (503, text));
    let forced = h.ask("DELETE", &format!("{target}?force=true"), "").await;
    assert_eq!(forced.status, 200, "{}", forced.text());
    assert_eq!(h.get(&target).await.status, 404);
    assert_eq!(requested.methods(), ["create"]);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ns_03_ns_05_a_host_volume_is_changed_by_who_may_in_its_namespace() {
    let h = two_namespaces().await;
    let id = node(&h).await;
    let requested = Arc::<NodeRequests>::default();
    client(&h.server.sessions, id, handlers(&requested));
    let mut in_red = volume("data");
    in_red["Volume"]["Namespace"] = json!("red");
    let made = h.by("root", "PUT", "/v1/volume/host/create", &in_red).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let id = made.json()["Volume"]["ID"].as_str().unwrap().to_owned();
    let red = format!("/v1/volume/host/{id}?namespace=red");
    let blue = format!("/v1/volume/host/{id}?namespace=blue");
    let deletes = format!("/v1/volume/host/{id}/delete?namespace=red");
    let mut in_blue = volume("other");
    in_blue["Volume"]["Namespace"] = json!("blue");
    let mut there = volume("there");
    there["Volume"]["Namespace"] = json!("red");
    there["Volume"]["HostPath"] = json!("/srv");
    let (read, create) = ("only:host-volume-read", "only:host-volume-create");
    let (register, delete) = ("only:host-volume-register", "only:host-volume-delete");
    let (creates, registers) = ("/v1/volume/host/create", "/v1/volume/host/register");
    for (token, method, target, body, status) in [
        (read, "GET", red.as_str(), &Value::Null, 200),
        (read, "GET", &blue, &Value::Null, 403),
        ("root", "GET", &blue, &Value::Null, 404),
        (delete, "GET", &red, &Value::Null, 403),
        (read, "PUT", creates, &in_red, 403),
        (delete, "PUT", creates, &in_red, 403),
        // What counts is the volume's namespace, which is then the one it is made in.
        (create, "PUT", creates, &in_blue, 403),
        (
            create,
            "PUT",
            "/v1/volume/host/create?namespace=red",
            &in_blue,
            403,
        ),
        (create, "PUT", registers, &there, 403),
        // Its rule refuses it: it names no node.
        (register, "PUT", registers, &there, 400),
        (read, "DELETE", &red, &Value::Null, 403),
        (create, "DELETE", &red, &Value::Null, 403),
        (delete, "DELETE", &blue, &Value::Null, 403),
        // It is looked for where it was requested, and nowhere else.
        ("root", "DELETE", &blue, &Value::Null, 500),
        (delete, "DELETE", &deletes, &Value::Null, 200),
    ] {
        let reply = h.by(token, method, target, body).await;
        let text = reply.text();
        assert_eq!(reply.status, status, "{token} {method} {target}: {text}");
    }
    let made = h.by(create, "PUT", creates, &in_red).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let rows = h.server.projections.view();
    let rows = rows.scan::<HostVolumes>(drover_projections::Scan::all());
    assert_eq!(rows.count(), 1);
    for (token, count) in [(read, 1), (delete, 0), ("root", 1)] {
        let listed = h.seen(token, "/v1/volumes?type=host&namespace=*").await;
        match listed.status {
            403 => assert_eq!(count, 0, "{token}"),
            _ => assert_eq!(
                listed.json().as_array().map(Vec::len),
                Some(count),
                "{token}"
            ),
        }
    }
    h.stop().await;
}
