use super::*;
use crate::clock::SECOND;
use crate::hooks::task::TaskAnswer;

fn spec(attempts: i64) -> TaskSpec {
    TaskSpec {
        kind: Kind::Main,
        leader: false,
        restart: RestartPolicy {
            attempts,
            interval: 600 * SECOND,
            delay: 2 * SECOND,
            mode: "fail".into(),
            ..RestartPolicy::default()
        },
        restart_on_success: true,
        kill_timeout: 5 * SECOND,
        shutdown_delay: 0,
    }
}

/// A task under test with its time.
struct Case {
    spec: TaskSpec,
    task: TaskMachine,
    now: i64,
}

impl Case {
    fn new(spec: TaskSpec) -> Self {
        Self {
            spec,
            task: TaskMachine::new(1, 0),
            now: 0,
        }
    }

    fn step(&mut self, input: TaskInput) -> Vec<TaskAction> {
        self.now += SECOND;
        self.task.step(&self.spec, input, self.now)
    }

    fn handle(&self) -> Handle {
        Handle {
            run: self.task.run,
            started_at: self.now,
            ..Handle::default()
        }
    }

    fn run(mut self) -> Self {
        let first = self.step(TaskInput::Allow(true));
        assert_eq!(
            first,
            [TaskAction::Prepare {
                done: BTreeSet::new()
            }]
        );
        self.start();
        self
    }

    fn start(&mut self) {
        let run = self.task.run + 1;
        let out = self.step(TaskInput::Prepared(Ok(PreparedTask::default())));
        assert_eq!(out, [TaskAction::Start { run }]);
        let handle = self.handle();
        let poststart = TaskAction::Poststart { recovered: false };
        assert_eq!(self.step(TaskInput::Started(Ok(handle))), [poststart]);
        assert!(self.task.is_running());
    }

    fn exit(&mut self, exit_code: i32) -> Vec<TaskAction> {
        self.step(TaskInput::Exited(ExitResult {
            exit_code,
            ..ExitResult::default()
        }))
    }

