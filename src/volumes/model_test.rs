//! Every fault of every call, and a leader that falls at every point where it waits: the same
//! request made again ends well.

use drover_events::model::CsiVolume;
use drover_events::model::status::access_mode::{
    MULTI_NODE_MULTI_WRITER as MANY, SINGLE_NODE_WRITER as ONE,
};
use std::sync::atomic::Ordering;

use super::harness::*;
use super::testing::*;
use super::*;

const METHODS: [&str; 3] = [
    "ControllerAttachVolume",
    "ControllerDetachVolume",
    "NodeDetachVolume",
];

/// Works on something until it has waited so often; none: it was given up there, as by a leader
/// that falls.
async fn within<T>(waits: usize, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    for _ in 0..waits {
        if let std::task::Poll::Ready(done) = futures_util::poll!(work.as_mut()) {
            return Some(done);
        }
    }
    None
}

/// What becomes of the first call, at every step, with every fault: the same again ends well.
#[tokio::test]
async fn every_fault_of_every_call_is_made_good_by_asking_again() {
    let says = [
        Code::Unavailable,
        Code::Timeout,
        Code::Conflict,
        Code::Refused,
        Code::NotFound,
        Code::Internal,
        Code::PermissionDenied,
    ];
    let mut faults = vec![Fault::Before, Fault::Lost];
    faults.extend(says.map(Fault::Says));
    let mut world = World::new(1);
    let mut number = 0;
    for method in METHODS {
        for fault in &faults {
            for falls in [false, true] {
                number += 1;
                let volume = format!("data-{number}");
                world.volume(&volume, ONE);
                let alloc = world.alloc(number, 0, &volume, ONE);
                world.strict.fault(method, &[*fault]);
                let attaches = method == METHODS[0];
                let claimed = world.claim(&volume, &alloc).await;
                assert_eq!(claimed.is_err(), attaches, "{method} {fault:?}");
                if falls {
                    world.elect();
                }
                world.claim(&volume, &alloc).await.unwrap();
                world.strict.mount(&volume, &node_id(0), &alloc, true);
                let released = world.unpublish(&volume, &alloc).await;
                assert_eq!(released.is_ok(), attaches, "{method} {fault:?}");
                if falls {
                    world.elect();
                }
                world.unpublish(&volume, &alloc).await.unwrap();
                assert!(world.strict.is_idle() && !world.row(&volume).in_use());
            }
        }
    }
    assert!(
        world.strict.wrong().is_empty(),
        "{:?}",
        world.strict.wrong()
    );
}

/// A leader falls at every point where it waits, at which it is not known what was done: the next
/// one continues from what is recorded.
#[tokio::test]
async fn a_leader_that_falls_at_any_point_leaves_nothing_undone() {
    let mut world = World::new(1);
    for waits in 0.. {
        assert!(waits < 1_000, "it waits without end");
        let volume = format!("data-{waits}");
        world.volume(&volume, ONE);
        let alloc = world.alloc(waits, 0, &volume, ONE);
        let taken = within(waits, world.claim(&volume, &alloc)).await;
        world.elect();
        world.claim(&volume, &alloc).await.unwrap();
        world.strict.mount(&volume, &node_id(0), &alloc, true);
        let given_back = within(waits, world.unpublish(&volume, &alloc)).await;
        world.elect();
        world.unpublish(&volume, &alloc).await.unwrap();
        assert!(
            world.strict.is_idle() && !world.row(&volume).in_use(),
            "{waits}"
        );
        if taken.is_some() && given_back.is_some() {
            assert!(waits > 4, "it must have fallen somewhere");
            break;
        }
    }
    assert!(
        world.strict.wrong().is_empty(),
        "{:?}",
        world.strict.wrong()
    );
}

/// Whether a volume is held, as the plugin and as the state see it.
fn is_free(world: &World, volume: &str) -> bool {
    world.strict.is_idle() && !world.row(volume).in_use()
}

