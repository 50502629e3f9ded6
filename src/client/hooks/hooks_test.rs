//! Hooks beside real runners: held up, dropped, killed with their agent, and found again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use drover_events::model::{Allocation, Job, RestartPolicy, Service};
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle as Runtime;

use super::alloc::{AllocAnswer, AllocGiven, AllocHook, Hooked};
use super::testing::Script;
use crate::alloc::runner::RunnerFactory;
use crate::alloc::runner_test::{Agent, alloc, events, factory, journal_let_go, run, until};
use crate::clock::{Clock, SECOND};
use crate::drivers::mock::Mock;
use crate::drivers::testing::staged;
use crate::drivers::{Driver, TaskConfig};
use crate::journal::alloc_key;
use drover_base::clock::unix_nanos;

pub(super) type Reported = Arc<Mutex<Option<Allocation>>>;

fn recorded(dir: &Path) -> (RunnerFactory, Script) {
    let mut factory = factory(dir);
    let script = Script::install(dir, &mut factory);
    (factory, script)
}

pub(super) fn stopped(given: &Allocation) -> Arc<Allocation> {
    Arc::new(Allocation {
        desired_status: "stop".into(),
        ..given.clone()
    })
}

pub(super) fn of_web(reported: &Reported) -> (String, Vec<String>) {
    let reported = reported.lock();
    let state = reported.as_ref().and_then(|a| a.task_states.get("web"));
    state.map_or_else(Default::default, |s| (s.state.clone(), events(s)))
}

/// Ends an agent as a graceful one does; what it held is free then.
async fn let_go(factory: RunnerFactory, runner: Arc<dyn crate::alloc_runner::AllocRunner>) {
    let left = tokio::time::timeout(drover_testkit::LONG, runner.detach()).await;
    left.expect("no hook holds up the end of the agent");
    drop(runner);
    journal_let_go(&factory).await;
}

