//! Hides values by their class while they are serialised, in any format.
//!
//! A value is passed on as it is, but for texts and numbers below a field with a [`Class`]: those
//! become what a [`Redact`] shows them as. Shapes, names and empty values stay.

use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Serialize, Serializer};

use crate::class::{Class, Classes};

/// What values with a class are shown as.
pub trait Redact {
    /// What a text (or a number, written as one) of this class is shown as; it is not empty, and
    /// the class is not [`Class::Public`].
    fn text(&self, class: Class, value: &str) -> String;

    /// The class that counts for what stands in a field of a struct, where exports hash it: for
    /// all of it, or where a key is given for what a map in it has under that key. It is not called
    /// for secrets.
    fn class_of(&self, _field: Place, _key: Option<&str>, class: Class) -> Class {
        class
    }
}

/// A struct's name and that of one of its fields, as in the table of classes.
pub type Place = (&'static str, &'static str);

/// Hides nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clear;

impl Redact for Clear {
    fn text(&self, _: Class, value: &str) -> String {
        value.to_owned()
    }
}

/// Leaves out secrets and shows all else.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

impl Redact for NoSecrets {
    fn text(&self, class: Class, value: &str) -> String {
        match class {
            Class::Secret => String::new(),
            Class::Public | Class::Configured | Class::Address | Class::Sensitive => {
                value.to_owned()
            }
        }
    }
}

/// A value that serialises with what has a class hidden.
#[derive(Clone, Copy)]
pub struct Hidden<'a, T: ?Sized> {
    value: &'a T,
    redact: &'a dyn Redact,
    class: Class,
    /// The field that gave the class, for the first map in it.
    place: Option<Place>,
}

impl<'a, T: ?Sized> Hidden<'a, T> {
    /// A value as `redact` shows it.
    pub fn new(value: &'a T, redact: &'a dyn Redact) -> Self {
        Self {
            value,
            redact,
            class: Class::Public,
            place: None,
        }
    }
}

impl<T: Serialize + ?Sized> Serialize for Hidden<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Masking {
            inner: serializer,
            redact: self.redact,
            class: self.class,
            place: self.place,
        })
    }
}

/// A serializer in front of another that hides what has a class.
struct Masking<'r, S> {
    inner: S,
    redact: &'r dyn Redact,
    class: Class,
    place: Option<Place>,
}

macro_rules! leaves {
    ($($method:ident: $type:ty),* $(,)?) => {$(
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            if self.class == Class::Public {
                return self.inner.$method(value);
            }
            self.serialize_str(&value.to_string())
        }
    )*};
}

macro_rules! compounds {
    ($($method:ident($($arg:ident: $type:ty),*) -> $compound:ident;)*) => {$(
        fn $method(self, $($arg: $type),*) -> Result<Self::$compound, S::Error> {
            let Self { inner, redact, class, place } = self;
            let inner = inner.$method($($arg),*)?;
            Ok(Parts { inner, redact, class, place, under: class, classes: Classes::default() })
        }
    )*};
}

impl<'r, S> Masking<'r, S> {
    /// What is passed on as it came.
    fn passed<'a, T: ?Sized>(&self, value: &'a T) -> Hidden<'a, T>
    where
        'r: 'a,
    {
        Hidden {
            value,
            redact: self.redact,
            class: self.class,
            place: self.place,
        }
    }
}

impl<'r, S: Serializer> Serializer for Masking<'r, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Parts<'r, S::SerializeSeq>;
    type SerializeTuple = Parts<'r, S::SerializeTuple>;
    type SerializeTupleStruct = Parts<'r, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Parts<'r, S::SerializeTupleVariant>;
    type SerializeMap = Parts<'r, S::SerializeMap>;
    type SerializeStruct = Parts<'r, S::SerializeStruct>;
    type SerializeStructVariant = Parts<'r, S::SerializeStructVariant>;

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }

    leaves! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_f32: f32, serialize_f64: f64, serialize_char: char,
    }

    /// One of two values says nothing by itself, and its hash would say as much.
    fn serialize_bool(self, value: bool) -> Result<S::Ok, S::Error> {
        self.inner.serialize_bool(value)
    }

    fn serialize_str(self, value: &str) -> Result<S::Ok, S::Error> {
        if self.class == Class::Public || value.is_empty() {
            return self.inner.serialize_str(value);
        }
        self.inner
            .serialize_str(&self.redact.text(self.class, value))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<S::Ok, S::Error> {
        if self.class == Class::Public || value.is_empty() {
            return self.inner.serialize_bytes(value);
        }
        self.serialize_str(&crate::gojson::Base64::encode(value))
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let value = self.passed(value);
        self.inner.serialize_some(&value)
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_struct(name)
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = self.passed(value);
        self.inner.serialize_newtype_struct(name, &value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = self.passed(value);
        self.inner
            .serialize_newtype_variant(name, index, variant, &value)
    }

    compounds! {
        serialize_seq(len: Option<usize>) -> SerializeSeq;
        serialize_tuple(len: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct;
        serialize_map(len: Option<usize>) -> SerializeMap;
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, len: usize
        ) -> SerializeTupleVariant;
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        let inner = self.inner.serialize_struct(name, len)?;
        Ok(Parts {
            inner,
            redact: self.redact,
            class: self.class,
            place: self.place,
            under: self.class,
            classes: Classes::of(name),
        })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let inner = self
            .inner
            .serialize_struct_variant(name, index, variant, len)?;
        Ok(Parts {
            inner,
            redact: self.redact,
            class: self.class,
            place: self.place,
            under: self.class,
            classes: Classes::of(name),
        })
    }
}

/// A list, map or struct that is being written.
struct Parts<'r, C> {
    inner: C,
    redact: &'r dyn Redact,
    class: Class,
    place: Option<Place>,
    /// The class of the value of the key that a map is at.
    under: Class,
    /// The classes of a struct's fields.
    classes: Classes,
}

