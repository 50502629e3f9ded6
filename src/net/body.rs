//! Bodies on their way in.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use tokio::time::{Instant, timeout, timeout_at};

use super::Hold;
use drover_error::{Code, Refusal};

/// The longest pause within a body.
const SILENCE: Duration = Duration::from_secs(30);
/// The time that any body has.
pub const BEGIN: Duration = Duration::from_secs(30);
/// Bytes a second that a body must bring beyond that.
const PACE: u64 = 64 << 10;
/// How long the rest of a body that is refused is still taken in.
const LINGER: Duration = Duration::from_secs(2);

/// When the rest of a refused body is taken in for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    Never,
    /// Once it was requested: its caller waited for leave to send, and has it since then. One that
    /// still waits needs no more than the answer.
    OncePolled,
    Always,
}

impl Linger {
    /// That of a request whose caller waits for leave to send its body, or does not.
    pub fn of(waits: bool) -> Self {
        if waits {
            Self::OncePolled
        } else {
            Self::Always
        }
    }

    /// Whether the rest of a refused body is on its way.
    pub fn comes(self, pace: &Pace) -> bool {
        match self {
            Self::Never => false,
            Self::OncePolled => pace.polled,
            Self::Always => true,
        }
    }

    /// Takes in the rest of a body that is refused, if it comes, for a while, and throws it away.
    /// Without it the connection would be reset while the caller writes, and the refusal would be
    /// lost.
    pub async fn take_rest<B: HttpBody<Data = Bytes>>(self, mut body: Pin<&mut B>, pace: &Pace) {
        if self.comes(pace) {
            let rest = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = timeout(LINGER, rest).await;
        }
    }

    /// As [`take_rest`](Self::take_rest), but for what was refused because its caller was slow or
    /// broke off: of that nothing more comes.
    pub async fn take_rest_after<B: HttpBody<Data = Bytes>>(
        self,
        refusal: &Refusal,
        body: Pin<&mut B>,
        pace: &Pace,
    ) {
        if !matches!(refusal.code, Code::Timeout | Code::BadRequest) {
            self.take_rest(body, pace).await;
        }
    }
}

/// What a body may be.
#[derive(Clone, Copy, Debug)]
pub struct BodyRules {
    /// Bytes at most.
    pub limit: usize,
    /// Whether the rest is taken in for a while where it is refused.
    pub linger: Linger,
    /// Whether it waits for others when the budget is used up.
    pub patient: bool,
    /// The time that it has whatever its length; [`BEGIN`] by default.
    pub begin: Duration,
}

fn too_long(limit: usize) -> Refusal {
    let text = format!("request body too large, at most {limit} bytes are allowed");
    Refusal::new(Code::PayloadTooLarge, text)
}

/// How fast a body must come in: it is never silent for long, and beyond the time that it has
/// whatever its length, it brings so many bytes a second.
#[derive(Debug)]
pub struct Pace {
    what: &'static str,
    /// Until when it has that time.
    begin: Instant,
    came: u64,
    /// Whether a piece of it was waited for.
    polled: bool,
}

impl Pace {
    /// Of a body that begins now and has this time whatever its length.
    pub fn new(what: &'static str, begin: Duration) -> Self {
        Self {
            what,
            begin: Instant::now() + begin,
            came: 0,
            polled: false,
        }
    }

    /// So many bytes are there.
    pub fn came(&mut self, bytes: usize) {
        self.came += bytes as u64;
    }

    /// Waits for the next piece, as long as it may take.
    ///
    /// # Errors
    /// 504 when the caller is silent or slow.
    pub async fn wait<T>(&mut self, next: impl Future<Output = T>) -> Result<T, Refusal> {
        self.polled = true;
        let end = self.begin + Duration::from_secs(self.came / PACE);
        let limit = end.min(Instant::now() + SILENCE);
        timeout_at(limit, next).await.map_err(|_| {
            let (what, came) = (self.what, self.came);
            let text = match Instant::now() < end {
                true => format!("{what}: nothing came for {SILENCE:?}"),
                false => format!("{what}: only {came} bytes came in time"),
            };
            Refusal::new(Code::Timeout, text)
        })
    }
}

/// A body as it comes in; a single piece is not copied.
#[derive(Default)]
struct Gathered {
    first: Bytes,
    all: BytesMut,
}

impl Gathered {
    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    fn add(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
        } else {
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
            self.all.extend_from_slice(&piece);
        }
    }

    fn finish(self) -> Bytes {
        if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        }
    }
}

/// Takes a body in; what it takes of the budget stays in `hold`, unless it is refused.
///
/// # Errors
/// 413 above the limit, 400 when the connection breaks off, 504 when the caller is silent or slow,
/// 429 and 503 when there is no capacity.
pub async fn gather<B>(body: B, rules: BodyRules, hold: &mut Hold) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = std::pin::pin!(body);
    let mut pace = Pace::new("request body", rules.begin);
    match gathered(body.as_mut(), rules, hold, &mut pace).await {
        Ok(bytes) => Ok(bytes),
        Err(error) => {
            // What it had taken is thrown away, and what comes now is not kept.
            hold.give_back();
            let rest = rules.linger.take_rest_after(&error, body.as_mut(), &pace);
            rest.await;
            Err(error)
        }
    }
}

