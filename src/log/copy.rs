//! Copies of a log as sealed segments: what backups and archives hold.
//!
//! Whole sealed segments are taken as they lie; what is still open, or reaches further than is
//! wanted, is written as a sealed segment of its own, which holds the same entries.

use std::io;
use std::path::{Path, PathBuf};

use super::error::LogError;
use super::file::{FileLayer, RealFiles};
use super::format::{Entry, sealed_name};
use super::readonly::ReadOnlyLog;
use super::sealed;
use super::segment::Segment;

/// Bytes of entries read at once.
const CHUNK: usize = 1 << 20;

/// A file of a copy of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFile {
    /// Its name in the copy.
    pub name: String,
    /// Where it lies now.
    pub path: PathBuf,
    /// The first index in it.
    pub first: u64,
    /// The index after the last one.
    pub next: u64,
}

impl ReadOnlyLog {
    /// The files that make a copy of the log up to `last`: sealed segments where they lie, and the
    /// rest written into `dir`, as long as `fits` allows so many bytes more.
    ///
    /// # Errors
    /// Damage; a failed write; what `fits` answers.
    pub fn pieces(
        &self,
        last: u64,
        dir: &Path,
        fits: &dyn Fn(u64) -> io::Result<()>,
    ) -> Result<Vec<CopyFile>, LogError> {
        let mut pieces = Vec::new();
        for segment in self.all() {
            let (first, next) = (segment.first(), segment.next());
            if first > last || next == first {
                continue;
            }
            let name = sealed_name(first);
            let (path, next) = match (&*segment, next <= last + 1) {
                (Segment::Sealed(sealed), true) => (sealed.path.clone(), next),
                _ => {
                    let end = next.min(last + 1);
                    let path = dir.join(&name);
                    self.seal_part(&segment, end, &path, fits)?;
                    (path, end)
                }
            };
            pieces.push(CopyFile {
                name,
                path,
                first,
                next,
            });
        }
        Ok(pieces)
    }

    /// Reads the segment that begins at `first` whole, also what lies below the first index that is
    /// kept.
    ///
    /// # Errors
    /// Damage, by its place; no such segment.
    pub fn check_segment(&self, first: u64) -> Result<(), LogError> {
        let found = self.all().into_iter().find(|s| s.first() == first);
        let Some(segment) = found else {
            let begins = self.bounds().0;
            return Err(LogError::Purged {
                index: first,
                first: begins,
            });
        };
        let mut next = first;
        while next < segment.next() {
            let some = self.read_some(next, segment.next(), CHUNK)?;
            let Some(last) = some.last() else {
                let what = "an entry that its index names is not there";
                return Err(LogError::corrupt(&sealed_name(first), 0, next, what));
            };
            next = last.index + 1;
        }
        Ok(())
    }

    /// Writes the entries of a segment below `end` as a sealed one.
    fn seal_part(
        &self,
        segment: &Segment,
        end: u64,
        path: &Path,
        fits: &dyn Fn(u64) -> io::Result<()>,
    ) -> Result<(), LogError> {
        let file = RealFiles
            .create(path, 0)
            .map_err(|e| LogError::io("create", path, e))?;
        let mut read = |from: u64, bytes: usize, out: &mut Vec<Entry>| {
            let entries = self.read_some(from, end, bytes)?;
            // At least as much as is written of them: they are compressed.
            let size: usize = entries.iter().map(|entry| entry.body.len()).sum();
            fits(size as u64).map_err(|e| LogError::io("write", path, e))?;
            out.extend(entries);
            Ok(())
        };
        sealed::write(&*file, path, segment.header(), end, &mut read).map(drop)
    }
}

/// Opens every segment in `dir`, which holds sealed ones alone, and reads it whole.
///
/// # Errors
/// The first damage, by segment, offset and index.
pub fn read_back(dir: &Path) -> Result<u64, LogError> {
    let log = ReadOnlyLog::open(dir)?;
    let mut entries = 0;
    for entry in log.scan(log.bounds().0) {
        entry?;
        entries += 1;
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::engine::LogEngine;
    use super::super::options::LogOptions;
    use super::*;

    #[test]
    fn what_is_sealed_for_a_copy_is_written_only_as_long_as_there_is_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (log, _) = LogEngine::open(&path, LogOptions::journal()).unwrap();
        for byte in 0..4_u8 {
            log.append_one(1, 1, vec![byte; 40 << 10].into()).unwrap();
        }
        log.close();
        let log = ReadOnlyLog::open(&path).unwrap();
        let last = log.bounds().1 - 1;
        // The second of its blocks does not fit.
        let left = Cell::new(1_u32);
        let fits = |bytes: u64| -> io::Result<()> {
            assert!(bytes >= 40 << 10, "{bytes}");
            let less = left.get().checked_sub(1);
            left.set(less.ok_or(io::ErrorKind::StorageFull)?);
            Ok(())
        };
        let refused = log.pieces(last, dir.path(), &fits).unwrap_err();
        assert!(refused.is_full(), "{refused}");
        let pieces = log.pieces(last, dir.path(), &|_| Ok(())).unwrap();
        let next: Vec<u64> = pieces.iter().map(|piece| piece.next).collect();
        assert_eq!(next, [last + 1]);
    }
}
