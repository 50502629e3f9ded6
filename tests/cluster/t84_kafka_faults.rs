//! Faults between a publisher and Kafka that only a real broker shows: a connection that stands
//! still, a kill within an open transaction, two publishers under one id, a log that begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use drover_testkit::kafka::{Broker, Record};
use drover_testkit::{Agent, LONG, Setup, Wire, client, wait_for};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{Known, words};
use crate::t80_kafka::{caught_up, held_up, history, publisher, trouble, write};

/// A lone server that publishes to a topic of its own.
fn server(dir: &Path, brokers: &str, topic: &str, more: &str) -> Result<Setup> {
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), dir)?;
    setup.config += &format!(
        "event_publisher {{\n  kafka {{\n    brokers = [\"{brokers}\"]\n    \
         topic = \"{topic}\"\n    \
         rejected = \"mark\"\n    \
         timeout = \"5s\"\n    lag_warning = \"1s\"\n{more}\n  }}\n}}\n"
    );
    Ok(setup)
}

/// How often each index is there, but for events that are published in pieces: those count once.
fn counts(records: &[Record]) -> Result<BTreeMap<u64, usize>> {
    let mut parts: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for record in records {
        let index = record.index()?;
        let part = record.header("part").unwrap_or("1").to_owned();
        if !parts.entry(index).or_default().insert(part) {
            *counts.entry(index).or_insert(1) += 1;
        }
        counts.entry(index).or_insert(1);
    }
    Ok(counts)
}

/// Every index up to the last is there exactly once.
fn once(broker: &Broker, topic: &str, last: u64) -> Result<()> {
    let counts = counts(&broker.read(topic)?)?;
    let wrong: Vec<_> = (1..=last)
        .filter(|index| counts.get(index) != Some(&1))
        .collect();
    ensure!(wrong.is_empty(), "{topic}: not exactly once: {wrong:?}");
    Ok(())
}

/// The client of the documentation reads what is published.
fn documented(dir: &Path, broker: &Broker) -> Result<()> {
    let setup = server(&dir.join("documented"), &broker.addr(), "documented", "")?;
    let agent = setup.start()?;
    write(&agent, &mut Known::new(), "some", 20)?;
    let last = caught_up(&agent)?;
    // It would wait for more: `-e` has it end with what is there.
    let script = client("kcat").replace("kcat -C", "kcat -C -e -q");
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("BROKERS", broker.addr())
        .env("TOPIC", "documented")
        .output()?;
    ensure!(output.status.success(), "{}", words(&output));
    let printed = String::from_utf8(output.stdout)?;
    for index in 1..=last {
        let header = format!("index={index},");
        ensure!(printed.contains(&header), "{index} is not there: {printed}");
    }
    ensure!(printed.contains(" default/some/0 "), "{printed}");
    agent.stop(LONG)?;
    Ok(())
}

/// A connection on which nothing comes back holds up no writer, and is reported.
fn stalled(dir: &Path, broker: &Broker, wire: &Wire) -> Result<()> {
    let data = dir.join("stalled");
    let setup = server(&data, &wire.addr.to_string(), "stalled", "")?;
    let agent = setup.start()?;
    let mut known = Known::new();
    let floor = write(&agent, &mut known, "before", 30)?;
    caught_up(&agent)?;
    for _ in 0..2 {
        wire.stall_after(0);
        held_up(write(&agent, &mut known, "stalled", 50)?, floor)?;
        let status = trouble(&agent, &["event_publisher.kafka.brokers"])?;
        ensure!(status["Connected"] == false, "{status}");
        ensure!(status["Lag"].as_u64() > Some(0), "{status}");
        wire.pass();
        caught_up(&agent)?;
    }
    let last = caught_up(&agent)?;
    once(broker, "stalled", last)?;
    agent.stop(LONG)?;
    // Every message has the time of its event.
    let history = history(&setup)?;
    for record in broker.read("stalled")? {
        let event = &history[&record.index()?];
        let time = event["Time"].as_i64().context("no time")?;
        ensure!(
            time == 0 || record.stamp == time / 1_000_000,
            "{record:?} {event}"
        );
    }
    Ok(())
}

/// A kill while a transaction is open, of which the broker has messages already.
fn killed_within(dir: &Path, broker: &Broker, wire: &Wire) -> Result<()> {
    let data = dir.join("open");
    let more = "    linger = \"1s\"\n    properties {\n      \
                \"batch.num.messages\" = \"10\"\n      \
                \"compression.type\" = \"none\"\n    }";
    let setup = server(&data, &wire.addr.to_string(), "open", more)?;
    let mut known = Known::new();
    let mut agent = setup.start()?;
    write(&agent, &mut known, "before", 20)?;
    caught_up(&agent)?;
    // Some of what is gathered for a second gets through, and its end does not: unless the machine
    // is so slow that it stalls between two transactions, or when the end is through already.
    for round in 0..10 {
        wire.stall_after(60_000);
        write(&agent, &mut known, &format!("within{round}"), 300)?;
        let open = wait_for("messages of an open transaction", LONG / 6, || {
            let (all, committed) = (broker.read_uncommitted("open")?, broker.read("open")?);
            let (all, committed) = (all.len(), committed.len());
            ensure!(wire.is_stalled() && all > committed, "{all} of {committed}");
            Ok::<_, anyhow::Error>(())
        });
        if open.is_err() {
            wire.pass();
            caught_up(&agent)?;
            continue;
        }
        let status = publisher(&agent)?;
        ensure!(status["Lag"].as_u64() > Some(0), "{status}");
        agent.kill()?;
        wire.pass();
        agent = setup.start()?;
        let last = caught_up(&agent)?;
        once(broker, "open", last)?;
        let all = counts(&broker.read_uncommitted("open")?)?;
        // What was given up was published again.
        if all.values().any(|count| *count > 1) {
            agent.stop(LONG)?;
            return Ok(());
        }
    }
    bail!("no transaction was open when the broker stood still")
}

