//! How far the written state may lag behind the applied one.

use std::time::Duration;

use crate::store::engine_test::{Op, Step, TABLES, Thing, apply, open, with};
use crate::{DatabaseOptions, Projections};

fn thing(index: u64) -> Step {
    Step {
        index,
        ops: vec![Op::Put(Thing {
            id: format!("{:08x}-0000-4000-8000-000000000000", index % 100),
            size: index,
            ..Thing::default()
        })],
        guards: Vec::new(),
    }
}

#[test]
fn apply_waits_for_a_flush_before_too_much_could_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let options = DatabaseOptions {
        flush_every: u64::MAX,
        max_unflushed: 3_000,
        flush_wait: Duration::from_secs(60),
        ..DatabaseOptions::dev()
    };
    let path = dir.path().join("slow");
    let (projections, mut writer) = Projections::open_with(&path, options, &TABLES).unwrap();
    let mut flushes = std::collections::BTreeSet::new();
    for first in (1..=20_000).step_by(100) {
        let steps: Vec<_> = (first..first + 100).map(thing).collect();
        let mut rest = &steps[..];
        while !rest.is_empty() {
            rest = &rest[writer.apply_batch(rest).unwrap().len()..];
            let flushed = projections.flushed().unwrap().index;
            let applied = projections.applied_index();
            assert!(
                applied - flushed <= 3_000,
                "{applied} applied, {flushed} flushed"
            );
            flushes.insert(flushed);
        }
    }
    assert!(
        flushes.len() < 20,
        "it is not flushed at every step: {flushes:?}"
    );
}

#[test]
fn a_disk_that_takes_its_time_slows_apply_down_and_does_not_hold_it() {
    let dir = tempfile::tempdir().unwrap();
    let wait = Duration::from_millis(20);
    let options = DatabaseOptions {
        // Nothing else asks for one, nor does RocksDB begin one.
        flush_every: u64::MAX,
        flush_rows: usize::MAX,
        flush_bytes: usize::MAX,
        write_buffers: 64 << 20,
        max_unflushed: 3_000,
        flush_wait: wait,
        ..DatabaseOptions::dev()
    };
    let path = dir.path().join("held");
    let (projections, mut writer) = Projections::open_with(&path, options, &TABLES).unwrap();
    let gate = writer.flush_gate();
    let held = gate.lock();
    let steps: Vec<_> = (1..=6_000).map(thing).collect();
    let (mut rest, mut late) = (&steps[..], 0);
    while !rest.is_empty() {
        rest = &rest[writer.apply_batch(rest).unwrap().len()..];
        late += u32::from(projections.applied_index() > 3_000);
    }
    assert_eq!(projections.applied_index(), 6_000, "nothing holds it");
    assert_eq!(
        projections.flushed().unwrap().index,
        0,
        "nothing is on the disk"
    );
    let waited = projections.stats().unwrap().waited;
    assert!(
        late > 1 && waited >= wait * (late - 1),
        "{waited:?} in {late} batches"
    );
    assert_eq!(writer.flushes(), 1, "one is on its way");
    // Once the disk goes on, so does the flush.
    drop(held);
    writer.wait_for_last_flush();
    assert_eq!(writer.apply_batch(&[thing(6_001)]).unwrap().len(), 1);
    let behind = projections.applied_index() - projections.flushed().unwrap().index;
    assert!(behind <= 3_000, "{behind}");
}

#[test]
fn without_a_thread_for_it_a_flush_stays_due_and_apply_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let options = DatabaseOptions {
        flush_every: 1_000,
        // RocksDB begins none itself.
        write_buffers: 64 << 20,
        max_unflushed: 3_000,
        flush_wait: Duration::from_secs(60),
        ..DatabaseOptions::dev()
    };
    let path = dir.path().join("threadless");
    let (projections, mut writer) = Projections::open_with(&path, options, &TABLES).unwrap();
    writer.put_threads_out(true);
    let steps: Vec<_> = (1..=6_000).map(thing).collect();
    let (mut rest, mut batches) = (&steps[..], 0);
    while !rest.is_empty() {
        rest = &rest[writer.apply_batch(rest).unwrap().len()..];
        batches += 1;
    }
    assert_eq!(projections.applied_index(), 6_000, "nothing holds it");
    let flushed = || projections.flushed().unwrap().index;
    assert_eq!(
        (writer.flushes(), flushed()),
        (0, 0),
        "the applier makes none"
    );
    let counted = projections.stats().unwrap().threadless;
    assert!(counted > 0, "it is counted");
    // The first batches find nothing that is due.
    assert!(counted < batches, "once a batch: {counted} of {batches}");
    writer.put_threads_out(false);
    assert_eq!(writer.apply_batch(&[thing(6_001)]).unwrap().len(), 1);
    assert!(writer.flushes() > 0, "what was due is requested");
    let behind = projections.applied_index() - flushed();
    assert!(behind <= 3_000, "{behind}");
}

