use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::ArchiveError;
use super::import::{Imported, import};
use super::lines::{Export, Exported, Format};
use super::outcomes::{OutcomeQuery, Outcomes};
use super::testing::{START, write_log};
use crate::history::record::RecordedOutcome;
use crate::history::record::numbers::Numbers;
use crate::history::replay::{StateAt, replay};
use crate::log::ReadOnlyLog;

fn export(log: &Path, what: &Export) -> (Vec<u8>, Exported) {
    let log = ReadOnlyLog::open(log).unwrap();
    let mut out = Vec::new();
    let done = what.run(&log, &mut out, &mut |_, _| ()).unwrap();
    assert_eq!(done.bytes, out.len() as u64);
    (out, done)
}

fn whole() -> Export {
    Export {
        bodies: true,
        ..Export::default()
    }
}

/// What became of the events of a log: by the tables, or by folding it.
fn outcomes(log: &Path, tables: Option<&Path>, scratch: &Path) -> Outcomes {
    let wanted = OutcomeQuery {
        log_dir: log,
        tables,
        from: 0,
        to: None,
        scratch,
    };
    let mut folded = false;
    let log = ReadOnlyLog::open(log).unwrap();
    let found = Outcomes::find(wanted, &log, &mut |_, _| folded = true).unwrap();
    assert_eq!(
        folded,
        tables.is_none(),
        "tables that know are asked, and nothing is folded"
    );
    found
}

#[test]
fn ev_20_refused_events_have_the_same_mark_in_every_export() {
    let dir = tempfile::tempdir().unwrap();
    let from = write_log(&dir.path().join("from"), 200);
    let tables = dir.path().join("tables");
    let options = drover_projections::DatabaseOptions::default();
    drop(crate::history::replay::fill(&from, &tables, &options, &mut |_, _| ()).unwrap());
    let folded = outcomes(&from, None, &dir.path().join("scratch"));
    let kept = outcomes(&from, Some(&tables), &dir.path().join("scratch"));
    let mut refused = Vec::new();
    for index in 1..200 {
        let outcome = folded.get(index).unwrap();
        assert_eq!(kept.get(index), Some(outcome), "{index}");
        if let RecordedOutcome::Rejected(why) = outcome {
            refused.push((index, why.to_owned()));
        }
    }
    assert!(refused.len() > 2 && refused.len() < 100, "{refused:?}");
    assert!(refused.iter().all(|(_, why)| !why.is_empty()));
    assert_eq!(folded.get(200), None, "beyond the end nothing is known");
    for format in [Format::Ndjson, Format::CloudEvents] {
        let what = Export {
            format,
            outcomes: folded.clone().into(),
            ..Export::default()
        };
        let text = String::from_utf8(export(&from, &what).0).unwrap();
        let mut found = Vec::new();
        for (index, line) in (1..).zip(text.lines()) {
            let line: Value = serde_json::from_str(line).unwrap();
            let document = line.get("data").unwrap_or(&line);
            assert_eq!(document["Index"], index, "events begin at 1");
            if format == Format::CloudEvents {
                assert_eq!(line["outcome"], document["Outcome"]);
            }
            match document["Outcome"].as_str() {
                Some("refused") => {
                    found.push((index, document["Reason"].as_str().unwrap().to_owned()));
                }
                outcome => assert_eq!((outcome, document.get("Reason")), (Some("applied"), None)),
            }
        }
        assert_eq!(found, refused, "{format:?}");
    }
    let unknown = String::from_utf8(export(&from, &Export::default()).0).unwrap();
    assert!(
        !unknown.contains("\"Outcome\""),
        "what is not known is not said"
    );
}

#[test]
fn what_tables_have_stored_is_known_without_the_log_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let short = write_log(&dir.path().join("short"), 100);
    let tables = dir.path().join("tables");
    assert_eq!(Outcomes::stored(&tables).get(1), None, "there are none");
    let options = drover_projections::DatabaseOptions::default();
    drop(crate::history::replay::fill(&short, &tables, &options, &mut |_, _| ()).unwrap());
    let stored = Outcomes::stored(&tables);
    let folded = outcomes(&short, None, &dir.path().join("scratch"));
    for index in 1..100 {
        assert!(stored.get(index).is_some(), "{index}");
        assert_eq!(stored.get(index), folded.get(index), "{index}");
    }
    assert_eq!(stored.get(100), None, "they end there");
    // Of a longer log all is found, by folding it.
    let long = write_log(&dir.path().join("long"), 200);
    let wanted = OutcomeQuery {
        log_dir: &long,
        tables: Some(&tables),
        from: 0,
        to: None,
        scratch: &dir.path().join("scratch"),
    };
    let log = ReadOnlyLog::open(&long).unwrap();
    let found = Outcomes::find(wanted, &log, &mut |_, _| ()).unwrap();
    assert!(found.get(199).is_some());
}

