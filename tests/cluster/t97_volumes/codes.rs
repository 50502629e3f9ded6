//! Every code of gRPC as the answer to each call of a volume's life: whatever becomes of the
//! allocation, the volume is free in the end, and the next one has it; what an operator requested
//! is done when it is requested again.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{COMES, GOES, World};

const GIB: i64 = 1 << 30;

/// How often a job is requested: each of three calls fails once, with a code that may end it.
const TRIES: usize = 4;

/// One volume, whose calls each fail once with a code.
fn lives(world: &World, code: u8, made: &Mutex<()>) {
    let id = format!("code-{code}");
    let fails = |call: &str, volume: &str| {
        world.fault(json!({"call": call, "volume": volume, "times": 1,
            "do": {"fail": {"code": code, "text": "on command"}}}));
    };
    {
        // A rule for a volume without a name must meet its own.
        let _alone = made.lock().expect("no panic");
        fails("CreateVolume", "");
        world.create(&id, GIB);
    }
    let remote = world.remote(&id);
    let others = [
        "ValidateVolumeCapabilities",
        "ControllerExpandVolume",
        "NodeExpandVolume",
        "DeleteVolume",
    ];
    for call in COMES.iter().chain(&GOES).chain(&others) {
        fails(call, &remote);
    }
    world.put(&format!("/v1/volume/csi/{id}"), &World::described(&id, GIB));
    world.create(&id, 2 * GIB);
    let write = "echo hello >> $NOMAD_VOLUME_data/file";
    let wrote = (0..TRIES).any(|number| {
        let job = format!("{id}-{number}");
        world.register(&world.job(&job, "batch", &id, write, 0));
        let ended = world.wait_ended(&job);
        world.wait_free(&id);
        ended == "complete"
    });
    assert!(wrote, "{id} {}", world.explained());
    let path = format!("/v1/volume/csi/{id}/delete");
    world.sent("DELETE", &path, b"", &["volume not found"]);
}

#[test]
fn csi_31_whatever_a_plugin_answers_once_the_volume_is_free_and_used_by_the_next() {
    let Some(world) = World::start("volumes and every code", &["one"]) else {
        return;
    };
    let made = Mutex::new(());
    std::thread::scope(|scope| {
        for code in 1..=16 {
            let (world, made) = (&world, &made);
            let thread = std::thread::Builder::new().name(format!("code {code}"));
            thread
                .spawn_scoped(scope, move || lives(world, code, made))
                .expect("a thread");
        }
    });
    for rule in world.rules() {
        assert_eq!(rule["times"], 0, "it was never met: {rule}");
    }
    assert_eq!(world.refused(), Vec::<Value>::new());
    let left = world.http().json("/v1/volumes?type=csi");
    assert_eq!(left.expect("an answer"), json!([]));
}
