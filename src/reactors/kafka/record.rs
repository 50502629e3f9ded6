//! What a message is: its topic, key, headers, time and payload.
//!
//! - An event that holds many objects is published as one message for **each object** ([`split`]),
//!   so that what happened to an object is in order however many partitions there are; an event
//!   about one thing is one message.
//! - The **key** is what must stay in order: the job (`namespace/id`) for whatever belongs to one,
//!   else the object, else the event's kind.
//! - The **topic**, with one per stream, is the one under which the event stream has the object. An
//!   object that an event changed on its way (a job's status by a plan) is published there as well,
//!   by a message that names it and has no payload.
//! - The **headers** are text: `index`, `epoch`, `kind`, `version`, `time` (Unix nanoseconds),
//!   `actor` (its kind) and `actor_id`, `namespace`, `cause`, `outcome`, `part` and `parts` where
//!   the event is split, `mark` where the payload is not the event as it is, the `content-type`,
//!   and `ce_…` where CloudEvents are bound to headers.
//! - The **time** is the event's.
//! - The **payload** is [`Document`], the one form in which an event leaves the log, by itself or
//!   as the data of a CloudEvent.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::ops::Range;

use drover_events::{Actor, ActorKind, Recorded};
use drover_projections::{Change, Rejection};

use super::super::runner::Failure;
use super::routes::{Layout, Route, Routed, cut};
use crate::history::record::numbers::Numbers;
use crate::history::record::split::split;
use crate::history::record::{
    Attributes, CloudEvent, Document, EventPart, Payload, RecordedOutcome, Redactor, reason,
};

/// Why the payload of a message is not the event as it was applied: the header `mark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageMark {
    /// The event was rejected: it changed nothing.
    Rejected,
    /// The event, or this piece of it, is too large: its payload is left out.
    Oversized,
    /// The log had dropped the events from this index on before they were published.
    Missed,
}

impl MessageMark {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rejected => "refused",
            Self::Oversized => "oversized",
            Self::Missed => "missed",
        }
    }
}

/// A header: its name, and where in the batch's text its value stands.
pub(super) type Header = (&'static str, Range<usize>);

/// One message; its payload and its headers lie in the batch.
#[derive(Debug)]
pub(super) struct Message {
    /// Which of the layout's topics.
    pub topic: u8,
    pub key: String,
    pub payload: Range<usize>,
    pub headers: Range<usize>,
    /// Unix milliseconds; none where the broker's clock is to be used.
    pub stamp: Option<i64>,
}

/// What a payload is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// The document.
    #[default]
    Json,
    /// A CloudEvent whose data is the document.
    CloudEvents,
    /// The document, and the CloudEvent's attributes as headers.
    Bound,
}

impl Format {
    /// Unknown names were refused with the configuration.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "cloudevents" => Self::CloudEvents,
            "cloudevents-binary" => Self::Bound,
            _ => Self::Json,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::CloudEvents => "application/cloudevents+json; charset=UTF-8",
            Self::Json | Self::Bound => "application/json",
        }
    }
}

/// No topic's limit is searched below this: a marker always fits.
pub(super) const LEAST_LIMIT: usize = 10_000;
/// The longest text that a marker repeats: what is longer is cut, a hash says of what.
const BRIEF: usize = 160;

/// What headers and the message's frame may take beside key and payload.
const FRAME: usize = 512;
/// The same where a CloudEvent's attributes are headers.
const BOUND: usize = 2_048;

/// How messages are made.
#[derive(Clone, Debug)]
pub(super) struct Style {
    pub format: Format,
    pub numbers: Numbers,
    /// Whether an event that holds many objects is split into pieces.
    pub split: bool,
    /// Whether a message beyond the limit is an error; otherwise a marker takes its place.
    pub stops: bool,
    pub epoch: [u8; 16],
    /// The agent that schemas are named at.
    pub agent: String,
}

/// Messages being made.
pub(super) struct Encoder<'a> {
    pub layout: &'a Layout,
    /// What hides confidential values.
    pub redactor: &'a Redactor,
    pub style: &'a Style,
    /// The largest message, in bytes.
    pub limit: usize,
    pub bytes: Vec<u8>,
    /// The values of all headers.
    pub text: String,
    pub headers: Vec<Header>,
    pub messages: Vec<Message>,
    pub oversized: u64,
}

