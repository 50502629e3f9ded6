//! What the applier does with a row it cannot decode.

use crate::engine::db::Family;
use crate::engine::layer::absolute;
use crate::engine::row::decode_body;
use crate::engine::scan::Scan;
use crate::engine::table::Table;
use crate::engine::txn::encoded;
use crate::store::engine_test::{BySpace, Op, Step, TABLES, Thing, Things, damage, incompressible};
use crate::tables::namespaces::Namespaces;
use crate::{DatabaseOptions, Projections, damage_mark};

#[test]
fn what_is_said_of_a_row_that_cannot_be_decoded_quotes_nothing_of_it() {
    let row = std::collections::BTreeMap::from([("CreateIndex", "canary")]);
    let body = rmp_serde::to_vec_named(&row).unwrap();
    let error = decode_body::<Namespaces>(b"key", &body).unwrap_err();
    assert!(error.is_single_entry());
    let text = drover_error::chain(&error);
    let wanted = "a row of table namespaces cannot be decoded (key 6b6579)";
    assert_eq!(text, wanted);
    assert!(!format!("{error:?}").contains("canary"));
}

#[test]
fn a_row_that_cannot_be_decoded_stops_the_applier_and_leaves_a_mark() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("projections");
    let (projections, mut writer) =
        Projections::open_with(&path, DatabaseOptions::dev(), &TABLES).unwrap();
    let thing = Thing {
        id: "00000001-0000-4000-8000-000000000000".to_owned(),
        ..Thing::default()
    };
    let step = Step {
        index: 1,
        ops: vec![Op::Put(thing.clone())],
        guards: Vec::new(),
    };
    let db = projections.database();
    let key = absolute::<Things>(&encoded::<Things>(Things::key(&thing)));
    let rows = db.family(Family::Rows);
    db.raw().put_cf(rows, &key, b"no row").unwrap();
    assert!(!damage_mark(&path).exists());
    let error = writer.apply_batch(&[step]).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(projections.applied_index(), 0);
    let mark = std::fs::read_to_string(damage_mark(&path)).unwrap();
    assert_eq!(mark, error.to_string());
}

#[test]
fn a_walk_goes_on_behind_a_row_that_cannot_be_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("projections");
    let (projections, mut writer) =
        Projections::open_with(&path, DatabaseOptions::dev(), &TABLES).unwrap();
    let thing = |number: u64| Thing {
        id: format!("0000000{number}-0000-4000-8000-000000000000"),
        space: "s".to_owned(),
        size: number,
        ..Thing::default()
    };
    let step = |index, numbers: std::ops::Range<u64>| Step {
        index,
        ops: numbers.map(|number| Op::Put(thing(number))).collect(),
        guards: Vec::new(),
    };
    writer.apply_batch(&[step(1, 1..5)]).unwrap();
    let db = projections.database();
    for (number, value) in [(2, &b"no row"[..]), (4, &b""[..])] {
        let key = absolute::<Things>(&encoded::<Things>(Things::key(&thing(number))));
        db.raw()
            .put_cf(db.family(Family::Rows), &key, value)
            .unwrap();
    }
    // What is visible is as of the newest event.
    writer.apply_batch(&[step(2, 5..6)]).unwrap();
    let view = projections.view();
    let rows: Vec<_> = view.scan::<Things>(Scan::all()).collect();
    let by_index: Vec<_> = view.by_index::<BySpace>("s").collect();
    for found in [rows, by_index] {
        let sizes = found.into_iter().map(|row| match row {
            Ok(thing) => Some(thing.size),
            Err(error) => {
                assert!(error.is_single_entry() && error.is_damage(), "{error}");
                None
            }
        });
        let sizes: Vec<_> = sizes.collect();
        assert_eq!(sizes, [Some(1), None, Some(3), None, Some(5)]);
    }
}

#[test]
fn a_version_that_cannot_be_read_is_no_row_that_was_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("projections");
    let (projections, mut writer) =
        Projections::open_with(&path, DatabaseOptions::dev(), &TABLES).unwrap();
    let id = "00000001-0000-4000-8000-000000000000";
    // Each version of the row is more than a block of RocksDB's.
    for index in 1..=4 {
        let thing = Thing {
            id: id.to_owned(),
            space: incompressible(index, 40_000),
            size: index,
            ..Thing::default()
        };
        let step = Step {
            index,
            ops: vec![Op::Put(thing)],
            guards: Vec::new(),
        };
        writer.apply_batch(&[step]).unwrap();
    }
    projections.flush().unwrap();
    damage(&path, &incompressible(2, 40_000).as_bytes()[20_000..20_040]);
    let view = projections.view();
    let then = view.as_of(2, 0).unwrap();
    let rows: Result<Vec<_>, _> = then.scan::<Things>(Scan::all()).collect();
    assert!(rows.is_err(), "{rows:?}");
    assert!(then.get::<Things>(id).is_err());
}
