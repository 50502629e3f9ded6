//! The requests to a node plugin, by what the volume has and what the job requests.

use std::sync::atomic::Ordering;

use drover_csifake::Fake;
use drover_events::gojson::from_value;
use drover_events::model::{Allocation, CsiVolume};
use drover_testkit::{LONG, eventually};
use futures_util::FutureExt;
use serde_json::{Value, json};

use super::registry::PluginKind;
use super::testing::{World, call, detaching, found, left, seen};
use super::*;
use crate::clock::SECOND;
use drover_error::{Code, Refusal};
use drover_rpc::client_calls::Unanswered;
use drover_rpc::csi::*;

const VOLUME: &str = "vol";

/// A volume as servers give it: what it is called far away, and how it is mounted.
fn volume(external: &str, options: &Value) -> CsiVolume {
    from_value(json!({
        "ID": VOLUME, "ExternalID": external, "PluginID": "p", "MountOptions": options,
        "Context": {"zone": "a"}, "Parameters": {"tier": "gold"},
        "Secrets": {"key": "correct-horse"},
    }))
    .unwrap()
}

/// An allocation whose group requests the volume by each of these names, with these options.
fn asking(requests: &[(&str, &Value)]) -> Allocation {
    let request = |(name, options): &(&str, &Value)| {
        let request = json!({
            "Name": name, "Type": "csi", "Source": VOLUME, "MountOptions": options,
            "AccessMode": "single-node-writer", "AttachmentMode": "file-system",
        });
        ((*name).to_owned(), request)
    };
    let volumes: serde_json::Map<String, Value> = requests.iter().map(request).collect();
    from_value(json!({
        "ID": "a1", "Name": "j.g[0]", "Namespace": "default", "TaskGroup": "g",
        "Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Volumes": volumes}]},
    }))
    .unwrap()
}

/// An agent whose plugin answers, and which is given this volume.
async fn with(volume: CsiVolume) -> (World, Arc<Csi>, Fake) {
    let (world, csi, fake) = World::ready().await;
    *world.servers.gives.lock() = Some(volume);
    (world, csi, fake)
}

