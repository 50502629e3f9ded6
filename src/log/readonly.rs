//! A log's segment files opened read-only, while a server may be writing them.
//!
//! Nothing is locked and nothing is changed. The end of the last segment is whatever could be
//! read when it was opened; [`ReadOnlyLog::refresh`] looks again. A segment that was sealed or
//! used again meanwhile is found under its new name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::LogError;
use super::file::{FileLayer, RealFiles};
use super::format::{Entry, Epoch, index_of_name, sealed_name};
use super::open::{Locals, Names, names, scan_open};
use super::scan::{EntrySource, Scan};
use super::sealed::SealedSegment;
use super::segment::{Segment, SegmentInfo};
use super::segment_set::SegmentSet;
use super::tree::CompactRange;

const MAX_BODY: usize = 64 << 20;
/// How often a directory that changes under the reader is read again.
const TRIES: usize = 5;

/// A log as its files show it.
pub struct ReadOnlyLog {
    dir: PathBuf,
    files: Arc<dyn FileLayer>,
    view: View,
}

struct View {
    dir: PathBuf,
    files: Arc<dyn FileLayer>,
    segments: SegmentSet,
    epoch: Epoch,
    first: u64,
    next: u64,
    locals: Locals,
    damage: Option<LogError>,
}

impl EntrySource for View {
    fn read_range(&self, from: u64, to: u64, max_bytes: usize) -> Result<Vec<Entry>, LogError> {
        if from < self.first {
            return Err(LogError::Purged {
                index: from,
                first: self.first,
            });
        }
        self.read_some(from, to.min(self.next), max_bytes)
    }
}

impl View {
    fn place_of_damage(&self) -> Option<String> {
        self.damage.as_ref().map(ToString::to_string)
    }

    /// Some of the entries `from..to` of one segment, below the first index that is kept too.
    fn read_some(&self, from: u64, to: u64, max_bytes: usize) -> Result<Vec<Entry>, LogError> {
        match self.segments.read(from, to, max_bytes) {
            Err(e @ LogError::Corrupt { .. }) => {
                // Sealed meanwhile, and the file we hold may be in use again?
                match self.sealed_meanwhile(from)? {
                    true => self.segments.read(from, to, max_bytes),
                    false => Err(e),
                }
            }
            other => other,
        }
    }

    /// Reads the segment that holds `index` from its sealed form from now on, if there is one.
    fn sealed_meanwhile(&self, index: u64) -> Result<bool, LogError> {
        let held = self.segments.find(index).filter(|s| s.open().is_some());
        let Some(held) = held else { return Ok(false) };
        let name = sealed_name(held.first());
        if !names(&*self.files, &self.dir)?.sealed.contains(&name) {
            return Ok(false);
        }
        let sealed = SealedSegment::open(&*self.files, &self.dir, &name)?;
        self.segments.swap(Arc::new(Segment::Sealed(sealed)));
        Ok(true)
    }
}

impl ReadOnlyLog {
    /// Opens the log in `dir` for reading.
    ///
    /// # Errors
    /// If there is no log, or a sealed segment's header or footer is damaged. Damage inside the
    /// log is answered by [`damage`](Self::damage) and by the reads that meet it.
    pub fn open(dir: &Path) -> Result<ReadOnlyLog, LogError> {
        ReadOnlyLog::open_with(Arc::new(RealFiles), dir)
    }

    /// Opens over another file layer.
    pub fn open_with(files: Arc<dyn FileLayer>, dir: &Path) -> Result<ReadOnlyLog, LogError> {
        let view = look(&files, dir)?;
        Ok(ReadOnlyLog {
            dir: dir.to_owned(),
            files,
            view,
        })
    }

