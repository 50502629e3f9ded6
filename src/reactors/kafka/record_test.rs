use std::collections::BTreeMap;

use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::model::Evaluation;
use drover_events::namespace::NamespacesUpserted;
use drover_events::{Actor, Event, EventKind, Topic};
use drover_golden::samples;
use drover_projections::Operation;
use serde_json::Value;

use super::super::routes::Filter;
use super::*;
use crate::config::KafkaConfig;

fn change(topic: Option<Topic>, namespace: &str, keys: &[&str]) -> Change {
    Change {
        index: 7,
        seq: 0,
        kind: EventKind::PlanApplied,
        table: 1,
        operation: Operation::Put,
        topic,
        key: Vec::new(),
        namespace: namespace.to_owned(),
        stream_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
    }
}

#[test]
fn numbers_are_written_in_each_way_that_a_file_may_name() {
    assert_eq!(
        crate::config::NUMBERS,
        crate::history::record::numbers::NAMES
    );
}

/// The sample of a kind as event 7, with another payload where one is given.
fn recorded(kind: EventKind, payload: Option<Event>) -> Recorded {
    let body = samples::body(kind, kind.version()).expect("every kind has a sample");
    let mut event = drover_migrations::decode(&body).expect("it decodes");
    event.index = 7;
    if let (Some(envelope), Some(payload)) = (&mut event.envelope, payload) {
        envelope.event = payload;
        envelope.cause = Some(5);
        envelope.actor = Actor::node("4711", "::1");
    }
    event
}

fn namespaces(names: &[&str]) -> Recorded {
    let namespace = |name: &&str| drover_events::model::Namespace {
        name: (*name).to_owned(),
        ..Default::default()
    };
    let namespaces = names.iter().map(namespace).collect();
    let event = NamespacesUpserted { namespaces };
    recorded(EventKind::NamespacesUpserted, Some(event.into()))
}

fn style(format: Format) -> Style {
    Style {
        format,
        numbers: Numbers::Plain,
        split: true,
        stops: false,
        epoch: [0xab; 16],
        agent: "http://agent:4646".to_owned(),
    }
}

/// A message as a reader has it.
struct Seen {
    topic: String,
    key: String,
    headers: BTreeMap<&'static str, String>,
    payload: Value,
    stamp: Option<i64>,
}

fn seen(encoder: &Encoder<'_>) -> Vec<Seen> {
    let one = |message: &Message| {
        let headers = &encoder.headers[message.headers.clone()];
        let header = |(name, at): &Header| (*name, encoder.text[at.clone()].to_owned());
        Seen {
            topic: encoder.layout.names()[usize::from(message.topic)].clone(),
            key: message.key.clone(),
            headers: headers.iter().map(header).collect(),
            payload: serde_json::from_slice(&encoder.bytes[message.payload.clone()]).unwrap(),
            stamp: message.stamp,
        }
    };
    encoder.messages.iter().map(one).collect()
}

/// The messages of one event.
fn reported(
    config: &KafkaConfig,
    style: &Style,
    limit: usize,
    (event, changes): (&Recorded, &[Change]),
) -> Vec<Seen> {
    let (layout, redactor) = (Layout::of(config), crate::history::record::canary::hider());
    let mut encoder = Encoder::new(&layout, &redactor, style, limit);
    let time = Some(1_700_000_000_123_456_789);
    encoder.add(event, changes, None, time).unwrap();
    seen(&encoder)
}

fn per_stream() -> KafkaConfig {
    KafkaConfig {
        topic_per_stream: true,
        ..KafkaConfig::default()
    }
}

