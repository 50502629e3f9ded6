//! The simulation can fail: a disk that says it has synced and has not is found out.

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;

use drover::log::{FileLayer, LogFile};
use drover_fake_disk::FakeDisk;

use crate::no_acknowledged_write_is_lost;
use crate::story::{self, Disk};

/// The disk, but that no sync of a file reaches it.
pub(crate) struct LyingDisk(pub(crate) FakeDisk);

struct LyingFile(Arc<dyn LogFile>);

impl LogFile for LyingFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_size(size)
    }
}

fn lying(file: Arc<dyn LogFile>) -> Arc<dyn LogFile> {
    Arc::new(LyingFile(file))
}

impl FileLayer for LyingDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_private_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn LogFile>> {
        self.0.create(path, size).map(lying)
    }

    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.0.create_private(path).map(lying)
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn LogFile>> {
        self.0.open(path, write).map(lying)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        self.0.remove_tree(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.0.lock(dir)
    }
}

/// What a server says that lost what it had acknowledged: a write is gone or another, or the log
/// has not what it must.
const LOSSES: [&str; 2] = [" is now ", "the log opens: Corrupt"];

#[test]
fn a_disk_that_lies_is_found_out_with_the_line_that_runs_its_seed_again() {
    let outcome = std::panic::catch_unwind(|| {
        story::run_on(
            Disk::Lying,
            "lying_disk",
            no_acknowledged_write_is_lost::holds,
        );
    });
    let reported = outcome.expect_err("writes were lost and nobody noticed");
    let reported = reported.downcast_ref::<String>().expect("a text");
    let lost = LOSSES.iter().any(|loss| reported.contains(loss));
    assert!(lost, "it is no loss that was found: {reported}");
    let seed = reported
        .split_once("DROVER_SIM_SEED=")
        .map(|(_, rest)| rest);
    let seed = seed.and_then(|rest| rest.split(' ').next());
    let seed = seed.and_then(|seed| seed.parse().ok()).expect("a seed");
    // The disk alone is at fault: the same story on an honest one ends well.
    let honest = story::problem(seed, Disk::Honest, no_acknowledged_write_is_lost::holds);
    assert_eq!(honest, None);
}
