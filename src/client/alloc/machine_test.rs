use std::collections::BTreeSet;

use drover_events::model::{Job, RestartPolicy, Task, TaskGroup, TaskLifecycleConfig};

use super::*;
use crate::clock::SECOND;
use crate::drivers::{ExitResult, Handle};
use crate::task::machine::PreparedTask;
#[path = "health_anew_test.rs"]
mod health_anew;
#[path = "limit_test.rs"]
mod limit;

/// Runs a whole allocation with a driver that starts everything at once.
struct Case {
    spec: AllocSpec,
    alloc: AllocMachine,
    now: i64,
    /// What was started, in order.
    starts: Vec<String>,
    /// The tasks whose end was requested, in order.
    stops: Vec<String>,
    postrun: usize,
}

fn task(kind: Kind) -> TaskSpec {
    TaskSpec {
        kind,
        leader: false,
        restart: RestartPolicy::default(),
        restart_on_success: kind.is_sidecar(),
        kill_timeout: 5 * SECOND,
        shutdown_delay: 0,
    }
}

impl Case {
    fn new(tasks: &[(&str, TaskSpec)]) -> Self {
        let tasks = tasks
            .iter()
            .map(|(n, t)| ((*n).to_owned(), t.clone()))
            .collect();
        let spec = AllocSpec {
            tasks,
            health: None,
            shutdown_delay: 0,
            max_run_duration: None,
        };
        let alloc = AllocMachine::new(&spec, 1, 0);
        Self {
            spec,
            alloc,
            now: 0,
            starts: vec![],
            stops: vec![],
            postrun: 0,
        }
    }

    fn begin(mut self) -> Self {
        let out = self.alloc.begin();
        assert_eq!(out, [Action::Prerun]);
        self.input(Input::PrerunDone(Ok(())));
        self
    }

    fn input(&mut self, input: Input) {
        self.now += SECOND;
        let mut todo = self.alloc.step(&self.spec, input, self.now);
        while !todo.is_empty() {
            match todo.remove(0) {
                Action::Task(name, TaskAction::Prepare { .. }) => {
                    let input = TaskInput::Prepared(Ok(PreparedTask::default()));
                    todo.extend(
                        self.alloc
                            .step(&self.spec, Input::Task(name, input), self.now),
                    );
                }
                Action::Task(name, TaskAction::Start { run }) => {
                    self.starts.push(name.clone());
                    let handle = Handle {
                        run,
                        started_at: self.now,
                        ..Handle::default()
                    };
                    let input = TaskInput::Started(Ok(handle));
                    todo.extend(
                        self.alloc
                            .step(&self.spec, Input::Task(name, input), self.now),
                    );
                }
                Action::Task(name, TaskAction::Stop) => self.stops.push(name),
                Action::Task(name, TaskAction::StopHooks) => {
                    let input = Input::Task(name, TaskInput::HooksStopped);
                    todo.extend(self.alloc.step(&self.spec, input, self.now));
                }
                Action::Task(name, TaskAction::Exited { .. }) => {
                    let input = Input::Task(name, TaskInput::ExitedDone);
                    todo.extend(self.alloc.step(&self.spec, input, self.now));
                }
                Action::PreKill => {
                    todo.extend(self.alloc.step(&self.spec, Input::PreKillDone, self.now));
                }
                Action::Postrun => {
                    self.postrun += 1;
                    todo.extend(self.alloc.step(&self.spec, Input::PostrunDone, self.now));
                }
                _ => {}
            }
        }
    }

    fn exit(&mut self, name: &str, exit_code: i32) {
        let exit = ExitResult {
            exit_code,
            ..ExitResult::default()
        };
        self.input(Input::Task(name.to_owned(), TaskInput::Exited(exit)));
    }

