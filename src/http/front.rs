//! What every request goes through, once: decoding, authentication, body limit, blocking, errors,
//! caught panics, indentation, compression and the headers of the state's position.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use drover_projections::view::View;
use drover_projections::watch::Interest;
use futures_util::FutureExt;
use hyper::Response;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use smallvec::SmallVec;

use super::answer::{Answer, Meta};
use super::body::Body;
use super::entrance::{ServerEntrance, Takes, admitted, taken_in};
use super::gate::{Access, Late, Write};
use super::pending_read::PendingRead;
use super::query::{self, Query, ReadOptions};
use super::request::Request;
use super::sight::Sight;
use super::state::{Api, Settings};
use super::{auth, cors, gzip, ignored, measure, pretty, requests};
use crate::commands::Command;
use crate::error::{Refusal, panic_text};
use crate::identity::Identity;
use crate::net::Asking;
use crate::proposer::{Committed, Origin};
use crate::requests::RequestLog;

/// What the router gives us.
pub(super) type Incoming = axum::extract::Request;

/// A read, as handlers see it.
pub(super) struct Read<'a> {
    /// The server.
    pub(super) api: &'a Api,
    pub(super) request: &'a Request,
    /// Who calls, by the tables of now.
    pub(super) identity: Arc<Identity>,
    /// The parameters of every read.
    pub(super) options: &'a ReadOptions,
    /// One consistent view, as the caller may see it.
    pub(super) view: Sight,
}

impl Read<'_> {
    /// Whether the answer is to be compressed.
    pub(super) fn wants_gzip(&self) -> bool {
        let encoding = self.request.header("accept-encoding");
        let pretty = query::pretty(&self.request.query);
        !pretty
            && self
                .api
                .settings
                .gzip
                .wanted(self.request.is_local(), encoding)
    }
}

