use super::*;
use crate::actor::ActorKind;
use crate::cluster::LeaderElected;
use crate::event::Event;
use crate::job::JobRegistered;
use crate::model::{Job, Task, TaskGroup};

fn envelope() -> Envelope {
    Envelope {
        time: 1_700_000_000_000_000_001,
        id: EventId([7; 16]),
        actor: Actor {
            kind: ActorKind::Server,
            id: "s1".into(),
            ..Actor::default()
        },
        request_id: "r-1".into(),
        cause: Some(41),
        trace: String::new(),
        guards: vec![
            Guard::RowAt {
                table: 3,
                key: Bytes::from_static(b"\x00k"),
                index: 9,
            },
            Guard::NodeMark {
                node: "n".into(),
                mark: EventId::ZERO,
            },
        ],
        event: Event::from(LeaderElected {
            server_id: "s1".into(),
            level: 2,
            ..Default::default()
        }),
    }
}

fn decode(payload: &RaftPayload) -> Envelope {
    let body = payload.body(5, 2);
    let parts = BodyParts::split(&body).unwrap();
    assert_eq!((parts.index, parts.term), (5, 2));
    let kind = EventKind::from_number(parts.kind).unwrap();
    assert_eq!(parts.version, kind.version());
    let (header, rest) = Header::decode(parts.rest).unwrap();
    Envelope {
        time: header.time,
        id: header.id,
        actor: header.actor,
        request_id: header.request_id,
        cause: header.cause,
        trace: header.trace,
        guards: header.guards,
        event: Event::decode_payload(kind, rest).unwrap(),
    }
}

#[test]
fn an_envelope_survives_its_bytes() {
    let before = envelope();
    assert_eq!(decode(&RaftPayload::encode(&before).unwrap()), before);
}

#[test]
fn stamping_changes_the_time_and_nothing_else() {
    let mut before = envelope();
    let draft = Draft::encode(&before).unwrap();
    let size = draft.size();
    for time in [0, 1, 127, 1 << 33, i64::MAX] {
        before.time = time;
        let payload = draft.clone().stamp(time);
        assert_eq!(payload.0.len(), size);
        assert_eq!(decode(&payload), before);
    }
}

#[test]
fn raft_s_own_entries_have_no_envelope() {
    assert_eq!(RaftPayload::blank().0.as_ref(), [1, 0, 1, 0]);
    let membership = RaftPayload::membership(b"voters");
    assert_eq!(membership.kind(), Some(EventKind::RaftMembership));
    assert_eq!(membership.rest(), b"voters");
    assert!(matches!(
        Event::decode_payload(EventKind::RaftBlank, &[]),
        Err(CodecError::NoEnvelope(EventKind::RaftBlank))
    ));
}

#[test]
fn ev_02_short_and_foreign_bytes_are_errors() {
    assert!(matches!(
        BodyParts::split(&[0; 19]),
        Err(CodecError::Short(19))
    ));
    let parts = BodyParts::split(&[0; 20]).unwrap();
    assert_eq!(EventKind::from_number(parts.kind), None);
    let payload = RaftPayload::encode(&envelope()).unwrap();
    let mut longer = payload.rest().to_vec();
    longer.push(0xc0);
    let (_, rest) = Header::decode(&longer).unwrap();
    assert!(matches!(
        Event::decode_payload(EventKind::LeaderElected, rest),
        Err(CodecError::Trailing(1))
    ));
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    let mut deep = vec![0x81, 0xa1, b'x'];
    deep.extend(std::iter::repeat_n(0x91, 100_000));
    deep.push(0xc0);
    assert!(decode_payload::<LeaderElected>(&deep).is_err());
}

/// More than the 128 levels that the JSON of a request may have, and what came around them, is read
/// back on half of the stack that a thread has.
#[test]
fn what_could_ever_be_written_is_read_back() {
    let deep = || {
        let levels = |inner, _| serde_json::json!({ "a": inner });
        let mut job = Job::default();
        let mut group = TaskGroup::default();
        let mut task = Task::default();
        let config = (0..150).fold(serde_json::json!(1), levels);
        task.config.insert("deep", config);
        group.tasks.push(task);
        job.task_groups.push(group);
        let event = Event::from(JobRegistered {
            job: job.into(),
            ..JobRegistered::default()
        });
        let made = Draft::encode(&Envelope {
            event: event.clone(),
            ..envelope()
        });
        assert!(matches!(made, Err(CodecError::TooDeep(_))), "{made:?}");
        let mut bytes = Vec::new();
        event.encode_payload(&mut bytes).unwrap();
        let back = Event::decode_payload(EventKind::JobRegistered, &bytes).unwrap();
        assert!(back == event);
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    thread.spawn(deep).unwrap().join().unwrap();
}

#[test]
fn an_event_above_the_limit_is_refused() {
    let mut big = envelope();
    big.event = Event::from(LeaderElected {
        name: "x".repeat(MAX_PAYLOAD),
        ..Default::default()
    });
    assert!(matches!(
        Draft::encode(&big),
        Err(CodecError::TooLarge { .. })
    ));
}
