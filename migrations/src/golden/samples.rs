//! One body of every kind, to be frozen: each field that carries meaning is set once.

use drover_events::codec::encode_map;
use drover_events::{
    Actor, ActorKind, Draft, Envelope, Event, EventId, EventKind, Guard, RaftPayload,
};

use serde::Serialize;

use super::values;
use drover_migrations::events::evals_deleted_v1::EvalsDeletedV1;

/// The frozen time of every sample: unix nanoseconds.
pub const TIME: i64 = 1_790_000_000_123_456_789;

/// The body of a kind in a version, as that version writes it. None: not written by this code.
pub fn body(kind: EventKind, version: u16) -> Option<Vec<u8>> {
    let payload = match (kind, version) {
        (EventKind::RaftBlank, 1) => RaftPayload::blank(),
        (EventKind::RaftMembership, 1) => RaftPayload::membership(b"\x81\xa6voters\x91\x01"),
        (EventKind::EvalsDeleted, 1) => old(kind, version, &evals_deleted_v1(), guards()),
        (kind, version) if version == kind.version() => {
            RaftPayload::encode(&envelope(values::event(kind)?)).ok()?
        }
        _ => return None,
    };
    Some(payload.body(4711, 3))
}

/// The envelope of every sample.
pub fn envelope(event: Event) -> Envelope {
    Envelope {
        time: TIME,
        id: EventId([1, 2, 3, 4, 5, 6, 0x77, 8, 0x89, 10, 11, 12, 13, 14, 15, 16]),
        actor: Actor {
            kind: ActorKind::Token,
            id: "1f0e7d4c-0000-4000-8000-000000000001".into(),
            name: "ci".into(),
            roles: vec!["deployers".into()],
            policies: vec!["submit".into(), "read".into()],
            addr: "192.0.2.7".into(),
        },
        request_id: "req-1".into(),
        cause: Some(4700),
        trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        guards: guards(),
        event,
    }
}

/// The guards of every sample.
fn guards() -> Vec<Guard> {
    vec![
        Guard::RowAt {
            table: 3,
            key: b"default\0\x01web\0".to_vec().into(),
            index: 4699,
        },
        Guard::RowAbsent {
            table: 4,
            key: b"k".to_vec().into(),
        },
        Guard::CountBelow {
            table: 5,
            prefix: b"p".to_vec().into(),
            limit: 20,
        },
        Guard::NodeMark {
            node: "n1".into(),
            mark: EventId([9; 16]),
        },
    ]
}

fn evals_deleted_v1() -> EvalsDeletedV1 {
    EvalsDeletedV1 {
        filter: "Status == \"complete\"".into(),
        next_token: "12.5b0cd2c5-0000-4000-8000-000000000002".into(),
        per_page: 7281,
        user_initiated: true,
        ..EvalsDeletedV1::default()
    }
}

/// What an old version wrote: the header of every sample, and the frozen struct as payload.
pub(super) fn old<T: Serialize>(
    kind: EventKind,
    version: u16,
    payload: &T,
    guards: Vec<Guard>,
) -> RaftPayload {
    let barrier = drover_events::cluster::VersionBarrierRaised::default();
    let envelope = Envelope {
        guards,
        ..envelope(barrier.into())
    };
    let mut bytes = Draft::encode(&envelope)
        .expect("a sample encodes")
        .stamp(TIME)
        .0
        .to_vec();
    let mut newest = Vec::new();
    envelope
        .event
        .encode_payload(&mut newest)
        .expect("a sample encodes");
    bytes.truncate(bytes.len() - newest.len());
    bytes[..2].copy_from_slice(&kind.number().to_le_bytes());
    bytes[2..4].copy_from_slice(&version.to_le_bytes());
    encode_map(&mut bytes, payload, kind).expect("a sample encodes");
    RaftPayload(bytes.into())
}
