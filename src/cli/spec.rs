//! Files that describe things other than jobs: reading them, and writing examples.

use anyhow::{Context, Result, bail};
use drover_events::gojson;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::io::Read;

/// The part of a description that says which thing it is about; the rest is for the servers to
/// read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Named {
    pub(super) name: String,
}

/// A description, as far as a command has to know what it says.
///
/// # Errors
/// A field of another type, by its name.
pub(super) fn read<T: DeserializeOwned>(described: &Json) -> Result<T> {
    Ok(gojson::from_value(described.clone())?)
}

/// What a body that is written says and no field of the type it is read as holds.
#[cfg(test)]
pub(super) fn unread_of<T: DeserializeOwned>(body: &Json) -> Vec<String> {
    let read = gojson::from_slice_naming::<T>(body.to_string().as_bytes());
    read.expect("a body of its type").1
}

/// The text of a file; `-` is standard input.
///
/// # Errors
/// One that cannot be read.
pub(super) fn source(path: &str) -> Result<String> {
    if path == "-" {
        let mut text = String::new();
        let read = std::io::stdin().lock().read_to_string(&mut text);
        read.context("Error reading standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("Error reading {path}"))
}

/// A block of HCL reads as a list of one.
pub(super) fn first(value: &Json) -> Json {
    let one = value.as_array().and_then(|all| all.first());
    one.unwrap_or(value).clone()
}

/// Writes an example in a form, hcl or json, to the file or to the form's default name (`stem` and
/// the form); the file's name.
///
/// # Errors
/// Another form, a file that exists or cannot be written.
pub(super) fn write_example(
    file: Option<&str>,
    form: &str,
    (stem, hcl, json): (&str, &str, &str),
) -> Result<String> {
    let text = match form {
        "hcl" => hcl,
        "json" => json,
        other => bail!("-out {other:?} is neither hcl nor json"),
    };
    let file = file.map_or_else(|| format!("{stem}.{form}"), str::to_owned);
    let mut options = std::fs::OpenOptions::new();
    match options.write(true).create_new(true).open(&file) {
        Ok(mut opened) => {
            use std::io::Write;
            let written = opened.write_all(text.as_bytes());
            written.with_context(|| format!("Error writing {file}"))?;
            Ok(file)
        }
        Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{file} exists: an example never overwrites a file")
        }
        Err(err) => Err(err).with_context(|| format!("Error writing {file}")),
    }
}