    fn events(&self, name: &str) -> Vec<&str> {
        self.alloc.tasks[name]
            .state
            .events
            .iter()
            .map(|e| e.r#type.as_str())
            .collect()
    }

    fn status(&self) -> &str {
        self.alloc.status().0.as_str()
    }
}

fn full() -> Case {
    Case::new(&[
        ("a-prep", task(Kind::PrestartOnce)),
        ("b-proxy", task(Kind::PrestartSidecar)),
        ("c-main", task(Kind::Main)),
        ("d-warm", task(Kind::PoststartOnce)),
        ("e-clean", task(Kind::Poststop)),
    ])
    .begin()
}

#[test]
fn cl_02_tasks_start_in_the_order_of_their_lifecycles() {
    let mut case = full();
    assert_eq!(case.starts, ["a-prep", "b-proxy"]);
    assert_eq!(case.status(), "running");
    case.exit("a-prep", 0);
    assert_eq!(case.starts[2..], ["c-main", "d-warm"]);
    case.exit("d-warm", 0);
    case.exit("c-main", 0);
    // Only the sidecar is left: it is requested to stop; then what comes at the end runs.
    assert_eq!(case.stops, ["b-proxy"]);
    assert!(case.events("b-proxy").contains(&"Main Tasks Dead"));
    case.exit("b-proxy", 0);
    assert_eq!(case.starts.last().unwrap(), "e-clean");
    case.exit("e-clean", 0);
    assert_eq!((case.status(), case.postrun), ("complete", 1));
    assert!(case.alloc.tasks.values().all(TaskMachine::has_ended));
}

#[test]
fn cl_03_a_failed_prestart_ends_the_group_and_poststop_runs() {
    let mut case = full();
    case.exit("a-prep", 1);
    assert_eq!(case.stops, ["b-proxy"]);
    assert!(case.events("c-main").contains(&"Sibling Task Failed"));
    case.exit("b-proxy", 0);
    assert_eq!(case.starts, ["a-prep", "b-proxy", "e-clean"]);
    case.exit("e-clean", 0);
    assert_eq!((case.status(), case.postrun), ("failed", 1));
}

#[test]
fn cl_11_the_leader_ends_the_others_and_goes_first_when_all_end() {
    let leader = TaskSpec {
        leader: true,
        ..task(Kind::Main)
    };
    let make = || {
        Case::new(&[
            ("boss", leader.clone()),
            ("hand", task(Kind::Main)),
            ("side", task(Kind::PoststartSidecar)),
        ])
        .begin()
    };
    let mut case = make();
    case.exit("boss", 0);
    assert_eq!(case.stops, ["hand"]);
    assert!(case.events("hand").contains(&"Leader Task Dead"));
    case.exit("hand", 0);
    assert_eq!(case.stops, ["hand", "side"]);

    let mut case = make();
    case.input(Input::Stop { no_delay: false });
    assert_eq!(case.stops, ["boss"]);
    case.exit("boss", 0);
    case.exit("hand", 0);
    case.exit("side", 0);
    assert_eq!(case.stops, ["boss", "hand", "side"]);
    assert_eq!((case.status(), case.postrun), ("complete", 1));
}

#[test]
fn cl_29_a_kill_names_what_ended_the_group() {
    for (leader, code, why) in [
        (false, 1, "Sibling Task Failed"),
        (true, 0, "Leader Task Dead"),
    ] {
        let boss = TaskSpec {
            leader,
            ..task(Kind::Main)
        };
        let case = Case::new(&[("boss", boss), ("hand", task(Kind::Main))]);
        let mut case = case.begin();
        case.exit("boss", code);
        let shown = &case.alloc.tasks["hand"].state.events;
        let killing = shown.iter().find(|e| e.r#type == "Killing").unwrap();
        assert_eq!(killing.kill_reason, why);
        assert_eq!(killing.display_message, why);
        assert_eq!(killing.details["kill_reason"], why);
    }
}

#[test]
fn cl_07_a_restart_of_all_tasks_keeps_their_order() {
    let mut case = full();
    case.exit("a-prep", 0);
    case.exit("d-warm", 0);
    case.starts.clear();
    case.input(Input::Restart {
        task: None,
        all: true,
    });
    // The one-shot runs at once; those that run are stopped and wait for their turn.
    assert_eq!(case.starts, ["a-prep"]);
    assert_eq!(case.stops, ["b-proxy", "c-main"]);
    case.exit("b-proxy", 0);
    case.exit("c-main", 0);
    case.input(Input::Tick);
    assert_eq!(case.starts, ["a-prep", "b-proxy"]);
    case.exit("a-prep", 0);
    assert_eq!(case.starts, ["a-prep", "b-proxy", "c-main", "d-warm"]);
}

#[test]
fn cl_01_tasks_are_blocked_and_let_go_again_any_number_of_times() {
    let mut case = full();
    for round in 0..4 {
        // The one-shot runs: the task after it is blocked, though it ran before.
        let main = &case.alloc.tasks["c-main"];
        assert!(!main.is_running(), "round {round}");
        assert_eq!(case.starts.first().unwrap(), "a-prep", "round {round}");
        assert!(!case.starts.contains(&"c-main".to_owned()), "round {round}");
        case.exit("a-prep", 0);
        assert_eq!(case.starts[case.starts.len() - 2..], ["c-main", "d-warm"]);
        case.exit("d-warm", 0);
        assert_eq!(case.alloc.stage, Stage::WaitAlloc, "round {round}");
        case.starts.clear();
        let (task, all) = (None, true);
        case.input(Input::Restart { task, all });
        assert_eq!(case.alloc.stage, Stage::Prestart, "round {round}");
        case.exit("c-main", 0);
        case.exit("b-proxy", 0);
        case.input(Input::Tick);
    }
    // And forward to the end all the same.
    case.exit("a-prep", 0);
    case.exit("d-warm", 0);
    case.exit("c-main", 0);
    case.exit("b-proxy", 0);
    assert_eq!(case.starts.last().unwrap(), "e-clean");
    assert_eq!(case.alloc.stage, Stage::Poststop);
}

#[test]
fn cl_05_a_restart_asks_all_that_run_at_once_and_waits_for_none_of_them() {
    let mut case = full();
    case.exit("a-prep", 0);
    let (task, all) = (None, false);
    case.input(Input::Restart { task, all });
    // No task has ended yet.
    assert_eq!(case.stops, ["b-proxy", "c-main", "d-warm"]);
    case.starts.clear();
    // The last that was requested ends first, and starts again while the others still end.
    case.exit("c-main", 0);
    case.input(Input::Tick);
    assert_eq!(case.starts, ["c-main"]);
}

#[test]
fn cl_06_a_plain_restart_is_for_running_tasks_only() {
    let mut case = full();
    case.exit("a-prep", 0);
    case.input(Input::Restart {
        task: None,
        all: false,
    });
    assert_eq!(case.stops, ["b-proxy", "c-main", "d-warm"]);
    assert!(case.alloc.tasks["a-prep"].is_dead());
}

#[test]
fn cl_08_a_dead_task_cannot_be_restarted_alone() {
    let mut case = full();
    case.exit("a-prep", 0);
    assert_eq!(
        case.alloc.may_restart(Some("a-prep")),
        Err("Task not running".into())
    );
    assert_eq!(case.alloc.may_restart(Some("c-main")), Ok(()));
    assert!(case.alloc.may_restart(Some("nope")).is_err());
}

#[test]
fn cl_11_a_thousand_batch_allocations_end_by_themselves() {
    for _ in 0..1000 {
        let mut case = Case::new(&[("work", task(Kind::Main))]).begin();
        case.exit("work", 0);
        assert_eq!((case.alloc.phase, case.postrun), (Phase::Done, 1));
        assert!(case.alloc.tasks["work"].has_ended());
    }
}

#[test]
fn cl_13_a_restored_allocation_goes_on_from_its_own_state() {
    let mut case = full();
    case.exit("a-prep", 0);
    let bytes = rmp_serde::to_vec_named(&case.alloc).unwrap();
    let mut restored: AllocMachine = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!(restored, case.alloc);
    let mut first = restored.begin().into_iter();
    assert_eq!(first.next(), Some(Action::Restore));
    let recovered: BTreeSet<String> = first
        .map(|a| match a {
            Action::Task(
                name,
                TaskAction::Recover {
                    handle: Some(_), ..
                },
            ) => name,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        recovered,
        ["b-proxy", "c-main", "d-warm"].map(String::from).into()
    );
}

#[test]
fn mod_03_a_failed_setup_fails_every_task() {
    let mut case = Case::new(&[("web", task(Kind::Main))]);
    case.alloc.begin();
    case.input(Input::PrerunDone(Err("no space".into())));
    assert_eq!((case.status(), case.postrun), ("failed", 1));
    let event = case.alloc.tasks["web"].state.events.last().unwrap().clone();
    assert_eq!(event.display_message, "failed to setup alloc: no space");
}

#[test]
fn mod_02_health_is_told_once_and_a_stop_is_no_verdict() {
    let mut case = Case::new(&[("web", task(Kind::Main))]);
    case.spec.health = Some(HealthSpec {
        min_healthy_time: 10 * SECOND,
        healthy_deadline: 60 * SECOND,
        deployment: true,
        checks: 0,
    });
    case.alloc.watch_health(true, 0);
    let mut case = case.begin();
    let at = case.alloc.wakes_at(&case.spec, case.now).unwrap();
    assert_eq!(at, case.now + 10 * SECOND);
    let fresh = case.alloc.clone();
    case.now = at;
    case.input(Input::Tick);
    let shown = case.alloc.deployment_status.clone().unwrap();
    assert_eq!((shown.healthy, shown.canary), (Some(true), true));
    assert_eq!(case.alloc.wakes_at(&case.spec, case.now), None);

    case.alloc = fresh;
    case.input(Input::Stop { no_delay: false });
    case.exit("web", 0);
    assert_eq!(case.alloc.deployment_status.unwrap().healthy, None);
}

#[test]
fn cl_22_services_go_before_the_delay_and_tasks_after_it() {
    let mut case = Case::new(&[("web", task(Kind::Main))]).begin();
    case.spec.shutdown_delay = 10 * SECOND;
    assert_eq!(case.alloc.serving(), Some(["web".to_owned()].into()));
    let requested = case.now + SECOND;
    case.input(Input::Stop { no_delay: false });
    assert_eq!(case.alloc.serving(), None);
    assert!(case.stops.is_empty());
    let wakes = case.alloc.wakes_at(&case.spec, case.now);
    assert_eq!(wakes, Some(requested + 10 * SECOND));
    for _ in 0..9 {
        case.input(Input::Tick);
    }
    assert!(case.stops.is_empty());
    case.input(Input::Tick);
    assert_eq!(case.stops, ["web"]);

    let mut hurried = Case::new(&[("web", task(Kind::Main))]).begin();
    hurried.spec.shutdown_delay = 10 * SECOND;
    hurried.input(Input::Stop { no_delay: true });
    assert_eq!(hurried.stops, ["web"]);
}

#[test]
fn chk_04_a_check_that_fails_again_begins_the_time_anew() {
    let mut case = Case::new(&[("web", task(Kind::Main))]).begin();
    case.spec.health = Some(HealthSpec {
        min_healthy_time: 5 * SECOND,
        healthy_deadline: 100 * SECOND,
        deployment: true,
        checks: 1,
    });
    let shown = |case: &Case| case.alloc.deployment_status.clone();
    let check = |good| Input::Check {
        id: "c".into(),
        good,
    };
    case.input(check(true));
    for _ in 0..3 {
        case.input(Input::Tick);
    }
    case.input(check(false));
    for _ in 0..9 {
        case.input(Input::Tick);
    }
    assert_eq!(shown(&case), None);
    case.input(check(true));
    for _ in 0..5 {
        case.input(Input::Tick);
    }
    assert_eq!(shown(&case).and_then(|s| s.healthy), Some(true));
}

/// The state of an allocation as the first release kept it, in hexadecimal: every later one goes
/// on from it. Never edited; a new form gets a file of its own.
const KEPT_1: &str = include_str!("testdata/kept_1.hex");

fn of_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn mod_16_the_state_that_the_first_release_kept_is_read() {
    let mut case = full();
    case.exit("a-prep", 0);
    case.exit("d-warm", 0);
    case.exit("c-main", 3);
    let kept = of_hex(KEPT_1);
    if kept.is_empty() {
        let bytes = rmp_serde::to_vec_named(&case.alloc).unwrap();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        panic!("there is no golden state; it would be {hex}");
    }
    let mut restored: AllocMachine = rmp_serde::from_slice(&kept).unwrap();
    assert_eq!(restored.tasks.len(), 5);
    assert_eq!(
        restored.tasks["c-main"].state,
        case.alloc.tasks["c-main"].state
    );
    assert_eq!(restored.stage, case.alloc.stage);
    assert_eq!(restored.status(), case.alloc.status());
    let recovered = restored
        .begin()
        .into_iter()
        .filter_map(|action| match action {
            Action::Task(name, TaskAction::Recover { handle, .. }) => {
                Some((name, handle.is_some()))
            }
            _ => None,
        });
    assert_eq!(
        recovered.collect::<Vec<_>>(),
        [("b-proxy".to_owned(), true)],
        "what ran is looked for, what waits for its restart is not"
    );
}

#[test]
fn a_group_of_sidecars_alone_lives_on() {
    let side = task(Kind::PrestartSidecar);
    let mut case = Case::new(&[("a-side", side.clone()), ("b-side", side)]).begin();
    case.input(Input::Tick);
    assert_eq!(case.starts, ["a-side", "b-side"]);
    assert_eq!(case.stops, [""; 0], "no main task is dead: there is none");
}

#[test]
fn who_is_being_stopped_is_not_restarted() {
    let mut case = full();
    case.exit("a-prep", 0);
    case.exit("d-warm", 0);
    case.input(Input::Stop { no_delay: true });
    let stage = case.alloc.stage;
    case.input(Input::Restart {
        task: None,
        all: true,
    });
    assert_eq!(case.alloc.stage, stage);
    case.starts.clear();
    case.exit("c-main", 0);
    case.exit("b-proxy", 0);
    assert_eq!(case.starts, ["e-clean"]);
}

#[test]
fn cl_29_tasks_run_again_after_a_good_end_by_their_kind_and_their_jobs() {
    let lifecycle = |hook: &str, sidecar| {
        Some(TaskLifecycleConfig {
            hook: hook.into(),
            sidecar,
        })
    };
    let named = |name: &str, lifecycle| Task {
        name: name.into(),
        lifecycle,
        ..Task::default()
    };
    let tasks = vec![
        named("main", None),
        named("once", lifecycle("prestart", false)),
        named("side", lifecycle("prestart", true)),
        named("last", lifecycle("poststop", false)),
    ];
    for (kind, main) in [("service", true), ("system", true), ("batch", false)] {
        let group = TaskGroup {
            name: "g".into(),
            tasks: tasks.clone().into(),
            ..TaskGroup::default()
        };
        let job = Job {
            r#type: kind.into(),
            task_groups: vec![group].into(),
            ..Job::default()
        };
        let alloc = Allocation {
            task_group: "g".into(),
            job: Some(std::sync::Arc::new(job)),
            ..Allocation::default()
        };
        let spec = AllocSpec::of(&alloc, 0).unwrap();
        let again = |name: &str| spec.tasks[name].restart_on_success;
        assert_eq!(
            ["main", "once", "side", "last"].map(again),
            [main, false, true, false],
            "{kind}"
        );
    }
}

#[test]
fn mod_02_tasks_are_told_that_their_deployment_fails() {
    let mut case = Case::new(&[("web", task(Kind::Main))]);
    case.spec.health = Some(HealthSpec {
        min_healthy_time: 10 * SECOND,
        healthy_deadline: 5 * SECOND,
        deployment: true,
        checks: 0,
    });
    case.alloc.watch_health(false, 0);
    let mut case = case.begin();
    for _ in 0..7 {
        case.input(Input::Tick);
    }
    let shown = case.alloc.deployment_status.as_ref();
    assert_eq!(shown.and_then(|shown| shown.healthy), Some(false));
    assert!(case.events("web").contains(&"Alloc Unhealthy"));
}
