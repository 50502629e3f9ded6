//! The `event` noun: the event stream, line by line.

use super::conn::Conn;
use super::out::Out;
use super::show::{Format, list, number, text};
use anyhow::Result;
use clap::Subcommand;
use serde_json::Value as Json;

/// What can be done with events.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Follow the event stream
    Stream(Args),
}

/// Flags of `event stream`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover event stream
  drover event stream -topic Job:web -topic Allocation:web -index 1
  drover event stream -json | jq .")]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Topic or Topic:key; may be repeated; all by default
    #[arg(long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// Begin at exactly this index; 0 begins with the latest
    #[arg(long, default_value_t = 0)]
    index: u64,
    /// End after this many events; 0 never ends
    #[arg(long, default_value_t = 0, value_name = "N")]
    limit: u64,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    let Verb::Stream(args) = verb;
    let client = args.conn.client()?;
    let index = args.index.to_string();
    let mut query = vec![("index", index.as_str())];
    query.extend(args.topic.iter().map(|t| ("topic", t.as_str())));
    let stream = client.stream("/v1/event/stream", &query).await;
    let mut stream = stream.map_err(|err| err.context("Error following the event stream"))?;
    let mut seen = 0;
    while let Some(frame) = stream.json_line().await? {
        for event in list(&frame, "Events") {
            show(&args, event, out)?;
            seen += 1;
            if args.limit > 0 && seen >= args.limit {
                return Ok(0);
            }
        }
    }
    Ok(0)
}

fn show(args: &Args, event: &Json, out: &Out) -> Result<()> {
    if args.format.template.is_some() {
        args.format.print(event, out)?;
    } else if args.format.json {
        out.line(&event.to_string());
    } else {
        let key = text(event, "Key");
        let namespace = text(event, "Namespace");
        let place = if namespace.is_empty() {
            key
        } else {
            format!("{namespace}/{key}")
        };
        let index = number(event, "Index");
        out.line(&format!(
            "{index:>10}  {:<12} {:<34} {place}{}",
            text(event, "Topic"),
            text(event, "Type"),
            whence(event)
        ));
    }
    Ok(())
}

/// Who and from what, where the stream says so.
fn whence(event: &Json) -> String {
    let mut out = String::new();
    let actor = &event["Actor"];
    if !actor.is_null() {
        let parts = ["Kind", "Name", "ID"].map(|k| text(actor, k));
        let name = parts[1..]
            .iter()
            .find(|p| !p.is_empty())
            .cloned()
            .unwrap_or_default();
        out += &format!("  by {} {name}", parts[0]);
    }
    let cause = number(event, "Cause");
    if cause > 0 {
        out += &format!("  because of {cause}");
    }
    out.trim_end().to_owned()
}
