//! Reading one field of a row.
//!
//! [`Fields`] is what a filter sees of a row. Every `Serialize` type has it: a serializer follows
//! the path through structs, maps and lists, skips all other fields without visiting them, and
//! stops at the selected one. Of a list or a map it keeps one level, which is all that any operator
//! needs.

use std::fmt;

use serde::ser::{self, Impossible, Serialize, Serializer};

use super::coerce;

/// What a selector found.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: an absent pointer.
    Nil,
    /// An absent list: empty and nil at once.
    NilList,
    /// An absent map: empty and nil at once.
    NilMap,
    /// A field that the row's serialiser left out, so its type is unknown: it is the zero value of
    /// whatever type it is compared as.
    Absent,
    /// A truth value.
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// An unsigned number.
    Uint(u64),
    /// A number in single precision.
    Float32(f32),
    /// A number in double precision.
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// A list; elements that have parts of their own are [`Value::Struct`].
    List(Vec<Value>),
    /// A map's keys.
    Map(Vec<String>),
    /// Something with named parts.
    Struct,
}

impl Value {
    /// The kind's name for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Nil | Value::Absent => "nil",
            Value::NilList | Value::List(_) => "slice",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int64",
            Value::Uint(_) => "uint64",
            Value::Float32(_) => "float32",
            Value::Float(_) => "float64",
            Value::Text(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::NilMap | Value::Map(_) => "map",
            Value::Struct => "struct",
        }
    }
}

/// The answer to a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// The value at its end.
    Found(Value),
    /// The last part names a key that its map does not hold: every operator has an answer for that.
    MissingKey,
}

/// Why a path has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No field or key of that name.
    #[error("couldn't find key: struct field with name {0:?}")]
    Unknown(String),
    /// The path continues through something that has no parts.
    #[error("invalid value kind: {0}")]
    NoParts(&'static str),
    /// An index beyond the list.
    #[error("index {index} is out of range (length = {length})")]
    OutOfRange {
        /// The requested index.
        index: i64,
        /// The list's length.
        length: usize,
    },
    /// A list needs a number.
    #[error("couldn't convert {0:?} to an index")]
    NotAnIndex(String),
    /// The row cannot be read in this way.
    #[error("{0}")]
    Unreadable(String),
}

impl ser::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        ReadError::Unreadable(message.to_string())
    }
}

/// A row as filters see it.
pub trait Fields {
    /// Follows `path`, whose parts are names, keys or list indexes.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read(&self, path: &[String]) -> Result<Lookup, ReadError>;
}

impl<T: Serialize + ?Sized> Fields for T {
    fn read(&self, path: &[String]) -> Result<Lookup, ReadError> {
        self.serialize(ValueReader {
            path,
            absent: Value::Nil,
        })
    }
}

/// Walks `path` from the value it is given.
struct ValueReader<'p> {
    path: &'p [String],
    /// What "nothing" means here: the model's nullable lists and maps announce themselves by name.
    absent: Value,
}

impl<'p> ValueReader<'p> {
    fn leaf(self, kind: &'static str, value: impl FnOnce() -> Value) -> Result<Lookup, ReadError> {
        if self.path.is_empty() {
            Ok(Lookup::Found(value()))
        } else {
            Err(ReadError::NoParts(kind))
        }
    }

    fn deeper(path: &'p [String]) -> Self {
        ValueReader {
            path,
            absent: Value::Nil,
        }
    }
}

type Refused = Impossible<Lookup, ReadError>;

fn refused<T>() -> Result<T, ReadError> {
    Err(ReadError::Unreadable(
        "the value has a form that filters cannot read".to_owned(),
    ))
}

impl<'p> Serializer for ValueReader<'p> {
    type Ok = Lookup;
    type Error = ReadError;
    type SerializeSeq = ListReader<'p>;
    type SerializeTuple = ListReader<'p>;
    type SerializeTupleStruct = ListReader<'p>;
    type SerializeTupleVariant = Refused;
    type SerializeMap = MapReader<'p>;
    type SerializeStruct = StructReader<'p>;
    type SerializeStructVariant = Refused;

