//! The event stream as its readers see it: positions, forms, selections, refusals.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Instant;

use drover_testkit::{Http, LONG, Lines};
use serde_json::{Value, json};

use crate::support::{Running, escaped, job, json_of, register, server};

const STREAM: &str = "/v1/event/stream";

/// A server with some jobs in it, and a last one that tests wait for.
fn with_jobs(names: &[&str]) -> Running {
    let running = server();
    let mut http = running.http();
    for name in names {
        register(&mut http, &job(name, 1));
    }
    running
}

fn follow(running: &Running, query: &str) -> Lines {
    let path = format!("{STREAM}?{query}");
    running.http().lines(&path).expect("a stream")
}

/// The next line with something in it that is wanted.
fn json_where(lines: &mut Lines, mut wanted: impl FnMut(&Value) -> bool) -> Value {
    let read = |line: &str| match line {
        "" | "{}" => None,
        line => {
            let line: Value = serde_json::from_str(line).expect("JSON");
            wanted(&line).then_some(line)
        }
    };
    lines.find("what is wanted", read).expect("a line")
}

fn next_json(lines: &mut Lines) -> Value {
    json_where(lines, |_| true)
}

/// Lines of events until one about this key came, that one included.
fn until(lines: &mut Lines, key: &str) -> Vec<Value> {
    let mut reported = Vec::new();
    json_where(lines, |line| {
        reported.push(line.clone());
        let events = line["Events"].as_array();
        events.is_some_and(|events| events.iter().any(|event| event["Key"] == key))
    });
    reported
}

fn events(lines: &[Value]) -> Vec<&Value> {
    let events = lines.iter().filter_map(|line| line["Events"].as_array());
    events.flatten().collect()
}

fn indexes(lines: &[Value]) -> Vec<u64> {
    let indexes = lines.iter().map(|line| line["Index"].as_u64());
    indexes.map(|index| index.expect("an index")).collect()
}

/// One server-sent event.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Sent {
    event: String,
    id: String,
    data: String,
}

/// The next one that is wanted.
fn sent_where(lines: &mut Lines, mut wanted: impl FnMut(&Sent) -> bool) -> Sent {
    let mut sent = Sent::default();
    let read = |line: &str| {
        match line.split_once(": ") {
            Some(("event", text)) => text.clone_into(&mut sent.event),
            Some(("id", text)) => text.clone_into(&mut sent.id),
            Some(("data", text)) => text.clone_into(&mut sent.data),
            _ if line.is_empty() && !sent.data.is_empty() => {
                return Some(std::mem::take(&mut sent)).filter(&mut wanted);
            }
            _ => {}
        }
        None
    };
    lines.find("what is wanted", read).expect("an event")
}

/// The next one that is no checkpoint.
fn next_event(lines: &mut Lines) -> Sent {
    sent_where(lines, |sent| sent.event.is_empty())
}

fn sse(http: Http, query: &str) -> Lines {
    let http = http.header("Accept", "text/event-stream");
    http.lines(&format!("{STREAM}?{query}")).expect("a stream")
}

#[test]
fn a_reader_of_server_sent_events_resumes_exactly_behind_its_last() {
    let running = with_jobs(&["a", "b", "c", "d"]);
    let mut lines = sse(running.http(), "index=1&namespace=*");
    let mut all = Vec::new();
    sent_where(&mut lines, |sent| {
        let data: Value = serde_json::from_str(&sent.data).expect("JSON");
        if sent.event == "checkpoint" {
            assert_eq!(sent.id, "", "a checkpoint is no event to come back behind");
            assert!(data["Time"].as_i64().is_some_and(|time| time > 0), "{data}");
            assert_eq!(data["Epoch"].as_str().map(str::len), Some(32));
            // Something may have happened while it was written.
            return data["Lag"] == 0;
        }
        assert_eq!(sent.event, "");
        assert_eq!(data["Index"].to_string(), sent.id);
        all.push(sent.clone());
        false
    });
    assert!(all.len() >= 4, "{}", all.len());
    for cut in [0, 1, all.len() / 2, all.len() - 2] {
        let http = running.http().header("Last-Event-ID", &all[cut].id);
        // The parameter of the first request comes again, as browsers send it.
        let mut lines = sse(http, "index=1&namespace=*");
        let rest: Vec<Sent> = (cut + 1..all.len())
            .map(|_| next_event(&mut lines))
            .collect();
        assert_eq!(rest, all[cut + 1..], "behind {}", all[cut].id);
    }
    let newest = all.last().expect("some").id.clone();
    let mut lines = sse(
        running.http().header("Last-Event-ID", &newest),
        "namespace=*",
    );
    register(&mut running.http(), &job("e", 1));
    let mut last: u64 = newest.parse().expect("an index");
    sent_where(&mut lines, |sent| {
        if !sent.event.is_empty() {
            return false;
        }
        let id = sent.id.parse().expect("an index");
        assert!(id > last, "{id} after {last}");
        last = id;
        let registered = "\"Type\":\"JobRegistered\",\"Key\":\"e\"";
        sent.data.contains(registered)
    });
}

