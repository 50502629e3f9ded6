//! What tasks put into their directories, and what comes of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn made(tmp: &Path, id: &str) -> AllocDir {
    let dir = AllocDir::new(tmp, id);
    dir.build().unwrap();
    dir.build_task("web", "").unwrap();
    dir
}

#[test]
fn mod_01_the_tree_has_the_right_modes_and_goes_as_a_whole() {
    let tmp = tempfile::tempdir().unwrap();
    let alloc_dir = tmp.path().join("new/alloc");
    let dir = AllocDir::new(&alloc_dir, "a1");
    for _ in 0..2 {
        dir.build().unwrap();
        dir.build_task("web", "").unwrap();
    }
    assert_eq!(mode(&alloc_dir), 0o711);
    for (path, expected) in [
        ("", 0o711),
        ("alloc", 0o1777),
        ("alloc/data", 0o777),
        ("alloc/logs", 0o755),
        ("alloc/tmp", 0o1777),
        ("web", 0o711),
        ("web/local", 0o755),
        ("web/secrets", 0o700),
        ("web/private", 0o700),
        ("web/tmp", 0o1777),
    ] {
        assert_eq!(mode(&dir.root().join(path)), expected, "{path}");
    }
    dir.destroy().unwrap();
    dir.destroy().unwrap();
    assert!(!dir.root().exists());
}

#[test]
fn mod_01_a_tasks_directories_are_its_users() {
    if !rustix::process::geteuid().is_root() {
        return drover_testkit::skip("directories of another user", "not root");
    }
    let tmp = tempfile::tempdir().unwrap();
    let dir = AllocDir::new(tmp.path(), "a1");
    dir.build().unwrap();
    dir.build_task("web", "nobody").unwrap();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let owner = |path: &str| fs::metadata(dir.root().join(path)).unwrap().uid();
    for path in ["web", "web/local", "web/secrets"] {
        assert_eq!(owner(path), nobody.uid.as_raw(), "{path}");
    }
    for path in ["", "alloc", "alloc/logs", "web/private"] {
        assert_eq!(owner(path), 0, "{path}");
    }
    assert!(dir.build_task("db", "no-such-user").is_err());
    assert!(dir.build_task("alloc", "").is_err());
    assert!(dir.build_task("../b2", "").is_err());
}

#[test]
fn mod_01_tasks_share_one_directory_and_have_their_own() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = made(tmp.path(), "a1");
    dir.build_task("db", "").unwrap();
    let (web, db) = (dir.paths("web"), dir.paths("db"));
    fs::write(web.alloc.join("data/shared"), "rows").unwrap();
    assert_eq!(fs::read(db.alloc.join("data/shared")).unwrap(), b"rows");
    assert_eq!((&web.alloc, &db.alloc), (&dir.shared(), &dir.shared()));
    fs::write(web.local.join("own"), "mine").unwrap();
    for of_db in [db.local, db.secrets, db.root] {
        assert!(of_db.is_dir() && !of_db.join("own").exists());
    }
}

#[test]
fn mod_01_a_successor_takes_data_over() {
    let tmp = tempfile::tempdir().unwrap();
    let (old, new) = (made(tmp.path(), "old"), AllocDir::new(tmp.path(), "new"));
    new.build().unwrap();
    fs::write(old.root().join("alloc/data/db"), "rows").unwrap();
    fs::write(old.root().join("web/local/cache"), "warm").unwrap();
    new.take_over(&old, &["web".into(), "gone".into()]).unwrap();
    let read = |path: &str| fs::read_to_string(new.root().join(path)).unwrap();
    assert_eq!(read("alloc/data/db"), "rows");
    assert_eq!(read("web/local/cache"), "warm");
    for path in ["alloc/data/db", "web/local/cache"] {
        assert!(
            !old.root().join(path).exists(),
            "{path} is moved, not copied"
        );
    }
    new.build_task("web", "").unwrap();
    assert_eq!(mode(&new.root().join("web/local")), 0o755);
}

