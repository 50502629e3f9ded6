//! Save: one file that holds the state, the log up to it, and the keys as they are wrapped.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use drover_projections::snapshot;
use ed25519_dalek::SigningKey;
use sha2::{Digest as _, Sha256};

use super::ArchiveError;
use super::manifest::{self, FORMAT, MANIFEST, Manifest, SIGNATURE, SUMS};
use super::tar::TarWriter;
use crate::history::proof::{self, Checkpoint, CheckpointFile};
use crate::history::reserve::DiskReserve;
use crate::log::{CompactRange, CopyFile, Epoch, ReadOnlyLog, leaf_hash};
use crate::raft::snapshot::{SnapshotDir, SnapshotHead};

/// Entries between two reports of progress.
const REPORT: u64 = 4096;

/// What a backup is made of.
pub struct BackupSource<'a> {
    /// The server's directory.
    pub server: &'a Path,
    /// The state, as it was just written.
    pub state: &'a SnapshotDir,
    /// The state that the log continues from, where it does not reach back to its beginning.
    pub base: Option<SnapshotDir>,
    /// An empty directory for what is written on the way.
    pub scratch: &'a Path,
    /// The disk on which that lies.
    pub reserve: &'a DiskReserve,
    /// The key that signs checkpoints, where there is one.
    pub signer: Option<SigningKey>,
}

/// A backup that was written.
#[derive(Clone, Debug)]
pub struct Saved {
    /// What it says of itself.
    pub manifest: Manifest,
    pub bytes: u64,
    /// Their hash.
    pub sha256: [u8; 32],
}

/// Writes a backup. `progress` is called with how many events were read, and of how many. The log
/// is read whole: what is damaged is never backed up.
///
/// # Errors
/// Damage, by its place; a log that does not give the tree that the state was written at; files
/// that cannot be read or written.
pub fn save(
    source: &BackupSource<'_>,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Saved, ArchiveError> {
    let head = head_of(source.state)?;
    let Some((last, range)) = head.base() else {
        let what = "the tree of the log is not known: nothing can be proved of a backup";
        return Err(ArchiveError::Refused(what.to_owned()));
    };
    let log = ReadOnlyLog::open(&source.server.join("log"))?;
    check_log(&log, last, &range, progress)?;
    let fits = |bytes: u64| source.reserve.check_write(bytes);
    let pieces = log.pieces(last, source.scratch, &fits)?;
    let state = snapshot::read_manifest(&source.state.state())
        .map_err(|error| ArchiveError::Refused(error.to_string()))?;
    let mut tar = TarWriter::new(out);
    add_snapshot(&mut tar, source.state, "")?;
    if let Some(base) = &source.base {
        add_snapshot(&mut tar, base, "base/")?;
    }
    for CopyFile { name, path, .. } in &pieces {
        add_file(&mut tar, path, &format!("log/{name}"))?;
    }
    let keys = add_keys(&mut tar, source.server)?;
    let signer = source.signer.as_ref().map(|key| {
        let origin = proof::origin(log.epoch());
        proof::NoteKey::new(origin, key.verifying_key()).text()
    });
    add_checkpoints(&mut tar, source.server, last, signer)?;
    let first = match &source.base {
        Some(base) => head_of(base)?.base().map(|(index, _)| index),
        None => None,
    };
    let manifest = Manifest {
        format: FORMAT,
        created: jiff::Timestamp::now().to_string(),
        version: crate::base::version::VERSION.to_owned(),
        epoch: hex::encode(head.epoch),
        epoch_first: head.epoch_first,
        index: last,
        term: state.term,
        time: shown(state.time),
        tree_size: range.size(),
        tree_root: hex::encode(range.root()),
        state: hex::encode(digest_of(&state)),
        first: first.unwrap_or(log.epoch().first_index),
        keys,
        tables: tables(&state),
    };
    finish(tar, manifest, source.signer.as_ref(), log.epoch())
}

/// Adds what a backup says of itself, and ends it.
fn finish(
    mut tar: TarWriter<'_>,
    manifest: Manifest,
    signer: Option<&SigningKey>,
    epoch: Epoch,
) -> Result<Saved, ArchiveError> {
    let text = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| ArchiveError::Refused(error.to_string()))?;
    let write = ArchiveError::io;
    tar.add_bytes(MANIFEST, &text).map_err(write)?;
    let sums = manifest::sums(tar.parts());
    tar.add_bytes(SUMS, sums.as_bytes()).map_err(write)?;
    if let Some(key) = signer {
        let origin = proof::origin(epoch);
        let sums = Sha256::digest(sums.as_bytes()).into();
        let note = proof::sign(&manifest::statement(&origin, &sums), &origin, key);
        tar.add_bytes(SIGNATURE, note.as_bytes()).map_err(write)?;
    }
    let (sha256, bytes) = tar.finish().map_err(write)?;
    Ok(Saved {
        manifest,
        bytes,
        sha256,
    })
}

/// Unix nanoseconds as people read them.
pub(in crate::history) fn shown(time: i64) -> String {
    jiff::Timestamp::from_nanosecond(time.into())
        .unwrap_or_default()
        .to_string()
}

/// One digest for those of all tables, as [`proof::state_digest`] gives it.
pub(super) fn digest_of(state: &snapshot::Manifest) -> [u8; 32] {
    let none = drover_projections::Digest::default().to_hex();
    let mut hash = Sha256::new();
    for table in state.tables.iter().filter(|table| table.digest != none) {
        hash.update(table.id.to_le_bytes());
        hash.update(table.digest.as_bytes());
    }
    hash.finalize().into()
}

