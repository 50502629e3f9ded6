//! Digests: one 256-bit sum per table, equal on every server at an equal index.
//!
//! The digest of a table is the sum, modulo 2²⁵⁶ over little-endian numbers, of
//! SHA-256("drover row 1" ‖ table (u16 BE) ‖ key length (u32 BE) ‖ encoded key ‖ canonical row)
//! over its rows. A sum needs no order, so a changed row costs two hashes. The algorithm is for
//! ever: a test pins it.

use sha2::{Digest as _, Sha256};

const DOMAIN: &[u8] = b"drover row 1";

/// A sum of row hashes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The hash of one row.
    pub fn of_row(table: u16, key: &[u8], row: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        hasher.update(table.to_be_bytes());
        hasher.update((key.len() as u32).to_be_bytes());
        hasher.update(key);
        hasher.update(row);
        Self(hasher.finalize().into())
    }

    /// Adds a row's hash.
    pub fn add(&mut self, other: &Self) {
        let mut carry = false;
        for (own, other) in self.limbs().zip(other.0.as_chunks::<8>().0) {
            let (sum, first) = u64::from_le_bytes(*own).overflowing_add(u64::from_le_bytes(*other));
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            *own = sum.to_le_bytes();
            carry = first || second;
        }
    }

    /// Takes a row's hash away.
    pub fn sub(&mut self, other: &Self) {
        let mut borrow = false;
        for (own, other) in self.limbs().zip(other.0.as_chunks::<8>().0) {
            let (rest, first) =
                u64::from_le_bytes(*own).overflowing_sub(u64::from_le_bytes(*other));
            let (rest, second) = rest.overflowing_sub(u64::from(borrow));
            *own = rest.to_le_bytes();
            borrow = first || second;
        }
    }

    fn limbs(&mut self) -> impl Iterator<Item = &mut [u8; 8]> {
        self.0.as_chunks_mut::<8>().0.iter_mut()
    }

    /// Reads what [`Digest::to_hex`] wrote.
    pub fn from_hex(text: &str) -> Option<Self> {
        hex::decode(text).ok()?.try_into().ok().map(Self)
    }

    /// Lower-case hexadecimal.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// The digest of one table at one index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TableDigest {
    /// Its `Table::ID`.
    pub table: u16,
    pub name: &'static str,
    pub digest: Digest,
}

/// Digests by table number, as they are kept in memory and stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums(pub(crate) Vec<Digest>);

impl Sums {
    pub(crate) fn of(&mut self, table: u16) -> &mut Digest {
        let at = usize::from(table);
        if self.0.len() <= at {
            self.0.resize(at + 1, Digest::default());
        }
        &mut self.0[at]
    }

    pub(crate) fn get(&self, table: u16) -> Digest {
        self.0.get(usize::from(table)).copied().unwrap_or_default()
    }

    /// Table number (u16 BE) ‖ digest, zero digests left out.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (table, digest) in self.0.iter().enumerate() {
            if *digest != Digest::default() {
                out.extend_from_slice(&(table as u16).to_be_bytes());
                out.extend_from_slice(&digest.0);
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (entries, rest) = bytes.as_chunks::<34>();
        if !rest.is_empty() {
            return None;
        }
        let mut digests = Self::default();
        for entry in entries {
            let (table, digest) = entry.split_first_chunk::<2>()?;
            *digests.of(u16::from_be_bytes(*table)) = Digest(digest.try_into().ok()?);
        }
        Some(digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_is_for_ever() {
        let digest = Digest::of_row(7, b"key", b"\x80");
        assert_eq!(
            digest.to_hex(),
            "35b5707956bed87e1b643490a2cbb1475961795d0318df3eb6593a3218836c6b"
        );
    }

    #[test]
    fn what_is_added_can_be_taken_away_in_any_order() {
        let rows: Vec<_> = (0..20_u8).map(|n| Digest::of_row(1, &[n], &[n])).collect();
        let mut there = Digest([0xff; 32]);
        for row in &rows {
            there.add(row);
        }
        let mut back = there;
        for row in rows.iter().rev() {
            back.sub(row);
        }
        assert_eq!(back, Digest([0xff; 32]));
        assert_ne!(there, back);
    }

    #[test]
    fn a_digest_returns_from_its_text() {
        let digest = Digest([0x5a; 32]);
        assert_eq!(Digest::from_hex(&digest.to_hex()), Some(digest));
        for bad in [
            "",
            "5a",
            &"5z".repeat(32),
            &"5a".repeat(33),
            &"é".repeat(32),
        ] {
            assert_eq!(Digest::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn sums_return_from_their_bytes() {
        let mut digests = Sums::default();
        *digests.of(3) = Digest([1; 32]);
        let mut bytes = Vec::new();
        digests.encode(&mut bytes);
        assert_eq!(Sums::decode(&bytes), Some(digests));
        assert_eq!(Sums::decode(&bytes[1..]), None);
    }
}
