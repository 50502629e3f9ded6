//! The metadata of a node, changed at its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use drover_events::gojson::Map;
use drover_events::model::Constraint;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::nodes;
use drover_projections::{ReadRows, Scan};
use drover_testkit::until;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{World, group};
use crate::error::Refusal;
use crate::rpc::duplex::{Duplex, Keepalive};
use crate::rpc::service::{Call, Dispatch};

type Answered = Result<Bytes, Refusal>;

fn changes(pairs: &[(&str, Option<&str>)]) -> Map<Option<String>> {
    let owned = |(key, value): &(&str, Option<&str>)| ((*key).to_owned(), value.map(str::to_owned));
    pairs.iter().map(owned).collect()
}

/// A job that only a node of rack r7 can run; whether an evaluation of it is blocked.
async fn waits_for_a_rack(world: &World) -> impl FnMut() -> bool {
    let mut wanting = group(1, serde_json::json!({"run_for": "1h"}));
    wanting.constraints = vec![Constraint {
        l_target: "${meta.rack}".into(),
        r_target: "r7".into(),
        operand: "=".into(),
    }]
    .into();
    world.register_group("waits", "service", wanting).await;
    let projections = Arc::clone(&world.server.projections);
    move || {
        let view = projections.view();
        let mut evals = view.rows::<Evals>(Scan::all());
        evals.any(|eval| eval.unwrap().status == "blocked")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_metadata_reaches_the_servers_at_once_wakes_what_waited_and_stays() {
    let world = World::start().await;
    let client = world.client();
    let id = client.node_id();
    let row = || nodes::get(&world.server.projections.view(), &id).unwrap();
    until("the node is ready", || {
        row().is_some_and(|node| node.status == "ready")
    })
    .await;
    let class = row().unwrap().computed_class;
    let blocked = waits_for_a_rack(&world).await;
    until("its evaluation is blocked", blocked).await;
    assert!(world.allocs("waits").is_empty());

    let metadata = client
        .apply_metadata(changes(&[
            ("rack", Some("r7")),
            ("connect.log_level", None),
            ("never", None),
        ]))
        .await
        .unwrap();
    assert_eq!(metadata.meta["rack"], "r7");
    assert!(!metadata.meta.contains_key("connect.log_level"));
    assert_eq!(metadata.fixed["connect.log_level"], "info");
    let dynamic = changes(&[("rack", Some("r7")), ("connect.log_level", None)]);
    assert_eq!(metadata.dynamic, dynamic);
    until("it is placed and runs", || {
        let allocs = world.allocs("waits");
        allocs.iter().any(|alloc| alloc.client_status == "running")
    })
    .await;
    let node = row().unwrap();
    assert_eq!(node.meta, metadata.meta);
    assert_ne!(node.computed_class, class, "the class follows");
    assert_eq!(node.status, "ready", "it was never taken for another");

    client.shutdown().await;
    drop(client);
    let again = world.client();
    let kept = again.metadata();
    assert_eq!(
        (&kept.meta, &kept.dynamic),
        (&metadata.meta, &metadata.dynamic)
    );
    assert_eq!(
        kept.fixed, metadata.fixed,
        "what is set is not taken for configured"
    );
    let back = changes(&[("rack", None), ("connect.log_level", Some("debug"))]);
    let metadata = again.apply_metadata(back).await.unwrap();
    assert_eq!(
        metadata.dynamic,
        changes(&[("connect.log_level", Some("debug"))])
    );
    assert_eq!(metadata.meta["connect.log_level"], "debug");
    until("the servers know", || {
        row().is_some_and(|node| node.meta == metadata.meta)
    })
    .await;
    let long = "x".repeat(256 << 10);
    let refused = again.apply_metadata(changes(&[("long", Some(&long))]));
    assert!(refused.await.unwrap_err().message.contains("262144 bytes"));
    assert_eq!(again.metadata().meta, metadata.meta);
}

/// Refuses the second registration.
struct Deaf(AtomicUsize, Arc<dyn Dispatch>);

impl Dispatch for Deaf {
    fn dispatch(&self, name: &str, call: Call, body: Bytes) -> BoxFuture<'static, Answered> {
        let registers = name == "Node.Register";
        if registers && self.0.fetch_add(1, Ordering::Relaxed) == 1 {
            let error = Refusal::internal("not now");
            return std::future::ready(Err(error)).boxed();
        }
        self.1.dispatch(name, call, body)
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_metadata_that_the_servers_did_not_take_is_told_again() {
    let deaf = |service| -> Arc<dyn Dispatch> { Arc::new(Deaf(Default::default(), service)) };
    let world = World::start_behind(deaf).await;
    let client = world.client();
    let id = client.node_id();
    let row = || nodes::get(&world.server.projections.view(), &id).unwrap();
    until("the node is there", || row().is_some()).await;
    let metadata = client.apply_metadata(changes(&[("rack", Some("r7"))]));
    let metadata = metadata.await.unwrap();
    until("the servers know", || {
        row().is_some_and(|node| node.meta == metadata.meta)
    })
    .await;
    until("all is well", || client.health().is_ok()).await;
}
