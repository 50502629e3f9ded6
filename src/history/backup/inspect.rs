//! Inspect: what is in a backup, and whether it is what was written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

use super::ArchiveError;
use super::base;
use super::manifest::{self, FORMAT, MANIFEST, Manifest, SIGNATURE, SUMS};
use super::save::head_of;
use super::tar::{Part, Sinks, TarReader};
use crate::history::proof::{self, Checkpoint, NoteKey};
use crate::history::reserve::{DiskReserve, RESERVE, ReservedWriter};
use crate::raft::snapshot::SnapshotDir;

/// The part with the public keys that signed checkpoints, and the backup.
const KEYS: &str = "checkpoints.keys";
/// The parts that are kept in memory, and the bytes of each at most. Those of a log of 100,000
/// segments fit: its sums have a line for every one.
const KEPT: [(&str, u64); 4] = [
    (MANIFEST, 8 << 20),
    (SUMS, 32 << 20),
    (SIGNATURE, 1 << 20),
    (KEYS, 8 << 20),
];

/// The most parts of a backup, each of which is a file where it is unpacked: more than the sums can
/// name.
const MOST_PARTS: usize = 400_000;

/// What a backup holds.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// What it says of itself, if that can be read.
    pub manifest: Option<Manifest>,
    pub parts: Vec<Part>,
    /// The key that signed it, as a verifier key.
    pub signer: Option<String>,
    /// Whether the caller named that key.
    pub pinned: bool,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

/// A part that is kept in memory, written elsewhere, or only hashed.
type PartWriter = Box<dyn Write>;

/// A part whose bytes are wanted.
#[derive(Clone, Default)]
struct CapturedPart(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedPart {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Ok(mut kept) = self.0.lock() {
            kept.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CapturedPart {
    /// Refuses a part that is larger than any backup's.
    fn check(name: &str, size: u64, most: u64) -> io::Result<()> {
        match size > most {
            true => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{name} has {size} bytes, and that of a backup {most} at most"),
            )),
            false => Ok(()),
        }
    }

    /// Takes the bytes out.
    fn take(&self) -> Vec<u8> {
        let kept = self.0.lock();
        kept.map(|mut kept| std::mem::take(&mut *kept))
            .unwrap_or_default()
    }
}

/// Writes to two places.
struct Both(CapturedPart, PartWriter);

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes)?;
        self.1.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.flush()
    }
}

/// Reads a backup and checks every byte of it; `pinned` are the keys whose signature counts, those
/// in the backup if there are none. `progress` is called with the bytes read.
///
/// # Errors
/// A file that cannot be read at all; what is wrong with it is part of the answer.
pub fn inspect(
    from: &mut dyn Read,
    pinned: &[NoteKey],
    progress: &mut dyn FnMut(u64),
) -> Result<Inspection, ArchiveError> {
    read(from, pinned, &mut |_, _| Ok(Box::new(io::sink())), progress)
}

