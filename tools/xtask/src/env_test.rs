//! What `tools/env` does where checkouts share what is built.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// A checkout with one source that was written long ago.
fn checkout(dir: &Path) {
    for made in ["src", "tools", "target"] {
        fs::create_dir_all(dir.join(made)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../env");
    fs::copy(script, dir.join("tools/env")).unwrap();
    fs::write(dir.join("Cargo.lock"), "").unwrap();
    for source in ["src/main.rs", "target/made.rs"] {
        let file = fs::File::create(dir.join(source)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
}

/// Sources the script there.
fn enter(dir: &Path, shared: &Path) {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-euc", ". tools/env"]).current_dir(dir);
    shell.env("CARGO_TARGET_DIR", shared);
    assert!(shell.status().unwrap().success(), "{}", dir.display());
}

/// Whether a source is as it was when it was checked out.
fn is_old(dir: &Path, source: &str) -> bool {
    let written = fs::metadata(dir.join(source)).unwrap().modified().unwrap();
    written == SystemTime::UNIX_EPOCH
}

#[test]
fn what_another_checkout_built_is_not_taken_for_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other, shared] = ["one", "other", "shared"].map(|name| dir.path().join(name));
    checkout(&one);
    enter(&one, &shared);
    checkout(&one);
    enter(&one, &shared);
    assert!(is_old(&one, "src/main.rs"), "it built there last itself");
    checkout(&other);
    enter(&other, &shared);
    assert!(!is_old(&other, "src/main.rs"), "to cargo it is as built");
    assert!(is_old(&other, "target/made.rs"), "of no interest");
    enter(&one, &shared);
    assert!(!is_old(&one, "src/main.rs"), "the other was there since");
}