#[test]
fn a_link_is_not_taken_over() {
    let tmp = tempfile::tempdir().unwrap();
    let outside = tmp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for path in ["alloc/data", "web/local", "alloc", "web"] {
        let (old, new) = (made(tmp.path(), "old"), AllocDir::new(tmp.path(), "new"));
        new.build().unwrap();
        fs::remove_dir_all(old.root().join(path)).unwrap();
        symlink(&outside, old.root().join(path)).unwrap();
        assert!(new.take_over(&old, &["web".into()]).is_err(), "{path}");
        assert!(!new.root().join("web/local").is_symlink());
        assert!(!new.root().join("alloc/data").is_symlink());
        old.destroy().unwrap();
        new.destroy().unwrap();
    }
    assert!(outside.is_dir());
}

#[test]
fn a_directory_whose_name_is_taken_by_a_link_is_not_made() {
    let tmp = tempfile::tempdir().unwrap();
    let outside = tmp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).unwrap();
    for path in ["alloc/logs", "web/secrets", "web"] {
        let dir = made(tmp.path(), "a1");
        fs::remove_dir_all(dir.root().join(path)).unwrap();
        symlink(&outside, dir.root().join(path)).unwrap();
        let built = dir.build().and_then(|()| dir.build_task("web", ""));
        assert!(built.is_err(), "{path}");
        assert_eq!(
            (mode(&outside), outside.read_dir().unwrap().count()),
            (0o700, 0)
        );
        dir.destroy().unwrap();
    }
}

#[test]
fn mod_23_no_path_leads_out() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = made(tmp.path(), "a1");
    made(tmp.path(), "a2");
    let data = dir.root().join("alloc/data");
    symlink("/etc", data.join("link")).unwrap();
    symlink("../../../a2", data.join("up")).unwrap();
    symlink("/proc/self/root", data.join("magic")).unwrap();
    symlink("loop", data.join("loop")).unwrap();
    symlink("../logs", data.join("inside")).unwrap();
    for path in [
        "../a2",
        "alloc/../../a2",
        "alloc/data/link/passwd",
        "alloc/data/up",
        "alloc/data/magic/etc",
    ] {
        assert!(matches!(dir.find(path), Err(FileError::Escapes)), "{path}");
    }
    assert!(matches!(dir.find("nothing"), Err(FileError::Io(_))));
    assert!(matches!(dir.find("alloc/data/loop"), Err(FileError::Io(_))));
    let at = |path: &str| beneath::real_path(dir.find(path).unwrap()).unwrap();
    for path in ["/alloc/./logs", "alloc/data/inside", "web/../alloc/logs"] {
        assert!(at(path).ends_with("a1/alloc/logs"), "{path}");
    }
    assert!(at("/").ends_with("a1") && at("").ends_with("a1"));
}

#[test]
fn secrets_are_not_found_by_any_way() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = made(tmp.path(), "a1");
    fs::write(dir.root().join("web/secrets/token"), "s").unwrap();
    symlink("../secrets", dir.root().join("web/local/way")).unwrap();
    symlink("secrets/token", dir.root().join("web/short")).unwrap();
    for path in [
        "web/secrets",
        "/web/secrets/token",
        "web/private",
        "web/local/way/token",
        "web/local/../secrets/token",
        "web/short",
    ] {
        assert!(matches!(dir.find(path), Err(FileError::Secret)), "{path}");
    }
    // The rest of a task's directory is no secret.
    fs::write(dir.root().join("web/local/plain"), "p").unwrap();
    assert!(dir.find("web/local/plain").is_ok());
    // What the tasks share is theirs, whatever its name.
    fs::create_dir(dir.root().join("alloc/secrets")).unwrap();
    assert!(dir.find("alloc/secrets").is_ok());
}

#[test]
fn a_payload_is_not_written_through_a_link() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = made(tmp.path(), "a1");
    let victim = tmp.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let local = dir.root().join("web/local");
    symlink(&victim, local.join("payload")).unwrap();
    symlink(tmp.path(), local.join("dir")).unwrap();
    fs::hard_link(&victim, local.join("second")).unwrap();
    let write = |path: &str| dir.write_local("web", "", Path::new(path), b"data");
    for path in ["payload", "dir/victim", "second", "../x", "/etc/x", ""] {
        assert!(write(path).is_err(), "{path}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    write("a/./b/file").unwrap();
    assert_eq!(fs::read_to_string(local.join("a/b/file")).unwrap(), "data");
}
