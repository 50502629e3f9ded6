//! YAML out, and the part of YAML in that configuration uses: block maps and lists, flow
//! collections, quoted and plain scalars, literal and folded blocks. Anchors, tags and several
//! documents are refused.

use super::super::value::{Value, parse_number};
use super::Outcome;
use std::collections::BTreeMap;

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

struct YamlLine<'a> {
    indent: usize,
    text: &'a str,
}

/// Reads YAML.
pub(super) fn decode(text: &str) -> Outcome {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(text) {
        return Ok(Value::from_json(&json));
    }
    let lines: Vec<YamlLine<'_>> = text
        .lines()
        .filter(|l| l.trim_end() != "---")
        .map(|l| YamlLine {
            indent: l.len() - l.trim_start_matches(' ').len(),
            text: l.trim_end(),
        })
        .collect();
    let mut parser = Parser {
        lines,
        at: 0,
        depth: 0,
    };
    let value = parser.block(0)?;
    parser.skip_blank();
    match parser.lines.get(parser.at) {
        None => Ok(value),
        Some(line) => Err(format!(
            "on line {}: cannot read {:?} here",
            parser.at + 1,
            line.text.trim()
        )),
    }
}

struct Parser<'a> {
    lines: Vec<YamlLine<'a>>,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn skip_blank(&mut self) {
        while self.lines.get(self.at).is_some_and(|l| {
            let text = l.text.trim_start();
            text.is_empty() || text.starts_with('#')
        }) {
            self.at += 1;
        }
    }

    fn fail<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("on line {}: {what}", self.at + 1))
    }

    fn block(&mut self, least: usize) -> Outcome {
        self.depth += 1;
        if self.depth > 64 {
            return self.fail("nested too deeply");
        }
        self.skip_blank();
        let value = match self.lines.get(self.at) {
            Some(line) if line.indent >= least => {
                let (indent, text) = (line.indent, line.text.trim_start());
                if text == "-" || text.starts_with("- ") {
                    self.list(indent)
                } else if split_key(text).is_some() {
                    self.map(indent)
                } else {
                    self.at += 1;
                    self.scalar(text, indent)
                }
            }
            _ => Ok(Value::Null),
        };
        self.depth -= 1;
        value
    }

    fn list(&mut self, indent: usize) -> Outcome {
        let mut items = Vec::new();
        loop {
            self.skip_blank();
            let Some(line) = self.lines.get_mut(self.at).filter(|l| l.indent == indent) else {
                break;
            };
            let Some(rest) = line.text.trim_start().strip_prefix('-') else {
                break;
            };
            if rest.trim().is_empty() {
                self.at += 1;
                items.push(self.block(indent + 1)?);
                continue;
            }
            // What follows the dash is a block of its own, as deep as it stands.
            let trimmed = rest.trim_start();
            if trimmed.starts_with(['|', '>']) {
                let header = trimmed;
                self.at += 1;
                let text = self.literal(header, indent);
                items.push(Value::Str(text));
                continue;
            }
            let deeper = indent + 1 + (rest.len() - trimmed.len());
            *line = YamlLine {
                indent: deeper,
                text: trimmed,
            };
            items.push(self.block(deeper)?);
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, indent: usize) -> Outcome {
        let mut map = BTreeMap::new();
        loop {
            self.skip_blank();
            let Some(line) = self.lines.get(self.at).filter(|l| l.indent == indent) else {
                break;
            };
            let Some((key, rest)) = split_key(line.text.trim_start()) else {
                break;
            };
            self.at += 1;
            let value = if rest.is_empty() {
                self.skip_blank();
                let list_here = self
                    .lines
                    .get(self.at)
                    .is_some_and(|l| l.indent == indent && l.text.trim_start().starts_with("- "));
                self.block(if list_here { indent } else { indent + 1 })?
            } else {
                self.scalar(rest, indent)?
            };
            if map.insert(key.clone(), value).is_some() {
                return self.fail(&format!("key {key:?} twice"));
            }
        }
        Ok(Value::Map(map))
    }

    fn scalar(&mut self, text: &'a str, indent: usize) -> Outcome {
        match text.chars().next() {
            Some('|' | '>') => Ok(Value::Str(self.literal(text, indent))),
            Some('&' | '*' | '!') => self.fail("anchors, aliases and tags are not supported"),
            Some('[' | '{') => {
                let mut flow = Flow {
                    rest: text,
                    depth: 0,
                };
                flow.value()
                    .and_then(|v| match flow.rest.trim_start().chars().next() {
                        None | Some('#') => Ok(v),
                        _ => Err("text after a flow collection".to_owned()),
                    })
            }
            _ => scalar(text),
        }
    }

    fn literal(&mut self, header: &str, indent: usize) -> String {
        let folded = header.starts_with('>');
        let mut lines: Vec<&str> = Vec::new();
        let mut base = None;
        while let Some(line) = self.lines.get(self.at) {
            if line.text.trim().is_empty() {
                lines.push("");
            } else if line.indent > indent {
                let base = *base.get_or_insert(line.indent);
                lines.push(line.text.get(base.min(line.indent)..).unwrap_or(""));
            } else {
                break;
            }
            self.at += 1;
        }
        let keep = header.contains('+');
        while !keep && lines.last() == Some(&"") {
            lines.pop();
        }
        let mut text = if folded {
            lines.join(" ")
        } else {
            lines.join("\n")
        };
        if !header.contains('-') && !text.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// Splits `key: rest` and `"key": rest`.
fn split_key(text: &str) -> Option<(String, &str)> {
    if let Some(quote) = text.chars().next().filter(|c| *c == '"' || *c == '\'') {
        let end = text[1..].find(quote)? + 1;
        let rest = text[end + 1..].trim_start().strip_prefix(':')?;
        return Some((text[1..end].to_owned(), comment_off(rest.trim())));
    }
    if text.starts_with(['[', '{', '#']) {
        return None;
    }
    let end = text
        .find(": ")
        .or_else(|| text.strip_suffix(':').map(str::len))?;
    let rest = text.get(end + 1..).unwrap_or("").trim();
    Some((text[..end].trim().to_owned(), comment_off(rest)))
}

fn comment_off(text: &str) -> &str {
    if text.starts_with(['"', '\'', '#']) {
        return if text.starts_with('#') { "" } else { text };
    }
    text.find(" #").map_or(text, |at| text[..at].trim_end())
}

fn scalar(text: &str) -> Outcome {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('\'') {
        let end = inner.rfind('\'').ok_or("string not terminated")?;
        return Ok(Value::Str(inner[..end].replace("''", "'")));
    }
    if text.starts_with('"') {
        let end = text
            .rfind('"')
            .filter(|e| *e > 0)
            .ok_or("string not terminated")?;
        return serde_json::from_str::<String>(&text[..=end])
            .map(Value::Str)
            .map_err(|e| e.to_string());
    }
    Ok(match comment_off(text) {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        plain => parse_number(plain).unwrap_or_else(|| Value::str(plain)),
    })
}

/// `[a, {b: c}]`.
struct Flow<'a> {
    rest: &'a str,
    depth: usize,
}

impl Flow<'_> {
    fn value(&mut self) -> Outcome {
        self.rest = self.rest.trim_start();
        self.depth += 1;
        if self.depth > 64 {
            return Err("nested too deeply".into());
        }
        let value = match self.rest.chars().next() {
            Some('[') => self
                .items(']')
                .map(|items| Value::List(items.into_iter().map(|i| i.1).collect())),
            Some('{') => self
                .items('}')
                .map(|items| Value::Map(items.into_iter().collect())),
            _ => {
                let text = self.word(&[',', ']', '}']);
                scalar(text)
            }
        };
        self.depth -= 1;
        value
    }

    fn word(&mut self, ends: &[char]) -> &str {
        let quote = self.rest.chars().next().filter(|c| *c == '"' || *c == '\'');
        let end = match quote {
            Some(q) => self.rest[1..].find(q).map_or(self.rest.len(), |at| at + 2),
            None => self.rest.find(ends).unwrap_or(self.rest.len()),
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn items(&mut self, close: char) -> Result<Vec<(String, Value)>, String> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.chars().next() {
                None => {
                    return Err(format!(
                        "flow collection not terminated, expected {close:?}"
                    ));
                }
                Some(c) if c == close => {
                    self.rest = &self.rest[c.len_utf8()..];
                    return Ok(items);
                }
                Some(',') => {
                    self.rest = &self.rest[1..];
                    continue;
                }
                _ => {}
            }
            let mut key = String::new();
            if close == '}' {
                let word = self.word(&[':', ',', '}']).to_owned();
                key = scalar(&word)?.to_text().unwrap_or_default();
                self.rest = self
                    .rest
                    .trim_start()
                    .strip_prefix(':')
                    .ok_or("expected ':' after a key")?;
            }
            let before = self.rest.len();
            let value = self.value()?;
            items.push((key, value));
            if self.rest.len() == before
                && self.rest.starts_with([']', '}'])
                && !self.rest.starts_with(close)
            {
                return Err("mismatched brackets".into());
            }
        }
    }
}
