//! When drains are looked at.

use super::*;

#[tokio::test]
async fn what_concerns_no_drain_is_not_looked_at() {
    let mut stage = Stage::new(3);
    stage.job("web", "service", 2, 1);
    stage.job("other", "service", 2, 1);
    let here = stage.place("web", 1, Some(true));
    let moved = stage.place("web", 2, Some(true));
    let other = stage.place("other", 3, Some(true));
    let drainer = Drainer::default();
    let looks = || std::mem::take(&mut drainer.known.lock().looks);
    drainer.activate(&stage.context()).await.unwrap();
    stage.client(&other, "running", Some(true));
    drainer.activate(&stage.context()).await.unwrap();
    assert_eq!(looks(), 0, "nothing drains");
    stage.set(1, Some(drain(HOUR)));
    let begun = drainer.activate(&stage.context()).await.unwrap();
    assert_eq!((begun.status["Marked"].clone(), looks()), (1.into(), 1));
    // What it marked itself is about the node that drains.
    drainer.activate(&stage.context()).await.unwrap();
    looks();
    for _ in 0..3 {
        stage.client(&other, "running", Some(false));
        let idle = drainer.activate(&stage.context()).await.unwrap();
        assert_eq!((idle.status["Draining"].clone(), looks()), (1.into(), 0));
        assert!(idle.sleep <= Duration::from_nanos(HOUR.unsigned_abs()));
    }
    stage.client(&here, "complete", None);
    let ended = drainer.activate(&stage.context()).await.unwrap();
    assert_eq!((ended.status["Completed"].clone(), looks()), (1.into(), 1));
    // A job that waits for its turn is looked at wherever it moves on.
    stage.set(2, Some(drain(HOUR)));
    drainer.activate(&stage.context()).await.unwrap();
    assert_eq!(looks(), 1);
    let new = stage.place("web", 3, None);
    drainer.activate(&stage.context()).await.unwrap();
    looks();
    stage.client(&new, "running", Some(true));
    drainer.activate(&stage.context()).await.unwrap();
    assert_eq!(looks(), 1);
    // The deadline comes although nothing happens.
    stage.now += HOUR + SECOND;
    drainer.activate(&stage.context()).await.unwrap();
    assert_eq!(looks(), 1);
    assert!(stage.moves(&moved));
}

#[tokio::test]
async fn nodes_are_read_for_what_changed_of_them() {
    let stage = Stage::new(30);
    let drainer = Drainer::default();
    let read = async || {
        let done = drainer.activate(&stage.context()).await.unwrap();
        let read = std::mem::take(&mut drainer.known.lock().read);
        (done.status["Draining"].as_u64().unwrap(), read)
    };
    assert_eq!(read().await, (0, 30), "all at first");
    stage.set(7, Some(drain(HOUR)));
    assert_eq!(read().await, (1, 1));
    let (_, again) = read().await;
    assert!(again <= 1, "its own drain ended, at most: {again}");
    stage.set(8, Some(drain(HOUR)));
    stage.set(8, None);
    let (draining, again) = read().await;
    assert!(draining <= 1 && again <= 2, "{draining}, {again}");
}

#[test]
fn a_node_that_is_read_anew_is_drained_only_where_it_drains_now() {
    let stage = Stage::new(2);
    let (mut known, mut each) = (DrainCache::default(), Each::default());
    for (on, strategy, draining) in [
        (1, Some(drain(HOUR)), vec![node(1).id]),
        (2, Some(drain(HOUR)), vec![node(1).id, node(2).id]),
        (1, None, vec![node(2).id]),
    ] {
        stage.set(on, strategy);
        let view = stage.direct.projections.view();
        known.all(&view, &mut each).unwrap();
        assert_eq!(known.draining, BTreeSet::from_iter(draining));
    }
}
