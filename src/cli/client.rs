//! A small HTTP client over hyper: requests with JSON bodies, and answers that stream.

use super::answer;
use super::conn::Conn;
use super::out::Out;
use super::secure::{NotSecure, Secure};
use super::show::{ago, now, time};
pub(super) use super::stream::Stream;
use crate::base::clock::Moment;
use crate::base::version::VERSION;
use crate::http::{IGNORED, MEANS_NOTHING};
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use bytes::Bytes;
use futures_util::TryStreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What a port that takes TLS answers to clear text.
const TLS_ONLY: &str = "Client sent an HTTP request to an HTTPS server.";
/// Bytes of a file sent at a time.
const PIECE: usize = 256 << 10;

/// The body of a request.
pub(super) type Sent = UnsyncBoxBody<Bytes, std::io::Error>;

/// Where the agent listens.
#[derive(Clone, Debug)]
enum Target {
    Tcp(String),
    Tls(String, Arc<Secure>),
    Unix(String),
}

/// Talks to one agent.
#[derive(Clone)]
pub(super) struct Client {
    target: Target,
    shown: String,
    host: String,
    pub(super) region: String,
    pub(super) namespace: String,
    at: String,
    token: String,
    auth: String,
    /// The moment that the last answer of the past showed.
    then: Arc<Mutex<Option<Then>>>,
}

/// A moment of the past that an answer shows.
#[derive(Clone, Copy, Debug)]
struct Then {
    index: u64,
    /// When that was, Unix nanoseconds.
    time: i64,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

/// An answer with its headers that matter.
#[derive(Debug)]
pub(super) struct Reply {
    /// The body.
    pub(super) body: Bytes,
    /// Whether something was read: a change may well be answered with nothing.
    is_read: bool,
    /// Where the next page begins.
    pub(super) next_token: String,
    /// Since when the log that was read is kept; none where it is whole.
    pub(super) kept_since: Option<PastRetention>,
}

/// From when on the past is kept.
#[derive(Clone, Debug)]
pub(super) struct PastRetention {
    /// Unix nanoseconds.
    pub(super) since: i64,
    /// The directory on the server in which what came before a restore is; empty without one.
    pub(super) former: String,
}

impl Reply {
    /// The body as JSON, to be passed on as it is.
    pub(super) fn json(&self) -> Result<Json> {
        self.read()
    }

    /// The body as what the API answers with.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T> {
        answer::body(&self.body, self.is_read)
    }
}

/// A request that was answered, but not with success.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.shown())]
pub(super) struct Refused {
    /// The status.
    pub(super) code: u16,
    /// The body.
    pub(super) text: String,
    /// Method and path.
    requested: String,
}

impl Refused {
    /// What to print: the agent's own words, and the request where the agent sent no text.
    fn shown(&self) -> String {
        let Refused {
            code,
            text,
            requested,
        } = self;
        match (*code, text.as_str()) {
            (400, TLS_ONLY) => {
                format!("the agent takes TLS only: use https:// in -address or NOMAD_ADDR ({text})")
            }
            (405, _) => format!("the agent does not take {requested}; is it of another version?"),
            (_, "") => {
                let status = StatusCode::from_u16(*code).ok();
                let reason = status.and_then(|status| status.canonical_reason());
                let reason = reason.unwrap_or("and gives no reason");
                format!("the agent answers {requested} with {code} {reason}")
            }
            _ => text.clone(),
        }
    }
}

/// Whether an error is this status.
pub(super) fn is_status(err: &anyhow::Error, code: u16) -> bool {
    err.downcast_ref::<Refused>()
        .is_some_and(|r| r.code == code)
}

/// Query parameters.
pub(super) type Query<'a> = &'a [(&'a str, &'a str)];

