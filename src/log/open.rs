//! Opening a log: which files belong to it, where it ends, what was lost and what is damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::error::LogError;
use super::file::{FileLayer, LogFile};
use super::format::{
    Epoch, HEADER, Header, JOINED_MARKER, LogFrame, OPEN_MAGIC, Record, index_of_name, open_name,
    sealed_name,
};
use super::options::LogOptions;
use super::sealed::SealedSegment;
use super::segment::{Frames, OpenSegment, ScanEnd, Segment, scan_frames};
use super::segment_set::SegmentSet;
use super::state::{LogState, Position};
use super::tree::{CompactRange, Tree, leaf_hash};
use super::writer::Active;

/// An unsynced tail that was cut when the log was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedTail {
    pub segment: String,
    /// Where it was cut.
    pub offset: u64,
    /// The index that is next now.
    pub next: u64,
    /// Readable frames beyond the damage that went with it.
    pub frames: u64,
}

/// What opening a log found.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// The log did not exist and was created.
    pub created: bool,
    /// An unsynced tail that was cut.
    pub cut: Option<TruncatedTail>,
    /// Files that belonged to nothing and were removed.
    pub removed: Vec<String>,
}

pub(super) struct Opened {
    pub(super) report: OpenReport,
    pub(super) epoch: Epoch,
    pub(super) state: LogState,
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) active: Active,
    pub(super) tree: Tree,
    pub(super) spares: Vec<PathBuf>,
}

/// The local records, each as last written.
#[derive(Clone, Debug, Default)]
pub(super) struct Locals {
    pub(super) vote: Option<Bytes>,
    pub(super) committed: Option<Position>,
    pub(super) purged: Option<Position>,
}

/// An open segment as scanned.
pub(super) struct Scanned {
    pub(super) segment: OpenSegment,
    pub(super) end: ScanEnd,
}

impl Scanned {
    fn next(&self) -> u64 {
        self.segment.header.first + self.segment.frames.read().offsets.len() as u64
    }

    /// Whether this is what a log was that never held an entry, before it began at a later index
    /// in the segment of `last`: a kill left it there.
    pub(super) fn was_begun_elsewhere(&self, last: &Header) -> bool {
        let own = &self.segment.header;
        let begins = last.first == last.epoch.first_index && own.epoch.id == last.epoch.id;
        begins && own.first < last.first && self.next() == own.first
    }

    fn corrupt(&self) -> LogError {
        let what = "a frame that was durable cannot be read";
        LogError::corrupt(&self.segment.name, self.end.end, self.next(), what)
    }
}

/// The names of a log's segments, in order of their first index.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) sealed: Vec<String>,
    pub(super) open: Vec<String>,
    /// Whether what was dropped is there again ([`JOINED_MARKER`]).
    pub(super) joined: bool,
    rest: Vec<String>,
}

pub(super) fn names(files: &dyn FileLayer, dir: &Path) -> Result<Names, LogError> {
    let mut out = Names::default();
    let list = files.list(dir).map_err(|e| LogError::io("list", dir, e))?;
    for name in list {
        let first = index_of_name(&name);
        if name == open_name(first) {
            out.open.push(name);
        } else if name == sealed_name(first) {
            out.sealed.push(name);
        } else if name == JOINED_MARKER {
            out.joined = true;
        } else {
            out.rest.push(name);
        }
    }
    out.sealed.sort();
    out.open.sort();
    Ok(out)
}

