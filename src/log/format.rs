//! The bytes of a segment: header and frames. All numbers are little endian.
//!
//! Header, 4096 bytes: magic (8), format version (4), seed (4), epoch id (16), first index of the
//! epoch (8), first index (8), length of the compact range (4, 0 if unknown), compact range at
//! the first index, zeros, CRC32C of all before (the last 4 bytes).
//!
//! Frame, aligned to 8 bytes: CRC32C of the rest (4), length of the body (4), record type (1),
//! zero (1), kind (2), `durable_to` (4), index (8), time (8), body. The checksum is seeded with
//! the segment's seed.

use bytes::Bytes;

use super::error::LogError;
use super::tree::CompactRange;

/// Bytes of a segment's header; the first frame begins there.
pub(super) const HEADER: usize = 4096;
/// Bytes of a frame's local header.
pub(super) const FRAME: usize = 32;
/// The format this program writes.
pub(super) const VERSION: u32 = 1;
pub(super) const OPEN_MAGIC: &[u8; 8] = b"DRVLOG-O";
pub(super) const SEALED_MAGIC: &[u8; 8] = b"DRVLOG-S";

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the log; consecutive.
    pub index: u64,
    /// A registered number, only counted here.
    pub kind: u16,
    /// Unix nanoseconds, 0 if there is none; only its range is kept.
    pub time: i64,
    /// What is stored, hashed and given back.
    pub body: Bytes,
}

/// Which history this is: a log restored from a backup has another epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Random, chosen when the log is created.
    pub id: [u8; 16],
    /// The index of the epoch's first entry, leaf 0 of its tree.
    pub first_index: u64,
}

/// What a frame records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Record {
    /// An entry of the log.
    Entry = 1,
    /// The vote: opaque bytes.
    Vote = 2,
    /// The committed position: index and opaque bytes.
    Committed = 3,
    /// The purged position: index and opaque bytes.
    Purged = 4,
    /// Entries from `index` on are void.
    Truncate = 5,
    /// Nothing but `durable_to`.
    Mark = 6,
}

impl Record {
    fn from_byte(b: u8) -> Option<Record> {
        Some(match b {
            1 => Record::Entry,
            2 => Record::Vote,
            3 => Record::Committed,
            4 => Record::Purged,
            5 => Record::Truncate,
            6 => Record::Mark,
            _ => return None,
        })
    }
}

/// A segment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) seed: u32,
    pub(super) epoch: Epoch,
    pub(super) first: u64,
    pub(super) range: Option<CompactRange>,
}

impl Header {
    pub(super) fn encode(&self, magic: &[u8; 8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER);
        out.extend_from_slice(magic);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.extend_from_slice(&self.epoch.id);
        out.extend_from_slice(&self.epoch.first_index.to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        let range = self
            .range
            .as_ref()
            .map(CompactRange::to_bytes)
            .unwrap_or_default();
        let len = u32::try_from(range.len()).expect("a range has at most 64 nodes");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&range);
        out.resize(HEADER - 4, 0);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes and checks a header; `segment` is only for the error.
    pub(super) fn decode(buf: &[u8], magic: &[u8; 8], segment: &str) -> Result<Header, LogError> {
        let bad = |what: &str| LogError::corrupt(segment, 0, index_of_name(segment), what);
        if buf.len() < HEADER {
            return Err(bad("the header is cut short"));
        }
        let crc = u32_at(buf, HEADER - 4);
        if crc32c::crc32c(&buf[..HEADER - 4]) != crc || &buf[..8] != magic {
            return Err(bad("the header's checksum does not match"));
        }
        let version = u32_at(buf, 8);
        if version != VERSION {
            return Err(LogError::Format {
                segment: segment.to_owned(),
                version,
            });
        }
        let len = u32_at(buf, 48) as usize;
        let range = match len {
            0 => None,
            n => Some(
                CompactRange::from_bytes(buf.get(52..52 + n).ok_or_else(|| bad("bad range"))?)
                    .ok_or_else(|| bad("bad range"))?,
            ),
        };
        Ok(Header {
            seed: u32_at(buf, 12),
            epoch: Epoch {
                id: buf[16..32].try_into().expect("16 bytes"),
                first_index: u64_at(buf, 32),
            },
            first: u64_at(buf, 40),
            range,
        })
    }
}

/// A decoded frame header; the body follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogFrame {
    crc: u32,
    pub(super) len: u32,
    pub(super) record: Record,
    pub(super) kind: u16,
    pub(super) durable_to: u32,
    pub(super) index: u64,
    pub(super) time: i64,
}

/// Bytes a frame with a body of `len` bytes takes in the file.
pub(super) fn frame_size(len: usize) -> usize {
    (FRAME + len).next_multiple_of(8)
}

/// What is common to the frames of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) seed: u32,
    pub(super) durable_to: u32,
}

/// Appends a frame to `out`, padded to 8 bytes.
pub(super) fn put_frame(
    out: &mut Vec<u8>,
    stamp: Stamp,
    record: Record,
    (kind, index, time): (u16, u64, i64),
    body: &[u8],
) {
    let start = out.len();
    let len = u32::try_from(body.len()).expect("bodies are limited far below 4 GiB");
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&[record as u8, 0]);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&stamp.durable_to.to_le_bytes());
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&time.to_le_bytes());
    out.extend_from_slice(body);
    let crc = crc32c::crc32c_append(stamp.seed, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    out.resize(start + frame_size(body.len()), 0);
}

