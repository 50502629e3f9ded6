//! The HTTP API of an agent without a server: it answers for itself, and forwards the rest.
//!
//! What is its own: the agent, its node, the allocations that are here. Who calls is found out from
//! what servers say ([`crate::gate`]), and so is what the caller may do; so it answers while they
//! are away too. Everything else goes to a server as it came, token and all. What matters of its
//! own, and what is denied here, this agent writes into a request log of its own; what it forwards,
//! `exec` with it, the server writes down.
//!
//! Its own routes are `table.rs`: what is not there is a server's.

mod table;
#[cfg(test)]
mod table_test;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use futures_util::FutureExt;
use hyper::Method;
use serde_json::json;

use self::table::{AccessRule, Does};
use super::answer::{Answer, TEXT};
use super::client::far::Near;
use super::client::local;
use super::entrance::{self, Entrance, taken_in};
use super::front::{self, Incoming, Outline};
use super::gate::{self, Access};
use super::request::Request;
use super::state::Settings;
use super::stream::right;
use super::{agent, auth, forward, ignored, measure, requests};
use crate::acl::NamespaceCapability as Ns;
use crate::client::agent::Client;
use crate::client::metadata::MetadataRequest;
use crate::error::Refusal;
use crate::gate::Gate;
use crate::identity::Identity;
use crate::requests::RequestLog;
use crate::rpc::caller::Caller;
use crate::server::member_shapes::{AgentDescription, AgentStats, ClientStats};
use crate::server::{Around, described};
use crate::telemetry::Telemetry;

/// How long a server is looked for.
const LOOKING: Duration = Duration::from_secs(5);

/// An agent without a server.
pub struct Edge {
    pub client: Arc<Client>,
    /// What answers for it.
    pub near: Arc<Near>,
    /// The way to the servers.
    pub caller: Caller,
    /// Identifies the caller.
    pub gate: Arc<Gate>,
    /// The figures of the process.
    pub telemetry: Telemetry,
    /// Requests to this agent that change nothing but matter.
    pub requests: Arc<RequestLog>,
    /// The agent around it.
    pub around: Arc<dyn Around>,
    pub settings: Settings,
}

/// The routes of an agent without a server.
pub fn edge(edge: Arc<Edge>) -> Router {
    Router::new()
        .fallback(serve)
        .layer(axum::middleware::from_fn(measure::timed))
        .with_state(edge)
}

/// A request that is this agent's own: what answers it, and what it requires of its caller.
#[derive(Clone, Debug)]
struct OwnRequest {
    route: &'static str,
    does: Does,
    demand: AccessDemand,
}

/// What a request requires of its caller, now that it is known what it is about.
#[derive(Clone, Debug)]
enum AccessDemand {
    /// Something about the agent or its node.
    Agent(Access),
    /// Something about an allocation that is here.
    Allocation {
        namespace: String,
        any_of: &'static [Ns],
    },
}

impl AccessDemand {
    fn admit(&self, request: &Request, who: &Identity) -> Result<(), Refusal> {
        match self {
            Self::Agent(access) => access.admit(request, who),
            Self::Allocation { namespace, any_of } => {
                who.accepted()?;
                gate::demand(gate::in_namespace(&who.acl, namespace, any_of))
            }
        }
    }

    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Agent(_) => None,
            Self::Allocation { namespace, .. } => Some(namespace),
        }
    }

    fn is_public(&self) -> bool {
        matches!(self, Self::Agent(Access::Public))
    }

    fn holds(&self, request: &Request, who: &Identity) -> bool {
        self.admit(request, who).is_ok()
    }
}

/// The way to what is this agent's own.
struct EdgeEntrance {
    edge: Arc<Edge>,
    own: OwnRequest,
}

impl Entrance for EdgeEntrance {
    fn settings(&self) -> &Settings {
        &self.edge.settings
    }

    async fn let_in(&self, request: &mut Request) -> Result<(), Refusal> {
        self.edge.admit(request, &self.own).await
    }

    async fn let_in_again(&self, request: &mut Request) -> Result<(), Refusal> {
        if self.edge.gate.is_guarded() && !self.own.demand.is_public() {
            request.identity = Arc::new(self.edge.identity(request).await?);
            self.edge.admitted(request, &self.own).await?;
        }
        Ok(())
    }
}

