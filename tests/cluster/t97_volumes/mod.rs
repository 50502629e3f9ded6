//! Volumes of real processes: a server, clients, the plugin of this project as a job, tasks that
//! write, any of which may die when it got a request and had not answered.

mod codes;
mod lies;
mod matrix;
mod moves;
mod zones;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, Http, LONG, Setup, skip, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How a volume comes to a node and goes.
const COMES: [&str; 3] = [
    "ControllerPublishVolume",
    "NodeStageVolume",
    "NodePublishVolume",
];
const GOES: [&str; 3] = [
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
    "ControllerUnpublishVolume",
];
/// How long anything is waited for: another process may be killed in each step of it.
const PATIENT: Duration = LONG.saturating_mul(3);
/// A node that is not heard of is down soon: where one is to be.
const SOON_DOWN: &str = "server {\n  heartbeat_grace = \"2s\"\n  min_heartbeat_ttl = \"1s\"\n}\n";
/// One is back before it is given up, however slowly it starts.
const LATE_DOWN: &str = "server {\n  heartbeat_grace = \"60s\"\n}\n";
/// The secret of every volume.
const SECRET: &str = "correct-horse";

/// An agent that may be killed and started again.
struct Mortal {
    setup: Setup,
    agent: Mutex<Option<Agent>>,
}

impl Mortal {
    fn start(setup: Setup) -> Self {
        let mortal = Self {
            setup,
            agent: Mutex::new(None),
        };
        mortal.again();
        mortal
    }

    /// kill -9, and nothing else.
    fn dies(&self) {
        if let Some(agent) = self.agent.lock().expect("no panic").take() {
            agent.kill().expect("it ran");
        }
    }

    /// Dies and lives, alone among those who want that of it; when it died. It is not waited for:
    /// its callers repeat their requests.
    fn again(&self) -> u128 {
        let mut agent = self.agent.lock().expect("no panic");
        let setup = &self.setup;
        Still {
            agent: &mut agent,
            setup,
        }
        .renewed()
    }

    /// Does something while it stands still, and no other thread kills it.
    fn while_still<T>(&self, work: impl FnOnce(&mut Still<'_>) -> T) -> T {
        let mut agent = self.agent.lock().expect("no panic");
        let pid = agent.as_ref().map(Agent::pid);
        signalled(pid, Signal::SIGSTOP);
        let setup = &self.setup;
        let done = work(&mut Still {
            agent: &mut agent,
            setup,
        });
        // Another one that took its place does not stand still.
        signalled(pid, Signal::SIGCONT);
        done
    }
}

/// An agent that no other thread kills or stops.
struct Still<'m> {
    agent: &'m mut Option<Agent>,
    setup: &'m Setup,
}

impl Still<'_> {
    /// Dies and lives; when it died.
    fn renewed(&mut self) -> u128 {
        if let Some(agent) = self.agent.take() {
            agent.kill().expect("it ran");
        }
        let died = now();
        *self.agent = Some(self.setup.spawn().expect("it starts again"));
        died
    }
}

/// Sends a process a signal, if it is there.
fn signalled(pid: Option<u32>, signal: Signal) {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok());
    let _ = pid.map(|pid| kill(Pid::from_raw(pid), signal));
}

/// A server, clients that run the plugin's nodes, one of them its controller.
struct World {
    dir: TempDir,
    server: Mortal,
    clients: Vec<Mortal>,
    plugin: PathBuf,
}

impl World {
    /// With clients of these names; the controller runs on the last one. None where nothing can be
    /// mounted, or the plugin is not built.
    fn start(what: &str, names: &[&str]) -> Option<World> {
        World::start_with(what, names, (LATE_DOWN, &[]))
    }

    /// The same, with settings of the server, and with more said to each plugin.
    fn start_with(what: &str, names: &[&str], (settings, more): (&str, &[&str])) -> Option<World> {
        let plugin = Path::new(env!("CARGO_BIN_EXE_drover")).with_file_name("drover-hostpath");
        if !plugin.exists() {
            let why = "drover-hostpath is not built: cargo build --workspace";
            skip(what, why);
            return None;
        }
        if !is_root() {
            skip(what, "only root can mount volumes into tasks");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("server");
        let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &data);
        let mut setup = setup.expect("free ports");
        setup.config.push_str(settings);
        let server = Mortal::start(setup);
        let client = |name: &&str| {
            let config = format!(
                "name = \"{name}\"\nclient {{\n  enabled = true\n  \
                 servers = [\"127.0.0.1:{}\"]\n  options {{\n    \
                 \"driver.raw_exec.enable\" = \"true\"\n  }}\n}}\n",
                server.setup.rpc
            );
            let setup = Setup::dev(env!("CARGO_BIN_EXE_drover"), &dir.path().join(name));
            let setup = setup.expect("free ports");
            let dev = false;
            Mortal::start(Setup {
                config,
                dev,
                ..setup
            })
        };
        let clients = names.iter().map(client).collect();
        let world = World {
            dir,
            server,
            clients,
            plugin,
        };
        world.run_plugins(names, more);
        Some(world)
    }

