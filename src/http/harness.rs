//! A server with its API, in one process, for the tests beside the handlers.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::middleware::Next;
use bytes::Bytes;
use drover_events::{Actor, Event};
use drover_projections::serving::marked;
use drover_projections::view::View;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::gzip::Gzip;
use super::{Api, Live, Publisher, Settings, Shape, router};
use crate::commands::node::RegisterNode;
use crate::commands::{Command, Decision, Stamp};
use crate::config::Config;
use crate::error::Refusal;
use crate::gate::Gate;
use crate::keyring::Keyring;
use crate::log::{FileLayer, RealFiles};
use crate::proposer::Origin;
use crate::requests::RequestLog;
use crate::server::Server;
use crate::server::testing::Stopping;
use drover_testkit::{LONG, eventually_async, fixtures as testing};

/// A running server.
pub(super) struct Harness {
    pub(super) api: Arc<Api>,
    /// The live end of the event stream; nothing is published before it runs.
    pub(super) publisher: Arc<Publisher>,
    pub(super) server: Stopping,
    router: Router,
    pub(super) data: tempfile::TempDir,
}

/// An answer, its body read.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: hyper::HeaderMap,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    pub(super) fn index(&self) -> u64 {
        self.header("x-nomad-index").parse().unwrap()
    }
}

/// An event that was decided on elsewhere.
pub(super) struct Given(pub(super) Event);

impl Command for Given {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, Refusal> {
        Ok(Decision::unguarded(self.0.clone()))
    }
}

/// The routes, none of which reads the tables on a thread that serves.
fn guarded(api: &Arc<Api>, publisher: &Arc<Publisher>) -> Router {
    let guard = async |request: axum::extract::Request, next: Next| marked(next.run(request)).await;
    router(Arc::clone(api), Arc::clone(publisher)).layer(axum::middleware::from_fn(guard))
}

impl Harness {
    /// The API of its server, whose gate reads from the tables who calls.
    pub(super) fn guarded(&self, settings: Settings) -> Api {
        let (projections, keyring) = (&self.server.projections, &self.server.keyring);
        let gate = Gate::guarded(Arc::clone(projections), Arc::clone(keyring));
        Api {
            gate: Arc::new(gate),
            ..Api::of(&self.server, settings)
        }
    }

    /// Starts a server and waits until it takes commands.
    pub(super) async fn start() -> Self {
        let settings = Settings {
            gzip: Gzip::Always,
            ..Settings::default()
        };
        Self::with(settings, None).await
    }

    /// The same with access lists on, also for methods between agents.
    pub(super) async fn with_acls() -> Self {
        let mut config = Config::dev();
        config.acl.enabled = true;
        let settings = (Settings::default(), None);
        Self::configured(config, settings, None, Gate::open()).await
    }

    /// The same with so many scheduling workers.
    pub(super) async fn scheduling(workers: u32) -> Self {
        let mut config = Config::dev();
        config.server.num_schedulers = Some(workers);
        let settings = (Settings::default(), None);
        Self::configured(config, settings, None, Gate::open()).await
    }

    /// The same with another request log.
    pub(super) async fn keeping(requests: RequestLog) -> Self {
        let requests = Some(Arc::new(requests));
        Self::make((Settings::default(), None), requests, Gate::open()).await
    }

    /// The same with another doorman.
    pub(super) async fn asking(gate: Gate) -> Self {
        Self::make((Settings::default(), None), None, gate).await
    }

    /// The same under other settings, or with a keyring of the API's own.
    pub(super) async fn with(settings: Settings, keyring: Option<Arc<Keyring>>) -> Self {
        Self::make((settings, keyring), None, Gate::open()).await
    }

    async fn make(
        settings: (Settings, Option<Arc<Keyring>>),
        requests: Option<Arc<RequestLog>>,
        gate: Gate,
    ) -> Self {
        Self::configured(Config::dev(), settings, requests, gate).await
    }

    /// The same with its keystore on these files.
    pub(super) async fn keystore_on(files: Arc<dyn FileLayer>) -> Self {
        let settings = (Settings::default(), None);
        Self::begun(files, Config::dev(), settings, None, Gate::open()).await
    }

    async fn configured(
        config: Config,
        settings: (Settings, Option<Arc<Keyring>>),
        requests: Option<Arc<RequestLog>>,
        gate: Gate,
    ) -> Self {
        Self::begun(Arc::new(RealFiles), config, settings, requests, gate).await
    }

    async fn begun(
        keystore: Arc<dyn FileLayer>,
        mut config: Config,
        (settings, keyring): (Settings, Option<Arc<Keyring>>),
        requests: Option<Arc<RequestLog>>,
        gate: Gate,
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        config.server.digest_events = 1_024;
        let config = Arc::new(config);
        let telemetry = crate::telemetry::install(Duration::from_secs(10));
        let server = Server::start_on(config, (data.path(), keystore), telemetry);
        let server = server.await.unwrap();
        let leads = tokio::time::timeout(LONG, server.wait_ready());
        leads.await.expect("it leads, whatever it lacks");
        let api = Arc::new(Api {
            keyring: keyring.unwrap_or_else(|| Arc::clone(&server.keyring)),
            requests: requests.unwrap_or_else(|| Arc::clone(&server.requests)),
            gate: Arc::new(gate),
            ..Api::of(&server, settings)
        });
        let publisher = Arc::new(Publisher::new(Shape {
            keyring: Some(Arc::clone(&server.keyring)),
            agent: "http://127.0.0.1:4646".to_owned(),
            ..Shape::default()
        }));
        let router = guarded(&api, &publisher);
        Self {
            api,
            publisher,
            server: Stopping(server),
            router,
            data,
        }
    }

