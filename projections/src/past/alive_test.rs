use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::engine::db::Family;
use crate::engine::error::StorageError;
use crate::engine::key::Id;
use crate::engine::registry::{Registry, TableInfo};
use crate::engine::row::varint;
use crate::engine::staged::{PutEntries, TableBatch};
use crate::engine::table::Table;
use crate::past::alive::{self, SkippedDeleted, candidates};
use crate::store::engine_test::{
    Counters, Op, Step, TABLES, Thing, Things, apply, check_rows, damage, expected, incompressible,
    step, thing,
};
use crate::tables::{NodeUses, TableIndexes};
use crate::{DatabaseOptions, Projections, Writer};

/// Indexes between two marks.
const INTERVAL: u64 = 50;

fn open(path: &Path) -> (Arc<Projections>, Writer) {
    with_tables(path, &TABLES)
}

fn with_tables(path: &Path, tables: &'static Registry) -> (Arc<Projections>, Writer) {
    let options = DatabaseOptions {
        mark_interval: INTERVAL,
        ..DatabaseOptions::dev()
    };
    Projections::open_with(path, options, tables).unwrap()
}

/// Builds what is due of all tables.
fn build(projections: &Projections) -> Option<u64> {
    let mut left_out = BTreeMap::new();
    let made = projections.build_due_live_sets(&mut left_out).unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    made
}

/// Makes all sets that are due; answers the marks of those that it made.
fn build_all(projections: &Projections) -> Vec<u64> {
    let mut marks = Vec::new();
    while let Some(mark) = build(projections) {
        marks.push(mark);
        assert!(marks.len() < 1_000, "the same is due again: {marks:?}");
    }
    marks
}

/// A table whose sets are made before those of the things.
struct Firsts;

impl Table for Firsts {
    const ID: u16 = 39;
    const NAME: &'static str = "firsts";
    type Key = Id;
    type Row = Thing;

    fn key(row: &Thing) -> Id {
        Id::new(row.id.as_str())
    }
}

static WITH_FIRSTS: Registry = Registry::new(&[
    TableInfo::of::<TableIndexes>(),
    TableInfo::of::<NodeUses>(),
    TableInfo::of::<Firsts>(),
    TableInfo::of::<Things>(),
    TableInfo::of::<Counters>(),
]);

/// Where a part of a set lies; 0 is its head.
fn place(table: u16, mark: u64, chunk: u8) -> Vec<u8> {
    let mut key = alive::sets_below(table, mark).1;
    *key.last_mut().unwrap() = chunk;
    key
}

fn stored(projections: &Projections, key: &[u8]) -> Option<Vec<u8>> {
    let db = projections.database();
    let value = db.get(Family::History, key).unwrap();
    value.map(|value| value.to_vec())
}

fn put(projections: &Projections, family: Family, key: &[u8], value: &[u8]) {
    let db = projections.database();
    let mut batch = TableBatch::new(&db);
    batch.put(family, key, value);
    batch.write().unwrap();
}

fn remove(projections: &Projections, family: Family, key: &[u8]) {
    let db = projections.database();
    db.raw().delete_cf(db.family(family), key).unwrap();
}

/// Things that come, change and go, of which few are there at a time.
fn steps(count: u64) -> Vec<Step> {
    let name = |n: u64| format!("t{n:05}");
    let born = |n: u64| {
        let mut born = thing(&name(n), n % 7);
        born.space = ["a", "b", ""][n as usize % 3].to_owned();
        born.color = ["red", "blue", ""][n as usize % 3].to_owned();
        born
    };
    let each = |n: u64| {
        let mut ops = vec![Op::Put(born(n))];
        match n % 90 {
            89 => ops.push(Op::Rule("a".to_owned())),
            _ if n >= 9 => ops.push(Op::Delete(name(n - 9))),
            _ => {}
        }
        if n.is_multiple_of(4) && n > 3 {
            let mut changed = born(n - 3);
            changed.size += 10;
            ops.push(Op::Put(changed));
        }
        if n.is_multiple_of(31) {
            ops.push(Op::Refuse);
        }
        step(n + 1, ops)
    };
    (0..count).map(each).collect()
}

/// At how many of these indexes the rows are found by their keys.
fn named(
    projections: &Projections,
    indexes: std::ops::Range<u64>,
    skipped: SkippedDeleted,
) -> usize {
    let visible = &projections.view().visible;
    let found =
        |index| candidates(&visible.db_snapshot, Things::ID, index, skipped, |_| 1.0).unwrap();
    indexes.filter(|index| found(*index).is_some()).count()
}

