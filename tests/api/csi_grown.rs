//! Volumes that are made larger, or from others, with the plugin of this project and jobs that use
//! them.

use drover_testkit::{LONG, wait_for};
use serde_json::{Value, json};

use crate::csi::{WHOLE, World};
use crate::csi_client::{Use, WRITER};

const WAYS: [(&str, &str); 1] = [("single-node-writer", "file-system")];
const EXPAND: &str = "ControllerExpandVolume";
const ON_NODE: &str = "NodeExpandVolume";
const SIZE: u64 = 1 << 20;

impl World {
    /// The calls about a volume that began, in their order, with what they were about.
    fn begun(&self, remote: &Value) -> Vec<(String, Value)> {
        let record = self.record();
        let of = record
            .iter()
            .filter(|line| line["begin"]["volume"] == *remote);
        of.map(|line| {
            let call = line["call"].as_str().unwrap_or_default();
            (call.to_owned(), line["begin"].clone())
        })
        .collect()
    }

    /// What its plugin calls a volume.
    fn remote(&self, id: &str) -> Value {
        let volume = self.http().json(&format!("/v1/volume/csi/{id}"));
        volume.expect("it is there")["ExternalID"].clone()
    }

    /// Waits until the plugin gets this call.
    fn wait_requested(&self, what: &str, is_it: impl Fn(&Value) -> bool) {
        let requested = wait_for(what, LONG, || {
            let record = self.record();
            record.iter().any(&is_it).then_some(()).ok_or("not yet")
        });
        requested.expect("it is asked");
    }
}

#[test]
fn csi_05_what_grew_while_nobody_had_it_is_made_larger_where_it_is_mounted_next() {
    let Some(mut world) = World::start("a volume that grows while nobody has it") else {
        return;
    };
    world.make("vol", &WAYS, SIZE);
    world.make("vol", &WAYS, 2 * SIZE);
    let remote = world.remote("vol");
    // The next leader knows it.
    world.agent.take().expect("it runs").kill().expect("killed");
    world.run_agent();
    assert_eq!(
        world.output("one", &WRITER, "echo $NOMAD_VOLUME_data"),
        "/srv/data\n"
    );
    assert_eq!(
        world.output("two", &WRITER, "echo $NOMAD_VOLUME_data"),
        "/srv/data\n"
    );
    let begun = world.begun(&remote);
    let calls: Vec<&str> = begun.iter().map(|(call, _)| call.as_str()).collect();
    let (comes, goes) = WHOLE.split_at(3);
    let order = [&[EXPAND], comes, &[ON_NODE], goes, &WHOLE];
    assert_eq!(calls, order.concat(), "once, after it was published");
    let on_node = begun.iter().find(|(call, _)| call == ON_NODE);
    let on_node = &on_node.expect("it was asked").1;
    let published = begun.iter().find(|(call, _)| call == "NodePublishVolume");
    let published = &published.expect("it was asked").1;
    assert_eq!(on_node["bytes"], 2 * SIZE, "{on_node}");
    assert_eq!(on_node["target"], published["target"]);
    assert_eq!(on_node["uses"], published["uses"]);
    world.nothing_refused();
}

