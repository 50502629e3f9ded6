//! Plugins as tasks of a real client: kept over a restart of the agent, updated while their volumes
//! are used, ended where they do not answer, and apart from the host.

use std::process::Command;

use anyhow::{Context, ensure};
use drover_testkit::{LONG, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::csi::World;
use crate::csi_client::{Use, WRITER};
use crate::support::register;

impl World {
    /// The process of the plugin.
    fn plugin_pid(&self) -> Pid {
        let found = Command::new("pgrep")
            .args(["-f", &format!("^{}", self.plugin.display())])
            .output()
            .expect("pgrep");
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let state = self.path("state").display().to_string();
        let mut pids = found.lines().filter_map(|line| line.parse::<i32>().ok());
        let ours = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&state)
        };
        Pid::from_raw(pids.find(ours).expect("the plugin runs"))
    }

    /// The one node, with its plugins.
    fn node(&self) -> anyhow::Result<Value> {
        let nodes = self.http().json("/v1/nodes")?;
        let id = nodes[0]["ID"].as_str().context("a node")?.to_owned();
        self.http().json(&format!("/v1/node/{id}"))
    }
}

#[test]
fn plg_11_a_plugin_stays_known_while_an_agent_that_began_again_looks_for_it() {
    let Some(mut world) = World::start("CSI and a restarted agent") else {
        return;
    };
    let before = world.node().expect("a node");
    let registered = before["ModifyIndex"].as_u64().expect("an index");
    let plugin = world.plugin_pid();
    world.agent.take().expect("it runs").kill().expect("killed");
    // It says nothing to the new agent, which knows it all the same.
    kill(plugin, Signal::SIGSTOP).expect("it is held up");
    world.run_agent();
    let known = |node: &Value| {
        ["CSINodePlugins", "CSIControllerPlugins"].map(|part| node[part]["hp"]["Healthy"] == true)
    };
    let after = wait_for("the node registers again", LONG, || {
        let node = world.node()?;
        let is_ready = node["Status"] == "ready";
        let index = node["ModifyIndex"].as_u64().unwrap_or_default();
        ensure!(is_ready && index > registered, "{node}");
        Ok::<_, anyhow::Error>(node)
    });
    assert_eq!(known(&after.expect("the node")), [true, true]);
    kill(plugin, Signal::SIGCONT).expect("it goes on");
    world.make("vol", &[("single-node-writer", "file-system")], 0);
    let text = world.output("one", &WRITER, "echo > /srv/data/x && echo well");
    assert_eq!(text, "well\n");
}

/// When the task of a version's only allocation had an event first; Unix nanoseconds.
fn at(allocs: &[Value], version: u64, kind: &str) -> i64 {
    let of_version = |alloc: &&Value| alloc["JobVersion"] == version;
    let alloc = allocs.iter().find(of_version).expect("an allocation");
    let events = alloc["TaskStates"]["t"]["Events"].as_array();
    let mut events = events.into_iter().flatten();
    let event = events.find(|event| event["Type"] == kind);
    let time = event.and_then(|event| event["Time"].as_i64());
    time.unwrap_or_else(|| panic!("no {kind} in {alloc:#}"))
}

#[test]
fn plg_11_an_updated_plugin_takes_over_before_the_old_one_goes() {
    let Some(world) = World::start("CSI and an updated plugin") else {
        return;
    };
    world.make("vol", &[("single-node-writer", "file-system")], 0);
    let service = Use {
        kind: "service",
        ..WRITER
    };
    let script = "while :; do date >> /srv/data/now && sleep 0.1; done";
    world.uses("one", &service, script);
    world.wait_status("one", "running");
    let mut job = world.plugin_job();
    let group = &mut job["Job"]["TaskGroups"][0];
    group["Update"] = json!({"MaxParallel": 1, "Canary": 1, "AutoPromote": true,
        "HealthCheck": "task_states", "MinHealthyTime": 1_000_000_000,
        "HealthyDeadline": 60_000_000_000_u64, "ProgressDeadline": 120_000_000_000_u64});
    group["Tasks"][0]["Env"] = json!({"VERSION": "2"});
    register(&mut world.http(), &job);
    // At every moment one of its allocations answers for the plugin.
    let mut seen = 0;
    let updated = wait_for("the update", LONG, || {
        let plugin = world.http().json("/v1/plugin/csi/hp")?;
        assert_eq!(plugin["NodesHealthy"], 1, "look {seen}: {plugin}");
        assert_eq!(plugin["ControllersHealthy"], 1, "look {seen}: {plugin}");
        seen += 1;
        let allocs = world.http().json("/v1/job/plugin/allocations")?;
        let allocs = allocs.as_array().cloned().unwrap_or_default();
        let running = |alloc: &&Value| alloc["ClientStatus"] == "running";
        let count = allocs.iter().filter(running).count();
        let new = allocs.iter().filter(|alloc| alloc["JobVersion"] == 1);
        let new = new.filter(running).count();
        ensure!(new == 1 && count == 1, "{count} run, {new} of them new");
        Ok::<_, anyhow::Error>(allocs)
    });
    let allocs = updated.expect("the new one alone is left");
    let (began, ended) = (at(&allocs, 1, "Started"), at(&allocs, 0, "Killing"));
    assert!(began < ended, "both ran at once: {allocs:#?}");
    // What the old one mounted the new one takes back.
    world.stop("one");
    world.wait_free();
    let text = world.output("two", &WRITER, "test -s /srv/data/now && echo written");
    assert_eq!(text, "written\n");
    world.nothing_refused();
}

