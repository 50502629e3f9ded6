//! Host volumes that the cluster makes: a real server, clients elsewhere, plugins that are scripts,
//! and jobs that find what others wrote, whatever dies meanwhile.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, Http, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::remote::setup;
use crate::support::{json_of, register};

/// A plugin that makes a directory, unless a file has it fail, and once a file lets it continue.
const PLUGIN: &str = r#"#!/bin/sh
set -eu
told() { [ -e "$DHV_PLUGIN_DIR/../$1" ]; }
case "$1" in
fingerprint) echo '{"version": "1.2.3"}' ;;
create)
    if told fails; then echo 'no room' >&2; exit 1; fi
    mkdir -p "$DHV_VOLUMES_DIR/own-$DHV_VOLUME_NAME"
    while told hold; do sleep 0.02; done
    printf '{"path": "%s", "bytes": 4096}' "$DHV_VOLUMES_DIR/own-$DHV_VOLUME_NAME"
    ;;
delete)
    if told fails_to_delete; then echo 'busy' >&2; exit 1; fi
    rm -rf "$DHV_VOLUMES_DIR/own-$DHV_VOLUME_NAME"
    ;;
esac
"#;

/// A server, and clients elsewhere that have the plugin `own`.
struct World {
    server: Agent,
    clients: Vec<(Setup, Option<Agent>)>,
    dir: tempfile::TempDir,
}

impl World {
    fn start(clients: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("server");
        let setup = Setup::server(env!("CARGO_BIN_EXE_drover"), &data);
        let server = setup.expect("free ports").start();
        let mut world = Self {
            server: server.expect("the server starts"),
            clients: Vec::new(),
            dir,
        };
        world.add(clients);
        world
    }

    /// Starts clients, and waits until they can take volumes.
    fn add(&mut self, clients: usize) {
        let plugins = self.path("plugins");
        std::fs::create_dir_all(&plugins).expect("a directory");
        let file = plugins.join("own");
        std::fs::write(&file, PLUGIN).expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, mode).expect("executable");
        let folder = plugins.display();
        let more = format!("client {{\n  host_volume_plugin_dir = \"{folder}\"\n");
        for number in 0..clients {
            let data = self.path(&format!("client{number}"));
            let mut setup = setup(&self.server, data, "");
            setup.config = setup.config.replacen("client {\n", &more, 1);
            let agent = setup.spawn().expect("the client starts");
            self.clients.push((setup, Some(agent)));
        }
        self.await_plugins();
    }

    fn await_plugins(&self) {
        let mut http = self.http();
        wait_for("plugins", LONG, || -> Result<()> {
            let nodes = http.json("/v1/nodes?os=true")?;
            let nodes = nodes.as_array().context("nodes")?;
            ensure!(nodes.len() == self.clients.len(), "{nodes:?}");
            for node in nodes {
                ensure!(node["Status"] == "ready", "{node}");
                let id = node["ID"].as_str().unwrap_or_default();
                let node = self.http().json(&format!("/v1/node/{id}"))?;
                let version = &node["Attributes"]["plugins.host_volume.own.version"];
                ensure!(version == "1.2.3", "{node}");
                let mkdir = &node["Attributes"]["plugins.host_volume.mkdir.version"];
                ensure!(mkdir == "0.0.1", "{node}");
            }
            Ok(())
        })
        .expect("they are told");
    }

    fn http(&self) -> Http {
        self.server.http()
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn kill_client(&mut self, number: usize) {
        let agent = self.clients[number].1.take().expect("it runs");
        agent.kill().expect("killed");
    }

    fn start_client(&mut self, number: usize) {
        let (setup, agent) = &mut self.clients[number];
        *agent = Some(setup.spawn().expect("it starts again"));
    }

    /// Has a volume made; it once it is ready.
    fn make(&self, volume: &Value) -> Value {
        let body = json!({ "Volume": volume });
        let answer = self.http().put("/v1/volume/host/create", &body);
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json().expect("JSON");
        assert_eq!(answer["Warnings"], "");
        assert!(answer["Index"].as_u64() > Some(0), "{answer}");
        self.await_state(id_of(&answer["Volume"]), "ready")
    }

    fn await_state(&self, id: &str, state: &str) -> Value {
        let path = format!("/v1/volume/host/{id}");
        let found = wait_for(&path, LONG, || {
            let volume = self.http().json(&path)?;
            ensure!(volume["State"] == state, "{volume}");
            Ok::<_, anyhow::Error>(volume)
        });
        found.expect(state)
    }

    fn volumes(&self, query: &str) -> Vec<Value> {
        let list = json_of(&mut self.http(), &format!("/v1/volumes?type=host{query}"));
        list.as_array().expect("a list").clone()
    }

    /// What is answered to a write that is refused with this status.
    fn refused(&self, status: u16, (method, path): (&str, &str), body: &Value) -> String {
        let body = body.to_string();
        let answer = self.http().send(method, path, body.as_bytes());
        let answer = answer.expect("an answer");
        let text = answer.text();
        assert_eq!(answer.status, status, "{text}");
        text
    }

    fn delete(&self, id: &str) {
        let path = format!("/v1/volume/host/{id}");
        wait_for("the volume to be deleted", LONG, || {
            let answer = self.http().send("DELETE", &path, b"")?;
            ensure!(answer.status == 200, "{}", answer.text());
            ensure!(answer.json()?["Index"].as_u64() > Some(0));
            Ok::<_, anyhow::Error>(())
        })
        .expect("it goes");
    }

    fn run(&self, job: &Value) {
        register(&mut self.http(), job);
    }

    /// The newest allocation of a job, once it has a status.
    fn await_alloc(&self, job: &str, status: &str) -> Value {
        let path = format!("/v1/job/{job}/allocations");
        let found = wait_for(&path, LONG, || {
            let allocs = self.http().json(&path)?;
            let newest = allocs.as_array().into_iter().flatten();
            let newest = newest.max_by_key(|alloc| alloc["CreateIndex"].as_u64());
            let newest = newest.cloned().context("an allocation")?;
            ensure!(newest["ClientStatus"] == status, "{allocs}");
            Ok::<_, anyhow::Error>(newest)
        });
        found.expect(status)
    }

    fn stop(&self, job: &str) {
        let path = format!("/v1/job/{job}");
        let answer = self.http().send("DELETE", &path, b"").expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.await_alloc(job, "complete");
    }
}

