//! What a real executor reports of its task, and what becomes of that when something fails.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_testkit::LONG;
use futures_util::StreamExt;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::executor_test::{Run, launcher, until};
use super::files::{ExecutorCall, ExecutorReply};
use super::launch::Executor;
use super::measure::{Measure, Measures};
use crate::drivers::raw_exec::RawExec;
use crate::drivers::{Driver, RunningTask, StatsError, TaskConfig};
use crate::proc;

const OFTEN: Duration = Duration::from_millis(20);

async fn reported(measures: &mut Measures) -> Measure {
    let reported = tokio::time::timeout(LONG, measures.next()).await;
    reported.expect("it is reported in time")
}

fn pid_of(executor: &Executor) -> Pid {
    Pid::from_raw(executor.state().executor_pid).unwrap()
}

fn failed(reported: Measure) -> (String, bool) {
    match reported {
        Measure::Failed { why, recoverable } => (why, recoverable),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn drv_04_samples_come_from_the_executor_as_a_stream_until_the_task_ends() {
    let run = Run::new();
    let spec = run.shell("sleep 1000 & while :; do :; done");
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    let task = executor.state().task_pid;
    let mut measures = executor.measure(OFTEN).await.unwrap();
    let (mut last, mut ticks, mut samples) = (0, 0, 0);
    let limit = Instant::now() + LONG;
    while samples < 3 || ticks == 0 {
        assert!(Instant::now() < limit, "{samples} samples, {ticks} ticks");
        let Measure::Sample { at, usage } = reported(&mut measures).await else {
            panic!("no end before the end");
        };
        assert!(at > last, "in their order");
        assert!(usage.pids[&task].rss > 0, "{usage:?}");
        assert!(usage.pids[&task].user >= ticks, "{usage:?}");
        (last, ticks, samples) = (at, usage.pids[&task].user, samples + 1);
    }
    // Another caller has its own interval, and gets a sample at once all the same.
    let mut seldom = executor.measure(Duration::from_secs(3600)).await.unwrap();
    let Measure::Sample { usage, .. } = reported(&mut seldom).await else {
        panic!("a sample at once");
    };
    assert_eq!(usage.pids.len(), 2, "{usage:?}");
    executor
        .stop(Signal::KILL.as_raw(), Duration::ZERO)
        .unwrap();
    assert_eq!(reported(&mut seldom).await, Measure::Ended);
    let limit = Instant::now() + LONG;
    while let reported @ (Measure::Sample { .. } | Measure::Failed { .. }) =
        reported(&mut measures).await
    {
        assert!(matches!(reported, Measure::Sample { .. }), "{reported:?}");
        assert!(Instant::now() < limit, "it does not end with its task");
    }
    executor.wait().await;
    assert!(executor.measure(OFTEN).await.is_err(), "nothing is there");
}

#[tokio::test]
async fn drv_04_a_failure_says_whether_another_stream_may_do_better() {
    let run = Run::new();
    let spec = run.shell("exec sleep 1000");
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    // What is requested can never be.
    let mut never = executor.measure(Duration::ZERO).await.unwrap();
    let (why, recoverable) = failed(reported(&mut never).await);
    assert!(!recoverable, "{why}");
    // What cannot be read now may be read later.
    let mut measures = executor.measure(OFTEN).await.unwrap();
    assert!(matches!(
        reported(&mut measures).await,
        Measure::Sample { .. }
    ));
    let pid = pid_of(&executor);
    let open = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap();
    let names = open.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let open: BTreeSet<u64> = names.map(|name| name.parse().unwrap()).collect();
    let free = (0..).find(|number| !open.contains(number)).unwrap();
    let limit = |current| Rlimit {
        current: Some(current),
        maximum: Some(1024),
    };
    prlimit(Some(pid), Resource::Nofile, limit(free)).unwrap();
    let begun = Instant::now();
    let (why, recoverable) = loop {
        assert!(begun.elapsed() < LONG, "it goes on");
        match reported(&mut measures).await {
            Measure::Sample { .. } => {}
            other => break failed(other),
        }
    };
    assert!(recoverable, "{why}");
    prlimit(Some(pid), Resource::Nofile, limit(1024)).unwrap();
    let mut again = executor.measure(OFTEN).await.unwrap();
    assert!(matches!(reported(&mut again).await, Measure::Sample { .. }));
    // No more of them at once than an executor can serve.
    let mut many = vec![again];
    let (why, recoverable) = loop {
        assert!(many.len() < 1_000, "it takes all");
        let mut one = executor.measure(Duration::from_secs(3600)).await.unwrap();
        match reported(&mut one).await {
            Measure::Sample { .. } => many.push(one),
            other => break failed(other),
        }
    };
    assert!(recoverable && why == "too many measure this task", "{why}");
    assert_eq!(many.len(), 8);
    executor
        .stop(Signal::KILL.as_raw(), Duration::ZERO)
        .unwrap();
    executor.wait().await;
}

/// A task of `raw_exec` that sleeps.
async fn idle_task(tmp: &Path) -> Arc<dyn RunningTask> {
    let raw = RawExec::new(true, launcher(), tmp.into());
    let shell = serde_json::json!({"command": "/bin/sh", "args": ["-c", "exec sleep 1000"]});
    let task = TaskConfig {
        alloc_id: "a".into(),
        task: "web".into(),
        config: serde_json::from_value(shell).unwrap(),
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        log_dir: tmp.join("logs"),
        log_max_files: 2,
        log_max_bytes: 1 << 20,
        paths: crate::env::TaskPaths {
            root: tmp.into(),
            ..Default::default()
        },
        ..TaskConfig::default()
    };
    raw.start(task).await.unwrap()
}

#[tokio::test]
async fn drv_04_what_an_executor_can_never_measure_its_driver_measures_not_at_all() {
    let tmp = tempfile::tempdir().unwrap();
    let running = idle_task(tmp.path()).await;
    // No time passes between two samples.
    let mut never = running.stats(Duration::ZERO);
    let all = async { [never.next().await, never.next().await] };
    let reported = tokio::time::timeout(LONG, all).await;
    let reported = reported.expect("it is reported in time");
    let is_over = matches!(reported, [Some(Err(StatsError::Unsupported)), None]);
    assert!(is_over, "{reported:?}");
    // And nothing but that is wrong with the task.
    let sample = running.stats(OFTEN).next().await.expect("it goes on");
    sample.expect("a sample");
    running.stop("SIGKILL", Duration::ZERO).unwrap();
    running.wait().await;
}

#[tokio::test]
async fn drv_04_an_executor_killed_amid_a_stream_fails_it_and_is_no_end_of_the_task() {
    let tmp = tempfile::tempdir().unwrap();
    let running = idle_task(tmp.path()).await;
    let state = running.handle().state;
    let pid = |name: &str| i32::try_from(state[name].as_i64().unwrap()).unwrap();
    let mut samples = running.stats(OFTEN);
    for _ in 0..2 {
        let sample = samples.next().await.expect("it goes on");
        sample.expect("a sample");
    }
    kill_process(Pid::from_raw(pid("ExecutorPid")).unwrap(), Signal::KILL).unwrap();
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < LONG, "it goes on");
        match samples.next().await.expect("it does not just end") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let killed = "the executor was killed".to_owned();
    assert_eq!(error, StatsError::Failed(killed), "another may be tried");
    assert!(samples.next().await.is_none(), "nothing follows an error");
    let exit = running.wait().await;
    assert_eq!(exit.error, "the executor was killed");
    until("the task is gone", || {
        proc::stat(pid("Pid")).is_none_or(|s| s.state == 'Z')
    })
    .await;
    // A caller that opens another one gets the end.
    assert!(running.stats(OFTEN).next().await.is_none());
}

#[test]
fn drv_04_every_word_of_the_protocol_is_read_as_it_was_written() {
    let usage = proc::TreeUsage {
        pids: [(
            7,
            proc::PidUsage {
                user: 1,
                system: 2,
                rss: 3,
            },
        )]
        .into(),
        group: proc::GroupUsage {
            cache: Some(4),
            throttled_time: Some(5),
            ..proc::GroupUsage::default()
        },
    };
    for reported in [
        ExecutorReply::Sample { at: 5, usage },
        ExecutorReply::NoSample {
            why: "a".into(),
            recoverable: true,
        },
        ExecutorReply::NoSample {
            why: "b".into(),
            recoverable: false,
        },
        ExecutorReply::Ended(3),
    ] {
        let line = serde_json::to_string(&reported).unwrap();
        assert_eq!(
            serde_json::from_str::<ExecutorReply>(&line).unwrap(),
            reported,
            "{line}"
        );
    }
    // One of a former release counts nothing of control groups.
    let former = r#"{"Sample":{"at":5,"usage":{"pids":{"7":{"user":1,"system":2,"rss":3}}}}}"#;
    let ExecutorReply::Sample { usage, .. } =
        serde_json::from_str::<ExecutorReply>(former).unwrap()
    else {
        panic!("a sample")
    };
    assert_eq!(usage.group, proc::GroupUsage::default());
    // An executor of a former release reads of it what it knows, and that is nothing to start.
    #[derive(serde::Deserialize)]
    struct Former {
        command: Vec<String>,
    }
    let call = ExecutorCall {
        command: Vec::new(),
        measure_ms: Some(5),
    };
    let line = serde_json::to_string(&call).unwrap();
    assert!(
        serde_json::from_str::<Former>(&line)
            .unwrap()
            .command
            .is_empty()
    );
    let of_former: ExecutorCall = serde_json::from_str("{\"command\":[\"ls\"]}").unwrap();
    assert_eq!(of_former.measure_ms, None);
}
