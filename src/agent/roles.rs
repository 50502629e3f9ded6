//! What runs in this agent, put together bottom up.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use drover_events::public::PublicFields;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::data_dir::DataDir;
use super::reload::Reloader;
use super::settings::{SHORTEST_INTERVAL, measured, rates, settings, sinks, ttls};
use super::{client, expiry};
use crate::base::clock::unix_nanos;
use crate::client::agent::Client;
use crate::client::control::Answers as _;
use crate::config::Config;
use crate::endpoints;
use crate::gate::Gate;
use crate::http::{self, Api, Publisher, Shape};
use crate::net::tls::Port;
use crate::net::{Door, Listener, Patience, Proxies, Rates, Visitors, most_connections};
use crate::requests::RequestLog;
use crate::rpc::server::RpcServer;
use crate::rpc::service::Dispatch;
use crate::server::{Around, Server, kept};
use crate::telemetry::{self, Telemetry};

/// The running roles.
pub(super) struct Roles {
    server: Option<Arc<Server>>,
    client: Option<Arc<Client>>,
    rpc: Option<RpcServer>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    data: DataDir,
}

impl Roles {
    /// Starts the roles that `config` enables.
    pub(super) async fn start(config: Config, reloader: &Arc<Reloader>) -> Result<Self, Failure> {
        let config = Arc::new(config);
        let tls = reloader.tls();
        let data = DataDir::make(&config)?;
        let stop = CancellationToken::new();
        let telemetry = telemetry::install_with(&measured(&config));
        reloader.parts(|parts| parts.telemetry = Some(telemetry.clone()));
        let expiring = tokio::spawn(expiry::watch(Arc::clone(tls), stop.clone()));
        if !config.server.enabled {
            let ticks = tokio::spawn(tick(telemetry.clone(), Arc::clone(&config), stop.clone()));
            let around = (telemetry, reloader);
            return Self::client_alone(&config, data, stop, vec![ticks, expiring], around).await;
        }
        let server = Server::start(Arc::clone(&config), data.path(), telemetry.clone()).await?;
        let around: Arc<dyn Around> = Arc::<Reloader>::clone(reloader);
        // Set once, here.
        let _ = server.around.set(around);
        let ticks = tokio::spawn(tick(telemetry, Arc::clone(&config), stop.clone()));
        let mut tasks = vec![ticks, expiring];
        let observed = Arc::clone(&server);
        tasks.extend(collected(move || observed.observe(), &config, &stop));
        let settings = settings(&config)?;
        // What HTTP and RPC take in at once, together.
        let bodies = Arc::clone(&settings.bodies);
        let called = Rates::new(rates(&config.limits).1);
        let limits = client::limits(&config, bodies, Arc::clone(tls));
        let limited = (Arc::clone(&limits.visitors), limits.handshake.clone());
        // Before the API is open, through which a reload may be requested.
        reloader.parts(|parts| {
            parts.called = Some(Arc::clone(&called));
            parts.rpc = Some(limited);
        });
        let limited = endpoints::Limited {
            calls: called,
            requests: Arc::clone(&settings.rates),
        };
        tasks.extend(front(&config, &server, (settings, reloader), &stop).await?);
        let beats = Arc::clone(&server);
        let beat = Box::new(move |node: &str| beats.beat(node));
        let service = endpoints::service_within(Arc::clone(&server), beat, limited);
        let service: Arc<dyn Dispatch> = Arc::new(service);
        let rpc = client::listen(&config, Arc::clone(&service), limits).await?;
        let client = config
            .client
            .enabled
            .then(|| client::run(&config, data.path(), Some(service), tls))
            .transpose()?;
        if let Some(client) = &client {
            beside(client, (&config, &server, reloader)).await?;
        }
        Ok(Self {
            server: Some(server),
            client,
            rpc: Some(rpc),
            stop,
            tasks,
            data,
        })
    }

