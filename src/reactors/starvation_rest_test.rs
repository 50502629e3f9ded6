//! One bad thing never starves the others: tokens that have expired, and volumes to be freed; and
//! of which reactor which test shows it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use drover_events::acl::{AclTokensUpserted, SealedSecret, SealedToken};
use drover_events::gojson::GoTime;
use drover_events::model::AclToken;
use drover_events::model::status::access_mode::SINGLE_NODE_WRITER as ONE;
use drover_projections::Scan;
use drover_projections::tables::acl_tokens::AclTokens;
use drover_testkit::{LONG, eventually, so};
use proptest::prelude::*;

use super::runner::Reactor;
use super::starvation_test::{context, faults, wait};
use super::testing::{Direct, Fault, Faulty};
use super::token_expiry::TokenExpiry;
use super::volume_watcher::VolumeWatcher;
use crate::base::clock::unix_nanos;
use crate::error::Code;
use crate::volumes::harness::{World, barrier, node_id};

/// What shows of a reactor that one bad thing starves no other.
pub(super) enum Shown {
    /// A file of tests and the test in it.
    By(&'static str, &'static str),
    /// Nothing has to: it does not work on many.
    Needless(&'static str),
}

const STARVATION: &str = include_str!("starvation_test.rs");
const REST: &str = include_str!("starvation_rest_test.rs");
const UNREADABLE: &str = include_str!("unreadable_test.rs");
const RETENTION: &str = include_str!("retention_test.rs");

/// Every reactor by its name; `wiring_test.rs` holds it against those that are started.
pub(super) const REACTORS: [(&str, Shown); 13] = [
    (
        "alive_sets",
        Shown::By(
            UNREADABLE,
            "sets_of_live_keys_are_made_though_a_row_of_one_table_cannot_be_read",
        ),
    ),
    (
        "checkpoint_signer",
        Shown::Needless("there is one log to sign, as far as it is applied"),
    ),
    (
        "core_gc",
        Shown::By(STARVATION, "what_is_over_goes_whatever_of_it_cannot"),
    ),
    (
        "deployment_watcher",
        Shown::By(STARVATION, "deployments_fail_whichever_of_them_cannot"),
    ),
    (
        "digest_recorder",
        Shown::Needless("the newest index that is due is recorded, and none waits behind it"),
    ),
    (
        "drainer",
        Shown::By(STARVATION, "drains_go_on_and_end_whichever_of_them_cannot"),
    ),
    (
        "event_publisher",
        Shown::Needless("what it sends is in the log's order without a gap"),
    ),
    (
        "heartbeat_expiry",
        Shown::By(STARVATION, "nodes_are_given_up_whichever_of_them_cannot_be"),
    ),
    (
        "periodic_dispatcher",
        Shown::By(STARVATION, "jobs_are_launched_whichever_of_them_cannot_be"),
    ),
    (
        "retention",
        Shown::By(
            RETENTION,
            "the_horizon_moves_whichever_base_cannot_be_gone_to",
        ),
    ),
    (
        "scheduling",
        Shown::By(
            STARVATION,
            "evaluations_that_panic_on_their_way_leave_the_workers_free",
        ),
    ),
    (
        "token_expiry",
        Shown::By(REST, "tokens_go_whichever_of_them_cannot"),
    ),
    (
        "volume_watcher",
        Shown::By(REST, "volumes_are_freed_whichever_of_them_cannot_be"),
    ),
];

pub(super) fn accessor(number: usize) -> String {
    format!("{number:08x}-7777-4777-8777-777777777777")
}

/// Tokens of these numbers that expire then, or never.
pub(super) fn add_tokens(direct: &Direct, numbers: Range<usize>, expires: Option<i64>) {
    direct.apply(barrier());
    let token = |number: usize| SealedToken {
        token: AclToken {
            accessor_id: accessor(number),
            r#type: "management".into(),
            global: number.is_multiple_of(2),
            expiration_time: expires.map(GoTime),
            ..AclToken::default()
        },
        secret: SealedSecret {
            hash: format!("hash-{number}"),
            ..SealedSecret::default()
        },
    };
    let tokens = numbers.map(token).collect();
    direct.apply(AclTokensUpserted { tokens });
}

fn tokens(direct: &Direct) -> Vec<String> {
    let view = direct.projections.view();
    let rows = view.scan::<AclTokens>(Scan::all());
    rows.map(|row| row.unwrap().token.accessor_id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn tokens_go_whichever_of_them_cannot(
        count in 1..9_usize,
        bad in 0..9_usize,
        fault in faults(),
    ) {
        let (direct, now) = (Direct::new(), unix_nanos());
        add_tokens(&direct, 0..count, Some(now - 1));
        let bad = accessor(bad % count);
        let faulty = Faulty::new(&direct, &bad, fault);
        let reactor = TokenExpiry::new(Duration::ZERO);
        let context = context(&direct, faulty.clone(), now);
        let done = wait(reactor.activate(&context)).unwrap();
        prop_assert_eq!(&done.status["Failed"], 1);
        prop_assert_eq!(tokens(&direct), vec![bad]);
        faulty.heal();
        for _ in 0..2 {
            wait(reactor.activate(&context)).unwrap();
        }
        prop_assert!(tokens(&direct).is_empty(), "it has its turn as well");
    }
}

/// How what is recorded of one volume fails.
const FAULTS: [Fault; 5] = [
    Fault::Error(Code::Refused),
    Fault::Error(Code::Internal),
    Fault::Error(Code::Conflict),
    Fault::Error(Code::NotFound),
    Fault::Panic,
];

#[tokio::test]
async fn volumes_are_freed_whichever_of_them_cannot_be() {
    for (turn, fault) in FAULTS.into_iter().enumerate() {
        let world = World::new(1);
        let volumes = ["data-0", "data-1", "data-2"];
        let mut allocs = Vec::new();
        for (number, volume) in volumes.into_iter().enumerate() {
            world.volume(volume, ONE);
            let alloc = world.alloc(number, 0, volume, ONE);
            world.claim(volume, &alloc).await.unwrap();
            world.strict.mount(volume, &node_id(0), &alloc, true);
            allocs.push(alloc);
        }
        let bad = volumes[turn % volumes.len()];
        let faulty = Faulty::new(&world.direct, bad, fault);
        *world.leader.faulty.lock() = Some(Arc::clone(&faulty));
        allocs
            .iter()
            .for_each(|alloc| world.alloc_is(alloc, "complete"));
        let watcher = VolumeWatcher::new(Arc::clone(&world.volumes), "s1");
        let context = context(&world.direct, world.direct.clone(), unix_nanos());
        watcher.activate(&context).await.unwrap();
        let is_free = |volume: &str| so(!world.row(volume).in_use());
        for volume in volumes.into_iter().filter(|volume| *volume != bad) {
            let free = || is_free(volume);
            eventually("it is free", LONG, free).await.unwrap();
        }
        assert!(world.row(bad).in_use(), "{fault:?}");
        let reported = || so(!world.volumes.last_errors(("default", bad)).is_empty());
        eventually("it is told why not", LONG, reported)
            .await
            .unwrap();
        if fault == Fault::Panic {
            faulty.heal();
            let free = || is_free(bad);
            eventually("it has its turn again", LONG, free)
                .await
                .unwrap();
        }
    }
}
