//! Operations of the disk that fail, one by one, and kills between two of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;

use super::fake::{FakeDisk, Op};
use super::*;

const DIR: &str = "/data/log";

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        zero_ahead: 2048,
        tail_bytes: 1024,
        mark_after: Duration::from_millis(1),
        ..LogOptions::default()
    }
}

fn open(disk: &FakeDisk, options: LogOptions) -> Result<LogEngine, LogError> {
    let files = Arc::new(disk.clone());
    LogEngine::open_with(files, Path::new(DIR), options).map(|(log, _)| log)
}

fn body(index: u64, life: u64) -> Bytes {
    format!("entry {index} of life {life} {}", "x".repeat(250)).into()
}

fn entry(index: u64, life: u64) -> Entry {
    Entry {
        index,
        kind: 1,
        time: 1,
        body: body(index, life),
    }
}

/// The result that a call's callback gets.
fn wait(call: impl FnOnce(OnSynced) -> Result<(), LogError>) -> Result<(), LogError> {
    let (tx, rx) = mpsc::sync_channel(1);
    call(Box::new(move |result| {
        let _ = tx.send(result);
    }))?;
    rx.recv().map_err(|_| LogError::Closed)?
}

fn append(log: &LogEngine, from: u64, to: u64, life: u64) -> Result<(), LogError> {
    let entries = (from..to).map(|index| entry(index, life)).collect();
    wait(|done| log.append(entries, done))
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_nothing_written() {
    let disk = FakeDisk::default();
    let log = open(&disk, options()).unwrap();
    append(&log, 0, 20, 1).unwrap();
    disk.fail(Op::Sync, 0, 1);
    let failed = append(&log, 20, 25, 1).unwrap_err();
    assert!(
        matches!(failed, LogError::Io { op: "sync", .. }),
        "{failed}"
    );
    assert_eq!(disk.failed(), 1);
    // The disk works again; the log does not rely on it.
    let (syncs, bytes) = (disk.syncs(), disk.used());
    let stopped = |result: Result<(), LogError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, LogError::Stopped(_)), "{error}");
    };
    stopped(append(&log, 25, 26, 1));
    stopped(log.sync());
    stopped(wait(|done| log.save_vote(Bytes::from_static(b"v"), done)));
    stopped(wait(|done| log.truncate_after(Some(22), done)));
    stopped(wait(|done| log.purge(10, Bytes::new(), done)));
    assert!(log.stopped().is_some_and(|why| why.contains("sync")));
    assert_eq!(log.durable_next(), 20);
    log.close();
    assert_eq!((disk.syncs(), disk.used()), (syncs, bytes));
    let log = open(&disk.power_cut(1), options()).unwrap();
    let kept: Vec<_> = log.scan(0).map(Result::unwrap).collect();
    assert!(kept.len() >= 20 && kept.iter().all(|e| e.body == body(e.index, 1)));
}

#[test]
fn what_an_opened_log_says_is_durable_is() {
    for seed in 0..20 {
        let disk = FakeDisk::default();
        let log = open(&disk, options()).unwrap();
        append(&log, 0, 3, 1).unwrap();
        // In memory it is there, as after a kill; on the disk it may never be.
        disk.fail(Op::Sync, 0, 1);
        append(&log, 3, 8, 1).unwrap_err();
        drop(log);
        let log = open(&disk, options()).unwrap();
        let next = log.durable_next();
        assert_eq!(next, 8);
        let log = open(&disk.power_cut(seed), options()).unwrap();
        assert_eq!(log.bounds(), (0, next), "seed {seed}");
        assert_eq!(log.scan(0).map(Result::unwrap).count(), 8);
    }
}

