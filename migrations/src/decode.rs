//! From the bytes of the log to an event of today.

use drover_events::{BodyParts, CodecError, Envelope, EventKind, Header, Recorded};

use crate::events::upcast;

/// Why a body gives no event.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DecodeError {
    /// This server does not know the kind: a newer server wrote it.
    #[error("index {index}: kind {number} is not known here")]
    UnknownKind {
        /// Where in the log.
        index: u64,
        /// The number found.
        number: u16,
    },
    /// The version is newer than this server reads.
    #[error("index {index}: {kind} has version {found}, this server reads up to {known}")]
    NewerVersion {
        /// Where in the log.
        index: u64,
        kind: EventKind,
        /// The version found.
        found: u16,
        /// The newest version known.
        known: u16,
    },
    /// No version of this number was ever written.
    #[error("index {index}: {kind} never had version {found}")]
    NoSuchVersion {
        /// Where in the log.
        index: u64,
        kind: EventKind,
        /// The version found.
        found: u16,
    },
    /// The bytes are damaged, or no body at all.
    #[error("index {index}: damaged body")]
    Damaged {
        /// Where in the log; 0 if even that is unreadable.
        index: u64,
        /// What is wrong with them.
        #[source]
        source: CodecError,
    },
}

/// Decodes a body and brings its event to the version of today.
///
/// # Errors
/// [`DecodeError::UnknownKind`] or [`DecodeError::NewerVersion`] when a newer server wrote it, else
/// the bytes are no event of ours.
pub fn decode(body: &[u8]) -> Result<Recorded, DecodeError> {
    let parts =
        BodyParts::split(body).map_err(|source| DecodeError::Damaged { index: 0, source })?;
    let index = parts.index;
    let damaged = |source| DecodeError::Damaged { index, source };
    let kind = EventKind::from_number(parts.kind).ok_or(DecodeError::UnknownKind {
        index,
        number: parts.kind,
    })?;
    if parts.version > kind.version() {
        let (found, known) = (parts.version, kind.version());
        return Err(DecodeError::NewerVersion {
            index,
            kind,
            found,
            known,
        });
    }
    if kind.is_raft_own() {
        return Ok(Recorded {
            index,
            term: parts.term,
            kind,
            time: 0,
            envelope: None,
        });
    }
    let (header, payload) = Header::decode(parts.rest).map_err(damaged)?;
    let event = upcast::decode_event(kind, parts.version, payload)
        .map_err(damaged)?
        .ok_or(DecodeError::NoSuchVersion {
            index,
            kind,
            found: parts.version,
        })?;
    let envelope = Envelope {
        time: header.time,
        id: header.id,
        actor: header.actor,
        request_id: header.request_id,
        cause: header.cause,
        trace: header.trace,
        guards: header.guards,
        event,
    };
    let time = header.time;
    Ok(Recorded {
        index,
        term: parts.term,
        kind,
        time,
        envelope: Some(envelope),
    })
}

#[cfg(test)]
#[path = "decode_test.rs"]
mod tests;
