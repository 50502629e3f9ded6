//! Which mounts are seen by whom: volumes of plugins and of the host, mounted into tasks of `exec`
//! on a real client in each of the modes that a job can name; and mounts that are lost.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};
use serde_json::{Value, json};

use crate::csi::World;
use crate::csi_client::{Use, WRITER};
use crate::support::register;

/// The task mounts something where both see it, waits for what the host mounts, and writes what is
/// seen in each mode.
const SCRIPT: &str = "mkdir -p /both/by-host /both/by-task && \
    mount -t tmpfs x /both/by-task && touch /both/by-task/y && echo up; \
    until [ -e /both/by-host/x ]; do sleep 0.02; done; \
    for at in private slave both; do echo $at $(ls /$at/by-host) $(ls /$at/by-task); done; \
    echo seen; sleep 1000";

pub(crate) fn mount(words: &[&str], path: &Path) {
    let done = Command::new("mount").args(words).arg(path).status();
    assert!(done.expect("mount").success(), "mount {words:?} {path:?}");
}

impl World {
    /// Makes a folder the root of a mount of its own, which hands on what is mounted below it.
    pub(crate) fn share(path: &Path) {
        std::fs::create_dir_all(path).expect("a folder");
        mount(&["--bind", &path.display().to_string()], path);
        // Not to those who see the one that it lies on.
        mount(&["--make-private"], path);
        mount(&["--make-shared"], path);
    }

    /// Tasks may be root, and have all capabilities that they request.
    pub(crate) fn trust_tasks(&mut self) {
        let more = "\"user.denylist\" = \"\", \"driver.raw_exec.enable\"";
        let config = self
            .setup
            .config
            .replace("\"driver.raw_exec.enable\"", more);
        self.setup.config =
            config + "plugin \"exec\" {\n  config {\n    allow_caps = [\"all\"]\n  }\n}\n";
    }

    /// Runs a task that has a volume three times, and shows which of them sees what; `there` is
    /// where the volume lies on the host once it runs.
    fn shows(&self, volume: &Value, there: impl Fn() -> PathBuf) {
        let modes = [
            ("/private", "private"),
            ("/slave", "host-to-task"),
            ("/both", "bidirectional"),
        ];
        let mounts = modes.map(
            |(at, mode)| json!({"Volume": "data", "Destination": at, "PropagationMode": mode}),
        );
        let job = json!({"Job": {
            "ID": "one", "Name": "one", "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": 1, "Volumes": {"data": volume},
                "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
                "ReschedulePolicy": {"Attempts": 0, "Unlimited": false},
                "Tasks": [{"Name": "t", "Driver": "exec", "User": "root",
                    "Config": {"command": "/bin/sh", "args": ["-c", SCRIPT],
                        "cap_add": ["sys_admin"]},
                    "VolumeMounts": mounts, "KillTimeout": 1_000_000_000,
                    "Resources": {"CPU": 20, "MemoryMB": 20}}],
            }],
        }});
        register(&mut self.http(), &job);
        self.wait_status("one", "running");
        let reported = |line: &str| {
            let reported = wait_for(line, LONG, || {
                let text = self.logs("one", "stdout");
                ensure!(text.contains(line), "{text} {}", self.logs("one", "stderr"));
                Ok::<_, anyhow::Error>(text)
            });
            reported.expect("the task goes on")
        };
        reported("up\n");
        let there = there();
        assert!(there.join("by-task/y").exists(), "the host sees it");
        mount(&["-t", "tmpfs", "x"], &there.join("by-host"));
        std::fs::write(there.join("by-host/x"), "").expect("a file");
        assert_eq!(
            reported("seen\n"),
            "up\nprivate\nslave x y\nboth x y\nseen\n"
        );
    }
}

/// What is mounted below a folder.
fn mounted(folder: &Path) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/self/mountinfo").expect("the kernel's list");
    let below = format!("{}/", folder.display());
    let points = all.lines().filter_map(|line| line.split(' ').nth(4));
    let ours = points.filter(|point| point.starts_with(&below));
    ours.map(str::to_owned).collect()
}

