use drover_events::csi::{CsiVolumeClaimed, claim_mode};
use drover_events::model::status::access_mode::{
    MULTI_NODE_MULTI_WRITER as MANY, SINGLE_NODE_WRITER as ONE,
};
use drover_testkit::{LONG, eventually};

use super::super::core_gc::{CoreGc, GcSettings};
use super::super::each::Each;
use super::super::runner::{Board, RunningReactor, start};
use super::*;
use crate::base::clock::Clock;
use crate::commands::csi::{ClaimVolume, DeregisterVolumes};
use crate::error::Code;
use crate::volumes::harness::{World, node_id};
use crate::volumes::testing::{Fault, turns};

#[path = "volume_watcher_pace_test.rs"]
mod pace;
#[path = "volume_watcher_rest_test.rs"]
mod rest;

/// A watcher that runs.
struct Watched {
    watcher: Arc<VolumeWatcher>,
    context: Context,
    _running: RunningReactor,
}

fn context(world: &World) -> Context {
    Context {
        projections: Arc::clone(&world.direct.projections),
        proposer: world.direct.clone(),
        clock: Clock::default(),
    }
}

fn watched(world: &World) -> Watched {
    let watcher = Arc::new(VolumeWatcher::new(Arc::clone(&world.volumes), "s1"));
    let context = context(world);
    let reactor: Arc<dyn Reactor> = watcher.clone();
    Watched {
        _running: start(reactor, context.clone(), Board::default()),
        watcher,
        context,
    }
}

/// Waits for a condition that changes of the state, or the end of work, make true.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let ask = || match holds() {
        true => Ok(()),
        false => Err("not yet"),
    };
    eventually(what, LONG, ask).await.unwrap();
}

impl Watched {
    /// Everything that was said is followed, and no worker is left.
    async fn rested(&self) {
        until("it settles", || {
            let now = self.context.projections.applied_index();
            *self.watcher.followed.lock() == Some(now) && self.watcher.workers() == 0
        })
        .await;
    }
}

/// A volume that an allocation has mounted.
async fn mounted(world: &World, number: usize, node: usize) -> (String, String) {
    let volume = format!("data-{number}");
    world.volume(&volume, ONE);
    let alloc = world.alloc(number, node, &volume, ONE);
    world.claim(&volume, &alloc).await.unwrap();
    world.strict.mount(&volume, &node_id(node), &alloc, true);
    (volume, alloc)
}

/// How many volumes have no users.
const AT_REST: usize = 10_000;

#[tokio::test]
async fn vw_08_volumes_at_rest_have_no_worker_and_what_ends_is_freed() {
    let world = World::new(1);
    let mut held = Vec::new();
    for number in 1..=20 {
        held.push(mounted(&world, number, 0).await);
    }
    for number in 1..=AT_REST / 2 {
        world.volume(&format!("before-{number}"), ONE);
    }
    let watched = watched(&world);
    watched.rested().await;
    let calls = world.strict.calls().len();
    // What comes while it watches is looked at one by one.
    let mut most = 0;
    for number in 1..=AT_REST / 2 {
        world.volume(&format!("after-{number}"), ONE);
        turns(1).await;
        most = most.max(watched.watcher.workers());
    }
    watched.rested().await;
    assert_eq!((most, world.strict.calls().len()), (0, calls));
    for (volume, alloc) in &held[..10] {
        world.alloc_is(alloc, "complete");
        until("it is free", || !world.row(volume).in_use()).await;
    }
    watched.rested().await;
    assert_eq!(
        world.strict.calls().len() - calls,
        20,
        "one unmount and one detach each"
    );
    assert!(
        held[10..]
            .iter()
            .all(|(volume, _)| world.row(volume).in_use()),
        "those that live"
    );
    assert!(world.strict.wrong().is_empty());
}

#[tokio::test]
async fn vw_04_what_was_missed_is_found_by_the_next_leader_without_another_event() {
    let mut world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    world.alloc_is(&alloc, "complete");
    world.alloc_goes(&alloc);
    {
        // The leader falls during the call of its node.
        world.strict.fault("NodeDetachVolume", &[Fault::Hangs]);
        let first = watched(&world);
        until("it is asked", || {
            world.strict.count("NodeDetachVolume") == 1
        })
        .await;
        drop(first);
    }
    let calls = world.strict.calls().len();
    world.elect();
    assert_eq!(
        world.strict.calls().len(),
        calls,
        "VW-02: who fell calls nothing"
    );
    let second = watched(&world);
    until("it is free", || !world.row(&volume).in_use()).await;
    second.rested().await;
    assert!(world.strict.is_idle() && world.strict.wrong().is_empty());
}

