//! Tests of the engine as a whole, on tables of its own, against a plain fold of the same events.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use proptest::prelude::*;

use crate::engine::db::Family;
use crate::engine::key::{Id, Key};
use crate::engine::outcome::Outcome;
use crate::engine::scan::{Prefix, Scan, ScanSource};
use crate::engine::table::Table;
use crate::read::lists::{List, ListPart, Listed};
pub(crate) use crate::store::things_test::*;
use crate::{DatabaseOptions, Projections, StorageError, View, Writer};

pub(crate) fn open(path: &Path) -> (std::sync::Arc<Projections>, Writer) {
    with(path, |_| ())
}

/// The same with other options.
pub(crate) fn with(
    path: &Path,
    change: impl FnOnce(&mut DatabaseOptions),
) -> (std::sync::Arc<Projections>, Writer) {
    let mut options = DatabaseOptions::dev();
    change(&mut options);
    Projections::open_with(path, options, &TABLES).unwrap()
}

pub(crate) fn apply(writer: &mut Writer, steps: &[Step], chunks: &[usize]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut rest = steps;
    let mut chunks = chunks.iter().cycle();
    while !rest.is_empty() {
        let take = (*chunks.next().unwrap()).clamp(1, rest.len());
        let applied = writer.apply_batch(&rest[..take]).unwrap();
        rest = &rest[applied.len()..];
        outcomes.extend(applied.into_iter().map(|applied| applied.outcome));
    }
    outcomes
}

/// Every entry of every family but the kept digests' own bookkeeping.
pub(crate) fn dump(view: &View) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for family in Family::ALL {
        let source = ScanSource::Snapshot(&view.visible.db_snapshot);
        let mut walk = source.walk(family, Scan::all().absolute(&[]));
        while walk.advance().unwrap() {
            all.push((family.name(), walk.key().to_vec(), walk.value().to_vec()));
        }
    }
    all
}

/// What the table must hold after each step, computed the plain way.
pub(crate) fn expected(steps: &[Step]) -> Vec<BTreeMap<Id, Thing>> {
    let mut state = BTreeMap::new();
    let mut states = vec![state.clone()];
    for step in steps {
        let mut next = state.clone();
        let mut refused = false;
        for op in &step.ops {
            match op {
                Op::Put(thing) => drop(next.insert(Id::new(thing.id.as_str()), thing.clone())),
                Op::Delete(id) => drop(next.remove(&Id::new(id.as_str()))),
                Op::Rule(space) => next.retain(|_, thing| thing.space != *space),
                Op::Count(_) => {}
                Op::Refuse => {
                    refused = true;
                    break;
                }
            }
        }
        if !refused {
            state = next;
        }
        states.push(state.clone());
    }
    states
}

fn by_space(state: &BTreeMap<Id, Thing>, space: &str) -> Vec<Thing> {
    let mut things: Vec<_> = state
        .iter()
        .filter(|(_, thing)| thing.space == space)
        .map(|(id, thing)| ((thing.size, id.clone()), thing.clone()))
        .collect();
    things.sort_by(|a, b| a.0.cmp(&b.0));
    things.into_iter().map(|(_, thing)| thing).collect()
}

fn check_now(view: &View, state: &BTreeMap<Id, Thing>) {
    check_rows(view, state);
    for table in view.digests() {
        assert_eq!(
            table.digest,
            view.digest_of_rows(table.table).unwrap(),
            "digest of {}",
            table.name
        );
    }
}

/// Every way of reading gives what a plain fold gives.
pub(crate) fn check_rows(view: &View, state: &BTreeMap<Id, Thing>) {
    let rows: Vec<_> = view
        .scan::<Things>(Scan::all())
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(rows, state.values().cloned().collect::<Vec<_>>());
    let mut backwards: Vec<_> = view
        .scan::<Things>(Scan::all().reverse())
        .collect::<Result<_, _>>()
        .unwrap();
    backwards.reverse();
    assert_eq!(backwards, rows);
    for space in ["a", "b", ""] {
        let found: Vec<_> = view
            .by_index::<BySpace>(space)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(found, by_space(state, space), "index equals a full scan");
    }
    for color in ["red", "blue"] {
        let found: Vec<_> = view
            .by_index::<ByColor>(color)
            .collect::<Result<_, _>>()
            .unwrap();
        let wanted: Vec<_> = state
            .values()
            .filter(|thing| thing.color == color)
            .cloned()
            .collect();
        assert_eq!(found, wanted);
    }
    check_parts(view, state);
}

