//! Parquet files read again by another program: DuckDB, from PyPI, in an environment of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use drover_events::Event;
use drover_events::model::ServiceRegistration;
use drover_events::service::ServiceRegistrationsUpserted;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::ArchiveError;
use super::lines::Export;
use super::outcomes::{OutcomeQuery, Outcomes};
use super::parquet::write;
use super::testing::{START, write_events, write_log};
use crate::history::record::RecordedOutcome;
use crate::log::ReadOnlyLog;

fn export(log: &Path, to: &Path) -> Result<u64, ArchiveError> {
    let log = ReadOnlyLog::open(log).unwrap();
    Ok(write(&Export::default(), &log, to, false, &mut |_, _| ())?.events)
}

/// The events of a log by kind.
fn kinds(log: &Path) -> BTreeMap<String, u64> {
    let log = ReadOnlyLog::open(log).unwrap();
    let mut kinds = BTreeMap::new();
    for entry in log.scan(1) {
        let event = drover_migrations::decode(&entry.unwrap().body).unwrap();
        *kinds.entry(event.kind.name().to_owned()).or_insert(0) += 1;
    }
    kinds
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path, ending)),
            false if path.to_string_lossy().ends_with(ending) => found.push(path),
            false => {}
        }
    }
    found
}

/// A Python that has DuckDB and pandas, as `tools/install` makes it; or why there is none.
fn duckdb() -> Result<PathBuf, String> {
    drover_testkit::python("duckdb", &["duckdb", "pandas", "pyarrow"])
}