async fn serve(State(edge): State<Arc<Edge>>, incoming: Incoming) -> Response {
    let (mut parts, body) = incoming.into_parts();
    let outline = Outline::of(&mut parts);
    let own = match edge.own(&parts.method, parts.uri.path(), &outline) {
        Some(own) => own,
        None => {
            // Servers take it for this agent's: who comes from where is known here alone.
            if let Err(error) = forward::knock(&edge.settings, &parts) {
                return edge.respond(outline, error.into());
            }
            let incoming = Incoming::from_parts(parts, body);
            return match forward::send(&edge.caller, incoming, LOOKING).await {
                Ok(response) => response,
                Err(error) => edge.respond(outline, error.into()),
            };
        }
    };
    let entrance = EdgeEntrance {
        edge: Arc::clone(&edge),
        own,
    };
    let work = AssertUnwindSafe(async {
        let mut request = Request::head(parts)?;
        request.route = entrance.own.route.into();
        let request = taken_in(&entrance, request, Some(body)).await?;
        edge.recorded(request, entrance.own).await
    });
    match front::without_panic(work.catch_unwind().await) {
        Ok(EdgeResponse::Here(answer)) => edge.respond(outline, answer),
        Ok(EdgeResponse::There(response)) => response,
        Err(error) => edge.respond(outline, error.into()),
    }
}

/// An answer, or a response of a server.
enum EdgeResponse {
    Here(Answer),
    There(Response),
}

impl Edge {
    /// Sets every gauge of this agent to what it is now.
    pub fn observe(&self) {
        let now = jiff::Timestamp::now().as_second();
        for one in self.around.expiries() {
            one.observe(now);
        }
        self.client.observe(&self.around.config().telemetry);
    }

    fn respond(&self, outline: Outline, answer: Answer) -> Response {
        front::finish(&self.settings, None, outline, answer)
    }

    /// Whether a request is about what is here, and what it requires of its caller then.
    fn own(&self, method: &Method, path: &str, outline: &Outline) -> Option<OwnRequest> {
        let region = outline.query.text("region");
        if !region.is_empty() && region != self.settings.region && !path.starts_with("/v1/agent/") {
            return None;
        }
        let row = table::found(method, path)?;
        let demand = match row.asks {
            AccessRule::Here(_) if !self.is_meant(outline) => return None,
            AccessRule::Agent(access) | AccessRule::Here(access) => {
                AccessDemand::Agent(access.under(&self.settings))
            }
            AccessRule::Allocation(any_of) => {
                let runner = self.client.runner(row.id(path)?)?;
                let namespace = runner.alloc().namespace.clone();
                AccessDemand::Allocation { namespace, any_of }
            }
        };
        let (route, does) = (row.path, row.does);
        Some(OwnRequest {
            route,
            does,
            demand,
        })
    }

    /// Whether a request names no other agent.
    fn is_meant(&self, outline: &Outline) -> bool {
        let node = outline.query.text("node_id");
        let here = node.is_empty() || node == self.client.node_id();
        here && outline.query.text("server_id").is_empty()
    }

    async fn identity(&self, request: &Request) -> Result<Identity, Refusal> {
        let addr = request.remote.map(|addr| addr.ip().to_string());
        let token = auth::token(request);
        let found = self
            .gate
            .authenticate(token, addr.as_deref().unwrap_or_default());
        let mut identity = found.await?;
        identity.certificate.clone_from(&request.certificate);
        Ok(identity)
    }

    /// Identifies the caller, and lets in callers that may.
    async fn admit(&self, request: &mut Request, own: &OwnRequest) -> Result<(), Refusal> {
        if auth::token(request).is_some() && !self.gate.is_guarded() {
            request.query.ignore([ignored::header("X-Nomad-Token")]);
        }
        let labelled = self.gate.is_guarded() && self.settings.now().label_identities;
        let served = |request: &Request, who: &Identity| {
            measure::served(request, labelled.then(|| who.label()).as_deref());
        };
        if own.demand.is_public() {
            // The request may be whether servers answer: so they are not queried for its caller,
            // and it counts as anonymous, by its address.
            served(request, &Identity::default());
            return front::within(&self.settings, request, None);
        }
        let is_new = auth::token(request).is_some_and(|token| !self.gate.keeps(token));
        if is_new && let Err(error) = front::within(&self.settings, request, None) {
            // Servers are queried about no more tokens than a stranger may try.
            served(request, &Identity::default());
            return Err(error);
        }
        let who = self.identity(request).await?;
        served(request, &who);
        request.identity = Arc::new(who);
        if !is_new || request.identity.known_as().is_some() {
            front::within(&self.settings, request, own.demand.namespace())?;
        }
        self.admitted(request, own).await
    }

    /// Answers a caller that may call; the request log has the request if it matters.
    async fn recorded(
        self: &Arc<Self>,
        request: Request,
        own: OwnRequest,
    ) -> Result<EdgeResponse, Refusal> {
        let ticket = requests::received(&self.requests, &request).await?;
        let received = requests::denial(&request);
        let answer = match self.answer(request, own).await {
            // What a server answers it writes down itself.
            Ok(EdgeResponse::There(response)) => return Ok(EdgeResponse::There(response)),
            Ok(EdgeResponse::Here(answer)) => Ok(answer),
            Err(error) => Err(error),
        };
        let answer = requests::answered(&self.requests, ticket, || received, answer).await;
        answer.map(EdgeResponse::Here)
    }

