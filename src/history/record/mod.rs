//! What an event looks like outside: one document, the same in every export.
//!
//! The audit trail, Kafka, CloudEvents, `drover log events` and exports all show an event as a
//! [`Document`]: the record's fields (index, time, kind, actor, cause, …) and the payload with the
//! names of the API. It is serialised straight from the decoded event, with no tree of values
//! between.
//!
//! - It must not know its readers, where it goes, or how it is framed.
//! - Times are Unix nanoseconds, as everywhere in the API.
//! - Raft's own entries have neither actor nor payload.
//! - Confidential values are hidden when a [`Redactor`] is given ([`Document::text`]); whatever
//!   leaves the cluster's own tools is given one.
//! - A rejected event says so ([`RecordedOutcome`]), with the reason, in the same two fields
//!   everywhere.
//! - An event that holds many objects may be split into pieces ([`split`]), each a document.

pub mod about;
pub mod deep;
pub mod numbers;
pub mod redact;
pub mod schema;
pub mod split;

#[cfg(test)]
pub(crate) mod canary;
mod cloudevents;
#[cfg(test)]
mod page_test;

use std::fmt;

use drover_events::{Actor, Event, Recorded, Topic};
use drover_projections::Rejection;
use serde::{Serialize, Serializer};

pub use about::About;
pub use cloudevents::{Attributes, CloudEvent, MEDIA_TYPE};
pub use redact::{Redacted, Redactor};

/// One event as a document.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Document<'a> {
    /// The log's index.
    pub index: u64,
    /// Raft's term.
    pub term: u64,
    /// Unix nanoseconds; 0 for Raft's own entries.
    pub time: i64,
    pub kind: &'static str,
    /// The version of the payload shown, which is the one of today.
    pub version: u16,
    /// The event's id, a UUID of version 7.
    #[serde(
        rename = "ID",
        serialize_with = "shown",
        skip_serializing_if = "Option::is_none"
    )]
    pub id: Option<drover_events::EventId>,
    /// Who did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<&'a Actor>,
    /// The request it belongs to; names the whole chain.
    #[serde(rename = "RequestID", skip_serializing_if = "Option::is_none")]
    pub request_id: Option<&'a str>,
    /// The index of the event this one followed from; none for the first of a chain.
    pub cause: Option<u64>,
    /// W3C trace parent of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'a str>,
    /// `applied`, or `refused`: it changed nothing. None where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// Which piece of the event this is, where the event is split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<EventPart<'a>>,
    /// How large it is, where its payload was left out because of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oversized_bytes: Option<usize>,
    /// What happened, with the names of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload<'a>>,
}

/// What became of an event when its turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOutcome<'a> {
    /// It changed the state.
    Applied,
    /// It changed nothing, for this reason.
    Rejected(&'a str),
}

impl<'a> RecordedOutcome<'a> {
    /// The word for it, the same in every format; outside, what was rejected is `refused`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Rejected(_) => "refused",
        }
    }

    /// Why it was rejected.
    pub const fn reason(self) -> Option<&'a str> {
        match self {
            Self::Applied => None,
            Self::Rejected(reason) => Some(reason),
        }
    }

    /// That of an event, by the reason for which it was rejected, if it was.
    pub fn of(rejected: Option<&'a str>) -> Self {
        rejected.map_or(Self::Applied, Self::Rejected)
    }
}

/// Why an event was rejected, for people.
pub fn reason(rejection: &Rejection) -> String {
    match rejection {
        Rejection::Guard { position, found } => {
            format!("guard {position} did not hold: {found} was found")
        }
        Rejection::Rule { message } => message.clone(),
    }
}

/// One of the pieces of an event that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct EventPart<'a> {
    /// Which, from 1.
    pub number: u32,
    /// Of how many.
    pub of: u32,
    /// The topic of the object in it.
    #[serde(serialize_with = "named")]
    pub topic: Topic,
    /// The object's id or name.
    pub key: &'a str,
}

// serde gives it by reference.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde requires"
)]
fn named<S: Serializer>(topic: &Topic, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(topic.name())
}