#[tokio::test]
async fn vw_12_a_sign_moves_the_index_and_nothing_else_and_vw_13_adds_no_claim() {
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    let gc = CoreGc::new(GcSettings::default().forced());
    let collect = async || {
        gc.collect(&context(&world), &mut Each::default())
            .await
            .unwrap();
    };
    let index = world.index();
    collect().await;
    assert_eq!(world.index(), index, "nothing is to be freed");
    world.alloc_is(&alloc, "complete");
    let before = world.row(&volume);
    for _ in 0..100 {
        collect().await;
    }
    let mut after = world.row(&volume);
    assert_eq!(
        after.volume.modify_index,
        before.volume.modify_index.max(index) + 101
    );
    after.volume.modify_index = before.volume.modify_index;
    assert_eq!(after, before);
    // A watcher that did not notice the end notices the sign (VW-11).
    let watched = watched(&world);
    until("it is free", || !world.row(&volume).in_use()).await;
    watched.rested().await;
}

#[tokio::test]
async fn vw_12_a_volume_is_left_alone_until_it_is_old_enough() {
    let world = World::new(1);
    let (_, alloc) = mounted(&world, 1, 0).await;
    world.alloc_is(&alloc, "complete");
    let index = world.index();
    let gc = CoreGc::new(GcSettings::default());
    gc.collect(&context(&world), &mut Each::default())
        .await
        .unwrap();
    assert_eq!(world.index(), index);
}

#[tokio::test]
async fn vw_16_one_dead_node_keeps_no_other_claim_from_being_freed() {
    let world = World::new(3);
    world
        .strict
        .shared
        .store(true, std::sync::atomic::Ordering::SeqCst);
    world.volume("data", MANY);
    let mut allocs = Vec::new();
    for node in 0..3 {
        let alloc = world.alloc(node, node, "data", MANY);
        world.claim("data", &alloc).await.unwrap();
        world.strict.mount("data", &node_id(node), &alloc, true);
        allocs.push(alloc);
    }
    let watched = watched(&world);
    world.node_is(1, "down");
    for alloc in &allocs {
        world.alloc_is(alloc, "lost");
    }
    until("all but one are free", || {
        world.row("data").holders().count() == 1
    })
    .await;
    until("it is told", || {
        !world.volumes.last_errors(("default", "data")).is_empty()
    })
    .await;
    let troubles = world.volumes.last_errors(("default", "data"));
    assert!(
        troubles[&allocs[1]].error.contains("is not ready"),
        "{troubles:?}"
    );
    world.node_is(1, "ready");
    until("it is free when its node is back", || {
        !world.row("data").in_use()
    })
    .await;
    watched.rested().await;
    assert!(world.volumes.last_errors(("default", "data")).is_empty());
    assert!(world.strict.wrong().is_empty());
}

#[tokio::test]
async fn vw_09_what_is_said_while_a_worker_leaves_is_not_lost() {
    let world = World::new(1);
    let watched = watched(&world);
    world.volume("data", ONE);
    for number in 1..=50 {
        let alloc = world.alloc(number, 0, "data", ONE);
        world.claim("data", &alloc).await.unwrap();
        world.strict.mount("data", &node_id(0), &alloc, true);
        world.alloc_is(&alloc, "complete");
        // The next one comes at the very moment at which the worker of the last one leaves.
        until("it is free", || !world.row("data").in_use()).await;
    }
    watched.rested().await;
    assert!(world.strict.is_idle() && world.strict.wrong().is_empty());
}

#[test]
fn vw_20_a_plugin_that_fails_is_asked_less_and_less() {
    let mut passed = Duration::ZERO;
    let within = delays(FIRST).take_while(|delay| {
        passed += *delay;
        passed < Duration::from_secs(600)
    });
    let tries = within.count();
    assert!(
        (10..=20).contains(&tries),
        "{tries} times within ten minutes"
    );
    assert_eq!(delays(FIRST).nth(100), Some(MAX_DELAY));
}

#[tokio::test]
async fn vw_20_it_is_asked_again_until_it_can() {
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    world.alloc_is(&alloc, "complete");
    world
        .strict
        .fault("NodeDetachVolume", &[Fault::Says(Code::Unavailable); 4]);
    world
        .strict
        .fault("ControllerDetachVolume", &[Fault::Lost; 3]);
    let mut watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let shared = Arc::get_mut(&mut watcher.shared).unwrap();
    shared.first = Duration::from_millis(4);
    let begun = std::time::Instant::now();
    let key = ("default".to_owned(), volume.clone());
    let worker = Worker::new(&watcher.shared, key, Arc::default());
    let freed = tokio::time::timeout(LONG, worker.free(PendingRelease::Claim(alloc), None)).await;
    freed.unwrap();
    assert_eq!(world.strict.count("NodeDetachVolume"), 5);
    assert_eq!(world.strict.count("ControllerDetachVolume"), 4);
    // 4, 8, 16, 32, 64, 128 and 256 milliseconds, each a quarter shorter at most.
    assert!(
        begun.elapsed() > Duration::from_millis(370),
        "{:?}",
        begun.elapsed()
    );
    assert!(!world.row(&volume).in_use() && world.strict.wrong().is_empty());
}

