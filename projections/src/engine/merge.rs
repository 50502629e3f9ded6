//! A walk over the database and an overlay at once, in key order; the overlay wins.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::iter::Peekable;
use std::ops::Bound;

use crate::engine::db::Family;
use crate::engine::error::StorageError;
use crate::engine::layer::RowKey;
use crate::engine::scan::{EntryCursor, Scan};
use crate::engine::staged::StagedOverlay;

/// Where an item of a merged walk came from.
pub(crate) enum MergeValue<V> {
    /// The database's bytes.
    Stored(Box<[u8]>),
    /// The overlay's value.
    Overlay(V),
}

/// A forward or backward walk over an overlay's range.
pub(crate) enum DirectedRange<'a, K, S> {
    Forward(Peekable<btree_map::Range<'a, K, S>>),
    Backward(Peekable<std::iter::Rev<btree_map::Range<'a, K, S>>>),
}

impl<'a, K, S> DirectedRange<'a, K, S> {
    pub(crate) fn new(entries: btree_map::Range<'a, K, S>, reverse: bool) -> Self {
        match reverse {
            true => Self::Backward(entries.rev().peekable()),
            false => Self::Forward(entries.peekable()),
        }
    }

    pub(crate) fn peek(&mut self) -> Option<(&'a K, &'a S)> {
        match self {
            Self::Forward(iter) => iter.peek().copied(),
            Self::Backward(iter) => iter.peek().copied(),
        }
    }

    pub(crate) fn next(&mut self) {
        match self {
            Self::Forward(iter) => iter.next(),
            Self::Backward(iter) => iter.next(),
        };
    }
}

/// Items of a range under `prefix`; overlay keys and yielded keys lack it. Without a database there
/// is only the overlay.
pub(crate) fn merged<'a, S, V, F: Fn(&S) -> Option<V> + 'a>(
    below: Option<StagedOverlay<'a>>,
    family: Family,
    prefix: &[u8],
    scan: &Scan,
    overlay: &'a BTreeMap<RowKey, S>,
    value: F,
) -> Merged<'a, S, F> {
    merged_under(below, family, prefix, prefix.len(), scan, overlay, value)
}

/// As [`merged`]; only the first `stripped` bytes of the prefix are left out of overlay keys.
pub(crate) fn merged_under<'a, S, V, F: Fn(&S) -> Option<V> + 'a>(
    below: Option<StagedOverlay<'a>>,
    family: Family,
    prefix: &[u8],
    stripped: usize,
    scan: &Scan,
    overlay: &'a BTreeMap<RowKey, S>,
    value: F,
) -> Merged<'a, S, F> {
    let range = scan.absolute(prefix);
    let reverse = range.reverse;
    let lower = Bound::Included(&range.lower[stripped..]);
    let upper = match &range.upper {
        Some(upper) if upper.get(..stripped) == Some(&prefix[..stripped]) => {
            Bound::Excluded(&upper[stripped..])
        }
        _ => Bound::Unbounded,
    };
    let entries = if range.is_empty() {
        overlay.range::<[u8], _>((Bound::Included(&[][..]), Bound::Excluded(&[][..])))
    } else {
        overlay.range::<[u8], _>((lower, upper))
    };
    Merged {
        overlay: DirectedRange::new(entries, reverse),
        walk: below.map(|below| below.walk(family, range)),
        stripped,
        reverse,
        stored: MergeState::Before,
        value,
    }
}

/// Whether the database's walk stands on an entry that was not yet yielded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeState {
    Before,
    On,
    Done,
}

/// The merged walk.
pub(crate) struct Merged<'a, S, F> {
    overlay: DirectedRange<'a, RowKey, S>,
    walk: Option<EntryCursor<'a>>,
    stripped: usize,
    reverse: bool,
    stored: MergeState,
    value: F,
}

impl<S, V, F: Fn(&S) -> Option<V>> Iterator for Merged<'_, S, F> {
    type Item = Result<(RowKey, MergeValue<V>), StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.stored == MergeState::Before {
                let walk = self.walk.as_mut();
                self.stored = match walk.map_or(Ok(false), EntryCursor::advance) {
                    Ok(true) => MergeState::On,
                    Ok(false) => MergeState::Done,
                    Err(error) => {
                        self.stored = MergeState::Done;
                        return Some(Err(error));
                    }
                };
            }
            let on = self.walk.as_ref().filter(|_| self.stored == MergeState::On);
            let key = on.map(|walk| &walk.key()[self.stripped..]);
            let overlay = self.overlay.peek();
            let order = match (key, overlay) {
                (None, None) => return None,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(key), Some((other, _))) if self.reverse => (**other).cmp(key),
                (Some(key), Some((other, _))) => key.cmp(other),
            };
            if order.is_le() {
                self.stored = MergeState::Before;
            }
            if order.is_lt() {
                let key = key.unwrap_or_default().into();
                let value = on.map(EntryCursor::value).unwrap_or_default();
                return Some(Ok((key, MergeValue::Stored(value.into()))));
            }
            let Some((key, state)) = overlay else {
                continue;
            };
            self.overlay.next();
            if let Some(value) = (self.value)(state) {
                return Some(Ok((key.clone(), MergeValue::Overlay(value))));
            }
        }
    }
}