    fn http(&self) -> Http {
        let http = Http::new(([127, 0, 0, 1], self.server.setup.http).into());
        http.timeout(Duration::from_secs(20))
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn run_plugins(&self, names: &[&str], more: &[&str]) {
        let last = names.last().expect("a client");
        for (kind, r#type, without) in [
            ("controller", "service", "--no-node"),
            ("node", "system", "--no-controller"),
        ] {
            let text = |below: &str| self.path(below).to_string_lossy().into_owned();
            let mut job = json!({"Job": {
                "ID": kind, "Name": kind, "Type": r#type, "Datacenters": ["*"],
                "TaskGroups": [{"Name": "g", "Count": 1,
                    "RestartPolicy": {"Attempts": 1000, "Interval": 3_600_000_000_000_u64,
                        "Delay": 50_000_000, "Mode": "fail"},
                    "Tasks": [{"Name": "t", "Driver": "raw_exec",
                        "Config": {"command": self.plugin, "args": [
                            "--state-dir", text("state"), "--record", text("record"),
                            "--faults", text("faults"), without,
                            "--node-id", "${node.unique.name}"]},
                        "CSIPluginConfig": {"ID": "hp", "Type": kind},
                        "Resources": {"CPU": 20, "MemoryMB": 20}}],
                }],
            }});
            let args = &mut job["Job"]["TaskGroups"][0]["Tasks"][0]["Config"]["args"];
            let args = args.as_array_mut().expect("a list");
            args.extend(more.iter().map(|arg| json!(arg)));
            if kind == "controller" {
                job["Job"]["Constraints"] = json!([{"LTarget": "${node.unique.name}",
                    "RTarget": last, "Operand": "="}]);
            }
            self.register(&job);
        }
        self.wait_plugin(names.len());
    }

    /// Waits until the plugin runs on so many nodes.
    fn wait_plugin(&self, nodes: usize) {
        let healthy = wait_for("the plugin", LONG, || {
            let plugin = self.http().json("/v1/plugin/csi/hp")?;
            let whole = plugin["NodesHealthy"] == nodes && plugin["ControllersHealthy"] == 1;
            ensure!(whole, "{plugin}");
            Ok::<_, anyhow::Error>(())
        });
        healthy.expect("it is healthy");
    }

    /// Registers a job, however many requests that takes.
    fn register(&self, job: &Value) {
        self.put("/v1/jobs", job);
    }

    /// A request that is repeated until it is answered well.
    fn put(&self, path: &str, body: &Value) {
        let body = body.to_string();
        self.sent("PUT", path, body.as_bytes(), &[]);
    }

    fn sent(&self, method: &str, path: &str, body: &[u8], also: &[&str]) {
        let sent = wait_for(path, PATIENT, || {
            let answer = self.http().send(method, path, body)?;
            let text = answer.text();
            let good = answer.status == 200 || also.iter().any(|known| text.contains(known));
            ensure!(good, "{}: {text}", answer.status);
            Ok::<_, anyhow::Error>(())
        });
        sent.expect("it is answered");
    }

    /// A volume as it is made and registered, of so many bytes at least.
    fn described(id: &str, bytes: i64) -> Value {
        json!({"Volumes": [{
            "ID": id, "Name": id, "PluginID": "hp", "Namespace": "default",
            "RequestedCapacityMin": bytes,
            "RequestedCapabilities": [
                {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}],
            "Secrets": {"secret": SECRET},
            "Parameters": {"secret": SECRET},
        }]})
    }

    fn create(&self, id: &str, bytes: i64) {
        let path = format!("/v1/volume/csi/{id}/create");
        self.put(&path, &Self::described(id, bytes));
    }

    /// What the plugin calls a volume.
    fn remote(&self, id: &str) -> String {
        let found = wait_for(id, LONG, || {
            let volume = self.http().json(&format!("/v1/volume/csi/{id}"))?;
            let remote = volume["ExternalID"].as_str().unwrap_or_default().to_owned();
            ensure!(!remote.is_empty(), "{volume}");
            Ok::<_, anyhow::Error>(remote)
        });
        found.expect("it is known")
    }

    /// A job of a shell script that uses a volume; with more of the job.
    fn job(&self, id: &str, kind: &str, volume: &str, script: &str, restarts: u64) -> Value {
        json!({"Job": {
            "ID": id, "Name": id, "Type": kind, "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": 1,
                "RestartPolicy": {"Attempts": restarts, "Interval": 3_600_000_000_000_u64,
                    "Delay": 50_000_000, "Mode": "fail"},
                "ReschedulePolicy": {"Attempts": 0, "Unlimited": false},
                "Volumes": {"data": {"Name": "data", "Type": "csi", "Source": volume,
                    "AccessMode": "single-node-writer", "AttachmentMode": "file-system"}},
                "Tasks": [{"Name": "t", "Driver": "raw_exec",
                    "Config": {"command": "/bin/sh", "args": ["-c", script]},
                    "VolumeMounts": [{"Volume": "data", "Destination": "/srv/data"}],
                    "KillTimeout": 1_000_000_000,
                    "Resources": {"CPU": 10, "MemoryMB": 10}}],
            }],
        }})
    }

    fn stop(&self, job: &str) {
        self.sent("DELETE", &format!("/v1/job/{job}"), b"", &[]);
    }

    /// Waits until the newest allocation of a job has one of these statuses; that, and its node.
    fn wait_one_of(&self, job: &str, statuses: &[&str]) -> (String, String) {
        let path = format!("/v1/job/{job}/allocations");
        let found = wait_for(job, PATIENT, || {
            let list = self.http().json(&path)?;
            let allocs = list.as_array().into_iter().flatten();
            let newest = allocs.max_by_key(|alloc| alloc["CreateIndex"].as_u64());
            let newest = newest.context("none")?;
            let reported = |field: &str| newest[field].as_str().unwrap_or_default().to_owned();
            let status = reported("ClientStatus");
            ensure!(statuses.contains(&status.as_str()), "{newest}");
            Ok::<_, anyhow::Error>((status, reported("NodeName")))
        });
        found.unwrap_or_else(|error| panic!("{error:#}\n{}", self.explained()))
    }

    /// Waits until the newest allocation of a job has a status; the node it is on.
    fn wait_status(&self, job: &str, status: &str) -> String {
        self.wait_one_of(job, &[status]).1
    }

    /// Waits until a job has ended; how.
    fn wait_ended(&self, job: &str) -> String {
        self.wait_one_of(job, &["complete", "failed"]).0
    }

    /// Waits until a volume has no holder.
    fn wait_free(&self, id: &str) {
        let free = wait_for(id, PATIENT, || {
            let volume = self.http().json(&format!("/v1/volume/csi/{id}"))?;
            let none = |claims: &Value| claims.as_object().is_none_or(serde_json::Map::is_empty);
            let free = none(&volume["WriteAllocs"]) && none(&volume["ReadAllocs"]);
            ensure!(free, "{volume}");
            Ok::<_, anyhow::Error>(())
        });
        free.unwrap_or_else(|error| panic!("{error:#}\n{}", self.explained()));
    }

    /// The ends of all logs, and of the record.
    fn explained(&self) -> String {
        let mut text = String::new();
        for mortal in self.clients.iter().chain([&self.server]) {
            if let Ok(agent) = mortal.agent.lock() {
                text += &agent
                    .as_ref()
                    .map(|agent| agent.log_tail(25))
                    .unwrap_or_default();
                text += "\n--\n";
            }
        }
        let record = std::fs::read_to_string(self.path("record")).unwrap_or_default();
        let lines: Vec<&str> = record.lines().collect();
        text + &lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn record(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("record")).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        // The last one may be half written.
        lines.map_while(Result::ok).collect()
    }

    /// The calls about a volume, in order: node and call.
    fn calls(&self, remote: &str) -> Vec<(String, String)> {
        let begun = self.record();
        let begun = begun
            .iter()
            .filter(|line| line["begin"]["volume"] == remote);
        let reported = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let on = |line: &Value| match line["begin"]["on"].as_str() {
            Some(on) => on.to_owned(),
            None => reported(&line["node"]),
        };
        begun
            .map(|line| (on(line), reported(&line["call"])))
            .collect()
    }

    /// Adds a rule of what to do wrong, while no plugin reads them.
    fn fault(&self, rule: Value) {
        let _alone = self.alone();
        let mut rules = self.rules();
        rules.push(rule);
        let text = Value::Array(rules).to_string();
        std::fs::write(self.path("faults"), text).expect("a file");
    }

    fn rules(&self) -> Vec<Value> {
        let text = std::fs::read(self.path("faults")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// What is mounted in its folder.
    fn mounted(&self) -> std::io::Result<Vec<PathBuf>> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let own = paths.map(PathBuf::from);
        let own = own.filter(|path| path.starts_with(self.dir.path()));
        Ok(own.collect())
    }

    /// What is shared by all plugins is theirs only between two calls.
    fn alone(&self) -> File {
        let lock = File::create(self.path("state/lock")).expect("the plugins made its folder");
        lock.lock().expect("it is locked");
        lock
    }

    /// Waits until no call about a volume is under way, not even one that no caller waits for.
    fn wait_quiet(&self, remote: &str) {
        let quiet = wait_for("open calls", PATIENT, || {
            let open = open_calls(&self.record(), remote);
            ensure!(open.is_empty(), "{open:?}");
            Ok::<_, anyhow::Error>(())
        });
        quiet.expect("all end");
    }

    /// What plugins refused: nothing comes in the wrong order, so it is only what their rules say.
    /// A call whose caller died may end at any time.
    fn refused(&self) -> Vec<Value> {
        let ended = self.record().into_iter();
        let codes = |line: &Value| {
            let code = line["code"].as_str().unwrap_or("Ok");
            code != "Ok" && line["text"] != "on command" && line["late"] != true
        };
        ended.filter(codes).collect()
    }
}

