//! What users request from a client, with tasks that try to get at what is not theirs or to hold it
//! up.

mod hostile;
mod isolated;
mod requests;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::ensure;
use drover_testkit::{Agent, Http, LONG, Leftovers, Setup, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::register;

/// Variables that an agent may have and a task may not.
const OWN: &str = "export DROVER_TOKEN=canary-1 KAFKA_PASSWORD=canary-2 \
                   AWS_SECRET_ACCESS_KEY=canary-3 NOMAD_TOKEN=canary-4 VAULT_TOKEN=canary-5 \
                   SITE_SECRET=canary-6 SITE_NAME=seen";

struct World {
    agent: Agent,
    http: Http,
    _tasks: Leftovers,
    dir: TempDir,
}

impl World {
    /// A development agent whose directories other users can reach.
    fn start() -> World {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("ours");
        let program = dir.path().join("drover");
        let binary = env!("CARGO_BIN_EXE_drover");
        let script = format!("#!/bin/sh\n{OWN}\nexec {binary} \"$@\"\n");
        fs::write(&program, script).expect("writes");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
        let data = dir.path().join("data");
        let mut setup = Setup::dev(program, &data).expect("free ports");
        setup.config =
            "client {\n  options = {\n    \"env.denylist\" = \"SITE_SECRET,VAULT_*\"\n  \
                        }\n}\n"
                .to_owned();
        let agent = setup.start().expect("the agent starts");
        let http = agent.http();
        World {
            agent,
            http,
            _tasks: Leftovers(data),
            dir,
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Runs a service of one task, and waits until it says `up`.
    fn run(&mut self, id: &str, script: &str, more: Value) -> String {
        let mut task = json!({
            "Name": "t", "Driver": "raw_exec", "KillTimeout": 1_000_000_000,
            "Config": {"command": "/bin/sh", "args": ["-c", script]},
        });
        let more = more.as_object().cloned().unwrap_or_default();
        task.as_object_mut().expect("an object").extend(more);
        let job = json!({"Job": {
            "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [task]}],
        }});
        register(&mut self.http, &job);
        let path = format!("/v1/job/{id}/allocations");
        let alloc = wait_for("the task to run", LONG, || {
            let all = self.http.json(&path)?;
            let one = &all[0];
            ensure!(one["ClientStatus"] == "running", "{one}");
            Ok(one["ID"].as_str().unwrap_or_default().to_owned())
        });
        let alloc = alloc.expect("it runs");
        wait_for("the task to be up", LONG, || {
            let log = self.log(&alloc, "t");
            ensure!(log.lines().any(|line| line == "up"), "{log}");
            Ok(())
        })
        .expect("it is up");
        alloc
    }

    fn log(&mut self, alloc: &str, task: &str) -> String {
        let path = format!("/v1/client/fs/logs/{alloc}?task={task}&type=stdout&plain=true");
        self.http.get(&path).expect("an answer").text()
    }

    fn of_alloc(&self, alloc: &str, path: &str) -> PathBuf {
        self.data().join("alloc").join(alloc).join(path)
    }

    fn status(&mut self, path: &str) -> (u16, String) {
        let answer = self.http.get(path).expect("an answer");
        (answer.status, answer.text())
    }
}

fn is_root(what: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        drover_testkit::skip(what, "not root");
    }
    root
}

/// Waits until all allocations of a job are over; their ids.
fn finished(http: &mut Http, job: &str) -> Vec<String> {
    let path = format!("/v1/job/{job}/allocations");
    wait_for("all are over", LONG, || {
        let all = http.json(&path)?;
        let all = all.as_array().cloned().unwrap_or_default();
        ensure!(
            all.iter().all(|one| one["ClientStatus"] == "complete"),
            "{all:#?}"
        );
        let ids = all.iter().filter_map(|one| one["ID"].as_str());
        Ok(ids.map(str::to_owned).collect())
    })
    .expect("they end")
}
