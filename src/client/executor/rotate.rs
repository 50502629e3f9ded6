//! Log files that rotate by size: `<name>.0`, `<name>.1`, …; the oldest go.
//!
//! They lie where a task may write if it runs as the agent's user, so what has a log file's name is
//! only taken for one if it is a regular file, and nothing is opened that could hold us up.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType};

use crate::beneath;

/// Names with greater numbers are files of others.
const GREATEST: u64 = 1_000_000_000_000;
/// A file with a greater number is not continued: a process that may write there could leave us no
/// numbers. We never come so far ourselves.
const LAST_TAKEN: u64 = 1_000_000_000;
/// Files of one name that are looked at; a task keeps fewer.
const ENTRIES: usize = 100_000;
/// How often something else than a file may have the next file's name.
const TRIES: u64 = 100;

/// Writes one stream of a task's output.
#[derive(Debug)]
pub struct Rotator {
    dir: OwnedFd,
    name: String,
    max_files: u64,
    max_bytes: u64,
    index: u64,
    /// The first file that may still be there.
    oldest: u64,
    size: u64,
    file: File,
}

impl Rotator {
    /// Continues the highest-numbered file, or begins with number 0.
    pub fn open(dir: &Path, name: &str, max_files: u64, max_bytes: u64) -> io::Result<Self> {
        let dir = log_dir(dir)?;
        let there = log_indexes(&dir, name)?;
        let last = there.iter().rfind(|index| **index <= LAST_TAKEN);
        let (file, index, size) = open_file(&dir, name, last.copied().unwrap_or(0))?;
        let max_files = max_files.max(1);
        let log = Self {
            dir,
            name: name.to_owned(),
            max_files,
            max_bytes: max_bytes.max(1),
            index,
            oldest: (index + 1).saturating_sub(max_files),
            size,
            file,
        };
        // A file that is numbered beyond ours is not ours, and would be shown as the newest.
        for odd in there {
            if odd < log.oldest || odd > index {
                log.remove(odd);
            }
        }
        Ok(log)
    }

    /// Appends; a line is kept in one file where that is possible.
    pub fn write(&mut self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let space =
                usize::try_from(self.max_bytes.saturating_sub(self.size)).unwrap_or(usize::MAX);
            if space == 0 {
                self.rotate()?;
                continue;
            }
            let take = if buf.len() <= space {
                buf.len()
            } else {
                buf[..space]
                    .iter()
                    .rposition(|b| *b == b'\n')
                    .map_or(space, |at| at + 1)
            };
            self.file.write_all(&buf[..take])?;
            self.size += take as u64;
            buf = &buf[take..];
            if !buf.is_empty() {
                self.rotate()?;
            }
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        (self.file, self.index, self.size) = open_file(&self.dir, &self.name, self.index + 1)?;
        let kept = (self.index + 1).saturating_sub(self.max_files);
        for old in self.oldest..kept {
            self.remove(old);
        }
        self.oldest = kept.max(self.oldest);
        Ok(())
    }

    /// Removes a file of ours. That it cannot be done (it is gone already, something else has its
    /// name) loses no output.
    fn remove(&self, index: u64) {
        let name = format!("{}.{index}", self.name);
        if let Err(e) = rustix::fs::unlinkat(&self.dir, &name, AtFlags::empty()) {
            tracing::debug!("{name} stays: {e}");
        }
    }
}

/// The directory of the log files: the agent's own, made if it is not there.
fn log_dir(path: &Path) -> io::Result<OwnedFd> {
    let dir = match (beneath::open_dir(path), path.parent(), path.file_name()) {
        (Err(e), Some(above), Some(name)) if e.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(above)?;
            beneath::make_dir(
                beneath::open_dir(above)?,
                &name.to_string_lossy(),
                0o755,
                None,
            )?
        }
        (found, _, _) => found?,
    };
    if beneath::stat(&dir)?.st_uid != rustix::process::geteuid().as_raw() {
        let text = format!("the log directory {} is another user's", path.display());
        return Err(io::Error::other(text));
    }
    Ok(dir)
}

