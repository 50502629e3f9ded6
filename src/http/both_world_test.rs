//! A server with one of everything in each of the namespaces red and blue, placed and held: what a
//! caller with every right in one of them would want of the other is there.

use drover_events::gojson::Map;
use drover_events::model::{
    ClientHostVolumeConfig, HostVolume, HostVolumeCapability, NodePool, ServiceRegistration,
    VariableDecrypted,
};
use drover_projections::tables::nodes;
use serde_json::{Value, json};

use super::gate_test::{namespaces, who};
use super::harness::{Harness, is_filled, job};
use super::volume_world_test::World;
use crate::commands::host_volume::RegisterHostVolume;
use crate::commands::node::{RegisterNode, UpdateNodeStatus};
use crate::commands::node_pool::UpsertNodePools;
use crate::commands::service::UpsertServices;
use crate::gate::Gate;

/// What is in one of the namespaces. Every name of it holds that of the namespace.
pub(super) struct Things {
    pub(super) namespace: &'static str,
    pub(super) alloc: String,
    pub(super) eval: String,
    pub(super) deployment: String,
    pub(super) scaling: String,
    pub(super) host_volume: String,
    pub(super) claim: String,
}

/// The server, and what is in both of its namespaces.
pub(super) struct Both {
    pub(super) world: World,
    pub(super) red: Things,
    pub(super) blue: Things,
}

impl Both {
    pub(super) async fn start() -> Both {
        let world = World::with(Harness::asking(Gate::fixed(who)).await).await;
        namespaces(&world.h).await;
        let pools = ["red", "blue"].map(|name| NodePool {
            name: format!("pool-{name}"),
            ..NodePool::default()
        });
        let node_pools = pools.to_vec();
        world.h.submit(UpsertNodePools { node_pools }).await;
        let disks = ["red", "blue"].map(|name| (name, uuid::Uuid::new_v4().to_string()));
        offer(&world, &disks).await;
        let [red, blue] = disks;
        Both {
            red: things(&world, red).await,
            blue: things(&world, blue).await,
            world,
        }
    }

    /// What a manager sees of blue, once nothing is to be done any more.
    pub(super) async fn state_of_blue(&self) -> Vec<Value> {
        let done = |evals: &Value| {
            let evals = evals.as_array().expect("a list");
            let is_done = |eval: &Value| eval["Status"] != "pending";
            evals.iter().all(is_done)
        };
        self.world.until("/v1/evaluations?namespace=*", done).await;
        let mut all = Vec::new();
        for path in [
            "/v1/jobs",
            "/v1/job/job-blue",
            "/v1/job/job-blue/versions",
            "/v1/allocations",
            "/v1/deployments",
            "/v1/evaluations",
            "/v1/services",
            "/v1/vars",
            "/v1/volumes?type=csi",
            "/v1/volumes?type=host",
            "/v1/volumes/claims",
            "/v1/scaling/policies",
        ] {
            let sign = if path.contains('?') { '&' } else { '?' };
            let target = format!("{path}{sign}namespace=blue");
            let reply = self.world.h.seen("root", &target).await;
            assert!(reply.text().contains("blue"), "{target}: {}", reply.text());
            all.push(reply.json());
        }
        all
    }
}

/// The node has a host volume of each.
async fn offer(world: &World, disks: &[(&str, String)]) {
    let view = world.h.server.projections.view();
    let node = nodes::get(&view, &world.node).expect("it is read");
    drop(view);
    let mut node = node.expect("it is registered");
    let offered = disks.iter().map(|(name, id)| {
        let config = ClientHostVolumeConfig {
            name: format!("disk-{name}"),
            path: format!("/disks/{name}"),
            id: id.clone(),
            ..ClientHostVolumeConfig::default()
        };
        (config.name.clone(), config)
    });
    node.host_volumes = offered.collect();
    let (node_id, create_node_pool) = (node.id.clone(), false);
    let registered = RegisterNode {
        node,
        create_node_pool,
    };
    world.h.submit(registered).await;
    let status = "ready".to_owned();
    let ready = UpdateNodeStatus {
        node_id,
        status,
        event: None,
    };
    world.h.submit(ready).await;
}

/// The job of a namespace: it has a deployment, may be scaled, sticks to the host volume and uses
/// the CSI volume.
pub(super) fn whole_job(name: &str) -> Value {
    let mut body = job(&format!("job-{name}"));
    let group = &mut body["Job"]["TaskGroups"][0];
    group["Update"] = json!({"MaxParallel": 1, "HealthCheck": "task_states"});
    group["Scaling"] = json!({"Enabled": true, "Min": 1, "Max": 3});
    group["Volumes"] = json!({
        "disk": {
            "Type": "host", "Source": format!("disk-{name}"), "Sticky": true,
            "AccessMode": "single-node-multi-writer", "AttachmentMode": "file-system",
        },
        "data": {
            "Type": "csi", "Source": format!("data-{name}"),
            "AccessMode": "multi-node-multi-writer", "AttachmentMode": "file-system",
        },
    });
    body
}

async fn things(world: &World, (name, host_volume): (&'static str, String)) -> Things {
    let data = format!("data-{name}");
    world.register(name, &data).await;
    let capability = HostVolumeCapability {
        access_mode: "single-node-multi-writer".into(),
        attachment_mode: "file-system".into(),
    };
    let volume = HostVolume {
        namespace: name.to_owned(),
        id: host_volume.clone(),
        name: format!("disk-{name}"),
        node_id: world.node.clone(),
        node_pool: "default".into(),
        requested_capabilities: vec![capability].into(),
        ..HostVolume::default()
    };
    world.h.submit(RegisterHostVolume { volume }).await;
    let target = format!("/v1/jobs?namespace={name}");
    let reply = world.h.by("root", "PUT", &target, whole_job(name)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let first = async |path: &str| {
        let sign = if path.contains('?') { '&' } else { '?' };
        let target = format!("{path}{sign}namespace={name}");
        let found = world.until(&target, is_filled).await.json();
        found[0]["ID"].as_str().expect("an id").to_owned()
    };
    let job = format!("/v1/job/job-{name}");
    let alloc = first(&format!("{job}/allocations")).await;
    let claimed = world.claim((name, &data), &alloc, false).await;
    claimed.expect("it is claimed");
    let service = ServiceRegistration {
        id: format!("service-{name}"),
        service_name: format!("api-{name}"),
        namespace: name.to_owned(),
        node_id: world.node.clone(),
        job_id: format!("job-{name}"),
        alloc_id: alloc.clone(),
        address: "10.0.0.1".into(),
        port: 80,
        ..ServiceRegistration::default()
    };
    let services = vec![service];
    world.h.submit(UpsertServices { services }).await;
    let variable = VariableDecrypted {
        items: Map::from([("key", format!("value-{name}"))]),
        ..VariableDecrypted::default()
    };
    let target = format!("/v1/var/secret-{name}?namespace={name}");
    let body = serde_json::to_string(&variable).expect("it is JSON");
    let reply = world.h.by("root", "PUT", &target, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Things {
        namespace: name,
        eval: first(&format!("{job}/evaluations")).await,
        deployment: first(&format!("{job}/deployments")).await,
        scaling: first("/v1/scaling/policies").await,
        claim: first("/v1/volumes/claims").await,
        alloc,
        host_volume,
    }
}