impl Client {
    pub(super) fn new(address: &str, conn: &Conn) -> Result<Client> {
        if !conn.at.is_empty() {
            Moment::parse(&conn.at, now()).map_err(|error| anyhow!("-at {error}"))?;
        }
        let (target, host) = if let Some(path) = address.strip_prefix("unix://") {
            (Target::Unix(path.to_owned()), "localhost".to_owned())
        } else if let Some(rest) = address.strip_prefix("http://") {
            let host = rest.trim_end_matches('/').to_owned();
            (Target::Tcp(with_port(&host, 80)), host)
        } else if let Some(rest) = address.strip_prefix("https://") {
            let host = rest.trim_end_matches('/').to_owned();
            let secure = Secure::open(&host, &conn.trust).context("Error initializing client")?;
            (Target::Tls(with_port(&host, 443), Arc::new(secure)), host)
        } else {
            bail!(
                "Error initializing client: {address:?} is not an address; use https://host:port, \
                    http://host:port or unix:///path with -address or NOMAD_ADDR"
            );
        };
        Ok(Client {
            target,
            shown: address.to_owned(),
            host,
            region: conn.region.clone(),
            namespace: conn.namespace.clone(),
            at: conn.at.clone(),
            token: conn.token.clone(),
            auth: conn.http_auth.clone(),
            then: Arc::default(),
        })
    }

    /// The path and query of a request; region and namespace are added unless they are given.
    pub(super) fn uri(&self, path: &str, query: Query<'_>) -> String {
        let mut uri = path.to_owned();
        let in_path = path.split_once('?').map_or("", |(_, query)| query);
        let given = |key: &str| {
            query.iter().any(|(k, _)| *k == key)
                || in_path
                    .split('&')
                    .any(|pair| pair.split('=').next() == Some(key))
        };
        let mut all: Vec<(&str, &str)> = query.to_vec();
        let added = [
            ("namespace", &self.namespace),
            ("region", &self.region),
            ("as_of", &self.at),
        ];
        for (key, value) in added {
            if !value.is_empty() && !given(key) {
                all.push((key, value));
            }
        }
        for (i, (key, value)) in all.iter().enumerate() {
            uri.push(if i == 0 && !path.contains('?') {
                '?'
            } else {
                '&'
            });
            uri.push_str(&format!("{key}={}", encode(value)));
        }
        uri
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: Query<'_>,
        json: Option<Vec<u8>>,
    ) -> Result<Response<Incoming>> {
        let mut request = self.request(method, path, query);
        if json.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = Bytes::from(json.unwrap_or_default());
        let body = Full::new(body).map_err(|never| match never {});
        let request = request
            .body(BodyExt::boxed_unsync(body))
            .context("building the request")?;
        self.ask(request).await
    }

    /// A request with the headers that all have.
    pub(super) fn request(&self, method: Method, path: &str, query: Query<'_>) -> Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(self.uri(path, query))
            .header("host", &self.host)
            .header("user-agent", format!("drover/{VERSION}"));
        if !self.token.is_empty() {
            request = request.header("x-nomad-token", &self.token);
        }
        if !self.auth.is_empty() {
            let basic = base64::engine::general_purpose::STANDARD.encode(&self.auth);
            request = request.header("authorization", format!("Basic {basic}"));
        }
        request
    }

