//! What a task sees of files: made by its init, in a namespace of mounts of its own.
//!
//! Everything of the host's is taken first, as trees that are mounted nowhere. Then the host's root
//! goes, and what was taken is mounted where the task is to see it: by then no path leads out,
//! whatever the task has put into its directory. No mount is named by a path that is resolved
//! twice: all of it is done with descriptors, and no link is followed on the way.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree, unmount,
};

use super::files::ExecSpec;
use super::labels::{self, Labels};
use crate::isolation::{Mount, Propagation};

/// Devices that programs take for granted: name, major and minor number.
pub(super) const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
/// Links that they take for granted.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Options of a file system, with their values.
type Options = &'static [(&'static str, &'static str)];
/// File systems below `/dev`: where, kind, options.
const BELOW_DEV: [(&str, &str, Options); 3] = [
    (
        "pts",
        "devpts",
        &[("mode", "0620"), ("ptmxmode", "0666"), ("gid", "5")],
    ),
    ("shm", "tmpfs", &[("mode", "1777"), ("size", "65536k")]),
    ("mqueue", "mqueue", &[]),
];
/// What shows the host, or does something to it, and is of no use to a task.
const HIDDEN: [&str; 8] = [
    "proc/acpi",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/sched_debug",
    "proc/scsi",
    "proc/timer_list",
    "sys/firmware",
];
/// What a task may look at only.
const READ_ONLY: [&str; 5] = [
    "proc/bus",
    "proc/fs",
    "proc/irq",
    "proc/sys",
    "proc/sysrq-trigger",
];
/// Nothing is mounted at or below these, for programs trust what they find there.
const OF_THE_KERNEL: [&str; 2] = ["proc", "sys"];
/// Nothing is mounted at these.
const OURS: [&str; 4] = ["dev", "dev/pts", "dev/shm", "dev/mqueue"];

const NO_DEVICES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NODEV;
const READ: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY;
const NO_SET_USER: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID;
const NO_PROGRAMS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOEXEC;

/// Makes the namespaces of this process, but that of processes, and all mounts in them.
///
/// # Errors
/// What cannot be mounted, in words.
pub(super) fn make(spec: &ExecSpec) -> io::Result<()> {
    let mut spaces = CloneFlags::CLONE_NEWNS;
    if spec.namespaces.ipc {
        spaces |= CloneFlags::CLONE_NEWIPC;
    }
    unshare(spaces)?;
    rustix::process::umask(Mode::empty());
    let chroot = spec.chroot.is_some();
    let (optional, wanted) = wanted(spec);
    let labels = Labels::of_host();
    let mut trees = Vec::with_capacity(optional.len() + wanted.len());
    for (mount, is_optional) in optional
        .iter()
        .map(|mount| (mount, true))
        .chain(wanted.iter().map(|mount| (mount, false)))
    {
        // Refused before anything is touched.
        parts(mount, chroot).map_err(|e| of_mount(mount, &e))?;
        match take(mount, labels.as_ref()) {
            Ok(tree) => trees.push((mount, tree)),
            Err(e) if is_optional && e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(of_mount(mount, &e)),
        }
    }
    let root = if chroot {
        change_root(&spec.root)?
    } else {
        // The host's mounts are seen here as they come and go, ours not there.
        let spread = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
        mount_change("/", spread)?;
        open_root(&spec.root)?
    };
    let dev = chroot.then(|| system(&root)).transpose()?;
    for (mount, tree) in trees {
        place(mount, &tree, &root, chroot).map_err(|e| of_mount(mount, &e))?;
    }
    // No device is made there any more by a process that has the right to.
    dev.map_or(Ok(()), |dev| set_attr(&dev, READ, false, 0))
}

/// The host's files that every task sees, and the mounts of this one: each from the outside
/// inwards, so that nothing hides what was mounted before.
fn wanted(spec: &ExecSpec) -> (Vec<Mount>, Vec<Mount>) {
    let inwards = |mut mounts: Vec<Mount>| {
        mounts.sort_by_key(|mount| mount.task_path.components().count());
        mounts
    };
    let devices = spec.devices.iter().map(|device| Mount {
        host_path: device.host_path.clone(),
        task_path: device.task_path.clone(),
        require_mount_point: device.require_mount_point,
        ..Mount::default()
    });
    let own = spec.mounts.iter().cloned().chain(devices).collect();
    (
        inwards(spec.chroot.clone().unwrap_or_default()),
        inwards(own),
    )
}

fn of_mount(mount: &Mount, error: &io::Error) -> io::Error {
    let (source, target) = (mount.host_path.display(), mount.task_path.display());
    io::Error::new(
        error.kind(),
        format!("cannot mount {source} at {target}: {error}"),
    )
}

