//! Random histories of claims and of plugins: no volume is ever held without a holder, no single
//! writer is ever two, and what is counted is what there is.

use std::collections::BTreeSet;

use drover_events::csi::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::csi::*;
use super::*;
use crate::query::csi as read;
use crate::tables::JobSummaries;
use crate::tables::csi_plugins::CsiPlugins;

/// What happens to the volume: (verb, allocation 40 to 43, argument).
type Deed = (u8, u32, u8);

fn happens(world: &mut World, (verb, alloc, argument): Deed) {
    let access = [
        "single-node-writer",
        "multi-node-multi-writer",
        "multi-node-single-writer",
    ];
    let access = access[usize::from(argument) % access.len()];
    let step = CsiVolumeClaimed {
        state: argument % 6,
        ..claim(alloc, argument % 4, access)
    };
    let event: drover_events::Event = match verb {
        0 | 1 => claim(alloc, verb, access).into(),
        2..=4 => step.into(),
        5 => reported(
            &[alloc],
            ["running", "complete", "lost"][usize::from(argument % 3)],
        )
        .into(),
        6 => drover_events::eval::EvalsDeleted {
            alloc_ids: vec![id(alloc)],
            ..Default::default()
        }
        .into(),
        7 => CsiVolumeDeregistered {
            namespace: "default".into(),
            volume_ids: vec!["data".into()],
            force: argument.is_multiple_of(2),
        }
        .into(),
        _ => registers(vec![volume("data")]).into(),
    };
    world.when(event);
}

/// What must hold of a volume, whatever happened.
fn is_possible(world: &World, ever: &BTreeSet<String>) {
    let Some(volume) = read::volume(&world.view(), DATA).unwrap() else {
        return;
    };
    let row = &volume.row;
    for claims in [&row.read_claims, &row.write_claims, &row.past_claims] {
        for (alloc, claim) in claims.iter() {
            assert!(
                !alloc.is_empty() && ever.contains(alloc),
                "held by nobody: {claim:?}"
            );
            assert_eq!(claim.allocation_id, *alloc);
            assert!(claim.mode < claim_mode::GC, "nobody holds a signal");
            assert!(!claim.node_id.is_empty() && !claim.access_mode.is_empty());
            assert_ne!(claim.state, state::READY_TO_FREE);
        }
    }
    for (alloc, claim) in row.past_claims.iter() {
        let is_unconfirmed = claim.state == state::DETACH_UNCONFIRMED;
        let listed = row.read_claims.contains_key(alloc) || row.write_claims.contains_key(alloc);
        assert!(
            listed != is_unconfirmed,
            "CSI-37: what is not free is listed"
        );
    }
    let holders = row.holders().count();
    assert!(
        row.deleting == 0 || holders == 0,
        "nobody has what is deleted"
    );
    assert_eq!(row.volume.access_mode.is_empty(), holders == 0, "CSI-07");
    let all = row.read_claims.values().chain(row.write_claims.values());
    let alone = all
        .filter(|claim| claim.access_mode == "single-node-writer")
        .count();
    assert!(
        alone == 0 || holders == 1,
        "who asked to be alone is alone: {row:?}"
    );
    let single = |claim: &&CsiVolumeClaimed| claim.access_mode == "multi-node-single-writer";
    let writers = row.write_claims.values().filter(single).count();
    assert!(writers == 0 || row.write_claims.len() == 1, "{row:?}");
}

#[test]
fn csi_28_csi_33_no_history_leaves_a_volume_in_an_impossible_state() {
    let deeds = prop::collection::vec((0..9u8, 40..44u32, 0..12u8), 60);
    let mut runner = TestRunner::new(Config::with_cases(24));
    let run = runner.run(&deeds, |deeds| {
        let mut world = with_volume();
        let ever: BTreeSet<String> = (40..44).map(id).collect();
        for deed in deeds {
            happens(&mut world, deed);
            is_possible(&world, &ever);
        }
        // Whatever is held is free in the end, once every step is reported.
        for alloc in 40..44 {
            world.when(CsiVolumeClaimed {
                state: state::READY_TO_FREE,
                ..claim(alloc, claim_mode::WRITE, "")
            });
        }
        world.when(CsiVolumeClaimed {
            state: state::READY_TO_FREE,
            ..claim(40, claim_mode::DELETE, "")
        });
        let left = read::volume(&world.view(), DATA).unwrap();
        prop_assert!(left.is_none_or(|left| left.row.is_at_rest()));
        Ok(())
    });
    run.unwrap();
}

/// What a plugin's counts are, counted from nodes, jobs and allocations.
fn recounted(world: &World) -> Option<[i64; 4]> {
    let view = world.view();
    let mut counts = [0; 4];
    let nodes = view.scan::<crate::tables::nodes::Nodes>(crate::Scan::all());
    for node in nodes {
        let node = node.unwrap();
        let parts = [&node.csi_controller_plugins, &node.csi_node_plugins];
        for (at, part) in parts.into_iter().enumerate() {
            if let Some(info) = part.get("hostpath")
                && read::counts(&view, "hostpath", info).unwrap()
            {
                counts[at] += 1;
                counts[at + 2] += i64::from(info.healthy);
            }
        }
    }
    Some(counts).filter(|counts| counts[0] + counts[1] > 0)
}

