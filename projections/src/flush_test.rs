//! How far the written state may lag behind the applied one.

use crate::engine_test::{Op, Step, TABLES, Thing};
use crate::{Options, Projections};

#[test]
fn apply_waits_for_a_flush_before_too_much_could_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        flush_every: u64::MAX,
        max_unflushed: 3_000,
        ..Options::dev()
    };
    let path = dir.path().join("slow");
    let (projections, mut writer) = Projections::open_with(&path, options, &TABLES).unwrap();
    let thing = |index: u64| Step {
        index,
        ops: vec![Op::Put(Thing {
            id: format!("{:08x}-0000-4000-8000-000000000000", index % 100),
            size: index,
            ..Thing::default()
        })],
        guards: Vec::new(),
    };
    let mut flushes = std::collections::BTreeSet::new();
    for first in (1..=20_000).step_by(100) {
        let steps: Vec<_> = (first..first + 100).map(thing).collect();
        let mut rest = &steps[..];
        while !rest.is_empty() {
            rest = &rest[writer.apply_batch(rest).unwrap().len()..];
            let flushed = projections.flushed().unwrap().index;
            let applied = projections.applied_index();
            assert!(
                applied - flushed <= 3_000,
                "{applied} applied, {flushed} flushed"
            );
            flushes.insert(flushed);
        }
    }
    assert!(
        flushes.len() < 20,
        "it is not flushed at every step: {flushes:?}"
    );
}

#[test]
fn a_flush_has_time_before_apply_waits_for_it() {
    for options in [Options::server(), Options::dev()] {
        let slack = options.max_unflushed - crate::DIGEST_EVERY;
        assert!(slack >= 3 * options.flush_every, "{options:?}");
    }
}