/// A tree of the host's, mounted nowhere yet; labelled as the job says where the host has labels.
pub(super) fn take(mount: &Mount, labels: Option<&Labels>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let path = mount.host_path.as_path();
    let found = mount.require_mount_point.then(|| find(path)).transpose()?;
    let spreads = match mount.propagation {
        Propagation::Private => true,
        Propagation::HostToTask => is_spread(path, &["shared:", "master:"])?,
        Propagation::Bidirectional => is_spread(path, &["shared:"])?,
    };
    if !spreads {
        return Err(io::Error::other("it is not on a shared mount"));
    }
    let tree = match &found {
        Some(found) => open_tree(found, c"", flags | OpenTreeFlags::AT_EMPTY_PATH)?,
        None => open_tree(CWD, path, flags)?,
    };
    if let Some(label) = labels.and_then(|labels| labels.named(&mount.selinux_label)) {
        labels::apply(&tree, path, label)?;
    }
    let mut attrs = MountAttrFlags::empty();
    if mount.read_only {
        attrs |= READ;
    }
    // A device is given on purpose; one that lies in a directory is not.
    if !matches!(
        kind(&tree)?,
        FileType::CharacterDevice | FileType::BlockDevice
    ) {
        attrs |= NO_DEVICES;
    }
    let spread = match mount.propagation {
        Propagation::Private => nix::libc::MS_PRIVATE,
        Propagation::HostToTask => nix::libc::MS_SLAVE,
        Propagation::Bidirectional => 0,
    };
    set_attr(&tree, attrs, true, spread)?;
    Ok(tree)
}

/// What is mounted at a path of the host's where others write to the folder: found without links.
pub(super) fn find(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = fs::statx(&found, c"", flags, StatxFlags::TYPE)?;
    match status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        true => Ok(found),
        false => Err(io::Error::other("nothing is mounted there any more")),
    }
}

/// Whether what is mounted below a path spreads to others that see its mount, in one of these ways.
fn is_spread(path: &Path, ways: &[&str]) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = fs::open(path, flags, Mode::empty())?;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", found.as_raw_fd()))?;
    let field = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let id = field.map_or("", str::trim);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let mut mount = mounts
        .lines()
        .filter(|line| line.split(' ').next() == Some(id));
    let fields = |line: &str| {
        line.split(' ')
            .take_while(|f| *f != "-")
            .any(|f| ways.iter().any(|way| f.starts_with(way)))
    };
    Ok(mount.next().is_some_and(fields))
}

fn kind(fd: impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fs::fstat(fd)?.st_mode))
}

fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::open(path, flags, Mode::empty())?)
}

/// Makes a directory the root of everything, and lets go of the one there was.
fn change_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let place = open_root(path)?;
    let tree = open_tree(&place, c"", flags | OpenTreeFlags::AT_EMPTY_PATH)?;
    set_attr(&tree, NO_DEVICES, false, nix::libc::MS_PRIVATE)?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private)?;
    attach(&tree, &place)?;
    rustix::process::fchdir(&tree)?;
    // The old root lies on top of the new one then, and is taken off.
    rustix::process::pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")?;
    open_root(Path::new("/"))
}

/// Where something is to be mounted, part by part.
fn parts(mount: &Mount, chroot: bool) -> io::Result<Vec<&OsStr>> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let mut parts = Vec::new();
    for part in mount.task_path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::CurDir | Component::RootDir => {}
            _ => return refused("the path leads out of the task's directory"),
        }
    }
    let Some(first) = parts.first() else {
        return refused("it would hide the task's directory");
    };
    let whole: std::path::PathBuf = parts.iter().collect();
    let is_system = OF_THE_KERNEL.iter().any(|name| first == name)
        || OURS.iter().any(|path| whole == Path::new(path));
    if chroot && is_system {
        return refused("the system's own files are there");
    }
    Ok(parts)
}

fn place(mount: &Mount, tree: &OwnedFd, root: &OwnedFd, chroot: bool) -> io::Result<()> {
    let is_directory = kind(tree)? == FileType::Directory;
    let parts = parts(mount, chroot)?;
    let mut at = root.try_clone()?;
    for (done, part) in parts.iter().enumerate() {
        let as_directory = is_directory || done + 1 < parts.len();
        at = step(at.as_fd(), part, as_directory)?;
    }
    attach(tree, &at)
}

