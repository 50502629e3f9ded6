//! Volumes of a node with the plugin that is built in and with real executables.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_events::gojson::Map;
use drover_testkit::{LONG, eventually, so};
use futures_util::FutureExt;

use super::make::undoing;
use super::*;
use crate::journal::LogJournal;
use drover_config::HostVolume;
use drover_rpc::host_volume::{
    ClientHostVolumeCreateRequest, ClientHostVolumeDeleteRequest, ClientHostVolumeRegisterRequest,
};

pub(super) const ONE: &str = "00000000-0000-4000-8000-000000000001";
pub(super) const TWO: &str = "00000000-0000-4000-8000-000000000002";

/// A plugin as its specification has it, which writes down how it is called.
pub(super) const PLUGIN: &str = r#"#!/bin/sh
set -eu
echo "$1 $DHV_OPERATION" >> "$DHV_VOLUMES_DIR/calls"
case "$1" in
fingerprint) echo '{"version": "1.2.3", "more": true}' ;;
create)
    env | grep '^DHV_' | sort > "$DHV_VOLUMES_DIR/created"
    if [ -e "$DHV_VOLUMES_DIR/fails" ]; then echo 'no room' >&2; exit 7; fi
    mkdir -p "$DHV_VOLUMES_DIR/own-$DHV_VOLUME_NAME"
    printf '{"path": "%s", "bytes": 4096}' "$DHV_VOLUMES_DIR/own-$DHV_VOLUME_NAME"
    ;;
delete)
    env | grep '^DHV_' | sort > "$DHV_VOLUMES_DIR/deleted"
    rm -rf "$DHV_VOLUMES_DIR/own-$DHV_VOLUME_NAME"
    ;;
esac
"#;

/// The users of the volume `data` of the namespace `apps`.
pub(super) struct Used {
    pub(super) here: Mutex<Vec<String>>,
    /// Those that servers sent here and that did not come yet; an error where no server can be
    /// reached.
    pub(super) sent: Mutex<Result<Vec<String>, String>>,
    /// What the node offers, as it was reported when servers were called.
    pub(super) reported: Mutex<Vec<Vec<String>>>,
    node: Arc<Mutex<Arc<Node>>>,
}

impl Used {
    pub(super) fn by(volumes: &HostVolumes, alloc: &str) -> Arc<Self> {
        let used = Arc::new(Self {
            here: Mutex::new(vec![alloc.to_owned()]),
            sent: Mutex::new(Ok(Vec::new())),
            reported: Mutex::default(),
            node: Arc::clone(&volumes.node),
        });
        volumes.used_by(Box::new(Arc::clone(&used)));
        used
    }
}

impl Users for Arc<Used> {
    fn here(&self, namespace: &str, name: &str) -> Vec<String> {
        assert_eq!((namespace, name), ("apps", "data"));
        self.here.lock().clone()
    }

    fn anew(&self, namespace: &str, name: &str) -> BoxFuture<'static, Result<Vec<String>, String>> {
        assert_eq!((namespace, name), ("apps", "data"));
        let node = self.node.lock().clone();
        let reported = node.host_volumes.keys().cloned();
        self.reported.lock().push(reported.collect());
        std::future::ready(self.sent.lock().clone()).boxed()
    }
}

/// A node and its folders; its agent may be started again.
pub(super) struct World {
    pub(super) tmp: tempfile::TempDir,
    pub(super) node: Arc<Mutex<Arc<Node>>>,
    pub(super) settings: Shared<ClientSettings>,
}

impl World {
    pub(super) fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let mut settings = ClientSettings {
            host_volumes_dir: tmp.path().join("volumes"),
            host_volume_plugin_dir: tmp.path().join("plugins"),
            ..ClientSettings::default()
        };
        let fixed = HostVolume {
            path: "/etc/ssl".into(),
            read_only: true,
        };
        settings
            .client
            .host_volumes
            .insert("certs".to_owned(), fixed);
        for folder in ["volumes", "plugins"] {
            std::fs::create_dir(tmp.path().join(folder)).unwrap();
        }
        let node = Node {
            id: "n1".into(),
            node_pool: "blue".into(),
            ..Node::default()
        };
        Self {
            tmp,
            node: Arc::new(Mutex::new(Arc::new(node))),
            settings: Shared::new(settings),
        }
    }

    pub(super) fn start(&self) -> Arc<HostVolumes> {
        let (journal, _) = LogJournal::open(&self.tmp.path().join("journal")).unwrap();
        let journal: Arc<dyn Journal> = Arc::new(journal);
        HostVolumes::restore(&self.settings, &self.node, &journal)
    }

    pub(super) fn volumes(&self) -> PathBuf {
        self.tmp.path().join("volumes")
    }

    pub(super) fn plugin(&self, name: &str, text: &str) {
        let path = self.tmp.path().join("plugins").join(name);
        std::fs::write(&path, text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }

    /// What the node says of itself: name, path and id of what it offers.
    pub(super) fn offers(&self) -> Vec<(String, String, String)> {
        let node = self.node.lock().clone();
        let volumes = node.host_volumes.iter();
        volumes
            .map(|(name, reported)| (name.clone(), reported.path.clone(), reported.id.clone()))
            .collect()
    }

    fn says(&self, attribute: &str) -> Option<String> {
        self.node.lock().attributes.get(attribute).cloned()
    }
}

