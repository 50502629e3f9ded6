//! Devices from end to end: a plugin of this project is a file in `plugin_dir`, tasks request what
//! it has, and the plugin or the agent dies meanwhile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, Http, LONG, Setup, skip, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::register;

/// An agent that is server and client, and its plugin.
struct World {
    dir: TempDir,
    setup: Setup,
    agent: Option<Agent>,
}

impl World {
    /// With two healthy devices; none where the plugin is not built, or mounts are not possible.
    fn start(what: &str) -> Option<World> {
        let agent = Path::new(env!("CARGO_BIN_EXE_drover"));
        let plugin = agent.with_file_name("drover-sampledevice");
        if !plugin.exists() {
            let why = "drover-sampledevice is not built: cargo build --workspace";
            skip(what, why);
            return None;
        }
        let own = std::fs::metadata("/proc/self").expect("this process");
        if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
            skip(what, "only root can give devices to tasks");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"));
        let mut world = World {
            setup: setup.expect("free ports"),
            dir,
            agent: None,
        };
        std::fs::create_dir_all(world.path("plugins")).expect("a directory");
        std::fs::create_dir_all(world.path("sample/share")).expect("a directory");
        std::fs::write(world.path("sample/share/said"), "well shared\n").expect("written");
        world.put_plugin(&plugin);
        let text = |below: &str| world.path(below).to_string_lossy().into_owned();
        let config = format!(
            "plugin_dir = {:?}\nplugin \"sample\" {{\n  args = [{:?}]\n  config {{\n    \
             dir = {:?}\n    model = \"gadget\"\n  }}\n}}\nclient {{\n  enabled = true\n  \
             options = {{ \"driver.raw_exec.enable\" = \"1\" }}\n}}\n",
            text("plugins"),
            text("sample"),
            text("sample"),
        );
        world.setup.config.push_str(&config);
        world.run_agent();
        Some(world)
    }

    fn put_plugin(&self, plugin: &Path) {
        std::os::unix::fs::symlink(plugin, self.path("plugins/sample")).expect("a link");
    }

    fn run_agent(&mut self) {
        self.agent = Some(self.setup.start().expect("the agent starts"));
        self.wait_devices(&[("a", true), ("b", true)]);
    }