impl<'r, C> Parts<'r, C> {
    fn below<'a, T: ?Sized>(&self, value: &'a T) -> Hidden<'a, T>
    where
        'r: 'a,
    {
        Hidden {
            value,
            redact: self.redact,
            class: self.class,
            place: None,
        }
    }

    fn field<'a, T: ?Sized>(&self, name: &str, value: &'a T) -> Hidden<'a, T>
    where
        'r: 'a,
    {
        let (place, own) = self.classes.place(name);
        let own = match place {
            Some(at) if own.is_hashed() => self.redact.class_of(at, None, own),
            _ => own,
        };
        Hidden {
            class: self.class.max(own),
            place: place.filter(|_| self.class == Class::Public),
            ..self.below(value)
        }
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident),*) => {$(
        impl<C: $trait> $trait for Parts<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let value = self.below(value);
                self.inner.$method(&value)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        }
    )*};
}

elements! {
    SerializeSeq serialize_element, SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field, SerializeTupleVariant serialize_field
}

macro_rules! fields {
    ($($trait:ident),*) => {$(
        impl<C: $trait> $trait for Parts<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                let value = self.field(key, value);
                self.inner.serialize_field(key, &value)
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(key)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        }
    )*};
}

fields! { SerializeStruct, SerializeStructVariant }

/// Keys are names, and public.
impl<C: SerializeMap> SerializeMap for Parts<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.under = match self.place {
            Some(place) if self.class.is_hashed() => match key.serialize(KeyText) {
                Ok(text) => self.redact.class_of(place, Some(&text), self.class),
                Err(_) => self.class,
            },
            _ => self.class,
        };
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        let value = Hidden {
            class: self.under,
            ..self.below(value)
        };
        self.inner.serialize_value(&value)
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

/// The text of a key; other keys have none.
struct KeyText;

type NoText = serde::ser::Impossible<String, std::fmt::Error>;

macro_rules! no_text {
    ($($method:ident($($arg:ty),*) -> $ok:ty;)*) => {$(
        fn $method(self $(, _: $arg)*) -> Result<$ok, std::fmt::Error> {
            Err(std::fmt::Error)
        }
    )*};
}

impl Serializer for KeyText {
    type Ok = String;
    type Error = std::fmt::Error;
    type SerializeSeq = NoText;
    type SerializeTuple = NoText;
    type SerializeTupleStruct = NoText;
    type SerializeTupleVariant = NoText;
    type SerializeMap = NoText;
    type SerializeStruct = NoText;
    type SerializeStructVariant = NoText;

    fn serialize_str(self, value: &str) -> Result<String, std::fmt::Error> {
        Ok(value.to_owned())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<String, std::fmt::Error> {
        Err(std::fmt::Error)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<String, std::fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<String, std::fmt::Error> {
        Err(std::fmt::Error)
    }

    no_text! {
        serialize_bool(bool) -> String;
        serialize_i8(i8) -> String;
        serialize_i16(i16) -> String;
        serialize_i32(i32) -> String;
        serialize_i64(i64) -> String;
        serialize_u8(u8) -> String;
        serialize_u16(u16) -> String;
        serialize_u32(u32) -> String;
        serialize_u64(u64) -> String;
        serialize_f32(f32) -> String;
        serialize_f64(f64) -> String;
        serialize_char(char) -> String;
        serialize_bytes(&[u8]) -> String;
        serialize_none() -> String;
        serialize_unit() -> String;
        serialize_unit_struct(&'static str) -> String;
        serialize_unit_variant(&'static str, u32, &'static str) -> String;
        serialize_seq(Option<usize>) -> NoText;
        serialize_tuple(usize) -> NoText;
        serialize_tuple_struct(&'static str, usize) -> NoText;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> NoText;
        serialize_map(Option<usize>) -> NoText;
        serialize_struct(&'static str, usize) -> NoText;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> NoText;
    }
}
