use drover_events::EventKind;
use drover_events::acl::{
    AclAuthMethodsDeleted, AclAuthMethodsUpserted, AclBindingRulesDeleted, AclBindingRulesUpserted,
    AclPoliciesDeleted, AclPoliciesUpserted, AclRolesDeleted, AclRolesUpserted, AclTokensDeleted,
    AclTokensUpserted, OneTimeTokensDeleted,
};
use drover_events::alloc::ClientAllocUpdate;
use drover_events::codec::{Draft, MAX_PAYLOAD};
use drover_events::csi::{CsiVolumeClaimsApplied, CsiVolumeDeregistered, CsiVolumesRegistered};
use drover_events::job::{JobRegistered, JobSummariesReconciled};
use drover_events::model::{DesiredTransition, Job, TaskGroup};
use drover_events::namespace::{NamespacesDeleted, NamespacesUpserted};
use drover_events::node::NodeStatusUpdated;
use drover_events::node_pool::{NodePoolsDeleted, NodePoolsUpserted};
use drover_events::{Actor, Envelope, EventId};

use super::*;

fn id(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn evals(count: u32) -> Vec<Evaluation> {
    let one = |n| Evaluation {
        id: id(n),
        namespace: "default".into(),
        job_id: format!("job-{n}"),
        ..Evaluation::default()
    };
    (0..count).map(one).collect()
}

/// Cuts as the proposer does: by rows and by encoded bytes.
fn cut(event: impl Into<Event>, guards: Vec<Guard>) -> Result<Vec<Part>, Refusal> {
    fit(event.into(), guards, |event, guards| {
        let envelope = Envelope {
            time: 0,
            id: EventId([1; 16]),
            actor: Actor::default(),
            request_id: String::new(),
            cause: None,
            trace: String::new(),
            guards,
            event,
        };
        let encoded = Draft::encode(&envelope).map(|_| ());
        let part = (envelope.event, envelope.guards);
        match encoded {
            Ok(()) => Ok(part),
            Err(e) => Err((
                Refusal::new(Code::PayloadTooLarge, e.to_string()),
                Box::new(part),
            )),
        }
    })
}

fn evals_of(event: &Event) -> &[Evaluation] {
    match event {
        Event::NodeStatusUpdated(ev) => &ev.evals,
        Event::EvalsUpserted(ev) => &ev.evals,
        Event::AllocsUpdatedByClient(ev) => &ev.evals,
        other => panic!("{:?}", other.kind()),
    }
}

#[test]
fn a_node_with_thousands_of_jobs_is_one_change_with_its_evaluations_behind_it() {
    let event = NodeStatusUpdated {
        node_id: id(1),
        status: "down".into(),
        evals: evals(10_000),
        ..NodeStatusUpdated::default()
    };
    let guard = Guard::RowAbsent {
        table: 1,
        key: b"k".to_vec().into(),
    };
    let parts = cut(event, vec![guard.clone()]).unwrap();
    assert_eq!(parts[0].0.kind(), EventKind::NodeStatusUpdated);
    assert_eq!(parts[0].1, [guard], "the change is guarded");
    let mut all = Vec::new();
    for (n, (event, guards)) in parts.iter().enumerate() {
        assert!(rows(event) <= PAGE_ROWS, "part {n}: {}", rows(event));
        assert!(n == 0 || (guards.is_empty() && event.kind() == EventKind::EvalsUpserted));
        all.extend(evals_of(event).iter().cloned());
    }
    assert_eq!(all, evals(10_000), "none lost, none twice, in order");
}

#[test]
fn reports_of_many_megabytes_are_cut_by_their_bytes() {
    let report = |n| ClientAllocUpdate {
        id: id(n),
        client_description: "x".repeat(60 << 10),
        ..ClientAllocUpdate::default()
    };
    let event = AllocsUpdatedByClient {
        updates: (0..200).map(report).collect(),
        evals: evals(3),
        updated_at: 1,
        nodes: vec![id(1)],
    };
    let parts = cut(event, Vec::new()).unwrap();
    for (event, _) in &parts {
        if let Event::AllocsUpdatedByClient(ev) = event {
            assert_eq!(ev.nodes, [id(1)], "no part is read as an old one");
        }
    }
    assert!(parts.len() >= 3, "12 MB are {} events", parts.len());
    let (last, before) = parts.split_last().unwrap();
    assert_eq!(evals_of(&last.0), evals(3), "evaluations come last");
    assert!(before.iter().all(|(event, _)| evals_of(event).is_empty()));
    let ids = parts.iter().flat_map(|(event, _)| match event {
        Event::AllocsUpdatedByClient(ev) => ev.updates.iter().map(|u| u.id.clone()),
        other => panic!("{:?}", other.kind()),
    });
    assert_eq!(
        ids.collect::<Vec<_>>(),
        (0..200).map(id).collect::<Vec<_>>()
    );
}

#[test]
fn guards_of_nodes_go_with_their_nodes() {
    let key = |n: usize| Guard::RowAbsent {
        table: 1,
        key: n.to_be_bytes().to_vec().into(),
    };
    let event = NodesDeregistered {
        node_ids: (0..2_000).map(id).collect(),
        evals: evals(600),
    };
    // Two for each node.
    let parts = cut(event, (0..4_000).map(key).collect()).unwrap();
    let mut seen = 0;
    for (event, guards) in &parts {
        assert!(rows(event) <= PAGE_ROWS);
        let Event::NodesDeregistered(ev) = event else {
            assert_eq!(event.kind(), EventKind::EvalsUpserted);
            continue;
        };
        assert_eq!(guards.len(), 2 * ev.node_ids.len());
        assert_eq!(guards.first(), Some(&key(seen)), "its own guards");
        seen += guards.len();
    }
    assert_eq!(seen, 4_000);
}

#[test]
fn allocations_are_collected_before_their_evaluations() {
    let event = EvalsDeleted {
        eval_ids: (0..3_000).map(id).collect(),
        alloc_ids: (3_000..9_000).map(id).collect(),
        ..EvalsDeleted::default()
    };
    let parts = cut(event, Vec::new()).unwrap();
    let mut ids = Vec::new();
    for (event, _) in &parts {
        let Event::EvalsDeleted(ev) = event else {
            panic!("{:?}", event.kind())
        };
        assert!(rows(event) <= PAGE_ROWS);
        ids.extend(ev.alloc_ids.iter().chain(&ev.eval_ids).cloned());
    }
    let expected: Vec<_> = (3_000..9_000).chain(0..3_000).map(id).collect();
    assert_eq!(ids, expected);
}

#[test]
fn what_is_no_list_is_refused_with_the_limit_it_exceeds() {
    let text = "y".repeat(MAX_PAYLOAD);
    let large = Job {
        id: "large".into(),
        meta: drover_events::gojson::Map::from(BTreeMap::from([("k".to_owned(), text)])),
        ..Job::default()
    };
    let event = JobRegistered {
        job: std::sync::Arc::new(large),
        ..JobRegistered::default()
    };
    let error = cut(event, Vec::new()).unwrap_err();
    assert_eq!(error.code, Code::PayloadTooLarge);
    assert!(error.message.contains("4194304"), "{error}");
    let group = |n: usize| TaskGroup {
        name: format!("g{n}"),
        scaling: Some(Default::default()),
        ..TaskGroup::default()
    };
    let wide = Job {
        id: "wide".into(),
        task_groups: (0..5_000).map(group).collect::<Vec<_>>().into(),
        ..Job::default()
    };
    let event = JobRegistered {
        job: std::sync::Arc::new(wide),
        ..JobRegistered::default()
    };
    let error = cut(event, Vec::new()).unwrap_err();
    assert_eq!(error.code, Code::BadRequest);
    assert!(error.message.contains("4096"), "{error}");
}

/// Events that are a list of so many members, but for those that other tests cut.
fn lists(count: usize) -> Vec<Event> {
    fn of<T: Default + Clone>(count: usize) -> Vec<T> {
        vec![T::default(); count]
    }
    vec![
        NamespacesUpserted {
            namespaces: of(count),
        }
        .into(),
        NamespacesDeleted { names: of(count) }.into(),
        NodePoolsUpserted {
            node_pools: of(count),
        }
        .into(),
        NodePoolsDeleted { names: of(count) }.into(),
        JobSummariesReconciled {
            page_token: String::new(),
            per_page: count as u32,
        }
        .into(),
        AclPoliciesUpserted {
            policies: of(count),
        }
        .into(),
        AclPoliciesDeleted { names: of(count) }.into(),
        AclTokensUpserted { tokens: of(count) }.into(),
        AclTokensDeleted {
            accessor_ids: of(count),
        }
        .into(),
        AclRolesUpserted {
            roles: of(count),
            allow_missing_policies: false,
        }
        .into(),
        AclRolesDeleted { ids: of(count) }.into(),
        AclAuthMethodsUpserted {
            auth_methods: of(count),
        }
        .into(),
        AclAuthMethodsDeleted { names: of(count) }.into(),
        AclBindingRulesUpserted {
            binding_rules: of(count),
            ..Default::default()
        }
        .into(),
        AclBindingRulesDeleted { ids: of(count) }.into(),
        OneTimeTokensDeleted {
            accessor_ids: of(count),
        }
        .into(),
        CsiVolumesRegistered {
            volumes: of(count),
            ..Default::default()
        }
        .into(),
        CsiVolumeDeregistered {
            volume_ids: of(count),
            ..Default::default()
        }
        .into(),
        CsiVolumeClaimsApplied { claims: of(count) }.into(),
    ]
}

#[test]
fn every_member_of_a_list_counts_as_a_row() {
    for (few, many) in lists(2).into_iter().zip(lists(MAX_ROWS)) {
        assert_eq!(rows(&few), FIXED + 2, "{}", few.kind());
        let error = check_rows(&many).expect_err("too many");
        assert!(error.message.contains("4096"), "{error}");
        assert!(error.message.contains(&many.kind().to_string()), "{error}");
    }
}

#[test]
fn what_fits_is_left_as_it_is() {
    let event: Event = EvalsUpserted {
        evals: evals(1_000),
        decision: None,
    }
    .into();
    assert!(rows(&event) <= MAX_ROWS);
    let parts = cut(event.clone(), Vec::new()).unwrap();
    assert_eq!(parts, [(event, Vec::new())]);
}

#[test]
fn what_wishes_rest_on_holds_for_every_part_of_them() {
    let guard = Guard::RowAbsent {
        table: 1,
        key: vec![1].into(),
    };
    let event = AllocsDesiredTransitionUpdated {
        transitions: (0..5_000)
            .map(|n| (id(n), DesiredTransition::default()))
            .collect(),
        ..AllocsDesiredTransitionUpdated::default()
    };
    let parts = cut(event, vec![guard.clone()]).unwrap();
    assert!(parts.len() > 1);
    assert!(parts.iter().all(|(_, guards)| *guards == [guard.clone()]));
}
