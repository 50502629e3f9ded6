//! Verification of a log's files, without trusting their writer.
//!
//! Everything is read again: every frame and block against its checksum, every body into the
//! tree, the tree against every checkpoint, every checkpoint against a key. It needs the files
//! alone, and changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::checkpoint::{CheckpointFile, of_note, origin};
use super::{Checkpoint, NoteKey, ProofError, note};
use crate::log::{CompactRange, Hash, ReadOnlyLog, leaf_hash};

/// Entries between two reports of progress.
const REPORT: u64 = 8192;
/// Bytes of a body before its event: index and term.
const HEAD: usize = 16;

/// What is to be verified.
#[derive(Clone, Debug, Default)]
pub struct Verify {
    /// The keys whose signatures count; those beside the checkpoints if there are none here.
    pub pinned: Vec<NoteKey>,
}

impl Verify {
    /// The keys whose signatures count.
    ///
    /// # Errors
    /// The file of keys cannot be read.
    pub fn keys(&self, server_dir: &Path) -> Result<Vec<NoteKey>, ProofError> {
        match self.pinned.as_slice() {
            [] => beside(server_dir),
            pinned => Ok(pinned.to_vec()),
        }
    }
}

/// Something that is wrong, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The first index that cannot be trusted, where one is known.
    pub index: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// What was verified.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Entries read.
    pub entries: u64,
    /// The first of them.
    pub first: u64,
    /// The index of the signed base that the log continues from, where its beginning was dropped.
    pub base: Option<u64>,
    /// The last of them.
    pub last: u64,
    /// Leaves of the tree after the last.
    pub size: u64,
    /// The root after the last.
    pub root: Hash,
    /// Checkpoints that fit.
    pub checkpoints: u64,
    /// The index of the last checkpoint: what lies above is not signed yet.
    pub signed_to: Option<u64>,
    /// The names of the keys that signed, and whether the verifying user named them.
    pub signers: Vec<String>,
    /// Whether the verifying user named the keys.
    pub pinned: bool,
    /// What is wrong, in the order in which it was found. Nothing beyond the first can be relied
    /// on.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Finds fault with a log of which no checkpoint is by a key that was named.
    pub fn want_signature(&mut self) {
        if self.pinned && self.signers.is_empty() {
            self.find(None, "there is no checkpoint by a key that was named");
        }
    }

    fn find(&mut self, index: Option<u64>, what: impl Into<String>) {
        self.findings.push(Finding {
            index,
            what: what.into(),
        });
    }
}

