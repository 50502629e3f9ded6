//! Change notices: what waits for a table, a row or any progress is woken after the batch that
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

use crate::engine::key::{AsKey, KeyBuf};
use crate::engine::layer::RowKey;
use crate::engine::table::{Index, Table};
use crate::engine::txn::encoded;

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// Any change of a table.
    Table(u16),
    /// Any change of one row (by a hash of its key: rarely woken for another's change).
    Row(u16, u64),
    /// Any change of a row in one group of an index (by a hash of its key).
    Group(u16, u64),
    /// Any applied entry.
    Progress,
}

impl Interest {
    fn is_row(self) -> bool {
        matches!(self, Self::Row(..) | Self::Group(..))
    }

    /// The table that it is about, if it is about one.
    pub const fn of_table(self) -> Option<u16> {
        match self {
            Self::Table(table) | Self::Row(table, _) | Self::Group(table, _) => Some(table),
            Self::Progress => None,
        }
    }

    /// Any change of this table.
    pub const fn table<T: Table>() -> Self {
        Self::Table(T::ID)
    }

    /// Any change of this row.
    pub fn row<T: Table>(key: impl AsKey<T::Key>) -> Self {
        Self::Row(T::ID, row_hash(&encoded::<T>(key)))
    }

    /// Any change of a row of this group.
    pub fn group<I: Index>(key: impl AsKey<I::Group>) -> Self {
        const { assert!(I::WATCHED, "no waiter is notified of groups of this index") };
        let mut bytes = KeyBuf::new();
        bytes.push(I::NO);
        key.encode_as(&mut bytes);
        Self::Group(I::Table::ID, row_hash(&bytes))
    }
}

/// What a batch wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// Table and key of every row.
    pub(crate) rows: Vec<(u16, RowKey)>,
    /// Table and hash of the groups that they lie in, or lay in.
    pub(crate) groups: Vec<(u16, u64)>,
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
    shared: Arc<WatchShared>,
}

#[derive(Debug, Default)]
struct WatchShared {
    state: Mutex<WatchState>,
    applied: AtomicU64,
}

#[derive(Debug, Default)]
struct WatchState {
    interests: HashMap<Interest, BTreeSet<u64>, foldhash::fast::FixedState>,
    waiters: HashMap<u64, WatchSlot, foldhash::fast::FixedState>,
    next: u64,
    row_waiters: usize,
    closed: bool,
}

#[derive(Debug, Default)]
struct WatchSlot {
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
        state.waiters.insert(id, WatchSlot { fired, waker: None });
        for interest in interests {
            state.row_waiters += usize::from(interest.is_row());
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

    /// Waits until something beyond this index is applied; returns the applied index.
    pub async fn beyond(&self, index: u64) -> u64 {
        self.reached(index.saturating_add(1)).await;
        self.applied()
    }

    /// How many waiters there are.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiters.len()
    }

