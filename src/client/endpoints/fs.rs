//! Files of an allocation.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use drover_events::gojson::Time;
use drover_events::model::AllocFileInfo;
use tokio::sync::mpsc;

use super::{Frame, Origin, control, runner};
use crate::client::agent::Client;
use crate::client::alloc::dir::{AllocDir, DirError};
use crate::error::ApiError;

/// The longest piece of a stream, bytes.
pub(super) const FRAME: usize = 64 * 1024;
/// How often a followed file is looked at.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// How often a silent stream says that it is alive.
pub(super) const ALIVE: Duration = Duration::from_secs(1);
/// Pieces that may wait for a slow reader.
pub(super) const WINDOW: usize = 8;
/// What a directory is.
const BYTES: &str = "application/octet-stream";

/// The files of a directory, by name.
///
/// # Errors
/// Unknown allocation or file, or a path that leads out.
pub fn list(client: &Client, alloc: &str, path: &str) -> Result<Vec<AllocFileInfo>, ApiError> {
    let runner = runner(client, alloc)?;
    let real = resolve(control(&runner)?.dir(), path)?;
    let mut out = Vec::new();
    for entry in fs::read_dir(&real).map_err(|e| file_error(path, &e))? {
        let entry = entry.map_err(|e| file_error(path, &e))?;
        if let Ok(meta) = entry.metadata() {
            out.push(info(
                &entry.file_name().to_string_lossy(),
                &meta,
                String::new(),
            ));
        }
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(out)
}

/// One file.
///
/// # Errors
/// Unknown allocation or file, or a path that leads out.
pub fn stat(client: &Client, alloc: &str, path: &str) -> Result<AllocFileInfo, ApiError> {
    let runner = runner(client, alloc)?;
    let real = resolve(control(&runner)?.dir(), path)?;
    let meta = fs::metadata(&real).map_err(|e| file_error(path, &e))?;
    let name = Path::new(path)
        .file_name()
        .map_or("/".into(), |n| n.to_string_lossy());
    let kind = if meta.is_dir() {
        BYTES
    } else {
        content_type(&real)
    };
    Ok(info(&name, &meta, kind.to_owned()))
}

/// Opens a file for reading from `offset`; answers it with its content type.
///
/// # Errors
/// Unknown allocation or file, a directory, or a path that leads out.
pub fn open(
    client: &Client,
    alloc: &str,
    path: &str,
    offset: u64,
) -> Result<(File, &'static str), ApiError> {
    let runner = runner(client, alloc)?;
    let real = resolve(control(&runner)?.dir(), path)?;
    let mut file = open_file(&real, path)?;
    file.seek(SeekFrom::Start(offset))
        .map_err(|e| file_error(path, &e))?;
    Ok((file, content_type(&real)))
}

/// Reads a part of a file, `limit` bytes at most (0: all).
///
/// # Errors
/// As [`open`].
pub fn read_at(
    client: &Client,
    alloc: &str,
    path: &str,
    offset: u64,
    limit: u64,
) -> Result<(Vec<u8>, &'static str), ApiError> {
    let (file, kind) = open(client, alloc, path, offset)?;
    let mut out = Vec::new();
    let limit = if limit == 0 { u64::MAX } else { limit };
    file.take(limit)
        .read_to_end(&mut out)
        .map_err(|e| file_error(path, &e))?;
    Ok((out, kind))
}

/// Streams a file, and with `follow` what is written to it later. Must be called in a runtime.
///
/// # Errors
/// As [`open`].
pub fn stream(
    client: &Client,
    alloc: &str,
    path: &str,
    (origin, offset): (Origin, u64),
    follow: bool,
) -> Result<mpsc::Receiver<Frame>, ApiError> {
    let runner = runner(client, alloc)?;
    let real = resolve(control(&runner)?.dir(), path)?;
    let mut file = open_file(&real, path)?;
    let len = file.metadata().map_err(|e| file_error(path, &e))?.len();
    let mut at = match origin {
        Origin::Start => offset,
        Origin::End => len.saturating_sub(offset),
    };
    let name = path.to_owned();
    let (tx, rx) = mpsc::channel(WINDOW);
    tokio::spawn(async move {
        let mut silent = Duration::ZERO;
        loop {
            let (data, event) = match piece(&mut file, &real, &mut at) {
                Ok(found) => found,
                Err(_) => return,
            };
            let frame = Frame {
                offset: at,
                data,
                file: name.clone(),
                file_event: event.into(),
            };
            if !frame.data.is_empty() || !event.is_empty() {
                silent = Duration::ZERO;
                let ends = event == DELETED;
                if tx.send(frame).await.is_err() || ends {
                    return;
                }
                continue;
            }
            if !follow {
                return;
            }
            if !wait(&tx, &mut silent).await {
                return;
            }
        }
    });
    Ok(rx)
}

const DELETED: &str = "file deleted";
const TRUNCATED: &str = "file truncated";

/// The next bytes of a file, or what happened to it.
fn piece(file: &mut File, path: &Path, at: &mut u64) -> io::Result<(Vec<u8>, &'static str)> {
    let mut data = vec![0; FRAME];
    file.seek(SeekFrom::Start(*at))?;
    let n = file.read(&mut data)?;
    data.truncate(n);
    *at += n as u64;
    if n > 0 {
        return Ok((data, ""));
    }
    let meta = file.metadata()?;
    if meta.nlink() == 0 || !path.exists() {
        return Ok((data, DELETED));
    }
    if meta.len() < *at {
        *at = 0;
        return Ok((data, TRUNCATED));
    }
    Ok((data, ""))
}

/// Waits for the next look, and says that the stream is alive when it is time; false when nobody
/// listens any more.
pub(super) async fn wait(tx: &mpsc::Sender<Frame>, silent: &mut Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(POLL) => {}
        () = tx.closed() => return false,
    }
    *silent += POLL;
    if *silent < ALIVE {
        return true;
    }
    *silent = Duration::ZERO;
    tx.send(Frame::default()).await.is_ok()
}

