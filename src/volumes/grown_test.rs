//! Volumes that are made larger: which claims take them meanwhile, and which nodes do their part.

use std::sync::atomic::Ordering;

use drover_events::csi::claim_mode;
use drover_events::model::CsiVolume;
use drover_events::model::status::access_mode::{
    MULTI_NODE_SINGLE_WRITER, SINGLE_NODE_WRITER as ONE,
};
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
    let claim = claim_request("data", alloc, ("", claim_mode::WRITE));
    let origin = Origin::default();
    world
        .volumes
        .record_node_expansion(&claim, growth, &origin)
        .await
}

#[tokio::test]
async fn csi_05_what_grew_while_nobody_had_it_is_known_until_a_node_that_has_it_did_its_part() {
    let mut world = made().await;
    sized(&world, 25).await.unwrap();
    let first = world.row("data").node_expansion;
    sized(&world, 40).await.unwrap();
    let growth = world.row("data").node_expansion;
    assert!(first > 0 && growth > first, "{first} {growth}");
    assert_eq!(world.strict.count(ON_NODE), 0, "no node has it");
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

/// Waits until a controller got so many requests to make volumes larger.
async fn grows(world: &World, calls: usize) {
    let is_called = || world.strict.count(EXPAND) >= calls;
    reached("its call", is_called).await;
}

#[tokio::test]
async fn csi_05_who_comes_while_a_volume_is_made_larger_has_it_then() {
    let world = made().await;
    world.strict.fault(EXPAND, &[Fault::Held]);
    let mut growing = Box::pin(sized(&world, 25));
    let alloc = world.alloc(1, 0, "data", ONE);
    let mut comes = Box::pin(world.claim("data", &alloc));
    tokio::select! {
        _ = &mut growing => panic!("it is held"),
        () = grows(&world, 1) => {}
    }
    tokio::select! {
        biased;
        came = &mut comes => panic!("it is being made larger: {came:?}"),
        () = turns(100) => {}
    }
    assert!(!world.row("data").in_use() && world.strict.count(ATTACH) == 0);
    world.strict.let_go();
    let (grown, taken) = tokio::join!(growing, comes);
    grown.unwrap();
    let taken = taken.unwrap();
    assert_eq!(taken.volume.capacity, 25);
    assert_eq!(taken.node_expansion, world.row("data").node_expansion);
    assert!(
        taken.node_expansion > 0,
        "it was not there when nodes were called"
    );
    assert_eq!(world.strict.count(ON_NODE), 0);
}

#[tokio::test]
async fn csi_05_who_has_a_volume_already_is_answered_while_it_is_made_larger() {
    let world = made().await;
    let alloc = world.alloc(1, 0, "data", ONE);
    world.claim("data", &alloc).await.unwrap();
    world.strict.fault(EXPAND, &[Fault::Held]);
    let mut growing = Box::pin(sized(&world, 25));
    tokio::select! {
        _ = &mut growing => panic!("it is held"),
        () = grows(&world, 1) => {}
    }
    // Its answer was lost, say. It is as large as it was, and the claim names no growth yet.
    let again = timeout(LONG, world.claim("data", &alloc));
    let again = again.await.expect("it waits for no other").unwrap();
    assert!(world.row("data").node_expansion > 0);
    assert_eq!((again.index, again.node_expansion), (0, 0));
    world.strict.let_go();
    growing.await.unwrap();
    let again = world.claim("data", &alloc).await.unwrap();
    assert!(again.node_expansion > 0);
}

#[tokio::test]
async fn csi_05_a_volume_that_has_grown_waits_for_no_other_of_the_same_request() {
    let world = World::new(1);
    let wanted = |bytes| {
        ["data", "more"].map(|id| CsiVolume {
            external_id: String::new(),
            requested_capacity_min: bytes,
            ..volume(id, ONE)
        })
    };
    let origin = Origin::default();
    let volumes = &world.volumes;
    volumes.create(wanted(10).into(), &origin).await.unwrap();
    world.strict.fault(EXPAND, &[Fault::Twice, Fault::Held]);
    let mut growing = Box::pin(volumes.create(wanted(25).into(), &origin));
    tokio::select! {
        _ = &mut growing => panic!("the other is held"),
        () = grows(&world, 2) => {}
    }
    let alloc = world.alloc(1, 0, "data", ONE);
    // The plugin does one thing at a time, and is called for the next.
    let taken = timeout(LONG, world.claim("data", &alloc)).await;
    let busy = taken.expect("it is large enough").unwrap_err();
    assert!(busy.text.contains("another call"), "{busy}");
    let row = world.row("data");
    assert_eq!((row.in_use(), row.volume.capacity), (true, 25));
    world.strict.let_go();
    let (now, index) = growing.await.unwrap();
    let sizes: Vec<_> = now.iter().map(|now| (&*now.id, now.capacity)).collect();
    assert_eq!(sizes, [("data", 25), ("more", 25)]);
    assert_eq!(index, world.row("more").volume.modify_index);
}

#[tokio::test]
async fn csi_05_a_part_of_nodes_is_known_before_it_grows_and_no_longer_where_there_is_none() {
    let mut world = made().await;
    // The leader dies before it learns how large the volume is.
    world.strict.fault(EXPAND, &[Fault::Lost]);
    sized(&world, 25).await.unwrap_err();
    world.elect();
    let row = world.row("data");
    assert_eq!(
        (row.volume.capacity, world.strict.size("made-data")),
        (10, Some(25))
    );
    assert!(row.node_expansion > 0);
    // One that is refused changes nothing of that.
    world.strict.fault(EXPAND, &[Fault::Says(Code::Refused)]);
    sized(&world, 40).await.unwrap_err();
    assert!(world.row("data").node_expansion > 0);
    // Nodes that have a part of what grew before are called, even if not of this growth.
    world.strict.alone.store(true, Ordering::SeqCst);
    let alloc = world.alloc(1, 0, "data", ONE);
    world.claim("data", &alloc).await.unwrap();
    world.strict.mount("made-data", &node_id(0), &alloc, true);
    sized(&world, 40).await.unwrap();
    assert_eq!(
        (
            world.strict.count(ON_NODE),
            world.row("data").node_expansion
        ),
        (1, 0)
    );
    sized(&world, 50).await.unwrap();
    let row = world.row("data");
    assert_eq!((row.volume.capacity, row.node_expansion), (50, 0));
    assert_eq!(
        world.strict.count(ON_NODE),
        1,
        "it is so everywhere at once"
    );
    world.strict.fault(EXPAND, &[Fault::Says(Code::Refused)]);
    sized(&world, 60).await.unwrap_err();
    assert_eq!(
        world.row("data").node_expansion,
        0,
        "it is as large as it was"
    );
}

#[tokio::test]
async fn csi_05_who_only_reads_neither_hears_of_a_growth_nor_ends_it() {
    let world = World::new(1);
    let mut wanted = volume("data", MULTI_NODE_SINGLE_WRITER);
    wanted.requested_capacity_min = 10;
    wanted.external_id = String::new();
    let origin = Origin::default();
    for bytes in [10, 25] {
        wanted.requested_capacity_min = bytes;
        let made = world.volumes.create(vec![wanted.clone()], &origin).await;
        made.unwrap();
    }
    let growth = world.row("data").node_expansion;
    let alloc = world.alloc_as((1, 0), "data", (MULTI_NODE_SINGLE_WRITER, true));
    let taken = world
        .claim_as("data", &alloc, claim_mode::READ)
        .await
        .unwrap();
    assert_eq!((growth > 0, taken.node_expansion), (true, 0));
    let error = expanded(&world, &alloc, growth).await.unwrap_err();
    assert!(error.text.contains("to write to it"), "{error}");
    assert_eq!(world.row("data").node_expansion, growth);
}

#[tokio::test]
async fn csi_05_nobody_has_a_volume_that_a_call_of_no_answer_may_still_make_larger() {
    let mut world = made().await;
    world.patient(QUIET);
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
    assert_eq!(world.volumes.in_doubt.growth_in_doubt(&key), None);
}

#[test]
fn an_earlier_call_that_nobody_answered_is_over_once_the_volume_is_as_large_as_that_would_make_it()
{
    let key = ("default".to_owned(), "data".to_owned());
    let in_doubt = InDoubtCalls::new((LONG, LONG));
    let call = in_doubt.record_growth_start(&key, 10);
    assert_eq!(
        (in_doubt.is_growing(&key), in_doubt.growth_in_doubt(&key)),
        (true, None)
    );
    call.answered();
    assert!(!in_doubt.is_growing(&key));
    for size in [30, 10] {
        drop(in_doubt.record_growth_start(&key, size));
    }
    in_doubt.record_growth_start(&key, 40).answered();
    in_doubt.record_growth_start(&key, 20).grown(29);
    assert!(in_doubt.is_growing(&key) && in_doubt.growth_in_doubt(&key).is_some());
    in_doubt.record_growth_start(&key, 20).grown(30);
    assert!(!in_doubt.is_growing(&key));
}

#[tokio::test]
async fn csi_05_who_waits_for_a_growth_of_no_answer_has_the_volume_once_it_has_grown() {
    let mut world = made().await;
    world.patient(LONG);
    world.strict.fault(EXPAND, &[Fault::Before]);
    sized(&world, 25).await.unwrap_err();
    let alloc = world.alloc(1, 0, "data", ONE);
    let begun = Instant::now();
    let mut claim = std::pin::pin!(world.claim("data", &alloc));
    assert!(futures_util::poll!(&mut claim).is_pending());
    sized(&world, 25).await.unwrap();
    claim.await.unwrap();
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
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
