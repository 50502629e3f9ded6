//! CSI from end to end: the plugin of this project runs as a job, a volume is made over HTTP, and
//! jobs write to it, one after the other, whatever dies meanwhile.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use drover_testkit::{Agent, Http, LONG, Setup, skip, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::register;

/// The plugin, which is built beside the agent.
fn plugin() -> Option<PathBuf> {
    let agent = Path::new(env!("CARGO_BIN_EXE_drover"));
    let path = agent.with_file_name("drover-hostpath");
    path.exists().then_some(path)
}

/// An agent that is server and client and keeps what it has, and its plugin.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) setup: Setup,
    pub(crate) agent: Option<Agent>,
    pub(crate) plugin: PathBuf,
    /// The token of its requests; none where every caller may do everything.
    pub(crate) token: Option<String>,
}

impl World {
    /// With the plugin as a job; none where it is not built, or mounts are not possible.
    pub(crate) fn start(what: &str) -> Option<World> {
        let mut world = World::prepare(what)?;
        world.run_agent();
        world.run_plugin(&world.plugin_job());
        Some(world)
    }

    /// Before its agent is started.
    pub(crate) fn prepare(what: &str) -> Option<World> {
        let Some(plugin) = plugin() else {
            skip(
                what,
                "drover-hostpath is not built: cargo build --workspace",
            );
            return None;
        };
        let own = std::fs::metadata("/proc/self").expect("this process");
        if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
            skip(what, "only root can mount volumes into tasks");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &dir.path().join("data"));
        let mut setup = setup.expect("free ports");
        setup.config.push_str(
            "client {\n  enabled = true\n  options = { \"driver.raw_exec.enable\" = \"1\" }\n}\n",
        );
        Some(World {
            dir,
            setup,
            agent: None,
            plugin,
            token: None,
        })
    }

    pub(crate) fn run_agent(&mut self) {
        self.agent = Some(self.setup.start().expect("the agent starts"));
    }

    pub(crate) fn http(&self) -> Http {
        let http = self.agent.as_ref().expect("it runs").http();
        match &self.token {
            Some(token) => http.header("X-Nomad-Token", token),
            None => http,
        }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    pub(crate) fn plugin_job(&self) -> Value {
        let text = |below: &str| self.path(below).to_string_lossy().into_owned();
        json!({"Job": {
            "ID": "plugin", "Name": "plugin", "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": 1,
                "RestartPolicy": {"Attempts": 50, "Interval": 3_600_000_000_000_u64,
                    "Delay": 50_000_000, "Mode": "fail"},
                "Tasks": [{"Name": "t", "Driver": "raw_exec",
                    "Config": {"command": self.plugin, "args": [
                        "--state-dir", text("state"), "--record", text("record"),
                        "--faults", text("faults")]},
                    "CSIPluginConfig": {"ID": "hp", "Type": "monolith"},
                    "Resources": {"CPU": 20, "MemoryMB": 20}}],
            }],
        }})
    }

    /// The plugin's job, with more said to it.
    pub(crate) fn plugin_job_with(&self, more: &[&str]) -> Value {
        let mut job = self.plugin_job();
        let args = &mut job["Job"]["TaskGroups"][0]["Tasks"][0]["Config"]["args"];
        let args = args.as_array_mut().expect("a list");
        args.extend(more.iter().map(|arg| json!(arg)));
        job
    }

    pub(crate) fn run_plugin(&self, job: &Value) {
        self.run_plugin_of(job, 1);
    }

    /// Runs the plugin, which has so many controllers.
    pub(crate) fn run_plugin_of(&self, job: &Value, controllers: usize) {
        register(&mut self.http(), job);
        let healthy = wait_for("the plugin", LONG, || {
            let plugin = self.http().json("/v1/plugin/csi/hp")?;
            let whole = plugin["NodesHealthy"] == 1 && plugin["ControllersHealthy"] == controllers;
            ensure!(whole, "{plugin}");
            Ok::<_, anyhow::Error>(plugin)
        });
        let healthy = healthy.expect("it is healthy");
        assert_eq!(healthy["Provider"], "hostpath.csi.drover", "{healthy}");
        assert_eq!(healthy["Version"], env!("CARGO_PKG_VERSION"), "{healthy}");
        let required = json!(controllers > 0);
        assert_eq!(healthy["ControllerRequired"], required, "{healthy}");
    }

    /// What one job writes, the next one reads.
    pub(crate) fn is_handed_on(&self) {
        let write = "echo hello > $NOMAD_VOLUME_data/file";
        let read = "test \"$(cat $NOMAD_VOLUME_data/file)\" = hello";
        for (job, script) in [("one", write), ("two", read)] {
            self.job(job, "batch", "exec", script);
            self.wait_status(job, "complete");
            self.wait_free();
        }
    }

    pub(crate) fn create(&self, id: &str) {
        let body = json!({"Volumes": [{
            "ID": id, "Name": id, "PluginID": "hp", "Namespace": "default",
            "RequestedCapabilities": [
                {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}],
            "Secrets": {"secret": "correct-horse"},
            "Parameters": {"secret": "correct-horse"},
        }]});
        let made = self
            .http()
            .put(&format!("/v1/volume/csi/{id}/create"), &body);
        let made = made.expect("an answer");
        assert_eq!(made.status, 200, "{}", made.text());
    }

    /// Runs a job that uses a volume.
    pub(crate) fn job(&self, id: &str, kind: &str, driver: &str, script: &str) {
        let job = json!({"Job": {
            "ID": id, "Name": id, "Type": kind, "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": 1,
                "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
                "ReschedulePolicy": {"Attempts": 0, "Unlimited": false},
                "Volumes": {"data": {"Name": "data", "Type": "csi", "Source": "vol",
                    "AccessMode": "single-node-writer", "AttachmentMode": "file-system"}},
                "Tasks": [{"Name": "t", "Driver": driver,
                    "Config": {"command": "/bin/sh", "args": ["-c", script]},
                    "VolumeMounts": [{"Volume": "data", "Destination": "/srv/data"}],
                    "KillTimeout": 1_000_000_000,
                    "Resources": {"CPU": 20, "MemoryMB": 20}}],
            }],
        }});
        register(&mut self.http(), &job);
    }

    pub(crate) fn stop(&self, job: &str) {
        let path = format!("/v1/job/{job}");
        let answer = self.http().send("DELETE", &path, b"").expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    pub(crate) fn wait_status(&self, job: &str, status: &str) {
        let path = format!("/v1/job/{job}/allocations");
        let found = wait_for(job, LONG, || {
            let list = self.http().json(&path)?;
            ensure!(list[0]["ClientStatus"] == status, "{list}");
            Ok::<_, anyhow::Error>(())
        });
        let log = self.agent.as_ref().map(|agent| agent.log_tail(30));
        found.unwrap_or_else(|error| panic!("{error:#}\n{}", log.unwrap_or_default()));
    }

    pub(crate) fn wait_free(&self) {
        let free = wait_for("a free volume", LONG, || {
            let list = self.http().json("/v1/volumes?type=csi")?;
            let mut volumes = list.as_array().into_iter().flatten();
            let free = volumes.any(|one| one["ID"] == "vol" && one["CurrentWriters"] == 0);
            ensure!(free, "{list}");
            Ok::<_, anyhow::Error>(())
        });
        free.expect("it is given back");
    }

    pub(crate) fn record(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("record")).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        // The last one may be half written.
        lines.map_while(Result::ok).collect()
    }

    /// The calls about volumes that began, in their order.
    pub(crate) fn calls(&self) -> Vec<String> {
        let begun = self.record();
        let about = ["ControllerP", "ControllerU", "NodeS", "NodeU", "NodeP"];
        let names = begun.iter().filter(|line| !line["begin"].is_null());
        let names = names.filter_map(|line| line["call"].as_str());
        let names = names.filter(|name| about.iter().any(|begin| name.starts_with(begin)));
        names.map(str::to_owned).collect()
    }

    /// Each step of the one claim on the volume is an event, and no evaluation was made for it.
    fn given_back_in_steps(&self) {
        let reported = |path: &str| self.http().json(path).expect("an answer");
        let path = "/v1/audit?type=csi-volume&id=vol&kind=CsiVolumeClaimed";
        let events = reported(path).as_array().cloned().unwrap_or_default();
        // It is taken and attached, and given back in four steps.
        assert_eq!(events.len(), 2 + 4, "{events:#?}");
        // Only its node takes it. Its node gives it back, or the watcher, which learns of the end
        // of the allocation at the same time: what the one does first the other finds done.
        for (number, event) in events.iter().enumerate() {
            let actors: &[&str] = match number {
                0 | 1 => &["node"],
                _ => &["node", "server"],
            };
            let actor = event["Actor"]["kind"].as_str().unwrap_or_default();
            assert!(actors.contains(&actor), "{event:#}");
        }
        self.each_follows(&events);
        let evals = reported("/v1/evaluations?per_page=1000");
        let mut core = evals.as_array().into_iter().flatten();
        assert!(core.all(|eval| eval["Type"] != "_core"), "{evals:#}");
    }

    /// Each event of a claim names what it followed from: that the allocation was placed or ended,
    /// where it is taken and where it is given back, and else the step before.
    fn each_follows(&self, events: &[Value]) {
        for (number, event) in events.iter().enumerate() {
            let cause = event["Cause"].as_u64().expect("it has a cause");
            if ![0, 2].contains(&number) {
                assert_eq!(event["Cause"], events[number - 1]["Index"], "{event:#}");
                continue;
            }
            assert!(Some(cause) < event["Index"].as_u64(), "{event:#}");
            let path = format!("/v1/audit?since={cause}&until={cause}");
            let reported = self.http().json(&path).expect("an answer");
            let kind = reported[0]["Kind"].as_str().unwrap_or_default();
            let wanted: &[&str] = match number {
                0 => &["PlanApplied"],
                _ => &["PlanApplied", "AllocsUpdatedByClient"],
            };
            assert!(wanted.contains(&kind), "{event:#}\n{reported:#}");
        }
    }

    /// The plugin refused nothing: no call came in the wrong order. One whose caller died may end
    /// at any time.
    pub(crate) fn nothing_refused(&self) {
        for line in self.record() {
            let code = line["code"].as_str().unwrap_or("Ok");
            let late = line["late"] == true;
            assert!(late || code == "Ok" || code == "Unavailable", "{line}");
        }
    }
}

