//! What the applier feeds: the projections' writer, or nothing at all (benchmarks, store tests).

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use drover_events::{RaftPayload, Recorded};
use drover_projections::snapshot::SpaceCheck;
use drover_projections::{Outcome, Projections, StorageError, Writer};

use super::types::Entry;
use crate::error::chain;
use crate::telemetry::{milliseconds, took};

/// Bytes of one file of a snapshot, roughly.
const SNAPSHOT_FILE: u64 = 64 << 20;

/// Where a fold stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldPosition {
    /// The last applied index.
    pub index: u64,
    pub term: u64,
    /// The index of the last applied membership entry.
    pub membership: u64,
    /// The time of the last event, Unix nanoseconds.
    pub time: i64,
}

/// Why applying stopped.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// This server cannot read the entry: it is newer than the program. The applier parks.
    #[error("cannot read the event at index {index}: {reason}")]
    Unreadable {
        /// The entry's index.
        index: u64,
        /// Why.
        reason: String,
    },
    /// The disk is full. What is not done yet is applied again until there is space.
    #[error("cannot apply: {0}")]
    NoSpace(String),
    /// The database failed. The server stops.
    #[error("cannot apply: {0}")]
    Storage(String),
}

/// Writes a state into the empty directory it is given, as long as there is space.
pub type Save = Box<dyn FnOnce(&Path, SpaceCheck<'_>) -> io::Result<()> + Send>;

/// The state that committed entries are folded into.
pub trait Fold: Send + 'static {
    /// Where it stands; `None` before the first entry.
    fn place(&self) -> Option<FoldPosition>;

    /// Applies entries in order; `done` is called for each once what it changed can be read.
    ///
    /// # Errors
    /// At the first entry that cannot be applied; those before it are, and `done` was called for
    /// them.
    fn apply(
        &mut self,
        entries: &[Entry],
        done: &mut dyn FnMut(u64, Option<Outcome>),
    ) -> Result<(), FoldError>;

    /// What writes the state as it is now into a directory; it is run on another thread, while
    /// applying continues.
    fn save(&mut self) -> Save;

    /// Replaces the state by that in `dir`.
    ///
    /// # Errors
    /// If the files cannot be read.
    fn load(&mut self, dir: &Path) -> io::Result<()>;

    /// The projections' writer; none where nothing is projected.
    fn writer(&mut self) -> Option<&mut Writer> {
        None
    }

    /// Answers nothing about what was before the state at `index` from now on; that, and all that
    /// is applied, is on the disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    fn forget(&mut self, index: u64) -> io::Result<()>;
}

/// Applies to the projections.
pub struct Projector {
    writer: Writer,
    projections: Arc<Projections>,
    batch: Vec<Recorded>,
    observer: Option<Observer>,
}

/// Called with events that were applied, on the applier's thread.
pub type Observer = Box<dyn Fn(&[Recorded], &Projections) + Send>;

impl Projector {
    /// Takes over the one writer of the projections.
    pub fn new(writer: Writer) -> Projector {
        let projections = Arc::clone(writer.projections());
        Projector {
            writer,
            projections,
            batch: Vec::new(),
            observer: None,
        }
    }

    /// Has an observer called with what is applied; the observer must not take long.
    #[must_use]
    pub fn observed(mut self, observer: Observer) -> Projector {
        self.observer = Some(observer);
        self
    }

    /// The projections it writes.
    pub fn projections(&self) -> &Arc<Projections> {
        &self.projections
    }
}

/// A failure of storage as one of files: whether the disk is full can be seen of it.
fn failed(error: &StorageError) -> io::Error {
    let kind = match error.is_out_of_space() {
        true => io::ErrorKind::StorageFull,
        false => io::ErrorKind::Other,
    };
    io::Error::new(kind, chain(error))
}

fn decode(entry: &Entry) -> Result<Recorded, FoldError> {
    let payload = RaftPayload(entry.payload.0.clone());
    let (term, index) = (*entry.log_id.leader_id, entry.log_id.index);
    drover_migrations::decode(&payload.body(index, term)).map_err(|e| FoldError::Unreadable {
        index,
        reason: e.to_string(),
    })
}

impl Fold for Projector {
    fn place(&self) -> Option<FoldPosition> {
        let p = self.projections.view().position();
        p.begun.then_some(FoldPosition {
            index: p.index,
            term: p.term,
            membership: p.membership,
            time: p.time,
        })
    }

    fn apply(
        &mut self,
        entries: &[Entry],
        done: &mut dyn FnMut(u64, Option<Outcome>),
    ) -> Result<(), FoldError> {
        self.batch.clear();
        let mut unreadable = None;
        for entry in entries {
            match decode(entry) {
                Ok(recorded) => self.batch.push(recorded),
                Err(e) => {
                    unreadable = Some(e);
                    break;
                }
            }
        }
        let mut began = Instant::now();
        self.writer
            .apply_each(&self.batch, |applied| {
                // Nothing else is applied while a batch is, so this is how long a barrier may wait.
                let took = milliseconds(began.elapsed());
                metrics::histogram!("nomad.raft.apply_batch").record(took);
                metrics::counter!("nomad.raft.apply").increment(applied.len() as u64);
                let each = took / applied.len().max(1) as f64;
                metrics::histogram!("nomad.raft.fsm.apply").record(each);
                began = Instant::now();
                for a in applied {
                    done(a.index, Some(a.outcome));
                }
            })
            .map_err(|e| match e.is_out_of_space() {
                true => FoldError::NoSpace(chain(&e)),
                false => FoldError::Storage(chain(&e)),
            })?;
        if let Some(observer) = &self.observer {
            observer(&self.batch, &self.projections);
        }
        unreadable.map_or(Ok(()), Err)
    }

