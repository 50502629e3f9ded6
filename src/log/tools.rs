//! What the command line shows of a log: inspection and the walk that replay is made of.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::LogError;
use super::format::{Entry, Epoch};
use super::readonly::ReadOnlyLog;
use super::segment::SegmentInfo;
use super::tree::{Hash, leaf_hash};

/// What `log inspect` prints.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub epoch: Epoch,
    /// First index, and the index after the last.
    pub bounds: (u64, u64),
    /// The committed index as last written down.
    pub committed: Option<u64>,
    /// The segments, each with its counts.
    pub segments: Vec<SegmentInfo>,
    /// Entries by kind over all segments.
    pub kinds: BTreeMap<u16, u64>,
    /// Size and root of the tree over all that could be read, if the log keeps one.
    pub root: Option<(u64, Hash)>,
    /// The first damage found, as a sentence.
    pub damage: Option<String>,
}

/// Reads the whole log in `dir`, every checksum included.
///
/// # Errors
/// If there is no readable log. Damage inside is part of the answer.
pub fn inspect(dir: &Path) -> Result<Inspection, LogError> {
    let log = ReadOnlyLog::open(dir)?;
    let mut segments = log.segments();
    let mut kinds = BTreeMap::new();
    let (first, mut next) = log.bounds();
    let mut damage = log.damage().map(ToString::to_string);
    let mut range = match first.checked_sub(1) {
        Some(before) if first > log.epoch().first_index => log.range_at(before).unwrap_or(None),
        _ => Some(super::CompactRange::default()),
    };
    for found in log.scan(first) {
        let entry = match found {
            Ok(entry) => entry,
            Err(e) => {
                damage.get_or_insert_with(|| e.to_string());
                break;
            }
        };
        next = entry.index + 1;
        *kinds.entry(entry.kind).or_default() += 1;
        if let Some(range) = &mut range {
            range.push(leaf_hash(&entry.body));
        }
        count(&mut segments, &entry);
    }
    Ok(Inspection {
        epoch: log.epoch(),
        bounds: (first, next),
        committed: log.committed(),
        segments,
        kinds,
        root: range.map(|r| (r.size(), r.root())),
        damage,
    })
}

/// Completes what an open segment does not know of itself.
fn count(segments: &mut [SegmentInfo], entry: &Entry) {
    let at = segments.partition_point(|s| s.first <= entry.index);
    let Some(info) = at
        .checked_sub(1)
        .map(|n| &mut segments[n])
        .filter(|s| !s.sealed)
    else {
        return;
    };
    info.body_bytes += entry.body.len() as u64;
    *info.kinds.entry(entry.kind).or_default() += 1;
    if entry.time != 0 {
        let (lo, hi) = info.times.unwrap_or((entry.time, entry.time));
        info.times = Some((lo.min(entry.time), hi.max(entry.time)));
    }
}
