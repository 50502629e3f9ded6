//! What each step of a volume's life requests, refuses and says.

use std::time::Instant;

use drover_events::csi::{CsiVolumeClaimed, claim_mode, state};
use drover_events::model::status::access_mode::{
    MULTI_NODE_READER as READERS, SINGLE_NODE_WRITER as ONE,
};
use drover_testkit::LONG;

use super::harness::*;
use super::testing::*;
use super::*;
use crate::commands::csi::ClaimVolume;
use crate::rpc::csi::{ControllerValidateVolume, ControllerValidateVolumeRequest, Secrets};

const ATTACH: &str = "ControllerAttachVolume";
const DETACH: &str = "ControllerDetachVolume";
const UNMOUNT: &str = "NodeDetachVolume";

fn key(volume: &str) -> CsiVolumeKey {
    ("default".to_owned(), volume.to_owned())
}

/// One volume, and an allocation that has claimed and mounted it.
async fn mounted(nodes: usize) -> (World, String) {
    let world = World::new(nodes);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    world.claim("data", &alloc).await.unwrap();
    world.strict.mount("data", &node_id(0), &alloc, true);
    (world, alloc)
}

/// The claim of an allocation, as far as it was given back.
fn step(alloc: &str, to: u8) -> ClaimVolume {
    ClaimVolume {
        claim: CsiVolumeClaimed {
            namespace: "default".into(),
            volume_id: "data".into(),
            allocation_id: alloc.to_owned(),
            mode: claim_mode::WRITE,
            state: to,
            ..CsiVolumeClaimed::default()
        },
    }
}

/// A sign of garbage collection.
fn sign() -> ClaimVolume {
    ClaimVolume {
        claim: CsiVolumeClaimed {
            namespace: "default".into(),
            volume_id: "data".into(),
            mode: claim_mode::GC,
            ..CsiVolumeClaimed::default()
        },
    }
}

#[tokio::test]
async fn csi_32_a_node_detaches_what_was_read_as_read_and_what_was_written_as_written() {
    for (access, reads) in [(READERS, true), (ONE, true), (ONE, false)] {
        let world = World::new(1);
        world.volume("data", access);
        let alloc = world.alloc_as((1, 0), "data", (access, reads));
        let how = match reads {
            true => claim_mode::READ,
            false => claim_mode::WRITE,
        };
        world.claim_as("data", &alloc, how).await.unwrap();
        world.strict.mount("data", &node_id(0), &alloc, !reads);
        // A claim that is on its way back, and waits, is still what it was.
        let refusal = Fault::Says(Code::Unavailable);
        world.strict.fault(UNMOUNT, &[refusal]);
        world.unpublish("data", &alloc).await.unwrap_err();
        assert_eq!(world.past("data"), [state::UNPUBLISHING]);
        world.unpublish("data", &alloc).await.unwrap();
        let requested = world.strict.unmounted_as(&alloc);
        assert_eq!(requested.read_only, reads, "{access}");
        assert_eq!(requested.access_mode, access);
        assert_eq!(requested.attachment_mode, "file-system");
        assert!(world.strict.is_idle() && !world.row("data").in_use());
    }
}

#[tokio::test]
async fn csi_36_what_the_controller_released_already_ends_free() {
    // The server that recorded the step fell before the last one.
    let (world, alloc) = mounted(1).await;
    for to in [state::NODE_DETACHED, state::CONTROLLER_DETACHED] {
        world.direct.command(&step(&alloc, to)).unwrap();
    }
    assert_eq!(world.past("data"), [state::CONTROLLER_DETACHED]);
    assert!(world.row("data").in_use(), "it is not free before it is");
    let calls = world.strict.calls().len();
    world.unpublish("data", &alloc).await.unwrap();
    assert_eq!(world.strict.calls().len(), calls, "no call is made again");
    assert!(!world.row("data").in_use());
    // The controller did it, and its answer was lost, however often.
    let (world, alloc) = mounted(2).await;
    // Both controllers are called, twice.
    world.strict.fault(DETACH, &[Fault::Lost; 4]);
    for _ in 0..2 {
        let error = world.unpublish("data", &alloc).await.unwrap_err();
        assert!(error.is_recoverable(), "{error}");
        assert_eq!(world.past("data"), [state::NODE_DETACHED]);
    }
    world.unpublish("data", &alloc).await.unwrap();
    assert!(world.strict.is_idle() && !world.row("data").in_use());
    let next = world.alloc(2, 1, "data", ONE);
    world.claim("data", &next).await.unwrap();
    assert_eq!(world.strict.wrong(), Vec::<String>::new());
}

