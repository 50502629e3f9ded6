//! Backups of a running server, and how one of them takes its place.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use drover_events::Actor;
use drover_projections::Scan;
use drover_projections::tables::root_keys::RootKeys;

use super::Server;
use crate::history::ArchiveError;
use crate::history::backup::restore::{Former, Restore, Restored, prepare};
use crate::history::backup::save::{BackupSource, Saved, bytes_of, save};
use crate::history::replay;
use crate::history::reserve::{DiskReserve, RESERVE, ReservedWriter};
use crate::keyring::Keyring;
use crate::log::ReadOnlyLog;
use crate::table_reads::offload;

/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 20;

/// A directory under `snapshots` that is gone when this is; what a kill leaves goes at the start.
pub struct Scratch(PathBuf);

impl Scratch {
    fn new(server: &Path, what: &str) -> Result<Self, ArchiveError> {
        let name = format!("{what}-{}.tmp", uuid::Uuid::new_v4().simple());
        let path = server.join("snapshots").join(name);
        let made = fs::create_dir_all(&path);
        made.map_err(|source| file("create", &path, source))?;
        Ok(Self(path))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn file(doing: &'static str, path: &Path, source: io::Error) -> ArchiveError {
    ArchiveError::file(doing, path)(source)
}

fn broken(error: impl std::fmt::Display) -> ArchiveError {
    ArchiveError::Refused(error.to_string())
}

/// A backup in a file of its own.
pub struct Backup {
    scratch: Scratch,
    /// What it holds.
    pub saved: Saved,
}

impl Backup {
    /// The file; it is gone when this is.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("backup.tar")
    }
}

impl Server {
    /// Writes a backup of all that is applied into a file. Space is left on its disk for what is
    /// served.
    ///
    /// # Errors
    /// A damaged log; files that cannot be written; a disk that has no space for them.
    pub async fn backup(&self) -> Result<Backup, ArchiveError> {
        let scratch = offload(|| {
            self.keys_are_whole()?;
            Scratch::new(&self.dir, "save")
        })?;
        let reserve = DiskReserve::of(&scratch.path().join("backup.tar"), RESERVE);
        self.backup_in(scratch, reserve).await
    }

    async fn backup_in(
        &self,
        scratch: Scratch,
        reserve: DiskReserve,
    ) -> Result<Backup, ArchiveError> {
        offload(|| reserve.check_for(self.backup_bytes()))?;
        let state = scratch.path().join("state");
        let own = reserve.clone();
        let fits = Box::new(move |bytes: u64| own.check_write(bytes));
        let written = self.raft.write_state(state.clone(), fits).await;
        let (_, state) = written.map_err(|source| file("write", &state, source))?;
        let signer = self.keyring.active().ok().map(|key| key.checkpoint_key());
        let server = self.dir.clone();
        let work = move || {
            let rest = scratch.path().join("rest");
            fs::create_dir_all(&rest).map_err(|source| file("create", &rest, source))?;
            let log_dir = server.join("log");
            let log = ReadOnlyLog::open(&log_dir)?;
            let base = replay::foundation(&log_dir, &log)?;
            let path = scratch.path().join("backup.tar");
            let made = File::create(&path).map_err(|source| file("create", &path, source))?;
            let made = ReservedWriter::new(made, reserve.clone());
            let mut out = BufWriter::with_capacity(BUFFER, made);
            let source = BackupSource {
                server: &server,
                state: &state,
                base,
                scratch: &rest,
                reserve: &reserve,
                signer,
            };
            let saved = save(&source, &mut out, &mut |_, _| ())?;
            Ok(Backup { scratch, saved })
        };
        tokio::task::spawn_blocking(work).await.map_err(broken)?
    }

    /// Bytes that a backup takes, roughly: its state twice, as files and in the tar, and what the
    /// tar has of the log and of the state that this continues from.
    fn backup_bytes(&self) -> u64 {
        let log = self.raft.log();
        let segments = log.segments().into_iter();
        let sealed: u64 = segments.filter(|one| one.sealed).map(|one| one.bytes).sum();
        // Where something is wrong with it, the backup names that.
        let base = replay::foundation(log.dir(), &**log).ok().flatten();
        let base = base.and_then(|base| bytes_of(&base).ok());
        2 * self.projections.snapshot_bytes() + sealed + base.unwrap_or(0)
    }

