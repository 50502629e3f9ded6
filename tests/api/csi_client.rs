//! What tasks see of CSI volumes on a real client: read-only ones, devices, volumes of tasks
//! without a root of their own, and of an agent that is not root.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use drover_testkit::{LONG, Response, skip, wait_for};
use serde_json::{Value, json};

use crate::csi::World;
use crate::support::register;

/// How a job uses a volume.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    pub(crate) driver: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) access: &'a str,
    pub(crate) attachment: &'a str,
    pub(crate) read_only: bool,
    /// The user that the task runs as; empty for the driver's default.
    pub(crate) user: &'a str,
}

pub(crate) const WRITER: Use<'_> = Use {
    driver: "exec",
    kind: "batch",
    access: "single-node-writer",
    attachment: "file-system",
    read_only: false,
    user: "",
};

impl World {
    /// Makes a volume, or a larger one of it.
    pub(crate) fn make(&self, id: &str, ways: &[(&str, &str)], bytes: u64) {
        let made = self.requested_to_make(id, ways, &json!({"RequestedCapacityMin": bytes}));
        assert_eq!(made.status, 200, "{}", made.text());
    }

    /// The answer to a request for a new volume, with more fields in its definition.
    pub(crate) fn requested_to_make(
        &self,
        id: &str,
        ways: &[(&str, &str)],
        more: &Value,
    ) -> Response {
        let ways = ways.iter().map(
            |(access, attachment)| json!({"AccessMode": access, "AttachmentMode": attachment}),
        );
        let mut volume = json!({
            "ID": id, "Name": id, "PluginID": "hp", "Namespace": "default",
            "RequestedCapabilities": ways.collect::<Vec<_>>(),
        });
        let more = more.as_object().into_iter().flatten();
        volume
            .as_object_mut()
            .expect("it is one")
            .extend(more.map(|(name, value)| (name.clone(), value.clone())));
        let path = format!("/v1/volume/csi/{id}/create");
        let made = self.http().put(&path, &json!({"Volumes": [volume]}));
        made.expect("an answer")
    }

    /// Runs a job that uses the volume `vol`.
    pub(crate) fn uses(&self, id: &str, how: &Use<'_>, script: &str) {
        self.uses_of((id, "vol"), how, script);
    }

    /// Runs a job that uses a volume.
    pub(crate) fn uses_of(&self, (id, volume): (&str, &str), how: &Use<'_>, script: &str) {
        let job = json!({"Job": {
            "ID": id, "Name": id, "Type": how.kind, "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": 1,
                "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
                "ReschedulePolicy": {"Attempts": 0, "Unlimited": false},
                "Volumes": {"data": {"Name": "data", "Type": "csi", "Source": volume,
                    "ReadOnly": how.read_only,
                    "AccessMode": how.access, "AttachmentMode": how.attachment}},
                "Tasks": [{"Name": "t", "Driver": how.driver, "User": how.user,
                    "Config": {"command": "/bin/sh", "args": ["-c", script]},
                    "VolumeMounts": [{"Volume": "data", "Destination": "/srv/data"}],
                    "KillTimeout": 1_000_000_000,
                    "Resources": {"CPU": 20, "MemoryMB": 20}}],
            }],
        }});
        register(&mut self.http(), &job);
    }

    /// What the one task of a job wrote.
    pub(crate) fn logs(&self, job: &str, stream: &str) -> String {
        let path = format!("/v1/job/{job}/allocations");
        let list = self.http().json(&path).expect("allocations");
        let alloc = list[0]["ID"].as_str().unwrap_or_default().to_owned();
        let path = format!("/v1/client/fs/logs/{alloc}?task=t&type={stream}&plain=true");
        let logs = self.http().get(&path).expect("an answer");
        String::from_utf8_lossy(&logs.body).into_owned()
    }

    /// What became of the one task of a job, in words.
    pub(crate) fn events(&self, job: &str) -> String {
        let path = format!("/v1/job/{job}/allocations");
        let list = self.http().json(&path).expect("allocations");
        let events = list[0]["TaskStates"]["t"]["Events"].as_array().cloned();
        let words = events.into_iter().flatten();
        let words = words.map(|event| format!("{} {}", event["Type"], event["DisplayMessage"]));
        words.collect::<Vec<_>>().join("\n").replace("\\\"", "\"")
    }

    /// Runs a job to its end; what it wrote.
    pub(crate) fn output(&self, id: &str, how: &Use<'_>, script: &str) -> String {
        self.uses(id, how, script);
        self.wait_status(id, "complete");
        self.wait_free();
        self.logs(id, "stdout")
    }
}

