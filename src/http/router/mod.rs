//! How routes are registered, each with what it requires of its caller, and what all of them share.
//!
//! The table itself is `table.rs`, `work.rs` and `objects.rs`. A route cannot be registered
//! without an [`Access`]; what is
//! registered is listed too ([`listed`]), so that a page of all routes is never out of date.

mod objects;
mod table;
mod work;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};

use super::answer::Answer;
use super::front::{self, Incoming, Near, Reader, Watched};
use super::gate::Write;
use super::gate::{Access, Late, Somewhere};
use super::methods::Methods;
use super::state::Api;
use super::stream::{self, Publisher};
use super::{absent, cors, measure, no_route};
use crate::error::Refusal;

/// What all routes share: each handler takes of it what it works with.
#[derive(Clone)]
struct RouterState {
    api: Arc<Api>,
    /// The live end of the event stream.
    publisher: Arc<Publisher>,
}

impl FromRef<RouterState> for Arc<Api> {
    fn from_ref(state: &RouterState) -> Self {
        Self::clone(&state.api)
    }
}

impl FromRef<RouterState> for Arc<Publisher> {
    fn from_ref(state: &RouterState) -> Self {
        Self::clone(&state.publisher)
    }
}

type Routes = MethodRouter<RouterState>;

/// One line of the list of routes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(test), allow(dead_code))] // the page is written and checked by a test
pub(super) struct RouteLine {
    /// The path, parameters in braces.
    pub(super) path: String,
    pub(super) methods: &'static str,
    /// What the caller must be allowed.
    pub(super) access: String,
    /// Whether a rule over one object says it.
    pub(super) of_object: bool,
}

