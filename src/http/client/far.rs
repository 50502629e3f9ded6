//! A request to the client of another machine, and its answer, over a session.
//!
//! First comes the head, as a message; then the body, and its end. The same the other way.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::Method;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::local::{self, Here};
use super::ran;
use crate::client::agent::Client;
use crate::client::control::Answers;
use crate::config::Config;
use crate::error::{Code, Refusal};
use crate::http::answer::{Answer, TEXT};
use crate::http::body::Body;
use crate::http::front::finish_request;
use crate::http::request::Request;
use crate::http::state::BODY_LIMIT;
use crate::rpc::client_calls;
use crate::rpc::duplex::{Broken, Duplex, Inflow, Outflow};
use crate::rpc::sessions::Sessions;

/// Pieces that may wait for a slow reader.
const WINDOW: usize = 8;
/// How long a body may take that the other side has whole.
const TAKING: Duration = Duration::from_secs(30);
/// How long a client may take to answer a caller that only reads; it gives up on files that hang
/// before.
pub(super) const READING: Duration = Duration::from_secs(40);
/// How long it may take to do something: tasks end in their own time.
const CHANGING: Duration = Duration::from_secs(330);
/// How long a profile looks at most, seconds.
const LONGEST_LOOK: u64 = 300;
/// The longest body that is taken in before it is sent on, bytes.
const SHORT: usize = 256 << 10;
/// Headers that a client may set; the rest is the server's own.
const HEADERS: [&str; 1] = ["content-disposition"];

drover_events::wire! {
    pub(super) struct RequestHead {
        method: String = "Method",
        target: String = "Target",
    }

    /// What is answered, before its body.
    pub(super) struct ResponseHead {
        status: u32 = "Status",
        content_type: String = "ContentType",
        /// Of the body, where it is known and short; 0 where it flows.
        length: u64 = "Length",
        headers: Vec<ResponseHeader> = "Headers",
    }

    /// One header of an answer.
    pub(super) struct ResponseHeader {
        name: String = "Name",
        value: String = "Value",
    }
}

/// Calls the client of a node.
///
/// # Errors
/// 404 where there is no way to it; 503 where it does not answer.
pub(in crate::http) async fn ask(
    sessions: &Arc<Sessions>,
    node: &str,
    request: &Request,
) -> Result<Answer, Refusal> {
    let Duplex {
        mut inflow,
        mut outflow,
    } = sessions.dial(node).await?;
    let lost = |broken: Broken| lost(node, &broken);
    outflow.message(&RequestHead::of(request)).map_err(lost)?;
    outflow.send(request.body.clone()).await.map_err(lost)?;
    outflow.end();
    let head: ResponseHead = first_word(node, &mut inflow, patience(request)?).await?;
    let short = usize::try_from(head.length).unwrap_or(usize::MAX);
    if !(1..=SHORT).contains(&short) {
        return Ok(head.answer(flowing(inflow)));
    }
    let body = timeout(TAKING, gathered(&mut inflow, SHORT)).await;
    let body = body.map_err(|_| silent(node))?.map_err(lost)?;
    Ok(head.answer(body.into()))
}

/// How long the answer to a request may take to begin. Clients of Nomad's request a removal by GET.
fn patience(request: &Request) -> Result<Duration, Refusal> {
    let reads = matches!(request.method, Method::GET | Method::HEAD);
    if request.path.starts_with("/v1/agent/pprof/") {
        let looks: u64 = request.query.number("seconds")?.unwrap_or_default();
        return Ok(READING + Duration::from_secs(looks.min(LONGEST_LOOK)));
    }
    Ok(match reads && !request.path.ends_with("/gc") {
        true => READING,
        false => CHANGING,
    })
}

/// The first that a client says to a question; it may be alive and hang.
///
/// # Errors
/// 503 where it is lost, 504 where it says nothing in time.
pub(super) async fn first_word<T: DeserializeOwned>(
    node: &str,
    inflow: &mut Inflow,
    patience: Duration,
) -> Result<T, Refusal> {
    let word = timeout(patience, inflow.message()).await;
    let word = word.map_err(|_| silent(node))?;
    word.map_err(|broken| lost(node, &broken))
}

fn silent(node: &str) -> Refusal {
    let text = format!("node {node:?} is there and does not answer in time");
    Refusal::new(Code::Timeout, text)
}

pub(super) fn lost(node: &str, broken: &Broken) -> Refusal {
    let text = format!("node {node:?} was lost: {broken}");
    Refusal::new(Code::Unavailable, text)
}

impl RequestHead {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            method: request.method.to_string(),
            target: request.target(),
        }
    }

    /// The request that it is the head of.
    ///
    /// # Errors
    /// 400 where it is none.
    pub(super) fn request(&self, body: Bytes) -> Result<Request, Refusal> {
        let bad = |error: &dyn std::fmt::Display| {
            Refusal::bad_request(format!("a request of another agent: {error}"))
        };
        let method: Method = self.method.parse().map_err(|e| bad(&e))?;
        let head = hyper::Request::builder().method(method).uri(&self.target);
        let (parts, ()) = head.body(()).map_err(|e| bad(&e))?.into_parts();
        let mut request = Request::head(parts)?;
        request.body = body;
        Ok(request)
    }

    /// Whether a command is to be run.
    fn is_exec(&self) -> bool {
        let path = self.target.split('?').next().unwrap_or_default();
        path.starts_with("/v1/client/allocation/") && path.ends_with("/exec")
    }
}

