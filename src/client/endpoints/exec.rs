//! Commands that users run beside a task.

use tokio::sync::mpsc;

use super::{control, runner};
use crate::agent::Client;
use crate::alloc_runner::ControlError;
use crate::drivers::exec::{ExecCommand, Wires};
pub use crate::drivers::exec::{ExecIn, ExecOut};
use drover_error::Refusal;

/// Pieces of output that may wait for a slow reader.
const WINDOW: usize = 8;

/// Which command is to run, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    pub task: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// On a terminal of its own.
    pub tty: bool,
}

/// Runs a command beside a task, with the task's user, environment, directory and limits. Must be
/// called in a runtime.
///
/// It takes its input as it needs it, and writes as fast as its output is taken. The last that
/// comes is [`ExecOut::Exited`]. It is killed with the task, and when the answered receiver is
/// dropped; a sender of the input that is dropped is the end of its input.
///
/// # Errors
/// 403 where `client.disable_remote_exec` is set; 400 for no task or command or an unknown task;
/// 404 for an unknown allocation, a task that does not run; what the driver says where it cannot be
/// started.
pub async fn exec(
    client: &Client,
    alloc: &str,
    request: &ExecRequest,
    input: mpsc::Receiver<ExecIn>,
) -> Result<mpsc::Receiver<ExecOut>, Refusal> {
    check(client, alloc, request)?;
    let runner = runner(client, alloc)?;
    let (output, comes) = mpsc::channel(WINDOW);
    let command = ExecCommand {
        command: request.command.clone(),
        tty: request.tty,
    };
    let wires = Wires { input, output };
    let started = control(&runner)?.exec(&request.task, command, wires);
    started.await.map_err(|error| match error {
        ControlError::NotRunning => not_running(&request.task),
        other => other.into(),
    })?;
    Ok(comes)
}

/// Whether a command could be run now, as far as that is known without starting it.
///
/// # Errors
/// As those of [`exec`].
pub fn check(client: &Client, alloc: &str, request: &ExecRequest) -> Result<(), Refusal> {
    if client.settings().get().client.disable_remote_exec {
        return Err(Refusal::permission_denied());
    }
    let task = &request.task;
    if task.is_empty() {
        return Err(Refusal::bad_request("must provide task name"));
    }
    if request.command.first().is_none_or(String::is_empty) {
        return Err(Refusal::bad_request("command is not present"));
    }
    let runner = runner(client, alloc)?;
    match control(&runner)?.task_progress(task) {
        None => {
            let text = format!("unknown task name {task:?}");
            Err(Refusal::bad_request(text))
        }
        Some((false, _)) => {
            let text = format!("task {task:?} not started yet.");
            Err(Refusal::not_found(text))
        }
        Some((true, true)) => Err(not_running(task)),
        Some((true, false)) => Ok(()),
    }
}

fn not_running(task: &str) -> Refusal {
    Refusal::not_found(format!("task {task:?} is not running."))
}
