//! Who is woken, and when.

use drover_testkit::{LONG, eventually, so};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_key_is_tried_again_although_nothing_else_changes() {
    let direct = Direct::new();
    add_node(&direct, 1);
    register(&direct, "a", 3);
    let settings = SchedulingSettings::default();
    let projections = Arc::clone(&direct.projections);
    let scheduling = Scheduling::start(projections, direct.clone(), settings).unwrap();
    let stage = Stage { direct, scheduling };
    let index = stage.direct.projections.applied_index();
    // Four times a second, and not whenever the follower looks by itself.
    let given = |stage: &Stage| stage.scheduling.shared.core.lock().broker.given();
    stage.wait(|stage| given(stage) >= 8).await;
    assert_eq!(stage.direct.projections.applied_index(), index);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_woken_in_a_backlog_for_what_cannot_be_taken() {
    let stage = Stage::new(4);
    stage.direct.held.store(true, Ordering::SeqCst);
    let evals: Vec<_> = (0..60)
        .map(|number| stage.register(&format!("job-{number}"), 1))
        .collect();
    let busy = |stage: &Stage| {
        let status = stage.scheduling.status();
        status.plans >= worker::PLANS && status.followed >= stage.direct.projections.applied_index()
    };
    // So many plans are in flight, one waits for its turn, and the others for that one.
    let is_full = |stage: &Stage| {
        let unfinished = stage.scheduling.shared.unfinished.load(Ordering::SeqCst);
        let waiting = stage.scheduling.status().plans;
        waiting >= worker::PLANS && unfinished - waiting == plan_queue::DEPTH as usize + 1
    };
    stage.wait(is_full).await;
    stage.wait(busy).await;
    assert!(stage.scheduling.is_placing());
    let woken = || stage.scheduling.shared.woken.load(Ordering::SeqCst);
    let before = woken();
    for number in 10..30 {
        add_node(&stage.direct, number);
        stage.wait(busy).await;
    }
    assert!(stage.scheduling.status().ready > 2);
    assert_eq!(woken(), before, "there is work, and no room");
    stage.direct.release();
    for eval in &evals {
        stage.until(eval, "complete").await;
    }
    assert!(woken() > before);
    stage.wait(|stage| !stage.scheduling.is_placing()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_on_of_what_is_dropped() {
    let stage = Stage::new(1);
    let eval = stage.register("a", 1);
    stage.until(&eval, "complete").await;
    let shared = Arc::downgrade(&stage.scheduling.shared);
    drop(stage);
    let gone = || so(shared.upgrade().is_none());
    let waited = eventually("everybody to let go of it", LONG, gone).await;
    waited.unwrap();
}
