//! A plugin that says what is not so: the answer is held when the work is done, and what was done
//! is undone meanwhile. The agent looks, and calls again.

use std::path::{Path, PathBuf};
use std::process::Command;

use drover_testkit::wait_for;
use serde_json::{Value, json};

use super::{PATIENT, World};

const GIB: i64 = 1 << 30;
/// Where allocations see volumes, and where they are brought to, in a plugin's folder.
const SEEN: &str = "/per-alloc/";
const STAGED: &str = "/staging/";

/// The first answer to a call about a volume is held until it may go.
fn holds(world: &World, call: &str, remote: &str) {
    world.fault(
        json!({"call": call, "volume": remote, "times": 1, "when": "after",
        "do": {"hold": {"until": gate(world, call, remote)}}}),
    );
}

fn gate(world: &World, call: &str, remote: &str) -> PathBuf {
    world.path(&format!("gate-{call}-{remote}"))
}

/// Once the work of a call is done, something else is done before its answer goes.
fn meanwhile(world: &World, (call, remote): (&str, &str), undo: impl FnOnce()) {
    let held = wait_for(call, PATIENT, || {
        let record = world.record();
        let is = record.iter().any(|line| {
            line["call"] == call && line["held"] == "after" && line["volume"] == remote
        });
        is.then_some(()).ok_or("it is not made")
    });
    held.unwrap_or_else(|error| panic!("{error:#}\n{}", world.explained()));
    undo();
    std::fs::write(gate(world, call, remote), "").expect("a file");
}

/// What is mounted below a folder of this world's plugins.
fn mounted(world: &World, below: &str) -> Vec<PathBuf> {
    let mut paths = world.mounted().expect("mounts");
    paths.retain(|path| path.to_string_lossy().contains(below));
    paths
}

fn unmount(path: &Path) {
    let done = Command::new("umount").arg(path).status();
    assert!(done.expect("umount runs").success(), "{}", path.display());
}

/// Shows the bytes of a volume where the plugin just took them from.
fn mount_again(world: &World, remote: &str, path: &Path) {
    std::fs::create_dir_all(path).expect("a folder");
    let bytes = world.path("state/volumes").join(remote);
    let mut mount = Command::new("mount");
    let done = mount.arg("--bind").arg(&bytes).arg(path).status();
    assert!(done.expect("mount runs").success(), "{}", path.display());
}

/// A job writes to a volume, and ends well.
fn writes(world: &World, id: &str) {
    let write = "echo hello >> $NOMAD_VOLUME_data/file";
    world.register(&world.job(id, "batch", id, write, 0));
}

/// It ended well, wrote once and into the volume, and gave it back.
fn is_well(world: &World, id: &str, remote: &str) {
    assert_eq!(world.wait_ended(id), "complete", "{}", world.explained());
    world.wait_free(id);
    let file = world.path("state/volumes").join(remote).join("file");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, "hello\n", "{id} {}", world.explained());
    assert_eq!(mounted(world, SEEN), Vec::<PathBuf>::new());
}

fn times(world: &World, remote: &str, call: &str) -> usize {
    let calls = world.calls(remote);
    calls.iter().filter(|(_, made)| made == call).count()
}

/// It says that it made a volume, and names one that is another's.
fn another(world: &World) {
    world.create("one", GIB);
    let remote = world.remote("one");
    world.fault(json!({"call": "CreateVolume", "times": 1, "do": {"lie": {"id": remote}}}));
    world.create("two", GIB);
    let own = world.remote("two");
    assert_ne!(own, remote);
    writes(world, "two");
    is_well(world, "two", &own);
    assert!(world.calls(&remote).is_empty(), "nobody touched it");
}

/// It says that it published a volume, and nothing is there.
fn published(world: &World) {
    let call = "NodePublishVolume";
    world.create("published", GIB);
    let remote = world.remote("published");
    holds(world, call, &remote);
    writes(world, "published");
    meanwhile(world, (call, &remote), || {
        let seen = mounted(world, SEEN);
        assert!(!seen.is_empty(), "it is published");
        seen.iter().for_each(|path| unmount(path));
    });
    is_well(world, "published", &remote);
    assert_eq!(times(world, &remote, call), 2, "it was asked again");
}

/// It says that it took a volume from where it was, and it is still there.
fn taken(world: &World, (id, call, below): (&str, &str, &str)) {
    let publish = "NodePublishVolume";
    world.create(id, GIB);
    let remote = world.remote(id);
    holds(world, publish, &remote);
    holds(world, call, &remote);
    writes(world, id);
    let mut there = Vec::new();
    meanwhile(world, (publish, &remote), || there = mounted(world, below));
    assert!(!there.is_empty(), "it is there");
    meanwhile(world, (call, &remote), || {
        assert_eq!(mounted(world, below), Vec::<PathBuf>::new());
        mount_again(world, &remote, &there[0]);
    });
    is_well(world, id, &remote);
    assert_eq!(mounted(world, below), Vec::<PathBuf>::new());
    assert!(times(world, &remote, call) > 1, "it was asked again");
}

#[test]
fn csi_31_a_plugin_that_says_what_is_not_so_is_not_believed() {
    let Some(world) = World::start("volumes and a plugin that lies", &["one"]) else {
        return;
    };
    another(&world);
    published(&world);
    taken(&world, ("unpublished", "NodeUnpublishVolume", SEEN));
    taken(&world, ("unstaged", "NodeUnstageVolume", STAGED));
    for rule in world.rules() {
        assert_eq!(rule["times"], 0, "it was never met: {rule}");
    }
    assert_eq!(world.refused(), Vec::<Value>::new());
}