impl ResponseHead {
    fn of(answer: &Answer) -> Self {
        let header = |(name, value): &(Cow<'static, str>, String)| ResponseHeader {
            name: name.to_string(),
            value: value.clone(),
        };
        Self {
            status: u32::from(answer.status),
            content_type: answer.content_type.clone().unwrap_or_default().into_owned(),
            length: answer.body.len().unwrap_or_default(),
            headers: answer.headers.iter().map(header).collect(),
        }
    }

    /// The answer. A node may lie: it says nothing in the server's name, and nothing that a browser
    /// would run.
    fn answer(self, body: Body) -> Answer {
        let kind = Some(self.content_type).filter(|kind| !kind.is_empty());
        let runs = |kind: &String| {
            ["html", "xml", "svg", "script"]
                .iter()
                .any(|w| kind.contains(w))
        };
        let kind = kind.map(|kind| match runs(&kind.to_ascii_lowercase()) {
            true => Cow::Borrowed(TEXT),
            false => Cow::Owned(kind),
        });
        let theirs = self.headers.into_iter();
        let theirs = theirs.filter(|header| HEADERS.contains(&header.name.as_str()));
        Answer {
            content_type: kind,
            body,
            headers: theirs
                .map(|header| (Cow::Owned(header.name), header.value))
                .collect(),
            ..Answer::nothing()
        }
        .header("x-content-type-options", "nosniff")
        .status(match self.status {
            status @ 200..600 => u16::try_from(status).unwrap_or(502),
            _ => 502,
        })
    }
}

/// The body that comes; it is cut where it breaks off.
pub(in crate::http) fn flowing(mut inflow: Inflow) -> Body {
    let (tx, rx) = mpsc::channel(WINDOW);
    tokio::spawn(async move {
        loop {
            let piece = tokio::select! {
                piece = inflow.data() => piece,
                () = tx.closed() => return,
            };
            let piece = match piece {
                Ok(piece) => piece,
                Err(broken) => return tracing::debug!("an answer broke off: {broken}"),
            };
            let last = piece.is_none();
            if tx.send(piece).await.is_err() || last {
                return;
            }
        }
    });
    Body::whole(rx)
}

/// Sends a body to its end.
///
/// # Errors
/// The other end is gone.
pub(in crate::http) async fn send(mut outflow: Outflow, body: Body) -> Result<(), Broken> {
    let mut body = std::pin::pin!(body);
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = outflow.closed() => return Err(Broken("the other end is gone".to_owned())),
        };
        match frame {
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                outflow.send(data).await?;
            }
            Some(Err(broken)) => {
                outflow.fail(broken.to_string());
                return Ok(());
            }
            None => {
                outflow.end();
                return Ok(());
            }
        }
    }
}

/// Answers requests of servers in sessions. The client owns what answers for it, so that is not
/// kept alive from here.
#[derive(Clone)]
pub struct Near {
    here: Here,
    client: Weak<Client>,
}

impl Near {
    /// For a client.
    #[must_use]
    pub fn of(config: &Config, client: &Arc<Client>) -> Arc<Self> {
        Arc::new(Self {
            here: Here::new(config, client.node_id(), None),
            client: Arc::downgrade(client),
        })
    }

    /// The agent, while its client is there.
    ///
    /// # Errors
    /// 503 once it is gone.
    pub(in crate::http) fn here(&self) -> Result<Here, Refusal> {
        let gone = || Refusal::new(Code::Unavailable, "the client ends");
        Ok(Here {
            client: Some(self.client.upgrade().ok_or_else(gone)?),
            ..self.here.clone()
        })
    }
}

impl Answers for Near {
    fn answer(&self, stream: Duplex) -> BoxFuture<'static, ()> {
        let near = self.clone();
        let answered = async move {
            if let Err(broken) = respond(&near, stream).await {
                tracing::debug!("a session of a server: {broken}");
            }
        };
        answered.boxed()
    }
}

async fn respond(near: &Near, stream: Duplex) -> Result<(), Broken> {
    let Duplex {
        mut inflow,
        mut outflow,
    } = stream;
    let head: RequestHead = inflow.message().await?;
    if head.method == client_calls::METHOD {
        let handlers = near.here().ok().and_then(|here| here.client?.handlers());
        return client_calls::answer(handlers, &head.target, (inflow, outflow)).await;
    }
    if head.is_exec() {
        return ran::run(near, &head, Duplex { inflow, outflow }).await;
    }
    let taken = timeout(TAKING, gathered(&mut inflow, BODY_LIMIT)).await;
    let body = taken.map_err(|_| Broken("the request took too long".to_owned()))??;
    drop(inflow);
    let answered = AssertUnwindSafe(async {
        let request = head.request(body)?;
        local::answer(&near.here()?, &request).await
    });
    let answer = tokio::select! {
        answered = answered.catch_unwind() => finish_request(answered),
        () = outflow.closed() => return Ok(()),
    };
    outflow.message(&ResponseHead::of(&answer))?;
    send(outflow, answer.body).await
}

