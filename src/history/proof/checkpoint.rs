//! Checkpoints: what is signed, and the file they are kept in (C2SP tlog-checkpoint).
//!
//! ```text
//! drover/<epoch>                 the log's name, which is the key's name too
//! 812                            leaves of the tree
//! CsUYapGGPo4dkMgIAUqom/Xajj7…   its root, base64
//! index 812                      the log index of the last leaf
//! time 2026-01-02T03:04:05Z      the time of the last event
//! state 9f86d081884c7d659a2f…    SHA-256 over the tables' digests at that index
//! ```
//!
//! One append-only text file holds all of them, one note after the other; a note ends with its
//! signature line and the next begins with the origin.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_projections::TableDigest;
use sha2::{Digest, Sha256};

use super::{NoteKey, ProofError, note};
use crate::log::atomic_file;
use crate::log::{Epoch, FileLayer, Hash, LogFile, RealFiles, parent_dir};

/// A statement about the log at an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name.
    pub origin: String,
    /// Leaves of the tree.
    pub size: u64,
    /// The root over them.
    pub root: Hash,
    /// The log index of the last leaf.
    pub index: u64,
    /// The time of the last event, Unix nanoseconds.
    pub time: i64,
    /// The digest of all tables after it ([`state_digest`]).
    pub state: [u8; 32],
}

/// The name of a log: that of its epoch.
pub fn origin(epoch: Epoch) -> String {
    format!("drover/{}", hex::encode(epoch.id))
}

/// One digest for those of all tables: SHA-256 over (number u16 LE ‖ digest) in the tables' order.
/// Tables without rows are left out, so a new table changes nothing.
pub fn state_digest(tables: &[TableDigest]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for table in tables {
        if table.digest == Default::default() {
            continue;
        }
        hash.update(table.table.to_le_bytes());
        hash.update(table.digest.to_hex().as_bytes());
    }
    hash.finalize().into()
}

fn hash(text: &str) -> Option<[u8; 32]> {
    hex::decode(text).ok()?.try_into().ok()
}

impl Checkpoint {
    /// The text that is signed.
    pub fn to_text(&self) -> String {
        let time = jiff::Timestamp::from_nanosecond(self.time.into()).unwrap_or_default();
        format!(
            "{}\n{}\n{}\nindex {}\ntime {time}\nstate {}\n",
            self.origin,
            self.size,
            STANDARD.encode(self.root),
            self.index,
            hex::encode(self.state),
        )
    }

    /// Reads a text that [`Checkpoint::to_text`] wrote; lines it does not know are passed over.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let origin = lines.next()?.to_owned();
        let size = lines.next()?.parse().ok()?;
        let root = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
        let (mut index, mut time, mut state) = (None, None, None);
        for line in lines {
            match line.split_once(' ')? {
                ("index", value) => index = value.parse().ok(),
                ("time", value) => {
                    let parsed: jiff::Timestamp = value.parse().ok()?;
                    time = i64::try_from(parsed.as_nanosecond()).ok();
                }
                ("state", value) => state = hash(value),
                _ => {}
            }
        }
        Some(Self {
            origin,
            size,
            root,
            index: index?,
            time: time?,
            state: state?,
        })
    }
}

/// What every note begins with, behind the line end of the one before.
const BEGIN: &[u8] = b"\ndrover/";
/// What stands before every signature.
const DASH: &[u8] = "\u{2014} ".as_bytes();

/// What a file of checkpoints holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Its notes, oldest first.
    pub notes: Vec<String>,
    /// Where bytes begin that belong to no note. What a torn write left at the end is not among
    /// them.
    pub damaged: Vec<usize>,
    /// Where the last note ends.
    end: usize,
}

