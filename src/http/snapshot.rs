//! Backups of the cluster: one file out, one file in.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body as Incoming;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::answer::Answer;
use super::body::Body;
use super::gate::Write;
use super::past;
use crate::error::{Code, Refusal};
use crate::history::ArchiveError;
use crate::history::backup::restore::Restore;
use crate::history::error::FULL;
use crate::history::proof::NoteKey;
use crate::history::reserve::{DiskReserve, RESERVE, is_full};
use crate::net::body::{BEGIN, Pace};
use crate::server::backup::Backup;
use crate::table_reads::offload;

/// The type of a backup.
const TAR: &str = "application/x-tar";
/// The header with the key that the backup's keys are wrapped with, base64.
const WRAP: &str = "x-drover-wrap-key";
/// Bytes sent at a time.
const PIECE: usize = 256 << 10;
/// Pieces that wait to be sent.
const AHEAD: usize = 4;
/// After how many bytes that came in it is looked whether the disk has space for as many more.
const STEP: u64 = 8 << 20;

fn failed(error: ArchiveError) -> Refusal {
    match error {
        ArchiveError::Refused(text) => Refusal::bad_request(text),
        ArchiveError::NoSpace(text) => Refusal::new(Code::Unavailable, text),
        other => {
            let text = crate::error::chain(&other);
            tracing::error!(error = text, "a backup failed");
            Refusal::internal(text)
        }
    }
}

fn io(error: std::io::Error) -> Refusal {
    let text = format!("cannot keep the backup: {error}");
    match is_full(&error) {
        true => failed(ArchiveError::NoSpace(format!("{FULL}: {text}"))),
        false => Refusal::internal(text),
    }
}

/// `GET /v1/operator/snapshot`: a backup of everything that is applied, as a tar.
pub(super) async fn save(write: Write) -> Result<Answer, Refusal> {
    let server = Arc::clone(&write.api.server);
    if write.request.query.text("stale").is_empty() {
        write.api.proposer.lead().await?;
    }
    let backup = server.backup().await.map_err(failed)?;
    let file = tokio::fs::File::open(backup.path()).await.map_err(io)?;
    let digest = format!("sha-256={}", STANDARD.encode(backup.saved.sha256));
    let index = backup.saved.manifest.index;
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(send(backup, file, sender));
    Ok(Answer::of(TAR, Body::whole(receiver))
        .header("digest", digest)
        .at(index))
}

/// Sends a backup's bytes and then that these were all; its file goes when this ends.
async fn send(_backup: Backup, mut file: tokio::fs::File, to: mpsc::Sender<Option<Bytes>>) {
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let next = match file.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some(piece.into()),
            Err(error) => {
                tracing::error!(%error, "a backup cannot be read again");
                return;
            }
        };
        let last = next.is_none();
        if to.send(next).await.is_err() || last {
            return;
        }
    }
}

/// What a backup was restored as.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct RestoreResponse {
    pub(crate) epoch: String,
    /// Where the new epoch begins.
    pub(crate) index: u64,
    /// The index whose state was restored.
    pub(crate) restored: u64,
    /// How many tables were proved.
    pub(crate) tables: usize,
}

/// `PUT /v1/operator/snapshot[?at=<index|time>][&key=<verifier key>]`: makes a backup the state, as
/// a new epoch of the log. The server then starts anew.
pub(super) async fn restore(write: Write, mut body: Incoming) -> Result<Answer, Refusal> {
    let server = Arc::clone(&write.api.server);
    let mut pace = Pace::new("the backup", BEGIN);
    let linger = write.request.linger();
    let ready = wanted(&write).and_then(|how| Ok((how, server.receive().map_err(failed)?)));
    let (how, scratch) = match ready {
        Ok(ready) => ready,
        Err(refused) => {
            linger.take_rest(Pin::new(&mut body), &pace).await;
            return Err(refused);
        }
    };
    let path = scratch.path().join("backup.tar");
    let reserve = DiskReserve::of(&path, RESERVE);
    let fits = move |bytes| {
        let fits = offload(|| reserve.check_for(bytes));
        fits.map_err(|error| Refusal::new(Code::Unavailable, crate::error::chain(&error)))
    };
    if let Err(refused) = receive(&mut body, &path, &mut pace, fits).await {
        let _ = tokio::fs::remove_file(&path).await;
        let body = Pin::new(&mut body);
        linger.take_rest_after(&refused, body, &pace).await;
        return Err(refused);
    }
    let who = (write.request.identity.actor.clone(), write.request.id());
    let done = server.restore(path, how, who).await.map_err(failed)?;
    let answer = RestoreResponse {
        epoch: done.epoch,
        index: done.first,
        restored: done.index,
        tables: done.tables,
    };
    Ok(Answer::json(&answer)?.written(done.first))
}

fn wanted(write: &Write) -> Result<Restore, Refusal> {
    let moment = past::named(&write.request.query, "at")?;
    let key = write.request.query.text("key");
    let pinned = match key {
        "" => Vec::new(),
        key => vec![
            NoteKey::parse(key)
                .map_err(|error| Refusal::bad_request(format!("key {key:?}: {error}")))?,
        ],
    };
    let wrap = match write.request.header(WRAP) {
        None => None,
        Some(text) => Some(Zeroizing::new(STANDARD.decode(text).map_err(|_| {
            Refusal::bad_request(format!("the header {WRAP} is not base64"))
        })?)),
    };
    Ok(Restore {
        moment,
        wrap,
        pinned,
        ..Restore::default()
    })
}