/// A report on three allocations of two jobs, with an evaluation of the second, each of `bytes`.
fn report(bytes: usize) -> (Recorded, Vec<Change>) {
    let update = |id: &str| ClientAllocUpdate {
        id: id.to_owned(),
        client_description: "d".repeat(bytes),
        ..ClientAllocUpdate::default()
    };
    let event = AllocsUpdatedByClient {
        updates: ["a1", "a2", "b1"].map(update).into(),
        evals: vec![Evaluation {
            id: "e1".to_owned(),
            namespace: "eu".to_owned(),
            job_id: "b".to_owned(),
            ..Evaluation::default()
        }],
        updated_at: 9,
        ..AllocsUpdatedByClient::default()
    };
    let changes = vec![
        change(Some(Topic::Allocation), "eu", &["a1", "a", "d1"]),
        change(None, "eu", &[]),
        change(Some(Topic::Allocation), "eu", &["a2", "a", "d1"]),
        change(Some(Topic::Allocation), "eu", &["b1", "b", ""]),
        change(Some(Topic::Evaluation), "eu", &["e1", "b", ""]),
        change(Some(Topic::Job), "eu", &["b"]),
    ];
    (
        recorded(EventKind::AllocsUpdatedByClient, Some(event.into())),
        changes,
    )
}

#[test]
fn whatever_belongs_to_a_job_has_the_jobs_key() {
    let layout = Layout::of(&KafkaConfig::default());
    assert_eq!(layout.names(), ["drover.events"]);
    let plan = recorded(EventKind::PlanApplied, None);
    let routes = |event: &Recorded, changes: &[Change]| -> Vec<(u8, String)> {
        let routes = layout.routes(event, changes).into_iter();
        routes.map(|route| (route.place, route.key)).collect()
    };
    let job = [change(Some(Topic::Job), "eu", &["web"])];
    let changes = [
        change(None, "eu", &[]),
        change(Some(Topic::Allocation), "eu", &["a1", "web", "d1"]),
        change(Some(Topic::Evaluation), "eu", &["e1", "web", ""]),
    ];
    let wanted = vec![(0, "eu/web".to_owned())];
    assert_eq!(routes(&plan, &job), wanted);
    assert_eq!(routes(&plan, &changes), wanted);
    let node = [change(Some(Topic::Node), "", &["n1"])];
    assert_eq!(routes(&plan, &node)[0].1, "n1");
    let blank = recorded(EventKind::RaftBlank, None);
    assert_eq!(routes(&blank, &[])[0].1, "RaftBlank");
    assert_eq!(routes(&namespaces(&["eu"]), &[])[0].1, "eu");
}

#[test]
fn an_event_of_many_objects_is_a_message_for_each_under_its_own_key() {
    let (event, changes) = report(10);
    let whole = style(Format::Json);
    let reported = reported(&KafkaConfig::default(), &whole, 1 << 20, (&event, &changes));
    let keys: Vec<&str> = reported.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["eu/a", "eu/a", "eu/b", "eu/b"]);
    let schema = crate::history::record::schema::document(event.kind);
    let schema = drover_testkit::jsonschema::options()
        .build(&schema)
        .expect("a schema");
    for (number, one) in (1..).zip(&reported) {
        assert_eq!(one.headers["part"], number.to_string());
        assert_eq!(one.headers["parts"], "4");
        let part = &one.payload["Part"];
        assert_eq!(part["Topic"], one.headers["part_topic"].as_str());
        assert_eq!(part["Key"], one.headers["part_key"].as_str());
        assert_eq!(one.headers["index"], "7");
        assert_eq!(one.headers["namespace"], "eu");
        assert_eq!(one.payload["Part"]["Number"], number);
        assert_eq!(one.payload["Payload"]["UpdatedAt"], 9);
        assert!(schema.is_valid(&one.payload), "{}", one.payload);
    }
    let ids: Vec<&Value> = reported
        .iter()
        .map(|one| &one.payload["Part"]["Key"])
        .collect();
    assert_eq!(ids, ["a1", "a2", "b1", "e1"]);
    assert_eq!(reported[1].payload["Payload"]["Updates"][0]["ID"], "a2");
    assert_eq!(
        reported[1].payload["Payload"]["Updates"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[test]
fn an_event_beyond_the_limit_is_whole_in_its_pieces() {
    let (event, changes) = report(8_000);
    let limit = 10_000;
    let whole = style(Format::Json);
    let all = reported(&KafkaConfig::default(), &whole, limit, (&event, &changes));
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|one| !one.headers.contains_key("mark")));
    let style = Style {
        split: false,
        ..style(Format::Json)
    };
    let one = reported(&KafkaConfig::default(), &style, limit, (&event, &changes));
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].headers["mark"], "oversized");
    assert!(one[0].payload["OversizedBytes"].as_u64() > Some(24_000));
    // A piece that is too large by itself is marked by itself.
    let (event, changes) = report(12_000);
    let marked = reported(&KafkaConfig::default(), &whole, limit, (&event, &changes));
    let marks: Vec<bool> = marked
        .iter()
        .map(|one| one.headers.contains_key("mark"))
        .collect();
    assert_eq!(marks, [true, true, true, false]);
    assert_eq!(marked[1].payload["Part"]["Key"], "a2");
}

