//! The actor between the servers' requests and its journal: order, crashes, a disk that is full.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_events::model::{Allocation, Job, UpdateStrategy};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::runner::RunnerFactory;
use super::runner_test::{alloc, events, factory, journal_let_go, run, runs, until};
use crate::clock::Clock;
use crate::hooks::task::{Hooked, RunningHooks, TaskGiven, TaskHook};
use crate::journal::{Journal, JournalError, alloc_key, state_key};
use drover_base::clock::unix_nanos;
use drover_log::LogError;

/// A shell that notes its process and runs on until it is requested to end.
fn endless(pids: &Path) -> Value {
    let script = format!(
        "echo $$ >> {}; trap 'exit 0' INT; while :; do sleep 0.02; done",
        pids.display()
    );
    json!({"command": "/bin/sh", "args": ["-c", script]})
}

fn stopped(given: &Allocation) -> Allocation {
    Allocation {
        desired_status: "stop".into(),
        ..given.clone()
    }
}

/// Whether a value is refused under a key.
type Refuses = dyn Fn(&str, &[u8]) -> bool + Send + Sync;

/// Refuses what `refuses` selects.
struct Refusing {
    inner: Arc<dyn Journal>,
    refuses: Box<Refuses>,
}

impl Journal for Refusing {
    fn put(&self, key: &str, value: Vec<u8>) -> BoxFuture<'static, Result<(), JournalError>> {
        if (self.refuses)(key, &value) {
            return std::future::ready(Err(LogError::Closed.into())).boxed();
        }
        self.inner.put(key, value)
    }

    fn delete(&self, prefix: &str) -> BoxFuture<'static, Result<(), JournalError>> {
        self.inner.delete(prefix)
    }

    fn load(&self) -> BTreeMap<String, Bytes> {
        self.inner.load()
    }
}

fn refusing(
    mut factory: RunnerFactory,
    refuses: impl Fn(&str, &[u8]) -> bool + Send + Sync + 'static,
) -> RunnerFactory {
    factory.journal = Arc::new(Refusing {
        inner: factory.journal.clone(),
        refuses: Box::new(refuses),
    });
    factory
}

