//! Frozen bytes: one body of every kind and version ever written, and what it must decode to.
//!
//! `golden/<event_kind>/v<version>.bin` and `.expected.json` are written once by [`freeze`] and
//! never edited. A kind's bytes come from [`samples`]; an encoding that changes without a new
//! version makes the test beside this fail. So does a [`shape`] that changes, of which
//! `v<version>.shape` holds every field; lines are only added to it. [`logs`] are whole logs.
//!
//! It is a crate of its own, so that no program has it, and a module of the migrations' tests: a
//! crate that needs the migrations would bring others into them.

pub mod logs;
mod plain;
pub mod samples;
pub mod shape;
mod values;

use std::fs;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::path::{Path, PathBuf};

use drover_events::codec::encode_map;
use drover_events::{EventKind, Recorded};
use serde_json::{Value, json};

use self::shape::ShapeChange;
use drover_migrations::decode;

/// The directory of a kind under `golden/`: its name in snake case.
pub fn directory(kind: EventKind) -> String {
    let mut text = String::new();
    for letter in kind.name().chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// The two files of a kind's version below `root` (the `golden` directory).
pub fn files(root: &Path, kind: EventKind, version: u16) -> (PathBuf, PathBuf) {
    let directory = root.join(directory(kind));
    let bin = directory.join(format!("v{version}.bin"));
    (bin, directory.join(format!("v{version}.expected.json")))
}

/// The file of a kind's shape in a version, below `root`.
pub fn shape_file(root: &Path, kind: EventKind, version: u16) -> PathBuf {
    root.join(directory(kind)).join(format!("v{version}.shape"))
}

/// What became of the shape of a kind since it was frozen; all of it is new where it never was.
///
/// # Errors
/// Those of the file system.
pub fn reshaped(root: &Path, kind: EventKind) -> Result<ShapeChange> {
    let frozen = match fs::read_to_string(shape_file(root, kind, kind.version())) {
        Ok(text) => text
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(ShapeChange::between(&frozen, &shape::of(kind)))
}

/// Adds what is new of a kind's shape to its file. Gives the path, if there was anything.
///
/// # Errors
/// Those of the file system; `InvalidData` when a field is gone or has another type.
pub fn freeze_shape(root: &Path, kind: EventKind) -> Result<Option<PathBuf>> {
    let change = reshaped(root, kind)?;
    if !change.broken.is_empty() {
        let text = format!("{kind} needs a new version: {}", change.broken.join("; "));
        return Err(Error::new(ErrorKind::InvalidData, text));
    }
    if change.added.is_empty() {
        return Ok(None);
    }
    let path = shape_file(root, kind, kind.version());
    fs::create_dir_all(root.join(directory(kind)))?;
    let mut file = fs::File::options().create(true).append(true).open(&path)?;
    file.write_all((change.added.join("\n") + "\n").as_bytes())?;
    Ok(Some(path))
}

/// Writes the two files of the version a kind is now written in, if they are not there yet.
/// Gives the paths that were written.
///
/// # Errors
/// Those of the file system; `InvalidData` when the sample does not decode.
pub fn freeze(root: &Path, kind: EventKind) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for version in 1..=kind.version() {
        let Some(body) = samples::body(kind, version) else {
            continue;
        };
        let (bin, expected) = files(root, kind, version);
        if bin.exists() {
            continue;
        }
        let meaning = meaning(&body).map_err(|text| Error::new(ErrorKind::InvalidData, text))?;
        let mut text = serde_json::to_string_pretty(&meaning)?;
        text.push('\n');
        if let Some(directory) = bin.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&bin, &body)?;
        fs::write(&expected, text)?;
        written.extend([bin, expected]);
    }
    Ok(written)
}

