//! The `event` noun: the event stream, line by line, and the schemas of events.

pub(super) mod position;
pub(super) mod schema;

use super::answer;
use super::client::{Client, Stream, is_status};
use super::conn::Conn;
use super::log::export::moment;
use super::out::{Out, one_line};
use super::show::Format;
use super::template;
use crate::base::clock::Moment;
use anyhow::{Result, bail};
use clap::Subcommand;
use position::{Position, SAVE_EVERY, Sink};
use schema::SchemaArgs;
use serde::Deserialize;
use serde_json::Value as Json;
use std::path::PathBuf;
use std::time::Duration;

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
  drover event stream -resume position.txt -cloudevents -out events.ndjson

Topics are those of Nomad (Job, Evaluation, Allocation, Node, …) and drover's own for what Nomad
says nothing about (Cluster, Configuration, Namespace, JobVersion, RootKey, …). Without -index,
-since and a file to resume from, the newest events come first, then what happens.

With -resume the position is kept in a file, with the epoch of the log: it is replaced after what it
covers was written. With -out each event is in that file exactly once, whatever is killed: what a
kill left behind the position is cut off. On standard output it is at least once: what was printed
after the position was kept last (200 ms) is printed again.")]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Topic or Topic:key; may be repeated; all of Nomad's by default
    #[arg(long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// All topics, also those that Nomad does not have, of all namespaces
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
    /// Begin at this index, RFC 3339 time, or so long ago (-5m)
    #[arg(long, value_name = "MOMENT")]
    since: Option<String>,
    /// Print the log's events as CloudEvents 1.0 in JSON
    #[arg(long)]
    cloudevents: bool,
    /// Go on after the position in this file, keep it there, and connect again when cut off
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write to the end of this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Integers beyond 2^53 as texts, for readers with doubles (JavaScript, jq)
    #[arg(long)]
    strings: bool,
    /// End after this many events; 0 never ends
    #[arg(long, default_value_t = 0, value_name = "N")]
    limit: u64,
}

/// Time before connecting again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Stream(args) => stream(*args, out).await,
        Verb::Schema(args) => schema::run(&args, out),
    }
}

async fn stream(args: Args, out: &Out) -> Result<u8> {
    if args.format.template.is_some() && args.format.json {
        bail!("Both json and template formatting are not allowed");
    }
    let begin = args.since.as_deref().map(|text| moment("since", text));
    let begin = match begin.transpose()? {
        Some(Moment::Index(index)) => Some(("index", index.to_string())),
        Some(Moment::Time(_)) => args.since.clone().map(|since| ("since", since)),
        None => args.index.clone().map(|index| ("index", index)),
    };
    let begin = begin.unwrap_or(("index", "0".to_owned()));
    let client = args.conn.client()?;
    let mut run = EventRun {
        position: Position::load(args.resume.as_deref())?,
        seen: 0,
        sink: Sink::Out(out),
    };
    if let Some(path) = &args.out {
        run.sink = Sink::open(path, run.position.offset())?;
        // From here on whatever a kill leaves is known to be behind the position.
        run.save()?;
    }
    if args.resume.is_none() {
        let stream = connect(&client, (&args, &begin), &run.position).await?;
        run.follow(&args, stream).await?;
        run.sink.sync_output()?;
        return Ok(0);
    }
    let mut pause = PAUSE.0;
    loop {
        let before = run.seen;
        let outcome = match connect(&client, (&args, &begin), &run.position).await {
            Ok(stream) => run.follow(&args, stream).await,
            Err(error) => Err(error),
        };
        run.save()?;
        match outcome {
            Ok(true) => return Ok(0),
            Ok(false) => out.error("The stream ended; connecting again."),
            // What the server refuses it will refuse again.
            Err(error) if [400, 403, 410].iter().any(|code| is_status(&error, *code)) => {
                return Err(error);
            }
            Err(error) => out.error(&format!("{error:#}; connecting again.")),
        }
        pause = if run.seen > before {
            PAUSE.0
        } else {
            (pause * 2).min(PAUSE.1)
        };
        tokio::time::sleep(pause).await;
    }
}

/// Connects to where the position is, or to the beginning that the user named: a parameter and its
/// value.
async fn connect(
    client: &Client,
    (args, begin): (&Args, &(&'static str, String)),
    position: &Position,
) -> Result<Stream> {
    let next = position.index().map(|index| (index + 1).to_string());
    let mut query = vec![match &next {
        Some(index) => ("index", index.as_str()),
        None => (begin.0, begin.1.as_str()),
    }];
    if !position.epoch().is_empty() {
        query.push(("epoch", position.epoch()));
    }
    if args.all {
        query.extend([("topic", "**"), ("namespace", "*")]);
    }
    if args.strings {
        query.push(("numbers", "strings"));
    }
    query.extend(args.topic.iter().map(|t| ("topic", t.as_str())));
    query.extend(args.kind.iter().map(|t| ("kind", t.as_str())));
    query.extend(args.actor.iter().map(|t| ("actor", t.as_str())));
    query.extend(args.filter.iter().map(|t| ("filter", t.as_str())));
    if args.cloudevents {
        query.push(("format", "cloudevents"));
    }
    if args.resume.is_some() {
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

/// A line of the stream.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct StreamLine {
    /// The index of the events.
    index: u64,
    /// The events, as they are passed on.
    events: Vec<Json>,
    /// How far the stream is.
    checkpoint: Option<StreamPosition>,
    /// Why it ends.
    error: Option<StreamEnd>,
}

/// A place of the stream.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct StreamPosition {
    index: u64,
}

/// Why a stream ends.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct StreamEnd {
    message: String,
}

/// A CloudEvent, as far as it is looked at here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CloudEvent {
    data: StreamPosition,
}

