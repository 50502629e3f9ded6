//! Which node may take and give back what (CSI-20, CSI-21).

use drover_events::csi::{claim_mode, state};
use drover_events::model::{CsiInfo, CsiVolume, CsiVolumeCapability, Node, VolumeRequest};
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::{Interest, Scan};
use drover_testkit::{LONG, fixtures};

use super::endpoints_test::{SECRET, World};
use super::*;
use crate::commands::csi::RegisterVolumes;
use crate::commands::job::RegisterJob;
use crate::commands::node::RegisterNode;
use crate::error::{Code, Refusal};
use crate::proposer::Origin;
use crate::rpc::csi::{CsiVolumeClaimRequest, CsiVolumeUnpublishRequest, NamedClaim};
use crate::rpc::methods::NodeUpdateStatusRequest;

const OTHER: &str = "77777777-2222-4333-8444-555555555555";

/// A node that runs a plugin without a controller.
fn node(number: usize, secret: &str) -> Node {
    let mut node = fixtures::node(number);
    node.secret_id = secret_hash(secret);
    let info = CsiInfo {
        plugin_id: "p".into(),
        healthy: true,
        ..CsiInfo::default()
    };
    node.csi_node_plugins = [("p", info)].into();
    node
}

/// Two nodes, a volume, and an allocation of the first node that uses it.
async fn world() -> (World, (String, String)) {
    let world = World::start().await;
    for node in [node(1, SECRET), node(2, OTHER)] {
        let command = RegisterNode {
            node,
            create_node_pool: true,
        };
        world
            .server
            .submit(command, Origin::default())
            .await
            .unwrap();
    }
    for (id, secret) in [(&*world.node, SECRET), (&*fixtures::node(2).id, OTHER)] {
        for _ in 0..2 {
            let beat = NodeUpdateStatusRequest {
                node_id: id.to_owned(),
                status: "ready".to_owned(),
                ..NodeUpdateStatusRequest::default()
            };
            world
                .call::<NodeUpdateStatus>((id, secret), beat)
                .await
                .unwrap();
        }
    }
    let volume = CsiVolume {
        id: "data".into(),
        namespace: "default".into(),
        plugin_id: "p".into(),
        requested_capabilities: vec![CsiVolumeCapability {
            access_mode: "single-node-writer".into(),
            attachment_mode: "file-system".into(),
        }]
        .into(),
        ..CsiVolume::default()
    };
    let volumes = vec![volume];
    world
        .server
        .submit(RegisterVolumes { volumes }, Origin::default())
        .await
        .unwrap();
    let mut job = fixtures::job("service", 1);
    let requested = VolumeRequest {
        name: "v".into(),
        r#type: "csi".into(),
        source: "data".into(),
        access_mode: "single-node-writer".into(),
        attachment_mode: "file-system".into(),
        ..VolumeRequest::default()
    };
    job.task_groups.to_mut()[0].volumes = [("v", requested)].into();
    let command = RegisterJob {
        job,
        eval_id: "55555555-2222-4333-8444-555555555555".into(),
        ..RegisterJob::default()
    };
    world
        .server
        .submit(command, Origin::default())
        .await
        .unwrap();
    let alloc = placed(&world).await;
    (world, alloc)
}

