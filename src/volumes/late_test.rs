//! Calls of controllers that are done when no caller waits for them any more.

use drover_events::csi::state;
use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_testkit::{LONG, eventually_async};
use tokio::time::Instant;

use super::harness::*;
use super::testing::*;
use super::*;

const ATTACH: &str = "ControllerAttachVolume";
const DETACH: &str = "ControllerDetachVolume";
const DELETE: &str = "ControllerDeleteVolume";

fn key() -> CsiVolumeKey {
    ("default".to_owned(), "data".to_owned())
}

/// One volume, and an allocation on the first of so many nodes whose attach becomes of this.
async fn claimed(nodes: usize, fault: Fault) -> (World, String) {
    let world = World::new(nodes);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    // On whichever node it is called.
    world.strict.fault(ATTACH, &vec![fault; nodes]);
    world.claim("data", &alloc).await.unwrap_err();
    world.strict.heal();
    (world, alloc)
}

/// Retries the release until nothing is left of it.
async fn finishes(world: &World, alloc: &str) {
    let once = async || {
        let (waiting, origin) = (PendingRelease::Claim(alloc.to_owned()), Origin::default());
        let place = ("default", "data");
        let done = world.volumes.retry_release(place, &waiting, &origin).await;
        match (done, world.past("data").is_empty()) {
            (Ok(_), true) => Ok(()),
            (done, _) => Err(format!("{done:?}")),
        }
    };
    eventually_async("it is freed", LONG, once).await.unwrap();
}

#[tokio::test]
async fn csi_34_an_attach_that_is_done_late_leaves_nothing_attached() {
    for falls in [false, true] {
        let (mut world, alloc) = claimed(1, Fault::Later).await;
        if falls {
            world.elect();
        }
        world.alloc_is(&alloc, "failed");
        world.unpublish("data", &alloc).await.unwrap();
        assert!(!world.strict.is_idle(), "it was attached after that");
        assert_eq!(world.past("data"), [state::DETACH_UNCONFIRMED], "{falls}");
        // Its client calls again, and has nothing to wait for.
        assert_eq!(world.unpublish("data", &alloc).await, Ok(0));
        // It holds up no claim on the same node; to another one the plugin attaches for no claim.
        assert!(!world.row("data").in_use());
        world.alloc_goes(&alloc);
        if falls {
            world.elect();
        }
        finishes(&world, &alloc).await;
        assert!(world.strict.is_idle() && world.row("data").is_at_rest());
    }
}

#[tokio::test]
async fn a_node_that_is_back_lets_go_of_what_is_unconfirmed() {
    let (world, alloc) = claimed(2, Fault::Later).await;
    world.alloc_is(&alloc, "lost");
    world.node_is_given_up(0);
    world.unpublish("data", &alloc).await.unwrap();
    assert_eq!(world.past("data"), [state::DETACH_UNCONFIRMED]);
    assert_eq!(world.strict.count("NodeDetachVolume"), 0);
    world.node(0, true);
    assert_eq!(world.give_back("data", &alloc, 0).await, Ok(0));
    assert_eq!(world.strict.count("NodeDetachVolume"), 1);
    finishes(&world, &alloc).await;
}

#[tokio::test]
async fn an_attach_that_was_answered_leaves_no_doubt() {
    for fault in [Fault::Says(Code::Refused), Fault::Says(Code::Unavailable)] {
        let (world, alloc) = claimed(2, fault).await;
        world.unpublish("data", &alloc).await.unwrap();
        assert!(world.row("data").is_at_rest(), "{fault:?}");
        assert_eq!(world.strict.count(DETACH), 1);
    }
    // Of several that were called, one did not answer.
    let (world, alloc) = claimed(2, Fault::Says(Code::Timeout)).await;
    world.claim("data", &alloc).await.unwrap();
    world.unpublish("data", &alloc).await.unwrap();
    assert_eq!(world.past("data"), [state::DETACH_UNCONFIRMED]);
    finishes(&world, &alloc).await;
    assert!(world.strict.is_idle() && world.strict.wrong().is_empty());
}

#[tokio::test]
async fn what_is_unconfirmed_is_not_taken_from_the_next_one_on_its_node() {
    let (world, alloc) = claimed(1, Fault::Later).await;
    world.alloc_is(&alloc, "failed");
    world.unpublish("data", &alloc).await.unwrap();
    let next = world.alloc(2, 0, "data", ONE);
    world.claim("data", &next).await.unwrap();
    world.strict.mount("data", &node_id(0), &next, true);
    finishes(&world, &alloc).await;
    assert_eq!(world.strict.count(DETACH), 1, "the next one has it there");
    assert!(world.strict.wrong().is_empty());
    // The attach of the first one may still come when the second has left.
    world.unpublish("data", &next).await.unwrap();
    assert!(world.strict.is_idle());
}

