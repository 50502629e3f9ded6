use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tonic::{Code, Status};

use crate::Plugin;
use crate::mark::whole;
use crate::mounts::{
    Mark, MountError, MountSpec, Mounts, Returned, Root, Secrets, Usage, is_there, part,
};
use drover_csifake::Fake;

struct Node {
    _folder: TempDir,
    fake: Fake,
    plugin: Plugin,
    mounts: Arc<Mounts>,
    root: Root,
}

fn node() -> Node {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::at(&folder.path().join("csi.sock"));
    let host = folder.path().join("csi/node/p");
    let root = Root {
        host: host.clone(),
        // The fake makes what it publishes: it sees the host.
        seen: host,
        users: folder.path().join("csi/users/p"),
    };
    let plugin = Plugin::at(&fake.socket);
    // The fake does not mount.
    let mounts = Arc::new(Mounts::new(false));
    Node {
        _folder: folder,
        fake,
        plugin,
        mounts,
        root,
    }
}

pub(super) fn usage(flags: &[&str]) -> Usage {
    Usage {
        read_only: false,
        attachment: "file-system".to_owned(),
        access: "single-node-writer".to_owned(),
        fs_type: String::new(),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        own_options: !flags.is_empty(),
    }
}

pub(super) fn wanted(alloc: &str, usage: Usage) -> MountSpec {
    MountSpec {
        alloc: alloc.to_owned(),
        namespace: "default".to_owned(),
        volume: "vol".to_owned(),
        remote: "far-vol".to_owned(),
        usage,
        publish_context: BTreeMap::new(),
        context: BTreeMap::new(),
        secrets: Secrets(BTreeMap::from([(
            "k".to_owned(),
            "correct-horse".to_owned(),
        )])),
        size: None,
    }
}

fn returned(alloc: &str) -> Returned {
    Returned {
        alloc: alloc.to_owned(),
        namespace: "default".to_owned(),
        volume: "vol".to_owned(),
        remote: "far-vol".to_owned(),
    }
}

impl Node {
    async fn mount(&self, wanted: &MountSpec) -> Result<PathBuf, MountError> {
        let mounted = self.mounts.mount(&self.plugin, true, &self.root, wanted);
        Ok(mounted.await?.path)
    }

    async fn unmount(&self, alloc: &str) -> Result<(), MountError> {
        let given = returned(alloc);
        self.mounts
            .unmount(&self.plugin, true, &self.root, &given)
            .await
    }

    /// The names of the calls since the last look.
    fn calls(&self) -> Vec<String> {
        let seen = std::mem::take(&mut *self.fake.says.seen.lock().unwrap());
        let name = |(shown, _): (String, _)| {
            let name = shown.split([' ', '{']).next().unwrap_or_default();
            name.trim_end_matches("VolumeRequest").to_owned()
        };
        seen.into_iter().map(name).collect()
    }

    async fn marks(&self) -> Result<Vec<Mark>, MountError> {
        let marks = self.mounts.marks(&self.root).await;
        marks.failed.map_or(Ok(marks.all), Err)
    }

    fn user(&self, alloc: &str) -> PathBuf {
        let of = usage(&[]).name();
        self.root.users.join("default/vol").join(of).join(alloc)
    }

    fn refuse(&self, status: Option<Status>) {
        *self.fake.says.refuses.lock().unwrap() = status;
    }

    /// What lies below the plugin's folder.
    fn left(&self) -> Vec<PathBuf> {
        fn below(path: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                found.push(entry.path());
                below(&entry.path(), found);
            }
        }
        let mut found = Vec::new();
        below(&self.root.host, &mut found);
        below(&self.root.users, &mut found);
        found
    }
}