fn id_of(object: &Value) -> &str {
    object["ID"].as_str().expect("an id")
}

fn volume(name: &str, plugin: &str) -> Value {
    json!({"Name": name, "PluginID": plugin, "RequestedCapabilities": [
        {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]})
}

/// A job that runs a script with the volume `data` in `$NOMAD_VOLUME_data`.
fn job(id: &str, kind: &str, request: &Value, script: &str) -> Value {
    json!({"Job": {"ID": id, "Name": id, "Type": kind, "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1, "Volumes": {"data": request},
            "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
            "ReschedulePolicy": {"Attempts": 0, "Unlimited": false},
            "Tasks": [{"Name": "t", "Driver": "raw_exec", "KillTimeout": 1_000_000_000,
                "Config": {"command": "/bin/sh", "args": ["-c", script]},
                "VolumeMounts": [{"Volume": "data", "Destination": "local/data"}],
                "Resources": {"CPU": 20, "MemoryMB": 20}}]}]}})
}

fn host(source: &str) -> Value {
    json!({"Name": "data", "Type": "host", "Source": source})
}

/// Looks for a volume on its node and in lists.
fn is_listed(world: &World, made: &Value, node: &str) {
    let id = id_of(made);
    let reported = json_of(&mut world.http(), &format!("/v1/node/{node}"));
    let reported = &reported["HostVolumes"]["data"];
    assert_eq!(
        (id_of(reported), &reported["Path"]),
        (id, &made["HostPath"])
    );
    for (query, count) in [
        (String::new(), 1),
        (format!("&prefix={}", &id[..8]), 1),
        ("&prefix=x".to_owned(), 0),
        (format!("&node_id={node}"), 1),
        ("&node_pool=default".to_owned(), 1),
        ("&node_pool=other".to_owned(), 0),
        ("&namespace=*".to_owned(), 1),
        ("&filter=Name+%3D%3D+%22data%22".to_owned(), 1),
        ("&filter=Name+%3D%3D+%22other%22".to_owned(), 0),
    ] {
        assert_eq!(world.volumes(&query).len(), count, "{query}");
    }
}