/// Verifies the log in `log_dir` with the checkpoints in `server_dir`. `progress` is called with
/// how many entries were read, and of how many.
///
/// # Errors
/// There is no log, or a file cannot be read at all; damage is a finding.
pub fn verify(
    log_dir: &Path,
    server_dir: &Path,
    how: &Verify,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verified, ProofError> {
    let mut verified = Verified {
        pinned: !how.pinned.is_empty(),
        ..Verified::default()
    };
    // Before the log: a server that writes meanwhile signs what the log does not have yet.
    let notes = CheckpointFile::notes(&server_dir.join(super::ledger::CHECKPOINTS));
    let log = match ReadOnlyLog::open(log_dir) {
        Ok(log) => log,
        Err(error @ crate::log::LogError::Corrupt { .. }) => {
            verified.find(None, error.to_string());
            return Ok(verified);
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(damage) = log.damage() {
        verified.find(None, damage.to_string());
    }
    let keys = how.keys(server_dir)?;
    let notes = notes?;
    for at in notes.damaged {
        let what = format!("the file of checkpoints is damaged at byte {at}");
        verified.find(None, what);
    }
    let mut signed = signed(&log, notes.notes, &keys, &mut verified);
    signed.take_bases(&log, server_dir, &keys);
    let mut checkpoints = std::mem::take(&mut signed.by_size);
    check_base(&log, server_dir, &keys, &mut verified)?;
    read(&log, &mut checkpoints, &mut verified, progress)?;
    for checkpoint in checkpoints.values().flatten() {
        verified.find(
            Some(verified.last + 1),
            format!(
                "the log ends at index {}, but index {} was signed: its end was cut off",
                verified.last, checkpoint.index
            ),
        );
    }
    // Whatever else is wrong: this cannot come of an accident.
    verified.findings.splice(0..0, signed.contradictions);
    Ok(verified)
}

/// The checkpoints with a signature that counts.
#[derive(Debug, Default)]
struct Signed {
    /// By size; several where they contradict one another.
    by_size: BTreeMap<u64, Vec<Checkpoint>>,
    /// Findings where different things were signed of one place of one log.
    contradictions: Vec<Finding>,
}

impl Signed {
    /// Takes one that `signer` signed, as `place` has it.
    fn take(&mut self, checkpoint: &Checkpoint, signer: &NoteKey, place: &str) -> bool {
        let others = self.by_size.entry(checkpoint.size).or_default();
        if others.contains(checkpoint) {
            return false;
        }
        if let Some(other) = others.first() {
            let (index, what) = (checkpoint.index, contradiction(other, checkpoint));
            self.contradictions.push(Finding {
                index: Some(index),
                what: format!(
                    "TWO HISTORIES WERE SIGNED for index {index}: {what} (the second in {place}, \
                     signed by {}). The holder of the key has shown one history to some and \
                     another to others, or made the history anew",
                    signer.text()
                ),
            });
        }
        others.push(checkpoint.clone());
        true
    }

    /// What is signed beside the bases contradicts nothing either.
    fn take_bases(&mut self, log: &ReadOnlyLog, server_dir: &Path, keys: &[NoteKey]) {
        let name = origin(log.epoch());
        for text in base_notes(server_dir) {
            let base = of_note(&text).filter(|base| base.origin == name);
            let signer = keys.iter().find(|key| note::open(&text, key).is_ok());
            let Some((base, signer)) = base.zip(signer) else {
                continue;
            };
            // Against the checkpoints alone: what the base says of the log is checked by itself.
            if self.by_size.contains_key(&base.size) && self.take(&base, signer, "a base") {
                let same = self.by_size.entry(base.size).or_default();
                same.pop();
            }
        }
    }
}

/// In what two checkpoints of one size differ.
fn contradiction(one: &Checkpoint, other: &Checkpoint) -> String {
    let roots = [one, other].map(|one| STANDARD.encode(one.root));
    match roots[0] == roots[1] {
        false => format!("the root {} and the root {}", roots[0], roots[1]),
        true if one.state != other.state => {
            let states = [one, other].map(|one| hex::encode(one.state));
            format!("the tables {} and the tables {}", states[0], states[1])
        }
        true => format!("{:?} and {:?}", one.to_text(), other.to_text()),
    }
}

/// The checkpoints with a signature that counts; the others are findings.
fn signed(
    log: &ReadOnlyLog,
    notes: Vec<String>,
    keys: &[NoteKey],
    verified: &mut Verified,
) -> Signed {
    let name = origin(log.epoch());
    let mut signed = Signed::default();
    for text in notes {
        let Some(checkpoint) = of_note(&text) else {
            verified.find(None, "a checkpoint cannot be read");
            continue;
        };
        let index = Some(checkpoint.index);
        if checkpoint.origin != name {
            let other = &checkpoint.origin;
            verified.find(index, format!("the checkpoint is of another log: {other}"));
            continue;
        }
        let opened: Vec<_> = keys
            .iter()
            .map(|key| (key, note::open(&text, key)))
            .collect();
        match opened.iter().find(|(_, opened)| opened.is_ok()) {
            Some((key, _)) => {
                if !verified.signers.contains(&key.text()) {
                    verified.signers.push(key.text());
                }
                signed.take(&checkpoint, key, super::ledger::CHECKPOINTS);
            }
            None => {
                let why = opened.into_iter().find_map(|(_, opened)| match opened {
                    Err(error @ super::NoteError::Forged(_)) => Some(error.to_string()),
                    _ => None,
                });
                let why = why.unwrap_or_else(|| "no known key signed it".to_owned());
                let at = checkpoint.index;
                verified.find(
                    index,
                    format!("the checkpoint at index {at} is not valid: {why}"),
                );
            }
        }
    }
    signed
}

/// A log whose beginning was dropped continues from a signed base, whose tree is that of its first
/// segment's head.
fn check_base(
    log: &ReadOnlyLog,
    server_dir: &Path,
    keys: &[NoteKey],
    verified: &mut Verified,
) -> Result<(), ProofError> {
    let first = log.bounds().0;
    if first == log.epoch().first_index {
        return Ok(());
    }
    let name = origin(log.epoch());
    let mut notes: Vec<_> = base_notes(server_dir)
        .into_iter()
        .filter_map(|text| Some((of_note(&text)?, text)))
        .collect();
    notes.sort_by_key(|(base, _)| base.index);
    for (base, text) in notes {
        if base.index + 1 < first {
            continue;
        }
        let Some(range) = log.range_at(base.index)? else {
            continue;
        };
        let signed = keys.iter().any(|key| note::open(&text, key).is_ok());
        if !signed || base.origin != name {
            let what = format!("no known key signed the base at index {}", base.index);
            verified.find(Some(base.index), what);
        } else if base.size != range.size() || base.root != range.root() {
            let what = format!(
                "the log does not continue from its base at index {}",
                base.index
            );
            verified.find(Some(first), what);
        } else {
            verified.base = Some(base.index);
        }
        return Ok(());
    }
    let what = format!("the log begins at index {first}, and no signed base is kept for it");
    verified.find(Some(first), what);
    Ok(())
}

/// The notes of the bases beside a log.
fn base_notes(server_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(server_dir.join("snapshots"));
    let notes = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("note"));
    // A backup that was unpacked has one, under another name.
    let notes = notes.chain([server_dir.join("base/note")]);
    notes
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect()
}

/// The keys that lie beside the checkpoints.
pub(super) fn beside(server_dir: &Path) -> Result<Vec<NoteKey>, ProofError> {
    let path = server_dir.join(super::ledger::KEYS);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| NoteKey::parse(line).ok())
            .collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(ProofError::File { path, source }),
    }
}

