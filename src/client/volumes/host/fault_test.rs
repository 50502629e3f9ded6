//! Volumes whose storage is lost, whose plugins fail, and that are lost themselves when a machine
//! was off.

use drover_events::gojson::from_value;
use drover_events::model::Allocation;
use drover_testkit::LONG;
use futures_util::FutureExt;
use serde_json::json;
use tokio::time::timeout;

use super::host_test::{ONE, PLUGIN, TWO, Used, World, certs, create_request, delete_request};
use super::*;
use crate::journal::{JournalError, NoJournal};
use crate::volumes::look::lost;
use drover_error::Code;
use drover_log::LogError;
use drover_rpc::host_volume::ClientHostVolumeRegisterRequest;

fn registering(id: &str, name: &str, path: &std::path::Path) -> ClientHostVolumeRegisterRequest {
    ClientHostVolumeRegisterRequest {
        id: id.into(),
        name: name.into(),
        namespace: "apps".into(),
        host_path: path.display().to_string(),
        ..ClientHostVolumeRegisterRequest::default()
    }
}

/// Lets a volume be one that was last there before the machine was off.
async fn of_another_boot(volumes: &HostVolumes, id: &str) {
    let mut kept = volumes.kept_of(id).unwrap();
    kept.boot = "another".to_owned();
    volumes.keep(&kept).await.unwrap();
}

#[tokio::test]
async fn a_volume_whose_storage_is_lost_can_be_deleted_all_the_same() {
    let world = World::new();
    let there = world.tmp.path().join("there");
    std::fs::create_dir(&there).unwrap();
    let volumes = world.start();
    volumes
        .register(registering(ONE, "data", &there))
        .await
        .unwrap();
    let _lost = lost(&there).await;
    let mut again = Box::pin(volumes.again(ONE));
    assert!(again.as_mut().now_or_never().is_none(), "it looks");
    let deleted = timeout(LONG, volumes.delete(delete_request(ONE, "data", "")));
    deleted.await.expect("nothing waits for a look").unwrap();
    assert_eq!(world.offers(), [certs()]);
}

#[tokio::test]
async fn a_volume_whose_storage_is_lost_holds_up_no_other_when_the_agent_starts() {
    let world = World::new();
    let (there, gone) = (
        world.tmp.path().join("there"),
        world.tmp.path().join("lost"),
    );
    let volumes = world.start();
    for (id, name, path) in [(ONE, "lost", &gone), (TWO, "data", &there)] {
        std::fs::create_dir(path).unwrap();
        volumes.register(registering(id, name, path)).await.unwrap();
        volumes.offers(id, false);
    }
    let _lost = lost(&gone).await;
    let (turns, soon) = (Semaphore::new(1), Duration::from_millis(20));
    let other = async {
        tokio::select! {
            biased;
            () = volumes.keep_trying(ONE, &turns, soon) => panic!("its storage is lost"),
            () = volumes.keep_trying(TWO, &turns, soon) => {}
        }
    };
    timeout(LONG, Box::pin(other))
        .await
        .expect("the lost one holds it up");
    let names = world.offers().into_iter().map(|(name, ..)| name);
    assert_eq!(names.collect::<Vec<_>>(), ["certs", "data"]);
}

#[tokio::test]
async fn after_the_machine_was_off_a_volume_is_offered_once_it_is_there_and_waited_for() {
    let world = World::new();
    world.plugin("zfs", PLUGIN);
    let volumes = world.start();
    volumes
        .create(create_request(ONE, "data", "zfs"))
        .await
        .unwrap();
    assert_eq!(world.offers().len(), 2);
    of_another_boot(&volumes, ONE).await;
    drop(volumes);
    let volumes = world.start();
    assert_eq!(world.offers(), [certs()], "it may be what lies beneath");
    let names = ["data".to_owned()];
    let mut waits = Box::pin(volumes.offered(&names));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(
        volumes
            .offered(&["certs".to_owned()])
            .now_or_never()
            .is_some()
    );
    Arc::clone(&volumes).resume().await;
    timeout(LONG, waits).await.expect("it is there");
    assert_eq!(world.offers().len(), 2);
    drop(volumes);
    world.start();
    assert_eq!(world.offers().len(), 2, "the same boot");
}

#[tokio::test]
async fn an_allocation_waits_for_the_volumes_of_hosts_that_it_uses() {
    let world = World::new();
    let volumes = world.start();
    let alloc = |volumes: serde_json::Value| -> Allocation {
        from_value(json!({"ID": "a1", "Name": "j.g[1]", "TaskGroup": "g",
            "Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Volumes": volumes}]}}))
        .unwrap()
    };
    let uses = alloc(
        json!({"a": {"Type": "host", "Source": "data", "PerAlloc": true},
        "b": {"Type": "csi", "Source": "far"}}),
    );
    assert_eq!(named(&uses), ["data[1]"]);
    let make = volumes.alloc_hook();
    let services = Arc::default();
    assert!(make(&services, &alloc(json!({}))).is_none());
    assert!(make(&services, &uses).is_some());
}

#[tokio::test]
async fn what_a_plugin_made_stays_the_plugins_when_it_is_registered() {
    let world = World::new();
    world.plugin("zfs", PLUGIN);
    let volumes = world.start();
    let made = volumes
        .create(create_request(ONE, "data", "zfs"))
        .await
        .unwrap();
    let elsewhere = registering(ONE, "data", world.tmp.path());
    let refused = volumes.register(elsewhere).await.unwrap_err();
    let text = format!(
        "volume {ONE} was made by plugin \"zfs\" and lies at {}",
        made.path
    );
    assert_eq!(refused.message, text);
    let own = registering(ONE, "data", std::path::Path::new(&made.path));
    volumes.register(own).await.unwrap();
    let kept = volumes.kept_of(ONE).unwrap();
    assert_eq!(
        (&*kept.requested.plugin_id, kept.bytes),
        ("zfs", made.bytes)
    );
    assert_eq!(kept.requested.requested_capacity_max_bytes, 10);
    // A mount of the plugin's is made again.
    std::fs::remove_dir(&made.path).unwrap();
    volumes.again(ONE).await.unwrap();
    assert!(std::path::Path::new(&made.path).is_dir());
}

