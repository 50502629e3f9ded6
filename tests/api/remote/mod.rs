//! A client on another machine (here: another process), reached through the server: its files,
//! logs, figures and tasks.

mod edge;
mod elsewhere;
mod figures;
mod lost;
mod smuggled;
mod verbs;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, Http, LONG, Setup, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{json_of, register};

/// A server, and a client elsewhere.
pub(crate) struct World {
    pub(crate) server: Agent,
    server_setup: Setup,
    pub(crate) client: Agent,
    pub(crate) setup: Setup,
    _dir: TempDir,
}

impl World {
    pub(crate) fn start() -> Self {
        Self::with("", "")
    }

    /// With more configuration of the server, and of the client.
    pub(crate) fn with(server: &str, client: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("server");
        let mut server_setup =
            Setup::server(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
        server_setup.config.push_str(server);
        let server = server_setup.start().expect("the server starts");
        let setup = setup(&server, dir.path().join("client"), client);
        let client = setup.spawn().expect("the client starts");
        Self {
            server,
            server_setup,
            client,
            setup,
            _dir: dir,
        }
    }

    pub(crate) fn http(&self) -> Http {
        self.server.http()
    }

    /// Kills the server and starts it again.
    pub(crate) fn restart_server(self) -> Self {
        self.server.kill().expect("it ran");
        let server = self.server_setup.start().expect("it starts again");
        Self { server, ..self }
    }

    /// Kills the client and starts it again.
    pub(crate) fn restart_client(self) -> Self {
        self.client.kill().expect("it ran");
        let client = self.setup.spawn().expect("it starts again");
        Self { client, ..self }
    }

    /// Runs a shell script as a job; the id of its allocation once it runs and answers.
    pub(crate) fn run(&self, id: &str, script: &str) -> String {
        let mut http = self.http();
        register(&mut http, &shell(id, script));
        let alloc = running(&mut http, id);
        reached(&mut http, &alloc);
        alloc
    }
}

/// A client agent that knows one server.
pub(crate) fn setup(server: &Agent, data: PathBuf, more: &str) -> Setup {
    Setup {
        config: format!(
            "name = \"remote\"\nclient {{\n  enabled = true\n  servers = [\"{}\"]\n  \
             options {{\n    \"driver.raw_exec.enable\" = \"true\"\n  }}\n}}\n{more}",
            server.rpc_addr()
        ),
        dev: false,
        ..Setup::dev(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports")
    }
}

/// A service of one shell script.
pub(crate) fn shell(id: &str, script: &str) -> Value {
    json!({"Job": {"ID": id, "Name": id, "Type": "service", "Datacenters": ["*"],
    "TaskGroups": [{"Name": "g", "Tasks": [{
        "Name": "t", "Driver": "raw_exec",
        "Config": {"command": "/bin/sh", "args": ["-c", script]},
        "Resources": {"CPU": 10, "MemoryMB": 10},
    }]}]}})
}

/// The allocation of a job, once it runs.
pub(crate) fn running(http: &mut Http, job: &str) -> String {
    let path = format!("/v1/job/{job}/allocations");
    wait_for(&path, LONG, || -> Result<String> {
        let allocs = http.json(&path)?;
        let alloc = &allocs[0];
        ensure!(alloc["ClientStatus"] == "running", "{allocs}");
        Ok(alloc["ID"].as_str().context("an id")?.to_owned())
    })
    .expect("it runs")
}

/// Waits until the client of an allocation is reached.
pub(crate) fn reached(http: &mut Http, alloc: &str) {
    let path = format!("/v1/client/fs/ls/{alloc}?path=/");
    wait_for("the client", LONG, || -> Result<()> {
        let answer = http.get(&path)?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })
    .expect("it is reached");
}

/// Waits until a log says just this: a task runs before it has written its first word.
pub(crate) fn wait_log(http: &mut Http, path: &str, expected: &str) {
    wait_for(path, LONG, || -> Result<()> {
        let answer = http.get(path)?;
        let text = answer.text();
        ensure!(answer.status == 200, "{}: {text}", answer.status);
        ensure!(text == expected, "{text:?}");
        Ok(())
    })
    .expect("it is written");
}

/// The text of an answer that is expected to be a good one.
pub(crate) fn text(http: &mut Http, path: &str) -> String {
    let answer = http.get(path).expect("an answer");
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.text()
}

/// The only node.
fn node(http: &mut Http) -> String {
    let nodes = json_of(http, "/v1/nodes");
    nodes[0]["ID"].as_str().expect("an id").to_owned()
}
