//! Recorded logs of older versions: decoded, applied, and compared with what was pinned.

use std::collections::BTreeMap;
use std::path::PathBuf;

use drover_events::Recorded;
use drover_migrations::golden::{logs, meaning};
use drover_projections::hex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::Replica;

/// What a recorded log comes to.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Pinned {
    /// SHA-256 over what its events mean today.
    events: String,
    /// The digest of every table that holds something.
    tables: BTreeMap<String, String>,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations/logs")
}

fn decoded(bodies: &[Vec<u8>]) -> Vec<Recorded> {
    let decode = |body: &Vec<u8>| drover_migrations::decode(body).expect("an old event is read");
    bodies.iter().map(decode).collect()
}

/// JSON with its keys in order.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, String> = fields
                .iter()
                .map(|(key, value)| (key, canonical(value)))
                .collect();
            let fields = sorted.iter().map(|(key, value)| format!("{key:?}:{value}"));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(canonical).collect::<Vec<_>>().join(",")
            )
        }
        other => other.to_string(),
    }
}

fn comes_to(bodies: &[Vec<u8>], batch: usize) -> Pinned {
    let mut hash = Sha256::new();
    for body in bodies {
        let meaning = meaning(body).expect("an old event is read");
        hash.update(canonical(&meaning));
        hash.update(b"\n");
    }
    let empty: BTreeMap<_, _> = Replica::new().digests().into_iter().collect();
    let mut replica = Replica::new();
    replica.apply(&decoded(bodies), batch);
    let held = replica.digests().into_iter();
    let held = held.filter(|(table, digest)| empty.get(table) != Some(digest));
    Pinned {
        events: hex(&hash.finalize()),
        tables: held
            .map(|(table, digest)| (table.to_owned(), digest))
            .collect(),
    }
}

#[test]
fn ev_11_ns_02_recorded_logs_come_to_what_was_pinned() {
    for name in logs::NAMES {
        let bodies = logs::read(&directory(), name).expect("a recorded log");
        let found = comes_to(&bodies, 1);
        assert_eq!(
            comes_to(&bodies, bodies.len()),
            found,
            "{name} in one batch"
        );
        let path = directory().join(format!("{name}.pinned.json"));
        let text = std::fs::read(&path).unwrap_or_default();
        let pinned: Pinned = serde_json::from_slice(&text).unwrap_or_else(|_| {
            let found = serde_json::to_string_pretty(&found).expect("JSON");
            panic!("{} is not there; the log comes to\n{found}", path.display())
        });
        // A table that a later version begins to fill is none of this log's.
        for (table, digest) in &pinned.tables {
            assert_eq!(found.tables.get(table), Some(digest), "{name}: {table}");
        }
        assert_eq!(found.events, pinned.events, "{name}: the events' meaning");
    }
}

#[test]
fn a_recorded_log_holds_old_versions() {
    for name in logs::NAMES {
        let bodies = logs::read(&directory(), name).expect("a recorded log");
        let old = bodies.iter().filter(|body| {
            let parts = drover_events::BodyParts::split(body).expect("a body");
            let kind = drover_events::EventKind::from_number(parts.kind).expect("a kind");
            parts.version < kind.version()
        });
        assert!(old.count() >= 3, "{name}");
    }
}