#[test]
fn integers_beyond_doubles_are_texts_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let from = write_log(&dir.path().join("from"), 5);
    let what = Export {
        numbers: Numbers::Strings,
        ..Export::default()
    };
    let text = String::from_utf8(export(&from, &what).0).unwrap();
    let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["Time"], (START + 1_000_000_000).to_string());
    assert_eq!(line["Index"], 1);
}

fn import_into(lines: &[u8], dir: &Path) -> Result<Imported, ArchiveError> {
    import(&mut &*lines, dir, &mut |_| ())
}

fn state(log: &Path, scratch: &Path) -> StateAt {
    replay(log, scratch, None, &mut |_, _| ()).unwrap().state
}

#[test]
fn an_export_with_bodies_gives_the_same_log_and_the_same_state() {
    let dir = tempfile::tempdir().unwrap();
    let from = write_log(&dir.path().join("from"), 1500);
    let (lines, done) = export(&from, &whole());
    assert_eq!((done.events, done.last), (1500, Some(1499)));
    let to = dir.path().join("to");
    let imported = import_into(&lines, &to).unwrap();
    assert_eq!(
        (imported.events, imported.first, imported.last),
        (1500, 0, 1499)
    );
    let (old, new) = (
        ReadOnlyLog::open(&from).unwrap(),
        ReadOnlyLog::open(&to.join("server/log")).unwrap(),
    );
    assert_eq!(old.epoch(), new.epoch());
    assert_eq!(old.bounds(), new.bounds());
    assert_eq!(new.committed(), Some(1499));
    let root = old.range_at(1499).unwrap().unwrap().root();
    assert_eq!(root, imported.root);
    let before = state(&from, &dir.path().join("a"));
    let after = state(&to.join("server/log"), &dir.path().join("b"));
    assert_eq!(before, after);
    assert!(
        before
            .digests
            .iter()
            .any(|d| d.digest != Default::default())
    );
    let again = import_into(&lines, &to).unwrap_err().to_string();
    assert!(again.contains("only an empty data directory"), "{again}");
}

/// A line whose body has one letter of a name changed, so that it is an event still.
fn changed(line: &str) -> String {
    let mut line: Value = serde_json::from_str(line).unwrap();
    let body = STANDARD.decode(line["Body"].as_str().unwrap()).unwrap();
    let flipped = (0..body.len()).rev().find_map(|at| {
        let mut other = body.clone();
        other[at] ^= 1;
        let same = drover_migrations::decode(&body).unwrap();
        let read = drover_migrations::decode(&other).ok()?;
        (read != same && read.index == same.index).then_some(other)
    });
    line["Body"] = STANDARD.encode(flipped.unwrap()).into();
    line.to_string()
}

