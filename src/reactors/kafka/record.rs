//! What a message is: its topic, key, headers and payload.
//!
//! - The **key** is what must stay in order: the job (`namespace/id`) for whatever belongs to one,
//!   else the first object the event changed, else the event's kind. An event that changes objects
//!   of several jobs is ordered by the first.
//! - The **headers** are text: `index`, `epoch`, `kind`, `version`, `time` (Unix nanoseconds),
//!   `actor` (its kind), and `mark` where the payload is not the event as it is.
//! - The **payload** is [`Document`], the one form in which an event leaves the log.

use std::io::Write;
use std::ops::Range;

use drover_events::{ActorKind, EventKind, Recorded, Topic};
use drover_projections::{Change, Rejection};
use serde::Serialize;
use smallvec::SmallVec;

use super::super::driver::Failure;
use crate::config::KafkaConfig;
use crate::record::{Document, Redactor};

/// What is special about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The event was refused: it changed nothing.
    Rejected,
    /// The event is too large: its payload is left out.
    Oversized,
    /// The log had dropped the events from this index on before they were published.
    Missed,
}

impl Mark {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Oversized => "oversized",
            Self::Missed => "missed",
        }
    }
}

/// One message; its payload lies in the batch.
#[derive(Debug)]
pub(super) struct Message {
    /// Which of the layout's topics.
    pub topic: u8,
    pub key: String,
    pub payload: Range<usize>,
    pub index: u64,
    pub kind: Option<EventKind>,
    pub time: i64,
    pub actor: &'static str,
    pub mark: Option<Mark>,
}

/// Which topics there are.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// By the number of the stream's topic; the first is for events without one. A single topic
    /// is the first.
    names: Vec<String>,
    /// Topics of the stream that are wanted; empty means all.
    wanted: Vec<Topic>,
}

/// The name's end of the topic for events that the stream has none for.
const OTHER: &str = "Other";

impl Layout {
    pub(super) fn of(config: &KafkaConfig) -> Self {
        let mut names = vec![config.topic.clone()];
        if config.topic_per_stream {
            names[0] = format!("{}.{OTHER}", config.topic);
            let streams = Topic::ALL.iter();
            names.extend(streams.map(|topic| format!("{}.{topic}", config.topic)));
        }
        Self {
            names,
            wanted: wanted_topics(config),
        }
    }

    fn takes(&self, topic: Topic) -> bool {
        self.wanted.is_empty() || self.wanted.contains(&topic)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Topic and key of every message of an event.
    fn routes(&self, kind: EventKind, changes: &[Change]) -> SmallVec<[(u8, String); 1]> {
        let mut routes = SmallVec::new();
        for change in changes {
            let Some(topic) = change.topic.filter(|topic| self.takes(*topic)) else {
                continue;
            };
            let place = match self.names.len() {
                1 => 0,
                _ => topic.number(),
            };
            if !routes.iter().any(|(other, _)| *other == place) {
                routes.push((place, key(change, topic)));
            }
        }
        if routes.is_empty() {
            routes.push((0, kind.name().to_owned()));
        }
        routes
    }
}

/// Unknown names were refused with the configuration.
fn wanted_topics(config: &KafkaConfig) -> Vec<Topic> {
    let names = config.topics.iter();
    names.filter_map(|name| Topic::from_name(name)).collect()
}

/// What keeps a changed object's events in order.
fn key(change: &Change, topic: Topic) -> String {
    // The stream's key is the object's own; the first filter key of these is the job.
    let place = match topic {
        Topic::Allocation | Topic::Evaluation | Topic::Deployment => 1,
        _ => 0,
    };
    let keys = &change.stream_keys;
    let name = keys.get(place).or(keys.first());
    let name = name.map_or("", String::as_str);
    match change.namespace.as_str() {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// Which events are wanted.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    kinds: Vec<EventKind>,
    namespaces: Vec<String>,
    topics: Vec<Topic>,
    rejected: bool,
}

impl Filter {
    /// Unknown names were refused with the configuration.
    pub(super) fn of(config: &KafkaConfig) -> Self {
        let kinds = config.kinds.iter();
        Self {
            kinds: kinds
                .filter_map(|name| EventKind::from_name(name))
                .collect(),
            namespaces: config.namespaces.clone(),
            topics: wanted_topics(config),
            rejected: config.rejected == "mark",
        }
    }

    /// Whether events of this registered number are wanted at all.
    pub(super) fn takes_kind(&self, number: u16) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.number() == number)
    }

    pub(super) fn takes_rejected(&self) -> bool {
        // A refused event changed nothing: it has neither namespace nor topic.
        self.rejected && self.namespaces.is_empty() && self.topics.is_empty()
    }