fn resolve(dir: &AllocDir, path: &str) -> Result<std::path::PathBuf, ApiError> {
    dir.resolve(path).map_err(|e| match e {
        DirError::Escapes => ApiError::bad_request(e.to_string()),
        DirError::Io(e) => file_error(path, &e),
    })
}

fn open_file(real: &Path, path: &str) -> Result<File, ApiError> {
    let meta = fs::metadata(real).map_err(|e| file_error(path, &e))?;
    if meta.is_dir() {
        return Err(ApiError::bad_request(format!(
            "file {path:?} is a directory"
        )));
    }
    // A pipe would block whoever opens it.
    if !meta.is_file() {
        return Err(ApiError::bad_request(format!(
            "file {path:?} is no regular file"
        )));
    }
    File::open(real).map_err(|e| file_error(path, &e))
}

fn file_error(path: &str, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::NotFound => {
            ApiError::not_found(format!("stat {path}: no such file or directory"))
        }
        io::ErrorKind::NotADirectory => {
            ApiError::bad_request(format!("readdir {path}: not a directory"))
        }
        _ => ApiError::internal(format!("{path}: {error}")),
    }
}

fn info(name: &str, meta: &Metadata, content_type: String) -> AllocFileInfo {
    let changed = meta
        .modified()
        .ok()
        .and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    AllocFileInfo {
        name: name.to_owned(),
        is_dir: meta.is_dir(),
        size: i64::try_from(meta.len()).unwrap_or(i64::MAX),
        file_mode: file_mode(meta),
        mod_time: Time(changed.map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))),
        content_type,
    }
}

/// A mode as Go writes it: letters for what it is, then nine for who may.
fn file_mode(meta: &Metadata) -> String {
    let (kind, mode) = (meta.file_type(), meta.mode());
    let letters = [
        (kind.is_dir(), 'd'),
        (kind.is_symlink(), 'L'),
        (kind.is_block_device() || kind.is_char_device(), 'D'),
        (kind.is_fifo(), 'p'),
        (kind.is_socket(), 'S'),
        (mode & 0o4000 != 0, 'u'),
        (mode & 0o2000 != 0, 'g'),
        (kind.is_char_device(), 'c'),
        (mode & 0o1000 != 0, 't'),
    ];
    let mut out: String = letters
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, c)| *c)
        .collect();
    if out.is_empty() {
        out.push('-');
    }
    for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        out.push(if mode & (1 << bit) == 0 { '-' } else { letter });
    }
    out
}

/// Text or bytes, from the first half kilobyte: never a type that a browser would run.
fn content_type(path: &Path) -> &'static str {
    let mut start = [0; 512];
    let n = File::open(path)
        .and_then(|mut f| f.read(&mut start))
        .unwrap_or(0);
    let start = &start[..n];
    let cut = std::str::from_utf8(start).is_err_and(|e| e.error_len().is_some());
    if cut || start.contains(&0) {
        BYTES
    } else {
        "text/plain; charset=utf-8"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_18_modes_and_types_are_written_as_nomad_does() {
        use std::os::unix::fs::PermissionsExt;
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("f");
        fs::write(&file, "héllo").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(file_mode(&fs::metadata(&file).unwrap()), "-rw-r-----");
        assert_eq!(content_type(&file), "text/plain; charset=utf-8");
        fs::write(&file, b"\x7fELF\0\0").unwrap();
        assert_eq!(content_type(&file), BYTES);
        fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(file_mode(&fs::metadata(tmp.path()).unwrap()), "dtrwxrwxrwx");
    }
}
