//! How a subscriber is left.

use super::stream_test::{empty_log, publishing, reader, with_nodes};
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
        let error = format!("event: error\ndata: {{\"Code\":{code},\"Message\":\"");
        let (_, message) = reported
            .split_once(&error)
            .unwrap_or_else(|| panic!("{reported}"));
        assert!(message.ends_with("\"}\n\n"), "{reported}");
    }
    stop.cancel();
    running.await.unwrap();
}