/// Scans one open segment; local records go to `locals`.
pub(super) fn scan_open(
    files: &dyn FileLayer,
    dir: &Path,
    name: &str,
    write: bool,
    max_body: usize,
    locals: &mut Locals,
) -> Result<Scanned, LogError> {
    let path = dir.join(name);
    let io = |e| LogError::io("read", &path, e);
    let file = files.open(&path, write).map_err(io)?;
    let mut buf = vec![0; HEADER];
    let got = file.read_at(&mut buf, 0).map_err(io)?;
    buf.truncate(got);
    let header = Header::decode(&buf, OPEN_MAGIC, name)?;
    let first = header.first;
    if name != open_name(first) {
        let what = "the header is that of another segment";
        return Err(LogError::corrupt(name, 0, index_of_name(name), what));
    }
    let mut offsets: Vec<u32> = Vec::new();
    let end = scan_frames(&*file, &header, max_body, &mut |offset, frame, body| {
        accept(offset, frame, body, first, &mut offsets, locals)
    })
    .map_err(io)?;
    let frames = RwLock::new(Frames {
        offsets,
        end: end.end,
    });
    let segment = OpenSegment {
        name: name.to_owned(),
        path,
        header,
        file,
        frames,
    };
    Ok(Scanned { segment, end })
}

fn accept(
    offset: u64,
    frame: &LogFrame,
    body: &[u8],
    first: u64,
    offsets: &mut Vec<u32>,
    locals: &mut Locals,
) -> bool {
    let position = || Some((frame.index, Bytes::copy_from_slice(body)));
    match frame.record {
        Record::Entry => {
            let fits = frame.index == first + offsets.len() as u64;
            let Ok(offset) = u32::try_from(offset) else {
                return false;
            };
            if fits {
                offsets.push(offset);
            }
            return fits;
        }
        Record::Vote => locals.vote = Some(Bytes::copy_from_slice(body)),
        // Entries that are not here do not count as committed: an older drover wrote such records.
        Record::Committed if frame.index >= first + offsets.len() as u64 => {}
        Record::Committed => locals.committed = position(),
        Record::Purged => locals.purged = position(),
        Record::Truncate => {
            let Some(keep) = frame.index.checked_sub(first) else {
                return false;
            };
            offsets.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        }
        Record::Mark => {}
    }
    true
}

pub(super) fn open(
    files: &Arc<dyn FileLayer>,
    dir: &Path,
    options: &LogOptions,
) -> Result<Opened, LogError> {
    let mut names = names(&**files, dir)?;
    let mut report = OpenReport::default();
    let spares = clean_up(&**files, dir, &mut names, &mut report)?;
    if names.open.is_empty() && names.sealed.is_empty() {
        create(&**files, dir, options)?;
        names
            .open
            .push(open_name(options.epoch.map_or(0, |e| e.first_index)));
        report.created = true;
    }
    let mut locals = Locals::default();
    let max_body = options.max_body.max(8 << 20);
    let mut scanned = Vec::new();
    for name in &names.open {
        scanned.push(scan_open(&**files, dir, name, true, max_body, &mut locals)?);
    }
    let Some(last) = scanned.pop() else {
        let name = names.sealed.last().map_or("", String::as_str);
        let what = "the open segment after it is missing";
        return Err(LogError::corrupt(name, 0, index_of_name(name), what));
    };
    let (last, zeroed) = finalize_last(last, &mut report)?;
    let purged_next = locals.purged.as_ref().map(|(i, _)| i + 1);
    let mut segments = Vec::new();
    for name in &names.sealed {
        segments.push(Segment::Sealed(SealedSegment::open(&**files, dir, name)?));
    }
    let (begun, scanned): (Vec<_>, Vec<_>) = scanned
        .into_iter()
        .partition(|s| s.was_begun_elsewhere(&last.header));
    for s in begun {
        remove(&**files, &s.segment.path, &s.segment.name, &mut report)?;
    }
    let mut suspects = scanned.into_iter().peekable();
    while let Some(s) = suspects.next() {
        let follows = suspects
            .peek()
            .map_or(last.header.first, |n| n.segment.header.first);
        if s.next() != follows && purged_next.is_none_or(|p| p < follows) {
            return Err(s.corrupt());
        }
        segments.push(Segment::Open(s.segment));
    }
    let active = Segment::Open(last);
    let (gone, mut segments): (Vec<_>, Vec<_>) = segments
        .into_iter()
        .partition(|s| purged_next.is_some_and(|p| s.next() <= p));
    for s in gone {
        remove(&**files, s.path(), s.name(), &mut report)?;
    }
    segments.push(active);
    check_order(&segments, purged_next)?;
    let segments: Vec<_> = segments.into_iter().map(Arc::new).collect();
    assemble(segments, locals, options, report, spares, zeroed)
}

