use drover_events::csi::state;
use drover_events::model::status::access_mode::{
    MULTI_NODE_MULTI_WRITER as MANY, SINGLE_NODE_WRITER as ONE,
};
use drover_projections::tables::Allocs;
use drover_testkit::LONG;
use tokio::time::timeout;

use super::harness::*;
use super::testing::*;
use super::*;

const ATTACH: &str = "ControllerAttachVolume";
const DETACH: &str = "ControllerDetachVolume";
const UNMOUNT: &str = "NodeDetachVolume";

/// One volume, and an allocation that has claimed and mounted it.
async fn mounted(nodes: usize, access: &str) -> (World, String) {
    let world = World::new(nodes);
    world.volume("data", access);
    let alloc = world.alloc(1, 0, "data", access);
    world.claim("data", &alloc).await.unwrap();
    world.strict.mount("data", &node_id(0), &alloc, true);
    (world, alloc)
}

#[tokio::test]
async fn csi_23_a_new_claim_attaches_once_and_a_repeated_one_is_answered_the_same() {
    let world = World::new(1);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    let taken = world.claim("data", &alloc).await.unwrap();
    let device = format!("data on {}", node_id(0));
    assert_eq!(taken.publish_context["device"], device);
    assert_eq!(taken.volume.id, "data");
    let index = world.index();
    let again = world.claim("data", &alloc).await.unwrap();
    assert_eq!(again.publish_context["device"], device);
    assert_eq!(world.index(), index, "no event without a change");
    assert_eq!(world.strict.count(ATTACH), 1);
    world.unpublish("data", &alloc).await.unwrap();
    assert_eq!(world.strict.count(ATTACH), 1, "a release never attaches");
    assert!(world.strict.is_idle() && !world.row("data").in_use());
}

#[tokio::test]
async fn csi_24_of_two_that_claim_at_once_one_has_it_and_the_plugin_sees_one() {
    let world = World::new(2);
    world.volume("data", ONE);
    let (one, other) = (
        world.alloc(1, 0, "data", ONE),
        world.alloc(2, 1, "data", ONE),
    );
    let (a, b) = tokio::join!(world.claim("data", &one), world.claim("data", &other));
    assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
    let refused = a.err().or(b.err()).unwrap().to_string();
    assert!(refused.contains("max claims reached"), "{refused}");
    assert_eq!(
        (world.strict.count(ATTACH), world.strict.wrong()),
        (1, Vec::new())
    );
}

#[tokio::test]
async fn csi_21_an_allocation_that_is_unknown_claims_nothing() {
    let world = World::new(1);
    world.volume("data", ONE);
    let refused = world.claim("data", &alloc_id(9)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("alloc \"{}\" not found", alloc_id(9))
    );
    let refused = world.claim("none", &alloc_id(9)).await.unwrap_err();
    assert_eq!(refused.to_string(), "volume not found: none");
    assert!(world.strict.calls().is_empty());
}

#[tokio::test]
async fn csi_31_each_step_is_recorded_after_its_call_and_goes_on_where_it_stopped() {
    let (world, alloc) = mounted(1, ONE).await;
    let refusal = Fault::Says(Code::Unavailable);
    world.strict.fault(UNMOUNT, &[refusal]);
    let error = world.unpublish("data", &alloc).await.unwrap_err();
    let text = "could not detach from node: NodeDetachVolume: the plugin says Unavailable";
    assert_eq!(
        (error.to_string().as_str(), error.is_recoverable()),
        (text, true)
    );
    assert_eq!(world.past("data"), [state::UNPUBLISHING]);
    assert_eq!(
        world.strict.count(DETACH),
        0,
        "no controller before its node"
    );
    let index = world.index();
    world.strict.fault(UNMOUNT, &[refusal]);
    world.unpublish("data", &alloc).await.unwrap_err();
    assert_eq!(world.index(), index, "no event without a change");
    world.strict.fault(DETACH, &[refusal]);
    let error = world.unpublish("data", &alloc).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("could not detach from controller: "),
        "{error}"
    );
    assert_eq!(world.past("data"), [state::NODE_DETACHED]);
    assert!(
        world.row("data").in_use(),
        "CSI-37: it is not free before it is"
    );
    let unmounts = world.strict.count(UNMOUNT);
    world.unpublish("data", &alloc).await.unwrap();
    assert_eq!(
        world.strict.count(UNMOUNT),
        unmounts,
        "what is done is not done again"
    );
    assert!(world.strict.is_idle() && !world.row("data").in_use());
    assert_eq!(
        world.unpublish("data", &alloc).await,
        Ok(0),
        "nothing is left to do"
    );
    let gone = world.unpublish("gone", &alloc).await;
    assert_eq!(gone, Ok(0), "nor of a volume that is no more");
    assert!(world.strict.wrong().is_empty());
}