#[test]
fn cloud_events_carry_the_record_and_the_attributes_of_the_specification() {
    let running = with_jobs(&["a"]);
    let mut lines = follow(&running, "index=1&topic=**&namespace=*&format=cloudevents");
    let mut kinds = BTreeSet::new();
    json_where(&mut lines, |event| {
        assert_eq!(event["specversion"], "1.0");
        assert_eq!(event["datacontenttype"], "application/json");
        for name in ["id", "source", "type"] {
            assert!(!event[name].as_str().expect(name).is_empty(), "{event}");
        }
        let attributes = event.as_object().expect("an object").keys();
        for name in attributes {
            let plain = name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            assert!(plain, "{name}");
        }
        let data = &event["data"];
        let kind = data["Kind"].as_str().expect("a kind").to_owned();
        assert!(event["type"].as_str().expect("a type").ends_with(&kind));
        kinds.insert(kind.clone());
        let is_registered = kind == "JobRegistered";
        if is_registered {
            let time = event["time"].as_str().expect("a time");
            assert!(time.ends_with('Z') && time.contains('T'), "{time}");
            assert_eq!(data["Actor"]["kind"], "anonymous");
            assert_eq!(data["Payload"]["Job"]["ID"], "a");
        }
        is_registered
    });
    for kind in ["LeaderElected", "ClusterIdSet"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
}

#[test]
fn events_are_chosen_by_kind_actor_and_payload() {
    let running = with_jobs(&["a", "b", "c"]);
    let mut http = running.http();
    let gone = http.send("DELETE", "/v1/job/a", &[]).expect("an answer");
    assert_eq!(gone.status, 200);
    register(&mut http, &job("end", 1));
    let keys = |query: &str| {
        let mut lines = follow(&running, &format!("index=1&{query}"));
        let reported = until(&mut lines, "end");
        let keys = events(&reported)
            .into_iter()
            .map(|event| event["Key"].clone());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys("topic=Job&kind=JobRegistered"), ["a", "b", "c", "end"]);
    let both = "topic=Job&kind=JobRegistered&kind=JobDeregistered&actor=anonymous";
    assert_eq!(keys(both), ["a", "b", "c", "a", "end"]);
    let filter = escaped("Job.ID in [\"b\", \"end\"]");
    let filter_or = escaped("Job.ID == b or Job.ID == end");
    let answer = http
        .get(&format!("{STREAM}?filter={filter}"))
        .expect("an answer");
    assert_eq!(answer.status, 400, "no list on the right of in");
    assert_eq!(
        keys(&format!("kind=JobRegistered&filter={filter_or}")),
        ["b", "end"]
    );
    // What reactors do, they do in the name of the server.
    let mut lines = follow(&running, "index=1&actor=server&topic=Evaluation");
    let first = next_json(&mut lines);
    assert_ne!(first["Events"][0]["Type"], "JobRegistered");
}

#[test]
fn ev_02_what_nomad_is_silent_about_has_topics_of_its_own() {
    let running = with_jobs(&[]);
    let mut http = running.http();
    for name in ["dev", "test"] {
        let answer = http.put(&format!("/v1/namespace/{name}"), &json!({"Name": name}));
        assert_eq!(answer.expect("an answer").status, 200);
    }
    register(&mut http, &job("end", 1));
    let mut lines = follow(&running, "index=1&topic=Namespace:test");
    let line = next_json(&mut lines);
    let event = &line["Events"][0];
    assert_eq!(event["Topic"], "Namespace");
    assert_eq!(event["Type"], "NamespacesUpserted");
    assert_eq!(event["Key"], "test");
    assert_eq!(event["Payload"]["Namespaces"][0]["Name"], "test");
    let topics = |query: &str| {
        let mut lines = follow(&running, &format!("index=1&namespace=*&{query}"));
        let reported = until(&mut lines, "end");
        let topics = events(&reported)
            .into_iter()
            .map(|event| event["Topic"].to_string());
        topics.collect::<BTreeSet<_>>()
    };
    let nomads = topics("topic=*");
    assert!(nomads.is_disjoint(&BTreeSet::from([
        "\"Namespace\"".into(),
        "\"Cluster\"".into()
    ])));
    let all = topics("topic=**");
    assert!(
        all.is_superset(&nomads) && all.contains("\"Namespace\""),
        "{all:?}"
    );
    assert!(
        all.contains("\"Cluster\"") && all.contains("\"Configuration\""),
        "{all:?}"
    );
    // Live as well as of the past.
    let mut live = follow(&running, "index=latest&topic=Namespace");
    let mut both = follow(&running, "index=latest&topic=**&namespace=*");
    let answer = http.put("/v1/namespace/late", &json!({"Name": "late"}));
    assert_eq!(answer.expect("an answer").status, 200);
    assert_eq!(next_json(&mut live)["Events"][0]["Key"], "late");
    assert!(!until(&mut both, "late").is_empty());
}

#[test]
fn a_stream_begins_at_an_index_a_time_the_head_or_the_end() {
    let running = with_jobs(&["a", "b"]);
    let reported = until(
        &mut follow(&running, "index=1&topic=Job&kind=JobRegistered"),
        "b",
    );
    let [a, b] = indexes(&reported)[..] else {
        panic!("{reported:?}")
    };
    let exact = next_json(&mut follow(&running, &format!("index={a}&topic=Job")));
    assert_eq!(exact["Index"], a);
    let behind = next_json(&mut follow(&running, &format!("index={}&topic=Job", a + 1)));
    assert!(behind["Index"].as_u64() > Some(a));
    let mut clouds = follow(&running, "index=1&format=cloudevents&topic=Job:b");
    let event = next_json(&mut clouds);
    assert_eq!(event["data"]["Index"], b);
    let time = escaped(event["time"].as_str().expect("a time"));
    let since = format!("since={time}&topic=Job");
    assert_eq!(next_json(&mut follow(&running, &since))["Index"], b);
    let first = next_json(&mut follow(&running, "since=-1h&topic=Job"));
    assert_eq!(first["Index"], a);
    let mut latest = follow(&running, "index=latest&topic=Job&kind=JobRegistered");
    register(&mut running.http(), &job("c", 1));
    assert_eq!(next_json(&mut latest)["Events"][0]["Key"], "c");
    // The head: the newest hundred indexes, of which there are not so many yet.
    let head = until(&mut follow(&running, "topic=Job&kind=JobRegistered"), "c");
    assert_eq!(indexes(&head)[..2], [a, b]);
    for n in 0..120 {
        register(&mut running.http(), &job(&format!("n{n}"), 0));
    }
    let all = until(&mut follow(&running, "index=1&namespace=*"), "n119");
    let head = until(&mut follow(&running, "index=0&namespace=*"), "n119");
    assert!(
        head.len() >= 100 - 10 && head.len() <= 100,
        "{}",
        head.len()
    );
    assert_eq!(head[..], all[all.len() - head.len()..]);
}

#[test]
fn a_reader_however_slow_is_told_everything_once() {
    let running = server();
    let addr = running.agent.addr();
    let mut slow = TcpStream::connect(addr).expect("connects");
    slow.set_read_timeout(Some(LONG)).expect("a socket");
    let request = format!("GET {STREAM}?index=1&topic=Job&kind=JobRegistered HTTP/1.1\r\n");
    slow.write_all(format!("{request}Host: x\r\n\r\n").as_bytes())
        .expect("asks");
    let mut http = running.http();
    let meta = "m".repeat(16 << 10);
    let names: Vec<String> = (0..1500).map(|n| format!("job-{n}")).collect();
    for name in &names {
        let mut job = job(name, 0);
        job["Job"]["Meta"] = json!({ "weight": meta });
        register(&mut http, &job);
    }
    // Nothing was read so far, and more was said than any buffer between the two holds.
    let mut text = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    let end = "\"Key\":\"job-1499\"";
    let begun = Instant::now();
    loop {
        let read = slow.read(&mut chunk).expect("reads");
        assert!(read > 0, "the stream ended");
        assert!(begun.elapsed() < LONG, "{} bytes, no end", text.len());
        let before = text.len().saturating_sub(end.len());
        text.extend_from_slice(&chunk[..read]);
        let mut new = text[before..].windows(end.len());
        if new.any(|part| part == end.as_bytes()) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text);
    let keys: Vec<&str> = text
        .split("\"Type\":\"JobRegistered\",\"Key\":\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap_or_default())
        .collect();
    assert_eq!(keys, names.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_streamed_is_refused_by_name() {
    let running = with_jobs(&["a"]);
    let mut http = running.http();
    for (query, status, text) in [
        ("index=x", 400, "Unable to parse index"),
        ("index=99999999", 400, "has not happened yet"),
        ("since=soon", 400, "since"),
        ("since=2999-01-01T00:00:00Z", 400, "since"),
        ("index=1&since=-5m", 400, "since"),
        ("topic=:a", 400, "topic"),
        ("kind=Nothing", 400, "there are RaftBlank"),
        ("topic=Jobs", 400, "there are Job, Evaluation"),
        ("actor=robot:x", 400, "there are anonymous, token"),
        ("topics=Job", 400, "there are topic, namespace"),
        ("numbers=text", 400, "plain, strings"),
        ("topic=**&filter=Nothing.ID+%3D%3D+a", 400, "filter"),
        ("format=cloudevents&filter=Job.ID+%3D%3D+a", 400, "filter"),
        ("filter=Job.ID+%3D%3D", 400, "filter"),
        ("filter=Nothing.ID+%3D%3D+a", 400, "filter"),
        ("format=xml", 400, "format"),
        ("checkpoints=maybe", 400, "checkpoints"),
        ("epoch=00", 410, "horizon"),
    ] {
        let answer = http.get(&format!("{STREAM}?{query}")).expect("an answer");
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
        assert!(answer.text().contains(text), "{query}: {}", answer.text());
    }
    let mut stranger = running.http().header("Last-Event-ID", "x");
    assert_eq!(stranger.get(STREAM).expect("an answer").status, 400);
    let mut other = running.http().header("Last-Event-ID", "3@0000");
    let answer = other.get(STREAM).expect("an answer");
    assert_eq!(answer.status, 410, "{}", answer.text());
    assert_eq!(json_of(&mut http, "/v1/jobs")[0]["ID"], "a");
}

#[test]
fn checkpoints_are_for_those_who_ask() {
    let running = with_jobs(&["a"]);
    let mut lines = follow(&running, "index=latest&checkpoints=true&topic=Job:none");
    // What the leader writes by itself may be on its way still.
    let line = json_where(&mut lines, |line| line["Checkpoint"]["Lag"] == 0);
    let newest = line["Checkpoint"]["Index"].as_u64().expect("an index");
    assert!(newest > 0, "{line}");
    // A filtered stream says how far it is, though it sent no event.
    register(&mut running.http(), &job("b", 1));
    let later = next_json(&mut lines)["Checkpoint"]["Index"].as_u64();
    assert!(later > Some(newest), "{later:?}");
    // A subscriber that does not request checkpoints gets none, however many events there are.
    let mut plain = follow(&running, "index=1&topic=Job");
    let reported = until(&mut plain, "b");
    assert!(reported.len() >= 2, "{reported:?}");
    assert!(
        reported.iter().all(|line| line["Checkpoint"].is_null()),
        "{reported:?}"
    );
}
