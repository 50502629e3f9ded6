//! Where the writer continues: the next segment, an earlier one after a truncation, a later one
//! after a purge.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::error::LogError;
use super::file::LogFile;
use super::format::{Epoch, HEADER, Header, OPEN_MAGIC, Record, open_name};
use super::segment::{Frames, OpenSegment, Segment};
use super::state::DiskSpace;
use super::tree::{CompactRange, Tree};
use super::writer::{Writer, stopped};

impl Writer {
    /// Continues in a new segment. The active one is synced to its end.
    pub(super) fn rotate(&mut self) -> Result<(), LogError> {
        let range = self.shared.tree.lock().with_pending();
        let last = self.next.checked_sub(1);
        let epoch = *self.shared.epoch.lock();
        self.start_segment(self.next, range, epoch)?;
        self.seal_at = self.seal_at.or(last);
        Ok(())
    }

    /// Continues in a new segment, unless the active one holds nothing.
    pub(super) fn roll(&mut self) -> Result<(), LogError> {
        self.flush()?;
        match self.next > self.segment.first() {
            true => self.rotate(),
            false => Ok(()),
        }
    }

    /// Begins a segment at `first`; where the disk is full it waits, if the options say so. After
    /// an error the writer stands where it stood.
    fn start_segment(
        &mut self,
        first: u64,
        range: Option<CompactRange>,
        epoch: Epoch,
    ) -> Result<(), LogError> {
        loop {
            let header = Header {
                seed: rand::random(),
                epoch,
                first,
                range: range.clone(),
            };
            match self.try_segment(header) {
                Err(e) if e.is_full() && self.shared.waits_when_full() => self.wait_for_space()?,
                Err(e) if e.is_full() => {
                    self.shared.set_space(DiskSpace::Full);
                    return Err(e);
                }
                other => return other,
            }
        }
    }

    fn try_segment(&mut self, header: Header) -> Result<(), LogError> {
        let (tmp, file, zeroed) = self.next_file()?;
        let first = header.first;
        let name = open_name(first);
        let path = self.shared.dir.join(&name);
        let frames = RwLock::new(Frames {
            offsets: Vec::new(),
            end: HEADER as u64,
        });
        let file_again = Arc::clone(&file);
        let open = OpenSegment {
            name,
            path: path.clone(),
            header,
            file,
            frames,
        };
        let before = std::mem::replace(&mut self.segment, Arc::new(Segment::Open(open)));
        let position = (self.pos, self.synced);
        let committed = self.committed.clone();
        (self.pos, self.synced) = (0, 0);
        let mut buf = self.segment.header().encode(OPEN_MAGIC);
        std::mem::swap(&mut self.buf, &mut buf);
        self.locals(first);
        let written = self.install(&*file_again, &tmp, &path);
        if let Err(e) = written {
            self.buf.clear();
            self.segment = before;
            (self.pos, self.synced) = position;
            self.committed = committed;
            return Err(e);
        }
        self.pos = self.buf.len() as u64;
        self.synced = self.pos;
        self.zeroed = zeroed.max(self.pos);
        self.buf.clear();
        let open = self.segment.open().expect("just made");
        open.frames.write().end = self.pos;
        self.shared.segments.push(Arc::clone(&self.segment));
        self.next_file_requested = false;
        self.has_space();
        Ok(())
    }

    fn install(&self, file: &dyn LogFile, tmp: &Path, path: &Path) -> Result<(), LogError> {
        let files = &self.shared.files;
        let result = file
            .write_at(&self.buf, 0)
            .map_err(|e| LogError::io("write", tmp, e))
            .and_then(|()| file.sync().map_err(|e| LogError::io("sync", tmp, e)))
            .and_then(|()| {
                files
                    .rename(tmp, path)
                    .map_err(|e| LogError::io("rename", path, e))
            });
        if let Err(e) = result {
            let _ = files.remove(tmp);
            return Err(e);
        }
        let dir = &self.shared.dir;
        files
            .sync_dir(dir)
            .map_err(|e| stopped(LogError::io("sync", dir, e)))
    }

    fn next_file(&self) -> Result<(PathBuf, Arc<dyn LogFile>, u64), LogError> {
        if let Some(p) = self.shared.housekeeper.lock().prepared.take() {
            return Ok((p.path, p.file, p.zeroed));
        }
        let path = self.shared.dir.join("next.tmp");
        let file = self
            .shared
            .files
            .create(&path, self.shared.options.segment_bytes)
            .map_err(|e| LogError::io("create", &path, e))?;
        Ok((path, file, 0))
    }

    pub(super) fn truncate(&mut self, from: u64) -> Result<(), LogError> {
        self.flush()?;
        if self.segment.first() > from {
            self.go_back(from)?;
        }
        self.local(Record::Truncate, from, &[]);
        self.flush()?;
        let open = self.segment.open().expect("the active segment is open");
        open.frames
            .write()
            .offsets
            .truncate((from - open.header.first) as usize);
        self.next = from;
        self.shared.tree.lock().truncate(from);
        let mut state = self.shared.state.lock();
        state.carried_out += 1;
        if state.generation == state.carried_out {
            state.durable_next = from;
        }
        Ok(())
    }

