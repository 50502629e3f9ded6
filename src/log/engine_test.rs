//! The engine over real files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use drover_testkit::{LONG, moment, so, wait_for};

use super::*;

/// How often a log is looked at while it is written.
const LOOKS: u64 = 20;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        zero_ahead: 4096,
        tail_bytes: 8 << 10,
        mark_after: Duration::from_millis(5),
        ..LogOptions::default()
    }
}

fn open(dir: &Path) -> LogEngine {
    LogEngine::open(dir, options()).unwrap().0
}

fn body(index: u64) -> Bytes {
    format!("body {index} {}", "x".repeat((index % 300) as usize)).into()
}

fn entry(index: u64) -> Entry {
    Entry {
        index,
        kind: (index % 3) as u16 + 1,
        time: 1000 + index as i64,
        body: body(index),
    }
}

fn fill(log: &LogEngine, to: u64) {
    let (_, next) = log.bounds();
    for chunk in (next..to).collect::<Vec<_>>().chunks(50) {
        log.append(
            chunk.iter().map(|i| entry(*i)).collect(),
            Box::new(|r| r.unwrap()),
        )
        .unwrap();
    }
    log.sync().unwrap();
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, LONG, || so(holds())).unwrap();
}

fn truncate(log: &LogEngine, after: Option<u64>) -> Result<(), LogError> {
    log.truncate_after(after, Box::new(|r| r.unwrap()))?;
    log.sync()
}

#[test]
fn entries_are_readable_at_once_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.append(vec![entry(0), entry(1)], Box::new(|_| ()))
        .unwrap();
    assert_eq!(log.read(1).unwrap(), Some(entry(1)));
    assert_eq!(log.read(2).unwrap(), None);
    fill(&log, 2000);
    let epoch = log.epoch();
    log.save_vote(Bytes::from_static(b"vote 7"), Box::new(|_| ()))
        .unwrap();
    log.commit(1500, Bytes::from_static(b"at 1500"));
    let root = log.root();
    assert!(log.segments().len() > 3);
    drop(log);
    let (log, report) = LogEngine::open(dir.path(), options()).unwrap();
    assert!(!report.created && report.cut.is_none());
    assert_eq!(log.epoch(), epoch);
    assert_eq!(log.bounds(), (0, 2000));
    assert_eq!(log.vote(), Some(Bytes::from_static(b"vote 7")));
    assert_eq!(
        log.committed(),
        Some((1500, Bytes::from_static(b"at 1500")))
    );
    assert_eq!(log.root(), root);
    for (i, e) in log.scan(0).enumerate() {
        assert_eq!(e.unwrap(), entry(i as u64));
    }
    for i in [0, 1, 999, 1500, 1999] {
        assert_eq!(log.read(i).unwrap(), Some(entry(i)));
    }
    fill(&log, 2100);
    assert_eq!(log.read(2099).unwrap(), Some(entry(2099)));
}

#[test]
fn gaps_and_long_bodies_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 3);
    let gap = log.append(vec![entry(4)], Box::new(|_| ())).unwrap_err();
    assert!(matches!(
        gap,
        LogError::Gap {
            expected: 3,
            got: 4
        }
    ));
    let long = Entry {
        body: vec![0; (8 << 20) + 1].into(),
        ..entry(3)
    };
    let long = log.append(vec![long], Box::new(|_| ())).unwrap_err();
    assert!(matches!(long, LogError::TooLarge { index: 3, .. }));
    let big = Entry {
        body: vec![1; 1 << 20].into(),
        ..entry(3)
    };
    log.append(vec![big.clone()], Box::new(|r| r.unwrap()))
        .unwrap();
    fill(&log, 10);
    drop(log);
    assert_eq!(open(dir.path()).read(3).unwrap(), Some(big));
}

#[test]
fn a_log_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let _log = open(dir.path());
    let second = LogEngine::open(dir.path(), options());
    assert!(matches!(second, Err(LogError::Locked { .. })));
}

#[test]
fn callbacks_come_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let seen = Arc::new(AtomicU64::new(0));
    for i in 0..3000 {
        let seen = Arc::clone(&seen);
        let done = move |r: Result<(), LogError>| {
            r.unwrap();
            assert_eq!(seen.fetch_add(1, Ordering::SeqCst), i);
        };
        log.append(vec![entry(i)], Box::new(done)).unwrap();
    }
    log.sync().unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 3000);
}

