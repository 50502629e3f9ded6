//! Databases to apply events to.

use std::sync::Arc;

use drover_events::{Actor, Envelope, Event, EventId, EventKind, Recorded};
use drover_projections::{Applied, DatabaseOptions, Projections, Writer};
use tempfile::TempDir;

/// A database in a directory that vanishes with it.
pub(crate) struct Replica {
    pub(crate) projections: Arc<Projections>,
    pub(crate) writer: Writer,
    _dir: TempDir,
}

impl Replica {
    pub(crate) fn new() -> Replica {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("projections");
        let (projections, writer) =
            Projections::open(path, DatabaseOptions::dev()).expect("it opens");
        Replica {
            projections,
            writer,
            _dir: dir,
        }
    }

    /// Applies a log in batches of `size` events.
    pub(crate) fn apply(&mut self, log: &[Recorded], size: usize) -> Vec<Applied> {
        let batches = log.chunks(size);
        batches
            .flat_map(|batch| self.writer.apply(batch).expect("it is stored"))
            .collect()
    }

    /// Name and digest of every table.
    pub(crate) fn digests(&self) -> Vec<(&'static str, String)> {
        let digests = self.projections.view().digests();
        digests
            .iter()
            .map(|table| (table.name, table.digest.to_hex()))
            .collect()
    }
}

/// An event at an index, without guards.
pub(crate) fn recorded(index: u64, event: Event) -> Recorded {
    let kind: EventKind = event.kind();
    let time = 1_790_000_000_000_000_000 + i64::try_from(index).expect("small");
    let mut id = [0; 16];
    id[8..].copy_from_slice(&index.to_be_bytes());
    let envelope = Envelope {
        time,
        id: EventId(id),
        actor: Actor::default(),
        request_id: format!("request-{index}"),
        cause: None,
        trace: String::new(),
        guards: Vec::new(),
        event,
    };
    Recorded {
        index,
        term: 1,
        kind,
        time,
        envelope: Some(envelope),
    }
}
