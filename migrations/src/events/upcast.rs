//! The chain: which version is read how.

use drover_events::codec::decode_payload;
use drover_events::{CodecError, Event, EventKind};

use super::evals_deleted_v1::EvalsDeletedV1;

/// Decodes a payload of any version ever written. None: there never was such a version.
pub(crate) fn event(
    kind: EventKind,
    version: u16,
    payload: &[u8],
) -> Result<Option<Event>, CodecError> {
    match (kind, version) {
        (EventKind::EvalsDeleted, 1) => Ok(Some(
            decode_payload::<EvalsDeletedV1>(payload)?.upcast().into(),
        )),
        (kind, version) if version == kind.version() => {
            Event::decode_payload(kind, payload).map(Some)
        }
        _ => Ok(None),
    }
}