#[test]
fn a_log_whose_creation_was_killed_is_there_for_certain_once_it_is_opened() {
    for op in [Op::Create, Op::Write, Op::Sync, Op::Rename, Op::SyncDir] {
        for (at, seed) in (0..5).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
            let disk = FakeDisk::default();
            disk.fail(op, at, 1);
            drop(open(&disk, options()));
            // Killed there; what did not come to fail does not fail later.
            disk.fail(op, u64::MAX, 0);
            let log = open(&disk, options()).unwrap();
            append(&log, 0, 3, 1).unwrap();
            let log = open(&disk.power_cut(seed), options()).unwrap();
            assert_eq!(log.bounds(), (0, 3), "{op:?} {at} failed, seed {seed}");
        }
    }
}

#[test]
fn a_log_whose_end_cannot_be_synced_is_not_opened() {
    let disk = FakeDisk::default();
    let log = open(&disk, options()).unwrap();
    append(&log, 0, 3, 1).unwrap();
    log.close();
    disk.fail(Op::Sync, 0, 1);
    let refused = open(&disk, options()).err().unwrap();
    assert!(
        matches!(refused, LogError::Io { op: "sync", .. }),
        "{refused}"
    );
    assert_eq!(open(&disk, options()).unwrap().bounds(), (0, 3));
}

#[test]
fn an_error_of_reading_is_an_error_and_not_the_end() {
    let plain = LogOptions {
        seal: false,
        prepare: false,
        ..options()
    };
    let disk = FakeDisk::default();
    let log = open(&disk, plain.clone()).unwrap();
    append(&log, 0, 200, 1).unwrap();
    append(&log, 200, 210, 1).unwrap();
    disk.fail(Op::Read, 0, 1);
    let failed = log.read(5).unwrap_err();
    assert!(
        matches!(failed, LogError::Io { op: "read", .. }),
        "{failed}"
    );
    assert_eq!(log.read(5).unwrap().unwrap().body, body(5, 1));
    assert_eq!(log.stopped(), None);
    disk.fail(Op::Read, 0, 1);
    assert!(
        log.scan(5).any(|e| e.is_err()),
        "the end is no place for an error to hide"
    );
    log.close();
    let before = disk.failed();
    let mut reads = 0;
    loop {
        assert!(reads < 10_000, "reads without end");
        disk.fail(Op::Read, reads, 1);
        match open(&disk, plain.clone()) {
            Err(LogError::Io { .. }) => {}
            Err(other) => panic!("read {reads}: {other}"),
            Ok(log) => {
                assert_eq!(log.bounds(), (0, 210), "read {reads}");
                if disk.failed() == before + reads {
                    break;
                }
            }
        }
        reads += 1;
    }
    assert!(reads > 5, "{reads} reads");
}

/// A life of a log, as far as it gets; answers what was acknowledged, and from where it is kept.
fn live(disk: &FakeDisk, options: LogOptions) -> (BTreeMap<u64, Bytes>, u64) {
    let (mut acked, mut first) = (BTreeMap::new(), 0);
    let Ok(log) = open(disk, options) else {
        return (acked, first);
    };
    let mut go = || -> Result<(), LogError> {
        for from in (0..240).step_by(20) {
            append(&log, from, from + 20, 1)?;
            acked.extend((from..from + 20).map(|i| (i, body(i, 1))));
            log.commit(from + 5, Bytes::from_static(b"p"));
        }
        // Back into an earlier segment.
        log.commit(60, Bytes::from_static(b"p"));
        Ok(())
    };
    let _ = go().and_then(|()| {
        acked.split_off(&235);
        wait(|done| log.truncate_after(Some(234), done))?;
        append(&log, 235, 250, 2)?;
        acked.extend((235..250).map(|i| (i, body(i, 2))));
        log.commit(249, Bytes::from_static(b"p"));
        append(&log, 250, 251, 2)?;
        acked.insert(250, body(250, 2));
        first = 150;
        wait(|done| log.purge(149, Bytes::from_static(b"p"), done))?;
        log.roll()?;
        append(&log, 251, 260, 2)?;
        acked.extend((251..260).map(|i| (i, body(i, 2))));
        Ok(())
    });
    log.close();
    (acked, first)
}

