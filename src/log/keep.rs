//! How much of a log is kept: the one rule by which any log loses its beginning.

use std::time::Duration;

use super::segment::SegmentInfo;

/// What is kept of a log. Whatever is beyond any of the limits may go; without limits everything
/// is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Bytes of its files.
    pub bytes: Option<u64>,
    /// Time since an event.
    pub age: Option<Duration>,
    /// Events, counted from the last index back.
    pub events: Option<u64>,
}

impl Keep {
    /// Whether anything is ever dropped.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }

    /// The same, for one of `parts` equal parts of it.
    #[must_use]
    pub fn part(&self, parts: u32) -> Self {
        let parts = parts.max(1);
        Self {
            bytes: self.bytes.map(|bytes| bytes / u64::from(parts)),
            age: self.age.map(|age| age / parts),
            events: self.events.map(|events| events / u64::from(parts)),
        }
    }

    /// The highest index that need not be kept of a log that ends with `last`, if there is one;
    /// `now` in Unix nanoseconds. By bytes and by age it is the last of a whole segment.
    pub fn droppable(&self, segments: &[SegmentInfo], last: u64, now: i64) -> Option<u64> {
        let end = |segment: &SegmentInfo| (segment.first + segment.entries).checked_sub(1);
        let by_events = self.events.and_then(|events| last.checked_sub(events));
        let mut kept = 0_u64;
        let by_bytes = self.bytes.and_then(|bytes| {
            let over = segments.iter().rev().find(|segment| {
                kept = kept.saturating_add(segment.bytes);
                kept > bytes
            })?;
            end(over)
        });
        let by_age = self.age.and_then(|age| {
            let limit = now.saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
            let old = |segment: &&SegmentInfo| segment.times.is_some_and(|(_, to)| to < limit);
            end(segments.iter().rev().find(old)?)
        });
        let most = [by_events, by_bytes, by_age].into_iter().flatten().max();
        most.map(|index| index.min(last))
    }
}

#[cfg(test)]
mod tests {
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
        let keep = |bytes, age: Option<u64>, events| Keep {
            bytes,
            age: age.map(Duration::from_nanos),
            events,
        };
        for (settings, wanted) in [
            (keep(None, None, None), None),
            (keep(Some(5000), None, None), None),
            (keep(Some(1600), None, None), Some(99)),
            (keep(Some(600), None, None), Some(199)),
            (keep(Some(100), None, None), Some(249)),
            (keep(None, Some(25), None), Some(99)),
            (keep(None, Some(1), None), Some(249)),
            (keep(None, None, Some(40)), Some(209)),
            (keep(None, None, Some(4000)), None),
            (keep(Some(1600), None, Some(40)), Some(209)),
        ] {
            assert_eq!(settings.droppable(&log, 249, 40), wanted, "{settings:?}");
        }
    }
}
