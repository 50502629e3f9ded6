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
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::local::{self, Here};
use super::ran;
use crate::client::agent::Client;
use crate::client::control::Answers;
use crate::config::Config;
use crate::error::{ApiError, Code};
use crate::http::answer::Answer;
use crate::http::body::Body;
use crate::http::front::settle;
use crate::http::request::Request;
use crate::http::state::BODY_LIMIT;
use crate::rpc::duplex::{Broken, Duplex, Inflow, Outflow};
use crate::rpc::sessions::Sessions;

/// Pieces that may wait for a slow reader.
const WINDOW: usize = 8;
/// How long the body of a request may take, which the server has whole.
const TAKING: Duration = Duration::from_secs(30);

drover_events::wire! {
    /// What is asked.
    pub(super) struct Head {
        method: String = "Method",
        target: String = "Target",
    }

    /// What is answered, before its body.
    pub(super) struct Told {
        status: u32 = "Status",
        content_type: String = "ContentType",
        headers: Vec<Header> = "Headers",
    }

    /// One header of an answer.
    pub(super) struct Header {
        name: String = "Name",
        value: String = "Value",
    }
}

/// Asks the client of a node.
///
/// # Errors
/// 404 where there is no way to it; 503 where it does not answer.
pub(in crate::http) async fn ask(
    sessions: &Arc<Sessions>,
    node: &str,
    request: &Request,
) -> Result<Answer, ApiError> {
    let Duplex {
        mut inflow,
        mut outflow,
    } = sessions.dial(node).await?;
    let lost = |broken: Broken| lost(node, &broken);
    outflow.message(&Head::of(request)).map_err(lost)?;
    outflow.send(request.body.clone()).await.map_err(lost)?;
    outflow.end();
    let told: Told = inflow.message().await.map_err(lost)?;
    Ok(told.answer(flowing(inflow)))
}

pub(super) fn lost(node: &str, broken: &Broken) -> ApiError {
    let text = format!("node {node:?} was lost: {broken}");
    ApiError::new(Code::Unavailable, text)
}

impl Head {
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
    pub(super) fn request(&self, body: Bytes) -> Result<Request, ApiError> {
        let bad = |error: &dyn std::fmt::Display| {
            ApiError::bad_request(format!("a request of another agent: {error}"))
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

impl Told {
    fn of(answer: &Answer) -> Self {
        let header = |(name, value): &(Cow<'static, str>, String)| Header {
            name: name.to_string(),
            value: value.clone(),
        };
        Self {
            status: u32::from(answer.status),
            content_type: answer.content_type.clone().unwrap_or_default().into_owned(),
            headers: answer.headers.iter().map(header).collect(),
        }
    }

    fn answer(self, body: Body) -> Answer {
        let kind = Some(self.content_type).filter(|kind| !kind.is_empty());
        let headers = self.headers.into_iter();
        Answer {
            content_type: kind.map(Cow::Owned),
            body,
            headers: headers
                .map(|header| (Cow::Owned(header.name), header.value))
                .collect(),
            ..Answer::nothing()
        }
        .status(u16::try_from(self.status).unwrap_or(500))
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
/// Nobody takes it any more.
pub(in crate::http) async fn send(mut outflow: Outflow, body: Body) -> Result<(), Broken> {
    let mut body = std::pin::pin!(body);
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = outflow.closed() => return Err(Broken("nobody listens any more".to_owned())),
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

/// Answers what servers ask in sessions. The client owns what answers for it, so that is not kept
/// alive from here.
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
    pub(in crate::http) fn here(&self) -> Result<Here, ApiError> {
        let gone = || ApiError::new(Code::Unavailable, "the client ends");
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
    let head: Head = inflow.message().await?;
    if head.is_exec() {
        return ran::run(near, &head, Duplex { inflow, outflow }).await;
    }
    let taken = timeout(TAKING, gathered(&mut inflow)).await;
    let body = taken.map_err(|_| Broken("the request took too long".to_owned()))??;
    drop(inflow);
    let answered = AssertUnwindSafe(async {
        let request = head.request(body)?;
        local::answer(&near.here()?, &request).await
    });
    let answer = tokio::select! {
        answered = answered.catch_unwind() => settle(answered),
        () = outflow.closed() => return Ok(()),
    };
    outflow.message(&Told::of(&answer))?;
    send(outflow, answer.body).await
}

/// The body of a request, whole.
async fn gathered(inflow: &mut Inflow) -> Result<Bytes, Broken> {
    let mut body = BytesMut::new();
    while let Some(piece) = inflow.data().await? {
        if body.len() + piece.len() > BODY_LIMIT {
            return Err(Broken("the request is too long".to_owned()));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn mod_18_an_answer_comes_as_it_was_given() {
        let (near, mut far) = Duplex::pair(crate::rpc::duplex::Pace::SESSION);
        let given = Answer::of("text/x", "a body".to_owned())
            .header("x-some", "thing")
            .status(206);
        let Duplex {
            inflow,
            mut outflow,
        } = near;
        outflow.message(&Told::of(&given)).unwrap();
        tokio::spawn(send(outflow, given.body));
        let told: Told = far.inflow.message().await.unwrap();
        let came = told.answer(flowing(far.inflow));
        assert_eq!(
            (came.status, came.content_type.as_deref()),
            (206, Some("text/x"))
        );
        assert_eq!(came.headers, [("x-some".into(), "thing".to_owned())]);
        let body = axum::body::Body::new(came.body).collect().await.unwrap();
        assert_eq!(body.to_bytes(), "a body");
        drop(inflow);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_not_taken_for_the_whole() {
        let (near, far) = Duplex::pair(crate::rpc::duplex::Pace::SESSION);
        let mut outflow = near.outflow;
        outflow.send(Bytes::from_static(b"half")).await.unwrap();
        outflow.fail("the file hangs");
        let body = axum::body::Body::new(flowing(far.inflow));
        assert!(body.collect().await.is_err());
    }
}
