//! What a task may do with devices, by a control group: of all there are it has those that programs
//! take for granted, and those that it is given, with the rights that it is given.
//!
//! Version 1 has a controller for that. Version 2 has programs of the kernel's own machine in its
//! place ([`device_program`]). Where there is neither, a task reaches what lies in its root and no
//! other device, but what it reaches it may read and write; less cannot be held, and is refused.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, major, minor};

use super::device_program::{self, DeviceRule};
use super::mounts::{self, DEVICES};
use crate::isolation::Device;

pub(super) const CONTROLLER: &str = "devices";
/// All rights: to read, to write, and to make a node of it.
const ALL: &str = "rwm";
/// Devices besides those of files that every task has: of terminals.
const TERMINALS: [(u32, Option<u32>); 2] = [(5, Some(2)), (136, None)];

/// The rights that a device is given with.
///
/// # Errors
/// They are not valid.
pub(crate) fn rights(device: &Device) -> Result<&str, String> {
    let text = device.permissions.as_str();
    let once = |right: char| text.matches(right).count() <= 1;
    let known = text.chars().all(|right| ALL.contains(right));
    match (text, known && ALL.chars().all(once)) {
        ("", _) => Ok(ALL),
        (_, true) => Ok(text),
        (_, false) => Err(format!(
            "device {}: permissions must be of \"r\", \"w\" and \"m\", got {text:?}",
            device.host_path.display()
        )),
    }
}

/// Why a device cannot be given as it is wanted; `held`: something holds the rights.
pub(crate) fn refused(device: &Device, held: bool) -> Option<String> {
    let rights = match rights(device) {
        Ok(rights) => rights,
        Err(why) => return Some(why),
    };
    let whole = rights.contains('r') && rights.contains('w');
    (!held && !whole).then(|| {
        format!(
            "device {}: permissions {rights:?} need control groups that hold rights to devices, \
             which this host does not have; \"rw\" can be given",
            device.host_path.display()
        )
    })
}

/// Lets a group of version 1 use devices, and no others.
pub(super) fn allow(group: &Path, devices: &[Device]) -> io::Result<()> {
    let (given, usual) = allowed(devices)?;
    put(group, "devices.deny", "a")?;
    for number in usual {
        // What the agent itself may not use, it cannot pass on, and a task can do without.
        let _ = put(group, "devices.allow", &format!("{number} {ALL}"));
    }
    for (number, rights) in &given {
        put(group, "devices.allow", &format!("{number} {rights}"))?;
    }
    Ok(())
}

/// The same of a group of version 2.
pub(super) fn allow_unified(group: &Path, devices: &[Device]) -> io::Result<()> {
    let (given, usual) = allowed(devices)?;
    let usual = usual.into_iter().map(|number| (number, ALL));
    let mut rules: Vec<DeviceRule> = Vec::new();
    for (number, rights) in usual.chain(given) {
        let rule = number.rule(rights);
        // Of a device that is given twice, both count.
        let mut same = rules.iter_mut();
        match same
            .find(|one| (one.kind, one.major, one.minor) == (rule.kind, rule.major, rule.minor))
        {
            Some(one) => one.rights |= rule.rights,
            None => rules.push(rule),
        }
    }
    let explained = |error: io::Error| {
        let text = format!("rights to devices in {}: {error}", group.display());
        io::Error::new(error.kind(), text)
    };
    device_program::attach(group, &rules).map_err(explained)
}

/// Devices with the rights that they are given with, and those that every task has.
type Allowed<'a> = (Vec<(Number, &'a str)>, Vec<Number>);

fn allowed(devices: &[Device]) -> io::Result<Allowed<'_>> {
    let given = devices.iter().map(|device| {
        let rights = rights(device).map_err(io::Error::other)?;
        Ok((number(device)?, rights))
    });
    let given: Vec<(Number, &str)> = given.collect::<io::Result<_>>()?;
    let character = |major, minor| Number {
        kind: 'c',
        major,
        minor,
    };
    let usual = DEVICES.map(|(_, major, minor)| character(major, Some(minor)));
    let terminals = TERMINALS.map(|(major, minor)| character(major, minor));
    // What it is given of those counts, for rights are added up.
    let is_given = |number: &Number| given.iter().any(|(given, _)| given == number);
    let usual = usual.into_iter().chain(terminals);
    let usual = usual.filter(|number| !is_given(number)).collect();
    Ok((given, usual))
}