#[test]
fn whole_lists_of_the_past_equal_a_fold_where_rows_are_found_by_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let steps = steps(1_501);
    let states = expected(&steps);
    apply(&mut writer, &steps[..700], &[9]);
    assert_eq!(build(&projections), Some(0));
    build_all(&projections);
    apply(&mut writer, &steps[700..1_500], &[13]);
    // Where there is no set yet it is a walk.
    assert_eq!(named(&projections, 750..1_500, SkippedDeleted::Rows), 0);
    let marks = build_all(&projections);
    assert_eq!(marks.len(), 16, "{marks:?}");
    assert_eq!(marks.last(), Some(&1_500));
    // A view shows what was there when the last batch was written.
    apply(&mut writer, &steps[1_500..], &[1]);
    assert_eq!(named(&projections, 0..1_500, SkippedDeleted::Rows), 1_500);
    assert!(named(&projections, 0..1_500, SkippedDeleted::Entries) > 500);
    for index in (0..1_500).step_by(7).chain([49, 50, 51, 1_499]) {
        let past = projections.view().as_of(index, 0).unwrap();
        check_rows(&past, &states[index as usize]);
    }
}

#[test]
fn sets_go_with_the_past_they_tell_of() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let steps = steps(1_060);
    let states = expected(&steps);
    apply(&mut writer, &steps[..1_000], &[20]);
    build_all(&projections);
    writer.raise_floor(620).unwrap();
    projections.prune().unwrap();
    apply(&mut writer, &steps[1_000..1_001], &[1]);
    // The set at 600 would need the changes behind it, which are gone.
    assert_eq!(named(&projections, 600..650, SkippedDeleted::Rows), 0);
    // Nor is one believed that was being made while those below the floor went.
    let set = alive::sets_below(Things::ID, 600).1;
    put(&projections, Family::History, &set, &[0, 0xff, 0x7f]);
    apply(&mut writer, &steps[1_001..1_002], &[1]);
    assert_eq!(named(&projections, 620..650, SkippedDeleted::Rows), 0);
    assert!(named(&projections, 650..1_000, SkippedDeleted::Rows) > 300);
    for index in (620..1_000).step_by(3) {
        let past = projections.view().as_of(index, 0).unwrap();
        check_rows(&past, &states[index as usize]);
    }
    // Where all sets are gone, the next one is made by a walk.
    writer.raise_floor(1_001).unwrap();
    projections.prune().unwrap();
    apply(&mut writer, &steps[1_002..], &[1]);
    assert_eq!(build(&projections), Some(1_050));
    assert_eq!(build(&projections), None);
}

#[test]
fn databases_are_equal_whatever_sets_they_have() {
    let dir = tempfile::tempdir().unwrap();
    let (one, mut writer) = open(&dir.path().join("one"));
    let (two, mut other) = open(&dir.path().join("two"));
    let steps = steps(200);
    apply(&mut writer, &steps, &[7]);
    apply(&mut other, &steps, &[7]);
    build_all(&one);
    let found = one.view().differences(&two.view(), 9, &mut |_| ());
    assert_eq!(found.unwrap(), []);
    let found = two.view().differences(&one.view(), 9, &mut |_| ());
    assert_eq!(found.unwrap(), []);
}

#[test]
fn a_set_that_cannot_be_read_is_made_anew_and_keeps_no_other_table_from_its_next() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = with_tables(dir.path(), &WITH_FIRSTS);
    let steps = steps(110);
    apply(&mut writer, &steps[..60], &[7]);
    build_all(&projections);
    let head = place(Firsts::ID, 50, 0);
    let whole = stored(&projections, &head);
    assert!(whole.is_some());
    put(&projections, Family::History, &head, &[0xff]);
    apply(&mut writer, &steps[60..], &[7]);
    assert_eq!(build(&projections), Some(100));
    assert!(stored(&projections, &place(Things::ID, 100, 0)).is_some());
    assert_eq!(stored(&projections, &head), whole);
    assert_eq!(build(&projections), Some(100));
    assert!(stored(&projections, &place(Firsts::ID, 100, 0)).is_some());
    assert_eq!(build(&projections), None);
}

