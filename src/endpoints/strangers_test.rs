//! Strangers that call without end.

use std::time::Duration;

use drover_events::{Actor, ActorKind};

use super::acl_test::{NODE, OTHER, ROOT, World};
use super::*;
use crate::endpoints::testing::encoded;
use crate::error::Code;
use crate::requests::{self, Class, RequestQuery};
use crate::rpc::Rpc as _;
use crate::rpc::service::Dispatch as _;

/// More than are written at once of one address.
const REQUESTED: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_09_of_strangers_who_ask_without_end_some_are_written_down_and_the_rest_counted() {
    let world = World::start(true).await;
    let beat = Box::new(|_: &str| Duration::from_secs(60));
    let served = service(Arc::clone(&world.server.0), beat);
    let about = serde_json::json!({"NodeID": world.node});
    let ask = async |addr: &str, (node, token): (&str, &str)| {
        let call = Call {
            addr: addr.to_owned(),
            node: node.to_owned(),
            token: token.to_owned(),
            ..Call::default()
        };
        let answer = served.dispatch(NodeGetNode::NAME, call, encoded(&about));
        assert_eq!(answer.await.unwrap_err().code, Code::PermissionDenied);
    };
    let (many, one) = ("198.51.100.1", "198.51.100.2");
    for _ in 0..REQUESTED {
        ask(many, ("", "guess")).await;
    }
    ask(one, ("", "guess")).await;
    // A caller that has proved who it is is written down each time, whatever strangers do.
    ask(many, (&world.other, OTHER)).await;
    // So is one with a token that the method does not require.
    ask(many, ("", ROOT)).await;
    let log = world.server.requests.records().expect("one is kept");
    let requested = RequestQuery {
        class: Some(Class::Denied),
        limit: 2 * REQUESTED,
        ..RequestQuery::default()
    };
    let reported = requests::list(&*log, &requested).unwrap().entries;
    let of = |addr: &str, id: &str| {
        let actor = reported.iter().map(|entry| &entry.received.actor);
        let of = actor.filter(|actor| actor.addr == addr && actor.id == id);
        of.count()
    };
    assert!(of(many, "") < REQUESTED, "all are written down");
    assert_eq!((of(one, ""), of(many, &world.other)), (1, 1));
    let of_token = |actor: &Actor| actor.addr == many && actor.kind == ActorKind::Token;
    let of_token = reported
        .iter()
        .filter(|entry| of_token(&entry.received.actor));
    assert_eq!(of_token.count(), 1);
    let left_out = reported.iter().flat_map(|entry| &entry.received.left_out);
    let left_out: u64 = left_out
        .inspect(|(address, _)| assert_eq!(*address, many))
        .map(|(_, number)| number)
        .sum();
    assert_eq!(of(many, "") + usize::try_from(left_out).unwrap(), REQUESTED);
    let text = serde_json::to_string(&reported).unwrap();
    assert!(text.contains("\"LeftOut\"") && !text.contains(NODE) && !text.contains("guess"));
    assert!(!text.contains(ROOT));
    world.server.shutdown().await;
}
