//! Sentences about tasks' lives, shown with real runners and a driver that pretends.

use std::sync::Arc;

use drover_events::model::{Allocation, Job, RestartPolicy, Task, TaskGroup, TaskLifecycleConfig};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::runner_test::{alloc, events, factory, run, until};
use crate::alloc_runner::{AllocRunnerFactory, Report};

/// An allocation whose group has these tasks: name, lifecycle hook (empty for main tasks) and how
/// long each runs.
fn with_tasks(kind: &str, tasks: &[(&str, &str, &str)]) -> Allocation {
    let mut out = alloc(kind, "mock_driver", serde_json::json!({}));
    let task = |(name, hook, run_for): &(&str, &str, &str)| Task {
        name: (*name).into(),
        driver: "mock_driver".into(),
        config: [("run_for".to_owned(), (*run_for).into())]
            .into_iter()
            .collect(),
        lifecycle: (!hook.is_empty()).then(|| TaskLifecycleConfig {
            hook: (*hook).into(),
            ..TaskLifecycleConfig::default()
        }),
        kill_timeout: 1_000_000_000,
        ..Task::default()
    };
    let group = TaskGroup {
        name: "g".into(),
        tasks: tasks.iter().map(task).collect::<Vec<_>>().into(),
        restart_policy: Some(RestartPolicy {
            mode: "fail".into(),
            ..RestartPolicy::default()
        }),
        ..TaskGroup::default()
    };
    let job = Job {
        id: "j".into(),
        r#type: kind.into(),
        task_groups: vec![group].into(),
        ..Job::default()
    };
    out.job = Some(Arc::new(job));
    out
}

/// Why a task is restarted on request of a user.
const REQUESTED: &str = "User requested task to restart";

type Reported = Arc<Mutex<Option<Allocation>>>;

fn state(reported: &Reported, task: &str) -> (String, u64, Vec<String>) {
    let reported = reported.lock();
    let Some(state) = reported.as_ref().and_then(|a| a.task_states.get(task)) else {
        return Default::default();
    };
    (state.state.clone(), state.restarts, events(state))
}