impl Notes {
    fn of(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let whole = |len: &usize| at + len < bytes.len() || !has_hole(&rest[..*len]);
            if let Some(len) = note_length(rest).filter(whole) {
                let note = String::from_utf8_lossy(&rest[..len]).into_owned();
                found.notes.push(note);
                at += len;
                found.end = at;
                continue;
            }
            let next = find(rest, BEGIN);
            if next.is_some() || !is_torn(rest) {
                found.damaged.push(at);
            }
            at = next.map_or(bytes.len(), |next| at + next + 1);
        }
        found
    }

    /// The notes that one of these keys signed.
    fn signed<'a>(&'a self, keys: &'a [NoteKey]) -> impl DoubleEndedIterator<Item = Checkpoint> {
        let by_one = move |note: &&String| keys.iter().any(|key| note::open(note, key).is_ok());
        let signed = self.notes.iter().filter(by_one);
        signed.filter_map(|note| of_note(note))
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The length of the note that these bytes begin with, if they do.
fn note_length(bytes: &[u8]) -> Option<usize> {
    let body = find(bytes, b"\n\n")? + 2;
    if find(&bytes[..body], BEGIN).is_some() {
        return None;
    }
    let mut end = body;
    while bytes[end..].starts_with(DASH) {
        end += find(&bytes[end..], b"\n")? + 1;
    }
    (end > body).then_some(end)
}

/// Whether this can be the beginning of a note whose end was never written.
fn is_torn(bytes: &[u8]) -> bool {
    if has_hole(bytes) {
        return true;
    }
    let whole_line = |from: usize| bytes[from..].contains(&b'\n');
    let behind = |what: &[u8]| find(bytes, what).is_some_and(|at| whole_line(at + what.len()));
    !behind(b"\n\n") && !behind(DASH)
}

/// Whether a part was never written: the disk took what lies behind it first.
fn has_hole(bytes: &[u8]) -> bool {
    find(bytes, &[0; 8]).is_some()
}

fn damaged(path: &Path, at: usize) -> ProofError {
    ProofError::Question(format!(
        "{} is damaged at byte {at}: what stands there is no checkpoint",
        path.display()
    ))
}

/// The file of a log's checkpoints.
pub struct CheckpointFile {
    path: PathBuf,
    file: Arc<dyn LogFile>,
    end: u64,
}