#[test]
fn a_volume_is_made_used_found_after_a_crash_and_deleted() {
    let mut world = World::start(1);
    let node = id_of(&json_of(&mut world.http(), "/v1/nodes")[0]).to_owned();
    let made = world.make(&volume("data", "mkdir"));
    let id = id_of(&made).to_owned();
    let path = made["HostPath"].as_str().expect("a path").to_owned();
    assert!(
        path.ends_with(&format!("client0/host_volumes/{id}")),
        "{path}"
    );
    assert_eq!(made["NodeID"], node.as_str());
    assert_eq!(
        (&made["NodePool"], &made["Namespace"]),
        (&json!("default"), &json!("default"))
    );
    is_listed(&world, &made, &node);
    let text = world.refused(
        500,
        ("PUT", "/v1/volume/host/create"),
        &json!({"Volume": volume("data", "mkdir")}),
    );
    let why = "could not place volume \"data\": no node meets constraints: it has a volume \
               \"data\" already";
    assert_eq!(text, why);
    world.run(&job(
        "writer",
        "service",
        &host("data"),
        "echo hello > $NOMAD_VOLUME_data/file; exec sleep 1000",
    ));
    let alloc = id_of(&world.await_alloc("writer", "running")).to_owned();
    let text = world.refused(
        500,
        ("DELETE", &format!("/v1/volume/host/{id}")),
        &json!({}),
    );
    assert_eq!(
        text,
        format!("volume {id} in use by allocations: [{alloc}]")
    );
    let shown = json_of(&mut world.http(), &format!("/v1/volume/host/{id}"));
    assert_eq!(id_of(&shown["Allocations"][0]), alloc);
    world.kill_client(0);
    world.start_client(0);
    world.await_plugins();
    world.await_state(&id, "ready");
    world.stop("writer");
    let read = "test \"$(cat $NOMAD_VOLUME_data/file)\" = hello";
    world.run(&job("reader", "batch", &host("data"), read));
    world.await_alloc("reader", "complete");
    world.delete(&id);
    assert!(!Path::new(&path).exists());
    assert!(world.volumes("").is_empty());
    let missing = world.http().get(&format!("/v1/volume/host/{id}"));
    let missing = missing.expect("an answer");
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "volume not found")
    );
}

#[test]
fn a_plugin_that_fails_leaves_nothing_and_one_that_is_cut_off_is_asked_again() {
    let mut world = World::start(1);
    let own = world.path("client0/host_volumes/own-data");
    std::fs::write(world.path("fails"), "").expect("a file");
    let body = json!({"Volume": volume("data", "own")});
    let text = world.refused(500, ("PUT", "/v1/volume/host/create"), &body);
    assert!(
        text.starts_with("volume \"data\" was not taken by node "),
        "{text}"
    );
    assert!(
        text.ends_with("plugin \"own\": create ended with exit status: 1: no room"),
        "{text}"
    );
    assert!(world.volumes("").is_empty());
    std::fs::remove_file(world.path("fails")).expect("removed");
    // The client dies while the plugin works.
    std::fs::write(world.path("hold"), "").expect("a file");
    let mut http = world.http();
    let asking = std::thread::spawn(move || {
        let answer = http.put("/v1/volume/host/create", &body);
        answer.expect("an answer").text()
    });
    wait_for("the plugin", LONG, || {
        own.exists().then_some(()).ok_or("not yet")
    })
    .expect("it works");
    world.kill_client(0);
    let text = asking.join().expect("answered");
    let pending = world.volumes("").remove(0);
    let id = id_of(&pending).to_owned();
    assert_eq!(pending["State"], "pending");
    let pending = format!("volume {id} is pending on node");
    assert!(text.contains(&pending), "{text}");
    std::fs::remove_file(world.path("hold")).expect("removed");
    world.start_client(0);
    let ready = world.await_state(&id, "ready");
    assert_eq!(ready["HostPath"], json!(own));
    // Said again, it is the same.
    let mut again = volume("data", "own");
    again["ID"] = json!(id);
    assert_eq!(world.make(&again)["CapacityBytes"], 4096);
    std::fs::write(world.path("fails_to_delete"), "").expect("a file");
    let path = format!("/v1/volume/host/{id}");
    let text = world.refused(500, ("DELETE", &path), &json!({}));
    let why = format!(
        "volume {id} was not deleted: plugin \"own\": delete ended with exit status: 1: busy"
    );
    assert_eq!(text, why);
    world.await_state(&id, "ready");
    std::fs::remove_file(world.path("fails_to_delete")).expect("removed");
    world.delete(&id);
    assert!(!own.exists());
}