#[test]
fn a_topic_per_stream_is_sorted_as_the_stream_is() {
    let (event, changes) = report(10);
    let whole = style(Format::Json);
    let shown: Vec<_> = reported(&per_stream(), &whole, 1 << 20, (&event, &changes))
        .into_iter()
        .map(|one| (one.topic, one.key, one.payload["Payload"].is_object()))
        .collect();
    let wanted = [
        ("Allocation", "eu/a", true),
        ("Allocation", "eu/a", true),
        ("Allocation", "eu/b", true),
        ("Evaluation", "eu/b", true),
        // The job changed on the way: it is named, and its content is in the pieces.
        ("Job", "eu/b", false),
    ];
    let wanted =
        wanted.map(|(topic, key, whole)| (format!("drover.events.{topic}"), key.to_owned(), whole));
    assert_eq!(shown, wanted);
    for (kind, topic, key) in [
        (EventKind::RaftBlank, "Cluster", "RaftBlank"),
        (EventKind::SchedulerConfigured, "Configuration", "scheduler"),
    ] {
        let event = recorded(kind, None);
        let reported = reported(&per_stream(), &whole, 1 << 20, (&event, &[]));
        assert_eq!(reported.len(), 1, "{kind}");
        assert_eq!(
            reported[0].topic,
            format!("drover.events.{topic}"),
            "{kind}"
        );
        assert_eq!(reported[0].key, key);
    }
    let both = reported(
        &per_stream(),
        &whole,
        1 << 20,
        (&namespaces(&["eu", "us"]), &[]),
    );
    let keys: Vec<_> = both
        .iter()
        .map(|one| (one.topic.as_str(), one.key.as_str()))
        .collect();
    let topic = "drover.events.Namespace";
    assert_eq!(keys, [(topic, "eu"), (topic, "us")]);
}

#[test]
fn every_silent_kind_has_the_topic_that_the_stream_tells_it_under() {
    let layout = Layout::of(&per_stream());
    for kind in EventKind::ALL {
        let event = recorded(*kind, None);
        let place = layout.routes(&event, &[])[0].place;
        if let Some(topic) = kind.own_topic() {
            assert_eq!(place, topic.number(), "{kind}");
        } else {
            assert_ne!(place, 0, "{kind}, which was refused, is about something");
        }
    }
}

#[test]
fn headers_say_who_where_why_and_what_became_of_it() {
    let (event, changes) = report(10);
    let reported = reported(
        &KafkaConfig::default(),
        &style(Format::Json),
        1 << 20,
        (&event, &changes),
    );
    let one = &reported[0];
    for (name, wanted) in [
        ("kind", "AllocsUpdatedByClient"),
        ("actor", "node"),
        ("actor_id", "4711"),
        ("cause", "5"),
        ("outcome", "applied"),
        ("content-type", "application/json"),
        ("epoch", &"ab".repeat(16)),
    ] {
        assert_eq!(one.headers[name], wanted, "{name}");
    }
    assert!(one.headers.keys().all(|name| !name.starts_with("ce_")));
    assert_eq!(
        one.stamp,
        Some(1_700_000_000_123),
        "the time of the event, not of today"
    );
    assert_eq!(one.payload["Outcome"], "applied");
}

