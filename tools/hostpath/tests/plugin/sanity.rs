use std::path::PathBuf;
use std::process::Command;

use drover_testkit::skip;

use crate::support::{Running, can_loop, can_mount};

/// The suite that judges plugins, where `tools/install` puts it.
fn suite() -> Result<PathBuf, &'static str> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set")?;
    let path = PathBuf::from(home).join(".cache/drover/bin/csi-sanity");
    match path.exists() {
        true => Ok(path),
        false => Err("no csi-sanity: tools/install fetches it with Go"),
    }
}

/// Runs the suite against a plugin that is started so.
fn proven(kind: &str, words: &[&str], more: &[&str]) {
    let what = format!("csi-sanity of a {kind}, {words:?}");
    let possible = match kind {
        _ if words.contains(&"--links") => Ok(()),
        "block" => can_loop(),
        _ => can_mount(),
    };
    let suite = match possible.and_then(|()| suite()) {
        Ok(suite) => suite,
        Err(why) => return skip(&what, why),
    };
    let plugin = Running::start(words);
    let at = |below: &str| plugin.path(below).to_string_lossy().into_owned();
    let output = Command::new(suite)
        .arg(format!("--csi.endpoint=unix://{}", at("csi.sock")))
        .arg(format!("--csi.mountdir={}", at("mount")))
        .arg(format!("--csi.stagingdir={}", at("staging")))
        .arg(format!("--csi.testvolumeaccesstype={kind}"))
        .arg("--ginkgo.no-color")
        .args(more)
        .output()
        .expect("as the test needs it");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}:\n{printed}");
    let ran = printed.lines().find(|line| line.starts_with("Ran "));
    let ran = ran.and_then(|line| line.split(' ').nth(1)?.parse::<u32>().ok());
    assert!(
        ran.is_some_and(|ran| ran > 50),
        "{what}: hardly any ran:\n{printed}"
    );
    // What the plugin says it did, it did.
    let left = std::fs::read_to_string("/proc/self/mountinfo").expect("as the test needs it");
    assert!(!left.contains(&at("")), "{what}: mounts are left:\n{left}");
}

#[test]
fn a_plugin_of_folders_is_what_the_specification_says() {
    proven("mount", &[], &[]);
}

#[test]
fn a_plugin_of_devices_is_what_the_specification_says() {
    proven("block", &[], &[]);
}

#[test]
fn a_plugin_with_places_and_links_is_what_the_specification_says() {
    proven("mount", &["--links", "--topology", "zone=a"], &[]);
}

#[test]
fn a_plugin_that_neither_attaches_nor_stages_is_what_the_specification_says() {
    proven("mount", &["--no-attach", "--no-stage"], &[]);
}

#[test]
fn a_plugin_with_room_for_two_is_what_the_specification_says() {
    let limit = ["--csi.testnodevolumeattachlimit"];
    proven("mount", &["--links", "--max-volumes", "2"], &limit);
}

#[test]
fn a_plugin_that_grows_what_nobody_has_is_what_the_specification_says() {
    proven("mount", &["--links", "--offline"], &[]);
}
