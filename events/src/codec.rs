//! How an event becomes bytes, once, on the leader, and how those bytes are taken apart.
//!
//! What Raft carries (`RaftPayload`): kind (u16 LE) ‖ version (u16 LE) ‖ envelope. The envelope
//! is two MessagePack values one after the other: a header map, then the payload map. The
//! header's first field is the time, always nine bytes wide, so the proposer can stamp it without
//! encoding again. What the log stores and the tree hashes (a *body*): index (u64 LE) ‖ term (u64
//! LE) ‖ payload. This module never decides what a kind or version means.

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::actor::Actor;
use crate::envelope::{Envelope, EventId};
use crate::guard::Guard;
use crate::kind::EventKind;

/// The largest payload that may be proposed, in bytes; `decide` splits what is larger.
pub const MAX_PAYLOAD: usize = 4 << 20;
/// Nesting beyond this is refused at decode, so that no bytes take more stack than there is. It is
/// above whatever could ever be written: before there was [`MAX_NESTING`], what bounded an event
/// were the 128 levels of the JSON of a request, and what is in a log is always read back.
pub const MAX_DEPTH: usize = 192;
/// Nesting of a payload beyond this is refused when an event is made: what reads it, and rows and
/// documents that have it within them, need some for themselves.
pub const MAX_NESTING: usize = 64;
/// kind ‖ version.
const PREFIX: usize = 4;
/// index ‖ term.
const POSITION: usize = 16;
/// kind ‖ version ‖ map marker ‖ "time" ‖ u64 marker.
const TIME_AT: usize = PREFIX + 1 + 5 + 1;

/// Why bytes could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value cannot be encoded.
    #[error("cannot encode {kind}")]
    Encode {
        /// What was being encoded.
        kind: EventKind,
        /// The encoder's reason.
        #[source]
        source: rmp_serde::encode::Error,
    },
    /// The event is larger than the log takes.
    #[error("{kind} is {size} bytes, more than the {MAX_PAYLOAD} an event may have")]
    TooLarge {
        /// What was being encoded.
        kind: EventKind,
        /// Its encoded size in bytes.
        size: usize,
    },
    /// The event has values within values beyond [`MAX_NESTING`].
    #[error("{0} has values within values more than {MAX_NESTING} deep")]
    TooDeep(EventKind),
    /// The bytes end before a body's fixed part does.
    #[error("too few bytes for a body: {0}")]
    Short(usize),
    /// The bytes are no valid MessagePack of the expected shape.
    #[error("cannot decode {what}")]
    Decode {
        /// What was expected.
        what: &'static str,
        /// The decoder's reason.
        #[source]
        source: rmp_serde::decode::Error,
    },
    /// Something follows the last value.
    #[error("bytes behind the payload: {0}")]
    Trailing(usize),
    /// The kind has no payload, or not this one.
    #[error("{0} carries no envelope")]
    NoEnvelope(EventKind),
}

/// The bytes Raft carries; opaque to it and to every server it passes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RaftPayload(pub Bytes);

impl RaftPayload {
    /// Raft's own blank entry.
    pub fn blank() -> Self {
        Self::raft_own(EventKind::RaftBlank, &[])
    }

    /// Raft's own membership entry; `canonical` is the Raft module's own encoding.
    pub fn membership(canonical: &[u8]) -> Self {
        Self::raft_own(EventKind::RaftMembership, canonical)
    }

    /// Encodes an envelope at its own time. The proposer uses [`Draft`] instead.
    pub fn encode(envelope: &Envelope) -> Result<Self, CodecError> {
        Ok(Draft::encode(envelope)?.stamp(envelope.time))
    }

    /// The kind's number; 0 if the bytes are too short to have one.
    pub fn kind_number(&self) -> u16 {
        Self::number_in(&self.0)
    }

    /// The number of the kind of a payload's bytes; 0 if they are too short to have one.
    pub fn number_in(payload: &[u8]) -> u16 {
        u16_at(payload, 0).unwrap_or(0)
    }

    /// The registered kind, if this server knows it.
    pub fn kind(&self) -> Option<EventKind> {
        EventKind::from_number(self.kind_number())
    }

    /// What follows the kind and the version.
    pub fn rest(&self) -> &[u8] {
        self.0.get(PREFIX..).unwrap_or_default()
    }

    /// The body at this place of the log: what a frame stores and a leaf hashes.
    pub fn body(&self, index: u64, term: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(POSITION + self.0.len());
        body.extend_from_slice(&index.to_le_bytes());
        body.extend_from_slice(&term.to_le_bytes());
        body.extend_from_slice(&self.0);
        body
    }

    fn raft_own(kind: EventKind, rest: &[u8]) -> Self {
        let mut bytes = prefix(kind);
        bytes.extend_from_slice(rest);
        Self(bytes.into())
    }
}

impl std::fmt::Debug for RaftPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind() {
            Some(kind) => write!(f, "{kind}({} bytes)", self.0.len()),
            None => write!(f, "kind {}({} bytes)", self.kind_number(), self.0.len()),
        }
    }
}

/// An encoded event that only waits for its time.
#[derive(Clone, Debug)]
pub struct Draft(Vec<u8>);

/// How many bytes a value takes in the binary form. What cannot be encoded counts as far as it
/// came; it is refused where it is written.
pub fn encoded_len(value: &impl Serialize) -> usize {
    let mut counted = CountingWriter(0);
    let _ = rmp_serde::encode::write_named(&mut counted, value);
    counted.0
}

