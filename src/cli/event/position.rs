//! How far `event stream` has printed, where that is kept, and what is printed to.
//!
//! The file holds one line, `INDEX@EPOCH`: everything up to the index was printed. `INDEX+N@EPOCH`
//! says that N events of the next index were, too, and `…:BYTES` that the file written to was so
//! long then; before anything was printed it is the length alone.

use crate::cli::out::Out;
use crate::cli::show::counted;
use crate::log::atomic_file;
use anyhow::{Context, Result, anyhow, bail};
use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two writes of the position.
pub(in crate::cli) const SAVE_EVERY: Duration = Duration::from_millis(200);

/// How far the stream was printed, and where that is kept.
#[derive(Debug)]
pub(in crate::cli) struct Position {
    path: Option<PathBuf>,
    at: At,
    saved: Option<At>,
    when: Instant,
}

/// A position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct At {
    /// Everything up to here was printed.
    index: Option<u64>,
    /// How many events of the next index that has any were.
    within: usize,
    epoch: String,
    /// The length of the file that was written to.
    offset: Option<u64>,
}

impl At {
    fn parse(text: &str) -> Option<Self> {
        let (place, rest) = text.split_once('@').unwrap_or((text, ""));
        let (index, within) = place.split_once('+').unwrap_or((place, "0"));
        let (epoch, offset) = match rest.split_once(':') {
            Some((epoch, offset)) => (epoch, Some(offset.parse().ok()?)),
            None => (rest, None),
        };
        let index = match index {
            "" if offset.is_some() => None,
            index => Some(index.parse().ok()?),
        };
        Some(Self {
            index,
            within: within.parse().ok()?,
            epoch: epoch.to_owned(),
            offset,
        })
    }

    /// The line of the file; none while there is nothing to say.
    fn text(&self) -> Option<String> {
        let mut text = match (self.index, self.offset) {
            (Some(index), _) => index.to_string(),
            (None, Some(_)) => String::new(),
            (None, None) => return None,
        };
        if self.within > 0 {
            text += &format!("+{}", self.within);
        }
        text += &format!("@{}", self.epoch);
        if let Some(offset) = self.offset {
            text += &format!(":{offset}");
        }
        Some(text)
    }
}

impl Position {
    /// The position in a file; none where there is no file yet.
    pub(in crate::cli) fn load(path: Option<&Path>) -> Result<Position> {
        let mut position = Position {
            path: path.map(Path::to_owned),
            at: At::default(),
            saved: None,
            when: Instant::now(),
        };
        let Some(path) = path else {
            return Ok(position);
        };
        let kept = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(position),
            kept => kept.with_context(|| format!("Error reading {}", path.display()))?,
        };
        if kept.trim().is_empty() {
            return Ok(position);
        }
        position.at = At::parse(kept.trim())
            .ok_or_else(|| anyhow!("{} does not hold a position: {kept:?}", path.display()))?;
        position.saved = Some(position.at.clone());
        Ok(position)
    }

    /// Everything up to here was printed.
    pub(in crate::cli) fn index(&self) -> Option<u64> {
        self.at.index
    }

    /// The epoch of the log it belongs to; empty where that is not known.
    pub(in crate::cli) fn epoch(&self) -> &str {
        &self.at.epoch
    }

    /// The length of the file that is written to, if there is one.
    pub(in crate::cli) fn offset(&self) -> Option<u64> {
        self.at.offset
    }

    /// Says which log the position is of.
    pub(in crate::cli) fn belong(&mut self, epoch: &str) {
        if !epoch.is_empty() {
            epoch.clone_into(&mut self.at.epoch);
        }
    }

    /// Everything up to an index was printed.
    pub(in crate::cli) fn reach(&mut self, index: u64) {
        let index = Some(index).filter(|index| *index > 0);
        if index > self.at.index {
            (self.at.index, self.at.within) = (index, 0);
        }
    }

    /// So many of the events of an index were printed.
    pub(in crate::cli) fn stop_within(&mut self, index: u64, events: usize) {
        self.reach(index.saturating_sub(1));
        self.at.within = events;
        // Before the first index nothing is behind.
        self.at.index.get_or_insert(0);
    }

    /// How many events of an index, the next one that has any, were printed before.
    pub(in crate::cli) fn within(&self, index: u64) -> usize {
        let next = Some(index) > self.at.index;
        if next { self.at.within } else { 0 }
    }

    /// Whether it is time to keep it.
    pub(in crate::cli) fn is_due(&self) -> bool {
        self.path.is_some() && self.when.elapsed() >= SAVE_EVERY
    }

    /// Keeps the position, if it moved; the file that is written to is so long.
    pub(in crate::cli) fn save(&mut self, offset: Option<u64>) -> Result<()> {
        self.at.offset = offset;
        let (Some(path), Some(text)) = (&self.path, self.at.text()) else {
            return Ok(());
        };
        if self.saved.as_ref() != Some(&self.at) {
            atomic_file::put(path, format!("{text}\n").as_bytes())
                .with_context(|| format!("Error writing {}", path.display()))?;
            self.saved = Some(self.at.clone());
        }
        self.when = Instant::now();
        Ok(())
    }
}

