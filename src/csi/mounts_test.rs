use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tonic::{Code, Status};

use crate::Plugin;
use crate::harness::Fake;
use crate::mounts::{MountError, Mounts, Returned, Root, Secrets, Usage, Wanted, is_there};

struct Node {
    _folder: TempDir,
    fake: Fake,
    plugin: Plugin,
    mounts: Mounts,
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
    };
    let plugin = Plugin::at(&fake.socket);
    let mounts = Mounts::default();
    Node {
        _folder: folder,
        fake,
        plugin,
        mounts,
        root,
    }
}

fn usage(flags: &[&str]) -> Usage {
    Usage {
        read_only: false,
        attachment: "file-system".to_owned(),
        access: "single-node-writer".to_owned(),
        fs_type: String::new(),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        own_options: !flags.is_empty(),
    }
}

fn wanted(alloc: &str, usage: Usage) -> Wanted {
    Wanted {
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
    }
}

fn returned(alloc: &str) -> Returned {
    Returned {
        alloc: alloc.to_owned(),
        namespace: "default".to_owned(),
        volume: "vol".to_owned(),
        remote: "far-vol".to_owned(),
        read_only: false,
        attachment: "file-system".to_owned(),
        access: "single-node-writer".to_owned(),
    }
}

impl Node {
    async fn mount(&self, wanted: &Wanted) -> Result<PathBuf, MountError> {
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
        found
    }
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
    assert!(node.mounts.is_used_by(&node.root, key, "a1").await.unwrap());
    node.unmount("a1").await.unwrap();
    assert!(!node.mounts.is_used_by(&node.root, key, "a1").await.unwrap());
    assert_eq!(node.calls(), ["NodeUnpublish"], "another uses it");
    assert!(staging.is_dir() && !one.exists());
    node.unmount("a2").await.unwrap();
    assert_eq!(node.calls(), ["NodeUnpublish", "NodeUnstage"]);
    let mut left = node.left();
    left.sort();
    let kept = [
        "per-alloc",
        "staging",
        "staging/default",
        "users",
        "users/default",
    ];
    assert_eq!(
        left,
        kept.map(|path| node.root.host.join(path)),
        "the folders for all"
    );

    // CSI-34: once more, with nothing there.
    node.unmount("a2").await.unwrap();
    assert_eq!(node.calls(), Vec::<String>::new());
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
    paths.dedup();
    assert_eq!(paths.len(), 3, "{paths:?}");
    // Whoever takes it back does not know the options.
    node.calls();
    node.unmount("a1").await.unwrap();
    let calls = node.calls();
    assert_eq!(
        calls.iter().filter(|call| *call == "NodeUnpublish").count(),
        3
    );
    assert_eq!(
        calls.iter().filter(|call| *call == "NodeUnstage").count(),
        3
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
    assert!(node.mounts.is_used_by(&node.root, key, "a1").await.unwrap());
    node.refuse(Some(Status::not_found("no such volume")));
    node.calls();
    node.unmount("a1").await.unwrap();
    assert_eq!(node.calls(), ["NodeUnpublish", "NodeUnstage"]);
    assert!(!node.mounts.is_used_by(&node.root, key, "a1").await.unwrap());
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
