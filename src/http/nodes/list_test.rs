//! Where a list of nodes begins.

use drover_testkit::fixtures::node;
use serde_json::Value;

use crate::commands::node::RegisterNode;
use crate::http::harness::Harness;

/// What is no id sorts otherwise as a key than as a text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_listed_from_a_token_on_whether_or_not_it_is_an_id() {
    let h = Harness::start().await;
    for number in [1, 2] {
        let mut node = node(number);
        node.secret_id = "hash".into();
        let create_node_pool = false;
        let command = RegisterNode {
            node,
            create_node_pool,
        };
        h.submit(command).await;
    }
    let second = node(2).id;
    for (token, reverse, names) in [
        ("", false, &["node-1", "node-2"][..]),
        ("0", false, &["node-1", "node-2"]),
        (&second, false, &["node-2"]),
        ("00000001", false, &["node-1", "node-2"]),
        ("00000002", false, &["node-2"]),
        ("1", false, &[]),
        ("0", true, &[]),
        ("00000002", true, &["node-1"]),
        (&second, true, &["node-2", "node-1"]),
        ("1", true, &["node-2", "node-1"]),
    ] {
        let target = format!("/v1/nodes?resources=true&reverse={reverse}&next_token={token}");
        let list = h.get(&target).await.json();
        let rows = list.as_array().expect("a list").iter();
        let found: Vec<&Value> = rows.map(|row| &row["Name"]).collect();
        assert_eq!(found, names, "{target}");
    }
    h.stop().await;
}