    pub(super) fn takes_changes(&self, changes: &[Change]) -> bool {
        let space = |change: &Change| self.namespaces.contains(&change.namespace);
        let topic = |change: &Change| change.topic.is_some_and(|one| self.topics.contains(&one));
        (self.namespaces.is_empty() || changes.iter().any(space))
            && (self.topics.is_empty() || changes.iter().any(topic))
    }
}

/// A document with what is special about it.
#[derive(Serialize)]
struct Marked<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    #[serde(rename = "Rejected", skip_serializing_if = "Option::is_none")]
    rejected: Option<&'a Rejection>,
    #[serde(rename = "OversizedBytes", skip_serializing_if = "Option::is_none")]
    oversized: Option<usize>,
}

/// What headers and the message's frame may take beside key and payload.
const FRAME: usize = 512;

/// Messages being made.
pub(super) struct Encoder<'a> {
    pub layout: &'a Layout,
    /// What hides confidential values.
    pub redactor: &'a Redactor,
    /// The largest message, in bytes.
    pub limit: usize,
    /// Whether an event beyond that is an error; otherwise a marker takes its place.
    pub stops: bool,
    pub bytes: Vec<u8>,
    pub messages: Vec<Message>,
    pub oversized: u64,
}

impl Encoder<'_> {
    /// Adds an event's messages. With `rejection` it is one that changed nothing.
    ///
    /// # Errors
    /// The event cannot be shown as JSON.
    pub(super) fn add(
        &mut self,
        event: &Recorded,
        changes: &[Change],
        rejection: Option<&Rejection>,
    ) -> Result<(), Failure> {
        let document = Document::of(event);
        let start = self.bytes.len();
        let mut mark = rejection.map(|_| Mark::Rejected);
        if rejection.is_some() {
            self.marked(document, rejection, None)?;
        } else {
            let hidden = self.redactor.redacted(&document);
            serde_json::to_writer(&mut self.bytes, &hidden)?;
        }
        let routes = self.layout.routes(event.kind, changes);
        let keys = routes.iter().map(|(_, key)| key.len()).max().unwrap_or(0);
        let size = self.bytes.len() - start + keys + FRAME;
        if size > self.limit && self.stops {
            let (index, kind, limit) = (event.index, event.kind.name(), self.limit);
            return Err(format!(
                "event {index} ({kind}) takes {size} bytes, more than {limit}: raise \
                 event_publisher.kafka.max_message_bytes and max.message.bytes of the topic, or \
                 set event_publisher.kafka.oversized = \"mark\" to publish a marker in its place"
            )
            .into());
        }
        if size > self.limit {
            self.bytes.truncate(start);
            let short = Document {
                payload: None,
                ..document
            };
            self.marked(short, rejection, Some(size))?;
            mark = Some(Mark::Oversized);
            self.oversized += 1;
            tell_oversized(event, size, self.limit);
        }
        let actor = event.envelope.as_ref().map(|envelope| envelope.actor.kind);
        for (topic, key) in routes {
            self.messages.push(Message {
                topic,
                key,
                payload: start..self.bytes.len(),
                index: event.index,
                kind: Some(event.kind),
                time: event.time,
                actor: actor.map_or("raft", ActorKind::name),
                mark,
            });
        }
        Ok(())
    }

    fn marked(
        &mut self,
        document: Document<'_>,
        rejected: Option<&Rejection>,
        oversized: Option<usize>,
    ) -> Result<(), Failure> {
        let marked = Marked {
            document,
            rejected,
            oversized,
        };
        let hidden = self.redactor.redacted(&marked);
        Ok(serde_json::to_writer(&mut self.bytes, &hidden)?)
    }

    /// Says that the log no longer holds the events `from..until`.
    ///
    /// # Errors
    /// None in practice: memory is written.
    pub(super) fn missed(&mut self, from: u64, until: u64) -> Result<(), Failure> {
        let start = self.bytes.len();
        let last = until - 1;
        write!(self.bytes, "{{\"MissedFrom\":{from},\"MissedTo\":{last}}}")?;
        self.messages.push(Message {
            topic: 0,
            key: Mark::Missed.name().to_owned(),
            payload: start..self.bytes.len(),
            index: from,
            kind: None,
            time: 0,
            actor: "server",
            mark: Some(Mark::Missed),
        });
        Ok(())
    }
}