/// What is printed to.
pub(in crate::cli) enum Sink<'a> {
    /// Standard output.
    Out(&'a Out),
    /// The end of a file, and its name.
    File(BufWriter<File>, PathBuf),
}

impl Sink<'_> {
    /// A file, written to from `offset` on where that is known: what lies behind was written by a
    /// process that ended before it could record that. Else from its end.
    pub(in crate::cli) fn open(path: &Path, offset: Option<u64>) -> Result<Self> {
        let failed = || format!("Error opening {}", path.display());
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(failed)?;
        let length = file.metadata().with_context(failed)?.len();
        if let Some(offset) = offset {
            if length < offset {
                bail!(
                    "{} has {}, and the position is that of {offset}: it is another file, or was \
                     cut; begin again without the file to resume from",
                    path.display(),
                    counted(length, "byte")
                );
            }
            file.set_len(offset).with_context(failed)?;
        }
        file.seek(SeekFrom::End(0)).with_context(failed)?;
        Ok(Self::File(BufWriter::new(file), path.to_owned()))
    }

    /// Writes a line.
    pub(in crate::cli) fn line(&mut self, text: &str) -> Result<()> {
        match self {
            Self::Out(out) => out.exact(text),
            Self::File(file, path) => writeln!(file, "{text}")
                .with_context(|| format!("Error writing {}", path.display()))?,
        }
        Ok(())
    }

    /// Has everything on the disk; the length of the file, if it is one.
    pub(in crate::cli) fn sync_output(&mut self) -> Result<Option<u64>> {
        let Self::File(file, path) = self else {
            return Ok(None);
        };
        let mut sync_output = || {
            file.flush()?;
            file.get_ref().sync_data()?;
            file.stream_position()
        };
        let length = sync_output().with_context(|| format!("Error writing {}", path.display()))?;
        Ok(Some(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("position");
        let mut position = Position::load(Some(&path)).unwrap();
        position.save(None).unwrap();
        assert!(!path.exists(), "nothing was printed");
        position.belong("ab");
        position.reach(17);
        position.save(None).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "17@ab\n");
        position.stop_within(20, 3);
        position.save(Some(99)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "19+3@ab:99\n");
        let mut again = Position::load(Some(&path)).unwrap();
        assert_eq!((again.index(), again.offset()), (Some(19), Some(99)));
        assert_eq!(
            (again.epoch(), again.within(19), again.within(20)),
            ("ab", 0, 3)
        );
        again.reach(20);
        assert_eq!((again.index(), again.within(21)), (Some(20), 0));
        again.reach(5);
        assert_eq!(again.index(), Some(20), "it never goes back");
        for (text, good) in [
            ("17", true),
            ("17@ab", true),
            ("x", false),
            ("17+@ab", false),
            ("17@ab:x", false),
            ("@:99", true),
            ("@ab", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Position::load(Some(&path)).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn what_a_kill_left_behind_the_position_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let mut sink = Sink::open(&path, None).unwrap();
        sink.line("one").unwrap();
        let offset = sink.sync_output().unwrap();
        sink.line("two").unwrap();
        sink.sync_output().unwrap();
        drop(sink);
        let mut sink = Sink::open(&path, offset).unwrap();
        sink.line("two").unwrap();
        sink.sync_output().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let error = Sink::open(&path, Some(99)).err().unwrap();
        assert!(error.to_string().contains("another file"), "{error}");
    }
}
