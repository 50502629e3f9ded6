//! Restore: a backup becomes the base of a new epoch of the log.
//!
//! Everything is made beside the server's files, in `restoring.tmp`: the backup is unpacked and
//! checked, its log verified, the state at the wanted index folded or taken in, every digest
//! computed again, the new log begun with `ClusterRestored`. Only then is the directory renamed to
//! `restored`, which is the one moment at which the restore happens: a kill before leaves the
//! former state, a kill after is finished by [`super::adopt::adopt`] when the server starts.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use drover_events::cluster::ClusterRestored;
use drover_events::{Actor, Envelope, EventId, EventKind, RaftPayload};
use drover_migrations::schema;
use drover_projections::{
    DatabaseOptions, Digest, Outcome, Projections, StorageError, TableDigest, snapshot,
};
use zeroize::Zeroizing;

use super::ArchiveError;
use super::adopt::{DRAFT, READY};
use super::inspect::unpack;
use super::manifest::Manifest;
use super::save::{bytes_of, head_of};
use super::sync_dir;
use crate::base::clock::Moment;
use crate::history::proof::{self, NoteKey, Verify};
use crate::history::replay::{self, ReplayError};
use crate::history::reserve::{DiskReserve, RESERVE, is_full};
use crate::keyring::{KeyringError, Keystore};
use crate::log::{self, CompactRange, Entry, Epoch, LogEngine, ReadOnlyLog};
use crate::raft::snapshot::{SnapshotDir, SnapshotHead};
use crate::raft::{Member, seed};

/// Bytes of one file of a state, roughly.
const STATE_FILE: u64 = 64 << 20;
/// A new epoch begins at a multiple of this.
const STEP: u64 = 1_000_000;

/// How a backup is restored.
#[derive(Clone, Default)]
pub struct Restore {
    /// Which state; the newest in the backup without it.
    pub moment: Option<Moment>,
    /// The key that the backup's keys are wrapped with; the server's own without one.
    pub wrap: Option<Zeroizing<Vec<u8>>>,
    /// The keys whose signature of the backup counts; those in it if there are none.
    pub pinned: Vec<NoteKey>,
    /// The new epoch begins above this index.
    pub above: u64,
    /// The highest term known.
    pub term: u64,
}

/// What is being done, for progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreStep {
    /// Bytes of the backup are checked and written.
    Unpack,
    /// Its log is verified.
    Verify,
    /// Events are folded.
    Fold,
}

/// Is called with the progress: what is done, how far, and of how much (0 where it is not known).
pub type Progress<'a> = &'a mut dyn FnMut(RestoreStep, u64, u64);

/// A restore of which only the beginning of the new log is missing.
pub struct Prepared {
    server: PathBuf,
    dir: PathBuf,
    /// What the backup says of itself.
    pub manifest: Manifest,
    /// The index whose state is restored.
    pub index: u64,
    /// The first index of the new epoch.
    pub first: u64,
    term: u64,
    time: i64,
    epoch: [u8; 16],
    base: SnapshotDir,
    member: Option<Member>,
}

/// Who restores, and what came before.
#[derive(Clone, Debug, Default)]
pub struct Former {
    /// The server that continues.
    pub member: Member,
    /// The requesting caller.
    pub actor: Actor,
    /// The request for it.
    pub request_id: String,
    /// Epoch and tree of the log that ends here, where there is one.
    pub log: Option<(Epoch, CompactRange)>,
    /// Unix nanoseconds now.
    pub now: i64,
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The index whose state it is.
    pub index: u64,
    /// The first index of the new epoch.
    pub first: u64,
    /// The new epoch.
    pub epoch: String,
    /// Tables whose digests were computed again.
    pub tables: usize,
}

fn refused(text: impl Into<String>) -> ArchiveError {
    ArchiveError::Refused(text.into())
}

fn storage(error: StorageError) -> ArchiveError {
    ArchiveError::state("the state", &error)
}

