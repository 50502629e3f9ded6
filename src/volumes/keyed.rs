//! One at a time, or a few, by key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns by key. Of a key that nobody uses nothing is kept.
pub(super) struct Keyed<K: Eq + Hash + Clone> {
    lines: Mutex<HashMap<K, Arc<Semaphore>>>,
    at_once: usize,
}

impl<K: Eq + Hash + Clone> Default for Keyed<K> {
    fn default() -> Self {
        Self::of(1)
    }
}

/// A turn; the next one has it when this is dropped.
pub(super) struct Turn<'k, K: Eq + Hash + Clone> {
    keyed: &'k Keyed<K>,
    key: K,
    line: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<K: Eq + Hash + Clone> Keyed<K> {
    /// So many have their turn at once.
    pub(super) fn of(at_once: usize) -> Self {
        Self {
            lines: Mutex::default(),
            at_once,
        }
    }

    /// Waits for the turn.
    pub(super) async fn turn(&self, key: K) -> Turn<'_, K> {
        let line = {
            let mut lines = self.lines.lock();
            let line = lines.entry(key.clone());
            Arc::clone(line.or_insert_with(|| Arc::new(Semaphore::new(self.at_once))))
        };
        // Whoever gives up waiting drops it, and leaves nothing behind.
        let mut turn = Turn {
            keyed: self,
            key,
            line: Some(Arc::clone(&line)),
            permit: None,
        };
        // A line is never closed, so there is always a permit in the end.
        turn.permit = line.acquire_owned().await.ok();
        turn
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lines.lock().len()
    }
}

impl<K: Eq + Hash + Clone> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        self.permit = None;
        let mut lines = self.keyed.lines.lock();
        self.line = None;
        // Lines are shared out under the lock of the map: one that only the map has is nobody's.
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
        let keyed = Keyed::default();
        let first = keyed.turn("a").await;
        let other = keyed.turn("b").await;
        assert!(keyed.turn("a").now_or_never().is_none(), "it is taken");
        assert_eq!(keyed.len(), 2);
        let mut waiting = Box::pin(keyed.turn("a"));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        let second = waiting.now_or_never().expect("it is free");
        drop((second, other));
        assert_eq!(keyed.len(), 0);
    }

    #[tokio::test]
    async fn a_few_have_their_turn_at_once() {
        let keyed = Keyed::of(2);
        let two = (keyed.turn(1).await, keyed.turn(1).await);
        assert!(keyed.turn(1).now_or_never().is_none());
        drop(two);
        assert_eq!(keyed.len(), 0);
    }
}
