//! The publisher of a real server against librdkafka's mock cluster, with injected errors. What
//! transactions guarantee is tested against a real broker.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::Namespace;
use drover_events::{Event, EventKind};
use drover_projections::tables::cluster_meta::ClusterMetaTable;
use drover_testkit::{LONG, eventually};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::Value;

use crate::commands::namespace::UpsertNamespaces;
use crate::config::{Config, KafkaConfig};
use crate::proposer::Origin;
use crate::server::Server;
use crate::server::testing::Stopping;

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster() -> Cluster {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("drover.events", 1, 1).unwrap();
    cluster.create_topic("drover.events.cursor", 1, 1).unwrap();
    cluster
}

fn config(cluster: &Cluster) -> KafkaConfig {
    KafkaConfig {
        brokers: vec![cluster.bootstrap_servers()],
        create_topics: false,
        linger: Duration::ZERO,
        timeout: Duration::from_secs(5),
        ..KafkaConfig::default()
    }
}

async fn server(dir: &std::path::Path, kafka: KafkaConfig) -> Stopping {
    let mut config = Config::dev();
    config.event_publisher.kafka = Some(kafka);
    let telemetry = crate::telemetry::install(Duration::from_secs(10));
    let server = Server::start(Arc::new(config), dir, telemetry)
        .await
        .unwrap();
    server.wait_ready().await;
    Stopping(server)
}

fn status(server: &Server) -> Value {
    server.reactors()["Reactors"]["event_publisher"]["Status"].clone()
}

/// Repeats the query until it holds.
async fn until(server: &Server, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let ask = || {
        let status = status(server);
        if holds(&status) {
            Ok(status)
        } else {
            Err(status)
        }
    };
    eventually(what, LONG, ask).await.unwrap()
}

async fn caught_up(server: &Server) -> Value {
    let index = server.projections.applied_index();
    let done = |status: &Value| status["Published"].as_u64() >= Some(index);
    until(server, "catching up", done).await
}

async fn happen(server: &Server, name: &str) {
    let namespace = Namespace {
        name: name.to_owned(),
        ..Namespace::default()
    };
    let command = UpsertNamespaces {
        namespaces: vec![namespace],
    };
    server.submit(command, Origin::default()).await.unwrap();
}

/// Everything in a topic, for a reader of this name.
fn consumed(cluster: &Cluster, topic: &str, group: &str) -> Vec<OwnedMessage> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", group)
        .set("enable.partition.eof", "true")
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Beginning)
        .unwrap();
    consumer.assign(&list).unwrap();
    let mut found = Vec::new();
    loop {
        match consumer.poll(Duration::from_secs(30)).expect("an answer") {
            Err(KafkaError::PartitionEOF(_)) => return found,
            Err(error) => panic!("{error}"),
            Ok(message) => found.push(message.detach()),
        }
    }
}

/// Headers `index` and `mark` of everything in a topic.
fn read(cluster: &Cluster, topic: &str) -> Vec<(u64, Option<String>)> {
    let all = consumed(cluster, topic, "reader");
    let marks = all.iter().map(|message| {
        let headers = message.headers().expect("headers");
        let text = |name: &str| {
            let all = headers.iter().find(|header| header.key == name);
            let value = all.and_then(|header| header.value);
            value.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        };
        (text("index").unwrap().parse().unwrap(), text("mark"))
    });
    marks.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_in_the_logs_order_and_a_new_leader_goes_on() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let first = server(dir.path(), config(&cluster)).await;
    happen(&first, "one").await;
    caught_up(&first).await;
    first.shutdown().await;
    drop(first);
    let second = reopened(dir.path(), config(&cluster)).await;
    happen(&second, "two").await;
    let status = caught_up(&second).await;
    assert_eq!(status["Error"], "", "{status}");
    let indexes: Vec<u64> = read(&cluster, "drover.events")
        .iter()
        .map(|one| one.0)
        .collect();
    let last = second.projections.applied_index();
    assert_eq!(indexes, (1..=last).collect::<Vec<_>>());
    second.shutdown().await;
}

/// Starts again on the files of a server whose last threads may still hold them for a moment.
async fn reopened(dir: &std::path::Path, kafka: KafkaConfig) -> Stopping {
    let lock = dir.join("server/projections/LOCK");
    let free = || match is_locked(&lock) {
        true => Err("the database is still open"),
        false => Ok(()),
    };
    eventually("the former threads", LONG, free).await.unwrap();
    server(dir, kafka).await
}

