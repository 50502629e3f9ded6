//! What the agent says about itself: levels, text or JSON, standard error and a rotated file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt};

use crate::config::LogSettings;

/// A log level the configuration names and nobody knows, or a file that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoggingError {
    /// The level is none of Nomad's.
    #[error("log_level: unknown level {0:?}: use TRACE, DEBUG, INFO, WARN, ERROR or OFF")]
    Level(String),
    /// The file cannot be opened for appending.
    #[error("log_file: cannot open {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Installs the process's subscriber. Calling it twice leaves the first in place.
///
/// # Errors
/// The level is unknown or the log file cannot be opened.
pub(super) fn install(settings: &LogSettings) -> Result<(), LoggingError> {
    let filter = filter(&settings.level)?;
    let writer = match &settings.file {
        None => BoxMakeWriter::new(io::stderr),
        Some(path) => {
            let file = Rotated::open(path, settings.rotate_bytes, settings.rotate_max_files)?;
            BoxMakeWriter::new(io::stderr.and(Mutex::new(file)))
        }
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_file(settings.include_location)
        .with_line_number(settings.include_location)
        .with_ansi(false)
        .with_writer(writer);
    // A second agent in one process (tests) goes on with the first one's subscriber.
    let _ = if settings.json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
    Ok(())
}

/// `level` for drover, `warn` for the libraries below it, `DROVER_LOG` over both.
fn filter(level: &str) -> Result<EnvFilter, LoggingError> {
    let own = match level.to_ascii_uppercase().as_str() {
        "TRACE" => "trace",
        "DEBUG" => "debug",
        "INFO" => "info",
        "WARN" | "WARNING" => "warn",
        "ERROR" | "ERR" => "error",
        "OFF" => return Ok(EnvFilter::new("off")),
        _ => return Err(LoggingError::Level(level.to_owned())),
    };
    let fixed = format!("warn,drover={own},drover_projections={own},openraft=error");
    Ok(EnvFilter::try_from_env("DROVER_LOG").unwrap_or_else(|_| EnvFilter::new(fixed)))
}

/// A log file that starts anew after `limit` bytes (0: never) and keeps `keep` old ones (0: all).
struct Rotated {
    path: PathBuf,
    file: File,
    written: u64,
    limit: u64,
    keep: u64,
    next: u64,
}

impl Rotated {
    fn open(path: &Path, limit: u64, keep: u64) -> Result<Self, LoggingError> {
        let wrap = |source| LoggingError::File {
            path: path.to_owned(),
            source,
        };
        let file = append_to(path).map_err(wrap)?;
        let written = file.metadata().map_err(wrap)?.len();
        let mut next = 1;
        while numbered(path, next).exists() {
            next += 1;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            written,
            limit,
            keep,
            next,
        })
    }

    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, numbered(&self.path, self.next))?;
        if self.keep > 0 && self.next > self.keep {
            let _ = std::fs::remove_file(numbered(&self.path, self.next - self.keep));
        }
        self.next += 1;
        self.file = append_to(&self.path)?;
        self.written = 0;
        Ok(())
    }
}

impl Write for Rotated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.limit > 0 && self.written > 0 && self.written + bytes.len() as u64 > self.limit {
            self.rotate()?;
        }
        let n = self.file.write(bytes)?;
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

fn numbered(path: &Path, n: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("agent.log");
        let mut log = Rotated::open(&path, 10, 2).expect("opens");
        for line in ["aaaaaaaa\n", "bbbbbbbb\n", "cccccccc\n", "dddddddd\n"] {
            log.write_all(line.as_bytes()).expect("writes");
        }
        let read = |p: PathBuf| std::fs::read_to_string(p).unwrap_or_default();
        assert_eq!(read(path.clone()), "dddddddd\n");
        assert_eq!(read(numbered(&path, 3)), "cccccccc\n");
        assert_eq!(read(numbered(&path, 2)), "bbbbbbbb\n");
        assert!(!numbered(&path, 1).exists());
    }

    #[test]
    fn an_unknown_level_is_named() {
        let error = filter("LOUD").expect_err("no such level");
        assert!(error.to_string().contains("LOUD"), "{error}");
        for level in ["trace", "DEBUG", "Info", "warn", "ERR", "off"] {
            filter(level).expect(level);
        }
    }
}
