//! Every event is in Kafka exactly once and in order, whichever process dies; a dead broker holds
//! up no writer.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_testkit::kafka::{Broker, PASSWORD, Record};
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::{Value, json};

use crate::support::{Known, put, words};

/// A lone server that publishes.
fn server(dir: &Path, brokers: &str, more: &str) -> Result<Setup> {
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), dir)?;
    setup.config += &format!(
        "event_publisher {{\n  kafka {{\n    brokers = [\"{brokers}\"]\n    timeout = \"5s\"\n    \
         linger = \"20ms\"\n    lag_warning = \"1s\"\n{more}\n  }}\n}}\n"
    );
    Ok(setup)
}

pub(crate) fn publisher(agent: &Agent) -> Result<Value> {
    let mut all = agent.http().json("/v1/operator/reactors")?;
    Ok(all["Reactors"]["event_publisher"]["Status"].take())
}

/// Waits until all that is applied is published; answers the last index.
pub(crate) fn caught_up(agent: &Agent) -> Result<u64> {
    wait_for("the publisher to catch up", LONG, || {
        let status = publisher(agent)?;
        let done = status["Connected"] == true && status["Lag"] == 0;
        ensure!(done, "{status}\n{}", agent.log_tail(5));
        status["Published"].as_u64().context("no position")
    })
}

/// Waits until it says why it cannot publish.
pub(crate) fn trouble(agent: &Agent, words: &[&str]) -> Result<Value> {
    wait_for("the publisher to name its trouble", LONG, || {
        let status = publisher(agent)?;
        let error = status["Error"].as_str().unwrap_or_default();
        ensure!(words.iter().all(|word| error.contains(word)), "{status}");
        Ok(status)
    })
}

/// Writes variables; returns within what time nineteen of twenty were there: a writer that is held
/// up for the time that a broker is given (5 s) is seen, a machine that stands still once is not.
pub(crate) fn write(
    agent: &Agent,
    known: &mut Known,
    name: &str,
    count: usize,
) -> Result<Duration> {
    let mut http = agent.http();
    let mut took = Vec::new();
    for number in 0..count {
        let began = Instant::now();
        let answer = put(&mut http, known, &format!("{name}/{}", number % 20), "x")?;
        ensure!(answer.status == 200, "{}", answer.text());
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Ok(took.get(count * 19 / 20).copied().unwrap_or_default())
}

/// Whether writes were held up by a broker, which is given 5 s. A machine that is slow is so with
/// a broker that answers as well: what writes took then is the `floor`.
pub(crate) fn held_up(took: Duration, floor: Duration) -> Result<()> {
    let most = (floor * 10).max(Duration::from_secs(4));
    ensure!(
        took < most,
        "writes took {took:?}, and {floor:?} with a broker"
    );
    Ok(())
}

/// Index and kind of every event, as the log itself has them.
pub(crate) fn history(setup: &Setup) -> Result<BTreeMap<u64, Value>> {
    let output = Command::new(&setup.binary)
        .args(["log", "events", "-json", "-data-dir"])
        .arg(&setup.data_dir)
        .output()?;
    ensure!(output.status.success(), "{}", words(&output));
    let lines = String::from_utf8(output.stdout)?;
    let mut all = BTreeMap::new();
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line)?;
        all.insert(event["Index"].as_u64().context("no index")?, event);
    }
    Ok(all)
}

