//! Labels of SELinux on what is mounted for a task.
//!
//! What a task is given lies on the host already, and the kernel takes a label for a mount only
//! where it mounts a file system for the first time. So the files are labelled, through the tree
//! that is about to be mounted and before it is: as engines of containers do it for the same words
//! of a job, `z` for files that several may use and `Z` for files of one alone. Tasks run with the
//! label of the agent; so the one of `Z` has the agent's level.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, XattrFlags, fstat, getxattr, openat, setxattr};
use rustix::io::Errno;

/// Where the kernel shows SELinux, and the number of that kind of file system.
const SHOWN: &str = "/sys/fs/selinux";
const KIND: u64 = 0xf97c_ff8c;
/// Where its policy is configured.
const CONFIGURED: &str = "/etc/selinux";
/// What label a process has.
const OWN: &str = "/proc/thread-self/attr/current";
/// What files of containers are called where the policy does not say.
const USUAL: &str = "system_u:object_r:container_file_t:s0";
/// The attribute in which a file has its label.
const ATTRIBUTE: &str = "security.selinux";
/// The longest label, bytes.
const LONGEST: usize = 4096;
/// How many levels of a tree are open at a time: one can be deeper than a process may have
/// descriptors.
const OPEN: usize = 64;
/// What lies deeper has the label with which it was made: no path that a program names is so long.
const DEEPEST: usize = 4096;
/// Finding a file, whatever it is.
const FOUND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Opening a folder to see what is in it.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Directories of the system, whose labels are its own: a task that is given one takes it as it is.
const OF_THE_SYSTEM: [&str; 20] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt",
    "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/usr", "/var",
];

/// Whether this host labels files.
pub(crate) fn is_on() -> bool {
    let found = rustix::fs::statfs(SHOWN);
    found.is_ok_and(|found| u64::try_from(found.f_type) == Ok(KIND))
}

/// How files of tasks are labelled on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels {
    /// Files that several may use.
    shared: String,
    /// Files of one alone.
    own: String,
}

impl Labels {
    /// Those of this host; none where it labels nothing.
    pub(super) fn of_host() -> Option<Self> {
        is_on().then(|| {
            let own = fs::read_to_string(OWN).unwrap_or_default();
            let shared = configured(Path::new(CONFIGURED));
            Self::of(shared.as_deref().unwrap_or(USUAL), &own)
        })
    }

    /// From the label that files of containers have, and the label of the process that starts
    /// tasks.
    pub(super) fn of(files: &str, process: &str) -> Self {
        let level = |label: &str| {
            let level = label.trim_end_matches(['\0', '\n']).splitn(4, ':').nth(3);
            // Files have the lower end of a range.
            level.map(|level| level.split('-').next().unwrap_or(level).to_owned())
        };
        let own = match (level(files), level(process)) {
            (Some(of_files), Some(of_process)) => {
                let kind = files.strip_suffix(&*of_files).unwrap_or(files);
                format!("{kind}{of_process}")
            }
            // The policy knows no levels.
            _ => files.to_owned(),
        };
        let shared = files.to_owned();
        Self { shared, own }
    }

    /// The label for the word of a job; `None` where the job requests none.
    pub(super) fn named(&self, word: &str) -> Option<&str> {
        match word {
            "z" => Some(&self.shared),
            "Z" => Some(&self.own),
            _ => None,
        }
    }
}

/// What the policy of a host calls the files of containers.
fn configured(folder: &Path) -> Option<String> {
    let value = |text: &str, key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        let found = lines.find(|(name, _)| name.trim() == key)?.1;
        Some(found.trim().trim_matches('"').to_owned())
    };
    let config = fs::read_to_string(folder.join("config")).ok()?;
    let policy = folder.join(value(&config, "SELINUXTYPE")?);
    let contexts = fs::read_to_string(policy.join("contexts/lxc_contexts")).ok()?;
    value(&contexts, "file").filter(|label| label.matches(':').count() >= 2)
}

/// Labels a tree, which lies at this path of the host: it and all that is in it, behind no link.
/// File systems that know no labels are left as they are.
///
/// # Errors
/// It is one of the system's own, or cannot be labelled.
pub(super) fn apply(tree: &OwnedFd, path: &Path, label: &str) -> io::Result<()> {
    if OF_THE_SYSTEM.iter().any(|own| path == Path::new(own)) {
        return Err(io::Error::other("its SELinux labels are the system's own"));
    }
    let explained = |e: Errno| {
        let e = io::Error::from(e);
        io::Error::new(e.kind(), format!("cannot label it {label:?}: {e}"))
    };
    whole(tree, label).map_err(explained)
}

fn whole(tree: &OwnedFd, label: &str) -> rustix::io::Result<()> {
    one(tree.as_fd(), label)?;
    let mut rest: Vec<Vec<CString>> = Vec::new();
    if is_folder(tree.as_fd())? {
        rest.push(Vec::new());
    }
    while let Some(names) = rest.pop() {
        match reached(tree, &names) {
            // It is gone meanwhile, or something else is there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            folder => rest.extend(below(folder?, names, label)?),
        }
    }
    Ok(())
}

/// Labels what is in a folder; answers those, by the names that lead there, with folders that lie
/// too deep to be reached from here.
fn below(
    folder: Dir,
    mut names: Vec<CString>,
    label: &str,
) -> rustix::io::Result<Vec<Vec<CString>>> {
    let mut rest: Vec<Vec<CString>> = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.last_mut() {
        let Some(entry) = folder.read() else {
            folders.pop();
            names.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let found = match openat(folder.fd()?, name, FOUND, Mode::empty()) {
            // It is gone meanwhile.
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        one(found.as_fd(), label)?;
        if !is_folder(found.as_fd())? {
            continue;
        }
        if folders.len() < OPEN {
            folders.push(opened(found.as_fd())?);
            names.push(name.to_owned());
        } else if names.len() < DEEPEST && rest.last() != Some(&names) {
            rest.push(names.clone());
        }
    }
    Ok(rest)
}

/// The folder to which these names lead from a tree, one after the other.
fn reached(tree: &OwnedFd, names: &[CString]) -> rustix::io::Result<Dir> {
    let mut at: Option<OwnedFd> = None;
    for name in names {
        let from = at.as_ref().unwrap_or(tree);
        at = Some(openat(from, name, FOUND, Mode::empty())?);
    }
    opened(at.as_ref().unwrap_or(tree).as_fd())
}

fn is_folder(found: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(found)?.st_mode) == FileType::Directory)
}

/// What is in a folder.
fn opened(found: BorrowedFd<'_>) -> rustix::io::Result<Dir> {
    let folder = openat(found, c".", FOLDER, Mode::empty())?;
    Dir::new(folder)
}

/// Labels one file, of whatever kind, unless it has the label.
fn one(found: BorrowedFd<'_>, label: &str) -> rustix::io::Result<()> {
    // The file itself, be it a link: the kernel goes from here to what is open and no further.
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let mut had = vec![0; LONGEST];
    if let Ok(length) = getxattr(&*path, ATTRIBUTE, &mut had[..])
        && had[..length].strip_suffix(b"\0").unwrap_or(&had[..length]) == label.as_bytes()
    {
        return Ok(());
    }
    let value = [label.as_bytes(), b"\0"].concat();
    match setxattr(&*path, ATTRIBUTE, &value, XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
#[path = "labels_test.rs"]
mod tests;
