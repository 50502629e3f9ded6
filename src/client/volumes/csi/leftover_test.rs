//! What allocations left mounted, and how it goes.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;

use drover_csi::mounts::{MountSpec, Secrets, Usage};
use drover_csifake::Fake;
use drover_testkit::{LONG, so};

use super::leftover::UnmountPlan;
use super::testing::{World, seen};
use super::*;

/// Two volumes of two allocations; the plugin's own names for them begin with `far-`.
async fn left(csi: &Csi) -> Live {
    let live = csi.part(CsiPart::Node, "p").await.unwrap();
    let root = csi.root(&live.instance);
    for (alloc, volume) in [("a1", "x"), ("a2", "y")] {
        let wanted = MountSpec {
            alloc: alloc.to_owned(),
            namespace: "default".to_owned(),
            volume: volume.to_owned(),
            remote: format!("far-{volume}"),
            usage: Usage {
                read_only: false,
                attachment: "file-system".to_owned(),
                access: "multi-node-multi-writer".to_owned(),
                fs_type: String::new(),
                flags: Vec::new(),
                own_options: false,
            },
            publish_context: BTreeMap::new(),
            context: BTreeMap::new(),
            secrets: Secrets::default(),
            size: None,
        };
        let mounted = csi.mounts.mount(&live.plugin, true, &root, &wanted);
        mounted.await.unwrap();
    }
    live
}

/// How often the plugin was called to give a volume back.
fn unpublish_calls(fake: &Fake, remote: &str) -> usize {
    let calls = seen(fake, "NodeUnpublish");
    calls.iter().filter(|one| one.contains(remote)).count()
}

#[tokio::test]
async fn a_volume_that_hangs_is_asked_back_once_and_holds_up_no_other() {
    let (_world, csi, fake) = World::ready().await;
    let live = left(&csi).await;
    "far-x".clone_into(&mut fake.says.stuck.lock().unwrap());
    let (begun, is_over) = (AtomicUsize::new(0), |_: &str| true);
    let round = || csi.take_rest(&live, UnmountPlan::Passes(&begun), is_over);
    let users = csi.users("p");
    tokio::select! {
        _ = round() => panic!("one of them hangs"),
        taken = drover_testkit::eventually_async("the other one", LONG, async || {
            let used = csi.mounts.is_used_by(&users, ("default", "y"), "a2");
            so(!used.await.unwrap())
        }) => taken.unwrap(),
    }
    // The call continues, and no other stands in line behind it.
    assert!(round().await, "it is left");
    assert_eq!(
        (
            unpublish_calls(&fake, "far-x"),
            unpublish_calls(&fake, "far-y")
        ),
        (1, 1)
    );
}
