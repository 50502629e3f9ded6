//! Simulated nodes: the real client, thousands of times in one process, with a runner that only
//! says that its allocation runs (SIM-01, SIM-02).
//!
//! `drover nodesim -nodes N -servers ADDR`. Every node has an identity and loops of its own; all
//! share a few connections to the servers. The last line printed is one JSON object with what was
//! measured.
//!
//! It must not know: servers' insides. What it does goes over the RPC that real clients use.

mod node;
pub mod runner;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;

use crate::client::agent::{Client, ClientStart};
use crate::client::clock::Clock;
use crate::client::config::ClientSettings;
use crate::client::control::Answers;
use crate::client::journal::NoJournal;
use crate::config::Shared;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::duplex::Duplex;
use runner::{Counters, SimFactory};

/// Connections to each server, shared by all nodes.
const CONNECTIONS: usize = 4;
/// How many nodes register at a time: as fast as servers take them, without a queue that only
/// waits.
const START_BATCH: usize = 256;

/// What is to be simulated.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// How many nodes.
    pub nodes: usize,
    /// RPC addresses of servers.
    pub servers: Vec<String>,
    /// Their datacenter.
    pub datacenter: String,
    /// Their class; empty for none.
    pub class: String,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            nodes: 1,
            servers: Vec::new(),
            datacenter: "dc1".into(),
            class: String::new(),
        }
    }
}

/// How often simulated nodes measure what the machine uses.
const NEVER: std::time::Duration = std::time::Duration::from_secs(1 << 30);

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SimStats {
    /// Nodes simulated.
    pub nodes: usize,
    /// Nodes whose first heartbeat was answered.
    pub ready: usize,
    /// Milliseconds until all were; 0 when not all are.
    pub ready_ms: u64,
    /// Allocations started.
    pub started: u64,
    /// Allocations stopped.
    pub stopped: u64,
    /// Allocations there now.
    pub allocs: usize,
    /// Seconds since the start.
    pub seconds: f64,
}

/// Running simulated nodes; they end when this is dropped.
pub struct NodeSim {
    clients: Vec<Arc<Client>>,
    counters: Arc<Counters>,
    begun: Instant,
    ready_after: Mutex<Option<Duration>>,
    all_ready: AtomicBool,
}

/// What answers who asks a simulated node for something.
struct Simulated;

impl Answers for Simulated {
    fn answer(&self, stream: Duplex) -> BoxFuture<'static, ()> {
        stream
            .outflow
            .fail("this node is simulated: it has neither files nor tasks");
        std::future::ready(()).boxed()
    }
}

impl NodeSim {
    /// Starts the nodes. Must be called in a runtime.
    pub async fn start(options: &SimOptions) -> Self {
        let begun = Instant::now();
        let pool = Pool::new(CONNECTIONS);
        let counters = Arc::new(Counters::default());
        let settings = Shared::new(ClientSettings {
            datacenter: options.datacenter.clone(),
            region: "global".into(),
            // Registration at once, and quick retries: what is measured is the servers.
            dev: true,
            // The machine under them is one: a thousand looks at it every second measure no server.
            collection_interval: NEVER,
            ..ClientSettings::default()
        });
        let mut clients = Vec::with_capacity(options.nodes);
        for number in 0..options.nodes {
            let node = node::simulated(number, options);
            let caller = Caller::network(
                pool.clone(),
                Servers::new(options.servers.clone()),
                &node.secret_id,
            )
            .of_node(&node.id);
            let client = Client::start(ClientStart {
                settings: settings.clone(),
                node: Arc::new(Mutex::new(Arc::new(node))),
                caller,
                factory: Arc::new(SimFactory::new(counters.clone())),
                journal: Arc::new(NoJournal),
                services: Arc::default(),
                clock: Clock::System,
                csi: None,
            });
            // Reached as a real one is, which costs the servers what it costs.
            client.answer_servers(Arc::new(Simulated));
            clients.push(client);
            if clients.len() % START_BATCH == 0 {
                registered(&clients[clients.len() - START_BATCH..]).await;
            }
        }
        Self {
            clients,
            counters,
            begun,
            ready_after: Mutex::new(None),
            all_ready: AtomicBool::new(false),
        }
    }

    /// Waits until every node had its first heartbeat answered.
    pub async fn ready(&self) {
        for client in &self.clients {
            let mut contact = client.contact();
            // An error means that the client is gone, which ends the wait for it.
            let _ = contact.wait_for(|c| c.last_heartbeat > 0).await;
        }
        self.all_ready.store(true, Ordering::Relaxed);
        self.ready_after.lock().get_or_insert(self.begun.elapsed());
    }

    /// What was measured until now.
    pub fn stats(&self) -> SimStats {
        let ready = self
            .clients
            .iter()
            .filter(|c| c.contact().borrow().last_heartbeat > 0);
        let ready_ms = self.ready_after.lock().map_or(0, |d| d.as_millis());
        SimStats {
            nodes: self.clients.len(),
            ready: ready.count(),
            ready_ms: u64::try_from(ready_ms).unwrap_or(u64::MAX),
            started: self.counters.started.load(Ordering::Relaxed),
            stopped: self.counters.stopped.load(Ordering::Relaxed),
            allocs: self.clients.iter().map(|c| c.alloc_ids().len()).sum(),
            seconds: self.begun.elapsed().as_secs_f64(),
        }
    }

    /// Ends all nodes.
    pub async fn stop(&self) {
        for client in &self.clients {
            client.shutdown().await;
        }
    }
}

async fn registered(clients: &[Arc<Client>]) {
    for client in clients {
        // An error means that the client is gone, which ends the wait for it.
        let _ = client.contact().wait_for(|c| c.registered).await;
    }
}

/// Simulates until `until` ends; says when all nodes are ready, and at the end what was measured.
/// Each time as one line of JSON for `print`.
///
/// # Errors
/// No servers are given.
pub async fn run(
    options: &SimOptions,
    print: impl Fn(&str),
    until: impl Future<Output = ()>,
) -> Result<(), String> {
    if options.servers.is_empty() {
        return Err("nodesim needs -servers ADDR[,ADDR]: the RPC addresses of servers".into());
    }
    let line = |stats: &SimStats| serde_json::to_string(stats).unwrap_or_default();
    tokio::pin!(until);
    let sim = tokio::select! {
        sim = NodeSim::start(options) => sim,
        () = &mut until => return Ok(()),
    };
    tokio::select! {
        () = sim.ready() => {
            print(&line(&sim.stats()));
            until.await;
        }
        () = &mut until => {}
    }
    print(&line(&sim.stats()));
    sim.stop().await;
    Ok(())
}

#[cfg(test)]
mod nodesim_test;
