//! Bytes: base64 text in JSON, raw in the binary form.

use std::fmt;
use std::ops::Deref;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Zero;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A Go byte slice: nil, or bytes; standard base64 with padding in JSON (RFC 4648 section 4).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Base64(Option<Vec<u8>>);

impl Base64 {
    /// True for the nil slice only.
    #[must_use]
    pub const fn is_nil(&self) -> bool {
        self.0.is_none()
    }

    /// The bytes as a vector; nil gives an empty one.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0.unwrap_or_default()
    }

    /// The bytes as base64 text.
    #[must_use]
    pub fn encode(bytes: &[u8]) -> String {
        let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
        for chunk in bytes.chunks(3) {
            let mut group = [0_u8; 3];
            group[..chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
            for i in 0..4 {
                if i <= chunk.len() {
                    let index = (bits >> (18 - 6 * i)) & 63;
                    out.push(char::from(ALPHABET[index as usize]));
                } else {
                    out.push('=');
                }
            }
        }
        out
    }

    /// Base64 text (padded) as bytes; `None` when it is malformed. Line breaks are skipped.
    #[must_use]
    pub fn decode(text: &str) -> Option<Vec<u8>> {
        let clean: Vec<u8> = text
            .bytes()
            .filter(|b| !matches!(b, b'\r' | b'\n'))
            .collect();
        if !clean.len().is_multiple_of(4) {
            return None;
        }
        let padding = clean.iter().rev().take_while(|b| **b == b'=').count();
        if padding > 2 {
            return None;
        }
        let mut out = Vec::with_capacity(clean.len() / 4 * 3);
        for (n, chunk) in clean.chunks(4).enumerate() {
            let last = (n + 1) * 4 == clean.len();
            let keep = if last { 4 - padding } else { 4 };
            let mut bits = 0_u32;
            for (i, byte) in chunk.iter().enumerate() {
                let value = if i < keep { value_of(*byte)? } else { 0 };
                bits = (bits << 6) | u32::from(value);
            }
            out.extend_from_slice(&bits.to_be_bytes()[1..keep]);
        }
        Some(out)
    }
}

const fn value_of(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

impl Deref for Base64 {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<Vec<u8>> for Base64 {
    fn from(value: Vec<u8>) -> Self {
        Self(Some(value))
    }
}

impl From<&[u8]> for Base64 {
    fn from(value: &[u8]) -> Self {
        Self(Some(value.to_vec()))
    }
}

impl Zero for Base64 {
    fn is_zero(&self) -> bool {
        self.is_nil()
    }

    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            None => serializer.serialize_none(),
            Some(bytes) if serializer.is_human_readable() => {
                serializer.serialize_str(&Self::encode(bytes))
            }
            Some(bytes) => serializer.serialize_bytes(bytes),
        }
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Base64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes as base64 text")
    }

    fn visit_none<E: de::Error>(self) -> Result<Base64, E> {
        Ok(Base64(None))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Base64, E> {
        Ok(Base64(None))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Base64, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(self)
        } else {
            deserializer.deserialize_bytes(self)
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Base64, E> {
        Base64::decode(text)
            .map(Base64::from)
            .ok_or_else(|| E::custom("illegal base64 data"))
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Base64, E> {
        Ok(Base64::from(bytes))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Base64, E> {
        Ok(Base64::from(bytes))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(BytesVisitor)
    }
}
