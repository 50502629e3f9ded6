//! Databases built again from logs: whole, cancelled, beside damage, and against what was signed.

use std::fs;
use std::sync::Arc;

use drover_events::model::{Namespace, VariableEncrypted};
use drover_events::namespace::NamespacesUpserted;
use drover_events::variable::{VarOp, VariableApplied};
use drover_events::{Actor, Envelope, Event, EventId, EventKind, RaftPayload};
use drover_projections::damage_mark;
use drover_projections::maintenance::{FamilyPart, Maintenance, RawChange};
use drover_testkit::{LONG, so, wait_for};
use ed25519_dalek::SigningKey;

use std::sync::atomic::Ordering;

use super::*;
use crate::history::proof::{Checkpoint, Ledger, state_digest};
use crate::log::{Entry, LogEngine};

const TIME: i64 = 1_795_252_023_951_021_739;

fn event(index: u64) -> Event {
    if index == 1 {
        let default = Namespace {
            name: "default".into(),
            ..Namespace::default()
        };
        return NamespacesUpserted {
            namespaces: vec![default],
        }
        .into();
    }
    let var = VariableEncrypted {
        namespace: "default".into(),
        path: format!("app/{}", index % 97),
        data: vec![b'x'; (index % 50) as usize].into(),
        ..VariableEncrypted::default()
    };
    let op = match index % 13 {
        0 => VarOp::Delete,
        _ => VarOp::Set,
    };
    VariableApplied { op, var, quota: 0 }.into()
}

fn body(index: u64) -> (u16, Vec<u8>) {
    if index == 0 {
        let kind = EventKind::RaftMembership.number();
        return (kind, RaftPayload::membership(&[]).body(0, 1));
    }
    let envelope = Envelope {
        time: TIME + index as i64,
        id: EventId([index as u8; 16]),
        actor: Actor::default(),
        request_id: String::new(),
        cause: None,
        trace: String::new(),
        guards: Vec::new(),
        event: event(index),
    };
    let payload = RaftPayload::encode(&envelope).unwrap();
    (payload.kind_number(), payload.body(index, 1))
}

/// A server's directory with a log; `signed` is the state that a checkpoint at its end names.
struct Server {
    dir: tempfile::TempDir,
    last: u64,
}

impl Server {
    fn new(entries: u64) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let options = crate::log::LogOptions {
            segment_bytes: 256 << 10,
            seal: false,
            ..crate::log::LogOptions::default()
        };
        let (log, _) = LogEngine::open(&dir.path().join("log"), options).unwrap();
        for index in 0..entries {
            let (kind, body) = body(index);
            let entry = Entry {
                index,
                kind,
                time: TIME + index as i64,
                body: body.into(),
            };
            log.append(vec![entry], Box::new(|done| done.unwrap()))
                .unwrap();
        }
        log.sync().unwrap();
        let last = entries - 1;
        log.commit(last, bytes::Bytes::new());
        let path = dir.path().join("log");
        let written = || so(ReadOnlyLog::open(&path).unwrap().committed() == Some(last));
        wait_for("the commit to be written", LONG, written).unwrap();
        log.close();
        Server { dir, last }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn live(&self) -> PathBuf {
        self.dir.path().join("projections")
    }

    /// The database as a server fills it, in batches.
    fn fill(&self) -> StateAt {
        let filled = replay::fill(
            &self.log(),
            &self.live(),
            &DatabaseOptions::dev(),
            &mut |_, _| (),
        );
        StateAt::of(&filled.unwrap())
    }

    fn rebuild<'a>(&self, cancelled: &'a AtomicBool) -> Rebuild<'a> {
        Rebuild::of(
            &self.log(),
            &self.live(),
            &DatabaseOptions::dev(),
            cancelled,
        )
    }

    fn run(&self) -> Result<Rebuilt, RebuildError> {
        self.rebuild(&AtomicBool::new(false)).run(&mut |_| ())
    }

    fn check(&self, whole: bool) -> Checked {
        let check = Check {
            from: None,
            log_dir: self.log(),
            live: self.live(),
            options: DatabaseOptions::dev(),
            whole,
            cancelled: &AtomicBool::new(false),
        };
        check.run(&mut |_| ()).unwrap()
    }

    /// The state of the database in use.
    fn state(&self) -> StateAt {
        StateAt::of(
            &Projections::open(self.live(), DatabaseOptions::dev())
                .unwrap()
                .0,
        )
    }

    /// Signs the log's end together with a state.
    fn sign(&self, state: [u8; 32]) {
        let options = crate::log::LogOptions::default();
        let (log, _) = LogEngine::open(&self.log(), options).unwrap();
        let log = Arc::new(log);
        let ledger = Ledger::open(Arc::clone(&log), self.dir.path()).unwrap();
        let key = SigningKey::from_bytes(&[3; 32]);
        ledger.sign((self.last, TIME, state), &key).unwrap();
        drop(ledger);
        log.close();
    }
}