#[tokio::test]
async fn csi_34_what_the_state_forgot_is_taken_from_a_node_that_is_back() {
    let world = World::new(2);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    world.claim("data", &alloc).await.unwrap();
    world.strict.mount("data", &node_id(0), &alloc, true);
    world.alloc_is(&alloc, "lost");
    // The node is given up while it lives: it cannot be called.
    world.node_is_given_up(0);
    world.unpublish("data", &alloc).await.unwrap();
    assert!(!world.row("data").in_use());
    let next = world.alloc(2, 1, "data", ONE);
    world.claim("data", &next).await.unwrap();
    world.strict.mount("data", &node_id(1), &next, true);
    // It is back, with its mounts, and its client gives back what it has.
    world.strict.is_new(&node_id(0));
    world.node(0, true);
    assert_eq!(world.strict.mounted_on(&node_id(0)).len(), 1);
    world
        .strict
        .fault("NodeDetachVolume", &[Fault::Says(Code::Unavailable)]);
    let error = world.give_back("data", &alloc, 0).await.unwrap_err();
    assert!(error.is_recoverable(), "{error}: the client calls again");
    world.give_back("data", &alloc, 0).await.unwrap();
    assert!(world.strict.mounted_on(&node_id(0)).is_empty());
    assert_eq!(world.strict.count("ControllerDetachVolume"), 1);
    world.unpublish("data", &next).await.unwrap();
    assert!(is_free(&world, "data") && world.strict.wrong().is_empty());
}

#[tokio::test]
async fn csi_35_a_machine_that_is_two_nodes_keeps_its_volume_while_one_of_them_has_it() {
    let world = World::new(2);
    world.strict.shared.store(true, Ordering::SeqCst);
    // The plugin knows one machine, which came back as a new node.
    world.node_called(1, &node_id(0));
    world.volume("data", MANY);
    let (old, new) = (
        world.alloc(1, 0, "data", MANY),
        world.alloc(2, 1, "data", MANY),
    );
    for alloc in [&old, &new] {
        world.claim("data", alloc).await.unwrap();
        world.strict.mount("data", &node_id(0), alloc, true);
    }
    world.alloc_is(&old, "lost");
    world.strict.lets_go("data", &node_id(0), &old);
    world.node_goes_from_the_state(0);
    world.unpublish("data", &old).await.unwrap();
    assert_eq!(world.strict.count("ControllerDetachVolume"), 0);
    world.strict.lets_go("data", &node_id(0), &new);
    world.unpublish("data", &new).await.unwrap();
    assert!(is_free(&world, "data") && world.strict.wrong().is_empty());
}

#[tokio::test]
async fn a_volume_is_attached_to_a_node_in_one_way_whoever_uses_it_there() {
    use drover_events::csi::claim_mode;
    use drover_events::model::status::access_mode::MULTI_NODE_READER;
    let world = World::new(1);
    world.strict.shared.store(true, Ordering::SeqCst);
    world.volume_as("data", &[MANY, MULTI_NODE_READER]);
    let reads = world.alloc_as((1, 0), "data", (MANY, true));
    let other = world.alloc_as((2, 0), "data", (MULTI_NODE_READER, true));
    for alloc in [&reads, &other] {
        world
            .claim_as("data", alloc, claim_mode::READ)
            .await
            .unwrap();
    }
    assert!(
        world.strict.wrong().is_empty(),
        "{:?}",
        world.strict.wrong()
    );
    let attached = world.strict.attached_as("data", &node_id(0));
    assert_eq!(attached, format!("{MANY} file-system false"));
    for alloc in [&reads, &other] {
        world.unpublish("data", alloc).await.unwrap();
    }
    // Only a plugin that says it can is requested to attach one that is only to be read.
    for (can, reported) in [(false, "false"), (true, "true")] {
        world.node_reads_only(0, can);
        world
            .claim_as("data", &other, claim_mode::READ)
            .await
            .unwrap();
        let attached = world.strict.attached_as("data", &node_id(0));
        assert_eq!(
            attached,
            format!("{MULTI_NODE_READER} file-system {reported}")
        );
        world.unpublish("data", &other).await.unwrap();
    }
}