/// Where the one use of the one volume of the one allocation lies.
fn published(folder: &Path) -> PathBuf {
    let mut at = folder.join("per-alloc");
    for _ in 0..3 {
        let mut entries = std::fs::read_dir(&at).expect("a folder");
        at = entries.next().expect("a use").expect("an entry").path();
    }
    at
}

#[test]
fn csi_44_mounts_are_seen_as_the_job_says_and_those_that_a_task_leaves_hold_no_volume() {
    let Some(mut world) = World::prepare("propagation of CSI volumes") else {
        return;
    };
    let data = world.setup.data_dir.clone();
    World::share(&data);
    world.trust_tasks();
    world.run_agent();
    world.run_plugin(&world.plugin_job());
    world.make("vol", &[("single-node-writer", "file-system")], 0);
    let volume = json!({"Name": "data", "Type": "csi", "Source": "vol",
        "AccessMode": "single-node-writer", "AttachmentMode": "file-system"});
    let folder = data.join("client/csi/monolith/hp");
    world.shows(&volume, || published(&folder));
    // What the task and the host mounted on it goes with it.
    world.stop("one");
    world.wait_free();
    assert_eq!(mounted(&folder), Vec::<String>::new());
    let text = world.output("two", &WRITER, "cd /srv/data && echo * by-*/*");
    assert_eq!(text, "by-host by-task by-*/*\n");
}

#[test]
fn drv_06_mounts_on_a_volume_of_the_host_are_seen_as_the_job_says() {
    let Some(mut world) = World::prepare("propagation of host volumes") else {
        return;
    };
    let there = world.path("there");
    World::share(&there);
    world.trust_tasks();
    let path = there.display();
    let more = format!("client {{\n  host_volume \"data\" {{\n    path = \"{path}\"\n  }}\n}}\n");
    world.setup.config.push_str(&more);
    world.run_agent();
    let volume = json!({"Name": "data", "Type": "host", "Source": "data"});
    world.shows(&volume, || there.clone());
    // It is the host's, and so is what is mounted on it.
    world.stop("one");
    world.wait_status("one", "complete");
    assert_eq!(mounted(&there).len(), 2);
}

#[test]
fn cl_13_a_volume_whose_mounts_are_gone_is_brought_again_before_its_task_runs_again() {
    let Some(mut world) = World::start("CSI and lost mounts") else {
        return;
    };
    world.make("vol", &[("single-node-writer", "file-system")], 0);
    let service = Use {
        kind: "service",
        driver: "raw_exec",
        ..WRITER
    };
    world.uses(
        "one",
        &service,
        "echo x >> srv/data/file; wc -l < srv/data/file; sleep 1000",
    );
    let reported = |world: &World, wanted: &str| {
        let reported = wait_for(wanted, LONG, || {
            let text = world.logs("one", "stdout");
            ensure!(text == wanted, "{text} {}", world.logs("one", "stderr"));
            Ok::<_, anyhow::Error>(())
        });
        reported.expect("the task has its volume");
    };
    reported(&world, "1\n");
    let folder = world.setup.data_dir.join("client/csi/monolith/hp");
    let before = mounted(&folder);
    assert!(
        before.contains(&published(&folder).display().to_string()),
        "{before:?}"
    );
    world.agent.take().expect("it runs").kill().expect("killed");
    for path in before.iter().rev() {
        let gone = Command::new("umount").arg(path).status();
        assert!(gone.expect("umount").success(), "{path}");
    }
    world.run_agent();
    let again = wait_for("its mounts", LONG, || {
        let now = mounted(&folder);
        ensure!(now.len() == before.len(), "{now:?}");
        Ok::<_, anyhow::Error>(())
    });
    again.expect("they are made again");
    let alloc = world
        .http()
        .json("/v1/job/one/allocations")
        .expect("its allocation");
    let id = alloc[0]["ID"].as_str().expect("an id").to_owned();
    let path = format!("/v1/client/allocation/{id}/restart");
    let restarted = world.http().put(&path, &json!({})).expect("an answer");
    assert_eq!(restarted.status, 200, "{}", restarted.text());
    reported(&world, "1\n2\n");
    world.stop("one");
    world.wait_free();
    assert_eq!(mounted(&folder), Vec::<String>::new());
    world.nothing_refused();
}