    /// The routes of the same server under other settings.
    pub(super) fn rather(&self, settings: Settings) -> Router {
        let api = Arc::new(Api::of(&self.server, settings));
        guarded(&api, &self.publisher)
    }

    /// Publishes what is applied, until it is to stop.
    pub(super) fn publish(&self, stop: CancellationToken) -> JoinHandle<()> {
        let publisher = Arc::clone(&self.publisher);
        let (projections, log) = (Arc::clone(&self.api.projections), Arc::clone(&self.api.log));
        tokio::spawn(async move { publisher.run(projections, log, stop).await })
    }

    /// The routes themselves.
    pub(super) fn router(&self) -> Router {
        self.router.clone()
    }

    /// Sends a request.
    pub(super) async fn send(&self, request: hyper::Request<Full<Bytes>>) -> Reply {
        let request = request.map(axum::body::Body::new);
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = marked(body.collect()).await.unwrap().to_bytes();
        Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    /// Sends a request with a method, a target and a body.
    pub(super) async fn ask(&self, method: &str, target: &str, body: impl Into<Bytes>) -> Reply {
        let request = hyper::Request::builder().method(method).uri(target);
        self.send(request.body(Full::new(body.into())).unwrap())
            .await
    }

    pub(super) async fn get(&self, target: &str) -> Reply {
        self.ask("GET", target, "").await
    }

    pub(super) async fn put(&self, target: &str, body: &Value) -> Reply {
        self.ask("PUT", target, body.to_string()).await
    }

    /// Waits, as blocking queries do, until what is shown at a target is as wanted.
    pub(super) async fn until(&self, target: &str, wanted: impl Fn(&Value) -> bool) -> Reply {
        self.until_by("", target, wanted).await
    }

    /// The same with a token; none where it is empty.
    pub(super) async fn until_by(
        &self,
        token: &str,
        target: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Reply {
        let and = if target.contains('?') { '&' } else { '?' };
        let mut next = target.to_owned();
        let ask = async || {
            let reply = self.seen(token, &next).await;
            next = format!("{target}{and}index={}&wait=10s", reply.index().max(1));
            match wanted(&reply.json()) {
                true => Ok(reply),
                false => Err(reply.text()),
            }
        };
        eventually_async(target, LONG, ask).await.unwrap()
    }

    /// Registers a small job; panics when that is refused.
    pub(super) async fn register(&self, id: &str) -> Reply {
        let reply = self.put("/v1/jobs", &job(id)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply
    }

    /// Submits a command past the API; its index. Panics when it is refused.
    pub(super) async fn submit(&self, command: impl Command) -> u64 {
        let origin = Origin {
            actor: Actor::server("test", "test"),
            request_id: "test".to_owned(),
            ..Origin::default()
        };
        let done = self.server.proposer.submit(Arc::new(command), origin).await;
        done.expect("it is accepted").index
    }

    /// Registers a node that takes many allocations; its id.
    pub(super) async fn register_node(&self) -> String {
        let mut node = testing::node(1);
        node.secret_id = "hash".into();
        let id = node.id.clone();
        let create_node_pool = false;
        self.submit(RegisterNode {
            node,
            create_node_pool,
        })
        .await;
        id
    }

    /// Stops the server.
    pub(super) async fn stop(self) {
        self.server.shutdown().await;
    }
}

/// The body that registers a small job.
pub(super) fn job(id: &str) -> Value {
    serde_json::json!({ "Job": {
        "ID": id, "Name": id, "Type": "service", "Datacenters": ["dc1"],
        "Meta": { "team": "store" },
        "TaskGroups": [{ "Name": "g", "Count": 1, "Tasks": [{
            "Name": "t", "Driver": "mock_driver", "Config": { "run_for": "10s" },
            "Resources": { "CPU": 20, "MemoryMB": 16 },
        }]}],
    }})
}

/// Whether there is something in a list.
pub(super) fn is_filled(list: &Value) -> bool {
    list.as_array().is_some_and(|all| !all.is_empty())
}

/// What a counter says, by label.
pub(super) async fn counted(server: &Harness, name: &str) -> Vec<(String, u64)> {
    let text = server.get("/v1/metrics?format=prometheus").await.text();
    let lines = text.lines().filter_map(|line| {
        let (series, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}

/// What may change while a server runs, with a change.
pub(super) fn live(change: impl FnOnce(&mut Live)) -> Arc<ArcSwap<Live>> {
    let mut live = Live::default();
    change(&mut live);
    Arc::new(ArcSwap::from_pointee(live))
}
