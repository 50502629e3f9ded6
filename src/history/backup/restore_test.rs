use super::*;
use crate::history::testing::{START, write_log};

/// A state of the log at an index, as files in the directory `at`.
fn state_in(at: &Path, log: &ReadOnlyLog, index: u64) -> SnapshotDir {
    let opened = Projections::open(at.join("tables"), DatabaseOptions::dev());
    let (projections, writer) = opened.unwrap();
    replay::unfold(log, None, index, writer, &mut |_, _| Ok(())).unwrap();
    let state = SnapshotDir::new(at.join("base"));
    let view = projections.view();
    view.write_snapshot(&state.state(), STATE_FILE, &|_| Ok(()))
        .unwrap();
    state
}

#[test]
fn a_state_is_taken_in_only_where_the_disk_has_space_for_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let log = ReadOnlyLog::open(&write_log(dir.path(), 10)).unwrap();
    let base = state_in(dir.path(), &log, 9);
    let path = dir.path().join("projections");
    let full = take_in(&path, &base, &DiskReserve::for_looks(&path, 0));
    let full = full.unwrap_err();
    assert!(matches!(full, ArchiveError::NoSpace(_)), "{full:?}");
    assert!(!path.exists());
    take_in(&path, &base, &DiskReserve::for_looks(&path, 1)).unwrap();
    assert!(path.exists());
}

#[test]
fn an_earlier_state_is_folded_only_as_long_as_the_disk_has_space() {
    let dir = tempfile::tempdir().unwrap();
    let log = ReadOnlyLog::open(&write_log(dir.path(), 10)).unwrap();
    // The state that must come out in the end.
    let unpacked = state_in(dir.path(), &log, 9).path().to_owned();
    let fold = |looks: u64| {
        let draft = dir.path().join(format!("draft-{looks}"));
        fs::create_dir(&draft).unwrap();
        let reserve = DiskReserve::for_looks(&draft.join("fold"), looks);
        let to = (&*draft, &reserve);
        fold_to(&log, &unpacked, to, (5, 9), &mut |_, _, _| ()).map(drop)
    };
    let refused = |looks: u64| {
        let error = fold(looks).unwrap_err();
        assert!(matches!(error, ArchiveError::NoSpace(_)), "{error:?}");
        dir.path().join(format!("draft-{looks}"))
    };
    assert!(!refused(0).join("fold").exists());
    // The events up to the state are folded, and it is not written.
    let folded = refused(1);
    assert!(folded.join("fold").exists() && !folded.join("at").exists());
    assert!(!refused(2).join("at").exists());
    // Nor is a file of it begun, and the rest is not folded.
    let begun = refused(3).join("at/state");
    assert_eq!(fs::read_dir(begun).unwrap().count(), 0);
    refused(4);
    fold(100).unwrap();
}

#[test]
fn a_time_is_restored_only_where_the_backup_tells_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = ReadOnlyLog::open(&write_log(dir.path(), 10)).unwrap();
    let second = 1_000_000_000;
    let made = START + 60 * second;
    let manifest = Manifest {
        index: 9,
        created: crate::history::backup::save::shown(made),
        ..Manifest::default()
    };
    let at = |time| {
        let found = find(&log, &manifest, Some(Moment::Time(time)));
        found.map_err(|error| error.to_string())
    };
    // The first event has index 1; what is before it is Raft's own and has no time.
    for early in [i64::MIN, 0, 1, START, START + second - 1] {
        let error = at(early).unwrap_err();
        assert!(error.contains("as old as that time"), "{early}: {error}");
    }
    assert_eq!(at(START + second), Ok(1));
    assert_eq!(at(START + 5 * second - 1), Ok(4));
    assert_eq!(at(START + 30 * second), Ok(9), "nothing happened since");
    assert_eq!(at(made), Ok(9));
    for late in [made + 1, i64::MAX] {
        let error = at(late).unwrap_err();
        assert!(error.contains("was made at"), "{late}: {error}");
    }
}
