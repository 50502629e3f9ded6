//! A sealed segment: the entries of an open one in zstd blocks, with a footer that finds them.
//!
//! File: header (as an open segment's, other magic), blocks, footer, trailer. A block is a zstd
//! frame of records (kind u16, length u32, time i64, body). The footer holds the next index, the
//! bytes of all bodies, the range of times, the counts by kind, the tree's compact range after the
//! last entry, and for each block its offset, length, raw length, first index and CRC32C. The
//! trailer is the footer's offset (8), its length (4), its CRC32C (4) and a magic (8).

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::error::LogError;
use super::file::{FileLayer, LogFile};
use super::format::{
    Entry, HEADER, Header, SEALED_MAGIC, index_of_name, sealed_name, u32_at, u64_at,
};
use super::segment::{OpenSegment, Segment, SegmentInfo};
use super::tree::{CompactRange, leaf_hash};

const END_MAGIC: &[u8; 8] = b"DRVLOG-E";
const TRAILER: usize = 24;
const BLOCK_REF: usize = 28;
const RECORD: usize = 14;
/// Raw bytes gathered in a block before it is compressed.
const BLOCK: usize = 64 << 10;
const LEVEL: i32 = 1;
/// Decoded blocks kept per segment.
const CACHE: usize = 4;
/// Raw bytes of the largest block that is read: one with the longest body that any log takes.
const LARGEST_BLOCK: u32 = 65 << 20;
/// The highest index that is read: beyond it sums of indexes would not fit.
const LAST_INDEX: u64 = 1 << 62;

#[derive(Clone, Copy, Debug)]
struct BlockRef {
    offset: u64,
    len: u32,
    raw: u32,
    first: u64,
    crc: u32,
}

/// What a sealed segment says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Footer {
    pub(super) next: u64,
    body_bytes: u64,
    times: Option<(i64, i64)>,
    kinds: BTreeMap<u16, u64>,
    pub(super) range: Option<CompactRange>,
    blocks: Vec<BlockRef>,
}

/// A compressed, immutable segment.
pub(super) struct SealedSegment {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) header: Header,
    pub(super) footer: Footer,
    file: Arc<dyn LogFile>,
    bytes: u64,
    cache: Mutex<VecDeque<(usize, Arc<Vec<Entry>>)>>,
}

