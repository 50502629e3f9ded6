use std::collections::BTreeMap;

use drover_events::Recorded;
use drover_projections::tables::evals::Evals;
use drover_projections::{DatabaseOptions, Outcome, Projections, Scan};
use serde_json::{Value, json};

use super::super::meaning;
use super::*;
use crate::decode;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("logs")
}

/// Name and digest of every table after a log is applied in batches of a size.
fn digests(log: &[Recorded], batch: usize) -> BTreeMap<&'static str, String> {
    let dir = tempfile::tempdir().unwrap();
    let opened = Projections::open(dir.path().join("projections"), DatabaseOptions::dev());
    let (projections, mut writer) = opened.unwrap();
    for batch in log.chunks(batch) {
        writer.apply(batch).unwrap();
    }
    let digests = projections.view().digests();
    digests
        .iter()
        .map(|table| (table.name, table.digest.to_hex()))
        .collect()
}

/// What a log comes to: the events of old versions as they are read today, and the digest of every
/// table that holds something.
fn comes_to(bodies: &[Vec<u8>], batch: usize) -> Value {
    let is_old = |body: &&Vec<u8>| {
        let parts = drover_events::BodyParts::split(body).unwrap();
        parts.version < EventKind::from_number(parts.kind).unwrap().version()
    };
    let old = bodies.iter().filter(is_old);
    let events: Vec<Value> = old
        .map(|body| meaning(body).unwrap()["event"].clone())
        .collect();
    let log: Vec<Recorded> = bodies.iter().map(|body| decode(body).unwrap()).collect();
    let empty = digests(&[], 1);
    let held = digests(&log, batch).into_iter();
    let tables: BTreeMap<_, _> = held
        .filter(|(name, of)| empty.get(name) != Some(of))
        .collect();
    json!({ "events": events, "tables": tables })
}

#[test]
fn ev_11_ns_02_recorded_logs_come_to_what_was_pinned() {
    for name in NAMES {
        let bodies = read(&directory(), name).unwrap();
        let found = comes_to(&bodies, 1);
        assert_eq!(
            comes_to(&bodies, bodies.len()),
            found,
            "{name} in one batch"
        );
        let path = directory().join(format!("{name}.pinned.json"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let pinned: Value = serde_json::from_str(&text).unwrap_or_else(|_| {
            panic!(
                "{} is not there; the log comes to\n{found:#}",
                path.display()
            )
        });
        // A table that a later version begins to fill is none of this log's.
        for (table, digest) in pinned["tables"].as_object().unwrap() {
            assert_eq!(&found["tables"][table], digest, "{name}: {table}");
        }
        assert_eq!(found["events"], pinned["events"], "{name}");
        assert!(
            pinned["events"].as_array().unwrap().len() >= 3,
            "{name} holds old versions"
        );
    }
}

#[test]
fn old_deletions_by_filter_are_applied() {
    let bodies = read(&directory(), "deletions_by_filter").unwrap();
    let log: Vec<Recorded> = bodies.iter().map(|body| decode(body).unwrap()).collect();
    let dir = tempfile::tempdir().unwrap();
    let opened = Projections::open(dir.path().join("projections"), DatabaseOptions::dev());
    let (projections, mut writer) = opened.unwrap();
    for applied in writer.apply(&log).unwrap() {
        assert!(
            matches!(applied.outcome, Outcome::Applied(_)),
            "{:?}",
            applied.outcome
        );
    }
    let left = projections.view().scan::<Evals>(Scan::all()).count();
    assert_eq!(left, 40 - 5 - 5 - 2);
}

#[test]
fn a_recorded_log_is_written_once() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(freeze(dir.path()).unwrap().len(), NAMES.len());
    assert!(freeze(dir.path()).unwrap().is_empty());
    for name in NAMES {
        let path = |dir: &Path| dir.join(format!("{name}.log"));
        let (new, frozen) = (fs::read(path(dir.path())), fs::read(path(&directory())));
        assert_eq!(
            new.unwrap(),
            frozen.unwrap(),
            "old versions are still written as they were"
        );
        let mut cut = fs::read(path(dir.path())).unwrap();
        cut.pop();
        fs::write(path(dir.path()), cut).unwrap();
        assert!(read(dir.path(), name).is_err());
    }
}
