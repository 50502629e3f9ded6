//! A job moves from one node to another, and its volume after it: what was written on the one is
//! read on the other, and the volume is never on both.

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{COMES, GOES, LATE_DOWN, SOON_DOWN, World};

/// Writes where nothing was written, and copies what it finds elsewhere.
const SCRIPT: &str = "cd $NOMAD_VOLUME_data; echo $$ > pid; \
    if [ -f file ]; then cp file seen; else echo hello > file; fi; exec sleep 1000";

fn node_id(world: &World, name: &str) -> String {
    let found = wait_for(name, LONG, || {
        let nodes = world.http().json("/v1/nodes")?;
        let mut nodes = nodes.as_array().into_iter().flatten();
        let node = nodes.find(|node| node["Name"] == name);
        let id = node.and_then(|node| node["ID"].as_str());
        id.map(str::to_owned)
            .ok_or_else(|| anyhow::anyhow!("no such node"))
    });
    found.expect("it is registered")
}

pub(super) fn eligible(world: &World, name: &str, word: &str) {
    let path = format!("/v1/node/{}/eligibility", node_id(world, name));
    world.put(&path, &json!({"Eligibility": word}));
}

/// A job that writes to a volume on node "one", and could run on "two" as well.
fn written_on_one(what: &str, settings: &str) -> Option<(World, String)> {
    let world = World::start_with(what, &["one", "two"], (settings, &[]))?;
    world.create("vol", 1 << 30);
    eligible(&world, "two", "ineligible");
    world.register(&world.job("moves", "service", "vol", SCRIPT, 0));
    assert_eq!(world.wait_status("moves", "running"), "one");
    let remote = world.remote("vol");
    read(&world, &remote, "file");
    eligible(&world, "two", "eligible");
    Some((world, remote))
}

/// What a file of the volume says, once it is there.
fn read(world: &World, remote: &str, name: &str) -> String {
    let path = world.path("state/volumes").join(remote).join(name);
    let found = wait_for(name, LONG, || {
        let text = std::fs::read_to_string(&path)?;
        ensure!(text.ends_with('\n'), "half written");
        Ok::<_, anyhow::Error>(text.trim().to_owned())
    });
    found.unwrap_or_else(|error| panic!("{error:#}\n{}", world.explained()))
}

fn on(node: &str, calls: &[&str]) -> Vec<(String, String)> {
    let each = calls.iter();
    each.map(|call| (node.to_owned(), (*call).to_owned()))
        .collect()
}

#[test]
fn csi_23_csi_37_a_drained_node_hands_its_volume_on() {
    let Some((world, remote)) = written_on_one("a volume and a drain", LATE_DOWN) else {
        return;
    };
    let path = format!("/v1/node/{}/drain", node_id(&world, "one"));
    // Its plugin stays until the end: without it no volume is given back.
    let drain = json!({"DrainSpec": {"Deadline": 60_000_000_000_u64, "IgnoreSystemJobs": true}});
    world.put(&path, &drain);
    assert_eq!(read(&world, &remote, "seen"), "hello");
    let order = [on("one", &COMES), on("one", &GOES), on("two", &COMES)].concat();
    assert_eq!(world.calls(&remote), order);
    assert_eq!(world.refused(), Vec::<Value>::new());
    world.stop("moves");
    world.wait_free("vol");
}

#[test]
fn csi_30_csi_37_a_new_version_of_a_job_has_the_volume_of_the_old_one() {
    let Some((world, remote)) = written_on_one("a volume and a job that changes", LATE_DOWN) else {
        return;
    };
    let mut job = world.job("moves", "service", "vol", SCRIPT, 0);
    job["Job"]["Constraints"] = json!([{"LTarget": "${node.unique.name}",
        "RTarget": "two", "Operand": "="}]);
    world.register(&job);
    assert_eq!(read(&world, &remote, "seen"), "hello");
    assert_eq!(world.wait_status("moves", "running"), "two");
    let order = [on("one", &COMES), on("one", &GOES), on("two", &COMES)].concat();
    assert_eq!(world.calls(&remote), order);
    assert_eq!(world.refused(), Vec::<Value>::new());
    world.stop("moves");
    world.wait_free("vol");
}

/// Everything on node "one" dies, as when its machine does.
fn dies(world: &World, remote: &str) {
    world.clients[0].dies();
    let record = world.record();
    let plugin = record.iter().rev().find(|line| line["node"] == "one");
    let plugin = plugin
        .and_then(|line| line["pid"].as_i64())
        .expect("it was asked");
    let task: i64 = read(world, remote, "pid").parse().expect("a number");
    for pid in [task, plugin] {
        let pid = Pid::from_raw(i32::try_from(pid).expect("a process"));
        kill(pid, Signal::SIGKILL).expect("it ran");
    }
    let path = format!("/v1/node/{}", node_id(world, "one"));
    let down = wait_for("the node to be down", LONG, || {
        let node = world.http().json(&path)?;
        ensure!(node["Status"] == "down", "{}", node["Status"]);
        Ok::<_, anyhow::Error>(())
    });
    down.expect("it is not heard of");
}

/// The claim of a node that is down waits, and says so.
fn waits(world: &World, remote: &str) {
    let explained = wait_for("what is waited for", LONG, || {
        let reported = world.http().json("/v1/volume/csi/vol/explain")?;
        let text = reported.to_string();
        ensure!(text.contains("is not ready"), "{text}");
        Ok::<_, anyhow::Error>(())
    });
    explained.unwrap_or_else(|error| panic!("{error:#}\n{}", world.explained()));
    assert_eq!(
        world.calls(remote),
        on("one", &COMES),
        "nobody else is let in"
    );
}

#[test]
fn csi_45_a_dead_node_keeps_its_volume_until_it_is_given_up() {
    let Some((world, remote)) = written_on_one("a volume and a dead node", SOON_DOWN) else {
        return;
    };
    dies(&world, &remote);
    waits(&world, &remote);
    // A machine's mounts go with it, and no call reports that to the plugin.
    world.fault(
        json!({"call": "ControllerUnpublishVolume", "volume": remote, "times": 1,
        "do": {"forget": "uses"}}),
    );
    world.put(
        &format!("/v1/node/{}/purge", node_id(&world, "one")),
        &json!({}),
    );
    assert_eq!(read(&world, &remote, "seen"), "hello");
    let order = [on("one", &COMES), on("one", &GOES[2..]), on("two", &COMES)].concat();
    assert_eq!(world.calls(&remote), order);
    assert_eq!(world.refused(), Vec::<Value>::new());
    world.stop("moves");
    world.wait_free("vol");
}

#[test]
fn csi_45_a_dead_node_that_is_back_gives_its_volume_to_the_next_one() {
    let Some((world, remote)) = written_on_one("a volume and a node that is back", SOON_DOWN)
    else {
        return;
    };
    dies(&world, &remote);
    waits(&world, &remote);
    world.clients[0].again();
    assert_eq!(read(&world, &remote, "seen"), "hello");
    let order = [on("one", &COMES), on("one", &GOES), on("two", &COMES)].concat();
    assert_eq!(world.calls(&remote), order);
    assert_eq!(world.refused(), Vec::<Value>::new());
    world.stop("moves");
    world.wait_free("vol");
}