#[test]
fn whichever_operation_fails_what_was_acknowledged_is_there() {
    let kinds = [
        Op::Write,
        Op::Sync,
        Op::Create,
        Op::Rename,
        Op::Remove,
        Op::SyncDir,
    ];
    for (prepare, op) in kinds.iter().flat_map(|op| [(false, *op), (true, *op)]) {
        let mut at = 0;
        loop {
            assert!(at < 10_000, "{op:?} without end");
            let disk = FakeDisk::default();
            disk.fail(op, at, 1);
            let (acked, purged) = live(
                &disk,
                LogOptions {
                    prepare,
                    ..options()
                },
            );
            for seed in 0..3 {
                let cut = disk.power_cut(seed);
                let place = format!("{op:?} {at} failed, seed {seed}");
                let log = open(&cut, options()).unwrap_or_else(|e| panic!("{place}: {e}"));
                let first = log.bounds().0;
                assert!(first <= purged, "{place}: begins at {first}");
                for (index, body) in acked.range(first..) {
                    let found = log.read(*index).unwrap();
                    assert!(
                        found.is_some_and(|e| e.body == body),
                        "{place}: {index} is lost"
                    );
                }
            }
            if disk.failed() == 0 {
                break;
            }
            at += 1;
        }
        assert!(at > 0, "{op:?} was never asked for");
    }
}

#[test]
fn a_log_that_begins_elsewhere_is_whole_wherever_it_is_killed() {
    for op in [
        Op::Create,
        Op::Write,
        Op::Sync,
        Op::Rename,
        Op::SyncDir,
        Op::Remove,
    ] {
        for (at, seed) in (0..4).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
            let disk = FakeDisk::default();
            let plain = LogOptions {
                prepare: false,
                ..options()
            };
            let log = open(&disk, plain.clone()).unwrap();
            disk.fail(op, at, 1);
            let begun = wait(|done| log.begin_at(700, done));
            let written = begun.and_then(|()| append(&log, 700, 710, 1));
            drop(log);
            let place = format!("{op:?} {at} failed, seed {seed}");
            for cut in [disk.clone(), disk.power_cut(seed)] {
                cut.fail(op, u64::MAX, 0);
                let reader = ReadOnlyLog::open_with(Arc::new(cut.clone()), Path::new(DIR));
                let damage = reader.unwrap().damage().cloned();
                assert!(damage.is_none(), "{place}: {damage:?}");
                let log = open(&cut, plain.clone()).unwrap_or_else(|e| panic!("{place}: {e}"));
                let (first, next) = log.bounds();
                assert!(
                    first == 0 && next == 0 || first == 700,
                    "{place}: {first}..{next}"
                );
                assert_eq!(log.epoch().first_index, first, "{place}");
                assert!(written.is_err() || next == 710, "{place}: {next}");
            }
        }
    }
}

