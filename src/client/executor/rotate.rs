//! Log files that rotate by size: `<name>.0`, `<name>.1`, …; the oldest go.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes one stream of a task's output.
#[derive(Debug)]
pub struct Rotator {
    dir: PathBuf,
    name: String,
    max_files: u64,
    max_bytes: u64,
    index: u64,
    size: u64,
    file: File,
}

impl Rotator {
    /// Goes on with the highest-numbered file, or begins with number 0.
    pub fn open(dir: &Path, name: &str, max_files: u64, max_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let index = log_indexes(dir, name)?.last().copied().unwrap_or(0);
        let (file, size) = open_file(dir, name, index)?;
        Ok(Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            max_files: max_files.max(1),
            max_bytes: max_bytes.max(1),
            index,
            size,
            file,
        })
    }

    /// Appends; a line is kept in one file where that is possible.
    pub fn write(&mut self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let room =
                usize::try_from(self.max_bytes.saturating_sub(self.size)).unwrap_or(usize::MAX);
            if room == 0 {
                self.rotate()?;
                continue;
            }
            let take = if buf.len() <= room {
                buf.len()
            } else {
                buf[..room]
                    .iter()
                    .rposition(|b| *b == b'\n')
                    .map_or(room, |at| at + 1)
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
        self.index += 1;
        let (file, size) = open_file(&self.dir, &self.name, self.index)?;
        self.file = file;
        self.size = size;
        for old in log_indexes(&self.dir, &self.name)? {
            if old + self.max_files <= self.index {
                fs::remove_file(self.dir.join(format!("{}.{old}", self.name)))?;
            }
        }
        Ok(())
    }
}

fn open_file(dir: &Path, name: &str, index: u64) -> io::Result<(File, u64)> {
    let path = dir.join(format!("{name}.{index}"));
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// The numbers of the files `<name>.N` in `dir`, ascending.
pub fn log_indexes(dir: &Path, name: &str) -> io::Result<Vec<u64>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir)? {
        let file = entry?.file_name();
        let number = file
            .to_str()
            .and_then(|f| f.strip_prefix(name)?.strip_prefix('.')?.parse::<u64>().ok());
        out.extend(number);
    }
    out.sort_unstable();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dir: &Path, n: u64) -> String {
        fs::read_to_string(dir.join(format!("t.stdout.{n}"))).unwrap()
    }

    #[test]
    fn mod_12_files_rotate_by_size_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotator::open(dir.path(), "t.stdout", 2, 10).unwrap();
        log.write(b"12345\n").unwrap();
        log.write(b"abcdefgh\n").unwrap();
        assert_eq!(log_indexes(dir.path(), "t.stdout").unwrap(), vec![0, 1]);
        assert_eq!(read(dir.path(), 0), "12345\nabcd");
        log.write(b"0123456789012345678901234").unwrap();
        assert_eq!(log_indexes(dir.path(), "t.stdout").unwrap(), vec![2, 3]);
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
}