#[tokio::test]
async fn csi_40_detach_and_garbage_collection_at_once_make_no_claim_of_nobody() {
    let world = World::new(1);
    world.volume("data", ONE);
    for number in 1..=100 {
        let alloc = world.alloc(number, 0, "data", ONE);
        world.claim("data", &alloc).await.unwrap();
        world.strict.mount("data", &node_id(0), &alloc, true);
        world.alloc_is(&alloc, "complete");
        let refusal = Fault::Says(Code::Unavailable);
        world
            .strict
            .fault([UNMOUNT, DETACH][number % 2], &[refusal]);
        let (key, node, origin) = (key("data"), node_id(0), Origin::default());
        let limit = Instant::now() + LONG;
        let detached = async || {
            while let Err(error) = world.volumes.detach(&key, (&node, false), &origin).await {
                assert!(Instant::now() < limit, "it is not detached: {error}");
            }
        };
        let collected = async || {
            for _ in 0..20 {
                let signed = world.leader.submit(Arc::new(sign()), Origin::default());
                signed.await.unwrap();
                let row = world.row("data");
                let held: Vec<_> = row.holders().collect();
                assert!(held.is_empty() || held == [alloc.as_str()], "{held:?}");
            }
        };
        tokio::join!(detached(), collected());
        assert!(!world.row("data").in_use(), "{:?}", world.row("data"));
    }
    assert!(world.strict.is_idle() && world.strict.wrong().is_empty());
}

#[tokio::test]
async fn csi_42_a_forced_removal_asks_no_plugin() {
    let gone = |force| crate::commands::csi::DeregisterVolumes {
        namespace: "default".into(),
        ids: vec!["data".into()],
        force,
        deleted: false,
    };
    // No allocation has it; one lives; all are dead, with the volume still on the node.
    let world = World::new(1);
    world.volume("data", ONE);
    world.direct.command(&gone(true)).unwrap();
    assert_eq!(world.strict.calls(), Vec::<String>::new());
    let (world, alloc) = mounted(1).await;
    let calls = world.strict.calls();
    let refused = world.direct.command(&gone(true)).unwrap_err();
    assert_eq!(refused.message, "volume in use: data");
    assert!(world.row("data").in_use());
    world.alloc_is(&alloc, "complete");
    world.direct.command(&gone(true)).unwrap();
    // An allocation that still gives it back finds nothing to do.
    assert_eq!(world.unpublish("data", &alloc).await, Ok(0));
    let (key, node, origin) = (key("data"), node_id(0), Origin::default());
    let missing = world.volumes.detach(&key, (&node, false), &origin).await;
    let missing = missing.unwrap_err().to_string();
    assert_eq!(missing, "volume not found: data");
    assert_eq!(world.strict.calls(), calls, "no plugin was called");
    assert!(
        !world.strict.is_idle(),
        "it is where it was: that is for detach to do"
    );
}