    /// A client whose servers are elsewhere: it reaches them by RPC, and its HTTP API answers for
    /// itself and forwards the rest.
    async fn client_alone(
        config: &Arc<Config>,
        data: DataDir,
        stop: CancellationToken,
        mut tasks: Vec<JoinHandle<()>>,
        (telemetry, reloader): (Telemetry, &Arc<Reloader>),
    ) -> Result<Self, Failure> {
        let client = client::run(config, data.path(), None, reloader.tls())?;
        let near = http::Near::of(config, &client);
        client.answer_servers(Arc::clone(&near) as _);
        let caller = client.caller();
        let gate = Arc::new(match config.acl.enabled {
            true => Gate::far(caller.clone(), ttls(&config.acl)),
            false => Gate::open(),
        });
        let settings = settings(config)?;
        let requests = crate::server::requests(config, &config.client_dir(data.path()))?;
        let forgetting = forget(Arc::clone(&requests), Arc::clone(config), stop.clone());
        tasks.push(tokio::spawn(forgetting));
        reloader.parts(|parts| {
            parts.gate = Some(Arc::clone(&gate));
            parts.client = Some(Arc::clone(&client));
            parts.web(&settings);
        });
        let around: Arc<dyn Around> = Arc::<Reloader>::clone(reloader);
        let edge = Arc::new(http::Edge {
            client: Arc::clone(&client),
            near,
            caller,
            gate,
            telemetry,
            requests,
            around,
            settings,
        });
        let observed = Arc::clone(&edge);
        tasks.extend(collected(move || observed.observe(), config, &stop));
        let router = http::edge(edge);
        let router = http::through(router, Proxies::read(&config.http_trusted_proxies)?);
        tasks.extend(open(config, &router, &door(config, reloader), &stop).await?);
        Ok(Self {
            server: None,
            client: Some(client),
            rpc: None,
            stop,
            tasks,
            data,
        })
    }

    /// Ready when what runs here is to be stopped and started anew; never without a server.
    pub(super) async fn wants_restart(&self) {
        match &self.server {
            Some(server) => server.wants_restart().await,
            None => std::future::pending().await,
        }
    }

    /// Keeps the data directory, even a temporary one, and answers where that lies.
    pub(super) fn keep_data(&mut self) -> Option<std::path::PathBuf> {
        self.data.keep()
    }

    /// Leaves the cluster, while everything still runs: a client has its node drained where it is
    /// configured to. A lone server has no cluster to leave.
    pub(super) async fn leave(&self) {
        if let Some(client) = &self.client {
            client.leave().await;
        }
    }

    /// The allocations of which something runs here.
    pub(super) fn running(&self) -> Vec<String> {
        let client = self.client.as_ref();
        client.map_or_else(Vec::new, |client| client.running())
    }

    /// The longest time that a task here has to end once it is stopped.
    pub(super) fn longest_kill(&self) -> Duration {
        let client = self.client.as_ref();
        client.map_or(Duration::ZERO, |client| client.longest_kill())
    }

    /// Stops everything, top down.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        if let Some(server) = &self.server {
            // Open for as long as the process lives: a thread that still read them, and was the
            // last to let go, would close them while the process ends: RocksDB aborts then.
            std::mem::forget(Arc::clone(&server.projections));
        }
        if let Some(client) = self.client {
            client.shutdown().await;
        }
        drop(self.rpc);
        for task in self.tasks {
            let _ = task.await;
        }
        if let Some(server) = self.server {
            server.shutdown().await;
        }
    }
}

