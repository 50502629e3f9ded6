//! `operator reactors`: what follows from events, how it fares, and how far the publisher is.

use super::columns::Table;
use super::conn::Conn;
use super::out::Out;
use super::show::{Format, boolean, number, text};
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
    let answer = args
        .conn
        .client()?
        .get_json("/v1/operator/reactors", &[])
        .await;
    let answer = answer.map_err(|err| err.context("Error querying reactors"))?;
    if args.format.print(&answer, out)? {
        return Ok(0);
    }
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

/// How far the event publisher is, in one line.
fn published(status: &Json) -> String {
    let place = format!("{} at {}", text(status, "Topic"), text(status, "Brokers"));
    let upto = match status["Published"].as_u64() {
        Some(index) => format!("published up to {index}"),
        None => "nothing published yet".to_owned(),
    };
    let lag = match number(status, "Lag") {
        0 => "no lag".to_owned(),
        events => {
            let seconds = status["LagSeconds"].as_f64().unwrap_or(0.0);
            format!("{events} events ({seconds:.0} s) behind")
        }
    };
    let error = match text(status, "Error").as_str() {
        "" => String::new(),
        error => format!("\n{error}"),
    };
    format!("Events to Kafka: {place}: {upto}, {lag}{error}")
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
            "Events to Kafka: drover.events at k1:9092: published up to 7, no lag"
        );
        status["Lag"] = 41.into();
        status["LagSeconds"] = 12.3.into();
        status["Error"] = "no broker; check".into();
        let line = published(&status);
        assert!(
            line.ends_with("41 events (12 s) behind\nno broker; check"),
            "{line}"
        );
    }
}