/// What lies there, made if nothing does; a link is refused.
fn step(at: BorrowedFd<'_>, name: &OsStr, as_directory: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || fs::openat(at, name, flags, Mode::empty());
    let found = match open() {
        Err(Errno::NOENT) => {
            make_place(at, name, as_directory)?;
            open()?
        }
        other => other?,
    };
    let refused = |why: &str| {
        let text = format!("{} {why}", name.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    match (kind(&found)?, as_directory) {
        (FileType::Symlink, _) => refused("is a link"),
        (FileType::Directory, false) => refused("is a directory"),
        (FileType::Directory, true) => Ok(found),
        (_, true) => refused("is not a directory"),
        (_, false) => Ok(found),
    }
}

fn make_place(at: BorrowedFd<'_>, name: &OsStr, directory: bool) -> io::Result<()> {
    if directory {
        return Ok(fs::mkdirat(at, name, Mode::from_raw_mode(0o755))?);
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    fs::openat(at, name, flags, Mode::from_raw_mode(0o644))?;
    Ok(())
}

fn attach(tree: &OwnedFd, at: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, c"", at, c"", flags)?)
}

/// The file systems that every program expects; answers the one of devices.
fn system(root: &OwnedFd) -> io::Result<OwnedFd> {
    let safe = NO_SET_USER | NO_PROGRAMS;
    let dev = filesystem("tmpfs", &[("mode", "755"), ("size", "64k")], safe)?;
    let mode = Mode::from_raw_mode(0o666);
    for (name, major, minor) in DEVICES {
        let number = fs::makedev(major, minor);
        fs::mknodat(&dev, name, FileType::CharacterDevice, mode, number)?;
    }
    for (name, to) in LINKS {
        fs::symlinkat(to, &dev, name)?;
    }
    mount_at(root, "dev", &dev)?;
    for (name, fs_kind, options) in BELOW_DEV {
        let attrs = match name {
            "pts" => safe,
            _ => safe | NO_DEVICES,
        };
        match filesystem(fs_kind, options, attrs) {
            Ok(tree) => mount_at(&dev, name, &tree)?,
            // A kernel without queues.
            Err(e) if e.raw_os_error() == Some(nix::libc::ENODEV) => {}
            Err(e) => return Err(e),
        }
    }
    mount_at(root, "proc", &filesystem("proc", &[], safe | NO_DEVICES)?)?;
    let sys = filesystem("sysfs", &[], safe | NO_DEVICES | READ)?;
    mount_at(root, "sys", &sys)?;
    hide(root, &dev)?;
    Ok(dev)
}

/// Takes away what the task must not see, and the means to change what is the host's.
fn hide(root: &OwnedFd, dev: &OwnedFd) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let there = |path: &str| {
        let open = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(root, path, open, Mode::empty()) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(io::Error::from(e)),
        }
    };
    for path in HIDDEN {
        let Some(found) = there(path)? else { continue };
        let cover = match kind(&found)? {
            FileType::Directory => filesystem("tmpfs", &[("size", "0")], READ | NO_DEVICES)?,
            _ => open_tree(dev, c"null", flags)?,
        };
        attach(&cover, &found)?;
    }
    for path in READ_ONLY {
        let Some(found) = there(path)? else { continue };
        let same = open_tree(&found, c"", flags | OpenTreeFlags::AT_EMPTY_PATH)?;
        set_attr(&same, READ, false, 0)?;
        attach(&same, &found)?;
    }
    Ok(())
}

fn mount_at(root: &OwnedFd, name: &str, tree: &OwnedFd) -> io::Result<()> {
    let explained = |e: io::Error| io::Error::new(e.kind(), format!("cannot mount /{name}: {e}"));
    let at = step(root.as_fd(), OsStr::new(name), true).map_err(explained)?;
    attach(tree, &at).map_err(explained)
}

/// A new file system, mounted nowhere yet.
fn filesystem(kind: &str, options: &[(&str, &str)], attrs: MountAttrFlags) -> io::Result<OwnedFd> {
    let explained = |e: Errno| {
        let e = io::Error::from(e);
        match e.raw_os_error() {
            Some(nix::libc::ENODEV) => e,
            _ => io::Error::new(e.kind(), format!("cannot make a file system {kind:?}: {e}")),
        }
    };
    let fs = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).map_err(explained)?;
    for (key, value) in options {
        fsconfig_set_string(&fs, *key, *value).map_err(explained)?;
    }
    fsconfig_create(&fs).map_err(explained)?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attrs).map_err(explained)
}

/// As the kernel has it.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_space: u64,
}

/// Sets what holds for a mount, and for all below it where requested.
#[expect(unsafe_code, reason = "no library offers this call in safe form")]
fn set_attr(
    tree: &OwnedFd,
    set: MountAttrFlags,
    recursive: bool,
    spread: nix::libc::c_ulong,
) -> io::Result<()> {
    let attr = MountAttr {
        set: u64::from(set.bits()),
        clear: 0,
        propagation: spread,
        user_space: 0,
    };
    let mut flags = nix::libc::AT_EMPTY_PATH;
    if recursive {
        flags |= nix::libc::AT_RECURSIVE;
    }
    // SAFETY: the kernel reads an empty text and a structure of the size that it gets, both of
    // which live until the call is over.
    let done = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why this kernel cannot do what is done here; `None` where it can.
#[expect(unsafe_code, reason = "no library offers this call in safe form")]
pub(crate) fn missing() -> Option<&'static str> {
    // SAFETY: no descriptor, an empty text, no structure: the kernel refuses it, and its error
    // shows whether it knows the call.
    let done = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_mount_setattr,
            -1,
            c"".as_ptr(),
            0,
            std::ptr::null::<MountAttr>(),
            0,
        )
    };
    let is_unknown = io::Error::last_os_error().raw_os_error() == Some(nix::libc::ENOSYS);
    (done != 0 && is_unknown).then_some("needs Linux 5.12 or later")
}