    /// Lets in a caller that may; the request log has those that may not.
    async fn admitted(&self, request: &Request, own: &OwnRequest) -> Result<(), Refusal> {
        let allowed = own.demand.admit(request, &request.identity);
        entrance::admitted(&self.requests, request, allowed).await
    }

    /// Answers a caller that may call.
    async fn answer(
        self: &Arc<Self>,
        request: Request,
        own: OwnRequest,
    ) -> Result<EdgeResponse, Refusal> {
        let answer = match own.does {
            Does::Health => self.health(&request)?,
            Does::Describe => self.describe()?,
            Does::ListServers => self.servers()?,
            Does::NameServers => self.name_servers(&request)?,
            Does::Reload => agent::reloaded(Arc::clone(&self.around)).await?,
            Does::Measure => self.metrics(&request)?,
            Does::SetMetadata => {
                let body: MetadataRequest = request.json()?;
                if body.node_id.is_empty() || body.node_id == self.client.node_id() {
                    local::answer(&self.near.here()?, &request).await?
                } else {
                    let sent = forward::whole(&self.caller, &request, LOOKING).await?;
                    return Ok(EdgeResponse::There(sent));
                }
            }
            Does::Near => self.flowing(request, own).await?,
            Does::Change => {
                let answer = local::answer(&self.near.here()?, &request).await?;
                match answer.status {
                    // A change on the client is none of the replicated state.
                    200 => Answer::json(&json!({ "Index": 0 }))?,
                    _ => answer,
                }
            }
        };
        Ok(EdgeResponse::Here(answer))
    }

    /// Answers what may flow: it ends with the right to it.
    async fn flowing(
        self: &Arc<Self>,
        request: Request,
        own: OwnRequest,
    ) -> Result<Answer, Refusal> {
        let mut answer = local::answer(&self.near.here()?, &request).await?;
        if answer.body.len().is_none() && self.gate.is_guarded() {
            let edge = Arc::clone(self);
            let request = Arc::new(request);
            let requested = Arc::clone(&request);
            let again = move || {
                let (edge, request) = (Arc::clone(&edge), Arc::clone(&request));
                async move { edge.identity(&request).await.map(Arc::new) }
            };
            answer.body = answer.body.until(right::lost(again, move |who| {
                own.demand.holds(&requested, who)
            }));
        }
        Ok(answer)
    }

    fn health(&self, request: &Request) -> Result<Answer, Refusal> {
        let kinds: Vec<&str> = request.query.all("type").collect();
        let health = self.client.health();
        let none = Err("server not enabled".to_owned());
        let mut parts = serde_json::Map::new();
        let mut healthy = true;
        for (kind, health) in [("client", &health), ("server", &none)] {
            if kinds.contains(&kind) || (kinds.is_empty() && kind == "client") {
                healthy &= health.is_ok();
                let message = health.as_ref().err().map_or("ok", String::as_str);
                parts.insert(
                    kind.to_owned(),
                    json!({ "message": message, "ok": health.is_ok() }),
                );
            }
        }
        let body = serde_json::Value::Object(parts);
        match healthy {
            true => Answer::json(&body),
            false => Ok(Answer::of(TEXT, body.to_string()).status(500)),
        }
    }

    fn servers(&self) -> Result<Answer, Refusal> {
        let servers = self.caller.servers();
        Answer::json(&servers.map(|servers| servers.all()).unwrap_or_default())
    }

    fn name_servers(&self, request: &Request) -> Result<Answer, Refusal> {
        let named: Vec<String> = request.query.all("address").map(str::to_owned).collect();
        if named.is_empty() {
            return Err(Refusal::bad_request("missing server address"));
        }
        if let Some(servers) = self.caller.servers() {
            servers.refresh(&named);
        }
        Ok(Answer::nothing())
    }

    fn describe(&self) -> Result<Answer, Refusal> {
        let description = AgentDescription {
            config: described(&self.around.config()),
            member: None,
            stats: AgentStats {
                client: Some(self.stats()),
                tls: None,
                more: json!({}),
            },
        };
        // By way of a value, which sorts the names, as a server does.
        Answer::json(&serde_json::to_value(description).unwrap_or_default())
    }

    fn stats(&self) -> ClientStats {
        let contact = self.client.contact().borrow().clone();
        let servers = self.caller.servers().map(|servers| servers.all());
        ClientStats {
            node_id: self.client.node_id(),
            known_servers: servers.unwrap_or_default().join(","),
            num_allocations: self.client.alloc_ids().len().to_string(),
            last_heartbeat: Some(contact.last_heartbeat.to_string()),
            heartbeat_ttl: Some(contact.ttl.to_string()),
        }
    }

    fn metrics(&self, request: &Request) -> Result<Answer, Refusal> {
        let form = request.query.text("format");
        let text = || {
            self.observe();
            self.telemetry.prometheus()
        };
        let summary = || {
            self.observe();
            self.telemetry.summary()
        };
        agent::measured(form, self.settings.now().prometheus, text, summary)
    }
}