#[tokio::test]
async fn csi_31_what_keeps_a_claim_from_its_node_is_known_until_it_comes_or_goes() {
    let world = World::new(1);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    let key = ("default", "data");
    let refusal = Fault::Says(Code::Unavailable);
    let fails = async |tries: u64| {
        world.strict.fault(ATTACH, &[refusal]);
        let error = world.claim("data", &alloc).await.unwrap_err();
        // Nothing is to be given back: it is no reason to forget it.
        world.volumes.forget(key);
        let last_error = world.volumes.last_errors(key)[&alloc].clone();
        assert_eq!(
            (last_error.error, last_error.tries),
            (error.to_string(), tries)
        );
        last_error.since
    };
    let since = fails(1).await;
    assert!(since > 0 && fails(2).await == since);
    world.claim("data", &alloc).await.unwrap();
    assert!(world.volumes.last_errors(key).is_empty());
    world.unpublish("data", &alloc).await.unwrap();
    // One that is given back has no other trouble than that.
    fails(1).await;
    world.strict.fault(UNMOUNT, &[refusal]);
    let error = world.unpublish("data", &alloc).await.unwrap_err();
    let last_error = world.volumes.last_errors(key)[&alloc].clone();
    assert_eq!((last_error.error, last_error.tries), (error.to_string(), 1));
    world.claim("data", &alloc).await.unwrap_err();
    assert_eq!(world.volumes.last_errors(key)[&alloc].tries, 1);
    world.unpublish("data", &alloc).await.unwrap();
    assert!(world.volumes.last_errors(key).is_empty());
}

#[tokio::test]
async fn csi_34_a_lost_answer_is_asked_for_again() {
    for method in [UNMOUNT, DETACH] {
        let (world, alloc) = mounted(1, ONE).await;
        world.strict.fault(method, &[Fault::Lost, Fault::Before]);
        world.unpublish("data", &alloc).await.unwrap_err();
        world.unpublish("data", &alloc).await.unwrap_err();
        world.unpublish("data", &alloc).await.unwrap();
        assert!(
            world.strict.is_idle() && world.strict.wrong().is_empty(),
            "{method}"
        );
    }
    let world = World::new(1);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    world.strict.fault(ATTACH, &[Fault::Lost]);
    let error = world.claim("data", &alloc).await.unwrap_err();
    assert!(
        error.is_recoverable() && error.to_string().starts_with("controller publish: "),
        "{error}"
    );
    world.volume("other", ONE);
    world
        .leader
        .knows_where
        .store(true, std::sync::atomic::Ordering::SeqCst);
    world.claim("data", &alloc).await.unwrap();
    assert_eq!(world.strict.count(ATTACH), 2);
    // What it follows from is that it was placed, and not what happened last.
    let view = world.direct.projections.view();
    let placed = view.get::<Allocs>(alloc.as_str()).unwrap().unwrap();
    let attached = world.leader.origins.lock().last().unwrap().cause;
    assert_eq!(attached, Some(placed.alloc.create_index));
}

#[tokio::test]
async fn csi_35_the_last_of_a_node_detaches_and_nobody_before() {
    let world = World::new(1);
    world
        .strict
        .shared
        .store(true, std::sync::atomic::Ordering::SeqCst);
    world.volume("data", MANY);
    let allocs: Vec<_> = (1..=2)
        .map(|number| world.alloc(number, 0, "data", MANY))
        .collect();
    for alloc in &allocs {
        world.claim("data", alloc).await.unwrap();
        world.strict.mount("data", &node_id(0), alloc, true);
    }
    world.unpublish("data", &allocs[0]).await.unwrap();
    assert_eq!(world.strict.count(DETACH), 0);
    world.unpublish("data", &allocs[1]).await.unwrap();
    assert_eq!(world.strict.count(DETACH), 1);
    // Both at once: each looks whether it is the last, and one of them is.
    for alloc in &allocs {
        let _ = world.claim("data", alloc).await.unwrap();
        world.strict.mount("data", &node_id(0), alloc, true);
    }
    let both = (
        world.unpublish("data", &allocs[0]),
        world.unpublish("data", &allocs[1]),
    );
    let (a, b) = tokio::join!(both.0, both.1);
    assert!(a.is_ok() && b.is_ok());
    assert!(world.strict.is_idle() && world.strict.wrong().is_empty());
    assert_eq!(world.strict.count(DETACH), 2);
}