#[test]
fn a_log_that_is_dropped_beyond_its_end_is_whole_wherever_it_is_killed() {
    let plain = LogOptions {
        prepare: false,
        ..options()
    };
    let mut base = CompactRange::default();
    (0..5001).for_each(|index| base.push(leaf_hash(&body(index, 1))));
    for op in [
        Op::Create,
        Op::Write,
        Op::Sync,
        Op::Rename,
        Op::SyncDir,
        Op::Remove,
    ] {
        for (at, seed) in (0..4).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
            let disk = FakeDisk::default();
            let log = open(&disk, plain.clone()).unwrap();
            append(&log, 0, 100, 1).unwrap();
            log.set_base(5000, base.clone());
            disk.fail(op, at, 1);
            let purged = wait(|done| log.purge(5000, Bytes::from_static(b"snap"), done));
            let written = purged.clone().and_then(|()| append(&log, 5001, 5010, 1));
            drop(log);
            let place = format!("{op:?} {at} failed, seed {seed}");
            for cut in [disk.clone(), disk.power_cut(seed)] {
                cut.fail(op, u64::MAX, 0);
                let reader = ReadOnlyLog::open_with(Arc::new(cut.clone()), Path::new(DIR));
                let reader = reader.unwrap_or_else(|e| panic!("{place}: {e}"));
                let damage = reader.damage();
                assert!(damage.is_none(), "{place}: {damage:?}");
                let log = open(&cut, plain.clone()).unwrap_or_else(|e| panic!("{place}: {e}"));
                let (first, next) = log.bounds();
                assert_eq!(reader.bounds(), (first, next), "{place}");
                let whole = (first, next) == (0, 100) || first == 5001;
                assert!(whole, "{place}: {first}..{next}");
                assert!(purged.is_err() || first == 5001, "{place}: {first}");
                assert!(written.is_err() || next == 5010, "{place}: {next}");
            }
        }
    }
}

#[test]
fn what_is_not_here_is_not_told_to_be_committed() {
    let disk = FakeDisk::default();
    let log = open(&disk, options()).unwrap();
    append(&log, 0, 5, 1).unwrap();
    log.commit(3, Bytes::from_static(b"three"));
    append(&log, 5, 6, 1).unwrap();
    // A majority holds it; this server does not yet.
    log.commit(9, Bytes::from_static(b"nine"));
    log.sync().unwrap();
    log.roll().unwrap();
    log.close();
    let log = open(&disk, options()).unwrap();
    assert_eq!(log.committed(), Some((3, Bytes::from_static(b"three"))));
    log.commit(9, Bytes::from_static(b"nine"));
    append(&log, 6, 10, 1).unwrap();
    log.close();
    let log = open(&disk, options()).unwrap();
    assert_eq!(log.committed(), Some((9, Bytes::from_static(b"nine"))));
}

#[test]
fn an_entry_that_is_to_be_replaced_is_never_told_to_be_committed() {
    for (syncs, seed) in (0..3).flat_map(|syncs| (0..10).map(move |seed| (syncs, seed))) {
        let disk = FakeDisk::default();
        replaced_while_busy(&disk, Some(syncs)).close();
        let log = open(&disk.power_cut(seed), options()).unwrap();
        let committed = log.committed().map_or(0, |(index, _)| index);
        for index in 5..=committed {
            let found = log.read(index).unwrap().unwrap();
            assert_eq!(found.body, body(index, 2), "{syncs} syncs, seed {seed}");
        }
    }
}

/// A log whose writer is held back while it has to truncate, to append and to commit. With `syncs`,
/// a sync fails after so many that work.
fn replaced_while_busy(disk: &FakeDisk, syncs: Option<u64>) -> LogEngine {
    let log = open(disk, options()).unwrap();
    append(&log, 0, 9, 1).unwrap();
    let ((go, held), (begun, is_held)) = (mpsc::channel::<()>(), mpsc::channel());
    let block: OnSynced = Box::new(move |_| {
        let _ = begun.send(());
        let _ = held.recv();
    });
    log.barrier(block).unwrap();
    is_held.recv().unwrap();
    log.truncate_after(Some(4), Box::new(drop)).unwrap();
    let entries = (5..9).map(|index| entry(index, 2)).collect();
    log.append(entries, Box::new(drop)).unwrap();
    log.commit(8, Bytes::from_static(b"p"));
    if let Some(syncs) = syncs {
        disk.fail(Op::Sync, syncs, 1);
    }
    go.send(()).unwrap();
    log
}

#[test]
fn the_tree_holds_what_replaced_an_entry_and_never_what_it_was() {
    let disk = FakeDisk::default();
    let log = replaced_while_busy(&disk, None);
    log.sync().unwrap();
    let mut expected = CompactRange::default();
    (0..5).for_each(|index| expected.push(leaf_hash(&body(index, 1))));
    (5..9).for_each(|index| expected.push(leaf_hash(&body(index, 2))));
    assert_eq!(log.root(), Some((9, expected.root())));
}