fn tell_oversized(event: &Recorded, bytes: usize, limit: usize) {
    tracing::warn!(
        index = event.index,
        kind = event.kind.name(),
        bytes,
        limit,
        "an event is too large for Kafka: a marker takes its place; raise \
         event_publisher.kafka.max_message_bytes and max.message.bytes of the topic"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_projections::Operation;

    fn change(topic: Option<Topic>, namespace: &str, keys: &[&str]) -> Change {
        Change {
            index: 7,
            seq: 0,
            kind: EventKind::PlanApplied,
            table: 1,
            operation: Operation::Put,
            topic,
            key: Vec::new(),
            namespace: namespace.to_owned(),
            stream_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        }
    }

    #[test]
    fn whatever_belongs_to_a_job_has_the_jobs_key() {
        let layout = Layout::of(&KafkaConfig::default());
        assert_eq!(layout.names(), ["drover.events"]);
        let kind = EventKind::PlanApplied;
        let job = [change(Some(Topic::Job), "eu", &["web"])];
        let plan = [
            change(None, "eu", &[]),
            change(Some(Topic::Allocation), "eu", &["a1", "web", "d1"]),
            change(Some(Topic::Evaluation), "eu", &["e1", "web", ""]),
        ];
        let wanted: Vec<(u8, String)> = vec![(0, "eu/web".to_owned())];
        assert_eq!(layout.routes(kind, &job).to_vec(), wanted);
        assert_eq!(layout.routes(kind, &plan).to_vec(), wanted);
        let node = [change(Some(Topic::Node), "", &["n1"])];
        assert_eq!(layout.routes(kind, &node)[0].1, "n1");
        assert_eq!(layout.routes(kind, &[])[0].1, "PlanApplied");
    }

    #[test]
    fn a_topic_per_stream_has_every_event_that_touches_it_once() {
        let config = KafkaConfig {
            topic_per_stream: true,
            ..KafkaConfig::default()
        };
        let layout = Layout::of(&config);
        assert_eq!(layout.names()[0], "drover.events.Other");
        let changes = [
            change(Some(Topic::Allocation), "eu", &["a1", "web", ""]),
            change(Some(Topic::Allocation), "eu", &["a2", "db", ""]),
            change(Some(Topic::Evaluation), "eu", &["e1", "web", ""]),
        ];
        let routes = layout.routes(EventKind::PlanApplied, &changes);
        let shown: Vec<(&str, &str)> = routes
            .iter()
            .map(|(topic, key)| (layout.names()[usize::from(*topic)].as_str(), key.as_str()))
            .collect();
        let wanted = [
            ("drover.events.Allocation", "eu/web"),
            ("drover.events.Evaluation", "eu/web"),
        ];
        assert_eq!(shown, wanted);
        assert_eq!(layout.routes(EventKind::RaftBlank, &[])[0].0, 0);
    }

    #[test]
    fn filters_look_at_kind_namespace_and_topic() {
        let mut config = KafkaConfig {
            rejected: "mark".into(),
            ..KafkaConfig::default()
        };
        let all = Filter::of(&config);
        let web = [change(Some(Topic::Job), "eu", &["web"])];
        assert!(all.takes_rejected() && all.takes_changes(&[]) && all.takes_kind(1));
        config.kinds = vec!["JobRegistered".into()];
        config.namespaces = vec!["eu".into()];
        config.topics = vec!["Job".into()];
        let some = Filter::of(&config);
        assert!(some.takes_kind(EventKind::JobRegistered.number()));
        assert!(!some.takes_kind(EventKind::PlanApplied.number()));
        assert!(some.takes_changes(&web));
        assert!(!some.takes_changes(&[change(Some(Topic::Job), "us", &["web"])]));
        assert!(!some.takes_changes(&[change(Some(Topic::Node), "eu", &["web"])]));
        assert!(!some.takes_changes(&[]) && !some.takes_rejected());
    }

    #[test]
    fn no_message_shows_what_is_confidential() {
        let redactor = crate::record::canary::hider();
        let layout = Layout::of(&KafkaConfig::default());
        for limit in [1 << 20, 10] {
            let mut encoder = Encoder {
                layout: &layout,
                redactor: &redactor,
                limit,
                stops: false,
                bytes: Vec::new(),
                messages: Vec::new(),
                oversized: 0,
            };
            let refused = Rejection::Rule {
                message: "no".to_owned(),
            };
            for event in crate::record::canary::events() {
                encoder.add(&event, &[], None).unwrap();
                encoder.add(&event, &[], Some(&refused)).unwrap();
            }
            let text = String::from_utf8(encoder.bytes).unwrap();
            assert_eq!(crate::record::canary::shown(&text), None);
            assert!(encoder.messages.len() > 100);
        }
    }
}
