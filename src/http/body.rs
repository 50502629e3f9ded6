//! Response bodies: nothing, pieces that are there already, or a stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;

/// The body of a response.
#[derive(Debug)]
pub(super) struct Body(BodyInner);

/// Why a transfer is cut: what was to be sent whole ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(super) struct BrokenOff;

#[derive(Debug)]
enum BodyInner {
    Pieces(VecDeque<Bytes>, u64),
    One(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
    Whole(mpsc::Receiver<Option<Bytes>>),
    Changed(Box<Body>, Option<Box<dyn BodyChange>>),
    Until(Box<Body>, Ending),
}

/// Ready when a body is to end.
struct Ending(Pin<Box<dyn Future<Output = ()> + Send>>);

impl std::fmt::Debug for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ending")
    }
}

/// What a body goes through on its way out, piece by piece.
pub(super) trait BodyChange: Send + Sync + std::fmt::Debug {
    /// The next piece as it is sent; it may come out empty, and with a later one.
    fn piece(&mut self, piece: &[u8]) -> Vec<u8>;
    /// What is left at the end.
    fn end(&mut self) -> Vec<u8>;
}

impl Body {
    /// No bytes at all.
    #[must_use]
    pub(super) const fn empty() -> Self {
        Self(BodyInner::One(None))
    }

    /// Pieces sent one after the other, never copied together.
    #[must_use]
    pub(super) fn pieces(pieces: Vec<Bytes>) -> Self {
        let size = pieces.iter().map(|p| p.len() as u64).sum();
        Self(BodyInner::Pieces(pieces.into(), size))
    }

    /// Whatever comes through the channel until its sender is gone.
    #[must_use]
    pub(super) const fn stream(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self(BodyInner::Stream(receiver))
    }

    /// Whatever comes through the channel until `None`. Where its sender is gone before, the
    /// transfer is cut, so that no reader takes a part for the whole.
    #[must_use]
    pub(super) const fn whole(receiver: mpsc::Receiver<Option<Bytes>>) -> Self {
        Self(BodyInner::Whole(receiver))
    }

    /// The same body, changed on its way.
    #[must_use]
    pub(super) fn through(self, change: impl BodyChange + 'static) -> Self {
        Self(BodyInner::Changed(Box::new(self), Some(Box::new(change))))
    }

    /// The same body, which ends when `over` does. What was to come whole is cut then, so that no
    /// reader takes a part for it.
    #[must_use]
    pub(super) fn until(self, over: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(BodyInner::Until(Box::new(self), Ending(Box::pin(over))))
    }

    /// Whether its end says that all came.
    fn promises_all(&self) -> bool {
        match &self.0 {
            BodyInner::One(_) | BodyInner::Pieces(..) | BodyInner::Whole(_) => true,
            BodyInner::Stream(_) => false,
            BodyInner::Changed(body, _) | BodyInner::Until(body, _) => body.promises_all(),
        }
    }

    /// The bytes that are left; `None` for a stream.
    #[must_use]
    pub(super) fn len(&self) -> Option<u64> {
        match &self.0 {
            BodyInner::One(bytes) => Some(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            BodyInner::Pieces(_, size) => Some(*size),
            BodyInner::Stream(_)
            | BodyInner::Whole(_)
            | BodyInner::Changed(..)
            | BodyInner::Until(..) => None,
        }
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The pieces of a body that is not a stream.
    pub(super) fn into_pieces(self) -> Result<Vec<Bytes>, Self> {
        match self.0 {
            BodyInner::One(bytes) => Ok(bytes.into_iter().collect()),
            BodyInner::Pieces(pieces, _) => Ok(pieces.into()),
            BodyInner::Stream(_)
            | BodyInner::Whole(_)
            | BodyInner::Changed(..)
            | BodyInner::Until(..) => Err(self),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(BodyInner::One(Some(bytes).filter(|b| !b.is_empty())))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let next = match &mut self.0 {
            BodyInner::One(bytes) => bytes.take(),
            BodyInner::Pieces(pieces, size) => {
                let piece = pieces.pop_front();
                *size -= piece.as_ref().map_or(0, |p| p.len() as u64);
                piece
            }
            BodyInner::Stream(receiver) => match receiver.poll_recv(context) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
            BodyInner::Until(body, over) => {
                if over.0.as_mut().poll(context).is_ready() {
                    let cut = body.promises_all().then_some(Err(BrokenOff));
                    return Poll::Ready(cut);
                }
                return Pin::new(body.as_mut()).poll_frame(context);
            }
            BodyInner::Changed(body, change) => loop {
                let Some(changing) = change else { break None };
                let piece = match Pin::new(body.as_mut()).poll_frame(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Err(broken))) => return Poll::Ready(Some(Err(broken))),
                    Poll::Ready(Some(Ok(frame))) => {
                        changing.piece(&frame.into_data().unwrap_or_default())
                    }
                    Poll::Ready(None) => {
                        let last = changing.end();
                        *change = None;
                        last
                    }
                };
                if !piece.is_empty() {
                    break Some(piece.into());
                }
            },
            BodyInner::Whole(receiver) => match receiver.poll_recv(context) {
                Poll::Ready(Some(next)) => next,
                Poll::Ready(None) => return Poll::Ready(Some(Err(BrokenOff))),
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.len()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn what_is_left_of_pieces_is_known_while_they_are_taken() {
        let mut body = Body::pieces(["a whole", "part"].map(Bytes::from).into());
        assert_eq!(body.len(), Some(11));
        for (piece, left) in [("a whole", 4), ("part", 0)] {
            let frame = body.frame().await.expect("a piece");
            let taken = frame.expect("it did not break off").into_data();
            assert_eq!(taken.expect("it is data"), piece);
            assert_eq!(body.len(), Some(left), "{piece}");
            assert_eq!(body.size_hint().exact(), Some(left), "{piece}");
            assert_eq!(body.is_end_stream(), left == 0, "{piece}");
        }
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_part_is_not_taken_for_the_whole() {
        for (end, wanted) in [(true, Some("half")), (false, None)] {
            let (sender, receiver) = mpsc::channel(2);
            sender.send(Some(Bytes::from("half"))).await.unwrap();
            if end {
                sender.send(None).await.unwrap();
            }
            drop(sender);
            let body = axum::body::Body::new(Body::whole(receiver));
            let sent = body.collect().await.ok().map(|sent| sent.to_bytes());
            assert_eq!(sent.as_deref(), wanted.map(str::as_bytes));
        }
    }

    #[tokio::test]
    async fn what_ends_with_a_right_is_cut_only_where_it_promised_to_be_whole() {
        let over = || std::future::ready(());
        let (_sender, receiver) = mpsc::channel(1);
        let followed = axum::body::Body::new(Body::stream(receiver).until(over()));
        assert!(
            followed.collect().await.is_ok(),
            "there is always more of it"
        );
        let (_sender, receiver) = mpsc::channel(1);
        let whole = axum::body::Body::new(Body::whole(receiver).until(over()));
        assert!(whole.collect().await.is_err(), "a part is not the whole");
    }
}
