//! Puts texts between the text that is there.

use std::ops::Range;

/// Texts that go to one place stand in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    After,
    Instead,
    Before,
}

pub(super) struct Edit {
    pub(super) at: usize,
    pub(super) side: Side,
    /// So many bytes of the source go.
    pub(super) gone: usize,
    pub(super) text: String,
    pub(super) mutant: Option<usize>,
}

/// A text with others put into it.
pub(super) struct Woven {
    pub(super) text: String,
    /// The bytes that were put there for changes, and for which.
    pub(super) pieces: Vec<(Range<usize>, usize)>,
    /// Places of the source, and where what follows them is now.
    moved: Vec<(usize, usize)>,
}

impl Woven {
    /// Where a place of the source is now, after what was put there.
    pub(super) fn place(&self, old: usize) -> usize {
        let last = self.moved.partition_point(|(from, _)| *from <= old);
        let before = last.checked_sub(1).map(|last| self.moved[last]);
        let (from, to) = before.unwrap_or((0, 0));
        to + (old - from)
    }
}

/// Edits of one place and side are put in the order in which they come: the outer one first for
/// what stands before, the inner one first for what stands after.
pub(super) fn weave(source: &str, mut edits: Vec<Edit>) -> Woven {
    edits.sort_by_key(|edit| (edit.at, edit.side));
    let mut woven = Woven {
        text: String::with_capacity(source.len() * 2),
        pieces: Vec::new(),
        moved: Vec::new(),
    };
    let mut at = 0;
    for edit in &edits {
        woven.text.push_str(&source[at..edit.at]);
        let start = woven.text.len();
        woven.text.push_str(&edit.text);
        if let Some(mutant) = edit.mutant {
            woven.pieces.push((start..woven.text.len(), mutant));
        }
        at = edit.at + edit.gone;
        woven.moved.push((at, woven.text.len()));
    }
    woven.text.push_str(&source[at..]);
    woven
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_one_place_is_in_its_order() {
        let edit = |at, side, gone, text: &str| Edit {
            at,
            side,
            gone,
            text: text.to_owned(),
            mutant: Some(at),
        };
        let edits = vec![
            edit(0, Side::Before, 0, "[("),
            edit(1, Side::Instead, 1, ", "),
            edit(1, Side::After, 0, ")"),
            edit(2, Side::Before, 0, "("),
            edit(3, Side::After, 0, ")"),
            edit(3, Side::After, 0, "]"),
        ];
        let woven = weave("a<b;", edits);
        assert_eq!(woven.text, "[(a), (b)];");
        assert_eq!(woven.place(3), woven.text.len() - 1);
        assert_eq!(woven.pieces[0], (0..2, 0));
    }
}
