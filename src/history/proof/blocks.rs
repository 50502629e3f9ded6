//! The upper part of the tree, kept ready: one root for every 256 leaves, and what lies above.
//!
//! A proof then reads at most some hundreds of events, however long the log is. The roots lie in
//! a file beside the log that follows from the log and is made again when it is missing; the
//! levels above them are in memory. Tiles of the tree (C2SP tlog-tiles) are cut from both.
//!
//! Where the beginning of a log was dropped, these roots are all that is left of it, with the
//! leaves of the one block that the horizon cuts in two (the *edge*).

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::ProofError;
use super::merkle::Subtrees;
use crate::log::atomic_file;
use crate::log::node_hash;
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

/// The leaves of a block of which the log has not all any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Edge {
    /// The number of the first; a multiple of [`BLOCK`].
    from: u64,
    leaves: Vec<Hash>,
}

impl Edge {
    /// The number of the leaf behind the last one.
    fn end(&self) -> u64 {
        self.from + self.leaves.len() as u64
    }
}

/// The roots of whole blocks and of what lies above.
pub struct Blocks {
    file: Option<File>,
    edge: Edge,
    edge_path: PathBuf,
    /// From the blocks' own roots upwards.
    levels: Vec<Vec<Hash>>,
}

impl Blocks {
    /// None yet, and kept in memory only.
    pub fn empty() -> Self {
        Self {
            file: None,
            edge: Edge::default(),
            edge_path: PathBuf::new(),
            levels: vec![Vec::new()],
        }
    }

    /// Those of a file, which is made if it does not exist. What it holds above `leaves`, the size
    /// of the tree, is dropped.
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
        blocks.edge_path = path.with_extension("edge");
        blocks.edge = read_edge(&blocks.edge_path)?;
        Ok(blocks)
    }

    /// Keeps what proofs of later events need of the first `size` leaves, which may be dropped
    /// once this returns: it is on the disk.
    ///
    /// # Errors
    /// Those of reading the log and writing files.
    pub fn keep_below(&mut self, log: &dyn Bodies, size: u64) -> Result<(), ProofError> {
        self.follow(log, size)?;
        let from = size / BLOCK * BLOCK;
        let edge = Edge {
            from,
            leaves: self.leaves(log, from, size)?,
        };
        let path = &self.edge_path;
        let io = |source| ProofError::File {
            path: path.clone(),
            source,
        };
        if let Some(file) = &self.file {
            file.sync_all().map_err(io)?;
        }
        let bytes = [&from.to_le_bytes()[..], edge.leaves.as_flattened()].concat();
        atomic_file::put(path, &bytes).map_err(io)?;
        self.edge = edge;
        Ok(())
    }

    /// The leaf hashes `[from, to)`: those at the edge as they are kept, the others from the log.
    ///
    /// # Errors
    /// Damage, or a log that does not hold them.
    pub fn leaves(&self, log: &dyn Bodies, from: u64, to: u64) -> Result<Vec<Hash>, ProofError> {
        let edge = &self.edge;
        if from < edge.from || from >= edge.end() {
            return leaves(log, from, to);
        }
        let cut = to.min(edge.end());
        let kept = (from - edge.from) as usize..(cut - edge.from) as usize;
        let mut hashes = edge.leaves[kept].to_vec();
        if to > cut {
            hashes.extend(leaves(log, cut, to)?);
        }
        Ok(hashes)
    }

    /// Whole blocks that are known.
    pub fn count(&self) -> u64 {
        self.levels[0].len() as u64
    }

    /// Forgets what can be made again of the log that is kept; for a file that does not fit it, as
    /// after a power cut. What lies below was synced before the log there was dropped.
    ///
    /// # Errors
    /// The file cannot be cut.
    pub fn clear(&mut self) -> Result<(), ProofError> {
        let kept = self.count().min(self.edge.from / BLOCK);
        let roots: Vec<_> = self.levels[0].drain(..).take(kept as usize).collect();
        self.levels = vec![Vec::new()];
        roots.into_iter().for_each(|root| self.push_up(root));
        match &self.file {
            Some(file) => file.set_len(kept * 32).map_err(ProofError::Blocks),
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
        if (self.edge.from, self.edge.end() > from) == (from, true) {
            for leaf in &self.edge.leaves {
                range.push(*leaf);
            }
            read = self.edge.end();
        }
        for entry in log.scan(first + read).take((whole - read) as usize) {
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

/// The edge that was kept; an empty one if there is none.
fn read_edge(path: &Path) -> Result<Edge, ProofError> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Edge::default()),
        other => other.map_err(|source| ProofError::File {
            path: path.to_owned(),
            source,
        })?,
    };
    let Some((from, leaves)) = bytes.split_first_chunk::<8>() else {
        return Ok(Edge::default());
    };
    Ok(Edge {
        from: u64::from_le_bytes(*from),
        leaves: leaves.as_chunks::<32>().0.to_vec(),
    })
}

/// A tree of a log: its blocks, and leaves where blocks do not reach.
pub struct BlockTree<'a> {
    /// The upper part.
    pub blocks: &'a Blocks,
    /// Where leaves are read.
    pub log: &'a dyn Bodies,
}

impl Subtrees for BlockTree<'_> {
    type Error = ProofError;

    fn subtree(&self, level: u32, n: u64) -> Result<Hash, ProofError> {
        if level >= BLOCK_LEVEL
            && let Some(node) = self.blocks.node(level, n)
        {
            return Ok(node);
        }
        let mut range = CompactRange::default();
        for leaf in self.blocks.leaves(self.log, n << level, (n + 1) << level)? {
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
