//! One at a time, or a few, by key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns by key. Of a key that nobody uses nothing is kept.
pub struct Keyed<K: Eq + Hash + Clone> {
    lines: Mutex<HashMap<K, Arc<Semaphore>>>,
    at_once: usize,
}

impl<K: Eq + Hash + Clone> Default for Keyed<K> {
    fn default() -> Self {
        Self::of(1)
    }
}

/// A turn; the next one has it when this is dropped.
pub struct Turn<'k, K: Eq + Hash + Clone> {
    keyed: &'k Keyed<K>,
    key: K,
    line: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<K: Eq + Hash + Clone> Keyed<K> {
    /// So many have their turn at once.
    pub fn of(at_once: usize) -> Self {
        Self {
            lines: Mutex::default(),
            at_once,
        }
    }

    /// Waits for the turn.
    pub async fn turn(&self, key: K) -> Turn<'_, K> {
        let (mut turn, line) = self.waiting(key);
        // A line is never closed, so there is always a permit in the end.
        turn.permit = line.acquire_owned().await.ok();
        turn
    }

    /// The turn, where nobody has to be waited for.
    pub fn turn_now(&self, key: K) -> Option<Turn<'_, K>> {
        let (mut turn, line) = self.waiting(key);
        turn.permit = Some(line.try_acquire_owned().ok()?);
        Some(turn)
    }

    /// A turn that has not come; whoever gives up waiting drops it, and leaves nothing behind.
    fn waiting(&self, key: K) -> (Turn<'_, K>, Arc<Semaphore>) {
        let mut lines = self.lines.lock();
        let line = lines.entry(key.clone());
        let line = Arc::clone(line.or_insert_with(|| Arc::new(Semaphore::new(self.at_once))));
        let turn = Turn {
            keyed: self,
            key,
            line: Some(Arc::clone(&line)),
            permit: None,
        };
        (turn, line)
    }

    /// For how many keys somebody waits or has a turn.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks for nothing")]
    pub fn len(&self) -> usize {
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
        assert!(keyed.turn_now(1).is_none() && keyed.turn_now(2).is_some());
        assert_eq!(keyed.len(), 1);
        drop(two);
        assert!(keyed.turn_now(1).is_some());
        assert_eq!(keyed.len(), 0);
    }
}