#[tokio::test]
async fn after_a_detach_that_nobody_answered_nobody_attaches_there_for_a_while() {
    for (falls, fault) in [
        (false, Some(Fault::Lost)),
        (true, Some(Fault::Lost)),
        (false, None),
    ] {
        let mut world = World::new(1);
        world.patient(QUIET);
        world.volume("data", ONE);
        let alloc = world.alloc(1, 0, "data", ONE);
        world.claim("data", &alloc).await.unwrap();
        world.alloc_is(&alloc, "complete");
        let begun = Instant::now();
        if let Some(fault) = fault {
            world.strict.fault(DETACH, &[fault]);
            world.unpublish("data", &alloc).await.unwrap_err();
        }
        if falls {
            world.elect();
            world.patient(QUIET);
        }
        world.unpublish("data", &alloc).await.unwrap();
        let next = world.alloc(2, 0, "data", ONE);
        world.claim("data", &next).await.unwrap();
        let waited = begun.elapsed();
        assert!(fault.is_none() || waited >= QUIET, "{falls}: {waited:?}");
        world.strict.mount("data", &node_id(0), &next, true);
        finishes(&world, &alloc).await;
        assert!(world.strict.wrong().is_empty());
        let again = usize::from(fault.is_some());
        assert_eq!(world.strict.count(DETACH), 1 + again, "no other detach");
    }
}

#[tokio::test]
async fn by_force_a_volume_is_detached_where_nobody_claims_it_and_never_where_somebody_does() {
    let (world, alloc) = claimed(2, Fault::Later).await;
    world.unpublish("data", &alloc).await.unwrap();
    finishes(&world, &alloc).await;
    // As after an attach that came later than any caller waits for.
    let next = world.alloc(2, 0, "data", ONE);
    world.claim("data", &next).await.unwrap();
    let detach = async |node: usize, force: bool| {
        let node = node_id(node);
        let on = (node.as_str(), force);
        world.volumes.detach(&key(), on, &Origin::default()).await
    };
    let text = format!("volume \"data\" is in use on node \"{}\"", node_id(0));
    for force in [false, true] {
        let refused = detach(0, force).await.unwrap_err();
        assert_eq!(refused.to_string(), text);
    }
    let calls = world.strict.count(DETACH);
    detach(1, false).await.unwrap_err();
    assert_eq!(world.strict.count(DETACH), calls);
    detach(1, true).await.unwrap();
    assert_eq!(world.strict.count(DETACH), calls + 1);
    assert!(world.strict.wrong().is_empty());
}

/// Deletes the volume.
async fn delete(world: &World) -> Result<u64, StepError> {
    let (secrets, origin) = (Secrets::default(), Origin::default());
    world.volumes.delete(&key(), secrets, &origin).await
}

#[tokio::test]
async fn a_volume_that_may_still_be_deleted_is_given_to_nobody_whoever_leads() {
    for falls in [false, true] {
        let mut world = World::new(1);
        world.volume("data", ONE);
        let alloc = world.alloc(1, 0, "data", ONE);
        world.strict.fault(DELETE, &[Fault::Late]);
        delete(&world).await.unwrap_err();
        if falls {
            world.elect();
        }
        let refused = world.claim("data", &alloc).await.unwrap_err();
        let text = "volume \"data\" in namespace \"default\" is being deleted";
        assert_eq!(refused.to_string(), text);
        assert!(refused.is_recoverable());
        assert_eq!(world.strict.count(ATTACH), 0);
        // No call deletes it again: it is given back when it cannot be deleted any more.
        let place = ("default", "data");
        let origin = Origin::default();
        let kept = eventually_async("it is given back", LONG, async || {
            let waiting = PendingRelease::Deletion;
            world.volumes.retry_release(place, &waiting, &origin).await
        });
        kept.await.unwrap();
        assert!(world.row("data").is_at_rest());
    }
}

#[tokio::test]
async fn a_delete_that_is_refused_does_not_end_an_earlier_one() {
    for reached in [true, false] {
        let world = World::new(1);
        world.volume("data", ONE);
        let alloc = world.alloc(1, 0, "data", ONE);
        world.strict.fault(DELETE, &[Fault::Later]);
        delete(&world).await.unwrap_err();
        // A repeated delete is answered, or does not even reach the node; the first call continues.
        let refusal = [Fault::Says(Code::Unavailable)];
        world.strict.fault(DELETE, &refusal);
        if !reached {
            world.way.cut.lock().insert(node_id(0));
        }
        delete(&world).await.unwrap_err();
        world.way.cut.lock().clear();
        let refused = world.claim("data", &alloc).await.unwrap_err();
        let text = "volume \"data\" in namespace \"default\" is being deleted";
        assert_eq!(refused.to_string(), text, "{reached}");
        assert_eq!(world.strict.count(ATTACH), 0);
    }
}