/// Nanoseconds since 1970, as the plugin records them.
fn now() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("it is later").as_nanos()
}

fn is_root() -> bool {
    let own = std::fs::metadata("/proc/self").expect("this process");
    std::os::unix::fs::MetadataExt::uid(&own) == 0
}

/// The calls about a volume that began and did not end, in processes that live: their names.
fn open_calls(record: &[Value], remote: &str) -> Vec<String> {
    let key = |line: &Value| (line["pid"].as_u64(), line["seq"].as_u64());
    let ended = record.iter().filter(|line| !line["code"].is_null());
    let ended: BTreeSet<_> = ended.map(key).collect();
    let lives = |line: &&Value| {
        let pid = line["pid"].as_u64().unwrap_or_default();
        Path::new("/proc").join(pid.to_string()).exists()
    };
    let open = record.iter().filter(|line| {
        line["begin"]["volume"] == remote && !ended.contains(&key(line)) && lives(line)
    });
    open.map(|line| line["call"].to_string()).collect()
}

impl Drop for World {
    /// Ends what runs here, and what is mounted for it.
    fn drop(&mut self) {
        let mut http = self.http();
        let live = |http: &mut Http| -> Result<Vec<Value>> {
            let list = http.json("/v1/allocations")?;
            let list = list.as_array().cloned().unwrap_or_default();
            let live = list
                .into_iter()
                .filter(|alloc| alloc["ClientStatus"] == "running");
            Ok(live.collect())
        };
        let limit = Duration::from_secs(if std::thread::panicking() { 5 } else { 30 });
        // Jobs that use volumes go first: without plugins no volume is given back.
        for plugins in [false, true] {
            let meant = |alloc: &Value| {
                let job = alloc["JobID"].as_str().unwrap_or_default();
                plugins || !["controller", "node"].contains(&job)
            };
            for alloc in live(&mut http)
                .unwrap_or_default()
                .iter()
                .filter(|one| meant(one))
            {
                let job = alloc["JobID"].as_str().unwrap_or_default();
                let _ = http.send("DELETE", &format!("/v1/job/{job}"), b"");
            }
            let _ = wait_for("the end of all", limit, || {
                let live = live(&mut http)?.iter().filter(|one| meant(one)).count();
                ensure!(live == 0, "{live} run");
                Ok::<_, anyhow::Error>(())
            });
        }
        self.clients.iter().for_each(Mortal::dies);
        for path in self.mounted().unwrap_or_default() {
            let mut umount = std::process::Command::new("umount");
            let _ = umount.arg("-l").arg(path).status();
        }
    }
}
