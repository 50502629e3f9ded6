use std::path::Path;
use std::sync::Arc;

use crate::engine::db::Family;
use crate::engine::staged::{Put, TableBatch};
use crate::engine::table::Table;
use crate::past::alive::{self, Passing, candidates};
use crate::store::engine_test::{
    Op, Step, TABLES, Things, apply, check_rows, expected, step, thing,
};
use crate::{DatabaseOptions, Projections, Writer};

/// Indexes between two marks.
const EVERY: u64 = 50;

fn open(path: &Path) -> (Arc<Projections>, Writer) {
    let options = DatabaseOptions {
        alive_every: EVERY,
        ..DatabaseOptions::dev()
    };
    Projections::open_with(path, options, &TABLES).unwrap()
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
fn named(projections: &Projections, indexes: std::ops::Range<u64>, passing: Passing) -> usize {
    let frozen = &projections.view().visible;
    let found = |index| candidates(&frozen.frozen, Things::ID, index, passing, |_| 1.0).unwrap();
    indexes.filter(|index| found(*index).is_some()).count()
}

#[test]
fn whole_lists_of_the_past_equal_a_fold_where_rows_are_found_by_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let steps = steps(1_501);
    let states = expected(&steps);
    apply(&mut writer, &steps[..700], &[9]);
    assert_eq!(projections.write_live_key_sets().unwrap(), Some(0));
    while projections.write_live_key_sets().unwrap().is_some() {}
    apply(&mut writer, &steps[700..1_500], &[13]);
    // Where there is no set yet it is a walk.
    assert_eq!(named(&projections, 750..1_500, Passing::Rows), 0);
    let mut marks = Vec::new();
    while let Some(mark) = projections.write_live_key_sets().unwrap() {
        marks.push(mark);
    }
    assert_eq!(marks.len(), 16, "{marks:?}");
    assert_eq!(marks.last(), Some(&1_500));
    // A view shows what was there when the last batch was written.
    apply(&mut writer, &steps[1_500..], &[1]);
    assert_eq!(named(&projections, 0..1_500, Passing::Rows), 1_500);
    assert!(named(&projections, 0..1_500, Passing::Entries) > 500);
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
    while projections.write_live_key_sets().unwrap().is_some() {}
    writer.raise_floor(620).unwrap();
    projections.prune().unwrap();
    apply(&mut writer, &steps[1_000..1_001], &[1]);
    // The set at 600 would need the changes behind it, which are gone.
    assert_eq!(named(&projections, 600..650, Passing::Rows), 0);
    // Nor is one believed that was being made while those below the floor went.
    let set = alive::sets_below(Things::ID, 600).1;
    let db = projections.database();
    let mut batch = TableBatch::new(&db);
    batch.put(Family::History, &set, &[0, 0xff, 0x7f]);
    batch.write().unwrap();
    apply(&mut writer, &steps[1_001..1_002], &[1]);
    assert_eq!(named(&projections, 620..650, Passing::Rows), 0);
    assert!(named(&projections, 650..1_000, Passing::Rows) > 300);
    for index in (620..1_000).step_by(3) {
        let past = projections.view().as_of(index, 0).unwrap();
        check_rows(&past, &states[index as usize]);
    }
    // Where all sets are gone, the next one is made by a walk.
    writer.raise_floor(1_001).unwrap();
    projections.prune().unwrap();
    apply(&mut writer, &steps[1_002..], &[1]);
    assert_eq!(projections.write_live_key_sets().unwrap(), Some(1_050));
    assert_eq!(projections.write_live_key_sets().unwrap(), None);
}

#[test]
fn databases_are_equal_whatever_sets_they_have() {
    let dir = tempfile::tempdir().unwrap();
    let (one, mut writer) = open(&dir.path().join("one"));
    let (two, mut other) = open(&dir.path().join("two"));
    let steps = steps(200);
    apply(&mut writer, &steps, &[7]);
    apply(&mut other, &steps, &[7]);
    while one.write_live_key_sets().unwrap().is_some() {}
    let found = one.view().differences(&two.view(), 9, &mut |_| ());
    assert_eq!(found.unwrap(), []);
    let found = two.view().differences(&one.view(), 9, &mut |_| ());
    assert_eq!(found.unwrap(), []);
}
