//! What calls are counted as, and what takes the names of callers away.
//!
//! Numbers are of the whole process: other tests add to them.

use super::acl_test::{NODE, World, submit, token};
use super::*;
use crate::rpc::methods::NodeSpecificRequest;

/// The labels of each series of a counter, and its number.
fn counted<'a>(metrics: &'a str, name: &str) -> Vec<(&'a str, u64)> {
    let lines = metrics.lines().filter_map(|line| {
        let series = line.strip_prefix(name)?;
        let (labels, value) = series.rsplit_once(' ')?;
        let whole = labels.is_empty() || labels.starts_with('{');
        Some((labels, value.parse().ok()?)).filter(|_| whole)
    });
    lines.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_10_a_setting_takes_the_names_of_callers_away_and_calls_are_counted_all_the_same() {
    const SECRET: &str = "a0a0a0a0-2222-4333-8444-555555555555";
    const ACCESSOR: &str = "a0a0a0a0-0000-4000-8000-000000000000";
    let world = World::configured(|config| {
        config.acl.enabled = true;
        config.telemetry.disable_rpc_rate_metrics_labels = true;
    })
    .await;
    submit(&world.server, token(SECRET, "client")).await;
    let nameless = |metrics: &str| {
        let reported = counted(metrics, "nomad_nomad_rpc_acl_read");
        let reported = reported
            .iter()
            .filter(|(labels, _)| !labels.contains("identity="));
        reported.map(|(_, count)| count).sum::<u64>()
    };
    let before = nameless(&world.server.prometheus());
    for _ in 0..2 {
        let who = world.call::<AclWhoAmI>(("", SECRET), Empty {}).await;
        let known = who.unwrap().identity.acl_token.expect("the caller's token");
        assert_eq!(known.accessor_id, ACCESSOR, "it is known who calls");
    }
    let metrics = world.server.prometheus();
    assert!(nameless(&metrics) >= before + 2, "{metrics}");
    assert!(!metrics.contains(ACCESSOR), "{metrics}");
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_07_calls_are_counted_and_timed_by_their_method_and_by_who_calls() {
    let world = World::start(true).await;
    let labels = [
        "route=\"Node.GetNode\"".to_owned(),
        format!("identity=\"client:{}\"", world.node),
    ];
    let of_node = |metrics: &str| {
        ["served", "timed"].map(|what| {
            let reported = counted(metrics, &format!("drover_requests_{what}_total"));
            let of_node = reported
                .iter()
                .filter(|(series, _)| labels.iter().all(|label| series.contains(label)));
            of_node.map(|(_, count)| count).sum::<u64>()
        })
    };
    let before = of_node(&world.server.prometheus());
    for _ in 0..2 {
        let request = NodeSpecificRequest {
            node_id: world.node.clone(),
            ..NodeSpecificRequest::default()
        };
        let shown = world.call::<NodeGetNode>((&world.node, NODE), request);
        assert!(shown.await.unwrap().node.is_some());
    }
    let metrics = world.server.prometheus();
    for (now, before) in of_node(&metrics).into_iter().zip(before) {
        assert!(now >= before + 2, "{metrics}");
    }
    world.server.shutdown().await;
}
