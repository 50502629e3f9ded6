//! `operator reactors`: what follows from events, how it fares, and how far the publisher is.

use super::answer;
use super::client::Query;
use super::columns::ColumnTable;
use super::conn::Conn;
use super::out::Out;
use super::show::{Format, ago};
use crate::reactors::kafka::PublisherReport;
use anyhow::Result;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Flags of `operator reactors`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator reactors
  drover operator reactors -json | jq .Reactors.event_publisher.Status

Reactors of scope leader run on the leader only. The event publisher says how many events it is
behind, and what to check where it cannot publish.")]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
}

/// The reactors of a server; where they run may be named by a word that this command does not know.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Reactors {
    reactors: BTreeMap<String, Reactor>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Reactor {
    scope: String,
    running: bool,
    activations: u64,
    failures: u64,
    panics: u64,
    /// What it says of itself: each something else.
    status: Json,
}

impl Reactors {
    /// What the publisher of events says of itself; none where it does not run.
    pub(super) fn publisher(&self) -> Option<&Json> {
        let publisher = self.reactors.get("event_publisher");
        publisher
            .filter(|publisher| publisher.running)
            .map(|publisher| &publisher.status)
    }
}

/// Prints the reactors of the server that answers.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let requested: (&str, Query<'_>) = ("/v1/operator/reactors", &[]);
    let failed = "Error querying reactors";
    let answer = args.format.ask::<Reactors>(&client, requested, failed, out);
    let Some(answer) = answer.await? else {
        return Ok(0);
    };
    let mut table = ColumnTable::new([
        "Name",
        "Scope",
        "Running",
        "Activations",
        "Failures",
        "Panics",
    ]);
    for (name, one) in &answer.reactors {
        table.row([
            name.clone(),
            one.scope.to_lowercase(),
            one.running.to_string(),
            one.activations.to_string(),
            one.failures.to_string(),
            one.panics.to_string(),
        ]);
    }
    out.line(&table.to_string());
    if let Some(status) = answer.publisher() {
        out.line(&format!("\n{}", published(status)?));
    }
    Ok(0)
}

/// How far the event publisher is, in one line: `Kafka: 12,345 events behind for 3m (why)`.
///
/// # Errors
/// It says so in a way that this version does not know.
pub(super) fn published(status: &Json) -> Result<String> {
    Ok(reported(&answer::of(status.clone())?))
}

fn reported(status: &PublisherReport) -> String {
    let place = format!("{} at {}", status.topic, status.brokers);
    let error = match status.error.as_str() {
        "" if status.lagging => " (still catching up)".to_owned(),
        "" => String::new(),
        error => format!(" ({error})"),
    };
    let upto = match status.published {
        Some(index) => format!("published up to index {index}"),
        None => "nothing published yet".to_owned(),
    };
    match status.lag {
        0 => format!("Kafka: {upto}, no lag{error}; {place}"),
        events => {
            let seconds = status.lag_seconds as i64;
            let long = ago(1, 1 + seconds.saturating_mul(1_000_000_000));
            let long = long.trim_end_matches(" ago");
            let word = if events == 1 { "event" } else { "events" };
            let events = grouped(events);
            format!("Kafka: {events} {word} behind for {long}{error}; {upto}; {place}")
        }
    }
}

/// A number with its thousands set apart: `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactors::ReactorsStatus;
    use crate::reactors::runner::{ReactorStatus, Scope};
    use serde_json::json;

    #[test]
    fn every_field_of_a_reactor_that_a_server_reports_is_read() {
        let status = json!({"Lag": 7});
        let publisher = ReactorStatus {
            scope: Scope::Leader,
            running: true,
            activations: 1,
            failures: 2,
            panics: 3,
            last_error: "refused".to_owned(),
            status: status.clone(),
        };
        let reported = ReactorsStatus {
            scheduling: None,
            reactors: [("event_publisher", publisher)].into(),
        };
        let mut read: Reactors = answer::of(serde_json::to_value(reported).unwrap()).unwrap();
        assert_eq!(read.publisher(), Some(&status));
        let Reactor {
            scope,
            running,
            activations,
            failures,
            panics,
            status: own,
        } = read.reactors.remove("event_publisher").unwrap();
        assert_eq!((&*scope, running, own), ("Leader", true, status));
        assert_eq!([activations, failures, panics], [1, 2, 3]);
    }

    #[test]
    fn a_lag_and_its_reason_are_told() {
        let status = json!({
            "Topic": "drover.events", "Brokers": "k1:9092", "Published": 7, "Lag": 0, "Error": "",
        });
        let line = published(&status).unwrap();
        assert_eq!(
            line,
            "Kafka: published up to index 7, no lag; drover.events at k1:9092"
        );
        let mut status: PublisherReport = answer::of(status).unwrap();
        (status.lag, status.lag_seconds) = (12_345, 180.4);
        "connection refused".clone_into(&mut status.error);
        let line = reported(&status);
        let wanted = "Kafka: 12,345 events behind for 3m (connection refused); published up to \
                      index 7; drover.events at k1:9092";
        assert_eq!(line, wanted);
        status.lag = 1;
        status.error.clear();
        status.lagging = true;
        let line = reported(&status);
        assert!(line.starts_with("Kafka: 1 event behind for 3m (still catching up);"));
    }
}