/// What is expected of the plugin: what the summary of its job, which runs on every node, says to
/// be under way.
fn wanted(world: &World) -> i64 {
    let summary = world.view().get::<JobSummaries>(("default", "plug"));
    let summary = summary.unwrap().unwrap_or_default();
    let groups = summary.summary.values();
    groups
        .map(|group| group.starting + group.running + group.unknown)
        .sum()
}

/// What happens to the plugin: (verb, number of its node and allocation, argument).
type PluginDeed = (u8, u32, u8);

fn plugin_deeds() -> impl Strategy<Value = Vec<PluginDeed>> {
    prop::collection::vec((0..6u8, 0..4u32, 0..3u8), 50)
}

/// The event of a deed; the job of the plugin was written at this index.
fn plugin_event((verb, number, argument): PluginDeed, plug: u64) -> drover_events::Event {
    let (on, by) = (10 + number, 60 + number);
    let status = ["running", "complete", "lost"][usize::from(argument)];
    match verb {
        0 => registered(node(on)).into(),
        1 => registered(plugin_node(on, by, argument > 0)).into(),
        2 => placed(vec![alloc(by, "plug", on)], plug).into(),
        3 => reported(&[60, 61, by], status).into(),
        4 => drover_events::node::NodesDeregistered {
            node_ids: vec![id(on)],
            ..Default::default()
        }
        .into(),
        _ => drover_events::eval::EvalsDeleted {
            alloc_ids: vec![id(by)],
            ..Default::default()
        }
        .into(),
    }
}

/// The job of the plugin is gone.
fn plugin_stops() -> drover_events::job::JobDeregistered {
    drover_events::job::JobDeregistered {
        namespace: "default".into(),
        job_id: "plug".into(),
        purge: true,
        ..Default::default()
    }
}

/// The row of the plugin is that of a recount.
fn is_as_recounted(world: &World) -> Result<(), TestCaseError> {
    let row = world.view().get::<CsiPlugins>("hostpath").unwrap();
    if let Some(row) = &row {
        let expected = (row.plugin.controllers_expected, row.plugin.nodes_expected);
        prop_assert_eq!(expected, (wanted(world), wanted(world)));
    }
    let known = row.map(|row| {
        let plugin = &row.plugin;
        let healthy = (plugin.controllers_healthy, plugin.nodes_healthy);
        [row.controllers, row.nodes, healthy.0, healthy.1]
    });
    let known = known.filter(|counts| counts[0] + counts[1] > 0);
    prop_assert_eq!(known, recounted(world));
    Ok(())
}

#[test]
fn plg_02_ev_08_counts_are_those_of_a_recount_after_any_history() {
    let mut runner = TestRunner::new(Config::with_cases(16));
    let run = runner.run(&plugin_deeds(), |deeds| {
        let mut world = world();
        world.given(submitted(plugin_job("plug", "monolith", "system")));
        let plug = world.index;
        for deed in deeds {
            world.when(plugin_event(deed, plug));
            is_as_recounted(&world)?;
        }
        // The job stops, its allocations end: nothing is left of the plugin.
        world.given(plugin_stops());
        world.given(reported(&[60, 61, 62, 63], "complete"));
        let left = world.view().get::<CsiPlugins>("hostpath").unwrap();
        prop_assert!(left.is_none());
        Ok(())
    });
    run.unwrap();
}

/// All of these in one batch: each sees what those before it wrote, which no view sees yet.
fn in_one_batch(world: &mut World, events: impl IntoIterator<Item = drover_events::Event>) {
    let next = world.index + 1;
    let batch: Vec<_> = (next..)
        .zip(events)
        .map(|(index, event)| recorded(index, event, Vec::new()))
        .collect();
    world.apply_all(&batch);
}

#[test]
fn plg_02_ev_08_counts_are_those_of_a_recount_after_many_changes_in_one_batch() {
    let mut runner = TestRunner::new(Config::with_cases(16));
    let run = runner.run(&plugin_deeds(), |deeds| {
        let mut world = world();
        world.given(submitted(plugin_job("plug", "monolith", "system")));
        let plug = world.index;
        // One node that none of them touches runs it in the end.
        let deeds = deeds.into_iter().chain([(1, 4, 1), (2, 4, 0)]);
        in_one_batch(&mut world, deeds.map(|deed| plugin_event(deed, plug)));
        prop_assert!(recounted(&world).is_some());
        is_as_recounted(&world)?;
        // The end of its allocations arrives together with that of its job.
        let mut ends: Vec<drover_events::Event> = vec![plugin_stops().into()];
        for by in 60..65 {
            ends.push(reported(&[by], "complete").into());
        }
        in_one_batch(&mut world, ends);
        let left = world.view().get::<CsiPlugins>("hostpath").unwrap();
        prop_assert!(left.is_none());
        Ok(())
    });
    run.unwrap();
}