/// Removes what a crash left over; answers the files that can be used again.
fn clean_up(
    files: &dyn FileLayer,
    dir: &Path,
    names: &mut Names,
    report: &mut OpenReport,
) -> Result<Vec<PathBuf>, LogError> {
    let mut spares = Vec::new();
    for name in &names.rest {
        if name.ends_with(".spare") && spares.is_empty() {
            spares.push(dir.join(name));
        } else if name.ends_with(".spare") || name.ends_with(".tmp") {
            remove(files, &dir.join(name), name, report)?;
        }
    }
    let sealed: Vec<u64> = names.sealed.iter().map(|n| index_of_name(n)).collect();
    let (twice, open) = names
        .open
        .drain(..)
        .partition(|n| sealed.contains(&index_of_name(n)));
    names.open = open;
    for name in &twice {
        let sealed = sealed_name(index_of_name(name));
        SealedSegment::open(files, dir, &sealed)?;
        remove(files, &dir.join(name), name, report)?;
    }
    Ok(spares)
}

fn remove(
    files: &dyn FileLayer,
    path: &Path,
    name: &str,
    report: &mut OpenReport,
) -> Result<(), LogError> {
    report.removed.push(name.to_owned());
    files
        .remove(path)
        .map_err(|e| LogError::io("remove", path, e))
}

fn create(files: &dyn FileLayer, dir: &Path, options: &LogOptions) -> Result<(), LogError> {
    let epoch = options.epoch.unwrap_or_else(|| Epoch {
        id: rand::random(),
        first_index: 0,
    });
    let first = epoch.first_index;
    let range = options.tree.then(CompactRange::default);
    let header = Header {
        seed: rand::random(),
        epoch,
        first,
        range,
    };
    let tmp = dir.join("next.tmp");
    let path = dir.join(open_name(first));
    let file = files
        .create(&tmp, options.segment_bytes)
        .map_err(|e| LogError::io("create", &tmp, e))?;
    file.write_at(&header.encode(OPEN_MAGIC), 0)
        .and_then(|()| file.sync())
        .map_err(|e| LogError::io("write", &tmp, e))?;
    files
        .rename(&tmp, &path)
        .and_then(|()| files.sync_dir(dir))
        .map_err(|e| LogError::io("rename", &path, e))
}

/// Decides where the last segment ends: an unsynced tail is cut, lost durable frames are an error.
fn finalize_last(last: Scanned, report: &mut OpenReport) -> Result<(OpenSegment, u64), LogError> {
    let end = &last.end;
    if end.durable > end.end {
        return Err(last.corrupt());
    }
    if end.beyond > 0 || end.torn {
        let cut = TruncatedTail {
            segment: last.segment.name.clone(),
            offset: end.end,
            next: last.next(),
            frames: end.beyond,
        };
        tracing::warn!(?cut, "cut an unsynced tail of the log");
        report.cut = Some(cut);
        // Frames beyond the cut must never be taken for later ones.
        let to = end.beyond_end.max(end.end + 4096);
        wipe(&*last.segment.file, &last.segment.path, end.end, to)?;
    }
    rewrite(
        &*last.segment.file,
        &last.segment.path,
        end.durable,
        end.end,
    )?;
    let zeroed = end.end;
    Ok((last.segment, zeroed))
}