fn what_will_not_do_is_refused(world: &World) {
    for (change, text) in [
        (
            json!({"Name": "each"}),
            "could not place volume \"each\": no node meets constraints: it has a volume \"each\" \
             already",
        ),
        (
            json!({"PluginID": "zfs"}),
            "could not place volume \"x\": no node meets constraints: it does not run plugin \
             \"zfs\"",
        ),
        (
            json!({"NodePool": "blue"}),
            "node pool \"blue\" does not exist",
        ),
        (
            json!({"NodeID": "none"}),
            "could not place volume \"x\": no such node none",
        ),
        (
            json!({"Name": "a/b"}),
            "volume validation failed: invalid volume name \"a/b\"",
        ),
        (
            json!({"PluginID": ""}),
            "volume validation failed: missing plugin ID",
        ),
        (
            json!({"RequestedCapabilities": []}),
            "volume validation failed: must include at least one capability block",
        ),
        (
            json!({"HostPath": "/srv"}),
            "volume validation failed: host path and capacity of a volume that is made come from \
             its plugin: register a volume that is there",
        ),
        (
            json!({"ID": "00000000-0000-4000-8000-000000000001"}),
            "cannot update volume \"00000000-0000-4000-8000-000000000001\": volume does not exist",
        ),
        (
            json!({"Namespace": "none"}),
            "volume \"\" is in nonexistent namespace \"none\"",
        ),
    ] {
        let mut requested = volume("x", "mkdir");
        for (field, value) in change.as_object().expect("fields") {
            requested[field] = value.clone();
        }
        let body = json!({ "Volume": requested });
        let is_invalid = text.starts_with("volume validation failed");
        let status = if is_invalid { 400 } else { 500 };
        let answer = world.refused(status, ("PUT", "/v1/volume/host/create"), &body);
        match text.contains("nonexistent") {
            true => assert!(
                answer.ends_with("is in nonexistent namespace \"none\""),
                "{answer}"
            ),
            false => assert_eq!(answer, text),
        }
    }
}

#[test]
fn a_volume_comes_to_the_node_that_will_do_and_what_will_not_is_said() {
    let world = World::start(2);
    let nodes = json_of(&mut world.http(), "/v1/nodes");
    let nodes = [id_of(&nodes[0]).to_owned(), id_of(&nodes[1]).to_owned()];
    let mut on = volume("first", "mkdir");
    on["NodeID"] = json!(nodes[1]);
    assert_eq!(world.make(&on)["NodeID"], nodes[1].as_str());
    let mut constrained = volume("second", "mkdir");
    constrained["Constraints"] = json!([
        {"LTarget": "${node.unique.id}", "Operand": "=", "RTarget": nodes[0]}]);
    assert_eq!(world.make(&constrained)["NodeID"], nodes[0].as_str());
    // One of a name for each node, and no more.
    let both = [
        world.make(&volume("each", "mkdir")),
        world.make(&volume("each", "own")),
    ];
    assert_ne!(both[0]["NodeID"], both[1]["NodeID"]);
    what_will_not_do_is_refused(&world);
    let missing = world.refused(400, ("PUT", "/v1/volume/host/create"), &json!({}));
    assert_eq!(missing, "missing volume definition");
    assert_eq!(world.volumes("").len(), 4);
}

#[test]
fn a_directory_is_registered_read_and_given_back_as_it_was() {
    let world = World::start(1);
    let node = id_of(&json_of(&mut world.http(), "/v1/nodes")[0]).to_owned();
    let there = world.path("there");
    let mut requested = json!({"Name": "files", "NodeID": node, "HostPath": there,
        "CapacityBytes": 77, "RequestedCapabilities": [
            {"AccessMode": "single-node-reader-only", "AttachmentMode": "file-system"}]});
    let body = json!({ "Volume": requested });
    let text = world.refused(500, ("PUT", "/v1/volume/host/register"), &body);
    assert!(text.contains("is not there: No such file"), "{text}");
    assert!(world.volumes("").is_empty());
    std::fs::create_dir(&there).expect("a directory");
    std::fs::write(there.join("file"), "hello").expect("a file");
    let answer = world.http().put("/v1/volume/host/register", &body);
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = id_of(&answer.json().expect("JSON")["Volume"]).to_owned();
    assert_eq!(world.await_state(&id, "ready")["CapacityBytes"], 77);
    // It may only be read, and that is how it is mounted.
    let mut request = host("files");
    world.run(&job("writer", "batch", &request, "true"));
    wait_for("its evaluation", LONG, || {
        let evals = world.http().json("/v1/job/writer/evaluations")?;
        let mut all = evals.as_array().into_iter().flatten();
        let waits = all.find(|eval| eval["Status"] == "blocked");
        let why = &waits.context("a blocked one")?["FailedTGAllocs"]["g"]["ConstraintFiltered"];
        ensure!(
            *why == json!({"missing compatible host volumes": 1}),
            "{why}"
        );
        Ok::<_, anyhow::Error>(())
    })
    .expect("it waits");
    request["ReadOnly"] = json!(true);
    if is_root() {
        let read = "cat local/data/file && ! touch local/data/new";
        world.run(&job("reader", "batch", &request, read));
        world.await_alloc("reader", "complete");
    }
    requested["ID"] = json!(id);
    requested["Name"] = json!("other");
    let text = world.refused(
        500,
        ("PUT", "/v1/volume/host/register"),
        &json!({ "Volume": requested }),
    );
    assert_eq!(text, "volume name cannot be updated");
    world.delete(&id);
    assert!(there.join("file").exists(), "nothing of it was deleted");
}