/// The allocation, once it is placed, and the node that it is on.
async fn placed(world: &World) -> (String, String) {
    let found = async {
        loop {
            let woken = world.server.projections.watch();
            let woken = woken.register(&[Interest::table::<Allocs>()]);
            let alloc = world.view().scan::<Allocs>(Scan::all()).next();
            if let Some(row) = alloc {
                let row = row.unwrap();
                return (row.alloc.id.clone(), row.alloc.node_id.clone());
            }
            woken.await;
        }
    };
    tokio::time::timeout(LONG, found)
        .await
        .expect("it is placed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_01_a_node_that_names_no_volume_or_allocation_is_refused() {
    let (world, (alloc, node)) = world().await;
    let secret = match node == world.node {
        true => SECRET,
        false => OTHER,
    };
    let who = (node.as_str(), secret);
    let index = || world.view().table_index::<CsiVolumes>();
    let before = index();
    for (volume, alloc, text) in [
        ("", alloc.as_str(), "missing volume ID"),
        ("data", "", "missing allocation ID"),
    ] {
        let mut gives = release(&node, alloc);
        gives.volume_id = volume.to_owned();
        let refused = world.call::<CsiVolumeUnpublish>(who, gives).await;
        let refused = refused.expect_err(text);
        assert_eq!(refused.code, Code::BadRequest, "{refused}");
        assert!(refused.message.contains(text), "{refused}");
        let mut takes = claim(&node, alloc);
        takes.volume_id = volume.to_owned();
        let refused = world.call::<CsiVolumeClaim>(who, takes).await;
        let refused = refused.expect_err(text);
        assert_eq!(refused.code, Code::BadRequest, "{refused}");
        assert!(refused.message.contains(text), "{refused}");
    }
    assert_eq!(index(), before, "nothing of it reached the log");
}

fn claim(node: &str, alloc: &str) -> CsiVolumeClaimRequest {
    CsiVolumeClaimRequest {
        namespace: "default".into(),
        volume_id: "data".into(),
        allocation_id: alloc.to_owned(),
        node_id: node.to_owned(),
        mode: claim_mode::WRITE,
        ..CsiVolumeClaimRequest::default()
    }
}

fn release(node: &str, alloc: &str) -> CsiVolumeUnpublishRequest {
    CsiVolumeUnpublishRequest {
        namespace: "default".into(),
        volume_id: "data".into(),
        claim: Some(NamedClaim {
            allocation_id: alloc.to_owned(),
            node_id: node.to_owned(),
            ..NamedClaim::default()
        }),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_20_a_node_takes_and_gives_back_for_its_own_allocations_only() {
    let (world, (alloc, node)) = world().await;
    let second = fixtures::node(2).id;
    let nodes = [(&*world.node, SECRET), (&*second, OTHER)];
    let (own, foreign) = match node == world.node {
        true => (nodes[0], nodes[1]),
        false => (nodes[1], nodes[0]),
    };
    let other = foreign.0;
    let denied = |error: Refusal| assert_eq!(error, Refusal::permission_denied());
    denied(
        world
            .call::<CsiVolumeClaim>(foreign, claim(other, &alloc))
            .await
            .unwrap_err(),
    );
    denied(
        world
            .call::<CsiVolumeClaim>(foreign, claim(&node, &alloc))
            .await
            .unwrap_err(),
    );
    let mut sign = claim(&node, &alloc);
    sign.mode = claim_mode::GC;
    denied(world.call::<CsiVolumeClaim>(own, sign).await.unwrap_err());
    let unknown = claim(&node, "99999999-2222-4333-8444-555555555555");
    let refused = world
        .call::<CsiVolumeClaim>(own, unknown)
        .await
        .unwrap_err();
    assert!(refused.message.ends_with("not found"), "{refused}");
    let taken = world
        .call::<CsiVolumeClaim>(own, claim(&node, &alloc))
        .await
        .unwrap();
    assert_eq!(taken.volume.unwrap().id, "data");
    assert!(taken.index > 0);
    denied(
        world
            .call::<CsiVolumeUnpublish>(foreign, release(other, &alloc))
            .await
            .unwrap_err(),
    );
    // Nor does an operator take it from an allocation that lives; nothing is begun.
    let row = || {
        let row = world.view().get::<CsiVolumes>(("default", "data"));
        row.unwrap().unwrap()
    };
    let operator = world.call::<CsiVolumeUnpublish>(("", ""), release(&node, &alloc));
    let text = format!("volume \"data\" is in use by allocation \"{alloc}\"");
    assert_eq!(operator.await.unwrap_err(), Refusal::by_rule(text));
    assert!(row().past_claims.is_empty());
    // Its client is not connected here: what can be done is recorded, and the rest is answered.
    let waits = world
        .call::<CsiVolumeUnpublish>(own, release(&node, &alloc))
        .await;
    let error = waits.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert_eq!(error.message, "could not detach from node: No path to node");
    assert!(row().past_claims.contains_key(alloc.as_str()));
    let operator = world.call::<CsiVolumeUnpublish>(("", ""), release(&node, &alloc));
    let error = operator.await.unwrap_err();
    assert_eq!(error.message, "could not detach from node: No path to node");
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csi_23_a_release_that_comes_as_a_claim_is_a_release() {
    let (world, (alloc, node)) = world().await;
    let secret = match node == world.node {
        true => SECRET,
        false => OTHER,
    };
    let own = (node.as_str(), secret);
    let taken = world.call::<CsiVolumeClaim>(own, claim(&node, &alloc));
    taken.await.unwrap();
    let mut released = claim(&node, &alloc);
    released.state = state::UNPUBLISHING;
    let error = world
        .call::<CsiVolumeClaim>(own, released)
        .await
        .unwrap_err();
    assert_eq!(error.message, "could not detach from node: No path to node");
    let row = world.view().get::<CsiVolumes>(("default", "data"));
    let row = row.unwrap().unwrap();
    assert_eq!(row.past_claims[alloc.as_str()].state, state::UNPUBLISHING);
    world.server.shutdown().await;
}