impl CheckpointFile {
    /// Opens the file, or makes it, and answers the last note in it. A torn end is cut.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn open(path: &Path) -> Result<(Self, Option<String>), ProofError> {
        Self::open_on(&RealFiles, path)
    }

    /// As [`open`](Self::open), over a file layer.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(
        files: &dyn FileLayer,
        path: &Path,
    ) -> Result<(Self, Option<String>), ProofError> {
        let io = |source| ProofError::File {
            path: path.to_owned(),
            source,
        };
        let made = || {
            let file = files.create(path, 0)?;
            files.sync_dir(parent_dir(path)).map(|()| file)
        };
        let file = match files.open(path, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => made(),
            other => other,
        };
        let file = file.map_err(io)?;
        let mut found = Self::notes_on(files, path)?;
        if let Some(at) = found.damaged.first() {
            return Err(damaged(path, *at));
        }
        let end = found.end as u64;
        if file.size().map_err(io)? != end {
            let cut = file.set_size(end).and_then(|()| file.sync());
            cut.map_err(io)?;
        }
        let path = path.to_owned();
        Ok((Self { path, file, end }, found.notes.pop()))
    }

    /// All notes of a file, oldest first; none if there is no file.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn read(path: &Path) -> Result<Vec<String>, ProofError> {
        let found = Self::notes(path)?;
        match found.damaged.first() {
            Some(at) => Err(damaged(path, *at)),
            None => Ok(found.notes),
        }
    }

    /// What a file holds, damaged or not; nothing if there is no file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn notes(path: &Path) -> Result<Notes, ProofError> {
        Self::notes_on(&RealFiles, path)
    }

    fn notes_on(files: &dyn FileLayer, path: &Path) -> Result<Notes, ProofError> {
        match atomic_file::read_on(files, path) {
            Ok(bytes) => Ok(Notes::of(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Notes::default()),
            Err(source) => Err(ProofError::File {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// The last checkpoint in a server's directory whose index is `index` or below, and that a key
    /// beside it signed; none where no such checkpoint exists.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn last_below(server_dir: &Path, index: u64) -> Result<Option<Checkpoint>, ProofError> {
        Self::last_of(server_dir, |checkpoint| checkpoint.index <= index)
    }

    /// The last checkpoint of the log of `epoch` in a server's directory that a key beside it
    /// signed; none if there is no such.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn last_signed(server_dir: &Path, epoch: Epoch) -> Result<Option<Checkpoint>, ProofError> {
        let name = origin(epoch);
        Self::last_of(server_dir, |checkpoint| checkpoint.origin == name)
    }

    /// The last checkpoint that a key beside it signed and that is wanted.
    fn last_of(
        server_dir: &Path,
        wanted: impl Fn(&Checkpoint) -> bool,
    ) -> Result<Option<Checkpoint>, ProofError> {
        let keys = super::verify::beside(server_dir)?;
        let found = Self::notes(&server_dir.join(super::ledger::CHECKPOINTS))?;
        Ok(found.signed(&keys).rev().find(wanted))
    }

    /// The checkpoints in a server's directory that can be read, oldest first, of any signer.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn checkpoints(server_dir: &Path) -> Result<Vec<Checkpoint>, ProofError> {
        let found = Self::notes(&server_dir.join(super::ledger::CHECKPOINTS))?;
        let notes = found.notes.iter();
        Ok(notes.filter_map(|note| of_note(note)).collect())
    }

    /// Adds a note; it is on the disk when this returns. So only the last one can ever be torn.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, note: &str) -> Result<(), ProofError> {
        let io = |source| ProofError::File {
            path: self.path.clone(),
            source,
        };
        let written = self.file.write_at(note.as_bytes(), self.end);
        if let Err(source) = written.and_then(|()| self.file.sync()) {
            // Half a note would make the next one unreadable too.
            self.file.set_size(self.end).map_err(io)?;
            return Err(io(source));
        }
        self.end += note.len() as u64;
        Ok(())
    }
}

