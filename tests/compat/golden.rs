//! Every frozen body × decode × apply.

use std::fs;
use std::path::PathBuf;

use drover_events::{EventKind, Recorded};
use drover_projections::{Outcome, Rejection, apply};

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

/// Kinds whose frozen bodies speak of rows that are not there: each with what it is refused for.
const MISSING: &[(&str, &str)] = &[
    ("AclRolesDeleted", "ACL role not found"),
    (
        "AclTokensDeleted",
        "Cannot delete nonexistent tokens: 5b0cd2c5-0000-4000-8000-000000000061",
    ),
    ("CsiPluginDeleted", "plugin \"ebs\" not found"),
    ("CsiVolumeClaimed", "volume not found: data"),
    ("CsiVolumeClaimed", "volume not found: data"),
    ("CsiVolumeClaimsApplied", "volume not found: data"),
    ("CsiVolumeClaimsApplied", "volume not found: data"),
    ("CsiVolumeDeregistered", "volume not found: data"),
    ("CsiVolumeDeregistered", "volume not found: data"),
    (
        "DeploymentAllocHealthUpdated",
        "Deployment ID \"5b0cd2c5-0000-4000-8000-000000000030\" couldn't be updated as it does \
         not exist",
    ),
    (
        "DeploymentPromoted",
        "Deployment ID \"5b0cd2c5-0000-4000-8000-000000000030\" couldn't be updated as it does \
         not exist",
    ),
    (
        "DeploymentStatusUpdated",
        "Deployment ID \"5b0cd2c5-0000-4000-8000-000000000030\" couldn't be updated as it does \
         not exist",
    ),
    (
        "EvalsDeleted",
        "eval broker is enabled; eval broker must be paused to delete evals",
    ),
    (
        "EvalsDeleted",
        "eval broker is enabled; eval broker must be paused to delete evals",
    ),
    ("HostVolumeClaimReleased", "claim not found"),
    (
        "HostVolumeDeleted",
        "no such volume: 5b0cd2c5-0000-4000-8000-000000000070",
    ),
    (
        "HostVolumeRegistered",
        "volume \"5b0cd2c5-0000-4000-8000-000000000070\" is in nonexistent namespace \"\"",
    ),
    ("JobDeregistered", "job \"web\" not found"),
    (
        "JobStabilityUpdated",
        "job \"web\" in namespace \"default\" at version 2 not found",
    ),
    ("JobVersionTagged", "version 2 not found"),
    ("NamespacesDeleted", "namespace \"gpu\" not found"),
    (
        "NodeDrainUpdated",
        "node 5b0cd2c5-0000-4000-8000-000000000010 not found",
    ),
    (
        "NodeEligibilityUpdated",
        "node 5b0cd2c5-0000-4000-8000-000000000010 not found",
    ),
    (
        "NodeEventsUpserted",
        "node 5b0cd2c5-0000-4000-8000-000000000010 not found",
    ),
    ("NodePoolsDeleted", "node pool gpu not found"),
    ("OneTimeTokensDeleted", "one-time token not found"),
    (
        "PlanApplied",
        "node 5b0cd2c5-0000-4000-8000-000000000011 not found",
    ),
    ("RootKeyDeleted", "root key not found"),
    (
        "ServiceRegistrationsDeleted",
        "service registration _svc not found in namespace \"default\"",
    ),
];

#[test]
fn every_frozen_body_is_applied_or_refused_for_what_is_missing() {
    let log = log();
    let mut replica = Replica::new();
    let applied = replica.apply(&log, 1);
    assert_eq!(applied.len(), log.len());
    assert_eq!(replica.projections.applied_index(), log.len() as u64);
    let mut missing = Vec::new();
    for (event, applied) in log.iter().zip(&applied) {
        let (kind, later) = (
            event.kind.name(),
            apply::UNIMPLEMENTED.contains(&event.kind),
        );
        match &applied.outcome {
            Outcome::Rejected(_) if later => {}
            Outcome::Rejected(Rejection::Rule { message }) => {
                missing.push((kind, message.clone()));
            }
            Outcome::Rejected(other) => panic!("{kind}: {other:?}"),
            _ => assert!(!later, "{kind} is applied and listed as coming later"),
        }
    }
    let missing: Vec<_> = missing
        .iter()
        .map(|(kind, why)| (*kind, &why[..]))
        .collect();
    assert_eq!(missing, MISSING);
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