#[tokio::test]
async fn how_long_a_volume_may_still_be_deleted_counts_from_the_last_call() {
    let mut world = World::new(2);
    world.hurry();
    world.volume("data", ONE);
    world.strict.fault(DELETE, &[Fault::Hangs; 2]);
    let first = async {
        reached("the first call", || world.strict.count(DELETE) > 0).await;
        world.row("data").deleting
    };
    let (deleted, first) = tokio::join!(delete(&world), first);
    deleted.unwrap_err();
    assert_eq!(world.strict.count(DELETE), 2);
    let later = Duration::from_nanos((world.row("data").deleting - first).cast_unsigned());
    assert!(later >= Duration::from_millis(20), "{later:?}");
}

#[tokio::test]
async fn a_volume_that_its_plugin_does_not_delete_is_used_again_at_once() {
    let world = World::new(1);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    for code in [Code::Refused, Code::Unavailable] {
        world.strict.fault(DELETE, &[Fault::Says(code)]);
        delete(&world).await.unwrap_err();
        world.claim("data", &alloc).await.unwrap();
        world.unpublish("data", &alloc).await.unwrap();
    }
    // One that claims while it is deleted gets nothing, and the plugin is not called for it.
    let calls = world.strict.count(ATTACH);
    world.strict.fault(DELETE, &[Fault::Slow(2_000)]);
    let comes = async {
        turns(10).await;
        world.claim("data", &alloc).await
    };
    let (deleted, came) = tokio::join!(delete(&world), comes);
    deleted.unwrap();
    assert_eq!(came.unwrap_err().to_string(), "volume not found: data");
    assert_eq!(world.strict.count(ATTACH), calls);
    assert!(world.strict.wrong().is_empty());
}

#[tokio::test]
async fn csi_35_who_comes_while_the_last_one_is_detached_is_attached_after_that() {
    use drover_events::model::status::access_mode::MULTI_NODE_MULTI_WRITER as MANY;
    let world = World::new(1);
    world
        .strict
        .shared
        .store(true, std::sync::atomic::Ordering::SeqCst);
    world.volume("data", MANY);
    let (old, new) = (
        world.alloc(1, 0, "data", MANY),
        world.alloc(2, 0, "data", MANY),
    );
    world.claim("data", &old).await.unwrap();
    world.strict.fault(DETACH, &[Fault::Slow(2_000)]);
    let comes = async {
        turns(50).await;
        assert_eq!(world.strict.count(DETACH), 1, "it is under way");
        world.claim("data", &new).await
    };
    let (left, came) = tokio::join!(world.unpublish("data", &old), comes);
    left.unwrap();
    came.expect("it waits, and is attached");
    world.strict.mount("data", &node_id(0), &new, true);
    assert!(world.strict.wrong().is_empty());
    assert_eq!(world.strict.count(ATTACH), 2);
}

#[tokio::test]
async fn csi_31_why_a_volume_that_is_being_deleted_is_not_gone_is_told_until_it_stays() {
    let mut world = World::new(1);
    world.volume("data", ONE);
    let place = ("default", "data");
    let why = |world: &World| {
        let last_errors = world.volumes.last_errors(place);
        last_errors
            .get("")
            .map(|last_error| last_error.error.clone())
    };
    let origin = Origin::default();
    let delete = async |world: &World| {
        let (key, secrets) = (key(), Secrets::default());
        let deleted = world.volumes.delete(&key, secrets, &origin).await;
        deleted.unwrap_err().to_string()
    };
    // What was refused stays at once: it is not being deleted any more.
    world.strict.fault(DELETE, &[Fault::Says(Code::Refused)]);
    delete(&world).await;
    assert_eq!((why(&world), world.volumes.remembers()), (None, 0));
    world.strict.fault(DELETE, &[Fault::Before]);
    let error = delete(&world).await;
    assert_eq!(why(&world), Some(error.clone()));
    assert!(error.starts_with("controller delete volume: "), "{error}");
    // What another leader got as an answer is not known to the next one.
    world.elect();
    assert_eq!(why(&world), None);
    let stays = async || {
        let seen = world
            .volumes
            .retry_release(place, &PendingRelease::Deletion, &origin);
        seen.await.map(drop)
    };
    eventually_async("it stays", LONG, stays).await.unwrap();
    assert_eq!((why(&world), world.row("data").deleting), (None, 0));
}