    /// Looks at the files again.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn refresh(&mut self) -> Result<(), LogError> {
        self.view = look(&self.files, &self.dir)?;
        Ok(())
    }

    /// The first index, and the index after the last readable one.
    pub fn bounds(&self) -> (u64, u64) {
        (self.view.first, self.view.next)
    }

    /// The last committed index that was written down; the log may be further. What is sealed is
    /// committed.
    pub fn committed(&self) -> Option<u64> {
        let written = self.view.locals.committed.as_ref().map(|(i, _)| *i);
        let segments = self.view.segments.all();
        let sealed = segments.iter().rev().find(|s| s.open().is_none());
        written.max(sealed.and_then(|s| s.next().checked_sub(1)))
    }

    pub fn epoch(&self) -> Epoch {
        self.view.epoch
    }

    /// Damage of what had been durable, if the frames show any.
    pub fn damage(&self) -> Option<&LogError> {
        self.view.damage.as_ref()
    }

    /// The damage that a reader meets between `from` and the end; [`scan`](Self::scan) ends before
    /// it without an error.
    pub fn damage_from(&self, from: u64) -> Option<&LogError> {
        let at = |damage: &&LogError| match damage {
            LogError::Corrupt { index, .. } => *index >= from,
            _ => true,
        };
        self.damage().filter(at)
    }

    /// One entry; `None` beyond the end.
    ///
    /// # Errors
    /// [`LogError::Purged`], or damage.
    pub fn read(&self, index: u64) -> Result<Option<Entry>, LogError> {
        Ok(self
            .view
            .read_range(index, index.saturating_add(1), 0)?
            .pop())
    }

    /// Some of the entries `from..to`: at least one if there is any, about `max_bytes` at most.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_range(&self, from: u64, to: u64, max_bytes: usize) -> Result<Vec<Entry>, LogError> {
        self.view.read_range(from, to, max_bytes)
    }

    /// The entries from `from` to where the log ended when it was opened or last refreshed.
    pub fn scan(&self, from: u64) -> Scan<'_> {
        Scan::new(&self.view, from, self.view.next)
    }

    /// The tree after entry `index`.
    ///
    /// # Errors
    /// Damage in that segment.
    pub fn range_at(&self, index: u64) -> Result<Option<CompactRange>, LogError> {
        self.view.segments.range_at(index)
    }

    pub(super) fn all(&self) -> Vec<Arc<Segment>> {
        self.view.segments.all()
    }

    pub(super) fn read_some(
        &self,
        from: u64,
        to: u64,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, LogError> {
        self.view.read_some(from, to, max_bytes)
    }

    /// The segments, in order.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.view.segments.infos()
    }
}

/// Reads the directory; again, when a file was sealed, removed or used again in between.
fn look(files: &Arc<dyn FileLayer>, dir: &Path) -> Result<View, LogError> {
    let mut tries = 0;
    let mut seen = None;
    loop {
        let found = names(&**files, dir)?;
        match view(files, dir, &found) {
            Err(LogError::Io { .. } | LogError::Corrupt { .. })
                if tries < TRIES && changed(&**files, dir, &found)? =>
            {
                tries += 1;
            }
            // A writer that was at work while its file was read can look like damage, but not
            // twice at the same place.
            Ok(view) if tries < TRIES && view.place_of_damage() != seen => {
                tries += 1;
                seen = view.place_of_damage();
            }
            other => return other,
        }
    }
}

fn changed(files: &dyn FileLayer, dir: &Path, found: &Names) -> Result<bool, LogError> {
    let now = names(files, dir)?;
    Ok(now.open != found.open || now.sealed != found.sealed)
}

fn view(shared: &Arc<dyn FileLayer>, dir: &Path, found: &Names) -> Result<View, LogError> {
    let files = &**shared;
    let mut segments = Vec::new();
    let mut locals = Locals::default();
    let mut damage = None;
    for name in &found.sealed {
        segments.push(Segment::Sealed(SealedSegment::open(files, dir, name)?));
    }
    let sealed: Vec<u64> = found.sealed.iter().map(|n| index_of_name(n)).collect();
    let open = found.open.iter();
    let open = open.filter(|n| !sealed.contains(&index_of_name(n)));
    let mut scanned = Vec::new();
    for name in open {
        scanned.push(scan_open(files, dir, name, false, MAX_BODY, &mut locals)?);
    }
    if let Some(last) = scanned.last().map(|s| s.segment.header.clone()) {
        scanned.retain(|s| !s.was_begun_elsewhere(&last));
    }
    let purged = locals.purged.as_ref().filter(|_| !found.joined);
    let purged = purged.map(|(i, _)| i.saturating_add(1));
    let mut scanned = scanned.into_iter().peekable();
    while let Some(s) = scanned.next() {
        let segment = Segment::Open(s.segment);
        let follows = scanned.peek().map(|next| next.segment.header.first);
        // All up to the next one was dropped, and a kill left the file: where it ends says nothing.
        let ends = follows.map(|f| f.max(segment.next()));
        if ends.is_some_and(|end| purged.is_some_and(|p| p >= end)) {
            continue;
        }
        let short = follows.is_some_and(|f| segment.next() != f);
        if damage.is_none() && (short || s.end.durable > s.end.end) {
            let what = "a frame that was durable cannot be read";
            let (name, at) = (segment.name(), s.end.end);
            damage = Some(LogError::corrupt(name, at, segment.next(), what));
        }
        segments.push(segment);
    }
    segments.sort_by_key(Segment::first);
    segments.retain(|s| purged.is_none_or(|p| s.next() > p) || s.open().is_some());
    let Some(last) = segments.last() else {
        let e = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(LogError::io("find a log in", dir, e));
    };
    let next = last.next();
    let epoch = last.header().epoch;
    let first = purged.unwrap_or(segments[0].first());
    let segments = SegmentSet::new(segments.into_iter().map(Arc::new).collect());
    Ok(View {
        dir: dir.to_owned(),
        files: Arc::clone(shared),
        segments,
        epoch,
        first,
        next,
        locals,
        damage,
    })
}
