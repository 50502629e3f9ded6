//! Copies what is to be dropped from a log to an archive before.
//!
//! In the archive each server's copy of the log lies under the epoch's name and its own id, in the
//! form of a data directory: `log/` (sealed segments), `snapshots/` (bases, each whole once its
//! `head` is there), `checkpoints` and their keys. Segments of two servers need not be the same
//! bytes, so servers that name one place never meet. Every object was read back and is what is
//! here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::backup::save::files;
use super::ArchiveError;
use super::base::NOTE;
use super::location::Store;
use crate::history::proof::{self, Checkpoint, CheckpointFile};
use crate::log::{ReadOnlyLog, SegmentInfo};
use crate::raft::snapshot::SnapshotDir;

/// What an archive took in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Archived {
    /// Segments copied now.
    pub segments: u64,
    /// The index after the last one of which the archive is known to hold a copy.
    pub next: u64,
}

/// Copies the sealed segments below `below`, a base, and the checkpoints into an archive, as the
/// copy of the server `id`, and reads back what was copied. What is there already is compared, not
/// copied again.
///
/// # Errors
/// Damage here; a place that cannot be reached, or that holds something else. What has its name in
/// the archive is whole.
pub async fn archive(
    (server, id): (&Path, &str),
    base: &SnapshotDir,
    below: u64,
    store: &Store,
) -> Result<Archived, ArchiveError> {
    let log_dir = server.join("log");
    let log = ReadOnlyLog::open(&log_dir)?;
    let store = store.within(&hex::encode(log.epoch().id)).within(id);
    put_base(base, &store).await?;
    let due: Vec<SegmentInfo> = log
        .segments()
        .into_iter()
        .take_while(|segment| segment.sealed && segment.first + segment.entries <= below)
        .collect();
    // What lies below the first segment here was copied before it was dropped.
    let mut archived = Archived {
        segments: 0,
        next: log.segments().first().map_or(0, |segment| segment.first),
    };
    let log = Arc::new(log);
    for segment in due {
        // Read once more, checksums and all, before it is relied on elsewhere.
        let (first, log) = (segment.first, Arc::clone(&log));
        let read = tokio::task::spawn_blocking(move || log.check_segment(first));
        read.await
            .map_err(|e| ArchiveError::Refused(e.to_string()))??;
        let path = log_dir.join(&segment.name);
        let name = format!("log/{}", segment.name);
        archived.segments += u64::from(store.put(&name, &path, false).await?);
        archived.next = segment.first + segment.entries;
    }
    // Those that the segments there reach: a later one would say that the end was cut off.
    let draft = FileDraft(server.join("checkpoints.archive.tmp"));
    let notes = checkpoints(server, archived.next)?;
    std::fs::write(&draft.0, notes).map_err(ArchiveError::file("write", &draft.0))?;
    store.put("checkpoints", &draft.0, true).await?;
    let keys = server.join("checkpoints.keys");
    if keys.exists() {
        store.put("checkpoints.keys", &keys, true).await?;
    }
    Ok(archived)
}

async fn put_base(base: &SnapshotDir, store: &Store) -> Result<(), ArchiveError> {
    let name = base.path().file_name().and_then(|name| name.to_str());
    let Some(name) = name else { return Ok(()) };
    for (file, path) in files(&base.state())? {
        let object = format!("snapshots/{name}/state/{file}");
        store.put(&object, &path, false).await?;
    }
    for file in [NOTE, "head"] {
        let object = format!("snapshots/{name}/{file}");
        store.put(&object, &base.path().join(file), false).await?;
    }
    Ok(())
}

/// The checkpoints below an index.
fn checkpoints(server: &Path, below: u64) -> Result<String, ArchiveError> {
    let notes = CheckpointFile::read(&server.join("checkpoints"))
        .map_err(|error| ArchiveError::Refused(crate::error::chain(&error)))?;
    let within = |note: &&String| {
        let text = proof::text(note).ok();
        let checkpoint = text.and_then(Checkpoint::parse);
        checkpoint.is_some_and(|checkpoint| checkpoint.index < below)
    };
    Ok(notes.iter().filter(within).map(String::as_str).collect())
}

/// A file that is gone when this is.
struct FileDraft(PathBuf);

impl Drop for FileDraft {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