impl Footer {
    fn count(&mut self, entry: &Entry) {
        self.next = entry.index + 1;
        self.body_bytes += entry.body.len() as u64;
        *self.kinds.entry(entry.kind).or_default() += 1;
        if entry.time != 0 {
            let (lo, hi) = self.times.unwrap_or((entry.time, entry.time));
            self.times = Some((lo.min(entry.time), hi.max(entry.time)));
        }
        if let Some(range) = &mut self.range {
            range.push(leaf_hash(&entry.body));
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.next.to_le_bytes());
        out.extend_from_slice(&self.body_bytes.to_le_bytes());
        let (lo, hi) = self.times.unwrap_or((0, 0));
        out.extend_from_slice(&lo.to_le_bytes());
        out.extend_from_slice(&hi.to_le_bytes());
        out.extend_from_slice(&len32(self.kinds.len()));
        for (kind, count) in &self.kinds {
            out.extend_from_slice(&kind.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
        let range = self
            .range
            .as_ref()
            .map(CompactRange::to_bytes)
            .unwrap_or_default();
        out.extend_from_slice(&len32(range.len()));
        out.extend_from_slice(&range);
        out.extend_from_slice(&len32(self.blocks.len()));
        for b in &self.blocks {
            out.extend_from_slice(&b.offset.to_le_bytes());
            out.extend_from_slice(&b.len.to_le_bytes());
            out.extend_from_slice(&b.raw.to_le_bytes());
            out.extend_from_slice(&b.first.to_le_bytes());
            out.extend_from_slice(&b.crc.to_le_bytes());
        }
        out
    }

    fn decode(buf: &[u8]) -> Option<Footer> {
        let mut at = SealedReader { buf, at: 0 };
        let mut footer = Footer {
            next: at.u64()?,
            body_bytes: at.u64()?,
            ..Footer::default()
        };
        let (lo, hi) = (at.u64()?.cast_signed(), at.u64()?.cast_signed());
        footer.times = (lo != 0 || hi != 0).then_some((lo, hi));
        for _ in 0..at.u32()? {
            let kind = at.take(2)?;
            footer
                .kinds
                .insert(u16::from_le_bytes([kind[0], kind[1]]), at.u64()?);
        }
        let len = at.u32()? as usize;
        let range = at.take(len)?;
        footer.range = if len > 0 {
            Some(CompactRange::from_bytes(range)?)
        } else {
            None
        };
        for _ in 0..at.u32()? {
            let b = at.take(BLOCK_REF)?;
            footer.blocks.push(BlockRef {
                offset: u64_at(b, 0),
                len: u32_at(b, 8),
                raw: u32_at(b, 12),
                first: u64_at(b, 16),
                crc: u32_at(b, 24),
            });
        }
        Some(footer)
    }

    /// Whether it can be that of a segment whose head is `header`, and whose blocks end at `end`:
    /// whatever wrote the file, its blocks lie in it and name each of its indexes once.
    fn fits(&self, header: &Header, end: u64) -> bool {
        let first = header.first;
        let range = header.range.as_ref().map_or(0, CompactRange::size);
        let begins = self.blocks.first().map_or(self.next, |block| block.first);
        let ends = self.blocks.iter().skip(1).map(|block| block.first);
        let mut pairs = self.blocks.iter().zip(ends.chain([self.next]));
        let block_fits = |(block, next): (&BlockRef, u64)| {
            let entries = next.checked_sub(block.first);
            let last = block.offset.checked_add(block.len.into());
            entries.is_some_and(|entries| (1..=BLOCK as u64).contains(&entries))
                && block.offset >= HEADER as u64
                && last.is_some_and(|last| last <= end)
                && block.raw <= LARGEST_BLOCK
        };
        first <= self.next
            && self.next <= LAST_INDEX
            && range <= first
            && begins == first
            && pairs.all(block_fits)
    }
}

fn len32(len: usize) -> [u8; 4] {
    u32::try_from(len)
        .expect("counts of one segment fit in 32 bits")
        .to_le_bytes()
}

struct SealedReader<'a> {
    buf: &'a [u8],
    at: usize,
}

impl<'a> SealedReader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let out = self.buf.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(out)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|b| u32_at(b, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|b| u64_at(b, 0))
    }
}

/// Writes the sealed form of `segment`, whose entries are all committed, beside it, under a
/// temporary name that is answered too.
pub(super) fn seal(
    files: &dyn FileLayer,
    dir: &Path,
    segment: &Segment,
    source: &OpenSegment,
) -> Result<(SealedSegment, PathBuf), LogError> {
    let name = sealed_name(source.header.first);
    let path = dir.join(&name);
    let tmp = dir.join(format!("{name}.tmp"));
    let file = files
        .create(&tmp, 0)
        .map_err(|e| LogError::io("create", &tmp, e))?;
    let mut read = |from: u64, bytes: usize, out: &mut Vec<Entry>| {
        segment.read(from, segment.next(), bytes, out)
    };
    let written = write(&*file, &tmp, &source.header, segment.next(), &mut read);
    let (footer, bytes) = written.inspect_err(|_| {
        let _ = files.remove(&tmp);
    })?;
    let header = source.header.clone();
    let sealed = SealedSegment {
        name,
        path,
        header,
        footer,
        file,
        bytes,
        cache: Mutex::default(),
    };
    Ok((sealed, tmp))
}

/// Adds some entries from an index on, up to about so many bytes, at least one.
pub(super) type ReadEntries<'a> =
    &'a mut dyn FnMut(u64, usize, &mut Vec<Entry>) -> Result<(), LogError>;

