//! The stream when the state is replaced by a snapshot.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use drover_events::eval::EvalsUpserted;
use drover_events::model::{Evaluation, Node};
use drover_events::node::NodeRegistered;
use drover_testkit::LONG;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::page::{Needs, StreamPage};
use super::reader::{HEARTBEAT, PositionReport};
use super::report::PIECE;
use super::ring::RingLookup;
use super::*;
use crate::acl::{self, Acl, Strictness};
use crate::http::harness::Harness;
use crate::http::query::Query;
use crate::log::LogEngine;
use crate::reactors::testing::Direct;

/// Bytes of a snapshot's file at most.
const FILE: u64 = 1 << 20;

pub(super) fn node(number: usize) -> NodeRegistered {
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
pub(super) fn with_nodes(numbers: std::ops::Range<usize>, snapshot: &Path) -> Arc<Direct> {
    let server = Direct::new();
    for number in numbers {
        server.apply(node(number));
    }
    let view = server.projections.view();
    view.write_snapshot(snapshot, FILE, &|_| Ok(())).unwrap();
    server
}

/// An empty log: what these tests send lies in the projections.
pub(super) fn empty_log(dir: &Path) -> Arc<LogEngine> {
    let (log, _) = LogEngine::open(&dir.join("log"), crate::log::LogOptions::default()).unwrap();
    Arc::new(log)
}

/// A publisher that runs, and what stops it.
pub(super) fn publishing(
    server: &Arc<Direct>,
    log: &Arc<LogEngine>,
) -> (
    Arc<Publisher>,
    CancellationToken,
    tokio::task::JoinHandle<()>,
) {
    let publisher = Arc::new(Publisher::default());
    let stop = CancellationToken::new();
    let running = {
        let (publisher, stop) = (Arc::clone(&publisher), stop.clone());
        let (projections, log) = (Arc::clone(&server.projections), Arc::clone(log));
        tokio::spawn(async move { publisher.run(projections, log, stop).await })
    };
    (publisher, stop, running)
}

/// A subscriber from a position on.
async fn subscribe(
    server: (&Arc<Direct>, &Arc<LogEngine>),
    publisher: &Publisher,
    query: &str,
    position: u64,
) -> mpsc::Receiver<Bytes> {
    let (reader, receiver) = reader(server, publisher, query, position).await;
    tokio::spawn(reader.run(std::future::pending()));
    receiver
}

pub(super) async fn reader(
    (server, log): (&Arc<Direct>, &Arc<LogEngine>),
    publisher: &Publisher,
    query: &str,
    position: u64,
) -> (StreamReader, mpsc::Receiver<Bytes>) {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let selection = Selection::read(&Query::parse(Some(query)).unwrap(), false).unwrap();
    let form = Form::default();
    let subscription = Subscription {
        selection,
        form,
        permit: Permit::of(Arc::new(Acl::management())),
        clouds: publisher.clouds(log.epoch().id),
    };
    let reader = StreamReader {
        projections: Arc::clone(&server.projections),
        log: Arc::clone(log),
        position,
        past: PastWalk::default(),
        subscriber: publisher.ring().subscribe(subscription.needs()).await,
        subscription,
        sender,
        begun: false,
    };
    (reader, receiver)
}

/// The next lines that are not heartbeats; none when the stream has ended.
async fn lines(stream: &mut mpsc::Receiver<Bytes>) -> Option<Vec<Value>> {
    let mut bytes = Vec::new();
    let news = async {
        loop {
            let piece = stream.recv().await?;
            bytes.extend_from_slice(&piece);
            if !bytes.ends_with(b"\n") {
                continue;
            }
            let bytes = std::mem::take(&mut bytes);
            let values = serde_json::Deserializer::from_slice(&bytes).into_iter();
            let values = values.map(|value: Result<Value, _>| value.unwrap());
            let news: Vec<Value> = values.filter(|line| line["Index"].is_u64()).collect();
            if !news.is_empty() {
                return Some(news);
            }
        }
    };
    timeout(LONG, news).await.expect("lines in time")
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
    let log = empty_log(dir.path());
    let (publisher, stop, running) = publishing(&server, &log);
    let all = "namespace=*";
    let mut subscriber = publisher.ring().subscribe(Needs::default()).await;
    subscriber.reached(3).await;
    let mut live = subscribe((&server, &log), &publisher, all, 1).await;
    assert_eq!(indexes(&lines(&mut live).await.unwrap()), [1, 2, 3]);

    server.install(&there);
    subscriber.reached(60).await;
    // What it waited for is not sent from here, so it is sent away instead of being left with a
    // gap.
    assert_eq!(lines(&mut live).await, None);
    // Rows of the past are no news to who comes now either.
    let newest = server.projections.view().newest_published(100);
    assert_eq!(newest.unwrap(), Vec::<u64>::new());
    let mut new = subscribe((&server, &log), &publisher, all, 61).await;
    let (index, _) = server.apply(node(200));
    let news = lines(&mut new).await.unwrap();
    assert_eq!((index, indexes(&news)), (61, vec![61]));
    assert_eq!(news[0]["Events"].as_array().unwrap().len(), 1);
    assert_eq!(news[0]["Events"][0]["Payload"]["Node"]["Name"], "n200");
    // A position of the time before is refused by name, the first one after it is not.
    let horizon = walk::horizon(&server.projections.view(), &log);
    for gone in [1, 4, 60] {
        let refusal = walk::require_horizon(gone, horizon).unwrap_err();
        assert_eq!(crate::net::status(refusal.code), 410, "{gone}");
        assert!(refusal.message.contains("61"), "{refusal}");
    }
    assert!(walk::require_horizon(61, horizon).is_ok());
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
    let log = empty_log(dir.path());
    let (publisher, stop, running) = publishing(&server, &log);
    let none = Needs::default();
    let _subscriber = publisher.ring().subscribe(none).await;
    assert!(matches!(
        publisher.ring().read(5, none),
        RingLookup::Past(5)
    ));
    assert!(matches!(
        publisher.ring().read(6, none),
        RingLookup::Nothing(_)
    ));
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_reader_who_reads_nothing_for_long_is_told_everything_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let log = empty_log(dir.path());
    let server = Direct::new();
    let (publisher, stop, running) = publishing(&server, &log);
    let mut subscribers = Vec::new();
    for query in ["namespace=*", "topic=Node", "filter=Node.Datacenter==dc1"] {
        subscribers.push(subscribe((&server, &log), &publisher, query, 1).await);
    }
    let mut subscriber = publisher.ring().subscribe(Needs::default()).await;
    // Far more bytes than the ring and the channels hold together.
    for number in 0..100 {
        let mut event = node(number);
        event
            .node
            .attributes
            .insert("weight", "x".repeat(256 << 10));
        server.apply(event);
    }
    subscriber.reached(100).await;
    assert!(matches!(
        publisher.ring().read(1, Needs::default()),
        RingLookup::Past(_)
    ));
    for mut stream in subscribers {
        let mut reported = Vec::new();
        while reported.len() < 100 {
            let bytes = timeout(LONG, stream.recv()).await;
            let bytes = bytes.expect("pieces in time").unwrap();
            // A line is too long to be decoded here again and again: its beginning says enough.
            let begins = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
                let index = line
                    .strip_prefix(b"{\"Index\":")?
                    .split(|byte| *byte == b',');
                std::str::from_utf8(index.clone().next()?)
                    .ok()?
                    .parse()
                    .ok()
            });
            reported.extend(begins.collect::<Vec<u64>>());
        }
        assert_eq!(reported, (1..=100).collect::<Vec<u64>>());
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_key_is_told_of_by_looking_it_up() {
    let dir = tempfile::tempdir().unwrap();
    let log = empty_log(dir.path());
    let server = Direct::new();
    let (publisher, stop, running) = publishing(&server, &log);
    let mut wanted = Vec::new();
    for number in 0..900 {
        let rare = number % 300 == 7;
        let (index, _) = server.apply(node(if rare { 7 } else { 1000 + number }));
        wanted.extend(rare.then_some(index));
    }
    let id = node(7).node.id.clone();
    let sparse = format!("topic=Node:{id}&namespace=*");
    let scanned = format!("topic=Node&filter=Node.ID==%22{id}%22");
    for query in [sparse, scanned] {
        let mut stream = subscribe((&server, &log), &publisher, &query, 1).await;
        let mut reported = Vec::new();
        while reported.len() < wanted.len() {
            reported.extend(indexes(&lines(&mut stream).await.unwrap()));
        }
        assert_eq!(reported, wanted, "{query}");
        let (next, _) = server.apply(node(7));
        assert_eq!(
            indexes(&lines(&mut stream).await.unwrap()),
            [next],
            "{query}"
        );
        wanted.push(next);
    }
    stop.cancel();
    running.await.unwrap();
}

/// Evaluations of one event, more of them than fit into a piece.
fn many(number: usize) -> EvalsUpserted {
    let eval = |eval| Evaluation {
        id: format!("00000000-0000-4000-8000-{number:06}{eval:06}"),
        namespace: "default".into(),
        job_id: "web".into(),
        status: "complete".into(),
        status_description: "x".repeat(4 << 10),
        ..Evaluation::default()
    };
    EvalsUpserted {
        evals: (0..300).map(eval).collect(),
        ..EvalsUpserted::default()
    }
}

/// All that is written of the past up to an index, piece by piece, by what writes one and answers
/// the next index.
fn walked(last: u64, mut write: impl FnMut((u64, u64), &mut Vec<u8>) -> u64) -> Vec<u8> {
    let (mut all, mut next, mut pieces) = (Vec::new(), 1, 0);
    while next <= last {
        pieces += 1;
        assert!(pieces < 100_000, "{next} of {last}");
        let mut piece = Vec::new();
        next = write((next, last), &mut piece);
        all.append(&mut piece);
    }
    all
}

#[tokio::test]
async fn what_two_threads_tell_of_the_past_is_what_one_tells() {
    let dir = tempfile::tempdir().unwrap();
    let log = empty_log(dir.path());
    let server = Direct::new();
    for number in 0..3_000 {
        let mut event = node(number);
        let weight = if number % 7 == 0 {
            20_000
        } else {
            number % 900
        };
        event.node.attributes.insert("weight", "x".repeat(weight));
        server.apply(event);
        if [90, 100, 101, 1_700].contains(&number) {
            server.apply(many(number));
        }
    }
    let view = server.projections.view();
    let (last, source) = (
        view.index(),
        walk::WalkSource {
            view: &view,
            log: &log,
        },
    );
    let (publisher, stop, running) = publishing(&server, &log);
    for query in [
        "namespace=*",
        "topic=Evaluation&namespace=*",
        "filter=Node.Name==n2999",
        "topic=Node:*",
    ] {
        let (reader, _) = reader((&server, &log), &publisher, query, 1).await;
        let (subscription, mut past) = (&reader.subscription, PastWalk::default());
        let alone = walked(last, |range, piece| {
            let next = past.report_one(source, subscription, range, PIECE, piece);
            next.unwrap()
        });
        // Another test may have the thread.
        let mut width = 0;
        for _ in 0..100 {
            let mut past = PastWalk::default();
            let reported = walked(last, |range, piece| {
                let next = past.report(source, subscription, range, piece);
                next.unwrap()
            });
            assert!(
                reported == alone,
                "{query}: {} {}",
                reported.len(),
                alone.len()
            );
            width = past.width;
            if width > 0 {
                break;
            }
        }
        let helped = std::thread::available_parallelism().unwrap().get() == 1 || width > 0;
        assert!(helped && !alone.is_empty(), "{query}");
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn who_waits_for_a_long_search_hears_that_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = empty_log(dir.path());
    let server = Direct::new();
    let (publisher, stop, running) = publishing(&server, &log);
    let (mut reader, mut stream) = reader((&server, &log), &publisher, "topic=Job", 1).await;
    let mut last_report = PositionReport {
        position: 0,
        at: tokio::time::Instant::now(),
    };
    assert!(reader.say_while_searching(&mut last_report).await);
    assert!(stream.try_recv().is_err(), "it is not long yet");
    last_report.at -= HEARTBEAT;
    assert!(reader.say_while_searching(&mut last_report).await);
    assert_eq!(
        stream.try_recv().unwrap(),
        reader.subscription.form.heartbeat()
    );
    assert!(reader.say_while_searching(&mut last_report).await);
    assert!(stream.try_recv().is_err(), "it was said just now");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_of_our_own_weighs_and_is_kept_nowhere_where_it_is_big() {
    let server = Harness::start().await;
    let mut indexes = Vec::new();
    for bytes in [50_000, 50_000, 50_000, 1_100_000] {
        let meta = json!({ "m": "x".repeat(bytes) });
        let body = json!({ "Name": format!("n{}", indexes.len()), "Meta": meta });
        let reply = server.put("/v1/namespace", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        indexes.push(reply.index());
    }
    let clouds = server.publisher.clouds(server.api.log.epoch().id);
    let (view, log) = (server.api.projections.view(), &server.api.log);
    let needs = Needs {
        log: true,
        ..Needs::default()
    };
    let rendered = |range: (u64, u64)| {
        let source = walk::WalkSource { view: &view, log };
        StreamPage::render(source, range, needs, &clouds).unwrap()
    };
    let alone = |index: u64| (index, index);
    assert!(rendered(alone(indexes[0])).memory_bytes() > 50_000);
    let page = rendered((indexes[0], indexes[3]));
    assert_eq!((page.upto, page.too_big), (indexes[1], false));
    let big = rendered(alone(indexes[3]));
    assert!(big.too_big && big.memory_bytes() < 1_000);
    server.stop().await;
}

/// Each subscriber with a filter of its own reads the same document.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_taken_out_of_its_text_once_for_all_who_filter() {
    let h = Harness::start().await;
    let view = h.server.projections.view();
    let first = view.index() + 1;
    drop(view);
    for id in ["one", "two", "three"] {
        h.register(id).await;
    }
    let view = h.server.projections.view();
    let source = walk::WalkSource {
        view: &view,
        log: &h.api.log,
    };
    let subscription = |id: &str| {
        let filter = format!("namespace=*&topic=Job&filter=Payload.Job.ID%3D%3D{id}");
        let form = Form {
            cloud: true,
            ..Form::default()
        };
        Subscription {
            selection: Selection::read(&Query::parse(Some(&filter)).unwrap(), true).unwrap(),
            form,
            permit: Permit::of(Arc::new(Acl::management())),
            clouds: h.publisher.clouds(h.api.log.epoch().id),
        }
    };
    let subscriptions = ["one", "two", "three", "none"].map(subscription);
    let needs = subscriptions[0].needs();
    assert!(needs.documents && needs.cloud_events);
    sample::PARSED.set(0);
    let clouds = &subscriptions[0].clouds;
    let page = StreamPage::render(source, (first, view.index()), needs, clouds).unwrap();
    assert!(page.batches.len() >= 3);
    let reported = subscriptions.each_ref().map(|subscription| {
        let mut out = Vec::new();
        for batch in &page.batches {
            subscription.report(batch, &mut out).unwrap();
        }
        out.iter().filter(|byte| **byte == b'\n').count()
    });
    assert_eq!(reported, [1, 1, 1, 0]);
    assert_eq!(sample::PARSED.get(), page.batches.len());
    // Who has none has nothing parsed for it, and pages without documents are none for who has.
    sample::PARSED.set(0);
    let plain = Needs {
        documents: false,
        ..needs
    };
    StreamPage::render(source, (first, view.index()), plain, clouds).unwrap();
    assert_eq!(sample::PARSED.get(), 0);
    assert!(!plain.cover(needs) && needs.cover(plain));
    drop(view);
    h.stop().await;
}

/// A caller that writes values and sees hashes of others' finds out what those are.
#[tokio::test(flavor = "multi_thread")]
async fn hashes_in_cloud_events_are_for_who_may_see_all() {
    let h = Harness::start().await;
    let first = h.server.projections.view().index() + 1;
    let mut job = json!({"ID": "web", "Type": "batch", "Datacenters": ["*"]});
    job["TaskGroups"] = json!([{"Name": "g", "Count": 0, "Tasks": [{
        "Name": "t", "Driver": "mock_driver", "Env": {"NAME": "canary"},
    }]}]);
    let reply = h.put("/v1/jobs", &json!({ "Job": job })).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let view = h.server.projections.view();
    let log = &h.api.log;
    let source = walk::WalkSource { view: &view, log };
    let publisher = Publisher::new(Shape {
        keyring: Some(Arc::clone(&h.api.keyring)),
        ..Shape::default()
    });
    let hashes = async || match publisher.clouds(log.epoch().id).redactor.can_hash() {
        true => Ok(()),
        false => Err("there is no key yet"),
    };
    drover_testkit::eventually_async("a key", drover_testkit::LONG, hashes)
        .await
        .unwrap();
    let reads = "namespace \"*\" { policy = \"read\" }";
    let reads = acl::parse(reads, Strictness::Strict).unwrap();
    for (acl, hashes) in [(Acl::management(), true), (Acl::compile(&[&reads]), false)] {
        let acl = Arc::new(acl);
        // What is looked for with a filter is what is shown.
        let value = "Payload.Job.TaskGroups.0.Tasks.0.Env.NAME";
        let by_hash = format!("&filter={value}%20contains%20hmac");
        for (filter, found) in [("", true), (by_hash.as_str(), hashes)] {
            let query = format!("namespace=*&topic=Job{filter}");
            let subscription = Subscription {
                selection: Selection::read(&Query::parse(Some(&query)).unwrap(), true).unwrap(),
                form: Form {
                    cloud: true,
                    ..Form::default()
                },
                permit: Permit::of(Arc::clone(&acl)),
                clouds: publisher.clouds(log.epoch().id),
            };
            let range = (first, view.index());
            let page =
                StreamPage::render(source, range, subscription.needs(), &subscription.clouds)
                    .unwrap();
            let (mut live, mut past) = (Vec::new(), Vec::new());
            for batch in &page.batches {
                subscription.report(batch, &mut live).unwrap();
            }
            PastWalk::default()
                .report(source, &subscription, range, &mut past)
                .unwrap();
            for reported in [live, past] {
                let reported = String::from_utf8(reported).unwrap();
                assert!(!reported.contains("canary"), "{reported}");
                assert_eq!(
                    reported.contains("JobRegistered"),
                    found,
                    "{filter}: {reported}"
                );
                assert_eq!(reported.contains("hmac:"), hashes, "{filter}: {reported}");
            }
        }
    }
    drop(view);
    h.stop().await;
}

#[test]
fn a_parameter_that_nothing_reads_is_refused_by_name() {
    for (query, unknown) in [
        ("", None),
        ("topic=Job&index=1&format=sse", None),
        ("topic=Job&region=global&stale=&pretty=", None),
        ("topic=Job&topics=Node", Some("\"topics\" is no parameter")),
    ] {
        let refused = known(&Query::parse(Some(query)).unwrap()).err();
        let words = refused.map(|refusal| refusal.message);
        assert_eq!(words.is_some(), unknown.is_some(), "{query}: {words:?}");
        let words = words.unwrap_or_default();
        assert!(words.starts_with(unknown.unwrap_or_default()), "{words}");
    }
}
