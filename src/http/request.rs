//! A request as handlers see it: decoded, limited, and with its caller.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use drover_events::gojson;
use hyper::body::Body as HttpBody;
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method};
use serde::de::DeserializeOwned;

use super::decoded::{DECODED, SHORT};
use super::ignored;
use super::measure::{self, Counted};
use super::query::{self, Query};
use crate::error::Refusal;
use crate::identity::Identity;
use crate::keyring::Verified;
use crate::net::body::{BEGIN, BodyRules, Linger, gather};
use crate::net::tls::PeerCertificate;
use crate::net::{Budget, Hold, Peer};

/// Who is at the other end of a connection; put beside every request by the serve loop.
#[derive(Clone, Copy, Debug)]
pub struct Remote(pub SocketAddr);

/// Put beside a request that a call stands for: the call was counted and limited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called;

/// Where requests come from that came over no network.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// The longest request id that is taken over, bytes.
const ID_LIMIT: usize = 128;
/// One request, its body read.
pub(super) struct Request {
    pub(super) method: Method,
    /// The path as it came, escapes and all.
    pub(super) path: String,
    /// The route that it came by, parameters in braces.
    pub(super) route: Cow<'static, str>,
    /// Path and parameters as they came.
    target: Option<PathAndQuery>,
    /// The decoded parameters.
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    /// The caller's address, where there is one.
    pub(super) remote: Option<SocketAddr>,
    /// From where it came to the agent that forwards it, as that agent says.
    pub(super) behind: Option<IpAddr>,
    /// The certificate that the connection showed.
    pub(super) certificate: Option<Arc<PeerCertificate>>,
    /// Whether a call stands for it.
    pub(super) called: bool,
    /// What it is counted as.
    pub(super) counted: Option<Counted>,
    /// What was verified of its token.
    pub(super) verified: Verified,
    /// Who it is; filled in by the authentication step.
    pub(super) identity: Arc<Identity>,
    /// The body, not longer than the route allows.
    pub(super) body: Bytes,
    /// What the body takes of the budget.
    hold: Option<Hold>,
    /// Its id, once it was read.
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
    pub(super) fn head(parts: Parts) -> Result<Self, Refusal> {
        let peer = parts.extensions.get::<Peer>();
        let certificate = peer.and_then(|peer| peer.certificate.clone());
        let behind = peer.and_then(|peer| peer.behind);
        let route = measure::route(&parts);
        Ok(Self {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            route,
            target: parts.uri.path_and_query().cloned(),
            query: match parts.extensions.get::<Query>() {
                Some(query) => query.clone(),
                None => Query::parse(parts.uri.query())?,
            },
            headers: parts.headers,
            remote: parts.extensions.get::<Remote>().map(|r| r.0),
            behind,
            certificate,
            called: parts.extensions.get::<Called>().is_some(),
            counted: parts.extensions.get::<Counted>().cloned(),
            verified: Verified::default(),
            identity: Arc::default(),
            body: Bytes::new(),
            hold: None,
            id: OnceLock::new(),
        })
    }

    /// Reads the body; what it takes of the budget is given back with the request.
    ///
    /// # Errors
    /// 413 above the limit, 400 when the connection breaks off, 504 when the caller is silent or
    /// slow, 429 and 503 when there is no capacity for it.
    pub(super) async fn read_body<B>(
        &mut self,
        body: B,
        limit: usize,
        budget: &Arc<Budget>,
    ) -> Result<(), Refusal>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: std::fmt::Display,
    {
        let address = self.address();
        let rules = BodyRules {
            limit,
            linger: self.linger(),
            patient: true,
            begin: BEGIN,
        };
        let mut hold = budget.hold(address);
        self.body = gather(body, rules, &mut hold).await?;
        self.hold = Some(hold);
        Ok(())
    }

    /// When the rest of its body is taken in, if that is refused.
    pub(super) fn linger(&self) -> Linger {
        Linger::of(self.headers.contains_key(hyper::header::EXPECT))
    }

    /// Takes more of the budget for what is made of the body, for as long as that is kept: not
    /// while a query waits.
    ///
    /// # Errors
    /// 429 and 503 when there is no capacity for it.
    pub(super) async fn space_to_decode(&self) -> Result<Option<Hold>, Refusal> {
        let Some(hold) = self.hold.as_ref().filter(|_| self.body.len() > SHORT) else {
            return Ok(None);
        };
        let mut more = hold.another();
        more.take(self.body.len() * DECODED).await?;
        Ok(Some(more))
    }

    /// Path and query as they came.
    #[must_use]
    pub(super) fn target(&self) -> String {
        let target = self.target.as_ref().map(PathAndQuery::as_str);
        target.unwrap_or(&self.path).to_owned()
    }

    /// The decoded path segment of a number (`/v1/job/x`: 0 is `v1`), empty when absent.
    ///
    /// # Errors
    /// 400 for a broken escape.
    pub(super) fn segment(&self, number: usize) -> Result<String, Refusal> {
        let raw = self.path.split('/').nth(number + 1).unwrap_or_default();
        query::decode(raw, false)
    }

    /// The decoded path behind a prefix, slashes included.
    ///
    /// # Errors
    /// 400 for a broken escape.
    pub(super) fn behind(&self, prefix: &str) -> Result<String, Refusal> {
        query::decode(self.path.strip_prefix(prefix).unwrap_or_default(), false)
    }