/// Writes the sealed form of a segment's entries below `end`, and waits for the disk.
pub(super) fn write(
    file: &dyn LogFile,
    path: &Path,
    header: &Header,
    end: u64,
    read: ReadEntries<'_>,
) -> Result<(Footer, u64), LogError> {
    let write = |buf: &[u8], at: u64| {
        file.write_at(buf, at)
            .map_err(|e| LogError::io("write", path, e))
    };
    write(&header.encode(SEALED_MAGIC), 0)?;
    let first = header.first;
    let mut footer = Footer {
        next: first,
        range: header.range.clone(),
        ..Footer::default()
    };
    let (mut at, mut next) = (HEADER as u64, first);
    let mut entries = Vec::new();
    let mut raw = Vec::with_capacity(BLOCK * 2);
    while next < end {
        entries.clear();
        read(next, BLOCK, &mut entries)?;
        if entries.is_empty() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return Err(LogError::corrupt(&name, at, next, "its entry is missing"));
        }
        raw.clear();
        for e in &entries {
            raw.extend_from_slice(&e.kind.to_le_bytes());
            raw.extend_from_slice(&len32(e.body.len()));
            raw.extend_from_slice(&e.time.to_le_bytes());
            raw.extend_from_slice(&e.body);
            footer.count(e);
        }
        let packed =
            zstd::bulk::compress(&raw, LEVEL).map_err(|e| LogError::io("compress", path, e))?;
        write(&packed, at)?;
        footer.blocks.push(BlockRef {
            offset: at,
            len: u32::from_le_bytes(len32(packed.len())),
            raw: u32::from_le_bytes(len32(raw.len())),
            first: next,
            crc: crc32c::crc32c(&packed),
        });
        at += packed.len() as u64;
        next = footer.next;
    }
    let mut tail = footer.encode();
    let crc = crc32c::crc32c(&tail);
    let len = len32(tail.len());
    tail.extend_from_slice(&at.to_le_bytes());
    tail.extend_from_slice(&len);
    tail.extend_from_slice(&crc.to_le_bytes());
    tail.extend_from_slice(END_MAGIC);
    write(&tail, at)?;
    file.sync().map_err(|e| LogError::io("sync", path, e))?;
    Ok((footer, at + tail.len() as u64))
}

impl SealedSegment {
    /// Opens a sealed segment and checks its header and footer; blocks are checked when read.
    pub(super) fn open(
        files: &dyn FileLayer,
        dir: &Path,
        name: &str,
    ) -> Result<SealedSegment, LogError> {
        let path = dir.join(name);
        let io = |e| LogError::io("read", &path, e);
        let file = files.open(&path, false).map_err(io)?;
        let mut buf = vec![0; HEADER];
        let got = file.read_at(&mut buf, 0).map_err(io)?;
        buf.truncate(got);
        let header = Header::decode(&buf, SEALED_MAGIC, name)?;
        let bytes = file.size().map_err(io)?;
        if name != sealed_name(header.first) {
            let what = "the header is that of another segment";
            return Err(LogError::corrupt(name, 0, index_of_name(name), what));
        }
        let (footer, end) = read_footer(&*file, bytes, &path, name, header.first)?;
        if !footer.fits(&header, end) {
            let what = "the footer does not fit the segment";
            return Err(LogError::corrupt(name, end, header.first, what));
        }
        let name = name.to_owned();
        Ok(SealedSegment {
            name,
            path,
            header,
            footer,
            file,
            bytes,
            cache: Mutex::default(),
        })
    }

    pub(super) fn read(
        &self,
        mut from: u64,
        to: u64,
        max_bytes: usize,
        out: &mut Vec<Entry>,
    ) -> Result<(), LogError> {
        let to = to.min(self.footer.next);
        let mut bytes = 0;
        while from >= self.header.first && from < to && bytes <= max_bytes {
            let n = self.footer.blocks.partition_point(|b| b.first <= from) - 1;
            let entries = self.block(n)?;
            let first = self.footer.blocks[n].first;
            for e in &entries[(from - first) as usize..] {
                if e.index >= to || (bytes > max_bytes && !out.is_empty()) {
                    return Ok(());
                }
                bytes += e.body.len() + RECORD;
                out.push(e.clone());
                from = e.index + 1;
            }
        }
        Ok(())
    }

