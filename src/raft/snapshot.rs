//! Raft snapshots: a directory with the state's files and a head that says what they are.
//!
//! `<snapshots>/<term>-<index>/head` and `…/state/*`. The head carries the last log id, the
//! membership, the epoch and the tree's compact range, so that the tree can continue from it. A
//! directory is complete once it has its final name: all that is in it, names too, is on the disk
//! by then. A snapshot is only built on request, and only removed when the one that replaces it is
//! durable.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{RaftSnapshotBuilder, Snapshot, SnapshotMeta};
use serde::{Deserialize, Serialize};

use super::fold::FoldPosition;
use super::state_machine::Applier;
use super::types::{
    LogId, StoredMembership, TypeConfig, decode_membership, encode_membership, log_id,
};
use crate::log::atomic_file;
use crate::log::{CompactRange, FileLayer, LogEngine, LogFile, RealFiles};

/// What a snapshot says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// The last log id in it: term and index; none for the empty state.
    pub last: Option<(u64, u64)>,
    /// Where the membership stands in the log: term and index.
    pub membership_at: Option<(u64, u64)>,
    /// The membership's canonical bytes.
    #[serde(with = "serde_bytes")]
    pub membership: Vec<u8>,
    /// The log's epoch.
    pub epoch: [u8; 16],
    /// The epoch's first index.
    pub epoch_first: u64,
    /// The tree's compact range after the last entry; empty if it is not known.
    #[serde(with = "serde_bytes")]
    pub range: Vec<u8>,
    /// The time of the last event, Unix nanoseconds.
    pub time: i64,
}

impl SnapshotHead {
    fn of(
        place: Option<FoldPosition>,
        log: &LogEngine,
        membership: &StoredMembership,
    ) -> io::Result<SnapshotHead> {
        let epoch = log.epoch();
        let range = match place {
            Some(p) => log.range_at(p.index)?.map(|r| r.to_bytes()),
            None => None,
        };
        let at = membership
            .log_id()
            .as_ref()
            .map(|id| (*id.leader_id, id.index));
        Ok(SnapshotHead {
            last: place.map(|p| (p.term, p.index)),
            membership_at: at,
            membership: encode_membership(membership.membership()),
            epoch: epoch.id,
            epoch_first: epoch.first_index,
            range: range.unwrap_or_default(),
            time: place.map_or(0, |p| p.time),
        })
    }

    fn last_log_id(&self) -> Option<LogId> {
        self.last.map(|(term, index)| log_id(term, index))
    }

    pub(super) fn membership(&self) -> StoredMembership {
        let at = self.membership_at.map(|(term, index)| log_id(term, index));
        StoredMembership::new(at, decode_membership(&self.membership).unwrap_or_default())
    }

    pub(super) fn meta(&self) -> SnapshotMetaOf<TypeConfig> {
        SnapshotMeta {
            last_log_id: self.last_log_id(),
            last_membership: self.membership(),
        }
    }

    /// The last index in it, and the tree after it.
    pub fn base(&self) -> Option<(u64, CompactRange)> {
        Some((self.last?.1, CompactRange::from_bytes(&self.range)?))
    }

    /// The name of its directory.
    pub fn name(&self) -> String {
        match self.last {
            Some((term, index)) => format!("{term:020}-{index:020}"),
            None => "empty".to_owned(),
        }
    }

    /// The head's bytes, as the transport carries them.
    ///
    /// # Errors
    /// Never in practice: it holds numbers and bytes.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        rmp_serde::to_vec_named(self).map_err(io::Error::other)
    }

    /// Reads [`encode`](Self::encode)'s bytes.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn decode(bytes: &[u8]) -> io::Result<SnapshotHead> {
        rmp_serde::from_slice(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

/// The name of the file that makes a directory a snapshot.
const HEAD: &str = "head";

/// A snapshot's directory.
#[derive(Clone)]
pub struct SnapshotDir {
    files: Arc<dyn FileLayer>,
    path: PathBuf,
}

impl std::fmt::Debug for SnapshotDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SnapshotDir").field(&self.path).finish()
    }
}

impl SnapshotDir {
    /// A directory that holds a head and a state.
    pub fn new(path: PathBuf) -> SnapshotDir {
        Self::on(Arc::new(RealFiles), path)
    }