fn is_root() -> bool {
    let own = std::fs::metadata("/proc/self").expect("this process");
    let is_root = std::os::unix::fs::MetadataExt::uid(&own) == 0;
    if !is_root {
        drover_testkit::skip("a volume that is only read", "not root");
    }
    is_root
}

/// Waits until the task of a job that runs has written there too; it was begun so often by then.
fn started(starts: &Path, times: usize) {
    wait_for("its start", LONG, || {
        let starts = std::fs::read_to_string(starts)?;
        ensure!(starts.lines().count() == times, "{starts}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("each of them wrote there");
}

#[test]
fn a_sticky_job_comes_back_to_its_volume_until_its_claim_is_deleted() {
    let mut world = World::start(2);
    for _ in 0..2 {
        world.make(&volume("data", "mkdir"));
    }
    let mut request = host("data");
    request["Sticky"] = json!(true);
    let script = "echo again >> $NOMAD_VOLUME_data/starts; exec sleep 1000";
    let sticky = job("sticky", "service", &request, script);
    world.run(&sticky);
    let first = world.await_alloc("sticky", "running");
    let claims = json_of(&mut world.http(), "/v1/volumes/claims?job_id=sticky");
    let claim = &claims[0];
    assert_eq!(claim["AllocID"], first["ID"]);
    assert_eq!(
        (&claim["VolumeName"], &claim["TaskGroupName"]),
        (&json!("data"), &json!("g"))
    );
    let held = claim["VolumeID"].as_str().expect("an id").to_owned();
    let node = json_of(&mut world.http(), &format!("/v1/volume/host/{held}"))["NodeID"].clone();
    assert_eq!(node, first["NodeID"]);
    let path = json_of(&mut world.http(), &format!("/v1/volume/host/{held}"))["HostPath"].clone();
    let starts = PathBuf::from(path.as_str().expect("a path")).join("starts");
    started(&starts, 1);
    for number in [1, 0] {
        world.kill_client(number);
        world.start_client(number);
    }
    world.await_plugins();
    for number in [2, 3] {
        world.stop("sticky");
        world.run(&sticky);
        let next = world.await_alloc("sticky", "running");
        assert_eq!(next["NodeID"], node);
        started(&starts, number);
    }
    let claims = json_of(&mut world.http(), "/v1/volumes/claims");
    assert_eq!(claims.as_array().map(Vec::len), Some(1), "{claims}");
    // Where its volume cannot be used it waits, and takes no other one.
    world.stop("sticky");
    let drained = format!("/v1/node/{}/eligibility", node.as_str().expect("an id"));
    let off = json!({"Eligibility": "ineligible"});
    let answer = world.http().put(&drained, &off).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    world.run(&sticky);
    wait_for("its evaluation", LONG, || {
        let evals = world.http().json("/v1/job/sticky/evaluations")?;
        let mut all = evals.as_array().into_iter().flatten();
        let waits = all.any(|eval| eval["Status"] == "blocked");
        ensure!(waits, "{evals}");
        Ok::<_, anyhow::Error>(())
    })
    .expect("it waits");
    let claim = claims[0]["ID"].as_str().expect("an id");
    let released = world
        .http()
        .send("DELETE", &format!("/v1/volumes/claim/{claim}"), b"")
        .expect("an answer");
    assert_eq!(released.status, 200, "{}", released.text());
    let moved = world.await_alloc("sticky", "running");
    assert_ne!(moved["NodeID"], node, "any volume will do now");
    let claims = json_of(&mut world.http(), "/v1/volumes/claims?job_id=sticky");
    assert_ne!(claims[0]["VolumeID"], held.as_str());
}