    fn events(&self) -> Vec<&str> {
        self.task
            .state
            .events
            .iter()
            .map(|e| e.r#type.as_str())
            .collect()
    }
}

#[test]
fn cl_29_a_crash_is_restarted_and_then_fails() {
    let mut case = Case::new(spec(1)).run();
    let [TaskAction::Exited { exit }, TaskAction::Destroy { run: 1 }] = &case.exit(1)[..] else {
        panic!("its hooks first, then what the driver keeps");
    };
    assert_eq!(exit.exit_code, 1);
    assert_eq!(
        (case.task.state.state.as_str(), case.task.state.restarts),
        ("pending", 1)
    );
    let at = case.task.wakes_at().unwrap();
    assert_eq!(case.step(TaskInput::Tick), []);
    case.now = at;
    assert!(matches!(
        case.step(TaskInput::Tick)[..],
        [TaskAction::Prepare { .. }]
    ));
    case.start();
    case.exit(1);
    assert!(case.task.is_dead() && case.task.state.failed && !case.task.has_ended());
    let expected = [
        "Received",
        "Started",
        "Terminated",
        "Restarting",
        "Started",
        "Terminated",
        "Not Restarting",
    ];
    assert_eq!(case.events(), expected);
}

#[test]
fn cl_29_a_kill_waits_for_the_delay_and_then_stops() {
    let mut case = Case::new(TaskSpec {
        shutdown_delay: 3 * SECOND,
        ..spec(1)
    })
    .run();
    assert_eq!(case.step(TaskInput::Kill { no_delay: false }), []);
    case.now = case.task.wakes_at().unwrap();
    assert_eq!(case.step(TaskInput::Tick), [TaskAction::Stop]);
    case.exit(0);
    assert!(case.task.has_ended() && !case.task.state.failed);
    let expected = [
        "Received",
        "Started",
        "Killing",
        "Waiting for shutdown delay",
        "Terminated",
        "Killed",
    ];
    assert_eq!(case.events(), expected);
    let text = &case.task.state.events[2].display_message;
    assert_eq!(text, "Sent interrupt. Waiting 5s before force killing");
}

#[test]
fn cl_10_restart_and_force_restart() {
    let mut case = Case::new(spec(0)).run();
    let restart = |force| TaskInput::Restart {
        force,
        reason: "asked".to_owned(),
    };
    assert_eq!(case.step(restart(false)), [TaskAction::Stop]);
    case.exit(1);
    assert_eq!(case.task.state.state, "pending");
    assert!(matches!(
        case.step(TaskInput::Tick)[..],
        [TaskAction::Prepare { .. }]
    ));
    case.start();
    case.exit(1);
    assert!(case.task.is_dead());
    assert_eq!(case.step(restart(false)), []);
    assert!(case.task.is_dead());
    case.step(restart(true));
    assert_eq!(case.task.phase, Phase::Waiting);
    assert!(matches!(
        case.step(TaskInput::Allow(true))[..],
        [TaskAction::Prepare { .. }]
    ));
}

#[test]
fn cl_12_a_task_that_ended_cleanly_never_runs_again() {
    let mut case = Case::new(spec(5)).run();
    case.step(TaskInput::Kill { no_delay: false });
    case.exit(0);
    assert!(case.task.has_ended());
    let bytes = rmp_serde::to_vec_named(&case.task).unwrap();
    let mut restored: TaskMachine = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!(restored, case.task);
    // What follows its end may have to be done once more; nothing else is.
    assert!(matches!(
        restored.restore()[..],
        [TaskAction::Exited { .. }]
    ));
    case.task = restored;
    case.step(TaskInput::Allow(true));
    case.step(TaskInput::Restart {
        force: true,
        reason: String::new(),
    });
    assert!(case.task.has_ended());
}

#[test]
fn cl_14_restoring_a_dead_task_kills_nothing() {
    let mut case = Case::new(spec(0)).run();
    case.exit(1);
    assert!(case.task.is_dead());
    let before = case.events().len();
    // But for the hooks after its end, until they are through.
    assert!(matches!(
        case.task.restore()[..],
        [TaskAction::Exited { .. }]
    ));
    case.step(TaskInput::ExitedDone);
    assert_eq!(case.task.restore(), []);
    case.step(TaskInput::Kill { no_delay: true });
    assert!(case.task.has_ended());
    assert_eq!(case.events().len(), before);
}

#[test]
fn drv_08_an_agent_that_died_while_starting_finds_the_task_or_starts_it_once_more() {
    let mut case = Case::new(spec(1));
    case.step(TaskInput::Allow(true));
    case.step(TaskInput::Prepared(Ok(PreparedTask::default())));
    let starting = case.task.clone();
    let recover = [TaskAction::Recover {
        run: 1,
        handle: None,
    }];

    // It had started: the event is reported now, once.
    assert_eq!(case.task.restore(), recover);
    let handle = case.handle();
    case.step(TaskInput::Recovered(TaskRecovery::Live(handle)));
    assert_eq!(case.events(), ["Received", "Started"]);
    assert!(case.task.is_running());

    // It had started and ended.
    case.task = starting.clone();
    case.task.restore();
    case.step(TaskInput::Recovered(TaskRecovery::Exited(ExitResult {
        exit_code: 3,
        ..ExitResult::default()
    })));
    assert_eq!(
        case.events(),
        ["Received", "Started", "Terminated", "Restarting"]
    );

    // It had not: the next attempt has another number.
    case.task = starting;
    case.task.restore();
    case.step(TaskInput::Recovered(TaskRecovery::Nothing));
    case.step(TaskInput::Allow(true));
    let out = case.step(TaskInput::Prepared(Ok(PreparedTask::default())));
    assert_eq!(out, [TaskAction::Start { run: 2 }]);
}

#[test]
fn cl_13_what_was_being_prepared_when_the_agent_ended_is_prepared_again() {
    let mut case = Case::new(spec(1));
    let prepare = [TaskAction::Prepare {
        done: BTreeSet::new(),
    }];
    assert_eq!(case.step(TaskInput::Allow(true)), prepare);
    assert_eq!(case.task.restore(), []);
    // By the coordinator's word, as at first.
    assert_eq!(case.step(TaskInput::Allow(true)), prepare);
    case.start();
}

#[test]
fn cl_13_a_task_that_cannot_be_found_waits_for_the_servers() {
    let failed = TaskRecovery::NotStarted(StartError::fatal("no executor"));
    for found in [TaskRecovery::Nothing, failed] {
        let mut case = Case::new(spec(1)).run();
        let handle = case.task.restore();
        assert!(matches!(
            handle[..],
            [TaskAction::Recover {
                run: 1,
                handle: Some(_)
            }]
        ));
        // Its end was not seen: what hooks hold of that run goes.
        assert!(matches!(
            case.step(TaskInput::Recovered(found))[..],
            [TaskAction::Exited { .. }]
        ));
        assert_eq!(case.step(TaskInput::Allow(true)), []);
        assert_eq!(*case.events().last().unwrap(), "Failed Restoring Task");
        assert!(matches!(
            case.step(TaskInput::ServerContacted)[..],
            [TaskAction::Prepare { .. }]
        ));
    }
}

#[test]
fn cl_13_what_was_to_start_again_when_the_agent_ended_is_allowed_to_anew() {
    let mut case = Case::new(spec(1)).run();
    case.exit(1);
    case.task.restore();
    case.now = case.task.wakes_at().unwrap();
    assert_eq!(case.step(TaskInput::Tick), []);
    assert!(matches!(
        case.step(TaskInput::Allow(true))[..],
        [TaskAction::Prepare { .. }]
    ));
}

#[test]
fn cl_29_a_hook_that_fails_before_a_start_is_a_start_that_failed() {
    for recoverable in [true, false] {
        let mut case = Case::new(spec(1));
        case.step(TaskInput::Allow(true));
        let failed = TaskInput::Prepared(Err(HookError {
            hook: "one".to_owned(),
            message: "no".to_owned(),
            recoverable,
        }));
        assert_eq!(case.step(failed), []);
        assert_eq!(case.task.wakes_at().is_some(), recoverable);
        assert_eq!(case.task.is_dead(), !recoverable);
    }
}

#[test]
fn cl_28_nothing_is_kept_of_a_hook_that_is_done_and_answers_nothing_else() {
    let mut case = Case::new(spec(1));
    let note = |hook: &str, answer: TaskAnswer| TaskNote {
        hook: hook.to_owned(),
        answer,
    };
    let plain = note("plain", TaskAnswer::done());
    let kept = note(
        "kept",
        TaskAnswer {
            kept: "something".into(),
            ..TaskAnswer::done()
        },
    );
    case.step(TaskInput::HooksAnswered(vec![plain, kept.clone()]));
    assert_eq!(case.task.notes(), [kept]);
    let done: Vec<&String> = case.task.hooks_done.iter().collect();
    assert_eq!(done, ["kept", "plain"]);
}

#[test]
fn cl_16_a_stop_under_way_is_asked_for_again_after_a_restart() {
    let mut case = Case::new(spec(1)).run();
    assert_eq!(
        case.step(TaskInput::Kill { no_delay: false }),
        [TaskAction::Stop]
    );
    case.task.restore();
    let handle = case.handle();
    assert_eq!(
        case.step(TaskInput::Recovered(TaskRecovery::Live(handle))),
        [TaskAction::Poststart { recovered: true }, TaskAction::Stop]
    );
    case.exit(0);
    assert!(case.task.has_ended());
}

#[test]
fn cl_29_a_kill_during_the_start_waits_for_the_driver() {
    let mut case = Case::new(spec(1));
    case.step(TaskInput::Allow(true));
    case.step(TaskInput::Prepared(Ok(PreparedTask::default())));
    assert_eq!(case.step(TaskInput::Kill { no_delay: false }), []);
    let handle = case.handle();
    assert_eq!(
        case.step(TaskInput::Started(Ok(handle))),
        [TaskAction::Stop]
    );
}

#[test]
fn cl_29_a_stop_that_fails_is_tried_again_and_then_given_up() {
    let mut case = Case::new(spec(1)).run();
    case.step(TaskInput::Kill { no_delay: false });
    for _ in 0..4 {
        case.step(TaskInput::StopFailed("no answer".into()));
        case.now = case.task.wakes_at().unwrap();
        assert_eq!(case.step(TaskInput::Tick), [TaskAction::Stop]);
    }
    case.step(TaskInput::StopFailed("no answer".into()));
    assert!(case.task.has_ended() && case.task.state.failed);
    assert_eq!(
        case.task.state.events.last().unwrap().kill_error,
        "no answer"
    );
}

#[test]
fn cl_29_ten_events_are_kept() {
    let mut case = Case::new(spec(1));
    for i in 0..20 {
        case.step(TaskInput::Event(events::message(
            "Driver",
            i,
            i.to_string(),
        )));
    }
    assert_eq!(case.task.state.events.len(), events::MAX_EVENTS);
    assert_eq!(case.task.state.events[9].message, "19");
}

#[test]
fn chk_08_an_unhealthy_task_is_restarted_as_its_policy_says() {
    let mut case = Case::new(spec(1)).run();
    let requested = case.step(TaskInput::Unhealthy("bad".into()));
    assert!(matches!(requested[..], [TaskAction::Stop]));
    case.exit(0);
    assert!(matches!(case.task.phase, Phase::Backoff(_)));

    let mut spent = Case::new(spec(0)).run();
    spent.step(TaskInput::Unhealthy("bad".into()));
    spent.exit(0);
    assert!(spent.task.is_dead() && spent.task.state.failed);
}

/// The last events of a task: type, and what it says of it.
fn last(case: &Case, n: usize) -> Vec<(String, String)> {
    let events = &case.task.state.events;
    let reported = |e: &TaskEvent| (e.r#type.clone(), e.display_message.clone());
    events.iter().skip(events.len() - n).map(reported).collect()
}

fn expect(case: &Case, wanted: &[(&str, &str)]) {
    let reported = last(case, wanted.len());
    for ((kind, text), (wanted_kind, wanted_text)) in reported.iter().zip(wanted) {
        assert_eq!(kind, wanted_kind, "{reported:#?}");
        assert!(
            text.starts_with(wanted_text),
            "{text:?} is not {wanted_text:?}"
        );
    }
}

#[test]
fn cl_29_every_form_of_restart_says_why_and_how() {
    // By its policy.
    let mut case = Case::new(spec(1)).run();
    case.exit(3);
    let within = [
        ("Terminated", "Exit Code: 3"),
        ("Restarting", "Restart within policy - Task restarting in 2"),
    ];
    expect(&case, &within);
    let event = case.task.state.events.iter().last().unwrap();
    assert_eq!(event.restart_reason, "Restart within policy");
    assert_eq!(event.details["start_delay"], event.start_delay.to_string());

    // Beyond it, in mode "fail".
    case.now = case.task.wakes_at().unwrap();
    case.step(TaskInput::Tick);
    case.start();
    case.exit(3);
    let text = "Exceeded allowed attempts 1 in interval 10m0s and mode is \"fail\"";
    expect(&case, &[("Not Restarting", text)]);
    assert!(case.task.state.events.iter().last().unwrap().fails_task);

    // Beyond it, in mode "delay".
    let mut delay = spec(1);
    delay.restart.mode = "delay".into();
    let mut case = Case::new(delay).run();
    case.exit(3);
    case.now = case.task.wakes_at().unwrap();
    case.step(TaskInput::Tick);
    case.start();
    case.exit(3);
    let text = "Exceeded allowed attempts, applying a delay - Task restarting in";
    expect(&case, &[("Restarting", text)]);

    // Without any attempts.
    let mut case = Case::new(spec(0)).run();
    case.exit(3);
    expect(&case, &[("Not Restarting", "Policy allows no restarts")]);

    // As a user requests it.
    let mut case = Case::new(spec(0)).run();
    case.step(TaskInput::Restart {
        force: false,
        reason: "User requested task to restart".into(),
    });
    case.exit(0);
    let requested = [
        ("Restart Signaled", "User requested task to restart"),
        ("Terminated", "Exit Code: 0"),
        ("Restarting", "Task restarting in 0s"),
    ];
    expect(&case, &requested);
}

#[test]
fn cl_29_a_kill_says_how_it_was_done() {
    let mut case = Case::new(spec(0)).run();
    case.step(TaskInput::Kill { no_delay: false });
    case.step(TaskInput::Exited(ExitResult {
        exit_code: 137,
        signal: 9,
        error: "the executor was killed".into(),
        ..ExitResult::default()
    }));
    let killed = [
        ("Killing", "Sent interrupt. Waiting 5s before force killing"),
        (
            "Terminated",
            "Exit Code: 137, Signal: 9, Exit Message: \"the executor was killed\"",
        ),
        ("Killed", "Task successfully killed"),
    ];
    expect(&case, &killed);
    let end = &case.task.state.events[3];
    assert_eq!((end.exit_code, end.signal), (137, 9));
    assert_eq!(end.details["exit_code"], "137");
    assert_eq!(end.details["signal"], "9");
}

#[test]
fn cl_10_a_kill_overtakes_a_restart_that_is_under_way() {
    let mut case = Case::new(spec(1)).run();
    let restart = TaskInput::Restart {
        force: false,
        reason: "asked".into(),
    };
    assert_eq!(case.step(restart), [TaskAction::Stop]);
    assert_eq!(case.step(TaskInput::Kill { no_delay: false }), []);
    case.exit(0);
    assert!(case.task.has_ended() && case.task.is_dead());
    assert_eq!(case.task.state.restarts, 0);
}

#[test]
fn cl_29_a_kill_before_the_task_runs_is_told_once() {
    let mut case = Case::new(spec(1));
    case.step(TaskInput::Allow(true));
    for _ in 0..3 {
        let dropped = case.step(TaskInput::Kill { no_delay: false });
        // What prepares it is dropped, once.
        let first = case.events().len() == 3 && dropped == [TaskAction::Interrupt];
        assert!(first || dropped.is_empty(), "{dropped:?}");
    }
    let reported = case.events();
    let killing = reported.iter().filter(|kind| **kind == "Killing");
    assert_eq!(killing.count(), 1, "{reported:?}");
}

#[test]
fn cl_10_a_dead_task_that_is_restarted_by_force_knows_when_and_why() {
    let mut case = Case::new(spec(0)).run();
    case.exit(1);
    assert!(case.task.is_dead() && case.task.state.failed);
    let restart = |reason: &str| TaskInput::Restart {
        force: true,
        reason: reason.into(),
    };
    case.step(restart("asked"));
    let state = &case.task.state;
    assert_eq!((state.restarts, state.failed), (1, false));
    assert_eq!(state.last_restart.nanos(), case.now);
    let is_signal = |event: &&TaskEvent| event.r#type == "Restart Signaled";
    let event = state.events.iter().find(is_signal).expect("it is reported");
    assert_eq!(event.restart_reason, "asked");
    let detail = event.details.get("restart_reason");
    assert_eq!(detail.map(String::as_str), Some("asked"));
    let plain = events::restart_signal(1, "");
    assert_eq!(plain.display_message, "Task signaled to restart");
    assert_eq!(plain.details.get("restart_reason"), None);
}