pub(super) fn create_request(id: &str, name: &str, plugin: &str) -> ClientHostVolumeCreateRequest {
    ClientHostVolumeCreateRequest {
        id: id.into(),
        name: name.into(),
        plugin_id: plugin.into(),
        namespace: "apps".into(),
        requested_capacity_min_bytes: 5,
        requested_capacity_max_bytes: 10,
        ..ClientHostVolumeCreateRequest::default()
    }
}

pub(super) fn delete_request(id: &str, name: &str, plugin: &str) -> ClientHostVolumeDeleteRequest {
    undoing(&create_request(id, name, plugin))
}

pub(super) fn certs() -> (String, String, String) {
    ("certs".into(), "/etc/ssl".into(), String::new())
}

#[tokio::test]
async fn a_volume_is_made_offered_found_again_and_deleted() {
    let world = World::new();
    let volumes = world.start();
    assert_eq!(world.offers(), [certs()]);
    assert_eq!(
        world.says("plugins.host_volume.mkdir.version").as_deref(),
        Some("0.0.1")
    );
    volumes.described().await;
    let made = volumes
        .create(create_request(ONE, "data", "mkdir"))
        .await
        .unwrap();
    let path = world.volumes().join(ONE);
    assert_eq!((Path::new(&made.path), made.bytes), (&*path, 0));
    let offered = ("data".to_owned(), made.path.clone(), ONE.to_owned());
    assert_eq!(world.offers(), [certs(), offered.clone()]);
    volumes.described().await;
    std::fs::write(path.join("kept"), "x").unwrap();
    // The same again is the same.
    assert_eq!(
        volumes
            .create(create_request(ONE, "data", "mkdir"))
            .await
            .unwrap(),
        made
    );
    assert!(volumes.described().now_or_never().is_none(), "no news");
    // Another agent of the node finds it, whatever the node reported before.
    drop(volumes);
    Arc::make_mut(&mut world.node.lock()).host_volumes = Map::nil();
    let volumes = world.start();
    assert_eq!(world.offers(), [certs(), offered]);
    Arc::clone(&volumes).resume().await;
    assert!(path.join("kept").exists());
    volumes
        .delete(delete_request(ONE, "data", "mkdir"))
        .await
        .unwrap();
    assert_eq!(world.offers(), [certs()]);
    assert!(!path.exists());
    volumes
        .delete(delete_request(ONE, "data", "mkdir"))
        .await
        .unwrap();
    drop(volumes);
    world.start();
    assert_eq!(world.offers(), [certs()], "it stays gone");
}

#[tokio::test]
async fn a_plugin_is_told_all_it_needs_and_nothing_else() {
    let world = World::new();
    world.plugin("zfs", PLUGIN);
    world.plugin("bad name", PLUGIN);
    std::fs::write(world.tmp.path().join("plugins/readme"), "no plugin").unwrap();
    let volumes = world.start();
    volumes.scan().await;
    assert_eq!(
        world.says("plugins.host_volume.zfs.version").as_deref(),
        Some("1.2.3")
    );
    let attributes = world.node.lock().attributes.len();
    assert_eq!(attributes, 2, "mkdir and zfs");
    let mut requested = create_request(ONE, "data", "zfs");
    requested.parameters = Map::from([("key", "a \"value\"".to_owned())]);
    let made = volumes.create(requested.clone()).await.unwrap();
    assert_eq!(made.bytes, 4096);
    let dir = world.volumes().display().to_string();
    assert_eq!(made.path, format!("{dir}/own-data"));
    let reported = |file: &str| std::fs::read_to_string(world.volumes().join(file)).unwrap();
    let plugins = world.tmp.path().join("plugins").display().to_string();
    assert_eq!(
        reported("created"),
        format!(
            "DHV_CAPACITY_MAX_BYTES=10\nDHV_CAPACITY_MIN_BYTES=5\nDHV_NAMESPACE=apps\n\
             DHV_NODE_ID=n1\nDHV_NODE_POOL=blue\nDHV_OPERATION=create\n\
             DHV_PARAMETERS={{\"key\":\"a \\\"value\\\"\"}}\nDHV_PLUGIN_DIR={plugins}\n\
             DHV_VOLUMES_DIR={dir}\nDHV_VOLUME_ID={ONE}\nDHV_VOLUME_NAME=data\n"
        )
    );
    // What the servers missed of it, the node knows.
    let mut undone = undoing(&requested);
    undone.name = String::new();
    volumes.delete(undone).await.unwrap();
    assert_eq!(
        reported("deleted"),
        format!(
            "DHV_CREATED_PATH={dir}/own-data\nDHV_NAMESPACE=apps\nDHV_NODE_ID=n1\n\
             DHV_NODE_POOL=blue\nDHV_OPERATION=delete\n\
             DHV_PARAMETERS={{\"key\":\"a \\\"value\\\"\"}}\nDHV_PLUGIN_DIR={plugins}\n\
             DHV_VOLUMES_DIR={dir}\nDHV_VOLUME_ID={ONE}\nDHV_VOLUME_NAME=data\n"
        )
    );
    let calls = "fingerprint fingerprint\ncreate create\ndelete delete\n";
    assert_eq!(reported("calls"), calls);
}

