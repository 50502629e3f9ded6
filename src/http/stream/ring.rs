//! The live end of the stream: the newest pages, rendered, for all subscribers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Notify, watch};

use super::page::{Needs, StreamPage};

/// How long a subscriber waits for the ring to be filled.
const FILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of pages kept at most.
const MAX_RING_BYTES: usize = 16 << 20;

/// The newest pages. Everything in it is contiguous: no index between the first and the last is
/// missing.
///
/// It is filled only while there is a subscriber; what it does not have is read from the past, that
/// is from the projections and the log. So nothing is skipped while it is not filled.
pub(super) struct Ring {
    state: RwLock<RingState>,
    /// The last index processed; every subscriber holds a receiver.
    reached: watch::Sender<u64>,
    /// Whether it is being filled.
    filling: watch::Sender<bool>,
    /// Wakes who fills it, when a subscriber comes.
    subscribed: Notify,
    /// How many subscribers need each: one counter per field of [`Needs`], in its order.
    needs: [AtomicUsize; 5],
}

#[derive(Default)]
struct RingState {
    pages: VecDeque<Arc<StreamPage>>,
    /// What the pages take in memory, roughly.
    bytes: usize,
    /// Every index from here on is in the ring.
    from: u64,
    /// The last index processed, whether or not the stream shows anything of it.
    upto: u64,
    /// The time of the newest event that was applied when the last page was rendered, Unix
    /// nanoseconds.
    time: i64,
}

/// What the ring has for a position.
pub(super) enum RingLookup {
    /// The page it lies in.
    Page(Arc<StreamPage>),
    /// Nothing yet: the ring ends before it. The time is that of the newest event applied then.
    Nothing(i64),
    /// Up to this index the projections and the log have to be read.
    Past(u64),
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            state: RwLock::default(),
            reached: watch::Sender::new(0),
            filling: watch::Sender::new(false),
            subscribed: Notify::new(),
            needs: Default::default(),
        }
    }
}

/// The hold of one subscriber on the ring, which is filled while there is one.
pub(super) struct RingSubscriber {
    ring: Arc<Ring>,
    needs: Needs,
    reached: watch::Receiver<u64>,
}

impl Drop for RingSubscriber {
    fn drop(&mut self) {
        self.ring.count(self.needs, usize::wrapping_sub);
    }
}

impl RingSubscriber {
    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// What it needs of pages.
    pub(super) fn needs(&self) -> Needs {
        self.needs
    }

    /// Pushes up to now do not wake it any more; to be called before the ring is read, so that none
    /// in between is missed.
    pub(super) fn ignore_earlier_pushes(&mut self) {
        self.reached.mark_unchanged();
    }

    /// Waits for the next push; false when there will be none.
    pub(super) async fn pushed(&mut self) -> bool {
        self.reached.changed().await.is_ok()
    }

    /// Waits until the ring reaches an index.
    #[cfg(test)]
    pub(super) async fn reached(&mut self, index: u64) {
        self.reached
            .wait_for(|upto| *upto >= index)
            .await
            .expect("the ring is there");
    }
}

impl Ring {
    /// Starts over after an index.
    pub(super) fn begin(&self, upto: u64, time: i64) {
        *self.state.write() = RingState {
            from: upto + 1,
            upto,
            time,
            ..RingState::default()
        };
        self.reached.send_replace(upto);
        self.filling.send_replace(true);
    }

    /// Forgets everything up to an index: there is no subscriber.
    pub(super) fn forget(&self, upto: u64) {
        self.filling.send_replace(false);
        let mut state = self.state.write();
        *state = RingState {
            from: upto + 1,
            upto,
            time: state.time,
            ..RingState::default()
        };
    }

    /// Adds the page that follows, rendered from a view whose newest event is of `time`.
    pub(super) fn push(&self, page: StreamPage, time: i64) {
        let mut state = self.state.write();
        debug_assert_eq!(page.first, state.upto + 1);
        let upto = page.upto;
        state.bytes += page.memory_bytes();
        state.pages.push_back(Arc::new(page));
        while state.bytes > MAX_RING_BYTES
            && let Some(old) = state.pages.pop_front()
        {
            state.bytes -= old.memory_bytes();
            state.from = old.upto + 1;
        }
        state.upto = upto;
        state.time = time;
        drop(state);
        self.reached.send_replace(upto);
    }

    /// A new subscriber. Waits until the ring is being filled, [`FILL_TIMEOUT`] at most.
    pub(super) async fn subscribe(self: &Arc<Self>, needs: Needs) -> RingSubscriber {
        self.count(needs, usize::wrapping_add);
        let subscriber = RingSubscriber {
            ring: Arc::clone(self),
            needs,
            reached: self.reached.subscribe(),
        };
        self.subscribed.notify_one();
        // While it is not filled a subscriber reads the past, as one that falls behind does.
        let mut filling = self.filling.subscribe();
        let _ = tokio::time::timeout(FILL_TIMEOUT, filling.wait_for(|filling| *filling)).await;
        subscriber
    }

    fn count(&self, needs: Needs, change: fn(usize, usize) -> usize) {
        let Needs {
            payloads,
            log,
            cloud_events,
            cloud_events_without_hashes,
            documents,
        } = needs;
        let wanted = [
            payloads,
            log,
            cloud_events,
            cloud_events_without_hashes,
            documents,
        ];
        for (counter, _) in self.needs.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
            let step = |count| Some(change(count, 1));
            // The closure never returns `None`.
            let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        }
    }

    /// What subscribers need of pages beside the lines of Nomad's NDJSON stream.
    pub(super) fn needs(&self) -> Needs {
        let [
            payloads,
            log,
            cloud_events,
            cloud_events_without_hashes,
            documents,
        ] = [0, 1, 2, 3, 4].map(|at: usize| self.needs[at].load(Ordering::Relaxed) > 0);
        Needs {
            payloads,
            log,
            cloud_events,
            cloud_events_without_hashes,
            documents,
        }
    }

    pub(super) fn has_subscribers(&self) -> bool {
        self.reached.receiver_count() > 0
    }

    pub(super) async fn wait_for_subscriber(&self) {
        while !self.has_subscribers() {
            self.subscribed.notified().await;
        }
    }

    /// Waits until there is no subscriber any more.
    pub(super) async fn wait_for_none(&self) {
        self.reached.closed().await;
    }

    /// The page a position lies in, for a subscriber with these needs.
    pub(super) fn read(&self, position: u64, needs: Needs) -> RingLookup {
        let state = self.state.read();
        if position < state.from {
            return RingLookup::Past(state.from - 1);
        }
        let at = state.pages.partition_point(|page| page.upto < position);
        match state.pages.get(at) {
            None => RingLookup::Nothing(state.time),
            Some(page) if page.too_big || !page.has.cover(needs) => RingLookup::Past(page.upto),
            Some(page) => RingLookup::Page(Arc::clone(page)),
        }
    }
}
