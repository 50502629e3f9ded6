//! The runner with real processes, and its agent killed at any moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_config::Shared;
use drover_events::model::{Allocation, Job, Node, RestartPolicy, Task, TaskGroup, TaskState};
use drover_testkit::LONG;
use parking_lot::Mutex;
use serde_json::Value;

use super::runner::RunnerFactory;
use crate::alloc_runner::{AllocRunner, AllocRunnerFactory, Report};
use crate::clock::{Clock, Jitter, SECOND};
use crate::config::ClientSettings;
use crate::drivers::isolated::Exec;
use crate::drivers::raw_exec::{RawExec, Runs};
use crate::drivers::{Driver, Registry, mock::Mock};
use crate::executor::cgroup::{self, Parents};
use crate::executor::executor_test::{AGENT, launcher};
use crate::hooks::alloc::list::AllocHookList;
use crate::hooks::task::list::TaskHookList;
use crate::hooks::testing::Script;
use crate::journal::{LogJournal, alloc_key, state_key};
use crate::volumes::task::VolumeHook;

pub(crate) fn factory(dir: &Path) -> RunnerFactory {
    let settings = ClientSettings {
        alloc_dir: dir.join("alloc"),
        host_env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        ..ClientSettings::default()
    };
    let (journal, _) = LogJournal::open(&dir.join("journal")).unwrap();
    let raw: Arc<dyn Driver> = Arc::new(RawExec::new(true, launcher(), dir.join("runs")));
    let exec = cgroups(dir).map(|cgroups| isolated(dir, cgroups));
    let all = [raw, Arc::new(Mock)].into_iter().chain(exec);
    RunnerFactory {
        settings: Shared::new(settings),
        drivers: Registry::new(all, &BTreeMap::new()),
        journal: Arc::new(journal),
        services: Arc::default(),
        clock: Clock::System,
        node: Arc::new(Mutex::new(Arc::new(Node::default()))),
        alloc_hooks: AllocHookList::default(),
        task_hooks: TaskHookList::with(VolumeHook::maker()),
    }
}

/// The control groups that a test requested.
fn cgroups(dir: &Path) -> Option<Parents> {
    let name = std::fs::read_to_string(dir.join("cgroups")).ok()?;
    Some(Parents::of_host(&name))
}

fn isolated(dir: &Path, cgroups: Parents) -> Arc<dyn Driver> {
    let runs = Runs {
        launcher: launcher(),
        dir: dir.join("runs"),
        cgroups,
    };
    let config = drover_config::PluginConfig::default();
    let exec = Exec::new(&drover_config::ClientConfig::default(), &config, runs);
    Arc::new(exec.unwrap())
}

pub(crate) fn alloc(kind: &str, driver: &str, config: Value) -> Allocation {
    let Value::Object(config) = config else {
        panic!("a block")
    };
    let task = Task {
        name: "web".into(),
        driver: driver.into(),
        config: config.into_iter().collect(),
        kill_timeout: 1_000_000_000,
        ..Task::default()
    };
    let group = TaskGroup {
        name: "g".into(),
        tasks: vec![task].into(),
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
    Allocation {
        id: "11111111-2222-3333-4444-555555555555".into(),
        name: "j.g[0]".into(),
        job_id: "j".into(),
        task_group: "g".into(),
        desired_status: "run".into(),
        job: Some(Arc::new(job)),
        ..Allocation::default()
    }
}

/// Starts or restores the allocation; reports go to the cell.
pub(crate) fn run(
    factory: &RunnerFactory,
    alloc: &Allocation,
    reported: &Arc<Mutex<Option<Allocation>>>,
) -> Arc<dyn AllocRunner> {
    let reported = reported.clone();
    let report: Report = Arc::new(move |update| *reported.lock() = Some(update));
    let kept = factory.journal.load();
    let state = kept.get(&state_key(&alloc.id)).cloned();
    factory
        .start(Arc::new(alloc.clone()), state, Vec::new(), report)
        .unwrap()
}

pub(crate) fn runs(reported: &Mutex<Option<Allocation>>) -> bool {
    let reported = reported.lock();
    reported
        .as_ref()
        .is_some_and(|alloc| alloc.client_status == "running")
}

pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let look = || condition().then_some(()).ok_or("not yet");
    tokio::task::block_in_place(|| drover_testkit::wait_for(what, LONG, look)).unwrap();
}