#[test]
fn what_is_only_to_be_read_cannot_be_written_whoever_reads_it() {
    let Some(world) = World::start("read-only volumes") else {
        return;
    };
    let ways = [
        ("single-node-writer", "file-system"),
        ("single-node-reader-only", "file-system"),
    ];
    world.make("vol", &ways, 0);
    let write = "echo hello > $NOMAD_VOLUME_data/file; echo $NOMAD_VOLUME_data";
    assert_eq!(world.output("one", &WRITER, write), "/srv/data\n");
    let read = "cat $NOMAD_VOLUME_data/file; echo x > $NOMAD_VOLUME_data/file || echo read only; \
                echo x > $NOMAD_VOLUME_data/new || echo no new one";
    for driver in ["exec", "raw_exec"] {
        let reader = Use {
            driver,
            read_only: true,
            access: "single-node-reader-only",
            ..WRITER
        };
        let text = world.output(driver, &reader, read);
        assert_eq!(text, "hello\nread only\nno new one\n", "{driver}");
    }
    // Without a root of its own, a task finds its volume below its directory, and it alone.
    let raw = Use {
        driver: "raw_exec",
        ..WRITER
    };
    let script = "cat srv/data/file; echo more >> srv/data/file; echo $NOMAD_VOLUME_data; pwd";
    let text = world.output("two", &raw, script);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "hello");
    assert_eq!(lines[1], format!("{}/srv/data", lines[2]));
    let seen = std::fs::read_dir(lines[1]).expect("the place of the mount");
    assert_eq!(seen.count(), 0, "the node sees none of it there");
    let text = world.output("three", &WRITER, "cat /srv/data/file");
    assert_eq!(text, "hello\nmore\n");
    world.nothing_refused();
}

/// Why this machine gives files no devices; none where it does.
fn no_loop_devices() -> Option<String> {
    let output = Command::new("losetup").arg("--find").output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(format!("losetup: {error}")),
    }
}

#[test]
fn a_task_has_a_device_with_the_rights_of_its_mode_and_it_grows_while_it_is_used() {
    let what = "volumes that are devices";
    if let Some(why) = no_loop_devices() {
        return skip(what, &why);
    }
    let Some(mut world) = World::prepare(what) else {
        return;
    };
    // A device belongs to root.
    let (raw, more) = ("\"1\" }", "\"1\", \"user.denylist\" = \"\" }");
    world.setup.config = world.setup.config.replace(raw, more);
    world.run_agent();
    world.run_plugin(&world.plugin_job());
    let ways = [
        ("single-node-writer", "block-device"),
        ("single-node-reader-only", "block-device"),
    ];
    world.make("vol", &ways, 1 << 20);
    let writer = Use {
        attachment: "block-device",
        ..WRITER
    };
    let size = "size() { dd if=/srv/data bs=64k 2>/dev/null | wc -c; }";
    let script = format!(
        "{size}; printf hello | dd of=/srv/data conv=notrunc 2>/dev/null && echo written; size; \
         until [ $(size) -gt 1048576 ]; do sleep 0.1; done; size"
    );
    let service = Use {
        kind: "service",
        user: "root",
        ..writer
    };
    world.uses("one", &service, &script);
    let written = wait_for("it is written", LONG, || {
        let text = world.logs("one", "stdout");
        ensure!(text == "written\n1048576\n", "{text}");
        Ok::<_, anyhow::Error>(())
    });
    written.expect("the task has its device");
    world.make("vol", &ways, 2 << 20);
    let grown = wait_for("it is larger", LONG, || {
        let text = world.logs("one", "stdout");
        ensure!(text == "written\n1048576\n2097152\n", "{text}");
        Ok::<_, anyhow::Error>(())
    });
    grown.expect("the task sees it");
    let expanded = world.record();
    let expanded = expanded
        .iter()
        .filter(|line| line["call"] == "NodeExpandVolume" && !line["begin"].is_null());
    assert_eq!(expanded.count(), 1);
    world.stop("one");
    world.wait_free();

    is_only_read(&world, &writer);
    let left = Command::new("losetup").arg("--list").output();
    let left = String::from_utf8_lossy(&left.expect("losetup").stdout).into_owned();
    let ours = world.path("state").display().to_string();
    assert!(!left.contains(&ours), "{left}");
    world.nothing_refused();
}

