//! The envelope: one event with all that belongs to its record.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::event::Event;
use crate::guard::Guard;
use crate::kind::EventKind;

/// An event's id: a version 7 UUID made by the leader before the event is proposed.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub [u8; 16]);

impl EventId {
    /// The id of no event: the mark of a node that nothing has touched.
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is the id of no event.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for EventId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            let id = uuid::Uuid::parse_str(&text).map_err(D::Error::custom)?;
            return Ok(Self(id.into_bytes()));
        }
        let bytes = serde_bytes::ByteBuf::deserialize(deserializer)?;
        let bytes = <[u8; 16]>::try_from(bytes.as_slice())
            .map_err(|_| D::Error::custom("an event id has 16 bytes"))?;
        Ok(Self(bytes))
    }
}

/// One event and the record of it: when, who, why, under which conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// Unix nanoseconds, stamped by the leader; never less than that of the event before.
    pub time: i64,
    /// The event's id.
    pub id: EventId,
    /// Who did it.
    pub actor: Actor,
    /// The request it belongs to; names the whole chain.
    pub request_id: String,
    /// The index of the event this one followed from; none for the first of a chain.
    pub cause: Option<u64>,
    /// W3C trace parent of the request, or empty.
    pub trace: String,
    /// What must still be so when it is applied.
    pub guards: Vec<Guard>,
    /// What happened.
    pub event: Event,
}

/// A decoded body: what apply, exports and the audit trail work with.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The log's index.
    pub index: u64,
    /// Raft's term.
    pub term: u64,
    /// The kind, Raft's own included.
    pub kind: EventKind,
    /// Unix nanoseconds; 0 for Raft's own entries, which take the time of the event before them.
    pub time: i64,
    /// The envelope; none for Raft's own entries.
    pub envelope: Option<Envelope>,
}
