//! What a running server keeps of its proofs: the tree's upper part and the checkpoints.
//!
//! Files in the server's directory: `tree` (roots of blocks of 256 leaves), `checkpoints` (signed
//! notes), `checkpoints.keys` (the public keys that signed them, one verifier key a line).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use super::blocks::{BLOCK, BLOCK_LEVEL, BlockTree, Blocks, leaves};
use super::checkpoint::{Checkpoint, CheckpointFile, of_note, origin};
use super::{NoteKey, ProofError, merkle, note};
use crate::log::atomic_file;
use crate::log::{Hash, LogEngine, LogError};

pub(super) const CHECKPOINTS: &str = "checkpoints";
/// The name of the file of public keys.
pub(super) const KEYS: &str = "checkpoints.keys";
const TREE: &str = "tree";
/// Hashes in a whole tile.
const TILE: u64 = 256;
/// Levels of the tree that one level of tiles spans.
const TILE_LEVELS: u32 = 8;

/// What operators see.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LedgerStatus {
    /// The log index of the last checkpoint.
    pub index: u64,
    /// The leaves it covers.
    pub size: u64,
    /// Checkpoints made since the start.
    pub signed: u64,
}

/// The proofs of one log.
pub struct Ledger {
    log: Arc<LogEngine>,
    dir: PathBuf,
    /// Held while hashes are made; a caller that needs both this and the head takes this first.
    state: Mutex<LedgerState>,
    /// Never held for longer than it takes to look.
    head: Mutex<SignedHead>,
}

struct LedgerState {
    blocks: Blocks,
    file: CheckpointFile,
    checked: bool,
    known: Option<NoteKey>,
}

/// What was signed last.
#[derive(Default)]
struct SignedHead {
    last: Option<(Checkpoint, String)>,
    signed: u64,
}

/// A proof as it is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inclusion {
    pub leaf: u64,
    /// The leaf's hash.
    pub hash: Hash,
    /// The tree's leaves.
    pub size: u64,
    /// The tree's root.
    pub root: Hash,
    /// The audit path, nearest first.
    pub path: Vec<Hash>,
}

/// A proof that one tree is the beginning of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consistency {
    /// Size and root of the earlier tree.
    pub old: (u64, Hash),
    /// Size and root of the later tree.
    pub new: (u64, Hash),
    /// The proof.
    pub path: Vec<Hash>,
}

