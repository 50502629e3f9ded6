use std::path::Path;

use drover_events::EventKind;
use drover_projections::maintenance::{FamilyPart, Maintenance, RawChange};
use drover_projections::{DatabaseOptions, Projections, StorageError};

use super::run::run;
use super::*;
use crate::decode;
use crate::golden::samples;

/// A step with work to do: it turns a byte of every row's key, three rows a page.
struct Flip;

impl Step for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }

    fn page(&self, db: &Maintenance, cursor: &[u8]) -> Result<StepProgress, StorageError> {
        let rows = db.entries(FamilyPart::Rows, cursor, 3)?;
        // What this step wrote carries 0xff behind its key, so that it is never taken up again.
        let changes = rows
            .iter()
            .filter(|(key, _)| key.last() != Some(&0xff))
            .flat_map(|(key, value)| {
                let mut turned = key.clone();
                turned.push(0xff);
                [
                    RawChange::Delete(FamilyPart::Rows, key.clone()),
                    RawChange::Put(FamilyPart::Rows, turned, value.clone()),
                ]
            })
            .collect();
        Ok(match rows.last() {
            Some((key, _)) if rows.len() == 3 => StepProgress::More {
                changes,
                cursor: key.clone(),
            },
            _ => StepProgress::Done(changes),
        })
    }
}

/// A database that something was applied to, as it is without a header.
fn old_database(path: &Path) {
    let (_, mut writer) = Projections::open(path, DatabaseOptions::default()).unwrap();
    let body = samples::body(EventKind::NamespacesUpserted, 1).unwrap();
    let mut recorded = decode(&body).unwrap();
    for index in 1..=8 {
        recorded.index = index;
        if let Some(envelope) = &mut recorded.envelope {
            envelope.guards.clear();
            if let drover_events::Event::NamespacesUpserted(event) = &mut envelope.event {
                event.namespaces[0].name = format!("n{index}");
            }
        }
        writer.apply(std::slice::from_ref(&recorded)).unwrap();
    }
    writer.flush().unwrap();
}

fn rows(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let db = Maintenance::open(path, &DatabaseOptions::default()).unwrap();
    db.entries(FamilyPart::Rows, &[], usize::MAX).unwrap()
}

fn header(path: &Path) -> Option<SchemaHeader> {
    let db = Maintenance::open(path, &DatabaseOptions::default()).unwrap();
    db.header()
        .unwrap()
        .map(|bytes| SchemaHeader::decode(&bytes).unwrap())
}

#[test]
fn a_new_database_is_born_with_the_newest_schema() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    assert_eq!(prepare(&path, &DatabaseOptions::default()).unwrap(), LATEST);
    assert_eq!(header(&path), Some(SchemaHeader::at(LATEST)));
    assert_eq!(
        prepare(&path, &DatabaseOptions::default()).unwrap(),
        LATEST,
        "twice is once"
    );
}

#[test]
fn an_old_database_is_migrated_and_stays_usable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    old_database(&path);
    let before = rows(&path);
    assert_eq!(
        prepare(&path, &DatabaseOptions::default()).unwrap(),
        SchemaVersion(0)
    );
    assert_eq!(header(&path), Some(SchemaHeader::at(LATEST)));
    assert_eq!(rows(&path), before, "fresh and migrated are the same");
    let (projections, _writer) = Projections::open(&path, DatabaseOptions::default()).unwrap();
    assert_eq!(projections.view().index(), 8);
}

#[test]
fn a_crash_at_any_page_is_taken_up_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let steps: [&dyn Step; 2] = [&super::m0001_name_the_schema::NameTheSchema, &Flip];
    let whole = directory.path().join("whole");
    old_database(&whole);
    {
        let db = Maintenance::open(&whole, &DatabaseOptions::default()).unwrap();
        run(&db, &whole, &steps, usize::MAX).unwrap();
    }
    let expected = rows(&whole);
    assert!(expected.iter().all(|(key, _)| key.last() == Some(&0xff)));
    for pages in 1..6 {
        let path = directory.path().join(format!("crash-{pages}"));
        old_database(&path);
        for _ in 0..20 {
            let db = Maintenance::open(&path, &DatabaseOptions::default()).unwrap();
            run(&db, &path, &steps, pages).unwrap();
        }
        assert_eq!(rows(&path), expected, "{pages} pages at a time");
        assert_eq!(header(&path), Some(SchemaHeader::at(SchemaVersion(2))));
    }
}

#[test]
fn a_database_of_a_newer_binary_is_refused_by_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    {
        let db = Maintenance::open(&path, &DatabaseOptions::default()).unwrap();
        db.write(&[], &SchemaHeader::at(SchemaVersion(99)).encode())
            .unwrap();
    }
    let error = prepare(&path, &DatabaseOptions::default()).unwrap_err();
    assert!(
        matches!(
            error,
            SchemaError::TooNew {
                found: SchemaVersion(99),
                ..
            }
        ),
        "{error}"
    );
    {
        let db = Maintenance::open(&path, &DatabaseOptions::default()).unwrap();
        db.write(&[], b"\xc1").unwrap();
    }
    assert!(matches!(
        prepare(&path, &DatabaseOptions::default()),
        Err(SchemaError::Damaged { .. })
    ));
}

#[test]
fn steps_are_named_and_contiguous() {
    assert_eq!(LATEST, SchemaVersion(STEPS.len() as u32));
    assert!(STEPS.iter().all(|step| !step.name().is_empty()));
}
