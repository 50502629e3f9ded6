//! Locks by key, each held by one at a time, or by a few.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Locks by key. Nothing is kept of a key that is not in use.
pub struct KeyedLocks<K: Eq + Hash + Clone> {
    lines: Mutex<HashMap<K, Arc<Semaphore>>>,
    at_once: usize,
}

impl<K: Eq + Hash + Clone> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self::of(1)
    }
}

/// Holds the lock of a key; dropping it lets the next waiter in.
pub struct KeyGuard<'k, K: Eq + Hash + Clone> {
    locks: &'k KeyedLocks<K>,
    key: K,
    line: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<K: Eq + Hash + Clone> KeyedLocks<K> {
    /// Each lock may be held by so many at once.
    pub fn of(at_once: usize) -> Self {
        Self {
            lines: Mutex::default(),
            at_once,
        }
    }

    /// Waits for the lock.
    pub async fn lock(&self, key: K) -> KeyGuard<'_, K> {
        let (mut guard, line) = self.waiting(key);
        // A line is never closed, so there is always a permit in the end.
        guard.permit = line.acquire_owned().await.ok();
        guard
    }

    /// The lock, if it is free now.
    pub fn try_lock(&self, key: K) -> Option<KeyGuard<'_, K>> {
        let (mut guard, line) = self.waiting(key);
        guard.permit = Some(line.try_acquire_owned().ok()?);
        Some(guard)
    }

    /// A guard that holds nothing yet; a caller that gives up waiting drops it, and leaves nothing
    /// behind.
    fn waiting(&self, key: K) -> (KeyGuard<'_, K>, Arc<Semaphore>) {
        let mut lines = self.lines.lock();
        let line = lines.entry(key.clone());
        let line = Arc::clone(line.or_insert_with(|| Arc::new(Semaphore::new(self.at_once))));
        let guard = KeyGuard {
            locks: self,
            key,
            line: Some(Arc::clone(&line)),
            permit: None,
        };
        (guard, line)
    }

    /// The number of keys whose lock is held or waited for.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks for nothing")]
    pub fn len(&self) -> usize {
        self.lines.lock().len()
    }
}

impl<K: Eq + Hash + Clone> Drop for KeyGuard<'_, K> {
    fn drop(&mut self) {
        self.permit = None;
        let mut lines = self.locks.lines.lock();
        self.line = None;
        // Lines are handed out under the lock of the map: one that only the map has is unused.
        let unused = |line: &Arc<Semaphore>| Arc::strong_count(line) == 1;
        if lines.get(&self.key).is_some_and(unused) {
            lines.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn turns_come_one_after_the_other_and_leave_nothing() {
        let locks = KeyedLocks::default();
        let first = locks.lock("a").await;
        let other = locks.lock("b").await;
        assert!(locks.lock("a").now_or_never().is_none(), "it is taken");
        assert_eq!(locks.len(), 2);
        let mut waiting = Box::pin(locks.lock("a"));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        let second = waiting.now_or_never().expect("it is free");
        drop((second, other));
        assert_eq!(locks.len(), 0);
    }

    #[tokio::test]
    async fn a_few_have_their_turn_at_once() {
        let locks = KeyedLocks::of(2);
        let two = (locks.lock(1).await, locks.lock(1).await);
        assert!(locks.lock(1).now_or_never().is_none());
        assert!(locks.try_lock(1).is_none() && locks.try_lock(2).is_some());
        assert_eq!(locks.len(), 1);
        drop(two);
        assert!(locks.try_lock(1).is_some());
        assert_eq!(locks.len(), 0);
    }
}