#[test]
fn the_next_set_is_the_same_where_the_one_before_it_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, mut writer) = open(&dir.path().join("sound"));
    let (damaged, mut other) = open(&dir.path().join("damaged"));
    let steps = steps(111);
    let states = expected(&steps);
    for (projections, writer) in [(&sound, &mut writer), (&damaged, &mut other)] {
        apply(writer, &steps[..60], &[7]);
        build_all(projections);
    }
    let keys = place(Things::ID, 50, 1);
    let whole = stored(&damaged, &keys);
    assert!(whole.as_ref().is_some_and(|keys| keys.len() > 1));
    put(&damaged, Family::History, &keys, &[0xff]);
    for (projections, writer) in [(&sound, &mut writer), (&damaged, &mut other)] {
        apply(writer, &steps[60..110], &[7]);
        assert_eq!(build(projections), Some(100));
        assert_eq!(build(projections), None);
    }
    assert_eq!(stored(&damaged, &keys), whole);
    for chunk in 0..2 {
        let key = place(Things::ID, 100, chunk);
        assert!(stored(&sound, &key).is_some(), "{chunk}");
    }
    let next = place(Things::ID, 100, 1);
    assert_eq!(stored(&damaged, &next), stored(&sound, &next));
    // A view shows what was there when the last batch was written.
    apply(&mut other, &steps[110..], &[1]);
    for index in 0..=110 {
        let past = damaged.view().as_of(index, 0).unwrap();
        check_rows(&past, &states[index as usize]);
    }
}

#[test]
fn lists_of_the_past_are_whole_where_an_old_set_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let steps = steps(1_001);
    let states = expected(&steps);
    apply(&mut writer, &steps[..1_000], &[20]);
    build_all(&projections);
    for (mark, chunk) in [(600, 0), (650, 1)] {
        let part = place(Things::ID, mark, chunk);
        assert!(stored(&projections, &part).is_some_and(|part| part.len() > 1));
        put(&projections, Family::History, &part, &[0xff]);
    }
    apply(&mut writer, &steps[1_000..], &[1]);
    assert_eq!(named(&projections, 600..700, SkippedDeleted::Rows), 0);
    assert_eq!(named(&projections, 700..750, SkippedDeleted::Rows), 50);
    for index in 600..700 {
        let past = projections.view().as_of(index, 0).unwrap();
        check_rows(&past, &states[index as usize]);
    }
}

#[test]
fn lists_of_the_past_are_whole_where_an_old_set_lost_keys_or_counts_what_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let steps = steps(1_051);
    let states = expected(&steps);
    apply(&mut writer, &steps[..1_000], &[20]);
    build_all(&projections);
    // A chunk is lost, another one ends behind the first of its keys, and numbers are too large.
    remove(&projections, Family::History, &place(Things::ID, 600, 1));
    let chunk = place(Things::ID, 650, 1);
    let keys = stored(&projections, &chunk).unwrap();
    let (first, rest) = keys.split_at(1 + usize::from(keys[0]));
    assert!(!rest.is_empty());
    put(&projections, Family::History, &chunk, first);
    let head = |live, deleted| {
        let mut head = Vec::new();
        varint(&mut head, live);
        varint(&mut head, deleted);
        head
    };
    let all = place(Things::ID, 700, 0);
    put(&projections, Family::History, &all, &head(u64::MAX, 1));
    let newest = place(Things::ID, 1_000, 0);
    let live = states[1_000].len() as u64;
    put(
        &projections,
        Family::History,
        &newest,
        &head(live, u64::MAX),
    );
    apply(&mut writer, &steps[1_000..1_050], &[50]);
    assert_eq!(named(&projections, 600..750, SkippedDeleted::Rows), 0);
    for skipped in [SkippedDeleted::Rows, SkippedDeleted::Entries] {
        assert_eq!(named(&projections, 750..800, skipped), 50);
    }
    for index in (600..800).step_by(3) {
        let past = projections.view().as_of(index, 0).unwrap();
        check_rows(&past, &states[index as usize]);
    }
    assert_eq!(build(&projections), Some(1_050));
    apply(&mut writer, &steps[1_050..], &[1]);
    let past = projections.view().as_of(1_050, 0).unwrap();
    check_rows(&past, &states[1_050]);
}

#[test]
fn a_set_that_lost_keys_is_made_anew_before_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let steps = steps(110);
    apply(&mut writer, &steps[..60], &[7]);
    build_all(&projections);
    let keys = place(Things::ID, 50, 1);
    let whole = stored(&projections, &keys);
    assert!(whole.is_some());
    remove(&projections, Family::History, &keys);
    apply(&mut writer, &steps[60..], &[7]);
    assert_eq!(build(&projections), Some(100));
    assert_eq!(stored(&projections, &keys), whole);
}

/// Things with long names that stay, and then others that come and go at once.
fn long_steps(stay: u64, go: u64, count: u64) -> Vec<Step> {
    let short = |n: u64| format!("t{n:05}");
    let each = |index: u64| {
        let ops: Vec<Op> = match index {
            1 => (0..stay)
                .map(|n| Op::Put(thing(&incompressible(n, 600), n % 7)))
                .collect(),
            2 => (0..go).map(|n| Op::Put(thing(&short(n), n % 7))).collect(),
            3 => (0..go).map(|n| Op::Delete(short(n))).collect(),
            _ => vec![Op::Put(thing("last", index))],
        };
        step(index, ops)
    };
    (1..=count).map(each).collect()
}

