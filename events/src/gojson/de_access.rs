//! The parts of the adaptor that look inside lists, maps and structs.

use std::fmt;

use serde::de::value::{StrDeserializer, UnitDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

use super::de::{Adaptor, PathStep, Track};
use super::{KeyCursor, KeySeed, Says, Unknown};

/// What a value is read as when it is not `null`.
#[derive(Clone, Copy)]
pub(super) enum ValueKind {
    Bool,
    I64,
    U64,
    F64,
    Str,
    Bytes,
    Option,
    Seq,
    Map,
    Struct(&'static [&'static str]),
}

/// Reads `null` as the zero value of a kind, anything else as that kind.
pub(super) struct Nullable<'t, V> {
    pub(super) visitor: V,
    pub(super) kind: ValueKind,
    pub(super) track: &'t Track,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Nullable<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        match self.kind {
            ValueKind::Bool => self.visitor.visit_bool(false),
            ValueKind::I64 => self.visitor.visit_i64(0),
            ValueKind::U64 => self.visitor.visit_u64(0),
            ValueKind::F64 => self.visitor.visit_f64(0.0),
            ValueKind::Str => self.visitor.visit_borrowed_str(""),
            ValueKind::Bytes => self.visitor.visit_borrowed_bytes(&[]),
            ValueKind::Option => self.visitor.visit_none(),
            ValueKind::Seq => self.visitor.visit_seq(Nothing(std::marker::PhantomData)),
            ValueKind::Map | ValueKind::Struct(_) => {
                self.visitor.visit_map(Nothing(std::marker::PhantomData))
            }
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let Self {
            visitor,
            kind,
            track,
        } = self;
        match kind {
            ValueKind::Bool => inner.deserialize_bool(visitor),
            ValueKind::I64 => inner.deserialize_i64(visitor),
            ValueKind::U64 => inner.deserialize_u64(visitor),
            ValueKind::F64 => inner.deserialize_f64(visitor),
            ValueKind::Str => inner.deserialize_str(visitor),
            ValueKind::Bytes => inner.deserialize_bytes(visitor),
            ValueKind::Option => visitor.visit_some(Adaptor { inner, track }),
            ValueKind::Seq => inner.deserialize_seq(InsideAccess {
                visitor,
                fields: None,
                track,
            }),
            ValueKind::Map => inner.deserialize_map(InsideAccess {
                visitor,
                fields: None,
                track,
            }),
            ValueKind::Struct(fields) => inner.deserialize_map(InsideAccess {
                visitor,
                fields: Some(fields),
                track,
            }),
        }
    }
}

/// Neither an element nor an entry: the inside of `null`.
struct Nothing<E>(std::marker::PhantomData<E>);

impl<'de, E: de::Error> SeqAccess<'de> for Nothing<E> {
    type Error = E;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        _seed: T,
    ) -> Result<Option<T::Value>, E> {
        Ok(None)
    }
}

impl<'de, E: de::Error> MapAccess<'de> for Nothing<E> {
    type Error = E;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, _seed: K) -> Result<Option<K::Value>, E> {
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, _seed: T) -> Result<T::Value, E> {
        Err(E::custom("a value without a key"))
    }
}

/// Hands a list or map to the visitor, with the adaptor around everything in it.
struct InsideAccess<'t, V> {
    visitor: V,
    fields: Option<&'static [&'static str]>,
    track: &'t Track,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for InsideAccess<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(Elements {
            inner,
            index: 0,
            track: self.track,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Entries {
            inner,
            fields: self.fields,
            cursor: KeyCursor::default(),
            key: String::new(),
            field: None,
            track: self.track,
        })
    }
}

struct Elements<'t, A> {
    inner: A,
    index: usize,
    track: &'t Track,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let index = self.index;
        self.index += 1;
        let track = self.track;
        let read = || self.inner.next_element_seed(Wrapped { seed, track });
        track
            .under(|| format!("[{index}]"), read)
            .inspect_err(|_| track.push(PathStep::Index(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

struct Entries<'t, A> {
    inner: A,
    fields: Option<&'static [&'static str]>,
    cursor: KeyCursor,
    key: String,
    field: Option<&'static str>,
    track: &'t Track,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some(fields) = self.fields else {
            let key = &mut self.key;
            return self.inner.next_key_seed(CopyKey { seed, key });
        };
        let seed_of_field = FieldSeed {
            fields,
            cursor: &mut self.cursor,
            unknown: self.track.names_unknown().then_some(&mut self.key),
        };
        let Some(field) = self.inner.next_key_seed(seed_of_field)? else {
            return Ok(None);
        };
        self.field = Some(field);
        let name: StrDeserializer<'_, A::Error> = field.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let track = self.track;
        if self.field == Some("") && track.names_unknown() {
            let (value, says) = self.inner.next_value_seed(Passed(seed))?;
            if says.0 {
                track.add_unknown(&self.key);
            }
            return Ok(value);
        }
        let (field, key) = (self.field, &self.key);
        let step = || match field {
            Some(name) => format!(".{name}"),
            None => format!("[{:?}]", Unknown::name(key)),
        };
        let read = || self.inner.next_value_seed(Wrapped { seed, track });
        track.under(step, read).inspect_err(|_| {
            let name = field.map_or_else(|| key.clone(), str::to_owned);
            track.push(PathStep::Field(name));
        })
    }
}

/// Passes over the value of what is no field; the caller is given nothing.
struct Passed<T>(T);

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Passed<T> {
    type Value = (T::Value, Says);

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<(T::Value, Says), D::Error> {
        let says = Says::deserialize(inner)?;
        let nothing: UnitDeserializer<D::Error> = ().into_deserializer();
        Ok((self.0.deserialize(nothing)?, says))
    }
}

/// Puts the adaptor around a value.
struct Wrapped<'t, T> {
    seed: T,
    track: &'t Track,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Wrapped<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        self.seed.deserialize(Adaptor {
            inner,
            track: self.track,
        })
    }
}

/// Reads a key as the field's own spelling; an unknown key as the empty name.
struct FieldSeed<'a> {
    fields: &'static [&'static str],
    cursor: &'a mut KeyCursor,
    /// Where an unknown one is kept, as far as it is named.
    unknown: Option<&'a mut String>,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<&'static str, D::Error> {
        inner.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldSeed<'_> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<&'static str, E> {
        let found = KeySeed::new(self.fields, self.cursor).find(key);
        if let Some(name) = self.fields.get(found) {
            return Ok(name);
        }
        let other = self.fields.iter().find(|f| f.eq_ignore_ascii_case(key));
        if let (None, Some(unknown)) = (other, self.unknown) {
            unknown.clear();
            unknown.push_str(Unknown::name(key));
        }
        Ok(other.copied().unwrap_or_default())
    }
}

/// Passes a key on and keeps a copy for the error's path.
struct CopyKey<'k, K> {
    seed: K,
    key: &'k mut String,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for CopyKey<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<K::Value, D::Error> {
        self.key.clear();
        inner.deserialize_str(KeyInto(self.key))?;
        let name: StrDeserializer<'_, D::Error> = self.key.as_str().into_deserializer();
        self.seed.deserialize(name)
    }
}

struct KeyInto<'k>(&'k mut String);

impl Visitor<'_> for KeyInto<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
        self.0.push_str(key);
        Ok(())
    }
}
