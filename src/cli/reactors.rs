//! `operator reactors`: what follows from events, how it fares, and how far the publisher is.

use super::client::Query;
use super::columns::Table;
use super::conn::Conn;
use super::out::Out;
use super::show::{Format, ago, boolean, number, text};
use anyhow::Result;
use serde_json::Value as Json;

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

/// Prints the reactors of the server that answers.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let asked: (&str, Query<'_>) = ("/v1/operator/reactors", &[]);
    let failed = "Error querying reactors";
    let Some(answer) = args.format.ask(&client, asked, failed, out).await? else {
        return Ok(0);
    };
    let mut table = Table::new([
        "Name",
        "Scope",
        "Running",
        "Activations",
        "Failures",
        "Panics",
    ]);
    let reactors = answer["Reactors"].as_object();
    for (name, one) in reactors.into_iter().flatten() {
        table.row([
            name.clone(),
            text(one, "Scope").to_lowercase(),
            boolean(one, "Running").to_string(),
            number(one, "Activations").to_string(),
            number(one, "Failures").to_string(),
            number(one, "Panics").to_string(),
        ]);
    }
    out.line(&table.to_string());
    let publisher = &answer["Reactors"]["event_publisher"];
    if boolean(publisher, "Running") {
        out.line(&format!("\n{}", published(&publisher["Status"])));
    }
    Ok(0)
}

/// How far the event publisher is, in one line: `Kafka: 12,345 events behind for 3m (why)`.
pub(super) fn published(status: &Json) -> String {
    let place = format!("{} at {}", text(status, "Topic"), text(status, "Brokers"));
    let error = match text(status, "Error").as_str() {
        "" if boolean(status, "Lagging") => " (still catching up)".to_owned(),
        "" => String::new(),
        error => format!(" ({error})"),
    };
    let upto = match status["Published"].as_u64() {
        Some(index) => format!("published up to index {index}"),
        None => "nothing published yet".to_owned(),
    };
    match number(status, "Lag") {
        0 => format!("Kafka: {upto}, no lag{error}; {place}"),
        events => {
            let seconds = status["LagSeconds"].as_f64().unwrap_or(0.0) as i64;
            let long = ago(1, 1 + seconds.saturating_mul(1_000_000_000));
            let long = long.trim_end_matches(" ago");
            let word = if events == 1 { "event" } else { "events" };
            let events = grouped(events);
            format!("Kafka: {events} {word} behind for {long}{error}; {upto}; {place}")
        }
    }
}

/// A number with its thousands set apart: `12,345`.
fn grouped(number: i64) -> String {
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
    use serde_json::json;

    #[test]
    fn a_lag_and_its_reason_are_told() {
        let mut status = json!({
            "Topic": "drover.events", "Brokers": "k1:9092", "Published": 7, "Lag": 0, "Error": "",
        });
        let line = published(&status);
        assert_eq!(
            line,
            "Kafka: published up to index 7, no lag; drover.events at k1:9092"
        );
        status["Lag"] = 12_345.into();
        status["LagSeconds"] = 180.4.into();
        status["Error"] = "connection refused".into();
        let line = published(&status);
        let wanted = "Kafka: 12,345 events behind for 3m (connection refused); published up to \
                      index 7; drover.events at k1:9092";
        assert_eq!(line, wanted);
        status["Lag"] = 1.into();
        status["Error"] = "".into();
        status["Lagging"] = true.into();
        let line = published(&status);
        assert!(line.starts_with("Kafka: 1 event behind for 3m (still catching up);"));
    }
}
