//! One segment as readers see it: open (frames) or sealed (compressed blocks).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::error::LogError;
use super::file::LogFile;
use super::format::{Entry, FRAME, HEADER, Header, LogFrame, Record};
use super::sealed::SealedSegment;

/// Where the entries of an open segment lie.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Offset of each entry's frame, from the segment's first index on.
    pub(super) offsets: Vec<u32>,
    /// End of the last durable frame.
    pub(super) end: u64,
}

/// A segment that is, or was until lately, written to.
pub(super) struct OpenSegment {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) header: Header,
    pub(super) file: Arc<dyn LogFile>,
    pub(super) frames: RwLock<Frames>,
}

/// A segment of the log.
pub(super) enum Segment {
    Open(OpenSegment),
    Sealed(SealedSegment),
}

/// What tools show of a segment.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    pub name: String,
    /// Compressed and immutable.
    pub sealed: bool,
    /// First index.
    pub first: u64,
    pub entries: u64,
    /// Bytes of the file that hold data.
    pub bytes: u64,
    /// Bytes of all bodies; 0 for an open segment that was not read.
    pub body_bytes: u64,
    /// Entries by kind; empty for an open segment that was not read.
    pub kinds: BTreeMap<u16, u64>,
    /// Lowest and highest time in Unix nanoseconds, of entries that have one.
    pub times: Option<(i64, i64)>,
}

impl Segment {
    pub(super) fn name(&self) -> &str {
        match self {
            Segment::Open(s) => &s.name,
            Segment::Sealed(s) => &s.name,
        }
    }

    pub(super) fn path(&self) -> &PathBuf {
        match self {
            Segment::Open(s) => &s.path,
            Segment::Sealed(s) => &s.path,
        }
    }

    pub(super) fn header(&self) -> &Header {
        match self {
            Segment::Open(s) => &s.header,
            Segment::Sealed(s) => &s.header,
        }
    }

    pub(super) fn first(&self) -> u64 {
        self.header().first
    }

    /// The index after the last durable one.
    pub(super) fn next(&self) -> u64 {
        match self {
            Segment::Open(s) => s.header.first + s.frames.read().offsets.len() as u64,
            Segment::Sealed(s) => s.footer.next,
        }
    }

    pub(super) fn open(&self) -> Option<&OpenSegment> {
        match self {
            Segment::Open(s) => Some(s),
            Segment::Sealed(_) => None,
        }
    }

    /// Reads entries `from..to` as far as they lie here, up to about `max_bytes` but at least one.
    pub(super) fn read(
        &self,
        from: u64,
        to: u64,
        max_bytes: usize,
        out: &mut Vec<Entry>,
    ) -> Result<(), LogError> {
        match self {
            Segment::Open(s) => s.read(from, to, max_bytes, out),
            Segment::Sealed(s) => s.read(from, to, max_bytes, out),
        }
    }

    pub(super) fn info(&self) -> SegmentInfo {
        match self {
            Segment::Open(s) => {
                let frames = s.frames.read();
                SegmentInfo {
                    name: s.name.clone(),
                    sealed: false,
                    first: s.header.first,
                    entries: frames.offsets.len() as u64,
                    bytes: frames.end,
                    body_bytes: 0,
                    kinds: BTreeMap::new(),
                    times: None,
                }
            }
            Segment::Sealed(s) => s.info(),
        }
    }
}

impl OpenSegment {
    fn read(
        &self,
        from: u64,
        to: u64,
        max_bytes: usize,
        out: &mut Vec<Entry>,
    ) -> Result<(), LogError> {
        let first = self.header.first;
        let (offsets, end) = {
            let frames = self.frames.read();
            let to = to.min(first + frames.offsets.len() as u64);
            if from < first || from >= to {
                return Ok(());
            }
            let all = &frames.offsets[(from - first) as usize..(to - first) as usize];
            let limit = u64::from(all[0]) + max_bytes as u64;
            let take = all.partition_point(|o| u64::from(*o) <= limit).max(1);
            let after = (from - first) as usize + take;
            let end = frames
                .offsets
                .get(after)
                .map_or(frames.end, |o| u64::from(*o));
            (all[..take].to_vec(), end)
        };
        let start = u64::from(offsets[0]);
        let mut buf = vec![0; (end - start) as usize];
        let got = self
            .file
            .read_at(&mut buf, start)
            .map_err(|e| LogError::io("read", &self.path, e))?;
        buf.truncate(got);
        let buf = Bytes::from(buf);
        for (i, offset) in offsets.iter().enumerate() {
            let index = from + i as u64;
            let at = (u64::from(*offset) - start) as usize;
            let bytes = if at < buf.len() {
                buf.slice(at..)
            } else {
                Bytes::new()
            };
            let frame = LogFrame::parse(&bytes, usize::MAX)
                .filter(|f| f.check(&bytes, self.header.seed))
                .filter(|f| f.record == Record::Entry && f.index == index);
            let Some(frame) = frame else {
                let what = "the frame's checksum does not match";
                return Err(LogError::corrupt(
                    &self.name,
                    u64::from(*offset),
                    index,
                    what,
                ));
            };
            out.push(frame.entry(&bytes));
        }
        Ok(())
    }
}

