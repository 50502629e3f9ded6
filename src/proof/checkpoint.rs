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

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_projections::{TableDigest, hex, unhex};
use sha2::{Digest, Sha256};

use super::{ProofError, note};
use crate::log::{Epoch, Hash};

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
    format!("drover/{}", hex(&epoch.id))
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
    unhex(text)?.try_into().ok()
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
            hex(&self.state),
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

/// Where a text ends and its signatures begin.
const SIGNED: &str = "\n\n\u{2014} ";

/// The notes of a file, oldest first; what follows the last whole one (a torn write) is left out.
fn notes(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let body = rest.find("\n\n")? + 2;
        let mut end = body;
        while rest[end..].starts_with('\u{2014}') {
            end += rest[end..].find('\n')? + 1;
        }
        let (note, behind) = rest.split_at(end);
        rest = behind;
        (end > body).then_some(note)
    })
}

/// The file of a log's checkpoints.
pub struct CheckpointFile {
    path: PathBuf,
    file: File,
}

impl CheckpointFile {
    /// Opens the file, or makes it, and answers the last note in it. A torn end is cut.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn open(path: &Path) -> Result<(Self, Option<String>), ProofError> {
        let io = |source| ProofError::File {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(io)?;
        let text = Self::read_text(path)?;
        let (mut whole, mut last) = (0, None);
        for note in notes(&text) {
            whole += note.len();
            last = Some(note.to_owned());
        }
        let behind = &text[whole..];
        let signed = behind.find(SIGNED).map(|at| &behind[at + SIGNED.len()..]);
        if signed.is_some_and(|rest| rest.contains('\n')) {
            return Err(ProofError::Question(format!(
                "{} is damaged at byte {whole}: checkpoints behind it cannot be read",
                path.display()
            )));
        }
        file.set_len(whole as u64).map_err(io)?;
        Ok((
            Self {
                path: path.to_owned(),
                file,
            },
            last,
        ))
    }

    /// All notes of a file, oldest first; none if there is no file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Vec<String>, ProofError> {
        let text = Self::read_text(path)?;
        Ok(notes(&text).map(str::to_owned).collect())
    }

    /// The last checkpoint in a server's directory whose index is `index` or below, whoever signed
    /// it; none if there is no such.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn last_below(server_dir: &Path, index: u64) -> Result<Option<Checkpoint>, ProofError> {
        let mut known = Self::checkpoints(server_dir)?.into_iter().rev();
        Ok(known.find(|checkpoint| checkpoint.index <= index))
    }

    /// The checkpoints in a server's directory that can be read, oldest first, whoever signed them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn checkpoints(server_dir: &Path) -> Result<Vec<Checkpoint>, ProofError> {
        let notes = Self::read(&server_dir.join(super::ledger::CHECKPOINTS))?;
        Ok(notes.iter().filter_map(|note| of_note(note)).collect())
    }

    fn read_text(path: &Path) -> Result<String, ProofError> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(ProofError::File {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Adds a note.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, note: &str) -> Result<(), ProofError> {
        let io = |source| ProofError::File {
            path: self.path.clone(),
            source,
        };
        let end = self.file.metadata().map_err(io)?.len();
        if let Err(source) = self.file.write_all(note.as_bytes()) {
            // Half a note would make the next one unreadable too.
            self.file.set_len(end).map_err(io)?;
            return Err(io(source));
        }
        Ok(())
    }
}

/// The checkpoint in a note, whoever signed it.
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
            let (_, last) = CheckpointFile::open(&path).unwrap();
            assert_eq!(last.as_ref(), Some(&made[1]), "{lost} bytes lost");
        }
    }
}
