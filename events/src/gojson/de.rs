//! Reading JSON as Go's decoder does.
//!
//! The adaptor streams over `serde_json`: keys match in any case, `null` is the zero value,
//! unknown keys are skipped, an error names the field it happened in. Nothing is buffered. The
//! depth limit is that of `serde_json` (128).

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::Unknown;
use super::de_access::{Nullable, ValueKind};

/// Why a body is not the type that is read.
#[derive(Debug)]
pub struct GoJsonError {
    path: String,
    source: serde_json::Error,
}

impl GoJsonError {
    /// The field the error happened in (`Job.TaskGroups[0].Count`), empty at the top.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether it is JSON, but not the type that is read.
    #[must_use]
    pub fn is_data(&self) -> bool {
        self.source.is_data()
    }
}

impl fmt::Display for GoJsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "{}", self.source)
        } else {
            write!(f, "{}: {}", self.path, self.source)
        }
    }
}

impl std::error::Error for GoJsonError {
    /// The cause behind the reader's words, which are shown with the field.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.source)
    }
}

/// Reads a JSON document as Go would; the top level may be `null`.
///
/// # Errors
/// Malformed JSON, a value of the wrong type or out of its range, too deep nesting.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, GoJsonError> {
    document(bytes, &Track::default())
}

/// The same, with the paths of what says something and is no field, as far as they are kept.
///
/// # Errors
/// As [`from_slice`].
pub fn from_slice_naming<T: DeserializeOwned>(
    bytes: &[u8],
) -> Result<(T, Vec<String>), GoJsonError> {
    let track = Track {
        unknown: Some(RefCell::default()),
        ..Track::default()
    };
    let value = document(bytes, &track)?;
    let unknown = track.unknown.unwrap_or_default().into_inner();
    Ok((value, unknown.paths("")))
}

fn document<T: DeserializeOwned>(bytes: &[u8], track: &Track) -> Result<T, GoJsonError> {
    let mut inner = serde_json::Deserializer::from_slice(bytes);
    let read = T::deserialize(Adaptor {
        inner: &mut inner,
        track,
    });
    read.and_then(|value| inner.end().map(|()| value))
        .map_err(|source| GoJsonError {
            path: track.path(),
            source,
        })
}

/// Reads a JSON value that is in memory already, as [`from_slice`] reads its text; texts in it are
/// moved, not copied.
///
/// # Errors
/// A value of the wrong type or out of its range.
pub fn from_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, GoJsonError> {
    in_memory(value)
}

/// The same of a value that stays.
///
/// # Errors
/// As [`from_value`].
pub fn from_value_ref<T: DeserializeOwned>(value: &serde_json::Value) -> Result<T, GoJsonError> {
    in_memory(value)
}

fn in_memory<'de, T, D>(value: D) -> Result<T, GoJsonError>
where
    T: DeserializeOwned,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let track = Track::default();
    let read = T::deserialize(Adaptor {
        inner: value,
        track: &track,
    });
    read.map_err(|source| GoJsonError {
        path: track.path(),
        source,
    })
}

/// A step on the way to a value.
pub(super) enum PathStep {
    Field(String),
    Index(usize),
}

/// What is known of a document on the way through it.
#[derive(Default)]
pub(super) struct Track {
    /// The way to the value that failed, innermost step first.
    failed: RefCell<Vec<PathStep>>,
    /// What is no field, where the caller wants to know.
    unknown: Option<RefCell<Unknown>>,
}

impl Track {
    pub(super) fn push(&self, step: PathStep) {
        self.failed.borrow_mut().push(step);
    }

    /// Whether the caller wants to know what is no field.
    pub(super) fn names_unknown(&self) -> bool {
        self.unknown.is_some()
    }

    /// Something says something and is no field.
    pub(super) fn add_unknown(&self, name: &str) {
        if let Some(unknown) = &self.unknown {
            unknown.borrow_mut().add(name);
        }
    }

    /// Reads what lies under a step.
    pub(super) fn under<T>(&self, step: impl Fn() -> String, read: impl FnOnce() -> T) -> T {
        let Some(unknown) = &self.unknown else {
            return read();
        };
        let before = unknown.borrow().count();
        let done = read();
        unknown.borrow_mut().were_under(before, step);
        done
    }

    fn path(&self) -> String {
        let mut out = String::new();
        for step in self.failed.borrow().iter().rev() {
            match step {
                PathStep::Field(name) if out.is_empty() => out.push_str(name),
                PathStep::Field(name) => {
                    out.push('.');
                    out.push_str(name);
                }
                // Writing into a String cannot fail.
                PathStep::Index(i) => drop(write!(out, "[{i}]")),
            }
        }
        out
    }
}

/// A deserialiser that reads as Go does, over one that does not.
pub(super) struct Adaptor<'t, D> {
    pub(super) inner: D,
    pub(super) track: &'t Track,
}

macro_rules! nullable {
    ($($method:ident => $kind:ident),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.deserialize_option(Nullable {
                visitor,
                kind: ValueKind::$kind,
                track: self.track,
            })
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Adaptor<'_, D> {
    type Error = D::Error;

    nullable! {
        deserialize_bool => Bool,
        deserialize_i8 => I64,
        deserialize_i16 => I64,
        deserialize_i32 => I64,
        deserialize_i64 => I64,
        deserialize_u8 => U64,
        deserialize_u16 => U64,
        deserialize_u32 => U64,
        deserialize_u64 => U64,
        deserialize_f32 => F64,
        deserialize_f64 => F64,
        deserialize_char => Str,
        deserialize_str => Str,
        deserialize_string => Str,
        deserialize_bytes => Bytes,
        deserialize_byte_buf => Bytes,
        deserialize_option => Option,
        deserialize_seq => Seq,
        deserialize_map => Map,
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Nullable {
            visitor,
            kind: ValueKind::Struct(fields),
            track: self.track,
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    forward_to_deserialize_any! { i128 u128 unit unit_struct identifier }
}