#[tokio::test]
async fn csi_45_without_the_node_or_a_controller_a_claim_waits_and_nothing_is_called() {
    let (world, alloc) = mounted(1, ONE).await;
    world.alloc_is(&alloc, "complete");
    world.node_is(0, "down");
    let error = world.unpublish("data", &alloc).await.unwrap_err();
    assert!(
        error.is_recoverable() && error.to_string().contains("is not ready"),
        "{error}"
    );
    world.node_is(0, "ready");
    world.way.cut.lock().insert(node_id(0));
    let error = world.unpublish("data", &alloc).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not detach from node: No path to node"
    );
    assert_eq!(world.strict.count(DETACH), 0);
    world.way.cut.lock().clear();
    world.node(0, false);
    let error = world.unpublish("data", &alloc).await.unwrap_err();
    let text = "could not detach from controller: failed to find clients running controller \
                plugin \"strict\"";
    assert_eq!(error.to_string(), text);
    assert!(world.row("data").in_use(), "the next writer is not let in");
    world.node(0, true);
    world.unpublish("data", &alloc).await.unwrap();
    assert!(world.strict.is_idle() && !world.row("data").in_use());
}

#[tokio::test]
async fn a_node_that_is_gone_for_ever_holds_no_volume_for_ever() {
    let (world, alloc) = mounted(2, ONE).await;
    world.alloc_is(&alloc, "lost");
    world.node_goes(0);
    world.unpublish("data", &alloc).await.unwrap();
    assert_eq!(world.strict.count(UNMOUNT), 0);
    assert!(world.strict.is_idle() && !world.row("data").in_use());
    let next = world.alloc(2, 1, "data", ONE);
    world.claim("data", &next).await.unwrap();
    assert!(world.strict.wrong().is_empty());
}

#[tokio::test]
async fn csi_25_csi_32_a_claim_outlives_its_allocation_with_what_it_was() {
    let (world, alloc) = mounted(1, ONE).await;
    world
        .strict
        .fault(UNMOUNT, &[Fault::Says(Code::Unavailable)]);
    world.unpublish("data", &alloc).await.unwrap_err();
    world.alloc_is(&alloc, "complete");
    world.alloc_goes(&alloc);
    let row = world.row("data");
    let claim = &row.past_claims[alloc.as_str()];
    assert_eq!((claim.access_mode.as_str(), claim.mode), (ONE, 1));
    world.unpublish("data", &alloc).await.unwrap();
    assert!(world.strict.is_idle() && !world.row("data").in_use());
}

#[tokio::test]
async fn csi_38_csi_39_an_operator_detaches_what_has_ended_and_nothing_else() {
    let (world, alloc) = mounted(2, ONE).await;
    let key = ("default".to_owned(), "data".to_owned());
    let detach = async |node: &str| {
        world
            .volumes
            .detach(&key, (node, false), &Origin::default())
            .await
    };
    let error_text = |done: Result<u64, StepError>| done.unwrap_err().to_string();
    let (here, there) = (node_id(0), node_id(1));
    let text = format!("volume \"data\" is in use on node \"{here}\"");
    assert_eq!(error_text(detach(&here).await), text);
    let text = format!("volume \"data\" has no claims on node \"{there}\"");
    assert_eq!(error_text(detach(&there).await), text);
    assert_eq!(
        error_text(detach("nowhere").await),
        "Unknown node \"nowhere\""
    );
    assert_eq!(world.strict.count(UNMOUNT), 0, "it lives");
    world.alloc_is(&alloc, "complete");
    world.alloc_goes(&alloc);
    detach(&here).await.unwrap();
    assert!(world.strict.is_idle() && !world.row("data").in_use());
}

#[tokio::test]
async fn plg_05_controllers_have_their_turn_and_the_next_one_is_asked_where_one_fails() {
    let world = World::new(3);
    world
        .strict
        .shared
        .store(true, std::sync::atomic::Ordering::SeqCst);
    world.volume("data", MANY);
    for number in 0..6 {
        let alloc = world.alloc(number, number % 3, "data", MANY);
        world.claim("data", &alloc).await.unwrap();
    }
    for node in 0..3 {
        let requested = format!("{ATTACH} @{} None", node_id(node));
        let times = world
            .strict
            .calls()
            .iter()
            .filter(|call| **call == requested)
            .count();
        assert_eq!(times, 2, "{:?}", world.strict.calls());
    }
    world.way.cut.lock().insert(node_id(0));
    world.node_is(1, "down");
    world.strict.fault(ATTACH, &[Fault::Before]);
    let alloc = world.alloc(9, 2, "data", MANY);
    let error = world.claim("data", &alloc).await.unwrap_err();
    assert!(error.is_recoverable(), "the only one that is left failed");
    world.node_is(1, "ready");
    world.strict.fault(ATTACH, &[Fault::Before]);
    world
        .claim("data", &alloc)
        .await
        .expect("the next one is called");
    for node in 0..3 {
        world.way.cut.lock().insert(node_id(node));
    }
    let other = world.alloc(10, 2, "data", MANY);
    let error = world.claim("data", &other).await.unwrap_err().to_string();
    assert!(
        error.contains("no path to a node with a controller"),
        "{error}"
    );
}

