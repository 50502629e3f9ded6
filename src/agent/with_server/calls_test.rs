//! A real client whose calls are answered in whatever order the servers come to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use drover_events::model::{Allocation, DisconnectStrategy};
use drover_projections::tables::nodes;
use drover_testkit::{LONG, eventually};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{World, group};
use crate::commands::node::MissHeartbeat;
use crate::error::Refusal;
use crate::proposer::Origin;
use crate::rpc::Rpc;
use crate::rpc::duplex::{Duplex, Keepalive};
use crate::rpc::methods::{NodeGetClientAllocs, NodeUpdateAlloc, NodeUpdateStatus};
use crate::rpc::service::{Call, Dispatch};

const STATUS: &str = NodeUpdateStatus::NAME;
const UPDATE: &str = NodeUpdateAlloc::NAME;
const FETCH: &str = NodeGetClientAllocs::NAME;

const ORDERS: [[&str; 3]; 6] = [
    [STATUS, UPDATE, FETCH],
    [STATUS, FETCH, UPDATE],
    [UPDATE, STATUS, FETCH],
    [UPDATE, FETCH, STATUS],
    [FETCH, STATUS, UPDATE],
    [FETCH, UPDATE, STATUS],
];

type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// Which methods' calls hang, and for each method how many hang and how many continued.
#[derive(Default)]
struct Gate {
    shut: watch::Sender<BTreeSet<&'static str>>,
    hanging: Counts,
    passed: Counts,
}

impl Gate {
    fn hanging(&self, method: &str) -> u64 {
        self.hanging.lock().get(method).copied().unwrap_or_default()
    }

    fn passed(&self, method: &str) -> u64 {
        self.passed.lock().get(method).copied().unwrap_or_default()
    }
}

/// A call that hangs until this is dropped, be it that its caller has given up.
struct Hangs(Counts, String);

impl Hangs {
    fn new(counts: &Counts, method: &str) -> Self {
        *counts.lock().entry(method.to_owned()).or_default() += 1;
        Self(Arc::clone(counts), method.to_owned())
    }
}

impl Drop for Hangs {
    fn drop(&mut self) {
        *self.0.lock().entry(self.1.clone()).or_default() -= 1;
    }
}

/// A service behind a gate.
struct Gated(Arc<Gate>, Arc<dyn Dispatch>);

impl Dispatch for Gated {
    fn dispatch(
        &self,
        name: &str,
        call: Call,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let Self(gate, service) = self;
        let (gate, name) = (Arc::clone(gate), name.to_owned());
        let answer = service.dispatch(&name, call, body);
        async move {
            let mut shut = gate.shut.subscribe();
            let is_shut = shut.borrow().contains(name.as_str());
            if is_shut {
                let _hangs = Hangs::new(&gate.hanging, &name);
                let _ = shut.wait_for(|shut| !shut.contains(name.as_str())).await;
            }
            *gate.passed.lock().entry(name).or_default() += 1;
            answer.await
        }
        .boxed()
    }

    fn streams(&self, name: &str) -> Option<Keepalive> {
        self.1.streams(name)
    }

    fn open(
        &self,
        name: &str,
        call: Call,
        stream: Duplex,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        self.1.open(name, call, stream)
    }

    fn knows(&self, call: &Call) -> BoxFuture<'static, bool> {
        self.1.knows(call)
    }
}

async fn until(what: String, reached: impl Fn() -> bool) {
    let look = || reached().then_some(()).ok_or("not yet");
    eventually(&what, LONG, look).await.unwrap();
}

/// One client, which knows of no order, and the six orders in which its calls can be taken: each
/// call is made while the others hang, and the allocation is there again whichever comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sch_16_a_client_makes_its_calls_beside_one_another_and_any_order_brings_it_back() {
    let gate = Arc::new(Gate::default());
    let world = World::start_behind(|service| Arc::new(Gated(Arc::clone(&gate), service))).await;
    let client = world.client();
    let id = client.node_id();
    let status = || {
        let view = world.server.projections.view();
        let node = nodes::get(&view, &id).unwrap();
        node.map(|node| node.status).unwrap_or_default()
    };
    let mut stays = group(1, serde_json::json!({"run_for": "1h"}));
    stays.disconnect = Some(DisconnectStrategy {
        lost_after: 3_600_000_000_000,
        replace: Some(false),
        ..DisconnectStrategy::default()
    });
    world.register_group("svc", "service", stays).await;
    let row = || world.allocs("svc").first().cloned().unwrap_or_default();
    let is_there = || status() == "ready" && row().client_status == "running";
    until("it runs".to_owned(), is_there).await;
    let first = row();

    for order in ORDERS {
        gate.shut.send_replace(BTreeSet::from(order));
        until(format!("{order:?}: a heartbeat hangs"), || {
            gate.hanging(STATUS) > 0
        })
        .await;
        client.report()(row());
        until(format!("{order:?}: an update hangs"), || {
            gate.hanging(UPDATE) > 0
        })
        .await;
        let node_id = id.clone();
        let lost = world
            .server
            .submit(MissHeartbeat { node_id }, Origin::default());
        lost.await.unwrap();
        until(format!("{order:?}: it is given up"), || {
            status() == "disconnected" && row().client_status == "unknown"
        })
        .await;
        // What it should run has changed by that: the client fetches that meanwhile.
        until(format!("{order:?}: a fetch hangs"), || {
            gate.hanging(FETCH) > 0
        })
        .await;

        for (at, method) in order.into_iter().enumerate() {
            let before = gate.passed(method);
            gate.shut.send_modify(|shut| _ = shut.remove(method));
            let what = format!("{order:?}: {method} is taken while the rest hangs");
            until(what, || gate.passed(method) > before).await;
            let rest = &order[at + 1..];
            let what = format!("{order:?}: {rest:?} hang beside it");
            until(what, || rest.iter().all(|later| gate.hanging(later) > 0)).await;
        }
        until(format!("{order:?}: it is there again"), is_there).await;
        let (now, all) = (row(), world.allocs("svc").len());
        assert_eq!((now.id.as_str(), all), (first.id.as_str(), 1), "{order:?}");
        assert_eq!(starts(&now), 1, "{order:?}: it ran all the time");
    }
}

fn starts(alloc: &Allocation) -> usize {
    let events = alloc.task_states["web"].events.iter();
    events.filter(|event| event.r#type == "Started").count()
}
