//! Import: a log made again from exported lines, body by body.
//!
//! The log is written beside its place and renamed when it is whole, so a kill leaves nothing that
//! a server would take for a log, and an import that was killed is run again. What is imported has
//! the epoch, the indexes and the tree of the log it came from; a lone server continues it as the
//! server that wrote it.

use std::fs;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use drover_events::BodyParts;
use parking_lot::Mutex;
use serde::Deserialize;

use super::{ArchiveError, sync_dir};
use crate::log::atomic_file;
use crate::log::{self, Entry, Epoch, Hash, LogEngine, LogError, OnFull, leaf_hash};
use crate::raft::seed::{self, Seed};

/// Bytes of bodies handed to the log at a time.
const CHUNK: usize = 1 << 20;
/// Chunks between two waits for the disk.
const AHEAD: usize = 16;
/// What a log that is not whole yet is called. While it is there, so may be the server's id.
const DRAFT: &str = "log.importing";
/// The file with the id of the server that may continue the log.
const ID: &str = "node-id";

/// The part of a line that matters; the document in it is for other readers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImportLine {
    index: u64,
    body: Option<String>,
    /// Exports of former releases have none.
    leaf_hash: Option<String>,
    epoch: Option<String>,
    epoch_first: Option<u64>,
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub events: u64,
    /// The index of the first.
    pub first: u64,
    /// The index of the last.
    pub last: u64,
    /// The root of the tree over them.
    pub root: Hash,
    /// The server that may continue the log, if the log names a lone one.
    pub server: Option<String>,
}

/// Makes a log of the lines under a data directory that has none. `progress` is called with the
/// bytes read.
///
/// # Errors
/// A data directory in use; a line that is no event, has no body, or is not the next one, with its
/// number; files that cannot be written. Nothing is left behind then.
pub fn import(
    lines: &mut dyn BufRead,
    data_dir: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Imported, ArchiveError> {
    let server = data_dir.join("server");
    let draft = ImportDraft::new(&server)?;
    let mut filling = Filling::new(&draft.log);
    let (mut line, mut number, mut read) = (String::new(), 0, 0);
    loop {
        line.clear();
        let got = lines.read_line(&mut line);
        let got = got.map_err(ArchiveError::file("read", Path::new("the export")))?;
        if got == 0 {
            break;
        }
        (number, read) = (number + 1, read + got as u64);
        if line.trim().is_empty() {
            continue;
        }
        filling.line(&line, number)?;
        progress(read);
    }
    let imported = filling.finish()?;
    if let Some(id) = &imported.server {
        atomic_file::put(&draft.id, id.as_bytes())
            .map_err(ArchiveError::file("write", &draft.id))?;
    }
    let place = server.join("log");
    fs::rename(&draft.log, &place).map_err(ArchiveError::file("rename", &draft.log))?;
    std::mem::forget(draft);
    sync_dir(&server)?;
    Ok(imported)
}

/// What is removed unless the log was renamed.
struct ImportDraft {
    log: PathBuf,
    id: PathBuf,
}

impl ImportDraft {
    /// Begins under a server's directory, with nothing left of an import that was killed there.
    ///
    /// # Errors
    /// Files of a server; what cannot be removed or made.
    fn new(server: &Path) -> Result<Self, ArchiveError> {
        let (log, id) = (server.join(DRAFT), server.join(ID));
        let killed = log.exists();
        let used = ["log", "projections", "snapshots", ID];
        for path in used.map(|name| server.join(name)) {
            if path.exists() && !(killed && path == id) {
                return Err(ArchiveError::Refused(format!(
                    "{} exists: only an empty data directory is filled",
                    path.display()
                )));
            }
        }
        // From here on, what is there is this import's.
        let draft = Self { log, id };
        if killed {
            let removed = draft.remove();
            removed.map_err(ArchiveError::file("remove", &draft.log))?;
        }
        fs::create_dir_all(&draft.log).map_err(ArchiveError::file("create", &draft.log))?;
        Ok(draft)
    }

    /// Removes the id first: without the log beside it, it is a server's.
    fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.id) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::remove_dir_all(&self.log)
    }
}

impl Drop for ImportDraft {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// A log while it is filled.
struct Filling<'a> {
    dir: &'a Path,
    log: Option<LogEngine>,
    epoch: String,
    chunk: Vec<Entry>,
    bytes: usize,
    ahead: usize,
    /// Index and term of the last entry.
    last: (u64, u64),
    events: u64,
    seed: Seed,
    /// The first write that failed.
    failed: Arc<Mutex<Option<LogError>>>,
}

impl<'a> Filling<'a> {
    fn new(dir: &'a Path) -> Self {
        Self {
            dir,
            log: None,
            epoch: String::new(),
            chunk: Vec::new(),
            bytes: 0,
            ahead: 0,
            last: (0, 0),
            events: 0,
            seed: Seed::default(),
            failed: Arc::default(),
        }
    }

