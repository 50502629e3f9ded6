//! A request as handlers see it: decoded, limited, and from somebody.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use drover_events::gojson;
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::query::{self, Query};
use crate::error::{ApiError, Code};
use crate::identity::Identity;

/// Who is at the other end of a connection; put beside every request by the serve loop.
#[derive(Clone, Copy, Debug)]
pub struct Remote(pub SocketAddr);

/// The longest request id that is taken over, bytes.
const ID_LIMIT: usize = 128;
/// The longest pause within a body.
const BODY_SILENCE: Duration = Duration::from_secs(30);
/// How long the rest of a body that is too long is still taken in and thrown away. Without it the
/// connection would be reset while the caller writes, and the refusal would be lost.
const LINGER: Duration = Duration::from_secs(2);

fn too_long(limit: usize) -> ApiError {
    let text = format!("request body too large, at most {limit} bytes are allowed");
    ApiError::new(Code::PayloadTooLarge, text)
}

async fn discard<B: HttpBody<Data = Bytes>>(mut body: Pin<&mut B>) {
    while let Some(Ok(_)) = body.frame().await {}
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

/// One request, its body read.
pub(super) struct Request {
    /// The method.
    pub(super) method: Method,
    /// The path as it came, escapes and all.
    pub(super) path: String,
    /// The decoded parameters.
    pub(super) query: Query,
    /// The headers.
    pub(super) headers: HeaderMap,
    /// The caller's address, where there is one.
    pub(super) remote: Option<SocketAddr>,
    /// Who it is; filled in by the authentication step.
    pub(super) identity: Identity,
    /// The body, not longer than the route allows.
    pub(super) body: Bytes,
    /// Its id, once somebody asked for it.
    id: OnceLock<String>,
}

/// Headers, query and body may hold secrets.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// Decodes everything but the body.
    ///
    /// # Errors
    /// 400 for a malformed target.
    pub(super) fn head(parts: Parts) -> Result<Self, ApiError> {
        Ok(Self {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: Query::parse(parts.uri.query())?,
            headers: parts.headers,
            remote: parts.extensions.get::<Remote>().map(|r| r.0),
            identity: Identity::default(),
            body: Bytes::new(),
            id: OnceLock::new(),
        })
    }

    /// Reads the body.
    ///
    /// # Errors
    /// 413 above the limit, 400 when the connection breaks off, 504 when the caller falls silent.
    pub(super) async fn read_body<B>(&mut self, body: B, limit: usize) -> Result<(), ApiError>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        let mut body = std::pin::pin!(body);
        let known = body.size_hint().lower();
        let mut read = Gathered::default();
        while !body.is_end_stream() {
            if read.len().max(usize::try_from(known).unwrap_or(usize::MAX)) > limit {
                // A caller that waits for leave to send needs no more than the answer.
                if !self.headers.contains_key(hyper::header::EXPECT) {
                    let _ = timeout(LINGER, discard(body.as_mut())).await;
                }
                return Err(too_long(limit));
            }
            let frame = timeout(BODY_SILENCE, body.frame()).await.map_err(|_| {
                let text = format!("request body: nothing came for {BODY_SILENCE:?}");
                ApiError::new(Code::Timeout, text)
            })?;
            match frame {
                Some(Ok(frame)) => read.add(frame.into_data().unwrap_or_default()),
                Some(Err(error)) => {
                    let text = format!("failed to read request body: {error}");
                    return Err(ApiError::bad_request(text));
                }
                None => break,
            }
        }
        if read.len() > limit {
            return Err(too_long(limit));
        }
        self.body = read.finish();
        Ok(())
    }

    /// The decoded path segment of a number (`/v1/job/x`: 0 is `v1`), empty when absent.
    ///
    /// # Errors
    /// 400 for a broken escape.
    pub(super) fn segment(&self, number: usize) -> Result<String, ApiError> {
        let raw = self.path.split('/').nth(number + 1).unwrap_or_default();
        query::decode(raw, false)
    }

    /// The decoded path behind a prefix, slashes included.
    ///
    /// # Errors
    /// 400 for a broken escape.
    pub(super) fn behind(&self, prefix: &str) -> Result<String, ApiError> {
        query::decode(self.path.strip_prefix(prefix).unwrap_or_default(), false)
    }

    /// A header as text.
    #[must_use]
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// 400: empty, or not what was asked for; the message names the field.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        if self.body.is_empty() {
            return Err(ApiError::bad_request("Request body is empty"));
        }
        gojson::from_slice(&self.body).map_err(|e| ApiError::bad_request(e.to_string()))
    }

    /// The body as JSON, the default when there is none.
    ///
    /// # Errors
    /// 400: not what was asked for.
    pub(super) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        if self.body.is_empty() {
            Ok(T::default())
        } else {
            self.json()
        }
    }

    /// The namespace the query names, `default` without one.
    #[must_use]
    pub(super) fn namespace(&self) -> &str {
        query::namespace(&self.query)
    }

    /// The id of the request: the caller's, where it is sensible, else a new one.
    #[must_use]
    pub(super) fn id(&self) -> String {
        let sensible = |id: &&str| !id.is_empty() && id.len() <= ID_LIMIT && id.is_ascii();
        let id = || match self.header("x-request-id").filter(sensible) {
            Some(id) => id.to_owned(),
            None => uuid::Uuid::now_v7().to_string(),
        };
        self.id.get_or_init(id).clone()
    }

    /// Whether the caller is on this machine.
    #[must_use]
    pub(super) fn is_local(&self) -> bool {
        self.remote
            .is_none_or(|addr| addr.ip().to_canonical().is_loopback())
    }
}
