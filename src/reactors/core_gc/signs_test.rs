//! When volumes with claims that were not released are given a sign, as time passes.

use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;

use super::*;
use crate::volumes::harness::World;

fn nanos_of(passed: Duration) -> i64 {
    i64::try_from(passed.as_nanos()).unwrap()
}

/// A volume whose allocation has ended without giving it back.
async fn left() -> World {
    let world = World::new(1);
    world.volume("data", ONE);
    let alloc = world.alloc(1, 0, "data", ONE);
    world.claim("data", &alloc).await.unwrap();
    world.alloc_is(&alloc, "complete");
    world
}

/// The collector has its turn at this time; for how long it sleeps then.
async fn turn(gc: &CoreGc, world: &World, now: i64) -> Duration {
    let context = Context {
        clock: Clock::stopped(now),
        ..context(&world.direct)
    };
    gc.activate(&context).await.unwrap().sleep
}

#[tokio::test]
async fn vw_12_a_volume_is_given_a_sign_by_itself_once_it_is_old_enough_and_then_at_intervals() {
    let world = left().await;
    let settings = GcSettings::default();
    let (before, index) = (world.row("data"), world.index());
    let old = before.volume.modify_time + nanos_of(settings.claims);
    turn(&CoreGc::new(settings), &world, old - 1).await;
    assert_eq!(world.index(), index, "it is not old enough");
    turn(&CoreGc::new(settings), &world, old).await;
    assert_eq!(world.index(), index + 1);
    let mut after = world.row("data");
    assert_eq!(after.volume.modify_index, index + 1);
    after.volume.modify_index = before.volume.modify_index;
    assert_eq!(after, before, "the claims, and the time that counts");
    // A collector that keeps running looks at intervals of their own, whenever it looks at
    // everything else.
    let gc = CoreGc::new(GcSettings {
        interval: settings.claims_interval * 2,
        ..settings
    });
    let slept = turn(&gc, &world, old).await;
    assert_eq!(
        (slept, world.index()),
        (settings.claims_interval, index + 2)
    );
    let due = old + nanos_of(slept);
    let slept = turn(&gc, &world, due - 1).await;
    assert_eq!((nanos_of(slept), world.index()), (1, index + 2));
    turn(&gc, &world, due).await;
    assert_eq!(world.index(), index + 3);
}