/// The topic holds each event up to `last` once, as the log has it, in order per key.
fn check(setup: &Setup, records: &[Record], last: u64) -> Result<()> {
    let history = history(setup)?;
    let mut seen = BTreeMap::new();
    let mut latest: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    let mut places: BTreeMap<&str, u32> = BTreeMap::new();
    for record in records {
        let index = record.index()?;
        *seen.entry(index).or_insert(0) += 1;
        let event = history.get(&index).context("not in the log")?;
        ensure!(
            record.payload == *event,
            "{index}: {} is not {event}",
            record.payload
        );
        ensure!(
            record.header("kind") == event["Kind"].as_str(),
            "{record:?}"
        );
        ensure!(
            record
                .header("epoch")
                .is_some_and(|epoch| epoch.len() == 32)
        );
        let place = *places.entry(&record.key).or_insert(record.partition);
        ensure!(
            place == record.partition,
            "{} is in two partitions",
            record.key
        );
        let before = latest.insert((&record.key, record.partition), index);
        ensure!(
            before < Some(index),
            "{} out of order at {index}",
            record.key
        );
    }
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "more than once: {twice:?}");
    let missing: Vec<_> = (1..=last)
        .filter(|index| !seen.contains_key(index))
        .collect();
    ensure!(missing.is_empty(), "missing: {missing:?}");
    ensure!(
        places.values().any(|place| *place > 0),
        "one partition only"
    );
    Ok(())
}

/// The topic keeps messages for the time that was set when it was made, as the broker says; the
/// agent's log names what is wrong with it.
fn kept_for(agent: &Agent, named: &str) -> Result<()> {
    wait_for("how long messages are kept", LONG, || {
        let (log, kept) = (agent.log_tail(400), publisher(agent)?["RetentionMs"].take());
        ensure!(
            kept == 2_592_000_000_i64 && log.contains(named),
            "{kept} {log}"
        );
        Ok::<_, anyhow::Error>(())
    })
}

/// The agent, then the broker, then both are killed while events are published.
fn exactly_once(dir: &Path, broker: &mut Broker) -> Result<()> {
    let mut setup = server(
        &dir.join("once"),
        &broker.addr(),
        "    partitions = 3\n    rejected = \"mark\"\n    batch_events = 50\n    \
         retention = \"720h\"",
    )?;
    let mut known = Known::new();
    let agent = setup.start()?;
    write(&agent, &mut known, "before", 50)?;
    let status = trouble(&agent, &["event_publisher.kafka.brokers", "refused"])?;
    ensure!(status["Lag"].as_u64() > Some(40), "{status}");
    broker.start()?;
    caught_up(&agent)?;
    kept_for(&agent, "")?;

    write(&agent, &mut known, "during", 200)?;
    agent.kill()?;
    setup.config = setup.config.replace("\"720h\"", "\"24h\"");
    let agent = setup.start()?;
    kept_for(&agent, "keeps messages for another time")?;
    let alive = write(&agent, &mut known, "between", 200)?;
    broker.kill()?;
    let dead = write(&agent, &mut known, "dead", 200)?;
    held_up(dead, alive)?;
    wait_for("a lag that is told", LONG, || {
        let status = publisher(&agent)?;
        ensure!(
            status["Lagging"] == true && status["Lag"].as_u64() > Some(150),
            "{status}"
        );
        ensure!(
            agent.log_tail(400).contains("the event publisher lags"),
            "{status}"
        );
        Ok::<_, anyhow::Error>(())
    })?;
    let shown = drover(&agent, &["status"])?;
    ensure!(
        shown.contains("Kafka: ") && shown.contains(" events behind for "),
        "{shown}"
    );
    agent.kill()?;
    broker.start()?;
    let agent = setup.start()?;
    write(&agent, &mut known, "after", 100)?;
    let last = caught_up(&agent)?;
    reported(&agent, &setup)?;
    // Whatever happens in the cluster is behind for a moment.
    wait_for("nothing to be behind", LONG, || {
        let shown = drover(&agent, &["status"])?;
        ensure!(shown.contains("Kafka: published up to index "), "{shown}");
        Ok::<_, anyhow::Error>(())
    })?;
    let last = caught_up(&agent)?.max(last);
    check(&setup, &broker.read("drover.events")?, last)?;
    let cursors = broker.read("drover.events.cursor")?;
    let cursor = cursors.last().context("no position")?;
    ensure!(cursor.payload["Index"].as_u64() >= Some(last), "{cursor:?}");
    agent.stop(LONG)?;
    Ok(())
}