/// The queries of the files: `DIR` holds them, `FILE` is one of them.
const REQUESTED: &str = r#"
import duckdb, json, pandas
rows = "read_parquet('DIR/**/*.parquet', hive_partitioning = true)"
ask = lambda what: duckdb.sql(what.replace('ROWS', rows)).fetchall()
duckdb.sql("SET TimeZone = 'UTC'")
one = pandas.read_parquet('FILE', columns=['time', 'time_ns'])
micros = one.time.astype('datetime64[us, UTC]').astype('int64')
print(json.dumps(dict(
    kinds=dict(ask("SELECT kind, count(*) FROM ROWS GROUP BY kind")),
    indexes=ask("SELECT min(index), max(index), count(DISTINCT index) FROM ROWS"),
    days=ask("SELECT count(*) FROM ROWS WHERE CAST(time AS DATE)::VARCHAR <> day::VARCHAR"),
    times=ask("SELECT count(*) FROM ROWS WHERE epoch_us(time) <> time_ns // 1000"),
    pandas=bool((micros == one.time_ns // 1000).all()),
    outcomes=dict(ask("SELECT outcome, count(*) FROM ROWS GROUP BY outcome")),
    reasons=ask("SELECT count(*) FROM ROWS WHERE (reason IS NULL) <> (outcome = 'applied')"),
    spaces=ask("SELECT count(DISTINCT namespace) FROM ROWS"),
    payload=ask("SELECT count(*) FROM ROWS WHERE json_valid(payload)"),
    objects=ask("SELECT count(*) FROM ROWS WHERE len(objects) > 0"),
)))
"#;

/// What became of the events of a log, found by folding it.
fn outcomes(log: &Path, scratch: &Path) -> Outcomes {
    let wanted = OutcomeQuery {
        log_dir: log,
        tables: None,
        from: 0,
        to: None,
        scratch,
    };
    Outcomes::find(wanted, &ReadOnlyLog::open(log).unwrap(), &mut |_, _| ()).unwrap()
}

#[test]
fn duckdb_and_pandas_read_every_event_with_its_time_and_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(&dir.path().join("data"), 3_000);
    let out = dir.path().join("out");
    let known = outcomes(&log, &dir.path().join("scratch"));
    assert!(!dir.path().join("scratch").exists(), "it was left behind");
    let refused = (1..3_000).filter(|at| known.get(*at).unwrap() != RecordedOutcome::Applied);
    let refused = refused.count();
    assert!(refused > 2, "only {refused} events are refused");
    let export = Export {
        outcomes: known.into(),
        ..Export::default()
    };
    let opened = ReadOnlyLog::open(&log).unwrap();
    let done = write(&export, &opened, &out, false, &mut |_, _| ()).unwrap();
    assert_eq!(done.events, 2_999);
    assert!(out.join("export.json").exists());
    assert!(files(&out, ".tmp").is_empty());
    let wanted = kinds(&log);
    let python = match duckdb() {
        Ok(python) => python,
        Err(why) => {
            drover_testkit::skip("DuckDB", &why);
            return;
        }
    };
    let one = files(&out, ".parquet")[0].display().to_string();
    let script = REQUESTED.replace("DIR", &out.display().to_string());
    let script = script.replace("FILE", &one);
    let output = Command::new(python).args(["-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["kinds"], serde_json::to_value(&wanted).unwrap());
    assert_eq!(found["indexes"], serde_json::json!([[1, 2_999, 2_999]]));
    assert_eq!(found["days"], serde_json::json!([[0]]));
    assert_eq!(found["times"], serde_json::json!([[0]]));
    assert_eq!(found["pandas"], true, "{found}");
    let outcomes = serde_json::json!({"applied": 2_999 - refused, "refused": refused});
    assert_eq!(found["outcomes"], outcomes);
    assert_eq!(found["reasons"], serde_json::json!([[0]]));
    assert_eq!(found["spaces"], serde_json::json!([[17]]));
    assert!(found["payload"][0][0].as_u64() > Some(2_900), "{found}");
    assert!(found["objects"][0][0].as_u64() > Some(0), "{found}");
}

#[test]
fn an_export_goes_on_by_day_whether_it_ended_or_not() {
    let dir = tempfile::tempdir().unwrap();
    // A second an event, from 22:13:20 on: a day ends in between.
    let count = 8_000;
    let log = write_log(&dir.path().join("data"), count);
    let log = ReadOnlyLog::open(&log).unwrap();
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    let all = Export::default();
    let done = write(&all, &log, &whole, false, &mut |_, _| ()).unwrap();
    assert_eq!(done.events, count - 1);
    let days = |dir: &Path| {
        let mut days: Vec<String> = names(dir).into_iter().collect();
        days.retain(|name| name.ends_with(".parquet"));
        days
    };
    // A kill in the second day: the first is whole, of the second some of it lies there.
    write(&all, &log, &parts, false, &mut |_, _| ()).unwrap();
    let head = fs::read(parts.join("export.json")).unwrap();
    let mut head: serde_json::Value = serde_json::from_slice(&head).unwrap();
    let first_day = (count_of_first_day(), days(&parts));
    head["Last"] = first_day.0.into();
    head["Events"] = first_day.0.into();
    fs::write(parts.join("unfinished.json"), head.to_string()).unwrap();
    fs::remove_file(parts.join("export.json")).unwrap();
    let kept: Vec<_> = first_day
        .1
        .iter()
        .filter(|name| name.contains("2023-11-14"))
        .collect();
    let before = fs::metadata(parts.join(kept[0]))
        .unwrap()
        .modified()
        .unwrap();
    let done = write(&all, &log, &parts, true, &mut |_, _| ()).unwrap();
    assert_eq!((done.events, done.last), (count - 1, Some(count - 1)));
    assert_eq!(days(&parts), days(&whole), "not the same files");
    let after = fs::metadata(parts.join(kept[0]))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(before, after, "a whole day was written again");
    assert!(parts.join("export.json").exists() && !parts.join("unfinished.json").exists());
    // One that ended has nothing to do, and one with other flags is refused.
    let done = write(&all, &log, &parts, true, &mut |_, _| ()).unwrap();
    assert_eq!(done.events, count - 1);
    assert_eq!(days(&parts), days(&whole));
    let other = Export {
        kinds: vec![drover_events::EventKind::NamespacesDeleted.number()],
        ..Export::default()
    };
    let error = write(&other, &log, &parts, true, &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("other flags"), "{error}");
}

/// The last index of the first day: [`START`] is 22:13:20.
fn count_of_first_day() -> u64 {
    (86_400 - (START / 1_000_000_000).rem_euclid(86_400) - 1).unsigned_abs()
}

/// The names of the files, without what they lie in.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = files(dir, "")
        .iter()
        .map(|path| path.strip_prefix(dir).unwrap().display().to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn an_export_that_was_killed_is_begun_again_with_nothing_left_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(&dir.path().join("data"), 400);
    let (out, other) = (dir.path().join("out"), dir.path().join("other"));
    assert_eq!(export(&log, &other).unwrap(), 399);
    assert!(names(&other).iter().all(|name| !name.contains("1970")));
    // A kill leaves files of its own, whole ones and others, and what says that it did not end.
    let part = out.join("day=2023-11-14/kind=NamespacesUpserted");
    fs::create_dir_all(&part).unwrap();
    fs::write(part.join("events-00000000000000000077.parquet"), "clear").unwrap();
    fs::write(part.join("events-00000000000000000078.parquet.tmp"), "PAR1").unwrap();
    fs::write(out.join("export.json.tmp"), "{").unwrap();
    let error = export(&log, &out).unwrap_err().to_string();
    assert!(
        error.contains("not empty") && error.contains("another"),
        "{error}"
    );
    fs::write(out.join("unfinished.json"), "{}").unwrap();
    assert_eq!(export(&log, &out).unwrap(), 399);
    assert_eq!(names(&out), names(&other), "not the same files");
    for refused in [&out, &dir.path().join("data")] {
        let error = export(&log, refused).unwrap_err();
        assert!(matches!(error, ArchiveError::Refused(_)), "{error}");
    }
}

#[test]
fn an_export_says_with_which_flags_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(&dir.path().join("data"), 60);
    let out = dir.path().join("out");
    let what = Export {
        from: 7,
        until: Some(START + 30_000_000_000),
        kinds: vec![drover_events::EventKind::NamespacesDeleted.number()],
        ..Export::default()
    };
    let log = ReadOnlyLog::open(&log).unwrap();
    write(&what, &log, &out, false, &mut |_, _| ()).unwrap();
    let head = fs::read(out.join("export.json")).unwrap();
    let head: serde_json::Value = serde_json::from_slice(&head).unwrap();
    let flags = serde_json::json!({"From": 7, "To": null, "Since": null, "Clear": true,
        "Until": "2023-11-14T22:13:50Z", "Kinds": ["NamespacesDeleted"]});
    assert_eq!(head["Flags"], flags);
    assert_eq!((&head["From"], &head["Events"]), (&7.into(), &5.into()));
}

/// The texts of the first row of a file, by column.
fn texts(path: &Path) -> BTreeMap<String, String> {
    let reader = SerializedFileReader::try_from(path).unwrap();
    let row = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
    let text = |(name, field): (String, Field)| match field {
        Field::Str(text) => Some((name, text)),
        _ => None,
    };
    row.into_columns().into_iter().filter_map(text).collect()
}

#[test]
fn what_an_event_is_about_stands_in_the_column_that_is_named_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let service = ServiceRegistration {
        id: "the-service".to_owned(),
        namespace: "the-space".to_owned(),
        job_id: "the-job".to_owned(),
        alloc_id: "the-alloc".to_owned(),
        node_id: "the-node".to_owned(),
        ..ServiceRegistration::default()
    };
    let event = Event::from(ServiceRegistrationsUpserted {
        services: vec![service],
    });
    let log = write_events(&dir.path().join("data"), std::iter::once(event));
    let out = dir.path().join("out");
    assert_eq!(export(&log, &out).unwrap(), 1);
    let files = files(&out, ".parquet");
    assert_eq!(files.len(), 1, "{files:?}");
    let row = texts(&files[0]);
    for (column, text) in [
        ("kind", "ServiceRegistrationsUpserted"),
        ("request_id", "request-1"),
        ("namespace", "the-space"),
        ("job_id", "the-job"),
        ("alloc_id", "the-alloc"),
        ("node_id", "the-node"),
    ] {
        let found = row.get(column).map(String::as_str);
        assert_eq!(found, Some(text), "{column}: {row:?}");
    }
}