/// A device as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    kind: char,
    major: u32,
    /// `None` for any.
    minor: Option<u32>,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, major, minor } = self;
        match minor {
            Some(minor) => write!(f, "{kind} {major}:{minor}"),
            None => write!(f, "{kind} {major}:*"),
        }
    }
}

impl Number {
    fn rule(self, rights: &str) -> DeviceRule {
        let bit = |right: char, bit: u32| if rights.contains(right) { bit } else { 0 };
        DeviceRule {
            kind: match self.kind {
                'b' => device_program::BLOCK,
                _ => device_program::CHARACTER,
            },
            major: self.major,
            minor: self.minor,
            rights: bit('r', device_program::READ)
                | bit('w', device_program::WRITE)
                | bit('m', device_program::MAKE),
        }
    }
}

/// The device that the task is to find: of what is mounted somewhere that, and nothing that lies
/// beneath, or behind a link.
fn number(device: &Device) -> io::Result<Number> {
    let path = device.host_path.as_path();
    let explained = |error: io::Error| {
        io::Error::new(error.kind(), format!("device {}: {error}", path.display()))
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = match device.require_mount_point {
        true => mounts::find(path).map_err(explained)?,
        false => rustix::fs::open(path, flags, Mode::empty()).map_err(|e| explained(e.into()))?,
    };
    let found = rustix::fs::fstat(&found).map_err(|e| explained(e.into()))?;
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::BlockDevice => 'b',
        FileType::CharacterDevice => 'c',
        _ => return Err(explained(io::Error::other("it is none"))),
    };
    Ok(Number {
        kind,
        major: major(found.st_rdev),
        minor: Some(minor(found.st_rdev)),
    })
}

fn put(group: &Path, file: &str, value: &str) -> io::Result<()> {
    let file = group.join(file);
    let explained = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", file.display()));
    fs::write(&file, value).map_err(explained)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(permissions: &str) -> Device {
        Device {
            host_path: "/dev/zero".into(),
            task_path: "/dev/zero".into(),
            permissions: permissions.into(),
            ..Device::default()
        }
    }

    #[test]
    fn drv_06_rights_that_no_control_group_holds_are_refused() {
        let none = "device /dev/zero: permissions must be of \"r\", \"w\" and \"m\", got ";
        let not_here = |rights: &str| {
            format!(
                "device /dev/zero: permissions {rights:?} need control groups that hold rights to \
                 devices, which this host does not have; \"rw\" can be given"
            )
        };
        for (permissions, held, not_held) in [
            ("", None, None),
            ("rw", None, None),
            ("wrm", None, None),
            ("r", None, Some(not_here("r"))),
            ("wm", None, Some(not_here("wm"))),
            (
                "x",
                Some(format!("{none}\"x\"")),
                Some(format!("{none}\"x\"")),
            ),
            (
                "rr",
                Some(format!("{none}\"rr\"")),
                Some(format!("{none}\"rr\"")),
            ),
        ] {
            assert_eq!(refused(&device(permissions), true), held);
            assert_eq!(refused(&device(permissions), false), not_held);
        }
    }

    #[test]
    fn drv_06_rights_are_those_of_the_device_that_the_task_finds() {
        let mut zero = device("rw");
        assert_eq!(number(&zero).unwrap().to_string(), "c 1:5");
        // What should be mounted, and is not, is another device or none.
        zero.require_mount_point = true;
        let refused = number(&zero).unwrap_err().to_string();
        assert_eq!(
            refused,
            "device /dev/zero: nothing is mounted there any more"
        );
        let tmp = tempfile::tempdir().unwrap();
        zero.host_path = tmp.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &zero.host_path).unwrap();
        assert!(number(&zero).is_err(), "a link");
        zero.require_mount_point = false;
        assert_eq!(number(&zero).unwrap().to_string(), "c 1:5");
        zero.host_path = "/etc/passwd".into();
        let none = number(&zero).unwrap_err().to_string();
        assert_eq!(none, "device /etc/passwd: it is none");
    }
}
