//! Decisions of a running server, made again.

use std::sync::Arc;

use drover_events::eval::EvalsDeleted;
use serde_json::{Value, json};

use super::super::harness::{Harness, job};
use crate::commands::node::RegisterNode;
use crate::proposer::decided::{Decided, Propose, RaftPropose, propose};
use drover_testkit::fixtures as testing;

/// Registers nodes: good ones, and one each that is refused at each step.
async fn nodes(h: &Harness) {
    for number in 0..6 {
        let mut node = testing::node(number);
        node.secret_id = "hash".into();
        match number {
            3 => node.datacenter = "dc9".into(),
            4 => drop(node.attributes.insert("kernel.name", "plan9".to_owned())),
            5 => {
                if let Some(resources) = &mut node.node_resources {
                    resources.memory.memory_mb = 8;
                }
            }
            _ => {}
        }
        node.computed_class = format!("v1:{number}");
        let create_node_pool = false;
        h.submit(RegisterNode {
            node,
            create_node_pool,
        })
        .await;
    }
}

/// Registers a job of so many that requires Linux; the finished evaluation.
async fn evaluated(h: &Harness, id: &str, count: i64) -> Value {
    let mut body = job(id);
    body["Job"]["TaskGroups"][0]["Count"] = json!(count);
    body["Job"]["Constraints"] =
        json!([{ "LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "=" }]);
    let reply = h.put("/v1/jobs", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let eval = reply.json()["EvalID"].as_str().expect("an id").to_owned();
    let path = format!("/v1/evaluation/{eval}");
    let row = h.until(&path, |row| row["Status"] != "pending").await;
    row.json()
}

async fn explained(h: &Harness, eval: &Value, query: &str) -> Value {
    let id = eval["ID"].as_str().expect("an id");
    let reply = h.get(&format!("/v1/evaluation/{id}/explain{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// What is said of a node in the first search.
fn of_node(explained: &Value, number: usize) -> Value {
    let id = testing::node(number).id;
    let nodes = &explained["Groups"][0]["Searches"][0]["Nodes"];
    let nodes = nodes.as_array().expect("a list").iter();
    nodes
        .clone()
        .find(|node| node["NodeID"] == id.as_str())
        .expect("every node")
        .clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_comes_out_as_it_was_committed_whatever_happened_since() {
    let h = Harness::start().await;
    nodes(&h).await;
    let eval = evaluated(&h, "web", 5).await;
    let before = explained(&h, &eval, "").await;
    assert_eq!(
        before["Comparison"]["Identical"], true,
        "{:#}",
        before["Comparison"]
    );
    assert!(
        before["Comparison"]["Compared"].as_u64() >= Some(6),
        "{:#}",
        before["Comparison"]
    );
    assert_eq!(before["Recomputed"], false);
    assert_eq!(
        before["Groups"][0]["Placements"].as_array().map(Vec::len),
        Some(5)
    );

    // Other jobs take room, and the job itself changes: the past does not.
    evaluated(&h, "other", 3).await;
    evaluated(&h, "web", 2).await;
    let after = explained(&h, &eval, "").await;
    assert_eq!(after["Groups"], before["Groups"]);
    assert_eq!(after["Comparison"], before["Comparison"]);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_has_its_score_or_the_reason_it_was_refused() {
    let h = Harness::start().await;
    nodes(&h).await;
    let eval = evaluated(&h, "web", 1).await;
    let explained = explained(&h, &eval, "").await;
    let search = &explained["Groups"][0]["Searches"][0];
    assert_eq!(search["Nodes"].as_array().map(Vec::len), Some(6));
    let chosen = search["Chosen"][0].as_str().expect("a node");
    for number in 0..3 {
        let node = of_node(&explained, number);
        assert!(
            node["Score"].as_f64().is_some_and(|score| score > 0.0),
            "{node:#}"
        );
        assert!(node["Scores"]["binpack"].is_number(), "{node:#}");
        if node["NodeID"] == chosen {
            assert_eq!(node["Reached"], true);
        }
    }
    for (number, step, reason) in [
        (3, "outside", "datacenter \"dc9\""),
        (4, "infeasible", "${attr.kernel.name} = linux"),
        (5, "exhausted", "memory"),
    ] {
        let node = of_node(&explained, number);
        assert_eq!(node["Refused"], step, "{node:#}");
        let text = node["Reason"].as_str().expect("a reason");
        assert!(text.contains(reason), "{text}");
        assert!(node["Score"].is_null());
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_found_no_place_is_explained_too() {
    let h = Harness::start().await;
    nodes(&h).await;
    // Too many for the room there is.
    let mut body = job("big");
    body["Job"]["TaskGroups"][0]["Count"] = json!(5);
    body["Job"]["TaskGroups"][0]["Tasks"][0]["Resources"] = json!({ "CPU": 3000, "MemoryMB": 16 });
    let reply = h.put("/v1/jobs", &body).await;
    let id = reply.json()["EvalID"].as_str().expect("an id").to_owned();
    let path = format!("/v1/evaluation/{id}");
    let row = h.until(&path, |row| row["Status"] != "pending").await;
    assert!(
        !row.json()["BlockedEval"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    );
    let explained = explained(&h, &row.json(), "").await;
    assert_eq!(
        explained["Comparison"]["Identical"], true,
        "{:#}",
        explained["Comparison"]
    );
    let group = &explained["Groups"][0];
    assert!(
        group["Failed"]["NodesExhausted"].as_i64() > Some(0),
        "{group:#}"
    );
    let searches = group["Searches"].as_array().expect("a list");
    let failed = searches.last().expect("a search");
    assert_eq!(failed["Chosen"], json!([]));
    for node in failed["Nodes"].as_array().expect("a list") {
        assert!(node["Score"].is_null(), "{node:#}");
        assert_ne!(node["Reason"], "", "{node:#}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_gone_is_explained_as_of_when_it_was_there() {
    let h = Harness::start().await;
    nodes(&h).await;
    let eval = evaluated(&h, "web", 1).await;
    let id = eval["ID"].as_str().expect("an id");
    let event = EvalsDeleted {
        eval_ids: vec![id.to_owned()],
        ..EvalsDeleted::default()
    };
    let proposer: Arc<dyn Propose> = Arc::new(RaftPropose::new(h.server.proposer.clone(), "me"));
    let outcome = propose(&proposer, Decided::new("tester", event)).await;
    let deleted = outcome.expect("it is deleted").index;
    for id in [id, &id[..8]] {
        let reply = h.get(&format!("/v1/evaluation/{id}/explain")).await;
        assert_eq!(reply.status, 410, "{}", reply.text());
        let hint = format!("as_of={} (drover eval explain -at=", deleted - 1);
        assert!(reply.text().contains(&hint), "{}", reply.text());
    }
    let then = explained(&h, &eval, &format!("?as_of={}", deleted - 1)).await;
    assert_eq!(then["Comparison"]["Identical"], true, "{then:#}");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_explained_is_said() {
    let h = Harness::start().await;
    nodes(&h).await;
    let eval = evaluated(&h, "web", 1).await;
    let id = eval["ID"].as_str().expect("an id");
    let created = eval["CreateIndex"].as_u64().expect("an index");
    for (target, status, text) in [
        (
            "/v1/evaluation/none/explain".to_owned(),
            404,
            "eval not found",
        ),
        (
            format!("/v1/evaluation/{id}/explain?snapshot=x"),
            400,
            "snapshot",
        ),
        (
            format!("/v1/evaluation/{id}/explain?snapshot=1"),
            400,
            "snapshot",
        ),
        (
            format!("/v1/evaluation/{id}/explain?as_of={created}"),
            409,
            "it is pending",
        ),
    ] {
        let reply = h.get(&target).await;
        assert_eq!(reply.status, status, "{target}: {}", reply.text());
        assert!(reply.text().contains(text), "{target}: {}", reply.text());
    }
    let from = explained(&h, &eval, "").await["Decision"]["SnapshotIndex"].clone();
    let same = explained(&h, &eval, &format!("?snapshot={from}")).await;
    assert_eq!(same["Decision"]["SnapshotIndex"], from);
    h.stop().await;
}
