//! The segments of one log, in order, shared by the writer, the housekeeper and the readers.

use std::sync::Arc;

use parking_lot::RwLock;

use super::error::LogError;
use super::format::Entry;
use super::segment::{Segment, SegmentInfo};
use super::tree::{CompactRange, leaf_hash};

/// Segments by first index.
#[derive(Default)]
pub(super) struct SegmentSet(RwLock<Vec<Arc<Segment>>>);

impl SegmentSet {
    pub(super) fn new(list: Vec<Arc<Segment>>) -> SegmentSet {
        SegmentSet(RwLock::new(list))
    }

    pub(super) fn all(&self) -> Vec<Arc<Segment>> {
        self.0.read().clone()
    }

    /// The segment that holds, or would hold, `index`.
    pub(super) fn find(&self, index: u64) -> Option<Arc<Segment>> {
        let list = self.0.read();
        let n = list.partition_point(|s| s.first() <= index);
        n.checked_sub(1).map(|n| Arc::clone(&list[n]))
    }

    pub(super) fn push(&self, segment: Arc<Segment>) {
        self.0.write().push(segment);
    }

    /// Puts `new` in the place of `old`, if the writer has not gone back to it meanwhile; `rename`
    /// makes the files say the same, before the writer can.
    pub(super) fn replace(
        &self,
        old: &Arc<Segment>,
        new: Segment,
        rename: impl FnOnce() -> Result<(), LogError>,
    ) -> Result<bool, LogError> {
        let mut list = self.0.write();
        let at = list.iter().position(|s| Arc::ptr_eq(s, old));
        let Some(at) = at.filter(|at| *at + 1 < list.len() && old.next() == new.next()) else {
            return Ok(false);
        };
        rename()?;
        list[at] = Arc::new(new);
        Ok(true)
    }

    /// Puts `new` in the place of the segment with the same first index.
    pub(super) fn swap(&self, new: Arc<Segment>) {
        if let Some(slot) = self.0.write().iter_mut().find(|s| s.first() == new.first()) {
            *slot = new;
        }
    }

    /// Takes out the segments for which `gone` holds, in order.
    pub(super) fn take_if(&self, gone: impl Fn(&Segment) -> bool) -> Vec<Arc<Segment>> {
        let mut list = self.0.write();
        let (out, keep) = list.drain(..).partition(|s| gone(s));
        *list = keep;
        out
    }

    /// Reads entries from one segment: some of `from..to`, at least one if it is there.
    pub(super) fn read(
        &self,
        from: u64,
        to: u64,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, LogError> {
        let mut out = Vec::new();
        if let Some(segment) = self.find(from) {
            segment.read(from, to, max_bytes, &mut out)?;
        }
        Ok(out)
    }

    pub(super) fn infos(&self) -> Vec<SegmentInfo> {
        self.0.read().iter().map(|s| s.info()).collect()
    }

    /// The compact range after entry `index`, folded from the start of its segment.
    pub(super) fn range_at(&self, index: u64) -> Result<Option<CompactRange>, LogError> {
        // The one before may be gone; then it stands at the head of the one behind.
        if let Some(behind) = self.find(index + 1).filter(|s| s.first() == index + 1) {
            return Ok(behind.header().range.clone());
        }
        let Some(segment) = self.find(index) else {
            return Ok(None);
        };
        let Some(mut range) = segment.header().range.clone() else {
            return Ok(None);
        };
        let mut next = segment.first();
        let mut entries = Vec::new();
        while next <= index {
            entries.clear();
            segment.read(next, index + 1, 256 << 10, &mut entries)?;
            if entries.is_empty() {
                return Ok(None);
            }
            for e in &entries {
                range.push(leaf_hash(&e.body));
            }
            next += entries.len() as u64;
        }
        Ok(Some(range))
    }
}
