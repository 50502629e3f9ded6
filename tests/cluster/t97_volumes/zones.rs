//! Nodes that lie in zones, as their plugins say: a volume is made where that is requested, and its
//! jobs run there and nowhere else.

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};
use serde_json::{Value, json};

use super::moves::eligible;
use super::{COMES, LATE_DOWN, World};

/// Makes a volume in a zone.
fn made_in(world: &World, id: &str, zone: &str) {
    let mut volume = World::described(id, 1 << 30);
    volume["Volumes"][0]["RequestedTopologies"] =
        json!({"Required": [{"Segments": {"zone": zone}}]});
    world.put(&format!("/v1/volume/csi/{id}/create"), &volume);
    let made = world.http().json(&format!("/v1/volume/csi/{id}"));
    let made = made.expect("an answer");
    let is = json!([{"Segments": {"zone": zone}}]);
    assert_eq!(made["Topologies"], is, "{made}");
}

/// Waits until a job was looked at, and no node would do; what was said of the nodes.
fn refused_by_nodes(world: &World, job: &str) -> Value {
    let path = format!("/v1/job/{job}/evaluations");
    let reported = wait_for(job, LONG, || {
        let evals = world.http().json(&path)?;
        let mut evals = evals.as_array().into_iter().flatten();
        let failed = evals.find_map(|eval| eval["FailedTGAllocs"].get("g").cloned());
        ensure!(failed.is_some(), "nothing was said");
        Ok::<_, anyhow::Error>(failed.unwrap_or_default())
    });
    reported.unwrap_or_else(|error| panic!("{error:#}\n{}", world.explained()))
}

#[test]
fn csi_29_a_volume_of_a_zone_is_used_by_jobs_that_run_there() {
    let zoned = ["--topology", "zone=${node.unique.name}"];
    let what = "volumes of zones";
    let Some(world) = World::start_with(what, &["one", "two"], (LATE_DOWN, &zoned)) else {
        return;
    };
    for zone in ["one", "two"] {
        made_in(&world, &format!("vol-{zone}"), zone);
    }
    for (zone, other) in [("one", "two"), ("two", "one")] {
        let (job, volume) = (format!("in-{zone}"), format!("vol-{zone}"));
        eligible(&world, zone, "ineligible");
        world.register(&world.job(&job, "service", &volume, "exec sleep 1000", 0));
        let reasons = refused_by_nodes(&world, &job);
        let filtered = reasons["ConstraintFiltered"].to_string();
        assert!(
            filtered.contains("topology"),
            "{other} would not do: {reasons}"
        );
        eligible(&world, zone, "eligible");
        assert_eq!(world.wait_status(&job, "running"), zone);
        let remote = world.remote(&volume);
        let come = COMES.map(|call| (zone.to_owned(), call.to_owned()));
        assert_eq!(world.calls(&remote), come);
    }
    // What a provider has already is where its registration says.
    let known = world
        .http()
        .json("/v1/volume/csi/vol-two")
        .expect("it is there");
    world.stop("in-two");
    world.wait_free("vol-two");
    world.sent("DELETE", "/v1/volume/csi/vol-two", b"", &[]);
    let mut again = World::described("again", 1 << 30);
    let volume = &mut again["Volumes"][0];
    volume["ExternalID"] = known["ExternalID"].clone();
    volume["Context"] = known["Context"].clone();
    volume["RequestedTopologies"] = json!({"Required": known["Topologies"]});
    world.put("/v1/volume/csi/again", &again);
    eligible(&world, "two", "ineligible");
    world.register(&world.job("again", "service", "again", "exec sleep 1000", 0));
    let reasons = refused_by_nodes(&world, "again");
    assert!(
        reasons["ConstraintFiltered"]
            .to_string()
            .contains("topology"),
        "{reasons}"
    );
    eligible(&world, "two", "eligible");
    assert_eq!(world.wait_status("again", "running"), "two");
    assert_eq!(world.refused(), Vec::<Value>::new());
    for job in ["in-one", "again"] {
        world.stop(job);
    }
}
