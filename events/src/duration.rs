//! Durations in the notation of Go's standard library: `1h30m`, `250ms`, `-1.5s`.

use std::fmt::Write;

/// Why a text is not a duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DurationError {
    /// Not a number with a unit.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit that does not exist.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unknown unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration, in nanoseconds.
///
/// # Errors
/// With the texts of Go's `time.ParseDuration`, since users know them.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let unit_end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            });
        };
        let part = part(whole, fraction, *scale).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

fn part(whole: &str, fraction: &str, scale: i128) -> Option<i128> {
    let number = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<i128>().ok(),
    };
    // More decimals than these change no nanosecond, and fewer than 19 of them times the scale of
    // hours do not overflow.
    let digits = &fraction[..fraction.len().min(18)];
    let divisor = 10i128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let fraction = number(digits)?.checked_mul(scale)? / divisor;
    number(whole)?.checked_mul(scale)?.checked_add(fraction)
}

/// Writes nanoseconds as Go's `Duration.String` does: `1h30m0s`, `1.5s`, `250ms`, `0s`.
pub fn format(ns: i64) -> String {
    if ns == 0 {
        return "0s".into();
    }
    let mut out = String::new();
    if ns < 0 {
        out.push('-');
    }
    let abs = ns.unsigned_abs();
    let (unit, scale) = match abs {
        0..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    if scale < 1_000_000_000 {
        out.push_str(&decimal(abs, scale));
        out.push_str(unit);
        return out;
    }
    let seconds = abs / scale;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    if hours > 0 {
        let _ = write!(out, "{hours}h");
    }
    if seconds >= 60 {
        let _ = write!(out, "{minutes}m");
    }
    out.push_str(&decimal(abs - (seconds - seconds % 60) * scale, scale));
    out.push('s');
    out
}

fn decimal(value: u64, scale: u64) -> String {
    let mut text = (value / scale).to_string();
    let rest = value % scale;
    if rest > 0 {
        let width = scale.ilog10() as usize;
        let _ = write!(text, ".{}", format!("{rest:0width$}").trim_end_matches('0'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_as_go_does() {
        for (text, ns, back) in [
            ("0", 0, "0s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("-250ms", -250_000_000, "-250ms"),
            ("1us", 1_000, "1µs"),
            (".5m", 30_000_000_000, "30s"),
            ("24h", 86_400_000_000_000, "24h0m0s"),
            ("1m0.25s", 60_250_000_000, "1m0.25s"),
            // Zeros in front and decimals below a nanosecond change nothing.
            ("000000000000000000000003s", 3_000_000_000, "3s"),
            ("0.000000000009h", 32, "32ns"),
            ("1.0000000000000000000000009s", 1_000_000_000, "1s"),
            (
                "2562047h47m16.854775807s",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
        ] {
            assert_eq!(parse(text), Ok(ns), "{text}");
            assert_eq!(format(ns), back, "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "-",
            "3",
            "1x",
            "s",
            "1.s.",
            "1..2s",
            "9999999999h",
            "1h 3m",
            "99999999999999999999999s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(
            parse("3").unwrap_err().to_string(),
            "time: missing unit in duration \"3\""
        );
    }
}
