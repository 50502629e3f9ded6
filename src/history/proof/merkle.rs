//! Inclusion and consistency proofs over the tree of RFC 6962.
//!
//! A proof is made from roots of perfect subtrees, wherever they are kept ([`Subtrees`]), and
//! checked from hashes alone.

use crate::log::{Hash, node_hash};

/// Gives the roots of perfect subtrees.
pub trait Subtrees {
    /// Why a root cannot be given.
    type Error;

    /// The root over the leaves `[n << level, (n + 1) << level)`, all of which exist.
    ///
    /// # Errors
    /// Those of the source.
    fn subtree(&self, level: u32, n: u64) -> Result<Hash, Self::Error>;
}

/// The root over the first `size` leaves; `size` is above 0.
///
/// # Errors
/// Those of the source.
pub fn root<S: Subtrees>(source: &S, size: u64) -> Result<Hash, S::Error> {
    range(source, 0, size)
}

/// The audit path of leaf `leaf` in the tree of `size` leaves (RFC 6962, 2.1.1), nearest first;
/// `leaf` is below `size`.
///
/// # Errors
/// Those of the source.
pub fn inclusion<S: Subtrees>(source: &S, leaf: u64, size: u64) -> Result<Vec<Hash>, S::Error> {
    let mut path = Vec::new();
    let (mut begin, mut end) = (0, size);
    while end - begin > 1 {
        let middle = begin + split(end - begin);
        if leaf < middle {
            path.push(range(source, middle, end)?);
            end = middle;
        } else {
            path.push(range(source, begin, middle)?);
            begin = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// The proof that the tree of `old` leaves is a beginning of the tree of `new` (RFC 6962, 2.1.2);
/// `0 < old <= new`.
///
/// # Errors
/// Those of the source.
pub fn consistency<S: Subtrees>(source: &S, old: u64, new: u64) -> Result<Vec<Hash>, S::Error> {
    let mut proof = Vec::new();
    let (mut begin, mut end) = (0, new);
    let mut whole = true;
    while old != end {
        let middle = begin + split(end - begin);
        if old <= middle {
            proof.push(range(source, middle, end)?);
            end = middle;
        } else {
            proof.push(range(source, begin, middle)?);
            begin = middle;
            whole = false;
        }
    }
    if !whole {
        proof.push(range(source, begin, end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Whether `path` shows that `leaf` (a leaf hash) is number `at` of the tree of `size` leaves with
/// this root (RFC 9162, 2.1.3.2).
#[cfg(test)]
pub(crate) fn proves_inclusion(leaf: Hash, at: u64, size: u64, path: &[Hash], root: &Hash) -> bool {
    if at >= size {
        return false;
    }
    let (mut number, mut last) = (at, size - 1);
    let mut hash = leaf;
    for sibling in path {
        if last == 0 {
            return false;
        }
        if number & 1 == 1 || number == last {
            hash = node_hash(sibling, &hash);
            while number & 1 == 0 && number != 0 {
                number >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        number >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *root
}

/// Whether `proof` shows that the tree (`old`, `old_root`) is a beginning of (`new`, `new_root`)
/// (RFC 9162, 2.1.4.2).
pub fn proves_consistency(
    (old, old_root): (u64, &Hash),
    (new, new_root): (u64, &Hash),
    proof: &[Hash],
) -> bool {
    if old == 0 || old > new {
        return false;
    }
    if old == new {
        return proof.is_empty() && old_root == new_root;
    }
    let mut hashes = proof.iter();
    let first = match old.is_power_of_two() {
        true => Some(old_root),
        false => hashes.next(),
    };
    let Some(first) = first else {
        return false;
    };
    let (mut number, mut last) = (old - 1, new - 1);
    while number & 1 == 1 {
        number >>= 1;
        last >>= 1;
    }
    let (mut before, mut after) = (*first, *first);
    for hash in hashes {
        if last == 0 {
            return false;
        }
        if number & 1 == 1 || number == last {
            before = node_hash(hash, &before);
            after = node_hash(hash, &after);
            while number & 1 == 0 && number != 0 {
                number >>= 1;
                last >>= 1;
            }
        } else {
            after = node_hash(&after, hash);
        }
        number >>= 1;
        last >>= 1;
    }
    last == 0 && before == *old_root && after == *new_root
}

/// The largest power of two below `size`, which is above 1.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// The root over the leaves `[begin, end)`; `begin` is a multiple of the perfect tree that the
/// range begins with.
fn range<S: Subtrees>(source: &S, begin: u64, end: u64) -> Result<Hash, S::Error> {
    let mut parts = Vec::new();
    let mut at = begin;
    while at < end {
        let level = (end - at).ilog2();
        parts.push(source.subtree(level, at >> level)?);
        at += 1 << level;
    }
    let mut parts = parts.into_iter().rev();
    let last = parts.next().unwrap_or_default();
    Ok(parts.fold(last, |right, left| node_hash(&left, &right)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{CompactRange, leaf_hash};

    struct Leaves(Vec<Hash>);

    impl Subtrees for Leaves {
        type Error = std::convert::Infallible;

        fn subtree(&self, level: u32, n: u64) -> Result<Hash, Self::Error> {
            let (from, to) = ((n << level) as usize, ((n + 1) << level) as usize);
            let mut range = CompactRange::default();
            self.0[from..to].iter().for_each(|leaf| range.push(*leaf));
            Ok(range.root())
        }
    }

    fn leaves(count: u32) -> (Leaves, Vec<Hash>) {
        let leaves: Vec<Hash> = (0..count).map(|n| leaf_hash(&n.to_be_bytes())).collect();
        let mut range = CompactRange::default();
        let mut roots = vec![range.root()];
        for leaf in &leaves {
            range.push(*leaf);
            roots.push(range.root());
        }
        (Leaves(leaves), roots)
    }

    #[test]
    fn every_leaf_of_every_tree_is_proved_and_no_other() {
        let (source, roots) = leaves(40);
        for size in 1..=40_u64 {
            let wanted = &roots[size as usize];
            assert_eq!(root(&source, size).unwrap(), *wanted);
            for at in 0..size {
                let path = inclusion(&source, at, size).unwrap();
                let leaf = source.0[at as usize];
                assert!(
                    proves_inclusion(leaf, at, size, &path, wanted),
                    "{at} of {size}"
                );
                let other = source.0[(at as usize + 1) % 40];
                assert!(!proves_inclusion(other, at, size, &path, wanted));
                assert!(!proves_inclusion(
                    leaf,
                    at,
                    size,
                    &path,
                    &roots[size as usize - 1]
                ));
                let mut longer = path.clone();
                longer.push([7; 32]);
                assert!(!proves_inclusion(leaf, at, size, &longer, wanted));
            }
            assert!(!proves_inclusion(source.0[0], size, size, &[], wanted));
        }
    }

    #[test]
    fn every_earlier_tree_is_proved_to_be_a_beginning_and_a_forged_one_is_not() {
        let (source, roots) = leaves(40);
        for new in 1..=40_u64 {
            for old in 1..=new {
                let proof = consistency(&source, old, new).unwrap();
                let (before, after) = (&roots[old as usize], &roots[new as usize]);
                assert!(
                    proves_consistency((old, before), (new, after), &proof),
                    "{old} {new}"
                );
                assert!(!proves_consistency((old, &[1; 32]), (new, after), &proof));
                assert!(!proves_consistency((old, before), (new, &[1; 32]), &proof));
                for at in 0..proof.len() {
                    let mut forged = proof.clone();
                    forged[at][3] ^= 1;
                    assert!(!proves_consistency((old, before), (new, after), &forged));
                }
            }
        }
        assert!(!proves_consistency((0, &roots[0]), (4, &roots[4]), &[]));
        assert!(!proves_consistency((5, &roots[5]), (4, &roots[4]), &[]));
    }
}
