use drover_events::{EventKind, RaftPayload};
use drover_migrations::schema::{SchemaHeader, SchemaVersion};
use drover_projections::maintenance::Maintenance;

use super::*;
use crate::error::chain;
use crate::history::testing::write_log;
use crate::log::LogEngine;

/// A log with a membership and an event of a kind that is not known yet.
fn log_from_the_future(dir: &Path) -> PathBuf {
    let path = dir.join("log");
    let options = crate::log::LogOptions {
        auto_commit: true,
        ..crate::log::LogOptions::journal()
    };
    let (log, _) = LogEngine::open(&path, options).unwrap();
    let known = RaftPayload::membership(&[]).body(0, 1);
    let mut unknown = RaftPayload::blank().body(1, 1);
    unknown[16..18].copy_from_slice(&60_000_u16.to_le_bytes());
    let bodies = [
        (EventKind::RaftMembership.number(), known),
        (60_000, unknown),
    ];
    for (kind, body) in bodies {
        log.append_next(kind, 1, |_| body.into(), Box::new(drop))
            .unwrap();
    }
    log.sync().unwrap();
    log.close();
    path
}

#[test]
fn an_unknown_kind_is_named_with_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let log = log_from_the_future(dir.path());
    let error = replay(&log, &dir.path().join("db"), None, &mut |_, _| ()).unwrap_err();
    let text = chain(&error);
    assert!(text.contains("index 1") && text.contains("60000"), "{text}");
    let before = replay(&log, &dir.path().join("db-0"), Some(0), &mut |_, _| ()).unwrap();
    assert_eq!((before.state.index, before.entries), (0, 1));
}

#[test]
fn a_database_of_a_newer_drover_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = log_from_the_future(dir.path());
    let path = dir.path().join("db");
    let db = Maintenance::open(&path, &DatabaseOptions::dev()).unwrap();
    db.write(&[], &SchemaHeader::at(SchemaVersion(99)).encode())
        .unwrap();
    drop(db);
    let error = catch_up(&log, &path).unwrap_err();
    assert!(matches!(error, ReplayError::Schema(_)), "{error}");
    assert!(error.to_string().contains("schema 99"), "{error}");
}

#[test]
fn a_state_that_is_folded_and_gone_on_from_is_what_batches_give() {
    let dir = tempfile::tempdir().unwrap();
    let log = ReadOnlyLog::open(&write_log(dir.path(), 300)).unwrap();
    let open =
        |name: &str| Projections::open(dir.path().join(name), DatabaseOptions::dev()).unwrap();
    let (folded, fold) = open("folded");
    let (batched, mut batches) = open("batched");
    let fold = unfold(&log, None, 100, fold, &mut |_, _| Ok(())).unwrap();
    go_on(&log, 0, 100, &mut batches, &mut |_, _| ()).unwrap();
    assert_eq!(StateAt::of(&folded).index, 100);
    // How many rows of which digest there are in a table.
    let written = |projections: &Projections, name: &str| {
        let view = projections.view();
        view.write_snapshot(&dir.path().join(name), 1 << 20, &|_| Ok(()))
            .unwrap()
            .tables
    };
    assert_eq!(
        written(&folded, "of-folded"),
        written(&batched, "of-batched")
    );
    unfold_on(&log, 200, fold, &mut |_, _| Ok(())).unwrap();
    go_on(&log, 101, 200, &mut batches, &mut |_, _| ()).unwrap();
    assert_eq!(StateAt::of(&folded).index, 200);
    assert_eq!(StateAt::of(&folded), StateAt::of(&batched));
}

#[test]
fn what_is_replayed_and_what_is_filled_is_folded_and_not_written_in_batches() {
    let dir = tempfile::tempdir().unwrap();
    let log_dir = write_log(dir.path(), 9_000);
    // There a fold keeps its files, as long as it is one.
    let is_folded = |database: &Path| database.join("staging").exists();
    let [replayed, filled, batched] = ["replayed", "filled", "batched"].map(|n| dir.path().join(n));
    let mut seen = Vec::new();
    let mut note = |at, last| seen.push((at, last, is_folded(&replayed)));
    let done = replay(&log_dir, &replayed, None, &mut note).unwrap();
    let steps = |folded: bool| [4095_u64, 8191, 8999].map(|at| (at, 8999_u64, folded));
    assert_eq!(seen, steps(true));
    assert!(!is_folded(&replayed), "it is over");

    seen.clear();
    let mut note = |at, last| seen.push((at, last, is_folded(&filled)));
    let projections = fill(&log_dir, &filled, &DatabaseOptions::dev(), &mut note).unwrap();
    assert_eq!(seen, steps(true));
    assert_eq!(StateAt::of(&projections), done.state);

    // The same in batches, which have no such files.
    seen.clear();
    let mut note = |at, last| seen.push((at, last, is_folded(&batched)));
    let log = ReadOnlyLog::open(&log_dir).unwrap();
    let (projections, mut writer) = Projections::open(&batched, DatabaseOptions::dev()).unwrap();
    go_on(&log, 0, 8999, &mut writer, &mut note).unwrap();
    assert_eq!(seen, steps(false));
    assert_eq!(StateAt::of(&projections), done.state);
}