/// The reasons of the restarts that were reported of a task.
fn reasons(reported: &Reported, task: &str) -> Vec<String> {
    let reported = reported.lock();
    let state = reported.as_ref().and_then(|a| a.task_states.get(task));
    let events = state.map(|state| state.events.to_vec()).unwrap_or_default();
    let requested = events.iter().filter(|e| e.r#type == "Restart Signaled");
    requested
        .map(|event| event.restart_reason.clone())
        .collect()
}

fn is(reported: &Reported, task: &str, wanted: &str, restarts: u64) -> bool {
    let (now, count, _) = state(reported, task);
    (now.as_str(), count) == (wanted, restarts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_05_a_restart_restarts_what_runs_at_once_and_a_dead_task_is_no_error() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let tasks = [
        ("a", "", "1h"),
        ("b", "", "1h"),
        ("prep", "prestart", "1ms"),
    ];
    let given = with_tasks("service", &tasks);
    let reported = Reported::default();
    let runner = run(&factory, &given, &reported);
    until("two run and one is dead", || {
        is(&reported, "a", "running", 0)
            && is(&reported, "b", "running", 0)
            && is(&reported, "prep", "dead", 0)
    })
    .await;
    let requested = runner.control().unwrap().restart(None, false);
    requested.await.unwrap();
    let reported_now = runner.reported().unwrap();
    for task in ["a", "b"] {
        assert_eq!(
            reported_now.task_states[task].restarts, 1,
            "{task}: it is waited for"
        );
    }
    until("both run again", || {
        is(&reported, "a", "running", 1) && is(&reported, "b", "running", 1)
    })
    .await;
    assert!(is(&reported, "prep", "dead", 0));
    let reported_of = |task| state(&reported, task).2;
    for task in ["a", "b"] {
        let events = reported_of(task);
        let tail = &events[events.len() - 4..];
        assert_eq!(
            tail,
            ["Restart Signaled", "Terminated", "Restarting", "Started"]
        );
        assert_eq!(reasons(&reported, task), [REQUESTED]);
    }
    assert!(!reported_of("prep").contains(&"Restart Signaled".to_owned()));
    // For one task it is an error.
    let refused = runner.control().unwrap().restart(Some("prep"), false);
    assert_eq!(refused.await.unwrap_err().to_string(), "Task not running");
    runner.destroy().await;
}

/// Two of three cannot be requested to end: the third starts again, and the caller gets both
/// errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_05_who_asked_for_a_restart_learns_of_every_task_that_could_not_be_told() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let names = ["a", "b", "c"];
    let mut given = with_tasks("service", &names.map(|name| (name, "", "1h")));
    let job = Arc::make_mut(given.job.as_mut().unwrap());
    for (task, signal) in [(0, "SIGNONE"), (2, "SIGLESS")] {
        job.task_groups[0].tasks[task].kill_signal = signal.into();
    }
    let reported = Reported::default();
    let runner = run(&factory, &given, &reported);
    until("all run", || {
        names.iter().all(|name| is(&reported, name, "running", 0))
    })
    .await;
    let requested = runner.control().unwrap().restart(None, false).await;
    assert_eq!(
        requested.unwrap_err().to_string(),
        "task \"a\": unknown signal \"SIGNONE\"; task \"c\": unknown signal \"SIGLESS\""
    );
    assert_eq!(runner.reported().unwrap().task_states["b"].restarts, 1);
    // A later caller does not get these errors again.
    until("the third runs again", || is(&reported, "b", "running", 1)).await;
    let requested = runner.control().unwrap().restart(Some("b"), false);
    requested.await.unwrap();
    runner.detach().await;
}

/// What tasks answered that got a request together.
#[test]
fn cl_05_of_many_tasks_each_is_told_and_all_that_refuse_are_named() {
    use super::runner::outcome_of_each;
    use crate::drivers::TaskError;
    let refuses = |why: &str| Err(TaskError::Driver(why.to_owned()));
    let reported = |ends: Vec<Result<(), TaskError>>| {
        let names = ["a", "b", "c"].map(str::to_owned);
        let reported = outcome_of_each(names.into_iter().zip(ends).collect());
        reported.map_err(|error| error.to_string())
    };
    assert_eq!(reported(vec![Ok(()), Err(TaskError::NotRunning)]), Ok(()));
    let none = reported(vec![Err(TaskError::NotRunning), Err(TaskError::NotRunning)]);
    assert_eq!(none, Err("Task not running".to_owned()));
    let two = reported(vec![refuses("hangs"), Ok(()), refuses("is stuck")]);
    let text = "task \"a\": hangs; task \"c\": is stuck";
    assert_eq!(two, Err(text.to_owned()));
    let one = reported(vec![Ok(()), refuses("hangs")]);
    assert_eq!(one, Err("task \"b\": hangs".to_owned()));
    assert_eq!(
        reported(vec![refuses("hangs"), refuses("hangs")]),
        Err("hangs".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_09_cl_25_a_dead_tasks_runner_waits_and_runs_it_again_when_it_is_told() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let given = with_tasks(
        "service",
        &[("main", "", "1h"), ("prep", "prestart", "1ms")],
    );
    let reported = Reported::default();
    let runner = run(&factory, &given, &reported);
    for restarts in 0..3 {
        until("the one-shot is over and the service runs", || {
            is(&reported, "prep", "dead", restarts) && is(&reported, "main", "running", restarts)
        })
        .await;
        assert!(!*runner.done().borrow(), "a dead task is not the end");
        // The dead one gets the request as well.
        for task in ["main", "prep"] {
            let requested = usize::try_from(restarts).unwrap();
            assert_eq!(
                reasons(&reported, task),
                vec![REQUESTED; requested],
                "{task}"
            );
        }
        if restarts < 2 {
            let requested = runner.control().unwrap().restart(None, true);
            requested.await.unwrap();
        }
    }
    // A kill is.
    let mut stop = given.clone();
    stop.desired_status = "stop".into();
    runner.update(Arc::new(stop));
    runner.done().wait_for(|done| *done).await.unwrap();
    let requested = runner.control().unwrap().restart(None, true);
    assert!(requested.await.is_err());
    runner.destroy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_11_a_thousand_batch_allocations_leave_nothing_that_runs() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let given = with_tasks(
        "batch",
        &[("work", "", "1ms"), ("clean", "poststop", "1ms")],
    );
    let before = Handle::current().metrics().num_alive_tasks();
    let report: Report = Arc::new(|_| {});
    let mut runners = Vec::new();
    for n in 0..1000 {
        let one = Allocation {
            id: format!("11111111-2222-3333-4444-{n:012}"),
            ..given.clone()
        };
        let runner = factory.start(Arc::new(one), None, Vec::new(), report.clone());
        runners.push(runner.unwrap());
    }
    for runner in &runners {
        runner.done().wait_for(|done| *done).await.unwrap();
    }
    // Each is one small task that waits to be removed; nothing of its tasks is left.
    let alive = || {
        Handle::current()
            .metrics()
            .num_alive_tasks()
            .saturating_sub(before)
    };
    until("only the runners are left", || alive() <= runners.len()).await;
    futures_util::future::join_all(runners.iter().map(|r| r.destroy())).await;
    until("nothing is left", || alive() == 0).await;
    assert!(factory.journal.load().is_empty());
    assert_eq!(tmp.path().join("alloc").read_dir().unwrap().count(), 0);
}

/// How often a task got the message that its client is back.
fn reconnects(reported: &Reported) -> usize {
    let (_, _, events) = state(reported, "main");
    events
        .iter()
        .filter(|event| *event == "Reconnected")
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hb_11_what_is_wanted_is_reconnected_once_and_what_is_stopped_meanwhile_is_not() {
    for stopped_first in [false, true] {
        let tmp = tempfile::tempdir().unwrap();
        let factory = factory(tmp.path());
        let given = with_tasks("service", &[("main", "", "1h")]);
        let reported = Reported::default();
        let runner = run(&factory, &given, &reported);
        until("it runs", || is(&reported, "main", "running", 0)).await;
        // It was fetched before anything of it was reported.
        let unknown = |desired: &str, index: u64| {
            runner.update(Arc::new(Allocation {
                client_status: "unknown".into(),
                desired_status: desired.into(),
                alloc_modify_index: index,
                ..given.clone()
            }));
        };
        if !stopped_first {
            unknown("run", 7);
            until("it is reported", || reconnects(&reported) == 1).await;
            unknown("run", 8);
        }
        unknown("stop", 9);
        runner.done().wait_for(|done| *done).await.unwrap();
        let (_, _, events) = state(&reported, "main");
        let wanted = usize::from(!stopped_first);
        assert_eq!(reconnects(&reported), wanted, "{events:?}");
        assert_eq!(events.last().map(String::as_str), Some("Killed"));
        runner.destroy().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hb_14_what_the_servers_send_is_taken_as_it_is() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let given = with_tasks("service", &[("main", "", "1h")]);
    let reported = Reported::default();
    let runner = run(&factory, &given, &reported);
    until("it runs", || is(&reported, "main", "running", 0)).await;
    // They know less of it than the client does; that is no reason to doubt what they want.
    for (index, status) in [(5, "pending"), (6, "unknown"), (7, "pending")] {
        let sent = Allocation {
            client_status: status.into(),
            alloc_modify_index: index,
            ..given.clone()
        };
        runner.update(Arc::new(sent));
        until("it is taken", || runner.alloc().alloc_modify_index == index).await;
        assert_eq!(runner.alloc().client_status, status);
        assert!(
            is(&reported, "main", "running", 0),
            "and nothing happens to what runs"
        );
    }
    let stale = Allocation {
        client_status: "pending".into(),
        desired_status: "stop".into(),
        alloc_modify_index: 8,
        ..given.clone()
    };
    runner.update(Arc::new(stale));
    runner.done().wait_for(|done| *done).await.unwrap();
    runner.destroy().await;
}