#[test]
fn a_rebuilt_database_equals_the_old_one_which_is_kept() {
    let server = Server::new(3_000);
    let before = server.fill();
    server.sign(state_digest(&before.digests));
    assert!(server.check(true).is_well());
    let rebuilt = server.run().unwrap();
    assert_eq!(rebuilt.state, before);
    assert_eq!((rebuilt.from, rebuilt.entries), (0, 3_000));
    let with: Vec<_> = rebuilt.compared.iter().map(|one| &*one.with).collect();
    assert!(
        with.contains(&build_record::OLD) && with.contains(&build_record::CHECKPOINT),
        "{with:?}"
    );
    assert!(rebuilt.compared.iter().all(|one| one.different.is_empty()));
    assert_eq!(server.state(), before);
    assert!(
        server.check(true).is_well(),
        "every entry is as batches write it"
    );
    let kept = rebuilt.kept.unwrap();
    let old = Projections::open(&kept, DatabaseOptions::dev()).unwrap().0;
    assert_eq!(StateAt::of(&old), before);
    drop(old);
    assert_eq!(super::kept(&server.live()).unwrap().len(), 1);
    assert_eq!(discard(&server.live()).unwrap(), 1);
    assert!(!kept.exists() && server.live().exists());
    assert!(!beside(&server.live()).exists());
}

#[test]
fn a_cancelled_rebuild_leaves_the_old_database_and_goes_on_where_it_was() {
    let server = Server::new(20_000);
    let before = server.fill();
    let cancelled = AtomicBool::new(false);
    let stopped = server.rebuild(&cancelled).run(&mut |progress| {
        if progress.at > 8_000 {
            cancelled.store(true, Ordering::Relaxed);
        }
    });
    assert!(stopped.unwrap_err().is_cancelled());
    assert_eq!(server.state(), before, "the old one is in use");
    assert!(super::kept(&server.live()).unwrap().is_empty());
    let rebuilt = server.run().unwrap();
    assert!(rebuilt.from > 8_000, "it went on from {}", rebuilt.from);
    assert_eq!(rebuilt.state, before);
    assert!(server.check(true).is_well());
}

#[test]
fn what_another_drover_began_is_begun_again() {
    let server = Server::new(9_000);
    let before = server.fill();
    let cancelled = AtomicBool::new(true);
    server.rebuild(&cancelled).run(&mut |_| ()).unwrap_err();
    let record = beside(&server.live()).join("rebuild.json");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(
        &record,
        text.replace(crate::base::version::VERSION, "99.0.0"),
    )
    .unwrap();
    let rebuilt = server.run().unwrap();
    assert_eq!((rebuilt.from, rebuilt.state), (0, before));
}

#[test]
fn a_kill_between_the_steps_of_the_switch_leaves_one_database_in_use() {
    let server = Server::new(500);
    let before = server.fill();
    let work = beside(&server.live());
    // They have changed places, and the old one was not retired yet.
    fs::create_dir(&work).unwrap();
    fs::write(work.join("old"), "").unwrap();
    let rebuilt = server.run().unwrap();
    assert_eq!(rebuilt.state, before);
    let kept = super::kept(&server.live()).unwrap();
    assert!(
        kept.iter().any(|(path, _)| path.join("old").exists()),
        "{kept:?}"
    );
    // The old one was retired, and the new one did not take its place yet.
    fs::rename(server.live(), server.dir.path().join("elsewhere")).unwrap();
    assert_eq!(server.run().unwrap().state, before);
    assert_eq!(server.state(), before);
}