impl Drop for World {
    /// Ends what runs here, and what is mounted for it.
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            let mut http = agent.http();
            if let Some(token) = &self.token {
                http = http.header("X-Nomad-Token", token);
            }
            for job in ["one", "two", "three", "plugin"] {
                let _ = http.send("DELETE", &format!("/v1/job/{job}"), b"");
            }
            let _ = wait_for("the end of all", LONG, || {
                let list = http.json("/v1/allocations")?;
                let live = |alloc: &&Value| alloc["ClientStatus"] == "running";
                let live = list.as_array().into_iter().flatten().filter(live).count();
                ensure!(live == 0, "{live} run");
                Ok::<_, anyhow::Error>(())
            });
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below = self.dir.path().to_string_lossy().into_owned();
        let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for path in paths.filter(|path| path.starts_with(&below)) {
            let _ = std::process::Command::new("umount")
                .arg("-l")
                .arg(path)
                .status();
        }
    }
}

/// How a volume comes and goes.
pub(crate) const WHOLE: [&str; 6] = [
    "ControllerPublishVolume",
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
    "ControllerUnpublishVolume",
];

#[test]
fn csi_44_what_one_job_writes_the_next_one_reads_and_the_volume_is_free_between() {
    let Some(world) = World::start("CSI from end to end") else {
        return;
    };
    world.create("vol");
    let write = "echo hello > $NOMAD_VOLUME_data/file";
    world.job("one", "batch", "exec", write);
    world.wait_status("one", "complete");
    world.wait_free();
    assert_eq!(world.calls(), WHOLE);
    world.given_back_in_steps();
    let read = "test \"$(cat $NOMAD_VOLUME_data/file)\" = hello";
    world.job("two", "batch", "exec", read);
    world.wait_status("two", "complete");
    world.wait_free();
    assert_eq!(world.calls(), [WHOLE, WHOLE].concat());
    world.nothing_refused();
    // The secrets that the plugin was given appear nowhere in clear.
    let shown = world.http().get("/v1/volume/csi/vol").expect("an answer");
    let shown: Value = shown.json().expect("JSON");
    assert!(!shown["Secrets"].to_string().contains("correct-horse"));
}

