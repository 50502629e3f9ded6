//! What an audit asks of tables it does not know by type, and the comparison of two states.

use std::collections::BTreeSet;

use drover_events::mask::Clear;
use proptest::prelude::*;
use serde_json::json;

use crate::engine::db::Family;
use crate::engine::key::{Id, Key};
use crate::engine::scan::{Prefix, Scan};
use crate::engine::table::Table;
use crate::past::history;
use crate::read::trail::Budget;
use crate::store::engine_test::*;
use crate::tables::TableInfo;
use crate::{Projections, View};

const PLENTY: Budget = Budget {
    rows: u64::MAX,
    keys: usize::MAX,
};

fn things() -> &'static TableInfo {
    TABLES.named("things").unwrap()
}

fn key(id: &str) -> Vec<u8> {
    Id::new(id).to_bytes().to_vec()
}

fn at(projections: &Projections, index: u64) -> View {
    projections.view().as_of(index, 0).unwrap()
}

#[test]
fn a_row_that_is_gone_tells_when_it_changed_and_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let uuid = "0b156e3e-bb39-cc04-5170-80b70d217ba2";
    let steps = [
        step(1, vec![Op::Put(thing("x", 1)), Op::Put(thing(uuid, 1))]),
        step(2, vec![Op::Put(thing("x", 2))]),
        step(3, vec![Op::Delete("x".into())]),
        step(4, vec![Op::Put(thing("y", 1))]),
        step(5, vec![Op::Put(thing("x", 5)), Op::Delete(uuid.into())]),
    ];
    apply(&mut writer, &steps, &[2]);
    let view = projections.view();
    let change_indexes = |view: &View, first| view.change_indexes::<Things>("x", first).unwrap();
    assert_eq!(change_indexes(&view, 0), BTreeSet::from([1, 2, 3, 5]));
    assert_eq!(change_indexes(&view, 3), BTreeSet::from([3, 5]));
    assert_eq!(
        change_indexes(&at(&projections, 3), 0),
        BTreeSet::from([1, 2, 3])
    );
    let size = |index| {
        let row = things().row_at(&view, &key("x"), index, &Clear).unwrap();
        row.map(|row| row["size"].clone())
    };
    let sizes: Vec<_> = (0..=5).map(size).collect();
    for (index, size) in (0..).zip(&sizes) {
        let existed = things().existed_at(&view, &key("x"), index).unwrap();
        assert_eq!(existed, size.is_some(), "{index}");
    }
    assert_eq!(
        sizes,
        [
            None,
            Some(json!(1)),
            Some(json!(2)),
            None,
            None,
            Some(json!(5))
        ]
    );
    assert_eq!(things().words(&key("x")).unwrap(), ["x"]);
    for begin in ["0b1", uuid] {
        assert_eq!(
            view.ids_including_deleted::<Things>(begin, 9).unwrap(),
            [uuid]
        );
    }
    assert_eq!(
        view.ids_including_deleted::<Things>("", 9).unwrap(),
        [uuid, "x", "y"]
    );
    assert_eq!(
        view.ids_including_deleted::<Things>("", 2).unwrap().len(),
        2
    );
    let all = view
        .keys_including_deleted::<Things>(Prefix::new(), 9)
        .unwrap();
    assert_eq!(all, [key(uuid), key("x"), key("y")]);
}

/// Seven things, of which some cannot be read: now `b`, `d` and `g`, and `c` as it was at 1.
fn damaged(path: &std::path::Path) -> std::sync::Arc<Projections> {
    let (projections, mut writer) = open(path);
    let put = |name: &str, size| Op::Put(thing(name, size));
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let steps = [
        step(1, names.map(|name| put(name, 1)).into()),
        step(2, vec![put("a", 2), put("c", 2), put("g", 2)]),
        step(3, vec![put("e", 3)]),
    ];
    apply(&mut writer, &steps[..2], &[2]);
    let db = projections.database();
    let living = |name: &str| [&Things::ID.to_be_bytes(), key(name).as_slice()].concat();
    let whole = db.get(Family::Rows, &living("d")).unwrap().unwrap();
    let mut of_no_format = whole.to_vec();
    of_no_format[0] = 0xff;
    let version = history::begun_key(Things::ID, &key("c"), 1);
    for (family, key, value) in [
        (Family::Rows, living("b"), &b""[..]),
        (Family::Rows, living("d"), of_no_format.as_slice()),
        (Family::Rows, living("g"), &b""[..]),
        (Family::History, version.to_vec(), &b""[..]),
    ] {
        assert!(db.get(family, &key).unwrap().is_some());
        db.raw().put_cf(db.family(family), &key, value).unwrap();
    }
    // What is visible is as of the newest event.
    apply(&mut writer, &steps[2..], &[1]);
    projections
}