/// A read handler: a view in, an answer out; it neither waits nor writes.
pub(super) type Reader = fn(&Read<'_>) -> Result<Answer, Refusal>;

/// The answer of a read from what is in memory; it never reads a table, for it runs where others
/// are served. None where a table must be read.
pub(super) type Near = fn(&Read<'_>) -> Option<Answer>;

/// The changes that a request is about.
pub(super) type Named = fn(&Request) -> Result<SmallVec<[Interest; 2]>, Refusal>;

/// What a blocking read waits for.
#[derive(Clone, Copy)]
pub(super) enum Watched {
    /// Any change of these tables; the greatest of their indexes is the answer's.
    Tables(&'static [u16]),
    /// Those changes of these tables that the request names, such as of rows of one job; the
    /// answer's index is no greater than the greatest of the tables'.
    Within(&'static [u16], Named),
    /// The rows that the request names.
    Rows(Named),
    /// Nothing: the read never blocks.
    NeverBlocks,
    /// Nothing: it reads what happened, which may take long, and only a few such reads run at a
    /// time.
    History,
    /// Nothing, and there is no past of it: it shows this agent as it is now.
    NoPast,
}

impl Watched {
    pub(super) fn blocks(self) -> bool {
        !matches!(self, Self::NeverBlocks | Self::History | Self::NoPast)
    }
}

/// A request that is no plain read. It owns what it needs, so that it may outlive the connection.
#[derive(Clone)]
pub(super) struct FrontCall {
    /// The server.
    pub(super) api: Arc<Api>,
    pub(super) request: Arc<Request>,
}

impl Write {
    /// Where its commands come from.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            actor: self.request.identity.actor.clone(),
            request_id: self.request.id(),
            cause: None,
            trace: self
                .request
                .header("traceparent")
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// Decides, replicates and applies a command in the name of the caller.
    ///
    /// # Errors
    /// The command's refusal, or why it could not be committed.
    pub(super) async fn submit(
        &self,
        command: impl Command + 'static,
    ) -> Result<Committed, Refusal> {
        let origin = self.origin();
        self.api.proposer.submit(Arc::new(command), origin).await
    }
}

/// Serves a read.
pub(super) async fn read(
    api: Arc<Api>,
    incoming: Incoming,
    access: Access,
    watched: Watched,
    run: Reader,
) -> Response<axum::body::Body> {
    read_near(api, incoming, access, (watched, far), run).await
}

/// Serves a read that may be answered from what is in memory.
pub(super) async fn read_near(
    api: Arc<Api>,
    incoming: Incoming,
    access: Access,
    how: (Watched, Near),
    run: Reader,
) -> Response<axum::body::Body> {
    let (parts, _) = incoming.into_parts();
    let incoming = Incoming::from_parts(parts, axum::body::Body::empty());
    queried(api, incoming, access, how, run).await
}

/// Nothing is in memory.
fn far(_read: &Read<'_>) -> Option<Answer> {
    None
}

/// Serves a read whose parameters stand in its body; it blocks as every read does.
pub(super) async fn query(
    api: Arc<Api>,
    incoming: Incoming,
    access: Access,
    watched: Watched,
    run: Reader,
) -> Response<axum::body::Body> {
    queried(api, incoming, access, (watched, far), run).await
}

async fn queried(
    api: Arc<Api>,
    incoming: Incoming,
    access: Access,
    (watched, near): (Watched, Near),
    run: Reader,
) -> Response<axum::body::Body> {
    let access = access.under(&api.settings);
    let here = Arc::clone(&api);
    let route = (access, Takes::Query);
    served(api, incoming, route, |request, _| async move {
        let mut options = ReadOptions::read(&request.query)?;
        options.part = here.settings.list_part;
        recorded(&here.requests, request, |request| {
            let pending = Arc::new(PendingRead {
                api: Arc::clone(&here),
                request,
                options,
                access,
                watched,
                run,
            });
            async move { pending.answer(near).await }
        })
        .await
    })
    .await
}

/// Serves a request with a body: a write, or a read by POST.
pub(super) fn write<F, Fut>(
    api: Arc<Api>,
    incoming: Incoming,
    access: Access,
    run: F,
) -> impl Future<Output = Response<axum::body::Body>>
where
    F: FnOnce(Write) -> Fut,
    Fut: Future<Output = Result<Answer, Refusal>>,
{
    late(api, incoming, access, |late| run(late.admitted()))
}

/// The same where the handler checks the caller's right itself.
pub(super) fn late<F, Fut>(
    api: Arc<Api>,
    incoming: Incoming,
    access: Access,
    run: F,
) -> impl Future<Output = Response<axum::body::Body>>
where
    F: FnOnce(Late) -> Fut,
    Fut: Future<Output = Result<Answer, Refusal>>,
{
    let run = |late, _| run(late);
    handed(api, incoming, (access, Takes::Body), run)
}

/// Serves a request whose body is as long as it likes; the handler takes it as it comes.
pub(super) fn upload<F, Fut>(
    api: Arc<Api>,
    incoming: Incoming,
    access: Access,
    run: F,
) -> impl Future<Output = Response<axum::body::Body>>
where
    F: FnOnce(Write, axum::body::Body) -> Fut,
    Fut: Future<Output = Result<Answer, Refusal>>,
{
    let run = |late: Late, body| run(late.admitted(), body);
    handed(api, incoming, (access, Takes::Head), run)
}

/// Serves a request that is no plain read: its handler has it, with what is left of its body.
fn handed<F, Fut>(
    api: Arc<Api>,
    incoming: Incoming,
    route: (Access, Takes),
    run: F,
) -> impl Future<Output = Response<axum::body::Body>>
where
    F: FnOnce(Late, axum::body::Body) -> Fut,
    Fut: Future<Output = Result<Answer, Refusal>>,
{
    let here = Arc::clone(&api);
    served(api, incoming, route, move |request, body| async move {
        let api = Arc::clone(&here);
        recorded(&here.requests, request, |request| {
            run(Late::new(FrontCall { api, request }), body)
        })
        .await
    })
}

/// Serves a request of any kind once it was let in and its body taken in, as the route has it.
fn served<F, Fut>(
    api: Arc<Api>,
    incoming: Incoming,
    (access, takes): (Access, Takes),
    run: F,
) -> impl Future<Output = Response<axum::body::Body>>
where
    F: FnOnce(Request, axum::body::Body) -> Fut,
    Fut: Future<Output = Result<Answer, Refusal>>,
{
    let entrance = ServerEntrance {
        api: Arc::clone(&api),
        access,
        takes,
    };
    responded(api, incoming, move |parts, body| async move {
        let (body, left) = takes.of(body);
        let request = taken_in(&entrance, Request::head(parts)?, body).await?;
        run(request, left).await
    })
}

/// Responds to a request with what it comes to, whatever that is.
pub(super) async fn responded<F, Fut>(
    api: Arc<Api>,
    incoming: Incoming,
    work: F,
) -> Response<axum::body::Body>
where
    F: FnOnce(Parts, axum::body::Body) -> Fut,
    Fut: Future<Output = Result<Answer, Refusal>>,
{
    let (mut parts, body) = incoming.into_parts();
    let outline = Outline::of(&mut parts);
    let outcome = AssertUnwindSafe(async { work(parts, body).await })
        .catch_unwind()
        .await;
    let answer = finish_request(outcome);
    respond(&api, outline, answer)
}

/// Answers a request; the request log has it if it matters, or was denied.
async fn recorded<Fut>(
    log: &Arc<RequestLog>,
    request: Request,
    run: impl FnOnce(Arc<Request>) -> Fut,
) -> Result<Answer, Refusal>
where
    Fut: Future<Output = Result<Answer, Refusal>>,
{
    let request = Arc::new(request);
    let ticket = requests::received(log, &request).await?;
    let answer = run(Arc::clone(&request)).await;
    let denied = || requests::denial(&request);
    requests::answered(log, ticket, denied, answer).await
}

/// Identifies the caller, and lets in callers that may. It comes before anything else of a request
/// is taken in.
pub(super) async fn admit(api: &Api, request: &mut Request, access: Access) -> Result<(), Refusal> {
    if auth::token(request).is_some() && !api.gate.is_guarded() {
        request.query.ignore([ignored::header("X-Nomad-Token")]);
    }
    request.identity = identity(api, request).await?;
    if !request.called {
        let labelled = api.gate.is_guarded() && api.settings.now().label_identities;
        let label = labelled.then(|| request.identity.label());
        measure::served(request, label.as_deref());
    }
    let namespace = access.is_within().then(|| request.namespace());
    within(&api.settings, request, namespace)?;
    let allowed = access.admit(request, &request.identity);
    admitted(&api.requests, request, allowed).await
}

/// Counts a request against what is allowed of its caller, of the caller's address and of the
/// namespace that it is about. Of a namespace's share only a caller takes that may do something
/// there; no other caller learns of the share.
pub(super) fn within(
    settings: &Settings,
    request: &Request,
    namespace: Option<&str>,
) -> Result<(), Refusal> {
    if !settings.rates.are_set() {
        return Ok(());
    }
    let who = &request.identity;
    let namespace = namespace.filter(|name| who.acl.namespace_visible(name));
    if request.called {
        // Who calls, and from where, was counted before it was a request.
        return namespace.map_or(Ok(()), |name| settings.rates.take_of_namespace(name));
    }
    let identity = who.known_as();
    settings.rates.take(&Asking {
        identity: identity.as_deref(),
        proved: identity.is_some(),
        address: request.address(),
        behind: request.behind,
        namespace,
    })
}

/// Who a request is from, by the tables of now.
pub(super) async fn identity(api: &Api, request: &Request) -> Result<Arc<Identity>, Refusal> {
    let addr = request.remote.map(|addr| addr.ip().to_string());
    let identity = api.gate.authenticate_again(
        auth::token(request),
        addr.as_deref().unwrap_or_default(),
        &request.verified,
    );
    let mut identity = identity.await?;
    identity.certificate.clone_from(&request.certificate);
    Ok(Arc::new(identity))
}

/// A request for another region is refused: the servers know of no way there. What an agent says
/// about itself is of no region.
pub(super) fn check_region(api: &Api, request: &Request) -> Result<(), Refusal> {
    let region = request.query.text("region");
    let local = request.path.starts_with("/v1/agent/") || request.path == "/v1/metrics";
    if region.is_empty() || region == api.settings.region || local {
        Ok(())
    } else {
        Err(Refusal::by_rule("No path to region"))
    }
}

/// The greatest index of some tables.
pub(super) fn table_index(view: &View, tables: &[u16]) -> u64 {
    tables
        .iter()
        .map(|table| view.last_changed_at(*table))
        .max()
        .unwrap_or_default()
}

/// The answer to a finished request; a panic is a fault of ours and is logged as one.
pub(super) fn finish_request(outcome: std::thread::Result<Result<Answer, Refusal>>) -> Answer {
    without_panic(outcome).unwrap_or_else(Answer::from)
}

/// The same where an error is still to become an answer.
pub(super) fn without_panic<T>(
    outcome: std::thread::Result<Result<T, Refusal>>,
) -> Result<T, Refusal> {
    outcome.unwrap_or_else(|panic| {
        tracing::error!(panic = panic_text(&*panic), "a handler panicked");
        Err(Refusal::internal("internal error"))
    })
}

/// What of a request decides the form of its response.
pub(super) struct Outline {
    pretty: bool,
    cors: bool,
    loopback: bool,
    /// Its parameters.
    pub(super) query: Query,
    accept_encoding: Option<HeaderValue>,
}

impl Outline {
    /// The outline of a request; it and the request share what becomes known of its query.
    pub(super) fn of(parts: &mut Parts) -> Self {
        let query = Query::parse(parts.uri.query()).ok();
        if let Some(query) = &query {
            query.ignore(ignored::headers(&parts.headers));
            parts.extensions.insert(query.clone());
        }
        let query = query.unwrap_or_default();
        let remote = parts.extensions.get::<super::request::Remote>();
        Self {
            pretty: query::pretty(&query),
            query,
            cors: cors::permits(parts),
            loopback: remote.is_none_or(|r| r.0.ip().to_canonical().is_loopback()),
            accept_encoding: parts.headers.get(hyper::header::ACCEPT_ENCODING).cloned(),
        }
    }

    /// The header that names what of the request had no effect; an error says enough itself.
    fn ignored(&self, status: u16) -> Option<(&'static str, String)> {
        let names = match status {
            ..400 => self.query.ignored(),
            _ => Vec::new(),
        };
        (!names.is_empty()).then(|| (ignored::HEADER, ignored::joined(&names)))
    }
}

/// Indents and compresses a body, whole or as it flows.
fn form(settings: &Settings, outline: &Outline, answer: &mut Answer) {
    if outline.pretty
        && answer.content_type.as_deref() == Some(super::answer::JSON)
        && !answer.gzipped
    {
        answer.body = match std::mem::replace(&mut answer.body, Body::empty()).into_pieces() {
            Ok(pieces) => pretty::indent(&pieces.concat()).into(),
            Err(stream) if answer.flows => stream.through(pretty::Indenter::default()),
            Err(stream) => stream,
        };
    }
    let encoding = outline.accept_encoding.as_ref();
    let encoding = encoding.and_then(|v| v.to_str().ok());
    let long = answer
        .body
        .len()
        .map_or(answer.flows, |len| len >= gzip::MINIMUM);
    if !answer.gzipped && long && settings.gzip.wanted(outline.loopback, encoding) {
        answer.body = match std::mem::replace(&mut answer.body, Body::empty()).into_pieces() {
            Ok(pieces) => gzip::compress(&pieces).into(),
            Err(stream) => stream.through(gzip::Flowing::default()),
        };
        answer.gzipped = true;
    }
}

/// Puts an answer into its final form.
fn respond(api: &Api, outline: Outline, answer: Answer) -> Response<axum::body::Body> {
    let contact = matches!(answer.meta, Meta::Read(_)).then(|| Contact {
        last: api.server.last_contact(),
        leader: api.server.leader_address().is_some(),
    });
    finish(&api.settings, contact, outline, answer)
}

/// What a server knows of its leader.
pub(super) struct Contact {
    last: u64,
    leader: bool,
}

/// Puts an answer into its final form; of a read with what is known of the leader.
pub(super) fn finish(
    settings: &Settings,
    contact: Option<Contact>,
    outline: Outline,
    mut answer: Answer,
) -> Response<axum::body::Body> {
    form(settings, &outline, &mut answer);
    // Of an answer to HEAD the router sends the headers only, the length of the body among them.
    let mut response = Response::new(axum::body::Body::new(answer.body));
    *response.status_mut() = hyper::StatusCode::from_u16(answer.status)
        .unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(content_type) = answer.content_type
        && let Ok(content_type) = HeaderValue::from_str(&content_type)
    {
        headers.insert(hyper::header::CONTENT_TYPE, content_type);
    }
    if answer.gzipped {
        headers.insert(
            hyper::header::CONTENT_ENCODING,
            HeaderValue::from_static("gzip"),
        );
        headers.insert(
            hyper::header::VARY,
            HeaderValue::from_static("Accept-Encoding"),
        );
    }
    if outline.cors {
        cors::open(headers);
    }
    let position = match answer.meta {
        Meta::None => None,
        Meta::Read(index) => {
            if let Some(contact) = contact {
                headers.insert("x-nomad-lastcontact", HeaderValue::from(contact.last));
                let known = if contact.leader { "true" } else { "false" };
                headers.insert("x-nomad-knownleader", HeaderValue::from_static(known));
            }
            Some(index)
        }
        Meta::Write(index) => Some(index),
    };
    if let Some(index) = position {
        headers.insert("x-nomad-index", HeaderValue::from(index));
    }
    let more = answer.next_token.map(|token| ("x-nomad-nexttoken", token));
    let ours = more.into_iter().chain(outline.ignored(answer.status));
    let ours = ours.map(|(name, value)| (Cow::Borrowed(name), value));
    for (name, value) in ours.chain(answer.headers) {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
            headers.insert(name, value);
        }
    }
    for (name, value) in &settings.now().headers {
        headers.insert(name.clone(), value.clone());
    }
    response
}
