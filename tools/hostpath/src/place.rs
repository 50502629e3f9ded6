//! Bytes on the disk, and where they are to be seen: mounts, loop devices, symbolic links.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::state::Kind;

/// Makes the bytes of a volume, as a copy of others if there are some. What a plugin that died
/// left there goes.
pub(crate) fn make(path: &Path, kind: Kind, bytes: i64, from: Option<&Path>) -> io::Result<()> {
    remove(path)?;
    match (kind, from) {
        (Kind::Folder, None) => fs::create_dir(path)?,
        (Kind::Device, None) => drop(File::create(path)?),
        (_, Some(from)) => drop(run("cp", &[Path::new("-a"), from, path])?),
    }
    match kind {
        Kind::Folder => open(path),
        Kind::Device => grow(path, bytes),
    }
}

/// Gives every user access: tasks may run as any user.
fn open(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
}

/// Makes a file as long as that; it is never cut.
pub(crate) fn grow(path: &Path, bytes: i64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let bytes = u64::try_from(bytes)
        .unwrap_or(0)
        .max(file.metadata()?.len());
    file.set_len(bytes)
}

/// Removes the bytes; what is not there is removed.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether something is mounted there.
pub(crate) fn is_mounted(path: &Path) -> io::Result<bool> {
    let wanted = path.to_string_lossy();
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    // Spaces and the like are written as octal numbers there.
    let wanted = wanted
        .replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012");
    Ok(mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(wanted.as_str())))
}

/// Shows one path at another, with these options.
pub(crate) fn bind(from: &Path, to: &Path, readonly: bool, flags: &[String]) -> io::Result<()> {
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND, none)?;
    let mut wanted = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
    for flag in flags {
        wanted |= match flag.as_str() {
            "ro" => MsFlags::MS_RDONLY,
            "noexec" => MsFlags::MS_NOEXEC,
            "nosuid" => MsFlags::MS_NOSUID,
            "nodev" => MsFlags::MS_NODEV,
            "noatime" => MsFlags::MS_NOATIME,
            _ => MsFlags::empty(),
        };
    }
    if readonly {
        wanted |= MsFlags::MS_RDONLY;
    }
    let done = match wanted == MsFlags::MS_BIND | MsFlags::MS_REMOUNT {
        true => Ok(()),
        false => mount(none, to, none, wanted, none),
    };
    if done.is_err() {
        umount2(to, MntFlags::MNT_DETACH)?;
    }
    Ok(done?)
}

/// Ends what is mounted there, all of it.
pub(crate) fn unbind(path: &Path) -> io::Result<()> {
    while is_mounted(path)? {
        umount2(path, MntFlags::empty())?;
    }
    Ok(())
}

/// The device through which a file is read, if it has one.
pub(crate) fn device(file: &Path) -> io::Result<Option<PathBuf>> {
    let found = run("losetup", &[Path::new("--associated"), file])?;
    let first = found.lines().next();
    Ok(first.and_then(|line| Some(PathBuf::from(line.split_once(':')?.0))))
}

/// Gives a file a device.
pub(crate) fn attach(file: &Path) -> io::Result<PathBuf> {
    if let Some(there) = device(file)? {
        return Ok(there);
    }
    let words = [Path::new("--find"), Path::new("--show"), file];
    Ok(PathBuf::from(run("losetup", &words)?.trim()))
}

/// Takes its device from a file.
pub(crate) fn detach(file: &Path) -> io::Result<()> {
    if let Some(there) = device(file)? {
        run("losetup", &[Path::new("--detach"), &there])?;
    }
    Ok(())
}

/// Notifies a device how long its file has become.
pub(crate) fn refresh(file: &Path) -> io::Result<()> {
    if let Some(there) = device(file)? {
        run("losetup", &[Path::new("--set-capacity"), &there])?;
    }
    Ok(())
}

fn run(program: &str, words: &[&Path]) -> io::Result<String> {
    let output = Command::new(program).args(words).output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{program}: {}", stderr.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
