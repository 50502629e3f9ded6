//! Any MessagePack value as plain JSON: what is stored, with nothing added and nothing left out.
//!
//! Defaults are not stored, so a new optional field does not change what this shows.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The one MessagePack value in `bytes`, as JSON; byte strings are shown in hexadecimal.
///
/// # Errors
/// When the bytes are no single MessagePack value.
pub(super) fn to_json(bytes: &[u8]) -> Result<Value, drover_events::CodecError> {
    drover_events::codec::decode_payload::<Plain>(bytes).map(|plain| plain.0)
}

struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor).map(Plain)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<Value, E> {
        Ok(hex::encode(value).into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Plain(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((Plain(key), Plain(value))) = map.next_entry()? {
            let key = match key {
                Value::String(text) => text,
                other => other.to_string(),
            };
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_is_stored() {
        // {"a": [1, -2, true, nil, bin 0x0aff], 7: 1.5}
        let bytes = b"\x82\xa1a\x95\x01\xfe\xc3\xc0\xc4\x02\x0a\xff\x07\xcb\x3f\xf8\0\0\0\0\0\0";
        let value = to_json(bytes).unwrap();
        assert_eq!(
            value.to_string(),
            r#"{"7":1.5,"a":[1,-2,true,null,"0aff"]}"#
        );
    }

    #[test]
    fn half_a_value_is_an_error() {
        assert!(to_json(b"\x82\xa1a").is_err());
        assert!(to_json(b"").is_err());
        assert!(to_json(b"\xc0\xc0").is_err());
    }
}
