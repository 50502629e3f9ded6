//! Events that are tried out.

use std::path::Path;

use drover_events::model::Namespace;
use drover_events::namespace::{NamespacesDeleted, NamespacesUpserted};
use drover_events::{Event, Guard};

use crate::engine::db::Family;
use crate::engine::layer::absolute;
use crate::engine::txn::encoded;
use crate::engine::unreadable;
use crate::tables::namespaces::Namespaces;
use crate::{DatabaseOptions, Projections, Table, View};

fn put(name: &str) -> Event {
    let namespace = Namespace {
        name: name.to_owned(),
        ..Namespace::default()
    };
    let namespaces = vec![namespace];
    NamespacesUpserted { namespaces }.into()
}

/// A database with one row that is none.
fn damaged(path: &Path) -> View {
    let (projections, writer) = Projections::open(path, DatabaseOptions::dev()).unwrap();
    let db = projections.database();
    let key = absolute::<Namespaces>(&encoded::<Namespaces>("bad"));
    let rows = db.family(Family::Rows);
    db.raw().put_cf(rows, &key, b"no row").unwrap();
    db.flush(true).unwrap();
    drop((db, projections, writer));
    let (projections, _writer) = Projections::open(path, DatabaseOptions::dev()).unwrap();
    projections.view()
}

#[test]
fn an_event_is_tried_out_on_all_that_apply_reads_and_nothing_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let view = damaged(&dir.path().join("db"));
    view.try_out(&put("good"), &[]).unwrap();
    assert!(view.get::<Namespaces>("good").unwrap().is_none());
    let error = view.try_out(&put("bad"), &[]).unwrap_err();
    assert!(error.is_single_entry(), "{error}");
    assert!(unreadable::is_met());
    let names = vec!["not there".to_owned()];
    let refused: Event = NamespacesDeleted { names }.into();
    view.try_out(&refused, &[]).unwrap();
    let guard = Guard::RowAbsent {
        table: Namespaces::ID,
        key: bytes::Bytes::copy_from_slice(&encoded::<Namespaces>("bad")),
    };
    let error = view.try_out(&put("good"), &[guard]).unwrap_err();
    assert!(error.is_single_entry(), "guards are read too: {error}");
    // A guard of what is on its way holds later only.
    let guard = Guard::RowAt {
        table: Namespaces::ID,
        key: bytes::Bytes::copy_from_slice(&encoded::<Namespaces>("later")),
        index: 7,
    };
    let error = view.try_out(&put("bad"), &[guard]).unwrap_err();
    assert!(error.is_single_entry(), "it is tried all the same: {error}");
}