/// Whether this process holds a lock on the file: there is no call for that, but the kernel lists
/// it.
fn is_locked(path: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = std::fs::metadata(path) else {
        return false;
    };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let wanted = format!(":{} ", metadata.ino());
    locks.lines().any(|line| line.contains(&wanted))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_transaction_costs_a_producer_and_no_event() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let server = server(dir.path(), config(&cluster)).await;
    caught_up(&server).await;
    let fenced = RDKafkaRespErr::RD_KAFKA_RESP_ERR_PRODUCER_FENCED;
    cluster.request_errors(RDKafkaApiKey::EndTxn, &[fenced]);
    happen(&server, "fenced").await;
    let again = |status: &Value| status["Sessions"].as_u64() >= Some(2);
    until(&server, "a second producer", again).await;
    caught_up(&server).await;
    let seen: BTreeSet<u64> = read(&cluster, "drover.events")
        .iter()
        .map(|one| one.0)
        .collect();
    let last = server.projections.applied_index();
    assert!((1..=last).all(|index| seen.contains(&index)), "{seen:?}");
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_refuses_large_messages_is_given_smaller_ones() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.request_errors(RDKafkaApiKey::Produce, &[large]);
    let kafka = KafkaConfig {
        exactly_once: false,
        ..config(&cluster)
    };
    let server = server(dir.path(), kafka).await;
    let status = caught_up(&server).await;
    assert!(status["Sessions"].as_u64() >= Some(2), "{status}");
    let found = read(&cluster, "drover.events");
    assert!(found.iter().all(|(_, mark)| mark.is_none()), "{found:?}");
    server.shutdown().await;
}