    fn http(&self) -> Http {
        self.agent.as_ref().expect("it runs").http()
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn command(&self, text: &str) {
        // Read as a whole or not at all.
        let (new, file) = (self.path("sample/new"), self.path("sample/commands"));
        std::fs::write(&new, text).expect("written");
        std::fs::rename(new, file).expect("in place");
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("sample/calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The processes of the plugin that live.
    fn alive(&self) -> BTreeSet<i32> {
        let calls = self.calls();
        let pids = calls.iter().filter_map(|line| line.strip_prefix("start "));
        let pids = pids.filter_map(|pid| pid.parse().ok());
        pids.filter(|pid| is_alive(*pid)).collect()
    }

    fn the_plugin(&self) -> i32 {
        let alive = self.alive();
        assert_eq!(alive.len(), 1, "{:?}", self.calls());
        alive.into_iter().next().expect("one")
    }

    fn node(&self) -> Result<Value> {
        let nodes = self.http().json("/v1/nodes")?;
        let id = nodes[0]["ID"].as_str().context("a node")?;
        self.http().json(&format!("/v1/node/{id}"))
    }

    /// Waits until the node has these devices, so healthy.
    fn wait_devices(&self, wanted: &[(&str, bool)]) -> Value {
        let found = wait_for("devices", LONG, || {
            let node = self.node()?;
            let group = node["NodeResources"]["Devices"][0].clone();
            let instances = group["Instances"].as_array().cloned().unwrap_or_default();
            let is = |one: &Value, (id, healthy): &(&str, bool)| {
                one["ID"] == **id && one["Healthy"] == *healthy
            };
            let all = instances.len() == wanted.len();
            let all = all
                && instances
                    .iter()
                    .zip(wanted)
                    .all(|(one, wanted)| is(one, wanted));
            ensure!(all, "{group}");
            Ok::<_, anyhow::Error>(group)
        });
        found.expect("devices")
    }

    /// A job of tasks that request one device each.
    fn run(&self, id: &str, driver: &str, count: usize, script: &str) {
        let job = json!({"Job": {
            "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": count,
                "RestartPolicy": {"Attempts": 50, "Interval": 3_600_000_000_000_u64,
                    "Delay": 50_000_000, "Mode": "fail"},
                "Tasks": [{"Name": "t", "Driver": driver,
                    "Config": {"command": "/bin/sh", "args": ["-c", script]},
                    "KillTimeout": 1_000_000_000,
                    "Resources": {"CPU": 20, "MemoryMB": 20, "Devices": [
                        {"Name": "drover/sample/gadget", "Count": 1, "Constraints": [{
                            "LTarget": "${device.attr.memory}", "RTarget": "4",
                            "Operand": "="}]}]}}],
            }],
        }});
        register(&mut self.http(), &job);
    }

    fn allocs(&self, job: &str) -> Result<Vec<Value>> {
        let list = self.http().json(&format!("/v1/job/{job}/allocations"))?;
        Ok(list.as_array().cloned().unwrap_or_default())
    }

    /// Waits until so many allocations of a job run; their ids.
    fn wait_running(&self, job: &str, count: usize) -> Vec<String> {
        let found = wait_for("allocations", LONG, || {
            let all = self.allocs(job)?;
            let running = all.iter().filter(|one| one["ClientStatus"] == "running");
            let ids: Vec<String> = running
                .filter_map(|one| one["ID"].as_str().map(str::to_owned))
                .collect();
            ensure!(ids.len() == count, "{all:?}");
            Ok::<_, anyhow::Error>(ids)
        });
        found.expect("they run")
    }

    /// The device that an allocation was given.
    fn given(&self, alloc: &str) -> String {
        let alloc = self.http().json(&format!("/v1/allocation/{alloc}"));
        let alloc = alloc.expect("an allocation");
        let devices = &alloc["AllocatedResources"]["Tasks"]["t"]["Devices"];
        assert_eq!(devices[0]["Name"], "gadget", "{devices}");
        devices[0]["DeviceIDs"][0]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    /// Waits until an allocation has written this many lines; what it wrote.
    fn lines(&self, alloc: &str, count: usize) -> Vec<String> {
        let path = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
        let found = wait_for("its words", LONG, || {
            let text = self.http().get(&path)?.text();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            ensure!(lines.len() >= count, "{lines:?}");
            Ok::<_, anyhow::Error>(lines)
        });
        found.expect("its words")
    }
}

impl Drop for World {
    /// A plugin outlives an agent that is killed.
    fn drop(&mut self) {
        drop(self.agent.take());
        self.alive().into_iter().for_each(kill);
    }
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !stat.is_empty() && !matches!(state, Some('Z' | 'X'))
}

fn kill(pid: i32) {
    let killed = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
}

#[test]
fn mod_07_mod_17_a_task_gets_the_device_it_asks_for_with_all_that_it_needs_to_use_it() {
    let Some(mut world) = World::start("devices of tasks") else {
        return;
    };
    let group = world.wait_devices(&[("a", true), ("b", true)]);
    assert_eq!(group["Attributes"]["memory"]["Int"], 4, "{group}");
    assert_eq!(group["Attributes"]["memory"]["Unit"], "GiB", "{group}");
    assert_eq!(group["Instances"][0]["Locality"]["PciBusID"], "0000:0a");
    assert!(world.calls().contains(&"settings gadget".to_owned()));

    let script = "echo $SAMPLE_DEVICES; cat /opt/sample/said; \
                  head -c 3 /dev/sample-$SAMPLE_DEVICES | wc -c; \
                  (echo x > /dev/sample-$SAMPLE_DEVICES) 2>/dev/null && echo wrote || echo kept; \
                  (echo x > /opt/sample/said) 2>/dev/null && echo wrote || echo kept; \
                  exec sleep 1000";
    world.run("apart", "exec", 1, script);
    let alloc = world.wait_running("apart", 1).remove(0);
    let device = world.given(&alloc);
    let lines = world.lines(&alloc, 5);
    assert_eq!(lines, [&*device, "well shared", "3", "kept", "kept"]);
    // A task that sees what the node sees gets the same.
    world.run(
        "plain",
        "raw_exec",
        1,
        "echo $SAMPLE_DEVICES; exec sleep 1000",
    );
    let plain = world.wait_running("plain", 1).remove(0);
    assert_ne!(world.given(&plain), device);
    assert_eq!(world.lines(&plain, 1), [world.given(&plain)]);

    let counted = |figures: &Value| figures["Summary"]["IntNumeratorVal"].as_i64();
    wait_for("figures", LONG, || {
        let path = format!("/v1/client/allocation/{alloc}/stats");
        let of_alloc = world.http().json(&path)?;
        for usage in [&of_alloc, &of_alloc["Tasks"]["t"]] {
            let group = &usage["ResourceUsage"]["DeviceStats"][0];
            ensure!(group["Name"] == "gadget", "{of_alloc}");
            let instances = group["InstanceStats"].as_object().context("instances")?;
            ensure!(instances.len() == 1, "{of_alloc}");
            ensure!(counted(&instances[&device]) >= Some(1), "{of_alloc}");
        }
        let of_node = world.http().json("/v1/client/stats")?;
        let instances = of_node["DeviceStats"][0]["InstanceStats"].as_object();
        ensure!(instances.is_some_and(|all| all.len() == 2), "{of_node}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("devices are measured");

    let plugin = world.the_plugin();
    let agent = world.agent.take().expect("it runs");
    agent.stop(LONG).expect("it stops");
    assert!(!is_alive(plugin), "it ends with the agent");
    assert!(
        world.calls().contains(&"shutdown".to_owned()),
        "it was asked to"
    );
}

#[test]
fn mod_07_the_devices_of_a_plugin_that_died_are_unhealthy_until_it_is_back() {
    let Some(world) = World::start("a plugin that dies") else {
        return;
    };
    world.run("one", "raw_exec", 1, "exec sleep 1000");
    let one = world.wait_running("one", 1).remove(0);
    let file = world.path("plugins/sample");
    let plugin = std::fs::read_link(&file).expect("a link");
    let first = world.the_plugin();
    std::fs::remove_file(&file).expect("taken away");
    kill(first);
    let group = world.wait_devices(&[("a", false), ("b", false)]);
    let why = &group["Instances"][0]["HealthDescription"];
    assert_eq!(why, "plugin \"sample\" does not run");
    world.run(
        "two",
        "raw_exec",
        1,
        "echo $SAMPLE_DEVICES; exec sleep 1000",
    );
    wait_for("an evaluation that waits", LONG, || {
        let evals = world.http().json("/v1/job/two/evaluations")?;
        let waits = evals.as_array().into_iter().flatten();
        let mut waits = waits.filter(|one| one["Status"] == "blocked");
        ensure!(waits.next().is_some(), "{evals}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("nothing is given");
    assert!(world.allocs("two").expect("a list").is_empty());
    // It is put back, and started again.
    world.put_plugin(&plugin);
    world.wait_devices(&[("a", true), ("b", true)]);
    assert_ne!(world.the_plugin(), first);
    let two = world.wait_running("two", 1).remove(0);
    assert_ne!(world.given(&two), world.given(&one), "the other is in use");
    assert_eq!(world.lines(&two, 1), [world.given(&two)]);
    // A fault of its own is no different, also in the midst of its work.
    let second = world.the_plugin();
    world.command("die\n");
    wait_for("another process", LONG, || {
        let alive = world.alive();
        ensure!(alive.len() == 1 && !alive.contains(&second), "{alive:?}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("it is back");
    world.wait_devices(&[("a", true), ("b", true)]);
    assert_eq!(world.wait_running("one", 1), [one], "tasks run on");
    assert!(!world.calls().contains(&"two at once".to_owned()));
}

#[test]
fn mod_07_an_agent_that_was_killed_ends_the_plugin_it_left_and_starts_another() {
    let Some(mut world) = World::start("an agent that is killed") else {
        return;
    };
    let script = "echo $SAMPLE_DEVICES; exec sleep 1000";
    world.run("one", "exec", 1, script);
    let one = world.wait_running("one", 1).remove(0);
    let device = world.given(&one);
    let first = world.the_plugin();
    world.agent.take().expect("it runs").kill().expect("killed");
    world.run_agent();
    wait_for("another process", LONG, || {
        let alive = world.alive();
        ensure!(alive.len() == 1 && !alive.contains(&first), "{alive:?}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("one that this agent started");
    assert!(
        !world.calls().contains(&"two at once".to_owned()),
        "{:?}",
        world.calls()
    );
    assert_eq!(
        world.wait_running("one", 1),
        std::slice::from_ref(&one),
        "it is restored"
    );
    // What it needs is in the journal: it has it at its next start, too.
    let body = json!({"TaskName": "t"});
    let path = format!("/v1/client/allocation/{one}/restart");
    let requested = world.http().put(&path, &body).expect("an answer");
    assert_eq!(requested.status, 200, "{}", requested.text());
    assert_eq!(world.lines(&one, 2), [device.clone(), device.clone()]);
    let reserved = world.calls();
    let reserved = reserved.iter().filter(|line| line.starts_with("reserve "));
    assert_eq!(reserved.count(), 1);
    // The other is still to be had, and this one is not.
    world.run("two", "exec", 2, script);
    let two = world.wait_running("two", 1).remove(0);
    assert_ne!(world.given(&two), device);
}

#[test]
fn mod_07_a_device_that_is_unhealthy_or_gone_is_not_given() {
    let Some(world) = World::start("unhealthy devices") else {
        return;
    };
    world.command("unhealthy a it smokes\n");
    let group = world.wait_devices(&[("a", false), ("b", true)]);
    assert_eq!(group["Instances"][0]["HealthDescription"], "it smokes");
    world.run("pair", "raw_exec", 2, "exec sleep 1000");
    let first = world.wait_running("pair", 1).remove(0);
    assert_eq!(world.given(&first), "b");
    world.command("gone a\n");
    world.wait_devices(&[("b", true)]);
    assert_eq!(world.wait_running("pair", 1), std::slice::from_ref(&first));
    world.command("");
    world.wait_devices(&[("a", true), ("b", true)]);
    let both = world.wait_running("pair", 2);
    let second = both.iter().find(|one| **one != first).expect("another");
    assert_eq!(world.given(second), "a");
}

#[test]
fn an_agent_does_not_start_with_settings_for_a_plugin_that_is_not_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"));
    let mut setup = setup.expect("free ports");
    let config = "plugin \"nowhere\" { config { a = 1 } }\nclient { enabled = true }\n";
    setup.config.push_str(config);
    let agent = setup.spawn().expect("it begins");
    wait_for("its last words", LONG, || {
        let log = agent.log_tail(20);
        ensure!(log.contains("plugin \"nowhere\" has settings"), "{log}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("it says why");
}

#[test]
fn settings_that_a_plugin_does_not_take_are_told_and_it_has_no_devices() {
    let Some(mut world) = World::start("settings of a plugin") else {
        return;
    };
    let agent = world.agent.take().expect("it runs");
    agent.stop(LONG).expect("it stops");
    let config = world.setup.config.replace("model = ", "modell = ");
    world.setup.config = config;
    let agent = world.setup.start().expect("the agent starts");
    wait_for("a word of it", LONG, || {
        let log = agent.log_tail(200);
        ensure!(log.contains("modell: there is no such setting"), "{log}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("it is told");
    world.agent = Some(agent);
    world.wait_devices(&[("a", false), ("b", false)]);
}
