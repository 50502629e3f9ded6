//! YAML out, and YAML in. Anchors, aliases, tags and several documents are refused, so that a value
//! grows with its text alone; how much is held while it is read is forecast before
//! (`src/jobspec/budget.rs`).

use super::super::value::{Value, parse_number};
use super::Outcome;
use saphyr_parser::{Event, Parser, ScalarStyle};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// How many collections may be within each other.
const DEPTH: usize = 64;

/// Writes YAML: block style, strings quoted, keys in order.
pub(super) fn encode(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, false, &mut out);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn write(value: &Value, depth: usize, inline: bool, out: &mut String) {
    let pad = "  ".repeat(depth);
    match value {
        Value::List(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                if !(inline && i == 0) {
                    out.push_str(&pad);
                }
                out.push_str("- ");
                write(item, depth + 1, true, out);
                end_line(out);
            }
        }
        Value::Map(map) if !map.is_empty() => {
            for (i, (key, item)) in map.iter().enumerate() {
                if !(inline && i == 0) {
                    out.push_str(&pad);
                }
                out.push_str(&serde_json::Value::String(key.clone()).to_string());
                out.push(':');
                let nested = match item {
                    Value::List(items) => !items.is_empty(),
                    Value::Map(map) => !map.is_empty(),
                    _ => false,
                };
                out.push(if nested { '\n' } else { ' ' });
                let list = matches!(item, Value::List(_));
                write(item, if list { depth } else { depth + 1 }, false, out);
                end_line(out);
            }
        }
        other => out.push_str(&other.to_json().to_string()),
    }
}

fn end_line(out: &mut String) {
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

/// Reads YAML.
pub(super) fn decode(text: &str) -> Outcome {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(text) {
        return Ok(Value::from_json(&json));
    }
    let mut document = Document::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| format!("on line {}: {}", error.marker().line(), error.info()))?;
        let taken = document.take(event);
        taken.map_err(|what| format!("on line {}: {what}", span.start.line()))?;
    }
    Ok(document.whole.unwrap_or(Value::Null))
}

/// A document as far as it was read.
#[derive(Default)]
struct Document {
    /// Collections that have not ended, each within the one before.
    open: Vec<Collection>,
    whole: Option<Value>,
}

enum Collection {
    List(Vec<Value>),
    /// With the key whose value comes next.
    Map(BTreeMap<String, Value>, Option<String>),
}

impl Document {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            // Zero is no anchor.
            Event::Scalar(text, style, 0, None) => self.scalar(text, style),
            Event::SequenceStart(0, None) => self.begin(Collection::List(Vec::new())),
            Event::MappingStart(0, None) => self.begin(Collection::Map(BTreeMap::new(), None)),
            Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::MappingStart(..) => {
                Err("anchors, aliases and tags are not supported".to_owned())
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::DocumentStart(_) if self.whole.is_some() => {
                Err("there is more than one document".to_owned())
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn scalar(&mut self, text: Cow<'_, str>, style: ScalarStyle) -> Result<(), String> {
        if let Some(Collection::Map(map, key @ None)) = self.open.last_mut() {
            if map.contains_key(text.as_ref()) {
                return Err(format!("key {text:?} twice"));
            }
            *key = Some(text.into_owned());
            return Ok(());
        }
        self.put(match style {
            ScalarStyle::Plain => plain(&text),
            _ => Value::Str(text.into_owned()),
        })
    }

    fn begin(&mut self, collection: Collection) -> Result<(), String> {
        if self.open.len() >= DEPTH {
            return Err("nested too deeply".to_owned());
        }
        self.open.push(collection);
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        match self.open.pop() {
            Some(Collection::List(items)) => self.put(Value::List(items)),
            Some(Collection::Map(map, _)) => self.put(Value::Map(map)),
            None => Ok(()),
        }
    }

    fn put(&mut self, value: Value) -> Result<(), String> {
        match self.open.last_mut() {
            None => self.whole = Some(value),
            Some(Collection::List(items)) => items.push(value),
            Some(Collection::Map(map, key)) => {
                let key = key.take().ok_or("a key is no text")?;
                map.insert(key, value);
            }
        }
        Ok(())
    }
}

/// What text without quotes stands for, as the core schema of YAML 1.2 has it.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text => parse_number(text).unwrap_or_else(|| Value::str(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, want) in [
            ("", "null"),
            ("# nothing\n", "null"),
            ("---\na: 1\n", r#"{"a":1}"#),
            ("a: b\n  c\n", r#"{"a":"b c"}"#),
            ("a: >-\n  b\n  c\n\n  d\n", r#"{"a":"b c\nd"}"#),
            ("\"a\\tb\": 'it''s'\n", r#"{"a\tb":"it's"}"#),
            ("a: \"b # c\" # d\n", r#"{"a":"b # c"}"#),
            (
                "a: {b: 1,\n  c: [x, ~]}\n",
                r#"{"a":{"b":1,"c":["x",null]}}"#,
            ),
            (
                "a: yes\nb: True\nc: 1.5\n",
                r#"{"a":"yes","b":true,"c":1.5}"#,
            ),
            ("a: '1'\nb: \"true\"\n", r#"{"a":"1","b":"true"}"#),
        ] {
            let read = decode(text).map(|value| value.to_json().to_string());
            assert_eq!(read.as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_named_with_its_line() {
        for (text, part) in [
            ("a: &x 1\n", "on line 1: anchors, aliases and tags"),
            ("a: 1\nb: !!str 2\n", "on line 2: anchors, aliases and tags"),
            ("a: 1\n---\nb: 2\n", "there is more than one document"),
            ("a: 1\na: 2\n", "on line 2: key \"a\" twice"),
            ("? [a]\n: 1\n", "a key is no text"),
            ("a: [1, 2\n", "on line "),
            ("a: \"b\n", "on line "),
        ] {
            let error = decode(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let deep = |depth: usize| decode(&format!("{}a{}", "[".repeat(depth), "]".repeat(depth)));
        assert!(deep(DEPTH).is_ok());
        assert!(deep(DEPTH + 1).unwrap_err().contains("nested too deeply"));
        assert!(decode(&"- ".repeat(100_000)).is_err());
    }
}
