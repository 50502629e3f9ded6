//! A task's output: its log files as one stream.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::fs::{FRAME, WINDOW, look, piece_at, wait};
use super::{FileFrame, Origin, control, runner};
use crate::agent::Client;
use crate::alloc_dir::AllocDir;
use crate::alloc_runner::AllocRunner;
use crate::beneath;
use crate::executor::rotate::log_indexes;
use drover_error::Refusal;

/// Which part of a task's output is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    pub task: String,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// Where to begin, counted over all files that are kept.
    pub origin: Origin,
    /// Bytes from there.
    pub offset: u64,
    /// Continue with what is written later, until the task is dead.
    pub follow: bool,
}

/// Streams a task's log. Must be called in a runtime.
///
/// # Errors
/// Nomad's texts for what is missing or unknown.
pub async fn stream(
    client: &Client,
    alloc: &str,
    request: &LogRequest,
) -> Result<mpsc::Receiver<FileFrame>, Refusal> {
    if request.task.is_empty() {
        return Err(Refusal::bad_request("must provide task name"));
    }
    if !matches!(request.stream.as_str(), "stdout" | "stderr") {
        return Err(Refusal::bad_request(
            "must provide log type (stdout/stderr)",
        ));
    }
    let runner = runner(client, alloc)?;
    let control = control(&runner)?;
    match control.task_progress(&request.task) {
        None => {
            return Err(Refusal::bad_request(format!(
                "unknown task name {:?}",
                request.task
            )));
        }
        Some((false, _)) => {
            let text = format!("task {:?} not started yet. No logs available", request.task);
            return Err(Refusal::not_found(text));
        }
        Some((true, _)) => {}
    }
    let dir = control.dir().clone();
    let name = format!("{}.{}", request.task, request.stream);
    let (origin, offset) = (request.origin, request.offset);
    let output = look(&dir, move |dir| {
        let opened = Output::open(beneath::open_dir(&dir.logs()), name, origin, offset);
        opened.map_err(|e| Refusal::internal(e.to_string()))
    })
    .await?;
    let (tx, rx) = mpsc::channel(WINDOW);
    let (task, follow) = (request.task.clone(), request.follow);
    let output = Arc::new(Mutex::new(output));
    tokio::spawn(send(output, dir, runner.clone(), task, follow, tx));
    Ok(rx)
}

/// The log files of one stream, and how far they are read.
struct Output {
    dir: OwnedFd,
    name: String,
    index: u64,
    at: u64,
    /// The file of `index`, kept open so that it is read to its end even when it is rotated away.
    file: Option<File>,
}

impl Output {
    fn open(
        dir: io::Result<OwnedFd>,
        name: String,
        origin: Origin,
        offset: u64,
    ) -> io::Result<Self> {
        let mut out = Self {
            dir: dir?,
            name,
            index: 0,
            at: 0,
            file: None,
        };
        (out.index, out.at) = out.place(origin, offset)?;
        out.file = out.file_of(out.index)?;
        Ok(out)
    }

    fn indexes(&self) -> io::Result<Vec<u64>> {
        log_indexes(&self.dir, &self.name)
    }

    fn file_of(&self, index: u64) -> io::Result<Option<File>> {
        beneath::regular(&self.dir, &format!("{}.{index}", self.name))
    }

    /// File and offset in it of a position in the whole; it is counted over all files. Nothing
    /// before the end is, as with Nomad, the last file from its start; a position beyond the end is
    /// the end.
    fn place(&self, origin: Origin, offset: u64) -> io::Result<(u64, u64)> {
        let mut sizes = Vec::new();
        for index in self.indexes()? {
            if let Some(file) = self.file_of(index)? {
                sizes.push((index, file.metadata()?.len()));
            }
        }
        let total: u64 = sizes.iter().map(|(_, size)| size).sum();
        let mut left = match origin {
            Origin::End if offset == 0 => return Ok(sizes.last().map_or((0, 0), |(i, _)| (*i, 0))),
            Origin::Start => offset.min(total),
            Origin::End => total.saturating_sub(offset),
        };
        for (index, size) in &sizes {
            if left <= *size {
                return Ok((*index, left));
            }
            left -= size;
        }
        Ok((sizes.first().map_or(0, |(i, _)| *i), 0))
    }