async fn gathered<B>(
    mut body: Pin<&mut B>,
    rules: BodyRules,
    hold: &mut Hold,
    pace: &mut Pace,
) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let known = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut read = Gathered::default();
    while !body.is_end_stream() {
        if read.len().max(known) > rules.limit {
            return Err(too_long(rules.limit));
        }
        match pace.wait(body.frame()).await? {
            Some(Ok(frame)) => {
                let piece = frame.into_data().unwrap_or_default();
                pace.came(piece.len());
                match rules.patient {
                    true => hold.take(piece.len()).await?,
                    false => hold.try_take(piece.len())?,
                }
                read.add(piece);
            }
            Some(Err(error)) => {
                let text = format!("failed to read request body: {error}");
                return Err(Refusal::bad_request(text));
            }
            None => break,
        }
    }
    if read.len() > rules.limit {
        return Err(too_long(rules.limit));
    }
    Ok(read.finish())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use http_body_util::StreamBody;
    use hyper::body::{Frame, SizeHint};
    use parking_lot::Mutex;
    use tokio_stream::StreamExt;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;
    use crate::Budget;

    const RULES: BodyRules = BodyRules {
        limit: 1_000,
        linger: Linger::Never,
        patient: false,
        begin: Duration::from_millis(300),
    };
    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    type Piece = Result<Bytes, std::io::Error>;
    type FreeBytes = Arc<Mutex<Vec<usize>>>;

    fn body(pieces: ReceiverStream<Piece>) -> impl HttpBody<Data = Bytes, Error = std::io::Error> {
        StreamBody::new(pieces.map(|piece| piece.map(Frame::data)))
    }

    #[tokio::test]
    async fn a_body_that_trickles_or_stops_ends_at_its_deadline() {
        for trickles in [true, false] {
            let (sender, pieces) = tokio::sync::mpsc::channel::<Piece>(1);
            let trickle = tokio::spawn(async move {
                let mut pace = tokio::time::interval(Duration::from_millis(10));
                while sender.send(Ok(Bytes::from_static(b"x"))).await.is_ok() {
                    match trickles {
                        true => drop(pace.tick().await),
                        false => sender.closed().await,
                    }
                }
            });
            let mut hold = Budget::new(1 << 20).hold(ADDRESS);
            let taken = gather(body(ReceiverStream::new(pieces)), RULES, &mut hold).await;
            assert_eq!(taken.unwrap_err().code, Code::Timeout);
            trickle.await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_body_holds_is_counted_until_it_is_let_go() {
        let budget = Budget::new(4_000);
        let mut holds = Vec::new();
        for number in 0..2 {
            let mut hold = budget.hold(ADDRESS);
            let full = http_body_util::Full::new(Bytes::from(vec![0; 600]));
            let taken = gather(full, RULES, &mut hold).await;
            match number {
                0 => assert_eq!(taken.unwrap().len(), 600),
                _ => assert_eq!(taken.unwrap_err().code, Code::TooManyRequests),
            }
            holds.push(hold);
        }
        assert_eq!(budget.free(), 3_400);
        drop(holds);
        assert_eq!(budget.free(), 4_000);
    }

    #[tokio::test]
    async fn a_body_above_the_limit_is_refused_unread() {
        let budget = Budget::new(40_000);
        let mut hold = budget.hold(ADDRESS);
        let full = http_body_util::Full::new(Bytes::from(vec![0; 1_001]));
        let refused = gather(full, RULES, &mut hold).await.unwrap_err();
        assert_eq!(refused.code, Code::PayloadTooLarge);
        assert_eq!(budget.free(), 40_000, "nothing of it was taken");
    }

    /// A body that says how long it is, and counts how often it is polled for more.
    struct Counted {
        says: u64,
        left: usize,
        polls: Arc<AtomicUsize>,
        /// What is free of this whenever it is polled.
        free: Option<(Arc<Budget>, FreeBytes)>,
    }

    impl HttpBody for Counted {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.polls.fetch_add(1, Ordering::Relaxed);
            if let Some((budget, free)) = &self.free {
                free.lock().push(budget.free());
            }
            let Some(left) = self.left.checked_sub(1) else {
                return Poll::Ready(None);
            };
            self.left = left;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; 600])))))
        }

        fn size_hint(&self) -> SizeHint {
            let mut hint = SizeHint::new();
            hint.set_lower(self.says);
            hint
        }
    }

    #[tokio::test]
    async fn the_rest_of_a_refused_body_is_taken_in_where_its_caller_sends() {
        for (linger, says, wanted) in [
            (Linger::Never, 0, 2),
            (Linger::OncePolled, 0, 5),
            (Linger::Always, 0, 5),
            (Linger::Never, 2_400, 0),
            (Linger::OncePolled, 2_400, 0),
            (Linger::Always, 2_400, 5),
        ] {
            let polls = Arc::<AtomicUsize>::default();
            let body = Counted {
                says,
                left: 4,
                polls: Arc::clone(&polls),
                free: None,
            };
            let mut hold = Budget::new(1 << 20).hold(ADDRESS);
            let refused = gather(body, BodyRules { linger, ..RULES }, &mut hold).await;
            assert_eq!(refused.unwrap_err().code, Code::PayloadTooLarge);
            let polls = polls.load(Ordering::Relaxed);
            assert_eq!(polls, wanted, "{linger:?}, says {says}");
        }
    }

    #[tokio::test]
    async fn a_refused_body_holds_nothing_while_its_rest_is_taken_in() {
        let budget = Budget::new(1 << 20);
        let free = FreeBytes::default();
        let body = Counted {
            says: 0,
            left: 4,
            polls: Arc::default(),
            free: Some((Arc::clone(&budget), Arc::clone(&free))),
        };
        let rules = BodyRules {
            linger: Linger::Always,
            ..RULES
        };
        let mut hold = budget.hold(ADDRESS);
        let refused = gather(body, rules, &mut hold).await;
        assert_eq!(refused.unwrap_err().code, Code::PayloadTooLarge);
        let all = 1 << 20;
        assert_eq!(*free.lock(), [all, all - 600, all, all, all]);
    }
}