/// Writes what comes in into a file, at the pace that any body must have, and as long as so many
/// more bytes fit. Whatever its length, it has the time to begin.
async fn receive(
    body: &mut Incoming,
    path: &Path,
    pace: &mut Pace,
    fits: impl Fn(u64) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    fits(body.size_hint().lower())?;
    let mut file = tokio::fs::File::create(path).await.map_err(io)?;
    let mut granted = 0;
    while let Some(frame) = pace.wait(body.frame()).await? {
        let frame = frame
            .map_err(|error| Refusal::bad_request(format!("failed to read the backup: {error}")))?;
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        pace.came(bytes.len());
        let length = bytes.len() as u64;
        if length > granted {
            // What was granted and is left counts as taken: others write to the disk too.
            granted = STEP.max(length);
            fits(granted)?;
        }
        granted -= length;
        file.write_all(&bytes).await.map_err(io)?;
    }
    file.flush().await.map_err(io)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_stream::wrappers::ReceiverStream;

    use super::*;
    use crate::net::body::Linger;

    type Piece = std::io::Result<Bytes>;

    /// A body of which nobody knows how long it is.
    fn body(pieces: mpsc::Receiver<Piece>) -> Incoming {
        Incoming::from_stream(ReceiverStream::new(pieces))
    }

    fn pace_from(begin: Duration) -> Pace {
        Pace::new("the backup", begin)
    }

    #[tokio::test]
    async fn a_backup_that_trickles_ends_at_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup.tar");
        let (sender, pieces) = mpsc::channel::<Piece>(1);
        let trickle = tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(10));
            for _ in 0..1_000 {
                if sender.send(Ok(Bytes::from_static(b"x"))).await.is_err() {
                    return;
                }
                pace.tick().await;
            }
        });
        let mut body = body(pieces);
        let mut pace = pace_from(Duration::from_millis(300));
        let refused = receive(&mut body, &path, &mut pace, |_| Ok(())).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, Code::Timeout, "{refused}");
        assert!(refused.message.ends_with("bytes came in time"), "{refused}");
        drop(body);
        trickle.await.unwrap();
    }

    #[test]
    fn a_disk_that_gets_full_under_a_backup_is_unavailable() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let file = ArchiveError::file("write", Path::new("/srv/backup.tar"));
        for refused in [io(full()), failed(file(full()))] {
            assert_eq!(refused.code, Code::Unavailable, "{refused}");
            // By this the command line knows it.
            assert!(refused.message.starts_with(FULL), "{refused}");
        }
        let other = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert_eq!(io(other).code, Code::Internal);
    }

    #[tokio::test]
    async fn a_backup_leaves_the_disk_its_reserve() {
        let dir = tempfile::tempdir().unwrap();
        // A file each: what was written last to one that is given up may get to the disk late.
        let [begun, cut, path] = ["begun", "cut", "whole"].map(|name| dir.path().join(name));
        let full = DiskReserve::of(&begun, u64::MAX);
        let fits = |bytes| {
            full.check_for(bytes)
                .map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))
        };
        // One that says how long it is is not even begun.
        let mut known = Incoming::from(vec![7_u8; 1_000]);
        let mut pace = pace_from(BEGIN);
        let refused = receive(&mut known, &begun, &mut pace, fits).await;
        let refused = refused.unwrap_err();
        assert!(refused.message.starts_with("the disk is full"), "{refused}");
        assert!(!begun.exists());
        let [sends, waits] = [false, true].map(Linger::of);
        assert!(sends.comes(&pace) && !waits.comes(&pace), "it may wait");
        // It becomes full while a long one comes in.
        let (sender, pieces) = mpsc::channel::<Piece>(1);
        let sent = tokio::spawn(async move {
            let piece = Bytes::from(vec![7; 1 << 20]);
            while sender.send(Ok(piece.clone())).await.is_ok() {}
        });
        let looks = std::cell::Cell::new(0);
        let for_two = |_| {
            looks.set(looks.get() + 1);
            match looks.get() {
                // The first look is for what it says of its length.
                1..=3 => Ok(()),
                _ => Err(Refusal::new(Code::Unavailable, "full")),
            }
        };
        let mut long = body(pieces);
        let mut pace = pace_from(BEGIN);
        let refused = receive(&mut long, &cut, &mut pace, for_two).await;
        assert_eq!(refused.unwrap_err().message, "full");
        assert!(waits.comes(&pace), "it was asked for");
        assert!(cut.metadata().unwrap().len() <= 2 * STEP);
        drop(long);
        sent.await.unwrap();
        // One for which there is space is written as it is.
        let (mut whole, mut pace) = (Incoming::from(vec![7_u8; 1_000]), pace_from(BEGIN));
        let done = receive(&mut whole, &path, &mut pace, |_| Ok(())).await;
        done.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [7; 1_000]);
    }
}
