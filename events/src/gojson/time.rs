//! Instants as Go prints them.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Zero;

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
const GO_ZERO: &str = "0001-01-01T00:00:00Z";

/// An instant in nanoseconds since the Unix epoch, UTC; 0 is Go's zero time.
///
/// JSON: RFC 3339 with as many decimals as needed, the zero time as `null`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// A [`Time`] whose zero is printed as year 1, as types with their own encoder do in Go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoTime(pub i64);

impl Time {
    /// The zero time.
    pub const ZERO: Self = Self(0);

    /// An instant from whole seconds since the Unix epoch.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(NANOS))
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// True for Go's zero time.
    #[must_use]
    pub const fn is_unset(self) -> bool {
        self.0 == 0
    }

    /// The instant a duration in nanoseconds later; saturates.
    #[must_use]
    pub const fn plus(self, nanos: i64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// Reads RFC 3339 text; times outside the years 1678–2261 are refused, year 1 is zero.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == GO_ZERO {
            return Some(Self(0));
        }
        let date = text.get(..10)?;
        let (year, month, day) = (field(date, 0, 4)?, field(date, 5, 2)?, field(date, 8, 2)?);
        let clock = text.get(10..)?;
        let separators = [
            (date, 4, b'-'),
            (date, 7, b'-'),
            (clock, 3, b':'),
            (clock, 6, b':'),
        ];
        if separators
            .iter()
            .any(|(s, i, b)| s.as_bytes().get(*i) != Some(b))
        {
            return None;
        }
        if !matches!(clock.as_bytes().first(), Some(b'T' | b't' | b' ')) {
            return None;
        }
        let (hour, minute, second) = (
            field(clock, 1, 2)?,
            field(clock, 4, 2)?,
            field(clock, 7, 2)?,
        );
        let (nanos, zone) = fraction(clock.get(9..)?)?;
        let valid = (1..=12).contains(&month)
            && (1..=days_in(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !valid {
            return None;
        }
        let days = days_from_civil(year, month, day);
        let secs = days * DAY + hour * 3600 + minute * 60 + second - offset(zone)?;
        secs.checked_mul(NANOS)?.checked_add(nanos).map(Self)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.div_euclid(NANOS);
        let nanos = self.0.rem_euclid(NANOS);
        let (year, month, day) = civil_from_days(secs.div_euclid(DAY));
        let rest = secs.rem_euclid(DAY);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if nanos != 0 {
            let digits = format!("{nanos:09}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// A run of decimal digits at a place of fixed width.
fn field(text: &str, start: usize, len: usize) -> Option<i64> {
    let digits = text.get(start..start + len)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The decimals after the seconds in nanoseconds, and what follows them.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix(['.', ',']) else {
        return Some((0, text));
    };
    let len = rest.bytes().take_while(u8::is_ascii_digit).count();
    if len == 0 {
        return None;
    }
    let mut nanos = 0_i64;
    for i in 0..9 {
        let digit = rest
            .as_bytes()
            .get(i)
            .filter(|_| i < len)
            .map_or(0, |b| b - b'0');
        nanos = nanos * 10 + i64::from(digit);
    }
    Some((nanos, &rest[len..]))
}

/// A zone (`Z` or `+hh:mm`) in seconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    if zone.len() != 6 || zone.as_bytes()[3] != b':' {
        return None;
    }
    let (hours, minutes) = (field(zone, 1, 2)?, field(zone, 4, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date of the proleptic Gregorian calendar.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

struct TimeVisitor;

impl<'de> Visitor<'de> for TimeVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time (RFC 3339)")
    }

    fn visit_none<E: de::Error>(self) -> Result<i64, E> {
        Ok(0)
    }

    fn visit_unit<E: de::Error>(self) -> Result<i64, E> {
        Ok(0)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<i64, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(self)
        } else {
            deserializer.deserialize_i64(self)
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::custom("time out of range"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
        Time::parse(text)
            .map(|t| t.0)
            .ok_or_else(|| E::custom(format_args!("cannot parse {text:?} as an RFC 3339 time")))
    }
}

macro_rules! time_codec {
    ($name:ident, $zero:expr) => {
        impl Zero for $name {
            fn is_zero(&self) -> bool {
                self.0 == 0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if !serializer.is_human_readable() {
                    return serializer.serialize_i64(self.0);
                }
                match (self.0, $zero) {
                    (0, None::<&str>) => serializer.serialize_none(),
                    (0, Some(text)) => serializer.serialize_str(text),
                    _ => serializer.collect_str(&Time(self.0)),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_option(TimeVisitor).map(Self)
            }
        }
    };
}

time_codec!(Time, None);
time_codec!(GoTime, Some(GO_ZERO));
