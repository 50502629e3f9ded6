//! Files of an allocation.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_events::model::AllocFileInfo;
use rustix::fs::{FileType, Stat};
use tokio::sync::{Semaphore, mpsc};

use super::shape::{BYTES, content_type, info};
use super::{FileFrame, Origin, control, runner};
use crate::agent::Client;
use crate::alloc_dir::AllocDir;
use crate::beneath::{self, FileError};
use drover_error::{Code, Refusal};

/// The longest piece of a stream, bytes.
pub(super) const FRAME: usize = 64 * 1024;
/// How often a followed file is looked at.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// How often a silent stream says that it is alive.
pub(super) const ALIVE: Duration = Duration::from_secs(1);
/// Pieces that may wait for a slow reader.
pub(super) const WINDOW: usize = 8;
/// The most entries of a directory that are shown.
const MOST: usize = 100_000;
/// How long a look at a file may take before its caller gets the answer that it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks at files at a time, of all allocations together: they run where reads of tables and
/// decisions run as well, and whatever hangs leaves most of those threads to them.
const LOOKS: usize = 64;
static TURNS: Semaphore = Semaphore::const_new(LOOKS);

/// The pieces of a file, then `None`; without it the rest could not be read.
pub type FilePieces = mpsc::Receiver<Option<Bytes>>;

/// Looks at files of an allocation where it may wait for them: whatever a task made of them may
/// hold the look up for ever, which then costs its allocation one of its turns and no other
/// allocation anything.
///
/// # Errors
/// The look's own, or that it takes too long, or that all turns are taken.
pub(super) async fn look<T: Send + 'static>(
    dir: &AllocDir,
    work: impl FnOnce(&AllocDir) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let busy = |_| {
        Refusal::new(
            Code::Unavailable,
            "files of this allocation are busy or hang",
        )
    };
    let turn = tokio::time::timeout(PATIENCE, dir.turns().acquire_owned()).await;
    let turn = turn.map_err(busy)?;
    let all = tokio::time::timeout(PATIENCE, TURNS.acquire()).await;
    let all = all.map_err(|_| {
        let text = "files of too many allocations are busy or hang";
        Refusal::new(Code::Unavailable, text)
    })?;
    let dir = dir.clone();
    let looking = tokio::task::spawn_blocking(move || {
        let seen = work(&dir);
        drop((turn, all));
        seen
    });
    let seen = tokio::time::timeout(PATIENCE, looking)
        .await
        .map_err(busy)?;
    seen.map_err(|e| Refusal::internal(e.to_string()))?
}

/// The files of a directory, by name.
///
/// # Errors
/// Unknown allocation or file, a path that leads out or to secrets, or too many files.
pub async fn list(client: &Client, alloc: &str, path: &str) -> Result<Vec<AllocFileInfo>, Refusal> {
    let runner = runner(client, alloc)?;
    let path = path.to_owned();
    look(control(&runner)?.dir(), move |dir| {
        let found = dir.find(&path).map_err(|e| refused(&path, &e))?;
        let (entries, more) = beneath::entries(found, MOST).map_err(|e| file_error(&path, &e))?;
        if more {
            let text = format!("directory {path:?} has more than {MOST} entries");
            return Err(Refusal::bad_request(text));
        }
        let mut out: Vec<_> = entries
            .iter()
            .map(|(name, stat)| info(name, stat, String::new()))
            .collect();
        out.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    })
    .await
}

/// One file.
///
/// # Errors
/// Unknown allocation or file, or a path that leads out or to secrets.
pub async fn stat(client: &Client, alloc: &str, path: &str) -> Result<AllocFileInfo, Refusal> {
    let runner = runner(client, alloc)?;
    let path = path.to_owned();
    look(control(&runner)?.dir(), move |dir| {
        let found = dir.find(&path).map_err(|e| refused(&path, &e))?;
        let stat = beneath::stat(&found).map_err(|e| file_error(&path, &e))?;
        let name = Path::new(&path)
            .file_name()
            .map_or("/".into(), |n| n.to_string_lossy());
        let kind = match beneath::kind(&stat) {
            FileType::RegularFile => beneath::read(&found).map_or(BYTES, |f| content_type(&f)),
            _ => BYTES,
        };
        Ok(info(&name, &stat, kind.to_owned()))
    })
    .await
}

