//! Frames as the body of a request or an answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::Full;
use hyper::body::{Body, Frame as Piece, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::{Account, BEAT, BROKEN, Broken, COST, CREDIT, DATA, END, Frame, HEADER, MESSAGE, line};

/// The body that one end sends: its frames as they come, and a sign of life where none comes.
#[derive(Debug)]
pub struct OutBody {
    frames: line::Receiver<Frame>,
    /// What a frame carries whose header is sent already.
    carried: Option<Bytes>,
    account: Arc<Account>,
    interval: Duration,
    next: Pin<Box<Sleep>>,
    ended: bool,
}

impl OutBody {
    pub(super) fn new(
        frames: line::Receiver<Frame>,
        interval: Duration,
        account: Arc<Account>,
    ) -> Self {
        Self {
            frames,
            carried: None,
            account,
            interval,
            next: Box::pin(sleep(interval)),
            ended: false,
        }
    }

    /// The header of a frame; what it carries follows.
    fn header(&mut self, frame: Frame) -> Bytes {
        let (kind, carried) = match frame {
            Frame::Data(data) => (DATA, data),
            Frame::Message(message) => (MESSAGE, message),
            Frame::Credit(bytes) => (CREDIT, Bytes::copy_from_slice(&bytes.to_be_bytes())),
            Frame::End => (END, Bytes::new()),
            Frame::Broken(why) => (BROKEN, why.into()),
        };
        if kind == DATA {
            let cost = carried.len() + COST;
            self.account.owed.fetch_add(cost, Ordering::Relaxed);
        }
        self.ended |= matches!(kind, END | BROKEN);
        let header = header(kind, carried.len());
        self.carried = Some(carried).filter(|carried| !carried.is_empty());
        header
    }
}

fn header(kind: u8, carried: usize) -> Bytes {
    let mut header = BytesMut::with_capacity(HEADER);
    header.put_u8(kind);
    header.put_u32(u32::try_from(carried).unwrap_or(u32::MAX));
    header.freeze()
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece<Bytes>, Broken>>> {
        let bytes = if let Some(carried) = self.carried.take() {
            carried
        } else {
            match self.frames.poll_recv(cx) {
                Poll::Ready(Some(frame)) => self.header(frame),
                // All of this end is gone: in order, if it reported its end.
                Poll::Ready(None) if self.ended => return Poll::Ready(None),
                Poll::Ready(None) => return Poll::Ready(Some(Err(Broken::off()))),
                Poll::Pending => match self.next.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => header(BEAT, 0),
                },
            }
        };
        let next = Instant::now() + self.interval;
        self.next.as_mut().reset(next);
        Poll::Ready(Some(Ok(Piece::data(bytes))))
    }
}

/// The body of a request: known from the beginning, or a stream.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// All of it.
    Whole(Full<Bytes>),
    /// As it comes.
    Flow(OutBody),
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Flow(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Flow(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Flow(_) => SizeHint::default(),
        }
    }
}