#[test]
fn csi_09_an_agent_that_logs_all_it_can_shows_no_secret_there() {
    let Some(mut world) = World::prepare("CSI and the agent's own log") else {
        return;
    };
    world.setup.config.push_str("log_level = \"TRACE\"\n");
    world.run_agent();
    world.run_plugin(&world.plugin_job());
    world.create("vol");
    // What fails is logged with its reasons, at the servers and at the client; a plugin may repeat
    // in them what it was shown.
    let why = json!({"code": 14, "text": "correct-horse, on command"});
    let fails = |call: &str| json!({"call": call, "times": 1, "do": {"fail": why}});
    let faults = json!([fails("ControllerPublishVolume"), fails("NodePublishVolume")]);
    std::fs::write(world.path("faults"), faults.to_string()).expect("a file");
    let write = "echo hello > $NOMAD_VOLUME_data/file";
    world.job("one", "batch", "exec", write);
    world.wait_status("one", "complete");
    world.wait_free();
    let log = world.agent.as_ref().expect("it runs").log_tail(usize::MAX);
    let lines = |words: &[&str]| -> Vec<String> {
        let have = log
            .lines()
            .filter(|line| words.iter().all(|word| line.contains(word)));
        have.map(str::to_owned).collect()
    };
    for words in [
        ["TRACE", "a claim is given back"],
        ["ControllerPublishVolume", "on command"],
        ["NodePublishVolume", "on command"],
    ] {
        let of_it = [words[0], words[1], "volume=\"vol\""];
        assert!(!lines(&of_it).is_empty(), "{words:?}\n{log}");
    }
    assert_eq!(lines(&["correct-horse"]), Vec::<String>::new());
}

