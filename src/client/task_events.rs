//! Task events and what they say to a reader.

use drover_events::gojson::format_duration;
use drover_events::model::TaskEvent;

use crate::drivers::ExitResult;

/// `TaskEvent.Type`.
#[allow(missing_docs, reason = "the text says it")]
pub mod kind {
    pub const RECEIVED: &str = "Received";
    pub const SETUP: &str = "Task Setup";
    pub const SETUP_FAILURE: &str = "Setup Failure";
    pub const FAILED_VALIDATION: &str = "Failed Validation";
    pub const DRIVER_FAILURE: &str = "Driver Failure";
    pub const STARTED: &str = "Started";
    pub const SIGNALING: &str = "Signaling";
    pub const RESTART_SIGNAL: &str = "Restart Signaled";
    pub const KILLING: &str = "Killing";
    pub const KILLED: &str = "Killed";
    pub const TERMINATED: &str = "Terminated";
    pub const RESTARTING: &str = "Restarting";
    pub const NOT_RESTARTING: &str = "Not Restarting";
    pub const SIBLING_FAILED: &str = "Sibling Task Failed";
    pub const LEADER_DEAD: &str = "Leader Task Dead";
    pub const MAIN_DEAD: &str = "Main Tasks Dead";
    pub const HOOK_FAILED: &str = "Task hook failed";
    pub const HOOK_MESSAGE: &str = "Task hook message";
    pub const FAILED_RESTORE: &str = "Failed Restoring Task";
    pub const RECONNECTED: &str = "Reconnected";
    pub const WAITING_SHUTDOWN_DELAY: &str = "Waiting for shutdown delay";
    pub const SKIPPING_SHUTDOWN_DELAY: &str = "Skipping shutdown delay";
    pub const ALLOC_UNHEALTHY: &str = "Alloc Unhealthy";
}

/// How many events a task keeps; the oldest go.
pub const MAX_EVENTS: usize = 10;

fn event(kind: &str, now: i64, display: impl Into<String>) -> TaskEvent {
    TaskEvent {
        r#type: kind.to_owned(),
        time: now,
        display_message: display.into(),
        details: drover_events::gojson::Map::empty(),
        ..TaskEvent::default()
    }
}

fn detail(mut event: TaskEvent, key: &str, value: impl Into<String>) -> TaskEvent {
    event.details.insert(key, value.into());
    event
}

/// An event that is its message.
pub fn message(kind: &str, now: i64, text: impl Into<String>) -> TaskEvent {
    let text = text.into();
    let event = detail(event(kind, now, text.clone()), "message", text.clone());
    TaskEvent {
        message: text,
        ..event
    }
}

/// The client has the task.
pub fn received(now: i64) -> TaskEvent {
    event(kind::RECEIVED, now, "Task received by client")
}

/// Its directory is being made.
pub fn setup(now: i64) -> TaskEvent {
    message(kind::SETUP, now, "Building Task Directory")
}

/// It runs.
pub fn started(now: i64) -> TaskEvent {
    event(kind::STARTED, now, "Task started by client")
}

/// What surrounds the task could not be made.
pub fn setup_failure(now: i64, error: &str) -> TaskEvent {
    let event = event(kind::SETUP_FAILURE, now, error);
    let event = detail(event, "fails_task", "true");
    let event = detail(event, "setup_error", error);
    TaskEvent {
        fails_task: true,
        setup_error: error.to_owned(),
        ..event
    }
}

/// The task's own text is wrong.
pub fn failed_validation(now: i64, error: &str) -> TaskEvent {
    let event = detail(
        event(kind::FAILED_VALIDATION, now, error),
        "validation_error",
        error,
    );
    TaskEvent {
        fails_task: true,
        validation_error: error.to_owned(),
        ..event
    }
}

/// The driver could not start it.
pub fn driver_failure(now: i64, error: &str) -> TaskEvent {
    let event = detail(
        event(kind::DRIVER_FAILURE, now, error),
        "driver_error",
        error,
    );
    TaskEvent {
        driver_error: error.to_owned(),
        ..event
    }
}

pub fn hook_failed(now: i64, hook: &str, error: &str) -> TaskEvent {
    message(kind::HOOK_FAILED, now, format!("{hook}: {error}"))
}

/// A hook has something to say.
pub fn hook_message(now: i64, hook: &str, text: &str) -> TaskEvent {
    message(kind::HOOK_MESSAGE, now, format!("{hook}: {text}"))
}

/// A signal is on its way.
pub fn signaling(now: i64, signal: &str, reason: &str) -> TaskEvent {
    let mut text = format!("Task being sent signal {signal}");
    if !reason.is_empty() {
        text = format!("{text}: {reason}");
    }
    let mut event = detail(event(kind::SIGNALING, now, text), "signal", signal);
    if !reason.is_empty() {
        event = detail(event, "task_signal_reason", reason);
    }
    TaskEvent {
        task_signal: signal.to_owned(),
        task_signal_reason: reason.to_owned(),
        ..event
    }
}

/// A restart was requested.
pub fn restart_signal(now: i64, reason: &str) -> TaskEvent {
    let text = if reason.is_empty() {
        "Task signaled to restart"
    } else {
        reason
    };
    let mut event = event(kind::RESTART_SIGNAL, now, text);
    if !reason.is_empty() {
        event = detail(event, "restart_reason", reason);
    }
    TaskEvent {
        restart_reason: reason.to_owned(),
        ..event
    }
}