    /// A backup without one of the keys could never be read whole. One that this server has not
    /// either was lost before.
    fn keys_are_whole(&self) -> Result<(), ArchiveError> {
        let dir = self.dir.join("keystore");
        let failed = |error: &dyn std::error::Error| {
            file("use", &dir, io::Error::other(crate::error::chain(error)))
        };
        let (kept, unreadable) = Keyring::open(&dir).map_err(|error| failed(&error))?;
        if let Some(error) = unreadable.first() {
            return Err(failed(error));
        }
        for key in self.projections.view().scan::<RootKeys>(Scan::all()) {
            let key = key.map_err(|error| failed(&error))?;
            let id = &key.meta.key_id;
            match kept.key(id) {
                Ok(_) => {}
                Err(_) if self.keyring.key(id).is_err() => {
                    tracing::warn!(key = id, "a backup without a root key that is lost");
                }
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(())
    }

    /// A directory for a backup that comes in.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn receive(&self) -> Result<Scratch, ArchiveError> {
        Scratch::new(&self.dir, "receive")
    }

    /// Makes the backup in a file the state of this server, as a new epoch of the log. The backup
    /// is unpacked and checked while the server continues; then the server takes no more events,
    /// begins the new log, wakes all waiting calls, and has its agent start it anew.
    ///
    /// # Errors
    /// A backup that is refused, for the reason it is; another restore under way; files that cannot
    /// be written. The state is what it was.
    pub async fn restore(
        &self,
        backup: PathBuf,
        mut how: Restore,
        (actor, request_id): (Actor, String),
    ) -> Result<Restored, ArchiveError> {
        let Ok(_alone) = self.restoring.try_lock() else {
            return Err(broken("a restore is under way"));
        };
        if self.restart.is_cancelled() {
            return Err(broken("this server is about to start anew"));
        }
        let (term, last, _) = self.raft.progress();
        (how.above, how.term) = (last, term);
        let dir = self.dir.clone();
        let work = move || {
            let opened = File::open(&backup).map_err(|source| file("read", &backup, source));
            let mut last_step = None;
            prepare(&mut opened?, &dir, &how, &mut |step, _, _| {
                if last_step != Some(step) {
                    last_step = Some(step);
                    tracing::info!(?step, "restoring a backup");
                }
            })
        };
        let prepared = tokio::task::spawn_blocking(work).await.map_err(broken)??;
        tracing::warn!(
            index = prepared.index,
            first = prepared.first,
            "the former epoch of the log ends"
        );
        self.raft.shutdown().await;
        let log = self.raft.log();
        let former = Former {
            member: self.me.member(),
            actor,
            request_id,
            log: log.compact_range().map(|range| (log.epoch(), range)),
            now: crate::base::clock::unix_nanos(),
        };
        let done = tokio::task::spawn_blocking(move || prepared.finish(&former)).await;
        // Whatever came of it: Raft has stopped, and a start finds what there is now.
        self.restart.cancel();
        self.projections.watch().close();
        done.map_err(broken)?
    }

    /// Ready when this server is to be stopped and started anew.
    pub async fn wants_restart(&self) {
        self.restart.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::server::testing::Stopping;

    /// Directories in which something is made and was not removed.
    fn scratches(server: &Server) -> usize {
        let entries = fs::read_dir(server.dir.join("snapshots")).unwrap();
        let path = |entry: io::Result<fs::DirEntry>| entry.unwrap().path();
        let draft = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "tmp");
        entries.map(path).filter(draft).count()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_backup_is_made_only_as_long_as_the_disk_has_space() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = crate::telemetry::install(std::time::Duration::from_secs(10));
        let config = Arc::new(Config::dev());
        let started = Server::start(config, dir.path(), telemetry).await;
        let server = Stopping(started.unwrap());
        server.wait_ready().await;
        assert!(server.backup_bytes() > 0);
        let mut looks = 0;
        let backup = loop {
            let scratch = Scratch::new(&server.dir, "save").unwrap();
            let reserve = DiskReserve::for_looks(&scratch.path().join("backup.tar"), looks);
            match server.backup_in(scratch, reserve).await {
                Ok(backup) => break backup,
                Err(ArchiveError::NoSpace(text)) => {
                    assert!(text.starts_with("the disk is full: "), "{text}");
                }
                Err(other) => panic!("{other:?}"),
            }
            assert_eq!(scratches(&server), 0, "after {looks} looks");
            assert!(looks < 1_000, "looks without end");
            looks += 1;
        };
        // Before it begins, for the state, for what is sealed of the log, and for the tar.
        assert!(looks >= 4, "{looks}");
        assert!(backup.path().metadata().unwrap().len() > 0);
        drop(backup);
        server.shutdown().await;
    }
}