/// Unpacks, checks and folds a backup beside the files of a server, which may be running.
///
/// # Errors
/// A backup with anything wrong in it, by its place; an index that is not in it; keys that cannot
/// be unwrapped; files that cannot be written, or that would leave the disk less than what is
/// served there needs. The server's own files are as they were.
pub fn prepare(
    from: &mut dyn Read,
    server: &Path,
    how: &Restore,
    progress: Progress<'_>,
) -> Result<Prepared, ArchiveError> {
    let dir = server.join(DRAFT);
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(ArchiveError::file("remove", &dir))?;
    }
    let unpacked = dir.join("unpacked");
    fs::create_dir_all(&unpacked).map_err(ArchiveError::file("create", &unpacked))?;
    let made = make(from, server, &dir, how, progress);
    made.inspect_err(|_| {
        let _ = fs::remove_dir_all(&dir);
    })
}

fn make(
    from: &mut dyn Read,
    server: &Path,
    dir: &Path,
    how: &Restore,
    progress: Progress<'_>,
) -> Result<Prepared, ArchiveError> {
    let unpacked = dir.join("unpacked");
    let reserve = DiskReserve::of(&unpacked, RESERVE);
    let manifest = unpack(from, &how.pinned, &unpacked, &mut |at| {
        progress(RestoreStep::Unpack, at, 0);
    })?;
    verify_log(&unpacked, &manifest, how, progress)?;
    take_keys(&unpacked, &dir.join("keystore"), server, how)?;
    let log = ReadOnlyLog::open(&unpacked.join("log"))?;
    let index = find(&log, &manifest, how.moment)?;
    let state = match index == manifest.index {
        true => SnapshotDir::new(unpacked.clone()),
        false => {
            let to = (index, manifest.index);
            fold_to(&log, &unpacked, (dir, &reserve), to, progress)?
        }
    };
    let head = head_of(&SnapshotDir::new(unpacked.clone()))?;
    let known = how.above.max(manifest.index);
    let first = (known / STEP + 1) * STEP;
    let term = how.term.max(manifest.term) + 1;
    let base = SnapshotDir::new(
        dir.join("snapshots")
            .join(format!("{term:020}-{:020}", first - 1)),
    );
    let time = rebase(&state, &base, first - 1, term)?;
    drop(log);
    fs::remove_dir_all(&unpacked).map_err(ArchiveError::file("remove", &unpacked))?;
    take_in(&dir.join("projections"), &base, &reserve)?;
    Ok(Prepared {
        server: server.to_owned(),
        dir: dir.to_owned(),
        manifest,
        index,
        first,
        term,
        time,
        epoch: rand::random(),
        base,
        member: seed::lone_member(&head.membership),
    })
}

/// The log of the backup is whole, is what its checkpoints say, and gives the tree of the manifest.
fn verify_log(
    unpacked: &Path,
    manifest: &Manifest,
    how: &Restore,
    progress: Progress<'_>,
) -> Result<(), ArchiveError> {
    let verify = Verify {
        pinned: how.pinned.clone(),
    };
    let mut heard = |at, all| progress(RestoreStep::Verify, at, all);
    let done = proof::verify(&unpacked.join("log"), unpacked, &verify, &mut heard)
        .map_err(|error| refused(crate::error::chain(&error)))?;
    if let Some(finding) = done.findings.first() {
        let what = &finding.what;
        return Err(refused(format!("the log of the backup: {what}")));
    }
    let same = done.last == manifest.index
        && done.size == manifest.tree_size
        && hex::encode(done.root) == manifest.tree_root;
    if !same {
        return Err(refused(
            "the log of the backup is not the one its manifest names",
        ));
    }
    Ok(())
}

/// The index of a moment, which must be in the backup.
fn find(
    log: &ReadOnlyLog,
    manifest: &Manifest,
    moment: Option<Moment>,
) -> Result<u64, ArchiveError> {
    let (first, last) = (manifest.first, manifest.index);
    let index = match moment {
        None => last,
        Some(Moment::Index(index)) => index,
        Some(Moment::Time(time)) => last_by(log, manifest, time)?,
    };
    if (first..=last).contains(&index) {
        return Ok(index);
    }
    Err(refused(format!(
        "index {index} is not in the backup: it holds {first} to {last}"
    )))
}

