//! A stretch of the newest events, rendered once for all subscribers.

use bytes::Bytes;
use drover_events::topic::Publication;
use drover_events::{Actor, EventKind, Topic};
use drover_projections::changes::Change;

use super::form::{self, Form, IndexFrame};
use super::own;
use super::payload::{self, Shown};
use super::sample::Data;
use super::selection::Headline;
use super::walk::{StreamWalk, WalkItem, WalkSource};
use crate::error::Refusal;
use crate::history::record::numbers::Numbers;
use crate::history::record::{CloudEvent, Document, RecordedOutcome, Redactor};

/// Bytes of lines and CloudEvents after which a page ends.
const FULL: usize = 64 << 10;
/// Bytes of one index's line, or of its CloudEvent, above which it is kept nowhere: a reader that
/// wants it reads the projections and the log.
const BIG: usize = 1 << 20;
/// A document takes as many times the bytes of its text, itself included.
const DOCUMENT: usize = 8;
/// Nomad's form.
const LINES: Form = Form {
    sse: false,
    cloud: false,
    checkpoints: false,
    by_type: false,
    numbers: Numbers::Plain,
};

/// What subscribers need beside the lines of Nomad's NDJSON stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// The payloads themselves, for filters.
    pub(super) payloads: bool,
    /// What only the log knows: actors, and events without rows.
    pub(super) log: bool,
    /// The log's events as CloudEvents, for callers that may see all of them.
    pub(super) cloud_events: bool,
    /// The same for all other callers.
    pub(super) cloud_events_without_hashes: bool,
    /// The documents in those, for filters.
    pub(super) documents: bool,
}

impl Needs {
    /// Whether a page that has these has those too.
    pub(super) const fn cover(self, other: Self) -> bool {
        (self.payloads || !other.payloads)
            && (self.log || !other.log)
            && (self.cloud_events || !other.cloud_events)
            && (self.cloud_events_without_hashes || !other.cloud_events_without_hashes)
            && (self.documents || !other.documents)
    }
}

/// What CloudEvents need: which log they are of, and what hides confidential values.
#[derive(Debug, Default)]
pub(super) struct Clouds {
    /// The epoch of the log.
    pub(super) epoch: [u8; 16],
    /// As for every export: secrets are left out, sensitive values are hashes.
    pub(super) redactor: Redactor,
    /// The same without the hashes: a caller that sees them finds out what a value is by writing
    /// others until one has its hash.
    pub(super) redactor_without_hashes: Redactor,
    /// The address of an agent, where events report their schemas to be.
    pub(super) agent: String,
}

/// One event, rendered.
#[derive(Debug)]
pub(super) struct Event {
    topic: Topic,
    namespace: String,
    keys: Vec<String>,
    /// The event as JSON: a part of its line.
    pub(super) json: Bytes,
    /// What filters look into; none where it is not kept or cannot be read.
    pub(super) payload: Option<Box<dyn Shown>>,
}

impl Event {
    /// What the event is known by.
    pub(super) fn headline(&self, kind: EventKind) -> Headline<'_> {
        Headline {
            kind,
            topic: self.topic,
            namespace: &self.namespace,
            keys: &self.keys,
        }
    }
}

/// The events of one index.
#[derive(Debug)]
pub(super) struct EventBatch {
    pub(super) index: u64,
    /// The kind; none where what is kept of it cannot be read.
    pub(super) kind: Option<EventKind>,
    pub(super) events: Vec<Event>,
    /// The whole line.
    pub(super) line: Bytes,
    /// Where the line begins in the page; what is of our own lies outside.
    start: usize,
    pub(super) actor: Option<Actor>,
    /// For callers that may see all events.
    pub(super) cloud: Option<Cloud>,
    /// For all other callers.
    pub(super) cloud_without_hashes: Option<Cloud>,
}

/// A CloudEvent.
#[derive(Debug)]
pub(super) struct Cloud {
    pub(super) text: Bytes,
    /// The document in it, read from its text once for all subscribers.
    pub(super) document: Option<Data>,
}

impl EventBatch {
    /// The log's event for callers that may see all events, or not; none where it is not kept.
    pub(super) fn cloud(&self, sees_all: bool) -> Option<&Cloud> {
        match sees_all {
            true => self.cloud.as_ref(),
            false => self.cloud_without_hashes.as_ref(),
        }
    }

    /// Bytes of its CloudEvents.
    fn cloud_bytes(&self) -> usize {
        let both = [&self.cloud, &self.cloud_without_hashes]
            .into_iter()
            .flatten();
        both.map(|cloud| cloud.text.len()).sum()
    }
}

/// Everything about some indexes, without a gap between `first` and `upto`.
#[derive(Debug)]
pub(super) struct StreamPage {
    pub(super) first: u64,
    pub(super) upto: u64,
    pub(super) batches: Vec<EventBatch>,
    /// What its batches have beside their lines.
    pub(super) has: Needs,
    /// Whether its index was too big to be kept, so that the projections and the log have to be
    /// read for it.
    pub(super) too_big: bool,
    bytes: Bytes,
}