#[test]
fn a_vote_stays_wherever_a_truncation_over_several_segments_is_killed() {
    for op in [Op::Sync, Op::Remove, Op::SyncDir] {
        for at in 0..4 {
            let disk = FakeDisk::default();
            let log = open(&disk, options()).unwrap();
            wait(|done| log.save_vote(Bytes::from_static(b"former"), done)).unwrap();
            append(&log, 0, 10, 1).unwrap();
            log.commit(5, Bytes::from_static(b"p"));
            for from in (10..510).step_by(100) {
                append(&log, from, from + 100, 1).unwrap();
            }
            assert!(log.segments().len() > 3, "{:?}", log.segments());
            wait(|done| log.save_vote(Bytes::from_static(b"newer"), done)).unwrap();
            disk.fail(op, at, u64::MAX);
            let ended = wait(|done| log.truncate_after(Some(20), done));
            let killed = disk.failed() > 0;
            assert!(killed || ended.is_ok(), "{op:?} {at}: {ended:?}");
            for seed in 0..8 {
                let log = open(&disk.power_cut(seed), options()).unwrap();
                let vote = log.vote();
                assert_eq!(vote.as_deref(), Some(&b"newer"[..]), "{op:?} {at}, {seed}");
            }
            // The first two of each kind are within the truncation.
            assert!(killed || at > 1, "{op:?} {at} was never asked for");
        }
    }
}

#[test]
fn a_truncation_that_has_no_room_leaves_the_log_as_it_was() {
    let options = LogOptions {
        on_full: OnFull::Fail,
        prepare: false,
        seal: false,
        ..options()
    };
    let disk = FakeDisk::default();
    let log = open(&disk, options.clone()).unwrap();
    // Longer than a segment: what is written behind it makes the file longer.
    let long = Entry {
        body: vec![7; 40 << 10].into(),
        ..entry(0, 1)
    };
    wait(|done| log.append(vec![long], done)).unwrap();
    append(&log, 1, 100, 1).unwrap();
    append(&log, 100, 200, 1).unwrap();
    assert!(log.segments().len() > 2);
    // The segment to go back to gets the vote before the later ones are removed.
    wait(|done| log.save_vote(Bytes::from_static(b"vote"), done)).unwrap();
    disk.set_capacity(Some(disk.used()));
    let full = wait(|done| log.truncate_after(None, done)).unwrap_err();
    assert!(full.is_full(), "{full}");
    assert_eq!(log.bounds(), (0, 200));
    disk.set_capacity(None);
    append(&log, 200, 230, 1).unwrap();
    log.close();
    let log = open(&disk, options).unwrap();
    assert_eq!(log.bounds(), (0, 230));
    for index in 1..230 {
        assert_eq!(log.read(index).unwrap().unwrap().body, body(index, 1));
    }
}

#[test]
fn a_log_that_is_dropped_where_its_last_segment_begins_goes_on() {
    let disk = FakeDisk::default();
    let log = open(&disk, options()).unwrap();
    append(&log, 0, 150, 1).unwrap();
    log.commit(149, Bytes::from_static(b"p"));
    log.roll().unwrap();
    wait(|done| log.purge(149, Bytes::from_static(b"p"), done)).unwrap();
    assert_eq!(log.segments().len(), 1, "{:?}", log.segments());
    append(&log, 150, 400, 1).unwrap();
    log.commit(399, Bytes::from_static(b"p"));
    log.sync().unwrap();
    log.close();
    let log = open(&disk.power_cut(3), options()).unwrap();
    assert_eq!(log.bounds(), (150, 400));
    assert_eq!(log.scan(150).map(Result::unwrap).count(), 250);
}