#[tokio::test]
async fn csi_05_a_volume_that_is_to_have_a_size_is_made_so_where_it_is_published() {
    let node = node();
    let mut wanted = wanted("a1", usage(&[]));
    wanted.size = Some(crate::proto::CapacityRange {
        required_bytes: 10,
        limit_bytes: 20,
    });
    node.mount(&wanted).await.unwrap();
    let seen = node.fake.says.seen.lock().unwrap().clone();
    let requested = seen.last().map(|(shown, _)| shown.clone()).unwrap();
    assert_eq!(node.calls(), ["NodeStage", "NodePublish", "NodeExpand"]);
    let (to, at) = (
        node.root.seen.join("staging"),
        node.root.seen.join("per-alloc"),
    );
    for reported in [
        "required_bytes: 10, limit_bytes: 20".to_owned(),
        format!(
            "volume_path: {:?}",
            at.join("a1/vol/rw-file-system-single-node-writer")
        ),
        format!(
            "staging_target_path: {:?}",
            to.join("default/vol/rw-file-system-single-node-writer")
        ),
        "volume_id: \"far-vol\"".to_owned(),
    ] {
        assert!(
            requested.contains(&reported),
            "{reported} is not in {requested}"
        );
    }
    assert!(!requested.contains("correct-horse"), "{requested}");
    // One that is not made larger is there all the same, as large as it is.
    let used = Status::failed_precondition("it is in use");
    *node.fake.says.no_growing.lock().unwrap() = Some(used);
    let mounted = node.mounts.mount(&node.plugin, true, &node.root, &wanted);
    let why = mounted.await.unwrap().too_small.unwrap();
    assert!(why.contains("NodeExpandVolume"), "{why}");
    *node.fake.says.no_growing.lock().unwrap() = None;
    wanted.size = None;
    node.calls();
    node.mount(&wanted).await.unwrap();
    assert_eq!(node.calls(), ["NodeStage", "NodePublish"]);
}