    /// Sends a request; what is no success is an error.
    async fn ask(&self, request: Request<Sent>) -> Result<Response<Incoming>> {
        let requested = format!("{} {}", request.method(), request.uri().path());
        let response = self.answer(request).await?;
        self.note_moment(response.headers());
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refused(response, requested).await)
    }

    /// Sends a request; any answer will do.
    pub(super) async fn answer(&self, request: Request<Sent>) -> Result<Response<Incoming>> {
        self.dial(request).await.map_err(|err| {
            if err.is::<NotSecure>() {
                return err;
            }
            anyhow!(
                "{err:#}\n\nIs an agent running at {}? Start one with `drover agent -dev`, or name \
                 another with -address or NOMAD_ADDR.",
                self.shown
            )
        })
    }

    /// Keeps which moment an answer of the past shows.
    fn note_moment(&self, headers: &HeaderMap) {
        let number = |name| headers.get(name)?.to_str().ok()?.parse::<i64>().ok();
        let index = number("x-drover-as-of").and_then(|index| u64::try_from(index).ok());
        if let (Some(index), Some(time)) = (index, number("x-drover-as-of-time"))
            && let Ok(mut then) = self.then.lock()
        {
            *then = Some(Then { index, time });
        }
    }

    /// The moment that is shown, Unix nanoseconds: now, or the one of the past that the last answer
    /// was about. Ages count from it.
    pub(super) fn now(&self) -> i64 {
        let then = self.then.lock().ok().and_then(|then| *then);
        then.map_or_else(now, |then| then.time)
    }

    /// Says which moment of the past is shown, where it is not now.
    pub(super) fn report_moment(&self, out: &Out) {
        if let Some(then) = self.then.lock().ok().and_then(|then| *then) {
            let (at, ago) = (time(then.time), ago(then.time, now()));
            out.line(&format!("As of index {}, {at} ({ago})\n", then.index));
        }
    }

    /// Any request, with these headers and this body; the answer as it comes, whatever its status.
    pub(super) async fn raw(
        &self,
        (method, target): (Method, &str),
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<Response<Incoming>> {
        let mut request = self.request(method, target, &[]);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
        let request = request.body(BodyExt::boxed_unsync(body));
        self.answer(request.context("building the request")?).await
    }

    /// Where the agent listens, as it was named.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    async fn dial(&self, request: Request<Sent>) -> Result<Response<Incoming>> {
        match &self.target {
            Target::Tcp(address) => {
                let stream = connected(address).await?;
                exchange(TokioIo::new(stream), request).await
            }
            Target::Tls(address, secure) => {
                let stream = connected(address).await?;
                let shaken = timeout(PATIENCE, secure.shake(stream, &self.shown)).await;
                let stream = shaken.with_context(|| format!("TLS handshake with {address}"))??;
                let answered = exchange(TokioIo::new(stream), request).await;
                // Whether our own certificate is taken shows with the first answer only.
                answered.map_err(|error| secure.explained(error, &self.shown))
            }
            Target::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path)
                    .await
                    .with_context(|| format!("dial unix {path}"))?;
                exchange(TokioIo::new(stream), request).await
            }
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: Query<'_>,
        json: Option<Vec<u8>>,
    ) -> Result<Reply> {
        let changes = method != Method::GET;
        let response = self.send(method, path, query, json).await?;
        let header = |name| response.headers().get(name)?.to_str().ok();
        let next_token = header("x-nomad-nexttoken").unwrap_or("").to_owned();
        let ignored = header(IGNORED).filter(|_| changes).map(str::to_owned);
        let kept_since = header("x-drover-first-time").and_then(|time| {
            Some(PastRetention {
                since: time.parse().ok()?,
                former: header("x-drover-former").unwrap_or_default().to_owned(),
            })
        });
        let body = response
            .into_body()
            .collect()
            .await
            .context("reading the answer")?
            .to_bytes();
        if let Some(warning) = ignored.and_then(|names| unreported(&names, &body)) {
            Out::terminal().error(&warning);
        }
        Ok(Reply {
            body,
            is_read: !changes,
            next_token,
            kept_since,
        })
    }

    /// GET, the whole answer.
    pub(super) async fn get(&self, path: &str, query: Query<'_>) -> Result<Reply> {
        self.call(Method::GET, path, query, None).await
    }

    /// GET, the answer as what the API answers with.
    pub(super) async fn fetch<T>(&self, path: &str, query: Query<'_>) -> Result<T>
    where
        T: DeserializeOwned,
    {
        self.get(path, query).await?.read()
    }

    /// PUT with a JSON body, the answer as what the API answers with.
    pub(super) async fn put<T>(
        &self,
        path: &str,
        query: Query<'_>,
        body: &impl Serialize,
    ) -> Result<T>
    where
        T: DeserializeOwned,
    {
        let json = serde_json::to_vec(body)?;
        let reply = self.call(Method::PUT, path, query, Some(json)).await?;
        reply.read()
    }

    /// A read whose options stand in a JSON body.
    pub(super) async fn read(&self, path: &str, query: Query<'_>, body: &Json) -> Result<Reply> {
        let json = serde_json::to_vec(body)?;
        let reply = self.call(Method::POST, path, query, Some(json)).await?;
        Ok(Reply {
            is_read: true,
            ..reply
        })
    }

    /// DELETE, with or without a JSON body, the answer as what the API answers with.
    pub(super) async fn delete<T>(
        &self,
        path: &str,
        query: Query<'_>,
        body: Option<&Json>,
    ) -> Result<T>
    where
        T: DeserializeOwned,
    {
        let json = body.map(serde_json::to_vec).transpose()?;
        let reply = self.call(Method::DELETE, path, query, json).await?;
        reply.read()
    }

    /// PUT of a file, which is sent as it is read; the answer as what the API answers with.
    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        header: Option<(&str, &str)>,
        file: &std::path::Path,
    ) -> Result<T> {
        let opened = tokio::fs::File::open(file).await;
        let opened = opened.with_context(|| file.display().to_string())?;
        let pieces = tokio_util::io::ReaderStream::with_capacity(opened, PIECE);
        let body = StreamBody::new(pieces.map_ok(Frame::data));
        let mut request = self.request(Method::PUT, path, query);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(BodyExt::boxed_unsync(body));
        let response = self.ask(request.context("building the request")?).await?;
        let body = response.into_body().collect().await;
        let bytes = body.context("reading the answer")?.to_bytes();
        answer::body(&bytes, false)
    }

    /// GET of an answer that does not end.
    pub(super) async fn stream(&self, path: &str, query: Query<'_>) -> Result<Stream> {
        let response = self.send(Method::GET, path, query, None).await?;
        let epoch = response.headers().get("x-drover-epoch");
        let epoch = epoch
            .and_then(|epoch| epoch.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        Ok(Stream::new(response.into_body(), epoch))
    }
}

