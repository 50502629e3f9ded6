use drover_events::{Event, EventKind, RaftPayload};
use proptest::prelude::*;

use super::*;
use crate::golden::samples;

#[test]
fn ev_02_kind_zero_is_never_decoded() {
    let mut body = samples::body(EventKind::LeaderElected, 1).unwrap();
    body[16..18].copy_from_slice(&[0, 0]);
    let error = decode(&body).unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::UnknownKind {
                index: 4711,
                number: 0
            }
        ),
        "{error}"
    );
}

#[test]
fn a_newer_kind_or_version_parks_and_never_panics() {
    let mut body = samples::body(EventKind::LeaderElected, 1).unwrap();
    body[16..18].copy_from_slice(&60_000_u16.to_le_bytes());
    assert!(matches!(
        decode(&body),
        Err(DecodeError::UnknownKind { number: 60_000, .. })
    ));

    let mut body = samples::body(EventKind::LeaderElected, 1).unwrap();
    body[18..20].copy_from_slice(&2_u16.to_le_bytes());
    let error = decode(&body).unwrap_err();
    assert!(matches!(error, DecodeError::NewerVersion { .. }));
    assert_eq!(
        error.to_string(),
        "index 4711: LeaderElected has version 2, this server reads up to 1"
    );
    body[18..20].copy_from_slice(&0_u16.to_le_bytes());
    assert!(matches!(
        decode(&body),
        Err(DecodeError::NoSuchVersion { found: 0, .. })
    ));
}

#[test]
fn an_old_version_is_read_as_the_one_of_today() {
    let recorded = decode(&samples::body(EventKind::EvalsDeleted, 1).unwrap()).unwrap();
    let Some(Event::EvalsDeleted(event)) = recorded.envelope.map(|envelope| envelope.event) else {
        panic!("another event");
    };
    assert_eq!(event.filter_version, 1);
    assert_eq!(event.page_token, "12.5b0cd2c5-0000-4000-8000-000000000002");
}

#[test]
fn raft_s_own_entries_have_a_place_and_no_envelope() {
    let recorded = decode(&RaftPayload::blank().body(7, 2)).unwrap();
    assert_eq!(
        (recorded.index, recorded.term, recorded.kind),
        (7, 2, EventKind::RaftBlank)
    );
    assert!(recorded.envelope.is_none());
}

#[test]
fn a_cut_body_is_damage_at_its_index() {
    for kind in EventKind::ALL
        .iter()
        .copied()
        .filter(|kind| !kind.is_raft_own())
    {
        let body = samples::body(kind, kind.version()).unwrap();
        for length in [0, 19, 20, 40, body.len() / 2, body.len() - 1] {
            let error = decode(&body[..length]).unwrap_err();
            assert!(
                matches!(error, DecodeError::Damaged { .. }),
                "{kind} at {length}: {error}"
            );
        }
    }
}

/// Whatever was decoded says of itself what its first bytes say, and is the same once it is
/// written in the form of today.
fn comes_back(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(read) = decode(bytes) else {
        return Ok(());
    };
    let number = |from: usize| u64::from_le_bytes(bytes[from..from + 8].try_into().unwrap());
    let kind = u16::from_le_bytes([bytes[16], bytes[17]]);
    prop_assert_eq!((read.index, read.term), (number(0), number(8)));
    prop_assert_eq!(read.kind.number(), kind);
    let Some(envelope) = &read.envelope else {
        prop_assert!(read.kind.is_raft_own());
        return Ok(());
    };
    prop_assert_eq!(envelope.event.kind(), read.kind);
    let written = drover_events::RaftPayload::encode(envelope);
    let written = written.map_err(|e| TestCaseError::fail(e.to_string()))?;
    let again = decode(&written.body(read.index, read.term));
    let again = again.map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(again.envelope.as_ref(), Some(envelope));
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_come_back_or_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        comes_back(&bytes)?;
    }

    #[test]
    fn a_damaged_event_comes_back_as_what_it_then_says_or_is_refused(
        kind in 0..EventKind::ALL.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let kind = EventKind::ALL[kind];
        let mut body = samples::body(kind, kind.version()).expect("every kind has a sample");
        for (at, byte) in flips {
            let at = at.index(body.len());
            body[at] ^= byte;
        }
        comes_back(&body)?;
    }

    /// What would be believed of such a length would not fit into memory.
    #[test]
    fn a_length_that_lies_allocates_nothing(
        kind in 0..EventKind::ALL.len(),
        at: prop::sample::Index,
        marker in prop::sample::select(vec![0xdd_u8, 0xdf, 0xc6, 0xdb]),
    ) {
        let kind = EventKind::ALL[kind];
        let mut body = samples::body(kind, kind.version()).expect("every kind has a sample");
        let at = at.index(body.len());
        let lie = [marker, 0xff, 0xff, 0xff, 0xff];
        body.splice(at..at, lie);
        comes_back(&body)?;
        let end = body.len().min(at + lie.len());
        body.truncate(end);
        comes_back(&body)?;
    }
}