    fn block(&self, n: usize) -> Result<Arc<Vec<Entry>>, LogError> {
        if let Some((_, found)) = self.cache.lock().iter().find(|(i, _)| *i == n) {
            return Ok(Arc::clone(found));
        }
        let b = self.footer.blocks[n];
        let next = self
            .footer
            .blocks
            .get(n + 1)
            .map_or(self.footer.next, |b| b.first);
        let mut packed = vec![0; b.len as usize];
        let got = self
            .file
            .read_at(&mut packed, b.offset)
            .map_err(|e| LogError::io("read", &self.path, e))?;
        let bad = |what| LogError::corrupt(&self.name, b.offset, b.first, what);
        if got < packed.len() || crc32c::crc32c(&packed) != b.crc {
            return Err(bad("the block's checksum does not match"));
        }
        let raw = zstd::bulk::decompress(&packed, b.raw as usize)
            .map_err(|_| bad("the block cannot be decompressed"))?;
        let entries = decode_block(Bytes::from(raw), b.first, next)
            .ok_or_else(|| bad("the block's records are malformed"))?;
        let entries = Arc::new(entries);
        let mut cache = self.cache.lock();
        cache.truncate(CACHE - 1);
        cache.push_front((n, Arc::clone(&entries)));
        Ok(entries)
    }

    pub(super) fn info(&self) -> SegmentInfo {
        SegmentInfo {
            name: self.name.clone(),
            sealed: true,
            first: self.header.first,
            entries: self.footer.next - self.header.first,
            bytes: self.bytes,
            body_bytes: self.footer.body_bytes,
            kinds: self.footer.kinds.clone(),
            times: self.footer.times,
        }
    }
}

fn decode_block(raw: Bytes, first: u64, next: u64) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    let (mut at, mut index) = (0, first);
    while at < raw.len() && index < next {
        let head = raw.get(at..at + RECORD)?;
        let len = u32_at(head, 2) as usize;
        let end = at + RECORD + len;
        if end > raw.len() {
            return None;
        }
        entries.push(Entry {
            index,
            kind: u16::from_le_bytes([head[0], head[1]]),
            time: u64_at(head, 6).cast_signed(),
            body: raw.slice(at + RECORD..end),
        });
        at = end;
        index += 1;
    }
    (index == next && at == raw.len()).then_some(entries)
}

fn read_footer(
    file: &dyn LogFile,
    bytes: u64,
    path: &Path,
    name: &str,
    first: u64,
) -> Result<(Footer, u64), LogError> {
    let io = |e| LogError::io("read", path, e);
    let damaged =
        |offset| LogError::corrupt(name, offset, first, "the footer's checksum does not match");
    let bad = || damaged(bytes.saturating_sub(TRAILER as u64));
    let mut trailer = [0; TRAILER];
    let at = bytes.checked_sub(TRAILER as u64).ok_or_else(bad)?;
    file.read_at(&mut trailer, at).map_err(io)?;
    let (offset, len) = (u64_at(&trailer, 0), u32_at(&trailer, 8) as usize);
    if &trailer[16..] != END_MAGIC || offset.checked_add(len as u64) != Some(at) {
        return Err(bad());
    }
    let mut buf = vec![0; len];
    file.read_at(&mut buf, offset).map_err(io)?;
    if crc32c::crc32c(&buf) != u32_at(&trailer, 12) {
        return Err(damaged(offset));
    }
    let footer = Footer::decode(&buf).ok_or_else(|| damaged(offset))?;
    Ok((footer, offset))
}

#[cfg(test)]
#[path = "sealed_test.rs"]
mod tests;