/// Walks that begin somewhere, in both directions, over rows and over all groups of an index.
fn check_parts(view: &View, state: &BTreeMap<Id, Thing>) {
    let things = |rows: Vec<Result<Thing, StorageError>>| -> Vec<Thing> {
        rows.into_iter().collect::<Result<_, _>>().unwrap()
    };
    for id in IDS {
        let key = Id::new(id);
        assert_eq!(view.get::<Things>(id).unwrap().as_ref(), state.get(&key));
        let encoded = key.to_bytes();
        let own = |keep: fn(&Id, &Id) -> bool| -> Vec<Thing> {
            let kept = state.iter().filter(|(at, _)| keep(at, &key));
            kept.map(|(_, thing)| thing.clone()).collect()
        };
        let walk = |scan: Scan| things(view.scan::<Things>(scan).collect());
        assert_eq!(walk(Scan::all().from(&encoded)), own(|at, key| at >= key));
        assert_eq!(walk(Scan::all().after(&encoded)), own(|at, key| at > key));
        let mut down = walk(Scan::all().reverse().from(&encoded));
        down.reverse();
        assert_eq!(down, own(|at, key| at <= key), "down from {id}");
        let mut down = walk(Scan::all().reverse().after(&encoded));
        down.reverse();
        assert_eq!(down, own(|at, key| at < key), "down behind {id}");
    }
    let all: Vec<_> = ["", "a", "b"]
        .iter()
        .flat_map(|space| by_space(state, space))
        .collect();
    let found = things(view.by_index_scan::<BySpace>(Scan::all()).collect());
    assert_eq!(found, all, "all groups of an index");
    let mut found = things(
        view.by_index_scan::<BySpace>(Scan::all().reverse())
            .collect(),
    );
    found.reverse();
    assert_eq!(found, all, "all groups of an index, backwards");
    let start = Prefix::new().str("a").u64(1);
    let scan = Scan::with_key_prefix::<String>("a").from(start.as_bytes());
    let found = things(view.by_index_scan::<BySpace>(scan).collect());
    let mut wanted = by_space(state, "a");
    wanted.retain(|thing| thing.size >= 1);
    assert_eq!(found, wanted, "a part of a group");
}

fn check_past(view: &View, states: &[BTreeMap<Id, Thing>]) -> Result<(), StorageError> {
    for (index, state) in states.iter().enumerate() {
        let index = index as u64;
        for id in IDS {
            let row = view.get_at::<Things>(id, index)?;
            assert_eq!(row.as_ref(), state.get(&Id::new(id)), "{id} at {index}");
        }
        let past = view.as_of(index, 0).expect("the index is applied");
        assert_eq!(past.index(), index);
        check_rows(&past, state);
        if past.is_past() {
            assert_eq!(
                past.scan::<Counters>(Scan::all()).count(),
                0,
                "no past is kept"
            );
        }
    }
    assert!(
        view.as_of(view.index() + 1, 0).is_none(),
        "the future is not known"
    );
    Ok(())
}

pub(crate) const IDS: [&str; 5] = [
    "0b156e3e-bb39-cc04-5170-80b70d217ba2",
    "0b156e3e-bb39-cc04-5170-80b70d217ba3",
    "plain",
    "pla\0in",
    "zulu",
];

fn id() -> impl Strategy<Value = String> {
    proptest::sample::select(&IDS[..]).prop_map(str::to_owned)
}

fn space() -> impl Strategy<Value = String> {
    proptest::sample::select(&["a", "b", ""][..]).prop_map(str::to_owned)
}

fn op() -> impl Strategy<Value = Op> {
    let color = proptest::sample::select(&["", "red", "blue"][..]).prop_map(str::to_owned);
    let put = (id(), space(), color, 0..3_u64).prop_map(|(id, space, color, size)| {
        Op::Put(Thing {
            id,
            space,
            color,
            size,
        })
    });
    prop_oneof![
        6 => put,
        2 => id().prop_map(Op::Delete),
        1 => space().prop_map(Op::Rule),
        1 => space().prop_map(Op::Count),
        1 => Just(Op::Refuse),
    ]
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ops = proptest::collection::vec(op(), 0..4);
    proptest::collection::vec(ops, 1..25).prop_map(numbered)
}

