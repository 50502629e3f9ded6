//! Takes typed values out of a parsed file, field by field, and remembers which fields were not
//! read.
//!
//! A file is read *onto* the configuration that earlier files left: scalars are replaced, lists
//! grow, maps merge by key. That is all there is to merging.

use super::hcl1::{HclNode, HclValue, Location, ObjectEntry};
use super::unsupported;
use drover_events::duration;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One thing wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub location: Location,
    /// What, with the block's path before it.
    pub text: String,
}

/// A body being read: hands out fields by name, complains about those left over.
pub(crate) struct BodyReader<'a> {
    entries: &'a [ObjectEntry],
    path: String,
    used: Vec<bool>,
    problems: &'a mut Vec<Problem>,
}

impl<'a> BodyReader<'a> {
    /// Reads `node` as a body called `path`; anything but an object is a problem.
    pub(crate) fn open(
        node: &'a HclNode,
        path: &str,
        problems: &'a mut Vec<Problem>,
    ) -> Option<BodyReader<'a>> {
        match &node.value {
            HclValue::Object(entries) => {
                let used = vec![false; entries.len()];
                Some(BodyReader {
                    entries,
                    path: path.to_owned(),
                    used,
                    problems,
                })
            }
            other => {
                let text = format!("{path} must be a block, not {}", other.kind());
                problems.push(Problem {
                    location: node.location,
                    text,
                });
                None
            }
        }
    }

    fn take(&mut self, key: &str) -> Vec<&'a HclNode> {
        let mut found = Vec::new();
        for (entry, used) in self.entries.iter().zip(&mut self.used) {
            if entry.key == key {
                *used = true;
                if entry.node.value != HclValue::Null {
                    found.push(&entry.node);
                }
            }
        }
        found
    }

    fn problem(&mut self, location: Location, text: String) {
        let text = if self.path.is_empty() {
            text
        } else {
            format!("{} {text}", self.path)
        };
        self.problems.push(Problem { location, text });
    }

    /// Reads the attribute `key` onto `out`, if it is there. One that this version does not support
    /// is a problem where it would change `out`.
    pub(crate) fn set<T: FromNode + Clone + PartialEq>(&mut self, key: &str, out: &mut T) {
        let advice = unsupported::advice(&self.child(key));
        self.advised(key, out, advice);
    }

    /// As [`BodyReader::set`], where an attribute of this name is supported here, if not
    /// elsewhere.
    pub(crate) fn set_here<T: FromNode + Clone + PartialEq>(&mut self, key: &str, out: &mut T) {
        self.advised(key, out, None);
    }

    fn advised<T: FromNode + Clone + PartialEq>(
        &mut self,
        key: &str,
        out: &mut T,
        advice: Option<&str>,
    ) {
        for node in self.take(key) {
            let before = out.clone();
            if let Err(text) = out.read(node) {
                self.problem(node.location, format!("{key}: {text}"));
                continue;
            }
            let changes = *out != before && !unsupported::is_off(node);
            if let Some(advice) = advice.filter(|_| changes) {
                self.problem(
                    node.location,
                    format!("{key} is not supported by this version: {advice}; remove it"),
                );
            }
        }
    }

    /// Reads the switch `key`: once it is on, no later file turns it off (as Nomad merges plain
    /// booleans).
    pub(crate) fn switch(&mut self, key: &str, out: &mut bool) {
        let mut on = *out;
        self.set(key, &mut on);
        *out |= on;
    }

    /// Reads every block `key`; JSON's list of objects counts as several blocks.
    pub(crate) fn block(&mut self, key: &str, mut f: impl FnMut(&mut BodyReader<'_>)) {
        let path = self.child(key);
        for node in self.take(key) {
            for node in spread(node) {
                if let Some(mut reader) = BodyReader::open(node, &path, self.problems) {
                    f(&mut reader);
                    reader.finish();
                }
            }
        }
    }

    /// Reads every block `key "label"`.
    pub(crate) fn labelled(&mut self, key: &str, mut f: impl FnMut(&str, &mut BodyReader<'_>)) {
        let path = self.child(key);
        for node in self.take(key) {
            for node in spread(node) {
                let HclValue::Object(entries) = &node.value else {
                    self.problem(node.location, format!("{key} needs a label and a block"));
                    continue;
                };
                for entry in entries {
                    let path = format!("{path} {:?}", entry.key);
                    for node in spread(&entry.node) {
                        if let Some(mut reader) = BodyReader::open(node, &path, self.problems) {
                            f(&entry.key, &mut reader);
                            reader.finish();
                        }
                    }
                }
            }
        }
    }

    /// Refuses every key present: none of them has an effect.
    pub(crate) fn nobody(&mut self, why: &str) {
        for at in 0..self.entries.len() {
            self.used[at] = true;
            let ObjectEntry { key, node, .. } = &self.entries[at];
            if !unsupported::is_off(node) {
                let text = format!("{key} is not supported by this version: {why}; remove it");
                self.problem(node.location, text);
            }
        }
    }

    /// All of a body as it is written, for a reader of its own; blocks of one name are a list.
    pub(crate) fn whole(&mut self) -> serde_json::Map<String, serde_json::Value> {
        self.used.fill(true);
        written(self.entries)
    }

    fn child(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Complains about every key that was not read.
    pub(crate) fn finish(self) {
        let left: Vec<&ObjectEntry> = self
            .entries
            .iter()
            .zip(&self.used)
            .filter(|(_, used)| !**used)
            .map(|(e, _)| e)
            .collect();
        let Some(first) = left.first() else { return };
        let keys: Vec<&str> = left.iter().map(|e| e.key.as_str()).collect();
        let path = if self.path.is_empty() {
            String::new()
        } else {
            format!("{} ", self.path)
        };
        let text = format!("{path}unexpected keys {}", keys.join(", "));
        self.problems.push(Problem {
            location: first.location,
            text,
        });
    }
}

fn spread(node: &HclNode) -> Vec<&HclNode> {
    match &node.value {
        HclValue::List(items) => items.iter().collect(),
        _ => vec![node],
    }
}

/// A type that a configuration attribute can be read onto.
pub(crate) trait FromNode {
    /// Reads `node` over what is there: scalars replace, lists grow, maps merge.
    ///
    /// # Errors
    /// The text says which kind of value was expected.
    fn read(&mut self, node: &HclNode) -> Result<(), String>;

    /// Whether `node` is as good as absent, where a value of this type may be (ENV-03).
    fn is_nothing(_node: &HclNode) -> bool {
        false
    }
}

fn is_empty_text(node: &HclNode) -> bool {
    matches!(&node.value, HclValue::String(text) if text.is_empty())
}

pub(super) fn scalar(node: &HclNode) -> Result<String, String> {
    match &node.value {
        HclValue::String(s) | HclValue::Number(s) => Ok(s.clone()),
        HclValue::Bool(b) => Ok(b.to_string()),
        other => Err(format!("expected a string, not {}", other.kind())),
    }
}

impl FromNode for String {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        *self = scalar(node)?;
        Ok(())
    }

    fn is_nothing(node: &HclNode) -> bool {
        is_empty_text(node)
    }
}

impl FromNode for PathBuf {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        *self = PathBuf::from(scalar(node)?);
        Ok(())
    }

    fn is_nothing(node: &HclNode) -> bool {
        is_empty_text(node)
    }
}