    fn serialize_bool(self, v: bool) -> Result<Lookup, ReadError> {
        self.leaf("bool", || Value::Bool(v))
    }
    fn serialize_i8(self, v: i8) -> Result<Lookup, ReadError> {
        self.serialize_i64(i64::from(v))
    }
    fn serialize_i16(self, v: i16) -> Result<Lookup, ReadError> {
        self.serialize_i64(i64::from(v))
    }
    fn serialize_i32(self, v: i32) -> Result<Lookup, ReadError> {
        self.serialize_i64(i64::from(v))
    }
    fn serialize_i64(self, v: i64) -> Result<Lookup, ReadError> {
        self.leaf("int64", || Value::Int(v))
    }
    fn serialize_u8(self, v: u8) -> Result<Lookup, ReadError> {
        self.serialize_u64(u64::from(v))
    }
    fn serialize_u16(self, v: u16) -> Result<Lookup, ReadError> {
        self.serialize_u64(u64::from(v))
    }
    fn serialize_u32(self, v: u32) -> Result<Lookup, ReadError> {
        self.serialize_u64(u64::from(v))
    }
    fn serialize_u64(self, v: u64) -> Result<Lookup, ReadError> {
        self.leaf("uint64", || Value::Uint(v))
    }
    fn serialize_f32(self, v: f32) -> Result<Lookup, ReadError> {
        self.leaf("float32", || Value::Float32(v))
    }
    fn serialize_f64(self, v: f64) -> Result<Lookup, ReadError> {
        self.leaf("float64", || Value::Float(v))
    }
    fn serialize_char(self, v: char) -> Result<Lookup, ReadError> {
        self.leaf("string", || Value::Text(v.to_string()))
    }
    fn serialize_str(self, v: &str) -> Result<Lookup, ReadError> {
        self.leaf("string", || Value::Text(v.to_owned()))
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<Lookup, ReadError> {
        if self.path.is_empty() {
            return Ok(Lookup::Found(Value::Bytes(v.to_vec())));
        }
        let mut bytes = ListReader::new(self.path, None)?;
        v.iter().try_for_each(|byte| bytes.item(byte))?;
        bytes.finish()
    }
    fn serialize_none(self) -> Result<Lookup, ReadError> {
        match (&self.absent, self.path.len()) {
            (_, 0) => Ok(Lookup::Found(self.absent)),
            (Value::NilMap, 1) => Ok(Lookup::MissingKey),
            _ => Err(ReadError::NoParts("nil")),
        }
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Lookup, ReadError> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<Lookup, ReadError> {
        self.serialize_none()
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<Lookup, ReadError> {
        self.serialize_none()
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Lookup, ReadError> {
        self.serialize_str(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        mut self,
        name: &'static str,
        value: &T,
    ) -> Result<Lookup, ReadError> {
        match name {
            "List" => self.absent = Value::NilList,
            "Map" => self.absent = Value::NilMap,
            _ => {}
        }
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Lookup, ReadError> {
        refused()
    }
    fn serialize_seq(self, length: Option<usize>) -> Result<ListReader<'p>, ReadError> {
        ListReader::new(self.path, length)
    }
    fn serialize_tuple(self, length: usize) -> Result<ListReader<'p>, ReadError> {
        ListReader::new(self.path, Some(length))
    }
    fn serialize_tuple_struct(
        self,
        _: &'static str,
        length: usize,
    ) -> Result<ListReader<'p>, ReadError> {
        ListReader::new(self.path, Some(length))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Refused, ReadError> {
        refused()
    }
    fn serialize_map(self, _: Option<usize>) -> Result<MapReader<'p>, ReadError> {
        let keys = Vec::new();
        Ok(MapReader {
            path: self.path,
            keys,
            wanted: false,
            found: None,
        })
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<StructReader<'p>, ReadError> {
        Ok(StructReader {
            path: self.path,
            found: None,
        })
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Refused, ReadError> {
        refused()
    }
}

/// A list: keeps its elements, or descends into one of them.
struct ListReader<'p> {
    path: &'p [String],
    wanted: i64,
    seen: usize,
    items: Vec<Value>,
    found: Option<Lookup>,
}

impl<'p> ListReader<'p> {
    fn new(path: &'p [String], length: Option<usize>) -> Result<Self, ReadError> {
        let wanted = match path.first() {
            Some(part) => coerce::index(part).map_err(|_| ReadError::NotAnIndex(part.clone()))?,
            None => -1,
        };
        let space = if path.is_empty() {
            length.unwrap_or(0).min(4096)
        } else {
            0
        };
        Ok(ListReader {
            path,
            wanted,
            seen: 0,
            items: Vec::with_capacity(space),
            found: None,
        })
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ReadError> {
        let index = self.seen;
        self.seen += 1;
        match self.path.split_first() {
            None => match value.serialize(ValueReader::deeper(&[]))? {
                Lookup::Found(Value::List(_) | Value::Map(_) | Value::NilList | Value::NilMap) => {
                    self.items.push(Value::Struct);
                }
                Lookup::Found(item) => self.items.push(item),
                Lookup::MissingKey => self.items.push(Value::Nil),
            },
            Some((_, rest)) if i64::try_from(index) == Ok(self.wanted) => {
                self.found = Some(value.serialize(ValueReader::deeper(rest))?);
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Lookup, ReadError> {
        if self.path.is_empty() {
            return Ok(Lookup::Found(Value::List(self.items)));
        }
        self.found.ok_or(ReadError::OutOfRange {
            index: self.wanted,
            length: self.seen,
        })
    }
}

impl ser::SerializeSeq for ListReader<'_> {
    type Ok = Lookup;
    type Error = ReadError;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ReadError> {
        self.item(value)
    }
    fn end(self) -> Result<Lookup, ReadError> {
        self.finish()
    }
}

impl ser::SerializeTuple for ListReader<'_> {
    type Ok = Lookup;
    type Error = ReadError;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ReadError> {
        self.item(value)
    }
    fn end(self) -> Result<Lookup, ReadError> {
        self.finish()
    }
}

impl ser::SerializeTupleStruct for ListReader<'_> {
    type Ok = Lookup;
    type Error = ReadError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ReadError> {
        self.item(value)
    }
    fn end(self) -> Result<Lookup, ReadError> {
        self.finish()
    }
}

/// A map: keeps its keys, or descends into one of its values.
struct MapReader<'p> {
    path: &'p [String],
    keys: Vec<String>,
    /// The key just read is the one that the path names.
    wanted: bool,
    found: Option<Lookup>,
}

impl ser::SerializeMap for MapReader<'_> {
    type Ok = Lookup;
    type Error = ReadError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ReadError> {
        let key = match key.serialize(ValueReader::deeper(&[]))? {
            Lookup::Found(Value::Text(key)) => key,
            Lookup::Found(Value::Int(key)) => key.to_string(),
            Lookup::Found(Value::Uint(key)) => key.to_string(),
            _ => return refused(),
        };
        match self.path.first() {
            Some(part) => self.wanted = *part == key,
            None => self.keys.push(key),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ReadError> {
        if self.wanted && self.found.is_none() {
            let rest = self.path.get(1..).unwrap_or_default();
            self.found = Some(value.serialize(ValueReader::deeper(rest))?);
        }
        Ok(())
    }

    fn end(self) -> Result<Lookup, ReadError> {
        match (self.path, self.found) {
            ([], _) => Ok(Lookup::Found(Value::Map(self.keys))),
            (_, Some(found)) => Ok(found),
            ([_], None) => Ok(Lookup::MissingKey),
            ([part, ..], None) => Err(ReadError::Unknown(part.clone())),
        }
    }
}

/// A struct: descends into the field that the path names.
struct StructReader<'p> {
    path: &'p [String],
    found: Option<Lookup>,
}

impl ser::SerializeStruct for StructReader<'_> {
    type Ok = Lookup;
    type Error = ReadError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), ReadError> {
        if let Some((part, rest)) = self.path.split_first()
            && part == key
        {
            self.found = Some(value.serialize(ValueReader::deeper(rest))?);
        }
        Ok(())
    }

    fn skip_field(&mut self, key: &'static str) -> Result<(), ReadError> {
        match self.path {
            [part] if part == key => self.found = Some(Lookup::Found(Value::Absent)),
            [part, _] if part == key => self.found = Some(Lookup::MissingKey),
            _ => {}
        }
        Ok(())
    }

    fn end(self) -> Result<Lookup, ReadError> {
        match (self.path.first(), self.found) {
            (None, _) => Ok(Lookup::Found(Value::Struct)),
            (_, Some(found)) => Ok(found),
            (Some(part), None) => Err(ReadError::Unknown(part.clone())),
        }
    }
}
