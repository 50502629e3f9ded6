//! How a subscriber is left, and what is left of what was kept for it.

use drover_testkit::{LONG, eventually_async};

use super::page::Needs;
use super::ring::RingLookup;
use super::stream_test::{empty_log, node, publishing, reader, with_nodes};
use crate::reactors::testing::Direct;

#[tokio::test]
async fn who_is_sent_away_is_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("there");
    with_nodes(0..5, &there);
    let server = Direct::new();
    server.install(&there);
    let log = empty_log(dir.path());
    let (publisher, stop, running) = publishing(&server, &log);
    // What came before the snapshot is not sent from here; for what comes next it waits until its
    // right to it ends.
    for (position, ends, code) in [(1, false, 410), (6, true, 403)] {
        let own = (&server, &log);
        let (mut reader, mut stream) = reader(own, &publisher, "namespace=*", position).await;
        reader.subscription.form.sse = true;
        let right = async move {
            if !ends {
                std::future::pending::<()>().await;
            }
        };
        reader.run(right).await;
        let mut reported = Vec::new();
        while let Some(piece) = stream.recv().await {
            reported.extend_from_slice(&piece);
        }
        let reported = String::from_utf8(reported).unwrap();
        // The first frame begins with when to come back.
        let error = format!("retry: 1000\nevent: error\ndata: {{\"Code\":{code},\"Message\":\"");
        let (_, message) = reported
            .split_once(&error)
            .unwrap_or_else(|| panic!("{reported}"));
        assert!(message.ends_with("\"}\n\n"), "{reported}");
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn nothing_is_kept_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let server = Direct::new();
    let log = empty_log(dir.path());
    let (publisher, stop, running) = publishing(&server, &log);
    let needs = Needs::default();
    let mut subscriber = publisher.ring().subscribe(needs).await;
    let (index, _) = server.apply(node(1));
    subscriber.reached(index).await;
    let found = || publisher.ring().read(index, needs);
    assert!(matches!(found(), RingLookup::Page(_)));
    drop(subscriber);
    let forgotten = eventually_async("the ring to be empty", LONG, async || match found() {
        RingLookup::Past(upto) if upto == index => Ok(()),
        _ => Err("the page is kept"),
    });
    forgotten.await.unwrap();
    stop.cancel();
    running.await.unwrap();
}