/// Reads a file piece by piece, as fast as the receiver takes them: from `offset`, `limit` bytes at
/// most, and no more than there are now. Answers its content type too. Must be called in a runtime.
///
/// # Errors
/// Unknown allocation or file, none that is regular, or a path that leads out or to secrets.
pub async fn read(
    client: &Client,
    alloc: &str,
    path: &str,
    offset: u64,
    limit: Option<u64>,
) -> Result<(FilePieces, &'static str), Refusal> {
    let runner = runner(client, alloc)?;
    let dir = control(&runner)?.dir().clone();
    let path = path.to_owned();
    let (file, stat, kind) = look(&dir, move |dir| {
        let (file, stat) = open(dir, &path)?;
        let kind = content_type(&file);
        Ok((file, stat, kind))
    })
    .await?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let end = limit.map_or(size, |limit| offset.saturating_add(limit).min(size));
    let (tx, rx) = mpsc::channel(WINDOW);
    tokio::spawn(async move {
        let file = Arc::new(file);
        let mut at = offset;
        while at < end {
            let want = usize::try_from(end - at).map_or(FRAME, |left| left.min(FRAME));
            let source = file.clone();
            let piece = look(&dir, move |_| Ok(piece_at(&source, at, want)));
            match piece.await {
                // It became shorter meanwhile.
                Ok(Ok(data)) if data.is_empty() => break,
                Ok(Ok(data)) => {
                    at += data.len() as u64;
                    if tx.send(Some(data.into())).await.is_err() {
                        return;
                    }
                }
                Ok(Err(_)) | Err(_) => return,
            }
        }
        let _ = tx.send(None).await;
    });
    Ok((rx, kind))
}

/// The bytes of a file at a place; none at its end.
pub(super) fn piece_at(file: &File, at: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; most];
    let n = file.read_at(&mut data, at)?;
    data.truncate(n);
    Ok(data)
}

/// Streams a file, and with `follow` what is written to it later. Must be called in a runtime.
///
/// # Errors
/// As [`read`].
pub async fn stream(
    client: &Client,
    alloc: &str,
    path: &str,
    (origin, offset): (Origin, u64),
    follow: bool,
) -> Result<mpsc::Receiver<FileFrame>, Refusal> {
    let runner = runner(client, alloc)?;
    let dir = control(&runner)?.dir().clone();
    let name = path.to_owned();
    let (file, stat) = look(&dir, move |dir| open(dir, &name)).await?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let at = match origin {
        Origin::Start => offset,
        Origin::End => size.saturating_sub(offset),
    };
    let (tx, rx) = mpsc::channel(WINDOW);
    let followed = Followed {
        dir,
        path: path.to_owned(),
        file: Arc::new(file),
        at,
    };
    tokio::spawn(followed.send(follow, tx));
    Ok(rx)
}

const DELETED: &str = "file deleted";
const TRUNCATED: &str = "file truncated";

/// A file that is read as it grows.
struct Followed {
    dir: AllocDir,
    path: String,
    file: Arc<File>,
    at: u64,
}

impl Followed {
    async fn send(mut self, follow: bool, tx: mpsc::Sender<FileFrame>) {
        let mut silent = Duration::ZERO;
        loop {
            let (file, path, at) = (self.file.clone(), self.path.clone(), self.at);
            let next = look(&self.dir, move |dir| Ok(next(dir, &path, &file, at)));
            let (data, event) = match next.await {
                Ok(Ok(found)) => found,
                Ok(Err(_)) | Err(_) => return,
            };
            self.at = match event {
                TRUNCATED => 0,
                _ => self.at + data.len() as u64,
            };
            if data.is_empty() && event.is_empty() {
                if !follow || !wait(&tx, &mut silent).await {
                    return;
                }
                continue;
            }
            silent = Duration::ZERO;
            let frame = FileFrame {
                offset: self.at,
                data,
                file: self.path.clone(),
                file_event: event.into(),
            };
            if tx.send(frame).await.is_err() || event == DELETED {
                return;
            }
        }
    }
}

