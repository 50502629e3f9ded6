//! Every frozen body × decode × apply.

use std::fs;
use std::path::PathBuf;

use drover_events::{EventKind, Recorded};
use drover_projections::{Outcome, apply};

use crate::support::Replica;

/// The frozen bodies with their names, in the order of their names.
fn bodies() -> Vec<(String, Vec<u8>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations/golden");
    let mut found = Vec::new();
    for kind in fs::read_dir(root).expect("the golden directory") {
        let kind = kind.expect("an entry");
        for file in fs::read_dir(kind.path()).expect("a directory per kind") {
            let path = file.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "bin") {
                let name = format!("{}/{}", kind.file_name().display(), path.display());
                found.push((name, fs::read(&path).expect("a file")));
            }
        }
    }
    found.sort();
    found
}

/// The bodies as a log: decoded, numbered from 1, without guards that speak of other rows.
fn log() -> Vec<Recorded> {
    let numbered = bodies().into_iter().zip(1..);
    numbered
        .map(|((name, body), index)| {
            let mut event =
                drover_migrations::decode(&body).unwrap_or_else(|error| panic!("{name}: {error}"));
            event.index = index;
            if let Some(envelope) = &mut event.envelope {
                envelope.guards.clear();
            }
            event
        })
        .collect()
}

#[test]
fn every_kind_has_a_frozen_body_that_decodes() {
    let log = log();
    for kind in EventKind::ALL {
        assert!(
            log.iter().any(|event| event.kind == *kind),
            "{} has no frozen body",
            kind.name()
        );
    }
}

#[test]
fn every_frozen_body_is_applied_or_refused_as_a_whole() {
    let log = log();
    let mut replica = Replica::new();
    let applied = replica.apply(&log, 1);
    assert_eq!(applied.len(), log.len());
    assert_eq!(replica.projections.applied_index(), log.len() as u64);
    for (event, applied) in log.iter().zip(&applied) {
        let later = apply::LATER.contains(&event.kind);
        let refused = matches!(applied.outcome, Outcome::Rejected(_));
        assert!(
            refused || !later,
            "{} is applied and listed as coming later",
            event.kind.name()
        );
    }
}

#[test]
fn frozen_bodies_in_any_batches_give_the_same_state() {
    let log = log();
    let mut one = Replica::new();
    one.apply(&log, 1);
    let mut all = Replica::new();
    all.apply(&log, log.len());
    assert_eq!(one.digests(), all.digests());
}