/// Puts a client beside the server of the same agent.
async fn beside(
    client: &Arc<Client>,
    (config, server, reloader): (&Config, &Server, &Reloader),
) -> Result<(), Failure> {
    reloader.parts(|parts| parts.client = Some(Arc::clone(client)));
    // The configuration may have been loaded anew since the API is open.
    let (again, now) = (Arc::clone(client), reloader.config());
    let again = tokio::task::spawn_blocking(move || again.reconfigure(&now.client));
    again.await.map_err(|error| error.to_string())?;
    // Set once, here: nothing else starts a client.
    let _ = server.client.set(Arc::clone(client));
    let near = http::Near::of(config, client);
    let answers = Box::new(move |stream| near.answer(stream));
    let handlers = client.handlers();
    server.sessions.own(&client.node_id(), handlers, answers);
    Ok(())
}

/// Opens the HTTP API on every address of the configuration.
async fn front(
    config: &Arc<Config>,
    server: &Arc<Server>,
    (settings, reloader): (http::Settings, &Arc<Reloader>),
    stop: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    reloader.parts(|parts| parts.web(&settings));
    let shape = Shape {
        keyring: Some(Arc::clone(&server.keyring)),
        public: PublicFields::read(&config.event_publisher.http.public_fields)?,
        agent: config.schemas_at(),
    };
    let publisher = Arc::new(Publisher::new(shape));
    let api = Arc::new(Api::of(server, settings));
    let mut tasks = Vec::new();
    let (running, projections) = (Arc::clone(&publisher), Arc::clone(&server.projections));
    let (log, ends) = (Arc::clone(&api.log), stop.clone());
    tasks.push(tokio::spawn(async move {
        running.run(projections, log, ends).await
    }));
    let door = door(config, reloader);
    let router = http::router(Arc::clone(&api), publisher);
    let visitors = Arc::clone(&door.visitors);
    let forwarded = http::Forwarded::new(router.clone(), visitors, stop.clone());
    // Set once, here.
    let _ = server.web.set(Arc::new(forwarded));
    let caller = client::caller(config, reloader.tls());
    let (sessions, others) = (&server.sessions, server.other_servers());
    sessions.beside(caller.clone(), others);
    let leading = http::Leading {
        caller,
        leader: server.whoever_leads(),
        settings: api.settings.clone(),
    };
    let router = http::follow(router, Arc::new(leading));
    let router = http::through(router, Proxies::read(&config.http_trusted_proxies)?);
    tasks.extend(open(config, &router, &door, stop).await?);
    Ok(tasks)
}

/// Which callers the HTTP API admits.
fn door(config: &Config, reloader: &Reloader) -> Door {
    let door = Door {
        visitors: Visitors::new(config.limits.http_max_conns_per_client, most_connections()),
        patience: Patience::new(config.limits.https_handshake_timeout),
        tls: Arc::clone(reloader.tls()),
        port: Port::Http,
    };
    let limited = (Arc::clone(&door.visitors), door.patience.clone());
    reloader.parts(|parts| parts.http = Some(limited));
    door
}

/// Serves these routes wherever they are to be reached.
async fn open(
    config: &Config,
    router: &Router,
    door: &Door,
    stop: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    let listeners = listeners(config).await?.into_iter();
    let served = listeners
        .map(|listener| http::serve(listener, router.clone(), door.clone(), stop.clone()))
        .map(tokio::spawn);
    Ok(served.collect())
}

/// Listens wherever the HTTP API is to be reached.
async fn listeners(config: &Config) -> Result<Vec<Listener>, Failure> {
    let mut listeners = Vec::new();
    for address in config.http_listen()? {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let encrypted = config.tls.http;
        tracing::info!(address = %listener.local_addr()?, encrypted, "HTTP API");
        listeners.push(Listener::Tcp(listener));
    }
    for path in config.http_sockets() {
        let listener = Listener::unix(path.clone())
            .map_err(|error| format!("cannot listen on unix://{}: {error}", path.display()))?;
        tracing::info!(socket = %path.display(), "HTTP API");
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Has `observe` read the levels as often as metrics are pushed; nothing where no sink is
/// configured: a request for metrics has the levels read then.
fn collected(
    observe: impl Fn() + Clone + Send + 'static,
    config: &Config,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let every = config.telemetry.collection_interval;
    let is_sent = !sinks(config).is_empty();
    is_sent.then(|| tokio::spawn(collect(observe, every, stop.clone())))
}

async fn collect(
    observe: impl Fn() + Clone + Send + 'static,
    every: Duration,
    stop: CancellationToken,
) {
    let mut ticks = tokio::time::interval(every.max(SHORTEST_INTERVAL));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let _ = tokio::task::spawn_blocking(observe.clone()).await;
            }
            () = stop.cancelled() => return,
        }
    }
}

