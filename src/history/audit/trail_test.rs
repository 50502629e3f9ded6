//! Pages of the audit trail where something of the past is damaged.

use std::sync::Arc;

use drover_events::Event;
use drover_events::eval::EvalsUpserted;
use drover_events::model::Evaluation;
use drover_projections::tables::Namespaces;

use super::*;
use crate::history::audit::trace;
use crate::history::testing;
use crate::log::LogOptions;
use crate::reactors::testing::{Direct, spoil_changes};

/// The first index that some events of a log are at.
const FIRST: u64 = 2;

/// What no event is decoded from.
const NO_EVENT: &[u8] = b"no event";

/// A log of these, from index 0 on.
fn log_of(dir: &std::path::Path, bodies: Vec<(EventKind, Vec<u8>)>) -> LogEngine {
    let (log, _) = LogEngine::open(dir, LogOptions::default()).unwrap();
    let entry = |(index, (kind, body)): (u64, (EventKind, Vec<u8>))| Logged {
        index,
        kind: kind.number(),
        time: 7,
        body: body.into(),
    };
    let entries = (0..).zip(bodies).map(entry).collect();
    log.append(entries, Box::new(|_| ())).unwrap();
    log
}

/// A log of the events up to 4, of which the one at 3 cannot be decoded.
fn log(dir: &std::path::Path) -> LogEngine {
    let body = |index: u64| match index {
        0 => (EventKind::RaftBlank, testing::body(0)),
        3 => (testing::event(3).kind(), NO_EVENT.to_vec()),
        _ => (testing::event(index).kind(), testing::body(index)),
    };
    log_of(dir, (0..=4).map(body).collect())
}

/// The state that so many of these events lead to, of which it cannot be read what the one at 2
/// changed.
fn spoiled(events: u64) -> Arc<Direct> {
    let server = Direct::new();
    for index in 1..=events {
        assert_eq!(server.apply(testing::event(index)).0, index);
    }
    server.reopened(|database| spoil_changes(database, 2))
}

/// What a trail of such a state is made of, with [`log`].
fn beside(dir: &std::path::Path, server: &Direct) -> (LogEngine, Redactor, View) {
    (log(dir), Redactor::default(), server.projections.view())
}

/// Whatever happened from [`FIRST`] on, so many on a page.
fn question(limit: usize) -> Question {
    Question {
        object: None,
        actor: None,
        kinds: Vec::new(),
        namespace: None,
        request_id: None,
        value: None,
        wanted: OutcomeFilter::All,
        from: FIRST,
        to: u64::MAX,
        newest_first: false,
        limit,
        detail: Detail::default(),
    }
}

/// A page as it is shown.
fn page(trail: &Trail<'_>, question: &Question) -> (Vec<serde_json::Value>, Option<u64>) {
    let mut shown = Vec::new();
    let page = trail.answer(question, |entry| {
        shown.push(serde_json::to_value(entry).unwrap());
        Ok::<bool, AuditError>(true)
    });
    (shown, page.unwrap().next)
}

#[test]
fn an_event_that_cannot_be_read_is_shown_as_such_and_keeps_no_other_from_its_page() {
    let server = spoiled(4);
    let dir = tempfile::tempdir().unwrap();
    let (log, redactor, view) = beside(dir.path(), &server);
    let trail = Trail::new(&view, &log, &redactor, Eyes::All);
    let (shown, next) = page(&trail, &question(9));
    let indexes = |shown: &[serde_json::Value]| -> Vec<u64> {
        let index = |entry: &serde_json::Value| entry["Index"].as_u64().unwrap();
        shown.iter().map(index).collect()
    };
    assert_eq!((indexes(&shown), next), ((FIRST..=4).collect(), None));
    for entry in &shown {
        let index = entry["Index"].as_u64().unwrap();
        assert_eq!(entry["Kind"], testing::event(index).kind().name());
        assert_eq!(
            entry["Unreadable"].is_string(),
            [2, 3].contains(&index),
            "{entry}"
        );
        assert_eq!(entry["Actor"].is_object(), index != 3, "{entry}");
        let changes = entry["Changes"].as_array().unwrap();
        assert_eq!(changes.is_empty(), index == 2, "{entry}");
    }
    assert_eq!(page(&trail, &question(2)).1, Some(4));
    // What is not known of it is not what was looked for.
    let mut by_request = question(9);
    by_request.request_id = Some("request-3".to_owned());
    assert!(page(&trail, &by_request).0.is_empty());
    // To a reader who may not see everything it is not shown.
    let sees = |_: &Change| true;
    let trail = Trail::new(&view, &log, &redactor, Eyes::Some(&sees));
    let (shown, next) = page(&trail, &question(9));
    assert_eq!((indexes(&shown), next), (vec![4], None));
    log.close();
}

