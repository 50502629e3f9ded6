//! When entries happened, and what had happened by a time.
//!
//! Raft's own entries have no time: they are of the time of the entry before them, and those before
//! the first that has one are older than everything. Times run forward with the index.

use super::error::LogError;
use super::scan::ReadableLog;

/// The time of an entry: its own, or that of the last before it that has one, Unix nanoseconds.
/// None where no entry that can be read has one; beyond the end it is the time of the last.
///
/// # Errors
/// The log cannot be read, or loses its beginning meanwhile.
pub fn time_of(log: &dyn ReadableLog, index: u64) -> Result<Option<i64>, LogError> {
    let (first, next) = log.bounds();
    let end = index.saturating_add(1).min(next);
    for at in (first..end).rev() {
        let entry = log.read(at)?;
        if let Some(entry) = entry.filter(|entry| entry.time != 0) {
            return Ok(Some(entry.time));
        }
    }
    Ok(None)
}

/// The last entry at or before a time, of those up to `last`; none if all that have a time are
/// later.
///
/// # Errors
/// As [`time_of`].
pub fn last_index_at_or_before(
    log: &dyn ReadableLog,
    time: i64,
    last: u64,
) -> Result<Option<u64>, LogError> {
    let (first, next) = log.bounds();
    let (mut low, mut high) = (first, last.saturating_add(1).min(next));
    while low < high {
        let middle = low + (high - low) / 2;
        match time_of(log, middle)?.is_none_or(|of| of <= time) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    let found = low.checked_sub(1).filter(|found| *found >= first);
    Ok(match found {
        Some(found) => time_of(log, found)?.map(|_| found),
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::engine::LogEngine;
    use super::super::format::Entry;
    use super::super::options::LogOptions;
    use super::super::readonly::ReadOnlyLog;
    use super::*;

    #[test]
    fn what_has_no_time_is_of_the_time_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = LogEngine::open(dir.path(), LogOptions::default()).unwrap();
        let same = |time, last| {
            let found = last_index_at_or_before(&log, time, last).unwrap();
            let files = ReadOnlyLog::open(dir.path()).unwrap();
            assert_eq!(last_index_at_or_before(&files, time, last).unwrap(), found);
            found
        };
        assert_eq!((time_of(&log, 7).unwrap(), same(7, 7)), (None, None));
        let times = [0, 0, 20, 30, 0, 0, 30, 50, 0];
        let entry = |(index, time): (usize, &i64)| Entry {
            index: index as u64,
            kind: 1,
            time: *time,
            body: vec![0; 10].into(),
        };
        let entries = times.iter().enumerate().map(entry).collect();
        log.append(entries, Box::new(|done| done.unwrap())).unwrap();
        log.sync().unwrap();
        let wanted = [0, 0, 20, 30, 30, 30, 30, 50, 50, 50];
        for (index, wanted) in wanted.into_iter().enumerate() {
            let wanted = (wanted != 0).then_some(wanted);
            assert_eq!(time_of(&log, index as u64).unwrap(), wanted, "{index}");
        }
        for (time, last, wanted) in [
            (i64::MIN, 8, None),
            (19, 8, None),
            (20, 8, Some(2)),
            (29, 8, Some(2)),
            (30, 8, Some(6)),
            (30, 4, Some(4)),
            (49, 8, Some(6)),
            (50, 8, Some(8)),
            (i64::MAX, 8, Some(8)),
            (i64::MAX, u64::MAX, Some(8)),
            (i64::MAX, 1, None),
        ] {
            assert_eq!(same(time, last), wanted, "{time} up to {last}");
        }
    }
}
