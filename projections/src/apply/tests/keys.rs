//! Which keys are in use: counted by the index, as a scan of all allocations counts them.

use std::collections::BTreeMap;

use drover_events::eval::EvalsDeleted;
use drover_events::model::Allocation;

use super::allocs::update;
use super::*;
use crate::engine::scan::Scan;
use crate::engine::txn::ReadRows;
use crate::query;
use crate::tables::allocs::{Allocs, AllocsBySigningKey};

/// Keys that allocations are signed by, and one that none is.
const KEYS: u32 = 4;

/// By key: the live allocations that it signed.
type InUse = BTreeMap<String, Vec<String>>;

fn by_index(world: &World) -> InUse {
    let view = world.view();
    let of = |key: &String| {
        let scan = Scan::with_key_prefix::<crate::Id>(key.as_str());
        let rows = view.rows_by::<AllocsBySigningKey>(scan);
        let mut ids: Vec<_> = rows.map(|row| row.unwrap().id.clone()).collect();
        ids.sort();
        ids
    };
    (0..=KEYS)
        .map(id)
        .map(|key| (key.clone(), of(&key)))
        .collect()
}

/// Without the index, and by what an allocation says of itself alone.
fn by_scan(world: &World) -> InUse {
    let mut found: InUse = (0..=KEYS).map(|key| (id(key), Vec::new())).collect();
    let view = world.view();
    for row in view.rows::<Allocs>(Scan::all()) {
        let row = row.unwrap();
        let over = ["complete", "failed", "lost"].contains(&row.client_status.as_str());
        if !over && let Some(ids) = found.get_mut(&row.signing_key_id) {
            ids.push(row.id.clone());
        }
    }
    found.values_mut().for_each(|ids| ids.sort());
    found
}

#[test]
fn kr_04_a_key_is_in_use_while_a_live_allocation_was_signed_with_it() {
    let mut world = running_job();
    let number = |n: u32| 100 + n;
    let mut state = 7_u32;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    let mut most = 0;
    for step in 0..160 {
        match random(8) {
            0..4 => {
                let signed = (0..=random(3)).map(|n| Allocation {
                    signing_key_id: id(random(KEYS)),
                    ..alloc(number(step * 4 + n), "web", 10)
                });
                let signed = signed.collect();
                world.given(placed(signed, 2));
            }
            4..7 => {
                let status = ["running", "complete", "failed", "lost"][random(4) as usize];
                let which = number(random(step * 4 + 1));
                let known = world.view().get::<Allocs>(&id(which)).unwrap();
                // Over is over: a client says nothing of it any more.
                if known.is_some_and(|row| !row.client_terminal()) {
                    world.given(update(which, status));
                }
            }
            _ => {
                let reaped = EvalsDeleted {
                    alloc_ids: vec![id(number(random(step * 4 + 1)))],
                    ..EvalsDeleted::default()
                };
                world.given(reaped);
            }
        }
        let in_use = by_scan(&world);
        assert_eq!(by_index(&world), in_use, "step {step}");
        for (key, allocs) in &in_use {
            let found = query::root_key_in_use(&world.view(), key).unwrap();
            assert_eq!(
                found,
                !allocs.is_empty(),
                "step {step}: {key} signed {allocs:?}"
            );
        }
        most = most.max(in_use.values().map(Vec::len).sum::<usize>());
    }
    assert!(most > 40, "{most} live allocations at most");
}