#[test]
fn csi_05_a_plugin_that_grows_what_nobody_has_is_asked_while_nobody_has_it() {
    let Some(mut world) = World::prepare("a plugin of offline expansion") else {
        return;
    };
    world.run_agent();
    world.run_plugin(&world.plugin_job_with(&["--offline"]));
    world.make("vol", &WAYS, SIZE);
    world.make("other", &WAYS, SIZE);
    let remote = world.remote("vol");
    let service = Use {
        kind: "service",
        ..WRITER
    };
    world.uses("one", &service, "exec sleep 1000");
    world.wait_status("one", "running");
    let larger = json!({"RequestedCapacityMin": 2 * SIZE});
    let refused = world.requested_to_make("vol", &WAYS, &larger);
    let text = refused.text();
    assert_eq!(refused.status, 500, "{text}");
    assert!(
        text.contains("makes volumes larger only while nobody has them"),
        "{text}"
    );
    world.stop("one");
    world.wait_free();
    let gate = world.path("gate");
    let held = json!([{"call": EXPAND, "times": 1, "do": {"hold": {"until": gate}}}]);
    std::fs::write(world.path("faults"), held.to_string()).expect("a file");
    std::thread::scope(|scope| {
        let grows = scope.spawn(|| world.make("vol", &WAYS, 2 * SIZE));
        world.wait_requested("it is held", |line| {
            line["call"] == EXPAND && line["held"] == "before"
        });
        world.uses("two", &WRITER, "echo two");
        // A use of another volume that comes later ends meanwhile.
        world.uses_of(("three", "other"), &WRITER, "echo three");
        world.wait_status("three", "complete");
        let begun = world.begun(&remote);
        assert_eq!(begun.last().expect("it is asked").0, EXPAND, "{begun:?}");
        std::fs::write(&gate, "").expect("a file");
        grows.join().expect("it is larger");
    });
    world.wait_status("two", "complete");
    world.wait_free();
    let begun = world.begun(&remote);
    let calls: Vec<&str> = begun.iter().map(|(call, _)| call.as_str()).collect();
    let (comes, goes) = WHOLE.split_at(3);
    let order = [&WHOLE[..], &[EXPAND], comes, &[ON_NODE], goes];
    assert_eq!(calls, order.concat());
    world.nothing_refused();
}

#[test]
fn csi_46_what_is_made_from_a_snapshot_or_a_volume_has_what_was_in_it() {
    let Some(world) = World::start("volumes that are made from others") else {
        return;
    };
    world.make("vol", &WAYS, SIZE);
    let show = "cat $NOMAD_VOLUME_data/file";
    world.output("before", &WRITER, "echo before > $NOMAD_VOLUME_data/file");
    let requested = json!({"Snapshots": [{"SourceVolumeID": "vol", "Name": "snap"}]});
    let made = world.http().put("/v1/volumes/snapshot", &requested);
    let made = made.expect("an answer");
    assert_eq!(made.status, 200, "{}", made.text());
    let made: Value = made.json().expect("JSON");
    let snapshot = &made["Snapshots"][0];
    assert_eq!(
        snapshot["ExternalSourceVolumeID"],
        world.remote("vol"),
        "{made}"
    );
    world.output("after", &WRITER, "echo after > $NOMAD_VOLUME_data/file");
    let sources = [
        (
            "two",
            "copied",
            json!({"SnapshotID": snapshot["ID"]}),
            "before\n",
        ),
        (
            "three",
            "cloned",
            json!({"CloneID": world.remote("vol")}),
            "after\n",
        ),
    ];
    for (job, volume, source, held) in &sources {
        let made = world.requested_to_make(volume, &WAYS, source);
        assert_eq!(made.status, 200, "{}", made.text());
        world.uses_of((job, volume), &WRITER, show);
        world.wait_status(job, "complete");
        assert_eq!(world.logs(job, "stdout"), *held, "{volume}");
        let shown = world.http().json(&format!("/v1/volume/csi/{volume}"));
        let shown = shown.expect("it is there");
        let (name, from) = source
            .as_object()
            .and_then(|of| of.iter().next())
            .expect("one");
        assert_eq!(shown[name], *from, "{shown}");
    }
    // They are volumes of their own: what is written to one is in no other.
    let add = "echo more >> $NOMAD_VOLUME_data/file";
    world.uses_of(("adds", "cloned"), &WRITER, add);
    world.wait_status("adds", "complete");
    let cloned = world.remote("cloned");
    let cloned = cloned.as_str().unwrap_or_default();
    let file = world.path("state/volumes").join(cloned).join("file");
    let text = std::fs::read_to_string(file).expect("a file");
    assert_eq!(text, "after\nmore\n");
    assert_eq!(world.output("shows", &WRITER, show), "after\n");
    world.nothing_refused();
}