/// Unpacks a backup into an empty directory, checking every byte of it. Space is left on its disk
/// for what else is served from there.
///
/// # Errors
/// What cannot be read or written; a disk that has no space for a part of it. A backup with
/// anything wrong is refused by the first thing.
pub fn unpack(
    from: &mut dyn Read,
    pinned: &[NoteKey],
    dir: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Manifest, ArchiveError> {
    let reserve = DiskReserve::of(&dir.join(MANIFEST), RESERVE);
    unpack_within(from, (pinned, &reserve), dir, progress)
}

fn unpack_within(
    from: &mut dyn Read,
    (pinned, reserve): (&[NoteKey], &DiskReserve),
    dir: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Manifest, ArchiveError> {
    let mut to = |name: &str, size: u64| {
        reserve.check_write(size)?;
        create(&dir.join(name), reserve)
    };
    let found = read(from, pinned, &mut to, progress)?;
    if let Some(problem) = found.problems.first() {
        return Err(ArchiveError::Refused(format!(
            "the backup is not what was written: {problem}"
        )));
    }
    found
        .manifest
        .ok_or_else(|| ArchiveError::Refused("the backup has no manifest".to_owned()))
}

/// Unpacks a backup as [`unpack`] does, into the form of a server's directory, and checks the state
/// against the backup's own statement. Answers that statement, as a checkpoint.
///
/// # Errors
/// As [`unpack`]; a state that is not what the backup says.
pub fn lay_out(
    from: &mut dyn Read,
    pinned: &[NoteKey],
    dir: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Checkpoint, ArchiveError> {
    let manifest = unpack(from, pinned, dir, progress)?;
    let state = SnapshotDir::new(dir.to_owned());
    let checkpoint = base::read_back(&state, &dir.join("check.tmp"))?;
    let same = checkpoint.index == manifest.index
        && checkpoint.size == manifest.tree_size
        && hex::encode(checkpoint.root) == manifest.tree_root
        && hex::encode(checkpoint.state) == manifest.state;
    if !same {
        let what = "the backup's state is not the one its manifest names";
        return Err(ArchiveError::Refused(what.to_owned()));
    }
    let base = SnapshotDir::new(dir.join("base"));
    if base.path().is_dir() {
        let name = head_of(&base)?.name();
        let to = dir.join("snapshots").join(name);
        fs::create_dir_all(dir.join("snapshots"))
            .and_then(|()| fs::rename(base.path(), &to))
            .map_err(ArchiveError::file("rename", base.path()))?;
    }
    Ok(checkpoint)
}

/// Makes a file for a part. Whether the whole part fits was looked at, but others write to the disk
/// too while it comes in.
fn create(path: &Path, reserve: &DiskReserve) -> io::Result<PartWriter> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let file = File::create(path)?;
    Ok(Box::new(ReservedWriter::new(file, reserve.clone())))
}

fn read(
    from: &mut dyn Read,
    pinned: &[NoteKey],
    to: Sinks<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Inspection, ArchiveError> {
    let mut found = Inspection {
        pinned: !pinned.is_empty(),
        ..Inspection::default()
    };
    let kept: BTreeMap<&str, (CapturedPart, u64)> = KEPT
        .map(|(name, most)| (name, (CapturedPart::default(), most)))
        .into();
    let (mut tar, mut names) = (TarReader::new(from), BTreeSet::new());
    loop {
        let next = tar.next(&mut |name, size| {
            if names.len() >= MOST_PARTS || !names.insert(name.to_owned()) {
                let why = format!("{name} is in it twice, or it has more than {MOST_PARTS} parts");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let Some((kept, most)) = kept.get(name) else {
                return to(name, size);
            };
            CapturedPart::check(name, size, *most)?;
            Ok(Box::new(Both(kept.clone(), to(name, size)?)))
        });
        match next {
            Ok(Some(part)) => found.parts.push(part),
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                found.problems.push(error.to_string());
                return Ok(found);
            }
            Err(error) => return Err(ArchiveError::io(error)),
        }
        progress(tar.position());
    }
    let take = |name: &str| kept.get(name).map(|(kept, _)| kept.take());
    let [manifest, sums, note, keys] =
        [MANIFEST, SUMS, SIGNATURE, KEYS].map(|name| take(name).unwrap_or_default());
    check_sums(&mut found, &sums);
    match serde_json::from_slice::<Manifest>(&manifest) {
        Ok(manifest) if manifest.format != FORMAT => found.problems.push(format!(
            "its layout is {}, this program knows {FORMAT}",
            manifest.format
        )),
        Ok(manifest) => found.manifest = Some(manifest),
        Err(error) => found
            .problems
            .push(format!("{MANIFEST} cannot be read: {error}")),
    }
    let (note, keys) = (
        String::from_utf8_lossy(&note),
        String::from_utf8_lossy(&keys),
    );
    check_signature(&mut found, &note, &keys, &sums, pinned);
    Ok(found)
}

/// Every part has its sum, and every sum its part.
fn check_sums(found: &mut Inspection, sums: &[u8]) {
    let text = String::from_utf8_lossy(sums);
    let mut wanted: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines() {
        if let Some((hash, name)) = line.split_once("  ") {
            wanted.insert(name, hash);
        }
    }
    let mut problems = Vec::new();
    for part in &found.parts {
        if part.name == SUMS || part.name == SIGNATURE {
            continue;
        }
        match wanted.remove(part.name.as_str()) {
            None => problems.push(format!("{} has no sum in {SUMS}", part.name)),
            Some(hash) if hash != hex::encode(part.sha256) => {
                problems.push(format!("{} is damaged: its SHA-256 is another", part.name));
            }
            Some(_) => {}
        }
    }
    problems.extend(wanted.keys().map(|name| format!("{name} is missing")));
    if sums.is_empty() {
        problems = vec![format!("{SUMS} is missing: it was cut short")];
    }
    found.problems.extend(problems);
}

/// The signature over the sums, where there is one; where keys are pinned there must be.
fn check_signature(
    found: &mut Inspection,
    note: &str,
    beside: &str,
    sums: &[u8],
    pinned: &[NoteKey],
) {
    if note.is_empty() {
        if found.pinned {
            found.problems.push("it is not signed".to_owned());
        }
        return;
    }
    let own: Vec<NoteKey> = beside
        .lines()
        .filter_map(|key| NoteKey::parse(key).ok())
        .collect();
    let keys = if pinned.is_empty() { &own } else { pinned };
    let sums: [u8; 32] = Sha256::digest(sums).into();
    for key in keys {
        if let Ok(text) = proof::open(note, key) {
            if text == manifest::statement(key.name(), &sums) {
                found.signer = Some(key.text());
            } else {
                let problem = "what was signed are other sums than these";
                found.problems.push(problem.to_owned());
            }
            return;
        }
    }
    found.problems.push(match keys.is_empty() {
        true => "no key is known that its signature could be checked with".to_owned(),
        false => "no known key signed it".to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use super::super::tar::TarWriter;
    use super::*;

    #[test]
    fn of_a_backup_for_which_the_disk_has_no_space_nothing_is_written() {
        let own = tempfile::tempdir().unwrap();
        let mut backup = Vec::new();
        let mut tar = TarWriter::new(&mut backup);
        tar.add_bytes("state/rows-00000.sst", &[7; 1024]).unwrap();
        tar.finish().unwrap();
        let dir = own.path().join("unpacked");
        fs::create_dir(&dir).unwrap();
        let unpacked = |needed| {
            let reserve = DiskReserve::of(&dir.join(MANIFEST), needed);
            unpack_within(&mut &*backup, (&[], &reserve), &dir, &mut |_| ())
        };
        let refused = unpacked(u64::MAX).unwrap_err();
        assert!(matches!(refused, ArchiveError::NoSpace(_)), "{refused:?}");
        assert!(refused.to_string().starts_with("the disk is full"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        // With space it is only refused for what it is.
        let refused = unpacked(0).unwrap_err().to_string();
        assert!(refused.contains("SHA256SUMS is missing"), "{refused}");
        assert_eq!(
            fs::read(dir.join("state/rows-00000.sst")).unwrap(),
            [7; 1024]
        );
    }

    #[test]
    fn a_disk_that_gets_full_while_a_part_is_written_ends_it() {
        let own = tempfile::tempdir().unwrap();
        let mut backup = Vec::new();
        let mut tar = TarWriter::new(&mut backup);
        tar.add_bytes("rows", &[7; 2 << 20]).unwrap();
        tar.finish().unwrap();
        let path = own.path().join("rows");
        // It fits when it begins, and so do two pieces of it.
        let reserve = DiskReserve::for_looks(&path, 3);
        let done = unpack_within(&mut &*backup, (&[], &reserve), own.path(), &mut |_| ());
        let refused = done.unwrap_err();
        assert!(matches!(refused, ArchiveError::NoSpace(_)), "{refused:?}");
        let written = fs::metadata(&path).unwrap().len();
        assert!((1..1 << 20).contains(&written), "{written}");
    }

    #[test]
    fn what_is_kept_in_memory_is_as_large_as_that_of_a_backup_at_most() {
        let packed = |parts: &[(&str, u64)]| {
            let mut backup = Vec::new();
            let mut tar = TarWriter::new(&mut backup);
            for (name, size) in parts {
                tar.add(name, *size, &mut io::repeat(b'x')).unwrap();
            }
            tar.finish().unwrap();
            backup
        };
        for (name, most) in KEPT {
            let more = format!("{name} has {} bytes, and", most + 1);
            let twice = format!("{name} is in it twice");
            for (parts, first) in [
                (&[(name, most + 1)][..], more),
                (&[(name, 1), (name, 1)], twice),
            ] {
                let found = inspect(&mut &*packed(parts), &[], &mut |_| ()).unwrap();
                let [problem] = &found.problems[..] else {
                    panic!("{:?}", found.problems)
                };
                assert!(problem.starts_with(&first), "{problem}");
            }
        }
    }

    #[test]
    fn the_sums_of_a_log_of_many_segments_are_kept() {
        let part = |number: u64| Part {
            name: format!("log/{}", "x".repeat(150)),
            size: number,
            sha256: [7; 32],
        };
        let parts: Vec<Part> = (0..100_000).map(part).collect();
        let sums = manifest::sums(&parts).len() as u64;
        let (_, most) = KEPT.into_iter().find(|(name, _)| *name == SUMS).unwrap();
        assert!(sums <= most, "{sums}");
    }
}