const AT_THE_END: [&str; 4] = ["T1.stop", "T2.stop", "A1.postrun", "A2.postrun"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_27_tasks_wait_while_volumes_are_claimed_and_a_stop_ends_the_wait() {
    for stops in [false, true] {
        let tmp = tempfile::tempdir().unwrap();
        let (factory, script) = recorded(tmp.path());
        script.hold("A2.prerun");
        let given = alloc("batch", "mock_driver", json!({"run_for": "1ms"}));
        let reported = Reported::default();
        let runner = run(&factory, &given, &reported);
        until("the claim is held back", || script.has("A2.prerun")).await;
        runner.update(Arc::new(given.clone()));
        until("more than a step is made", || reported.lock().is_some()).await;
        assert_eq!(
            of_web(&reported),
            ("pending".into(), vec!["Received".into()])
        );
        assert_eq!(script.calls(), ["A1.prerun", "A2.prerun"]);
        if stops {
            runner.update(stopped(&given));
        } else {
            script.let_go("A2.prerun");
        }
        runner.done().wait_for(|done| *done).await.unwrap();
        let (state, events) = of_web(&reported);
        assert_eq!(state, "dead");
        let calls = script.calls();
        if stops {
            assert_eq!(events, ["Received", "Killing", "Killed"]);
            // Hooks of tasks do not wait for those of the allocation, but those at its end do.
            let dropped = calls.iter().position(|call| call == "A2.prerun dropped");
            let ended = calls.iter().position(|call| call == "A1.postrun");
            assert!(dropped.is_some() && dropped < ended, "{calls:?}");
            let rest = calls[2..]
                .iter()
                .filter(|call| *call != "A2.prerun dropped");
            let rest: Vec<_> = rest.cloned().collect();
            assert_eq!(rest, AT_THE_END, "each has its end all the same");
        } else {
            assert!(events.contains(&"Started".to_owned()), "{events:?}");
            let tasks: Vec<_> = calls
                .iter()
                .filter(|call| !call.contains(".update"))
                .collect();
            assert_eq!(tasks[2..4], ["T1.prestart", "T2.prestart"]);
            assert!(calls.ends_with(&AT_THE_END.map(String::from)), "{calls:?}");
        }
        runner.destroy().await;
        assert!(
            script
                .calls()
                .ends_with(&["A1.destroy".into(), "A2.destroy".into()])
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_23_an_agent_that_ends_drops_every_slow_hook_and_the_next_goes_on_there() {
    for held in [
        "A1.prerun",
        "T1.prestart",
        "T2.poststart",
        "T1.exited",
        "T2.stop",
        "A1.postrun",
    ] {
        let tmp = tempfile::tempdir().unwrap();
        let given = alloc("batch", "mock_driver", json!({"run_for": "300ms"}));
        let reported = Reported::default();
        let dropped = format!("{held} dropped");
        {
            let (factory, script) = recorded(tmp.path());
            script.hold(held);
            let runner = run(&factory, &given, &reported);
            until(held, || script.has(held)).await;
            let_go(factory, runner).await;
            assert_eq!(script.calls().last(), Some(&dropped));
            script.let_go(held);
        }
        let (factory, script) = recorded(tmp.path());
        let runner = run(&factory, &given, &reported);
        runner.done().wait_for(|done| *done).await.unwrap();
        let calls = script.calls();
        let after = calls.iter().skip_while(|call| **call != dropped).skip(1);
        let after: Vec<&str> = after.map(String::as_str).collect();
        let again = match held {
            // A task that runs is found again instead.
            "T2.poststart" => "T2.refound",
            other => other,
        };
        assert!(after.contains(&again), "{held}: {calls:?}");
        assert!(after.ends_with(&["A2.postrun"]), "{held}: {calls:?}");
        assert_eq!(of_web(&reported).0, "dead");
    }
}

/// Has more to do at the end than it can do there.
struct Undone(Arc<AtomicUsize>);

impl AllocHook for Undone {
    fn name(&self) -> &'static str {
        "undone"
    }

    fn postrun<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        self.0.fetch_add(1, Ordering::Relaxed);
        async { Ok(AllocAnswer::nothing()) }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_28_a_hook_that_is_not_done_at_the_end_is_called_there_by_the_next_agent_too() {
    let tmp = tempfile::tempdir().unwrap();
    let given = alloc("batch", "mock_driver", json!({"run_for": "1ms"}));
    let (calls, reported) = (Arc::<AtomicUsize>::default(), Reported::default());
    let agent = || {
        let (mut factory, hook) = (factory(tmp.path()), Arc::clone(&calls));
        let undone = move |_: &_, _: &_| {
            let hook = Undone(Arc::clone(&hook));
            Some(Box::new(hook) as Box<dyn AllocHook>)
        };
        factory.alloc_hooks.0.push(Arc::new(undone));
        let script = Script::install(tmp.path(), &mut factory);
        (factory, script)
    };
    {
        let (factory, script) = agent();
        script.hold("A1.postrun");
        let runner = run(&factory, &given, &reported);
        until("the next has its turn", || script.has("A1.postrun")).await;
        let_go(factory, runner).await;
        script.let_go("A1.postrun");
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let (factory, _script) = agent();
    let runner = run(&factory, &given, &reported);
    runner.done().wait_for(|done| *done).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_20_a_stop_drops_a_hook_that_prepares_and_restarts_leave_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let (factory, script) = recorded(tmp.path());
    script.hold("T1.prestart");
    let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let reported = Reported::default();
    let runner = run(&factory, &given, &reported);
    until("a hook hangs", || script.has("T1.prestart")).await;
    runner.update(stopped(&given));
    runner.done().wait_for(|done| *done).await.unwrap();
    let calls = script.calls();
    let first = calls.iter().position(|call| call == "T1.prestart dropped");
    let after: Vec<&str> = calls[first.unwrap() + 1..]
        .iter()
        .map(String::as_str)
        .collect();
    assert!(after.ends_with(&AT_THE_END), "{calls:?}");
    assert_eq!(
        of_web(&reported).1.last().map(String::as_str),
        Some("Killed")
    );
    runner.destroy().await;

    let tmp = tempfile::tempdir().unwrap();
    let factory = self::factory(tmp.path());
    let config = json!({"run_for": "1ms", "exit_code": 1});
    let mut given = alloc("batch", "mock_driver", config);
    let mut job = Job::clone(given.job.as_ref().unwrap());
    job.task_groups[0].restart_policy = Some(RestartPolicy {
        attempts: 300,
        interval: 3600 * SECOND,
        mode: "fail".into(),
        ..RestartPolicy::default()
    });
    given.job = Some(Arc::new(job));
    let before = Runtime::current().metrics().num_alive_tasks();
    let reported = Reported::default();
    let runner = run(&factory, &given, &reported);
    runner.done().wait_for(|done| *done).await.unwrap();
    assert_eq!(
        reported.lock().as_ref().unwrap().task_states["web"].restarts,
        300
    );
    let alive = || {
        let now = Runtime::current().metrics().num_alive_tasks();
        now.saturating_sub(before)
    };
    until("only the runner is left", || alive() <= 1).await;
    runner.destroy().await;
    until("nothing is left", || alive() == 0).await;
}

/// The task waits for a file; the allocation is stopped, or not, while no agent is there.
fn waiting(dir: &Path) -> Value {
    let script = format!("while [ ! -e {}/go ]; do sleep 0.02; done", dir.display());
    json!({"command": "/bin/sh", "args": ["-c", script]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_15_cl_17_what_a_restored_allocation_left_behind_has_its_hooks_called_once() {
    for ended_meanwhile in [true, false] {
        let tmp = tempfile::tempdir().unwrap();
        let given = alloc("service", "raw_exec", waiting(tmp.path()));
        let reported = Reported::default();
        {
            let (factory, script) = recorded(tmp.path());
            let runner = run(&factory, &given, &reported);
            until("it runs", || script.has("T2.poststart")).await;
            runner.detach().await;
            // The last thing this agent learns is that it is to end; nothing has come of it.
            let bytes = rmp_serde::to_vec_named(&*stopped(&given)).unwrap();
            let key = alloc_key(&given.id);
            factory.journal.put(&key, bytes).await.unwrap();
            drop(runner);
            journal_let_go(&factory).await;
        }
        if ended_meanwhile {
            std::fs::write(tmp.path().join("go"), b"").unwrap();
            let exit = tmp
                .path()
                .join("runs")
                .join(&given.id)
                .join("web/1/exit.json");
            until("it ended", || exit.exists()).await;
        }
        for life in 0..2 {
            let (factory, script) = recorded(tmp.path());
            let kept = factory.journal.load()[&alloc_key(&given.id)].clone();
            let kept: Allocation = rmp_serde::from_slice(&kept).unwrap();
            reported.lock().take();
            let runner = run(&factory, &kept, &reported);
            runner.done().wait_for(|done| *done).await.unwrap();
            until("it is reported", || reported.lock().is_some()).await;
            let (state, events) = of_web(&reported);
            let terminated = events.iter().filter(|kind| *kind == "Terminated");
            assert_eq!(
                (state.as_str(), terminated.count()),
                ("dead", 1),
                "{events:?}"
            );
            let calls = script.calls();
            let of_end = ["T1.exited", "T2.exited"].into_iter().chain(AT_THE_END);
            for call in of_end {
                let count = calls.iter().filter(|one| *one == call).count();
                assert_eq!(count, 1, "{call} in life {life}: {calls:?}");
            }
            let_go(factory, runner).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_26_what_is_stopped_before_its_beginning_begins_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let (factory, script) = recorded(tmp.path());
    let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let reported = Reported::default();
    let runner = run(&factory, &stopped(&given), &reported);
    runner.done().wait_for(|done| *done).await.unwrap();
    assert_eq!(script.calls(), AT_THE_END);
    let (_, events) = of_web(&reported);
    assert!(!events.contains(&"Task Setup".to_owned()), "{events:?}");
    assert!(!tmp.path().join("alloc").join(&given.id).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_21_cl_22_services_go_first_and_a_task_that_runs_again_is_told_to_hooks() {
    let tmp = tempfile::tempdir().unwrap();
    let clock = Arc::new(Mutex::new(unix_nanos()));
    let (mut factory, script) = recorded(tmp.path());
    factory.clock = Clock::Manual(Arc::clone(&clock));
    let mut given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let mut job = Job::clone(given.job.as_ref().unwrap());
    job.task_groups[0].shutdown_delay = Some(10 * SECOND);
    job.task_groups[0].services = vec![Service {
        name: "web".into(),
        provider: "nomad".into(),
        ..Service::default()
    }]
    .into();
    given.job = Some(Arc::new(job));
    let reported = Reported::default();
    let runner = run(&factory, &given, &reported);
    let offers = || factory.services.offers(&given.id);
    until("it runs and serves", || {
        script.has("T2.poststart") && offers() == 1
    })
    .await;
    let restart = runner.control().unwrap().restart(Some("web"), false);
    restart.await.unwrap();
    until("hooks know", || script.has("A2.restarted-web")).await;
    let restarted = script
        .calls()
        .iter()
        .filter(|c| c.contains("restarted"))
        .count();
    assert_eq!(restarted, 2, "each of the two, once");

    // The hook of services comes before the one that is held up; no task gets the request
    // meanwhile.
    script.hold("A1.pre_kill");
    runner.update(stopped(&given));
    until("what comes first is done", || script.has("A1.pre_kill")).await;
    assert_eq!(offers(), 0, "its services are gone");
    let is_killing = || of_web(&reported).1.contains(&"Killing".to_owned());
    assert!(!is_killing());
    script.let_go("A1.pre_kill");
    until("hooks are through", || script.has("A2.pre_kill")).await;
    // Only now its delay begins.
    runner.server_contacted();
    *clock.lock() += 9 * SECOND;
    runner.server_contacted();
    assert!(!is_killing());
    until("it is killed when the delay is over", || {
        *clock.lock() += SECOND;
        runner.server_contacted();
        is_killing()
    })
    .await;
    runner.done().wait_for(|done| *done).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_28_what_hooks_answered_reaches_every_start_after_them() {
    let tmp = tempfile::tempdir().unwrap();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let reported = Reported::default();
    for life in 1..=2 {
        let (mut factory, script) = recorded(tmp.path());
        let noted = Arc::clone(&starts);
        factory.drivers = staged(move |config: TaskConfig| {
            noted.lock().push(config.clone());
            Mock.start(config)
        });
        let runner = run(&factory, &given, &reported);
        until("it runs", || of_web(&reported).0 == "running").await;
        let restart = runner.control().unwrap().restart(None, false);
        restart.await.unwrap();
        until("it runs again", || starts.lock().len() == life + 1).await;
        for once in ["A1.prerun", "T1.prestart", "T2.prestart"] {
            let count = script.calls().iter().filter(|call| *call == once).count();
            assert_eq!(count, 1, "{once} is done");
        }
        reported.lock().take();
        let_go(factory, runner).await;
    }
    for start in starts.lock().iter() {
        // The second hook saw the first one's variable, five letters and a digit.
        let set = (start.env["T1"].as_str(), start.env["T2"].as_str());
        assert_eq!(set, ("A1+A25", "A1+A26"));
        let mounts: Vec<_> = start.mounts.iter().map(|m| m.task_path.clone()).collect();
        assert_eq!(mounts, [Path::new("T1"), Path::new("T2")]);
        assert_eq!(start.devices.len(), 2);
    }
    assert_eq!(starts.lock().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_28_an_update_comes_once_to_each_hook_of_the_allocation_and_its_tasks() {
    let tmp = tempfile::tempdir().unwrap();
    let (factory, script) = recorded(tmp.path());
    let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
    let reported = Reported::default();
    let runner = run(&factory, &given, &reported);
    until("it runs", || script.has("T2.poststart")).await;
    let updates = || {
        let calls = script.calls().into_iter();
        let mut updates: Vec<_> = calls.filter(|call| call.contains(".update")).collect();
        updates.sort();
        updates
    };
    assert!(updates().is_empty());
    runner.update(Arc::new(Allocation {
        alloc_modify_index: given.alloc_modify_index + 1,
        ..given.clone()
    }));
    let each = ["A1.update", "A2.update", "T1.update", "T2.update"];
    until("each hears of it", || updates() == each).await;
    // What stops it is no news of it.
    runner.update(stopped(&given));
    runner.done().wait_for(|done| *done).await.unwrap();
    assert_eq!(updates(), each);
    runner.destroy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_28_an_update_that_comes_while_hooks_prepare_comes_to_each_after_that() {
    for stops in [false, true] {
        let tmp = tempfile::tempdir().unwrap();
        let (factory, script) = recorded(tmp.path());
        script.hold("A2.prerun");
        let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
        let reported = Reported::default();
        let runner = run(&factory, &given, &reported);
        until("it is prepared", || script.has("A2.prerun")).await;
        for later in [1, 2] {
            runner.update(Arc::new(Allocation {
                alloc_modify_index: given.alloc_modify_index + later,
                ..given.clone()
            }));
        }
        until("more than a step is made", || reported.lock().is_some()).await;
        assert_eq!(script.calls(), ["A1.prerun", "A2.prerun"]);
        if !stops {
            script.let_go("A2.prerun");
            let hear = || script.has("A1.update") && script.has("A2.update");
            until("each hears of it", || hear() && script.has("T2.poststart")).await;
        }
        runner.update(stopped(&given));
        runner.done().wait_for(|done| *done).await.unwrap();
        let calls = script.calls();
        let updates = calls.iter().filter(|call| call.contains(".update"));
        let wanted: &[&str] = if stops {
            &[]
        } else {
            &["A1.update", "A2.update"]
        };
        assert_eq!(updates.collect::<Vec<_>>(), wanted, "once: {calls:?}");
        runner.destroy().await;
    }
}

/// Every call of an undisturbed life, in its order.
const LIFE: [&str; 12] = [
    "A1.prerun",
    "A2.prerun",
    "T1.prestart",
    "T2.prestart",
    "T1.poststart",
    "T2.poststart",
    "T1.exited",
    "T2.exited",
    "T1.stop",
    "T2.stop",
    "A1.postrun",
    "A2.postrun",
];

/// What calls of a life with a kill in it are, and how often.
fn check(killed_at: &str, calls: &[String]) {
    let plain = |call: &str| call.replace("refound", "poststart");
    let wanted = calls.iter().map(|call| plain(call));
    let wanted: Vec<String> = wanted.filter(|call| !call.contains("restore")).collect();
    let mut first = Vec::new();
    for call in &wanted {
        if !first.contains(call) {
            first.push(call.clone());
        }
    }
    assert_eq!(first, LIFE, "killed at {killed_at}: {calls:?}");
    // What it does while the task runs is done anew by every agent.
    for once in LIFE.iter().filter(|call| !call.ends_with("poststart")) {
        let count = wanted.iter().filter(|call| call == once).count();
        assert_eq!(count, 1, "{once}, killed at {killed_at}: {calls:?}");
    }
}

#[test]
fn cl_19_cl_28_an_agent_killed_between_any_two_hooks_goes_on_where_it_was() {
    for killed_at in LIFE {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        let command = format!(
            "echo \"$T1 $T2\" >> {0}/out; while [ ! -e {0}/up.T2 ]; do sleep 0.02; done",
            dir.display()
        );
        let config = json!({"command": "/bin/sh", "args": ["-c", command]});
        let given = alloc("batch", "raw_exec", config);
        std::fs::write(dir.join("given"), rmp_serde::to_vec_named(&given).unwrap()).unwrap();
        std::fs::write(dir.join("hooks"), b"").unwrap();
        let script = Script(dir.to_owned());
        script.die_at(killed_at);
        let deadline = Instant::now() + drover_testkit::LONG;
        let mut lives = 0;
        while !dir.join("final").exists() {
            assert!(
                Instant::now() < deadline,
                "{killed_at}: {:?}",
                script.calls()
            );
            lives += 1;
            Agent::spawn(dir).wait();
        }
        assert_eq!(lives, 2, "it was killed once, at {killed_at}");
        check(killed_at, &script.calls());
        // What was on the board is there for the hooks of another agent, and the task ran once.
        let out = std::fs::read_to_string(dir.join("out")).unwrap();
        assert_eq!(out, "A1+A25 A1+A26\n", "killed at {killed_at}");
    }
}
