//! A fold gives, byte by byte, what batches give, however it is cut and wherever it is killed.

use proptest::prelude::*;

use super::*;
use crate::store::engine_test::{
    Op, Step, TABLES, Thing, dump, many_ops, numbered, open, steps, thing,
};
use crate::{DatabaseOptions, Projections};

/// All entries after the steps went through batches.
fn by_batches(dir: &Path, steps: &[Step]) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let (projections, mut writer) = open(&dir.join("batches"));
    crate::store::engine_test::apply(&mut writer, steps, &[5]);
    dump(&projections.view())
}

fn fold(dir: &Path, limit: usize) -> Fold {
    let opened = Projections::open_with(&dir.join("fold"), DatabaseOptions::dev(), &TABLES);
    opened.unwrap().1.fold(limit).unwrap()
}

fn entries(fold: &Fold) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    dump(&fold.projections().view())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_fold_equals_batches(
        steps in steps(),
        cuts in proptest::collection::vec(0..25_usize, 0..5),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut fold = fold(dir.path(), 1 << 20);
        for (at, step) in steps.iter().enumerate() {
            fold.apply_all(std::slice::from_ref(step)).unwrap();
            if cuts.contains(&at) {
                fold.commit().unwrap();
                prop_assert_eq!(fold.committed(), Some(step.index));
            }
        }
        let writer = fold.finish().unwrap();
        let folded = dump(&writer.projections().view());
        prop_assert_eq!(folded, by_batches(dir.path(), &steps));
    }
}

#[test]
fn a_long_fold_commits_when_enough_is_held_and_equals_batches() {
    let dir = tempfile::tempdir().unwrap();
    let steps = numbered(many_ops(5_000));
    let mut fold = fold(dir.path(), 100 << 10);
    fold.apply_all(&steps).unwrap();
    assert!(fold.generations > 3, "{} generations", fold.generations);
    fold.commit().unwrap();
    assert_eq!(entries(&fold), by_batches(dir.path(), &steps));
    // The writer goes on in batches where the fold ended.
    let mut writer = fold.finish().unwrap();
    let more = Step {
        index: 5_001,
        ..Step::default()
    };
    writer.apply_batch(&[more]).unwrap();
    assert_eq!(writer.projections().applied_index(), 5_001);
    assert!(!dir.path().join("fold").join(STAGING).exists());
}

#[test]
fn a_fold_of_large_events_holds_no_more_than_it_may_between_two_kept_digests() {
    const LIMIT: usize = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let large = |index: u64| Step {
        index,
        ops: vec![Op::Put(Thing {
            id: format!("{index:08}-0000-4000-8000-000000000000"),
            color: "x".repeat(8 << 10),
            ..Thing::default()
        })],
        guards: Vec::new(),
    };
    let steps: Vec<Step> = (1..100).map(large).collect();
    let mut fold = fold(dir.path(), LIMIT);
    for step in &steps {
        fold.apply_all(std::slice::from_ref(step)).unwrap();
        let held = fold.staged.bytes() + fold.unsettled;
        assert!(held < LIMIT, "{held} bytes behind event {}", step.index);
    }
    assert!(fold.generations > 1, "{} generations", fold.generations);
    fold.commit().unwrap();
    assert_eq!(entries(&fold), by_batches(dir.path(), &steps));
}

/// Leaves a database as a kill would: `kill` says after which of the files of the second generation
/// were taken in (7: all); none: before the generation was finished.
fn killed(dir: &Path, steps: &[Step], kill: Option<usize>) -> u64 {
    let mut fold = fold(dir, 1 << 20);
    let (first, second) = steps.split_at(steps.len() / 2);
    fold.apply_all(first).unwrap();
    fold.commit().unwrap();
    fold.apply_all(second).unwrap();
    fold.write_up_to_position().unwrap();
    let (position, digests) = (fold.writer.position, fold.writer.digests.clone());
    put_position(&mut fold.staged.write_only, &position, &digests);
    fold.generations += 1;
    let files = fold.write_files().unwrap();
    let Some(taken) = kill else {
        return first.len() as u64;
    };
    let mut options = IngestExternalFileOptions::default();
    options.set_move_files(true);
    for file in files.iter().take(taken) {
        let family = ORDER
            .into_iter()
            .find(|family| family.name() == file.family);
        let path = fold.staging.join(&file.name);
        fold.db
            .raw()
            .ingest_external_file_cf_opts(fold.db.family(family.unwrap()), &options, vec![path])
            .unwrap();
    }
    write_manifest(&fold.staging, &Generation { files }).unwrap();
    steps.len() as u64
}

#[test]
fn a_fold_that_was_killed_anywhere_goes_on_to_the_same_end() {
    let steps = numbered(many_ops(300));
    for kill in [None, Some(0), Some(1), Some(3), Some(5), Some(7)] {
        let dir = tempfile::tempdir().unwrap();
        let stands = killed(dir.path(), &steps, kill);
        let mut again = fold(dir.path(), 1 << 20);
        assert_eq!(again.committed(), Some(stands), "killed at {kill:?}");
        again.apply_all(&steps[stands as usize..]).unwrap();
        again.commit().unwrap();
        assert_eq!(entries(&again), by_batches(dir.path(), &steps), "{kill:?}");
    }
}

#[test]
fn ev_20_after_an_error_nothing_that_is_held_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let steps = numbered(many_ops(20));
    let mut fold = fold(dir.path(), 1 << 20);
    fold.apply_all(&steps[..10]).unwrap();
    fold.commit().unwrap();
    let before = entries(&fold);
    fold.apply_all(&steps[10..12]).unwrap();
    let gap = fold.apply_all(&steps[15..]);
    assert!(matches!(gap, Err(StorageError::OutOfOrder { .. })));
    fold.commit().unwrap();
    assert_eq!(fold.committed(), Some(10));
    assert_eq!(entries(&fold), before);
    let mut writer = fold.finish().unwrap();
    crate::store::engine_test::apply(&mut writer, &steps[10..], &[4]);
    assert_eq!(
        dump(&writer.projections().view()),
        by_batches(dir.path(), &steps)
    );
}

#[test]
fn a_removal_is_held_only_where_the_database_may_have_the_row() {
    let dir = tempfile::tempdir().unwrap();
    let put = || vec![Op::Put(thing("x", 1))];
    let delete = || vec![Op::Delete("x".to_owned())];
    let steps = numbered(vec![put(), delete(), put(), delete()]);
    let mut fold = fold(dir.path(), 1 << 20);
    let removals = |fold: &Fold| {
        let rows = fold.staged.rows.entries(Family::Rows);
        rows.filter(|(_, value)| value.is_none()).count()
    };
    for step in &steps[..2] {
        fold.apply_all(std::slice::from_ref(step)).unwrap();
        fold.write_up_to_position().unwrap();
    }
    assert_eq!(removals(&fold), 0, "the database is empty");
    fold.apply_all(&steps[2..3]).unwrap();
    fold.commit().unwrap();
    fold.apply_all(&steps[3..]).unwrap();
    fold.write_up_to_position().unwrap();
    assert_eq!(removals(&fold), 1, "the database has the row");
}