/// The checkpoint in a note, by any signer.
pub(super) fn of_note(text: &str) -> Option<Checkpoint> {
    Checkpoint::parse(note::text(text).ok()?)
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;

    use super::*;

    fn sample(size: u64) -> Checkpoint {
        Checkpoint {
            origin: "drover/00ff".to_owned(),
            size,
            root: [size as u8; 32],
            index: size,
            time: 1_700_000_000_123_456_789,
            state: [9; 32],
        }
    }

    #[test]
    fn a_checkpoint_returns_from_its_text() {
        let sample = sample(812);
        assert_eq!(Checkpoint::parse(&sample.to_text()), Some(sample.clone()));
        let more = format!("{}later field\n", sample.to_text());
        assert_eq!(Checkpoint::parse(&more), Some(sample));
        for bad in ["", "a\nb\nc\n", "drover/1\n5\nAAAA\nindex 5\n"] {
            assert_eq!(Checkpoint::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_torn_note_is_cut_and_the_others_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoints");
        let key = SigningKey::from_bytes(&[4; 32]);
        let made: Vec<String> = (1..4)
            .map(|size| note::sign(&sample(size).to_text(), "drover/00ff", &key))
            .collect();
        let (mut file, last) = CheckpointFile::open(&path).unwrap();
        assert_eq!(last, None);
        made.iter().for_each(|note| file.append(note).unwrap());
        assert_eq!(CheckpointFile::read(&path).unwrap(), made);
        for lost in 1..made[2].len() as u64 {
            let length = made.iter().map(|note| note.len() as u64).sum::<u64>() - lost;
            std::fs::write(&path, &made.concat().as_bytes()[..length as usize]).unwrap();
            assert_eq!(CheckpointFile::read(&path).unwrap(), made[..2]);
            let (_, last) = CheckpointFile::open(&path).unwrap();
            assert_eq!(last.as_ref(), Some(&made[1]), "{lost} bytes lost");
        }
    }

    #[test]
    fn checkpoints_outlive_a_power_cut_and_none_is_taken_for_damage() {
        use drover_fake_disk::{FakeDisk, Op};
        let path = Path::new("/data/server/checkpoints");
        let key = SigningKey::from_bytes(&[4; 32]);
        let note = |size| note::sign(&sample(size).to_text(), "drover/00ff", &key);
        for (failing, seed) in (0..4).flat_map(|at| (0..40).map(move |seed| (at, seed))) {
            let disk = FakeDisk::default();
            disk.create_dir(parent_dir(path)).unwrap();
            let (mut file, _) = CheckpointFile::open_on(&disk, path).unwrap();
            let mut acked = Vec::new();
            disk.fail(Op::Sync, failing, 1);
            for size in 1..5 {
                let note = note(size);
                if file.append(&note).is_err() {
                    break;
                }
                acked.push(note);
            }
            // What is on its way when the power goes.
            let _ = file.file.write_at(note(9).as_bytes(), file.end);
            let cut = disk.power_cut(seed);
            let opened = CheckpointFile::open_on(&cut, path);
            let (mut file, last) = opened.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let kept = CheckpointFile::notes_on(&cut, path).unwrap().notes;
            assert!(
                kept.len() <= acked.len() + 1 && kept.starts_with(&acked),
                "seed {seed}"
            );
            assert_eq!(last.as_ref(), kept.last());
            file.append(&note(20)).unwrap();
            let kept = CheckpointFile::notes_on(&cut.power_cut(seed), path).unwrap();
            assert_eq!(
                (kept.notes.last(), kept.damaged.len()),
                (Some(&note(20)), 0)
            );
        }
    }

    #[test]
    fn no_flipped_bit_makes_a_checkpoint_vanish_silently() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoints");
        let key = SigningKey::from_bytes(&[4; 32]);
        let own = NoteKey::new("drover/00ff", key.verifying_key());
        let made: Vec<String> = (1..4)
            .map(|size| note::sign(&sample(size).to_text(), "drover/00ff", &key))
            .collect();
        let whole = made.concat().into_bytes();
        // Without its last byte the last note is one that was never written to its end.
        for at in 0..whole.len() - 1 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let found = Notes::of(&bytes);
            let bad = |note: &String| note::open(note, &own).is_err() || of_note(note).is_none();
            let named = !found.damaged.is_empty() || found.notes.iter().any(bad);
            assert!(named, "byte {at}: {found:?}");
            std::fs::write(&path, &bytes).unwrap();
            let opened = CheckpointFile::open(&path);
            assert_eq!(opened.is_err(), !found.damaged.is_empty());
            if opened.is_err() {
                assert_eq!(std::fs::read(&path).unwrap(), bytes, "it was changed");
            }
        }
    }

    #[test]
    fn only_a_checkpoint_that_was_signed_is_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let key = |seed| SigningKey::from_bytes(&[seed; 32]);
        let made = [(100, key(4)), (200, key(4)), (250, key(9))]
            .map(|(size, key)| note::sign(&sample(size).to_text(), "drover/00ff", &key));
        let own = NoteKey::new("drover/00ff", key(4).verifying_key());
        std::fs::write(dir.path().join("checkpoints.keys"), own.text()).unwrap();
        let path = dir.path().join("checkpoints");
        let last = |below| {
            let found = CheckpointFile::last_below(dir.path(), below).unwrap();
            found.map(|checkpoint| checkpoint.index)
        };
        std::fs::write(&path, made.concat()).unwrap();
        assert_eq!(last(300), Some(200), "another's does not count");
        assert_eq!((last(150), last(50)), (Some(100), None));
        let state = made.concat().rfind("0909").unwrap();
        let second = made[0].len() + made[1].rfind("0909").unwrap();
        for at in [state, second] {
            let mut bytes = made.concat().into_bytes();
            bytes[at] = b'1';
            std::fs::write(&path, bytes).unwrap();
            let wanted = if at == second { 100 } else { 200 };
            assert_eq!(last(300), Some(wanted));
        }
    }
}