#[tokio::test]
async fn csi_15_job_07_of_four_combinations_the_jobs_options_win_where_it_has_any() {
    let theirs = json!({"FSType": "ext4", "MountFlags": ["noatime"]});
    let own = json!({"FSType": "xfs", "MountFlags": ["nosuid"]});
    let flag_only = json!({"MountFlags": ["nosuid"]});
    let (null, empty) = (Value::Null, json!({}));
    for (of_volume, of_job, wanted) in [
        (&null, &null, ["", ""]),
        (&null, &own, ["xfs", "nosuid"]),
        (&theirs, &null, ["ext4", "noatime"]),
        (&theirs, &own, ["xfs", "nosuid"]),
        // A block that has nothing replaces nothing, and one that has something replaces all.
        (&theirs, &empty, ["ext4", "noatime"]),
        (&theirs, &flag_only, ["", "nosuid"]),
    ] {
        let (world, csi, fake) = with(volume("far-vol", of_volume)).await;
        let (hook, given) = world.hook(&csi, asking(&[("data", of_job)]));
        let prerun = hook.prerun(&given, &Value::Null).await;
        prerun.unwrap_or_else(|error| panic!("{of_volume} {of_job}: {error}"));
        for call in ["NodeStage", "NodePublish"] {
            let calls = seen(&fake, call);
            assert_eq!(calls.len(), 1, "{call}: {calls:?}");
            for word in ["ext4", "xfs", "noatime", "nosuid"] {
                let is_requested = calls[0].contains(&format!("\"{word}\""));
                assert_eq!(
                    is_requested,
                    wanted.contains(&word),
                    "{of_volume} {of_job}: {calls:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn csi_08_csi_10_node_calls_bring_what_the_volume_has() {
    for (external, name) in [("far-vol", "\"far-vol\""), ("", "\"vol\"")] {
        let (world, csi, fake) = with(volume(external, &Value::Null)).await;
        let (hook, given) = world.hook(&csi, asking(&[("data", &Value::Null)]));
        hook.prerun(&given, &Value::Null).await.unwrap();
        for call in ["NodeStage", "NodePublish"] {
            let calls = seen(&fake, call);
            for word in ["\"zone\": \"a\"", "/dev/x", name] {
                assert!(calls[0].contains(word), "{word}: {calls:?}");
            }
        }
        let detach = NodeDetachVolumeRequest {
            plugin_id: "p".to_owned(),
            volume_id: VOLUME.to_owned(),
            external_id: if external.is_empty() {
                VOLUME
            } else {
                external
            }
            .to_owned(),
            ..detaching()
        };
        call::<NodeDetachVolume>(&csi, &detach).await.unwrap();
        for call in ["NodeUnpublish", "NodeUnstage"] {
            let calls = seen(&fake, call);
            assert!(
                calls.len() == 1 && calls[0].contains(name),
                "{name}: {calls:?}"
            );
        }
    }
}

/// An agent, and what came of mounting a volume that grew: its size, and of its node the growth
/// that it has a part of, whether its plugin can do it, and whether the allocation only reads.
async fn grown(is: i64, (growth, can, reads): (i64, bool, bool)) -> (World, Vec<String>) {
    let mut given_by_servers = volume("far-vol", &Value::Null);
    given_by_servers.capacity = is;
    given_by_servers.requested_capacity_min = 20;
    given_by_servers.requested_capacity_max = 30;
    let (world, csi, fake) = with(given_by_servers).await;
    world.servers.growth.store(growth, Ordering::Relaxed);
    let mut features = found(true);
    features.features.node.get_or_insert_default().expand = can;
    world
        .register(&csi, "plug", PluginKind::Monolith, features)
        .await;
    let mut alloc = asking(&[("data", &Value::Null)]);
    let job = Arc::make_mut(alloc.job.as_mut().unwrap());
    let requested = &mut job.task_groups.to_mut()[0].volumes;
    let mut request = requested["data"].clone();
    request.read_only = reads;
    *requested = [("data", request)].into();
    let (hook, given) = world.hook(&csi, alloc);
    hook.prerun(&given, &Value::Null).await.unwrap();
    (world, seen(&fake, "NodeExpand"))
}

#[tokio::test]
async fn csi_05_what_grew_while_nobody_had_it_is_made_larger_for_who_writes_to_it() {
    for (growth, can, reads, grows) in [
        (7, true, false, true),
        (0, true, false, false),
        (7, false, false, false),
        (7, true, true, false),
    ] {
        let (world, calls) = grown(25, (growth, can, reads)).await;
        assert_eq!(calls.len(), usize::from(grows), "{calls:?}");
        let range = "required_bytes: 20, limit_bytes: 30";
        assert!(calls.iter().all(|call| call.contains(range)), "{calls:?}");
        let reported = world.servers.expanded.lock().clone();
        let wanted: &[i64] = if grows { &[7] } else { &[] };
        assert_eq!(reported, wanted, "the servers learn it when it is done");
    }
    // The limit is of before.
    let calls = grown(50, (7, true, false)).await.1;
    assert!(calls[0].contains("limit_bytes: 0"), "{calls:?}");
}

#[tokio::test]
async fn csi_05_a_volume_is_taken_as_it_is_where_growing_takes_too_long_and_not_for_another_wait() {
    let (world, csi, fake) = with(volume("far-vol", &Value::Null)).await;
    let mut features = found(true);
    features.features.node.get_or_insert_default().expand = true;
    world
        .register(&csi, "plug", PluginKind::Monolith, features)
        .await;
    world.servers.growth.store(7, Ordering::Relaxed);
    let busy = fake.status(drover_csi::Code::Aborted, "another call is under way");
    *fake.says.no_growing.lock().unwrap() = Some(busy);
    *world.servers.refuses.lock() = Some(Refusal::new(Code::Conflict, "volume max claims reached"));
    let (hook, given) = world.hook(&csi, asking(&[("data", &Value::Null)]));
    let mut prerun = hook.prerun(&given, &Value::Null);
    assert!((&mut prerun).now_or_never().is_none());
    *world.now.lock() += 61 * SECOND;
    *world.servers.refuses.lock() = None;
    // Once it is called again, the time of the first answer is known.
    let tried = eventually("a second try", LONG, || {
        let tries = seen(&fake, "NodeExpand").len();
        (tries > 1).then_some(()).ok_or(tries)
    });
    tokio::select! {
        _ = &mut prerun => panic!("the wait for its claim is none for its growth"),
        tried = tried => tried.unwrap(),
    }
    assert!(left(&given).is_empty());
    *world.now.lock() += 61 * SECOND;
    prerun.await.unwrap();
    assert_eq!(left(&given).len(), 1);
    let reported = world.servers.expanded.lock().clone();
    assert_eq!(
        reported,
        Vec::<i64>::new(),
        "who has it next has a part yet"
    );
}

#[tokio::test]
async fn cl_27_csi_22_an_allocation_waits_for_its_claim_and_needs_no_second_read() {
    let (world, csi, fake) = with(volume("far-vol", &Value::Null)).await;
    let (hook, given) = world.hook(&csi, asking(&[("data", &Value::Null)]));
    *world.servers.refuses.lock() = Some(Refusal::new(Code::Conflict, "volume max claims reached"));
    let mut prerun = hook.prerun(&given, &Value::Null);
    assert!((&mut prerun).now_or_never().is_none());
    assert_eq!(
        seen(&fake, "NodeStage"),
        Vec::<String>::new(),
        "nothing before the claim"
    );
    assert!(left(&given).is_empty());
    *world.servers.refuses.lock() = None;
    // These servers answer claims and nothing else: another read of the volume fails.
    assert!(prerun.await.unwrap().done);
    assert_eq!(world.servers.claims.load(Ordering::Relaxed), 1);
    assert_eq!(seen(&fake, "NodePublish").len(), 1);
    assert_eq!(left(&given).len(), 1);
}

#[tokio::test]
async fn csi_16_a_group_that_asks_twice_has_it_twice_each_with_its_own_options() {
    let (world, csi, fake) = with(volume("far-vol", &json!({"MountFlags": ["noatime"]}))).await;
    let own = json!({"MountFlags": ["nosuid"]});
    let (hook, given) = world.hook(&csi, asking(&[("own", &own), ("plain", &Value::Null)]));
    hook.prerun(&given, &Value::Null).await.unwrap();
    let held = left(&given);
    assert_ne!(held["own"].path, held["plain"].path);
    let published = seen(&fake, "NodePublish");
    let with = |flag: &str, path: &std::path::Path| {
        let path = format!("\"{}\"", path.to_string_lossy());
        let both = |call: &&String| call.contains(&path) && call.contains(flag);
        published.iter().filter(both).count()
    };
    let (own, plain) = (&held["own"].path, &held["plain"].path);
    assert_eq!(
        (with("nosuid", own), with("noatime", own)),
        (1, 0),
        "{published:?}"
    );
    assert_eq!(
        (with("nosuid", plain), with("noatime", plain)),
        (0, 1),
        "{published:?}"
    );
    // One claim has both: giving it back takes both.
    let detach = NodeDetachVolumeRequest {
        volume_id: VOLUME.to_owned(),
        ..detaching()
    };
    call::<NodeDetachVolume>(&csi, &detach).await.unwrap();
    assert_eq!(seen(&fake, "NodeUnpublish").len(), 2);
    assert!(!own.exists() && !plain.exists());
}

#[tokio::test]
async fn a_call_about_a_volume_waits_for_the_one_before_it_whoever_asked_for_that() {
    let world = World::new();
    let csi = world.csi();
    let fake = world.fake();
    world
        .register(&csi, "plug", PluginKind::Monolith, found(true))
        .await;
    let attach = |volume: &str| ControllerAttachVolumeRequest {
        plugin_id: "p".to_owned(),
        volume_id: volume.to_owned(),
        attachment_mode: "file-system".to_owned(),
        access_mode: "single-node-writer".to_owned(),
        ..ControllerAttachVolumeRequest::default()
    };
    let count = || {
        let seen = fake.says.seen.lock().unwrap();
        let shown = seen.iter().map(|(shown, _)| shown);
        shown
            .filter(|shown| shown.starts_with("Controller"))
            .count()
    };
    // As where a server died while its call was under way.
    let before = csi.turn("p", "far-vol").await.unwrap();
    let (requested, other) = (attach("far-vol"), attach("other"));
    let mut waits = Box::pin(call::<ControllerAttachVolume>(&csi, &requested));
    assert!(waits.as_mut().now_or_never().is_none());
    call::<ControllerAttachVolume>(&csi, &other).await.unwrap();
    assert!(waits.as_mut().now_or_never().is_none());
    assert_eq!(count(), 1, "of another volume");
    drop(before);
    waits.await.unwrap();
    assert_eq!(count(), 2);
}

#[tokio::test]
async fn a_call_that_waited_too_long_for_another_one_does_not_say_that_all_has_ended() {
    let (_world, csi, _fake) = World::ready().await;
    let _before = csi.turn("p", "far-vol").await.unwrap();
    let soon = std::time::Duration::from_millis(20);
    let late = csi.turn_within("p", "far-vol", soon).await.map(drop);
    let error = Unanswered::Refused(late.unwrap_err());
    assert!(!error.has_ended() && error.is_recoverable(), "{error:?}");
}