    /// Makes the segment that holds `from` the active one. The later ones hold nothing committed;
    /// the local records are written here before they go, the last segment first.
    fn go_back(&mut self, from: u64) -> Result<(), LogError> {
        let target = self
            .shared
            .segments
            .find(from)
            .filter(|s| s.open().is_some());
        let Some(target) = target else {
            let what = "entries to truncate lie in a sealed segment";
            return Err(LogError::corrupt(self.segment.name(), 0, from, what));
        };
        let before = Arc::clone(&self.segment);
        let position = (self.pos, self.synced, self.zeroed);
        let committed = self.committed.clone();
        // Those between as well: the records of whichever is the last one count, and a kill may
        // leave any of them as the last.
        let between = |s: &Arc<Segment>| {
            let (first, end) = (s.first(), before.first());
            first > from && first < end && s.open().is_some()
        };
        let mut to: Vec<_> = self.shared.segments.all();
        to.retain(between);
        to.push(target);
        for segment in to {
            if let Err(e) = self.say_again(segment, from) {
                // The later segments are there: the end of the log is where it was.
                self.buf.clear();
                self.segment = before;
                (self.pos, self.synced, self.zeroed) = position;
                self.committed = committed;
                return Err(e);
            }
        }
        let gone = self.shared.segments.take_if(|s| s.first() > from);
        // One is gone for certain before the one below it goes: never is there a gap.
        for segment in gone.iter().rev() {
            self.remove(std::iter::once(segment))?;
        }
        Ok(())
    }

    /// Writes the local records of a log whose next entry is `next` at the end of an open segment,
    /// which becomes the active one.
    fn say_again(&mut self, segment: Arc<Segment>, next: u64) -> Result<(), LogError> {
        let end = segment.open().expect("an open segment").frames.read().end;
        self.segment = segment;
        (self.pos, self.synced, self.zeroed) = (end, end, end);
        self.locals(next);
        self.flush()
    }

    fn remove<'a>(&self, gone: impl Iterator<Item = &'a Arc<Segment>>) -> Result<(), LogError> {
        let files = &self.shared.files;
        for segment in gone {
            files
                .remove(segment.path())
                .map_err(|e| LogError::io("remove", segment.path(), e))?;
        }
        let dir = &self.shared.dir;
        files
            .sync_dir(dir)
            .map_err(|e| stopped(LogError::io("sync", dir, e)))
    }

    pub(super) fn purge(&mut self, index: u64, position: Bytes) -> Result<(), LogError> {
        self.flush()?;
        if index >= self.next {
            let (base, before) = {
                let mut state = self.shared.state.lock();
                (state.base.take(), state.purged.replace((index, position)))
            };
            let range = base.filter(|(i, _)| *i == index).map(|(_, range)| range);
            let epoch = *self.shared.epoch.lock();
            let restarted = self.restart_at(index + 1, range, epoch);
            return restarted.inspect_err(|_| self.shared.state.lock().purged = before);
        }
        self.local(Record::Purged, index, &position);
        self.flush()?;
        // From here on every new segment has this position.
        self.shared.state.lock().purged = Some((index, position));
        let active = self.segment.first();
        let gone = |s: &Segment| s.first() != active && s.next() <= index + 1;
        let old = self.shared.segments.take_if(gone);
        self.remove(old.iter())
    }

    /// Drops every entry and continues in a new segment that begins at `first`.
    pub(super) fn restart_at(
        &mut self,
        first: u64,
        range: Option<CompactRange>,
        epoch: Epoch,
    ) -> Result<(), LogError> {
        let before = Arc::clone(&self.segment);
        self.start_segment(first, range.clone(), epoch)?;
        *self.shared.tree.lock() = Tree::new(range, epoch.first_index);
        self.next = first;
        {
            let mut state = self.shared.state.lock();
            state.carried_out += 1;
            if state.generation == state.carried_out {
                state.durable_next = first;
            }
        }
        let active = Arc::clone(&self.segment);
        let old = self
            .shared
            .segments
            .take_if(|s| !std::ptr::eq(s, Arc::as_ptr(&active)));
        // An empty one at the same index lay under the name that the new one has.
        let replaced = before.path() == active.path();
        let files = old
            .iter()
            .filter(|s| !(replaced && Arc::ptr_eq(s, &before)));
        self.remove(files)
    }

    /// A log that never held an entry begins at `index`, which becomes its epoch's first.
    pub(super) fn begin(&mut self, index: u64) -> Result<(), LogError> {
        self.flush()?;
        let epoch = Epoch {
            first_index: index,
            ..*self.shared.epoch.lock()
        };
        self.restart_at(index, Some(CompactRange::default()), epoch)?;
        *self.shared.epoch.lock() = epoch;
        Ok(())
    }
}
