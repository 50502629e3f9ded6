//! The power goes while the beginning of a log is given up for a base and an archive.

use std::any::Any;
use std::io;
use std::path::PathBuf;

use drover_testkit::LONG;
use parking_lot::Mutex;

use super::*;
use crate::history::backup::base::NOTE;
use crate::log::{Entry, LogFile, LogOptions};
use drover_fake_disk::FakeDisk;

/// The machine's own disk, and one in memory on which the same is done: that one knows what would
/// be there if the power went.
#[derive(Clone, Default)]
struct Mirror(Arc<Both>);

#[derive(Default)]
struct Both {
    memory: FakeDisk,
    /// Held while something is done on both.
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The disk after each operation, while that is watched.
    disks: Option<Vec<FakeDisk>>,
    /// How many more operations work, where one is to fail.
    works: Option<u64>,
}

impl Mirror {
    fn files(&self) -> Arc<dyn FileLayer> {
        Arc::new(self.clone())
    }

    /// Does something here and there.
    fn both<T, U>(
        &self,
        here: impl FnOnce() -> io::Result<T>,
        there: impl FnOnce(&FakeDisk) -> io::Result<U>,
    ) -> io::Result<(T, U)> {
        let mut seen = self.0.seen.lock();
        match &mut seen.works {
            Some(0) => return Err(io::Error::other("killed")),
            Some(left) => *left -= 1,
            None => {}
        }
        let done = here()?;
        let same = there(&self.0.memory).expect("what is here is there");
        let memory = &self.0.memory;
        if let Some(disks) = &mut seen.disks {
            disks.push(memory.fork());
        }
        Ok((done, same))
    }

    fn file(&self, files: (Arc<dyn LogFile>, Arc<dyn LogFile>)) -> Arc<dyn LogFile> {
        let (here, there) = files;
        let mirror = self.clone();
        Arc::new(Mirrored {
            mirror,
            here,
            there,
        })
    }

    /// What is here in a directory is there as well, and on the disk.
    fn copy(&self, dir: &Path) {
        let memory = &self.0.memory;
        memory.create_dir(dir).unwrap();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.copy(&path);
                continue;
            }
            let file = memory.create(&path, 0).unwrap();
            file.write_at(&std::fs::read(&path).unwrap(), 0).unwrap();
            file.sync().unwrap();
        }
        memory.sync_dir(dir).unwrap();
    }
}

struct Mirrored {
    mirror: Mirror,
    here: Arc<dyn LogFile>,
    there: Arc<dyn LogFile>,
}

impl Mirrored {
    fn both(&self, does: impl Fn(&dyn LogFile) -> io::Result<()>) -> io::Result<()> {
        let there = |_: &FakeDisk| does(&*self.there);
        self.mirror.both(|| does(&*self.here), there).map(|_| ())
    }
}

impl LogFile for Mirrored {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.both(|file| file.write_at(bytes, offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.here.read_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.both(|file| file.sync())
    }

    fn size(&self) -> io::Result<u64> {
        self.here.size()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.both(|file| file.set_size(size))
    }
}

impl FileLayer for Mirror {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let done = self.both(|| RealFiles.create_dir(dir), |disk| disk.create_dir(dir));
        done.map(|_| ())
    }

    fn create_private_dir(&self, dir: &Path) -> io::Result<()> {
        let there = |disk: &FakeDisk| disk.create_private_dir(dir);
        let done = self.both(|| RealFiles.create_private_dir(dir), there);
        done.map(|_| ())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFiles.list(dir)
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let there = |disk: &FakeDisk| disk.create(path, size);
        let files = self.both(|| RealFiles.create(path, size), there)?;
        Ok(self.file(files))
    }

    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let there = |disk: &FakeDisk| disk.create_private(path);
        let files = self.both(|| RealFiles.create_private(path), there)?;
        Ok(self.file(files))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn LogFile>> {
        // No rename happens between the two.
        let _seen = self.0.seen.lock();
        let here = RealFiles.open(path, write)?;
        let there = self.0.memory.open(path, write)?;
        Ok(self.file((here, there)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let there = |disk: &FakeDisk| disk.rename(from, to);
        self.both(|| RealFiles.rename(from, to), there).map(|_| ())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let there = |disk: &FakeDisk| disk.remove(path);
        self.both(|| RealFiles.remove(path), there).map(|_| ())
    }

    fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        let there = |disk: &FakeDisk| disk.remove_tree(dir);
        self.both(|| RealFiles.remove_tree(dir), there).map(|_| ())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let there = |disk: &FakeDisk| disk.sync_dir(dir);
        self.both(|| RealFiles.sync_dir(dir), there).map(|_| ())
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        RealFiles.lock(dir)
    }
}

/// Small, so that there are several segments.
fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        zero_ahead: 2048,
        ..LogOptions::default()
    }
}

/// Where things lie, and what must be there.
struct Wanted {
    log: PathBuf,
    archive: PathBuf,
    base: SnapshotDir,
    /// What says that it is signed.
    note: Vec<u8>,
    entries: Vec<Entry>,
}