#[test]
fn a_cause_chain_says_that_something_of_it_cannot_be_read() {
    let server = spoiled(4);
    let dir = tempfile::tempdir().unwrap();
    let (log, redactor, view) = beside(dir.path(), &server);
    // What the one changed cannot be read, and the next one not at all.
    for (index, damaged) in [(2, true), (3, true), (4, false)] {
        let trail = Trail::new(&view, &log, &redactor, Eyes::All);
        let tree = trace(&trail, &index.to_string(), "default").unwrap();
        assert_eq!(tree.damaged, damaged, "{index}");
        let root = &tree.roots[0];
        assert_eq!((tree.roots.len(), root.index), (1, index));
        assert_eq!(root.kind, testing::event(index).kind().name());
        assert_eq!(root.actor.is_some(), index != 3, "{index}");
    }
    // To a reader who may not see everything the one is not shown, and of the other it is not known
    // whether it may be.
    let sees = |_: &Change| true;
    for (id, damaged) in [("3", true), ("event:2", false)] {
        let trail = Trail::new(&view, &log, &redactor, Eyes::Some(&sees));
        match trace(&trail, id, "default") {
            Ok(tree) => assert!(tree.roots.is_empty(), "{tree:?}"),
            Err(error) => assert!(matches!(error, AuditError::Unknown(_)), "{error:?}"),
        }
        assert_eq!(trail.is_damaged(), damaged, "{id}");
    }
    log.close();
}

#[test]
fn a_cause_chain_begins_with_the_first_event_that_its_reader_may_see() {
    let upserted = |status: &str| {
        let eval = Evaluation {
            id: "00000000-0000-4000-8000-000000000001".to_owned(),
            namespace: "default".to_owned(),
            job_id: "job".to_owned(),
            status: status.to_owned(),
            ..Evaluation::default()
        };
        Event::from(EvalsUpserted {
            evals: vec![eval],
            decision: None,
        })
    };
    let server = Direct::new();
    for (index, status) in [(1, "pending"), (2, "complete")] {
        assert_eq!(server.apply(upserted(status)).0, index);
    }
    let dir = tempfile::tempdir().unwrap();
    let kind = EventKind::EvalsUpserted;
    let bodies = vec![
        (EventKind::RaftBlank, testing::body(0)),
        (kind, NO_EVENT.to_vec()),
        (kind, testing::body_of(2, upserted("complete"))),
    ];
    let (log, redactor) = (log_of(dir.path(), bodies), Redactor::default());
    let view = server.projections.view();
    let sees = |_: &Change| true;
    for (eyes, root) in [(Eyes::All, 1), (Eyes::Some(&sees), 2)] {
        let trail = Trail::new(&view, &log, &redactor, eyes);
        let tree = trace(&trail, "event:2", "default").unwrap();
        let roots: Vec<u64> = tree.roots.iter().map(|node| node.index).collect();
        assert_eq!((roots, tree.focus), (vec![root], vec![2]));
    }
    log.close();
}

#[test]
fn a_row_whose_changes_cannot_be_read_is_hidden_from_who_may_not_see_everything() {
    let server = spoiled(3);
    let dir = tempfile::tempdir().unwrap();
    let (log, redactor, view) = beside(dir.path(), &server);
    let sees = |_: &Change| true;
    let trail = Trail::new(&view, &log, &redactor, Eyes::Some(&sees));
    let mut known = Shown::default();
    for (name, seen) in [("space-2", false), ("space-3", true)] {
        let key = name.to_owned().to_bytes().to_vec();
        let found = trail.shows_row(&mut known, Namespaces::ID, &key);
        assert_eq!(found.unwrap(), seen, "{name}");
    }
    log.close();
}

#[test]
fn an_event_whose_rejection_cannot_be_read_was_rejected() {
    let damaged = StorageError::Damaged {
        what: "outcome",
        key: "6f".to_owned(),
    };
    let (why, unreadable) = rejected(Err(damaged)).unwrap();
    assert!(
        why.as_ref().is_some_and(|why| why.contains("6f")),
        "{why:?}"
    );
    assert_eq!(why, unreadable);
    assert!(rejected(Err(StorageError::WouldBlock)).is_err());
    assert_eq!(rejected(Ok(None)).unwrap(), (None, None));
}
