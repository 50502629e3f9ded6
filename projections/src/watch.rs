//! Change notices: who waits for a table, a row or any progress is woken after the batch that
//! changed it is written and visible.
//!
//! A waiter registers before it reads, so nothing is missed; it holds no view while it waits; it is
//! woken once and registers again. There is no polling and no channel per waiter: ten thousand of
//! them cost a map entry each. This knows no runtime: a [`Waiter`] is a plain future.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::key::AsKey;
use crate::table::Table;
use crate::txn::encoded;

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// Any change of a table.
    Table(u16),
    /// Any change of one row (by a hash of its key: rarely woken for another's change).
    Row(u16, u64),
    /// Any applied entry.
    Progress,
}

impl Interest {
    /// Any change of this table.
    pub const fn table<T: Table>() -> Self {
        Self::Table(T::ID)
    }

    /// Any change of this row.
    pub fn row<T: Table>(key: impl AsKey<T::Key>) -> Self {
        Self::Row(T::ID, row_hash(&encoded::<T>(key)))
    }
}

/// FNV-1a: the same everywhere, short keys only.
pub(crate) fn row_hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The registered waiters.
#[derive(Debug, Default)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    applied: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    interests: HashMap<Interest, BTreeSet<u64>, foldhash::fast::FixedState>,
    waiters: HashMap<u64, Slot, foldhash::fast::FixedState>,
    next: u64,
    closed: bool,
}

#[derive(Debug, Default)]
struct Slot {
    fired: bool,
    waker: Option<Waker>,
}

impl Watch {
    /// Registers for one wake-up by whichever of these changes first. Register, then read.
    pub fn register(&self, interests: &[Interest]) -> Waiter {
        let mut state = self.shared.state.lock();
        let id = state.next;
        state.next += 1;
        let fired = state.closed;
        state.waiters.insert(id, Slot { fired, waker: None });
        for interest in interests {
            state.interests.entry(*interest).or_default().insert(id);
        }
        Waiter {
            shared: Arc::clone(&self.shared),
            id,
            interests: interests.into(),
        }
    }

    /// The last applied index, without taking a view.
    pub fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::Acquire)
    }

    /// Waits until this index is applied.
    pub async fn reached(&self, index: u64) {
        while self.applied() < index {
            let waiter = self.register(&[Interest::Progress]);
            if self.applied() >= index {
                return;
            }
            waiter.await;
        }
    }

    /// Waits until something beyond this index is applied; answers the applied index.
    pub async fn beyond(&self, index: u64) -> u64 {
        self.reached(index.saturating_add(1)).await;
        self.applied()
    }

    /// How many waiters there are.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiters.len()
    }

    /// Wakes everybody, and from now on whoever registers: the database is replaced or closed.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let woken: Vec<_> = state.waiters.values_mut().filter_map(Slot::fire).collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wakes who waits for these tables and rows, after they are visible.
    pub(crate) fn notify(&self, applied: u64, tables: &[u16], rows: &[(u16, u64)]) {
        self.shared.applied.store(applied, Ordering::Release);
        let mut state = self.shared.state.lock();
        if state.interests.is_empty() {
            return;
        }
        let mut woken = Vec::new();
        state.fire(Interest::Progress, &mut woken);
        for table in tables {
            state.fire(Interest::Table(*table), &mut woken);
        }
        for (table, row) in rows {
            if state.interests.is_empty() {
                break;
            }
            state.fire(Interest::Row(*table, *row), &mut woken);
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn fire(&mut self, interest: Interest, woken: &mut Vec<Waker>) {
        let Some(ids) = self.interests.remove(&interest) else {
            return;
        };
        for id in ids {
            woken.extend(self.waiters.get_mut(&id).and_then(Slot::fire));
        }
    }
}

impl Slot {
    fn fire(&mut self) -> Option<Waker> {
        self.fired = true;
        self.waker.take()
    }
}

/// One registered wake-up: a future that is ready once something of interest changed.
#[derive(Debug)]
pub struct Waiter {
    shared: Arc<Shared>,
    id: u64,
    interests: smallvec::SmallVec<[Interest; 2]>,
}

impl Waiter {
    /// Whether it was woken already.
    pub fn is_woken(&self) -> bool {
        let state = self.shared.state.lock();
        state.waiters.get(&self.id).is_none_or(|slot| slot.fired)
    }
}

impl Future for Waiter {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.state.lock();
        match state.waiters.get_mut(&self.id) {
            Some(slot) if !slot.fired => {
                match &mut slot.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.waiters.remove(&self.id);
        for interest in &self.interests {
            if let Some(ids) = state.interests.get_mut(interest) {
                ids.remove(&self.id);
                if ids.is_empty() {
                    state.interests.remove(interest);
                }
            }
        }
    }
}
