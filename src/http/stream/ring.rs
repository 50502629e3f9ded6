//! The live end of the stream: the newest batches, rendered, for all subscribers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Notify, watch};

use super::batch::Batch;

/// Batches that a subscriber without a position is given at least.
pub(super) const HEAD: usize = 100;
/// How long a subscriber waits for the ring to be filled.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of rendered batches kept at most, beyond the newest [`HEAD`].
const WEIGHT: usize = 16 << 20;

/// The newest batches. Everything in it is contiguous: no published index between the first and
/// the last is missing.
///
/// It is filled only while somebody listens; a position that it does not have is read from the
/// past, so falling asleep and waking up skip nothing.
pub(super) struct Ring {
    state: RwLock<State>,
    published: watch::Sender<u64>,
    awake: watch::Sender<bool>,
    arrived: Notify,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Arc<Batch>>,
    weight: usize,
    /// Every index from here on is in the ring.
    from: u64,
    /// The last index looked at, published or not.
    upto: u64,
}

/// What the ring has for a position.
pub(super) enum Found {
    /// These batches, and the next position.
    Batches(Vec<Arc<Batch>>, u64),
    /// Nothing yet.
    Nothing,
    /// The position lies before the ring.
    Before,
}

impl Default for Ring {
    fn default() -> Self {
        let state = RwLock::default();
        Self {
            state,
            published: watch::Sender::new(0),
            awake: watch::Sender::new(false),
            arrived: Notify::new(),
        }
    }
}

impl Ring {
    /// Starts over with what the entries from `from` to `upto` said.
    pub(super) fn begin(&self, from: u64, batches: Vec<Batch>, upto: u64) {
        *self.state.write() = State {
            from,
            upto: from.saturating_sub(1),
            ..State::default()
        };
        self.push(batches, upto);
        self.awake.send_replace(true);
    }

    /// Forgets everything up to an index: nobody listens.
    pub(super) fn forget(&self, upto: u64) {
        self.awake.send_replace(false);
        *self.state.write() = State {
            from: upto + 1,
            upto,
            ..State::default()
        };
    }

    /// Adds what the entries up to an index said.
    pub(super) fn push(&self, batches: Vec<Batch>, upto: u64) {
        let mut state = self.state.write();
        for batch in batches {
            state.weight += batch.weight();
            state.batches.push_back(Arc::new(batch));
        }
        while state.batches.len() > HEAD && state.weight > WEIGHT {
            if let Some(old) = state.batches.pop_front() {
                state.weight -= old.weight();
                state.from = old.index + 1;
            }
        }
        state.upto = upto;
        drop(state);
        self.published.send_replace(upto);
    }

    /// A receiver that is woken after every push; the ring is awake when this returns, unless it
    /// cannot be filled.
    pub(super) async fn listen(&self) -> watch::Receiver<u64> {
        let published = self.published.subscribe();
        self.arrived.notify_one();
        // Whoever is not heard of by then reads the past, as one does who falls behind.
        let mut awake = self.awake.subscribe();
        let _ = tokio::time::timeout(PATIENCE, awake.wait_for(|awake| *awake)).await;
        published
    }

    /// Whether anybody listens.
    pub(super) fn is_read(&self) -> bool {
        self.published.receiver_count() > 0
    }

    /// Waits until somebody listens.
    pub(super) async fn somebody(&self) {
        while !self.is_read() {
            self.arrived.notified().await;
        }
    }

    /// Waits until nobody listens any more.
    pub(super) async fn nobody(&self) {
        self.published.closed().await;
    }

    /// The position of a subscriber without one: the [`HEAD`] newest batches.
    pub(super) fn head(&self) -> u64 {
        let state = self.state.read();
        let first = state.batches.len().saturating_sub(HEAD);
        state.batches.get(first).map_or(state.upto + 1, |b| b.index)
    }

    /// Batches from a position on, at most some bytes of lines (one batch at least).
    pub(super) fn read(&self, position: u64, most: usize) -> Found {
        let state = self.state.read();
        if position < state.from {
            return Found::Before;
        }
        if position > state.upto {
            return Found::Nothing;
        }
        let start = state.batches.partition_point(|b| b.index < position);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for batch in state.batches.range(start..) {
            if bytes > 0 && bytes + batch.line.len() > most {
                return Found::Batches(taken, batch.index);
            }
            bytes += batch.line.len();
            taken.push(Arc::clone(batch));
        }
        Found::Batches(taken, state.upto + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes(found: Found) -> (Vec<u64>, u64) {
        match found {
            Found::Batches(batches, next) => (batches.iter().map(|b| b.index).collect(), next),
            Found::Nothing => panic!("nothing"),
            Found::Before => panic!("before"),
        }
    }

    #[test]
    fn positions_are_exact() {
        let ring = Ring::default();
        ring.begin(5, vec![Batch::new(6, vec![]), Batch::new(9, vec![])], 10);
        assert!(matches!(ring.read(4, 1000), Found::Before));
        assert_eq!(indexes(ring.read(5, 1000)), (vec![6, 9], 11));
        assert_eq!(indexes(ring.read(7, 1000)), (vec![9], 11));
        assert_eq!(indexes(ring.read(5, 1)), (vec![6], 9));
        assert!(matches!(ring.read(11, 1000), Found::Nothing));
        assert_eq!(ring.head(), 6);
    }

    #[test]
    fn the_head_is_the_newest_hundred() {
        let ring = Ring::default();
        ring.begin(1, (1..=250).map(|i| Batch::new(i, vec![])).collect(), 250);
        assert_eq!(ring.head(), 151);
    }

    #[tokio::test]
    async fn it_wakes_with_the_first_listener_and_sleeps_behind_the_last() {
        let ring = std::sync::Arc::new(Ring::default());
        let writer = std::sync::Arc::clone(&ring);
        let publisher = tokio::spawn(async move {
            writer.somebody().await;
            writer.begin(1, vec![Batch::new(3, vec![])], 4);
            writer.nobody().await;
            writer.forget(4);
        });
        let listener = ring.listen().await;
        assert_eq!(indexes(ring.read(1, 1000)), (vec![3], 5));
        drop(listener);
        publisher.await.expect("no panic");
        assert!(!ring.is_read());
        assert!(matches!(ring.read(3, 1000), Found::Before));
        assert!(matches!(ring.read(5, 1000), Found::Nothing));
    }
}
