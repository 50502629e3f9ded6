//! How durations are written in JSON: as Go's text, `1h30m0s`, or as a number. In MessagePack
//! always nanoseconds.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Zero;
pub use crate::duration::format as format_duration;

/// A regular expression for what [`format_duration`] prints.
pub(super) const PATTERN: &str = "^-?([0-9.]+(h|m|s|ms|\u{b5}s|ns))+$";

/// Reads a Go duration (`-1.5h`, `300ms`, `1h15m30.918s`, `0`) as nanoseconds; `None` if it is not
/// one. [`crate::duration::parse`] says why it is not.
#[must_use]
pub fn parse_duration(text: &str) -> Option<i64> {
    crate::duration::parse(text).ok()
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration (text or nanoseconds)")
    }

    fn visit_unit<E: de::Error>(self) -> Result<i64, E> {
        Ok(0)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::custom("duration out of range"))
    }

    #[allow(clippy::cast_possible_truncation)]
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<i64, E> {
        if value.abs() < 9.2e18 {
            Ok(value as i64)
        } else {
            Err(E::custom("duration out of range"))
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
        if text.is_empty() {
            return Ok(0);
        }
        parse_duration(text).ok_or_else(|| E::custom(format_args!("invalid duration {text:?}")))
    }
}

macro_rules! duration_type {
    ($(#[$meta:meta])* $name:ident, |$nanos:ident| $text:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl Zero for $name {
            fn is_zero(&self) -> bool {
                self.0 == 0
            }
        }

        impl From<i64> for $name {
            fn from(nanos: i64) -> Self {
                Self(nanos)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $nanos = self.0;
                let text: Option<String> = $text;
                match text {
                    Some(text) if serializer.is_human_readable() => serializer.serialize_str(&text),
                    _ => serializer.serialize_i64(self.0),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    deserializer.deserialize_any(DurationVisitor).map(Self)
                } else {
                    i64::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

duration_type!(
    /// Nanoseconds. JSON: text on output (`0s` when zero), text or a number on input.
    DurationText,
    |nanos| Some(format_duration(nanos))
);
duration_type!(
    /// Nanoseconds. JSON: text on output (`""` when zero), text or a number on input.
    DurationTextOrEmpty,
    |nanos| Some(if nanos == 0 { String::new() } else { format_duration(nanos) })
);
duration_type!(
    /// Nanoseconds. JSON: a number on output, text or a number on input.
    DurationNanos,
    |_nanos| None
);