impl StreamPage {
    /// A page that says nothing of the indexes it stands for.
    fn of_nothing(first: u64, upto: u64, has: Needs, too_big: bool) -> Self {
        Self {
            first,
            upto,
            batches: Vec::new(),
            has,
            too_big,
            bytes: Bytes::new(),
        }
    }

    /// Bytes it takes in memory, roughly.
    pub(super) fn memory_bytes(&self) -> usize {
        let beside = |batch: &EventBatch| {
            let cloud_bytes = batch.cloud_bytes() * if self.has.documents { DOCUMENT } else { 1 };
            let per_event = if self.has.payloads { 1024 } else { 0 };
            192 + batch.line.len() + cloud_bytes + (256 + per_event) * batch.events.len()
        };
        256 + self.batches.iter().map(beside).sum::<usize>()
    }

    /// The batches from a position on.
    pub(super) fn from(&self, position: u64) -> &[EventBatch] {
        let start = self.batches.partition_point(|b| b.index < position);
        &self.batches[start..]
    }

    /// The lines of all that Nomad sends from a position on, without a copy.
    pub(super) fn lines(&self, position: u64) -> Bytes {
        match self.from(position).first() {
            Some(batch) => self.bytes.slice(batch.start..),
            None => Bytes::new(),
        }
    }

    /// Renders the indexes from `first` on, until the page is full or `last` is reached.
    ///
    /// # Errors
    /// When changes or log cannot be read; a row that cannot is written as such.
    pub(super) fn render(
        source: WalkSource<'_>,
        (first, last): (u64, u64),
        has: Needs,
        clouds: &Clouds,
    ) -> Result<Self, Refusal> {
        let mut walk = StreamWalk::new(source, (first, last), has.log)?;
        let mut draft = PageDraft {
            source,
            has,
            clouds,
            out: Vec::new(),
            beside: 0,
            batches: Vec::new(),
        };
        let mut upto = last;
        while let Some(item) = walk.next()? {
            if !draft.add(&walk, &item)? {
                if item.index == first {
                    return Ok(Self::of_nothing(first, first, has, true));
                }
                upto = item.index - 1;
                break;
            }
            if draft.out.len() + draft.beside >= FULL {
                upto = item.index;
                break;
            }
        }
        Ok(draft.finish(first, upto))
    }
}

/// A page that is being rendered.
struct PageDraft<'a> {
    source: WalkSource<'a>,
    has: Needs,
    clouds: &'a Clouds,
    out: Vec<u8>,
    /// Bytes of what lies outside: lines of our own and CloudEvents.
    beside: usize,
    batches: Vec<(EventBatch, Vec<std::ops::Range<usize>>)>,
}

