//! Rendering a JSON list piece by piece, so that no answer needs one large buffer.

use bytes::Bytes;
use serde::Serialize;

use crate::error::ApiError;

/// Bytes after which a piece is closed.
pub(super) const PIECE: usize = 256 << 10;

/// A JSON list in the making.
#[derive(Debug)]
pub(super) struct Pieces {
    done: Vec<Bytes>,
    open: Vec<u8>,
    rows: u64,
}

impl Default for Pieces {
    fn default() -> Self {
        Self {
            done: Vec::new(),
            open: vec![b'['],
            rows: 0,
        }
    }
}

impl Pieces {
    /// Appends a value.
    ///
    /// # Errors
    /// 500 when it cannot be encoded.
    pub(super) fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ApiError> {
        self.separate();
        serde_json::to_writer(&mut self.open, value).map_err(|e| ApiError::internal(e.to_string()))
    }

    fn separate(&mut self) {
        if self.open.len() >= PIECE {
            let full = std::mem::replace(&mut self.open, Vec::with_capacity(PIECE + PIECE / 8));
            self.done.push(full.into());
        }
        if self.rows > 0 {
            self.open.push(b',');
        }
        self.rows += 1;
    }

    /// How many pieces are closed.
    pub(super) fn closed(&self) -> usize {
        self.done.len()
    }

    /// The finished list.
    #[must_use]
    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.open.push(b']');
        self.done.push(self.open.into());
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_one_list() {
        assert_eq!(Pieces::default().finish().concat(), b"[]");
        let mut pieces = Pieces::default();
        for n in 0..100_000 {
            pieces.push(&n).unwrap();
        }
        let pieces = pieces.finish();
        assert!(pieces.len() > 1);
        let list: Vec<serde_json::Value> = serde_json::from_slice(&pieces.concat()).unwrap();
        assert_eq!(list.len(), 100_000);
    }
}