#[test]
fn cl_13_an_agent_killed_between_stage_and_publish_goes_on_where_it_was() {
    let Some(mut world) = World::start("CSI and a killed agent") else {
        return;
    };
    world.create("vol");
    let slow = json!([{"call": "NodePublishVolume", "times": 1, "do": {"slow": {"ms": 3000}}}]);
    std::fs::write(world.path("faults"), slow.to_string()).expect("a file");
    world.job(
        "one",
        "service",
        "exec",
        "echo hello > $NOMAD_VOLUME_data/file; sleep 1000",
    );
    wait_for("publish", LONG, || {
        let begun = world.calls().iter().any(|call| call == "NodePublishVolume");
        begun.then_some(()).ok_or("not yet")
    })
    .expect("it is published");
    world.agent.take().expect("it runs").kill().expect("killed");
    world.agent = Some(world.setup.start().expect("the agent starts again"));
    world.wait_status("one", "running");

    // And once more while the volume is in use: it is found again, not brought again.
    let published = |world: &World| {
        let calls = world.calls();
        calls
            .iter()
            .filter(|call| *call == "NodePublishVolume")
            .count()
    };
    let before = published(&world);
    world.agent.take().expect("it runs").kill().expect("killed");
    world.agent = Some(world.setup.start().expect("the agent starts again"));
    world.wait_status("one", "running");
    assert_eq!(published(&world), before);
    // The call that was under way when the agent was first killed is done late, but while the
    // volume is used.
    wait_for("the end of all calls", LONG, || {
        let record = world.record();
        let begun = record.iter().filter(|line| !line["begin"].is_null());
        let ended = record.iter().filter(|line| !line["code"].is_null());
        (begun.count() == ended.count())
            .then_some(())
            .ok_or("some are open")
    })
    .expect("they end");
    world.stop("one");
    world.wait_free();
    let calls = world.calls();
    assert_eq!(&calls[calls.len() - 3..], &WHOLE[3..], "{calls:?}");
    world.job(
        "two",
        "batch",
        "exec",
        "grep -q hello $NOMAD_VOLUME_data/file",
    );
    world.wait_status("two", "complete");
    world.wait_free();
    world.nothing_refused();
}

