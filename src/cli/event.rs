//! The `event` noun: the event stream, line by line, and the schemas of events.

use super::client::{Client, Stream, is_status};
use super::conn::Conn;
use super::event_schema::{self, SchemaArgs};
use super::out::Out;
use super::show::{Format, list, number, text};
use crate::whole;
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What can be done with events.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Follow the event stream
    Stream(Box<Args>),
    /// Show the JSON Schemas of events
    Schema(SchemaArgs),
}

/// Flags of `event stream`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover event stream
  drover event stream -topic Job:web -topic Allocation:web -index 1
  drover event stream -since -1h -kind JobRegistered -actor token:ci
  drover event stream -topic Allocation -filter 'Allocation.ClientStatus == \"failed\"'
  drover event stream -all -index latest -json | jq .
  drover event stream -resume position.txt -cloudevents >> events.ndjson

Topics are those of Nomad (Job, Evaluation, Allocation, Node, …) and drover's own for what Nomad
says nothing about (Cluster, Configuration, Namespace, JobVersion, RootKey, …). Without -index,
-since and a file to resume from, the newest events come first, then what happens.")]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Topic or Topic:key; may be repeated; all of Nomad's by default
    #[arg(long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// All topics, also those that Nomad does not have
    #[arg(long, conflicts_with = "topic")]
    all: bool,
    /// Only events of this kind, JobRegistered for example; may be repeated
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only what this actor did: token, node, … or an id or a name, or both; may be repeated
    #[arg(long, value_name = "ACTOR")]
    actor: Vec<String>,
    /// Only events whose payload passes this expression
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Begin at exactly this index, or with what comes next: latest
    #[arg(long, value_name = "INDEX", conflicts_with = "since")]
    index: Option<String>,
    /// Begin at this time: RFC 3339, or a duration back like -5m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Print the log's events as CloudEvents 1.0 in JSON
    #[arg(long)]
    cloudevents: bool,
    /// Go on behind the position in this file, keep it there, and connect again when cut off
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// End after this many events; 0 never ends
    #[arg(long, default_value_t = 0, value_name = "N")]
    limit: u64,
}

/// Time between two writes of the position.
const SAVE_EVERY: Duration = Duration::from_millis(200);
/// Time before connecting again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Stream(args) => stream(*args, out).await,
        Verb::Schema(args) => event_schema::run(&args, out),
    }
}

async fn stream(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let mut position = Position::load(args.resume.as_deref())?;
    let mut seen = 0;
    if args.resume.is_none() {
        let stream = connect(&client, &args, &position).await?;
        follow(&args, stream, &mut position, &mut seen, out).await?;
        return Ok(0);
    }
    let mut pause = PAUSE.0;
    loop {
        let before = seen;
        let outcome = match connect(&client, &args, &position).await {
            Ok(stream) => follow(&args, stream, &mut position, &mut seen, out).await,
            Err(error) => Err(error),
        };
        position.save()?;
        match outcome {
            Ok(true) => return Ok(0),
            Ok(false) => out.error("The stream ended; connecting again."),
            // What the server refuses it will refuse again.
            Err(error) if [400, 403, 410].iter().any(|code| is_status(&error, *code)) => {
                return Err(error);
            }
            Err(error) => out.error(&format!("{error:#}; connecting again.")),
        }
        pause = if seen > before {
            PAUSE.0
        } else {
            (pause * 2).min(PAUSE.1)
        };
        tokio::time::sleep(pause).await;
    }
}

async fn connect(client: &Client, args: &Args, position: &Position) -> Result<Stream> {
    let index = match position.next() {
        Some(index) => index.to_string(),
        None => args.index.clone().unwrap_or_else(|| "0".to_owned()),
    };
    let mut query = Vec::new();
    match &args.since {
        Some(since) if position.next().is_none() => query.push(("since", since.as_str())),
        _ => query.push(("index", index.as_str())),
    }
    if !position.epoch.is_empty() {
        query.push(("epoch", position.epoch.as_str()));
    }
    if args.all {
        query.push(("topic", "**"));
    }
    query.extend(args.topic.iter().map(|t| ("topic", t.as_str())));
    query.extend(args.kind.iter().map(|t| ("kind", t.as_str())));
    query.extend(args.actor.iter().map(|t| ("actor", t.as_str())));
    query.extend(args.filter.iter().map(|t| ("filter", t.as_str())));
    if args.cloudevents {
        query.push(("format", "cloudevents"));
    }
    if position.path.is_some() {
        query.push(("checkpoints", "true"));
    }
    let stream = client.stream("/v1/event/stream", &query).await;
    stream.map_err(|error| {
        let gone = is_status(&error, 410);
        let error = error.context("Error following the event stream");
        match gone {
            true => error.context(
                "The position is gone; begin again with -index or -since (and without the \
                 file to resume from)",
            ),
            false => error,
        }
    })
}

/// Prints what comes; says whether as many events came as were asked for.
async fn follow(
    args: &Args,
    mut stream: Stream,
    position: &mut Position,
    seen: &mut u64,
    out: &Out,
) -> Result<bool> {
    loop {
        let frame = match tokio::time::timeout(SAVE_EVERY, stream.json_line()).await {
            Ok(frame) => frame?,
            Err(_) => {
                position.save()?;
                continue;
            }
        };
        let Some(frame) = frame else {
            return Ok(false);
        };
        let error = &frame["Error"];
        if !error.is_null() {
            bail!("The server ends the stream: {}", text(error, "Message"));
        }
        let checkpoint = &frame["Checkpoint"];
        if !checkpoint.is_null() {
            position.reach(number(checkpoint, "Index"), &text(checkpoint, "Epoch"))?;
            continue;
        }
        let cloud = frame.get("specversion").is_some();
        let events = match cloud {
            true => std::slice::from_ref(&frame),
            false => list(&frame, "Events"),
        };
        let index = match cloud {
            true => number(&frame["data"], "Index"),
            false => number(&frame, "Index"),
        };
        let known = position.known_of(index);
        for (place, event) in events.iter().enumerate().skip(known) {
            show(args, event, out)?;
            *seen += 1;
            if args.limit > 0 && *seen >= args.limit {
                position.stop(index, place + 1, events.len());
                return Ok(true);
            }
        }
        if index > 0 {
            position.reach(index, "")?;
        }
    }
}