/// Drops what need not be kept of the request log of an agent without a server; on a server a
/// reactor does it.
async fn forget(requests: Arc<RequestLog>, config: Arc<Config>, stop: CancellationToken) {
    let retention = &config.server.retention;
    let mut ticks = tokio::time::interval(retention.interval.max(SHORTEST_INTERVAL));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let (requests, keep) = (Arc::clone(&requests), kept(&retention.requests));
                let drop_old = move || requests.forget(&keep, unix_nanos());
                match tokio::task::spawn_blocking(drop_old).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => {
                        let error = crate::error::chain(&error);
                        tracing::warn!(error, "the request log keeps what it need not");
                    }
                    Err(error) => tracing::error!(%error, "the request log cannot be cut"),
                }
            }
            () = stop.cancelled() => return,
        }
    }
}

/// Ends an interval of the metrics every ten seconds.
async fn tick(telemetry: telemetry::Telemetry, config: Arc<Config>, stop: CancellationToken) {
    let interval = config.telemetry.in_memory_collection_interval;
    let mut ticks = tokio::time::interval(interval.max(SHORTEST_INTERVAL));
    // The first is due at once: it would end an interval in which nothing was counted yet.
    ticks.tick().await;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let telemetry = telemetry.clone();
                if let Err(error) = tokio::task::spawn_blocking(move || telemetry.tick()).await {
                    tracing::error!(%error, "an interval of the metrics goes on");
                }
            }
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_projections::tables::nodes;
    use futures_util::FutureExt;

    use super::*;
    use crate::agent::with_server::World;
    use drover_testkit::until;

    #[tokio::test]
    async fn what_was_counted_is_shown_before_the_first_interval_ends() {
        let (telemetry, recorder) = telemetry::build(&telemetry::TelemetryOptions::default());
        let mut config = Config::dev();
        config.telemetry.in_memory_collection_interval = Duration::from_secs(3_600);
        let stop = CancellationToken::new();
        let ticks = tick(telemetry.clone(), Arc::new(config), stop.clone());
        let mut ticks = std::pin::pin!(ticks);
        assert!(ticks.as_mut().now_or_never().is_none(), "it goes on");
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("drover.test.counted_total").increment(1);
        });
        let shown = serde_json::to_value(telemetry.summary()).expect("serialises");
        let named = |counter: &serde_json::Value| counter["Name"] == "drover.test.counted_total";
        let counters = shown["Counters"].as_array().expect("a list");
        assert!(counters.iter().any(named), "{shown}");
        stop.cancel();
        ticks.await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_client_without_a_server_registers_at_one_elsewhere() {
        let world = World::start().await;
        let mut config = Config::dev();
        config.server.enabled = false;
        config.client.servers = vec![world.rpc.addr().to_string()];
        let again = config.clone();
        let again = Box::new(move || Ok(again.clone()));
        let reloader = Reloader::open(&config, again, None).expect("opens");
        let roles = Roles::start(config, &reloader).await.expect("starts");
        let id = roles.client.as_ref().expect("a client").node_id();
        let ready = || {
            let view = world.server.projections.view();
            let node = nodes::get(&view, &id).expect("reads");
            node.is_some_and(|node| node.status == "ready")
        };
        until("the node is ready", ready).await;
        roles.stop().await;
    }
}
