//! What an allocation goes through with its volumes.

use std::sync::atomic::Ordering;

use drover_testkit::{LONG, eventually, so};
use futures_util::FutureExt;
use serde_json::{Value, json};

use super::claim::{CsiHook, claim_requests};
use super::registry::PluginKind;
use super::testing::{World, call, detaching, found, left, seen, user};
use super::*;
use drover_error::{Code, Refusal};
use drover_rpc::csi::NodeDetachVolume;

#[tokio::test]
async fn cl_19_cl_27_an_allocation_waits_for_its_claim_and_its_mount_and_gives_them_back() {
    let world = World::new();
    let csi = world.csi();
    let alloc = user(&Value::Null);
    let volumes = claim_requests(&alloc);
    assert_eq!(volumes.len(), 1, "the volume of the host is not claimed");
    let hook = CsiHook::new(&csi, volumes);
    let given = world.given(alloc);
    // The servers hold the claim back; then there is no plugin; then it is broken.
    let held_back = Refusal::new(Code::Conflict, "volume max claims reached");
    *world.servers.refuses.lock() = Some(held_back);
    let mut prerun = hook.prerun(&given, &Value::Null);
    assert!((&mut prerun).now_or_never().is_none());
    *world.servers.refuses.lock() = None;
    let claims = || world.servers.claims.load(Ordering::Relaxed);
    tokio::select! {
        _ = &mut prerun => panic!("there is no plugin"),
        claimed = eventually("a claim", LONG, || so(claims() > 0)) => claimed.unwrap(),
    }
    let fake = world.fake();
    world
        .register(&csi, "plug", PluginKind::Monolith, found(true))
        .await;
    let answer = prerun.await.unwrap();
    assert!(answer.done);
    assert!(
        !answer.kept.to_string().contains("correct-horse"),
        "{}",
        answer.kept
    );
    let held = left(&given)["data"].clone();
    let place = "csi/monolith/p/per-alloc/a1/vol[2]/rw-file-system-single-node-writer";
    assert_eq!(held.path, world.folder.path().join(place));
    let published = &seen(&fake, "NodePublish")[0];
    assert!(published.contains("\"far-vol\"") && published.contains("/dev/x"));

    // A new agent finds it without servers (CL-13).
    *world.servers.refuses.lock() = Some(Refusal::new(Code::NoLeader, "no leader"));
    let given = world.given((*given.alloc).clone());
    hook.restore(&given, &answer.kept).await.unwrap();
    assert_eq!(left(&given)["data"], held);
    // What is gone is made good.
    *world.servers.refuses.lock() = None;
    std::fs::remove_dir(&held.path).unwrap();
    hook.restore(&given, &answer.kept).await.unwrap();
    assert!(held.path.is_dir());

    // CSI-44: given back, also by a hook that knows nothing of it.
    let answer = hook.postrun(&given, &Value::Null).await.unwrap();
    assert!(answer.done);
    let given_back = world.servers.given_back.lock().clone();
    let claim = given_back[0].claim.clone().unwrap();
    assert_eq!((given_back.len(), &*given_back[0].volume_id), (1, "vol[2]"));
    assert_eq!(
        (&*claim.allocation_id, &*claim.node_id, claim.mode),
        ("a1", "n1", 1)
    );
}

#[tokio::test]
async fn ns_04_an_allocation_claims_mounts_and_gives_back_in_its_own_namespace() {
    let (world, csi, fake) = World::ready().await;
    let mut alloc = user(&Value::Null);
    "apps".clone_into(&mut alloc.namespace);
    let (hook, given) = world.hook(&csi, alloc);
    hook.prerun(&given, &Value::Null).await.unwrap();
    assert_eq!(*world.servers.claimed_in.lock(), ["apps"]);
    let staged = &seen(&fake, "NodeStage")[0];
    assert!(staged.contains("/staging/apps/vol[2]/"), "{staged}");
    let held = left(&given)["data"].clone();

    // A request of servers for a volume of the same name elsewhere is not about this one.
    let mut detach = detaching();
    call::<NodeDetachVolume>(&csi, &detach).await.unwrap();
    assert!(held.path.is_dir());
    "apps".clone_into(&mut detach.volume_namespace);
    call::<NodeDetachVolume>(&csi, &detach).await.unwrap();
    assert!(!held.path.exists());

    hook.postrun(&given, &Value::Null).await.unwrap();
    let given_back = world.servers.given_back.lock().clone();
    let namespaces: Vec<&str> = given_back
        .iter()
        .map(|requested| &*requested.namespace)
        .collect();
    assert_eq!(namespaces, ["apps"]);
}

#[tokio::test]
async fn what_never_passes_is_not_waited_out() {
    let world = World::new();
    let csi = world.csi();
    let (hook, given) = world.hook(&csi, user(&Value::Null));
    *world.servers.refuses.lock() = Some(Refusal::not_found("volume not found: vol[2]"));
    let error = hook.prerun(&given, &Value::Null).await.unwrap_err();
    assert_eq!(
        error,
        "could not claim volume vol[2]: volume not found: vol[2]"
    );
    assert!(left(&given).is_empty());
    *world.servers.refuses.lock() = None;
    hook.postrun(&given, &Value::Null).await.unwrap();

    // PLG-10: a plugin that refuses, in its own words.
    let fake = world.fake();
    world
        .register(&csi, "plug", PluginKind::Monolith, found(true))
        .await;
    let no = drover_csi::Code::InvalidArgument;
    *fake.says.refuses.lock().unwrap() = Some(fake.status(no, "no such file system"));
    let error = hook.prerun(&given, &Value::Null).await.unwrap_err();
    assert_eq!(
        error,
        "could not mount volume vol[2]: NodeStageVolume: InvalidArgument: no such file system"
    );
}

#[tokio::test]
async fn csi_15_options_of_the_job_replace_the_volumes() {
    let (world, csi, fake) = World::ready().await;
    let options = json!({"FSType": "ext4", "MountFlags": ["noatime"]});
    let (hook, given) = world.hook(&csi, user(&options));
    hook.prerun(&given, &Value::Null).await.unwrap();
    let held = left(&given)["data"].clone();
    let name = held
        .path
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    assert!(
        name.starts_with("rw-file-system-single-node-writer-"),
        "{name}"
    );
    let published = &seen(&fake, "NodePublish")[0];
    assert!(
        published.contains("ext4") && published.contains("noatime"),
        "{published}"
    );
}
