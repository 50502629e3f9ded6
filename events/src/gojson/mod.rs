//! gojson: how Go programs write JSON, in one place.
//!
//! Clients of the HTTP API are Go programs first: a nil list is `null`, an empty one `[]`; a zero
//! time is `null`; bytes are base64; a key may come in any case; `null` means the zero value.
//! This module holds the value types that keep those differences ([`List`], [`Map`], [`Time`],
//! [`Base64`]), the macro that gives a struct both of its encodings ([`wire!`](crate::wire))
//! and a JSON Schema, and the adaptor that reads requests as Go's decoder would ([`from_slice`],
//! [`from_value`]).
//!
//! It must not know any type of the model.
//!
//! Invariants: decoding never panics; a copy keeps absent apart from empty (EV-16); the binary
//! form leaves out exactly the fields that equal their default.

mod base64;
mod de;
mod de_access;
mod duration;
mod list;
mod map;
mod schema;
mod time;
mod unknown;
mod wire;
mod zero;

#[cfg(test)]
mod gojson_test;

pub use base64::Base64;
pub use de::{GoJsonError, from_slice, from_slice_naming, from_value, from_value_ref};
pub use duration::{
    DurationNanos, DurationText, DurationTextOrEmpty, format_duration, parse_duration,
};
pub use list::List;
pub use map::Map;
pub use schema::{Property, object};
pub use time::{GoTime, Time};
pub use unknown::{Says, Unknown};
pub use wire::{KeyCursor, KeySeed, keep, show, stored_order};
pub use zero::Zero;

/// A JSON value of any shape (`map[string]interface{}` values of driver configurations).
pub type Any = serde_json::Value;

/// Encodes a value in Nomad's output form.
///
/// # Errors
/// When the value itself refuses to be serialised.
pub fn to_vec<T: serde::Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(value)
}

/// Encodes a value in Nomad's output form into a writer.
///
/// # Errors
/// When the value refuses to be serialised or the writer fails.
pub fn to_writer<W, T>(writer: W, value: &T) -> Result<(), serde_json::Error>
where
    W: std::io::Write,
    T: serde::Serialize + ?Sized,
{
    serde_json::to_writer(writer, value)
}