    fn line(&mut self, text: &str, number: u64) -> Result<(), ArchiveError> {
        let bad = |what: String| ArchiveError::Line { line: number, what };
        let line: ImportLine =
            serde_json::from_str(text).map_err(|error| bad(format!("no event: {error}")))?;
        let (Some(body), Some(epoch), Some(first)) = (line.body, line.epoch, line.epoch_first)
        else {
            let what = "it has no body; export again with -format ndjson -bodies";
            return Err(bad(what.to_owned()));
        };
        let body = STANDARD
            .decode(body)
            .map_err(|_| bad("its body is not base64".to_owned()))?;
        let own = STANDARD.encode(leaf_hash(&body));
        if line.leaf_hash.is_some_and(|exported| exported != own) {
            return Err(bad("its body is not the one that was exported".to_owned()));
        }
        let parts = BodyParts::split(&body).map_err(|error| bad(error.to_string()))?;
        if parts.index != line.index {
            let (own, stated) = (parts.index, line.index);
            return Err(bad(format!(
                "its body is of index {own}, the line says {stated}"
            )));
        }
        let recorded = drover_migrations::decode(&body).map_err(|error| bad(error.to_string()))?;
        match &self.log {
            None => self
                .begin(&epoch, first, parts.index)
                .map_err(|error| match error {
                    ArchiveError::Refused(what) => bad(what),
                    other => other,
                })?,
            Some(_) if epoch != self.epoch => {
                return Err(bad("it is from another log than those before".to_owned()));
            }
            Some(_) if parts.index != self.last.0 + 1 || parts.term < self.last.1 => {
                let wanted = self.last.0 + 1;
                return Err(bad(format!("index {} where {wanted} is next", parts.index)));
            }
            Some(_) => {}
        }
        self.last = (parts.index, parts.term);
        self.seed.note(parts);
        let (kind, index) = (parts.kind, parts.index);
        self.bytes += body.len();
        self.chunk.push(Entry {
            index,
            kind,
            time: recorded.time,
            body: Bytes::from(body),
        });
        if self.bytes >= CHUNK {
            self.hand_over()?;
        }
        Ok(())
    }

    fn begin(&mut self, epoch: &str, first: u64, index: u64) -> Result<(), ArchiveError> {
        let id = seed::epoch_id(epoch)
            .ok_or_else(|| ArchiveError::Refused(format!("{epoch:?} is no epoch")))?;
        if index != first {
            return Err(ArchiveError::Refused(format!(
                "it begins at index {index}, its log at {first}: what is between is missing; a log \
                 whose beginning was dropped is moved with drover operator snapshot"
            )));
        }
        if first > 0 {
            return Err(ArchiveError::Refused(format!(
                "its log began at index {first} with a state that was restored, which is in no \
                 export: it is moved with drover operator snapshot"
            )));
        }
        let options = log::LogOptions {
            epoch: Some(Epoch {
                id,
                first_index: first,
            }),
            on_full: OnFull::Fail,
            ..log::LogOptions::default()
        };
        self.log = Some(LogEngine::open(self.dir, options)?.0);
        epoch.clone_into(&mut self.epoch);
        Ok(())
    }

    /// Gives the gathered entries to the log.
    fn hand_over(&mut self) -> Result<(), ArchiveError> {
        let Some(log) = &self.log else { return Ok(()) };
        self.events += self.chunk.len() as u64;
        self.bytes = 0;
        let failed = Arc::clone(&self.failed);
        let done = Box::new(move |result: Result<(), LogError>| {
            if let Err(error) = result {
                failed.lock().get_or_insert(error);
            }
        });
        let appended = log.append(std::mem::take(&mut self.chunk), done);
        self.ahead += 1;
        let synced = match self.ahead % AHEAD {
            0 => log.sync(),
            _ => Ok(()),
        };
        if let Some(error) = self.failed.lock().take() {
            return Err(error.into());
        }
        appended.and(synced)?;
        if self.ahead.is_multiple_of(AHEAD) {
            self.seed.commit(log, self.last);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Imported, ArchiveError> {
        self.hand_over()?;
        let Some(log) = self.log.take() else {
            return Err(ArchiveError::Refused(
                "there are no events in it".to_owned(),
            ));
        };
        let synced = log.sync();
        if let Some(error) = self.failed.lock().take() {
            return Err(error.into());
        }
        synced?;
        self.seed.commit(&log, self.last);
        let server = self.seed.finalize(&log, self.last.1)?;
        let (first, _) = log.bounds();
        let range = log.range_at(self.last.0)?.unwrap_or_default();
        log.close();
        Ok(Imported {
            events: self.events,
            first,
            last: self.last.0,
            root: range.root(),
            server,
        })
    }
}
