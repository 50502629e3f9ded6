//! What a page holds of what happened, and what it does not; and what the past does.

use std::sync::Arc;

use drover_events::acl::AclPoliciesUpserted;
use drover_events::model::AclPolicy;
use drover_events::namespace::NamespacesDeleted;
use drover_events::node::NodeRegistered;
use serde_json::{Value, json};

use super::form::Form;
use super::page::{Clouds, Needs, StreamPage};
use super::report::{PastWalk, Subscription};
use super::selection::Selection;
use super::stream_test::{empty_log, node};
use super::walk::WalkSource;
use crate::acl::Acl;
use crate::http::harness::{Given, Harness};
use crate::http::permit::Permit;
use crate::http::query::Query;
use crate::proposer::Origin;
use crate::reactors::testing::Direct;

/// A node whose line is a little longer than this.
fn heavy(bytes: usize) -> NodeRegistered {
    let mut event = node(bytes);
    event.node.attributes.insert("weight", "x".repeat(bytes));
    event
}

#[test]
fn what_is_big_is_measured_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let log = empty_log(dir.path());
    let server = Direct::new();
    // The second is not too big; it would be with what stands before it.
    for bytes in [50_000, 1_000_000] {
        server.apply(heavy(bytes));
    }
    let view = server.projections.view();
    let source = WalkSource {
        view: &view,
        log: &log,
    };
    let page = StreamPage::render(source, (1, 2), Needs::default(), &Clouds::default()).unwrap();
    assert_eq!(
        (page.upto, page.batches.len(), page.too_big),
        (2, 2, false),
        "both are in it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_is_not_told() {
    let h = Harness::start().await;
    let first = h.server.projections.view().index() + 1;
    let gone = |name: &str| {
        let names = vec![name.to_owned()];
        Given(NamespacesDeleted { names }.into())
    };
    let command = Arc::new(gone("nowhere"));
    let refused = h.server.proposer.submit(command, Origin::default()).await;
    assert!(refused.is_err(), "there is no such namespace");
    let made = h.put("/v1/namespace", &json!({ "Name": "there" })).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let done = h.submit(gone("there")).await;
    let view = h.server.projections.view();
    let is_refused = |at: &u64| view.rejection(*at).unwrap().is_some();
    let refused: Vec<u64> = (first..=done).filter(is_refused).collect();
    assert!(!refused.is_empty(), "it is in the log");
    let source = WalkSource {
        view: &view,
        log: &h.api.log,
    };
    let needs = Needs {
        log: true,
        ..Needs::default()
    };
    let page = StreamPage::render(source, (first, done), needs, &Clouds::default()).unwrap();
    let reported: Vec<u64> = page.batches.iter().map(|batch| batch.index).collect();
    assert!(reported.contains(&done), "{done}: {reported:?}");
    let reported_of = |at: &u64| reported.contains(at);
    assert!(
        !refused.iter().any(reported_of),
        "{refused:?}: {reported:?}"
    );
    h.stop().await;
}

/// A reader of the page would get it again with the one that follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_big_leaves_nothing_in_the_page_before_it() {
    let h = Harness::start().await;
    let small = h.submit(Given(heavy(100).into())).await;
    // Its line is none too big, its two CloudEvents are together.
    let big = h.submit(Given(heavy(600_000).into())).await;
    let (view, log) = (h.server.projections.view(), &h.api.log);
    let needs = Needs {
        log: true,
        cloud_events: true,
        cloud_events_without_hashes: true,
        ..Needs::default()
    };
    let clouds = h.publisher.clouds(log.epoch().id);
    let rendered = |range: (u64, u64)| {
        let source = WalkSource { view: &view, log };
        StreamPage::render(source, range, needs, &clouds).unwrap()
    };
    assert!(rendered((big, big)).too_big, "it is kept nowhere");
    let (page, before) = (rendered((small, big)), rendered((small, big - 1)));
    assert_eq!((page.upto, page.too_big), (big - 1, false));
    assert!(!page.lines(small).is_empty());
    assert!(page.lines(small) == before.lines(small));
    let lengths = |page: &StreamPage| -> Vec<usize> {
        let batches = page.batches.iter();
        batches.map(|batch| batch.line.len()).collect()
    };
    assert_eq!(lengths(&page), lengths(&before));
    h.stop().await;
}

#[test]
fn a_policy_is_sent_with_its_rules() {
    let dir = tempfile::tempdir().unwrap();
    let log = empty_log(dir.path());
    let server = Direct::new();
    let policy = AclPolicy {
        name: "ops".into(),
        rules: "agent { policy = \"read\" }".into(),
        ..AclPolicy::default()
    };
    let policies = vec![policy.clone()];
    let (index, _) = server.apply(AclPoliciesUpserted { policies });
    let view = server.projections.view();
    let source = WalkSource {
        view: &view,
        log: &log,
    };
    let (range, needs) = ((index, index), Needs::default());
    let page = StreamPage::render(source, range, needs, &Clouds::default()).unwrap();
    let line: Value = serde_json::from_slice(&page.lines(index)).unwrap();
    let sent = &line["Events"][0]["Payload"]["ACLPolicy"];
    assert_eq!(
        (&sent["Name"], &sent["Rules"]),
        (&json!(policy.name), &json!(policy.rules)),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_past_that_is_sent_which_a_wanted_actor_did() {
    let h = Harness::start().await;
    let first = h.server.projections.view().index() + 1;
    h.register("web").await;
    // By the actor `test`.
    h.submit(Given(node(1).into())).await;
    let (view, log) = (h.server.projections.view(), &h.api.log);
    let (source, last) = (WalkSource { view: &view, log }, view.index());
    let id = node(1).node.id.clone();
    for (query, wanted) in [
        ("namespace=*", [true, true]),
        ("namespace=*&actor=test", [false, true]),
        ("namespace=*&actor=nobody", [false, false]),
    ] {
        let subscription = Subscription {
            selection: Selection::read(&Query::parse(Some(query)).unwrap(), false).unwrap(),
            form: Form::default(),
            permit: Permit::of(Arc::new(Acl::management())),
            clouds: Clouds::default(),
        };
        let mut sent = Vec::new();
        let reported = PastWalk::default().report(source, &subscription, (first, last), &mut sent);
        assert_eq!(
            reported.unwrap(),
            last + 1,
            "{query}: it is all in one piece"
        );
        let sent = String::from_utf8(sent).unwrap();
        let is_sent = ["web", id.as_str()].map(|key| sent.contains(&format!("\"Key\":\"{key}\"")));
        assert_eq!(is_sent, wanted, "{query}: {sent}");
    }
    drop(view);
    h.stop().await;
}