    /// A header as text.
    #[must_use]
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON. Fields that say something and are none of it are ignored, and named so.
    ///
    /// # Errors
    /// 400: empty, or not of the type that is read; the message names the field.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        if self.body.is_empty() {
            return Err(Refusal::bad_request("Request body is empty"));
        }
        let read = gojson::from_slice_naming(&self.body);
        let (body, unknown) = read.map_err(|e| Refusal::bad_request(e.to_string()))?;
        self.query
            .ignore(unknown.iter().map(|path| ignored::field(path)));
        Ok(body)
    }

    /// The body as JSON, the default when there is none.
    ///
    /// # Errors
    /// 400: not of the type that is read.
    pub(super) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, Refusal> {
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

    /// The addresses of the servers that it gives a client; none where it is about something else.
    #[must_use]
    pub(super) fn servers(&self) -> Vec<String> {
        let reads = matches!(self.method, Method::GET | Method::HEAD);
        match self.path == "/v1/agent/servers" && !reads {
            true => self.query.peek_all("address").map(str::to_owned).collect(),
            false => Vec::new(),
        }
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

    /// Where it comes from; unspecified where it came over no network.
    #[must_use]
    pub(super) fn address(&self) -> IpAddr {
        self.remote.map_or(NOBODY, |remote| remote.ip())
    }

    /// Whether the caller is on this machine.
    #[must_use]
    pub(super) fn is_local(&self) -> bool {
        self.remote
            .is_none_or(|addr| addr.ip().to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde::{Deserialize, Deserializer};

    use super::*;

    thread_local! {
        static READS: Cell<usize> = const { Cell::new(0) };
    }

    /// A field that counts how often it is read.
    struct CountedField;

    impl<'de> Deserialize<'de> for CountedField {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            READS.set(READS.get() + 1);
            serde::de::IgnoredAny::deserialize(from).map(|_| Self)
        }
    }

    /// A body that counts how often it is read, and how often its field is.
    struct Body;

    impl<'de> Deserialize<'de> for Body {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            #[derive(Deserialize)]
            struct RequestInner {
                #[serde(rename = "Job")]
                _job: CountedField,
            }
            READS.set(READS.get() + 1);
            RequestInner::deserialize(from).map(|_| Self)
        }
    }

    #[test]
    fn a_request_has_the_id_that_its_caller_gave_it_where_that_is_sensible() {
        let longest = "x".repeat(ID_LIMIT);
        let longer = format!("{longest}x");
        for (given, kept) in [
            ("a", true),
            (&*longest, true),
            ("", false),
            (&*longer, false),
        ] {
            let get = hyper::Request::get("/v1/jobs").header("x-request-id", given);
            let request = Request::head(get.body(()).unwrap().into_parts().0).unwrap();
            let id = request.id();
            assert_eq!(id == given, kept, "{given:?}: {id:?}");
            assert!(kept || id.len() == 36, "a new one: {id:?}");
            assert_eq!(request.id(), id, "it stays");
        }
    }

    #[test]
    fn a_request_that_gives_a_client_servers_names_them_in_its_query() {
        let query = "?address=10.0.0.1:4647&region=eu&address=b%3A4647";
        for (method, path, named) in [
            (
                Method::PUT,
                "/v1/agent/servers",
                &["10.0.0.1:4647", "b:4647"][..],
            ),
            (Method::GET, "/v1/agent/servers", &[]),
            (Method::PUT, "/v1/agent/reload", &[]),
        ] {
            let request = hyper::Request::builder().method(method);
            let request = request.uri(format!("{path}{query}")).body(()).unwrap();
            let request = Request::head(request.into_parts().0).unwrap();
            assert_eq!(request.servers(), named);
            let unread = request.query.ignored();
            assert!(unread.contains(&"address".to_owned()), "{unread:?}");
        }
    }

    #[tokio::test]
    async fn what_is_made_of_a_long_body_takes_room_for_as_long_as_it_is_kept() {
        let budget = Budget::new(64 << 20);
        let all = budget.free();
        for (length, times) in [(SHORT, 0), (SHORT + 1, DECODED)] {
            let post = hyper::Request::post("/v1/jobs/statuses").body(()).unwrap();
            let mut request = Request::head(post.into_parts().0).unwrap();
            let body = http_body_util::Full::new(Bytes::from(vec![b' '; length]));
            request.read_body(body, length, &budget).await.unwrap();
            let space = request.space_to_decode().await.unwrap();
            assert_eq!(space.is_some(), times > 0, "{length} bytes");
            assert_eq!(all - budget.free(), length * (1 + times), "{length} bytes");
            drop(space);
            assert_eq!(all - budget.free(), length, "it is given back");
            drop(request);
            assert_eq!(budget.free(), all, "and so is that of the body");
        }
    }

    #[test]
    fn a_body_is_read_once_and_what_is_none_of_it_is_named() {
        let put = hyper::Request::put("/v1/jobs").body(()).unwrap();
        let mut request = Request::head(put.into_parts().0).unwrap();
        request.body = Bytes::from_static(br#"{"job":{"ID":"web"},"Colour":"red"}"#);
        let _body: Body = request.json().unwrap();
        assert_eq!(READS.get(), 2, "the body and its field");
        assert_eq!(request.query.ignored(), ["field Colour"]);
    }
}
