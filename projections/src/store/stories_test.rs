//! What the engine promises, one story each, on the tables of `engine_test`.

use drover_events::{EventId, EventKind, Guard, Topic};

use crate::engine::key::Id;
use crate::engine::outcome::{Outcome, Refused, Rejection, Reply};
use crate::engine::scan::Scan;
use crate::engine::table::Table;
use crate::engine::txn::{Ctx, Txn};
use crate::store::engine_test::*;
use crate::store::writer::GuardedEntry;
use crate::{Interest, StorageError, View};

#[test]
fn ev_20_a_refused_event_leaves_only_its_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    apply(&mut writer, &[step(1, vec![Op::Put(thing("x", 1))])], &[1]);
    let before = projections.view();
    let refused = step(
        2,
        vec![
            Op::Put(thing("x", 2)),
            Op::Put(thing("y", 2)),
            Op::Delete("x".into()),
            Op::Refuse,
        ],
    );
    let outcomes = apply(&mut writer, &[refused], &[1]);
    let reason = Rejection::Rule {
        message: "refused half-way".into(),
    };
    assert_eq!(outcomes, [Outcome::Rejected(reason.clone())]);
    let after = projections.view();
    assert_eq!(after.rejection(2).unwrap(), Some(reason));
    assert_eq!(after.rejection(1).unwrap(), None);
    assert_eq!(after.modify_index::<Things>("x").unwrap(), Some(1));
    assert_eq!(after.table_index::<Things>(), 1);
    assert_eq!(after.digests(), before.digests());
    let data = |view: &View| {
        let mut all = dump(view);
        all.retain(|(family, ..)| *family != "meta");
        all
    };
    assert_eq!(data(&after), data(&before));
}

#[test]
fn guards_are_checked_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    apply(&mut writer, &[step(1, vec![Op::Put(thing("x", 1))])], &[1]);
    let view = projections.view();
    let guarded = |index, guards| Step {
        guards,
        ..step(index, vec![Op::Put(thing("x", index))])
    };
    let held = vec![
        view.guard::<Things>("x").unwrap(),
        view.guard::<Things>("y").unwrap(),
        Guard::CountBelow {
            table: Things::ID,
            prefix: bytes::Bytes::new(),
            limit: 2,
        },
        Guard::NodeMark {
            node: "n".into(),
            mark: EventId::ZERO,
        },
    ];
    // Both in one batch: the second sees what the first wrote.
    let outcomes = apply(
        &mut writer,
        &[guarded(2, held.clone()), guarded(3, held.clone())],
        &[2],
    );
    assert_eq!(outcomes[0], Outcome::Applied(Reply::None));
    assert_eq!(
        outcomes[1],
        Outcome::Rejected(Rejection::Guard {
            position: 0,
            found: 2
        })
    );
    let refuses = |guard: Guard, found| {
        let index = projections.applied_index() + 1;
        let dir = guarded(index, vec![guard]);
        (dir, Rejection::Guard { position: 0, found })
    };
    let absent = Guard::RowAbsent {
        table: Things::ID,
        key: bytes::Bytes::copy_from_slice(&crate::Key::to_bytes(&Id::new("x"))),
    };
    let few = Guard::CountBelow {
        table: Things::ID,
        prefix: bytes::Bytes::new(),
        limit: 1,
    };
    let mark = Guard::NodeMark {
        node: "n".into(),
        mark: EventId([1; 16]),
    };
    for (guard, found) in [(absent, 2), (few, 1), (mark, 0)] {
        let (step, wanted) = refuses(guard, found);
        let outcomes = apply(&mut writer, &[step], &[1]);
        assert_eq!(outcomes, [Outcome::Rejected(wanted)]);
    }
}

#[test]
fn changes_and_postings_tell_what_happened_once_per_row() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let steps = [
        step(1, vec![Op::Put(thing("x", 1)), Op::Put(thing("y", 1))]),
        step(2, vec![Op::Put(thing("x", 2)), Op::Put(thing("x", 3))]),
        step(3, vec![Op::Delete("x".into())]),
        step(4, vec![Op::Put(thing("v", 1)), Op::Delete("v".into())]),
        step(5, vec![Op::Put(thing("z", 1))]),
        step(6, vec![Op::Rule("a".into())]),
    ];
    apply(&mut writer, &steps, &[3]);
    let view = projections.view();
    let reported: Vec<_> = view
        .changes(1)
        .flat_map(|event| event.unwrap())
        .map(|change| {
            let keys = change.stream_keys.join(",");
            (change.index, change.seq, change.operation, keys)
        })
        .collect();
    use crate::Operation::{Delete, Put, Rule};
    let wanted = [
        (1, 0, Put, "x,red"),
        (1, 1, Put, "y,red"),
        (2, 0, Put, "x,red"),
        (3, 0, Delete, "x,red"),
        (5, 0, Put, "z,red"),
        (6, 0, Rule, "*"),
    ];
    let wanted = wanted.map(|(index, seq, operation, keys)| (index, seq, operation, keys.into()));
    assert_eq!(reported, wanted);
    let posted = |key| -> Vec<u64> {
        view.postings(Topic::Job, "a", key, 2)
            .collect::<Result<_, _>>()
            .unwrap()
    };
    assert_eq!(posted("red"), [2, 3, 5]);
    assert_eq!(posted("*"), [6]);
    let versions = view.versions::<Things>("x").unwrap();
    let spans: Vec<_> = versions
        .iter()
        .map(|version| {
            (
                version.from,
                version.until,
                version.deleted,
                version.row.size,
            )
        })
        .collect();
    assert_eq!(spans, [(1, Some(2), false, 1), (2, Some(3), true, 3)]);
}