#[tokio::test]
async fn plg_06_a_controller_that_is_named_is_checked_and_one_that_is_not_is_chosen() {
    let world = World::new(2);
    let ask = async |node: &str| {
        let requested = ControllerValidateVolumeRequest {
            plugin_id: PLUGIN.into(),
            controller_node_id: node.to_owned(),
            volume_id: "data".into(),
            secrets: Secrets::default(),
            ..ControllerValidateVolumeRequest::default()
        };
        let answer = world
            .volumes
            .plugin_calls
            .controller::<ControllerValidateVolume>(requested);
        answer.await.map(|_| ()).map_err(|error| error.to_string())
    };
    let validations = |node: usize| {
        world
            .strict
            .count(&format!("ControllerValidateVolume @{}", node_id(node)))
    };
    for _ in 0..4 {
        assert_eq!(ask("").await, Ok(()));
    }
    assert_eq!((validations(0), validations(1)), (2, 2), "each in its turn");
    for _ in 0..3 {
        assert_eq!(ask(&node_id(1)).await, Ok(()));
    }
    assert_eq!(
        (validations(0), validations(1)),
        (2, 5),
        "the one that is named"
    );
    let calls = world.strict.calls();
    let text = "plugin \"strict\" has no controller on node \"elsewhere\"";
    assert_eq!(ask("elsewhere").await, Err(text.to_owned()));
    let none = "failed to find clients running controller plugin \"strict\"";
    world.node(1, false);
    assert_eq!(
        ask(&node_id(1)).await,
        Err(none.to_owned()),
        "it is not healthy"
    );
    world.node(1, true);
    world.node_is(1, "down");
    assert_eq!(
        ask(&node_id(1)).await,
        Err(none.to_owned()),
        "its node is not ready"
    );
    world.node_is(1, "ready");
    world.way.cut.lock().insert(node_id(1));
    let text = "no path to a node with a controller of plugin \"strict\"";
    assert_eq!(ask(&node_id(1)).await, Err(text.to_owned()));
    assert_eq!(world.strict.calls(), calls, "no other was called instead");
}

#[tokio::test]
async fn plg_10_what_fails_says_at_which_step_and_in_the_plugins_words() {
    let (world, alloc) = mounted(2).await;
    let origin = Origin::default();
    let other = world.alloc(2, 0, "more", ONE);
    world.volume("more", ONE);
    let mut sized = volume("sized", ONE);
    sized.external_id = String::new();
    sized.requested_capacity_min = 1;
    world
        .volumes
        .create(vec![sized.clone()], &origin)
        .await
        .unwrap();
    sized.requested_capacity_min = 2;
    let sized_key = key("sized");
    let new = || {
        let mut new = volume("new", ONE);
        new.external_id = String::new();
        vec![new]
    };
    for (method, step) in [
        (UNMOUNT, "could not detach from node: "),
        (DETACH, "could not detach from controller: "),
        (ATTACH, "controller publish: "),
        ("ControllerCreateVolume", "controller create volume: "),
        ("ControllerExpandVolume", "controller expand volume: "),
        ("ControllerValidateVolume", "controller validate volume: "),
        ("ControllerDeleteVolume", "controller delete volume: "),
    ] {
        // What will never do is not what may pass.
        for code in [Code::Refused, Code::Unavailable] {
            world.strict.fault(method, &[Fault::Says(code); 2]);
            let error = match method {
                UNMOUNT | DETACH => world.unpublish("data", &alloc).await.unwrap_err(),
                ATTACH => world.claim("more", &other).await.unwrap_err(),
                "ControllerCreateVolume" => world.volumes.create(new(), &origin).await.unwrap_err(),
                "ControllerExpandVolume" => {
                    let grown = world.volumes.create(vec![sized.clone()], &origin).await;
                    grown.unwrap_err()
                }
                "ControllerValidateVolume" => {
                    world.volumes.register(new(), &origin).await.unwrap_err()
                }
                _ => {
                    let secrets = Secrets::default();
                    let deleted = world.volumes.delete(&sized_key, secrets, &origin);
                    deleted.await.unwrap_err()
                }
            };
            let text = format!("{step}{method}: the plugin says {code:?}");
            assert_eq!(error.to_string(), text);
            assert_eq!(error.is_recoverable(), code == Code::Unavailable, "{text}");
            world.strict.heal();
        }
    }
}