/// Runs the command line against an agent.
fn drover(agent: &Agent, args: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(args)
        .arg(format!("-address=http://{}", agent.addr()))
        .output()?;
    ensure!(output.status.success(), "{}", words(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// Every lag is one event when it begins and one when it ends; it began at least twice.
fn reported(agent: &Agent, setup: &Setup) -> Result<()> {
    wait_for("the end of the lag", LONG, || {
        let status = publisher(agent)?;
        ensure!(status["Lagging"] == false, "{status}");
        Ok::<_, anyhow::Error>(())
    })?;
    let kinds = ["PublisherLagged", "PublisherCaughtUp"];
    let history = history(setup)?;
    let events = history.values();
    let reported: Vec<&Value> = events
        .filter(|event| kinds.iter().any(|kind| event["Kind"] == *kind))
        .collect();
    ensure!(
        reported.len() >= 4 && reported.len().is_multiple_of(2),
        "{reported:?}"
    );
    for pair in reported.chunks(2) {
        let [lagged, ended] = pair else { continue };
        ensure!(
            lagged["Kind"] == kinds[0] && ended["Kind"] == kinds[1],
            "{pair:?}"
        );
        ensure!(lagged["Actor"]["kind"] == "server", "{lagged}");
        ensure!(lagged["Payload"]["Behind"].as_u64() > Some(0), "{lagged}");
        ensure!(ended["Cause"] == lagged["Index"], "{pair:?}");
        ensure!(ended["Payload"]["Since"] == lagged["Index"], "{pair:?}");
    }
    Ok(())
}

/// A certificate that another authority signed is named, and nothing is lost by it.
fn encrypted(dir: &Path, broker: &Broker) -> Result<()> {
    let tls = |authority: &str| {
        let file = |name: &str| broker.file(name).display().to_string();
        format!(
            "    topic = \"encrypted\"\n    security_protocol = \"ssl\"\n    \
             ca_file = \"{}\"\n    cert_file = \"{}\"\n    key_file = \"{}\"",
            file(authority),
            file("client.pem"),
            file("client.key"),
        )
    };
    let data = dir.join("encrypted");
    let setup = server(&data, &broker.tls_addr(), &tls("other.pem"))?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, "before", 20)?;
    let status = trouble(&agent, &["certificate verify failed", "ca_file"])?;
    ensure!(status["Lag"].as_u64() > Some(10), "{status}");
    let health = agent.http().json("/v1/agent/health")?;
    let message = health["event_publisher"]["message"].as_str();
    ensure!(
        message.is_some_and(|text| text.contains("ca_file")),
        "{health}"
    );
    ensure!(health["server"]["ok"] == true, "{health}");
    agent.kill()?;

    let again = server(&data, &broker.tls_addr(), &tls("ca.pem"))?;
    let agent = Setup {
        http: setup.http,
        rpc: setup.rpc,
        ..again
    }
    .start()?;
    all_there(broker, caught_up(&agent)?)?;
    agent.stop(LONG)?;

    let both = format!(
        "    topic = \"encrypted\"\n    security_protocol = \"sasl_ssl\"\n    \
         ca_file = \"{}\"\n    properties {{\n      \"sasl.mechanism\" = \"PLAIN\"\n      \
         \"sasl.username\" = \"drover\"\n      \"sasl.password\" = \"{PASSWORD}\"\n    }}",
        broker.file("ca.pem").display(),
    );
    let again = server(&data, &broker.sasl_tls_addr(), &both)?;
    let agent = Setup {
        http: setup.http,
        rpc: setup.rpc,
        ..again
    }
    .start()?;
    write(&agent, &mut known, "after", 20)?;
    all_there(broker, caught_up(&agent)?)?;
    agent.stop(LONG)?;
    Ok(())
}

/// Every event up to the last is in the topic, once.
fn all_there(broker: &Broker, last: u64) -> Result<()> {
    let records = broker.read("encrypted")?;
    let mut found = records
        .iter()
        .map(Record::index)
        .collect::<Result<Vec<_>>>()?;
    found.sort_unstable();
    found.retain(|index| *index <= last);
    ensure!(found == (1..=last).collect::<Vec<_>>(), "{found:?}");
    Ok(())
}

/// A wrong password is named and never shown; with the right one filters and markers hold.
fn secured(dir: &Path, broker: &Broker) -> Result<()> {
    let sasl = |password: &str| {
        format!(
            "    topic = \"secured\"\n    topic_per_stream = true\n    \
             max_message_bytes = 10000\n    topics = [\"Variable\", \"Job\"]\n    \
             properties {{\n      \
             \"security.protocol\" = \"sasl_plaintext\"\n      \
             \"sasl.mechanism\" = \"PLAIN\"\n      \
             \"sasl.username\" = \"drover\"\n      \"sasl.password\" = \"{password}\"\n    }}"
        )
    };
    let data = dir.join("secured");
    let wrong = "canary-41d7-wrong";
    let setup = server(&data, &broker.sasl_addr(), &sasl(wrong))?;
    let agent = setup.start()?;
    let mut known = Known::new();
    put(&mut agent.http(), &mut known, "small", "x")?;
    put(&mut agent.http(), &mut known, "large", &"x".repeat(20_000))?;
    let task = json!({"Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1s"}});
    let group = json!({"Name": "g", "Count": 0, "Tasks": [task]});
    // What is confidential is short once it is hidden: only what is public can be too large.
    let constraint = json!({"LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "="});
    let job = json!({"Job": {
        "ID": "j", "Datacenters": ["*"], "TaskGroups": [group],
        "Constraints": vec![constraint; 300],
    }});
    let answer = agent.http().put("/v1/jobs", &job)?;
    ensure!(answer.status == 200, "{}", answer.text());
    trouble(&agent, &["sasl.password", "uthentication"])?;
    let reported = agent.http().send("GET", "/v1/agent/self", b"")?.text();
    let log = agent.log_tail(10_000);
    ensure!(
        !log.contains(wrong) && !reported.contains(wrong),
        "the password is shown"
    );
    ensure!(log.contains("sasl.password"), "{log}");
    agent.kill()?;

    let again = server(&data, &broker.sasl_addr(), &sasl(PASSWORD))?;
    let agent = Setup {
        http: setup.http,
        rpc: setup.rpc,
        ..again
    }
    .start()?;
    caught_up(&agent)?;
    let variables = broker.read("secured.Variable")?;
    let shown: Vec<_> = variables
        .iter()
        .map(|one| (one.key.as_str(), one.header("mark")))
        .collect();
    let wanted = [("default/small", None), ("default/large", None)];
    ensure!(shown == wanted, "{shown:?}");
    let jobs = broker.read("secured.Job")?;
    let marked = |one: &&Record| one.header("mark") == Some("oversized");
    let marker = jobs.iter().find(marked).context("no marker")?;
    ensure!(marker.key == "default/j", "{marker:?}");
    let marker = &marker.payload;
    ensure!(marker["Payload"].is_null() && marker["OversizedBytes"].as_u64() > Some(20_000));
    ensure!(broker.read("secured.Other")?.is_empty());
    let status = publisher(&agent)?;
    ensure!(status["Oversized"] == 1, "{status}");
    agent.stop(LONG)?;
    Ok(())
}

#[test]
fn every_event_is_in_kafka_exactly_once_whoever_dies() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let Some(mut broker) = Broker::or_skip(&dir.path().join("broker"))? else {
        return Ok(());
    };
    exactly_once(dir.path(), &mut broker)?;
    secured(dir.path(), &broker)?;
    encrypted(dir.path(), &broker)
}