#[test]
fn plg_04_plg_11_a_plugin_that_dies_comes_back_and_one_that_is_stopped_is_gone() {
    let Some(world) = World::start("CSI and a plugin that dies") else {
        return;
    };
    world.create("vol");
    let die = json!([{"call": "NodeStageVolume", "times": 1, "when": "after", "do": "die"}]);
    std::fs::write(world.path("faults"), die.to_string()).expect("a file");
    world.job(
        "one",
        "batch",
        "exec",
        "echo hello > $NOMAD_VOLUME_data/file",
    );
    world.wait_status("one", "complete");
    world.wait_free();
    let staged = world
        .calls()
        .iter()
        .filter(|call| *call == "NodeStageVolume")
        .count();
    assert!(staged >= 2, "the answer was lost with the plugin");
    world.nothing_refused();
    world.stop("plugin");
    let gone = wait_for("no plugin", LONG, || {
        let nodes = world.http().json("/v1/nodes")?;
        let id = nodes[0]["ID"].as_str().unwrap_or_default().to_owned();
        let node = world.http().json(&format!("/v1/node/{id}"))?;
        let none = |plugins: &Value| plugins.as_object().is_none_or(serde_json::Map::is_empty);
        ensure!(
            none(&node["CSINodePlugins"]) && none(&node["CSIControllerPlugins"]),
            "{node}"
        );
        Ok::<_, anyhow::Error>(())
    });
    gone.expect("the node has no plugin");
}

#[test]
fn csi_09_csi_10_csi_22_a_task_begins_when_its_plugin_was_shown_the_volume() {
    let Some(world) = World::start("CSI and what a plugin is shown") else {
        return;
    };
    world.create("vol");
    let volume = world
        .http()
        .json("/v1/volume/csi/vol")
        .expect("it is there");
    let slow = json!([{"call": "NodePublishVolume", "times": 1, "do": {"slow": {"ms": 1000}}}]);
    std::fs::write(world.path("faults"), slow.to_string()).expect("a file");
    world.job(
        "one",
        "batch",
        "exec",
        "echo hello > $NOMAD_VOLUME_data/file",
    );
    world.wait_status("one", "complete");
    world.wait_free();
    // It is called what its provider calls it, and secrets go where the specification has them:
    // the plugin refuses a call without.
    let record = world.record();
    let secret = [
        "ControllerPublish",
        "NodeStage",
        "NodePublish",
        "ControllerUnpublish",
    ];
    let mut reported = 0;
    for line in record.iter().filter(|line| !line["begin"].is_null()) {
        let call = line["call"].as_str().unwrap_or_default();
        if !WHOLE.contains(&call) {
            continue;
        }
        let begin = &line["begin"];
        assert_eq!(begin["volume"], volume["ExternalID"], "{line}");
        let shown = secret.iter().any(|name| call.starts_with(name));
        let wanted = if shown {
            json!(["secret"])
        } else {
            Value::Null
        };
        assert_eq!(begin["secrets"], wanted, "{line}");
        reported += 1;
    }
    assert_eq!(reported, WHOLE.len());
    assert_ne!(volume["ExternalID"], "vol");
    let ended = |line: &&Value| line["call"] == "NodePublishVolume" && line["code"] == "Ok";
    let published = record.iter().find(ended).expect("it was published");
    let published = published["at"].as_i64().expect("nanoseconds");
    let allocs = world
        .http()
        .json("/v1/job/one/allocations")
        .expect("a list");
    let events = allocs[0]["TaskStates"]["t"]["Events"].as_array().cloned();
    let events = events.unwrap_or_default();
    let started = events.iter().find(|event| event["Type"] == "Started");
    let started = started.and_then(|event| event["Time"].as_i64());
    assert!(
        started > Some(published),
        "{started:?} {published} {events:?}"
    );
    world.nothing_refused();
}