/// An event of the stream, as it is printed for people.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Event {
    index: u64,
    topic: String,
    #[serde(rename = "Type")]
    kind: String,
    namespace: String,
    key: String,
}

impl StreamLine {
    /// A line that was read; a CloudEvent stands by itself.
    fn of(line: Json) -> Result<StreamLine> {
        if line.get("specversion").is_none() {
            return answer::of(line);
        }
        let event: CloudEvent = answer::of(line.clone())?;
        Ok(StreamLine {
            index: event.data.index,
            events: vec![line],
            ..StreamLine::default()
        })
    }
}

/// A run of the command.
struct EventRun<'a> {
    position: Position,
    /// Events printed.
    seen: u64,
    sink: Sink<'a>,
}

impl EventRun<'_> {
    /// Prints what comes; returns whether as many events came as were requested.
    async fn follow(&mut self, args: &Args, mut stream: Stream) -> Result<bool> {
        self.position.belong(&stream.epoch);
        loop {
            let line = match tokio::time::timeout(SAVE_EVERY, stream.json_line()).await {
                Ok(line) => line?,
                Err(_) => {
                    self.save()?;
                    continue;
                }
            };
            let Some(line) = line else {
                return Ok(false);
            };
            let frame = StreamLine::of(line)?;
            if let Some(error) = frame.error {
                bail!("The server ends the stream: {}", error.message);
            }
            if let Some(checkpoint) = frame.checkpoint {
                self.position.reach(checkpoint.index);
            } else if self.print(args, frame.index, frame.events)? {
                return Ok(true);
            }
            if self.position.is_due() {
                self.save()?;
            }
        }
    }

    /// Prints the events of an index but for those that were printed before; returns whether there
    /// are as many now as were requested.
    fn print(&mut self, args: &Args, index: u64, events: Vec<Json>) -> Result<bool> {
        let (known, all) = (self.position.within(index), events.len());
        for (place, event) in events.into_iter().enumerate().skip(known) {
            self.sink.line(&shown(args, event)?)?;
            self.seen += 1;
            if args.limit > 0 && self.seen >= args.limit {
                match place + 1 == all {
                    true => self.position.reach(index),
                    false => self.position.stop_within(index, place + 1),
                }
                return Ok(true);
            }
        }
        self.position.reach(index);
        Ok(false)
    }

    /// Keeps the position, once what it covers is written.
    fn save(&mut self) -> Result<()> {
        let offset = self.sink.sync_output()?;
        self.position.save(offset)
    }
}

/// An event as it is printed.
fn shown(args: &Args, event: Json) -> Result<String> {
    if let Some(template) = &args.format.template {
        return template::render(template, &event);
    }
    if args.cloudevents || args.format.json {
        return Ok(event.to_string());
    }
    let Event {
        index,
        topic,
        kind,
        namespace,
        key,
    } = answer::of(event)?;
    let place = if namespace.is_empty() {
        key
    } else {
        format!("{namespace}/{key}")
    };
    let line = format!("{index:>10}  {topic:<12} {kind:<34} {place}");
    Ok(one_line(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::record;
    use crate::history::testing::blank;
    use crate::http::answers::stream_lines;
    use drover_events::Topic;

    fn read(line: &[u8]) -> StreamLine {
        StreamLine::of(serde_json::from_slice(line).unwrap()).unwrap()
    }

    #[test]
    fn every_field_of_a_line_that_the_stream_sends_is_read() {
        let StreamLine {
            index,
            mut events,
            checkpoint,
            error,
        } = read(&stream_lines::line(Topic::Job));
        assert_eq!((index, events.len()), (7, 1));
        assert!(checkpoint.is_none() && error.is_none());
        let Event {
            index,
            topic,
            kind,
            namespace,
            key,
        } = answer::of(events.remove(0)).unwrap();
        assert_eq!((index, &*topic, &*kind), (7, "Job", "JobRegistered"));
        assert_eq!((&*namespace, &*key), ("red", "web"));
        let checkpoint = read(&stream_lines::checkpoint()).checkpoint;
        assert_eq!(checkpoint.map(|position| position.index), Some(7));
        let error = read(&stream_lines::error("no")).error;
        assert_eq!(error.map(|end| end.message).as_deref(), Some("no"));
    }

    #[test]
    fn the_index_of_a_cloud_event_is_read() {
        let blank = blank(7);
        let event = record::CloudEvent::of(record::Document::of(&blank), [1; 16], "");
        let line = serde_json::to_vec(&event).unwrap();
        let StreamLine { index, events, .. } = read(&line);
        assert_eq!((index, events.len()), (7, 1));
    }
}