#[tokio::test]
async fn a_sign_of_nobody_is_no_claim() {
    let world = World::new(1);
    world.volume("data", ONE);
    let sign = ClaimVolume {
        claim: CsiVolumeClaimed {
            namespace: "default".into(),
            volume_id: "data".into(),
            mode: claim_mode::GC,
            ..CsiVolumeClaimed::default()
        },
    };
    world.direct.command(&sign).unwrap();
    assert!(!world.row("data").in_use());
}

impl World {
    /// A claim that is over, of a volume that was mounted.
    fn ends(&self, alloc: &str) {
        self.alloc_is(alloc, "complete");
    }
}

#[tokio::test]
async fn vw_01_vw_03_a_plugin_that_hangs_holds_up_one_worker_of_one_volume() {
    let world = World::new(1);
    let (_, first) = mounted(&world, 1, 0).await;
    let (second, other) = mounted(&world, 2, 0).await;
    mounted(&world, 3, 0).await;
    let watched = watched(&world);
    watched.rested().await;
    world.strict.fault("NodeDetachVolume", &[Fault::Hangs]);
    world.ends(&first);
    until("it hangs", || world.strict.count("NodeDetachVolume") == 1).await;
    assert_eq!(
        watched.watcher.workers(),
        1,
        "VW-03: of the volume that changed"
    );
    // What else happens is followed meanwhile.
    world.ends(&other);
    until("the other is free", || !world.row(&second).in_use()).await;
    let now = watched.context.projections.applied_index();
    until("all is followed", || {
        *watched.watcher.followed.lock() == Some(now)
    })
    .await;
    until("one is left", || watched.watcher.workers() == 1).await;
}

#[tokio::test]
async fn vw_05_what_is_given_back_is_given_back_in_the_name_of_the_server_that_leads() {
    let mut world = World::new(1);
    for server in ["s1", "s2"] {
        let number = server.len() + usize::from(server == "s2");
        let (volume, alloc) = mounted(&world, number, 0).await;
        world.leader.origins.lock().clear();
        let watcher = Arc::new(VolumeWatcher::new(Arc::clone(&world.volumes), server));
        let reactor: Arc<dyn Reactor> = watcher;
        let running = start(reactor, context(&world), Board::default());
        world.ends(&alloc);
        until("it is free", || !world.row(&volume).in_use()).await;
        let origins = world.leader.origins.lock().clone();
        let own = Identity::server(server, "volume_watcher").actor;
        assert!(!origins.is_empty() && origins.iter().all(|origin| origin.actor == own));
        drop(running);
        world.elect();
    }
}

#[tokio::test]
async fn vw_06_vw_07_clients_operators_and_the_watcher_take_the_same_steps() {
    let world = World::new(1);
    let mut taken = Vec::new();
    for number in 1..=3 {
        let (volume, alloc) = mounted(&world, number, 0).await;
        let (calls, index) = (world.strict.calls().len(), world.index());
        world.ends(&alloc);
        world.leader.origins.lock().clear();
        let key = ("default".to_owned(), volume.clone());
        let mut watched_by = None;
        match number {
            1 => assert!(world.give_back(&volume, &alloc, 0).await.unwrap() > 0),
            2 => {
                let (node, origin) = (node_id(0), Origin::default());
                world
                    .volumes
                    .detach(&key, (&node, false), &origin)
                    .await
                    .unwrap();
            }
            _ => watched_by = Some(watched(&world)),
        }
        until("it is free", || !world.row(&volume).in_use()).await;
        drop(watched_by);
        let view = world.direct.projections.view();
        let mut steps = Vec::new();
        for changes in view.changes(index + 1) {
            for change in changes.unwrap() {
                if change.table == CsiVolumes::ID {
                    steps.push(change.kind);
                }
            }
        }
        // The first step follows from the end of the allocation, each other from the one before.
        let causes: Vec<_> = world
            .leader
            .origins
            .lock()
            .iter()
            .map(|o| o.cause)
            .collect();
        let ended = index + 1;
        assert_eq!(causes, [0, 1, 2, 3].map(|step| Some(ended + step)));
        taken.push((world.strict.calls()[calls..].to_vec(), steps));
    }
    assert_eq!(taken[0], taken[1]);
    assert_eq!(taken[0], taken[2]);
    assert_eq!(taken[0].0.len(), 2, "{:?}", taken[0]);
    // VW-07: each step is an event of its own.
    let one = drover_events::EventKind::CsiVolumeClaimed;
    assert_eq!(taken[0].1, [one; 4]);
}

