//! Every code of gRPC as the answer to each call by which a volume comes and goes: whatever becomes
//! of the allocation, the volume is free in the end, and the next one has it.

use serde_json::{Value, json};

use super::{COMES, GOES, World};

/// How often a job is asked for: each of three calls fails once, with a code that may end it.
const TRIES: usize = 4;

/// One volume, whose calls each fail once with a code.
fn lives(world: &World, code: u8) {
    let id = format!("code-{code}");
    world.create(&id, 1 << 30);
    let remote = world.remote(&id);
    for call in COMES.iter().chain(&GOES) {
        world.fault(json!({"call": call, "volume": remote, "times": 1,
            "do": {"fail": {"code": code, "text": "on command"}}}));
    }
    let write = "echo hello >> $NOMAD_VOLUME_data/file";
    let wrote = (0..TRIES).any(|number| {
        let job = format!("{id}-{number}");
        world.register(&world.job(&job, "batch", &id, write, 0));
        let ended = world.wait_ended(&job);
        world.wait_free(&id);
        ended == "complete"
    });
    assert!(wrote, "{id} {}", world.explained());
}

#[test]
fn csi_31_whatever_a_plugin_answers_once_the_volume_is_free_and_used_by_the_next() {
    let Some(world) = World::start("volumes and every code", &["one"]) else {
        return;
    };
    std::thread::scope(|scope| {
        for code in 1..=16 {
            let world = &world;
            let thread = std::thread::Builder::new().name(format!("code {code}"));
            thread
                .spawn_scoped(scope, move || lives(world, code))
                .expect("a thread");
        }
    });
    for rule in world.rules() {
        assert_eq!(rule["times"], 0, "it was never met: {rule}");
    }
    assert_eq!(world.refused(), Vec::<Value>::new());
}
