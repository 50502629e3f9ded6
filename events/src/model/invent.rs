//! Values of any model type out of a string of bytes, for property tests: a deserialiser that makes
//! up the values that are read.

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

type Error = de::value::Error;

/// Makes up a value; the same bytes give the same value.
pub(super) fn invent<T: de::DeserializeOwned>(bytes: &[u8], human: bool) -> T {
    let mut source = Inventor {
        bytes,
        at: 0,
        depth: 0,
        human,
    };
    T::deserialize(&mut source).unwrap()
}

struct Inventor<'b> {
    bytes: &'b [u8],
    at: usize,
    depth: usize,
    human: bool,
}

impl Inventor<'_> {
    /// The next byte; zeros once they run out, so that everything ends.
    fn next(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        byte
    }

    fn number(&mut self) -> i64 {
        let byte = self.next();
        match byte % 4 {
            0 => 0,
            1 => i64::from(byte / 4),
            _ => i64::from_le_bytes(std::array::from_fn(|_| self.next())),
        }
    }

    fn text(&mut self) -> String {
        let len = usize::from(self.next() % 6);
        (0..len)
            .map(|_| char::from_u32(u32::from(self.next()) * 5).unwrap_or('x'))
            .collect()
    }

    fn len(&mut self) -> usize {
        if self.depth > 6 {
            0
        } else {
            usize::from(self.next() % 3)
        }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $t:ty),*) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.number() as $t)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Inventor<'_> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        self.human
    }

    numbers!(
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64
    );

    /// Only free-form values accept any type.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.next() % 4 {
            0 => visitor.visit_bool(true),
            1 => visitor.visit_i64(self.number()),
            2 => visitor.visit_string(self.text()),
            _ => self.deserialize_seq(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.next() % 2 == 1)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.number() as f64 / 8.0)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_byte_buf(self.text().into_bytes())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.depth > 8 || self.next().is_multiple_of(3) {
            return visitor.visit_none();
        }
        self.depth += 1;
        let value = visitor.visit_some(&mut *self);
        self.depth -= 1;
        value
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.len();
        self.depth += 1;
        let value = visitor.visit_seq(Parts {
            source: self,
            left,
            fields: None,
        });
        self.depth -= 1;
        value
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.len();
        self.depth += 1;
        let value = visitor.visit_map(Parts {
            source: self,
            left,
            fields: None,
        });
        self.depth -= 1;
        value
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Parts {
            source: self,
            left: fields.len(),
            fields: Some(fields),
        })
    }

    forward_to_deserialize_any! {
        i128 u128 f32 char byte_buf unit unit_struct newtype_struct tuple tuple_struct enum
        identifier ignored_any
    }
}

struct Parts<'s, 'b> {
    source: &'s mut Inventor<'b>,
    left: usize,
    fields: Option<&'static [&'static str]>,
}

impl<'de> de::SeqAccess<'de> for Parts<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.source).map(Some)
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let key = match self.fields {
            Some(fields) => fields[fields.len() - 1 - self.left].to_owned(),
            None => self.source.text(),
        };
        let key: StrDeserializer<'_, Error> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.source)
    }
}