/// What a body decodes to, as plain JSON: what would be stored of it today.
///
/// # Errors
/// A text that says what is wrong with it.
pub fn meaning(body: &[u8]) -> std::result::Result<Value, String> {
    let recorded = decode(body).map_err(|error| format!("{error}: {error:?}"))?;
    let Recorded {
        index,
        term,
        kind,
        time,
        envelope,
    } = recorded;
    let mut value = json!({ "index": index, "term": term, "kind": kind.name(), "time": time });
    if let Some(envelope) = envelope {
        let mut payload = Vec::new();
        envelope
            .event
            .encode_payload(&mut payload)
            .map_err(|error| error.to_string())?;
        let mut guards = Vec::new();
        encode_map(&mut guards, &envelope.guards, kind).map_err(|error| error.to_string())?;
        value["id"] = json!(envelope.id);
        value["actor"] = json!(envelope.actor);
        value["request_id"] = json!(envelope.request_id);
        value["cause"] = json!(envelope.cause);
        value["trace"] = json!(envelope.trace);
        value["guards"] = plain::to_json(&guards).map_err(|error| error.to_string())?;
        value["event"] = plain::to_json(&payload).map_err(|error| error.to_string())?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
    }

    #[test]
    fn every_version_ever_written_is_frozen_and_still_means_the_same() {
        for kind in EventKind::ALL.iter().copied() {
            for version in 1..=kind.version() {
                let (bin, expected) = files(&root(), kind, version);
                let body = fs::read(&bin).unwrap_or_else(|_| {
                    panic!("{kind} v{version} has no frozen bytes: run `cargo xtask freeze-event`")
                });
                let expected: Value = serde_json::from_slice(&fs::read(expected).unwrap()).unwrap();
                assert_eq!(meaning(&body).unwrap(), expected, "{kind} v{version}");
            }
        }
    }

    #[test]
    fn an_encoding_does_not_change_without_a_new_version() {
        for kind in EventKind::ALL.iter().copied() {
            let (bin, _) = files(&root(), kind, kind.version());
            let now = samples::body(kind, kind.version()).unwrap();
            assert!(
                fs::read(&bin).unwrap() == now,
                "{kind} is no longer written as v{} was frozen: give it a new version",
                kind.version()
            );
        }
    }

    #[test]
    fn no_field_changes_without_a_new_version() {
        for kind in EventKind::ALL.iter().copied() {
            let change = reshaped(&root(), kind).unwrap();
            assert!(
                change.broken.is_empty(),
                "{kind} v{} changed, give it a new version: {:#?}",
                kind.version(),
                change.broken
            );
            assert!(
                change.added.is_empty(),
                "{kind} has new fields: add a level to the change log, then run `cargo xtask \
                 freeze-event`: {:#?}",
                change.added
            );
        }
    }

    #[test]
    fn a_shape_grows_and_is_never_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let kind = EventKind::ServiceRegistrationsDeleted;
        let path = freeze_shape(directory.path(), kind).unwrap().unwrap();
        assert_eq!(freeze_shape(directory.path(), kind).unwrap(), None);
        let frozen = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("ServiceKey.Former {{}}\n{frozen}")).unwrap();
        let error = freeze_shape(directory.path(), kind)
            .unwrap_err()
            .to_string();
        assert!(error.contains("needs a new version"), "{error}");
        assert!(error.contains("ServiceKey.Former"), "{error}");
        let lines: Vec<&str> = frozen.lines().collect();
        fs::write(&path, lines[1..].join("\n") + "\n").unwrap();
        freeze_shape(directory.path(), kind).unwrap().unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap().lines().count(),
            lines.len()
        );
    }

    #[test]
    fn nothing_is_frozen_that_was_never_written() {
        let names: Vec<_> = EventKind::ALL.iter().map(|kind| directory(*kind)).collect();
        for entry in fs::read_dir(root()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(names.contains(&name), "golden/{name} belongs to no kind");
        }
    }

    #[test]
    fn freezing_twice_writes_once() {
        let directory = tempfile::tempdir().unwrap();
        let written = freeze(directory.path(), EventKind::EvalsDeleted).unwrap();
        assert_eq!(written.len(), 4);
        assert!(
            freeze(directory.path(), EventKind::EvalsDeleted)
                .unwrap()
                .is_empty()
        );
    }
}