#[test]
fn digests_are_kept_at_every_1024th_index() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let steps: Vec<_> = (1..=2_100)
        .map(|index| {
            step(
                index,
                vec![Op::Put(thing(&format!("{}", index % 7), index))],
            )
        })
        .collect();
    apply(&mut writer, &steps[..1_024], &[100]);
    let then = projections.view().digests();
    apply(&mut writer, &steps[1_024..], &[1_000]);
    let view = projections.view();
    assert_eq!(view.digests_at(1_024).unwrap(), Some(then));
    assert!(view.digests_at(2_048).unwrap().is_some());
    assert_eq!(view.digests_at(1_023).unwrap(), None);
}

#[test]
fn entries_out_of_order_stop_the_writer_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    apply(&mut writer, &[step(0, vec![]), step(1, vec![])], &[2]);
    let gap = [
        step(2, vec![Op::Put(thing("x", 1))]),
        step(4, vec![Op::Put(thing("y", 1))]),
    ];
    assert!(matches!(
        writer.apply_batch(&gap),
        Err(StorageError::OutOfOrder { applied: 2, got: 4 })
    ));
    assert_eq!(projections.applied_index(), 1);
    assert_eq!(projections.view().get::<Things>("x").unwrap(), None);
    apply(&mut writer, &gap[..1], &[1]);
    assert_eq!(
        projections.view().get::<Things>("x").unwrap(),
        Some(thing("x", 1))
    );
    assert_eq!(projections.view().table_index::<Things>(), 2);
}

#[test]
fn ev_10_a_view_stays_at_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    apply(&mut writer, &[step(1, vec![Op::Put(thing("x", 1))])], &[1]);
    let view = projections.view();
    apply(&mut writer, &[step(2, vec![Op::Delete("x".into())])], &[1]);
    drop(writer);
    assert_eq!(view.get::<Things>("x").unwrap(), Some(thing("x", 1)));
    assert_eq!(view.index(), 1);
    assert_eq!(view.time(), 1_000);
    assert_eq!(projections.view().get::<Things>("x").unwrap(), None);
    assert_eq!(projections.view().table_index::<Things>(), 2);
}

#[test]
fn identifiers_are_found_by_the_beginning_of_their_text() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let puts = IDS.map(|id| Op::Put(thing(id, 1)));
    apply(&mut writer, &[step(1, puts.to_vec())], &[1]);
    let view = projections.view();
    for text in [
        "",
        "0",
        "0b1",
        "0b156e3e-",
        "0b156e3e-bb39-cc04-5170-80b70d217ba3",
        "pl",
        "x",
    ] {
        let scans = Scan::id_prefix(&crate::Prefix::new(), text);
        let found: Vec<_> = scans
            .into_iter()
            .flat_map(|scan| view.scan::<Things>(scan))
            .map(|thing| thing.unwrap().id)
            .collect();
        let wanted: Vec<_> = IDS.iter().filter(|id| id.starts_with(text)).collect();
        let mut sorted = found.clone();
        sorted.sort();
        let mut wanted: Vec<_> = wanted.into_iter().map(|id| (*id).to_owned()).collect();
        wanted.sort();
        assert_eq!(sorted, wanted, "prefix {text:?}");
    }
}

/// Keys, rows, index entries, history, changes, postings, digests and the position, byte by byte:
/// a database written by any version is read by every later one.
#[test]
fn stored_bytes_are_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let puts = IDS.map(|id| Op::Put(thing(id, 300)));
    let steps = [
        step(1_022, puts.to_vec()),
        step(
            1_023,
            vec![Op::Put(thing("zulu", 2)), Op::Count("a".into())],
        ),
        step(
            1_024,
            vec![Op::Delete("plain".into()), Op::Put(thing("new", 1))],
        ),
        step(1_025, vec![Op::Refuse]),
        step(1_026, vec![Op::Rule("a".into())]),
    ];
    apply(&mut writer, &steps, &[2]);
    let mut all = Vec::new();
    for (family, key, value) in dump(&projections.view()) {
        for part in [family.as_bytes(), &key, &value] {
            all.extend_from_slice(&(part.len() as u32).to_be_bytes());
            all.extend_from_slice(part);
        }
    }
    let hash = crate::Digest::of_row(0, b"", &all);
    assert_eq!(
        hash.to_hex(),
        "b0897ad12ab88aa7722241c1cf4b92e94335212531d7c481ae506705d605c4e8"
    );
}

/// The event that a backup became the base of the log.
struct Restored(u64);

impl GuardedEntry for Restored {
    fn ctx(&self) -> Ctx {
        Ctx {
            kind: EventKind::ClusterRestored,
            ..step(self.0, Vec::new()).ctx()
        }
    }

    fn guards(&self) -> &[Guard] {
        &[]
    }

    fn run(&self, _: &mut Txn<'_>, _: &Ctx) -> Result<Reply, Refused> {
        Ok(Reply::None)
    }
}

#[test]
fn who_waits_for_a_row_is_woken_when_a_backup_became_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) = open(dir.path());
    let put = |index, id: &str| [step(index, vec![Op::Put(thing(id, index))])];
    apply(&mut writer, &put(1, "x"), &[1]);
    let waiter = || {
        projections
            .watch()
            .register(&[Interest::row::<Things>("x")])
    };
    let before = waiter();
    apply(&mut writer, &put(2, "y"), &[1]);
    assert!(!before.is_woken(), "another row was written");
    writer.apply_batch(&[Restored(3)]).unwrap();
    assert!(before.is_woken(), "the row may be another now");
    assert_eq!(projections.view().table_index::<Things>(), 3);
    // What follows is as it was before.
    let after = waiter();
    apply(&mut writer, &put(4, "y"), &[1]);
    assert!(!after.is_woken());
}
