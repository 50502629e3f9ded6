//! Calls whose two bodies stream: a [`Duplex`] at each end, frames in between.
//!
//! A frame is a kind (one byte), a length (four bytes, big endian) and so many bytes: data, a
//! message (MessagePack), credit, a sign of life, the end, or why there will be none. Both bodies
//! of one HTTP/2 call carry them, one each way.
//!
//! Invariants:
//! 1. A sender has credit for what it sends: of data that was not taken there is never more than
//!    [`WINDOW`] on the way, and an end that sends more, or gives credit for what was not sent,
//!    breaks the stream. Messages need no credit; of them too only so much may wait. So a stream
//!    that is not read holds up nothing but itself.
//! 2. An end is sent as a frame. A stream that stops without it is broken, and so is one that is
//!    silent for longer than its [`Keepalive`] bears: each end sends something in every interval.
//! 3. Dropping an [`Inflow`] before its end, or an [`Outflow`] before it was ended, breaks the
//!    stream: the other end hears of it at once. What was sent before the end arrives all the same:
//!    the connection is let go of only when both ends are done.

mod body;
mod io;
mod line;
mod reader;
mod relay;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::wire;
pub use body::OutBody;
pub(super) use body::Outgoing;
pub use io::bytes_of;
pub use relay::relay;

/// Bytes of data that may be on the way, one way, before some of them were taken.
pub const WINDOW: usize = 1 << 20;
/// The longest frame of data; longer pieces are sent as several.
const LONGEST: usize = 64 << 10;
/// The longest message, bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// How long what was sent last may take to arrive.
const LINGER: Duration = Duration::from_secs(10);
/// What a frame costs beside its bytes: it is kept in a list until it is taken.
const COST: usize = 64;
/// What messages that wait to be taken may cost, bytes: one of the longest, or many short ones.
const MESSAGE_WINDOW: usize = MAX_MESSAGE + WINDOW;
/// Credit is given back in portions of this size.
const PORTION: usize = WINDOW / 4;
/// Bytes before what a frame carries.
const HEADER: usize = 5;

const BEAT: u8 = 0;
const DATA: u8 = 1;
const MESSAGE: u8 = 2;
const CREDIT: u8 = 3;
const END: u8 = 4;
const BROKEN: u8 = 5;

/// Why a stream ended before its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

impl Broken {
    fn off() -> Self {
        Self("the connection broke off".to_owned())
    }
}

/// How often each end sends something, and how long its silence is borne.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// The time between signs of life.
    pub interval: Duration,
    /// The longest silence.
    pub timeout: Duration,
}

impl Keepalive {
    /// Of a session: a caller waits at its end.
    pub const SESSION: Self = Self {
        interval: Duration::from_secs(2),
        timeout: Duration::from_secs(8),
    };
    /// Of a stream that is held open for when it is needed. It goes over connections with large
    /// bodies beside it, which hold its signs up.
    pub const STANDING: Self = Self {
        interval: Duration::from_secs(10),
        timeout: Duration::from_secs(35),
    };
}

/// One frame on its way out.
#[derive(Debug)]
enum Frame {
    Data(Bytes),
    Message(Bytes),
    Credit(u32),
    End,
    Broken(String),
}

/// What comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Bytes of a body, as they came.
    Data(Bytes),
    /// A whole message.
    Message(Bytes),
}

/// A stream both ways.
#[derive(Debug)]
pub struct Duplex {
    /// What the other end says.
    pub inflow: Inflow,
    /// Where to say something to it.
    pub outflow: Outflow,
}

/// What the two sides of one end know of each other.
#[derive(Debug, Default)]
struct Account {
    /// Came, and was not given back as credit.
    held: AtomicUsize,
    /// What messages cost that came and were not taken yet.
    messages: AtomicUsize,
    /// Went out, and no credit came for it.
    owed: AtomicUsize,
}

/// What one end has before the other's body is there.
#[derive(Debug)]
pub struct Half {
    line: line::Sender<Frame>,
    keepalive: Keepalive,
    account: Arc<Account>,
}

impl Half {
    /// This end, and the body that it sends.
    #[must_use]
    pub fn new(keepalive: Keepalive) -> (Self, OutBody) {
        let (line, frames) = line::line();
        let account = Arc::<Account>::default();
        let body = OutBody::new(frames, keepalive.interval, Arc::clone(&account));
        (
            Self {
                line,
                keepalive,
                account,
            },
            body,
        )
    }

    /// Says something before the other end was heard.
    pub(super) fn first(&self, message: Bytes) {
        let _ = self.line.send(Frame::Message(message));
    }

    /// The stream, once the other end's body is there.
    #[must_use]
    pub fn join<B>(self, body: B) -> Duplex
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let credit = Arc::new(Semaphore::new(WINDOW));
        let (items, came) = line::line();
        let ends = Arc::new(Ends::default());
        let (cut, left) = (ends.cut.clone(), ends.left.clone());
        let books = (Arc::clone(&credit), Arc::clone(&self.account));
        let read = reader::read(body, items, books, self.keepalive.timeout);
        tokio::spawn(async move {
            tokio::select! {
                () = read => {}
                () = cut.cancelled() => {}
                () = lingered(&left) => {}
            }
        });
        Duplex {
            inflow: Inflow {
                came,
                ended: false,
                line: self.line.clone(),
                taken: 0,
                account: self.account,
                ends: Arc::clone(&ends),
            },
            outflow: Outflow {
                line: self.line,
                credit,
                ended: false,
                _ends: ends,
            },
        }
    }
}