/// Leaves the files of the past as they are: where RocksDB reads a damaged one to put it together
/// with others, it takes no more writes.
fn keep_files(projections: &Projections) {
    let db = projections.database();
    let history = db.family(Family::History);
    let options = [("disable_auto_compactions", "true")];
    db.raw().set_options_cf(history, &options).unwrap();
}

#[test]
fn sets_are_made_though_the_disk_damaged_the_newest_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("projections");
    let (projections, mut writer) = open(&path);
    keep_files(&projections);
    apply(&mut writer, &long_steps(20, 1_000, 60), &[12]);
    build_all(&projections);
    let chunk = |chunk| stored(&projections, &place(Things::ID, 50, chunk));
    let keys = chunk(1).unwrap();
    assert_eq!(chunk(2), None, "it is small");
    projections.flush().unwrap();
    damage(&path, &keys[3_000..4_300]);
    assert_eq!(build(&projections), Some(50));
    assert_eq!(build(&projections), None);
    assert_eq!(chunk(1), Some(keys));
}

#[test]
fn lists_of_the_past_are_whole_where_the_disk_damaged_an_old_set() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("projections");
    let (projections, mut writer) = open(&path);
    keep_files(&projections);
    let steps = long_steps(240, 1_000, 106);
    let states = expected(&steps);
    apply(&mut writer, &steps[..55], &[11]);
    build_all(&projections);
    apply(&mut writer, &steps[55..60], &[5]);
    assert_eq!(named(&projections, 50..60, SkippedDeleted::Rows), 10);
    let chunk = |chunk| stored(&projections, &place(Things::ID, 50, chunk));
    assert!(chunk(3).is_some(), "there is one behind it");
    // Each chunk is more than a block of RocksDB's.
    let damaged = chunk(2).unwrap();
    projections.flush().unwrap();
    damage(&path, &damaged[30_000..31_300]);
    assert_eq!(named(&projections, 50..60, SkippedDeleted::Rows), 0);
    for index in [50, 55, 59] {
        let past = projections.view().as_of(index, 0).unwrap();
        check_rows(&past, &states[index as usize]);
    }
    // Nor does the next set need it.
    apply(&mut writer, &steps[60..105], &[45]);
    assert_eq!(build(&projections), Some(100));
    apply(&mut writer, &steps[105..], &[1]);
    assert_eq!(named(&projections, 100..105, SkippedDeleted::Rows), 5);
    let past = projections.view().as_of(102, 0).unwrap();
    check_rows(&past, &states[102]);
}

#[test]
fn a_table_with_a_row_that_cannot_be_read_is_left_out_and_the_others_get_their_sets() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = with_tables(dir.path(), &WITH_FIRSTS);
    let bad = [&Firsts::ID.to_be_bytes()[..], b"bad"].concat();
    put(&projections, Family::Rows, &bad, b"");
    apply(&mut writer, &steps(60), &[7]);
    let mut left_out = BTreeMap::new();
    for made in [Some(0), Some(50), None] {
        let built = projections.build_due_live_sets(&mut left_out);
        assert_eq!(built.unwrap(), made);
        let names: Vec<_> = left_out.keys().copied().collect();
        assert_eq!(names, [Firsts::NAME], "{made:?}");
    }
    // Once it can be read its sets are made as well.
    let db = projections.database();
    db.raw().delete_cf(db.family(Family::Rows), &bad).unwrap();
    assert_eq!(
        projections.build_due_live_sets(&mut left_out).unwrap(),
        None
    );
    let built = build_all(&projections);
    assert_eq!(built, [0, 50]);
}

#[test]
fn an_error_of_one_table_does_not_keep_the_others_from_their_sets() {
    let mut left_out = BTreeMap::new();
    let mut looked = Vec::new();
    let built = alive::build_each(&WITH_FIRSTS, &mut left_out, |table| {
        looked.push(table);
        match table {
            Firsts::ID => Err(StorageError::WouldBlock),
            Things::ID => Err(StorageError::Row {
                table: Things::NAME,
                key: String::new(),
            }),
            _ => Ok(Some(50)),
        }
    });
    assert!(matches!(built, Err(StorageError::WouldBlock)), "{built:?}");
    let behind = looked.iter().skip_while(|table| **table != Firsts::ID);
    assert!(behind.count() > 1, "{looked:?}");
    let names: Vec<_> = left_out.keys().copied().collect();
    assert_eq!(names, [Things::NAME]);
}