#[tokio::test]
async fn csi_05_who_comes_at_once_makes_one_volume_and_a_lie_makes_none() {
    let world = World::new(1);
    let origin = Origin::default();
    world
        .strict
        .fault("ControllerCreateVolume", &[Fault::Slow(2_000)]);
    let wanted = || {
        let new = CsiVolume {
            external_id: String::new(),
            ..volume("new", ONE)
        };
        world.volumes.create(vec![new], &origin)
    };
    let (one, two) = tokio::join!(wanted(), wanted());
    assert_eq!(one.unwrap().0[0].external_id, "made-new");
    assert_eq!(two.unwrap().0[0].external_id, "made-new");
    assert_eq!(world.strict.count("ControllerCreate"), 1);
    let mut another = volume("other", ONE);
    another.external_id = ANOTHER.into();
    world
        .volumes
        .register(vec![another], &origin)
        .await
        .unwrap();
    world.strict.fault("ControllerCreateVolume", &[Fault::Lies]);
    let mut lied = volume("lied", ONE);
    lied.external_id = String::new();
    let refused = world.volumes.create(vec![lied.clone()], &origin).await;
    let text = "controller create volume: plugin \"strict\" answers with volume \"made-another\", \
                which is registered as \"other\" in namespace \"default\"; give the new one \
                another name";
    assert_eq!(refused.unwrap_err().to_string(), text);
    assert!(world.known("lied").is_none());
    world.volumes.create(vec![lied], &origin).await.unwrap();
    assert_eq!(world.row("lied").volume.external_id, "made-lied");
}

#[tokio::test]
async fn a_volume_that_is_detached_from_every_node_is_given_to_nobody_meanwhile() {
    let world = World::new(2);
    world.strict.shared.store(true, Ordering::SeqCst);
    world.volume("data", MANY);
    let (old, new) = (
        world.alloc(1, 0, "data", MANY),
        world.alloc(2, 1, "data", MANY),
    );
    world.old_claim("data", &old, MANY);
    world.alloc_is(&old, "lost");
    world.node_goes(0);
    world
        .strict
        .fault("ControllerDetachVolume", &[Fault::Slow(5_000)]);
    let leaves = world.unpublish("data", &old);
    let comes = async {
        turns(10).await;
        world.claim("data", &new).await
    };
    let (left, came) = tokio::join!(leaves, comes);
    left.unwrap();
    came.unwrap();
    world.strict.mount("data", &node_id(1), &new, true);
    assert!(
        world.strict.wrong().is_empty(),
        "{:?}",
        world.strict.wrong()
    );
}

#[tokio::test]
async fn csi_05_what_has_grown_is_recorded_and_a_node_that_cannot_now_does_its_part_later() {
    let world = World::new(2);
    world.strict.shared.store(true, Ordering::SeqCst);
    let origin = Origin::default();
    let grow = |bytes: i64| {
        let mut wanted = volume("new", MANY);
        wanted.external_id = String::new();
        wanted.requested_capacity_min = bytes;
        world.volumes.create(vec![wanted], &origin)
    };
    grow(10).await.unwrap();
    for node in 0..2 {
        let alloc = world.alloc(node, node, "new", MANY);
        world.claim("new", &alloc).await.unwrap();
    }
    world.node_is(0, "down");
    let error = grow(25).await.unwrap_err().to_string();
    assert!(error.starts_with("node expand volume: node "), "{error}");
    assert_eq!(
        world.row("new").volume.capacity,
        25,
        "it is as large as that"
    );
    assert_eq!(
        world.strict.count("NodeExpand"),
        1,
        "the other one has done it"
    );
    world.node_is(0, "ready");
    grow(25).await.unwrap();
    assert_eq!(world.strict.count("NodeExpand"), 3);
}

#[tokio::test]
async fn csi_05_a_registered_volume_of_unknown_size_grows_once_when_another_size_is_asked_for() {
    let world = World::new(1);
    let origin = Origin::default();
    let register = |bytes: i64| {
        let mut wanted = volume("data", ONE);
        wanted.requested_capacity_min = bytes;
        world.volumes.register(vec![wanted], &origin)
    };
    register(0).await.unwrap();
    assert_eq!(
        (world.row("data").volume.capacity, world.strict.size("data")),
        (0, None)
    );
    for again in [false, true] {
        let index = world.index();
        register(25).await.unwrap();
        assert_eq!(world.strict.count("ControllerExpand"), 1);
        assert_eq!(
            (world.row("data").volume.capacity, world.strict.size("data")),
            (25, Some(25))
        );
        assert_eq!(world.index() == index, again, "it is one event");
    }
}