/// Counts what is written.
struct CountingWriter(usize);

impl std::io::Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Draft {
    /// Encodes the envelope, once. Its time is not used: [`Draft::stamp`] sets it.
    ///
    /// # Errors
    /// [`CodecError::TooLarge`] above [`MAX_PAYLOAD`], [`CodecError::TooDeep`] beyond
    /// [`MAX_NESTING`]: what is in the log must be read back.
    pub fn encode(envelope: &Envelope) -> Result<Self, CodecError> {
        let kind = envelope.event.kind();
        let mut bytes = prefix(kind);
        let header = HeaderRef {
            time: u64::MAX,
            id: envelope.id,
            actor: &envelope.actor,
            request_id: &envelope.request_id,
            cause: envelope.cause,
            trace: &envelope.trace,
            guards: &envelope.guards,
        };
        encode_map(&mut bytes, &header, kind)?;
        let payload = bytes.len();
        envelope.event.encode_payload(&mut bytes)?;
        if bytes.len() > MAX_PAYLOAD {
            return Err(CodecError::TooLarge {
                kind,
                size: bytes.len(),
            });
        }
        let mut nested = rmp_serde::Deserializer::new(&bytes[payload..]);
        nested.set_max_depth(MAX_NESTING);
        if serde::de::IgnoredAny::deserialize(&mut nested).is_err() {
            return Err(CodecError::TooDeep(kind));
        }
        Ok(Self(bytes))
    }

    /// How many bytes it has; stamping changes nothing about it.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Sets the time (unix nanoseconds, not negative) and gives the finished bytes.
    pub fn stamp(mut self, time: i64) -> RaftPayload {
        let time = u64::try_from(time).unwrap_or(0);
        self.0[TIME_AT..TIME_AT + 8].copy_from_slice(&time.to_be_bytes());
        RaftPayload(self.0.into())
    }
}

/// A body taken apart; nothing is decoded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyParts<'a> {
    /// The log's index.
    pub index: u64,
    /// Raft's term.
    pub term: u64,
    /// The kind's number, registered or not.
    pub kind: u16,
    /// The payload's version.
    pub version: u16,
    /// The envelope, or what Raft's own kinds carry.
    pub rest: &'a [u8],
}

impl<'a> BodyParts<'a> {
    /// Takes a body apart.
    pub fn split(body: &'a [u8]) -> Result<Self, CodecError> {
        let short = || CodecError::Short(body.len());
        let u64_at = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?))
        };
        Ok(Self {
            index: u64_at(0).ok_or_else(short)?,
            term: u64_at(8).ok_or_else(short)?,
            kind: u16_at(body, POSITION).ok_or_else(short)?,
            version: u16_at(body, POSITION + 2).ok_or_else(short)?,
            rest: &body[POSITION + PREFIX..],
        })
    }
}

/// The envelope without its payload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Header {
    /// Unix nanoseconds.
    pub time: i64,
    /// Made by the leader, before the event was proposed.
    pub id: EventId,
    /// Who did it.
    #[serde(default)]
    pub actor: Actor,
    /// The request it belongs to.
    #[serde(default)]
    pub request_id: String,
    /// The index of the event it followed from.
    #[serde(default)]
    pub cause: Option<u64>,
    /// W3C trace parent, or empty.
    #[serde(default)]
    pub trace: String,
    /// What must still be so when it is applied.
    #[serde(default)]
    pub guards: Vec<Guard>,
}

impl Header {
    /// Decodes the header and gives the payload's bytes, still encoded.
    pub fn decode(mut envelope: &[u8]) -> Result<(Self, &[u8]), CodecError> {
        let mut decoder = rmp_serde::Deserializer::new(&mut envelope);
        decoder.set_max_depth(MAX_DEPTH);
        let header = Self::deserialize(&mut decoder).map_err(|source| CodecError::Decode {
            what: "the envelope's header",
            source,
        })?;
        Ok((header, envelope))
    }
}

/// Decodes one MessagePack value that fills `bytes`.
pub fn decode_payload<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, CodecError> {
    let mut decoder = rmp_serde::Deserializer::new(&mut bytes);
    decoder.set_max_depth(MAX_DEPTH);
    let value = T::deserialize(&mut decoder).map_err(|source| CodecError::Decode {
        what: "the payload",
        source,
    })?;
    match bytes.len() {
        0 => Ok(value),
        more => Err(CodecError::Trailing(more)),
    }
}

/// Appends a value as a MessagePack map with field names.
pub fn encode_map<T: Serialize>(
    bytes: &mut Vec<u8>,
    value: &T,
    kind: EventKind,
) -> Result<(), CodecError> {
    let mut serializer = rmp_serde::Serializer::new(bytes).with_struct_map();
    value
        .serialize(&mut serializer)
        .map_err(|source| CodecError::Encode { kind, source })
}

#[derive(Serialize)]
struct HeaderRef<'a> {
    time: u64,
    id: EventId,
    actor: &'a Actor,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    trace: &'a str,
    #[serde(skip_serializing_if = "<[Guard]>::is_empty")]
    guards: &'a [Guard],
}

fn prefix(kind: EventKind) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    bytes.extend_from_slice(&kind.number().to_le_bytes());
    bytes.extend_from_slice(&kind.version().to_le_bytes());
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
#[path = "codec_test.rs"]
mod tests;
