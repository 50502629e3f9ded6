//! When volumes with claims that were not released are given a sign, as time passes.

use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;

use super::*;
use crate::error::Code;
use crate::reactors::testing::{Fault, Faulty};
use crate::volumes::harness::World;

fn nanos_of(passed: Duration) -> i64 {
    i64::try_from(passed.as_nanos()).unwrap()
}

/// A volume whose allocation has ended without giving it back.
async fn left() -> World {
    let world = World::new(1);
    leave(&world, 1, "data").await;
    world
}

/// One more such volume, of an allocation of this number.
async fn leave(world: &World, number: usize, volume: &str) {
    world.volume(volume, ONE);
    let alloc = world.alloc(number, 0, volume, ONE);
    world.claim(volume, &alloc).await.unwrap();
    world.alloc_is(&alloc, "complete");
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

#[tokio::test]
async fn volumes_are_given_a_sign_whichever_of_them_cannot_be() {
    let codes = [
        Code::Refused,
        Code::Internal,
        Code::Conflict,
        Code::NotFound,
    ];
    for fault in codes.map(Fault::Error).into_iter().chain([Fault::Panic]) {
        let world = World::new(1);
        let volumes = ["data-0", "data-1", "data-2"];
        for (number, volume) in volumes.into_iter().enumerate() {
            leave(&world, number, volume).await;
        }
        let settings = GcSettings::default();
        let newest = volumes.map(|volume| world.row(volume).volume.modify_time);
        let old = newest.into_iter().max().unwrap() + nanos_of(settings.claims);
        let faulty = Faulty::new(&world.direct, "data-1", fault);
        let context = Context {
            proposer: faulty.clone(),
            clock: Clock::stopped(old),
            ..context(&world.direct)
        };
        let indexes = || volumes.map(|volume| world.row(volume).volume.modify_index);
        let (gc, mut each) = (CoreGc::new(settings), Each::default());
        let before = indexes();
        gc.collect(&context, &mut each).await.unwrap();
        let after = indexes();
        let signed = [0, 1, 2].map(|n| after[n] > before[n]);
        assert_eq!(signed, [true, false, true], "{fault:?}");
        assert_eq!(each.failed(), 1, "{fault:?}");
        faulty.heal();
        gc.collect(&context, &mut each).await.unwrap();
        assert!(indexes()[1] > before[1], "it has its turn again");
    }
}