/// Opens file `index`, or the next whose name nothing else has.
fn open_file(dir: &OwnedFd, name: &str, index: u64) -> io::Result<(File, u64, u64)> {
    let mut failed = None;
    for index in index..index.saturating_add(TRIES) {
        match beneath::write(dir, &format!("{name}.{index}"), true, 0o644, None) {
            Ok(file) => {
                let size = file.metadata()?.len();
                return Ok((file, index, size));
            }
            Err(e) if e.kind() == io::ErrorKind::StorageFull => return Err(e),
            Err(e) => failed = Some(e),
        }
    }
    Err(failed.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

/// The numbers of the files `<name>.N` in `dir`, ascending; only regular files count.
pub fn log_indexes(dir: impl AsFd, name: &str) -> io::Result<Vec<u64>> {
    let mine = |file: &[u8]| {
        let rest = file.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"."))
    };
    let (all, _) = beneath::entries_where(dir, ENTRIES, mine)?;
    let number = |(file, stat): &beneath::DirEntry| {
        let text = file.strip_prefix(name)?.strip_prefix('.')?;
        let number: u64 = text.parse().ok()?;
        let ours = number < GREATEST && text == number.to_string();
        (ours && beneath::kind(stat) == FileType::RegularFile).then_some(number)
    };
    let mut out: Vec<u64> = all.iter().filter_map(number).collect();
    out.sort_unstable();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(dir: &Path, n: u64) -> String {
        fs::read_to_string(dir.join(format!("t.stdout.{n}"))).unwrap()
    }

    fn indexes(dir: &Path) -> Vec<u64> {
        log_indexes(beneath::open_dir(dir).unwrap(), "t.stdout").unwrap()
    }

    /// Files of other tasks lie in the same directory, and others may have been put there.
    #[test]
    fn a_log_goes_on_with_its_newest_file_however_many_others_lie_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..5_000 {
            fs::write(dir.path().join(format!("other.stdout.{number}")), "").unwrap();
        }
        for number in 0..20 {
            fs::write(dir.path().join(format!("t.stdout.{number}")), "old").unwrap();
        }
        for number in 5_000..6_000 {
            fs::write(dir.path().join(format!("other.stdout.{number}")), "").unwrap();
        }
        assert_eq!(indexes(dir.path()), (0..20).collect::<Vec<_>>());
        let mut log = Rotator::open(dir.path(), "t.stdout", 20, 10).unwrap();
        log.write(b"new").unwrap();
        assert_eq!(read(dir.path(), 19), "oldnew");
        assert_eq!(
            indexes(dir.path()).len(),
            20,
            "none of ours was taken for another's"
        );
    }

    #[test]
    fn mod_12_files_rotate_by_size_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotator::open(dir.path(), "t.stdout", 2, 10).unwrap();
        log.write(b"12345\n").unwrap();
        log.write(b"abcdefgh\n").unwrap();
        assert_eq!(indexes(dir.path()), vec![0, 1]);
        assert_eq!(read(dir.path(), 0), "12345\nabcd");
        log.write(b"0123456789012345678901234").unwrap();
        assert_eq!(indexes(dir.path()), vec![2, 3]);
        let all: String = [2, 3].iter().map(|n| read(dir.path(), *n)).collect();
        assert!("efgh\n0123456789012345678901234".ends_with(&all), "{all}");
    }

    #[test]
    fn mod_12_a_reopened_log_goes_on_in_the_last_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotator::open(dir.path(), "t.stdout", 3, 8).unwrap();
        log.write(b"one\ntwo\nthree\n").unwrap();
        drop(log);
        let mut log = Rotator::open(dir.path(), "t.stdout", 3, 8).unwrap();
        log.write(b"4\n").unwrap();
        assert_eq!(read(dir.path(), 0), "one\ntwo\n");
        assert_eq!(read(dir.path(), 1), "three\n4\n");
    }

    #[test]
    fn mod_12_links_pipes_and_directories_with_a_log_files_name_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        let at = |n: &str| dir.path().join(format!("t.stdout.{n}"));
        symlink(&victim, at("0")).unwrap();
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&at("1"), mode).unwrap();
        fs::create_dir(at("2")).unwrap();
        fs::hard_link(&victim, at("4")).unwrap();
        for odd in [
            "99999999999999999999",
            "18446744073709551615",
            "05",
            "+6",
            "x",
        ] {
            fs::write(at(odd), "").unwrap();
        }
        let mut log = Rotator::open(dir.path(), "t.stdout", 9, 4).unwrap();
        log.write(b"abcdefgh").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(
            (read(dir.path(), 5), read(dir.path(), 6)),
            ("abcd".into(), "efgh".into())
        );
        // The linked file counts as one for readers: it is regular, and only read.
        assert_eq!(indexes(dir.path()), [4, 5, 6]);
    }

    #[test]
    fn mod_12_no_name_that_a_task_makes_switches_the_bounds_off() {
        let dir = tempfile::tempdir().unwrap();
        let at = |n: u64| dir.path().join(format!("t.stdout.{n}"));
        for odd in [GREATEST - 1, LAST_TAKEN + 1, LAST_TAKEN - 1] {
            fs::write(at(odd), "the task's").unwrap();
        }
        let mut log = Rotator::open(dir.path(), "t.stdout", 2, 10).unwrap();
        for number in 0..50 {
            log.write(format!("line {number:04}\n").as_bytes()).unwrap();
        }
        let kept = indexes(dir.path());
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert_eq!(read(dir.path(), kept[1]), "line 0049\n");
        // One that is removed behind our back is no fault of the next chunk.
        fs::remove_file(at(kept[0])).unwrap();
        fs::remove_file(at(kept[1])).unwrap();
        log.write(b"one more\nand two\n").unwrap();
        assert_eq!(read(dir.path(), kept[1] + 2), "and two\n");
        drop(log);
        let mut log = Rotator::open(dir.path(), "t.stdout", 2, 10).unwrap();
        log.write(b"after that\n").unwrap();
        assert!(indexes(dir.path()).len() <= 2);
    }

    #[test]
    fn mod_12_a_link_in_place_of_the_log_directory_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), tmp.path().join("logs")).unwrap();
        assert!(Rotator::open(&tmp.path().join("logs"), "t.stdout", 3, 8).is_err());
        assert_eq!(outside.path().read_dir().unwrap().count(), 0);
        let mut log = Rotator::open(&tmp.path().join("a/logs"), "t.stdout", 3, 8).unwrap();
        log.write(b"x").unwrap();
        assert_eq!(read(&tmp.path().join("a/logs"), 0), "x");
    }
}
