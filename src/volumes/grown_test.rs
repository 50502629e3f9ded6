//! Volumes that are made larger: who takes them meanwhile, and who does the part of the nodes.

use drover_events::csi::mode;
use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_testkit::LONG;
use tokio::time::{Instant, timeout};

use super::harness::*;
use super::testing::*;
use super::*;

const EXPAND: &str = "ControllerExpandVolume";
const ATTACH: &str = "ControllerAttachVolume";
const ON_NODE: &str = "NodeExpandVolume";

/// A volume is made, or made larger.
async fn sized(world: &World, bytes: i64) -> Result<(), StepError> {
    let mut wanted = volume("data", ONE);
    wanted.external_id = String::new();
    wanted.requested_capacity_min = bytes;
    let origin = Origin::default();
    let made = world.volumes.create(vec![wanted], &origin).await;
    made.map(drop)
}

/// A state with a volume of ten bytes.
async fn made() -> World {
    let world = World::new(1);
    sized(&world, 10).await.unwrap();
    assert_eq!(world.row("data").node_expansion, 0);
    world
}

/// The node of an allocation says that it has done its part of a growth.
async fn expanded(world: &World, alloc: &str, growth: i64) -> Result<u64, StepError> {
    let claim = asked("data", alloc, ("", mode::WRITE));
    let origin = Origin::default();
    world.volumes.expanded(&claim, growth, &origin).await
}

#[tokio::test]
async fn csi_05_what_grew_while_nobody_had_it_is_known_until_a_node_that_has_it_did_its_part() {
    let mut world = made().await;
    sized(&world, 25).await.unwrap();
    let first = world.row("data").node_expansion;
    sized(&world, 40).await.unwrap();
    let growth = world.row("data").node_expansion;
    assert!(first > 0 && growth > first, "{first} {growth}");
    assert_eq!(world.strict.count(ON_NODE), 0, "nobody has it");
    world.elect();
    let alloc = world.alloc(1, 0, "data", ONE);
    let error = expanded(&world, &alloc, growth).await.unwrap_err();
    assert!(error.text.contains("was released"), "{error}");
    let taken = world.claim("data", &alloc).await.unwrap();
    assert_eq!((taken.node_expansion, taken.volume.capacity), (growth, 40));
    // What a node did before that is not all of it.
    let index = world.index();
    assert_eq!(expanded(&world, &alloc, first).await, Ok(0));
    assert_eq!(
        (world.row("data").node_expansion, world.index()),
        (growth, index)
    );
    assert_eq!(expanded(&world, &alloc, growth).await, Ok(index + 1));
    assert_eq!(
        expanded(&world, &alloc, growth).await,
        Ok(0),
        "it is done already"
    );
    let taken = world.claim("data", &alloc).await.unwrap();
    assert_eq!(taken.node_expansion, 0);
}

#[tokio::test]
async fn csi_05_where_it_is_mounted_the_node_does_its_part_and_else_who_mounts_it_next() {
    let world = made().await;
    let alloc = world.alloc(1, 0, "data", ONE);
    world.claim("data", &alloc).await.unwrap();
    // Its client has not come to mount it.
    sized(&world, 25).await.unwrap();
    assert_eq!(world.strict.count(ON_NODE), 1);
    assert!(world.row("data").node_expansion > 0);
    world.strict.mount("made-data", &node_id(0), &alloc, true);
    sized(&world, 25).await.unwrap();
    assert_eq!(
        (
            world.strict.count(ON_NODE),
            world.row("data").node_expansion
        ),
        (2, 0)
    );
    let index = world.index();
    sized(&world, 25).await.unwrap();
    assert_eq!(world.index(), index, "that is no event");
}

#[tokio::test]
async fn csi_05_who_comes_while_a_volume_is_made_larger_has_it_then() {
    let world = made().await;
    world.strict.fault(EXPAND, &[Fault::Held]);
    let mut grows = Box::pin(sized(&world, 25));
    let alloc = world.alloc(1, 0, "data", ONE);
    let mut comes = Box::pin(world.claim("data", &alloc));
    let held = async {
        while world.strict.count(EXPAND) == 0 {
            turns(1).await;
        }
    };
    tokio::select! {
        _ = &mut grows => panic!("it is held"),
        held = timeout(LONG, held) => held.expect("it is asked"),
    }
    tokio::select! {
        biased;
        came = &mut comes => panic!("it is being made larger: {came:?}"),
        () = turns(100) => {}
    }
    assert!(!world.row("data").in_use() && world.strict.count(ATTACH) == 0);
    world.strict.let_go();
    let (grown, taken) = tokio::join!(grows, comes);
    grown.unwrap();
    let taken = taken.unwrap();
    assert_eq!(taken.volume.capacity, 25);
    assert_eq!(taken.node_expansion, world.row("data").node_expansion);
    assert!(
        taken.node_expansion > 0,
        "it was not there when nodes were asked"
    );
    assert_eq!(world.strict.count(ON_NODE), 0);
}

#[tokio::test]
async fn csi_05_nobody_has_a_volume_that_a_call_of_no_answer_may_still_make_larger() {
    let mut world = made().await;
    world.patient();
    let begun = Instant::now();
    world.strict.fault(EXPAND, &[Fault::Before]);
    sized(&world, 25).await.unwrap_err();
    let alloc = world.alloc(1, 0, "data", ONE);
    world.claim("data", &alloc).await.unwrap();
    assert!(begun.elapsed() >= QUIET, "{:?}", begun.elapsed());
    // One that was refused is not under way.
    world.unpublish("data", &alloc).await.unwrap();
    world.strict.fault(EXPAND, &[Fault::Says(Code::Refused)]);
    sized(&world, 25).await.unwrap_err();
    let key = ("default".to_owned(), "data".to_owned());
    assert_eq!(world.volumes.doubts.grows(&key), None);
}

#[tokio::test]
async fn csi_05_a_volume_whose_nodes_alone_make_it_larger_grows_where_it_is_mounted() {
    let world = World::new(0);
    let mut node = registered(0, &node_id(0), (true, false));
    for part in node.node.csi_controller_plugins.values_mut() {
        part.controller_info.as_mut().unwrap().supports_expand = false;
    }
    let cannot = node.clone();
    for part in node.node.csi_node_plugins.values_mut() {
        part.node_info.as_mut().unwrap().supports_expand = true;
    }
    world.direct.apply(cannot);
    sized(&world, 10).await.unwrap();
    let error = sized(&world, 25).await.unwrap_err();
    assert_eq!(error.text, "plugin \"strict\" does not expand volumes");
    world.direct.apply(node);
    sized(&world, 25).await.unwrap();
    let row = world.row("data");
    assert_eq!((row.volume.capacity, row.node_expansion > 0), (25, true));
    let alloc = world.alloc(1, 0, "data", ONE);
    let growth = world.claim("data", &alloc).await.unwrap().node_expansion;
    world.strict.mount("made-data", &node_id(0), &alloc, true);
    expanded(&world, &alloc, growth).await.unwrap();
    sized(&world, 40).await.unwrap();
    let row = world.row("data");
    assert_eq!((row.volume.capacity, row.node_expansion), (40, 0));
    assert_eq!(
        (world.strict.count(EXPAND), world.strict.count(ON_NODE)),
        (0, 1)
    );
}