/// A body, whole.
async fn gathered(inflow: &mut Inflow, most: usize) -> Result<Bytes, Broken> {
    let mut body = BytesMut::new();
    while let Some(piece) = inflow.data().await? {
        if body.len() + piece.len() > most {
            return Err(Broken("the body is too long".to_owned()));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers and clients of two releases speak with each other: these bytes stay as they are.
    #[test]
    fn mod_30_what_is_asked_of_a_client_and_answered_are_the_bytes_they_always_were() {
        let hex = |bytes: &[u8]| hex::encode(bytes);
        let head = RequestHead {
            method: "GET".to_owned(),
            target: "/v1/client/stats".to_owned(),
        };
        assert_eq!(
            hex(&crate::endpoints::testing::encoded(&head)),
            concat!(
                "82a64d6574686f64a3474554a6546172676574b0",
                "2f76312f636c69656e742f7374617473"
            )
        );
        let head = ResponseHead {
            status: 200,
            content_type: "text/plain".to_owned(),
            length: 300,
            headers: vec![ResponseHeader {
                name: "content-disposition".to_owned(),
                value: "x".to_owned(),
            }],
        };
        assert_eq!(
            hex(&crate::endpoints::testing::encoded(&head)),
            concat!(
                "84a6537461747573ccc8ab436f6e74656e7454797065aa746578742f706c61696e",
                "a64c656e677468cd012ca7486561646572739182a44e616d65",
                "b3636f6e74656e742d646973706f736974696f6ea556616c7565a178"
            )
        );
    }

    #[tokio::test]
    async fn mod_18_an_answer_comes_as_it_was_given() {
        let (near, mut far) = Duplex::pair(crate::rpc::duplex::Keepalive::SESSION);
        let given = Answer::of("text/x", "a body".to_owned())
            .header("content-disposition", "attachment")
            .header("access-control-allow-origin", "*")
            .header("set-cookie", "a=b")
            .status(206);
        let Duplex {
            inflow,
            mut outflow,
        } = near;
        outflow.message(&ResponseHead::of(&given)).unwrap();
        tokio::spawn(send(outflow, given.body));
        let head: ResponseHead = far.inflow.message().await.unwrap();
        let came = head.answer(flowing(far.inflow));
        assert_eq!(
            (came.status, came.content_type.as_deref()),
            (206, Some("text/x"))
        );
        let kept = [
            ("content-disposition".into(), "attachment".to_owned()),
            ("x-content-type-options".into(), "nosniff".to_owned()),
        ];
        assert_eq!(came.headers, kept, "the rest is the server's own");
        let body = axum::body::Body::new(came.body).collect().await.unwrap();
        assert_eq!(body.to_bytes(), "a body");
        drop(inflow);
    }

    #[test]
    fn a_node_that_lies_gives_browsers_nothing_to_run() {
        for (status, kind, wanted) in [
            (200, "text/html", (200, TEXT)),
            (200, "image/SVG+xml", (200, TEXT)),
            (99, "application/json", (502, "application/json")),
            (70_000, "text/plain", (502, "text/plain")),
        ] {
            let head = ResponseHead {
                status,
                content_type: kind.to_owned(),
                ..ResponseHead::default()
            };
            let answer = head.answer(Body::empty());
            assert_eq!(
                (answer.status, answer.content_type.as_deref()),
                (wanted.0, Some(wanted.1))
            );
        }
    }

    #[test]
    fn a_question_is_waited_for_as_long_as_its_answer_may_take() {
        let of = |method: &str, target: &str| {
            let head = RequestHead {
                method: method.to_owned(),
                target: target.to_owned(),
            };
            patience(&head.request(Bytes::new()).unwrap()).unwrap()
        };
        assert_eq!(of("GET", "/v1/client/stats"), READING);
        assert_eq!(of("GET", "/v1/client/gc?node_id=a"), CHANGING);
        assert_eq!(of("PUT", "/v1/client/allocation/a/restart"), CHANGING);
        let profile = of("GET", "/v1/agent/pprof/profile?seconds=60");
        assert_eq!(profile, READING + Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_client_that_lives_and_says_nothing_is_waited_for_only_so_long() {
        let (_near, mut far) = Duplex::pair(crate::rpc::duplex::Keepalive::SESSION);
        let soon = Duration::from_millis(20);
        let word = first_word::<ResponseHead>("n", &mut far.inflow, soon).await;
        assert_eq!(word.unwrap_err().code, Code::Timeout);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_not_taken_for_the_whole() {
        let (near, far) = Duplex::pair(crate::rpc::duplex::Keepalive::SESSION);
        let mut outflow = near.outflow;
        outflow.send(Bytes::from_static(b"half")).await.unwrap();
        outflow.fail("the file hangs");
        let body = axum::body::Body::new(flowing(far.inflow));
        assert!(body.collect().await.is_err());
    }
}