    /// Wakes all waiters, and from now on each one that registers: the database is replaced or
    /// closed.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let woken: Vec<_> = state
            .waiters
            .values_mut()
            .filter_map(WatchSlot::fire)
            .collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Whether the database is replaced or closed: waiting has no sense any more.
    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().closed
    }

    /// Wakes all waiters: the state is another, and it is not known what changed.
    pub(crate) fn renew(&self, applied: u64) {
        self.shared.applied.store(applied, Ordering::Release);
        let mut state = self.shared.state.lock();
        state.interests.clear();
        let woken: Vec<_> = state
            .waiters
            .values_mut()
            .filter_map(WatchSlot::fire)
            .collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wakes the waiters of these tables and rows, after they are visible.
    pub(crate) fn notify(&self, applied: u64, tables: &[u16], written: &Written) {
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
        if state.row_waiters > 0 {
            for (table, key) in &written.rows {
                state.fire(Interest::Row(*table, row_hash(key)), &mut woken);
            }
            for (table, group) in &written.groups {
                state.fire(Interest::Group(*table, *group), &mut woken);
            }
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl WatchState {
    fn fire(&mut self, interest: Interest, woken: &mut Vec<Waker>) {
        let Some(ids) = self.interests.remove(&interest) else {
            return;
        };
        for id in ids {
            woken.extend(self.waiters.get_mut(&id).and_then(WatchSlot::fire));
        }
    }
}

impl WatchSlot {
    fn fire(&mut self) -> Option<Waker> {
        self.fired = true;
        self.waker.take()
    }
}

/// One registered wake-up: a future that is ready once something of interest changed.
#[derive(Debug)]
pub struct Waiter {
    shared: Arc<WatchShared>,
    id: u64,
    interests: smallvec::SmallVec<[Interest; 2]>,
}

#[cfg(test)]
impl Waiter {
    /// Whether it was woken already.
    pub(crate) fn is_woken(&self) -> bool {
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
            state.row_waiters -= usize::from(interest.is_row());
            if let Some(ids) = state.interests.get_mut(interest) {
                ids.remove(&self.id);
                if ids.is_empty() {
                    state.interests.remove(interest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Evals, Nodes};
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn polled(waiter: &mut Waiter, count: &Arc<Count>) -> bool {
        let waker = Waker::from(Arc::clone(count));
        Pin::new(waiter)
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
    }

    fn rows(id: &str) -> Written {
        Written {
            rows: vec![(Nodes::ID, Box::from(&*encoded::<Nodes>(id)))],
            ..Written::default()
        }
    }

    #[test]
    fn a_waiter_is_woken_once_by_what_it_waits_for_and_nothing_else() {
        let watch = Watch::default();
        let count = Arc::new(Count::default());
        let mut table = watch.register(&[Interest::table::<Nodes>()]);
        let mut row = watch.register(&[Interest::row::<Nodes>("n1")]);
        assert!(!polled(&mut table, &count) && !polled(&mut row, &count));
        watch.notify(1, &[Evals::ID], &Written::default());
        watch.notify(2, &[Nodes::ID], &rows("n2"));
        assert!(polled(&mut table, &count) && !polled(&mut row, &count));
        watch.notify(3, &[Nodes::ID], &rows("n1"));
        assert!(row.is_woken() && polled(&mut row, &count));
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn who_waits_for_a_group_is_woken_by_what_lies_or_lay_in_it() {
        use crate::store::engine_test::{BySpace, Op, Thing, apply, open, step, thing};
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) = open(dir.path());
        let within = |space: &str, size| Thing {
            space: space.to_owned(),
            ..thing("1", size)
        };
        let other = || Op::Put(within("c", 1));
        for (index, op, a, b) in [
            (1, Op::Put(within("a", 1)), true, false),
            // Nothing of its entry moves.
            (2, Op::Put(within("a", 1)), true, false),
            (3, Op::Put(within("a", 2)), true, false),
            (4, Op::Put(within("b", 2)), true, true),
            (5, Op::Put(thing("2", 1)), true, false),
            (6, Op::Delete("1".to_owned()), false, true),
            (7, Op::Delete("2".to_owned()), true, false),
            (8, other(), false, false),
        ] {
            let group = |space: &str| {
                let group = Interest::group::<BySpace>(space);
                projections.watch().register(&[group])
            };
            let waiting = (group("a"), group("b"));
            apply(&mut writer, &[step(index, vec![op])], &[1]);
            let woken = (waiting.0.is_woken(), waiting.1.is_woken());
            assert_eq!(woken, (a, b), "at {index}");
        }
    }

    #[test]
    fn a_change_between_registering_and_waiting_is_not_missed() {
        let watch = Watch::default();
        let mut waiter = watch.register(&[Interest::Progress]);
        watch.notify(1, &[], &Written::default());
        assert!(polled(&mut waiter, &Arc::default()));
    }

    #[test]
    fn waiters_leave_nothing_behind() {
        let watch = Watch::default();
        let waiters: Vec<_> = (0..10_000)
            .map(|n| {
                let row = Interest::row::<Nodes>(format!("{}", n % 10).as_str());
                watch.register(&[Interest::table::<Nodes>(), row])
            })
            .collect();
        assert_eq!(watch.waiting(), 10_000);
        watch.notify(1, &[Nodes::ID], &rows("3"));
        assert!(waiters.iter().all(Waiter::is_woken));
        drop(waiters);
        let state = watch.shared.state.lock();
        assert!(state.waiters.is_empty() && state.interests.is_empty() && state.row_waiters == 0);
    }

    #[test]
    fn closing_wakes_everybody_and_whoever_comes_later() {
        let watch = Watch::default();
        let count = Arc::new(Count::default());
        let mut early = watch.register(&[Interest::Progress]);
        assert!(!polled(&mut early, &count));
        watch.close();
        assert!(polled(&mut early, &count));
        assert!(polled(&mut watch.register(&[Interest::Progress]), &count));
    }
}
