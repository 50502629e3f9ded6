//! What of a request nobody acts on: parameters that no handler asked for, fields that are none of
//! its body's, headers for what is not built. All of it is named in the answer, in the header
//! `X-Drover-Ignored` and in the warnings of a job, so that nobody takes silence for consent.

use std::fmt;

use hyper::HeaderMap;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

use crate::jobspec::Says;

/// The header that names what was ignored.
pub(super) const HEADER: &str = "x-drover-ignored";

/// Parameters that clients send with every request, whether or not it concerns the route.
pub(super) const EVERYWHERE: [&str; 4] = ["namespace", "pretty", "region", "stale"];

/// Headers of others' clients that say something, and that nothing here acts on.
const HEADERS: [&str; 3] = ["X-Consul-Token", "X-Nomad-CSI-Secrets", "X-Vault-Token"];

/// Of so many ignored fields the names are kept.
const MOST: usize = 16;
/// Characters of a name at most.
const LONGEST: usize = 64;

/// The headers of a request that nothing acts on.
pub(super) fn headers(headers: &HeaderMap) -> impl Iterator<Item = String> + '_ {
    let said = |name: &&str| headers.get(*name).is_some_and(|value| !value.is_empty());
    HEADERS.into_iter().filter(said).map(header)
}

/// How a header is named among what was ignored.
pub(super) fn header(name: &str) -> String {
    format!("header {name}")
}

/// The names as one header's value: what is no visible ASCII, or parts names, is escaped.
pub(super) fn joined(names: &[String]) -> String {
    let mut out = String::new();
    for name in names {
        if !out.is_empty() {
            out.push_str(", ");
        }
        for byte in name.bytes() {
            match byte {
                b',' | b'%' => out += &format!("%{byte:02X}"),
                b' '..=b'~' => out.push(char::from(byte)),
                _ => out += &format!("%{byte:02X}"),
            }
        }
    }
    out
}

/// The same as a warning for each.
pub(super) fn warnings(names: Vec<String>) -> impl Iterator<Item = String> {
    names
        .into_iter()
        .map(|name| format!("{name:?} means nothing here and was ignored"))
}

/// The fields of a JSON object that say something and are none of `T`'s, nor read elsewhere.
/// Bodies of other forms than a struct's are not looked at.
pub(super) fn fields<T: DeserializeOwned>(
    body: &[u8],
    elsewhere: &'static [&'static str],
) -> Vec<String> {
    let mut known: &'static [&'static str] = &[];
    // It always fails: what it is for is the list that the type asks with.
    let _ = T::deserialize(Probe(&mut known));
    if known.is_empty() {
        return Vec::new();
    }
    let read =
        serde_json::Deserializer::from_slice(body).deserialize_map(Others([known, elsewhere]));
    read.unwrap_or_default()
}

/// Learns which fields a type has, and reads nothing.
struct Probe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("nothing is read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Collects the fields beside the known ones.
struct Others([&'static [&'static str]; 2]);

impl<'de> Visitor<'de> for Others {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
        let mut found = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if self
                .0
                .iter()
                .flat_map(|names| names.iter())
                .any(|known| known.eq_ignore_ascii_case(&name))
            {
                map.next_value::<IgnoredAny>()?;
            } else if map.next_value::<Says>()?.0 && found.len() < MOST {
                let name: String = name.chars().take(LONGEST).collect();
                found.push(format!("field {name}"));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use drover_events::model::NodePool;

    use super::*;

    #[test]
    fn fields_that_are_none_are_named_where_they_say_something() {
        let body = br#"{"name":"p","Meta":{"a":"b"},"Colour":"red","Zero":0,"No":false,"Nil":null,
            "Empty":"","List":[],"Map":{},"Deep":{"a":[1]},"Rank":1}"#;
        let wanted = ["field Colour", "field Deep", "field Rank"];
        assert_eq!(fields::<NodePool>(body, &[]), wanted);
        assert_eq!(fields::<NodePool>(b"[1]", &[]), [""; 0], "no object");
        assert_eq!(fields::<Vec<String>>(body, &[]), [""; 0], "no struct");
    }

    #[test]
    fn names_fit_into_a_header() {
        let names = ["a b", "x,y", "\n\u{e9}"].map(str::to_owned);
        assert_eq!(joined(&names), "a b, x%2Cy, %0A%C3%A9");
    }
}