#[test]
fn plg_11_a_plugin_that_does_not_answer_in_time_is_ended_and_its_policy_decides() {
    let Some(mut world) = World::prepare("CSI and a plugin that does not answer") else {
        return;
    };
    world.run_agent();
    let mut job = world.plugin_job();
    let group = &mut job["Job"]["TaskGroups"][0];
    group["RestartPolicy"] = json!({"Attempts": 1, "Interval": 3_600_000_000_000_u64,
        "Delay": 50_000_000, "Mode": "fail"});
    group["ReschedulePolicy"] = json!({"Attempts": 0, "Unlimited": false});
    group["Tasks"][0]["CSIPluginConfig"]["HealthTimeout"] = 500_000_000.into();
    group["Tasks"][0]["Config"] = json!({"command": "/bin/sleep", "args": ["1000"]});
    register(&mut world.http(), &job);
    world.wait_status("plugin", "failed");
    let reported = world.events("plugin");
    let text = "CSI plugin did not become healthy before configured 500ms health timeout";
    assert_eq!(reported.matches(text).count(), 2, "{reported}");
    for kind in ["Plugin became unhealthy", "Terminated", "Restarting"] {
        assert!(reported.contains(kind), "{kind}: {reported}");
    }
    let node = world.node().expect("a node");
    let none = node["CSINodePlugins"].as_object();
    assert!(none.is_none_or(serde_json::Map::is_empty), "{node}");
}

#[test]
fn plg_11_a_plugin_apart_from_the_host_mounts_for_others_where_its_job_says() {
    let Some(mut world) = World::prepare("CSI and a plugin of exec") else {
        return;
    };
    // What it mounts is seen by others where its folder is on a shared mount.
    let data = world.setup.data_dir.clone();
    World::share(&data);
    let tools = world.path("tools");
    std::fs::create_dir(&tools).expect("a folder");
    std::fs::copy(&world.plugin, tools.join("plugin")).expect("a copy");
    let chroot: Vec<String> = ["/bin", "/etc", "/lib", "/lib64", "/usr", "/sbin"]
        .iter()
        .map(|path| format!("{path:?} = {path:?}"))
        .chain([format!("{:?} = \"/tools\"", tools.display().to_string())])
        .collect();
    let (options, own) = (
        "  options = {",
        format!("  chroot_env {{\n{}\n}}\n", chroot.join("\n")),
    );
    let with_own = format!("{own}{options}");
    world.setup.config = world.setup.config.replace(options, &with_own);
    world.trust_tasks();
    world.run_agent();
    let mut job = world.plugin_job();
    let task = &mut job["Job"]["TaskGroups"][0]["Tasks"][0];
    task["Driver"] = "exec".into();
    task["User"] = "root".into();
    task["Config"] = json!({"command": "/tools/plugin", "cap_add": ["sys_admin"],
        "args": ["--state-dir", "/local/state", "--record", "/local/record"]});
    task["CSIPluginConfig"]["MountDir"] = "/csi".into();
    task["CSIPluginConfig"]["StagePublishBaseDir"] = "/stage/here".into();
    world.run_plugin(&job);
    world.make("vol", &[("single-node-writer", "file-system")], 0);
    let write = "echo hello > /srv/data/file; ls -d /srv/data/*";
    assert_eq!(world.output("one", &WRITER, write), "/srv/data/file\n");
    assert_eq!(
        world.output("two", &WRITER, "cat /srv/data/file"),
        "hello\n"
    );
    let folder = data.join("client/csi/monolith/hp");
    let left = std::fs::read_dir(folder.join("per-alloc")).expect("its folder");
    assert_eq!(left.count(), 0, "what it mounted is taken back");
}
