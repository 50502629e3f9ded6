//! A queue between two ends in one process that keeps nothing for what is not in it.
//!
//! A stream that stands open says almost nothing for hours, and there are thousands of them. The
//! queues of tokio hold memory for dozens of items from the first one on; this one holds what
//! waits, and lets go of the memory once all of it was taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Memory for so many items is kept though none waits.
const KEPT: usize = 4;

#[derive(Debug)]
struct QueueShared<T> {
    inside: Mutex<Inside<T>>,
    /// Notified when the receiver is gone.
    closed: Notify,
}

#[derive(Debug)]
struct Inside<T> {
    waiting: VecDeque<T>,
    senders: usize,
    /// Whether there is a receiver.
    taken: bool,
    receiver: Option<Waker>,
}

/// Where items are put in; there may be several.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<QueueShared<T>>);

/// Where they are taken out, in order.
#[derive(Debug)]
pub(super) struct Receiver<T>(Arc<QueueShared<T>>);

/// A queue; how much is in it is its users' business.
pub(super) fn line<T>() -> (Sender<T>, Receiver<T>) {
    let inside = Inside {
        waiting: VecDeque::new(),
        senders: 1,
        taken: true,
        receiver: None,
    };
    let shared = Arc::new(QueueShared {
        inside: Mutex::new(inside),
        closed: Notify::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Puts an item in.
    ///
    /// # Errors
    /// The item: the receiver is gone.
    pub(super) fn send(&self, item: T) -> Result<(), T> {
        let mut inside = self.0.inside.lock();
        if !inside.taken {
            return Err(item);
        }
        inside.waiting.push_back(item);
        let waits = inside.receiver.take();
        drop(inside);
        if let Some(waits) = waits {
            waits.wake();
        }
        Ok(())
    }

    /// Ready when the receiver is gone.
    pub(super) async fn closed(&self) {
        loop {
            // It hears of what happens from here on.
            let reported = self.0.closed.notified();
            if !self.0.inside.lock().taken {
                return;
            }
            reported.await;
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.inside.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut inside = self.0.inside.lock();
        inside.senders -= 1;
        let waits = match inside.senders {
            0 => inside.receiver.take(),
            _ => None,
        };
        drop(inside);
        if let Some(waits) = waits {
            waits.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The next item; none once there is no sender that could put one in.
    pub(super) fn poll_recv(&mut self, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut inside = self.0.inside.lock();
        let item = inside.waiting.pop_front();
        if inside.waiting.is_empty() && inside.waiting.capacity() > KEPT {
            inside.waiting = VecDeque::new();
        }
        match item {
            Some(item) => Poll::Ready(Some(item)),
            None if inside.senders == 0 => Poll::Ready(None),
            None => {
                inside.receiver = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The same.
    pub(super) async fn recv(&mut self) -> Option<T> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut inside = self.0.inside.lock();
        inside.taken = false;
        let waiting = std::mem::take(&mut inside.waiting);
        drop(inside);
        drop(waiting);
        self.0.closed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn what_is_put_in_comes_out_in_order_also_after_the_last_sender_is_gone() {
        let (sender, mut receiver) = line();
        let other = sender.clone();
        let taken = tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Some(item) = receiver.recv().await {
                taken.push(item);
            }
            taken
        });
        for number in 0..1_000 {
            let by = if number % 2 == 0 { &sender } else { &other };
            by.send(number).unwrap();
        }
        drop((sender, other));
        let taken = timeout(SOON, taken).await.expect("it ends").unwrap();
        assert_eq!(taken, (0..1_000).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn who_sends_hears_that_nobody_takes_it() {
        let (sender, receiver) = line();
        sender.send(1).unwrap();
        let closed = sender.clone();
        let mut waits = Box::pin(closed.closed());
        let soon = timeout(Duration::from_millis(20), waits.as_mut()).await;
        assert!(soon.is_err(), "somebody takes it");
        drop(receiver);
        timeout(SOON, waits).await.expect("it is told");
        timeout(SOON, sender.closed()).await.expect("at once");
        assert_eq!(sender.send(2), Err(2));
    }

    #[tokio::test]
    async fn an_empty_line_keeps_no_room() {
        let (sender, mut receiver) = line();
        let space = |line: &Sender<[u64; 8]>| line.0.inside.lock().waiting.capacity();
        assert_eq!(space(&sender), 0);
        for _ in 0..100 {
            sender.send([7; 8]).unwrap();
        }
        for _ in 0..100 {
            assert_eq!(receiver.recv().await, Some([7; 8]));
        }
        assert!(space(&sender) <= KEPT);
    }
}