#[tokio::test]
async fn what_cannot_be_undone_stays_known_so_that_it_can_be_deleted() {
    let world = World::new();
    let fails = PLUGIN.replace("delete)", "delete) exit 9");
    world.plugin("zfs", &fails);
    std::fs::write(world.volumes().join("fails"), "").unwrap();
    let volumes = world.start();
    let error = volumes
        .create(create_request(ONE, "data", "zfs"))
        .await
        .unwrap_err();
    assert_eq!(
        error.code,
        Code::Unavailable,
        "something is left: {error:?}"
    );
    assert!(
        error
            .message
            .contains("no room; what it left could not be deleted: ")
    );
    assert!(volumes.kept_of(ONE).is_some() && !volumes.journal.load().is_empty());
    world.plugin("zfs", PLUGIN);
    volumes
        .delete(delete_request(ONE, "data", "zfs"))
        .await
        .unwrap();
    assert!(volumes.journal.load().is_empty());
}

/// A journal that fails at what comes after so many changes.
struct Full(Mutex<usize>);

impl Full {
    fn write(&self) -> BoxFuture<'static, Result<(), JournalError>> {
        let mut left = self.0.lock();
        let written = left.checked_sub(1).map(|rest| *left = rest);
        let full = || JournalError::from(LogError::Closed);
        std::future::ready(written.ok_or_else(full)).boxed()
    }
}

impl Journal for Full {
    fn put(&self, _: &str, _: Vec<u8>) -> BoxFuture<'static, Result<(), JournalError>> {
        self.write()
    }

    fn delete(&self, prefix: &str) -> BoxFuture<'static, Result<(), JournalError>> {
        NoJournal.delete(prefix)
    }

    fn load(&self) -> BTreeMap<String, bytes::Bytes> {
        BTreeMap::new()
    }
}

#[tokio::test]
async fn a_volume_that_cannot_be_kept_is_not_left_behind() {
    let world = World::new();
    world.plugin("zfs", PLUGIN);
    // What is requested is kept; that it is there, is not.
    let journal: Arc<dyn Journal> = Arc::new(Full(Mutex::new(1)));
    let volumes = HostVolumes::restore(&world.settings, &world.node, &journal);
    let error = volumes
        .create(create_request(ONE, "data", "zfs"))
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::Refused, "nothing is left: {error:?}");
    assert!(!world.volumes().join("own-data").exists());
    assert!(volumes.kept_of(ONE).is_none());
    assert_eq!(world.offers(), [certs()]);
    let deleted = std::fs::read_to_string(world.volumes().join("deleted")).unwrap();
    assert!(
        deleted.contains("/own-data\n"),
        "the file says where: {deleted}"
    );
}

#[tokio::test]
async fn a_volume_is_deleted_once_servers_send_nobody_more_to_it() {
    let world = World::new();
    world.plugin("zfs", PLUGIN);
    let volumes = world.start();
    let used = Used::by(&volumes, "here");
    volumes
        .create(create_request(ONE, "data", "zfs"))
        .await
        .unwrap();
    let delete = || volumes.delete(delete_request(ONE, "data", "zfs"));
    // An allocation that is here already is seen before anything is reported.
    let refused = delete().await.unwrap_err();
    assert_eq!(
        refused.message,
        format!("volume {ONE} in use by allocations: [here]")
    );
    assert!(used.reported.lock().is_empty());
    used.here.lock().clear();
    // One was placed, and did not come yet.
    *used.sent.lock() = Ok(vec!["sent".to_owned()]);
    let refused = delete().await.unwrap_err();
    assert_eq!(
        refused.message,
        format!("volume {ONE} in use by allocations: [sent]")
    );
    *used.sent.lock() = Err("no servers".to_owned());
    assert_eq!(delete().await.unwrap_err().code, Code::Unavailable);
    assert_eq!(world.offers().len(), 2, "it is offered again");
    assert!(world.volumes().join("own-data").exists());
    *used.sent.lock() = Ok(Vec::new());
    delete().await.unwrap();
    let reported = used.reported.lock().clone();
    assert_eq!(
        reported,
        [["certs"]; 3],
        "it was withdrawn before they were called"
    );
    assert!(!world.volumes().join("own-data").exists());
}

#[test]
fn what_two_describe_at_once_is_told_whole() {
    let world = World::new();
    let volumes = world.start();
    for round in 0..2_000 {
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for (id, name) in [(ONE, "one"), (TWO, "two")] {
                let (start, volumes) = (&start, &volumes);
                scope.spawn(move || {
                    volumes.held.lock().remove(id);
                    let mut requested = create_request(id, name, "");
                    requested.name = format!("{name}-{round}");
                    let kept = JournaledVolume {
                        requested,
                        path: "/".to_owned(),
                        ..JournaledVolume::default()
                    };
                    start.wait();
                    let offered = true;
                    let held = NodeVolume { kept, offered };
                    volumes.held.lock().insert(id.to_owned(), held);
                    volumes.describe();
                });
            }
        });
        let names = world.offers().into_iter().map(|(name, ..)| name);
        let names: Vec<String> = names.collect();
        let all = [
            "certs".to_owned(),
            format!("one-{round}"),
            format!("two-{round}"),
        ];
        assert_eq!(names, all);
    }
}