impl Duplex {
    /// Two ends of one stream within a process.
    #[must_use]
    pub fn pair(keepalive: Keepalive) -> (Self, Self) {
        let (one, from_one) = Half::new(keepalive);
        let (other, from_other) = Half::new(keepalive);
        (one.join(from_other), other.join(from_one))
    }
}

/// What becomes of a stream once it is let go of.
#[derive(Debug, Default)]
struct Ends {
    /// It is broken off.
    cut: CancellationToken,
    /// Cancelled once this end has no more use of it.
    left: CancellationToken,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.left.cancel();
    }
}

/// Ready a while after a stream was left: by then what was sent last has arrived.
async fn lingered(left: &CancellationToken) {
    left.cancelled().await;
    tokio::time::sleep(LINGER).await;
}

impl Drop for Inflow {
    fn drop(&mut self) {
        if !self.ended {
            self.ends.cut.cancel();
        }
    }
}

/// The incoming side.
#[derive(Debug)]
pub struct Inflow {
    came: line::Receiver<Result<Option<Item>, Broken>>,
    ended: bool,
    line: line::Sender<Frame>,
    /// What was taken and not yet given back as credit.
    taken: usize,
    account: Arc<Account>,
    ends: Arc<Ends>,
}

impl Inflow {
    /// The next item; none after the end.
    ///
    /// # Errors
    /// Why there is no end.
    pub async fn next(&mut self) -> Result<Option<Item>, Broken> {
        if self.ended {
            return Ok(None);
        }
        let item = self.came.recv().await.unwrap_or(Err(Broken::off()))?;
        self.ended = item.is_none();
        match &item {
            Some(Item::Data(data)) => {
                self.taken += data.len() + COST;
                if self.taken >= PORTION {
                    let taken = std::mem::take(&mut self.taken);
                    self.account.held.fetch_sub(taken, Ordering::Relaxed);
                    let credit = u32::try_from(taken).unwrap_or(u32::MAX);
                    let _ = self.line.send(Frame::Credit(credit));
                }
            }
            Some(Item::Message(message)) => {
                let cost = message.len() + COST;
                self.account.messages.fetch_sub(cost, Ordering::Relaxed);
            }
            None => {}
        }
        Ok(item)
    }

    /// The bytes of the next piece; messages are none of a body.
    ///
    /// # Errors
    /// Why there is no end, or that something else came.
    pub async fn data(&mut self) -> Result<Option<Bytes>, Broken> {
        match self.next().await? {
            Some(Item::Data(data)) => Ok(Some(data)),
            Some(Item::Message(_)) => Err(Broken("a message came within a body".to_owned())),
            None => Ok(None),
        }
    }

    /// The message that must come now.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn message<T: DeserializeOwned>(&mut self) -> Result<T, Broken> {
        match self.next().await? {
            Some(Item::Message(message)) => {
                wire::decode(&message).map_err(|error| Broken(error.to_string()))
            }
            Some(Item::Data(_)) => Err(Broken("a body came without a head".to_owned())),
            None => Err(Broken("the stream ended without a head".to_owned())),
        }
    }
}

/// The outgoing side. Dropped before [`Outflow::end`], it breaks the stream.
#[derive(Debug)]
pub struct Outflow {
    line: line::Sender<Frame>,
    credit: Arc<Semaphore>,
    ended: bool,
    _ends: Arc<Ends>,
}

impl Outflow {
    /// Sends bytes, once there is credit for them.
    ///
    /// # Errors
    /// The other end is gone.
    pub async fn send(&mut self, mut data: Bytes) -> Result<(), Broken> {
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(LONGEST));
            let size = u32::try_from(piece.len() + COST).unwrap_or(u32::MAX);
            let credit = self.credit.acquire_many(size).await;
            credit.map_err(|_| Broken::off())?.forget();
            self.line
                .send(Frame::Data(piece))
                .map_err(|_| Broken::off())?;
        }
        Ok(())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other end is gone, or it cannot be written.
    pub fn message<T: Serialize>(&mut self, message: &T) -> Result<(), Broken> {
        let message = wire::encode(message).map_err(|error| Broken(error.to_string()))?;
        let frame = Frame::Message(message);
        self.line.send(frame).map_err(|_| Broken::off())
    }

    /// Sends on what came over another stream.
    ///
    /// # Errors
    /// The other end is gone.
    pub async fn pass(&mut self, item: Item) -> Result<(), Broken> {
        match item {
            Item::Data(data) => self.send(data).await,
            Item::Message(message) => {
                let frame = Frame::Message(message);
                self.line.send(frame).map_err(|_| Broken::off())
            }
        }
    }

    /// Says that this was all.
    pub fn end(mut self) {
        self.ended = true;
        let _ = self.line.send(Frame::End);
    }

    /// Says why there will be no end.
    pub fn fail(mut self, why: impl Into<String>) {
        self.ended = true;
        let _ = self.line.send(Frame::Broken(why.into()));
    }

    /// Ready when the other end is gone.
    pub async fn closed(&self) {
        self.line.closed().await;
    }

    /// The same as a future that owns what it needs.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let line = self.line.clone();
        async move { line.closed().await }
    }
}

impl Drop for Outflow {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.line.send(Frame::Broken(Broken::off().0));
        }
    }
}