#[tokio::test]
async fn vw_11_what_was_not_heard_is_found_by_the_next_sign() {
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    let watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let context = context(&world);
    watcher.activate(&context).await.unwrap();
    world.ends(&alloc);
    // It is dropped: the end of the allocation is never followed.
    *watcher.followed.lock() = Some(world.index());
    watcher.activate(&context).await.unwrap();
    assert_eq!(watcher.workers(), 0);
    let gc = CoreGc::new(GcSettings::default().forced());
    gc.collect(&context, &mut Each::default()).await.unwrap();
    watcher.activate(&context).await.unwrap();
    assert_eq!(watcher.workers(), 1, "VW-12: the sign wakes it");
    until("it is free", || !world.row(&volume).in_use()).await;
}

#[tokio::test]
async fn vw_09_a_worker_that_was_told_something_does_not_leave() {
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    world.ends(&alloc);
    let watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let key = ("default".to_owned(), volume);
    let wake = Arc::new(Notify::new());
    let desk = Desk {
        cause: None,
        news: true,
        wake: Arc::clone(&wake),
    };
    watcher.shared.desks.lock().insert(key.clone(), desk);
    let worker = Worker::new(&watcher.shared, key.clone(), wake);
    worker.heard();
    // It has looked, and is about to leave, when something is said of its volume.
    watcher.see_to(key.clone(), None).unwrap();
    assert!(!worker.leaves(), "it looks again");
    worker.heard();
    assert!(worker.leaves());
    assert_eq!(watcher.workers(), 0);
    // A later report reaches the next worker.
    watcher.see_to(key, None).unwrap();
    assert_eq!(watcher.workers(), 1);
}

#[tokio::test]
async fn vw_15_eval_14_no_evaluation_is_made_to_free_a_volume() {
    use drover_projections::tables::evals::Evals;
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    let watched = watched(&world);
    world.ends(&alloc);
    world.node_is(0, "down");
    world.node_is(0, "ready");
    until("it is free", || !world.row(&volume).in_use()).await;
    watched.rested().await;
    let view = world.direct.projections.view();
    let evals = view.scan::<Evals>(Scan::all());
    let core = evals.filter(|eval| eval.as_ref().unwrap().r#type == "_core");
    assert_eq!(core.count(), 0);
}

#[tokio::test]
async fn vw_10_a_volume_that_is_no_more_keeps_no_worker_waiting_and_no_trouble() {
    let mut world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    world.node_is(0, "down");
    world.alloc_is(&alloc, "lost");
    let mut watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    // It would wait for an hour.
    let shared = Arc::get_mut(&mut watcher.shared).unwrap();
    shared.first = Duration::from_secs(3_600);
    let context = context(&world);
    watcher.activate(&context).await.unwrap();
    until("it is tried", || {
        !world.volumes.all_last_errors(1).is_empty()
    })
    .await;
    let command = DeregisterVolumes {
        namespace: "default".into(),
        ids: vec![volume],
        force: true,
        deleted: false,
    };
    world.direct.command(&command).unwrap();
    watcher.activate(&context).await.unwrap();
    until("it leaves", || watcher.workers() == 0).await;
    assert!(world.volumes.all_last_errors(1).is_empty());

    // What was reported while this server led before is not reported when it leads again.
    let (volume, alloc) = mounted_while_down(&world).await;
    world.unpublish(&volume, &alloc).await.unwrap_err();
    let command = DeregisterVolumes {
        namespace: "default".into(),
        ids: vec![volume],
        force: true,
        deleted: false,
    };
    world.direct.command(&command).unwrap();
    let next = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    next.activate(&context).await.unwrap();
    assert!(world.volumes.all_last_errors(1).is_empty());
    world.elect();
}

/// A volume of an allocation that has ended, on a node that is down.
async fn mounted_while_down(world: &World) -> (String, String) {
    world.node_is(0, "ready");
    let (volume, alloc) = mounted(world, 9, 0).await;
    world.node_is(0, "down");
    world.alloc_is(&alloc, "lost");
    (volume, alloc)
}

#[tokio::test]
async fn csi_27_an_allocation_that_ended_and_was_collected_at_once_is_not_overlooked() {
    let world = World::new(1);
    let (volume, alloc) = mounted(&world, 1, 0).await;
    let watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let context = context(&world);
    watcher.activate(&context).await.unwrap();
    world.ends(&alloc);
    world.alloc_goes(&alloc);
    let collected = world.index();
    world.leader.origins.lock().clear();
    watcher.activate(&context).await.unwrap();
    assert_eq!(watcher.workers(), 1);
    until("it is free", || !world.row(&volume).in_use()).await;
    // What it followed from is known all the same.
    assert_eq!(world.leader.origins.lock()[0].cause, Some(collected));
}