/// Reads the whole log into the tree and takes out each checkpoint that fits.
fn read(
    log: &ReadOnlyLog,
    checkpoints: &mut BTreeMap<u64, Vec<Checkpoint>>,
    verified: &mut Verified,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ProofError> {
    let (first, next) = log.bounds();
    let Some(mut range) = tree_below(log, first)? else {
        verified.find(
            Some(first),
            "the tree below the first kept segment is not known",
        );
        return Ok(());
    };
    verified.first = first;
    // What was signed below was dropped.
    checkpoints.retain(|size, _| *size > range.size());
    let mut at = first;
    for entry in log.scan(first) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let what = error.to_string();
                if verified.findings.iter().all(|finding| finding.what != what) {
                    verified.find(Some(at), what);
                }
                break;
            }
        };
        let own = entry
            .body
            .first_chunk::<8>()
            .map(|bytes| u64::from_le_bytes(*bytes));
        if entry.index != at || entry.body.len() < HEAD || own != Some(at) {
            verified.find(
                Some(at),
                format!("the entry at index {at} says it is another"),
            );
            break;
        }
        range.push(leaf_hash(&entry.body));
        verified.entries += 1;
        verified.last = at;
        at += 1;
        let due = checkpoints.remove(&range.size()).unwrap_or_default();
        let root = range.root();
        // Where there are two, that is reported already; this log is one of them, or neither.
        let due = due.iter().find(|one| one.root == root).or(due.first());
        if due.is_some_and(|checkpoint| !fits(checkpoint, root, verified)) {
            break;
        }
        if verified.entries.is_multiple_of(REPORT) {
            progress(verified.entries, next - first);
        }
    }
    if at < next && verified.findings.is_empty() {
        verified.find(
            Some(at),
            format!("the log has no entry {at}: a segment is missing"),
        );
    }
    if !verified.findings.is_empty() {
        checkpoints.clear();
    }
    progress(verified.entries, next - first);
    (verified.size, verified.root) = (range.size(), range.root());
    Ok(())
}

/// The tree over what lies below the first index that is kept.
fn tree_below(log: &ReadOnlyLog, first: u64) -> Result<Option<CompactRange>, ProofError> {
    match first
        .checked_sub(1)
        .filter(|_| first != log.epoch().first_index)
    {
        Some(before) => Ok(log.range_at(before)?),
        None => Ok(Some(CompactRange::default())),
    }
}

/// Whether the log, read to the size of the checkpoint, is what was signed.
fn fits(checkpoint: &Checkpoint, root: Hash, verified: &mut Verified) -> bool {
    let at = checkpoint.index;
    if checkpoint.root == root && at == verified.last {
        verified.checkpoints += 1;
        verified.signed_to = Some(at);
        return true;
    }
    let from = verified
        .signed_to
        .map_or(verified.first, |signed| signed + 1);
    verified.find(
        Some(from),
        format!(
            "the log is not what was signed at index {at}: an event between {from} and {at} was \
             changed"
        ),
    );
    false
}
