//! How much of a log is kept: the one rule by which any log loses its beginning.

use std::time::Duration;

use super::engine::LogEngine;
use super::error::LogError;
use super::segment::SegmentInfo;
use super::times::last_index_at_or_before;

/// What is kept of a log. Whatever is beyond any of the limits may go; without limits everything
/// is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Bytes of its files.
    pub bytes: Option<u64>,
    /// Time since an event.
    pub age: Option<Duration>,
    /// Events, counted from the last index back.
    pub events: Option<u64>,
}

impl RetentionPolicy {
    /// Whether anything is ever dropped.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }

    /// The same, for one of `parts` equal parts of the log.
    #[must_use]
    pub fn part(&self, parts: u32) -> Self {
        let parts = parts.max(1);
        Self {
            bytes: self.bytes.map(|bytes| bytes / u64::from(parts)),
            age: self.age.map(|age| age / parts),
            events: self.events.map(|events| events / u64::from(parts)),
        }
    }

    /// The highest index that need not be kept of a log, up to `last`, if there is one; `now` in
    /// Unix nanoseconds. By bytes it is the last of a whole segment.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn droppable(&self, log: &LogEngine, last: u64, now: i64) -> Result<Option<u64>, LogError> {
        let by_age = match self.age {
            Some(age) => {
                let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
                last_index_at_or_before(log, now.saturating_sub(age).saturating_sub(1), last)?
            }
            None => None,
        };
        let most = self.by_size(&log.segments(), last).max(by_age);
        Ok(most.map(|index| index.min(last)))
    }

    /// By bytes and by number alone.
    fn by_size(&self, segments: &[SegmentInfo], last: u64) -> Option<u64> {
        let by_events = self.events.and_then(|events| last.checked_sub(events));
        let mut kept = 0_u64;
        let by_bytes = self.bytes.and_then(|bytes| {
            let over = segments.iter().rev().find(|segment| {
                kept = kept.saturating_add(segment.bytes);
                kept > bytes
            })?;
            end(over)
        });
        by_events.max(by_bytes)
    }
}

/// The last index of a segment and those before it.
fn end(segment: &SegmentInfo) -> Option<u64> {
    (segment.first + segment.entries).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use drover_testkit::{LONG, so, wait_for};

    use super::super::format::Entry;
    use super::super::options::LogOptions;
    use super::*;

    fn segment(first: u64, entries: u64, bytes: u64, to: i64) -> SegmentInfo {
        SegmentInfo {
            name: String::new(),
            sealed: true,
            first,
            entries,
            bytes,
            body_bytes: 0,
            kinds: Default::default(),
            times: Some((0, to)),
        }
    }

    #[test]
    fn each_policy_names_the_last_index_that_may_go() {
        let log = [
            segment(0, 100, 1000, 10),
            segment(100, 100, 1000, 20),
            segment(200, 50, 500, 30),
        ];
        let keep = |bytes, events| RetentionPolicy {
            bytes,
            events,
            age: None,
        };
        for (settings, wanted) in [
            (keep(None, None), None),
            (keep(Some(5000), None), None),
            (keep(Some(1600), None), Some(99)),
            (keep(Some(600), None), Some(199)),
            (keep(Some(100), None), Some(249)),
            (keep(None, Some(40)), Some(209)),
            (keep(None, Some(4000)), None),
            (keep(Some(1600), Some(40)), Some(209)),
        ] {
            assert_eq!(settings.by_size(&log, 249), wanted, "{settings:?}");
        }
    }

    /// An entry a time: 100 is followed by 101; Raft's own have none.
    fn fill(log: &LogEngine, to: u64) {
        let (_, next) = log.bounds();
        let entry = |index: u64| Entry {
            index,
            kind: 1,
            time: if index % 10 < 2 {
                0
            } else {
                index.cast_signed()
            },
            body: vec![0; 1000].into(),
        };
        let entries = (next..to).map(entry).collect();
        log.append(entries, Box::new(|done| done.unwrap())).unwrap();
        log.sync().unwrap();
    }

    #[test]
    fn age_counts_within_a_segment_whether_it_is_sealed_or_not() {
        let dir = tempfile::tempdir().unwrap();
        for seal in [false, true] {
            let options = LogOptions {
                segment_bytes: 64 << 10,
                seal,
                auto_commit: true,
                ..LogOptions::default()
            };
            let dir = dir.path().join(seal.to_string());
            let (log, _) = LogEngine::open(&dir, options).unwrap();
            let before = |age, now, last| {
                let age = Some(Duration::from_nanos(age));
                let keep = RetentionPolicy {
                    age,
                    ..RetentionPolicy::default()
                };
                keep.droppable(&log, last, now).unwrap()
            };
            assert_eq!(before(1, 1000, 0), None, "an empty log");
            fill(&log, 40);
            assert_eq!(log.segments().len(), 1);
            assert_eq!(before(10, 10, 39), None);
            assert_eq!(before(10, 35, 39), Some(24));
            // What has no time is as old as what it follows.
            assert_eq!(before(10, 42, 39), Some(31));
            assert_eq!(before(10, 45, 39), Some(34));
            assert_eq!(before(10, 1000, 39), Some(39));
            assert_eq!(before(10, 1000, 20), Some(20));
            fill(&log, 400);
            let segments = || log.segments();
            let sealed = || so(segments().iter().filter(|one| one.sealed).count() >= 4);
            if seal {
                wait_for("them to be sealed", LONG, sealed).unwrap();
            }
            for time in (5..400).step_by(10) {
                assert_eq!(before(10, time + 10, 399), Some(time as u64 - 1), "{seal}");
            }
            log.purge(204, Bytes::new(), Box::new(|_| ())).unwrap();
            assert_eq!(before(10, 315, 399), Some(304));
        }
    }
}
