//! Copies of a log as sealed segments: what backups and archives hold.
//!
//! Whole sealed segments are taken as they lie; what is still open, or reaches further than is
//! wanted, is written as a sealed segment of its own, which holds the same entries.

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
    /// rest written into `dir`.
    ///
    /// # Errors
    /// Damage; a failed write.
    pub fn pieces(&self, last: u64, dir: &Path) -> Result<Vec<CopyFile>, LogError> {
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
                    (self.seal_part(&segment, end, dir, &name)?, end)
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
        dir: &Path,
        name: &str,
    ) -> Result<PathBuf, LogError> {
        let path = dir.join(name);
        let file = RealFiles
            .create(&path, 0)
            .map_err(|e| LogError::io("create", &path, e))?;
        let mut read = |from: u64, bytes: usize, out: &mut Vec<Entry>| {
            out.extend(self.read_some(from, end, bytes)?);
            Ok(())
        };
        sealed::write(&*file, &path, segment.header(), end, &mut read)?;
        Ok(path)
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