#[test]
fn a_comparison_names_rows_that_cannot_be_read_and_goes_on_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let projections = damaged(dir.path());
    let (before, after) = (at(&projections, 1), at(&projections, 3));
    let expected = ["a", "b", "c", "d", "e", "g"].map(key);
    let whole = things().differing(&before, &after, None, &mut PLENTY.clone());
    let whole = whole.unwrap();
    assert_eq!((whole.keys.as_slice(), whole.last), (&expected[..], None));
    let (mut paged, mut above) = (Vec::new(), None);
    for pages in 0.. {
        assert!(pages < 100, "{paged:?}");
        let mut budget = Budget { keys: 1, ..PLENTY };
        let at = above.as_deref();
        let found = things().differing(&before, &after, at, &mut budget);
        let found = found.unwrap();
        paged.extend(found.keys);
        match found.last {
            Some(last) => above = Some(last),
            None => break,
        }
    }
    assert_eq!(paged, expected);
}

#[test]
fn a_walk_over_the_past_meets_what_cannot_be_read_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let projections = damaged(dir.path());
    let [e, f] = ["e", "f"].map(Some);
    for (index, expected, reverse) in [
        (1, [Some("a"), None, None, None, e, f, Some("g")], false),
        (1, [Some("a"), None, None, None, e, f, Some("g")], true),
        // What `c` was at 1 is no part of it.
        (2, [Some("a"), None, Some("c"), None, e, f, None], false),
        (2, [Some("a"), None, Some("c"), None, e, f, None], true),
    ] {
        let before = at(&projections, index);
        let scan = match reverse {
            false => Scan::all(),
            true => Scan::all().reverse(),
        };
        let rows = before.scan::<Things>(scan).map(|row| match row {
            Ok(thing) => Some(thing.id),
            Err(error) => {
                assert!(error.is_single_entry(), "{error}");
                None
            }
        });
        let mut rows: Vec<_> = rows.collect();
        if reverse {
            rows.reverse();
        }
        let rows: Vec<_> = rows.iter().map(Option::as_deref).collect();
        assert_eq!(rows, expected, "{index} {reverse}");
    }
}

#[test]
fn words_of_a_key_are_its_components() {
    let mut words = Vec::new();
    ("a".to_owned(), Id::new("b"), 7_u64).words(&mut words);
    (true, -3_i64).words(&mut words);
    assert_eq!(words, ["a", "b", "7", "true", "-3"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The comparison finds exactly the keys whose rows differ, however it is cut into pages.
    #[test]
    fn a_comparison_finds_what_differs(
        ops in prop::collection::vec((0_u8..6, 0_u64..3), 1..40),
        ends in (0_usize..40, 0_usize..40),
        page in 1_usize..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) = open(dir.path());
        let steps: Vec<_> = ops.iter().enumerate().map(|(n, (name, size))| {
            let name = format!("n{name}");
            let op = match size {
                0 => Op::Delete(name),
                size => Op::Put(thing(&name, *size)),
            };
            step(n as u64 + 1, vec![op])
        }).collect();
        apply(&mut writer, &steps, &[3]);
        let last = steps.len() as u64;
        let (from, to) = (ends.0 as u64 % (last + 1), ends.1 as u64 % (last + 1));
        let view = projections.view();
        let (before, after) = (at(&projections, from), at(&projections, to));
        let mut expected = Vec::new();
        for name in 0..6 {
            let key = key(&format!("n{name}"));
            let row = |index| things().row_at(&view, &key, index, &Clear).unwrap();
            if row(from) != row(to) {
                expected.push(key);
            }
        }
        let whole = things().differing(&before, &after, None, &mut PLENTY.clone()).unwrap();
        prop_assert_eq!(&whole.keys, &expected);
        prop_assert_eq!(whole.last, None);
        for by_rows in [false, true] {
            let (mut paged, mut above) = (Vec::new(), None);
            for pages in 0.. {
                prop_assert!(pages < 10_000, "{:?}", paged);
                let mut budget = match by_rows {
                    true => Budget { rows: page as u64, ..PLENTY },
                    false => Budget { keys: page, ..PLENTY },
                };
                let at = above.as_deref();
                let found = things().differing(&before, &after, at, &mut budget).unwrap();
                paged.extend(found.keys);
                match found.last {
                    Some(last) => above = Some(last),
                    None => break,
                }
            }
            prop_assert_eq!(&paged, &expected);
        }
        prop_assert_eq!(Things::ID, things().id());
    }
}