#[test]
fn a_switch_beside_a_server_is_finished_wherever_it_was_killed() {
    let server = Server::new(300);
    let before = server.fill();
    let (home, log) = (server.live(), server.log());
    let pointer = home.with_extension("in-use");
    finish_switch(&log, &home).unwrap();
    for (old_is_there, second) in [(true, false), (false, false), (true, true), (false, true)] {
        // The new database is in use where it was built, the old one in its place or retired.
        let mut new = beside(&home);
        if second {
            new = switch::beside_serving(&home, &new);
        }
        fs::rename(&home, &new).unwrap();
        fs::write(damage_mark(&new), "worn").unwrap();
        fs::write(&pointer, new.file_name().unwrap().as_encoded_bytes()).unwrap();
        if old_is_there {
            fs::create_dir(&home).unwrap();
            fs::write(home.join("old"), "").unwrap();
            fs::write(damage_mark(&home), "old").unwrap();
        }
        {
            let _running = lock(&log).unwrap();
            let error = finish_switch(&log, &home).unwrap_err();
            assert!(matches!(error, RebuildError::Busy { .. }), "{error}");
        }
        finish_switch(&log, &home).unwrap();
        assert!(!pointer.exists() && !new.exists());
        assert_eq!(fs::read_to_string(damage_mark(&home)).unwrap(), "worn");
        fs::remove_file(damage_mark(&home)).unwrap();
        assert_eq!(server.state(), before);
        let kept = super::kept(&home).unwrap();
        assert_eq!(kept.len(), usize::from(old_is_there), "{kept:?}");
        discard(&home).unwrap();
    }
    // It had come home, and the pointer was not gone yet.
    fs::write(&pointer, "projections-rebuild").unwrap();
    finish_switch(&log, &home).unwrap();
    assert_eq!(server.state(), before);
    assert!(!pointer.exists());
}

#[test]
fn damage_in_the_log_is_named_and_the_old_database_stays_in_use() {
    let server = Server::new(5_000);
    let before = server.fill();
    let segment = fs::read_dir(server.log())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .min()
        .unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[60_000] ^= 0x10;
    fs::write(&segment, bytes).unwrap();
    let error = chain(&server.run().unwrap_err());
    let name = segment.file_name().unwrap().to_string_lossy();
    for part in [&*name, "offset", "index"] {
        assert!(error.contains(part), "{part} is not named: {error}");
    }
    assert_eq!(server.state(), before);
}

#[test]
fn a_result_that_is_not_what_was_signed_is_refused_unless_forced() {
    let server = Server::new(400);
    let before = server.fill();
    server.sign([9; 32]);
    let error = server.run().unwrap_err();
    assert!(
        matches!(error, RebuildError::Forged { index: 399 }),
        "{error}"
    );
    assert_eq!(server.state(), before);
    assert!(super::kept(&server.live()).unwrap().is_empty());
    let cancelled = AtomicBool::new(false);
    let forced = Rebuild {
        force: true,
        discard_old: true,
        ..server.rebuild(&cancelled)
    };
    assert_eq!(forced.run(&mut |_| ()).unwrap().kept, None);
    assert!(super::kept(&server.live()).unwrap().is_empty());
}

#[test]
fn two_rebuilds_do_not_run_at_once() {
    let server = Server::new(10);
    server.fill();
    let _lock = lock(&server.log()).unwrap();
    let error = server.run().unwrap_err();
    assert!(matches!(error, RebuildError::Busy { .. }), "{error}");
}

#[test]
fn an_empty_log_gives_nothing_to_build() {
    let dir = tempfile::tempdir().unwrap();
    let options = crate::log::LogOptions::journal();
    LogEngine::open(&dir.path().join("log"), options)
        .unwrap()
        .0
        .close();
    let cancelled = AtomicBool::new(false);
    let live = dir.path().join("projections");
    let rebuild = Rebuild::of(
        &dir.path().join("log"),
        &live,
        &DatabaseOptions::dev(),
        &cancelled,
    );
    let error = rebuild.run(&mut |_| ()).unwrap_err();
    assert!(matches!(error, RebuildError::Empty), "{error}");
}

#[test]
fn a_changed_entry_is_found_by_a_check_and_gone_after_a_rebuild() {
    let server = Server::new(1_000);
    server.fill();
    let db = Maintenance::open(server.live(), &DatabaseOptions::dev()).unwrap();
    let header = db.header().unwrap().unwrap();
    let entries = db.entries(FamilyPart::Index, &[], 1).unwrap();
    let rows = db.entries(FamilyPart::Rows, &[0, 28], 1).unwrap();
    let (key, mut value) = rows[0].clone();
    *value.last_mut().unwrap() ^= 1;
    let changes = [
        RawChange::Delete(FamilyPart::Index, entries[0].0.clone()),
        RawChange::Put(FamilyPart::Rows, key, value),
    ];
    db.write(&changes, &header).unwrap();
    drop(db);
    let checked = server.check(false);
    assert_eq!(
        (checked.damaged, checked.different),
        (vec!["variables".to_owned()], vec![])
    );
    let found = server.check(true).differences;
    let reported: Vec<_> = found.iter().map(|d| (d.family, d.what)).collect();
    assert_eq!(
        reported,
        [("rows", "has another value"), ("index", "is missing")]
    );
    fs::write(damage_mark(&server.live()), "found while serving").unwrap();
    server.run().unwrap();
    assert!(server.check(true).is_well());
    assert!(!damage_mark(&server.live()).exists());
}

