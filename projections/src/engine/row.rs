//! Stored values: a row with its modify index and the births of its index entries.
//!
//! Format (1) ‖ modify index (u64 LE) ‖ number of index entries (u8) ‖ per index entry, in their
//! byte order, modify index − birth (varint) ‖ canonical row.
//!
//! The birth of an index entry is the index at which it was first written. Since the row has the
//! births, an index entry that is removed goes to `history` as a dead entry without being read.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::engine::canonical::Canonical;
use crate::engine::digest::Digest;
use crate::engine::error::StorageError;
use crate::engine::table::{Entries, Table};

const FORMAT: u8 = 1;

/// Births of a row's index entries, in the order of the entries.
pub(crate) type Births = SmallVec<[u64; 8]>;

/// A row as apply sees it: decoded, with all that is needed to replace it.
#[derive(Debug)]
pub(crate) struct Stored<T: Table> {
    pub(crate) row: Arc<T::Row>,
    pub(crate) modified: u64,
    pub(crate) entries: Entries,
    pub(crate) births: Births,
    body: OnceLock<Box<[u8]>>,
    digest: OnceLock<Digest>,
}

impl<T: Table> Stored<T> {
    /// A row that was just put.
    pub(crate) fn fresh(row: T::Row, modified: u64, entries: Entries, births: Births) -> Self {
        Self {
            row: Arc::new(row),
            modified,
            entries,
            births,
            body: OnceLock::new(),
            digest: OnceLock::new(),
        }
    }

    /// A row from its stored value.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Self, StorageError> {
        let (modified, births, body) = split(key, value)?;
        let row: T::Row = decode_body::<T>(key, body)?;
        let entries = if T::INDEXES.is_empty() {
            Entries::default()
        } else {
            Entries::of::<T>(&row, key)
        };
        if entries.list.len() != births.len() {
            return Err(StorageError::damaged("row (births)", key));
        }
        Ok(Self {
            row: Arc::new(row),
            modified,
            entries,
            births,
            body: OnceLock::from(Box::from(body)),
            digest: OnceLock::new(),
        })
    }

    /// The canonical bytes, encoded once.
    pub(crate) fn body(&self, canonical: &mut Canonical) -> Result<&[u8], StorageError> {
        if let Some(body) = self.body.get() {
            return Ok(body);
        }
        let body = canonical
            .encode(&*self.row)
            .map_err(|source| StorageError::Encode {
                table: T::NAME,
                source,
            })?;
        Ok(self.body.get_or_init(|| Box::from(body)))
    }

    /// Roughly the bytes it takes in memory, from those of its body: decoded, a row takes a few
    /// times as many. One whose body was never encoded counts as if it held nothing.
    pub(crate) fn weight(&self) -> usize {
        const DECODED: usize = 4;
        let body = self.body.get().map_or(0, |body| body.len());
        size_of::<Self>() + size_of::<T::Row>() + body * (1 + DECODED)
    }

    /// The row's part of its table's digest, hashed once: it is added when the row comes, and taken
    /// away when it goes.
    pub(crate) fn digest(
        &self,
        key: &[u8],
        canonical: &mut Canonical,
    ) -> Result<Digest, StorageError> {
        if let Some(digest) = self.digest.get() {
            return Ok(*digest);
        }
        let digest = Digest::of_row(T::ID, key, self.body(canonical)?);
        Ok(*self.digest.get_or_init(|| digest))
    }

    /// Appends the stored value.
    pub(crate) fn write(
        &self,
        canonical: &mut Canonical,
        out: &mut Vec<u8>,
    ) -> Result<(), StorageError> {
        out.push(FORMAT);
        out.extend_from_slice(&self.modified.to_le_bytes());
        out.push(self.births.len() as u8);
        for birth in &self.births {
            varint(out, self.modified - birth);
        }
        out.extend_from_slice(self.body(canonical)?);
        Ok(())
    }

    /// The birth of an index entry, if the row has it.
    pub(crate) fn birth(&self, entry: &[u8]) -> Option<u64> {
        let at = self
            .entries
            .list
            .binary_search_by(|own| own.bytes.as_slice().cmp(entry))
            .ok()?;
        self.births.get(at).copied()
    }
}

/// Decodes a canonical row.
pub(crate) fn decode_body<T: Table>(key: &[u8], body: &[u8]) -> Result<T::Row, StorageError> {
    rmp_serde::from_slice(body).map_err(|_| StorageError::row(T::NAME, key))
}

/// Takes a stored row apart: modify index, births, canonical bytes.
pub(crate) fn split<'a>(
    key: &[u8],
    value: &'a [u8],
) -> Result<(u64, Births, &'a [u8]), StorageError> {
    let damaged = || StorageError::damaged("row", key);
    let (head, mut rest) = value.split_at_checked(10).ok_or_else(damaged)?;
    if head[0] != FORMAT {
        return Err(damaged());
    }
    let modified = modified(value).ok_or_else(damaged)?;
    let mut births = Births::new();
    for _ in 0..head[9] {
        let age = take_varint(&mut rest).ok_or_else(damaged)?;
        births.push(modified.checked_sub(age).ok_or_else(damaged)?);
    }
    Ok((modified, births, rest))
}

/// The canonical bytes of a stored row.
pub(crate) fn body<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], StorageError> {
    split(key, value).map(|(_, _, body)| body)
}

/// The modify index of a stored row.
pub(crate) fn modified(value: &[u8]) -> Option<u64> {
    let bytes = value.get(1..9)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Replaces `out` by a version as the `rows` column family held it, without the births of its index
/// entries.
pub(crate) fn write_without_entries(out: &mut Vec<u8>, modified: u64, body: &[u8]) {
    out.clear();
    out.push(FORMAT);
    out.extend_from_slice(&modified.to_le_bytes());
    out.push(0);
    out.extend_from_slice(body);
}

/// Appends an unsigned LEB128 number.
pub(crate) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes an unsigned LEB128 number off the front.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift == 63 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_return_from_their_varint() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            varint(&mut bytes, number);
            let mut rest = bytes.as_slice();
            assert_eq!(take_varint(&mut rest), Some(number));
            assert!(rest.is_empty());
        }
        assert_eq!(take_varint(&mut [0x80; 12].as_slice()), None);
        assert_eq!(take_varint(&mut [].as_slice()), None);
    }
}