/// The last index at or before a time, which the backup must contain: not before its first event,
/// not after it was made.
fn last_by(log: &ReadOnlyLog, manifest: &Manifest, time: i64) -> Result<u64, ArchiveError> {
    let found = log::last_index_at_or_before(log, time, manifest.index)?;
    let made = manifest.created.parse::<jiff::Timestamp>();
    if found == Some(manifest.index)
        && made.is_ok_and(|made| i128::from(time) > made.as_nanosecond())
    {
        return Err(refused(format!(
            "the backup was made at {}: it does not know what there was later",
            manifest.created
        )));
    }
    found.ok_or_else(|| refused("nothing in the backup is as old as that time"))
}

/// Folds the log up to an index and writes that state; continues to the backup's own index, whose
/// digests must come out.
fn fold_to(
    log: &ReadOnlyLog,
    unpacked: &Path,
    (dir, reserve): (&Path, &DiskReserve),
    (index, last): (u64, u64),
    progress: Progress<'_>,
) -> Result<SnapshotDir, ArchiveError> {
    let fold = dir.join("fold");
    let base = unpacked.join("base");
    let base = base.is_dir().then(|| SnapshotDir::new(base));
    // What is held in memory is written at once.
    let held = replay::UNFOLD_BYTES as u64;
    let copied = base.as_ref().map_or(Ok(0), bytes_of)?;
    reserve.check_for(copied + held)?;
    let (projections, writer) =
        Projections::open(&fold, DatabaseOptions::dev()).map_err(storage)?;
    let mut step = |at, _| {
        progress(RestoreStep::Fold, at, last);
        reserve.check_for(held)
    };
    let writer = replay::unfold(log, base.as_ref(), index, writer, &mut step)?;
    let state = SnapshotDir::new(dir.join("at"));
    reserve.check_for(projections.snapshot_bytes())?;
    let fits = |bytes: u64| reserve.check_write(bytes);
    let view = projections.view();
    let written = view.write_snapshot(&state.state(), STATE_FILE, &fits);
    written.map_err(storage)?;
    drop(view);
    let writer = replay::unfold_on(log, last, writer, &mut step)?;
    let wanted = digests_of(&SnapshotDir::new(unpacked.to_owned()))?;
    let view = projections.view();
    for table in view.digests() {
        if !is_as(&wanted, &table) {
            let name = table.name;
            return Err(refused(format!(
                "the log of the backup does not give its state: table {name} differs"
            )));
        }
    }
    drop((view, writer, projections));
    fs::remove_dir_all(&fold).map_err(ArchiveError::file("remove", &fold))?;
    Ok(state)
}

fn digests_of(state: &SnapshotDir) -> Result<BTreeMap<String, String>, ArchiveError> {
    let manifest = snapshot::read_manifest(&state.state()).map_err(storage)?;
    let tables = manifest.tables.into_iter();
    Ok(tables.map(|table| (table.name, table.digest)).collect())
}

/// Whether a table is as a state says; one that it does not name is younger, and empty.
fn is_as(state: &BTreeMap<String, String>, table: &TableDigest) -> bool {
    match state.get(table.name) {
        Some(expected) => *expected == table.digest.to_hex(),
        None => table.digest == Digest::default(),
    }
}

/// Moves a state's files to where they are the base of an epoch that begins behind `index`;
/// answers the time of its last event.
fn rebase(
    state: &SnapshotDir,
    base: &SnapshotDir,
    index: u64,
    term: u64,
) -> Result<i64, ArchiveError> {
    let (from, to) = (state.state(), base.state());
    fs::create_dir_all(base.path()).map_err(ArchiveError::file("create", base.path()))?;
    fs::rename(&from, &to).map_err(ArchiveError::file("rename", &from))?;
    let mut manifest = snapshot::read_manifest(&to).map_err(storage)?;
    manifest.index = index;
    manifest.term = term;
    manifest.membership = index;
    manifest.put(&to).map_err(storage)?;
    Ok(manifest.time)
}

