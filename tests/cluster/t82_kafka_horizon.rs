//! What Kafka has not received is not dropped while it is waited for, and never silently.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use drover_testkit::kafka::Broker;
use drover_testkit::{Agent, LONG, Setup, wait_for};

use crate::support::Known;
use crate::t80_kafka::{caught_up, publisher, trouble, write};
use crate::t90_retention::status;

/// A lone server that publishes, keeps 100 events, and waits for Kafka as long as this.
fn server(dir: &Path, brokers: &str, wait: &str, more: &str) -> Result<Setup> {
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), dir)?;
    setup.config = format!(
        "server {{\n  enabled = true\n  bootstrap_expect = 1\n  retention {{\n    \
         log {{\n      events = 100\n    }}\n    interval = \"100ms\"\n    \
         publisher_wait = \"{wait}\"\n    segment_size = \"8M\"\n  }}\n}}\n\
         event_publisher {{\n  kafka {{\n    brokers = [\"{brokers}\"]\n    timeout = \"5s\"\n    \
         linger = \"20ms\"\n    lag_warning = \"1s\"\n{more}\n  }}\n}}\n"
    );
    Ok(setup)
}

fn first(agent: &Agent) -> Result<u64> {
    let retention = status(agent)?;
    retention["Status"]["First"]
        .as_u64()
        .with_context(|| retention.to_string())
}

fn dropped_beyond(agent: &Agent, index: u64) -> Result<u64> {
    let mut found = 0;
    wait_for("the horizon to move", LONG, || {
        found = first(agent)?;
        ensure!(found > index, "{}\n{}", status(agent)?, publisher(agent)?);
        Ok(())
    })?;
    Ok(found)
}

/// The indexes in the topic, sorted, without markers.
fn published(broker: &Broker) -> Result<Vec<u64>> {
    let records = broker.read("drover.events")?;
    let events = records.iter().filter(|one| one.header("mark").is_none());
    let mut found = events.map(|one| one.index()).collect::<Result<Vec<_>>>()?;
    found.sort_unstable();
    Ok(found)
}

/// While the broker is away the log keeps what it has not received; it goes once it has.
fn waited_for(dir: &Path, broker: &mut Broker) -> Result<u64> {
    let setup = server(dir, &broker.addr(), "1h", "")?;
    let agent = setup.start()?;
    let mut known = Known::new();
    broker.start()?;
    write(&agent, &mut known, "before", 30)?;
    let sent = caught_up(&agent)?;
    broker.kill()?;
    write(&agent, &mut known, "away", 400)?;
    wait_for("retention to wait for Kafka", LONG, || {
        let retention = status(&agent)?;
        let waits = retention["Status"]["Waits"].as_str().unwrap_or_default();
        ensure!(
            waits.contains("for Kafka") && waits.contains("server.retention.publisher_wait"),
            "{retention}"
        );
        Ok(())
    })?;
    ensure!(first(&agent)? <= sent + 1, "{}", status(&agent)?);
    broker.start()?;
    caught_up(&agent)?;
    write(&agent, &mut known, "back", 200)?;
    dropped_beyond(&agent, 200)?;
    let sent = caught_up(&agent)?;
    let found = published(broker)?;
    let wanted: Vec<u64> = (1..=sent).collect();
    ensure!(found.starts_with(&wanted), "{found:?}");
    agent.stop(LONG)?;
    Ok(sent)
}

/// Where it was not waited for, publishing stops and says so, or continues behind a marker.
fn gone(dir: &Path, broker: &mut Broker) -> Result<()> {
    broker.kill()?;
    let agent = server(dir, &broker.addr(), "0s", "")?.start()?;
    let mut known = Known::new();
    let mut http = agent.http();
    let variables = http.get("/v1/vars")?;
    let newest = variables.header("x-nomad-index").context("no index")?;
    let newest: u64 = newest.parse()?;
    write(&agent, &mut known, "unheard", 400)?;
    let begin = dropped_beyond(&agent, newest + 50)?;
    ensure!(
        agent
            .log_tail(400)
            .contains("events are dropped that Kafka has not received")
    );
    broker.start()?;
    trouble(
        &agent,
        &["dropped from the log", "missed = \"mark\"", "log export"],
    )?;
    // The horizon may still move, and is named anew with each try.
    wait_for("its horizon to be named", LONG, || {
        let horizon = format!("its horizon is {}", first(&agent)? - 1);
        let status = publisher(&agent)?;
        let error = status["Error"].as_str().unwrap_or_default();
        ensure!(error.contains(&horizon), "{horizon}: {status}");
        Ok(())
    })?;
    let before = published(broker)?;
    ensure!(before.last() < Some(&begin), "{before:?}");
    // The horizon moves beyond the event that said since when it lags.
    let lagged = wait_for("the event that tells the lag", LONG, || {
        let status = publisher(&agent)?;
        let since = status["LaggingSince"].as_u64().filter(|index| *index > 0);
        since.with_context(|| status.to_string())
    })?;
    for name in ["on", "further"] {
        let before = first(&agent)?.max(lagged);
        write(&agent, &mut known, name, 300)?;
        dropped_beyond(&agent, before)?;
    }
    agent.stop(LONG)?;

    let agent = server(dir, &broker.addr(), "1h", "    missed = \"mark\"")?.start()?;
    let last = caught_up(&agent)?;
    let records = broker.read("drover.events")?;
    let markers: Vec<_> = records
        .iter()
        .filter(|one| one.header("kind") == Some("EventsMissed"))
        .collect();
    let [marker] = markers[..] else {
        anyhow::bail!("{markers:?}");
    };
    let (from, to) = (&marker.payload["MissedFrom"], &marker.payload["MissedTo"]);
    let (from, to) = (from.as_u64().context("from")?, to.as_u64().context("to")?);
    ensure!(
        Some(&(from - 1)) == before.last() && to + 1 >= begin,
        "{marker:?} {before:?}"
    );
    let found = published(broker)?;
    let wanted: Vec<u64> = (1..from).chain(to + 1..=last).collect();
    ensure!(found.starts_with(&wanted), "{found:?}");
    agent.stop(LONG)?;
    Ok(())
}

#[test]
fn the_log_waits_for_kafka_and_what_it_drops_is_named() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let Some(mut broker) = Broker::or_skip(&dir.path().join("broker"))? else {
        return Ok(());
    };
    let data = dir.path().join("data");
    waited_for(&data, &mut broker)?;
    gone(&data, &mut broker)
}
