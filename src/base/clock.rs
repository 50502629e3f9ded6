//! The wall clock, read in one place, one for timers that never goes back, and moments as people
//! name them.
//!
//! Nothing that is replayed may read it: time reaches events through the proposer's stamp alone.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drover_events::gojson::parse_duration;

/// The time, Unix nanoseconds.
pub fn unix_nanos() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The time at the start, and how long ago that was.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// None for a clock that stands still.
    start: Option<Instant>,
    unix: i64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            start: Some(Instant::now()),
            unix: unix_nanos(),
        }
    }
}

impl Clock {
    /// A clock that stands still at these Unix nanoseconds, for tests.
    pub fn stopped(unix: i64) -> Self {
        Self { start: None, unix }
    }

    /// Unix nanoseconds.
    pub fn now(&self) -> i64 {
        let passed = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        let passed = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        self.unix.saturating_add(passed)
    }

    /// Unix nanoseconds by the clock on the wall, which may be set and may go back; for what is due
    /// at a time that people name.
    pub fn wall(&self) -> i64 {
        self.start.map_or(self.unix, |_| unix_nanos())
    }
}

/// A moment of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After the event with this index.
    Index(u64),
    /// After the last event at or before this time, Unix nanoseconds.
    Time(i64),
}

/// A text that names no moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither an index, nor an RFC 3339 time, nor a duration like -5m{hint}")]
pub struct NoMoment {
    text: String,
    hint: String,
}

impl NoMoment {
    /// A duration without its sign is most likely meant to go back.
    fn new(text: &str) -> Self {
        let meant = parse_duration(text).is_some_and(|duration| duration > 0);
        let hint = match meant {
            true => format!("; did you mean -{text}?"),
            false => String::new(),
        };
        let text = text.to_owned();
        Self { text, hint }
    }
}

impl Moment {
    /// Reads a moment: an index of the log, an RFC 3339 time, or a duration back from `now` (Unix
    /// nanoseconds), as in `-5m`. A time that Unix nanoseconds cannot hold, which no event has, is
    /// the first or the last that they can.
    ///
    /// # Errors
    /// A text in none of these forms.
    pub fn parse(text: &str, now: i64) -> Result<Self, NoMoment> {
        let bad = || NoMoment::new(text);
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Index).map_err(|_| bad());
        }
        if let Some(back) = text.strip_prefix('-') {
            let back = parse_duration(back).filter(|back| *back >= 0);
            return Ok(Self::Time(now.saturating_sub(back.ok_or_else(bad)?)));
        }
        let time: jiff::Timestamp = text.parse().map_err(|_| bad())?;
        let nanos = time.as_nanosecond();
        let beyond = if nanos < 0 { i64::MIN } else { i64::MAX };
        Ok(Self::Time(i64::try_from(nanos).unwrap_or(beyond)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_index_a_time_or_a_duration_back() {
        let minute = 60_000_000_000;
        for (text, wanted) in [
            ("0", Moment::Index(0)),
            ("812", Moment::Index(812)),
            ("-5m", Moment::Time(10 * minute - 5 * minute)),
            ("-1m30s", Moment::Time(10 * minute - 90_000_000_000)),
            ("1970-01-01T00:01:00Z", Moment::Time(minute)),
            ("1970-01-01T01:01:00+01:00", Moment::Time(minute)),
            ("1600-01-01T00:00:00Z", Moment::Time(i64::MIN)),
            ("2500-01-01T00:00:00Z", Moment::Time(i64::MAX)),
        ] {
            assert_eq!(Moment::parse(text, 10 * minute), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "--5m",
            "-",
            "99999999999999999999",
            "1.5",
            "5m",
            "2024-13-01",
        ] {
            let error = Moment::parse(text, 0).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} is neither")),
                "{error}"
            );
            assert_eq!(
                error.ends_with("did you mean -5m?"),
                text == "5m",
                "{error}"
            );
        }
    }
}
