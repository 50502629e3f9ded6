//! Which evaluations are woken, and when.

use std::sync::mpsc;

use drover_events::model::Job;
use drover_testkit::LONG;
use tokio::sync::oneshot::error::TryRecvError;

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
        status.plans >= worker::MAX_WAITING_PLANS
            && status.followed >= stage.direct.projections.applied_index()
    };
    // So many plans are in flight, one waits for its turn, and the others for that one.
    let is_full = |stage: &Stage| {
        let unfinished = stage.scheduling.shared.unfinished.load(Ordering::SeqCst);
        let waiting = stage.scheduling.status().plans;
        waiting >= worker::MAX_WAITING_PLANS
            && unfinished - waiting == plan_queue::MAX_IN_FLIGHT as usize + 1
    };
    stage.wait(is_full).await;
    stage.wait(busy).await;
    assert!(stage.scheduling.is_placing());
    let woken = || stage.scheduling.shared.woken.load(Ordering::SeqCst);
    // What was followed last may still wake somebody: when the next change is followed, it has.
    add_node(&stage.direct, 9);
    stage.wait(busy).await;
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
async fn as_many_workers_are_woken_as_there_is_work_for() {
    let direct = Direct::new();
    let settings = SchedulingSettings {
        workers: 8,
        ..SchedulingSettings::default()
    };
    let projections = Arc::clone(&direct.projections);
    let mut scheduling = Scheduling::start(projections, direct.clone(), settings).unwrap();
    let shared = Arc::clone(&scheduling.shared);
    // Following and working have stopped: what is ready stays so.
    shared.tasks.stop();
    tokio::task::block_in_place(|| shared.tasks.wait());
    shared.stopped.store(true, Ordering::Release);
    shared.changed();
    let workers: Vec<_> = scheduling.workers.drain(..).collect();
    tokio::task::block_in_place(|| {
        for worker in workers {
            worker.join().unwrap();
        }
    });
    shared.stopped.store(false, Ordering::Release);
    let woken = || shared.woken.load(Ordering::SeqCst);
    let mut retried = shared.clock.now();
    for (number, job) in ["a", "b", "c"].into_iter().enumerate() {
        let before = woken();
        shared.changed();
        assert_eq!(woken() - before, number, "before {job}");
        register(&direct, job, 1);
        step(&shared, &mut retried).unwrap();
        let before = woken();
        shared.changed();
        assert_eq!(woken() - before, number + 1, "{job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_system_job_goes_on_by_itself_to_its_last_node() {
    let stage = Stage::new(3);
    let mut spec = job("system", 1);
    spec.update.max_parallel = 1;
    spec.update.stagger = 1_000_000;
    let put = |spec: &Job| {
        let eval_id = uuid::Uuid::new_v4().to_string();
        let command = RegisterJob {
            job: spec.clone(),
            eval_id: eval_id.clone(),
            ..RegisterJob::default()
        };
        stage.direct.command(&command).unwrap();
        eval_id
    };
    let first = put(&spec);
    stage.until(&first, "complete").await;
    spec.task_groups[0].tasks[0].user = "other".into();
    let second = put(&spec);
    let done = stage.until(&second, "complete").await;
    let changed = |stage: &Stage| {
        let allocs = stage.allocs("j");
        let new = |row: &&AllocRow| row.desired_status == "run" && row.job_version == 1;
        allocs.iter().filter(new).count()
    };
    stage.wait(|stage| changed(stage) == 3).await;
    let third = stage.until(&done.next_eval, "complete").await;
    let last = stage.until(&third.next_eval, "complete").await;
    assert_eq!(last.triggered_by, "rolling-update");
    assert_eq!(last.next_eval, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_on_of_what_is_dropped() {
    let stage = Stage::new(1);
    let eval = stage.register("a", 1);
    stage.until(&eval, "complete").await;
    let shared = Arc::downgrade(&stage.scheduling.shared);
    drop(stage);
    assert!(shared.upgrade().is_none());
}

/// Nor of what is on its way, although it never comes to its end; what was proposed by then is
/// committed all the same, and nothing is proposed later.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_waits_for_what_is_in_flight_when_scheduling_ends() {
    let stage = Stage::new(4);
    stage.direct.held.store(true, Ordering::SeqCst);
    for number in 0..60 {
        stage.register(&format!("job-{number}"), 1);
    }
    stage.direct.holds(plan_queue::MAX_IN_FLIGHT as usize).await;
    let waits = |stage: &Stage| stage.scheduling.status().plans >= worker::MAX_WAITING_PLANS;
    stage.wait(waits).await;
    let Stage { direct, scheduling } = stage;
    let shared = Arc::downgrade(&scheduling.shared);
    let stopped = tokio::task::spawn_blocking(|| drop(scheduling));
    stopped.await.unwrap();
    assert!(shared.upgrade().is_none());
    direct.release();
    let view = direct.projections.view();
    let placed = view.scan::<Allocs>(Scan::all()).count();
    assert_eq!(placed, plan_queue::MAX_IN_FLIGHT as usize);
}

/// A status call waits for readers of the tables, and no other call waits with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_asks_for_the_status_keeps_nobody_from_being_served() {
    let stage = Stage::new(1);
    let (reads, held) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let shared = stage.scheduling.shared();
    let reader = std::thread::spawn(move || {
        let _core = shared.core.lock();
        reads.send(()).unwrap();
        wait.recv().is_err()
    });
    held.recv().unwrap();
    let shared = stage.scheduling.shared();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let requested = tokio::spawn(async move {
        begun.send(()).unwrap();
        shared.status()
    });
    begins.await.unwrap();
    let served = tokio::time::timeout(LONG, tokio::spawn(async {})).await;
    assert!(served.is_ok() && !requested.is_finished());
    assert!(!stage.scheduling.is_placing());
    drop(go);
    assert_eq!(requested.await.unwrap().in_flight, 0);
    assert!(reader.join().unwrap());
}

#[test]
fn a_plan_that_comes_when_nobody_takes_any_is_not_waited_for() {
    let plans = PlanQueue::default();
    let mut before = plans.submit(stops_on(&["here"]));
    assert_eq!(before.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(plans.len(), 1);
    plans.close();
    let mut after = plans.submit(stops_on(&["there"]));
    for answer in [&mut before, &mut after] {
        assert_eq!(answer.try_recv(), Err(TryRecvError::Closed));
    }
    assert!(plans.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_too_often_is_tried_again_each_minute_and_not_sooner() {
    let direct = Direct::new();
    // No worker takes what comes of it.
    let scheduling = start_for(&direct, &["service".to_owned()]);
    let shared = &scheduling.shared;
    let refuse = |id: &str| {
        let refused = Evaluation {
            id: id.to_owned(),
            job_id: id.to_owned(),
            r#type: "batch".to_owned(),
            status: "blocked".to_owned(),
            triggered_by: "max-plan-attempts".to_owned(),
            snapshot_index: direct.projections.applied_index(),
            ..Evaluation::default()
        };
        let back = shared.core.lock().blocked.block(refused);
        assert!(back.is_none(), "{back:?}");
    };
    let ready_and_blocked = || {
        let status = scheduling.status();
        (status.ready, status.blocked)
    };
    refuse("a");
    let mut retried = shared.clock.now();
    step(shared, &mut retried).unwrap();
    assert_eq!(ready_and_blocked(), (0, 1), "a minute is not over");
    retried -= RETRY_REJECTED;
    step(shared, &mut retried).unwrap();
    assert_eq!(ready_and_blocked(), (1, 0));
    // The next minute begins.
    refuse("b");
    step(shared, &mut retried).unwrap();
    assert_eq!(ready_and_blocked(), (1, 1));
}
