//! Events of earlier versions: the list below says which version of which kind is decoded by which
//! type, whose `upcast` turns it into the event of today. Any other version is today's or unknown.

use drover_events::codec::decode_payload;
use drover_events::{CodecError, Event, EventKind};
use schemars::{Schema, SchemaGenerator};

use super::csi_v1::{CsiVolumeClaimsAppliedV1, CsiVolumeDeregisteredV1, CsiVolumesRegisteredV1};
// In version 1 the event was the claim itself, in the shape that other events have it in.
use super::csi_volume_v1::ClaimV1 as CsiVolumeClaimedV1;
use super::evals_deleted_v1::EvalsDeletedV1;

macro_rules! old_versions {
    ($($kind:ident, $version:literal: $old_type:ident;)*) => {
        /// Decodes a payload of any version ever written. None: there never was such a version.
        pub(crate) fn decode_event(
            kind: EventKind,
            version: u16,
            payload: &[u8],
        ) -> Result<Option<Event>, CodecError> {
            match (kind, version) {
                $((EventKind::$kind, $version) => {
                    Ok(Some(decode_payload::<$old_type>(payload)?.upcast().into()))
                })*
                (kind, version) if version == kind.version() => {
                    Event::decode_payload(kind, payload).map(Some)
                }
                _ => Ok(None),
            }
        }

        /// The JSON Schema of a payload of a version before the one of today: the names and shapes
        /// of what lies in the log. `None`: there was no such version.
        pub fn payload_schema(
            kind: EventKind,
            version: u16,
            generator: &mut SchemaGenerator,
        ) -> Option<Schema> {
            match (kind, version) {
                $((EventKind::$kind, $version) => Some(generator.subschema_for::<$old_type>()),)*
                _ => None,
            }
        }
    };
}

old_versions! {
    EvalsDeleted, 1: EvalsDeletedV1;
    CsiVolumesRegistered, 1: CsiVolumesRegisteredV1;
    CsiVolumeDeregistered, 1: CsiVolumeDeregisteredV1;
    CsiVolumeClaimed, 1: CsiVolumeClaimedV1;
    CsiVolumeClaimsApplied, 1: CsiVolumeClaimsAppliedV1;
}