#[tokio::test]
async fn what_cannot_be_made_leaves_nothing_and_says_why() {
    let world = World::new();
    world.plugin("zfs", PLUGIN);
    std::fs::write(world.volumes().join("fails"), "").unwrap();
    let volumes = world.start();
    let refused = volumes
        .create(create_request(ONE, "data", "zfs"))
        .await
        .unwrap_err();
    assert_eq!(
        refused.message,
        "plugin \"zfs\": create ended with exit status: 7: no room"
    );
    let calls = std::fs::read_to_string(world.volumes().join("calls")).unwrap();
    assert_eq!(calls, "create create\ndelete delete\n", "it is undone");
    assert_eq!(world.offers(), [certs()]);
    assert!(volumes.journal.load().is_empty());
    for (requested, text) in [
        (
            create_request(ONE, "data", "none"),
            "no such plugin: \"none\"",
        ),
        (
            create_request(ONE, "data", "../plugins/zfs"),
            "no such plugin: \"../plugins/zfs\"",
        ),
        (
            create_request("../../x", "data", "mkdir"),
            "invalid volume ID \"../../x\"",
        ),
        (create_request(ONE, "", "mkdir"), "invalid volume name \"\""),
        (
            create_request(ONE, "a/b", "mkdir"),
            "invalid volume name \"a/b\"",
        ),
    ] {
        let refused = volumes.create(requested).await.unwrap_err();
        assert_eq!(refused.message, text);
    }
    // What was there stays as it was when a change of it fails.
    std::fs::remove_file(world.volumes().join("fails")).unwrap();
    volumes
        .create(create_request(ONE, "data", "zfs"))
        .await
        .unwrap();
    let before = world.offers();
    std::fs::write(world.volumes().join("fails"), "").unwrap();
    assert!(
        volumes
            .create(create_request(ONE, "data", "zfs"))
            .await
            .is_err()
    );
    assert_eq!(world.offers(), before);
    assert!(world.volumes().join("own-data").exists());
    let other = volumes.create(create_request(TWO, "data", "mkdir")).await;
    let text = "this node has another volume with the name \"data\"";
    assert_eq!(other.unwrap_err().message, text);
}

/// A plugin that does as it likes, and the text about it.
async fn hostile(text: &str, limit: Duration) -> (World, String) {
    let world = World::new();
    world.plugin("evil", &format!("#!/bin/sh\n{text}\n"));
    let volumes = world.start();
    let file = world.tmp.path().join("plugins/evil");
    let result = volumes.plugins.run(&file, "create", &[], limit).await;
    let text = result.map_or_else(
        |error| error.to_string(),
        |answer| format!("answer of {}", answer.len()),
    );
    (world, text)
}

/// A plugin that is late, and the number of a process that it started.
async fn late() -> String {
    let script = "sleep 600 & echo $! > \"$DHV_VOLUMES_DIR/pid\"; wait";
    // A machine that is slow has not begun it within the first of them.
    for seconds in [2, 10, 50] {
        let (world, text) = hostile(script, Duration::from_secs(seconds)).await;
        let wanted = format!("plugin \"evil\": create took longer than {seconds}s");
        assert_eq!(text, wanted);
        let pid = std::fs::read_to_string(world.volumes().join("pid"));
        if let Ok(pid) = pid.map(|pid| pid.trim().to_owned())
            && !pid.is_empty()
        {
            return pid;
        }
    }
    panic!("it never began");
}

