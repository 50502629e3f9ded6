//! The upper part of the tree, kept ready: one root for every 256 leaves, and what lies above.
//!
//! A proof then reads at most some hundreds of events, however long the log is. The roots lie in
//! a file beside the log that follows from the log and is made again when it is missing; the
//! levels above them are in memory. Tiles of the tree (C2SP tlog-tiles) are cut from both.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::ProofError;
use super::merkle::Subtrees;
use crate::log::tree::node_hash;
use crate::log::{CompactRange, Epoch, Hash, LogEngine, LogError, ReadOnlyLog, Scan, leaf_hash};

/// Leaves under one root, as a power of two.
pub(super) const BLOCK_LEVEL: u32 = 8;
/// Leaves under one root.
pub const BLOCK: u64 = 1 << BLOCK_LEVEL;

/// A log that leaves are read from.
pub trait Bodies {
    /// The epoch: where leaf 0 lies.
    fn epoch(&self) -> Epoch;
    /// The entries from an index on.
    fn scan(&self, from: u64) -> Scan<'_>;
}

impl Bodies for LogEngine {
    fn epoch(&self) -> Epoch {
        self.epoch()
    }

    fn scan(&self, from: u64) -> Scan<'_> {
        self.scan(from)
    }
}

impl Bodies for ReadOnlyLog {
    fn epoch(&self) -> Epoch {
        self.epoch()
    }

    fn scan(&self, from: u64) -> Scan<'_> {
        self.scan(from)
    }
}

/// The leaf hashes `[from, to)` of a log.
///
/// # Errors
/// Damage, or a log that does not hold them.
pub fn leaves(log: &dyn Bodies, from: u64, to: u64) -> Result<Vec<Hash>, ProofError> {
    let first = log.epoch().first_index;
    let mut hashes = Vec::with_capacity(usize::try_from(to - from).unwrap_or_default());
    for entry in log.scan(first + from).take((to - from) as usize) {
        hashes.push(leaf_hash(&entry?.body));
    }
    match hashes.len() as u64 == to - from {
        true => Ok(hashes),
        false => Err(ProofError::Short {
            wanted: to,
            leaves: from + hashes.len() as u64,
        }),
    }
}

/// The roots of whole blocks and of what lies above.
pub struct Blocks {
    file: Option<File>,
    /// From the blocks' own roots upwards.
    levels: Vec<Vec<Hash>>,
}

impl Blocks {
    /// None yet, and kept in memory only.
    pub fn empty() -> Self {
        Self {
            file: None,
            levels: vec![Vec::new()],
        }
    }

    /// Those of a file, which is made if there is none. What it holds above `leaves`, the size of
    /// the tree, is dropped.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn open(path: &Path, leaves: u64) -> Result<Self, ProofError> {
        let io = |source| ProofError::File {
            path: path.to_owned(),
            source,
        };
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false);
        let mut file = file.open(path).map_err(io)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let mut blocks = Self::empty();
        for root in bytes
            .as_chunks::<32>()
            .0
            .iter()
            .take((leaves / BLOCK) as usize)
        {
            blocks.push_up(*root);
        }
        file.set_len(blocks.count() * 32).map_err(io)?;
        blocks.file = Some(file);
        Ok(blocks)
    }

    /// Whole blocks that are known.
    pub fn count(&self) -> u64 {
        self.levels[0].len() as u64
    }

    /// Forgets everything; for a file that does not fit its log.
    ///
    /// # Errors
    /// The file cannot be cut.
    pub fn clear(&mut self) -> Result<(), ProofError> {
        self.levels = vec![Vec::new()];
        match &self.file {
            Some(file) => file.set_len(0).map_err(ProofError::Blocks),
            None => Ok(()),
        }
    }

    /// Takes in the whole blocks below `size` leaves.
    ///
    /// # Errors
    /// Those of reading the log and writing the file.
    pub fn follow(&mut self, log: &dyn Bodies, size: u64) -> Result<(), ProofError> {
        let from = self.count() * BLOCK;
        let whole = size / BLOCK * BLOCK;
        if whole <= from {
            return Ok(());
        }
        let first = log.epoch().first_index;
        let (mut range, mut read) = (CompactRange::default(), from);
        for entry in log.scan(first + from).take((whole - from) as usize) {
            range.push(leaf_hash(&entry?.body));
            read += 1;
            if range.size() == BLOCK {
                self.push(range.root())?;
                range = CompactRange::default();
            }
        }
        match read == whole {
            true => Ok(()),
            false => Err(ProofError::Short {
                wanted: whole,
                leaves: read,
            }),
        }
    }

    /// Takes in the next block.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, root: Hash) -> Result<(), ProofError> {
        if let Some(file) = &self.file {
            file.write_all_at(&root, self.count() * 32)
                .map_err(ProofError::Blocks)?;
        }
        self.push_up(root);
        Ok(())
    }

    fn push_up(&mut self, root: Hash) {
        let (mut node, mut level) = (root, 0);
        loop {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            let nodes = &mut self.levels[level];
            nodes.push(node);
            let [.., left, right] = nodes.as_slice() else {
                return;
            };
            if nodes.len() % 2 == 1 {
                return;
            }
            node = node_hash(left, right);
            level += 1;
        }
    }

    /// The node `n` of a level at or above `BLOCK_LEVEL`.
    pub fn node(&self, level: u32, n: u64) -> Option<Hash> {
        let nodes = self.levels.get((level - BLOCK_LEVEL) as usize)?;
        nodes.get(usize::try_from(n).ok()?).copied()
    }
}

/// A tree of a log: its blocks, and leaves where blocks do not reach.
pub struct Tree<'a> {
    /// The upper part.
    pub blocks: &'a Blocks,
    /// Where leaves are read.
    pub log: &'a dyn Bodies,
}

impl Subtrees for Tree<'_> {
    type Error = ProofError;

    fn subtree(&self, level: u32, n: u64) -> Result<Hash, ProofError> {
        if level >= BLOCK_LEVEL
            && let Some(node) = self.blocks.node(level, n)
        {
            return Ok(node);
        }
        let mut range = CompactRange::default();
        for leaf in leaves(self.log, n << level, (n + 1) << level)? {
            range.push(leaf);
        }
        Ok(range.root())
    }
}

impl From<LogError> for ProofError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}
