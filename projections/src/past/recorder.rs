//! Writes what an event ended and changed: the past as it comes about.

use drover_events::EventKind;

use crate::engine::db::Family;
use crate::engine::history_writer::{Changed, EndedVersion, HistoryWriter};
use crate::engine::row;
use crate::engine::staged::PutEntries;
use crate::engine::table::IndexEntry;
use crate::past::changes::{ChangeList, Operation, Recording, post};
use crate::past::history;

/// The memory of a recorder, from one event to the next.
#[derive(Default)]
pub(crate) struct RecorderMemory {
    changes: ChangeList,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl RecorderMemory {
    /// What an event at an index ended and changed goes to `out`.
    pub(crate) fn of<'a>(&'a mut self, index: u64, out: &'a mut dyn PutEntries) -> Recorder<'a> {
        self.changes.clear();
        self.bytes.clear();
        let record = self;
        Recorder { index, out, record }
    }
}

/// Records one event.
pub(crate) struct Recorder<'a> {
    index: u64,
    out: &'a mut dyn PutEntries,
    record: &'a mut RecorderMemory,
}

impl Recorder<'_> {
    /// Writes the entry of the event, now that all its changes are recorded.
    pub(crate) fn finish(self, kind: EventKind) {
        let RecorderMemory { changes, bytes, .. } = self.record;
        changes.finish((self.index, kind), bytes, self.out);
    }
}

impl HistoryWriter for Recorder<'_> {
    fn ended(&mut self, version: &EndedVersion<'_>) {
        let at = history::begun_key(version.table, version.key, version.from);
        let value = &mut self.record.scratch;
        value.clear();
        history::write_version(value, self.index, version.deleted, version.body);
        self.out.put(Family::History, &at, value);
    }

    fn died(&mut self, table: u16, entry: &IndexEntry, birth: u64) {
        let value = &mut self.record.scratch;
        value.clear();
        row::varint(value, birth);
        let dead = history::dead_key(table, entry, self.index);
        self.out.put(Family::History, &dead, value);
    }

    fn changed(&mut self, change: &Changed<'_>) {
        let RecorderMemory { changes, bytes, .. } = &mut *self.record;
        if change.deleted && change.by_rule {
            let topic = change.stream.as_ref().map(|stream| stream.topic);
            return changes.add_rule(change.table, change.namespace, topic);
        }
        if let Some(stream) = &change.stream {
            let posted = change.posted.iter();
            for key in posted.filter_map(|at| stream.filter_keys.get(*at)) {
                if !key.is_empty() {
                    post(self.out, stream.topic, stream.namespace, key, self.index);
                }
            }
        }
        let what = Recording {
            table: change.table,
            operation: match change.deleted {
                true => Operation::Delete,
                false => Operation::Put,
            },
            key: change.key,
            namespace: change.namespace,
            stream: change.stream.as_ref(),
            continues_another: change.continues_another,
        };
        changes.add(bytes, &what);
    }
}