impl Wanted {
    /// The first event that is still in the log of this disk. Those before it are in the archive,
    /// and the log continues from a base that is signed.
    fn first(&self, disk: &FakeDisk) -> Result<u64, String> {
        let files: Arc<dyn FileLayer> = Arc::new(disk.clone());
        let opened = LogEngine::open_with(Arc::clone(&files), &self.log, small());
        let (log, _) = opened.map_err(|error| format!("the log does not open: {error}"))?;
        let (first, next) = log.bounds();
        let all = self.entries.len() as u64;
        if next < all {
            return Err(format!("the log ends before {next}"));
        }
        self.same(first..all, "the log", |index| {
            log.read(index).ok().flatten()
        })?;
        log.close();
        if first == 0 {
            return Ok(first);
        }
        let note = disk.content(&self.base.path().join(NOTE));
        if note.as_ref() != Some(&self.note) {
            return Err("the base is not signed".to_owned());
        }
        let base = SnapshotDir::on(Arc::clone(&files), self.base.path().to_owned());
        let last = base.head().ok().and_then(|head| head.last);
        if last.is_none_or(|(_, last)| last + 1 < first) {
            return Err(format!(
                "the log begins at {first} and the base ends at {last:?}"
            ));
        }
        let archive = ReadOnlyLog::open_with(files, &self.archive);
        let archive = archive.map_err(|error| format!("the archive does not open: {error}"))?;
        let copied = |index| archive.read(index).ok().flatten();
        self.same(0..first, "the archive", copied)?;
        Ok(first)
    }

    fn same(
        &self,
        mut range: std::ops::Range<u64>,
        place: &str,
        read: impl Fn(u64) -> Option<Entry>,
    ) -> Result<(), String> {
        let is_lost = |index: &u64| {
            let wanted = &self.entries[*index as usize];
            read(*index).is_none_or(|found| found.body != wanted.body)
        };
        match range.find(is_lost) {
            None => Ok(()),
            Some(index) => Err(format!("{place} has not event {index}")),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_power_goes_log_bases_and_archive_hold_every_event() {
    let mirror = Mirror::default();
    let world = World::on((mirror.files(), small())).await;
    for _ in 0..2 {
        world.write(30).await;
        world.roll().await;
    }
    world.write(10).await;
    let (index, base) = world.base().await;
    world.roll().await;
    world.write(5).await;
    mirror.copy(base.path());
    let base = SnapshotDir::on(mirror.files(), base.path().to_owned());
    let archive = world.dir.path().join("archive");
    let store = Store::on(mirror.files(), &archive);
    let epoch = hex::encode(world.log().epoch().id);
    let (_, next) = world.log().bounds();
    let entries = (0..next).map(|index| world.log().read(index).unwrap().unwrap());
    let mut wanted = Wanted {
        log: world.dir.path().join("server/log"),
        archive: archive.join(epoch).join("one").join("log"),
        base: base.clone(),
        note: Vec::new(),
        entries: entries.collect(),
    };

    mirror.0.seen.lock().disks = Some(Vec::new());
    let retention = &world.retention;
    assert_eq!(retention.sign(index, &base).await.unwrap(), None);
    wanted.note = std::fs::read(base.path().join(NOTE)).unwrap();
    let moved = retention.archive(index, &base, &store).await.unwrap();
    assert_eq!(moved.waits, None, "all below the base is sealed");
    retention.drop_below(index).await.unwrap();
    let log = world.log();
    let gone = || match log.segments()[0].first {
        0 => Err("the first segment is there"),
        _ => Ok(()),
    };
    drover_testkit::eventually("the beginning is dropped", LONG, gone)
        .await
        .unwrap();
    log.sync().unwrap();
    let disks = mirror.0.seen.lock().disks.take().unwrap();
    world.stop().await;

    let mut firsts = std::collections::BTreeSet::new();
    for (at, disk) in disks.iter().enumerate() {
        for seed in 0..3 {
            match wanted.first(&disk.power_cut(seed)) {
                Ok(first) => firsts.insert(first),
                Err(lost) => panic!("after {at} of {} operations: {lost}", disks.len()),
            };
        }
    }
    assert!(firsts.contains(&0) && firsts.len() > 1, "{firsts:?}");
}

/// A server that finds the note of a base by another process relies on the base, though that
/// process was killed before the base's name was on the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_that_somebody_signed_who_was_killed_is_signed_for_certain() {
    let world = World::start().await;
    world.write(10).await;
    let (_, base) = world.base().await;
    let key = world.retention.keyring.active().unwrap().checkpoint_key();
    let note = base.path().join(NOTE);
    for works in 0.. {
        assert!(works < 1_000, "operations without end");
        let mirror = Mirror::default();
        mirror.copy(base.path());
        let ours = SnapshotDir::on(mirror.files(), base.path().to_owned());
        mirror.0.seen.lock().works = Some(works);
        let killed = base::sign(&ours, &key).is_err();
        mirror.0.seen.lock().works = None;
        base::sign(&ours, &key).unwrap();
        for seed in 0..8 {
            let cut = mirror.0.memory.power_cut(seed).content(&note);
            assert_eq!(
                cut,
                std::fs::read(&note).ok(),
                "{works} worked, seed {seed}"
            );
        }
        std::fs::remove_file(&note).unwrap();
        if !killed {
            assert!(works > 3, "{works}");
            break;
        }
    }
    world.stop().await;
}