fn tables(state: &snapshot::Manifest) -> Vec<manifest::BackupTable> {
    let table = |table: &snapshot::TableManifest| manifest::BackupTable {
        name: table.name.clone(),
        rows: table.rows,
        digest: table.digest.clone(),
    };
    state.tables.iter().map(table).collect()
}

/// Reads the log up to `last` and folds its tree, which must be `wanted`.
fn check_log(
    log: &ReadOnlyLog,
    last: u64,
    wanted: &CompactRange,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ArchiveError> {
    if let Some(damage) = log.damage() {
        return Err(damage.clone().into());
    }
    let first = log.bounds().0;
    let mut range = match first.checked_sub(1) {
        Some(before) if first > log.epoch().first_index => log.range_at(before)?,
        _ => Some(CompactRange::default()),
    };
    let all = (last + 1).saturating_sub(first);
    let mut next = first;
    for entry in log.scan(first) {
        let entry = entry?;
        if entry.index > last {
            break;
        }
        if let Some(range) = &mut range {
            range.push(leaf_hash(&entry.body));
        }
        next = entry.index + 1;
        if next.is_multiple_of(REPORT) {
            progress(next - first, all);
        }
    }
    progress(next - first, all);
    if next != last + 1 || range.is_some_and(|range| range != *wanted) {
        return Err(ArchiveError::Refused(format!(
            "the log up to index {last} is not the one the state was made of; run \
             `drover log verify`"
        )));
    }
    Ok(())
}

fn add_file(tar: &mut TarWriter<'_>, path: &Path, name: &str) -> Result<(), ArchiveError> {
    let mut file = File::open(path).map_err(ArchiveError::file("read", path))?;
    let size = file
        .metadata()
        .map_err(ArchiveError::file("read", path))?
        .len();
    tar.add(name, size, &mut file).map_err(ArchiveError::io)
}

/// The files of a directory, sorted by name.
pub(in crate::history) fn files(dir: &Path) -> Result<Vec<(String, PathBuf)>, ArchiveError> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).map_err(ArchiveError::file("list", dir))?;
    for entry in entries {
        let path = entry.map_err(ArchiveError::file("list", dir))?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && path.is_file()
        {
            found.push((name.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

/// Bytes of a state's files.
///
/// # Errors
/// They cannot be listed.
pub fn bytes_of(state: &SnapshotDir) -> Result<u64, ArchiveError> {
    let mut bytes = 0;
    for (_, path) in files(&state.state())? {
        let file = fs::metadata(&path).map_err(ArchiveError::file("read", &path))?;
        bytes += file.len();
    }
    Ok(bytes)
}

fn add_snapshot(
    tar: &mut TarWriter<'_>,
    snapshot: &SnapshotDir,
    under: &str,
) -> Result<(), ArchiveError> {
    add_file(tar, &snapshot.path().join("head"), &format!("{under}head"))?;
    let note = snapshot.path().join(super::base::NOTE);
    if note.exists() {
        add_file(tar, &note, &format!("{under}note"))?;
    }
    for (name, path) in files(&snapshot.state())? {
        add_file(tar, &path, &format!("{under}state/{name}"))?;
    }
    Ok(())
}

/// Adds the root keys, wrapped as they lie; the key that wraps them stays where it is.
fn add_keys(tar: &mut TarWriter<'_>, server: &Path) -> Result<Vec<String>, ArchiveError> {
    let dir = server.join("keystore");
    let mut keys = Vec::new();
    if !dir.is_dir() {
        return Ok(keys);
    }
    for (name, path) in files(&dir)? {
        if let Some(id) = name.strip_suffix(".json") {
            add_file(tar, &path, &format!("keystore/{name}"))?;
            keys.push(id.to_owned());
        }
    }
    Ok(keys)
}

/// Adds the checkpoints up to an index, and the public keys that signed them and sign the backup.
fn add_checkpoints(
    tar: &mut TarWriter<'_>,
    server: &Path,
    last: u64,
    signer: Option<String>,
) -> Result<(), ArchiveError> {
    let refused = |error: proof::ProofError| ArchiveError::Refused(error.to_string());
    let notes = CheckpointFile::read(&server.join("checkpoints")).map_err(refused)?;
    let within = |note: &&String| {
        let text = proof::text(note).ok();
        text.and_then(Checkpoint::parse)
            .is_some_and(|checkpoint| checkpoint.index <= last)
    };
    let kept: String = notes.iter().filter(within).map(String::as_str).collect();
    tar.add_bytes("checkpoints", kept.as_bytes())
        .map_err(ArchiveError::io)?;
    let path = server.join("checkpoints.keys");
    let mut keys = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other.map_err(ArchiveError::file("read", &path))?,
    };
    if let Some(signer) = signer.filter(|signer| !keys.lines().any(|line| line == signer)) {
        keys.push_str(&signer);
        keys.push('\n');
    }
    tar.add_bytes("checkpoints.keys", keys.as_bytes())
        .map_err(ArchiveError::io)
}

/// The head of a snapshot that is not Raft's own business.
pub(super) fn head_of(dir: &SnapshotDir) -> Result<SnapshotHead, ArchiveError> {
    dir.head().map_err(ArchiveError::file("read", dir.path()))
}
