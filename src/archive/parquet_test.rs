//! Parquet files read again by another program: DuckDB, from PyPI, in an environment of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ArchiveError;
use super::export::Export;
use super::parquet::write;
use super::testing::{START, write_log};
use crate::log::ReadOnlyLog;

fn export(log: &Path, to: &Path) -> Result<u64, ArchiveError> {
    let log = ReadOnlyLog::open(log).unwrap();
    Ok(write(&Export::default(), &log, to, &mut |_, _| ())?.events)
}

/// The events of a log by kind.
fn kinds(log: &Path) -> BTreeMap<String, u64> {
    let log = ReadOnlyLog::open(log).unwrap();
    let mut kinds = BTreeMap::new();
    for entry in log.scan(0) {
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

/// A Python that has DuckDB: made once under the target directory, or why there is none.
fn duckdb() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists());
    let dir = target.ok_or("no target directory")?.join("duckdb");
    let python = dir.join("bin/python");
    let has = |python: &Path| {
        let import = Command::new(python).args(["-c", "import duckdb"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    if has(&python) {
        return Ok(python);
    }
    let run = |command: &mut Command| {
        let output = command.output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(said)
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
    run(Command::new(&python).args(["-m", "pip", "install", "-q", "duckdb"]))?;
    has(&python)
        .then_some(python)
        .ok_or("it cannot be imported".to_owned())
}

#[test]
fn duckdb_counts_every_event_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(&dir.path().join("data"), 3_000);
    let out = dir.path().join("out");
    assert_eq!(export(&log, &out).unwrap(), 3_000);
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
    let script = format!(
        "import duckdb, json
rows = \"read_parquet('{}/**/*.parquet', hive_partitioning = true)\"
ask = lambda q: duckdb.sql(q).fetchall()
duckdb.sql(\"SET TimeZone = 'UTC'\")
print(json.dumps(dict(
    kinds=dict(ask(f'SELECT kind, count(*) FROM {{rows}} GROUP BY kind')),
    indexes=ask(f'SELECT min(index), max(index), count(DISTINCT index) FROM {{rows}}'),
    days=ask(f'SELECT count(*) FROM {{rows}} WHERE CAST(time AS DATE)::VARCHAR <> day::VARCHAR'),
    payload=ask(f\"SELECT count(*) FROM {{rows}} WHERE json_valid(payload)\"),
    objects=ask(f'SELECT count(*) FROM {{rows}} WHERE len(objects) > 0'),
)))",
        out.display()
    );
    let output = Command::new(python).args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["kinds"], serde_json::to_value(&wanted).unwrap());
    assert_eq!(found["indexes"], serde_json::json!([[0, 2_999, 3_000]]));
    assert_eq!(found["days"], serde_json::json!([[0]]));
    assert!(found["payload"][0][0].as_u64() > Some(2_900), "{found}");
    assert!(found["objects"][0][0].as_u64() > Some(0), "{found}");
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
    assert_eq!(export(&log, &other).unwrap(), 400);
    assert!(names(&other).iter().all(|name| !name.contains("1970")));
    // A kill leaves files of its own, whole ones and others, and what says that it did not end.
    let part = out.join("day=2023-11-14/kind=NamespacesUpserted");
    fs::create_dir_all(&part).unwrap();
    fs::write(part.join("events-00000000000000000077.parquet"), "clear").unwrap();
    fs::write(part.join("events-00000000000000000078.parquet.tmp"), "PAR1").unwrap();
    fs::write(out.join("export.json.tmp"), "{").unwrap();
    let said = export(&log, &out).unwrap_err().to_string();
    assert!(
        said.contains("not empty") && said.contains("another"),
        "{said}"
    );
    fs::write(out.join("unfinished.json"), "{}").unwrap();
    assert_eq!(export(&log, &out).unwrap(), 400);
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
    write(&what, &log, &out, &mut |_, _| ()).unwrap();
    let said = fs::read(out.join("export.json")).unwrap();
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
    let flags = serde_json::json!({"From": 7, "To": null, "Since": null, "Clear": true,
        "Until": "2023-11-14T22:13:50Z", "Kinds": ["NamespacesDeleted"]});
    assert_eq!(said["Flags"], flags);
    assert_eq!((&said["From"], &said["Events"]), (&7.into(), &5.into()));
}
