//! What the agent says about itself: levels, text or JSON, standard error and a rotated file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt, reload};

use crate::config::LogSettings;
use crate::diagnostics::monitor;

/// A log level that is unknown, or a file that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoggingError {
    /// The level is not one of Nomad's.
    #[error("log_level: unknown level {0:?}: use TRACE, DEBUG, INFO, WARN, ERROR or OFF")]
    Level(String),
    /// The file cannot be opened for appending.
    #[error("log_file: cannot open {path}")]
    File {
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The level of the process's log, to be changed while it is written.
#[derive(Clone)]
pub(super) struct LogLevel(Arc<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>);

impl LogLevel {
    /// Logs at this level from now on.
    ///
    /// # Errors
    /// There is no such level, or the log is gone.
    pub(super) fn set(&self, level: &str) -> Result<(), String> {
        (self.0)(filter(level).map_err(|error| error.to_string())?)
    }
}

/// Installs the process's subscriber; answers how to change its level. Calling it twice leaves the
/// first in place.
///
/// # Errors
/// The level is unknown or the log file cannot be opened.
pub(super) fn install(settings: &LogSettings) -> Result<LogLevel, LoggingError> {
    let filter = filter(&settings.level)?;
    let writer = match &settings.file {
        None => BoxMakeWriter::new(io::stderr),
        Some(path) => {
            let file = Rotated::open(path, RotationLimits::of(settings))?;
            BoxMakeWriter::new(io::stderr.and(Mutex::new(file)))
        }
    };
    let (filter, handle) = reload::Layer::new(filter);
    let layer = fmt::layer()
        .with_file(settings.include_location)
        .with_line_number(settings.include_location)
        .with_ansi(false)
        .with_writer(writer);
    let layer = match settings.json {
        true => layer.json().with_filter(filter).boxed(),
        false => layer.with_filter(filter).boxed(),
    };
    // A second agent in one process (tests) continues with the first one's subscriber.
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(monitor::layer())
        .try_init();
    Ok(LogLevel(Arc::new(move |new| {
        handle.reload(new).map_err(|e| e.to_string())
    })))
}

/// `level` for drover, `warn` for the libraries below it, `DROVER_LOG` over both.
fn filter(level: &str) -> Result<EnvFilter, LoggingError> {
    let own = monitor::level(level).ok_or_else(|| LoggingError::Level(level.to_owned()))?;
    if own == LevelFilter::OFF {
        return Ok(EnvFilter::new("off"));
    }
    let fixed = format!("warn,drover={own},drover_projections={own},openraft=error");
    Ok(EnvFilter::try_from_env("DROVER_LOG").unwrap_or_else(|_| EnvFilter::new(fixed)))
}

/// When a log file starts anew, and what is kept.
#[derive(Clone, Copy)]
struct RotationLimits {
    /// Bytes; 0: no limit.
    bytes: u64,
    /// How long one file is written to; zero: no limit.
    age: Duration,
    /// How many old files are kept; 0: all.
    keep: u64,
}

impl RotationLimits {
    fn of(settings: &LogSettings) -> Self {
        Self {
            bytes: settings.rotate_bytes,
            age: settings.rotate_duration,
            keep: settings.rotate_max_files,
        }
    }
}

/// A log file that starts anew at its limits.
struct Rotated {
    path: PathBuf,
    file: File,
    written: u64,
    since: Instant,
    limits: RotationLimits,
    next: u64,
}

impl Rotated {
    fn open(path: &Path, limits: RotationLimits) -> Result<Self, LoggingError> {
        let wrap = |source| LoggingError::File {
            path: path.to_owned(),
            source,
        };
        let file = append_to(path).map_err(wrap)?;
        let written = file.metadata().map_err(wrap)?.len();
        let next = newest(path).map_err(wrap)? + 1;
        Ok(Self {
            path: path.to_owned(),
            file,
            written,
            since: Instant::now(),
            limits,
            next,
        })
    }

    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, numbered(&self.path, self.next))?;
        let keep = self.limits.keep;
        if keep > 0 && self.next > keep {
            let _ = std::fs::remove_file(numbered(&self.path, self.next - keep));
        }
        self.next += 1;
        self.file = append_to(&self.path)?;
        self.written = 0;
        self.since = Instant::now();
        Ok(())
    }
}

impl Write for Rotated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let RotationLimits {
            bytes: most, age, ..
        } = self.limits;
        let full = most > 0 && self.written + bytes.len() as u64 > most;
        let old = !age.is_zero() && self.since.elapsed() >= age;
        if self.written > 0 && (full || old) {
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

/// The number of the youngest rotated file; 0 where there is no such file.
fn newest(path: &Path) -> io::Result<u64> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(0);
    };
    let dir = Some(dir).filter(|dir| !dir.as_os_str().is_empty());
    let mut newest = 0;
    for entry in std::fs::read_dir(dir.unwrap_or(Path::new(".")))? {
        let other = entry?.file_name();
        let number = other
            .to_str()
            .and_then(|other| other.strip_prefix(name.to_str()?)?.strip_prefix('.'))
            .and_then(|number| number.parse().ok());
        newest = newest.max(number.unwrap_or(0));
    }
    Ok(newest)
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
        let mut limits = RotationLimits {
            bytes: 10,
            age: Duration::ZERO,
            keep: 2,
        };
        let mut log = Rotated::open(&path, limits).expect("opens");
        for line in ["aaaaaaaa\n", "bbbbbbbb\n", "cccccccc\n", "dddddddd\n"] {
            log.write_all(line.as_bytes()).expect("writes");
        }
        let read = |p: PathBuf| std::fs::read_to_string(p).unwrap_or_default();
        assert_eq!(read(path.clone()), "dddddddd\n");
        assert_eq!(read(numbered(&path, 3)), "cccccccc\n");
        assert_eq!(read(numbered(&path, 2)), "bbbbbbbb\n");
        assert!(!numbered(&path, 1).exists());

        (limits.bytes, limits.age) = (0, Duration::from_nanos(1));
        let mut log = Rotated::open(&path, limits).expect("opens");
        log.write_all(b"e\n").expect("writes");
        assert_eq!(read(path.clone()), "e\n", "the old one was old enough");
        assert_eq!(read(numbered(&path, 4)), "dddddddd\n");
    }

    #[test]
    fn each_limit_of_a_log_file_is_the_one_that_is_named_for_it() {
        let limits = RotationLimits::of(&LogSettings {
            rotate_bytes: 1,
            rotate_duration: Duration::from_secs(2),
            rotate_max_files: 3,
            ..LogSettings::default()
        });
        let found = (limits.bytes, limits.age.as_secs(), limits.keep);
        assert_eq!(found, (1, 2, 3));
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