/// A new database that holds the state; every digest is computed again on the way. Its files are
/// copied, and the new log has two segments allocated after that.
fn take_in(path: &Path, base: &SnapshotDir, reserve: &DiskReserve) -> Result<(), ArchiveError> {
    let segments = 2 * log::LogOptions::default().segment_bytes;
    reserve.check_for(bytes_of(base)? + segments)?;
    let options = DatabaseOptions::dev();
    schema::prepare(path, &options).map_err(ReplayError::from)?;
    let (_, mut writer) = Projections::open(path, options).map_err(storage)?;
    writer.install(&base.state()).map_err(storage)?;
    Ok(())
}

/// Unwraps the backup's keys and wraps them for this server.
fn take_keys(unpacked: &Path, to: &Path, server: &Path, how: &Restore) -> Result<(), ArchiveError> {
    let from = unpacked.join("keystore");
    if !from.is_dir() {
        return Ok(());
    }
    let own = fs::read(server.join("keystore/wrap.key"))
        .ok()
        .map(Zeroizing::new);
    let Some(wrap) = how.wrap.clone().or_else(|| own.clone()) else {
        return Err(refused(
            "the backup's keys are wrapped: name the file that wraps them, keystore/wrap.key of \
             the server that was backed up, with -wrap-key",
        ));
    };
    let key = |error: KeyringError| match error {
        KeyringError::Damaged { path, reason } => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            refused(format!(
                "the backup's {name} cannot be unwrapped ({reason}): name the file that wraps it, \
                 keystore/wrap.key of the server that was backed up, with -wrap-key"
            ))
        }
        KeyringError::Io { path, source } if is_full(&source) => {
            ArchiveError::file("write", &path)(source)
        }
        other => refused(other.to_string()),
    };
    Keystore::put_wrap(&from, &wrap).map_err(key)?;
    if let Some(own) = &own {
        Keystore::put_wrap(to, own).map_err(key)?;
    }
    let (from, to) = (
        Keystore::open(&from).map_err(key)?,
        Keystore::open(to).map_err(key)?,
    );
    for id in from.ids().map_err(key)? {
        to.save(&from.load(&id).map_err(key)?).map_err(key)?;
    }
    Ok(())
}

impl Prepared {
    /// The server as the backup names it, if it names a lone one.
    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// Begins the new log, applies its first event, checks every digest once more, and puts all of
    /// it where the next start finds it. The former log takes no more.
    ///
    /// # Errors
    /// A digest that is another; a former log that reaches into the new epoch; files that cannot be
    /// written. Nothing has happened then.
    pub fn finish(self, former: &Former) -> Result<Restored, ArchiveError> {
        let done = self.begin(former).and_then(|done| {
            let ready = self.server.join(READY);
            sync_dir(&self.dir)?;
            fs::rename(&self.dir, &ready).map_err(ArchiveError::file("rename", &self.dir))?;
            sync_dir(&self.server)?;
            Ok(done)
        });
        done.inspect_err(|_| {
            let _ = fs::remove_dir_all(&self.dir);
        })
    }

    /// Leaves everything as it was.
    pub fn cancel(self) {
        let _ = fs::remove_dir_all(&self.dir);
    }

    fn begin(&self, former: &Former) -> Result<Restored, ArchiveError> {
        let (epoch, first) = (self.epoch, self.first);
        if let Some((old, range)) = &former.log
            && old.first_index + range.size() > first
        {
            return Err(refused(
                "the log went on beyond where the new epoch begins: try again",
            ));
        }
        let head = SnapshotHead {
            last: Some((self.term, first - 1)),
            membership_at: Some((self.term, first - 1)),
            membership: seed::lone_membership(&former.member),
            epoch,
            epoch_first: first,
            range: CompactRange::default().to_bytes(),
            time: self.time,
        };
        let put = self.base.put_head(&head);
        put.map_err(ArchiveError::file("write", self.base.path()))?;
        let payload = self.event(former)?;
        let body = payload.body(first, self.term);
        self.begin_log(&body, former)?;
        let tables = self.apply(&body)?;
        Ok(Restored {
            index: self.index,
            first,
            epoch: hex::encode(epoch),
            tables,
        })
    }

