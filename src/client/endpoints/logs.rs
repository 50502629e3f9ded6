//! A task's output: its log files as one stream.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::fs::{FRAME, WINDOW, wait};
use super::{Frame, Origin, control, runner};
use crate::client::agent::Client;
use crate::client::alloc::factory::AllocRunner;
use crate::client::executor::rotate::log_indexes;
use crate::error::ApiError;

/// What of a task's output is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// The task.
    pub task: String,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// Where to begin, counted over all files that are kept.
    pub origin: Origin,
    /// Bytes from there.
    pub offset: u64,
    /// Go on with what is written later, until the task is dead.
    pub follow: bool,
}

/// Streams a task's log. Must be called in a runtime.
///
/// # Errors
/// Nomad's texts for what is missing or unknown.
pub fn stream(
    client: &Client,
    alloc: &str,
    request: &LogRequest,
) -> Result<mpsc::Receiver<Frame>, ApiError> {
    if request.task.is_empty() {
        return Err(ApiError::bad_request("must provide task name"));
    }
    if !matches!(request.stream.as_str(), "stdout" | "stderr") {
        return Err(ApiError::bad_request(
            "must provide log type (stdout/stderr)",
        ));
    }
    let runner = runner(client, alloc)?;
    let control = control(&runner)?;
    match control.task_progress(&request.task) {
        None => {
            return Err(ApiError::bad_request(format!(
                "unknown task name {:?}",
                request.task
            )));
        }
        Some((false, _)) => {
            let text = format!("task {:?} not started yet. No logs available", request.task);
            return Err(ApiError::not_found(text));
        }
        Some((true, _)) => {}
    }
    let files = Files {
        dir: control.dir().logs(),
        name: format!("{}.{}", request.task, request.stream),
    };
    let place = files.place(request.origin, request.offset);
    let (tx, rx) = mpsc::channel(WINDOW);
    let (task, follow) = (request.task.clone(), request.follow);
    tokio::spawn(follow_files(files, place, runner.clone(), task, follow, tx));
    Ok(rx)
}

/// The log files of one stream.
struct Files {
    dir: PathBuf,
    name: String,
}

impl Files {
    fn indexes(&self) -> Vec<u64> {
        log_indexes(&self.dir, &self.name).unwrap_or_default()
    }

    fn path(&self, index: u64) -> PathBuf {
        self.dir.join(format!("{}.{index}", self.name))
    }

    /// File and offset in it of a position in the whole.
    fn place(&self, origin: Origin, offset: u64) -> (u64, u64) {
        let sizes: Vec<(u64, u64)> = self
            .indexes()
            .into_iter()
            .map(|i| (i, std::fs::metadata(self.path(i)).map_or(0, |m| m.len())))
            .collect();
        let total: u64 = sizes.iter().map(|(_, size)| size).sum();
        let mut left = match origin {
            Origin::Start => offset.min(total),
            Origin::End => total.saturating_sub(offset),
        };
        for (index, size) in &sizes {
            if left <= *size {
                return (*index, left);
            }
            left -= size;
        }
        (sizes.first().map_or(0, |(i, _)| *i), 0)
    }
}

async fn follow_files(
    files: Files,
    (mut index, mut at): (u64, u64),
    runner: Arc<dyn AllocRunner>,
    task: String,
    follow: bool,
    tx: mpsc::Sender<Frame>,
) {
    let mut silent = Duration::ZERO;
    loop {
        // Asked before reading: what a task wrote before it was dead is then all read.
        let dead = runner
            .control()
            .and_then(|c| c.task_progress(&task))
            .is_none_or(|(_, dead)| dead);
        let data = read(&files.path(index), at);
        if !data.is_empty() {
            at += data.len() as u64;
            silent = Duration::ZERO;
            let file = format!("{}.{index}", files.name);
            if tx
                .send(Frame {
                    offset: at,
                    data,
                    file,
                    ..Frame::default()
                })
                .await
                .is_err()
            {
                return;
            }
            continue;
        }
        if let Some(next) = files.indexes().into_iter().find(|i| *i > index) {
            // The last file may have grown between the two looks.
            if read(&files.path(index), at).is_empty() {
                (index, at) = (next, 0);
            }
            continue;
        }
        if !follow || dead || !wait(&tx, &mut silent).await {
            return;
        }
    }
}

/// The next bytes; nothing at the end, and nothing of a file that has been rotated away.
fn read(path: &Path, at: u64) -> Vec<u8> {
    let mut data = vec![0; FRAME];
    let n = File::open(path)
        .and_then(|mut file| {
            file.seek(SeekFrom::Start(at))?;
            file.read(&mut data)
        })
        .unwrap_or(0);
    data.truncate(n);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_23_a_position_is_counted_over_all_files() {
        let tmp = tempfile::tempdir().unwrap();
        for (n, text) in [(3, "12345"), (4, "678"), (5, "9")] {
            std::fs::write(tmp.path().join(format!("web.stdout.{n}")), text).unwrap();
        }
        let files = Files {
            dir: tmp.path().to_owned(),
            name: "web.stdout".into(),
        };
        for (origin, offset, expected) in [
            (Origin::Start, 0, (3, 0)),
            (Origin::Start, 6, (4, 1)),
            (Origin::Start, 100, (5, 1)),
            (Origin::End, 0, (5, 1)),
            (Origin::End, 2, (4, 2)),
            (Origin::End, 100, (3, 0)),
        ] {
            assert_eq!(files.place(origin, offset), expected, "{origin:?} {offset}");
        }
    }
}