#[test]
fn a_message_may_be_a_cloud_event_or_bound_to_one() {
    let (event, changes) = report(10);
    let both = (&event, &changes[..]);
    let whole = reported(
        &KafkaConfig::default(),
        &style(Format::CloudEvents),
        1 << 20,
        both,
    );
    let bound = reported(
        &KafkaConfig::default(),
        &style(Format::Bound),
        1 << 20,
        both,
    );
    for (whole, bound) in whole.iter().zip(&bound) {
        assert!(whole.headers["content-type"].starts_with("application/cloudevents+json"));
        assert_eq!(bound.headers["content-type"], "application/json");
        assert_eq!(whole.payload["data"], bound.payload);
        for (name, value) in whole.payload.as_object().expect("an object") {
            if name != "data" && name != "datacontenttype" {
                let header = bound.headers.get(format!("ce_{name}").as_str());
                assert_eq!(header.map(String::as_str), value.as_str(), "{name}");
            }
        }
    }
    let ids: Vec<_> = bound
        .iter()
        .map(|one| one.headers["ce_id"].as_str())
        .collect();
    assert_eq!(
        ids,
        ["7.1", "7.2", "7.3", "7.4"],
        "unique within their source"
    );
    assert_eq!(bound[0].headers["ce_subject"], "Allocation/a1");
}

#[test]
fn filters_look_at_kind_namespace_and_topic() {
    let mut config = KafkaConfig {
        rejected: "mark".into(),
        ..KafkaConfig::default()
    };
    let all = Filter::of(&config);
    let web = [change(Some(Topic::Job), "eu", &["web"])];
    let (space, other) = (namespaces(&["eu"]), namespaces(&["us"]));
    assert!(all.takes_rejected() && all.takes_unpublished(&space) && all.takes_kind(1));
    config.kinds = vec!["JobRegistered".into()];
    config.namespaces = vec!["eu".into()];
    config.topics = vec!["Job".into(), "Namespace".into()];
    let some = Filter::of(&config);
    assert!(some.takes_kind(EventKind::JobRegistered.number()));
    assert!(!some.takes_kind(EventKind::PlanApplied.number()));
    assert!(some.takes_changes(&web));
    assert!(!some.takes_changes(&[change(Some(Topic::Job), "us", &["web"])]));
    assert!(!some.takes_changes(&[change(Some(Topic::Node), "eu", &["web"])]));
    assert!(some.takes_unpublished(&space) && !some.takes_unpublished(&other));
    assert!(!some.takes_unpublished(&recorded(EventKind::LeaderElected, None)));
    // Of an event in several namespaces only what is wanted is published.
    let (event, mut changes) = report(10);
    changes[0].namespace = "us".to_owned();
    config.topics = vec!["Allocation".into()];
    let reported = reported(&config, &style(Format::Json), 1 << 20, (&event, &changes));
    let keys: Vec<&str> = reported.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["eu/a", "eu/b"]);
}

#[test]
fn no_message_shows_what_is_confidential() {
    let redactor = crate::history::record::canary::hider();
    let layout = Layout::of(&KafkaConfig::default());
    let refused = Rejection::Rule {
        message: "no".to_owned(),
    };
    for format in [Format::Json, Format::CloudEvents, Format::Bound] {
        for limit in [1 << 20, 10] {
            let style = style(format);
            let mut encoder = Encoder::new(&layout, &redactor, &style, limit);
            for event in crate::history::record::canary::events() {
                encoder.add(&event, &[], None, None).unwrap();
                encoder.add(&event, &[], Some(&refused), None).unwrap();
            }
            let text = String::from_utf8_lossy(&encoder.bytes);
            assert_eq!(crate::history::record::canary::shown(&text), None);
            assert_eq!(crate::history::record::canary::shown(&encoder.text), None);
            assert!(encoder.messages.len() > 100);
            let reported = seen(&encoder);
            let marks = reported.iter().filter_map(|one| one.headers.get("outcome"));
            let refused = marks.filter(|outcome| *outcome == "refused").count();
            assert!(refused > 50, "{refused}");
        }
    }
}

