//! One connection as a server keeps account of it: which node proved itself on it, what is open,
//! what is answered and not taken.
//!
//! A caller that proved nothing has few streams: each costs some kilobytes for as long as its
//! answer is not sent, and it is the caller that decides when it may be. One too many ends the
//! connection. Nor may a caller leave unread what is written to it: nothing more is read from it
//! until it takes that.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::duplex::{Broken, OutBody};
use drover_net::Hold;

/// Streams of a connection on which no node proved itself.
pub(super) const FEW_STREAMS: usize = 100;
/// Bytes a second at which an answer must be taken.
const PACE: u64 = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Guest {
    /// How long an answer may take to be sent.
    patience: Duration,
    proved: AtomicBool,
    open: AtomicUsize,
    unsent: Mutex<Unsent>,
    blocked: Mutex<Blocked>,
    ended: CancellationToken,
    /// Cancelled once the connection is to close.
    parting: CancellationToken,
}

/// Answers on their way, by when they must be gone.
#[derive(Debug, Default)]
struct Unsent {
    due: BTreeSet<(Instant, u64)>,
    number: u64,
}

/// Whether what is written to the connection is not taken, since when, and what waits for it.
#[derive(Debug, Default)]
struct Blocked {
    since: Option<Instant>,
    reader: Option<Waker>,
}

impl Guest {
    pub(super) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            patience,
            proved: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            unsent: Mutex::default(),
            blocked: Mutex::default(),
            ended: CancellationToken::new(),
            parting: CancellationToken::new(),
        })
    }

    /// Cancelled once the connection is to close.
    pub(super) fn parting(&self) -> &CancellationToken {
        &self.parting
    }

    /// A stream was opened.
    pub(super) fn enter(self: &Arc<Self>) -> StreamSlot {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        if open > FEW_STREAMS && !self.is_proved() {
            self.ended.cancel();
        }
        StreamSlot {
            guest: Arc::clone(self),
            turn: None,
            due: None,
        }
    }

    /// A node proved itself: from now on all that comes over the connection is trusted with much.
    /// What a call may do is checked for each call all the same.
    pub(super) fn prove(&self) {
        self.proved.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_proved(&self) -> bool {
        self.proved.load(Ordering::Relaxed)
    }

    /// Whether the connection is at its end: nothing more is done for it.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Ready when the connection has to end: too much is open, or not taken in time.
    pub(super) async fn outstayed(&self) {
        loop {
            let now = Instant::now();
            let due = self.unsent.lock().due.first().map(|(due, _)| *due);
            let since = self.blocked.lock().since;
            let due = due.into_iter().chain(since.map(|at| at + self.patience));
            let due = due.min();
            if due.is_some_and(|due| due <= now) {
                return;
            }
            let next = due.unwrap_or(now + self.patience);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = self.ended.cancelled() => return,
            }
        }
    }

    fn wrote(&self, taken: bool) {
        let mut blocked = self.blocked.lock();
        if !taken {
            blocked.since.get_or_insert_with(Instant::now);
        } else if blocked.since.take().is_some()
            && let Some(reader) = blocked.reader.take()
        {
            reader.wake();
        }
    }

    /// Whether the reader has to wait until what is written is taken.
    fn holds_back(&self, cx: &Context<'_>) -> bool {
        if self.is_proved() {
            return false;
        }
        let mut blocked = self.blocked.lock();
        let held = blocked.since.is_some();
        if held {
            blocked.reader = Some(cx.waker().clone());
        }
        held
    }
}

/// One stream of a connection, from its beginning until its answer is sent.
#[derive(Debug)]
pub(super) struct StreamSlot {
    guest: Arc<Guest>,
    turn: Option<Hold>,
    due: Option<(Instant, u64)>,
}

impl StreamSlot {
    pub(super) fn guest(&self) -> &Guest {
        &self.guest
    }

    /// Keeps a turn until the answer is sent.
    pub(super) fn keep(&mut self, turn: Option<Hold>) {
        self.turn = turn;
    }

    /// The answer; the stream ends when it is sent.
    pub(super) fn answer(mut self, body: Bytes) -> Answer {
        let earned = Duration::from_secs(body.len() as u64 / PACE);
        let at = Instant::now() + self.guest.patience + earned;
        let mut unsent = self.guest.unsent.lock();
        unsent.number += 1;
        let due = (at, unsent.number);
        unsent.due.insert(due);
        drop(unsent);
        self.due = Some(due);
        Answer {
            rest: Rest::Whole(body),
            _place: self,
        }
    }

    /// A stream as the answer: its pace is its own.
    pub(super) fn stream(self, body: OutBody) -> Answer {
        Answer {
            rest: Rest::Flow(body),
            _place: self,
        }
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        if let Some(due) = self.due {
            self.guest.unsent.lock().due.remove(&due);
        }
        self.guest.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer. The last byte of a whole one comes by itself: it is polled when the
/// caller has granted capacity for all before it, so that this lives until the answer may really be
/// sent.
#[derive(Debug)]
pub(super) struct Answer {
    rest: Rest,
    _place: StreamSlot,
}

#[derive(Debug)]
enum Rest {
    Whole(Bytes),
    Flow(OutBody),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let rest = match &mut self.rest {
            Rest::Whole(rest) => rest,
            Rest::Flow(body) => return Pin::new(body).poll_frame(cx),
        };
        let take = match rest.len() {
            0 => return Poll::Ready(None),
            1 => 1,
            more => more - 1,
        };
        Poll::Ready(Some(Ok(Frame::data(rest.split_to(take)))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.rest, Rest::Whole(rest) if rest.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Rest::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Rest::Flow(_) => SizeHint::default(),
        }
    }
}

/// The bytes of a connection.
pub(super) struct Wire<S> {
    pub(super) stream: S,
    pub(super) guest: Arc<Guest>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.guest.is_ended() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if self.guest.holds_back(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.guest.wrote(wrote.is_ready());
        wrote
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.guest.wrote(wrote.is_ready());
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
