//! Who may do what with volumes and plugins: every route with every right, with and without the
//! right to read plugins, on things that are there.

use std::sync::Arc;

use drover_events::model::Namespace;
use serde_json::{Value, json};

use super::harness::{Harness, Reply, job};
use super::volume_world_test::{PLUGIN, World, volume};
use crate::acl::{self, Acl, Strictness};
use crate::commands::namespace::UpsertNamespaces;
use crate::gate::Gate;
use crate::identity::Identity;

/// Tokens are what they may: capabilities in the namespace `red`, and levels on plugins.
fn rights(token: Option<&str>, addr: &str) -> Identity {
    let token = match token {
        None | Some("root") => return Identity::open(addr),
        Some(token) => token,
    };
    let (plugins, own): (Vec<_>, Vec<_>) = token
        .split(' ')
        .filter(|word| !word.is_empty())
        .partition(|word| word.starts_with("plugin:"));
    let mut rules = match own.is_empty() {
        true => String::new(),
        false => format!("namespace \"red\" {{ capabilities = {own:?} }}\n"),
    };
    for level in plugins {
        let level = level.trim_start_matches("plugin:");
        rules += &format!("plugin {{ policy = {level:?} }}\n");
    }
    let policy = acl::parse(&rules, Strictness::Strict).expect("rules");
    Identity::anonymous(addr, Arc::new(Acl::compile(&[&policy])))
}

/// The plugin, the namespaces red and blue, and a volume in each.
async fn world() -> World {
    let world = World::with(Harness::asking(Gate::fixed(rights)).await).await;
    let namespaces = ["red", "blue"].map(|name| Namespace {
        name: name.to_owned(),
        ..Namespace::default()
    });
    let namespaces = namespaces.to_vec();
    world.h.submit(UpsertNamespaces { namespaces }).await;
    world.register("red", "data").await;
    world.register("blue", "other").await;
    world
}

/// Rights that have to do with volumes, and some that have not.
const RIGHTS: [&str; 9] = [
    "csi-list-volume",
    "csi-read-volume",
    "csi-write-volume",
    "csi-mount-volume",
    "csi-register-plugin",
    "list-jobs",
    "read-job",
    "submit-job",
    "host-volume-read",
];
const LIST: &[&str] = &[
    "csi-list-volume",
    "csi-read-volume",
    "csi-mount-volume",
    "list-jobs",
];
const EXTERNAL: &[&str] = &["csi-list-volume"];
const READ: &[&str] = &["csi-read-volume", "csi-mount-volume", "read-job"];
const WRITE: &[&str] = &["csi-write-volume"];
const MOUNT: &[&str] = &["csi-mount-volume"];

/// A method, a target and a body, of which any right lets in, whether reading plugins is required
/// as well, and what callers that are let in are answered.
type Route = (
    &'static str,
    &'static str,
    fn() -> Value,
    &'static [&'static str],
    bool,
    (u16, &'static str),
);

fn nothing() -> Value {
    Value::Null
}

fn described() -> Value {
    json!({"Volumes": [volume("data")]})
}

fn snapshot() -> Value {
    json!({"Snapshots": [{"SourceVolumeID": "data", "Name": "s"}]})
}

const ROUTES: &[Route] = &[
    (
        "GET",
        "/v1/volume/csi/data",
        nothing,
        READ,
        true,
        (200, "\"ID\":\"data\""),
    ),
    (
        "GET",
        "/v1/volume/csi/data/explain",
        nothing,
        READ,
        true,
        (200, "nobody holds it"),
    ),
    (
        "PUT",
        "/v1/volumes",
        described,
        WRITE,
        true,
        (200, "\"ID\":\"data\""),
    ),
    (
        "PUT",
        "/v1/volume/csi/data",
        described,
        WRITE,
        true,
        (200, "\"ID\":\"data\""),
    ),
    (
        "PUT",
        "/v1/volume/csi/data/create",
        described,
        WRITE,
        true,
        (200, "\"ID\":\"data\""),
    ),
    (
        "DELETE",
        "/v1/volume/csi/data",
        nothing,
        WRITE,
        false,
        (200, ""),
    ),
    (
        "DELETE",
        "/v1/volume/csi/data/delete",
        nothing,
        WRITE,
        true,
        (200, ""),
    ),
    (
        "DELETE",
        "/v1/volume/csi/data/detach?node=NODE",
        nothing,
        MOUNT,
        true,
        (500, "has no claims on node"),
    ),
    (
        "GET",
        "/v1/volumes/external?plugin_id=p",
        nothing,
        EXTERNAL,
        true,
        (200, "\"far\""),
    ),
    (
        "GET",
        "/v1/volumes/snapshot?plugin_id=p",
        nothing,
        EXTERNAL,
        true,
        (200, "snap-one"),
    ),
    (
        "PUT",
        "/v1/volumes/snapshot",
        snapshot,
        WRITE,
        true,
        (200, "snap-s"),
    ),
    (
        "DELETE",
        "/v1/volumes/snapshot?plugin_id=p&snapshot_id=s",
        nothing,
        WRITE,
        true,
        (200, ""),
    ),
];