/// One event that is being published.
struct EventMessages<'e> {
    event: &'e Recorded,
    document: Document<'e>,
    stamp: Option<i64>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(
        layout: &'a Layout,
        redactor: &'a Redactor,
        style: &'a Style,
        limit: usize,
    ) -> Self {
        Self {
            layout,
            redactor,
            style,
            limit,
            bytes: Vec::new(),
            text: String::new(),
            headers: Vec::new(),
            messages: Vec::new(),
            oversized: 0,
        }
    }

    /// Adds an event's messages. With `rejection` it is one that changed nothing. `time` is the
    /// event's, or that of the event beside it for Raft's own, Unix nanoseconds.
    ///
    /// # Errors
    /// The event cannot be shown as JSON.
    pub(super) fn add(
        &mut self,
        event: &Recorded,
        changes: &[Change],
        rejection: Option<&Rejection>,
        time: Option<i64>,
    ) -> Result<(), Failure> {
        let why = rejection.map(reason);
        let of_event = EventMessages {
            event,
            document: Document::of(event).became(Some(RecordedOutcome::of(why.as_deref()))),
            stamp: time.map(|time| time.div_euclid(1_000_000)),
        };
        let pieces = match &event.envelope {
            Some(envelope) if self.style.split && rejection.is_none() => split(&envelope.event),
            _ => Vec::new(),
        };
        if pieces.is_empty() {
            let routes = self.layout.routes(event, changes);
            return self.add_document(&of_event, of_event.document, &routes);
        }
        let routed = self.layout.pieces(&pieces, changes);
        let of = u32::try_from(routed.len())?;
        for (number, one) in (1..).zip(routed) {
            let Routed {
                route,
                object,
                piece,
            } = one;
            let part = EventPart {
                number,
                of,
                topic: object.0,
                key: object.1,
            };
            let document = Document {
                part: Some(part),
                payload: piece.map(|piece| Payload(&piece.event)),
                ..of_event.document
            };
            self.add_document(&of_event, document, &[route])?;
        }
        Ok(())
    }

    /// Adds a document to the topics it belongs to.
    fn add_document(
        &mut self,
        of_event: &EventMessages<'_>,
        document: Document<'_>,
        routes: &[Route],
    ) -> Result<(), Failure> {
        if routes.is_empty() {
            return Ok(());
        }
        let start = self.bytes.len();
        self.write(&document)?;
        let mut mark = (document.outcome == Some("refused")).then_some(MessageMark::Rejected);
        let size = self.size(of_event.event, &document, routes, self.bytes.len() - start);
        let brief;
        let mut document = document;
        if size > self.limit {
            self.refuse_or_report_oversized(of_event.event, size)?;
            self.bytes.truncate(start);
            brief = Brief::of(&document);
            document = brief.marker(&document, size);
            self.write(&document)?;
            mark = Some(MessageMark::Oversized);
            self.oversized += 1;
        }
        for route in routes {
            let first = self.headers.len();
            let namespace = match mark {
                Some(MessageMark::Oversized) => cut(&route.namespace, BRIEF),
                _ => Cow::Borrowed(route.namespace.as_str()),
            };
            self.head(of_event.event, &document, &namespace, mark);
            self.messages.push(Message {
                topic: route.place,
                key: route.key.clone(),
                payload: start..self.bytes.len(),
                headers: first..self.headers.len(),
                stamp: of_event.stamp,
            });
        }
        Ok(())
    }

    /// What a message takes, at most: its payload of so many bytes, key, headers and frame.
    fn size(
        &mut self,
        event: &Recorded,
        document: &Document<'_>,
        routes: &[Route],
        payload: usize,
    ) -> usize {
        let keys = routes.iter().map(|route| route.key.len()).max();
        let frame = match self.style.format {
            Format::Bound => BOUND,
            Format::Json | Format::CloudEvents => FRAME,
        };
        let size = payload + keys.unwrap_or(0) + frame;
        // A header's text is in the payload, too, or in the key: small ones need not be weighed.
        if size <= self.limit / 4 {
            return size;
        }
        let (text, headers) = (self.text.len(), self.headers.len());
        let namespaces = routes.iter().map(|route| route.namespace.as_str());
        let longest = namespaces.max_by_key(|name| name.len());
        self.head(event, document, longest.unwrap_or_default(), None);
        let values = self.text.len() - text;
        self.text.truncate(text);
        self.headers.truncate(headers);
        size + values.saturating_sub(frame / 2)
    }

    /// Appends a document in the configured form, without what is hidden.
    fn write(&mut self, document: &Document<'_>) -> Result<(), Failure> {
        let start = self.bytes.len();
        let Style {
            format,
            epoch,
            agent,
            ..
        } = self.style;
        match format {
            Format::CloudEvents => {
                let event = CloudEvent::of(*document, *epoch, agent);
                serde_json::to_writer(&mut self.bytes, &self.redactor.redacted(&event))?;
            }
            Format::Json | Format::Bound => {
                serde_json::to_writer(&mut self.bytes, &self.redactor.redacted(document))?;
            }
        }
        self.style.numbers.rewrite(&mut self.bytes, start);
        Ok(())
    }

    fn header(&mut self, name: &'static str, value: impl Display) {
        let start = self.text.len();
        // Text cannot fail to be written to.
        let _ = write!(self.text, "{value}");
        self.headers.push((name, start..self.text.len()));
    }

    fn head(
        &mut self,
        event: &Recorded,
        document: &Document<'_>,
        namespace: &str,
        mark: Option<MessageMark>,
    ) {
        self.header("index", event.index);
        self.header("epoch", hex::encode(self.style.epoch));
        self.header("kind", event.kind.name());
        self.header("version", event.kind.version());
        self.header("time", event.time);
        let actor = document.actor.map(|actor| actor.kind);
        self.header("actor", actor.map_or("raft", ActorKind::name));
        if let Some(actor) = document.actor.filter(|actor| !actor.id.is_empty()) {
            self.header("actor_id", &actor.id);
        }
        if !namespace.is_empty() {
            self.header("namespace", namespace);
        }
        if let Some(cause) = document.cause {
            self.header("cause", cause);
        }
        if let Some(outcome) = document.outcome {
            self.header("outcome", outcome);
        }
        if let Some(part) = document.part {
            self.header("part", part.number);
            self.header("parts", part.of);
            self.header("part_topic", part.topic.name());
            self.header("part_key", part.key);
        }
        if let Some(mark) = mark {
            self.header("mark", mark.name());
        }
        self.header("content-type", self.style.format.content_type());
        if self.style.format == Format::Bound {
            let attributes = Attributes::of(document, self.style.epoch, &self.style.agent);
            attributes.each(|name, value| self.header(name, value));
        }
    }

    /// # Errors
    /// Where such an event is to stop everything.
    fn refuse_or_report_oversized(&self, event: &Recorded, bytes: usize) -> Result<(), Failure> {
        let (index, kind, limit) = (event.index, event.kind.name(), self.limit);
        if self.style.stops {
            return Err(format!(
                "event {index} ({kind}) takes {bytes} bytes, more than {limit}: raise \
                 event_publisher.kafka.max_message_bytes and max.message.bytes of the topic, or \
                 set event_publisher.kafka.oversized = \"mark\" to publish a marker in its place"
            )
            .into());
        }
        tracing::warn!(
            index,
            kind,
            bytes,
            limit,
            "an event is too large for Kafka: a marker takes its place; raise \
             event_publisher.kafka.max_message_bytes and max.message.bytes of the topic"
        );
        Ok(())
    }

    /// Says that the log no longer holds the events `from..until`.
    ///
    /// # Errors
    /// None in practice: memory is written.
    pub(super) fn missed(&mut self, from: u64, until: u64) -> Result<(), Failure> {
        let start = self.bytes.len();
        let last = until - 1;
        let data = format!("{{\"MissedFrom\":{from},\"MissedTo\":{last}}}");
        let epoch = hex::encode(self.style.epoch);
        match self.style.format {
            Format::CloudEvents => write!(
                self.bytes,
                "{{\"specversion\":\"1.0\",\"id\":\"missed-{from}-{last}\",\
                 \"source\":\"drover/{epoch}\",\"type\":\"io.drover.{MISSED}\",\
                 \"datacontenttype\":\"application/json\",\"data\":{data}}}"
            )?,
            Format::Json | Format::Bound => self.bytes.write_all(data.as_bytes())?,
        }
        let first = self.headers.len();
        self.header("index", from);
        self.header("epoch", &epoch);
        self.header("kind", MISSED);
        self.header("version", 1);
        self.header("time", 0);
        self.header("actor", "server");
        self.header("mark", MessageMark::Missed.name());
        self.header("content-type", self.style.format.content_type());
        if self.style.format == Format::Bound {
            self.header("ce_specversion", "1.0");
            self.header("ce_id", format_args!("missed-{from}-{last}"));
            self.header("ce_source", format_args!("drover/{epoch}"));
            self.header("ce_type", format_args!("io.drover.{MISSED}"));
        }
        self.messages.push(Message {
            topic: 0,
            key: MessageMark::Missed.name().to_owned(),
            payload: start..self.bytes.len(),
            headers: first..self.headers.len(),
            stamp: None,
        });
        Ok(())
    }
}

