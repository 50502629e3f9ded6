//! The disk that allocations live on.

use std::fs;
use std::path::Path;

use super::Facts;
use crate::config::ClientSettings;

/// Figures of the file system a path lies on, bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disk {
    pub device: String,
    /// Where it is mounted.
    pub mountpoint: String,
    /// All.
    pub size: u64,
    /// What everybody may still use.
    pub available: u64,
    /// What is used.
    pub used: u64,
    /// Percent of all inodes.
    pub inodes_used_percent: f64,
}

/// Looks at the file system of `path`, or of its nearest ancestor that exists.
pub fn disk(path: &Path) -> Disk {
    let path = path
        .ancestors()
        .find(|p| p.exists())
        .unwrap_or(Path::new("/"));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let (device, mountpoint) = mount_of(&mounts, path).unwrap_or_default();
    let Ok(stat) = rustix::fs::statvfs(path) else {
        return Disk {
            device,
            mountpoint,
            ..Disk::default()
        };
    };
    let percent = |part: u64, all: u64| {
        if all == 0 {
            0.0
        } else {
            part as f64 / all as f64 * 100.0
        }
    };
    Disk {
        device,
        mountpoint,
        size: stat.f_blocks * stat.f_frsize,
        available: stat.f_bavail * stat.f_frsize,
        used: (stat.f_blocks - stat.f_bfree) * stat.f_frsize,
        inodes_used_percent: percent(stat.f_files - stat.f_ffree, stat.f_files),
    }
}

fn mount_of(mounts: &str, path: &Path) -> Option<(String, String)> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(_, point)| path.starts_with(point))
        .max_by_key(|(_, point)| point.len())
        .map(|(device, point)| (device.to_owned(), point.to_owned()))
}

pub(super) fn probe(facts: &mut Facts, settings: &ClientSettings) {
    let disk = disk(&settings.alloc_dir);
    let mb = |configured: u64, bytes: u64| {
        if configured > 0 {
            configured
        } else {
            bytes >> 20
        }
    };
    facts.set("unique.storage.volume", &disk.device);
    let total = mb(settings.client.disk_total_mb, disk.size);
    facts.set("unique.storage.bytestotal", (total << 20).to_string());
    facts.resources.disk.disk_mb = i64::try_from(total).unwrap_or(i64::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_09_the_nearest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\n/dev/b /var ext4 rw 0 0\n/dev/c /variety x rw 0 0\n";
        let at = |p: &str| mount_of(mounts, Path::new(p)).unwrap().0;
        assert_eq!(at("/var/lib/x"), "/dev/b");
        assert_eq!(at("/home"), "/dev/a");
    }

    #[test]
    fn no_more_is_used_than_there_is() {
        let tmp = tempfile::tempdir().unwrap();
        let disk = disk(tmp.path());
        assert!(disk.size > 0 && disk.available > 0);
        assert!(disk.used + disk.available <= disk.size);
        assert!((0.0..=100.0).contains(&disk.inodes_used_percent));
    }
}
