//! JSON of our own, however deep.
//!
//! `serde_json` reads 128 levels. A document of the log has more where a job has nearly as many and
//! was written when that was no reason to refuse it: it is read piece by piece then.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Error, Map, Value};

/// Levels of one piece.
const PIECE: usize = 100;

/// The value of a text. Only for what this program wrote: nothing else bounds how deep it is.
///
/// # Errors
/// No JSON.
pub fn value(text: &[u8]) -> Result<Value, Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Levels(PIECE).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// So many levels as they are read, and what lies below as a piece of its own.
#[derive(Clone, Copy)]
struct Levels(usize);

impl<'de> DeserializeSeed<'de> for Levels {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        if self.0 > 0 {
            return from.deserialize_any(self);
        }
        let piece = <&RawValue as serde::Deserialize>::deserialize(from)?;
        value(piece.get().as_bytes()).map_err(D::Error::custom)
    }
}

impl<'de> Visitor<'de> for Levels {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(one) = from.next_element_seed(Self(self.0 - 1))? {
            list.push(one);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            fields.insert(name, from.next_value_seed(Self(self.0 - 1))?);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_reads_what_serde_json_reads_and_what_is_deeper() {
        let all = json!({
            "a": [null, true, false, -1, u64::MAX, 1.5, "\u{e9}\n", [], {}, [[{"b": [1]}]]],
        });
        let depths = [
            0,
            1,
            PIECE - 1,
            PIECE,
            PIECE + 1,
            127,
            128,
            150,
            2 * PIECE + 7,
        ];
        for depth in depths {
            let levels = |inner: Value, at: usize| match at % 2 {
                0 => json!({ "x": inner, "y": at }),
                _ => json!([at, inner]),
            };
            let deep = (0..depth).fold(all.clone(), levels);
            let text = deep.to_string();
            assert_eq!(value(text.as_bytes()).unwrap(), deep, "{depth}");
            let shallow = serde_json::from_str::<Value>(&text);
            assert_eq!(shallow.is_ok(), depth < 122, "{depth}: {shallow:?}");
        }
        for none in ["", "{", "[1,]", "1 2", "nul", "{\"a\":}"] {
            assert!(value(none.as_bytes()).is_err(), "{none}");
        }
    }
}