#[tokio::test]
async fn vw_02_who_does_not_lead_calls_nothing() {
    let (world, alloc) = mounted(1, ONE).await;
    let calls = world.strict.calls().len();
    world
        .leader
        .leads
        .store(false, std::sync::atomic::Ordering::SeqCst);
    let error = world.unpublish("data", &alloc).await.unwrap_err();
    assert_eq!(error.code, Code::NoLeader);
    // Another server may know a volume that this one does not know yet.
    let error = world.claim("new", &alloc).await.unwrap_err();
    assert_eq!(error.code, Code::NoLeader);
    assert_eq!(world.strict.calls().len(), calls);
}

#[tokio::test]
async fn csi_05_a_volume_is_made_once_and_grown_and_deleted_when_nobody_has_it() {
    let world = World::new(1);
    let origin = Origin::default();
    let mut wanted = volume("new", ONE);
    wanted.external_id = String::new();
    wanted.requested_capacity_min = 10;
    let (made, _) = world
        .volumes
        .create(vec![wanted.clone()], &origin)
        .await
        .unwrap();
    assert_eq!(
        (made[0].external_id.as_str(), made[0].capacity),
        ("made-new", 10)
    );
    let index = world.index();
    world
        .volumes
        .create(vec![wanted.clone()], &origin)
        .await
        .unwrap();
    assert_eq!(
        (world.strict.count("ControllerCreate"), world.index()),
        (1, index)
    );
    wanted.requested_capacity_min = 25;
    let (grown, _) = world.volumes.create(vec![wanted], &origin).await.unwrap();
    assert_eq!(
        (grown[0].capacity, world.strict.count("ControllerExpand")),
        (25, 1)
    );
    let alloc = world.alloc(1, 0, "new", ONE);
    world.claim("new", &alloc).await.unwrap();
    let key = ("default".to_owned(), "new".to_owned());
    let refused = world
        .volumes
        .delete(&key, Secrets::default(), &origin)
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "volume in use: new");
    assert_eq!(
        world.strict.count("ControllerDelete"),
        0,
        "refused before any call"
    );
    world.unpublish("new", &alloc).await.unwrap();
    world
        .volumes
        .delete(&key, Secrets::default(), &origin)
        .await
        .unwrap();
    assert_eq!(world.strict.count("ControllerDelete"), 1);
    let gone = world
        .volumes
        .delete(&key, Secrets::default(), &origin)
        .await
        .unwrap_err();
    assert_eq!(gone.to_string(), "volume not found: new");
}

#[tokio::test]
async fn csi_02_what_the_plugin_does_not_confirm_is_not_registered() {
    let world = World::new(1);
    let origin = Origin::default();
    let refused = world
        .volumes
        .register(vec![volume("bad", ONE)], &origin)
        .await
        .unwrap_err();
    let text = "controller validate volume: ValidateVolumeCapabilities: NotFound: no such volume";
    assert_eq!(refused.to_string(), text);
    world
        .volumes
        .register(vec![volume("good", ONE)], &origin)
        .await
        .unwrap();
    assert_eq!(world.strict.count("ControllerValidate"), 2);
    assert!(world.volumes.register(Vec::new(), &origin).await.is_err());
}

#[tokio::test]
async fn a_call_that_hangs_ends_and_is_told_by_its_step() {
    let (mut world, alloc) = mounted(1, ONE).await;
    world.hurry();
    world.strict.fault(UNMOUNT, &[Fault::Hangs]);
    let ended = timeout(LONG, world.unpublish("data", &alloc))
        .await
        .unwrap();
    let text = ended.unwrap_err().to_string();
    assert!(text.contains("no answer to CSI.NodeDetachVolume"), "{text}");
    assert_eq!(world.past("data"), [state::UNPUBLISHING]);
}

