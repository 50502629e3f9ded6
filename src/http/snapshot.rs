//! Backups of the cluster: one file out, one file in.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as Incoming;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::json;
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
use crate::history::proof::NoteKey;
use crate::server::backup::Backup;

/// The type of a backup.
const TAR: &str = "application/x-tar";
/// The header with the key that the backup's keys are wrapped with, base64.
const WRAP: &str = "x-drover-wrap-key";
/// Bytes sent at a time.
const PIECE: usize = 256 << 10;
/// Pieces that wait to be sent.
const AHEAD: usize = 4;
/// The longest pause while a backup comes in.
const SILENCE: Duration = Duration::from_secs(30);

fn failed(error: ArchiveError) -> Refusal {
    match error {
        ArchiveError::Refused(text) => Refusal::bad_request(text),
        other => {
            let text = crate::error::chain(&other);
            tracing::error!(error = text, "a backup failed");
            Refusal::internal(text)
        }
    }
}

fn io(error: std::io::Error) -> Refusal {
    Refusal::internal(format!("cannot keep the backup: {error}"))
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

/// `PUT /v1/operator/snapshot[?at=<index|time>][&key=<verifier key>]`: makes a backup the state, as
/// a new epoch of the log. The server then starts anew.
pub(super) async fn restore(write: Write, body: Incoming) -> Result<Answer, Refusal> {
    let server = Arc::clone(&write.api.server);
    let how = wanted(&write)?;
    let scratch = server.receive().map_err(failed)?;
    let path = scratch.path().join("backup.tar");
    receive(body, &path).await?;
    let who = (write.request.identity.actor.clone(), write.request.id());
    let done = server.restore(path, how, who).await.map_err(failed)?;
    let answer = json!({
        "Index": done.first,
        "Restored": done.index,
        "Epoch": done.epoch,
        "Tables": done.tables,
    });
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

/// Writes what comes in into a file.
async fn receive(mut body: Incoming, path: &std::path::Path) -> Result<(), Refusal> {
    let mut file = tokio::fs::File::create(path).await.map_err(io)?;
    loop {
        let frame = tokio::time::timeout(SILENCE, body.frame()).await;
        let frame = frame.map_err(|_| {
            Refusal::new(
                Code::Timeout,
                format!("the backup: nothing came for {SILENCE:?}"),
            )
        })?;
        match frame {
            None => break,
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    file.write_all(&bytes).await.map_err(io)?;
                }
            }
            Some(Err(error)) => {
                return Err(Refusal::bad_request(format!(
                    "failed to read the backup: {error}"
                )));
            }
        }
    }
    file.flush().await.map_err(io)?;
    Ok(())
}