#[test]
fn the_tables_of_a_log_are_compared_with_every_checkpoint() {
    let server = Server::new(900);
    let before = server.fill();
    let digests_to = |to: Option<u64>| {
        let scratch = tempfile::tempdir().unwrap();
        let check = DigestCheck {
            also: Vec::new(),
            signed_to: u64::MAX,
            log_dir: server.log(),
            to,
            scratch: scratch.path().to_owned(),
            cancelled: &AtomicBool::new(false),
        };
        check.run(&mut |_| ()).unwrap()
    };
    let digests = || digests_to(None);
    assert_eq!((digests().entries, digests().checkpoints), (900, 0));
    assert_eq!(digests_to(Some(299)).entries, 300);
    server.sign(state_digest(&before.digests));
    let checked = digests();
    assert_eq!((checked.checkpoints, checked.findings.len()), (1, 0));
    fs::remove_file(server.dir.path().join("checkpoints")).unwrap();
    server.sign([7; 32]);
    let found = digests().findings;
    assert_eq!(found.len(), 1);
    let what = &found[0].what;
    assert!(what.contains("part between 0 and 899"), "{what}");
}

#[test]
fn what_is_signed_beside_the_log_and_what_is_said_elsewhere_are_counted_apart() {
    let server = Server::new(300);
    let end = server.fill();
    server.sign(state_digest(&end.digests));
    let scratch = tempfile::tempdir().unwrap();
    let log = server.log();
    let half = replay::replay(&log, scratch.path(), Some(149), &mut |_, _| ()).unwrap();
    let checkpoint = |of: &StateAt| Checkpoint {
        origin: "drover/elsewhere".to_owned(),
        size: of.index + 1,
        root: [0; 32],
        index: of.index,
        time: of.time,
        state: state_digest(&of.digests),
    };
    let counted = |also: &[&StateAt]| {
        let scratch = tempfile::tempdir().unwrap();
        let check = DigestCheck {
            also: also.iter().copied().map(checkpoint).collect(),
            signed_to: u64::MAX,
            log_dir: server.log(),
            to: None,
            scratch: scratch.path().to_owned(),
            cancelled: &AtomicBool::new(false),
        };
        let checked = check.run(&mut |_| ()).unwrap();
        assert!(checked.findings.is_empty(), "{:?}", checked.findings);
        (checked.checkpoints, checked.also)
    };
    assert_eq!(counted(&[]), (1, 0));
    assert_eq!(counted(&[&half.state]), (1, 1));
    assert_eq!(counted(&[&end]), (1, 1), "of the index that was signed");
    assert_eq!(counted(&[&half.state, &end]), (1, 2));
}

#[test]
fn the_state_of_an_index_is_what_a_fold_to_it_gives() {
    let server = Server::new(600);
    server.fill();
    let make = |index, out: &str| {
        let made = Materialise {
            log_dir: server.log(),
            index,
            out: server.dir.path().join(out),
            json: true,
            cancelled: &AtomicBool::new(false),
        };
        made.run(&mut |_| ())
    };
    for index in [0, 1, 2, 333, 599] {
        let out = format!("at-{index}");
        let made = make(index, &out).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let folded = replay::replay(&server.log(), scratch.path(), Some(index), &mut |_, _| ());
        assert_eq!(made.state, folded.unwrap().state, "at {index}");
        let tables = server.dir.path().join(out).join("tables");
        for (table, rows) in &made.rows {
            let text = fs::read_to_string(tables.join(format!("{table}.ndjson"))).unwrap();
            assert_eq!(text.lines().count() as u64, *rows, "{table} at {index}");
        }
    }
    let late = make(600, "late").unwrap_err();
    assert!(late.to_string().contains("ends before index 600"), "{late}");
    let there = make(5, "at-1").unwrap_err();
    assert!(matches!(there, RebuildError::File { .. }), "{there}");
}

#[test]
fn a_former_database_closes_once_nobody_reads_it_and_nobody_waits_for_that() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let recorded = drover_migrations::decode(&body(0).1).unwrap();
    let filled = |path: &Path| {
        let (_, mut writer) = Projections::open(path, DatabaseOptions::dev()).unwrap();
        writer.apply(std::slice::from_ref(&recorded)).unwrap();
        writer
    };
    let mut writer = filled(&old);
    let read = writer.projections().view();
    let Ok(former) = writer.switch(filled(&new), false, &mut || Ok(())) else {
        panic!("they are equal");
    };
    online::close_later(former);
    let open = || Projections::open(&old, DatabaseOptions::dev()).map(drop);
    assert!(open().is_err(), "somebody reads there");
    drop(read);
    wait_for("it to be closed", LONG, open).unwrap();
}
