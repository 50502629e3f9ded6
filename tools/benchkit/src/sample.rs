//! Events to measure with: about 300 bytes each, with full metadata, the same in every run.

use anyhow::Result;
use drover_events::eval::EvalsUpserted;
use drover_events::gojson::Base64;
use drover_events::model::{Evaluation, Namespace, VariableEncrypted};
use drover_events::namespace::NamespacesUpserted;
use drover_events::variable::{VarOp, VariableApplied};
use drover_events::{Actor, Envelope, Event, EventId, EventKind, RaftPayload};

/// The time of the first event, in nanoseconds of the Unix clock.
pub const NOW: i64 = 1_795_252_023_951_021_739;

/// How many different variables [`variable`] writes.
pub const VARIABLES: u64 = 20_000;

/// An event with all that a command gives it; its time, id and cause follow from its index.
pub fn envelope(index: u64, event: Event) -> Envelope {
    let mut id = [7; 16];
    id[8..].copy_from_slice(&index.to_be_bytes());
    Envelope {
        time: NOW + i64::try_from(index).unwrap_or_default(),
        id: EventId(id),
        actor: Actor::default(),
        request_id: format!("request-{index}"),
        cause: Some(index / 2),
        trace: String::new(),
        guards: Vec::new(),
        event,
    }
}

/// The number of the event's kind, and the body that the log keeps of it.
///
/// # Errors
/// The event cannot be encoded.
pub fn body(index: u64, event: Event) -> Result<(u16, Vec<u8>)> {
    let envelope = envelope(index, event);
    let kind = envelope.event.kind().number();
    Ok((kind, RaftPayload::encode(&envelope)?.body(index, 1)))
}

/// What every log begins with, at index 0: the number of its kind, and its body.
pub fn beginning() -> (u16, Vec<u8>) {
    let kind = EventKind::RaftMembership.number();
    (kind, RaftPayload::membership(&[]).body(0, 1))
}

/// A UUID text that is spread evenly and the same in every run.
pub fn uuid(space: u64, number: u64) -> String {
    let mix = |seed: u64| {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (seed >> 29);
        x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^ (x >> 32)
    };
    let (a, b) = (
        mix(space << 40 | number),
        mix(space << 48 | number << 1 | 1),
    );
    let text = format!("{a:016x}{b:016x}");
    let (head, tail) = (&text[..8], &text[20..]);
    format!(
        "{head}-{}-{}-{}-{tail}",
        &text[8..12],
        &text[12..16],
        &text[16..20]
    )
}

/// The namespace that all of them are in.
pub fn namespace() -> Event {
    let namespace = Namespace {
        name: "default".into(),
        ..Namespace::default()
    };
    NamespacesUpserted {
        namespaces: vec![namespace],
    }
    .into()
}

/// The path of the variable with a number.
pub fn variable_path(number: u64) -> String {
    format!("app/{:05}/settings", number % VARIABLES)
}

/// A write of the variable with a number.
pub fn variable(number: u64) -> Event {
    variable_applied(VarOp::Set, variable_path(number))
}

/// A write, or a deletion, of the variable at a path.
pub fn variable_applied(op: VarOp, path: String) -> Event {
    let var = VariableEncrypted {
        namespace: "default".into(),
        path,
        data: Base64::from(vec![b'x'; 90]),
        key_id: uuid(5, 1),
        ..VariableEncrypted::default()
    };
    VariableApplied { op, var, quota: 0 }.into()
}

/// An evaluation that a registered job caused.
pub fn eval(number: u64) -> Event {
    let eval = Evaluation {
        id: uuid(4, number),
        namespace: "default".into(),
        priority: 50,
        r#type: "service".into(),
        triggered_by: "job-register".into(),
        job_id: format!("job-{}", number % 5_000),
        status: "pending".into(),
        create_time: NOW,
        modify_time: NOW,
        ..Evaluation::default()
    };
    EvalsUpserted {
        evals: vec![eval],
        ..EvalsUpserted::default()
    }
    .into()
}
