//! The one encoding of rows: canonical MessagePack.
//!
//! It is what `rmp_serde` reads back as a named map, made unique so that it can be hashed and
//! compared: struct fields that hold their zero value are left out (false, 0, +0.0, "", no bytes,
//! nil, a struct of nothing but such fields); map entries, list elements and the fields of enum
//! variants never are; fields and map entries are ordered by their encoded keys; integers take
//! their shortest form. A new optional field therefore changes no row that does not use it. The
//! form is for ever: digests depend on it.

use serde::ser::{self, Serialize};

/// A value that has no canonical form.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CanonicalError(String);

impl ser::Error for CanonicalError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Reusable memory of the encoder.
#[derive(Default)]
pub struct Canonical {
    buf: Vec<u8>,
    starts: Vec<(u32, u32)>,
    scratch: Vec<u8>,
}

impl Canonical {
    /// Encodes a value; the bytes are valid until the next call.
    pub fn encode<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<&[u8], CanonicalError> {
        self.buf.clear();
        self.starts.clear();
        value.serialize(&mut *self)?;
        Ok(&self.buf)
    }

    fn sint(&mut self, v: i64) {
        if v >= 0 {
            return self.uint(v.unsigned_abs());
        }
        match v {
            -32..=-1 => self.buf.push(v as u8),
            -128..=-33 => self.buf.extend([0xd0, v as u8]),
            -32_768..=-129 => self.tagged(0xd1, &(v as i16).to_be_bytes()),
            -2_147_483_648..=-32_769 => self.tagged(0xd2, &(v as i32).to_be_bytes()),
            _ => self.tagged(0xd3, &v.to_be_bytes()),
        }
    }

    fn uint(&mut self, v: u64) {
        match v {
            0..=0x7f => self.buf.push(v as u8),
            0x80..=0xff => self.buf.extend([0xcc, v as u8]),
            0x100..=0xffff => self.tagged(0xcd, &(v as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.tagged(0xce, &(v as u32).to_be_bytes()),
            _ => self.tagged(0xcf, &v.to_be_bytes()),
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.buf.push(tag);
        self.buf.extend_from_slice(bytes);
    }

    fn str(&mut self, text: &str) {
        let len = text.len();
        match len {
            0..=31 => self.buf.push(0xa0 | len as u8),
            32..=255 => self.buf.extend([0xd9, len as u8]),
            256..=0xffff => self.tagged(0xda, &(len as u16).to_be_bytes()),
            _ => self.tagged(0xdb, &(len as u32).to_be_bytes()),
        }
        self.buf.extend_from_slice(text.as_bytes());
    }

    fn map_open(&mut self) -> Compound<'_> {
        let base = self.buf.len();
        self.buf.push(0x80);
        let first = self.starts.len();
        Compound {
            ser: self,
            base,
            first,
            wraps: false,
        }
    }

    /// Orders the entries from `first`, writes the header at `base`; says whether there were none.
    fn map_close(&mut self, base: usize, first: usize) -> Result<bool, CanonicalError> {
        let count = self.starts.len() - first;
        self.order_entries(first)?;
        self.starts.truncate(first);
        match count {
            0..=15 => self.buf[base] = 0x80 | count as u8,
            16..=0xffff => self.widen(base, 0xde, &(count as u16).to_be_bytes()),
            _ => self.widen(base, 0xdf, &(count as u32).to_be_bytes()),
        }
        Ok(count == 0)
    }

    fn order_entries(&mut self, first: usize) -> Result<(), CanonicalError> {
        let Self {
            buf,
            starts,
            scratch,
        } = self;
        let entries = &mut starts[first..];
        let Some(&(from, _)) = entries.first() else {
            return Ok(());
        };
        let key = |buf: &[u8], (at, len): (u32, u32)| {
            at as usize..(at as usize + len as usize).min(buf.len())
        };
        if entries.is_sorted_by(|a, b| buf[key(buf, *a)] < buf[key(buf, *b)]) {
            return Ok(());
        }
        let mut spans: smallvec::SmallVec<[(u32, u32, u32); 48]> = smallvec::SmallVec::new();
        for (at, entry) in entries.iter().enumerate() {
            let end = entries.get(at + 1).map_or(buf.len() as u32, |next| next.0);
            spans.push((entry.0, entry.1, end));
        }
        spans.sort_unstable_by(|a, b| buf[key(buf, (a.0, a.1))].cmp(&buf[key(buf, (b.0, b.1))]));
        if spans
            .windows(2)
            .any(|w| buf[key(buf, (w[0].0, w[0].1))] == buf[key(buf, (w[1].0, w[1].1))])
        {
            return Err(ser::Error::custom("a map key occurs twice"));
        }
        scratch.clear();
        for (start, _, end) in spans {
            scratch.extend_from_slice(&buf[start as usize..end as usize]);
        }
        buf.truncate(from as usize);
        buf.extend_from_slice(scratch);
        Ok(())
    }

    fn widen(&mut self, base: usize, tag: u8, count: &[u8]) {
        let grown = self.buf.len();
        self.buf.resize(grown + count.len(), 0);
        self.buf
            .copy_within(base + 1..grown, base + 1 + count.len());
        self.buf[base] = tag;
        self.buf[base + 1..=base + count.len()].copy_from_slice(count);
    }

    fn array(&mut self, len: usize) {
        match len {
            0..=15 => self.buf.push(0x90 | len as u8),
            16..=0xffff => self.tagged(0xdc, &(len as u16).to_be_bytes()),
            _ => self.tagged(0xdd, &(len as u32).to_be_bytes()),
        }
    }

    fn seq_open(
        &mut self,
        len: Option<usize>,
        wraps: bool,
    ) -> Result<Compound<'_>, CanonicalError> {
        let len = len.ok_or_else(|| CanonicalError("a list of unknown length".into()))?;
        let base = self.buf.len();
        self.array(len);
        let first = self.starts.len();
        Ok(Compound {
            ser: self,
            base,
            first,
            wraps,
        })
    }

    fn variant(&mut self, name: &str) {
        self.buf.push(0x81);
        self.str(name);
    }
}

/// A map, struct or list that is being written.
pub struct Compound<'a> {
    ser: &'a mut Canonical,
    base: usize,
    first: usize,
    wraps: bool,
}

