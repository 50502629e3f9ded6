//! Rendering a JSON list piece by piece, so that no answer needs one large buffer.

use bytes::Bytes;
use serde::Serialize;

use crate::error::Refusal;

/// Bytes after which a piece is closed.
pub(super) const PIECE: usize = 256 << 10;

/// A JSON list in the making.
#[derive(Debug)]
pub(super) struct Pieces {
    done: Vec<Bytes>,
    open: Vec<u8>,
    rows: u64,
    bytes: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self {
            done: Vec::new(),
            open: vec![b'['],
            rows: 0,
            bytes: 0,
        }
    }
}

impl Pieces {
    /// A further part of a list that was begun before.
    pub(super) fn later() -> Self {
        Self {
            done: Vec::new(),
            open: Vec::new(),
            // The rows before it, of which there is at least one.
            rows: 1,
            bytes: 0,
        }
    }

    /// Bytes of all rows so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.open.len()
    }

    /// What there is, without an end: the list goes on.
    #[must_use]
    pub(super) fn part(mut self) -> Vec<Bytes> {
        self.done.push(self.open.into());
        self.done
    }

    /// Appends a value.
    ///
    /// # Errors
    /// 500 when it cannot be encoded.
    pub(super) fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refusal> {
        self.separate();
        serde_json::to_writer(&mut self.open, value).map_err(|e| Refusal::internal(e.to_string()))
    }

    /// Opens a value with a list in it; what is pushed belongs to that list until it is closed.
    pub(super) fn open(&mut self, head: &[u8]) {
        self.separate();
        self.open.extend_from_slice(head);
        self.rows = 0;
    }

    /// Closes the list that was opened, and the value it is in.
    pub(super) fn close(&mut self, tail: &[u8]) {
        self.open.extend_from_slice(tail);
        self.rows = 1;
    }

    /// Ends a list, and begins the next one of the same value.
    pub(super) fn turn(&mut self, between: &[u8]) {
        self.open.extend_from_slice(between);
        self.rows = 0;
    }

    fn separate(&mut self) {
        if self.open.len() >= PIECE {
            self.bytes += self.open.len();
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
    pub(super) fn finish(self) -> Vec<Bytes> {
        self.finish_with(b"]")
    }

    /// What there is, ended with something else than a list's bracket.
    #[must_use]
    pub(super) fn finish_with(mut self, tail: &[u8]) -> Vec<Bytes> {
        self.open.extend_from_slice(tail);
        self.part()
    }

    /// An answer that begins with a list in a value.
    pub(super) fn within(head: &[u8]) -> Self {
        Self {
            open: head.to_vec(),
            ..Self::default()
        }
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
        let bytes = pieces.bytes();
        let pieces = pieces.finish();
        assert_eq!(bytes + 1, pieces.concat().len());
        let (last, closed) = pieces.split_last().unwrap();
        assert!(!closed.is_empty() && last.len() <= PIECE);
        for piece in closed {
            assert!(
                (PIECE..PIECE + 16).contains(&piece.len()),
                "{}",
                piece.len()
            );
        }
        let list: Vec<u32> = serde_json::from_slice(&pieces.concat()).unwrap();
        assert!(list.into_iter().eq(0..100_000), "each once, in order");
    }

    #[test]
    fn lists_lie_within_values() {
        let mut pieces = Pieces::default();
        for name in ["a", "b"] {
            pieces.open(format!("{{\"N\":\"{name}\",\"L\":[").as_bytes());
            pieces.push(&1).unwrap();
            pieces.push(&2).unwrap();
            pieces.close(b"]}");
        }
        let whole = pieces.finish().concat();
        assert_eq!(whole, br#"[{"N":"a","L":[1,2]},{"N":"b","L":[1,2]}]"#);
        let mut pieces = Pieces::within(b"{\"L\":[");
        pieces.push(&1).unwrap();
        assert_eq!(pieces.finish_with(b"]}").concat(), br#"{"L":[1]}"#);
    }

    #[test]
    fn parts_of_a_list_make_one() {
        let mut first = Pieces::default();
        first.push(&1).unwrap();
        let mut second = Pieces::later();
        second.push(&2).unwrap();
        let mut third = Pieces::later();
        third.push(&3).unwrap();
        let all = [first.part(), second.part(), third.finish()].concat();
        assert_eq!(all.concat(), b"[1,2,3]");
    }
}