/// The next bytes of a file, or what happened to it: it is over when its path stands for another.
fn next(dir: &AllocDir, path: &str, file: &File, at: u64) -> io::Result<(Vec<u8>, &'static str)> {
    let data = piece_at(file, at, FRAME)?;
    if !data.is_empty() {
        return Ok((data, ""));
    }
    let ours = beneath::stat(file)?;
    let there = dir.find(path).and_then(|found| Ok(beneath::stat(found)?));
    let same = |other: Stat| (other.st_dev, other.st_ino) == (ours.st_dev, ours.st_ino);
    if ours.st_nlink == 0 || !there.is_ok_and(same) {
        return Ok((data, DELETED));
    }
    if u64::try_from(ours.st_size).unwrap_or(0) < at {
        return Ok((data, TRUNCATED));
    }
    Ok((data, ""))
}

/// Waits for the next look, and says that the stream is alive when it is time; false when the
/// receiver is gone.
pub(super) async fn wait(tx: &mpsc::Sender<FileFrame>, silent: &mut Duration) -> bool {
    tokio::select! {
        () = tokio::time::sleep(POLL) => {}
        () = tx.closed() => return false,
    }
    *silent += POLL;
    if *silent < ALIVE {
        return true;
    }
    *silent = Duration::ZERO;
    tx.send(FileFrame::default()).await.is_ok()
}

fn open(dir: &AllocDir, path: &str) -> Result<(File, Stat), Refusal> {
    let opened = || {
        let file = beneath::read(dir.find(path)?)?;
        let stat = beneath::stat(&file)?;
        Ok((file, stat))
    };
    opened().map_err(|e| refused(path, &e))
}

fn refused(path: &str, error: &FileError) -> Refusal {
    match error {
        FileError::Escapes => Refusal::bad_request(error.to_string()),
        FileError::Secret => Refusal::new(Code::PermissionDenied, format!("{error}: {path}")),
        FileError::Directory | FileError::Special => {
            Refusal::bad_request(format!("file {path:?} {error}"))
        }
        FileError::Io(e) => file_error(path, e),
    }
}

fn file_error(path: &str, error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => {
            Refusal::not_found(format!("stat {path}: no such file or directory"))
        }
        io::ErrorKind::NotADirectory => {
            Refusal::bad_request(format!("readdir {path}: not a directory"))
        }
        _ => Refusal::internal(format!("{path}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use drover_testkit::{LONG, so, wait_for};

    use super::*;

    /// Looks that hang, and the end of that.
    #[derive(Default)]
    struct Hanging {
        looks: AtomicUsize,
        over: std::sync::Mutex<bool>,
        reported: Condvar,
    }

    #[test]
    fn looks_that_hang_leave_threads_to_everybody_else() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(LOOKS + 4)
            .enable_all()
            .build()
            .unwrap();
        let hanging = Arc::new(Hanging::default());
        let looking: Vec<_> = (0..LOOKS + 16)
            .map(|number| {
                let hanging = Arc::clone(&hanging);
                let dir = AllocDir::new(Path::new("/nowhere"), &number.to_string());
                runtime.spawn(async move {
                    let hangs = move |_: &AllocDir| {
                        hanging.looks.fetch_add(1, Ordering::SeqCst);
                        let over = hanging.over.lock().unwrap();
                        drop(hanging.reported.wait_while(over, |over| !*over).unwrap());
                        Ok(())
                    };
                    look(&dir, hangs).await
                })
            })
            .collect();
        let all = || so(hanging.looks.load(Ordering::SeqCst) >= LOOKS);
        wait_for("all to hang that may", LONG, all).unwrap();
        let other = runtime.spawn_blocking(|| 7);
        let other = runtime.block_on(async { tokio::time::timeout(PATIENCE / 2, other).await });
        *hanging.over.lock().unwrap() = true;
        hanging.reported.notify_all();
        assert_eq!(other.expect("a thread is left").unwrap(), 7);
        for one in looking {
            runtime.block_on(one).unwrap().unwrap();
        }
    }
}
