//! How a file is described: Nomad's names, modes as Go writes them, types that no browser runs.

use std::fs::File;
use std::os::unix::fs::FileExt;

use drover_events::gojson::Time;
use drover_events::model::AllocFileInfo;
use rustix::fs::{FileType, Stat};

use crate::beneath;

/// What a directory is.
pub(super) const BYTES: &str = "application/octet-stream";

/// The description of a file.
pub(super) fn info(name: &str, stat: &Stat, content_type: String) -> AllocFileInfo {
    let seconds = stat.st_mtime;
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or_default();
    let changed = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    AllocFileInfo {
        name: name.to_owned(),
        is_dir: beneath::kind(stat) == FileType::Directory,
        size: stat.st_size,
        file_mode: file_mode(stat),
        mod_time: Time(changed.max(0)),
        content_type,
    }
}

/// A mode as Go writes it: letters for the kind of file, then nine for the permissions.
fn file_mode(stat: &Stat) -> String {
    let (kind, mode) = (beneath::kind(stat), stat.st_mode);
    let char_device = kind == FileType::CharacterDevice;
    let letters = [
        (kind == FileType::Directory, 'd'),
        (kind == FileType::Symlink, 'L'),
        (char_device || kind == FileType::BlockDevice, 'D'),
        (kind == FileType::Fifo, 'p'),
        (kind == FileType::Socket, 'S'),
        (mode & 0o4000 != 0, 'u'),
        (mode & 0o2000 != 0, 'g'),
        (char_device, 'c'),
        (mode & 0o1000 != 0, 't'),
    ];
    let mut out: String = letters
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, c)| *c)
        .collect();
    if out.is_empty() {
        out.push('-');
    }
    for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        out.push(if mode & (1 << bit) == 0 { '-' } else { letter });
    }
    out
}

/// Text or bytes, from the first half kilobyte: never a type that a browser would run.
pub(super) fn content_type(file: &File) -> &'static str {
    let mut start = [0; 512];
    let n = file.read_at(&mut start, 0).unwrap_or(0);
    let start = &start[..n];
    let cut = std::str::from_utf8(start).is_err_and(|e| e.error_len().is_some());
    if cut || start.contains(&0) {
        BYTES
    } else {
        "text/plain; charset=utf-8"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn mod_18_modes_and_types_are_written_as_nomad_does() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("f");
        fs::write(&path, "héllo").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(file_mode(&beneath::stat(&file).unwrap()), "-rw-r-----");
        assert_eq!(content_type(&file), "text/plain; charset=utf-8");
        fs::write(&path, b"\x7fELF\0\0").unwrap();
        assert_eq!(content_type(&file), BYTES);
        fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let dir = File::open(tmp.path()).unwrap();
        assert_eq!(file_mode(&beneath::stat(&dir).unwrap()), "dtrwxrwxrwx");
    }
}