/// A payload that serialises without its variant's name.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a>(pub &'a Event);

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_payload(serializer)
    }
}

fn shown<S: Serializer>(
    id: &Option<drover_events::EventId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}

impl<'a> Document<'a> {
    /// The document of a decoded event.
    pub fn of(event: &'a Recorded) -> Self {
        let envelope = event.envelope.as_ref();
        Self {
            index: event.index,
            term: event.term,
            time: event.time,
            kind: event.kind.name(),
            version: event.kind.version(),
            id: envelope.map(|envelope| envelope.id),
            actor: envelope.map(|envelope| &envelope.actor),
            request_id: envelope.map(|envelope| envelope.request_id.as_str()),
            cause: envelope.and_then(|envelope| envelope.cause),
            trace: envelope
                .map(|envelope| envelope.trace.as_str())
                .filter(|trace| !trace.is_empty()),
            outcome: None,
            reason: None,
            part: None,
            oversized_bytes: None,
            payload: envelope.map(|envelope| Payload(&envelope.event)),
        }
    }

    /// The document with what became of the event; none where that is not known.
    #[must_use]
    pub fn became(self, outcome: Option<RecordedOutcome<'a>>) -> Self {
        Self {
            outcome: outcome.map(RecordedOutcome::name),
            reason: outcome.and_then(RecordedOutcome::reason),
            ..self
        }
    }

    /// The document as JSON on one line, without what a redactor hides.
    ///
    /// # Errors
    /// When a value cannot be written as JSON.
    pub fn text(&self, redactor: Option<&Redactor>) -> Result<String, serde_json::Error> {
        match redactor {
            Some(redactor) => serde_json::to_string(&redactor.redacted(self)),
            None => serde_json::to_string(self),
        }
    }
}

/// The document as JSON, on one line, with nothing hidden.
impl fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_events::EventKind;
    use drover_golden::samples;
    use serde_json::Value;

    #[test]
    fn every_kind_has_a_document_with_its_record_and_payload() {
        let mut shown = 0;
        for kind in EventKind::ALL {
            let Some(body) = samples::body(*kind, kind.version()) else {
                continue;
            };
            let event = drover_migrations::decode(&body).unwrap();
            let json: Value = serde_json::from_str(&Document::of(&event).to_string()).unwrap();
            assert_eq!(json["Index"], event.index, "{kind}");
            assert_eq!(json["Kind"], kind.name());
            assert_eq!(
                json["Payload"].is_object(),
                event.envelope.is_some(),
                "{kind}"
            );
            if let Some(envelope) = &event.envelope {
                assert_eq!(json["ID"], envelope.id.to_string(), "{kind}");
                assert_eq!(json["Cause"].as_u64(), envelope.cause, "{kind}");
            }
            shown += 1;
        }
        assert_eq!(shown, EventKind::ALL.len());
    }

    #[test]
    fn a_refused_event_has_its_mark_and_its_reason_in_every_form() {
        let kind = EventKind::JobRegistered;
        let event = drover_migrations::decode(&samples::body(kind, kind.version()).unwrap());
        let event = event.unwrap();
        let rejection = Rejection::Guard {
            position: 0,
            found: 7,
        };
        let why = reason(&rejection);
        for (rejected, wanted) in [(None, "applied"), (Some(why.as_str()), "refused")] {
            let document = Document::of(&event).became(Some(RecordedOutcome::of(rejected)));
            let plain: Value = serde_json::from_str(&document.to_string()).unwrap();
            let cloud =
                serde_json::to_value(CloudEvent::of(document, [1; 16], "http://a")).unwrap();
            assert_eq!(plain["Outcome"], wanted);
            assert_eq!(plain["Reason"].as_str(), rejected);
            assert_eq!(cloud["outcome"], wanted);
            assert_eq!(cloud["data"], plain);
        }
        let unknown = Document::of(&event).became(None).to_string();
        assert!(!unknown.contains("\"Outcome\""), "{unknown}");
    }
}