/// Some methods of a path: what they require, and what answers them.
struct MethodEntry {
    lines: Vec<(&'static str, Methods, Access)>,
    routes: Routes,
}

impl MethodEntry {
    fn of(methods: Methods, access: Access, routes: Routes) -> Self {
        Self {
            lines: vec![("", methods, access)],
            routes,
        }
    }
}

/// GET (and HEAD) by a read handler.
fn get(access: Access, watched: Watched, run: Reader) -> MethodEntry {
    query(Methods::Get, access, watched, run)
}

/// GET (and HEAD) by a read handler, or from what is in memory.
fn get_near(access: Access, watched: Watched, near: Near, run: Reader) -> MethodEntry {
    let serve = move |State(api): State<Arc<Api>>, incoming: Incoming| {
        front::read_near(api, incoming, access, (watched, near), run)
    };
    MethodEntry::of(Methods::Get, access, on(MethodFilter::GET, serve))
}

/// Some methods by a read handler whose parameters may stand in the body.
fn query(methods: Methods, access: Access, watched: Watched, run: Reader) -> MethodEntry {
    let serve = move |State(api): State<Arc<Api>>, incoming: Incoming| async move {
        match methods {
            Methods::Get => front::read(api, incoming, access, watched, run).await,
            _ => front::query(api, incoming, access, watched, run).await,
        }
    };
    MethodEntry::of(methods, access, on(methods.filter(), serve))
}

/// Some methods by a handler of calls that are no plain reads.
fn call<F, Fut>(methods: Methods, access: Access, run: F) -> MethodEntry
where
    F: Fn(Write) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, Refusal>> + Send + 'static,
{
    let serve = move |State(api): State<Arc<Api>>, incoming: Incoming| {
        front::write(api, incoming, access, run)
    };
    MethodEntry::of(methods, access, on(methods.filter(), serve))
}

/// Some methods by a handler that learns from the body what it is about, and checks the rights
/// then.
fn late<F, Fut>(methods: Methods, what: (&'static str, Somewhere), run: F) -> MethodEntry
where
    F: Fn(Late) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, Refusal>> + Send + 'static,
{
    let access = Access::Late(what.0, what.1);
    let serve = move |State(api): State<Arc<Api>>, incoming: Incoming| {
        front::late(api, incoming, access, run)
    };
    MethodEntry::of(methods, access, on(methods.filter(), serve))
}

/// Some methods by a handler that takes the body as it comes.
fn upload<F, Fut>(methods: Methods, access: Access, run: F) -> MethodEntry
where
    F: Fn(Write, axum::body::Body) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, Refusal>> + Send + 'static,
{
    let serve = move |State(api): State<Arc<Api>>, incoming: Incoming| {
        front::upload(api, incoming, access, run)
    };
    MethodEntry::of(methods, access, on(methods.filter(), serve))
}

/// GET by a handler that may make another connection of the one it came over.
fn upgraded<F, Fut>(what: (&'static str, Somewhere), run: F) -> MethodEntry
where
    F: Fn(Arc<Api>, Incoming, Access) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let access = Access::Late(what.0, what.1);
    let serve = move |State(api): State<Arc<Api>>, incoming: Incoming| run(api, incoming, access);
    MethodEntry::of(Methods::Get, access, on(MethodFilter::GET, serve))
}

/// GET of the event stream, which needs its publisher.
fn streamed(what: (&'static str, Somewhere)) -> MethodEntry {
    let access = Access::Late(what.0, what.1);
    let serve = move |State(api): State<Arc<Api>>,
                      State(publisher): State<Arc<Publisher>>,
                      incoming: Incoming| {
        front::late(api, incoming, access, |late| stream::serve(publisher, late))
    };
    MethodEntry::of(Methods::Get, access, on(MethodFilter::GET, serve))
}

/// Some methods that are not built; why not, or what to do instead.
fn not_built(methods: Methods, why: &'static str) -> MethodEntry {
    call(methods, Access::Absent, move |write| {
        absent::not_built(write, why)
    })
}

/// The routes, and the list of them.
#[derive(Default)]
struct RouteTable {
    router: Router<RouterState>,
    lines: Vec<RouteLine>,
}

impl RouteTable {
    /// Adds a path with all its methods.
    fn route<const N: usize>(mut self, path: &str, entries: [MethodEntry; N]) -> Self {
        let mut routes = Routes::new();
        for entry in entries {
            routes = routes.merge(entry.routes);
            self.lines.extend(
                entry
                    .lines
                    .into_iter()
                    .map(|(below, methods, access)| RouteLine {
                        path: format!("{path}{below}"),
                        methods: methods.name(),
                        access: access.to_string(),
                        of_object: matches!(access, Access::Object(..)),
                    }),
            );
        }
        self.router = self.router.route(path, routes);
        self
    }

    /// Adds a path below which a handler of its own finds its way; `listed`: what it answers, by
    /// what stands behind the path.
    fn below(
        mut self,
        path: &str,
        shown: &str,
        listed: impl Iterator<Item = (&'static str, Methods, Access)>,
        routes: Routes,
    ) -> Self {
        self.lines
            .extend(listed.map(|(ending, methods, access)| RouteLine {
                path: match ending {
                    "" => shown.to_owned(),
                    ending => format!("{shown}/{ending}"),
                },
                methods: methods.name(),
                access: access.to_string(),
                of_object: matches!(access, Access::Object(..)),
            }));
        self.router = self.router.route(path, routes);
        self
    }
}

/// Every route of the API; what is streamed comes from the publisher, which somebody runs.
pub fn router(api: Arc<Api>, publisher: Arc<Publisher>) -> Router {
    let page = |page| on(MethodFilter::GET, page);
    table::all()
        .router
        .route("/", on(MethodFilter::GET, root))
        .route("/ui/", page(ui))
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_route::nothing_here)
        .layer(axum::middleware::from_fn(measure::timed))
        .with_state(RouterState { api, publisher })
}

/// All routes.
#[cfg(test)]
pub(super) fn lines() -> Vec<RouteLine> {
    let mut lines = table::all().lines;
    lines.sort();
    lines.dedup();
    lines
}

/// The list of all routes, sorted: path, methods, what the caller must be allowed; rows of the page
/// `src/docs/routes.md`.
#[cfg(test)]
pub(super) fn listed() -> String {
    shown(lines())
}

/// Rows of the page.
#[cfg(test)]
pub(super) fn shown(lines: Vec<RouteLine>) -> String {
    let mut page = String::new();
    for line in lines {
        page += &format!("| `{}` | {} | {} |\n", line.path, line.methods, line.access);
    }
    page
}

async fn wrong_method(incoming: Incoming) -> Response {
    if let Some(answer) = cors::preflight(&incoming) {
        return answer;
    }
    let text = [(header::CONTENT_TYPE, super::answer::TEXT)];
    (StatusCode::METHOD_NOT_ALLOWED, text, "Invalid method").into_response()
}

/// Browsers are sent to the user interface.
async fn root(incoming: Incoming) -> Response {
    let query = incoming
        .uri()
        .query()
        .map(|q| format!("?{q}"))
        .unwrap_or_default();
    let place = [(header::LOCATION, format!("/ui/{query}"))];
    (StatusCode::TEMPORARY_REDIRECT, place).into_response()
}

async fn ui() -> Response {
    let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    let page =
        "<!DOCTYPE html><html><body>The user interface is not part of this server.</body></html>";
    (html, page).into_response()
}
