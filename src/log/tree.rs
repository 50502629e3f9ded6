//! The Merkle tree of RFC 6962 over the bodies of log entries, kept as a compact range.
//!
//! Leaf number = log index − first index of the epoch; leaf = SHA-256(0x00 ‖ body), inner node =
//! SHA-256(0x01 ‖ left ‖ right). A compact range of size n holds the roots of the perfect subtrees
//! that n's set bits stand for, largest first: enough to continue and to give the root.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// The leaf of a body (RFC 6962, section 2.1).
pub fn leaf_hash(body: &[u8]) -> Hash {
    let mut h = Sha256::new();
    h.update([0u8]);
    h.update(body);
    h.finalize().into()
}

pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut buf = [1u8; 65];
    buf[1..33].copy_from_slice(left);
    buf[33..].copy_from_slice(right);
    Sha256::digest(buf).into()
}

/// The right-hand edge of a tree: its size and the roots of its perfect subtrees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactRange {
    size: u64,
    nodes: Vec<Hash>,
}

impl CompactRange {
    /// A range from its parts; `None` unless there is one node for each set bit of `size`.
    pub fn from_parts(size: u64, nodes: Vec<Hash>) -> Option<CompactRange> {
        (nodes.len() == size.count_ones() as usize).then_some(CompactRange { size, nodes })
    }

    /// Number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Roots of the perfect subtrees, largest first.
    pub fn nodes(&self) -> &[Hash] {
        &self.nodes
    }

    /// Adds the next leaf.
    pub fn push(&mut self, leaf: Hash) {
        let pushed = self.push_subtree(0, leaf);
        debug_assert!(pushed, "every range ends at a leaf");
    }

    /// Adds the next 2^`level` leaves, of which only the root is known; false unless the size is a
    /// multiple of 2^`level`.
    #[must_use]
    pub fn push_subtree(&mut self, level: u32, root: Hash) -> bool {
        if self.size.trailing_zeros() < level {
            return false;
        }
        let mut node = root;
        for _ in 0..(self.size >> level).trailing_ones() {
            let left = self
                .nodes
                .pop()
                .expect("one node for each set bit of the size");
            node = node_hash(&left, &node);
        }
        self.nodes.push(node);
        self.size += 1 << level;
        true
    }

    /// The tree's root; SHA-256 of nothing for the empty tree.
    pub fn root(&self) -> Hash {
        let mut nodes = self.nodes.iter().rev();
        let Some(last) = nodes.next() else {
            return Sha256::digest([]).into();
        };
        nodes.fold(*last, |right, left| node_hash(left, &right))
    }

    /// Size (u64, little endian), then the nodes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.size.to_le_bytes().to_vec();
        for n in &self.nodes {
            out.extend_from_slice(n);
        }
        out
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote from the front of `buf`; the rest is ignored.
    pub fn from_bytes(buf: &[u8]) -> Option<CompactRange> {
        let size = u64::from_le_bytes(buf.get(..8)?.try_into().ok()?);
        let count = size.count_ones() as usize;
        let raw = buf.get(8..8 + count * 32)?;
        let nodes = raw
            .chunks_exact(32)
            .map(|c| c.try_into().expect("32 bytes"))
            .collect();
        Some(CompactRange { size, nodes })
    }
}

/// The tree of the committed entries, and the leaves of those that may still be truncated.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// `None` while the state below the first index is not known (a purge without a base).
    pub(super) range: Option<CompactRange>,
    first: u64,
    pending: VecDeque<Hash>,
}

impl Tree {
    /// A tree whose next leaf is that of entry `next` of an epoch that begins at `first`.
    pub(super) fn new(range: Option<CompactRange>, first: u64) -> Tree {
        Tree {
            range,
            first,
            pending: VecDeque::new(),
        }
    }

    /// The index of the first entry whose leaf is not in the tree yet.
    fn next_uncommitted(&self) -> Option<u64> {
        self.range.as_ref().map(|r| self.first + r.size)
    }

    /// Takes the leaf of the next entry.
    pub(super) fn append(&mut self, leaf: Hash) {
        if self.range.is_some() {
            self.pending.push_back(leaf);
        }
    }

    /// Moves the leaves up to `index`, inclusive, from pending into the tree.
    pub(super) fn commit(&mut self, index: u64) {
        let Some(range) = &mut self.range else { return };
        while self.first + range.size <= index {
            let Some(leaf) = self.pending.pop_front() else {
                return;
            };
            range.push(leaf);
        }
    }

    /// Drops the leaves of entries from `next` on.
    pub(super) fn truncate(&mut self, next: u64) {
        if let Some(first) = self.next_uncommitted() {
            self.pending
                .truncate(usize::try_from(next.saturating_sub(first)).unwrap_or(usize::MAX));
        }
    }

    /// The range over everything appended, the pending leaves included.
    pub(super) fn with_pending(&self) -> Option<CompactRange> {
        let mut range = self.range.clone()?;
        for leaf in &self.pending {
            range.push(*leaf);
        }
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6962, section 2.1, by its recursive definition.
    fn naive(leaves: &[Hash]) -> Hash {
        match leaves.len() {
            0 => Sha256::digest([]).into(),
            1 => leaves[0],
            n => {
                let k = n.next_power_of_two() / 2;
                node_hash(&naive(&leaves[..k]), &naive(&leaves[k..]))
            }
        }
    }

    #[test]
    fn compact_range_equals_the_recursive_definition() {
        let leaves: Vec<Hash> = (0..70u32).map(|i| leaf_hash(&i.to_le_bytes())).collect();
        let mut range = CompactRange::default();
        for (n, leaf) in leaves.iter().enumerate() {
            assert_eq!(range.root(), naive(&leaves[..n]), "size {n}");
            let copy = CompactRange::from_bytes(&range.to_bytes()).unwrap();
            assert_eq!(copy, range);
            range.push(*leaf);
        }
    }

    #[test]
    fn known_roots_of_certificate_transparency() {
        // Empty tree and the single empty leaf, as every implementation of RFC 6962 gives them.
        let hex = |h: Hash| h.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let leaf = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d";
        assert_eq!(hex(CompactRange::default().root()), empty);
        assert_eq!(hex(leaf_hash(b"")), leaf);
    }

    #[test]
    fn truncation_forgets_pending_leaves_only() {
        let mut tree = Tree::new(Some(CompactRange::default()), 10);
        for i in 0..5u8 {
            tree.append(leaf_hash(&[i]));
        }
        tree.commit(12);
        tree.truncate(14);
        tree.commit(100);
        assert_eq!(tree.range.as_ref().unwrap().size(), 4);
    }
}
