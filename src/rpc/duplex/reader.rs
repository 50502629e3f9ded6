//! Takes frames out of a body as it comes, whether they are waited for or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{
    Account, BEAT, BROKEN, Broken, COST, CREDIT, DATA, END, HEADER, Item, LONGEST, MAX_MESSAGE,
    MESSAGE, MESSAGE_WINDOW, WINDOW, line,
};

type Items = line::Sender<Result<Option<Item>, Broken>>;

/// The longest reason that is given, bytes.
const MAX_REASON: usize = 4 << 10;

/// Reads until the body ends; credit goes to the sender.
pub(super) async fn read<B>(
    body: B,
    items: Items,
    (credit, account): (Arc<Semaphore>, Arc<Account>),
    silence: Duration,
) where
    B: Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let closing = Closing(credit);
    let outcome = follow(body, &items, (&closing.0, &account), silence).await;
    drop(closing);
    if let Err(broken) = outcome {
        let _ = items.send(Err(broken));
    }
}

/// However reading ends: a sender that waits for credit would wait for nothing.
struct Closing(Arc<Semaphore>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn follow<B>(
    body: B,
    items: &Items,
    (credit, account): (&Semaphore, &Account),
    silence: Duration,
) -> Result<(), Broken>
where
    B: Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let mut body = std::pin::pin!(body);
    let mut frames = Frames::default();
    // What comes after the end is credit for what still goes the other way.
    let mut ended = false;
    loop {
        let piece = timeout(silence, body.frame())
            .await
            .map_err(|_| Broken("the other end is silent".to_owned()))?;
        let piece = match piece {
            None if ended => return Ok(()),
            None => return Err(Broken::off()),
            Some(piece) => piece.map_err(|error| Broken(format!("broke off: {error}")))?,
        };
        frames.add(piece.into_data().unwrap_or_default());
        while let Some(came) = frames.next()? {
            match came {
                Came::Nothing => {}
                Came::Item(_) if ended => {
                    return Err(Broken("something came after the end".to_owned()));
                }
                Came::Item(item) => {
                    account.enter(&item)?;
                    let _ = items.send(Ok(Some(item)));
                }
                Came::End => {
                    ended = true;
                    let _ = items.send(Ok(None));
                }
                Came::Credit(bytes) => credit.add_permits(account.repaid(bytes as usize)?),
                Came::Broken(why) => return Err(Broken(why)),
            }
        }
    }
}

impl Account {
    /// Something came: there must have been capacity for it.
    fn enter(&self, item: &Item) -> Result<(), Broken> {
        let (counter, cost, most) = match item {
            Item::Data(data) if data.is_empty() => {
                return Err(Broken("a frame of data has none".to_owned()));
            }
            Item::Data(data) => (&self.held, data.len() + COST, WINDOW),
            Item::Message(message) => (&self.messages, message.len() + COST, MESSAGE_WINDOW),
        };
        match counter.fetch_add(cost, Ordering::Relaxed) + cost > most {
            true => Err(Broken("more came than there was credit for".to_owned())),
            false => Ok(()),
        }
    }

    /// Credit came: for something that went out.
    fn repaid(&self, bytes: usize) -> Result<usize, Broken> {
        let less = |owed: usize| owed.checked_sub(bytes);
        let owed = &self.owed;
        match owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(bytes),
            Err(_) => Err(Broken("credit came for what was not sent".to_owned())),
        }
    }
}

/// What a frame comes to.
enum Came {
    Nothing,
    Item(Item),
    Credit(u32),
    End,
    Broken(String),
}

/// Frames in the pieces of a body, which are cut anywhere.
#[derive(Default)]
struct Frames {
    came: BytesMut,
}

impl Frames {
    fn add(&mut self, piece: Bytes) {
        // What comes alone is not copied.
        match piece.try_into_mut() {
            Ok(piece) if self.came.is_empty() => self.came = piece,
            Ok(piece) => self.came.extend_from_slice(&piece),
            Err(piece) => self.came.extend_from_slice(&piece),
        }
    }

    /// Kind and length of the frame that is next.
    fn header(&self) -> Option<(u8, usize)> {
        let header = self.came.first_chunk::<HEADER>()?;
        let [kind, length @ ..] = *header;
        Some((kind, u32::from_be_bytes(length) as usize))
    }

    /// The next whole frame.
    fn next(&mut self) -> Result<Option<Came>, Broken> {
        let Some((kind, length)) = self.header() else {
            if self.came.is_empty() {
                // It would hold on to a whole buffer of the connection.
                self.came = BytesMut::new();
            }
            return Ok(None);
        };
        let longest = match kind {
            DATA => LONGEST,
            MESSAGE => MAX_MESSAGE,
            CREDIT => size_of::<u32>(),
            BROKEN => MAX_REASON,
            BEAT | END => 0,
            // What a later release may say is passed over.
            _ => LONGEST,
        };
        if length > longest {
            return Err(Broken(format!("a frame of {length} bytes is too long")));
        }
        if self.came.len() < HEADER + length {
            return Ok(None);
        }
        self.came.advance(HEADER);
        let carried = self.came.split_to(length).freeze();
        Ok(Some(match kind {
            DATA => Came::Item(Item::Data(carried)),
            MESSAGE => Came::Item(Item::Message(carried)),
            CREDIT => Came::Credit(credited(&carried)),
            BEAT => Came::Nothing,
            END => Came::End,
            BROKEN => Came::Broken(String::from_utf8_lossy(&carried).into_owned()),
            _ => Came::Nothing,
        }))
    }
}

fn credited(carried: &[u8]) -> u32 {
    let bytes = carried.first_chunk::<4>();
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