/// Waits until the agent that has ended writes no more to its journal: the next one may have it.
pub(crate) async fn journal_let_go(factory: &RunnerFactory) {
    let look = || Arc::strong_count(&factory.journal) == 1;
    until("the journal is let go", look).await;
}

pub(crate) fn events(state: &TaskState) -> Vec<String> {
    state.events.iter().map(|e| e.r#type.clone()).collect()
}

/// The agent process of the tests below; never returns.
pub(crate) fn agent(dir: &Path) -> ! {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut factory = factory(dir);
        if dir.join("hooks").exists() {
            Script::install(dir, &mut factory);
        }
        let kept = factory.journal.load();
        let given: Allocation = match kept.get(&alloc_key("11111111-2222-3333-4444-555555555555")) {
            Some(bytes) => rmp_serde::from_slice(bytes).unwrap(),
            None => rmp_serde::from_slice(&std::fs::read(dir.join("given")).unwrap()).unwrap(),
        };
        let reported = Arc::new(Mutex::new(None));
        let runner = run(&factory, &given, &reported);
        runner.done().wait_for(|done| *done).await.unwrap();
        let last = reported.lock().clone().unwrap();
        std::fs::write(
            dir.join("final.tmp"),
            rmp_serde::to_vec_named(&last).unwrap(),
        )
        .unwrap();
        std::fs::rename(dir.join("final.tmp"), dir.join("final")).unwrap();
    });
    std::process::exit(0);
}

/// A process that is an agent; it is killed with this.
pub(crate) struct Agent(Child);

