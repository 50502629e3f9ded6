//! The stream when the state is replaced by a snapshot.

use std::path::Path;
use std::sync::Arc;

use drover_events::model::Node;
use drover_events::node::NodeRegistered;
use drover_projections::Projections;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::http::query::Query;
use crate::reactors::testing::Direct;

/// Bytes of a snapshot's file at most.
const FILE: u64 = 1 << 20;

fn node(number: usize) -> NodeRegistered {
    let node = Node {
        id: format!("00000000-0000-4000-8000-{number:012}"),
        name: format!("n{number}"),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        status: "ready".into(),
        ..Node::default()
    };
    NodeRegistered {
        node: Box::new(node),
        ..NodeRegistered::default()
    }
}

/// A server with this many nodes, and its state as files.
fn with_nodes(numbers: std::ops::Range<usize>, snapshot: &Path) -> Arc<Direct> {
    let server = Direct::new();
    for number in numbers {
        server.apply(node(number));
    }
    let view = server.projections.view();
    view.write_snapshot(snapshot, FILE).unwrap();
    server
}

/// A subscriber to everything from a position on.
async fn subscribe(
    projections: &Arc<Projections>,
    publisher: &Publisher,
    position: u64,
) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let ring = Arc::clone(publisher.ring());
    let published = ring.listen().await;
    let query = Query::parse(Some("namespace=*")).unwrap();
    let reader = Reader {
        projections: Arc::clone(projections),
        position: if position == 0 { ring.head() } else { position },
        ring,
        subscription: Subscription::read(&query).unwrap(),
        published,
        sender,
    };
    tokio::spawn(reader.run());
    receiver
}

/// The next lines that are not heartbeats; none when the stream has ended.
async fn lines(stream: &mut mpsc::Receiver<Bytes>) -> Option<Vec<Value>> {
    loop {
        let bytes = stream.recv().await?;
        let values = serde_json::Deserializer::from_slice(&bytes).into_iter();
        let values = values.map(|value: Result<Value, _>| value.unwrap());
        let news: Vec<Value> = values.filter(|line| line["Index"].is_u64()).collect();
        if !news.is_empty() {
            return Some(news);
        }
    }
}

fn indexes(lines: &[Value]) -> Vec<u64> {
    let index = |line: &Value| line["Index"].as_u64().unwrap();
    lines.iter().map(index).collect()
}

#[tokio::test]
async fn ev_04_a_snapshot_taken_in_is_no_news_to_subscribers() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    with_nodes(0..60, &there);
    let server = with_nodes(100..103, &here);
    let publisher = Arc::new(Publisher::default());
    let stop = CancellationToken::new();
    let running = {
        let (publisher, stop) = (Arc::clone(&publisher), stop.clone());
        let projections = Arc::clone(&server.projections);
        tokio::spawn(async move { publisher.run(projections, stop).await })
    };
    let mut published = publisher.ring().listen().await;
    published.wait_for(|upto| *upto == 3).await.unwrap();
    let mut live = subscribe(&server.projections, &publisher, 1).await;
    assert_eq!(indexes(&lines(&mut live).await.unwrap()), [1, 2, 3]);

    server.install(&there);
    published.wait_for(|upto| *upto == 60).await.unwrap();
    // What he waited for is not told here, so he is sent away instead of being left with a gap.
    assert_eq!(lines(&mut live).await, None);
    // Rows of the past are no news to who comes now either.
    let mut new = subscribe(&server.projections, &publisher, 0).await;
    let (index, _) = server.apply(node(200));
    let news = lines(&mut new).await.unwrap();
    assert_eq!((index, indexes(&news)), (61, vec![61]));
    assert_eq!(news[0]["Events"].as_array().unwrap().len(), 1);
    assert_eq!(news[0]["Events"][0]["Payload"]["Node"]["Name"], "n200");
    // A position of the time before is refused by name, the first one after it is not.
    for gone in [1, 4, 60] {
        let refusal = told(&server.projections, gone).unwrap_err();
        assert_eq!(refusal.code.status(), 410, "{gone}");
        assert!(refusal.message.contains("61"), "{refusal}");
    }
    assert!(told(&server.projections, 61).is_ok());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn ev_04_a_restart_after_a_snapshot_knows_where_the_past_begins() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("there");
    with_nodes(0..5, &there);
    let server = Direct::new();
    server.install(&there);
    let publisher = Arc::new(Publisher::default());
    let stop = CancellationToken::new();
    let running = {
        let (publisher, stop) = (Arc::clone(&publisher), stop.clone());
        let projections = Arc::clone(&server.projections);
        tokio::spawn(async move { publisher.run(projections, stop).await })
    };
    // It begins with the newest batches of the past; there are none.
    let _published = publisher.ring().listen().await;
    assert!(matches!(publisher.ring().read(5, PIECE), Found::Before));
    assert!(matches!(publisher.ring().read(6, PIECE), Found::Nothing));
    stop.cancel();
    running.await.unwrap();
}
