//! An agent that is server and client, with the plugin of this project as a job.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, Http, LONG, Leftovers, Setup, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a change is waited for before it is requested again.
const LIMIT: Duration = Duration::from_secs(60);

/// The agent; dropping it ends all that runs and is mounted there.
pub(crate) struct World {
    agent: Agent,
    plugin: PathBuf,
    _mounts: Mounts,
    _left: Leftovers,
    dir: TempDir,
}

/// What is mounted below a directory; dropping it ends that.
struct Mounts(PathBuf);

impl Drop for Mounts {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let below = paths.filter(|path| Path::new(path).starts_with(&self.0));
        for path in below {
            // Another one below it may have gone with it.
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

/// A job with one task.
pub(crate) struct Job<'a> {
    pub(crate) id: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) volume: Option<&'a str>,
    pub(crate) script: &'a str,
}

/// A task that stays until it gets a signal to end.
pub(crate) const STAYS: &str = "trap 'exit 0' TERM; sleep 1000 & wait $!";

impl World {
    /// Starts it; none where mounts are not allowed.
    ///
    /// The directory lies in the system's place for those, since the path of a socket is short.
    pub(crate) fn start(drover: &Path) -> Result<Option<World>> {
        if fs::metadata("/proc/self")?.uid() != 0 {
            eprintln!("volumes: left out: only root can mount volumes into tasks");
            return Ok(None);
        }
        let plugin = drover.with_file_name("drover-hostpath");
        ensure!(plugin.exists(), "no {}", plugin.display());
        let dir = tempfile::tempdir()?;
        let mut setup = Setup::server(drover, &dir.path().join("data"))?;
        let client = "client {\n  enabled = true\n  node_class = \"real\"\n  options = { \
                      \"driver.raw_exec.enable\" = \"1\" }\n}\n";
        setup.config.push_str(client);
        Ok(Some(World {
            agent: setup.start()?,
            plugin,
            _mounts: Mounts(dir.path().to_owned()),
            _left: Leftovers(dir.path().to_owned()),
            dir,
        }))
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(crate) fn http(&self) -> Http {
        self.agent.http()
    }

    fn path(&self, plugin: &str, what: &str) -> PathBuf {
        self.dir.path().join(format!("{plugin}-{what}"))
    }

    /// Runs a plugin and waits until it is healthy.
    pub(crate) fn run_plugin(&self, id: &str) -> Result<()> {
        let path = |what: &str| self.path(id, what).to_string_lossy().into_owned();
        let job = json!({"Job": {
            "ID": format!("plugin-{id}"), "Name": id, "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
                "Name": "t", "Driver": "raw_exec",
                "Config": {"command": self.plugin, "args": [
                    "--state-dir", path("state"), "--record", path("record"),
                    "--faults", path("faults")]},
                "CSIPluginConfig": {"ID": id, "Type": "monolith"},
                "Resources": {"CPU": 20, "MemoryMB": 20},
            }]}],
        }});
        let mut http = self.http();
        put(&mut http, "/v1/jobs", &job)?;
        wait_for("the plugin", LONG, || {
            let found = http.json(&format!("/v1/plugin/csi/{id}"))?;
            let whole = found["NodesHealthy"] == 1 && found["ControllersHealthy"] == 1;
            ensure!(whole, "{found}");
            Ok::<_, anyhow::Error>(())
        })
    }

    pub(crate) fn create(&self, plugin: &str, id: &str) -> Result<()> {
        let body = json!({"Volumes": [{
            "ID": id, "Name": id, "PluginID": plugin, "Namespace": "default",
            "RequestedCapabilities": [
                {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}],
        }]});
        put(
            &mut self.http(),
            &format!("/v1/volume/csi/{id}/create"),
            &body,
        )?;
        Ok(())
    }

    /// Lets every call about a volume take longer from now on.
    pub(crate) fn slow(&self, plugin: &str, slow: Duration) -> Result<()> {
        let calls = [
            "ControllerPublishVolume",
            "NodeStageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeUnstageVolume",
            "ControllerUnpublishVolume",
        ];
        let millis = u64::try_from(slow.as_millis())?;
        let rules = calls.map(|call| json!({"call": call, "do": {"slow": {"ms": millis}}}));
        fs::write(
            self.path(plugin, "faults"),
            Value::from(rules.to_vec()).to_string(),
        )?;
        Ok(())
    }

    pub(crate) fn run(&self, job: &Job<'_>) -> Result<()> {
        let mut group = json!({"Name": "g", "Count": 1,
            "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
            "Tasks": [{
                "Name": "t", "Driver": "exec",
                "Config": {"command": "/bin/sh", "args": ["-c", job.script]},
                "Resources": {"CPU": 20, "MemoryMB": 20},
            }],
        });
        if let Some(volume) = job.volume {
            group["Volumes"] = json!({"data": {"Name": "data", "Type": "csi", "Source": volume,
                "AccessMode": "single-node-writer", "AttachmentMode": "file-system"}});
            group["Tasks"][0]["VolumeMounts"] =
                json!([{"Volume": "data", "Destination": "/srv/data"}]);
        }
        let (id, kind) = (job.id, job.kind);
        let body = json!({"Job": {"ID": id, "Name": id, "Type": kind, "Datacenters": ["*"],
            "Constraints": [{"LTarget": "${node.class}", "RTarget": "real", "Operand": "="}],
            "TaskGroups": [group]}});
        put(&mut self.http(), "/v1/jobs", &body)?;
        Ok(())
    }

    pub(crate) fn stop(&self, job: &str) -> Result<()> {
        let path = format!("/v1/job/{job}");
        let answer = self.http().send("DELETE", &path, b"")?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    }

    /// The allocation of a job, once it has this status.
    pub(crate) fn allocation(&self, job: &str, status: &str) -> Result<Value> {
        let path = format!("/v1/job/{job}/allocations");
        self.once(&path, |list| {
            ensure!(list[0]["ClientStatus"] != "failed", "{list}");
            Ok((list[0]["ClientStatus"] == status).then(|| list[0].clone()))
        })
    }

    /// Waits until a volume has no holder.
    pub(crate) fn free(&self, id: &str) -> Result<()> {
        self.once(&format!("/v1/volume/csi/{id}"), |volume| {
            let held = |what: &str| {
                volume[what]
                    .as_object()
                    .is_some_and(|held| !held.is_empty())
            };
            Ok((!held("WriteAllocs") && !held("ReadAllocs")).then_some(()))
        })
    }

    /// Requests it again whenever the answer has changed, so that nothing is lost by waiting.
    fn once<T>(&self, path: &str, is: impl Fn(&Value) -> Result<Option<T>>) -> Result<T> {
        let mut http = self.http();
        let began = Instant::now();
        let mut index = 1;
        loop {
            let answer = http.get(&format!("{path}?index={index}&wait=5s"))?;
            if let Some(found) = is(&answer.json()?)? {
                return Ok(found);
            }
            ensure!(began.elapsed() < LIMIT, "{path}: {}", answer.text());
            let now = answer.header("x-nomad-index").context("an index")?;
            index = now.parse()?;
        }
    }

    /// How long the plugin was at work between two times (Unix nanoseconds).
    pub(crate) fn at_work(&self, plugin: &str, from: i128, to: i128) -> Result<Duration> {
        let text = fs::read_to_string(self.path(plugin, "record"))?;
        let mut begun = BTreeMap::new();
        let mut sum = 0;
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            let at = i128::from(line["at"].as_i64().context("at")?);
            let seq = (line["pid"].as_i64(), line["seq"].as_i64());
            let about_volumes = line["call"]
                .as_str()
                .is_some_and(|call| call.ends_with("Volume"));
            if !about_volumes || at < from || at > to {
                continue;
            }
            match line["begin"].is_null() {
                false => drop(begun.insert(seq, at)),
                true => sum += begun.remove(&seq).map_or(0, |began| at - began),
            }
        }
        Ok(Duration::from_nanos(u64::try_from(sum)?))
    }
}

/// PUT; the answer, unless it is a refusal.
pub(crate) fn put(http: &mut Http, path: &str, body: &Value) -> Result<Value> {
    http.put(path, body)?
        .json()
        .with_context(|| path.to_owned())
}
