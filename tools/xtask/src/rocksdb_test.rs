//! What `tools/rocksdb` says and answers where the prebuilt library cannot be had.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::testing::program;

/// Runs the script in a directory of its own: whether it succeeds, what it says, and whether there
/// is anything in the cache.
fn run(version: &str, maven: &str, set: &[(&str, &str)]) -> (bool, String, bool) {
    let dir = tempfile::tempdir().unwrap();
    let (tools, bin) = (dir.path().join("tools"), dir.path().join("bin"));
    fs::create_dir(&tools).unwrap();
    fs::create_dir(&bin).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rocksdb");
    fs::copy(script, tools.join("rocksdb")).unwrap();
    let lock = format!("name = \"librocksdb-sys\"\nversion = \"0.18.0+{version}\"\n");
    fs::write(dir.path().join("Cargo.lock"), lock).unwrap();
    program(&bin, "uname", "echo Linux x86_64");
    program(&bin, "mvn", maven);
    program(&bin, "unzip", "echo another library");
    // One that is there is not installed.
    program(&bin, "ccache", "exit 0");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut script = Command::new(tools.join("rocksdb"));
    for name in ["DROVER_ROCKSDB", "DROVER_NO_SKIP", "ROCKSDB_LIB_DIR"] {
        script.env_remove(name);
    }
    let cache = dir.path().join("cache");
    script.env("PATH", path).env("XDG_CACHE_HOME", &cache);
    let ran = script.envs(set.iter().copied()).output().unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    let kept = fs::read_dir(cache.join("drover-rocksdb"));
    let kept = kept.is_ok_and(|mut kept| kept.next().is_some());
    (ran.status.success(), stderr, kept)
}

const KNOWN: &str = "11.8.1";
const NO_SKIP: (&str, &str) = ("DROVER_NO_SKIP", "1");
/// Maven that brings something.
const BRINGS: &str =
    r#"for one; do case $one in -DoutputDirectory=*) touch "${one#*=}/a.jar";; esac; done"#;

#[test]
fn a_fetch_that_fails_is_told_and_is_an_error_where_nothing_may_be_skipped() {
    for (version, maven, why) in [
        (KNOWN, "exit 1", "it cannot be fetched"),
        (KNOWN, BRINGS, "it has another checksum"),
        ("99.1.0", BRINGS, "no checksum is known of 99.1.0 here"),
    ] {
        let (done, stderr, kept) = run(version, maven, &[]);
        assert!(done && !kept, "{stderr}");
        let compiled = format!("rocksdb: {why}: it is compiled from its sources");
        assert!(stderr.starts_with(&compiled), "{stderr}");
        let (done, stderr, kept) = run(version, maven, &[NO_SKIP]);
        assert!(!done && !kept, "{stderr}");
        let refused = format!("rocksdb: {why}, and DROVER_NO_SKIP is set");
        assert!(stderr.starts_with(&refused), "{stderr}");
        assert!(stderr.contains("DROVER_ROCKSDB=bundled"), "{stderr}");
    }
}

#[test]
fn where_nothing_is_to_be_fetched_nothing_fails() {
    let bundled = ("DROVER_ROCKSDB", "bundled");
    let (done, stderr, kept) = run(KNOWN, "exit 1", &[NO_SKIP, bundled]);
    assert!(done && !kept, "{stderr}");
    assert!(
        stderr.contains("it is compiled from its sources"),
        "{stderr}"
    );
    let own = ("ROCKSDB_LIB_DIR", "/opt/rocksdb");
    let (done, stderr, _) = run(KNOWN, "exit 1", &[NO_SKIP, own]);
    assert_eq!((done, stderr.as_str()), (true, ""));
}
