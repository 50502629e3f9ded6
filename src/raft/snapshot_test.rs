//! Snapshots on a disk that loses what was not synced.

use std::time::Instant;

use drover_testkit::{LONG, moment};

use super::*;
use drover_fake_disk::{FakeDisk, Op};

const DIR: &str = "/data/server/snapshots";
const OPS: [Op; 6] = [
    Op::Create,
    Op::Write,
    Op::Sync,
    Op::Rename,
    Op::Remove,
    Op::SyncDir,
];

fn head(index: u64, time: i64) -> SnapshotHead {
    SnapshotHead {
        last: Some((1, index)),
        time,
        ..SnapshotHead::default()
    }
}

fn files_of(index: u64) -> [(String, Vec<u8>); 3] {
    ["rows-00000.sst", "index-00001.sst", "manifest.json"].map(|name| {
        (
            name.to_owned(),
            format!("{name} of {index} ").repeat(90).into(),
        )
    })
}

/// Builds one as the builder does; the state's files are written by others, and not synced.
fn build(snapshots: &Snapshots, head: &SnapshotHead, index: u64) -> io::Result<()> {
    let scratch = snapshots.scratch()?;
    snapshots.files.create_dir(&scratch.state())?;
    for (name, content) in files_of(index) {
        let file = snapshots.files.create(&scratch.state().join(name), 0)?;
        file.write_at(&content, 0)?;
    }
    scratch.put_head(head)?;
    snapshots.add(head, scratch).map(drop)
}

fn open(disk: &FakeDisk) -> Snapshots {
    Snapshots::open_on(Arc::new(disk.clone()), PathBuf::from(DIR)).unwrap()
}

/// The index of the current one, of which every file is whole.
fn current(disk: &FakeDisk) -> Option<(u64, i64)> {
    let (head, dir) = open(disk).current().unwrap()?;
    let index = head.last.unwrap().1;
    for (name, content) in files_of(index) {
        let found = disk.content(&dir.state().join(&name));
        assert!(
            found.as_ref() == Some(&content),
            "{name} of {index} is not whole"
        );
    }
    Some((index, head.time))
}

#[test]
fn a_snapshot_that_was_made_is_whole_whenever_the_power_goes() {
    for seed in 0..60 {
        let disk = FakeDisk::default();
        build(&open(&disk), &head(7, 1), 7).unwrap();
        assert_eq!(current(&disk.power_cut(seed)), Some((7, 1)), "seed {seed}");
    }
}

#[test]
fn until_the_next_is_there_for_certain_the_former_is() {
    // A later one, and one of the same place.
    for next in [9, 7] {
        let disk = FakeDisk::default();
        build(&open(&disk), &head(7, 1), 7).unwrap();
        for op in OPS {
            let mut at = 0;
            loop {
                assert!(at < 1_000, "{op:?} without end");
                let trial = disk.fork();
                let snapshots = open(&trial);
                trial.fail(op, at, 1);
                let built = build(&snapshots, &head(next, 2), next);
                for seed in 0..6 {
                    let place = format!("{op:?} {at} failed, seed {seed}");
                    let found = current(&trial.power_cut(seed));
                    let found = found.unwrap_or_else(|| panic!("{place}: there is none"));
                    let either = found == (next, 2) || found == (7, 1);
                    assert!(
                        either && (built.is_err() || found.0 == next),
                        "{place}: {found:?}"
                    );
                }
                if trial.failed() == 0 {
                    break;
                }
                at += 1;
            }
        }
    }
}

#[test]
fn one_of_the_same_place_replaces_the_former_unless_that_is_signed() {
    let disk = FakeDisk::default();
    let snapshots = open(&disk);
    build(&snapshots, &head(7, 1), 7).unwrap();
    build(&snapshots, &head(7, 2), 7).unwrap();
    let all = |disk: &FakeDisk| {
        let files: Arc<dyn FileLayer> = Arc::new(disk.clone());
        let found = SnapshotDir::complete(&files, Path::new(DIR)).unwrap();
        found.into_iter().map(|(_, dir)| dir).collect::<Vec<_>>()
    };
    assert_eq!((all(&disk).len(), current(&disk)), (1, Some((7, 2))));
    let signed = all(&disk).remove(0);
    let note = signed.path().join("note");
    atomic_file::put_on(&disk, &note, b"signed").unwrap();
    build(&snapshots, &head(7, 3), 7).unwrap();
    assert_eq!((all(&disk).len(), current(&disk)), (2, Some((7, 3))));
    snapshots.keep_only(&all(&disk)[1]).unwrap();
    assert_eq!(all(&disk).len(), 1);
}

#[test]
fn who_reads_while_old_ones_are_removed_finds_those_that_stay() {
    let dir = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::open(dir.path().to_owned()).unwrap();
    build(&snapshots, &head(1, 1), 1).unwrap();
    let stays = snapshots.current().unwrap().unwrap().1;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            let often = || {
                let found = SnapshotDir::all(dir.path()).unwrap();
                assert_eq!(found[0].0.last, Some((1, 1)));
                seen += usize::from(found.len() > 1);
                seen >= 30
            };
            let begun = Instant::now();
            assert!(moment(often, || begun.elapsed() > LONG), "others came");
        });
        let mut index = 2;
        while !reader.is_finished() {
            build(&snapshots, &head(index, 1), index).unwrap();
            snapshots.keep_only(&stays).unwrap();
            index += 1;
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_removed_snapshot_is_whole_or_gone() {
    for (op, at) in OPS
        .into_iter()
        .flat_map(|op| (0..6).map(move |at| (op, at)))
    {
        let disk = FakeDisk::default();
        let snapshots = open(&disk);
        build(&snapshots, &head(7, 1), 7).unwrap();
        build(&snapshots, &head(9, 1), 9).unwrap();
        let (_, newest) = snapshots.current().unwrap().unwrap();
        disk.fail(op, at, 1);
        let _ = newest.remove();
        for seed in 0..6 {
            let found = current(&disk.power_cut(seed)).unwrap();
            assert!(found.0 == 7 || found.0 == 9);
        }
    }
}