/// Another producer under the same id fences, and is fenced; nothing is lost or doubled.
fn fenced(dir: &Path, broker: &Broker) -> Result<()> {
    let data = dir.join("fenced");
    let more = "    transactional_id = \"shared\"";
    let setup = server(&data, &broker.addr(), "fenced", more)?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, "before", 20)?;
    caught_up(&agent)?;
    for round in 0..3 {
        let before = publisher(&agent)?["Sessions"]
            .as_u64()
            .context("no sessions")?;
        let other: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", broker.addr())
            .set("transactional.id", "shared")
            .create()?;
        other.init_transactions(LONG)?;
        other.begin_transaction()?;
        let record = BaseRecord::to("fenced")
            .key("impostor")
            .payload("not of the log");
        other.send(record).map_err(|(error, _)| error)?;
        other.flush(LONG)?;
        write(&agent, &mut known, &format!("round{round}"), 20)?;
        wait_for("a producer that takes its place again", LONG, || {
            let status = publisher(&agent)?;
            ensure!(status["Sessions"].as_u64() > Some(before), "{status}");
            Ok::<_, anyhow::Error>(())
        })?;
        caught_up(&agent)?;
        let refused = other.commit_transaction(LONG);
        ensure!(refused.is_err(), "the other one was not fenced");
    }
    let last = caught_up(&agent)?;
    let records = broker.read("fenced")?;
    ensure!(
        records.iter().all(|one| one.key != "impostor"),
        "it is committed"
    );
    once(broker, "fenced", last)?;
    agent.stop(LONG)?;
    Ok(())
}

fn drover(agent: &Agent, args: &[&str]) -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(args)
        .env("NOMAD_ADDR", format!("http://{}", agent.addr()))
        .output()?;
    ensure!(output.status.success(), "{}", words(&output));
    Ok(())
}

/// A restore begins a new epoch: what it has is published behind what was, under its own name.
fn restored(dir: &Path, broker: &Broker) -> Result<()> {
    let data = dir.join("restored");
    let setup = server(&data, &broker.addr(), "restored", "")?;
    let agent = setup.start()?;
    let mut known = Known::new();
    write(&agent, &mut known, "before", 20)?;
    let backup = dir.join("backup").display().to_string();
    drover(&agent, &["operator", "snapshot", "save", &backup])?;
    write(&agent, &mut known, "after", 20)?;
    let former = caught_up(&agent)?;
    drover(&agent, &["operator", "snapshot", "restore", &backup])?;
    wait_for("the restored state", LONG, || {
        let answer = agent.http().get("/v1/status/leader")?;
        ensure!(
            answer.status == 200 && answer.text().len() > 4,
            "{}",
            answer.text()
        );
        Ok::<_, anyhow::Error>(())
    })?;
    write(&agent, &mut known, "anew", 20)?;
    let last = caught_up(&agent)?;
    let records = broker.read("restored")?;
    let counts = counts(&records)?;
    ensure!(counts.values().all(|count| *count == 1), "{counts:?}");
    let mut epochs: Vec<&str> = Vec::new();
    for record in &records {
        let epoch = record.header("epoch").context("no epoch")?;
        if epochs.last() != Some(&epoch) {
            epochs.push(epoch);
        }
    }
    let distinct: BTreeSet<_> = epochs.iter().collect();
    ensure!(epochs.len() == 2 && distinct.len() == 2, "{epochs:?}");
    let of = |epoch: &str| -> Result<Vec<u64>> {
        let mine = records
            .iter()
            .filter(|one| one.header("epoch") == Some(epoch));
        mine.map(Record::index).collect()
    };
    let (old, new) = (of(epochs[0])?, of(epochs[1])?);
    ensure!((1..=former).all(|index| old.contains(&index)), "{old:?}");
    let begin = *new.first().context("nothing of the new one")?;
    ensure!(
        begin > former && (begin..=last).all(|index| new.contains(&index)),
        "{new:?}"
    );
    let first = records
        .iter()
        .find(|one| one.header("epoch") == Some(epochs[1]));
    let kind = first.and_then(|one| one.header("kind"));
    ensure!(kind == Some("ClusterRestored"), "{kind:?}");
    let cursors = broker.read("restored.cursor")?;
    let cursor = cursors.last().context("no position")?;
    ensure!(cursor.payload["Epoch"] == epochs[1], "{cursor:?}");
    agent.stop(LONG)?;
    Ok(())
}

#[test]
fn whatever_happens_between_a_publisher_and_kafka_every_event_is_there_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let Some(mut broker) = Broker::or_skip(&dir.path().join("broker"))? else {
        return Ok(());
    };
    broker.start()?;
    let wire = broker.wire()?;
    documented(dir.path(), &broker)?;
    stalled(dir.path(), &broker, &wire)?;
    killed_within(dir.path(), &broker, &wire)?;
    fenced(dir.path(), &broker)?;
    restored(dir.path(), &broker)
}
