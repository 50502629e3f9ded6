//! How often plugins are called, and what wakes a watcher that is at rest.

use std::time::Instant;

use super::*;

/// A watcher that runs, whose first wait after a failure is this.
fn hurried(world: &World, first: Duration) -> Watched {
    let mut watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let shared = Arc::get_mut(&mut watcher.shared).expect("nobody else has it");
    shared.first = first;
    let (watcher, context) = (Arc::new(watcher), context(world));
    let reactor: Arc<dyn Reactor> = watcher.clone();
    Watched {
        _running: start(reactor, context.clone(), Board::default()),
        watcher,
        context,
    }
}

const UNMOUNT: &str = "NodeDetachVolume";

/// A claim whose allocation has ended, and a plugin that always fails.
async fn failing(world: &World) {
    let (_, alloc) = mounted(world, 1, 0).await;
    let always = [Fault::Says(Code::Unavailable); 1_000];
    world.strict.fault(UNMOUNT, &always);
    world.alloc_is(&alloc, "complete");
}

/// The shortest that a wait may be, by what it is on average.
const LEAST: f64 = 0.7;

#[tokio::test]
async fn vw_20_a_plugin_that_always_fails_is_not_asked_in_a_tight_loop() {
    let world = World::new(1);
    failing(&world).await;
    let (first, tries) = (Duration::from_millis(20), 6);
    let began = Instant::now();
    let _watched = hurried(&world, first);
    until("it is tried", || world.strict.count(UNMOUNT) >= tries).await;
    // Between six tries lie five waits, each twice the one before.
    let least = first.mul_f64(f64::from(1 + 2 + 4 + 8 + 16) * LEAST);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
}

#[tokio::test]
async fn vw_20_nodes_that_come_and_go_do_not_make_it_a_tight_loop_either() {
    let world = World::new(2);
    failing(&world).await;
    let (first, tries) = (Duration::from_millis(20), 8_usize);
    let began = Instant::now();
    let watched = hurried(&world, first);
    let mut changes = 0;
    until("it is tried", || {
        changes += 1;
        world.node_is(1, ["down", "ready"][changes % 2]);
        world.strict.count(UNMOUNT) >= tries
    })
    .await;
    let tried = world.strict.count(UNMOUNT);
    let waits = u32::try_from(tried - 1).unwrap();
    let least = first.mul_f64(f64::from(waits) * LEAST);
    assert!(began.elapsed() >= least, "{tried} in {:?}", began.elapsed());
    assert!(watched.watcher.workers() == 1 && changes > tries);
}

#[tokio::test]
async fn vw_20_what_somebody_else_gives_back_gives_no_other_claim_a_turn() {
    let world = World::new(2);
    let shared = &world.strict.shared;
    shared.store(true, std::sync::atomic::Ordering::SeqCst);
    world.volume("data", MANY);
    let allocs = [0, 1].map(|node| world.alloc(node, node, "data", MANY));
    for alloc in &allocs {
        world.claim("data", alloc).await.unwrap();
        world.alloc_is(alloc, "complete");
    }
    let refusals = [Fault::Says(Code::Unavailable); 2];
    world.strict.fault("NodeDetachVolume", &refusals);
    let mut watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
    let shared = Arc::get_mut(&mut watcher.shared).unwrap();
    // They would wait for an hour.
    shared.first = Duration::from_secs(3_600);
    let context = context(&world);
    watcher.activate(&context).await.unwrap();
    until("both are tried", || {
        world.volumes.all_last_errors(9).len() == 2
    })
    .await;
    // A client gives back one of them.
    world.unpublish("data", &allocs[0]).await.unwrap();
    watcher.activate(&context).await.unwrap();
    turns(1_000).await;
    assert_eq!(world.strict.count("NodeDetachVolume"), 3);
    // And then the other: no worker waits any more.
    world.unpublish("data", &allocs[1]).await.unwrap();
    watcher.activate(&context).await.unwrap();
    until("it leaves", || watcher.workers() == 0).await;
}
