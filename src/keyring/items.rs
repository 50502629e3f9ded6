//! A variable's items from their JSON, with nothing of them left in memory that was given back.
//!
//! The reader of JSON takes a text with an escape apart in a buffer of its own, which it gives back
//! as it is. Here it only checks the form and says where each text lies; what a text says is put
//! together in memory that goes to the caller, or is cleared.

use std::collections::BTreeMap;
use std::mem::take;
use std::str::Chars;

use drover_events::gojson::Map;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::value::RawValue;
use zeroize::ZeroizeOnDrop;

/// A text of the items, until it is handed on.
#[derive(PartialEq, Eq, PartialOrd, Ord, ZeroizeOnDrop)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: &RawValue = Deserialize::deserialize(deserializer)?;
        unescaped(raw.get()).ok_or_else(|| D::Error::custom("an item is no text"))
    }
}

/// The items that a JSON document holds.
pub(super) fn read(json: &[u8]) -> serde_json::Result<Map<String>> {
    let texts: Option<BTreeMap<Text, Text>> = serde_json::from_slice(json)?;
    let Some(texts) = texts else {
        return Ok(Map::nil());
    };
    let items = texts.into_iter();
    let items = items.map(|(mut name, mut value)| (take(&mut name.0), take(&mut value.0)));
    Ok(items.collect())
}

/// What a JSON text says, whose form was checked; `None` where it is no text, or half a character.
fn unescaped(raw: &str) -> Option<Text> {
    let mut rest = raw.strip_prefix('"')?.strip_suffix('"')?;
    // No escape is shorter than what it stands for: the text never moves to a larger place.
    let mut text = Text(String::with_capacity(rest.len()));
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.0.push_str(plain);
        let mut chars = escape.chars();
        text.0.push(match chars.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => by_number(&mut chars)?,
            itself => itself,
        });
        rest = chars.as_str();
    }
    text.0.push_str(rest);
    Some(text)
}

/// The character whose number follows, in one half or two.
fn by_number(chars: &mut Chars<'_>) -> Option<char> {
    let first = half(chars)?;
    if let Some(Ok(whole)) = char::decode_utf16([first]).next() {
        return Some(whole);
    }
    *chars = chars.as_str().strip_prefix("\\u")?.chars();
    let second = half(chars)?;
    char::decode_utf16([first, second]).next()?.ok()
}

fn half(chars: &mut Chars<'_>) -> Option<u16> {
    let (digits, rest) = chars.as_str().split_at_checked(4)?;
    *chars = rest.chars();
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_read_as_the_reader_of_json_reads_them() {
        for json in [
            "null",
            "{}",
            r#" { "a" : "b" , "" : "" } "#,
            r#"{"a\nb":"-----BEGIN\r\n\"x\"\t\\n\/\b\f-----"}"#,
            r#"{"a":"\u00e4\u20AC\ud83d\ude00 ä€😀 \u0000"}"#,
            r#"{"a":"1","\u0061":"2"}"#,
            // Half a character, the other half first, twice the same half.
            r#"{"a":"\ud83d"}"#,
            r#"{"a":"\ud83dx"}"#,
            r#"{"a":"\ud83d\n"}"#,
            r#"{"a":"\ude00\ud83d"}"#,
            r#"{"a":"\ud83d\ud83d"}"#,
            r#"{"a":"\u12"}"#,
            r#"{"a":"\x41"}"#,
            r#"{"a":"b}"#,
            r#"{"a":1}"#,
            r#"{"a":null}"#,
            r#"{"a":["b"]}"#,
            r#"{"a":"b"} x"#,
            r#"["a"]"#,
            r#""a""#,
            "{\"a\":\"b\nc\"}",
            "",
        ] {
            let expected: Option<Map<String>> = serde_json::from_str(json).ok();
            assert_eq!(read(json.as_bytes()).ok(), expected, "{json}");
        }
        assert!(read(b"{\"a\":\"\xff\"}").is_err());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            items in prop::collection::btree_map("(?s).*", "(?s).*", 0..8),
        ) {
            let items = Map::from(items);
            let json = serde_json::to_vec(&items).expect("texts can be written");
            prop_assert_eq!(read(&json).expect("it was just written"), items);
        }
    }
}