impl Ledger {
    /// Opens what is kept in the server's directory.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn open(log: Arc<LogEngine>, dir: &Path) -> Result<Self, ProofError> {
        let (file, last) = CheckpointFile::open(&dir.join(CHECKPOINTS))?;
        let size = log.compact_range().map_or(0, |range| range.size());
        let blocks = Blocks::open(&dir.join(TREE), size)?;
        let own = origin(log.epoch());
        let last = last.and_then(|note| Some((of_note(&note)?, note)));
        let last = last.filter(|(checkpoint, _)| checkpoint.origin == own);
        Ok(Self {
            log,
            dir: dir.to_owned(),
            state: Mutex::new(LedgerState {
                blocks,
                file,
                checked: false,
                known: None,
            }),
            head: Mutex::new(SignedHead { last, signed: 0 }),
        })
    }

    /// The leaves up to and with an index of the log.
    fn size_at(&self, index: u64) -> u64 {
        index
            .saturating_add(1)
            .saturating_sub(self.log.epoch().first_index)
    }

    /// The last checkpoint's note.
    pub fn latest(&self) -> Option<String> {
        let head = self.head.lock();
        head.last.as_ref().map(|(_, note)| note.clone())
    }

    pub fn status(&self) -> LedgerStatus {
        let head = self.head.lock();
        let last = head.last.as_ref().map(|(checkpoint, _)| checkpoint);
        LedgerStatus {
            index: last.map_or(0, |last| last.index),
            size: last.map_or(0, |last| last.size),
            signed: head.signed,
        }
    }

    /// Signs the state after the event at `index`, which is committed; nothing happens if the last
    /// checkpoint is of that index or a later one, or if the event is not on the disk yet: a start
    /// refuses a log that lacks what was signed.
    ///
    /// # Errors
    /// The log no longer begins as the last checkpoint says: nothing is signed then. A file.
    pub fn sign(
        &self,
        (index, time, digest): (u64, i64, [u8; 32]),
        key: &SigningKey,
    ) -> Result<(), ProofError> {
        let size = self.size_at(index);
        if self.log.durable_next() <= index {
            return Ok(());
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let former = self.last();
        if size == 0 || former.as_ref().is_some_and(|former| former.size >= size) {
            return Ok(());
        }
        self.check(&mut state.blocks, &mut state.checked, former.as_ref())?;
        state.blocks.follow(&*self.log, size)?;
        let root = merkle::root(&self.tree(&state.blocks), size)?;
        let checkpoint = Checkpoint {
            origin: origin(self.log.epoch()),
            size,
            root,
            index,
            time,
            state: digest,
        };
        let note = note::sign(&checkpoint.to_text(), &checkpoint.origin, key);
        let public = NoteKey::new(checkpoint.origin.as_str(), key.verifying_key());
        self.publish(&mut state.known, public)?;
        state.file.append(&note)?;
        let mut head = self.head.lock();
        head.last = Some((checkpoint, note));
        head.signed += 1;
        Ok(())
    }

    /// Keeps what later proofs need of the log up to `index`, which is signed, and may be dropped
    /// once this returns.
    ///
    /// # Errors
    /// The log cannot be read, or a file be written.
    pub fn keep_below(&self, index: u64) -> Result<(), ProofError> {
        let mut state = self.checked()?;
        state.blocks.keep_below(&*self.log, self.size_at(index))
    }

    /// The last checkpoint.
    fn last(&self) -> Option<Checkpoint> {
        let head = self.head.lock();
        head.last.as_ref().map(|(checkpoint, _)| checkpoint.clone())
    }

    /// The state, its tree checked against the log.
    fn checked(&self) -> Result<MutexGuard<'_, LedgerState>, ProofError> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let last = self.last();
        self.check(&mut state.blocks, &mut state.checked, last.as_ref())?;
        Ok(guard)
    }

    /// Once after the start: the kept part of the tree fits the log, and the log still begins as
    /// the last checkpoint says.
    fn check(
        &self,
        blocks: &mut Blocks,
        checked: &mut bool,
        last: Option<&Checkpoint>,
    ) -> Result<(), ProofError> {
        if *checked {
            return Ok(());
        }
        let count = blocks.count();
        let (from, to) = (count.saturating_sub(1) * BLOCK, count * BLOCK);
        let fresh = Blocks::empty();
        // The tree of dropped entries cannot be made again.
        let whole = !self.is_purged(0);
        if count > 0 && whole {
            let own = merkle::Subtrees::subtree(&self.tree(&fresh), BLOCK_LEVEL, from / BLOCK)?;
            if blocks.node(BLOCK_LEVEL, from / BLOCK) != Some(own) {
                tracing::warn!(
                    leaves = to,
                    "the kept part of the tree does not fit: made again"
                );
                blocks.clear()?;
            }
        }
        if let Some(last) = last {
            blocks.follow(&*self.log, last.size)?;
            let mut root = merkle::root(&self.tree(blocks), last.size)?;
            if root != last.root {
                // The kept part may be at fault, not the log.
                blocks.clear()?;
                blocks.follow(&*self.log, last.size)?;
                root = merkle::root(&self.tree(blocks), last.size)?;
            }
            if root != last.root {
                return Err(ProofError::Question(format!(
                    "the log up to index {} is not what its last checkpoint says; \
                     run `drover log verify`",
                    last.index
                )));
            }
        }
        *checked = true;
        Ok(())
    }

    fn is_purged(&self, leaf: u64) -> bool {
        self.log.epoch().first_index + leaf < self.log.bounds().0
    }

    fn tree<'a>(&'a self, blocks: &'a Blocks) -> BlockTree<'a> {
        BlockTree {
            blocks,
            log: &*self.log,
        }
    }

    /// Adds a key to the file of public keys, unless it is there.
    fn publish(&self, known: &mut Option<NoteKey>, key: NoteKey) -> Result<(), ProofError> {
        if known.as_ref() == Some(&key) {
            return Ok(());
        }
        let path = self.dir.join(KEYS);
        let io = |source| ProofError::File {
            path: path.clone(),
            source,
        };
        let mut text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            other => other.map_err(io)?,
        };
        let line = key.text();
        if !text.lines().any(|other| other == line) {
            text.push_str(&line);
            text.push('\n');
            // The keys of older checkpoints must not be lost.
            atomic_file::put(&path, text.as_bytes()).map_err(io)?;
        }
        *known = Some(key);
        Ok(())
    }

    /// The public keys that signed checkpoints here, as verifier keys.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn keys(&self) -> Result<Vec<String>, ProofError> {
        let path = self.dir.join(KEYS);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(ProofError::File { path, source }),
        }
    }

    /// The proof that the event at `index` is in the log that ends with the event at `until`.
    ///
    /// # Errors
    /// Indexes outside the log, below or above; a log that cannot be read.
    pub fn inclusion(&self, index: u64, until: u64) -> Result<Inclusion, ProofError> {
        let first = self.log.epoch().first_index;
        if index < first || index > until {
            return Err(ProofError::Question(format!(
                "index {index} is not between {first} and {until}"
            )));
        }
        let (leaf, size) = (index - first, self.size_at(until));
        let mut state = self.checked()?;
        state.blocks.follow(&*self.log, size)?;
        let tree = self.tree(&state.blocks);
        if self.is_purged(leaf) {
            let first = self.log.bounds().0;
            return Err(ProofError::Log(LogError::Purged { index, first }));
        }
        let hash = leaves(&*self.log, leaf, leaf + 1)?.swap_remove(0);
        Ok(Inclusion {
            leaf,
            hash,
            size,
            root: merkle::root(&tree, size)?,
            path: merkle::inclusion(&tree, leaf, size)?,
        })
    }

    /// The proof that the log up to `from` is the beginning of the log up to `to`.
    ///
    /// # Errors
    /// Indexes outside the log or in the wrong order; a log that cannot be read.
    pub fn consistency(&self, from: u64, to: u64) -> Result<Consistency, ProofError> {
        let (old, new) = (self.size_at(from), self.size_at(to));
        if old == 0 || old > new {
            return Err(ProofError::Question(format!(
                "the log up to index {from} is no beginning of the log up to {to}"
            )));
        }
        let mut state = self.checked()?;
        state.blocks.follow(&*self.log, new)?;
        let tree = self.tree(&state.blocks);
        Ok(Consistency {
            old: (old, merkle::root(&tree, old)?),
            new: (new, merkle::root(&tree, new)?),
            path: merkle::consistency(&tree, old, new)?,
        })
    }

    /// A tile of the tree (C2SP tlog-tiles): `width` hashes of level `8 * level`, from number
    /// `256 * n` on, 32 bytes each.
    ///
    /// # Errors
    /// A tile that is not whole yet in the log that ends with the event at `until`.
    pub fn tile(&self, level: u32, n: u64, width: u64, until: u64) -> Result<Vec<u8>, ProofError> {
        let size = self.size_at(until);
        let depth = level.saturating_mul(TILE_LEVELS);
        let nodes = size.checked_shr(depth).unwrap_or(0);
        let from = n.saturating_mul(TILE);
        if width == 0 || width > TILE || from.checked_add(width).is_none_or(|to| to > nodes) {
            return Err(ProofError::Question(format!(
                "the log of {size} entries has no tile {level}/{n} of {width} hashes"
            )));
        }
        if depth == 0 {
            let hashes = match leaves(&*self.log, from, from + width) {
                Err(ProofError::Log(LogError::Purged { .. })) => {
                    let state = self.checked()?;
                    state.blocks.leaves(&*self.log, from, from + width)?
                }
                other => other?,
            };
            return Ok(hashes.concat());
        }
        let mut state = self.checked()?;
        state.blocks.follow(&*self.log, size)?;
        let tree = self.tree(&state.blocks);
        let mut bytes = Vec::with_capacity(width as usize * 32);
        for number in from..from + width {
            bytes.extend(merkle::Subtrees::subtree(&tree, depth, number)?);
        }
        Ok(bytes)
    }
}