/// The events that a task gets before it is killed for the sake of its group.
const GROUP_ENDS: [&str; 3] = [kind::SIBLING_FAILED, kind::LEADER_DEAD, kind::MAIN_DEAD];

/// Why a task is killed, from its events before; empty where its end was requested.
pub fn kill_reason(events: &[TaskEvent]) -> &'static str {
    let of = |event: &TaskEvent| GROUP_ENDS.into_iter().find(|kind| *kind == event.r#type);
    events.iter().rev().find_map(of).unwrap_or_default()
}

/// It is requested to end, for a reason if there is one; `timeout` in nanoseconds.
pub fn killing(now: i64, timeout: i64, reason: &str) -> TaskEvent {
    let wait = format_duration(timeout);
    let text = match reason {
        "" => format!("Sent interrupt. Waiting {wait} before force killing"),
        reason => reason.to_owned(),
    };
    let mut event = detail(event(kind::KILLING, now, text), "kill_timeout", wait);
    if !reason.is_empty() {
        event = detail(event, "kill_reason", reason);
    }
    TaskEvent {
        kill_timeout: timeout,
        kill_reason: reason.to_owned(),
        ..event
    }
}

/// It ended because that was requested.
pub fn killed(now: i64, error: &str) -> TaskEvent {
    let text = if error.is_empty() {
        "Task successfully killed"
    } else {
        error
    };
    let mut event = event(kind::KILLED, now, text);
    if !error.is_empty() {
        event = detail(event, "kill_error", error);
    }
    TaskEvent {
        kill_error: error.to_owned(),
        ..event
    }
}

/// It ended, and how.
pub fn terminated(now: i64, exit: &ExitResult) -> TaskEvent {
    let mut text = format!("Exit Code: {}", exit.exit_code);
    if exit.signal != 0 {
        text = format!("{text}, Signal: {}", exit.signal);
    }
    if !exit.error.is_empty() {
        text = format!("{text}, Exit Message: {:?}", exit.error);
    }
    let mut event = event(kind::TERMINATED, now, text);
    event = detail(event, "exit_code", exit.exit_code.to_string());
    event = detail(event, "signal", exit.signal.to_string());
    event = detail(event, "oom_killed", exit.oom_killed.to_string());
    if !exit.error.is_empty() {
        event = detail(event, "exit_message", &exit.error);
    }
    TaskEvent {
        exit_code: exit.exit_code.into(),
        signal: exit.signal.into(),
        message: exit.error.clone(),
        ..event
    }
}

/// It is started again after `delay` nanoseconds.
pub fn restarting(now: i64, reason: &str, delay: i64) -> TaskEvent {
    let mut text = format!("Task restarting in {}", format_duration(delay));
    if !reason.is_empty() {
        text = format!("{reason} - {text}");
    }
    let event = detail(event(kind::RESTARTING, now, text), "restart_reason", reason);
    let event = detail(event, "start_delay", delay.to_string());
    TaskEvent {
        restart_reason: reason.to_owned(),
        start_delay: delay,
        ..event
    }
}

/// It is not started again, and has failed.
pub fn not_restarting(now: i64, reason: &str) -> TaskEvent {
    let event = detail(
        event(kind::NOT_RESTARTING, now, reason),
        "restart_reason",
        reason,
    );
    let event = detail(event, "fails_task", "true");
    TaskEvent {
        restart_reason: reason.to_owned(),
        fails_task: true,
        ..event
    }
}

/// Another task of the group failed.
pub fn sibling_failed(now: i64, sibling: &str) -> TaskEvent {
    let text = format!("Task's sibling {sibling:?} failed");
    let event = detail(
        event(kind::SIBLING_FAILED, now, text),
        "failed_sibling",
        sibling,
    );
    TaskEvent {
        failed_sibling: sibling.to_owned(),
        ..event
    }
}

/// The group's leader is dead.
pub fn leader_dead(now: i64) -> TaskEvent {
    event(kind::LEADER_DEAD, now, "Leader Task in Group dead")
}

/// No main task is left.
pub fn main_dead(now: i64) -> TaskEvent {
    event(kind::MAIN_DEAD, now, "Main tasks in the group died")
}

/// The client is back.
pub fn reconnected(now: i64) -> TaskEvent {
    event(kind::RECONNECTED, now, "Client reconnected")
}

/// The end waits for `delay` nanoseconds.
pub fn waiting_shutdown_delay(now: i64, delay: i64) -> TaskEvent {
    let text = format!(
        "Waiting for shutdown_delay of {} before killing the task.",
        format_duration(delay)
    );
    message(kind::WAITING_SHUTDOWN_DELAY, now, text)
}

/// The end does not wait, though it should.
pub fn skipping_shutdown_delay(now: i64, delay: i64) -> TaskEvent {
    let text = format!(
        "Skipping shutdown_delay of {} before killing the task.",
        format_duration(delay)
    );
    message(kind::SKIPPING_SHUTDOWN_DELAY, now, text)
}

/// The client lost its hold of a task over a restart.
pub fn failed_restore(now: i64) -> TaskEvent {
    message(
        kind::FAILED_RESTORE,
        now,
        "failed to restore task; will not run until server is contacted",
    )
}