/// How far the stream was printed, and where that is kept.
#[derive(Debug)]
struct Position {
    path: Option<PathBuf>,
    /// Everything up to this index was printed.
    index: Option<u64>,
    /// Of this later index so many events were printed.
    within: Option<(u64, usize)>,
    epoch: String,
    saved: String,
    at: Instant,
}

impl Position {
    /// The position in a file; none where there is no file yet.
    fn load(path: Option<&Path>) -> Result<Position> {
        let mut position = Position {
            path: path.map(Path::to_owned),
            index: None,
            within: None,
            epoch: String::new(),
            saved: String::new(),
            at: Instant::now(),
        };
        let Some(path) = path else {
            return Ok(position);
        };
        let kept = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(position),
            kept => kept.with_context(|| format!("Error reading {}", path.display()))?,
        };
        if kept.trim().is_empty() {
            return Ok(position);
        }
        let (index, epoch) = kept.trim().split_once('@').unwrap_or((kept.trim(), ""));
        let bad = || format!("{} does not hold a position: {kept:?}", path.display());
        match index.split_once('+') {
            Some((index, known)) => {
                let index: u64 = index.parse().with_context(bad)?;
                position.within = Some((index, known.parse().with_context(bad)?));
                position.index = index.checked_sub(1);
            }
            None => position.index = Some(index.parse().with_context(bad)?),
        }
        epoch.clone_into(&mut position.epoch);
        position.saved = position.text();
        Ok(position)
    }

    /// Where to go on; none at the beginning.
    fn next(&self) -> Option<u64> {
        let within = self.within.map(|(index, _)| index);
        within.or_else(|| self.index.map(|index| index + 1))
    }

    /// How many events of an index were printed before.
    fn known_of(&self, index: i64) -> usize {
        match self.within {
            Some((within, known)) if u64::try_from(index) == Ok(within) => known,
            _ => 0,
        }
    }

    /// So many events of an index were printed, of so many.
    fn stop(&mut self, index: i64, printed: usize, all: usize) {
        let Ok(index) = u64::try_from(index) else {
            return;
        };
        if printed >= all {
            (self.index, self.within) = (Some(index), None);
        } else {
            (self.index, self.within) = (index.checked_sub(1), Some((index, printed)));
        }
    }

    /// As it is kept: `INDEX@EPOCH`, or `INDEX+N@EPOCH` where only N events of that index were
    /// printed; empty at the beginning.
    fn text(&self) -> String {
        let epoch = &self.epoch;
        match (self.within, self.index) {
            (Some((index, known)), _) => format!("{index}+{known}@{epoch}\n"),
            (None, Some(index)) => format!("{index}@{epoch}\n"),
            (None, None) => String::new(),
        }
    }

    /// Everything up to an index was printed.
    fn reach(&mut self, index: i64, epoch: &str) -> Result<()> {
        self.index = u64::try_from(index).ok().max(self.index);
        self.within = self.within.filter(|(within, _)| Some(*within) > self.index);
        if !epoch.is_empty() {
            epoch.clone_into(&mut self.epoch);
        }
        match self.at.elapsed() >= SAVE_EVERY {
            true => self.save(),
            false => Ok(()),
        }
    }

    /// Keeps the position, if it moved.
    fn save(&mut self) -> Result<()> {
        let text = self.text();
        let Some(path) = self.path.as_ref().filter(|_| text != self.saved) else {
            return Ok(());
        };
        whole::put(path, text.as_bytes())
            .with_context(|| format!("Error writing {}", path.display()))?;
        (self.saved, self.at) = (text, Instant::now());
        Ok(())
    }
}

fn show(args: &Args, event: &Json, out: &Out) -> Result<()> {
    if args.format.template.is_some() {
        args.format.print(event, out)?;
    } else if args.format.json || args.cloudevents {
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
            "{index:>10}  {:<12} {:<34} {place}",
            text(event, "Topic"),
            text(event, "Type"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_kept_to_the_event() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("position");
        let kept = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Position::load(Some(&path))
        };
        let mut position = kept("").unwrap();
        assert_eq!((position.next(), position.known_of(7)), (None, 0));
        position.reach(6, "e").unwrap();
        position.stop(7, 2, 3);
        position.save().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "7+2@e\n");
        let mut position = Position::load(Some(&path)).unwrap();
        assert_eq!(position.next(), Some(7));
        assert_eq!((position.known_of(7), position.known_of(8)), (2, 0));
        // A checkpoint below it takes nothing back, the index itself settles it.
        position.reach(6, "e").unwrap();
        assert_eq!(position.known_of(7), 2);
        position.reach(7, "e").unwrap();
        assert_eq!((position.next(), position.known_of(7)), (Some(8), 0));
        position.stop(9, 1, 1);
        position.save().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "9@e\n");
        for bad in ["x", "7+x@e", "+1@e", "-3"] {
            let error = kept(bad).unwrap_err().to_string();
            assert!(error.contains("does not hold a position"), "{error}");
        }
    }
}