    /// As [`new`](Self::new), over a file layer.
    pub fn on(files: Arc<dyn FileLayer>, path: PathBuf) -> SnapshotDir {
        SnapshotDir { files, path }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The complete ones in a directory, by their index; none if there is no such directory.
    ///
    /// # Errors
    /// If a head cannot be read.
    pub fn all(dir: &Path) -> io::Result<Vec<(SnapshotHead, SnapshotDir)>> {
        let found = Self::complete(&(Arc::new(RealFiles) as _), dir)?.into_iter();
        let mut found: Vec<_> = found
            .map(|(head, dir)| Ok((head?, dir)))
            .collect::<io::Result<_>>()?;
        found.sort_by_key(|(head, _)| head.last.map(|(_, index)| index));
        Ok(found)
    }

    /// Those in a directory that have a head, whole or not, by their names. What is read of a head
    /// is what was opened, though retention removes it meanwhile.
    fn complete(
        files: &Arc<dyn FileLayer>,
        dir: &Path,
    ) -> io::Result<Vec<(io::Result<SnapshotHead>, SnapshotDir)>> {
        let names = match files.list(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for path in names.into_iter().map(|name| dir.join(name)) {
            let file = files.open(&path.join(HEAD), false);
            if let (None, Ok(file)) = (path.extension(), file) {
                let dir = SnapshotDir::on(Arc::clone(files), path);
                found.push((dir.read_head(&*file), dir));
            }
        }
        found.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Retires the snapshots of a directory whose heads are damaged, where others can be used;
    /// answers their number, and logs it.
    ///
    /// # Errors
    /// If one cannot be renamed, or cannot be read for another reason.
    pub fn retire_damaged(dir: &Path) -> io::Result<usize> {
        let (mut whole, mut damaged) = (0, Vec::new());
        for (head, found) in Self::complete(&(Arc::new(RealFiles) as _), dir)? {
            match head {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => damaged.push((found, e)),
                other => whole += usize::from(other.map(|_| true)?),
            }
        }
        if whole == 0 {
            return Ok(0);
        }
        for (found, why) in &damaged {
            found.retire(why)?;
        }
        Ok(damaged.len())
    }

    /// Retires a damaged snapshot, under a name by which it is never read; logs it.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn retire(&self, why: &dyn std::error::Error) -> io::Result<()> {
        let mut retired = self.path.with_extension("damaged");
        let mut number = 1;
        while retired.exists() {
            number += 1;
            retired = self.path.with_extension(format!("damaged-{number}"));
        }
        self.files.rename(&self.path, &retired)?;
        let retired = retired.display();
        tracing::error!(error = crate::error::chain(why), %retired, "a snapshot is damaged");
        Ok(())
    }

    /// Where the state's files lie.
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Writes the head, which makes the snapshot whole, once the state is on the disk, and waits
    /// for it too.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put_head(&self, head: &SnapshotHead) -> io::Result<()> {
        let state = self.state();
        for name in self.files.list(&state)? {
            self.files.open(&state.join(name), false)?.sync()?;
        }
        self.files.sync_dir(&state)?;
        atomic_file::put_on(&*self.files, &self.path.join(HEAD), &head.encode()?)
    }

    /// Puts a small file beside the head, whole and on the disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        atomic_file::put_on(&*self.files, &self.path.join(name), content)
    }

    /// Makes an existing file durable: its writer may have been killed before its name was.
    ///
    /// # Errors
    /// If it is missing, or cannot be synced.
    pub fn sync(&self, name: &str) -> io::Result<()> {
        self.files.open(&self.path.join(name), false)?.sync()?;
        self.files.sync_dir(&self.path)
    }

    /// Reads the head.
    ///
    /// # Errors
    /// If it is missing or malformed.
    pub fn head(&self) -> io::Result<SnapshotHead> {
        self.read_head(&*self.files.open(&self.path.join(HEAD), false)?)
    }

    fn read_head(&self, file: &dyn LogFile) -> io::Result<SnapshotHead> {
        let head = SnapshotHead::decode(&atomic_file::read_open(file)?);
        head.map_err(|e| {
            let path = self.path.display();
            io::Error::new(e.kind(), format!("the head of {path} is damaged: {e}"))
        })
    }

    /// Removes it. Its head is removed first: without a head it is no snapshot.
    ///
    /// # Errors
    /// If something of it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        match self.files.remove(&self.path.join(HEAD)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.files.sync_dir(&self.path)?;
        self.files.remove_tree(&self.path)
    }
}

/// The snapshots of one server. The newest is the current one; retention removes the others.
#[derive(Clone)]
pub(super) struct Snapshots {
    files: Arc<dyn FileLayer>,
    dir: PathBuf,
}

impl Snapshots {
    pub(super) fn open(dir: PathBuf) -> io::Result<Snapshots> {
        Self::open_on(Arc::new(RealFiles), dir)
    }

    pub(super) fn open_on(files: Arc<dyn FileLayer>, dir: PathBuf) -> io::Result<Snapshots> {
        files.create_dir(&dir)?;
        for path in files.list(&dir)?.iter().map(|name| dir.join(name)) {
            if path.extension().is_some_and(|ending| ending == "tmp") {
                files.remove_tree(&path)?;
            }
        }
        Ok(Snapshots { files, dir })
    }