async fn send(world: &World, token: &str, route: &Route, namespace: &str) -> Reply {
    let (method, target, body, ..) = route;
    let target = target.replace("NODE", &world.node);
    let sign = if target.contains('?') { '&' } else { '?' };
    let target = format!("{target}{sign}namespace={namespace}");
    let body = match body() {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    world.h.by(token, method, &target, body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_17_each_route_asks_for_one_of_its_rights_and_for_the_plugin_where_one_is_used() {
    let world = world().await;
    for route in ROUTES {
        let (method, target, _, any_of, plugin, (status, text)) = route;
        for right in RIGHTS {
            for level in ["", " plugin:list", " plugin:read"] {
                let let_in = any_of.contains(&right) && (!plugin || level == " plugin:read");
                let token = format!("{right}{level}");
                let what = format!("{token}: {method} {target}");
                let before = world.index();
                let reply = send(&world, &token, route, "red").await;
                if !let_in {
                    assert_eq!(reply.status, 403, "{what}: {}", reply.text());
                    assert_eq!(world.index(), before, "{what}: it is in the log");
                    continue;
                }
                assert_eq!(reply.status, *status, "{what}: {}", reply.text());
                assert!(reply.text().contains(text), "{what}: {}", reply.text());
                // What was removed is there again for the next.
                world.register("red", "data").await;
                // The right is one in its namespace.
                let reply = send(&world, &token, route, "blue").await;
                assert_eq!(reply.status, 403, "{what} in blue: {}", reply.text());
            }
        }
    }
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_17_a_list_has_what_may_be_listed_and_nothing_else() {
    let world = world().await;
    for right in RIGHTS {
        for namespace in ["red", "blue", "*"] {
            let target = format!("/v1/volumes?type=csi&namespace={namespace}");
            let reply = world.h.seen(right, &target).await;
            let seen = LIST.contains(&right) && namespace != "blue";
            let wanted = if seen { vec!["data"] } else { Vec::new() };
            assert_eq!(listed(&reply), wanted, "{right} in {namespace}");
        }
    }
    let all = world
        .h
        .seen("root", "/v1/volumes?type=csi&namespace=*")
        .await;
    assert_eq!(ids(&all.json()), ["other", "data"]);
    world.h.stop().await;
}

/// The ids of a list; none where it is refused, which only who may list nothing is.
fn listed(reply: &Reply) -> Vec<String> {
    match reply.status {
        403 => Vec::new(),
        status => {
            assert_eq!(status, 200, "{}", reply.text());
            ids(&reply.json())
        }
    }
}

fn ids(list: &Value) -> Vec<String> {
    let rows = list.as_array().into_iter().flatten();
    rows.map(|row| row["ID"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_18_plugins_are_of_no_namespace_and_their_allocations_are_seen_with_read_job() {
    let world = world().await;
    let alloc = world.plugin_job("blue").await;
    let plugin = format!("/v1/plugin/csi/{PLUGIN}");
    for (token, lists, read) in [
        ("plugin:list", true, false),
        ("plugin:read", true, true),
        ("plugin:deny", false, false),
        ("csi-read-volume read-job list-jobs", false, false),
        ("root", true, true),
    ] {
        let list = world.h.seen(token, "/v1/plugins?type=csi").await;
        let wanted = if lists { vec![PLUGIN] } else { Vec::new() };
        assert_eq!(listed(&list), wanted, "{token}");
        let one = world.h.seen(token, &plugin).await;
        assert_eq!(one.status, if read { 200 } else { 403 }, "{token}");
    }
    // Its allocation is of a job in blue.
    let allocs = async |token: &str| {
        let shown = world.h.seen(token, &plugin).await.json();
        assert_eq!(shown["NodesHealthy"], 1, "{token}: {shown}");
        ids(&shown["Allocations"])
    };
    assert_eq!(allocs("root").await, [alloc.as_str()]);
    for token in [
        "plugin:read",
        "plugin:read read-job",
        "plugin:read list-jobs",
    ] {
        assert_eq!(allocs(token).await, Vec::<String>::new(), "{token}");
    }
    let own = world.plugin_job("red").await;
    assert_eq!(allocs("plugin:read read-job").await, [own]);
    assert_eq!(allocs("plugin:read list-jobs").await, Vec::<String>::new());
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_08_csi_19_whoever_registers_a_job_may_mount_its_volumes() {
    let world = world().await;
    let mut body = job("user");
    let group = &mut body["Job"]["TaskGroups"][0];
    group["Volumes"] = json!({"v": {"Name": "v", "Type": "csi", "Source": "data",
        "AccessMode": "single-node-writer", "AttachmentMode": "file-system"}});
    let mut runs = job("runs");
    let task = &mut runs["Job"]["TaskGroups"][0]["Tasks"][0];
    task["CSIPluginConfig"] = json!({"ID": "q", "Type": "node"});
    let targets = ["/v1/jobs", "/v1/job/user"];
    for (token, status) in [
        ("submit-job", 403),
        ("submit-job csi-mount-volume", 403),
        ("submit-job plugin:read", 403),
        ("submit-job csi-mount-volume plugin:list", 403),
        (
            "submit-job csi-write-volume csi-read-volume plugin:read",
            403,
        ),
        ("csi-mount-volume plugin:read", 403),
        ("submit-job csi-mount-volume plugin:read", 200),
        ("root", 200),
    ] {
        for target in targets {
            let before = world.index();
            let target = format!("{target}?namespace=red");
            let reply = world.h.by(token, "PUT", &target, &body).await;
            assert_eq!(reply.status, status, "{token} {target}: {}", reply.text());
            if status == 403 {
                assert_eq!(world.index(), before, "{token}: it is in the log");
                let shown = world.h.seen("root", "/v1/job/user?namespace=red").await;
                assert_eq!(shown.status, 404);
            }
        }
    }
    // The same function says who may take one off a node (CSI-19).
    for (token, admitted) in [
        ("csi-mount-volume", false),
        ("plugin:read", false),
        ("csi-mount-volume plugin:read", true),
    ] {
        let route = ROUTES.iter().find(|route| route.1.contains("detach"));
        let reply = send(&world, token, route.unwrap(), "red").await;
        assert_eq!(reply.status != 403, admitted, "{token}: {}", reply.text());
    }
    for (token, status) in [
        ("submit-job", 403),
        ("submit-job csi-mount-volume plugin:read", 403),
        ("submit-job csi-register-plugin", 200),
    ] {
        let reply = world
            .h
            .by(token, "PUT", "/v1/jobs?namespace=red", &runs)
            .await;
        assert_eq!(reply.status, status, "{token}: {}", reply.text());
    }
    world.h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_14_a_search_finds_volumes_and_plugins_as_far_as_they_may_be_listed() {
    let world = world().await;
    let found = async |token: &str, fuzzy: bool, context: &str, text: &str| {
        let (target, field) = match fuzzy {
            true => ("/v1/search/fuzzy?namespace=*", "Text"),
            false => ("/v1/search?namespace=*", "Prefix"),
        };
        let body = json!({field: text, "Context": context, "Namespace": "*"});
        let reply = world.h.by(token, "PUT", target, &body).await;
        assert_eq!(reply.status, 200, "{token}: {}", reply.text());
        let found = reply.json()["Matches"][context].clone();
        let rows = found.as_array().cloned().unwrap_or_default().into_iter();
        let id = |row: Value| match row {
            Value::String(id) => id,
            row => row["ID"].as_str().unwrap().to_owned(),
        };
        rows.map(id).collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    for right in RIGHTS {
        let lists = LIST.contains(&right);
        let wanted = if lists {
            vec!["data".to_owned()]
        } else {
            none.clone()
        };
        for fuzzy in [false, true] {
            assert_eq!(
                found(right, fuzzy, "volumes", "da").await,
                wanted,
                "{right} {fuzzy}"
            );
            let other = found(right, fuzzy, "volumes", "ot").await;
            assert_eq!(other, none, "{right} {fuzzy}: it is in blue");
        }
    }
    assert_eq!(found("root", false, "volumes", "ot").await, ["other"]);
    for (token, seen) in [
        ("plugin:list", true),
        ("plugin:read", true),
        ("plugin:deny", false),
        ("csi-list-volume", false),
    ] {
        let wanted = if seen {
            vec![PLUGIN.to_owned()]
        } else {
            none.clone()
        };
        assert_eq!(found(token, false, "plugins", "p").await, wanted, "{token}");
    }
    world.h.stop().await;
}
