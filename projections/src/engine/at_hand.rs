//! Reads that wait for nothing: answered from memory, or given up.
//!
//! A thread that serves others must not wait for the disk, and handing a look at one row to another
//! thread costs more than the look. So a few reads are tried where they are wanted, and made
//! elsewhere only where they need the disk.

use std::cell::Cell;

use rocksdb::{ReadOptions, ReadTier};

use crate::engine::error::StorageError;
use crate::engine::serving;

/// Bytes of rows that are read in one go: a few rows of jobs are as many as many others.
const BYTES: usize = 128 << 10;

thread_local! {
    /// How many more reads this thread makes from memory, and of how many bytes; none where it may
    /// wait.
    static LEFT: Cell<Option<(u32, usize)>> = const { Cell::new(None) };
    /// Whether one of them was given up.
    static MISSED: Cell<bool> = const { Cell::new(false) };
}

/// Takes the thread back to where it was, also when it panics.
struct Back(Option<(u32, usize)>, bool);

impl Drop for Back {
    fn drop(&mut self) {
        LEFT.set(self.0);
        MISSED.set(self.1);
    }
}

/// Does work whose reads on this thread are answered from memory, `most` rows and look-ups at most,
/// and 128 KiB. None if something has to be read from the disk, or there is more to read: what was
/// made so far is dropped, and the work is to be done again by a thread that may wait. So it must
/// not change anything, nor keep what it failed to read.
pub fn at_hand<T>(most: u32, work: impl FnOnce() -> T) -> Option<T> {
    let back = Back(LEFT.replace(Some((most, BYTES))), MISSED.replace(false));
    let made = work();
    let missed = MISSED.get();
    drop(back);
    (!missed).then_some(made)
}

/// One more read. Returns whether it may be answered from memory only.
pub(crate) fn read() -> Result<bool, StorageError> {
    match LEFT.get() {
        None => {
            serving::read();
            Ok(false)
        }
        Some((0, _)) => Err(missed()),
        Some(_) if MISSED.get() => Err(missed()),
        Some((left, bytes)) => {
            LEFT.set(Some((left - 1, bytes)));
            Ok(true)
        }
    }
}

/// So many bytes were read.
pub(crate) fn weigh(bytes: usize) -> Result<(), StorageError> {
    let Some((left, most)) = LEFT.get() else {
        return Ok(());
    };
    let most = most.checked_sub(bytes).ok_or_else(missed)?;
    LEFT.set(Some((left, most)));
    Ok(())
}

/// Whether reads are answered from memory only.
pub(crate) fn only() -> bool {
    LEFT.get().is_some()
}

/// Notes that something was not in memory.
pub(crate) fn missed() -> StorageError {
    MISSED.set(true);
    StorageError::WouldBlock
}

/// The options of reads that find only what is in memory.
pub(crate) fn options() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_read_tier(ReadTier::BlockCache);
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scan::Scan;
    use crate::read::view::View;
    use crate::store::things_test::{Op, Step, TABLES, Thing, Things};
    use crate::{DatabaseOptions, Projections};

    fn id(n: u64) -> String {
        format!("{n:08x}-0000-4000-8000-000000000000")
    }

    fn one(view: &View) -> Option<Thing> {
        view.get::<Things>(id(25).as_str()).unwrap()
    }

    fn all(view: &View) -> Result<usize, StorageError> {
        view.scan::<Things>(Scan::all())
            .try_fold(0, |count, thing| {
                thing?;
                Ok(count + 1)
            })
    }

    #[test]
    fn what_is_on_the_disk_is_left_to_who_may_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("at-hand");
        // Each part of the cache has space beside what write buffers take of it, and what is
        // written stays in those until it is flushed here.
        let options = || DatabaseOptions {
            block_cache: 256 << 20,
            write_buffers: 64 << 20,
            flush_bytes: usize::MAX,
            ..DatabaseOptions::dev()
        };
        let open = || Projections::open_with(&path, options(), &TABLES).unwrap();
        let (projections, mut writer) = open();
        for index in 1..=50 {
            let thing = Thing {
                id: id(index),
                // A block of the file for each.
                color: "r".repeat(20_000),
                ..Thing::default()
            };
            let step = Step {
                index,
                ops: vec![Op::Put(thing)],
                guards: Vec::new(),
            };
            assert_eq!(writer.apply_batch(&[step]).unwrap().len(), 1);
        }
        // What was just written is in memory.
        let view = projections.view();
        assert!(at_hand(8, || one(&view)).unwrap().is_some());
        assert!(at_hand(64, || all(&view)).is_none(), "a megabyte");
        // The past is left to threads that may wait, however near it is.
        let past = view.as_of(30, 30_000).unwrap();
        assert!(at_hand(8, || past.scan::<Things>(Scan::all()).next()).is_none());
        assert_eq!(all(&past).unwrap(), 30);
        drop(past);
        projections.flush().unwrap();
        drop((view, writer, projections));

        // After a start no row is in memory. No compaction puts rows into other files from here on.
        let (projections, _writer) = open();
        projections.stop_background_work();
        let view = projections.view();
        let found = at_hand(8, || view.get::<Things>(id(25).as_str()));
        assert!(found.is_none(), "{found:?}");
        assert!(at_hand(64, || all(&view)).is_none());
        // A thread that may wait reads it, and then it is in memory for the others too.
        assert_eq!(all(&view).unwrap(), 50);
        assert!(one(&view).is_some());
        let found = at_hand(8, || view.get::<Things>(id(25).as_str()));
        assert!(found.is_some_and(|found| found.unwrap().is_some()));
    }

    #[test]
    fn few_rows_are_read_and_the_thread_is_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("few");
        let (projections, mut writer) =
            Projections::open_with(&path, DatabaseOptions::dev(), &TABLES).unwrap();
        let ops = (1..=9).map(|n| {
            Op::Put(Thing {
                id: id(n),
                ..Thing::default()
            })
        });
        let step = Step {
            index: 1,
            ops: ops.collect(),
            guards: Vec::new(),
        };
        assert_eq!(writer.apply_batch(&[step]).unwrap().len(), 1);
        let view = projections.view();
        // The end of the nine is looked for too.
        assert_eq!(at_hand(10, || all(&view)).unwrap().unwrap(), 9);
        assert!(at_hand(9, || all(&view)).is_none());
        // Once something was given up nothing more is read, whatever became of the error.
        let both = at_hand(9, || (all(&view).is_err(), all(&view).is_err()));
        assert_eq!(both, None);
        assert_eq!(all(&view).unwrap(), 9, "no bound outlives the work");
        let panicked = std::panic::catch_unwind(|| at_hand(1, || panic!("at work")));
        assert!(panicked.is_err());
        assert_eq!(all(&view).unwrap(), 9, "nor a panic");
        // What is in it has its own bound, and leaves that of what is around it.
        let inner = at_hand(10, || {
            (at_hand(3, || all(&view)).is_none(), all(&view).unwrap())
        });
        assert_eq!(inner, Some((true, 9)));
    }
}
