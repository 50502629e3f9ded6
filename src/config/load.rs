//! Finds the files, reads each over what came before, and reports every problem with its location.

use super::Config;
use super::hcl1::{self, SyntaxError};
use super::read::{BodyReader, Problem};
use super::settings::overlay;
use std::path::{Path, PathBuf};

/// Why the configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file or directory could not be read.
    #[error("error loading {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is neither HCL nor JSON.
    #[error("error loading {}:{source}", path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where and why.
        source: SyntaxError,
    },
    /// Unknown keys or values of the wrong kind, all of them.
    #[error("{}", list(path, problems))]
    Content {
        /// Which file.
        path: PathBuf,
        /// All of its problems.
        problems: Vec<Problem>,
    },
    /// A text that must be an address and is not.
    #[error("{what} {text:?} is not an address")]
    Address {
        /// Which setting.
        what: &'static str,
        text: String,
    },
    /// The configuration as a whole cannot work; all reasons.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

fn list(path: &Path, problems: &[Problem]) -> String {
    let line = |p: &Problem| {
        format!(
            "Error loading {}:{}: {}",
            path.display(),
            p.location,
            p.text
        )
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Reads `paths` (files, or directories of `*.hcl` and `*.json`) over `config`, in order.
///
/// # Errors
/// The first file that cannot be read or parsed, or all problems of the first file with unknown
/// keys.
pub fn load(config: &mut Config, paths: &[PathBuf]) -> Result<(), ConfigError> {
    for path in paths {
        let io = |source| ConfigError::Io {
            path: path.clone(),
            source,
        };
        let meta = std::fs::metadata(path).map_err(io)?;
        if meta.is_dir() {
            for file in directory(path).map_err(io)? {
                load_file(config, &file)?;
            }
        } else {
            load_file(config, path)?;
        }
    }
    Ok(())
}

fn directory(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        let temporary = name.ends_with('~')
            || name.starts_with(".#")
            || (name.starts_with('#') && name.ends_with('#'));
        let wanted = name.ends_with(".hcl") || name.ends_with(".json");
        if wanted && !temporary && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn load_file(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let io = |source| ConfigError::Io {
        path: path.to_owned(),
        source,
    };
    let bytes = std::fs::read(path).map_err(io)?;
    let text = String::from_utf8(bytes).map_err(|e| {
        io(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            e.utf8_error(),
        ))
    })?;
    let syntax = |source| ConfigError::Syntax {
        path: path.to_owned(),
        source,
    };
    let node = hcl1::parse(&text).map_err(syntax)?;
    let mut problems = Vec::new();
    if let Some(mut reader) = BodyReader::open(&node, "", &mut problems) {
        overlay(config, &mut reader);
        reader.finish();
    }
    if problems.is_empty() {
        config.files.push(path.to_owned());
        return Ok(());
    }
    problems.sort_by_key(|p| (p.location.line, p.location.column));
    Err(ConfigError::Content {
        path: path.to_owned(),
        problems,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    #[test]
    fn later_files_win_lists_grow_and_maps_merge() {
        let dir = tempfile::tempdir().expect("dir");
        let first = write(
            dir.path(),
            "base",
            "region = \"eu\"\nserver \
                {\n  enabled = true\n}\n\
             client { servers = [\"a\"] meta { x = 1 } }\n\
             http_api_response_headers { \"X-A\" = \"1\" }\n",
        );
        let second = write(
            dir.path(),
            "more.conf",
            r#"{"region": "us", "server": {"heartbeat_grace": "1m"},
               "client": {"enabled": true, "servers": ["b"], "meta": {"y": "2"}},
               "plugin": {"raw_exec": {"config": {"enabled": true}}}}"#,
        );
        let mut config = Config::default();
        load(&mut config, &[first, second]).expect("loads");
        assert_eq!(config.region, "us");
        assert!(config.server.enabled && config.client.enabled);
        assert_eq!(config.client.servers, ["a", "b"]);
        assert_eq!(config.server.heartbeat_grace, Duration::from_secs(60));
        assert_eq!(config.client.meta.len(), 2);
        assert_eq!(config.plugins["raw_exec"].enabled, Some(true));
        assert_eq!(config.http_api_response_headers["X-A"], "1");
        assert_eq!(config.files.len(), 2);
    }

    #[test]
    fn a_plain_boolean_that_is_on_stays_on() {
        let dir = tempfile::tempdir().expect("dir");
        let off = write(
            dir.path(),
            "off.hcl",
            "leave_on_terminate = false\n\
             client { enabled = false\n nomad_service_discovery = false }",
        );
        let mut config = Config::dev();
        config.leave_on_terminate = true;
        load(&mut config, &[off]).expect("loads");
        assert!(config.client.enabled && config.leave_on_terminate);
        assert!(!config.client.nomad_service_discovery, "not a plain one");
    }

    #[test]
    fn unknown_keys_and_wrong_kinds_are_refused_with_their_place() {
        let dir = tempfile::tempdir().expect("dir");
        let path = write(
            dir.path(),
            "a.hcl",
            "regoin = \"x\"\nserver {\n  enabled = \"maybe\"\n  foo = 1\n  bar {}\n}\nports \
                { http = 99999 }\n",
        );
        let err = load(&mut Config::default(), std::slice::from_ref(&path)).expect_err("refused");
        let shown = path.display();
        let expected = [
            format!("Error loading {shown}:1:1: unexpected keys regoin"),
            format!(
                "Error loading {shown}:3:13: server enabled: expected true or false, not \"maybe\""
            ),
            format!("Error loading {shown}:4:3: server unexpected keys foo, bar"),
            format!(
                "Error loading {shown}:7:16: ports http: \"99999\" is not a number from 0 to 65535"
            ),
        ];
        assert_eq!(err.to_string(), expected.join("\n"));
    }

    #[test]
    fn a_directory_gives_its_hcl_and_json_files_sorted() {
        let dir = tempfile::tempdir().expect("dir");
        write(dir.path(), "b.hcl", "name = \"b\"");
        write(
            dir.path(),
            "a.json",
            "{\"name\": \"a\", \"datacenter\": \"d\"}",
        );
        write(dir.path(), "c.hcl~", "name = ");
        write(dir.path(), ".#d.hcl", "name = ");
        write(dir.path(), "e.txt", "name = ");
        let mut config = Config::default();
        load(&mut config, &[dir.path().to_owned()]).expect("loads");
        assert_eq!(
            (config.name.as_str(), config.datacenter.as_str()),
            ("b", "d")
        );
    }
}