#[test]
fn what_is_no_whole_export_is_refused_by_its_line_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let from = write_log(&dir.path().join("from"), 40);
    let (lines, _) = export(&from, &whole());
    let text = String::from_utf8(lines).unwrap();
    let line: Vec<&str> = text.lines().collect();
    let other = write_log(&dir.path().join("other"), 40);
    let (other, _) = export(&other, &whole());
    let other = String::from_utf8(other).unwrap();
    let (plain, _) = export(&from, &Export::default());
    let late = Export {
        from: 10,
        ..whole()
    };
    let (late, _) = export(&from, &late);
    let swapped = line[7].replace("\"Index\":7,", "\"Index\":9,");
    // Another actor in an event that can be read all the same.
    let changed = changed(line[1]);
    let restored = line[5].replace("\"EpochFirst\":0", "\"EpochFirst\":5");
    let broken = line[7].replace("\"Body\":\"", "\"Body\":\"!");
    for (lines, place, what) in [
        (String::from_utf8(plain).unwrap(), 1, "-bodies"),
        (String::from_utf8(late).unwrap(), 1, "begins at index 10"),
        (restored, 1, "a state that was restored"),
        ([line[0], line[2]].join("\n"), 2, "index 2 where 1 is next"),
        ([line[0], line[1], &swapped].join("\n"), 3, "is of index 7"),
        ([line[0], &broken].join("\n"), 2, "not base64"),
        ([line[0], &changed].join("\n"), 2, "not the one that was"),
        (format!("{}\n{{\"Ind", line[0]), 2, "no event"),
        (
            [line[0], other.lines().nth(1).unwrap()].join("\n"),
            2,
            "another log",
        ),
    ] {
        let to = dir.path().join("to");
        match import_into(lines.as_bytes(), &to) {
            Err(ArchiveError::Line { line, what: text }) => {
                assert_eq!(line, place, "{text}");
                assert!(text.contains(what), "{text}");
            }
            other => panic!("{what}: {other:?}"),
        }
        let left = std::fs::read_dir(to.join("server")).unwrap().count();
        assert_eq!(left, 0, "{what}");
    }
    let nothing = import_into(b"\n", &dir.path().join("to")).unwrap_err();
    assert!(nothing.to_string().contains("no events"), "{nothing}");
}

#[test]
fn an_import_that_was_killed_is_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let (lines, _) = export(&write_log(&dir.path().join("from"), 40), &whole());
    let to = dir.path().join("to");
    let server = to.join("server");
    // The server's id is there, the log has not its name yet.
    std::fs::create_dir_all(server.join("log.importing/half")).unwrap();
    std::fs::write(server.join("node-id"), "of the killed import").unwrap();
    assert_eq!(import_into(&lines, &to).unwrap().events, 40);
    let left: Vec<_> = std::fs::read_dir(&server)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["log"], "the log names no lone server");
    // An id without such a log is a server's.
    let to = dir.path().join("used");
    std::fs::create_dir_all(to.join("server")).unwrap();
    std::fs::write(to.join("server/node-id"), "of a server").unwrap();
    let error = import_into(&lines, &to).unwrap_err().to_string();
    assert!(error.contains("node-id exists"), "{error}");
    assert!(to.join("server/node-id").exists());
}

#[test]
fn a_part_is_exported_by_index_time_and_kind() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(&dir.path().join("from"), 60);
    let indexes = |what: &Export| -> Vec<u64> {
        let (lines, _) = export(&log, what);
        let text = String::from_utf8(lines).unwrap();
        let line = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
        text.lines()
            .map(line)
            .map(|json| json["Index"].as_u64().or(json["data"]["Index"].as_u64()))
            .map(Option::unwrap)
            .collect()
    };
    let part = Export {
        from: 20,
        to: Some(24),
        ..Export::default()
    };
    assert_eq!(indexes(&part), [20, 21, 22, 23, 24]);
    let second = 1_000_000_000;
    let timed = Export {
        since: Some(START + 30 * second),
        until: Some(START + 33 * second - 1),
        format: Format::CloudEvents,
        ..Export::default()
    };
    assert_eq!(indexes(&timed), [30, 31, 32]);
    let deleted = Export {
        kinds: vec![drover_events::EventKind::NamespacesDeleted.number()],
        to: Some(21),
        ..Export::default()
    };
    assert_eq!(indexes(&deleted), [5, 10, 15, 20]);
}

#[test]
fn what_lies_before_damage_is_exported_where_nothing_behind_it_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(&dir.path().join("from"), 60);
    let files = std::fs::read_dir(&log).unwrap();
    let segment = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .min()
        .unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[6_000..6_016].fill(0xff);
    std::fs::write(&segment, bytes).unwrap();
    let log = ReadOnlyLog::open(&log).unwrap();
    let damaged = log.bounds().1;
    let up_to = |to| {
        let what = Export {
            to: Some(to),
            ..Export::default()
        };
        what.run(&log, &mut std::io::sink(), &mut |_, _| ())
    };
    let done = up_to(damaged - 1).unwrap();
    assert_eq!((done.events, done.last), (damaged - 1, Some(damaged - 1)));
    let error = up_to(damaged).unwrap_err();
    assert!(matches!(error, ArchiveError::Log(_)), "{error}");
}
