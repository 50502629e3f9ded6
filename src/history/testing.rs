//! A log of real events for tests.

use std::path::{Path, PathBuf};

use drover_events::cluster::ClusterIdSet;
use drover_events::model::Namespace;
use drover_events::namespace::{NamespacesDeleted, NamespacesUpserted};
use drover_events::{Actor, Envelope, Event, EventId, EventKind, RaftPayload, Recorded};

use crate::log::{Entry, LogEngine, LogOptions};
use crate::raft::seed::Seed;

/// The time of the first event; each later one is a second after the one before.
pub(super) const START: i64 = 1_700_000_000_000_000_000;

/// An entry of Raft's own at an index, as it is read.
pub(crate) fn blank(index: u64) -> Recorded {
    Recorded {
        index,
        term: 3,
        kind: EventKind::RaftBlank,
        time: 0,
        envelope: None,
    }
}

/// The event at an index: namespaces come, change and go.
pub(super) fn event(index: u64) -> Event {
    let name = format!("space-{}", index % 17);
    match index {
        1 => ClusterIdSet {
            cluster_id: uuid::Uuid::nil().to_string(),
            create_time: START,
        }
        .into(),
        _ if index.is_multiple_of(5) => NamespacesDeleted { names: vec![name] }.into(),
        _ => {
            let namespace = Namespace {
                name,
                description: format!("as of {index}").repeat(4),
                ..Namespace::default()
            };
            NamespacesUpserted {
                namespaces: vec![namespace],
            }
            .into()
        }
    }
}

/// The body of that event in term 3.
pub(super) fn body(index: u64) -> Vec<u8> {
    if index == 0 {
        return RaftPayload::blank().body(0, 3);
    }
    body_of(index, event(index))
}

/// The body of an event at an index in term 3.
pub(super) fn body_of(index: u64, event: Event) -> Vec<u8> {
    let envelope = Envelope {
        time: START + index.cast_signed() * 1_000_000_000,
        id: EventId(u128::from(index).to_be_bytes()),
        actor: Actor::default(),
        request_id: format!("request-{index}"),
        cause: None,
        trace: String::new(),
        guards: Vec::new(),
        event,
    };
    RaftPayload::encode(&envelope).unwrap().body(index, 3)
}

/// Writes the entries `0..count` as a server's log under a data directory; answers the log's.
pub(crate) fn write_log(data_dir: &Path, count: u64) -> PathBuf {
    write_events(data_dir, (1..count).map(event))
}

/// The same with these events behind Raft's first entry.
pub(super) fn write_events(data_dir: &Path, events: impl Iterator<Item = Event>) -> PathBuf {
    let dir = data_dir.join("server/log");
    let options = LogOptions {
        segment_bytes: 64 << 10,
        ..LogOptions::default()
    };
    let (log, _) = LogEngine::open(&dir, options).unwrap();
    let mut entries = vec![Entry {
        index: 0,
        kind: EventKind::RaftBlank.number(),
        time: 0,
        body: body(0).into(),
    }];
    for (index, event) in (1_u64..).zip(events) {
        entries.push(Entry {
            index,
            kind: event.kind().number(),
            time: START + index.cast_signed() * 1_000_000_000,
            body: body_of(index, event).into(),
        });
    }
    let last = entries.last().map_or(0, |entry| entry.index);
    log.append(entries, Box::new(|_| ())).unwrap();
    log.sync().unwrap();
    Seed::default().commit(&log, (last, 3));
    log.sync().unwrap();
    log.close();
    dir
}
