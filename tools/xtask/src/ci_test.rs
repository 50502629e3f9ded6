//! What `.ci/run` runs, and that nothing of it may be skipped.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::testing::program;

#[test]
fn whatever_must_hold_is_run_and_nothing_of_it_may_be_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let [ci, tools, bin] = [".ci", "tools", "bin"].map(|name| dir.path().join(name));
    for made in [&ci, &tools, &bin] {
        fs::create_dir(made).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/run");
    fs::copy(script, ci.join("run")).unwrap();
    let ran = dir.path().join("ran");
    let notes = |name: &str| {
        let skips = "no_skip=${DROVER_NO_SKIP:-}";
        format!("echo \"{name} $* {skips}\" >>'{}'", ran.display())
    };
    program(&tools, "install", &notes("install"));
    program(&tools, "test", &notes("test"));
    program(&bin, "cargo", &notes("cargo"));
    // There is always enough space.
    program(&bin, "df", "echo of; echo . . . 99999999 .");
    let target = dir.path().join("target");
    let env = format!(
        "CARGO_TARGET_DIR='{}'; export CARGO_TARGET_DIR\n",
        target.display()
    );
    fs::write(tools.join("env"), env).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("/bin/sh");
    command.arg(ci.join("run")).env("PATH", path);
    let done = command.env_remove("DROVER_NO_SKIP").output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
    let ran = fs::read_to_string(ran).unwrap();
    let ran: Vec<&str> = ran.lines().collect();
    let all = [
        "install  no_skip=1",
        "cargo fetch --locked no_skip=1",
        "cargo xtask verify no_skip=1",
        "test  no_skip=1",
    ];
    assert_eq!(ran, all, "{stderr}");
}