impl FromNode for bool {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        *self = match &node.value {
            HclValue::Bool(b) => *b,
            HclValue::String(s) | HclValue::Number(s) => match s.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                other => return Err(format!("expected true or false, not {other:?}")),
            },
            other => return Err(format!("expected true or false, not {}", other.kind())),
        };
        Ok(())
    }
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl FromNode for $t {
            fn read(&mut self, node: &HclNode) -> Result<(), String> {
                let text = match &node.value {
                    HclValue::Number(s) | HclValue::String(s) => s,
                    other => return Err(format!("expected a number, not {}", other.kind())),
                };
                *self = text.parse().map_err(|_| {
                    format!("{text:?} is not a number from {} to {}", <$t>::MIN, <$t>::MAX)
                })?;
                Ok(())
            }
        }
    )*};
}
numbers!(u16, u32, u64, usize, i32, i64, f64);

impl FromNode for Duration {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        let ns = match &node.value {
            HclValue::String(s) => duration::parse(s).map_err(|e| e.to_string())?,
            HclValue::Number(s) => s.parse().map_err(|_| format!("{s:?} is not a duration"))?,
            other => {
                return Err(format!(
                    "expected a duration such as \"30s\", not {}",
                    other.kind()
                ));
            }
        };
        *self = u64::try_from(ns)
            .map(Duration::from_nanos)
            .map_err(|_| "a duration may not be negative".to_owned())?;
        Ok(())
    }
}

impl FromNode for Vec<String> {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        for item in spread(node) {
            let text = scalar(item)?;
            if !self.contains(&text) {
                self.push(text);
            }
        }
        Ok(())
    }
}

impl FromNode for BTreeMap<String, String> {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        for item in spread(node) {
            let HclValue::Object(entries) = &item.value else {
                return Err(format!("expected a map, not {}", item.value.kind()));
            };
            for entry in entries {
                self.insert(entry.key.clone(), scalar(&entry.node)?);
            }
        }
        Ok(())
    }
}

impl FromNode for serde_json::Value {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        merge(self, json(node));
        Ok(())
    }
}

impl<T: FromNode + Default> FromNode for Option<T> {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        if T::is_nothing(node) {
            return Ok(());
        }
        self.get_or_insert_default().read(node)
    }
}

fn written(entries: &[ObjectEntry]) -> serde_json::Map<String, serde_json::Value> {
    use serde_json::Value as Json;
    let value = |node: &HclNode| match &node.value {
        HclValue::Object(entries) => Json::Object(written(entries)),
        _ => json(node),
    };
    let mut map = serde_json::Map::new();
    for ObjectEntry { key, node, .. } in entries {
        let is_block = matches!(node.value, HclValue::Object(_));
        let value = match &node.value {
            HclValue::List(items) => Json::Array(items.iter().map(value).collect()),
            _ => value(node),
        };
        match map.get_mut(key) {
            Some(Json::Array(all)) if is_block => all.push(value),
            Some(other @ Json::Object(_)) if is_block => {
                *other = Json::Array(vec![other.take(), value]);
            }
            _ => _ = map.insert(key.clone(), value),
        }
    }
    map
}

fn json(node: &HclNode) -> serde_json::Value {
    use serde_json::Value as Json;
    match &node.value {
        HclValue::Null => Json::Null,
        HclValue::Bool(b) => Json::Bool(*b),
        HclValue::String(s) => Json::String(s.clone()),
        HclValue::Number(s) => serde_json::from_str(s).unwrap_or_else(|_| Json::String(s.clone())),
        HclValue::List(items) => Json::Array(items.iter().map(json).collect()),
        HclValue::Object(entries) => {
            let mut map = Json::Object(serde_json::Map::new());
            for entry in entries {
                let mut one = serde_json::Map::new();
                one.insert(entry.key.clone(), json(&entry.node));
                merge(&mut map, Json::Object(one));
            }
            map
        }
    }
}

fn merge(into: &mut serde_json::Value, from: serde_json::Value) {
    use serde_json::Value as Json;
    match (into, from) {
        (Json::Object(into), Json::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Json::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