    fn event(&self, former: &Former) -> Result<RaftPayload, ArchiveError> {
        let own = former.log.as_ref();
        let own = own.filter(|(epoch, _)| hex::encode(epoch.id) == self.manifest.epoch);
        let (former_size, former_root) = match own {
            Some((_, range)) => (range.size(), hex::encode(range.root())),
            None => (self.manifest.tree_size, self.manifest.tree_root.clone()),
        };
        let former_root = hex::decode(&former_root)
            .map_err(|_| refused(format!("{former_root:?} is not the root of a log")))?;
        let envelope = Envelope {
            time: former.now.max(self.time),
            id: EventId(*uuid::Uuid::now_v7().as_bytes()),
            actor: former.actor.clone(),
            request_id: former.request_id.clone(),
            cause: None,
            trace: String::new(),
            guards: Vec::new(),
            event: ClusterRestored {
                former_epoch: self.manifest.epoch.clone(),
                former_size,
                former_root,
                base_index: self.index,
                epoch: hex::encode(self.epoch),
            }
            .into(),
        };
        RaftPayload::encode(&envelope).map_err(|error| refused(error.to_string()))
    }

    fn begin_log(&self, body: &[u8], former: &Former) -> Result<(), ArchiveError> {
        let options = log::LogOptions {
            epoch: Some(Epoch {
                id: self.epoch,
                first_index: self.first,
            }),
            on_full: log::OnFull::Fail,
            ..log::LogOptions::default()
        };
        let (log, _) = LogEngine::open(&self.dir.join("log"), options)?;
        seed::begin(&log, (self.first, self.term), &former.member)?;
        let entry = Entry {
            index: self.first,
            kind: EventKind::ClusterRestored.number(),
            time: former.now.max(self.time),
            body: body.to_vec().into(),
        };
        let (tx, rx) = std::sync::mpsc::sync_channel(1);
        log.append(
            vec![entry],
            Box::new(move |result| {
                let _ = tx.send(result);
            }),
        )?;
        rx.recv().map_err(|_| log::LogError::Closed)??;
        seed::Seed::default().commit(&log, (self.first, self.term));
        log.sync()?;
        log.close();
        Ok(())
    }

    /// Applies the first event; answers how many tables have the digest of the base.
    fn apply(&self, body: &[u8]) -> Result<usize, ArchiveError> {
        let recorded = drover_migrations::decode(body).map_err(|source| ArchiveError::Decode {
            index: self.first,
            source,
        })?;
        let path = self.dir.join("projections");
        let (projections, mut writer) =
            Projections::open(&path, DatabaseOptions::dev()).map_err(storage)?;
        let applied = writer.apply(&[recorded]).map_err(storage)?;
        if let Some(Outcome::Rejected(why)) = applied.into_iter().next().map(|one| one.outcome) {
            return Err(refused(format!(
                "the first event of the epoch is refused: {why:?}"
            )));
        }
        writer.flush().map_err(storage)?;
        projections.verify().map_err(storage)?;
        let wanted = digests_of(&self.base)?;
        let view = projections.view();
        let mut equal = 0;
        for table in view.digests() {
            // The indexes of the tables are what the event raised.
            if table.table == <drover_projections::tables::table_indexes::TableIndexes as
                drover_projections::Table>::ID
            {
                continue;
            }
            if !is_as(&wanted, &table) {
                let name = table.name;
                return Err(refused(format!("the digest of table {name} is another")));
            }
            equal += 1;
        }
        Ok(equal)
    }
}

#[cfg(test)]
#[path = "restore_test.rs"]
mod tests;