/// The texts of a document that its marker repeats, none of them long.
struct Brief {
    actor: Option<Actor>,
    key: Option<String>,
    request: Option<String>,
    trace: Option<String>,
    reason: Option<String>,
}

impl Brief {
    fn of(document: &Document<'_>) -> Self {
        let brief = |text: &str| cut(text, BRIEF).into_owned();
        let actor = document.actor.map(|actor| Actor {
            kind: actor.kind,
            id: brief(&actor.id),
            name: brief(&actor.name),
            ..Actor::default()
        });
        Self {
            actor,
            key: document.part.map(|part| brief(part.key)),
            request: document.request_id.map(brief),
            trace: document.trace.map(brief),
            reason: document.reason.map(brief),
        }
    }

    fn marker<'b>(&'b self, document: &Document<'b>, bytes: usize) -> Document<'b> {
        let part = document.part.zip(self.key.as_deref());
        Document {
            payload: None,
            oversized_bytes: Some(bytes),
            actor: self.actor.as_ref(),
            part: part.map(|(part, key)| EventPart { key, ..part }),
            request_id: self.request.as_deref(),
            trace: self.trace.as_deref(),
            reason: self.reason.as_deref(),
            ..*document
        }
    }
}

/// The kind of a marker for events that the log had dropped.
const MISSED: &str = "EventsMissed";

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
