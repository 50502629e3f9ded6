//! Plugins that are not as most are: without a controller, without a step, with the place to listen
//! in their arguments; and one whose callers need tokens.

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};
use serde_json::{Value, json};

use crate::csi::{WHOLE, World};

/// What is left of the whole where some calls are not made.
fn without(left_out: &[&str]) -> Vec<&'static str> {
    let whole = WHOLE.into_iter();
    whole.filter(|call| !left_out.contains(call)).collect()
}

#[test]
fn csi_13_csi_44_a_plugin_that_attaches_nothing_or_stages_nothing_is_not_asked_to() {
    let attaches = ["ControllerPublishVolume", "ControllerUnpublishVolume"];
    let stages = ["NodeStageVolume", "NodeUnstageVolume"];
    for (flag, left_out) in [("--no-attach", attaches), ("--no-stage", stages)] {
        let Some(mut world) = World::prepare(&format!("CSI {flag}")) else {
            return;
        };
        world.run_agent();
        world.run_plugin(&world.plugin_job_with(&[flag]));
        world.create("vol");
        world.is_handed_on();
        let once = without(&left_out);
        assert_eq!(world.calls(), [&*once, &once].concat(), "{flag}");
        world.nothing_refused();
    }
}

#[test]
fn csi_13_csi_44_a_plugin_without_a_controller_has_its_volumes_used() {
    let Some(world) = World::start("CSI without a controller") else {
        return;
    };
    // Its provider has a volume that was made elsewhere.
    world.create("vol");
    let path = "/v1/volume/csi/vol";
    let mut volume = world.http().json(path).expect("it is there");
    let removed = world.http().send("DELETE", path, b"").expect("an answer");
    assert_eq!(removed.status, 200, "{}", removed.text());
    world.stop("plugin");
    let mut job = world.plugin_job_with(&["--nodes-only"]);
    job["Job"]["TaskGroups"][0]["Tasks"][0]["CSIPluginConfig"]["Type"] = json!("node");
    world.run_plugin_of(&job, 0);
    let requested = world.record().len();
    volume["Secrets"] = json!({"secret": "correct-horse"});
    let registered = world.http().put(path, &json!({"Volumes": [volume]}));
    let registered = registered.expect("an answer");
    assert_eq!(registered.status, 200, "{}", registered.text());
    world.is_handed_on();
    let once = without(&["ControllerPublishVolume", "ControllerUnpublishVolume"]);
    assert_eq!(world.calls(), [&*once, &once].concat());
    let record = world.record();
    let mut calls = record[requested..]
        .iter()
        .map(|line| line["call"].to_string());
    assert!(calls.all(|call| !call.contains("Controller") && !call.contains("Validate")));
    world.nothing_refused();
    // What only a controller can do is refused.
    let deleted = world.http().send("DELETE", &format!("{path}/delete"), b"");
    let text = deleted.expect("an answer").text();
    let none = "failed to find clients running controller plugin";
    assert!(text.contains(none), "{text}");
}

#[test]
fn csi_46_what_the_provider_has_is_listed_in_its_own_words() {
    let Some(mut world) = World::prepare("CSI and the list of a provider") else {
        return;
    };
    world.run_agent();
    // The path of its socket comes to it in its arguments alone, as most plugins want it.
    let mut job = world.plugin_job_with(&["--endpoint=${CSI_ENDPOINT}"]);
    let config = &mut job["Job"]["TaskGroups"][0]["Tasks"][0]["Config"];
    let args = config["args"].as_array_mut().expect("a list");
    let program = json!(world.plugin);
    drop(args.splice(0..0, [json!("-u"), json!("CSI_ENDPOINT"), program]));
    config["command"] = json!("/usr/bin/env");
    world.run_plugin(&job);
    world.create("vol");
    world.create("other");
    world.job("one", "service", "exec", "sleep 1000");
    world.wait_status("one", "running");
    let named = |id: &str| {
        let volume = world.http().json(&format!("/v1/volume/csi/{id}"));
        volume.expect("it is there")["ExternalID"].clone()
    };
    let (mut reported, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/volumes/external?plugin_id=hp&per_page=1&next_token={token}");
        let page = world.http().json(&path).expect("an answer");
        let volumes = page["Volumes"].as_array().cloned().unwrap_or_default();
        assert_eq!(volumes.len(), 1, "{page}");
        reported.extend(volumes);
        page["NextToken"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(reported.len(), 2, "{reported:#?}");
    for (id, nodes) in [("vol", json!(["one"])), ("other", json!([]))] {
        let external = named(id);
        let one = reported.iter().find(|one| one["ExternalID"] == external);
        let one = one.expect("it is listed");
        assert_eq!(one["PublishedExternalNodeIDs"], nodes, "{one:#}");
        assert_eq!(one["IsAbnormal"], false, "{one:#}");
        assert!(one["VolumeContext"].is_object(), "{one:#}");
    }
    world.stop("one");
    world.wait_free();
    world.nothing_refused();
}

#[test]
fn vw_05_a_past_claim_is_collected_where_everybody_needs_a_token() {
    let Some(mut world) = World::prepare("CSI and tokens") else {
        return;
    };
    world.setup.config.push_str("acl {\n  enabled = true\n}\n");
    world.run_agent();
    let made = world.http().put("/v1/acl/bootstrap", &json!({}));
    let made: Value = made.expect("an answer").json().expect("a token");
    world.token = made["SecretID"].as_str().map(str::to_owned);
    world.run_plugin(&world.plugin_job());
    world.create("vol");
    let never = json!([{"call": "ControllerUnpublishVolume",
        "do": {"fail": {"code": 14, "text": "on command"}}}]);
    std::fs::write(world.path("faults"), never.to_string()).expect("a file");
    world.job(
        "one",
        "batch",
        "exec",
        "echo hello > $NOMAD_VOLUME_data/file",
    );
    world.wait_status("one", "complete");
    let hindered = |world: &World| {
        let hindered = wait_for("a claim that is not free", LONG, || {
            let reported = world.http().json("/v1/volume/csi/vol/explain")?;
            let claim = &reported["Claims"][0];
            let why = claim["HinderedBy"].as_str().unwrap_or_default();
            // Its client has given up, and the servers continue.
            ensure!(why.ends_with("Unavailable: on command"), "{reported}");
            ensure!(claim["Tries"].as_u64() > Some(2), "{reported}");
            Ok::<_, anyhow::Error>(())
        });
        hindered.expect("it says why");
    };
    hindered(&world);
    // The leader of another term calls as well, and is let in.
    world.agent.take().expect("it runs").kill().expect("killed");
    world.run_agent();
    hindered(&world);
    std::fs::write(world.path("faults"), "[]").expect("a file");
    let collected = world.http().put("/v1/system/gc", &json!({}));
    assert_eq!(collected.expect("an answer").status, 200);
    world.wait_free();
    world.nothing_refused();
}