#[test]
fn committed_segments_are_sealed_and_read_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 2000);
    let plain = log.segments();
    assert!(plain.iter().all(|s| !s.sealed), "nothing is committed yet");
    log.commit(1990, Bytes::new());
    fill(&log, 2001);
    until("sealing", || {
        log.segments().iter().filter(|s| s.sealed).count() + 1 == plain.len()
    });
    for (i, e) in log.scan(0).enumerate() {
        assert_eq!(e.unwrap(), entry(i as u64));
    }
    assert_eq!(log.read(700).unwrap(), Some(entry(700)));
    let info = &log.segments()[1];
    assert_eq!(info.kinds.values().sum::<u64>(), info.entries);
    let last = info.first + info.entries - 1;
    assert_eq!(
        info.times,
        Some((1000 + info.first as i64, 1000 + last as i64))
    );
    assert!(info.bytes < info.body_bytes / 2, "compressed");
    let (_, root) = log.root().unwrap();
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.root().unwrap(), (1991, root));
    assert_eq!(log.range_at(1990).unwrap().unwrap().root(), root);
    let mut range = CompactRange::default();
    (0..1991).for_each(|i| range.push(leaf_hash(&body(i))));
    assert_eq!(range.root(), root);
}

#[test]
fn truncation_reaches_back_over_segments_and_never_below_what_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 1500);
    log.save_vote(Bytes::from_static(b"v"), Box::new(|_| ()))
        .unwrap();
    log.commit(300, Bytes::new());
    let refused = truncate(&log, Some(299)).unwrap_err();
    assert!(matches!(
        refused,
        LogError::Committed {
            after: 299,
            committed: 300
        }
    ));
    truncate(&log, Some(400)).unwrap();
    assert_eq!(log.bounds(), (0, 401));
    assert_eq!(log.read(401).unwrap(), None);
    let other = Entry {
        body: Bytes::from_static(b"other"),
        ..entry(401)
    };
    log.append(vec![other.clone()], Box::new(|r| r.unwrap()))
        .unwrap();
    fill(&log, 900);
    truncate(&log, Some(800)).unwrap();
    fill(&log, 850);
    let check = |log: &LogEngine| {
        assert_eq!(log.bounds(), (0, 850));
        for e in log.scan(0) {
            let e = e.unwrap();
            let expected = if e.index == 401 {
                other.clone()
            } else {
                entry(e.index)
            };
            assert_eq!(e, expected);
        }
        assert_eq!(log.vote(), Some(Bytes::from_static(b"v")));
    };
    check(&log);
    drop(log);
    let log = open(dir.path());
    check(&log);
    log.commit(849, Bytes::new());
    let mut range = CompactRange::default();
    log.scan(0)
        .for_each(|e| range.push(leaf_hash(&e.unwrap().body)));
    assert_eq!(log.root().unwrap(), (850, range.root()));
}

#[test]
fn everything_uncommitted_can_be_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 1000);
    truncate(&log, None).unwrap();
    assert_eq!(log.bounds(), (0, 0));
    fill(&log, 10);
    drop(log);
    assert_eq!(open(dir.path()).bounds(), (0, 10));
}

#[test]
fn a_purge_drops_whole_segments_and_answers_from_its_marker() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 1000);
    log.commit(999, Bytes::new());
    let root = log.root();
    let before = log.segments().len();
    log.purge(600, Bytes::from_static(b"p600"), Box::new(|r| r.unwrap()))
        .unwrap();
    log.sync().unwrap();
    assert!(log.segments().len() < before);
    assert!(matches!(
        log.read(600),
        Err(LogError::Purged {
            index: 600,
            first: 601
        })
    ));
    assert_eq!(log.read(601).unwrap(), Some(entry(601)));
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.bounds(), (601, 1000));
    assert_eq!(log.purged(), Some((600, Bytes::from_static(b"p600"))));
    assert_eq!(log.root(), root);
}

#[test]
fn a_purge_beyond_the_end_goes_on_from_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 100);
    let mut base = CompactRange::default();
    (0..5001).for_each(|i| base.push(leaf_hash(&body(i))));
    log.set_base(5000, base.clone());
    log.purge(5000, Bytes::from_static(b"snap"), Box::new(|r| r.unwrap()))
        .unwrap();
    log.sync().unwrap();
    assert_eq!(log.bounds(), (5001, 5001));
    let far = Entry {
        index: 5001,
        ..entry(1)
    };
    log.append(vec![far.clone()], Box::new(|r| r.unwrap()))
        .unwrap();
    log.sync().unwrap();
    log.commit(5001, Bytes::new());
    base.push(leaf_hash(&far.body));
    assert_eq!(log.root(), Some((5002, base.root())));
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.bounds(), (5001, 5002));
    assert_eq!(log.root(), Some((5002, base.root())));
    assert_eq!(log.segments().len(), 1);
}