impl PageDraft<'_> {
    /// Adds an index; false if it is too big, and then it is as if it had not been tried.
    fn add(&mut self, walk: &StreamWalk<'_>, item: &WalkItem) -> Result<bool, Refusal> {
        let start = self.out.len();
        let mut batch = EventBatch {
            index: item.index,
            kind: item.kind,
            events: Vec::new(),
            line: Bytes::new(),
            start,
            actor: None,
            cloud: None,
            cloud_without_hashes: None,
        };
        let mut ranges = Vec::new();
        let Some(kind) = item.kind else {
            damaged(item.index, LINES, &mut self.out);
            self.batches.push((batch, ranges));
            return Ok(true);
        };
        if item.topics == 0 || (item.is_own() && walk.was_refused(item)?) {
            return Ok(true);
        }
        if item.is_own() {
            self.add_own(&mut batch, item)?;
        } else {
            let mut frame = IndexFrame::default();
            for change in walk.changes(item)? {
                let Some(event) = self.event(&change, &mut frame, &mut ranges)? else {
                    continue;
                };
                batch.events.push(event);
                if self.out.len() - start > BIG {
                    self.out.truncate(start);
                    return Ok(false);
                }
            }
            frame.end(LINES, &mut self.out);
        }
        if batch.events.is_empty() {
            return Ok(true);
        }
        if self.has.log {
            batch.actor = item.actor()?;
        }
        if self.has.cloud_events {
            batch.cloud = Some(self.cloud(item, true)?);
        }
        if self.has.cloud_events_without_hashes {
            batch.cloud_without_hashes = Some(self.cloud(item, false)?);
        }
        let cloud_bytes = batch.cloud_bytes();
        // Of Nomad's lines nothing is cut out yet: this is one of our own, or empty.
        let own = batch.line.len();
        if own > BIG || cloud_bytes > BIG {
            self.out.truncate(start);
            return Ok(false);
        }
        self.beside += own + cloud_bytes;
        debug_assert_eq!(batch.kind, Some(kind));
        self.batches.push((batch, ranges));
        Ok(true)
    }

    fn cloud(&self, item: &WalkItem, sees_all: bool) -> Result<Cloud, Refusal> {
        let mut text = Vec::new();
        cloud(item, (self.clouds, sees_all), &mut text)?;
        let document = match self.has.documents && text.len() <= BIG {
            true => Some(Data::of(&text)?),
            false => None,
        };
        let text = text.into();
        Ok(Cloud { text, document })
    }

    fn event(
        &mut self,
        change: &Change,
        frame: &mut IndexFrame,
        ranges: &mut Vec<std::ops::Range<usize>>,
    ) -> Result<Option<Event>, Refusal> {
        let Some((headline, event_type)) = headline(change) else {
            return Ok(None);
        };
        let payload = payload::payload(self.source.view, change).transpose();
        let Some(payload) = payload else {
            return Ok(None);
        };
        frame.event(LINES, change.index, &mut self.out);
        let start = self.out.len();
        let payload = write(
            &mut self.out,
            (change.index, event_type),
            &headline,
            payload,
        );
        ranges.push(start..self.out.len());
        Ok(Some(Event {
            topic: headline.topic,
            namespace: headline.namespace.to_owned(),
            keys: headline.keys.to_vec(),
            json: Bytes::new(),
            payload: payload.filter(|_| self.has.payloads),
        }))
    }

    /// An event of our own: its line lies by itself, for Nomad's lines go out in one.
    fn add_own(&self, batch: &mut EventBatch, item: &WalkItem) -> Result<(), Refusal> {
        let Some((kind, topic, namespace, keys, payload)) = own::of(item.recorded()?) else {
            return Ok(());
        };
        let mut event = Event {
            topic,
            namespace,
            keys,
            json: Bytes::new(),
            payload: None,
        };
        let (mut out, mut frame) = (Vec::new(), IndexFrame::default());
        frame.event(LINES, item.index, &mut out);
        let start = out.len();
        let named = (item.index, kind.name());
        form::event(&mut out, named, &event.headline(kind), &payload)?;
        let range = start..out.len();
        frame.end(LINES, &mut out);
        batch.line = out.into();
        event.json = batch.line.slice(range);
        event.payload = self
            .has
            .payloads
            .then(|| Box::new(payload) as Box<dyn Shown>);
        batch.events.push(event);
        Ok(())
    }

    /// Freezes the bytes; lines and events become parts of them.
    fn finish(self, first: u64, upto: u64) -> StreamPage {
        let bytes = Bytes::from(self.out);
        let mut ends: Vec<usize> = self.batches.iter().skip(1).map(|(b, _)| b.start).collect();
        ends.push(bytes.len());
        let mut batches = Vec::with_capacity(self.batches.len());
        for ((mut batch, ranges), end) in self.batches.into_iter().zip(ends) {
            if batch.line.is_empty() {
                batch.line = bytes.slice(batch.start..end);
                for (event, range) in batch.events.iter_mut().zip(ranges) {
                    event.json = bytes.slice(range);
                }
            }
            batches.push(batch);
        }
        StreamPage {
            first,
            upto,
            batches,
            has: self.has,
            too_big: false,
            bytes,
        }
    }
}

/// What the stream shows of a change beside its payload, and its type; none where it shows nothing
/// of it.
pub(super) fn headline(change: &Change) -> Option<(Headline<'_>, &'static str)> {
    let Publication::Event { event_type, .. } = change.kind.publication() else {
        return None;
    };
    let headline = Headline {
        kind: change.kind,
        topic: change.topic?,
        namespace: &change.namespace,
        keys: &change.stream_keys,
    };
    Some((headline, event_type))
}

/// Writes an event with the payload that was read, or why it was not; the payload, if it was.
pub(super) fn write(
    out: &mut Vec<u8>,
    named: (u64, &str),
    headline: &Headline<'_>,
    payload: Result<Box<dyn Shown>, Refusal>,
) -> Option<Box<dyn Shown>> {
    let written = payload.and_then(|payload| {
        form::event(out, named, headline, &*payload)?;
        Ok(payload)
    });
    match written {
        Ok(payload) => Some(payload),
        Err(error) => {
            tracing::error!(index = named.0, %error, "an event is sent without its payload");
            form::unreadable(out, named, headline, &error);
            None
        }
    }
}

/// Writes the log's event as a CloudEvent, for callers that may see all events or for others.
///
/// # Errors
/// When it cannot be decoded.
pub(super) fn cloud(
    item: &WalkItem,
    (clouds, sees_all): (&Clouds, bool),
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let recorded = item.recorded()?;
    // What was refused is not sent on the stream.
    let document = Document::of(&recorded).became(Some(RecordedOutcome::Applied));
    let event = CloudEvent::of(document, clouds.epoch, &clouds.agent);
    let redactor = match sees_all {
        true => &clouds.redactor,
        false => &clouds.redactor_without_hashes,
    };
    Redactor::write(Some(redactor), out, &event).map_err(|e| Refusal::internal(e.to_string()))
}

/// Writes that something happened of which this server cannot say what: every subscriber gets it.
pub(super) fn damaged(index: u64, form: Form, out: &mut Vec<u8>) {
    tracing::error!(index, "what changed at an index cannot be read");
    let (before, after) = if form.sse {
        ("data: ", "\n\n")
    } else {
        ("", "\n")
    };
    let why = "what changed here cannot be read on this server";
    form::line(
        out,
        format_args!("{before}{{\"Index\":{index},\"Events\":[],\"Unreadable\":\"{why}\"}}{after}"),
    );
}
