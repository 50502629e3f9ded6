//! Base64, CSV, JSON, URLs, YAML.

use super::super::value::Value;
use super::args::Args;
use super::{Outcome, yaml};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::BTreeMap;

/// What is not written as it is in a query; a blank becomes a plus afterwards.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b' ');

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "base64encode" => text(args, |s| Ok(Value::Str(STANDARD.encode(s)))),
        "base64decode" => text(args, base64decode),
        "urlencode" => text(args, |s| Ok(Value::Str(urlencode(s)))),
        "csvdecode" => text(args, csvdecode),
        "jsondecode" => text(args, jsondecode),
        "jsonencode" => args.any().map(|v| Value::Str(go_json(&v.to_json()))),
        "yamlencode" => args.any().map(|v| Value::Str(yaml::encode(&v))),
        "yamldecode" => text(args, yaml::decode),
        _ => return None,
    })
}

fn text(args: &mut Args, f: impl Fn(&str) -> Outcome) -> Outcome {
    let text = args.text()?;
    args.end()?;
    f(&text)
}

fn base64decode(text: &str) -> Outcome {
    let bytes = STANDARD
        .decode(text)
        .map_err(|e| format!("failed to decode base64 data: {e}"))?;
    String::from_utf8(bytes)
        .map(Value::Str)
        .map_err(|_| "the result of decoding the provided string is not valid UTF-8".to_owned())
}

/// As Go's `url.QueryEscape` does it.
fn urlencode(text: &str) -> String {
    let encoded = utf8_percent_encode(text, QUERY).to_string();
    encoded.replace(' ', "+")
}

fn jsondecode(text: &str) -> Outcome {
    let json: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    Ok(Value::from_json(&json))
}

/// JSON as Go's encoder writes it: `<`, `>` and `&` escaped.
fn go_json(json: &serde_json::Value) -> String {
    json.to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

fn csvdecode(text: &str) -> Outcome {
    let mut rows = csv_rows(text)?.into_iter();
    let Some(header) = rows.next() else {
        return Err("missing header line".into());
    };
    let mut names = std::collections::BTreeSet::new();
    if let Some(twice) = header.iter().find(|name| !names.insert(name.as_str())) {
        return Err(format!("duplicate column name {twice:?}"));
    }
    let mut out = Vec::new();
    for row in rows {
        if row.len() != header.len() {
            return Err("wrong number of fields".into());
        }
        let cells = row.into_iter().map(Value::Str);
        out.push(Value::Map(
            header
                .iter()
                .cloned()
                .zip(cells)
                .collect::<BTreeMap<_, _>>(),
        ));
    }
    Ok(Value::List(out))
}

fn csv_rows(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut rows = Vec::new();
    let (mut row, mut cell) = (Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if cell.is_empty() => quoted = true,
            c if quoted => cell.push(c),
            '"' => return Err("bare \" in a field that is not quoted".into()),
            ',' => row.push(std::mem::take(&mut cell)),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => {
                if !(row.is_empty() && cell.is_empty()) {
                    row.push(std::mem::take(&mut cell));
                    rows.push(std::mem::take(&mut row));
                }
            }
            c => cell.push(c),
        }
    }
    if quoted {
        return Err("a quoted field is not terminated".into());
    }
    if !(row.is_empty() && cell.is_empty()) {
        row.push(cell);
        rows.push(row);
    }
    Ok(rows)
}