fn holds(value: &[u8], text: impl AsRef<[u8]>) -> bool {
    let text = text.as_ref();
    value.windows(text.len()).any(|part| part == text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_15_cl_16_a_stop_that_came_before_a_crash_is_carried_out_after_it() {
    let tmp = tempfile::tempdir().unwrap();
    let pids = tmp.path().join("pids");
    let given = alloc("service", "raw_exec", endless(&pids));
    let reported = Arc::new(Mutex::new(None));
    {
        let factory = factory(tmp.path());
        let runner = run(&factory, &given, &reported);
        until("it runs", || pids.exists()).await;
        until("it is reported", || runs(&reported)).await;
        runner.detach().await;
        // The allocation is in the journal, and then the agent dies: the machine never got it.
        let bytes = rmp_serde::to_vec_named(&stopped(&given)).unwrap();
        factory
            .journal
            .put(&alloc_key(&given.id), bytes)
            .await
            .unwrap();
        drop(runner);
        journal_let_go(&factory).await;
    }
    let factory = factory(tmp.path());
    let bytes = factory.journal.load()[&alloc_key(&given.id)].clone();
    let kept: Allocation = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!(kept.desired_status, "stop");
    let runner = run(&factory, &kept, &reported);
    runner.done().wait_for(|done| *done).await.unwrap();
    let pid = std::fs::read_to_string(&pids).unwrap();
    assert_eq!(pid.lines().count(), 1, "it was not started again");
    let task = Path::new("/proc").join(pid.trim());
    until("the task is gone", || !task.exists()).await;
    let last = reported.lock().clone().unwrap();
    assert_eq!(last.client_status, "complete");
    let events = events(&last.task_states["web"]);
    assert!(
        events.ends_with(&["Killing".into(), "Terminated".into(), "Killed".into()]),
        "{events:?}"
    );
    // What it held is given back: its run, and when it is removed its directories and its state.
    let runs = tmp.path().join("runs").join(&given.id);
    until("its run is cleared", || !runs.exists()).await;
    runner.destroy().await;
    assert!(!tmp.path().join("alloc").join(&given.id).exists());
    assert!(factory.journal.load().is_empty());
}

#[tokio::test]
async fn updates_of_the_servers_keep_their_order() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    // All of this waits when the actor first looks: the update stands behind an input.
    runner.server_contacted();
    for (index, status) in [(2, "run"), (3, "run"), (4, "stop")] {
        runner.update(Arc::new(Allocation {
            desired_status: status.into(),
            alloc_modify_index: index,
            ..given.clone()
        }));
        runner.server_contacted();
    }
    let mut done = runner.done();
    done.wait_for(|done| *done).await.unwrap();
    assert_eq!(runner.alloc().alloc_modify_index, 4);
    runner.destroy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_start_cannot_be_remembered_is_not_started() {
    for (moment, event) in [("Prerun", "Setup Failure"), ("Starting", "Driver Failure")] {
        let tmp = tempfile::tempdir().unwrap();
        let pids = tmp.path().join("pids");
        let factory = refusing(factory(tmp.path()), move |key, value| {
            key.ends_with("/state") && holds(value, moment)
        });
        let given = alloc("service", "raw_exec", endless(&pids));
        let reported = Arc::new(Mutex::new(None));
        let runner = run(&factory, &given, &reported);
        runner.done().wait_for(|done| *done).await.unwrap();
        let last = reported.lock().clone().unwrap();
        assert_eq!(last.client_status, "failed", "{moment}");
        let state = &last.task_states["web"];
        let found = state.events.iter().find(|e| e.r#type == event);
        let found = found.unwrap_or_else(|| panic!("{moment}: {:?}", events(state)));
        let text = format!("{found:?}");
        assert!(text.contains("state cannot be written"), "{moment}: {text}");
        assert!(!pids.exists(), "{moment}: it ran");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_carried_out_though_it_cannot_be_remembered() {
    let tmp = tempfile::tempdir().unwrap();
    let pids = tmp.path().join("pids");
    let full = Arc::new(Mutex::new(false));
    let flag = full.clone();
    let factory = refusing(factory(tmp.path()), move |_, _| *flag.lock());
    let given = alloc("service", "raw_exec", endless(&pids));
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    until("it runs", || pids.exists()).await;
    *full.lock() = true;
    runner.update(Arc::new(stopped(&given)));
    runner.done().wait_for(|done| *done).await.unwrap();
    let pid = std::fs::read_to_string(&pids).unwrap();
    let task = Path::new("/proc").join(pid.trim());
    until("the task is gone", || !task.exists()).await;
    // The allocation that could not be remembered is written with the next state.
    *full.lock() = false;
    runner.server_contacted();
    until("the stop is in the journal", || {
        let kept = factory.journal.load();
        holds(&kept[&alloc_key(&given.id)], "stop")
    })
    .await;
}

/// Time passes while the journal writes: what comes due then is done when it has written, and not
/// when something else happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_due_while_its_cause_is_written_is_done_at_once() {
    const SECOND: i64 = 1_000_000_000;
    const RUNS: &[u8] = b"running";
    const ENDS: &[u8] = b"pre_killed\xc3";
    let tmp = tempfile::tempdir().unwrap();
    let mut given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    given.deployment_id = "d".into();
    let mut spec = Job::clone(given.job.as_ref().unwrap());
    spec.task_groups[0].shutdown_delay = Some(10 * SECOND);
    spec.task_groups[0].update = Some(UpdateStrategy {
        min_healthy_time: 10 * SECOND,
        healthy_deadline: 3600 * SECOND,
        ..UpdateStrategy::default()
    });
    given.job = Some(Arc::new(spec));
    let clock = Arc::new(Mutex::new(unix_nanos()));
    let mut factory = factory(tmp.path());
    factory.clock = Clock::Manual(Arc::clone(&clock));
    // First that it runs, then that it is to end and its hooks before that are through.
    let (slow, key) = (Arc::new(Mutex::new(RUNS)), state_key(&given.id));
    let factory = refusing(factory, {
        let (slow, clock) = (Arc::clone(&slow), Arc::clone(&clock));
        move |written, value| {
            let mut slow = slow.lock();
            if written == key && !slow.is_empty() && holds(value, *slow) {
                *slow = b"";
                *clock.lock() += 20 * SECOND;
            }
            false
        }
    });
    let reported: Arc<Mutex<Option<Allocation>>> = Arc::new(Mutex::new(None));
    let soon = |what: &str, is: &dyn Fn(&Allocation) -> bool| {
        let look = || {
            reported
                .lock()
                .as_ref()
                .is_some_and(is)
                .then_some(())
                .ok_or("not yet")
        };
        let wait = || drover_testkit::wait_for(what, Duration::from_secs(30), look);
        tokio::task::block_in_place(wait).unwrap();
    };
    let runner = run(&factory, &given, &reported);
    soon("its health", &|alloc| {
        let status = alloc.deployment_status.as_ref();
        status.is_some_and(|status| status.healthy == Some(true))
    });
    *slow.lock() = ENDS;
    runner.update(Arc::new(stopped(&given)));
    soon("its end", &|alloc| alloc.client_status == "complete");
    runner.done().wait_for(|done| *done).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_run_for_an_hour_ends_then_whichever_agent_has_it() {
    const HOUR: i64 = 3_600_000_000_000;
    let tmp = tempfile::tempdir().unwrap();
    let pids = tmp.path().join("pids");
    let mut given = alloc("batch", "raw_exec", endless(&pids));
    let mut spec = Job::clone(given.job.as_ref().unwrap());
    spec.task_groups[0].max_run_duration = Some(HOUR);
    given.job = Some(Arc::new(spec));
    let clock = Arc::new(Mutex::new(unix_nanos()));
    let agent = || {
        let mut factory = factory(tmp.path());
        factory.clock = Clock::Manual(Arc::clone(&clock));
        factory
    };
    let reported: Arc<Mutex<Option<Allocation>>> = Arc::new(Mutex::new(None));
    {
        let factory = agent();
        let runner = run(&factory, &given, &reported);
        until("it runs", || pids.exists()).await;
        until("it is reported", || runs(&reported)).await;
        runner.detach().await;
        drop(runner);
        journal_let_go(&factory).await;
    }
    *clock.lock() += HOUR;
    let runner = run(&agent(), &given, &reported);
    runner.done().wait_for(|done| *done).await.unwrap();
    let last = reported.lock().clone().unwrap();
    assert_eq!(
        (
            last.client_status.as_str(),
            last.client_description.as_str()
        ),
        ("complete", Allocation::RAN_TOO_LONG)
    );
    let pid = std::fs::read_to_string(&pids).unwrap();
    assert_eq!(pid.lines().count(), 1, "it was not started again");
    let task = Path::new("/proc").join(pid.trim());
    until("the task is gone", || !task.exists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_done_while_a_task_takes_its_time_to_end() {
    let tmp = tempfile::tempdir().unwrap();
    // How many steps the journal refused, once it refuses them.
    let refused: Arc<Mutex<Option<usize>>> = Arc::default();
    let counted = Arc::clone(&refused);
    let factory = refusing(factory(tmp.path()), move |_, _| {
        let mut counted = counted.lock();
        *counted = counted.map(|steps| steps + 1);
        counted.is_some()
    });
    let config = json!({"run_for": "1h", "kill_after": "500ms"});
    let given = alloc("service", "mock_driver", config);
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    until("it runs", || runs(&reported)).await;
    *refused.lock() = Some(0);
    runner.update(Arc::new(stopped(&given)));
    runner.done().wait_for(|done| *done).await.unwrap();
    let steps = refused.lock().expect("they are counted");
    assert!(steps < 100, "{steps} steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_is_kept_a_task_has_a_second_to_end_with_its_agent() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    factory
        .settings
        .update(|settings| settings.ephemeral = true);
    let mut given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let mut spec = Job::clone(given.job.as_ref().unwrap());
    spec.task_groups[0].tasks[0].kill_timeout = 20_000_000_000;
    given.job = Some(Arc::new(spec));
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    until("it runs", || runs(&reported)).await;
    runner.destroy().await;
    let last = reported.lock().clone().unwrap();
    let mut events = last.task_states["web"].events.iter();
    let killing = events.find(|event| event.r#type == "Killing");
    assert_eq!(
        killing.unwrap().display_message,
        "Sent interrupt. Waiting 1s before force killing"
    );
}

/// Holds up the calls behind that after the start, and notes what comes then.
#[derive(Clone, Default)]
struct Noting {
    go: Arc<Notify>,
    noted: Arc<Mutex<Vec<String>>>,
}

impl TaskHook for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn poststart<'a>(&'a self, _: &'a TaskGiven, _: &'a Value, _: &'a RunningHooks) -> Hooked<'a> {
        async {
            self.go.notified().await;
            Ok(())
        }
        .boxed()
    }

    fn update<'a>(&'a self, given: &'a TaskGiven, _: &'a Value) -> Hooked<'a> {
        let index = given.alloc.alloc_modify_index;
        self.noted.lock().push(format!("update {index}"));
        async { Ok(()) }.boxed()
    }

    fn shutdown(&self) {
        self.noted.lock().push("shutdown".to_owned());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_of_a_task_see_what_is_so_at_their_turn_and_hear_of_the_end_of_the_agent() {
    let tmp = tempfile::tempdir().unwrap();
    let mut factory = factory(tmp.path());
    let noting = Noting::default();
    let hook = noting.clone();
    let of_task = move |_: &_, _: &_| Some(Box::new(hook.clone()) as Box<dyn TaskHook>);
    factory.task_hooks.0.push(Arc::new(of_task));
    let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    until("it runs", || runs(&reported)).await;
    for index in [2, 3] {
        runner.update(Arc::new(Allocation {
            alloc_modify_index: index,
            ..given.clone()
        }));
    }
    until("both came", || runner.alloc().alloc_modify_index == 3).await;
    noting.go.notify_one();
    until("it hears of both", || noting.noted.lock().len() == 2).await;
    runner.detach().await;
    let noted = noting.noted.lock().clone();
    assert_eq!(noted, ["update 3", "update 3", "shutdown"]);
}