#[tokio::test]
async fn a_plugin_that_is_late_or_says_too_much_is_killed_with_all_it_started() {
    let stat = format!("/proc/{}/stat", late().await);
    let is_dead = || match std::fs::read_to_string(&stat) {
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|s| s.starts_with('Z')),
        Err(_) => true,
    };
    let ended = eventually("its end", LONG, || so(is_dead())).await;
    ended.expect("what it started is killed too");
    // At once: a plugin whose output is read to its end is late, and the text states that.
    let (_, text) = hostile("exec yes", LONG).await;
    let much = "plugin \"evil\": create answered with more than 65536 bytes";
    assert_eq!(text, much);
    let script = "yes >&2 | head -c 10; exit 3";
    let (_, text) = hostile(script, Duration::from_secs(2)).await;
    assert_eq!(text, "plugin \"evil\": create took longer than 2s");
    let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 3";
    let (_, text) = hostile(script, LONG).await;
    assert!(text.starts_with("plugin \"evil\": create ended with exit status: 3: xxx"));
    assert!(text.len() < 3_000, "{}", text.len());
    // A plugin that leaves a process behind is not waited for.
    let (_, text) = hostile("sleep 100 & echo '{}'", LONG).await;
    assert_eq!(text, "answer of 3");
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_refused() {
    for (answer, text) in [
        ("x", "its answer is not as it should be"),
        ("{\"bytes\": 5}", "its answer is not as it should be"),
        ("{\"path\": \"data\"}", "it answered with no absolute path"),
        (
            "{\"path\": \"/srv\", \"bytes\": -1}",
            "it answered with a negative size",
        ),
        (
            "{\"path\": \"/none/there\"}",
            "volume at /none/there is not",
        ),
    ] {
        let world = World::new();
        world.plugin("evil", &format!("#!/bin/sh\nprintf '%s' '{answer}'\n"));
        let volumes = world.start();
        let refused = volumes.create(create_request(ONE, "data", "evil")).await;
        let refused = refused.unwrap_err().message;
        assert!(refused.contains(text), "{refused}");
        assert_eq!(world.offers(), [certs()]);
        volumes.scan().await;
        assert_eq!(world.says("plugins.host_volume.evil.version"), None);
    }
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_made_again_when_the_agent_starts() {
    let world = World::new();
    world.plugin("zfs", PLUGIN);
    {
        // The agent dies after the intent is kept, and before the plugin has answered.
        let volumes = world.start();
        let requested = create_request(ONE, "data", "zfs");
        volumes.take(&requested).unwrap();
        let kept = volumes.kept_of(ONE).unwrap();
        volumes.keep(&kept).await.unwrap();
    }
    let volumes = world.start();
    assert_eq!(world.offers(), [certs()], "it is not made yet");
    Arc::clone(&volumes).resume().await;
    let path = world.volumes().join("own-data").display().to_string();
    let offered = ("data".to_owned(), path, ONE.to_owned());
    assert_eq!(world.offers(), [certs(), offered.clone()]);
    drop(volumes);
    // What was made is offered before the plugin has been called again.
    let volumes = world.start();
    assert_eq!(world.offers(), [certs(), offered]);
    std::fs::write(world.volumes().join("fails"), "").unwrap();
    let again = volumes.again(ONE).await.unwrap_err();
    assert!(again.message.ends_with("no room"), "{}", again.message);
    assert_eq!(world.offers(), [certs()], "it is not there any more");
    std::fs::remove_file(world.volumes().join("fails")).unwrap();
    volumes.again(ONE).await.unwrap();
    assert_eq!(world.offers().len(), 2);
}

#[tokio::test]
async fn a_volume_in_use_is_not_deleted_and_a_registered_one_stays_where_it_is() {
    let world = World::new();
    let volumes = world.start();
    let used = Used::by(&volumes, "a1");
    let there = world.tmp.path().join("there");
    let mut register = ClientHostVolumeRegisterRequest {
        id: ONE.into(),
        name: "data".into(),
        namespace: "apps".into(),
        host_path: there.display().to_string(),
        ..ClientHostVolumeRegisterRequest::default()
    };
    let refused = volumes.register(register.clone()).await.unwrap_err();
    assert!(refused.message.contains("is not there"), "{refused:?}");
    std::fs::create_dir(&there).unwrap();
    volumes.register(register.clone()).await.unwrap();
    assert_eq!(world.offers().len(), 2);
    let refused = volumes
        .delete(delete_request(ONE, "data", ""))
        .await
        .unwrap_err();
    let text = format!("volume {ONE} in use by allocations: [a1]");
    assert_eq!(refused.message, text);
    assert_eq!(world.offers().len(), 2, "it is offered again");
    used.here.lock().clear();
    volumes
        .delete(delete_request(ONE, "data", ""))
        .await
        .unwrap();
    assert_eq!(world.offers(), [certs()]);
    assert!(there.exists());
    // One with a name of the configuration stands before that.
    register.name = "certs".into();
    volumes.register(register).await.unwrap();
    let own = there.display().to_string();
    assert_eq!(world.offers(), [("certs".to_owned(), own, ONE.to_owned())]);
}