#[tokio::test]
async fn what_waits_to_be_given_back_is_named_by_its_allocation_and_a_deletion_by_none() {
    let (world, alloc) = mounted(1, ONE).await;
    let refusal = Fault::Says(Code::Unavailable);
    world.strict.fault(UNMOUNT, &[refusal]);
    world.unpublish("data", &alloc).await.unwrap_err();
    let waiting = world.volumes.to_release(("default", "data")).unwrap();
    let allocs: Vec<&str> = waiting.iter().map(PendingRelease::alloc).collect();
    assert_eq!(allocs, [alloc.as_str()]);
    assert_eq!(PendingRelease::Deletion.alloc(), "");
}

/// A server leads no more, knowing it or not.
fn falls(world: &World, knows: bool) {
    use std::sync::atomic::Ordering::SeqCst;
    match knows {
        true => world.leader.leads.store(false, SeqCst),
        false => world.leader.cut.store(true, SeqCst),
    }
}

#[tokio::test]
async fn vw_02_a_leader_that_falls_between_two_steps_makes_no_other_call() {
    for knows in [true, false] {
        let (world, alloc) = mounted(1, ONE).await;
        world.strict.fault(UNMOUNT, &[Fault::Slow(5_000)]);
        let fall = async {
            turns(10).await;
            assert_eq!(world.strict.count(UNMOUNT), 1, "it is under way");
            falls(&world, knows);
        };
        let (given_back, ()) = tokio::join!(world.unpublish("data", &alloc), fall);
        assert_eq!(given_back.unwrap_err().code, Code::NoLeader, "{knows}");
        assert_eq!(world.strict.count(DETACH), 0, "{knows}");
        falls(&world, knows);
        let calls = world.strict.calls().len();
        world.unpublish("data", &alloc).await.unwrap_err();
        let key = ("default".to_owned(), "data".to_owned());
        let (secrets, origin) = (Secrets::default(), Origin::default());
        let deleted = world.volumes.delete(&key, secrets, &origin).await;
        deleted.unwrap_err();
        assert_eq!(world.strict.calls().len(), calls, "{knows}");
    }
}

#[tokio::test]
async fn vw_02_what_a_plugin_answers_after_its_leader_fell_is_not_noted() {
    let world = World::new(1);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    world.strict.fault(ATTACH, &[Fault::Slow(5_000)]);
    // Its answer is lost: with one controller there is no next one, and it is not called again.
    let fall = async {
        turns(10).await;
        falls(&world, true);
    };
    let (claimed, ()) = tokio::join!(world.claim("data", &alloc), fall);
    assert_eq!(
        claimed.unwrap_err().code,
        Code::NoLeader,
        "its answer is not noted"
    );
    assert_eq!(world.strict.count(ATTACH), 1);
}

#[tokio::test]
async fn csi_36_a_claim_that_its_controller_has_detached_is_freed_without_a_call() {
    let (world, alloc) = mounted(1, ONE).await;
    let claim = world.row("data").write_claims[alloc.as_str()].clone();
    let step = CsiVolumeClaimed {
        state: state::CONTROLLER_DETACHED,
        ..claim
    };
    world.volumes.note(step, &Origin::default()).await.unwrap();
    let calls = world.strict.calls().len();
    world.unpublish("data", &alloc).await.unwrap();
    assert_eq!(world.strict.calls().len(), calls);
    assert!(!world.row("data").in_use());
}

#[tokio::test]
async fn csi_38_all_that_have_ended_on_a_node_are_detached_and_who_lives_beside_them_stays() {
    let world = World::new(1);
    world
        .strict
        .shared
        .store(true, std::sync::atomic::Ordering::SeqCst);
    world.volume("data", MANY);
    let mut allocs = Vec::new();
    for number in 1..=3 {
        let alloc = world.alloc(number, 0, "data", MANY);
        world.claim("data", &alloc).await.unwrap();
        world.strict.mount("data", &node_id(0), &alloc, true);
        allocs.push(alloc);
    }
    for ended in &allocs[..2] {
        world.alloc_is(ended, "complete");
    }
    world.alloc_goes(&allocs[1]);
    let key = ("default".to_owned(), "data".to_owned());
    let (node, origin) = (node_id(0), Origin::default());
    world
        .volumes
        .detach(&key, (&node, false), &origin)
        .await
        .unwrap();
    assert_eq!(world.strict.count(UNMOUNT), 2);
    let row = world.row("data");
    assert_eq!(row.holders().collect::<Vec<_>>(), [allocs[2].as_str()]);
    let left = world.strict.mounted_on(&node);
    assert_eq!(left, [("data".to_owned(), allocs[2].clone())]);
    assert_eq!(world.strict.count(DETACH), 0, "who lives needs it there");
    assert!(world.strict.wrong().is_empty());
}
