use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use drover_events::model::{Allocation, Node};
use drover_testkit::LONG;
use futures_util::future::BoxFuture;
use futures_util::stream;

use super::*;
use crate::alloc_dir::AllocDir;
use crate::config::ClientSettings;
use crate::drivers::exec::{ExecCommand, Wires};
use crate::drivers::isolated::{Exec, USER};
use crate::drivers::mock::Mock;
use crate::drivers::raw_exec::{RawExec, Runs};
use crate::drivers::{Driver, Handle, Registry, RunningTask, Samples, TaskConfig, TaskError};
use crate::executor::cgroup::{self, Parents};
use crate::executor::executor_test::launcher;
use drover_config::{ClientConfig, PluginConfig};

/// What a stream of the driver below is.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    /// It has a sample, and then none for ever.
    Open,
    /// It has a sample, and closes.
    Closed,
    /// It fails at once.
    Failing,
    /// It says that there is nothing.
    Unsupported,
}

/// A task whose driver measures as the test sets it.
struct Task {
    is: Is,
    opened: AtomicUsize,
    /// One for this, and one for every stream that is there.
    open: Arc<()>,
}

impl Task {
    fn new(is: Is) -> Arc<Self> {
        let (opened, open) = (AtomicUsize::new(0), Arc::new(()));
        Arc::new(Self { is, opened, open })
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    fn open(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

impl RunningTask for Task {
    fn handle(&self) -> Handle {
        Handle::default()
    }

    fn wait(&self) -> BoxFuture<'static, ExitResult> {
        std::future::pending().boxed()
    }

    fn stop(&self, _: &str, _: Duration) -> Result<(), TaskError> {
        Ok(())
    }

    fn signal(&self, _: &str) -> Result<(), TaskError> {
        Ok(())
    }

    fn exec(&self, _: ExecCommand, _: Wires) -> BoxFuture<'static, Result<(), TaskError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn stats(&self, _: Duration) -> Samples {
        let n = self.opened.fetch_add(1, Ordering::SeqCst);
        let sample = TaskResourceUsage {
            timestamp: i64::try_from(n).unwrap() + 1,
            ..TaskResourceUsage::default()
        };
        let first = match self.is {
            Is::Open | Is::Closed => Ok(sample),
            Is::Failing => Err(StatsError::Failed("not now".into())),
            Is::Unsupported => Err(StatsError::Unsupported),
        };
        let open = Arc::clone(&self.open);
        let rest: Samples = match self.is {
            Is::Open => stream::pending().boxed(),
            _ => stream::empty().boxed(),
        };
        let all = stream::once(async move { first }).chain(rest);
        all.inspect(move |_| _ = &open).boxed()
    }
}

fn given() -> TaskGiven {
    TaskGiven {
        alloc: Arc::new(Allocation::default()),
        name: "web".into(),
        dir: AllocDir::new(Path::new("/nowhere"), "a1"),
        drivers: Registry::default(),
        node: Arc::new(Node::default()),
        settings: Arc::new(ClientSettings::default()),
        resources: Arc::default(),
        clock: Clock::System,
        emit: Arc::new(|_| {}),
        hook_env: BTreeMap::new(),
    }
}

fn follow(task: &Arc<Task>, usage: &Usage, retry: Duration) -> Follow {
    Follow {
        task: "web".into(),
        usage: usage.clone(),
        running: Arc::clone(task) as Arc<dyn RunningTask>,
        interval: SHORTEST,
        retry,
        clock: Clock::System,
    }
}

#[tokio::test]
async fn drv_02_a_stream_that_ends_and_one_that_never_is_are_left_at_that() {
    for (is, sampled) in [(Is::Closed, true), (Is::Unsupported, false)] {
        let (task, usage) = (Task::new(is), Usage::default());
        // It ends by itself.
        follow(&task, &usage, RETRY).run().await;
        assert_eq!((task.opened(), task.open()), (1, 0));
        assert_eq!(usage.of("web").is_some(), sampled);
        // No one waits for what never comes; where there is some, it may be too old.
        let names = ["web".to_owned()];
        let waits = usage.since(&names, 2);
        let waited = tokio::time::timeout(Duration::from_millis(20), waits).await;
        assert_eq!(waited.is_err(), sampled);
    }
}

#[tokio::test]
async fn drv_03_a_stream_that_fails_at_once_is_opened_again_after_longer_and_longer_waits() {
    let (task, usage) = (Task::new(Is::Failing), Usage::default());
    let began = Instant::now();
    let follower = tokio::spawn(follow(&task, &usage, Duration::from_millis(8)).run());
    let fifth = || (task.opened() >= 5).then_some(()).ok_or("not yet");
    drover_testkit::eventually("the fifth attempt", LONG, fifth)
        .await
        .unwrap();
    // 8, 16, 32 and 64 milliseconds lie between them, or more.
    assert!(began.elapsed() >= Duration::from_millis(120));
    follower.abort();
    // The first wait and the longest bound what a broken driver costs: with these, four calls in
    // ten seconds, and then one a minute.
    let starts = delays(RETRY).scan(Duration::ZERO, |at, wait| {
        *at += wait;
        Some(*at)
    });
    let within = starts
        .take_while(|at| *at <= Duration::from_secs(10))
        .count();
    assert_eq!(within, 3);
    assert_eq!(delays(RETRY).nth(100), Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn drv_05_a_stream_ends_with_its_task_and_a_thousand_restarts_leave_one() {
    let (hook, given, task) = (StatsHook::default(), given(), Task::new(Is::Open));
    let running = RunningHooks {
        task: Arc::clone(&task) as Arc<dyn RunningTask>,
        recovered: false,
    };
    let usage = usage(&given);
    for start in 1..=1000 {
        hook.poststart(&given, &Value::Null, &running)
            .await
            .unwrap();
        usage.since(&["web".into()], start).await;
        let sample = usage.of("web").map(|sample| sample.timestamp);
        assert_eq!(sample, Some(start), "of this start");
        let exit = ExitResult::default();
        hook.exited(&given, &Value::Null, &exit).await.unwrap();
        assert_eq!(usage.of("web"), None, "what has ended uses nothing");
    }
    assert_eq!(task.opened(), 1000);
    let none = || (task.open() == 0).then_some(()).ok_or("not yet");
    drover_testkit::eventually("no stream is left", LONG, none)
        .await
        .unwrap();

    // What is stopped without an end, and what ends with the agent, ends as well.
    for stops in [true, false] {
        hook.poststart(&given, &Value::Null, &running)
            .await
            .unwrap();
        let one = || (task.open() == 1).then_some(()).ok_or("not yet");
        drover_testkit::eventually("a stream", LONG, one)
            .await
            .unwrap();
        if stops {
            hook.stop(&given, &Value::Null).await.unwrap();
        } else {
            hook.shutdown();
        }
        drover_testkit::eventually("none", LONG, none)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn drv_01_a_question_makes_samples_come_often() {
    let (task, usage) = (Task::new(Is::Open), Usage::default());
    let follower = tokio::spawn(follow(&task, &usage, RETRY).run());
    usage.since(&["web".into()], 1).await;
    assert_eq!(
        (task.opened(), task.open()),
        (1, 1),
        "seldom, for none is requested"
    );
    usage.ask(Clock::System.now());
    usage.since(&["web".into()], 2).await;
    assert_eq!((task.opened(), task.open()), (2, 1));
    usage.ask(Clock::System.now());
    // A task that was woken has its turn before this.
    tokio::spawn(async {}).await.unwrap();
    assert_eq!(task.opened(), 2, "another question changes nothing");
    follower.abort();
}

/// What every driver holds to: samples come by themselves, and end with the task.
async fn conforms(running: Arc<dyn RunningTask>) {
    let mut samples = running.stats(Duration::from_millis(5));
    let mut last = 0;
    for _ in 0..3 {
        let sample = samples
            .next()
            .await
            .expect("it runs")
            .expect("it is measured");
        assert!(sample.timestamp > last, "each is newer");
        last = sample.timestamp;
    }
    let beside = running.stats(Duration::from_secs(3600));
    running.stop("SIGKILL", Duration::ZERO).unwrap();
    let limit = Instant::now() + LONG;
    while let Some(sample) = samples.next().await {
        sample.expect("no error before the end");
        assert!(Instant::now() < limit, "it does not end with its task");
    }
    let rest: Vec<_> = beside.collect().await;
    assert!(
        rest.iter().all(Result::is_ok),
        "also where the next is far away"
    );
}

/// The driver that keeps tasks apart, and the groups below which it does so; no driver, and
/// printed, where this machine cannot.
fn apart(tmp: &Path) -> (Option<Exec>, Parents) {
    let name = tmp.file_name().unwrap().to_string_lossy();
    let name = format!("drover-stats-{}", name.trim_start_matches('.'));
    let cgroups = Parents::of_host(&name);
    let runs = Runs {
        launcher: launcher(),
        dir: tmp.join("apart"),
        cgroups: cgroups.clone(),
    };
    let exec = Exec::new(&ClientConfig::default(), &PluginConfig::default(), runs).unwrap();
    let reported = exec.fingerprint(0);
    if !reported.healthy {
        drover_testkit::skip("samples of the exec driver", &reported.health_description);
    }
    (reported.healthy.then_some(exec), cgroups)
}

#[tokio::test]
async fn drv_01_every_driver_streams_samples_until_its_task_ends() {
    let tmp = tempfile::tempdir().unwrap();
    let raw = RawExec::new(true, launcher(), tmp.path().join("raw"));
    let shell = serde_json::json!({"command": "/bin/sh", "args": ["-c", "exec sleep 1000"]});
    let pretended = serde_json::json!({"run_for": "1h"});
    let drivers: [(Arc<dyn Driver>, Value); 2] =
        [(Arc::new(raw), shell.clone()), (Arc::new(Mock), pretended)];
    let (exec, cgroups) = apart(tmp.path());
    let exec = exec.map(|exec| (Arc::new(exec) as Arc<dyn Driver>, shell));
    let dir = AllocDir::new(&tmp.path().join("allocs"), "a");
    dir.build().unwrap();
    dir.build_task("web", USER).unwrap();
    for (driver, config) in drivers.into_iter().chain(exec) {
        let Value::Object(config) = config else {
            unreachable!()
        };
        let task = TaskConfig {
            alloc_id: "a".into(),
            task: "web".into(),
            config: config.into_iter().collect(),
            env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            log_dir: dir.logs(),
            log_max_files: 2,
            log_max_bytes: 1 << 20,
            paths: dir.paths("web"),
            ..TaskConfig::default()
        };
        let running = driver.start(task).await.unwrap();
        let all = async {
            conforms(Arc::clone(&running)).await;
            running.wait().await;
        };
        tokio::time::timeout(LONG, all).await.expect("it ends");
        driver.destroy("a", "web", 0);
    }
    let groups = cgroups.unified.iter().chain(cgroups.v1.values());
    groups.for_each(|parent| cgroup::remove(parent));
}