    /// The newest complete one.
    pub(super) fn current(&self) -> io::Result<Option<(SnapshotHead, SnapshotDir)>> {
        self.newest_below(u64::MAX)
    }

    /// The newest complete one of an index below `next`.
    pub(super) fn newest_below(
        &self,
        next: u64,
    ) -> io::Result<Option<(SnapshotHead, SnapshotDir)>> {
        let found = SnapshotDir::complete(&self.files, &self.dir)?;
        for (head, dir) in found.into_iter().rev() {
            match head {
                // The log and the tables can do without it.
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(error = %e, "a snapshot is damaged and not used");
                }
                head => {
                    let head = head?;
                    if head.last.is_none_or(|(_, index)| index < next) {
                        return Ok(Some((head, dir)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// An empty directory to build one in.
    fn scratch(&self) -> io::Result<SnapshotDir> {
        let path = self.dir.join("building.tmp");
        match self.files.remove_tree(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.files.create_dir(&path)?;
        Ok(SnapshotDir::on(Arc::clone(&self.files), path))
    }

    /// Removes all but `kept`: the log that continued from them is gone.
    pub(super) fn keep_only(&self, kept: &SnapshotDir) -> io::Result<()> {
        for (_, old) in SnapshotDir::complete(&self.files, &self.dir)? {
            if old.path != kept.path {
                old.remove()?;
            }
        }
        Ok(())
    }

    /// Makes `from` the current snapshot, for certain; those before are bases that the log may
    /// still need. One of the same place in the log stays until this one is there.
    pub(super) fn add(&self, head: &SnapshotHead, from: SnapshotDir) -> io::Result<SnapshotDir> {
        let name = head.name();
        let parent = crate::log::parent_dir(&from.path);
        if parent == self.dir && from.path.extension().is_none() {
            self.files.sync_dir(&self.dir)?;
            return Ok(from);
        }
        // Behind those of the same place, by name too: the newest is the last.
        let number = |taken: &String| match taken.strip_prefix(&name)? {
            "" => Some(1),
            rest => rest.strip_prefix('-')?.parse::<u32>().ok(),
        };
        let last = self.files.list(&self.dir)?.iter().filter_map(number).max();
        let free = match last {
            None => name,
            Some(last) => format!("{name}-{:04}", last + 1),
        };
        let to = SnapshotDir::on(Arc::clone(&self.files), self.dir.join(free));
        self.files.rename(&from.path, &to.path)?;
        self.files.sync_dir(&self.dir)?;
        for (found, old) in SnapshotDir::complete(&self.files, &self.dir)? {
            let same = old.path != to.path && found.is_ok_and(|found| found.last == head.last);
            // A signed one is the state that the log continues from.
            let signed = self.files.open(&old.path.join("note"), false).is_ok();
            if same && !signed {
                old.remove()?;
            }
        }
        Ok(to)
    }
}

/// Builds a snapshot of what is applied.
pub struct Builder {
    applier: Applier,
    log: Arc<LogEngine>,
    snapshots: Snapshots,
    membership: StoredMembership,
}

impl Builder {
    pub(super) fn new(
        applier: Applier,
        log: Arc<LogEngine>,
        snapshots: Snapshots,
        membership: StoredMembership,
    ) -> Builder {
        Builder {
            applier,
            log,
            snapshots,
            membership,
        }
    }
}

/// Says whether so many more bytes may be written, on the thread that writes them.
pub type StateSpace = Box<dyn Fn(u64) -> io::Result<()> + Send>;

/// Writes the state that is applied, and its head, into the empty directory `dir`, as long as
/// `fits` allows it.
pub(super) async fn write(
    dir: &SnapshotDir,
    applier: &Applier,
    log: &LogEngine,
    membership: &StoredMembership,
    fits: StateSpace,
) -> io::Result<SnapshotHead> {
    let state = dir.state();
    dir.files.create_dir(&state)?;
    let (save, place) = applier.with(|fold| (fold.save(), fold.place())).await?;
    tokio::task::spawn_blocking(move || save(&state, &*fits))
        .await
        .map_err(io::Error::other)??;
    let head = SnapshotHead::of(place, log, membership)?;
    dir.put_head(&head)?;
    Ok(head)
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotDir;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, SnapshotDir>> {
        let scratch = self.snapshots.scratch()?;
        let fits: StateSpace = Box::new(|_| Ok(()));
        let head = write(&scratch, &self.applier, &self.log, &self.membership, fits).await?;
        self.snapshots.add(&head, scratch)?;
        let (head, dir) = self
            .snapshots
            .current()?
            .ok_or_else(|| io::Error::other("the snapshot just built is gone"))?;
        Ok(Snapshot {
            meta: head.meta(),
            snapshot: dir,
        })
    }
}

#[cfg(test)]
#[path = "snapshot_test.rs"]
mod tests;
