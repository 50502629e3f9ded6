//! Floors: what the machine gives before any of our own work is added, measured in the same run.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rocksdb::{ColumnFamilyDescriptor, DB, Options, WriteBatch, WriteOptions};

/// Bytes of the file that is overwritten.
const FILE: usize = 64 << 20;
/// Bytes of one record.
const RECORD: usize = 512;

/// Syncs a second: 512 bytes of a zeroed file overwritten and `fdatasync`ed, one after the other.
///
/// # Errors
/// The file cannot be written.
pub fn syncs(dir: &Path, span: Duration) -> Result<f64> {
    use std::os::unix::fs::FileExt;
    let path = dir.join("floor");
    let file = std::fs::File::create(&path)?;
    file.write_all_at(&vec![0; FILE], 0)?;
    file.sync_all()?;
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < span {
        let at = (count * 336) % (FILE as u64 - RECORD as u64);
        file.write_all_at(&[7; RECORD], at)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// What one event writes, for [`rows`].
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    /// Bytes of its row.
    pub row: usize,
    /// Small entries beside it (indexes, changes).
    pub small: usize,
    /// Events in a batch.
    pub batch: usize,
}

/// Events a second that RocksDB alone takes without its log: a row in one family and small
/// entries in another, keys in no order, nothing decoded, hashed or looked up.
///
/// # Errors
/// The database cannot be written.
pub fn rows(dir: &Path, events: usize, writes: Writes) -> Result<f64> {
    let path = dir.join("floor-rows");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let families = ["rows", "small"].map(|name| {
        let mut family = Options::default();
        family.set_write_buffer_size(FILE);
        ColumnFamilyDescriptor::new(name, family)
    });
    let db = DB::open_cf_descriptors(&options, &path, families)?;
    let (Some(large), Some(small)) = (db.cf_handle("rows"), db.cf_handle("small")) else {
        anyhow::bail!("a family is missing");
    };
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let row = vec![b'x'; writes.row];
    let start = Instant::now();
    for first in (0..events).step_by(writes.batch) {
        let mut batch = WriteBatch::default();
        for event in first..events.min(first + writes.batch) {
            let key = (event as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_be_bytes();
            batch.put_cf(large, key, &row);
            for number in 0..writes.small {
                batch.put_cf(
                    small,
                    [&[number as u8], key.as_slice(), &key, &key].concat(),
                    b"1",
                );
            }
        }
        db.write_opt(batch, &unlogged)?;
    }
    let rate = events as f64 / start.elapsed().as_secs_f64();
    drop(db);
    std::fs::remove_dir_all(path)?;
    Ok(rate)
}