/// A job whose id, and with it key, subject and object, is of so many bytes.
fn registered(bytes: usize) -> (Recorded, Vec<Change>) {
    let id = "\u{1}".repeat(bytes);
    let job = drover_events::model::Job {
        id: id.clone(),
        namespace: id.clone(),
        ..Default::default()
    };
    let event = drover_events::job::JobRegistered {
        job: job.into(),
        ..Default::default()
    };
    let mut event = recorded(EventKind::JobRegistered, Some(event.into()));
    if let Some(envelope) = &mut event.envelope {
        envelope.actor = Actor::node(&id, "::1");
        envelope.trace.clone_from(&id);
        envelope.request_id.clone_from(&id);
    }
    let changes = vec![change(Some(Topic::Job), &id, &[&id])];
    (event, changes)
}

/// What Kafka counts of a message, and a margin.
fn weight(one: &Seen, payload: usize) -> usize {
    let headers = one.headers.iter();
    let headers = headers.map(|(name, value)| name.len() + value.len() + 10);
    one.key.len() + payload + headers.sum::<usize>() + 100
}

#[test]
fn a_marker_fits_into_the_least_limit_whatever_the_event_is_about() {
    for format in [Format::Json, Format::CloudEvents, Format::Bound] {
        for bytes in [500_000, 100_000, 3_000, 900] {
            let (event, changes) = registered(bytes);
            let both = (&event, &changes[..]);
            let config = KafkaConfig::default();
            let reported = reported(&config, &style(format), LEAST_LIMIT, both);
            for one in &reported {
                let size = weight(one, one.payload.to_string().len());
                assert!(size <= LEAST_LIMIT, "{format:?}, {bytes}: {size}");
            }
            assert_eq!(reported.len(), 1);
            assert_eq!(
                reported[0].headers["mark"], "oversized",
                "{format:?}, {bytes}"
            );
        }
    }
}

#[test]
fn a_long_key_is_the_same_for_the_same_object_and_no_other() {
    let key = |name: &str| {
        let layout = Layout::of(&KafkaConfig::default());
        let plan = recorded(EventKind::PlanApplied, None);
        let job = [change(Some(Topic::Job), "eu", &[name])];
        layout.routes(&plan, &job).remove(0).key
    };
    let long = "é".repeat(100_000);
    assert_eq!(key(&long), key(&long));
    assert!(key(&long).len() <= 2_048 && key(&long).starts_with("eu/éé"));
    assert_ne!(key(&long), key(&format!("{long}x")));
    let fits = "x".repeat(2_000);
    assert_eq!(key(&fits), format!("eu/{fits}"));
}

#[test]
fn an_object_that_stands_twice_in_an_event_keeps_its_key_and_namespace() {
    let (event, changes) = report(10);
    let mut event = event;
    if let Some(Event::AllocsUpdatedByClient(ev)) =
        event.envelope.as_mut().map(|envelope| &mut envelope.event)
    {
        let twice = ev.updates[0].clone();
        ev.updates.push(twice);
    }
    let config = KafkaConfig {
        namespaces: vec!["eu".to_owned()],
        ..KafkaConfig::default()
    };
    let both = (&event, &changes[..]);
    let reported = reported(&config, &style(Format::Json), 1 << 20, both);
    let about: Vec<(&str, &str)> = reported
        .iter()
        .filter(|one| one.payload["Part"]["Key"] == "a1")
        .map(|one| (one.key.as_str(), one.headers["namespace"].as_str()))
        .collect();
    assert_eq!(about, [("eu/a", "eu"), ("eu/a", "eu")]);
}