#[tokio::test]
async fn a_volume_is_staged_once_for_all_and_taken_with_its_last_user() {
    let node = node();
    let one = node.mount(&wanted("a1", usage(&[]))).await.unwrap();
    let place = "per-alloc/a1/vol/rw-file-system-single-node-writer";
    assert_eq!(one, node.root.host.join(place));
    assert!(one.is_dir());
    let staging = node
        .root
        .host
        .join("staging/default/vol/rw-file-system-single-node-writer");
    assert!(staging.is_dir());
    node.mount(&wanted("a2", usage(&[]))).await.unwrap();
    assert_eq!(
        node.calls(),
        ["NodeStage", "NodePublish", "NodeStage", "NodePublish"]
    );

    let key = ("default", "vol");
    assert!(
        node.mounts
            .is_used_by(&node.root.users, key, "a1")
            .await
            .unwrap()
    );
    node.unmount("a1").await.unwrap();
    assert!(
        !node
            .mounts
            .is_used_by(&node.root.users, key, "a1")
            .await
            .unwrap()
    );
    assert_eq!(node.calls(), ["NodeUnpublish"], "another uses it");
    assert!(staging.is_dir() && !one.exists());
    node.unmount("a2").await.unwrap();
    assert_eq!(node.calls(), ["NodeUnpublish", "NodeUnstage"]);
    let mut left = node.left();
    left.sort();
    let kept = ["per-alloc", "staging", "staging/default"];
    let mut kept: Vec<_> = kept.map(|path| node.root.host.join(path)).into();
    kept.extend(["%new", "default"].map(|path| node.root.users.join(path)));
    assert_eq!(left, kept, "the folders for all");

    // CSI-34: once more, with nothing there.
    node.unmount("a2").await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn ns_02_the_same_id_in_two_namespaces_is_two_volumes_on_a_node_as_well() {
    let node = node();
    let one = node.mount(&wanted("a1", usage(&[]))).await.unwrap();
    let mut other = wanted("a2", usage(&[]));
    "apps".clone_into(&mut other.namespace);
    let two = node.mount(&other).await.unwrap();
    let staging = node.root.host.join("staging");
    let staged = |namespace: &str| staging.join(namespace).join("vol").join(usage(&[]).name());
    assert!(staged("default").is_dir() && staged("apps").is_dir());
    node.calls();
    node.unmount("a1").await.unwrap();
    // An allocation that has the other one does not keep this one on the node.
    assert_eq!(node.calls(), ["NodeUnpublish", "NodeUnstage"]);
    assert!(!one.exists() && !staged("default").exists());
    assert!(two.is_dir() && staged("apps").is_dir());
    let left = Mark {
        namespace: "apps".to_owned(),
        ..mark("a2")
    };
    assert_eq!(node.marks().await.unwrap(), [left]);
}

#[tokio::test]
async fn csi_16_the_same_volume_with_other_options_has_a_place_of_its_own() {
    let node = node();
    let mut paths = Vec::new();
    for flags in [&[][..], &["noatime"], &["noatime", "ro"]] {
        paths.push(node.mount(&wanted("a1", usage(flags))).await.unwrap());
    }
    let again = node
        .mount(&wanted("a1", usage(&["noatime"])))
        .await
        .unwrap();
    assert_eq!(again, paths[1], "the same options, the same place");
    // And in another mode, for another task of the group.
    let mut read_only = usage(&[]);
    read_only.read_only = true;
    "multi-node-reader-only".clone_into(&mut read_only.access);
    paths.push(node.mount(&wanted("a1", read_only)).await.unwrap());
    paths.dedup();
    assert_eq!(paths.len(), 4, "{paths:?}");
    // The call that takes it back does not know in which ways it was mounted.
    node.calls();
    node.unmount("a1").await.unwrap();
    let calls = node.calls();
    assert_eq!(
        calls.iter().filter(|call| *call == "NodeUnpublish").count(),
        4
    );
    assert_eq!(
        calls.iter().filter(|call| *call == "NodeUnstage").count(),
        4
    );
    assert!(paths.iter().all(|path| !path.exists()));
}

#[tokio::test]
async fn what_fails_between_is_found_when_it_is_tried_again_and_when_it_is_taken_back() {
    let node = node();
    for code in [Code::Internal, Code::Unavailable, Code::InvalidArgument] {
        node.refuse(Some(Status::new(code, "no")));
        let error = node.mount(&wanted("a1", usage(&[]))).await.unwrap_err();
        assert_eq!(error.is_recoverable(), code != Code::InvalidArgument);
        assert!(
            error.to_string().starts_with("NodeStageVolume: "),
            "{error}"
        );
    }
    // It was never published, and is taken back all the same: the answers may have been lost.
    node.refuse(Some(Status::internal("no")));
    assert!(node.unmount("a1").await.is_err());
    let key = ("default", "vol");
    assert!(
        node.mounts
            .is_used_by(&node.root.users, key, "a1")
            .await
            .unwrap()
    );
    node.refuse(Some(Status::not_found("no such volume")));
    node.calls();
    node.unmount("a1").await.unwrap();
    assert_eq!(node.calls(), ["NodeUnpublish", "NodeUnstage"]);
    assert!(
        !node
            .mounts
            .is_used_by(&node.root.users, key, "a1")
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_plugin_that_only_says_it_published_is_not_believed() {
    let node = node();
    *node.fake.says.lies.lock().unwrap() = true;
    let error = node.mount(&wanted("a1", usage(&[]))).await.unwrap_err();
    assert!(matches!(error, MountError::Lie(_)), "{error}");
    *node.fake.says.lies.lock().unwrap() = false;
    let mounted = node
        .mounts
        .mount(&node.plugin, true, &node.root, &wanted("a1", usage(&[])))
        .await
        .unwrap();
    assert!(is_there(&mounted).await.unwrap());
    // What holds something is not removed, whatever the plugin says.
    std::fs::write(mounted.path.join("file"), "data").unwrap();
    *node.fake.says.lies.lock().unwrap() = true;
    assert!(node.unmount("a1").await.is_err());
    assert_eq!(
        std::fs::read_to_string(mounted.path.join("file")).unwrap(),
        "data"
    );
    std::fs::remove_file(mounted.path.join("file")).unwrap();
    std::fs::remove_dir(&mounted.path).unwrap();
    assert!(!is_there(&mounted).await.unwrap());
}

#[tokio::test]
async fn a_plugin_leads_the_agent_nowhere_by_what_it_leaves_in_its_folder() {
    let node = node();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = |place: &str| {
        let path = node.root.host.join(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), path).unwrap();
    };
    for place in ["staging", "staging/default", "per-alloc", "per-alloc/a1"] {
        link(place);
        let error = node.mount(&wanted("a1", usage(&[]))).await.unwrap_err();
        assert!(matches!(error, MountError::Io(..)), "{place}: {error}");
        let made = std::fs::read_dir(elsewhere.path()).unwrap().count();
        assert_eq!(made, 0, "{place} leads elsewhere");
        std::fs::remove_file(node.root.host.join(place)).unwrap();
    }
    // Nor is anything removed there.
    let usage_of = "rw-file-system-single-node-writer";
    std::fs::create_dir_all(elsewhere.path().join("vol").join(usage_of)).unwrap();
    node.mount(&wanted("a1", usage(&[]))).await.unwrap();
    let of_alloc = node.root.host.join("per-alloc/a1");
    std::fs::rename(&of_alloc, node.root.host.join("aside")).unwrap();
    link("per-alloc/a1");
    // The plugin only says that it did something.
    *node.fake.says.lies.lock().unwrap() = true;
    assert!(node.unmount("a1").await.is_err());
    assert!(elsewhere.path().join("vol").join(usage_of).is_dir());
}

#[tokio::test]
async fn what_is_not_mounted_is_not_published_where_plugins_can_mount() {
    let mut node = node();
    node.mounts = Arc::new(Mounts::new(true));
    let error = node.mount(&wanted("a1", usage(&[]))).await.unwrap_err();
    let text = "the plugin says that volume vol is published, and nothing is mounted at ";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(error.is_recoverable());
    node.unmount("a1").await.unwrap();
}

fn mark(alloc: &str) -> Mark {
    Mark {
        namespace: "default".to_owned(),
        volume: "vol".to_owned(),
        remote: "far-vol".to_owned(),
        alloc: alloc.to_owned(),
    }
}

#[tokio::test]
async fn a_user_of_volumes_is_known_when_nobody_else_knows_it() {
    let node = node();
    assert_eq!(node.marks().await.unwrap(), []);
    node.mount(&wanted("a1", usage(&[]))).await.unwrap();
    node.mount(&wanted("a1", usage(&["ro"]))).await.unwrap();
    node.mount(&wanted("a2", usage(&[]))).await.unwrap();
    // A mark of a machine that lost its power before the first call.
    let torn = node.root.users.join("default/vol/rw-x/a3");
    std::fs::create_dir_all(torn.parent().unwrap()).unwrap();
    std::fs::write(&torn, "").unwrap();
    let mut all = node.marks().await.unwrap();
    all.sort_by(|a, b| a.alloc.cmp(&b.alloc));
    assert_eq!(all, [mark("a1"), mark("a2")]);
    assert!(!torn.exists());
}

#[tokio::test]
async fn a_mark_is_removed_by_nobody_while_somebody_works_at_its_volume() {
    let node = node();
    let says = Arc::clone(&node.fake.says);
    says.holds.send_replace(true);
    let wanted = wanted("a1", usage(&[]));
    let mut mounting = Box::pin(node.mount(&wanted));
    tokio::select! {
        _ = &mut mounting => panic!("the plugin holds its answer back"),
        () = says.arrived.notified() => {}
    }
    let user = node.user("a2");
    std::fs::write(&user, "").unwrap();
    assert_eq!(node.marks().await.unwrap(), [mark("a1")]);
    assert!(user.exists(), "the holder of the turn may be writing it");
    says.holds.send_replace(false);
    mounting.await.unwrap();
    node.marks().await.unwrap();
    assert!(!user.exists());
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_stays_and_hides_no_other() {
    let node = node();
    node.mount(&wanted("a1", usage(&[]))).await.unwrap();
    node.mount(&wanted("a2", usage(&[]))).await.unwrap();
    std::fs::write(node.user("a1"), b"\xff\n").unwrap();
    let marks = node.mounts.marks(&node.root).await;
    assert_eq!(marks.all, [mark("a2")]);
    assert!(matches!(marks.failed, Some(MountError::Io("read", ..))));
    assert!(node.user("a1").exists(), "its user may live");
}

#[tokio::test]
async fn a_mark_is_there_whole_whoever_looks_while_it_is_written_anew() {
    let node = node();
    node.mount(&wanted("a1", usage(&[]))).await.unwrap();
    let mut open = std::fs::File::open(node.user("a1")).unwrap();
    let mut moved = wanted("a1", usage(&[]));
    "elsewhere".clone_into(&mut moved.remote);
    node.mount(&moved).await.unwrap();
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut open, &mut seen).unwrap();
    assert_eq!(Mark::parse(&seen), Some(mark("a1")));
    assert_eq!(node.marks().await.unwrap()[0].remote, "elsewhere");
}

#[tokio::test]
async fn an_allocation_that_waits_for_a_volume_uses_it_and_gives_it_back_once_it_has_it() {
    let node = node();
    let says = Arc::clone(&node.fake.says);
    says.holds.send_replace(true);
    let (one, two) = (wanted("a1", usage(&[])), wanted("a2", usage(&[])));
    let mut first = Box::pin(node.mount(&one));
    tokio::select! {
        _ = &mut first => panic!("the plugin holds its answer back"),
        () = says.arrived.notified() => {}
    }
    let mut second = Box::pin(node.mount(&two));
    tokio::select! {
        biased;
        _ = &mut second => panic!("the first one has the turn"),
        () = std::future::ready(()) => {}
    }
    // It is stopped before its turn has come.
    drop(second);
    let users = &node.root.users;
    let used = node.mounts.is_used_by(users, ("default", "vol"), "a2");
    assert!(used.await.unwrap(), "it is still to come to that user");
    let mut all = node.marks().await.unwrap();
    all.sort_by(|a, b| a.alloc.cmp(&b.alloc));
    assert_eq!(all, [mark("a1"), mark("a2")]);
    let answer = async { says.holds.send_replace(false) };
    let (first, taken, _) = tokio::join!(first, node.unmount("a2"), answer);
    assert!(first.is_ok() && taken.is_ok());
    assert_eq!(node.marks().await.unwrap(), [mark("a1")]);
    let calls = node.calls();
    let stage = ["NodeStage", "NodePublish"];
    assert_eq!(calls, [&stage[..], &stage, &["NodeUnpublish"]].concat());
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_any_more_keeps_its_turn_until_it_is_answered() {
    let node = node();
    let says = Arc::clone(&node.fake.says);
    says.holds.send_replace(true);
    let wanted = wanted("a1", usage(&[]));
    let mut mounting = Box::pin(node.mount(&wanted));
    tokio::select! {
        _ = &mut mounting => panic!("the plugin holds its answer back"),
        () = says.arrived.notified() => {}
    }
    drop(mounting);
    let answer = async { says.holds.send_replace(false) };
    let (done, _) = tokio::join!(node.unmount("a1"), answer);
    done.unwrap();
    let calls = node.calls();
    let wanted = ["NodeStage", "NodePublish", "NodeUnpublish", "NodeUnstage"];
    assert_eq!(calls, wanted);
}

#[tokio::test]
async fn a_call_that_does_not_wait_for_its_turn_any_more_stands_in_no_line() {
    let node = node();
    node.mount(&wanted("a2", usage(&[]))).await.unwrap();
    let says = Arc::clone(&node.fake.says);
    // The calls for it came too: what is waited for is the next one.
    says.arrived.notified().await;
    says.holds.send_replace(true);
    let wanted = wanted("a1", usage(&[]));
    let mut mounting = Box::pin(node.mount(&wanted));
    tokio::select! {
        _ = &mut mounting => panic!("the plugin holds its answer back"),
        () = says.arrived.notified() => {}
    }
    let (by, given) = ((&node.plugin, true), returned("a2"));
    let within = |limit| node.mounts.unmount_within(limit, by, &node.root, &given);
    for limit in [0, 0, 20].map(Duration::from_millis) {
        assert!(!within(limit).await.unwrap());
    }
    says.holds.send_replace(false);
    mounting.await.unwrap();
    assert_eq!(node.marks().await.unwrap().len(), 2, "no call took it back");
    assert!(within(Duration::ZERO).await.unwrap());
    assert_eq!(node.marks().await.unwrap(), [mark("a1")]);
    let calls = node.calls();
    let taken = calls.iter().filter(|call| *call == "NodeUnpublish");
    assert_eq!(taken.count(), 1);
}

#[tokio::test]
async fn many_at_once_leave_nothing() {
    let node = Arc::new(node());
    let work = (0..20).map(|n| {
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            let alloc = format!("a{n}");
            node.mount(&wanted(&alloc, usage(&[]))).await.unwrap();
            node.unmount(&alloc).await.unwrap();
        })
    });
    for one in work.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    let files = node.left().into_iter().filter(|path| path.is_file());
    assert_eq!(files.count(), 0);
    let calls = node.calls();
    assert_eq!(calls.last().map(String::as_str), Some("NodeUnstage"));
}

#[tokio::test]
async fn names_do_not_lead_elsewhere() {
    for name in ["", ".", "..", "a/b", "50%", "%2e", "plain", "two\nlines"] {
        let written = part(name);
        assert!(!written.contains('/') && !written.is_empty(), "{name}");
        assert_eq!(whole(&written).as_deref(), Some(name), "{written}");
    }
    let node = node();
    let mut odd = wanted("a1", usage(&[]));
    odd.volume = "../../../escape".to_owned();
    odd.namespace = "..".to_owned();
    let path = node.mount(&odd).await.unwrap();
    assert!(path.starts_with(&node.root.host) && !text(&path).contains("/../"));
    assert!(!format!("{odd:?}").contains("correct-horse"));
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
