//! Numbers that a reader with doubles would change: integers beyond ±2^53, as texts.
//!
//! Times are Unix nanoseconds, which doubles round to 256 of them, and JSON says nothing of how
//! exact a number is. On request each such integer is written as a text with the same digits; what
//! is within ±2^53 stays a number, and a value's type follows from its size alone.

/// The largest integer up to which doubles hold every one.
pub const EXACT: u64 = 1 << 53;

/// How integers beyond [`EXACT`] are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// As numbers.
    #[default]
    Plain,
    /// As texts.
    Strings,
}

/// What [`Numbers`] are called.
pub const NAMES: [&str; 2] = ["plain", "strings"];

impl Numbers {
    /// By name; nothing is [`Numbers::Plain`].
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "" | "plain" => Some(Self::Plain),
            "strings" => Some(Self::Strings),
            _ => None,
        }
    }

    /// Writes JSON (one value, or several with anything between them that is not JSON) behind what
    /// is in `out`.
    pub fn copy(self, json: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Plain => out.extend_from_slice(json),
            Self::Strings => quote(json, out),
        }
    }

    /// The same of what stands in `out` from `start` on.
    pub fn rewrite(self, out: &mut Vec<u8>, start: usize) {
        if self == Self::Strings {
            let json = out.split_off(start);
            quote(&json, out);
        }
    }
}

fn quote(json: &[u8], out: &mut Vec<u8>) {
    out.reserve(json.len() + 64);
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        let end = match byte {
            b'"' => end_of_text(json, at + 1),
            b'-' | b'0'..=b'9' => {
                let end = end_of_number(json, at);
                if is_inexact(&json[at..end]) {
                    out.push(b'"');
                    out.extend_from_slice(&json[at..end]);
                    out.push(b'"');
                    at = end;
                    continue;
                }
                end
            }
            _ => at + 1,
        };
        out.extend_from_slice(&json[at..end]);
        at = end;
    }
}

/// Behind the closing quote of a text whose opening one is before `at`.
fn end_of_text(json: &[u8], mut at: usize) -> usize {
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

fn end_of_number(json: &[u8], at: usize) -> usize {
    let of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let length = json[at..].iter().take_while(|byte| of_number(byte)).count();
    at + length
}

/// Whether a number is an integer beyond what a double holds exactly.
fn is_inexact(number: &[u8]) -> bool {
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    // 2^53 has sixteen digits.
    if digits.len() < 16 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let value = std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    value.is_none_or(|value| value > EXACT)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn integers_beyond_what_doubles_hold_become_texts_and_nothing_else_does() {
        let value = json!({
            "Time": 1_700_000_000_123_456_789_i64, "Below": i64::MIN, "Most": u64::MAX,
            "Exact": EXACT, "More": EXACT + 1, "Index": 42, "Load": 1.5e300, "Part": 0.125,
            "Text": "17000000000001234567 \"1700000000000123456\" \\", "1700000000000123456": [
                -9_007_199_254_740_993_i64, 7, null, true
            ],
        });
        let mut out = b"id: 7\ndata: ".to_vec();
        let start = out.len();
        out.extend(value.to_string().into_bytes());
        Numbers::Strings.rewrite(&mut out, start);
        let reported: Value = serde_json::from_slice(&out[start..]).expect("JSON");
        let mut wanted = value.clone();
        for (name, text) in [
            ("Time", "1700000000123456789"),
            ("Below", "-9223372036854775808"),
            ("Most", "18446744073709551615"),
            ("More", "9007199254740993"),
        ] {
            wanted[name] = text.into();
        }
        wanted["1700000000000123456"][0] = "-9007199254740993".into();
        assert_eq!(reported, wanted);
        let mut plain = Vec::new();
        Numbers::Plain.copy(value.to_string().as_bytes(), &mut plain);
        assert_eq!(
            serde_json::from_slice::<Value>(&plain).expect("JSON"),
            value
        );
    }

    #[test]
    fn what_is_cut_off_is_no_reason_to_fail() {
        for text in ["\"abc", "\"abc\\", "170000000000000000", "-", ""] {
            let mut out = Vec::new();
            Numbers::Strings.copy(text.as_bytes(), &mut out);
            assert!(out.len() >= text.len(), "{text}");
        }
    }
}
