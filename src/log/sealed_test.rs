//! Sealed segments that were forged: right checksums over contents that make no sense.

use std::path::Path;

use super::super::file::RealFiles;
use super::super::format::Epoch;
use super::*;
use crate::ReadOnlyLog;

const COUNT: u64 = 40;

/// Makes something of a footer.
type Craft = fn(&mut Footer);

fn header(first: u64) -> Header {
    Header {
        seed: 1,
        epoch: Epoch {
            id: [3; 16],
            first_index: 0,
        },
        first,
        range: None,
    }
}

/// Writes a segment of entries from `first` on in several blocks; answers its footer.
fn make(path: &Path, first: u64) -> Footer {
    let file = RealFiles.create(path, 0).unwrap();
    let end = first + COUNT;
    let mut read = |from: u64, _: usize, out: &mut Vec<Entry>| {
        out.extend((from..end.min(from + 10)).map(|index| Entry {
            index,
            kind: 1,
            time: index.cast_signed(),
            body: Bytes::from(format!("body {index}")),
        }));
        Ok(())
    };
    write(&*file, path, &header(first), end, &mut read)
        .unwrap()
        .0
}

/// The file with another footer, its sums right.
fn with_footer(path: &Path, footer: &Footer) {
    let bytes = std::fs::read(path).unwrap();
    let end = bytes.len() - TRAILER;
    let at = u64_at(&bytes[end..], 0);
    let mut out = bytes[..at as usize].to_vec();
    let tail = footer.encode();
    out.extend_from_slice(&tail);
    out.extend_from_slice(&at.to_le_bytes());
    out.extend_from_slice(&len32(tail.len()));
    out.extend_from_slice(&crc32c::crc32c(&tail).to_le_bytes());
    out.extend_from_slice(END_MAGIC);
    std::fs::write(path, out).unwrap();
}

/// Every entry as a reader finds it.
fn read_all(dir: &Path) -> Result<u64, LogError> {
    let log = ReadOnlyLog::open(dir)?;
    log.segments();
    let (first, next) = log.bounds();
    for index in [first, next - 1, next] {
        log.read(index)?;
    }
    let mut count = 0;
    for entry in log.scan(first) {
        entry?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_crafted_footer_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(sealed_name(7));
    let good = make(&path, 7);
    assert_eq!(good.blocks.len(), 4);
    assert_eq!(read_all(dir.path()).unwrap(), COUNT);
    let crafted: [(&str, Craft); 12] = [
        ("ends before it begins", |f| f.next = 3),
        ("ends within its blocks", |f| f.next = 20),
        ("ends nowhere", |f| f.next = u64::MAX),
        ("holds more than its blocks", |f| f.next += 1),
        ("has no blocks", |f| f.blocks.clear()),
        ("begins later", |f| f.blocks[0].first += 1),
        ("begins earlier", |f| f.blocks[0].first = 0),
        ("has its blocks swapped", |f| f.blocks.swap(1, 2)),
        ("has a block twice", |f| f.blocks[2] = f.blocks[1]),
        ("has a block of 4 GiB", |f| f.blocks[1].raw = u32::MAX),
        ("has a block beyond its end", |f| f.blocks[3].len = u32::MAX),
        ("has a block nowhere", |f| f.blocks[3].offset = u64::MAX),
    ];
    for (what, craft) in crafted {
        let mut footer = good.clone();
        craft(&mut footer);
        with_footer(&path, &footer);
        let found = read_all(dir.path());
        assert!(
            matches!(found, Err(LogError::Corrupt { .. })),
            "{what}: {found:?}"
        );
    }
    with_footer(&path, &good);
    assert_eq!(read_all(dir.path()).unwrap(), COUNT);
}

#[test]
fn a_sealed_segment_under_the_name_of_another_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(sealed_name(0));
    make(&path, COUNT);
    let error = read_all(dir.path()).unwrap_err().to_string();
    assert!(error.contains("that of another segment"), "{error}");
}
