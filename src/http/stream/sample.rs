//! Empty events for filters to be tried on before anything happens: what makes sense for none of
//! them is a mistake, and is refused at once.

use drover_events::mask::{Hidden, NoSecrets};
use drover_events::topic::Publication;
use drover_events::{Actor, Event, EventId, EventKind, Topic};
use drover_projections::filter::{Fields, Lookup, ReadError};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::payload::{self, Shown};
use crate::error::Refusal;
use crate::history::record::{Document, Payload, RecordedOutcome, deep};

/// What subscribers to these topics and kinds (none: every one) may be shown, empty: payloads, or
/// the documents of CloudEvents.
pub(super) fn all(
    (topics, kinds): (u64, &[EventKind]),
    cloud: bool,
) -> impl Iterator<Item = Box<dyn Shown>> {
    let of_topics = Topic::ALL
        .iter()
        .filter(move |topic| topic.bit() & topics != 0 && !cloud);
    let rows = of_topics.filter_map(|topic| payload::sample(*topic));
    let wanted = move |kind: &&EventKind| {
        let own = kind.own_topic().map_or(0, Topic::bit);
        let shown = if cloud {
            own | topics_of_rows(**kind)
        } else {
            own
        };
        shown & topics != 0 && (kinds.is_empty() || kinds.contains(kind))
    };
    let events = EventKind::ALL.iter().filter(wanted);
    let events = events.filter_map(move |kind| {
        let event = empty(*kind)?;
        Some(match cloud {
            true => Box::new(SampleDocument(event)) as Box<dyn Shown>,
            false => Box::new(SamplePayload(event)),
        })
    });
    rows.chain(events)
}

/// The topics that rows of a kind's events are sent under.
fn topics_of_rows(kind: EventKind) -> u64 {
    match kind.publication() {
        Publication::Event { topics, .. } => topics.iter().fold(0, |all, topic| all | topic.bit()),
        Publication::Nothing => 0,
    }
}

/// An event that says nothing; none of Raft's own, which never say anything.
fn empty(kind: EventKind) -> Option<Event> {
    let nothing = Value::Object(serde_json::Map::new());
    Event::deserialize_payload(kind, nothing).ok()
}

/// The document in a CloudEvent, as filters see it: what is null has nothing in it, as an empty map
/// has not.
#[derive(Debug)]
pub(super) struct Data(Value);

#[cfg(test)]
thread_local! {
    /// How many documents this thread took out of a text.
    pub(super) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Data {
    /// The document in a CloudEvent's text.
    ///
    /// # Errors
    /// JSON that is none.
    pub(super) fn of(cloud: &[u8]) -> Result<Self, Refusal> {
        #[cfg(test)]
        PARSED.set(PARSED.get() + 1);
        let cloud = deep::value(cloud);
        let mut cloud = cloud.map_err(|e| Refusal::internal(e.to_string()))?;
        Ok(Self(
            cloud.get_mut("data").map(Value::take).unwrap_or_default(),
        ))
    }
}

impl Fields for Data {
    fn read(&self, path: &[String]) -> Result<Lookup, ReadError> {
        match self.0.read(path) {
            Err(ReadError::NoParts("nil")) => Ok(Lookup::MissingKey),
            found => found,
        }
    }
}

/// The payload of an event that Nomad is silent about.
struct SamplePayload(Event);

impl Serialize for SamplePayload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Hidden::new(&Payload(&self.0), &NoSecrets).serialize(to)
    }
}

struct SampleDocument(Event);

impl Serialize for SampleDocument {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (kind, actor) = (self.0.kind(), Actor::default());
        let document = Document {
            index: 0,
            term: 0,
            time: 0,
            kind: kind.name(),
            version: kind.version(),
            id: Some(EventId::ZERO),
            actor: Some(&actor),
            request_id: Some(""),
            cause: None,
            trace: Some(""),
            outcome: Some(RecordedOutcome::Applied.name()),
            reason: None,
            part: None,
            oversized_bytes: None,
            payload: Some(Payload(&self.0)),
        };
        document.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_with_an_envelope_has_an_empty_event() {
        for kind in EventKind::ALL {
            assert_eq!(empty(*kind).is_none(), kind.is_raft_own(), "{kind}");
        }
    }

    #[test]
    fn every_topic_but_nomads_empty_one_has_a_sample() {
        for topic in Topic::ALL.iter().filter(|topic| **topic != Topic::Operator) {
            assert!(all((topic.bit(), &[]), false).next().is_some(), "{topic}");
        }
    }
}