    /// The next bytes and the number of the file they come from; none when there are no more yet.
    fn next(&mut self) -> io::Result<(Vec<u8>, u64)> {
        loop {
            let data = self.here()?;
            if !data.is_empty() {
                return Ok((data, self.index));
            }
            let Some(next) = self.indexes()?.into_iter().find(|i| *i > self.index) else {
                return Ok((data, self.index));
            };
            // The file may have grown between the two looks.
            let data = self.here()?;
            if !data.is_empty() {
                return Ok((data, self.index));
            }
            (self.index, self.at, self.file) = (next, 0, self.file_of(next)?);
        }
    }

    fn here(&mut self) -> io::Result<Vec<u8>> {
        if self.file.is_none() {
            self.file = self.file_of(self.index)?;
        }
        let Some(file) = &self.file else {
            return Ok(Vec::new());
        };
        let data = piece_at(file, self.at, FRAME)?;
        self.at += data.len() as u64;
        Ok(data)
    }
}

async fn send(
    output: Arc<Mutex<Output>>,
    dir: AllocDir,
    runner: Arc<dyn AllocRunner>,
    task: String,
    follow: bool,
    tx: mpsc::Sender<FileFrame>,
) {
    let mut silent = Duration::ZERO;
    loop {
        // Read before the output: what a task wrote before it was dead is then all read.
        let dead = runner
            .control()
            .and_then(|c| c.task_progress(&task))
            .is_none_or(|(_, dead)| dead);
        let reading = output.clone();
        let next = look(&dir, move |_| {
            let mut output = reading.lock();
            Ok(output.next().map(|(data, index)| {
                let file = format!("{}.{index}", output.name);
                (data, file, output.at)
            }))
        });
        let Ok(Ok((data, file, offset))) = next.await else {
            return;
        };
        if data.is_empty() {
            if !follow || dead || !wait(&tx, &mut silent).await {
                return;
            }
            continue;
        }
        silent = Duration::ZERO;
        let frame = FileFrame {
            offset,
            data,
            file,
            ..FileFrame::default()
        };
        if tx.send(frame).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::executor::rotate::Rotator;

    fn open(dir: &Path, origin: Origin, offset: u64) -> Output {
        Output::open(beneath::open_dir(dir), "web.stdout".into(), origin, offset).unwrap()
    }

    #[test]
    fn mod_23_a_position_is_counted_over_all_files() {
        let tmp = tempfile::tempdir().unwrap();
        for (n, text) in [(3, "12345"), (4, "678"), (5, "9")] {
            fs::write(tmp.path().join(format!("web.stdout.{n}")), text).unwrap();
        }
        for (origin, offset, expected) in [
            (Origin::Start, 0, (3, 0)),
            (Origin::Start, 6, (4, 1)),
            (Origin::Start, 100, (5, 1)),
            (Origin::End, 0, (5, 0)),
            (Origin::End, 1, (4, 3)),
            (Origin::End, 2, (4, 2)),
            (Origin::End, 100, (3, 0)),
        ] {
            let output = open(tmp.path(), origin, offset);
            assert_eq!((output.index, output.at), expected, "{origin:?} {offset}");
        }
    }

    fn all(output: &mut Output) -> String {
        let mut out = Vec::new();
        loop {
            let (data, _) = output.next().unwrap();
            if data.is_empty() {
                return String::from_utf8(out).unwrap();
            }
            out.extend(data);
        }
    }

    #[test]
    fn mod_23_a_followed_log_loses_nothing_when_its_file_is_rotated_away() {
        let tmp = tempfile::tempdir().unwrap();
        let mut log = Rotator::open(tmp.path(), "web.stdout", 2, 6).unwrap();
        log.write(b"one\n").unwrap();
        let mut output = open(tmp.path(), Origin::Start, 0);
        assert_eq!(all(&mut output), "one\n");
        // Three more files: the one that is followed is gone, its end was not read yet.
        log.write(b"2\nthree\n4\nfive\n6\n").unwrap();
        let left = log_indexes(beneath::open_dir(tmp.path()).unwrap(), "web.stdout").unwrap();
        assert!(!left.contains(&0), "{left:?}");
        let rest = all(&mut output);
        assert!(rest.starts_with("2\n"), "{rest:?}");
        assert!(rest.ends_with("five\n6\n"), "{rest:?}");
        log.write(b"7\n").unwrap();
        assert_eq!(all(&mut output), "7\n");
    }

    #[test]
    fn mod_23_a_log_that_begins_later_is_read_from_its_beginning() {
        let tmp = tempfile::tempdir().unwrap();
        let mut output = open(tmp.path(), Origin::Start, 0);
        assert_eq!(all(&mut output), "", "no file yet");
        fs::write(tmp.path().join("web.stdout.0"), "late\n").unwrap();
        assert_eq!(all(&mut output), "late\n");
    }

    #[test]
    fn mod_23_a_log_is_held_from_the_moment_it_is_asked_for() {
        let tmp = tempfile::tempdir().unwrap();
        let file = |index: u64| tmp.path().join(format!("web.stdout.{index}"));
        fs::write(file(0), "one\n").unwrap();
        let mut output = open(tmp.path(), Origin::Start, 0);
        // It is rotated away before anything of it was read.
        fs::remove_file(file(0)).unwrap();
        fs::write(file(1), "two\n").unwrap();
        assert_eq!(all(&mut output), "one\ntwo\n");
    }

    #[test]
    fn mod_23_who_follows_from_the_end_begins_with_the_last_file_or_behind_all_of_them() {
        let tmp = tempfile::tempdir().unwrap();
        let beyond = || open(tmp.path(), Origin::Start, u64::MAX);
        let mut early = [open(tmp.path(), Origin::End, 0), beyond()];
        for output in &mut early {
            assert_eq!(all(output), "", "no file yet");
        }
        let write = |index: u64, text: &str| {
            fs::write(tmp.path().join(format!("web.stdout.{index}")), text).unwrap();
        };
        write(0, "one\ntwo\n");
        write(1, "three\n");
        for output in &mut early {
            assert_eq!(all(output), "one\ntwo\nthree\n");
        }
        let (mut last, mut later) = (open(tmp.path(), Origin::End, 0), beyond());
        assert_eq!(all(&mut last), "three\n");
        assert_eq!(all(&mut later), "");
        write(2, "four\n");
        for output in [&mut last, &mut later] {
            assert_eq!(all(output), "four\n");
        }
        assert_eq!(all(&mut open(tmp.path(), Origin::End, 4)), "our\n");
    }

    #[test]
    fn mod_23_a_pipe_or_a_link_with_a_log_files_name_is_no_log() {
        let tmp = tempfile::tempdir().unwrap();
        let secret = tmp.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        fs::write(tmp.path().join("web.stdout.2"), "text").unwrap();
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&tmp.path().join("web.stdout.3"), mode).unwrap();
        std::os::unix::fs::symlink(&secret, tmp.path().join("web.stdout.1")).unwrap();
        for (origin, offset) in [(Origin::Start, 0), (Origin::End, 0), (Origin::End, 100)] {
            assert_eq!(all(&mut open(tmp.path(), origin, offset)), "text");
        }
        // A file that was there and is a pipe now is passed over too.
        let mut output = open(tmp.path(), Origin::Start, 0);
        output.file = None;
        fs::remove_file(tmp.path().join("web.stdout.2")).unwrap();
        nix::unistd::mkfifo(&tmp.path().join("web.stdout.2"), mode).unwrap();
        fs::write(tmp.path().join("web.stdout.4"), "more").unwrap();
        assert_eq!(all(&mut output), "more");
    }
}
