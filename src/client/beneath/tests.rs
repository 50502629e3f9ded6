use std::io::Read as _;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;

fn dir() -> (tempfile::TempDir, OwnedFd) {
    let tmp = tempfile::tempdir().unwrap();
    let fd = open_dir(tmp.path()).unwrap();
    (tmp, fd)
}

fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

#[test]
fn only_regular_files_are_opened_and_nothing_holds_us_up() {
    let (tmp, fd) = dir();
    std::fs::write(tmp.path().join("file"), "text").unwrap();
    fifo(&tmp.path().join("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(tmp.path().join("socket")).unwrap();
    symlink("file", tmp.path().join("link")).unwrap();
    let opened = |name: &str| read(find(&fd, Path::new(name)).unwrap());
    let mut text = String::new();
    opened("link").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    assert!(matches!(opened("pipe"), Err(FileError::Special)));
    assert!(matches!(opened("socket"), Err(FileError::Special)));
    assert!(matches!(opened(""), Err(FileError::Directory)));
    for name in ["pipe", "socket", "link", "none"] {
        assert!(regular(&fd, name).unwrap().is_none(), "{name}");
    }
    assert!(regular(&fd, "file").unwrap().is_some());
}

#[test]
fn a_device_is_not_opened() {
    let root = open_dir(Path::new("/")).unwrap();
    for device in ["dev/null", "dev/tty", "dev/full"] {
        let Ok(found) = find(&root, Path::new(device)) else {
            continue;
        };
        assert!(matches!(read(found), Err(FileError::Special)), "{device}");
    }
}

#[test]
fn nothing_but_a_file_of_its_own_is_written() {
    let (tmp, fd) = dir();
    let victim = tmp.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    symlink(&victim, tmp.path().join("link")).unwrap();
    std::fs::hard_link(&victim, tmp.path().join("second")).unwrap();
    fifo(&tmp.path().join("pipe"));
    // With a reader there, opening the pipe for writing would succeed.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let _reader = fs::open(tmp.path().join("pipe"), flags, Mode::empty()).unwrap();
    for name in ["link", "second", "pipe", "..", "a/b", ""] {
        for append in [true, false] {
            assert!(write(&fd, name, append, 0o644, None).is_err(), "{name}");
        }
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    let file = write(&fd, "new", true, 0o640, None).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o640);
}

#[test]
fn a_name_that_is_exchanged_all_the_time_never_leads_out() {
    let (tmp, fd) = dir();
    std::fs::create_dir(tmp.path().join("real")).unwrap();
    std::fs::write(tmp.path().join("real/file"), "inside").unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "outside").unwrap();
    symlink(outside.path(), tmp.path().join("out")).unwrap();
    /// Ends the exchange, also where the test fails.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        scope.spawn(|| {
            let (a, b, c) = (
                tmp.path().join("real"),
                tmp.path().join("out"),
                tmp.path().join("x"),
            );
            while !over.load(Ordering::Relaxed) {
                std::fs::rename(&a, &c).unwrap();
                std::fs::rename(&b, &a).unwrap();
                std::fs::rename(&c, &b).unwrap();
            }
        });
        // The thread that exchanges the names may stand still for long: so many tries are not
        // enough, each of them may find the way closed, or open.
        let deadline = Instant::now() + drover_testkit::LONG;
        let (mut found, mut closed) = (0, 0);
        while found < 500 || closed < 500 {
            assert!(Instant::now() < deadline, "open {found}, closed {closed}");
            match find(&fd, Path::new("real/file")) {
                Ok(file) => {
                    let mut text = String::new();
                    let opened = read(file).map(|mut file| file.read_to_string(&mut text));
                    assert!(opened.is_err() || text == "inside", "{text}");
                    found += 1;
                }
                Err(_) => closed += 1,
            }
        }
    });
}

#[test]
fn a_tree_that_is_deeper_than_a_stack_goes() {
    let (tmp, fd) = dir();
    let mut at = make_dir(&fd, "top", 0o700, None).unwrap();
    for _ in 0..20_000 {
        at = make_dir(&at, "d", 0o700, None).unwrap();
    }
    drop(at);
    std::fs::write(tmp.path().join("top/.deep-1"), "in the way").unwrap();
    symlink("/", tmp.path().join("top/link")).unwrap();
    remove_tree(&fd, "top").unwrap();
    assert_eq!(tmp.path().read_dir().unwrap().count(), 0);
    assert!(Path::new("/etc").is_dir());
    remove_tree(&fd, "top").unwrap();
}

#[test]
fn what_its_owner_locked_goes_too_and_a_link_only_as_a_link() {
    let (tmp, fd) = dir();
    let locked = tmp.path().join("top/locked");
    std::fs::create_dir_all(locked.join("below")).unwrap();
    std::fs::write(locked.join("below/file"), "").unwrap();
    for path in [locked.join("below"), locked] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o0)).unwrap();
    }
    let kept = tempfile::tempdir().unwrap();
    symlink(kept.path(), tmp.path().join("link")).unwrap();
    remove_tree(&fd, "top").unwrap();
    remove_tree(&fd, "link").unwrap();
    assert_eq!(tmp.path().read_dir().unwrap().count(), 0);
    assert!(kept.path().is_dir());
}

#[test]
fn a_list_is_bounded() {
    let (tmp, fd) = dir();
    for n in 0..5 {
        std::fs::write(tmp.path().join(n.to_string()), "").unwrap();
    }
    symlink("0", tmp.path().join("link")).unwrap();
    let found = || find(&fd, Path::new("/")).unwrap();
    let (all, more) = entries(found(), 6).unwrap();
    assert_eq!((all.len(), more), (6, false));
    let link = all.iter().find(|(name, _)| name == "link").unwrap();
    assert_eq!(kind(&link.1), FileType::Symlink);
    let (some, more) = entries(found(), 5).unwrap();
    assert_eq!((some.len(), more), (5, true));
}

#[test]
fn what_is_mounted_in_a_tree_is_taken_off_and_stays_whole() {
    if !rustix::process::geteuid().is_root() {
        return drover_testkit::skip("mounts", "not root");
    }
    let (tmp, fd) = dir();
    let kept = tempfile::tempdir().unwrap();
    std::fs::write(kept.path().join("file"), "kept").unwrap();
    let at = tmp.path().join("top/below/mount");
    std::fs::create_dir_all(&at).unwrap();
    for _ in 0..2 {
        if let Err(e) = rustix::mount::mount_bind(kept.path(), &at) {
            return drover_testkit::skip("mounts", &e.to_string());
        }
    }
    assert!(at.join("file").is_file());
    remove_tree(&fd, "top").unwrap();
    assert_eq!(tmp.path().read_dir().unwrap().count(), 0);
    assert_eq!(
        std::fs::read_to_string(kept.path().join("file")).unwrap(),
        "kept"
    );
}