impl LogFrame {
    /// Reads a frame's header; `None` if these bytes cannot begin a frame.
    pub(super) fn parse(buf: &[u8], max_body: usize) -> Option<LogFrame> {
        let buf = buf.get(..FRAME)?;
        let frame = LogFrame {
            crc: u32_at(buf, 0),
            len: u32_at(buf, 4),
            record: Record::from_byte(buf[8])?,
            kind: u16::from_le_bytes([buf[10], buf[11]]),
            durable_to: u32_at(buf, 12),
            index: u64_at(buf, 16),
            time: u64_at(buf, 24).cast_signed(),
        };
        (buf[9] == 0 && frame.len as usize <= max_body).then_some(frame)
    }

    /// Whether the checksum matches; `buf` begins at the frame and holds at least all of it.
    pub(super) fn check(&self, buf: &[u8], seed: u32) -> bool {
        let end = FRAME + self.len as usize;
        buf.get(4..end)
            .is_some_and(|b| crc32c::crc32c_append(seed, b) == self.crc)
    }

    /// Bytes the frame takes in the file.
    pub(super) fn size(&self) -> usize {
        frame_size(self.len as usize)
    }

    /// The entry this frame holds, its body taken from `buf`, which begins at the frame.
    pub(super) fn entry(&self, buf: &Bytes) -> Entry {
        Entry {
            index: self.index,
            kind: self.kind,
            time: self.time,
            body: buf.slice(FRAME..FRAME + self.len as usize),
        }
    }
}

/// The file name of an open segment.
pub(super) fn open_name(first: u64) -> String {
    format!("{first:020}.log")
}

/// The name of an empty file that marks a directory where the segments that were dropped from a log
/// lie beside those it still has: such a log is read from its first segment on.
pub const JOINED_MARKER: &str = "joined";

/// The file name of a sealed segment.
pub(super) fn sealed_name(first: u64) -> String {
    format!("{first:020}.seal")
}

/// The first index that a segment's name holds; 0 if it is no segment's name.
pub(super) fn index_of_name(name: &str) -> u64 {
    name.split('.')
        .next()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0)
}

pub(super) fn u32_at(buf: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(buf[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(buf: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(buf[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp {
        seed: 77,
        durable_to: 4096,
    };

    #[test]
    fn a_header_survives_and_a_flipped_bit_does_not() {
        let mut range = CompactRange::default();
        for i in 0..11u8 {
            range.push([i; 32]);
        }
        let epoch = Epoch {
            id: [7; 16],
            first_index: 5,
        };
        let header = Header {
            seed: 9,
            epoch,
            first: 16,
            range: Some(range),
        };
        let mut bytes = header.encode(OPEN_MAGIC);
        assert_eq!(Header::decode(&bytes, OPEN_MAGIC, "x").unwrap(), header);
        bytes[60] ^= 1;
        assert!(Header::decode(&bytes, OPEN_MAGIC, "x").is_err());
    }

    proptest! {
        #[test]
        fn frames_survive_and_every_flipped_bit_is_found(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            kind: u16, index: u64, time: i64, flip: proptest::sample::Index,
        ) {
            let mut out = Vec::new();
            put_frame(&mut out, STAMP, Record::Entry, (kind, index, time), &body);
            let frame = LogFrame::parse(&out, 1000).unwrap();
            prop_assert!(frame.check(&out, STAMP.seed));
            prop_assert!(!frame.check(&out, STAMP.seed + 1));
            let entry = frame.entry(&Bytes::from(out.clone()));
            prop_assert_eq!((entry.kind, entry.index, entry.time), (kind, index, time));
            prop_assert_eq!(&entry.body[..], &body[..]);
            let bit = flip.index((FRAME + body.len()) * 8);
            out[bit / 8] ^= 1 << (bit % 8);
            let found = LogFrame::parse(&out, 1000).is_some_and(|f| f.check(&out, STAMP.seed));
            prop_assert!(!found);
        }

        #[test]
        fn any_bytes_are_neither_a_frame_nor_a_header(
            bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        ) {
            // One in four billion would pass a checksum by chance.
            let frame = LogFrame::parse(&bytes, 1000);
            prop_assert!(!frame.is_some_and(|frame| frame.check(&bytes, 1)));
            prop_assert!(Header::decode(&bytes, OPEN_MAGIC, "x").is_err());
        }

        #[test]
        fn headers_survive_and_every_flipped_bit_is_found(
            seed: u32, id: [u8; 16], first: u64, later in 0..u64::MAX / 2,
            flip: proptest::sample::Index,
        ) {
            let epoch = Epoch { id, first_index: first };
            let header = Header { seed, epoch, first: later, range: None };
            let mut bytes = header.encode(OPEN_MAGIC);
            let read = Header::decode(&bytes, OPEN_MAGIC, "x").unwrap();
            prop_assert_eq!((read.seed, read.first), (seed, later));
            prop_assert_eq!((read.epoch.id, read.epoch.first_index), (id, first));
            prop_assert!(read.range.is_none());
            prop_assert!(Header::decode(&bytes, SEALED_MAGIC, "x").is_err());
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes, OPEN_MAGIC, "x").is_err());
        }
    }
}