/// Steps with the indexes from 1 on.
pub(crate) fn numbered(ops: Vec<Vec<Op>>) -> Vec<Step> {
    let steps = ops.into_iter().enumerate();
    steps.map(|(at, ops)| step(at as u64 + 1, ops)).collect()
}

/// The operations of so many steps: rows come, change and go, some events are refused.
pub(crate) fn many_ops(count: u64) -> Vec<Vec<Op>> {
    let of = |at: u64| {
        let id = format!("{:08x}-0000-4000-8000-000000000000", at * 7_919 % 701);
        match at % 11 {
            3 => vec![Op::Delete(id)],
            5 => vec![Op::Put(thing(&id, at)), Op::Refuse],
            7 if at.is_multiple_of(13) => vec![Op::Rule("a".to_owned())],
            8 => vec![Op::Count("a".to_owned()), Op::Put(thing(&id, at % 3))],
            _ => vec![Op::Put(Thing {
                color: ["", "red", "blue"][(at % 3) as usize].to_owned(),
                ..thing(&id, at)
            })],
        }
    };
    (1..=count).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn ev_17_indexes_digests_and_the_past_equal_a_plain_fold(
        steps in steps(),
        chunks in proptest::collection::vec(1..9_usize, 1..5),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) = open(&dir.path().join("cut"));
        apply(&mut writer, &steps, &chunks);
        let states = expected(&steps);
        check_now(&projections.view(), states.last().unwrap());
        check_past(&projections.view(), &states).unwrap();

        // One event at a time gives the same bytes.
        let (single, mut writer) = open(&dir.path().join("single"));
        apply(&mut writer, &steps, &[1]);
        prop_assert_eq!(dump(&projections.view()), dump(&single.view()));
    }

    #[test]
    fn what_was_not_flushed_is_applied_again_to_the_same_state(
        steps in steps(),
        cut in 0..25_usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) = open(&dir.path().join("whole"));
        apply(&mut writer, &steps, &[4]);
        let whole = dump(&projections.view());

        let (crashed, mut writer) = open(&dir.path().join("crashed"));
        let cut = cut.min(steps.len());
        apply(&mut writer, &steps[..cut], &[3]);
        let flushed = writer.flush().unwrap();
        prop_assert_eq!(flushed, cut as u64);
        apply(&mut writer, &steps[cut..], &[5]);
        prop_assert_eq!(crashed.flushed().unwrap().index, cut as u64);
        // Files as a crash would leave them: what is only in memory is not copied.
        copy_files(&dir.path().join("crashed"), &dir.path().join("copy"));
        let (again, mut writer) = open(&dir.path().join("copy"));
        prop_assert_eq!(again.applied_index(), cut as u64);
        apply(&mut writer, &steps[cut..], &[2]);
        prop_assert_eq!(dump(&again.view()), whole);
    }
}

struct ThingList;

impl List for ThingList {
    type Table = Things;
    const BESIDE: &'static [u16] = &[Counters::ID];

    fn order(row: &Thing) -> crate::engine::key::KeyBuf {
        crate::Key::to_bytes(&(row.space.clone(), Id::new(row.id.as_str())))
    }

    fn render(_: &View, row: &Thing, out: &mut Vec<u8>) -> Result<(), StorageError> {
        out.extend_from_slice(format!("{}:{}", row.id.replace('\0', "-"), row.size).as_bytes());
        Ok(())
    }
}

fn text(parts: &[ListPart]) -> String {
    let parts: Vec<_> = parts.iter().map(|part| part.bytes().to_vec()).collect();
    String::from_utf8(parts.join(&b","[..])).unwrap()
}

