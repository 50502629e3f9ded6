//! Go durations: text such as `1h30m`, and the fields that are text on the wire.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Zero;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A regular expression for what [`format_duration`] prints.
pub(super) const PATTERN: &str = "^-?([0-9.]+(h|m|s|ms|\u{b5}s|ns))+$";

/// Reads a Go duration (`-1.5h`, `300ms`, `1h15m30.918s`, `0`) as nanoseconds.
#[must_use]
pub fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let number = rest
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let (whole, decimals) = rest[..number]
            .split_once('.')
            .unwrap_or((&rest[..number], ""));
        if whole.is_empty() && decimals.is_empty() || decimals.contains('.') {
            return None;
        }
        rest = &rest[number..];
        let unit_len = rest
            .bytes()
            .take_while(|b| !b.is_ascii_digit() && *b != b'.')
            .count();
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == &rest[..unit_len])?;
        rest = &rest[unit_len..];
        let scale = i128::from(*scale);
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        total = total.checked_add(whole.checked_mul(scale)?)?;
        let mut unit = scale;
        for digit in decimals.bytes().take(18) {
            unit /= 10;
            total += i128::from(digit - b'0') * unit;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Prints nanoseconds as Go does: `1h0m0s`, `1.5s`, `200ms`, `0s`.
#[must_use]
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let abs = nanos.unsigned_abs();
    match abs {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{abs}ns"),
        1_000..1_000_000 => format!("{sign}{}\u{b5}s", decimal(abs, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(abs, 1_000_000)),
        _ => {
            let secs = abs / 1_000_000_000;
            let (hours, minutes) = (secs / 3600, secs / 60 % 60);
            let rest = decimal(abs % 60_000_000_000, 1_000_000_000);
            match (hours, minutes) {
                (0, 0) => format!("{sign}{rest}s"),
                (0, m) => format!("{sign}{m}m{rest}s"),
                (h, m) => format!("{sign}{h}h{m}m{rest}s"),
            }
        }
    }
}

/// A quotient with as many decimals as it needs.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.to_string().len() - 1;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
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
    /// Nanoseconds; text on output (`0s` when zero), text or a number on input.
    DurationText,
    |nanos| Some(format_duration(nanos))
);
duration_type!(
    /// Nanoseconds; text on output (`""` when zero), text or a number on input.
    DurationTextOrEmpty,
    |nanos| Some(if nanos == 0 { String::new() } else { format_duration(nanos) })
);
duration_type!(
    /// Nanoseconds; a number on output, text or a number on input.
    DurationNanos,
    |_nanos| None
);
