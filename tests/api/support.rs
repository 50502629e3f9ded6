//! Agents for this suite.

use anyhow::{Result, ensure};
use drover_testkit::{Agent, Http, LONG, Setup, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

/// An agent and the directory it works in; both vanish with it.
pub(crate) struct Running {
    pub(crate) agent: Agent,
    dir: TempDir,
}

impl Running {
    /// An agent that works in a directory that the caller owns.
    pub(crate) fn of(setup: &Setup) -> Running {
        Running {
            agent: setup.start().expect("the agent starts"),
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    pub(crate) fn http(&self) -> Http {
        self.agent.http()
    }

    /// Where its files lie.
    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }
}

/// A lone server without a client: jobs are registered and nothing runs.
pub(crate) fn server() -> Running {
    server_with("")
}

/// The same with more configuration.
pub(crate) fn server_with(config: &str) -> Running {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"));
    let mut setup = setup.expect("free ports");
    setup.config.push_str(config);
    let agent = setup.start().expect("the agent starts");
    Running { agent, dir }
}

/// Server and client in one.
pub(crate) fn dev() -> Running {
    dev_with("")
}

/// The same with more configuration.
pub(crate) fn dev_with(config: &str) -> Running {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"));
    let mut setup = setup.expect("free ports");
    setup.config.push_str(config);
    let agent = setup.start().expect("the agent starts");
    Running { agent, dir }
}

/// Until its node is there nothing is placed, and the command says so.
pub(crate) fn node_is_ready(http: &mut Http) {
    let ready = || {
        let nodes = http.json("/v1/nodes")?;
        ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        Ok(())
    };
    wait_for("the node", LONG, ready).expect("it is ready");
}

/// A batch job of `count` tasks that do nothing.
pub(crate) fn job(id: &str, count: usize) -> Value {
    json!({"Job": {
        "ID": id, "Name": id, "Type": "batch", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": count, "Tasks": [{
            "Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/true"},
        }]}],
    }})
}

/// Registers a job that is expected to be accepted; its evaluation's id.
pub(crate) fn register(http: &mut Http, job: &Value) -> String {
    let answer = http.put("/v1/jobs", job).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json().expect("JSON");
    answer["EvalID"].as_str().unwrap_or_default().to_owned()
}

/// Pauses the evaluation broker, or lets it continue.
pub(crate) fn pause(http: &mut Http, paused: bool) {
    let body = json!({"SchedulerAlgorithm": "binpack", "PauseEvalBroker": paused});
    let answer = http
        .put("/v1/operator/scheduler/configuration", &body)
        .expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A GET that is expected to succeed.
pub(crate) fn json_of(http: &mut Http, path: &str) -> Value {
    http.json(path).expect("a good answer")
}

/// Waits until a list is as long as expected.
pub(crate) fn wait_length(http: &mut Http, path: &str, length: usize) -> Vec<Value> {
    wait_for(path, LONG, || -> Result<Vec<Value>> {
        let list = http.json(path)?;
        let list = list.as_array().cloned().unwrap_or_default();
        ensure!(
            list.len() == length,
            "{} entries instead of {length}",
            list.len()
        );
        Ok(list)
    })
    .expect("the list fills")
}

/// A value as part of a query string.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