#[test]
fn a_servers_sizes_are_those_that_it_was_measured_with() {
    let sizes = DatabaseOptions::server();
    let bytes = (24 << 20)..=(32 << 20);
    assert!(bytes.contains(&sizes.flush_bytes), "{sizes:?}");
    assert_eq!(sizes.flush_rows, 100_000);
    assert!(sizes.kept_bytes > 0, "rows are kept over batches");
}

#[test]
fn a_flush_has_time_before_apply_waits_for_it() {
    for options in [DatabaseOptions::server(), DatabaseOptions::dev()] {
        let slack = options.max_unflushed - crate::DIGEST_EVERY;
        assert!(slack >= 3 * options.flush_every, "{options:?}");
    }
}

/// Applies so many batches of one row each, or of one of so many bytes; returns how often a flush
/// was requested.
fn count_flushes(options: DatabaseOptions, batches: u64, bytes: usize) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("asked");
    let (_projections, mut writer) = Projections::open_with(&path, options, &TABLES).unwrap();
    for index in 1..=batches {
        let step = Step {
            index,
            ops: vec![Op::Put(Thing {
                id: format!("{index:08x}-0000-4000-8000-000000000000"),
                color: "r".repeat(bytes),
                ..Thing::default()
            })],
            guards: Vec::new(),
        };
        assert_eq!(writer.apply_batch(&[step]).unwrap().len(), 1);
        // One at a time: the next is requested when this one is over.
        writer.wait_for_last_flush();
    }
    writer.flushes()
}

#[test]
fn a_flush_is_asked_for_by_rows_and_by_bytes_and_not_for_the_tables_own_indexes() {
    let rare = DatabaseOptions {
        flush_every: u64::MAX,
        flush_rows: usize::MAX,
        flush_bytes: usize::MAX,
        max_unflushed: 50_000,
        ..DatabaseOptions::dev()
    };
    assert_eq!(count_flushes(rare.clone(), 200, 10), 0);
    let by_rows = DatabaseOptions {
        flush_rows: 50,
        ..rare.clone()
    };
    // Two hundred rows of things, and as many times the index of their table, which is not counted.
    assert_eq!(count_flushes(by_rows, 201, 10), 4);
    let by_bytes = DatabaseOptions {
        flush_bytes: 100 << 10,
        ..rare
    };
    let times = count_flushes(by_bytes, 101, 10 << 10);
    assert!(
        (9..=60).contains(&times),
        "{times} for a mebibyte and what goes with it"
    );
}

#[test]
fn what_a_snapshot_brought_is_on_the_disk_and_makes_no_flush_due() {
    let dir = tempfile::tempdir().unwrap();
    let steps: Vec<_> = (1..=36).map(thing).collect();
    let (full, mut writer) = open(&dir.path().join("full"));
    apply(&mut writer, &steps[..25], &[25]);
    let files = dir.path().join("snapshot");
    full.view()
        .write_snapshot(&files, 1 << 20, &|_| Ok(()))
        .unwrap();
    let path = dir.path().join("other");
    let (_projections, mut writer) = with(&path, |options| options.flush_every = 10);
    writer.install(&files).unwrap();
    apply(&mut writer, &steps[25..28], &[1]);
    assert_eq!(writer.flushes(), 0, "three entries are not on the disk");
    apply(&mut writer, &steps[28..], &[1]);
    assert_eq!(writer.flushes(), 1, "ten were not");
}