/// The warning about the parts of a request that an agent ignored; none where the warnings of its
/// answer say so.
fn unreported(names: &str, answer: &[u8]) -> Option<String> {
    let is_named = String::from_utf8_lossy(answer).contains(MEANS_NOTHING);
    (!is_named).then(|| format!("Warning: the agent does not act on {names}"))
}

/// The error that an answer is which is no success.
pub(super) async fn refused(response: Response<Incoming>, requested: String) -> anyhow::Error {
    let code = response.status().as_u16();
    let body = response.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).trim().to_owned();
    Refused {
        code,
        text,
        requested,
    }
    .into()
}

async fn exchange<I>(io: I, request: Request<Sent>) -> Result<Response<Incoming>>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
        .await
        .context("speaking HTTP")?;
    tokio::spawn(async move {
        // An error here reaches the request as well.
        let _ = connection.with_upgrades().await;
    });
    sender
        .send_request(request)
        .await
        .context("sending the request")
}

/// What to dial for a host, with the usual port where it names none.
fn with_port(host: &str, port: u16) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match has_port {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    }
}

pub(super) use crate::http::encode;

/// How long an agent may take to let a command in.
const PATIENCE: Duration = Duration::from_secs(10);

async fn connected(address: &str) -> Result<TcpStream> {
    let dialled = timeout(PATIENCE, TcpStream::connect(address)).await;
    let stream = dialled
        .map_err(std::io::Error::from)
        .flatten()
        .with_context(|| format!("dial tcp {address}"))?;
    stream.set_nodelay(true).ok();
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_ignored_is_told_once() {
        let reported = unreported("global, field Job.Colour", b"{\"EvalID\":\"\"}");
        let wanted = "Warning: the agent does not act on global, field Job.Colour";
        assert_eq!(reported.as_deref(), Some(wanted));
        let warned = format!("{{\"Warnings\":\"\\\"global\\\" {MEANS_NOTHING}\"}}");
        assert_eq!(unreported("global", warned.as_bytes()), None);
    }
}
