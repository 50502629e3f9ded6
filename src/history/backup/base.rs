//! Bases: the states that a log continues from once its beginning is dropped.
//!
//! A base is a snapshot of Raft's, as it lies under `snapshots/`, with a note beside its head: a
//! checkpoint, signed like any other, of the log up to it and of its digests. It is read back, and
//! every digest computed again from its rows, before it is signed and whenever the log below it is
//! about to be dropped.

use std::fs;
use std::io;
use std::path::Path;

use drover_projections::{DatabaseOptions, Projections, snapshot};
use ed25519_dalek::SigningKey;

use super::ArchiveError;
use super::save::{digest_of, head_of};
use crate::error::chain;
use crate::history::proof::{self, Checkpoint, NoteKey};
use crate::log::Epoch;
use crate::raft::snapshot::{SnapshotDir, SnapshotHead};

/// The note beside a base's head.
pub const NOTE: &str = "note";

/// The bases of a server, oldest first.
///
/// # Errors
/// A head that cannot be read.
pub fn all(server: &Path) -> Result<Vec<(u64, SnapshotDir)>, ArchiveError> {
    let dir = server.join("snapshots");
    let found = SnapshotDir::all(&dir).map_err(ArchiveError::file("read", &dir))?;
    let index = |(head, dir): (SnapshotHead, SnapshotDir)| Some((head.base()?.0, dir));
    Ok(found.into_iter().filter_map(index).collect())
}

fn broken(base: &SnapshotDir, what: &str) -> ArchiveError {
    ArchiveError::Refused(format!("the base {}: {what}", base.path().display()))
}

/// What a base says of itself, as it is signed: the tree of the log up to it, and its tables.
fn statement(base: &SnapshotDir) -> Result<Checkpoint, ArchiveError> {
    let head = head_of(base)?;
    let state = snapshot::read_manifest(&base.state()).map_err(|e| broken(base, &chain(&e)))?;
    let Some((index, range)) = head.base() else {
        return Err(broken(base, "the tree of the log is not known"));
    };
    let last = Some((state.term, state.index));
    if head.last != last || head.time != state.time {
        return Err(broken(base, "its head is not that of its state"));
    }
    let epoch = Epoch {
        id: head.epoch,
        first_index: head.epoch_first,
    };
    if range.size() != (index + 1).saturating_sub(epoch.first_index) {
        return Err(broken(base, "its tree is not that of its index"));
    }
    Ok(Checkpoint {
        origin: proof::origin(epoch),
        size: range.size(),
        root: range.root(),
        index,
        time: head.time,
        state: digest_of(&state),
    })
}

/// Reads a base whole and computes every digest again from its rows, in the directory `scratch`,
/// which is made and removed. Answers what the base says of itself.
///
/// # Errors
/// The first thing that is not as it says.
pub fn read_back(base: &SnapshotDir, scratch: &Path) -> Result<Checkpoint, ArchiveError> {
    let own = statement(base)?;
    rows(base, scratch)?;
    Ok(own)
}

/// Computes every digest again from the rows.
fn rows(base: &SnapshotDir, scratch: &Path) -> Result<(), ArchiveError> {
    if scratch.exists() {
        fs::remove_dir_all(scratch).map_err(ArchiveError::file("remove", scratch))?;
    }
    let read = || {
        let (_projections, mut writer) = Projections::open(scratch, DatabaseOptions::dev())?;
        writer.install(&base.state())
    };
    let what = format!("the base {}", base.path().display());
    let done = read().map_err(|error| ArchiveError::state(&what, &error));
    if scratch.exists() {
        fs::remove_dir_all(scratch).map_err(ArchiveError::file("remove", scratch))?;
    }
    done.map(drop)
}

/// Signs a base, which was read back. One that is signed is left as it is. When this returns the
/// note is on the disk.
///
/// # Errors
/// A base whose tree is not known; files that cannot be read or written.
pub fn sign(base: &SnapshotDir, key: &SigningKey) -> Result<(), ArchiveError> {
    let path = base.path().join(NOTE);
    let own = statement(base)?;
    let put = if path.exists() {
        base.sync(NOTE)
    } else {
        let note = proof::sign(&own.to_text(), &own.origin, key);
        base.put(NOTE, note.as_bytes())
    };
    put.map_err(ArchiveError::file("write", &path))
}

/// Whether a base that was there is gone meanwhile: its head is removed before its other files.
pub fn is_gone(base: &SnapshotDir) -> bool {
    matches!(base.head(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Whether a base has a note.
pub fn is_signed(base: &SnapshotDir) -> bool {
    base.path().join(NOTE).exists()
}

/// What a base of the log of `epoch` says of itself.
fn own(base: &SnapshotDir, epoch: Epoch) -> Result<Checkpoint, ArchiveError> {
    let own = statement(base)?;
    if own.origin != proof::origin(epoch) {
        let (index, other) = (own.index, own.origin);
        return Err(ArchiveError::Refused(format!(
            "the base at index {index} is of another log: {other}"
        )));
    }
    Ok(own)
}

/// Checks a base of the log of `epoch` against its rows, every digest computed again, as
/// [`read_back`] does. Answers what the base says, whether it is signed or not.
///
/// # Errors
/// The first thing that is wrong.
pub fn read(base: &SnapshotDir, epoch: Epoch, scratch: &Path) -> Result<Checkpoint, ArchiveError> {
    let own = own(base, epoch)?;
    rows(base, scratch)?;
    Ok(own)
}

/// Checks a base as [`read`] does, and against its note: signed by one of `keys`, of the state it
/// is signed for. Answers what the base says.
///
/// # Errors
/// The first thing that is wrong; a base without a note.
pub fn verify(
    base: &SnapshotDir,
    epoch: Epoch,
    keys: &[NoteKey],
    scratch: &Path,
) -> Result<Checkpoint, ArchiveError> {
    let own = own(base, epoch)?;
    let index = own.index;
    let Ok(note) = fs::read_to_string(base.path().join(NOTE)) else {
        return Err(ArchiveError::Refused(format!(
            "the base at index {index} is not signed"
        )));
    };
    if !keys.iter().any(|key| proof::open(&note, key).is_ok()) {
        return Err(ArchiveError::Refused(format!(
            "no known key signed the base at index {index}"
        )));
    }
    let signed = proof::text(&note).ok().and_then(Checkpoint::parse);
    if signed.as_ref() != Some(&own) {
        return Err(ArchiveError::Refused(format!(
            "the base at index {index} is not what was signed"
        )));
    }
    rows(base, scratch)?;
    Ok(own)
}
