use drover_events::EventKind;
use drover_golden::samples;
use serde_json::Value;

use super::*;
use crate::history::record::Payload;

fn json(event: &Event) -> Value {
    serde_json::to_value(Payload(event)).expect("JSON")
}

/// How many objects the lists and maps at the top of a payload hold, by field.
fn held(payload: &Value) -> Vec<(String, usize)> {
    let fields = payload.as_object().expect("an object");
    let count = |(name, value): (&String, &Value)| {
        let count = match value {
            Value::Array(items) => items.len(),
            Value::Object(fields) if ["Allocs", "Updates"].contains(&name.as_str()) => fields.len(),
            Value::Object(fields) if name == "NodeEvents" => fields.len(),
            _ => return None,
        };
        Some((name.clone(), count))
    };
    fields.iter().filter_map(count).collect()
}

/// Doubles what the lists hold, so that every kind that can hold many does.
fn doubled(kind: EventKind) -> Option<Event> {
    let body = samples::body(kind, kind.version()).expect("a sample");
    let event = drover_migrations::decode(&body).expect("it decodes");
    let mut payload = json(&event.envelope?.event);
    if kind == EventKind::ServiceRegistrationsDeleted {
        payload["NodeID"] = "".into();
    }
    for (_, value) in payload.as_object_mut()?.iter_mut() {
        if let Value::Array(items) = value {
            let again = items.clone();
            items.extend(again);
        }
    }
    Some(Event::deserialize_payload(kind, payload).expect("a payload"))
}

/// Lists at the top of an event that is about one object all the same.
const WHOLE: [&str; 4] = [
    "DeploymentPromoted",
    "DeploymentAllocHealthUpdated",
    "DigestRecorded",
    "ClusterRestored",
];

#[test]
fn every_event_that_can_hold_many_objects_is_split_and_nothing_is_lost() {
    let mut split_kinds = 0;
    for kind in EventKind::ALL {
        let Some(event) = doubled(*kind) else {
            continue;
        };
        let all = held(&json(&event));
        let wanted: usize = all.iter().map(|(_, count)| count).sum();
        let pieces = split(&event);
        if WHOLE.contains(&kind.name()) || wanted < 2 {
            assert!(pieces.is_empty(), "{kind}");
            continue;
        }
        assert!(
            !pieces.is_empty(),
            "{kind} holds {wanted} objects and is told whole"
        );
        split_kinds += 1;
        let shown: Vec<Value> = pieces.iter().map(|piece| json(&piece.event)).collect();
        for (name, count) in all {
            let lists = shown.iter().flat_map(held);
            let found: usize = lists
                .filter(|(other, _)| *other == name)
                .map(|(_, n)| n)
                .sum();
            let everywhere = found == count * pieces.len();
            assert!(
                found == count || everywhere,
                "{kind} {name}: {found} of {count}"
            );
        }
        for piece in &pieces {
            assert_eq!(piece.event.kind(), *kind);
            assert!(
                !piece.id.is_empty() || piece.topic != Topic::Allocation,
                "{kind}"
            );
        }
    }
    assert!(split_kinds >= 20, "{split_kinds}");
}

#[test]
fn a_plan_of_one_allocation_stays_whole_and_one_of_two_jobs_does_not() {
    let placed = |id: &str| {
        let mut placed = drover_events::plan::PlacedAlloc::default();
        placed.alloc.id = id.to_owned();
        placed
    };
    let mut plan = PlanApplied {
        eval_id: "e".to_owned(),
        placed: vec![placed("a")],
        ..PlanApplied::default()
    };
    assert!(split(&plan.clone().into()).is_empty());
    plan.placed.push(placed("b"));
    let ids: Vec<String> = split(&plan.into()).into_iter().map(|one| one.id).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn what_an_event_is_about_is_told_once_however_many_evaluations_it_makes() {
    let evals: Vec<Evaluation> = (0..200)
        .map(|number| Evaluation {
            id: number.to_string(),
            ..Evaluation::default()
        })
        .collect();
    let meta: std::collections::BTreeMap<String, String> = (0..1_000)
        .map(|n| (format!("key-{n}"), "v".repeat(100)))
        .collect();
    let mut node = Node {
        id: "n".to_owned(),
        ..Node::default()
    };
    node.meta = meta.clone().into();
    let reported = drover_events::model::NodeEvent {
        details: meta.clone().into(),
        ..Default::default()
    };
    let events: [Event; 4] = [
        NodeRegistered {
            node: Box::new(node),
            evals: evals.clone(),
            ..Default::default()
        }
        .into(),
        NodeDrainUpdated {
            updates: [("n".to_owned(), DrainUpdate::default())].into(),
            meta,
            evals: evals.clone(),
            ..Default::default()
        }
        .into(),
        NodeStatusUpdated {
            node_id: "n".to_owned(),
            event: Some(reported.clone()),
            evals: evals.clone(),
            ..Default::default()
        }
        .into(),
        NodeEligibilityUpdated {
            node_id: "n".to_owned(),
            event: Some(reported),
            evals,
            ..Default::default()
        }
        .into(),
    ];
    for event in events {
        let whole = json(&event).to_string().len();
        let pieces = split(&event);
        assert_eq!(pieces.len(), 201, "{}", event.kind());
        let all: usize = pieces
            .iter()
            .map(|one| json(&one.event).to_string().len())
            .sum();
        assert!(all < 5 * whole, "{}: {whole} became {all}", event.kind());
        let last = pieces.last().unwrap();
        assert_eq!((last.topic, last.id.as_str()), (Topic::Evaluation, "199"));
    }
}