/// A task that may only read a device cannot write to it, or is refused.
fn is_only_read(world: &World, writer: &Use<'_>) {
    let reader = Use {
        read_only: true,
        access: "single-node-reader-only",
        user: "root",
        ..*writer
    };
    let script = "dd if=/srv/data bs=5 count=1 2>/dev/null; echo; \
                  dd if=/dev/zero of=/srv/data bs=1 count=1 conv=notrunc 2>/dev/null || echo no; \
                  ls -l /srv/data | cut -c1";
    let text = world.output("two", &reader, script);
    assert_eq!(text, "hello\nno\nb\n", "{}", world.logs("two", "stderr"));
    // A driver that keeps no device from its tasks cannot keep them from writing.
    let raw = Use {
        driver: "raw_exec",
        ..reader
    };
    world.uses("three", &raw, "true");
    world.wait_status("three", "failed");
    let text = "is a device, which driver \"raw_exec\" cannot keep a task from writing to";
    let reported = world.events("three");
    assert!(reported.contains(text), "{reported}");
}

/// A copy of a program that every user may run.
fn for_all(program: &Path, folder: &Path) -> std::path::PathBuf {
    let copy = folder.join(program.file_name().expect("a name"));
    std::fs::copy(program, &copy).expect("a copy");
    copy
}

#[test]
fn without_root_a_task_finds_its_volume_by_its_environment() {
    let Some(mut world) = World::prepare("volumes without root") else {
        return;
    };
    // What the agent and the plugin need belongs to the user nobody, as they do. Libraries that
    // they are linked with may lie below a folder of root's, which they may enter.
    let folder = world.dir.path().to_owned();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&folder, all.clone()).expect("a folder for all");
    let agent = for_all(&world.setup.binary, &folder);
    world.plugin = for_all(&world.plugin, &folder);
    let script = format!(
        "#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups \
         --inh-caps=+dac_read_search --ambient-caps=+dac_read_search {} \"$@\"\n",
        agent.display()
    );
    let wrapper = folder.join("as-nobody");
    std::fs::write(&wrapper, script).expect("a script");
    std::fs::set_permissions(&wrapper, all.clone()).expect("a program");
    let data = &world.setup.data_dir;
    std::fs::create_dir_all(data).expect("a folder");
    std::fs::set_permissions(data, all).expect("a folder for all");
    world.setup.binary = wrapper;
    world.run_agent();
    let mut job = world.plugin_job();
    let args = &mut job["Job"]["TaskGroups"][0]["Tasks"][0]["Config"]["args"];
    args.as_array_mut().expect("a list").push("--links".into());
    world.run_plugin(&job);
    world.make("vol", &[("single-node-writer", "file-system")], 0);
    let raw = Use {
        driver: "raw_exec",
        ..WRITER
    };
    let write = "echo hello > $NOMAD_VOLUME_data/file; echo $NOMAD_VOLUME_data; id -u";
    let text = world.output("one", &raw, write);
    let place = "client/csi/monolith/hp/per-alloc/";
    assert!(text.contains(place) && text.ends_with("65534\n"), "{text}");
    let text = world.output("two", &raw, "cat $NOMAD_VOLUME_data/file");
    assert_eq!(text, "hello\n");
    // What cannot be held is refused in words.
    let reader = Use {
        read_only: true,
        ..raw
    };
    world.uses("three", &reader, "cat $NOMAD_VOLUME_data/file");
    world.wait_status("three", "failed");
    let reported = world.events("three");
    let text = "cannot be mounted read-only by driver";
    assert!(reported.contains(text), "{reported}");
}
