//! Moments as indexes of a log that is read from its files.

use super::export::moment;
use crate::base::clock::Moment;
use crate::log::{ReadOnlyLog, last_index_at_or_before};
use anyhow::{Context, Result};

/// The first index at or after the moment that a flag names.
pub(in crate::cli) fn since(log: &ReadOnlyLog, flag: &str, text: &str) -> Result<u64> {
    Ok(match moment(flag, text)? {
        Moment::Index(index) => index,
        Moment::Time(time) => match last(log, time.saturating_sub(1))? {
            Some(last) => last + 1,
            None => log.bounds().0,
        },
    })
}

/// The last index at or before the moment that a flag names; none before anything had happened.
pub(in crate::cli) fn until(log: &ReadOnlyLog, flag: &str, text: &str) -> Result<Option<u64>> {
    match moment(flag, text)? {
        Moment::Index(index) => Ok(Some(index)),
        Moment::Time(time) => last(log, time),
    }
}

fn last(log: &ReadOnlyLog, time: i64) -> Result<Option<u64>> {
    let newest = log.bounds().1.saturating_sub(1);
    last_index_at_or_before(log, time, newest).context("Error looking for a time in the log")
}
