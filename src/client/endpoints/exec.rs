//! Commands that users run beside a task.

use tokio::sync::mpsc;

use super::{control, runner};
use crate::client::agent::Client;
use crate::client::alloc::factory::ControlError;
use crate::client::drivers::exec::{ExecCommand, Wires};
pub use crate::client::drivers::exec::{ExecIn, ExecOut};
use crate::error::ApiError;

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
) -> Result<mpsc::Receiver<ExecOut>, ApiError> {
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
pub fn check(client: &Client, alloc: &str, request: &ExecRequest) -> Result<(), ApiError> {
    if client.settings().get().client.disable_remote_exec {
        return Err(ApiError::permission_denied());
    }
    let task = &request.task;
    if task.is_empty() {
        return Err(ApiError::bad_request("must provide task name"));
    }
    if request.command.first().is_none_or(String::is_empty) {
        return Err(ApiError::bad_request("command is not present"));
    }
    let runner = runner(client, alloc)?;
    match control(&runner)?.task_progress(task) {
        None => {
            let text = format!("unknown task name {task:?}");
            Err(ApiError::bad_request(text))
        }
        Some((false, _)) => {
            let text = format!("task {task:?} not started yet.");
            Err(ApiError::not_found(text))
        }
        Some((true, true)) => Err(not_running(task)),
        Some((true, false)) => Ok(()),
    }
}

fn not_running(task: &str) -> ApiError {
    ApiError::not_found(format!("task {task:?} is not running."))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::agent::tests::World;
    use crate::config::ClientConfig;
    use crate::error::Code;
    use drover_testkit::until;

    fn asked(task: &str, command: &[&str]) -> ExecRequest {
        ExecRequest {
            task: task.to_owned(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            tty: false,
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_cannot_be_run_is_refused_in_nomads_words() {
        let world = World::start().await;
        let client = world.client();
        let config = serde_json::json!({
            "run_for": "1h",
            "exec_command": {"exit_code": 3, "stdout_string": "out", "stderr_string": "err"},
        });
        world.register("runs", "service", 1, config).await;
        let over = serde_json::json!({"run_for": "1ms"});
        world.register("over", "batch", 1, over).await;
        let blocked = serde_json::json!({"start_block_for": "1h"});
        world.register("begins", "service", 1, blocked).await;
        let of = |job: &str| world.allocs(job).first().cloned().unwrap_or_default();
        until("all three are as they will be", || {
            of("runs").client_status == "running"
                && of("over").client_status == "complete"
                && client.runner(&of("begins").id).is_some()
        })
        .await;
        let (runs, over, begins) = (of("runs").id, of("over").id, of("begins").id);
        for (alloc, request, code, text) in [
            (&runs, asked("", &["ls"]), 400, "must provide task name"),
            (&runs, asked("web", &[]), 400, "command is not present"),
            (&runs, asked("web", &[""]), 400, "command is not present"),
            (&runs, asked("x", &["ls"]), 400, "unknown task name \"x\""),
            (
                &over,
                asked("web", &["ls"]),
                404,
                "task \"web\" is not running.",
            ),
            (
                &begins,
                asked("web", &["ls"]),
                404,
                "task \"web\" not started yet.",
            ),
            (
                &"nope".to_owned(),
                asked("web", &["ls"]),
                404,
                "Unknown allocation \"nope\"",
            ),
        ] {
            let (_input, comes) = mpsc::channel(1);
            let refused = exec(&client, alloc, &request, comes).await;
            let refused = refused.expect_err(text);
            assert_eq!(
                (crate::net::status(refused.code), refused.message.as_str()),
                (code, text)
            );
        }
        let (_input, comes) = mpsc::channel(1);
        let mut output = exec(&client, &runs, &asked("web", &["ls"]), comes)
            .await
            .unwrap();
        let mut all = Vec::new();
        while let Some(one) = output.recv().await {
            all.push(one);
        }
        let wanted = [
            ExecOut::Stdout(b"out".to_vec()),
            ExecOut::StdoutClosed,
            ExecOut::Stderr(b"err".to_vec()),
            ExecOut::StderrClosed,
            ExecOut::Exited { code: 3 },
        ];
        assert_eq!(all, wanted);
        client.shutdown().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_runs_a_command_once_the_nodes_operator_says_so() {
        let world = World::start().await;
        let client = world.client();
        let config = serde_json::json!({"run_for": "1h", "exec_command": {"exit_code": 3}});
        world.register("runs", "service", 1, config).await;
        let of = |job: &str| world.allocs(job).first().cloned().unwrap_or_default();
        until("it runs", || of("runs").client_status == "running").await;
        let (runs, request) = (of("runs").id, asked("web", &["ls"]));
        check(&client, &runs, &request).expect("he may");
        let none = ClientConfig {
            disable_remote_exec: true,
            ..client.settings().get().client.clone()
        };
        let reloaded = Arc::clone(&client);
        let reloaded = tokio::task::spawn_blocking(move || reloaded.reconfigure(&none));
        reloaded.await.unwrap();
        let (_input, comes) = mpsc::channel(1);
        let refused = exec(&client, &runs, &request, comes).await;
        let refused = refused.expect_err("it is switched off");
        assert_eq!(refused.code, Code::PermissionDenied, "{refused}");
        client.shutdown().await;
    }
}