impl Agent {
    pub(crate) fn spawn(dir: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .env(AGENT, dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits for its own end.
    pub(crate) fn wait(mut self) {
        self.0.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn drv_08_cl_12_an_agent_killed_at_any_moment_starts_nothing_twice_and_loses_no_event() {
    killed_at_any_moment("raw_exec", 4);
}

#[test]
fn drv_08_cl_12_a_task_of_exec_is_found_again_by_an_agent_killed_at_any_moment() {
    if !nix::unistd::geteuid().is_root() {
        return drover_testkit::skip("the exec driver", "Driver must run as root");
    }
    killed_at_any_moment("exec", 2);
}

fn killed_at_any_moment(driver: &str, rounds: u32) {
    let mut chance = Jitter(20);
    for round in 0..rounds {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        let name = format!("drover-killed-{}-{round}", std::process::id());
        if driver == "exec" {
            std::fs::write(dir.join("cgroups"), &name).unwrap();
        }
        // Tasks of both drivers find it, each by its own path.
        let script = "echo run >> $NOMAD_ALLOC_DIR/data/starts; sleep 0.8; echo over; exit 7";
        let given = alloc(
            "batch",
            driver,
            serde_json::json!({"command": "/bin/sh", "args": ["-c", script]}),
        );
        let starts = dir.join(format!("alloc/{}/alloc/data/starts", given.id));
        std::fs::write(dir.join("given"), rmp_serde::to_vec_named(&given).unwrap()).unwrap();
        let deadline = Instant::now() + LONG;
        // A little longer every time: a busy machine needs more than that to start a process.
        let mut most = 100;
        while !dir.join("final").exists() {
            assert!(Instant::now() < deadline, "round {round} does not end");
            let agent = Agent::spawn(dir);
            most += 50;
            let life = Duration::from_millis(u64::try_from(chance.below(most)).unwrap());
            std::thread::park_timeout(life); // how long this agent is allowed to live
            drop(agent);
        }
        let last: Allocation =
            rmp_serde::from_slice(&std::fs::read(dir.join("final")).unwrap()).unwrap();
        let state = &last.task_states["web"];
        assert_eq!(
            std::fs::read_to_string(&starts).unwrap(),
            "run\n",
            "{:?}",
            events(state)
        );
        let counted: Vec<String> = events(state)
            .into_iter()
            .filter(|e| e != "Task Setup")
            .collect();
        assert_eq!(
            counted,
            ["Received", "Started", "Terminated", "Not Restarting"]
        );
        let exit = state
            .events
            .iter()
            .find(|e| e.r#type == "Terminated")
            .unwrap();
        assert_eq!((exit.exit_code, last.client_status.as_str()), (7, "failed"));
        let log = dir.join(format!("alloc/{}/alloc/logs/web.stdout.0", given.id));
        assert_eq!(std::fs::read_to_string(log).unwrap(), "over\n");
        for parent in cgroups(dir)
            .iter()
            .flat_map(|all| all.unified.iter().chain(all.v1.values()))
        {
            cgroup::remove(parent);
            assert!(!parent.exists(), "{} is left", parent.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_03_a_service_runs_is_signalled_and_stops() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let script = "trap 'echo usr' USR1; trap 'echo bye; exit 0' INT; \
                  echo up $NOMAD_ALLOC_INDEX ${NOMAD_TASK_NAME}; while :; do sleep 0.02; done";
    let config = serde_json::json!({"command": "/bin/sh", "args": ["-c", script]});
    let given = alloc("service", "raw_exec", config);
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    let status = || {
        reported
            .lock()
            .as_ref()
            .map(|a: &Allocation| a.client_status.clone())
    };
    until("it runs", || status().as_deref() == Some("running")).await;
    let log = tmp
        .path()
        .join(format!("alloc/{}/alloc/logs/web.stdout.0", given.id));
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    until("it is up", || text().contains("up 0 web")).await;
    let control = runner.control().unwrap();
    control.signal(Some("web"), "SIGUSR1").unwrap();
    until("the signal arrives", || text().contains("usr")).await;
    assert!(control.signal(Some("nope"), "SIGUSR1").is_err());
    control.sampled().await;
    let usage = control.stats(None).unwrap();
    assert!(usage.resource_usage.unwrap().memory_stats.unwrap().rss > 0);
    let usage = control.stats(Some("web")).unwrap();
    assert!(usage.tasks.contains_key("web"));

    let mut stop = given.clone();
    stop.desired_status = "stop".into();
    runner.update(Arc::new(stop));
    runner.done().wait_for(|done| *done).await.unwrap();
    assert_eq!(status().as_deref(), Some("complete"));
    assert!(text().ends_with("bye\n"), "{:?}", text());
    let state = reported.lock().clone().unwrap().task_states["web"].clone();
    let expected = [
        "Received",
        "Task Setup",
        "Started",
        "Signaling",
        "Killing",
        "Terminated",
        "Killed",
    ];
    assert_eq!(events(&state), expected);
    runner.destroy().await;
    assert!(!tmp.path().join("alloc").join(&given.id).exists());
    assert!(factory.journal.load().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_has_longer_to_end_than_its_node_gives() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let gives = |most: Duration| {
        let settings = &factory.settings;
        settings.update(|settings| settings.client.max_kill_timeout = most);
    };
    gives(Duration::from_millis(200));
    let script = "trap '' INT; echo up; while :; do sleep 0.02; done";
    let config = serde_json::json!({"command": "/bin/sh", "args": ["-c", script]});
    let mut given = alloc("service", "raw_exec", config);
    let job = Arc::make_mut(given.job.as_mut().unwrap());
    job.task_groups[0].tasks[0].kill_timeout = 3_600 * SECOND;
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    let log = format!("alloc/{}/alloc/logs/web.stdout.0", given.id);
    let text = || std::fs::read_to_string(tmp.path().join(&log)).unwrap_or_default();
    // It may have written before its client knows that it runs.
    until("it is up", || text() == "up\n" && runs(&reported)).await;
    let restarted = runner.control().unwrap().restart(Some("web"), false);
    let restarted = tokio::time::timeout(LONG, restarted).await;
    restarted.expect("it is killed").unwrap();
    until("it is up again", || text() == "up\nup\n").await;

    // What the node gives may change while a task runs.
    gives(Duration::from_millis(100));
    let mut stop = given.clone();
    stop.desired_status = "stop".into();
    runner.update(Arc::new(stop));
    let mut done = runner.done();
    let done = tokio::time::timeout(LONG, done.wait_for(|done| *done));
    done.await.expect("it is killed").unwrap();
    let last: Allocation = reported.lock().clone().unwrap();
    let shown = &last.task_states["web"].events;
    let killing = shown.iter().find(|event| event.r#type == "Killing");
    assert_eq!(killing.unwrap().kill_timeout, SECOND / 10);
    runner.destroy().await;
}

/// A shell fills neither in what is its own argument: it must come from us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn env_05_a_task_gets_what_its_configuration_names_and_runs_on_its_own_cores() {
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = |text: &str| -> Option<String> {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
        line.map(|list| list.trim().to_owned())
    };
    let list = allowed(&own).unwrap();
    let first = list.split(['-', ',']).next().unwrap().to_owned();
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let script = "echo \"$0 $1 end\"; grep Cpus_allowed_list /proc/self/status";
    let config = serde_json::json!({
        "command": "/bin/sh",
        "args": ["-c", script, "${NOMAD_TASK_NAME}", "${NOMAD_META_RACK}"],
    });
    let mut given = alloc("batch", "raw_exec", config);
    let job = Arc::make_mut(given.job.as_mut().unwrap());
    job.meta.insert("rack", "r7".to_owned());
    let mut resources = drover_events::model::AllocatedResources::default();
    let mut task = drover_events::model::AllocatedTaskResources::default();
    task.cpu.reserved_cores = vec![first.parse().unwrap()].into();
    resources.tasks.insert("web", task);
    given.allocated_resources = Some(resources);
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    runner.done().wait_for(|done| *done).await.unwrap();
    let log = format!("alloc/{}/alloc/logs/web.stdout.0", given.id);
    let text = std::fs::read_to_string(tmp.path().join(log)).unwrap();
    assert_eq!(text.lines().next(), Some("web r7 end"));
    assert_eq!(allowed(&text), Some(first), "{text}, of {list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_12_cl_13_a_finished_allocation_stays_finished_after_a_restart() {
    let tmp = tempfile::tempdir().unwrap();
    let config = serde_json::json!({"run_for": "20ms"});
    let given = alloc("batch", "mock_driver", config);
    let reported = Arc::new(Mutex::new(None));
    {
        let factory = factory(tmp.path());
        let runner = run(&factory, &given, &reported);
        runner.done().wait_for(|done| *done).await.unwrap();
        runner.detach().await;
        journal_let_go(&factory).await;
    }
    let before = reported.lock().take().unwrap();
    let factory = factory(tmp.path());
    let runner = run(&factory, &given, &reported);
    runner.done().wait_for(|done| *done).await.unwrap();
    until("it is reported again", || reported.lock().is_some()).await;
    assert_eq!(reported.lock().clone().unwrap(), before);
    assert_eq!(before.client_status, "complete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_03_what_this_client_cannot_run_is_refused_in_words() {
    let tmp = tempfile::tempdir().unwrap();
    let factory = factory(tmp.path());
    let given = alloc("batch", "docker", serde_json::json!({}));
    let reported = Arc::new(Mutex::new(None));
    let runner = run(&factory, &given, &reported);
    runner.done().wait_for(|done| *done).await.unwrap();
    let last = reported.lock().clone().unwrap();
    assert_eq!(last.client_status, "failed");
    let event = last.task_states["web"]
        .events
        .iter()
        .find(|e| e.r#type == "Failed Validation");
    assert!(event.unwrap().validation_error.contains("docker"));
}