impl Compound<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), CanonicalError> {
        let start = self.ser.buf.len();
        self.ser.str(key);
        let len = self.ser.buf.len() - start;
        if value.serialize(&mut *self.ser)? {
            self.ser.buf.truncate(start);
        } else {
            self.ser.starts.push((start as u32, len as u32));
        }
        Ok(())
    }
}

/// `Ok` says whether the value was its type's zero value.
impl<'a> ser::Serializer for &'a mut Canonical {
    type Ok = bool;
    type Error = CanonicalError;
    type SerializeSeq = Compound<'a>;
    type SerializeTuple = Compound<'a>;
    type SerializeTupleStruct = Compound<'a>;
    type SerializeTupleVariant = Compound<'a>;
    type SerializeMap = Compound<'a>;
    type SerializeStruct = Compound<'a>;
    type SerializeStructVariant = Compound<'a>;

    fn serialize_bool(self, v: bool) -> Result<bool, CanonicalError> {
        self.buf.push(if v { 0xc3 } else { 0xc2 });
        Ok(!v)
    }
    fn serialize_i8(self, v: i8) -> Result<bool, CanonicalError> {
        self.serialize_i64(v.into())
    }
    fn serialize_i16(self, v: i16) -> Result<bool, CanonicalError> {
        self.serialize_i64(v.into())
    }
    fn serialize_i32(self, v: i32) -> Result<bool, CanonicalError> {
        self.serialize_i64(v.into())
    }
    fn serialize_i64(self, v: i64) -> Result<bool, CanonicalError> {
        self.sint(v);
        Ok(v == 0)
    }
    fn serialize_u8(self, v: u8) -> Result<bool, CanonicalError> {
        self.serialize_u64(v.into())
    }
    fn serialize_u16(self, v: u16) -> Result<bool, CanonicalError> {
        self.serialize_u64(v.into())
    }
    fn serialize_u32(self, v: u32) -> Result<bool, CanonicalError> {
        self.serialize_u64(v.into())
    }
    fn serialize_u64(self, v: u64) -> Result<bool, CanonicalError> {
        self.uint(v);
        Ok(v == 0)
    }
    fn serialize_f32(self, v: f32) -> Result<bool, CanonicalError> {
        self.tagged(0xca, &v.to_bits().to_be_bytes());
        Ok(v.to_bits() == 0)
    }
    fn serialize_f64(self, v: f64) -> Result<bool, CanonicalError> {
        self.tagged(0xcb, &v.to_bits().to_be_bytes());
        Ok(v.to_bits() == 0)
    }
    fn serialize_char(self, v: char) -> Result<bool, CanonicalError> {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, v: &str) -> Result<bool, CanonicalError> {
        self.str(v);
        Ok(v.is_empty())
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<bool, CanonicalError> {
        match v.len() {
            len @ 0..=255 => self.buf.extend([0xc4, len as u8]),
            len @ 256..=0xffff => self.tagged(0xc5, &(len as u16).to_be_bytes()),
            len => self.tagged(0xc6, &(len as u32).to_be_bytes()),
        }
        self.buf.extend_from_slice(v);
        Ok(v.is_empty())
    }
    fn serialize_none(self) -> Result<bool, CanonicalError> {
        self.buf.push(0xc0);
        Ok(true)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<bool, CanonicalError> {
        value.serialize(self)?;
        Ok(false)
    }
    fn serialize_unit(self) -> Result<bool, CanonicalError> {
        self.serialize_none()
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<bool, CanonicalError> {
        self.serialize_none()
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<bool, CanonicalError> {
        self.str(variant);
        Ok(false)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<bool, CanonicalError> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<bool, CanonicalError> {
        self.variant(variant);
        value.serialize(self)?;
        Ok(false)
    }
    fn serialize_seq(self, len: Option<usize>) -> Result<Compound<'a>, CanonicalError> {
        self.seq_open(len, false)
    }
    fn serialize_tuple(self, len: usize) -> Result<Compound<'a>, CanonicalError> {
        self.seq_open(Some(len), false)
    }
    fn serialize_tuple_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<Compound<'a>, CanonicalError> {
        self.seq_open(Some(len), false)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Compound<'a>, CanonicalError> {
        self.variant(variant);
        self.seq_open(Some(len), true)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'a>, CanonicalError> {
        Ok(self.map_open())
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Compound<'a>, CanonicalError> {
        Ok(self.map_open())
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a>, CanonicalError> {
        self.variant(variant);
        let mut open = self.map_open();
        open.wraps = true;
        Ok(open)
    }
    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! lists {
    ($($name:ident $method:ident),*) => {$(
        impl ser::$name for Compound<'_> {
            type Ok = bool;
            type Error = CanonicalError;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
                value.serialize(&mut *self.ser).map(|_| ())
            }
            fn end(self) -> Result<bool, CanonicalError> {
                Ok(false)
            }
        }
    )*};
}

lists!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

impl ser::SerializeMap for Compound<'_> {
    type Ok = bool;
    type Error = CanonicalError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CanonicalError> {
        let start = self.ser.buf.len();
        key.serialize(&mut *self.ser)?;
        let len = self.ser.buf.len() - start;
        self.ser.starts.push((start as u32, len as u32));
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        value.serialize(&mut *self.ser).map(|_| ())
    }
    fn end(self) -> Result<bool, CanonicalError> {
        self.ser.map_close(self.base, self.first)?;
        Ok(false)
    }
}

impl ser::SerializeStruct for Compound<'_> {
    type Ok = bool;
    type Error = CanonicalError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.field(key, value)
    }
    fn end(self) -> Result<bool, CanonicalError> {
        let empty = self.ser.map_close(self.base, self.first)?;
        Ok(empty && !self.wraps)
    }
}

impl ser::SerializeStructVariant for Compound<'_> {
    type Ok = bool;
    type Error = CanonicalError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        ser::SerializeMap::serialize_key(self, key)?;
        ser::SerializeMap::serialize_value(self, value)
    }
    fn end(self) -> Result<bool, CanonicalError> {
        self.ser.map_close(self.base, self.first)?;
        Ok(false)
    }
}

#[cfg(test)]
#[path = "canonical_test.rs"]
mod tests;
