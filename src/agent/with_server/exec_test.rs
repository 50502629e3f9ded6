//! Commands beside tasks of a real client.

use std::sync::Arc;

use drover_testkit::until;
use tokio::sync::mpsc;

use super::World;
use crate::client::agent::Client;
use crate::client::endpoints::exec::{ExecOut, ExecRequest, check, exec};
use crate::config::ClientConfig;
use crate::error::Code;

fn exec_request(task: &str, command: &[&str]) -> ExecRequest {
    ExecRequest {
        task: task.to_owned(),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        tty: false,
    }
}

/// Everything that a command says.
async fn all_of(client: &Client, alloc: &str, request: &ExecRequest) -> Vec<ExecOut> {
    let (_sender, input) = mpsc::channel(1);
    let mut output = exec(client, alloc, request, input).await.unwrap();
    let mut all = Vec::new();
    while let Some(one) = output.recv().await {
        all.push(one);
    }
    all
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
    let ls = |task: &str| exec_request(task, &["ls"]);
    let web = |command: &[&str]| exec_request("web", command);
    let nope = "nope".to_owned();
    for (alloc, request, code, text) in [
        (&runs, ls(""), 400, "must provide task name"),
        (&runs, web(&[]), 400, "command is not present"),
        (&runs, web(&[""]), 400, "command is not present"),
        (&runs, ls("x"), 400, "unknown task name \"x\""),
        (&over, ls("web"), 404, "task \"web\" is not running."),
        (&begins, ls("web"), 404, "task \"web\" not started yet."),
        (&nope, ls("web"), 404, "Unknown allocation \"nope\""),
    ] {
        let (_sender, input) = mpsc::channel(1);
        let refused = exec(&client, alloc, &request, input).await.expect_err(text);
        let status = crate::net::status(refused.code);
        assert_eq!((status, refused.message.as_str()), (code, text));
    }
    let all = all_of(&client, &runs, &exec_request("web", &["ls"])).await;
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
    let (runs, request) = (of("runs").id, exec_request("web", &["ls"]));
    check(&client, &runs, &request).expect("he may");
    let none = ClientConfig {
        disable_remote_exec: true,
        ..client.settings().get().client.clone()
    };
    let reloaded = Arc::clone(&client);
    let reloaded = tokio::task::spawn_blocking(move || reloaded.reconfigure(&none));
    reloaded.await.unwrap();
    let (_sender, input) = mpsc::channel(1);
    let refused = exec(&client, &runs, &request, input).await;
    let refused = refused.expect_err("it is switched off");
    assert_eq!(refused.code, Code::PermissionDenied, "{refused}");
    client.shutdown().await;
}