/// Writes the frames that are not known to be durable once more, and syncs them: they count from
/// now on. A program that was killed leaves them in memory alone, and after a failed sync the
/// kernel may take them for written.
fn rewrite(file: &dyn LogFile, path: &Path, durable: u64, end: u64) -> Result<(), LogError> {
    let mut at = durable.max(HEADER as u64);
    let mut buf = vec![0; 64 << 10];
    while at < end {
        let n = buf.len().min((end - at) as usize);
        let got = file
            .read_at(&mut buf[..n], at)
            .map_err(|e| LogError::io("read", path, e))?;
        if got == 0 {
            break;
        }
        file.write_at(&buf[..got], at)
            .map_err(|e| LogError::io("write", path, e))?;
        at += got as u64;
    }
    file.sync().map_err(|e| LogError::io("sync", path, e))
}

fn wipe(file: &dyn LogFile, path: &Path, from: u64, to: u64) -> Result<(), LogError> {
    let zeros = vec![0; 64 << 10];
    let mut at = from;
    while at < to {
        let n = zeros.len().min((to - at) as usize);
        file.write_at(&zeros[..n], at)
            .map_err(|e| LogError::io("write", path, e))?;
        at += n as u64;
    }
    file.sync().map_err(|e| LogError::io("sync", path, e))
}

/// Every segment begins where the one before it ends, the first where it must.
fn check_order(segments: &[Segment], purged_next: Option<u64>) -> Result<(), LogError> {
    let first = &segments[0];
    let expected = purged_next.unwrap_or(first.header().epoch.first_index);
    let missing =
        |name: &str, index| LogError::corrupt(name, 0, index, "the segment before it is missing");
    if first.first() > expected {
        return Err(missing(first.name(), expected));
    }
    for pair in segments.windows(2) {
        if pair[1].first() != pair[0].next() {
            return Err(missing(pair[1].name(), pair[0].next()));
        }
    }
    Ok(())
}

fn assemble(
    segments: Vec<Arc<Segment>>,
    mut locals: Locals,
    options: &LogOptions,
    report: OpenReport,
    spares: Vec<PathBuf>,
    zeroed: u64,
) -> Result<Opened, LogError> {
    let last = Arc::clone(segments.last().expect("there is always an open segment"));
    let next = last.next();
    let first = locals
        .purged
        .as_ref()
        .map_or(segments[0].first(), |(i, _)| i + 1);
    if options.auto_commit {
        locals.committed = next.checked_sub(1).map(|i| (i, Bytes::new()));
    }
    let epoch = last.header().epoch;
    let pos = last
        .open()
        .expect("the last segment is open")
        .frames
        .read()
        .end;
    let active = Active {
        segment: last,
        pos,
        zeroed,
        next,
    };
    let committed = locals.committed.as_ref().map(|(i, _)| *i);
    let set = SegmentSet::new(segments);
    let tree = if options.tree {
        read_tree(&set, epoch, next, committed)?
    } else {
        Tree::new(None, epoch.first_index)
    };
    let state = LogState {
        next,
        first,
        durable_next: next,
        tail_first: next,
        vote: locals.vote,
        committed: locals.committed,
        purged: locals.purged,
        ..LogState::default()
    };
    Ok(Opened {
        report,
        epoch,
        state,
        segments: set.all(),
        active,
        tree,
        spares,
    })
}

/// Folds the tree from the start of the last segment that holds something committed.
fn read_tree(
    set: &SegmentSet,
    epoch: Epoch,
    next: u64,
    committed: Option<u64>,
) -> Result<Tree, LogError> {
    let from = committed.map_or(0, |c| (c + 1).min(next));
    let all = set.all();
    let start = set.find(from).unwrap_or_else(|| Arc::clone(&all[0]));
    let mut tree = Tree::new(start.header().range.clone(), epoch.first_index);
    let mut at = start.first();
    while at < next {
        let entries = set.read(at, next, 256 << 10)?;
        if entries.is_empty() {
            break;
        }
        for e in &entries {
            tree.append(leaf_hash(&e.body));
        }
        at += entries.len() as u64;
    }
    if let Some(index) = committed {
        tree.commit(index);
    }
    Ok(tree)
}