    fn save(&mut self) -> Save {
        let view = self.projections.view();
        Box::new(move |dir, fits| {
            let began = Instant::now();
            let written = view.write_snapshot(dir, SNAPSHOT_FILE, fits);
            if written.is_ok() {
                took("nomad.raft.fsm.snapshot", began);
            }
            written.map(|_| ()).map_err(|e| failed(&e))
        })
    }

    fn load(&mut self, dir: &Path) -> io::Result<()> {
        let began = Instant::now();
        let installed = self.writer.install(dir);
        if installed.is_ok() {
            took("nomad.raft.fsm.restore", began);
        }
        installed.map(|_| ()).map_err(|e| failed(&e))
    }

    fn writer(&mut self) -> Option<&mut Writer> {
        Some(&mut self.writer)
    }

    fn forget(&mut self, index: u64) -> io::Result<()> {
        let raised = self.writer.raise_floor(index);
        raised.map_err(|e| failed(&e))
    }
}

/// Keeps nothing but where it stands.
#[derive(Debug, Default)]
pub struct Discard {
    place: Option<FoldPosition>,
}

impl Fold for Discard {
    fn place(&self) -> Option<FoldPosition> {
        self.place
    }

    fn apply(
        &mut self,
        entries: &[Entry],
        done: &mut dyn FnMut(u64, Option<Outcome>),
    ) -> Result<(), FoldError> {
        for e in entries {
            let (term, index) = (*e.log_id.leader_id, e.log_id.index);
            let before = self.place.unwrap_or_default();
            let member = openraft::entry::RaftPayload::get_membership(&e.payload).is_some();
            let membership = if member { index } else { before.membership };
            self.place = Some(FoldPosition {
                index,
                term,
                membership,
                time: 0,
            });
            done(index, None);
        }
        Ok(())
    }

    fn save(&mut self) -> Save {
        let p = self.place.unwrap_or_default();
        let text = format!("{} {} {}", p.index, p.term, p.membership);
        Box::new(move |dir, fits| {
            fits(text.len() as u64)?;
            fs::write(dir.join("place"), text)
        })
    }

    fn load(&mut self, dir: &Path) -> io::Result<()> {
        let text = fs::read_to_string(dir.join("place"))?;
        let mut numbers = text.split(' ').map(str::parse::<u64>);
        let mut next = || {
            numbers
                .next()
                .and_then(Result::ok)
                .ok_or(io::ErrorKind::InvalidData)
        };
        let (index, term, membership) = (next()?, next()?, next()?);
        self.place = Some(FoldPosition {
            index,
            term,
            membership,
            time: 0,
        });
        Ok(())
    }

    fn forget(&mut self, _index: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use drover_events::cluster::ClusterIdSet;
    use drover_events::{Actor, Envelope, EventId};
    use drover_projections::DatabaseOptions;
    use openraft::entry::RaftEntry as _;

    use super::super::types::{Payload, log_id};
    use super::*;

    #[test]
    fn a_state_that_does_not_fit_on_the_disk_is_known_by_its_error() {
        let dir = tempfile::tempdir().unwrap();
        let opened = Projections::open(dir.path().join("tables"), DatabaseOptions::dev());
        let mut one = Projector::new(opened.unwrap().1);
        let envelope = Envelope {
            time: 0,
            id: EventId([1; 16]),
            actor: Actor::default(),
            request_id: String::new(),
            cause: None,
            trace: String::new(),
            guards: Vec::new(),
            event: ClusterIdSet {
                cluster_id: "a cluster".to_owned(),
                create_time: 1,
            }
            .into(),
        };
        let payload = RaftPayload::encode(&envelope).unwrap();
        let entry = Entry::new(log_id(1, 1), Payload::from(payload));
        one.apply(&[entry], &mut |_, _| {}).unwrap();
        let full = |_: u64| -> io::Result<()> {
            let text = "the disk is full: it is a test's";
            Err(io::Error::new(io::ErrorKind::StorageFull, text))
        };
        let saved = dir.path().join("saved");
        let error = one.save()(saved.as_path(), &full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().ends_with("it is a test's"), "{error}");
    }

    #[test]
    fn what_is_applied_saved_and_loaded_is_timed() {
        let options = crate::telemetry::TelemetryOptions::default();
        let (telemetry, recorder) = crate::telemetry::build(&options);
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let (_, writer) =
                Projections::open(dir.path().join(name), DatabaseOptions::dev()).unwrap();
            Projector::new(writer)
        };
        let blank = |index| Entry::new(log_id(1, index), Payload::from(RaftPayload::blank()));
        let entries: Vec<Entry> = (1..4).map(blank).collect();
        let saved = dir.path().join("saved");
        let fits = |_: u64| -> io::Result<()> { Ok(()) };
        metrics::with_local_recorder(&recorder, || {
            let mut one = open("one");
            one.apply(&entries, &mut |_, _| {}).unwrap();
            one.save()(saved.as_path(), &fits).unwrap();
            open("two").load(&saved).unwrap();
        });
        let text = telemetry.prometheus();
        for what in ["apply", "snapshot", "restore"] {
            let line = format!("nomad_raft_fsm_{what}_count 1");
            assert!(
                text.lines().any(|other| other == line),
                "no {line} in {text}"
            );
        }
    }
}
