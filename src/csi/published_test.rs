//! What a plugin published is looked at, where something is mounted.

use super::mounts_test::{usage, wanted};
use crate::disk::PluginPath;
use crate::mounts::Mounts;

#[tokio::test]
async fn a_folder_that_is_mounted_is_a_folder_and_no_device() {
    // A place at which something is mounted on every machine.
    let target = PluginPath {
        root: "/".into(),
        path: "proc".into(),
    };
    let mounts = Mounts::new(true);
    let mut wanted = wanted("a1", usage(&[]));
    let mounted = mounts.published(&target, &wanted).await.unwrap();
    assert!(mounted.is_mount, "{mounted:?}");
    "block-device".clone_into(&mut wanted.usage.attachment);
    let error = mounts.published(&target, &wanted).await.unwrap_err();
    let text = "the plugin says that volume vol is published, and no device is at /proc";
    assert_eq!(error.to_string(), text);
}