#[test]
fn a_reader_beside_the_writer_sees_a_prefix_that_grows() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 10);
    let mut reader = ReadOnlyLog::open(dir.path()).unwrap();
    let mut seen = 0;
    for round in 1..20u64 {
        fill(&log, round * 200);
        log.commit(round * 200 - 1, Bytes::new());
        reader.refresh().unwrap();
        let (first, next) = reader.bounds();
        assert_eq!((first, next), (0, round * 200));
        for e in reader.scan(seen) {
            assert_eq!(e.unwrap(), entry(seen));
            seen += 1;
        }
    }
    assert_eq!(seen, 19 * 200);
    until("sealing", || log.segments().iter().any(|s| s.sealed));
    let shown = tools::inspect(dir.path()).unwrap();
    assert_eq!(shown.bounds, (0, 3800));
    assert_eq!(shown.kinds.values().sum::<u64>(), 3800);
    assert_eq!(shown.damage, None);
    assert_eq!(shown.root, log.root());
}

#[test]
fn a_reader_goes_on_when_what_it_reads_is_sealed_and_its_file_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 1000);
    let reader = ReadOnlyLog::open(dir.path()).unwrap();
    assert_eq!(reader.read(0).unwrap(), Some(entry(0)));
    for round in 6..30u64 {
        fill(&log, round * 200);
        log.commit(round * 200 - 1, Bytes::new());
    }
    until("sealing", || {
        log.segments().iter().filter(|s| !s.sealed).count() == 1
    });
    let seen: Vec<_> = reader.scan(0).map(Result::unwrap).collect();
    assert_eq!(seen.len(), 1000);
    assert!(seen.iter().all(|e| *e == entry(e.index)));
}

#[test]
fn a_reader_beside_a_busy_writer_sees_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let big = LogOptions {
        segment_bytes: 8 << 20,
        ..options()
    };
    let (log, _) = LogEngine::open(dir.path(), big).unwrap();
    let looks = AtomicU64::new(0);
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        // It writes until it was looked at often enough, however slow the reader is.
        let writer = scope.spawn(|| {
            let mut i = 0;
            while i < 3_000 || looks.load(Ordering::SeqCst) < LOOKS {
                let e = Entry {
                    body: vec![7; 400].into(),
                    ..entry(i)
                };
                log.append(vec![e], Box::new(|r| r.unwrap())).unwrap();
                i += 1;
                if i % 50 == 0 {
                    log.sync().unwrap();
                }
            }
        });
        // Giving up here would leave it writing for ever: errors are reported afterwards.
        let look = || {
            match ReadOnlyLog::open(dir.path()) {
                Ok(reader) => {
                    wrong.extend(reader.damage().map(|damage| format!("{damage:?}")));
                    seen.push(reader.bounds().1);
                }
                Err(error) => wrong.push(error.to_string()),
            }
            looks.fetch_add(1, Ordering::SeqCst);
            false
        };
        moment(look, || writer.is_finished());
    });
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(seen.len() as u64 >= LOOKS && seen.is_sorted(), "{seen:?}");
    assert!(
        seen.first() < seen.last(),
        "it was not written meanwhile: {seen:?}"
    );
}

#[test]
fn files_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    for round in 1..30u64 {
        fill(&log, round * 200);
        log.commit(round * 200 - 1, Bytes::new());
    }
    until("sealing", || {
        log.segments().iter().filter(|s| !s.sealed).count() == 1
    });
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    // The sealed ones, the open one, at most a prepared file and a spare, and the lock.
    assert!(files <= log.segments().len() + 3, "{files} files");
    drop(log);
    let (log, report) = LogEngine::open(dir.path(), options()).unwrap();
    assert_eq!(report.cut, None);
    for (i, e) in log.scan(0).enumerate() {
        assert_eq!(e.unwrap(), entry(i as u64));
    }
}

#[test]
fn a_journal_is_small() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = LogEngine::open(dir.path(), LogOptions::journal()).unwrap();
    for i in 0..200 {
        assert_eq!(log.append_one(1, 0, body(i)).unwrap(), i);
    }
    assert_eq!(log.committed().map(|(i, _)| i), Some(199));
    drop(log);
    let (log, report) = LogEngine::open(dir.path(), LogOptions::journal()).unwrap();
    assert_eq!((log.bounds(), report.cut), ((0, 200), None));
    log.purge(150, Bytes::new(), Box::new(|r| r.unwrap()))
        .unwrap();
    log.sync().unwrap();
    assert_eq!(log.bounds(), (151, 200));
}
