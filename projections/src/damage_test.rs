//! What the applier does with a row it cannot decode.

use crate::db::Family;
use crate::engine_test::{Op, Step, TABLES, Thing, Things};
use crate::layer::absolute;
use crate::table::Table;
use crate::txn::encoded;
use crate::{Options, Projections, damage_mark};

#[test]
fn a_row_that_cannot_be_decoded_stops_the_applier_and_leaves_a_mark() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("projections");
    let (projections, mut writer) = Projections::open_with(&path, Options::dev(), &TABLES).unwrap();
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