/// What a scan over a segment's frames found.
#[derive(Debug, Default)]
pub(super) struct ScanEnd {
    /// End of the frames that were accepted one after the other.
    pub(super) end: u64,
    /// The highest `durable_to` of any readable frame.
    pub(super) durable: u64,
    /// Readable frames beyond `end`, and where the last of them ends.
    pub(super) beyond: u64,
    pub(super) beyond_end: u64,
    /// Something that began as a frame lies at `end`.
    pub(super) torn: bool,
}

/// A window over a file that is read forwards.
struct Window<'a> {
    file: &'a dyn LogFile,
    buf: Vec<u8>,
    base: u64,
}

const WINDOW: usize = 1 << 20;

impl Window<'_> {
    /// The bytes at `offset`, at least `need` of them unless the file ends before.
    fn at(&mut self, offset: u64, need: usize) -> io::Result<&[u8]> {
        let have = self.base + self.buf.len() as u64;
        if offset < self.base || offset + need as u64 > have {
            self.buf.resize(need.max(WINDOW), 0);
            let got = self.file.read_at(&mut self.buf, offset)?;
            self.buf.truncate(got);
            self.base = offset;
        }
        Ok(&self.buf[(offset - self.base) as usize..])
    }
}

/// A page that was allocated ahead and never written, as most of an open segment is. It is compared
/// as a whole: byte by byte was a quarter of what the servers of tests computed.
static EMPTY_PAGE: [u8; 4096] = [0; 4096];

/// Walks the frames of an open segment. `accept` sees each frame in turn (offset, header, body)
/// and says whether it belongs here; from the first that is missing, damaged or refused on, the
/// scan only looks for later readable frames.
pub(super) fn scan_frames(
    file: &dyn LogFile,
    header: &Header,
    max_body: usize,
    accept: &mut dyn FnMut(u64, &LogFrame, &[u8]) -> bool,
) -> io::Result<ScanEnd> {
    let len = file.size()?;
    let mut window = Window {
        file,
        buf: Vec::new(),
        base: 0,
    };
    let mut end = ScanEnd {
        end: HEADER as u64,
        ..ScanEnd::default()
    };
    let mut offset = HEADER as u64;
    let mut whole = true;
    while offset + FRAME as u64 <= len {
        let head = window.at(offset, FRAME)?;
        if !whole && head.starts_with(&EMPTY_PAGE) {
            offset += EMPTY_PAGE.len() as u64;
            continue;
        }
        let parsed = LogFrame::parse(head, max_body);
        let mut good = None;
        if let Some(frame) = parsed
            && offset + (FRAME + frame.len as usize) as u64 <= len
        {
            let bytes = window.at(offset, FRAME + frame.len as usize)?;
            if frame.check(bytes, header.seed) {
                let body = &bytes[FRAME..FRAME + frame.len as usize];
                let accepted = whole && accept(offset, &frame, body);
                good = Some((frame, accepted));
            }
        }
        match good {
            Some((frame, accepted)) => {
                end.durable = end.durable.max(u64::from(frame.durable_to));
                offset += frame.size() as u64;
                if accepted {
                    end.end = offset;
                } else {
                    whole = false;
                    end.beyond += 1;
                    end.beyond_end = offset;
                }
            }
            None => {
                if whole {
                    // A file that is used again holds older frames; they are no loss.
                    end.torn = parsed
                        .is_some_and(|f| f.record == Record::Entry && f.index >= header.first);
                    whole = false;
                }
                offset += 8;
            }
        }
    }
    Ok(end)
}