/// Waits until metrics show a publisher that has lost its broker; checks their names.
async fn shows_its_lag(server: &Server) {
    // The metrics are the process's: publishers of other tests set them as well.
    let ask = || {
        let page = server.prometheus();
        let figure = |name: &str| -> Option<f64> {
            let name = format!("drover_publisher_{name} ");
            let value = page.lines().find_map(|line| line.strip_prefix(&*name))?;
            value.parse().ok()
        };
        let behind = figure("lag_events") >= Some(20.0) && figure("lag_seconds") > Some(0.0);
        let published = figure("published_index") > Some(0.0);
        let counted = figure("messages_total") > Some(0.0) && figure("oversized_total").is_some();
        let is_ours = figure("connected") == Some(0.0) && behind && published && counted;
        if is_ours { Ok(page) } else { Err(page) }
    };
    let page = eventually("a lag among the metrics", LONG, ask).await;
    drover_testkit::lint::check(&page.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_no_broker_answers_writes_go_on_and_the_lag_is_told() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let server = server(dir.path(), config(&cluster)).await;
    caught_up(&server).await;
    cluster.broker_down(1).unwrap();
    for number in 0..20 {
        happen(&server, &format!("n{number}")).await;
    }
    let behind = |status: &Value| {
        let error = status["Error"].as_str().unwrap_or_default();
        status["Lag"].as_u64() >= Some(20) && error.contains("event_publisher.kafka.brokers")
    };
    until(&server, "a lag with its reason", behind).await;
    shows_its_lag(&server).await;
    cluster.broker_up(1).unwrap();
    let done = |status: &Value| status["Lag"] == 0 && status["Error"] == "";
    until(&server, "the end of the lag", done).await;
    server.shutdown().await;
}

/// Index, envelope and kind of every event that reported a lag.
fn reported(server: &Server) -> Vec<drover_events::Recorded> {
    let log = server.raft.log();
    let kinds = [EventKind::PublisherLagged, EventKind::PublisherCaughtUp];
    let entries = (1..=server.projections.applied_index()).map(|index| log.read(index));
    let entries = entries.map(|entry| entry.unwrap().unwrap());
    let ours = entries.filter(|entry| kinds.iter().any(|kind| kind.number() == entry.kind));
    ours.map(|entry| drover_migrations::decode(&entry.body).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_broker_is_two_events_even_over_a_restart() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let kafka = KafkaConfig {
        lag_warning: Duration::from_millis(300),
        ..config(&cluster)
    };
    let first = server(dir.path(), kafka.clone()).await;
    caught_up(&first).await;
    cluster.broker_down(1).unwrap();
    happen(&first, "one").await;
    let published = status(&first)["Published"].as_u64().unwrap();
    let lagging = |status: &Value| status["Lagging"] == true && status["LaggingSince"] != 0;
    until(&first, "a lag", lagging).await;
    happen(&first, "two").await;
    first.shutdown().await;
    drop(first);
    let second = reopened(dir.path(), kafka).await;
    happen(&second, "three").await;
    until(&second, "the lag of before", lagging).await;
    assert_eq!(reported(&second).len(), 1);
    cluster.broker_up(1).unwrap();
    let done = |status: &Value| status["Lag"] == 0 && status["Lagging"] == false;
    until(&second, "the end of the lag", done).await;
    happen(&second, "four").await;
    caught_up(&second).await;
    let reported = reported(&second);
    let kinds: Vec<EventKind> = reported.iter().map(|event| event.kind).collect();
    let wanted = [EventKind::PublisherLagged, EventKind::PublisherCaughtUp];
    assert_eq!(kinds, wanted);
    let envelopes = reported
        .iter()
        .map(|event| event.envelope.as_ref().unwrap());
    let [lagged, ended] = envelopes.collect::<Vec<_>>()[..] else {
        panic!("two events");
    };
    assert_eq!(lagged.actor.kind.name(), "server");
    assert_eq!(lagged.cause, Some(published + 1));
    assert_eq!(ended.cause, Some(reported[0].index));
    let Event::PublisherLagged(lag) = &lagged.event else {
        panic!("{lagged:?}");
    };
    assert!(lag.behind > 0 && lag.published == published, "{lag:?}");
    assert!(!lag.reason.is_empty(), "{lag:?}");
    second.shutdown().await;
}

/// Every index up to the last is there exactly once.
fn check_once(cluster: &Cluster, last: u64) {
    let found = read(cluster, "drover.events");
    let indexes: Vec<u64> = found.iter().map(|one| one.0).collect();
    assert_eq!(indexes, (1..=last).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_brokers_refuse_for_a_while_costs_neither_an_event_nor_a_producer() {
    use RDKafkaApiKey as Api;
    use RDKafkaRespErr as Err;
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let loading = Err::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS;
    let away = Err::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE;
    let other = Err::RD_KAFKA_RESP_ERR_NOT_COORDINATOR;
    cluster.request_errors(Api::InitProducerId, &[loading, away, other]);
    let server = server(dir.path(), config(&cluster)).await;
    caught_up(&server).await;
    let replicas = Err::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
    let moved = Err::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION;
    let electing = Err::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
    let slow = Err::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT;
    let busy = Err::RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS;
    for (number, (request, errors)) in [
        (Api::Produce, vec![replicas; 3]),
        (Api::Produce, vec![moved, electing, moved]),
        (Api::Produce, vec![slow; 2]),
        (Api::AddPartitionsToTxn, vec![busy; 3]),
        (Api::AddPartitionsToTxn, vec![loading, other]),
        (Api::EndTxn, vec![away, loading, other]),
    ]
    .into_iter()
    .enumerate()
    {
        cluster.request_errors(request, &errors);
        happen(&server, &format!("n{number}")).await;
        caught_up(&server).await;
    }
    let status = status(&server);
    assert_eq!(status["Sessions"], 1, "{status}");
    assert_eq!(status["Error"], "", "{status}");
    check_once(&cluster, server.projections.applied_index());
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_and_coordinators_may_move_to_other_brokers() {
    let (cluster, dir) = (MockCluster::new(3).unwrap(), tempfile::tempdir().unwrap());
    cluster.create_topic("drover.events", 1, 3).unwrap();
    cluster.create_topic("drover.events.cursor", 1, 3).unwrap();
    let server = server(dir.path(), config(&cluster)).await;
    caught_up(&server).await;
    for (number, broker) in [1, 2, 3, 1].into_iter().enumerate() {
        for topic in ["drover.events", "drover.events.cursor"] {
            cluster.partition_leader(topic, 0, Some(broker)).unwrap();
        }
        let id = transactional_id(&server);
        let coordinator = MockCoordinator::Transaction(id);
        cluster.coordinator(coordinator, broker % 3 + 1).unwrap();
        for more in 0..5 {
            happen(&server, &format!("n{number}-{more}")).await;
        }
        caught_up(&server).await;
    }
    check_once(&cluster, server.projections.applied_index());
    server.shutdown().await;
}

fn transactional_id(server: &Server) -> String {
    let meta = server
        .projections
        .view()
        .get::<ClusterMetaTable>(())
        .unwrap();
    format!("drover-{}", meta.unwrap().cluster_id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_retry_heals_is_said_and_tried_again_by_a_new_producer() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[denied; 3]);
    let server = server(dir.path(), config(&cluster)).await;
    let says_what = |status: &Value| {
        let error = status["Error"].as_str().unwrap_or_default();
        error.contains("grant the user")
    };
    until(&server, "what is to be granted", says_what).await;
    let status = caught_up(&server).await;
    assert!(status["Sessions"].as_u64() >= Some(4), "{status}");
    check_once(&cluster, server.projections.applied_index());
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_dies_while_nothing_happens_is_said_to_be_away_until_it_is_back() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let server = server(dir.path(), config(&cluster)).await;
    let before = caught_up(&server).await;
    assert_eq!(
        (&before["Connected"], &before["Error"]),
        (&true.into(), &"".into())
    );
    let published = before["Published"].clone();
    cluster.broker_down(1).unwrap();
    let away = |status: &Value| {
        let error = status["Error"].as_str().unwrap_or_default();
        status["Connected"] == false && error.contains("event_publisher.kafka.brokers")
    };
    let status = until(&server, "a broker that is away", away).await;
    assert!(
        status["Published"].as_u64() >= published.as_u64(),
        "{status}"
    );
    cluster.broker_up(1).unwrap();
    let back = |status: &Value| status["Connected"] == true && status["Error"] == "";
    until(&server, "the broker that is back", back).await;
    happen(&server, "later").await;
    caught_up(&server).await;
    check_once(&cluster, server.projections.applied_index());
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_ahead_of_the_log_is_refused_and_nothing_is_published() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let first = server(dir.path(), config(&cluster)).await;
    for number in 0..30 {
        happen(&first, &format!("n{number}")).await;
    }
    caught_up(&first).await;
    let id = transactional_id(&first);
    first.shutdown().await;
    let before = read(&cluster, "drover.events").len();
    // Another log under the same transactional id, as one that was put back to an older state.
    let other = tempfile::tempdir().unwrap();
    let kafka = KafkaConfig {
        transactional_id: id,
        ..config(&cluster)
    };
    let second = server(other.path(), kafka).await;
    let says_what = |status: &Value| {
        let error = status["Error"].as_str().unwrap_or_default();
        error.contains("the log ends at") && error.contains("transactional_id")
    };
    let status = until(&second, "what is wrong", says_what).await;
    assert_eq!(status["Messages"], 0, "{status}");
    happen(&second, "unheard").await;
    assert_eq!(read(&cluster, "drover.events").len(), before);
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_have_the_time_of_their_events() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let server = server(dir.path(), config(&cluster)).await;
    happen(&server, "one").await;
    caught_up(&server).await;
    let log = server.raft.log();
    let entries = (1..=server.projections.applied_index()).map(|index| log.read(index));
    let times: Vec<i64> = entries.map(|entry| entry.unwrap().unwrap().time).collect();
    let stamps = stamps(&cluster);
    let mut raft = 0;
    for (number, (stamp, time)) in stamps.iter().zip(&times).enumerate() {
        match *time {
            // Raft's own have that of the event beside them.
            0 => {
                let beside = times.iter().map(|time| time / 1_000_000);
                assert!(
                    beside.into_iter().any(|time| time == *stamp),
                    "{number}: {stamp}"
                );
                raft += 1;
            }
            time => assert_eq!(*stamp, time / 1_000_000, "{number}"),
        }
    }
    assert!(raft > 0 && stamps.len() == times.len(), "{raft}");
    server.shutdown().await;
}

/// The times of all messages, Unix milliseconds.
fn stamps(cluster: &Cluster) -> Vec<i64> {
    let all = consumed(cluster, "drover.events", "stamps");
    let times = all.iter().map(|message| message.timestamp().to_millis());
    times.map(|time| time.expect("a time")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_are_named_are_shown_in_clear_and_no_others() {
    let (cluster, dir) = (cluster(), tempfile::tempdir().unwrap());
    let kafka = KafkaConfig {
        public_fields: vec!["Namespace.Meta.shown".to_owned()],
        ..config(&cluster)
    };
    let server = server(dir.path(), kafka).await;
    let meta = ["shown", "hidden"].map(|key| (key.to_owned(), format!("canary-{key}")));
    let namespace = Namespace {
        name: "one".to_owned(),
        meta: meta.into(),
        ..Namespace::default()
    };
    let command = UpsertNamespaces {
        namespaces: vec![namespace],
    };
    server.submit(command, Origin::default()).await.unwrap();
    caught_up(&server).await;
    let all = consumed(&cluster, "drover.events", "payloads");
    let payloads = all.iter().filter_map(|message| message.payload());
    let reported: String = payloads.map(String::from_utf8_lossy).collect();
    assert!(reported.contains("canary-shown"), "{reported}");
    assert!(!reported.contains("canary-hidden"), "{reported}");
    server.shutdown().await;
}