/// Many rows, so that lists have several chunks.
fn many_steps() -> impl Strategy<Value = Vec<Step>> {
    let op = (0..400_u32, 0..9_u64).prop_map(|(id, size)| match size {
        0 => Op::Delete(format!("{id}")),
        size => Op::Put(Thing {
            id: format!("{id}"),
            space: if id % 3 == 0 { "a" } else { "b" }.to_owned(),
            color: String::new(),
            size,
        }),
    });
    proptest::collection::vec(proptest::collection::vec(op, 1..120), 1..12).prop_map(|steps| {
        let numbered = steps.into_iter().enumerate();
        numbered.map(|(at, ops)| step(at as u64 + 1, ops)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_rendered_list_equals_its_rows(steps in many_steps(), limit in 1..90_usize) {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) = open(dir.path());
        for step in &steps {
            apply(&mut writer, std::slice::from_ref(step), &[1]);
            let Listed::Ready(list) = projections.list::<ThingList>().unwrap() else {
                panic!("nobody else renders it, and it is small");
            };
            let mut rows: Vec<_> = projections
                .view()
                .scan::<Things>(Scan::all())
                .map(|row| row.unwrap())
                .map(|row| (ThingList::order(&row), format!("{}:{}", row.id, row.size)))
                .collect();
            rows.sort();
            prop_assert_eq!(list.index(), step.index);
            prop_assert_eq!(list.rows(), rows.len());
            let texts = |prefix: &[u8]| -> Vec<_> {
                let rows = rows.iter().filter(|(order, _)| order.starts_with(prefix));
                rows.map(|(_, text)| text.clone()).collect()
            };
            for prefix in [crate::Prefix::new(), crate::Prefix::new().str("a"), crate::Prefix::new().str("c")] {
                let wanted = texts(prefix.as_bytes());
                let (mut paged, mut from) = (Vec::new(), None);
                for pages in 0.. {
                    prop_assert!(pages < 10_000, "{:?}", from);
                    let page = list.page(prefix.as_bytes(), from.as_deref(), limit);
                    if page.rows > 0 {
                        paged.push(text(&page.parts));
                    }
                    prop_assert!(page.rows <= limit);
                    from = page.next;
                    if from.is_none() { break; }
                }
                prop_assert_eq!(paged.join(","), wanted.join(","));
                let (mut back, mut from) = (Vec::new(), None);
                for pages in 0.. {
                    prop_assert!(pages < 10_000, "{:?}", from);
                    let page = list.page_back(prefix.as_bytes(), from.as_deref(), limit);
                    back.extend(page.parts.iter().map(|part| text(std::slice::from_ref(part))));
                    from = page.next;
                    if from.is_none() { break; }
                }
                back.reverse();
                prop_assert_eq!(back, wanted);
            }
        }
    }
}

/// Copies a database that is in use, as a crash would leave it. RocksDB writes and removes files in
/// the background: a copy that was made while it did is made again.
fn copy_files(from: &Path, to: &Path) {
    let files = || -> std::io::Result<BTreeMap<OsString, u64>> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            files.insert(entry.file_name(), entry.metadata()?.len());
        }
        // Its own log, which says what it does, is no part of a database.
        files.retain(|name, _| name != "LOCK" && name != "LOG");
        Ok(files)
    };
    let copy = || -> std::io::Result<bool> {
        std::fs::create_dir(to)?;
        let before = files()?;
        for name in before.keys() {
            std::fs::copy(from.join(name), to.join(name))?;
        }
        Ok(files()? == before)
    };
    let tries = (0..100).any(|_| {
        let is_whole = copy().unwrap_or(false);
        if !is_whole {
            std::fs::remove_dir_all(to).unwrap();
        }
        is_whole
    });
    assert!(tries, "no complete copy in a hundred tries");
}

/// Text that no compression makes shorter, and that occurs once.
pub(crate) fn incompressible(seed: u64, length: usize) -> String {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + (state % 90) as u8)
    };
    (0..length).map(|_| next()).collect()
}

/// Damages these bytes in the files of a database, as a disk would.
pub(crate) fn damage(path: &Path, part: &[u8]) {
    let mut found = 0;
    for entry in std::fs::read_dir(path).unwrap() {
        let file = entry.unwrap().path();
        let Ok(mut bytes) = std::fs::read(&file) else {
            continue;
        };
        let is_table = file.extension().is_some_and(|ending| ending == "sst");
        let at = bytes.windows(part.len()).position(|window| window == part);
        if let Some(at) = at.filter(|_| is_table) {
            bytes[at + part.len() / 2] ^= 1;
            std::fs::write(&file, bytes).unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "they are in a file");
}

pub(crate) fn thing(id: &str, size: u64) -> Thing {
    Thing {
        id: id.to_owned(),
        space: "a".to_owned(),
        color: "red".to_owned(),
        size,
    }
}

pub(crate) fn step(index: u64, ops: Vec<Op>) -> Step {
    Step {
        index,
        ops,
        guards: Vec::new(),
    }
}
