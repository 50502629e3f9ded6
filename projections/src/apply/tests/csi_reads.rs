//! What reads of volumes and plugins add to their rows, and that the rows know nothing of it.

use drover_events::csi::*;
use drover_events::gojson::Map;
use drover_events::model::{CsiInfo, CsiVolume, VolumeRequest};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::csi::*;
use super::*;
use crate::Scan;
use crate::query::csi as read;
use crate::tables::csi_plugins::CsiPlugins;
use crate::tables::csi_volumes::{CsiVolumeRow, CsiVolumes, CsiVolumesByPlugin};

#[test]
fn csi_26_ev_11_a_claim_of_before_nodes_were_written_gets_that_of_its_allocation() {
    let world = with_volume();
    let unstated = CsiVolumeClaimed {
        allocation_id: id(41),
        mode: claim_mode::WRITE,
        ..CsiVolumeClaimed::default()
    };
    let gone = CsiVolumeClaimed {
        allocation_id: id(99),
        ..unstated.clone()
    };
    let stated = CsiVolumeClaimed {
        allocation_id: id(42),
        node_id: id(7),
        ..unstated.clone()
    };
    let old = CsiVolumeRow {
        volume: CsiVolume {
            // The oldest rows name who holds it and no more.
            read_allocs: Map::from([(id(40), None)]),
            ..volume("data")
        },
        write_claims: Map::from([(id(41), unstated), (id(42), stated), (id(99), gone)]),
        ..CsiVolumeRow::default()
    };
    let row = read::with_past_claims(&world.view(), &old).unwrap().row;
    let nodes = [
        row.read_claims[&id(40)].node_id.as_str(),
        &row.write_claims[&id(41)].node_id,
        &row.write_claims[&id(42)].node_id,
        &row.write_claims[&id(99)].node_id,
    ];
    assert_eq!(nodes, [&*id(10), &*id(10), &*id(7), ""]);
    assert!(row.past_claims.contains_key(&id(99)), "nobody is there");
}

#[test]
fn ev_06_ev_07_a_plugin_read_a_hundred_times_is_as_it_was() {
    let world = with_volume();
    let stored = || world.view().get::<CsiPlugins>("hostpath").unwrap().unwrap();
    let (before, row) = (world.digests(), stored());
    let first = read::plugin(&world.view(), "hostpath").unwrap().unwrap();
    let first = first.shown();
    assert_eq!((first.controllers.len(), first.nodes.len()), (1, 1));
    for _ in 0..100 {
        let again = read::plugin(&world.view(), "hostpath").unwrap().unwrap();
        assert_eq!(again.shown(), first);
    }
    assert_eq!(stored(), row);
    assert!(row.plugin.controllers.is_empty() && row.plugin.nodes.is_empty());
    assert_eq!(world.digests(), before);
}

/// The volumes of a plugin as its index has them, and as a scan finds them.
fn of_plugin(world: &World, plugin: &str) -> [Vec<CsiVolumeRow>; 2] {
    let view = world.view();
    let by_index =
        view.by_index_scan::<CsiVolumesByPlugin>(Scan::with_key_prefix::<String>(plugin));
    let by_index: Vec<_> = by_index.map(Result::unwrap).collect();
    let all = view.scan::<CsiVolumes>(Scan::all()).map(Result::unwrap);
    let scanned = all.filter(|row| row.volume.plugin_id == plugin);
    [by_index, scanned.collect()]
}

#[test]
fn ev_17_volumes_are_found_by_plugin_and_by_name_as_a_scan_finds_them() {
    let deeds = prop::collection::vec((0..3u8, 0..3usize, 0..2usize, 0..4u32), 60);
    let mut runner = TestRunner::new(Config::with_cases(16));
    let most = std::cell::Cell::new(0);
    let run = runner.run(&deeds, |deeds| {
        let mut world = with_volume();
        for (verb, name, plugin, alloc) in deeds {
            let (name, plugin) = (["data", "a", "b"][name], ["hostpath", "other"][plugin]);
            match verb {
                0 => drop(world.when(registers(vec![CsiVolume {
                    plugin_id: plugin.into(),
                    ..volume(name)
                }]))),
                1 => drop(world.when(CsiVolumeClaimed {
                    volume_id: name.into(),
                    ..claim(40 + alloc, claim_mode::WRITE, "multi-node-multi-writer")
                })),
                _ => drop(world.when(CsiVolumeDeregistered {
                    namespace: "default".into(),
                    volume_ids: vec![name.into()],
                    force: true,
                })),
            }
            for plugin in ["hostpath", "other", "none"] {
                let [by_index, scanned] = of_plugin(&world, plugin);
                most.set(most.get().max(scanned.len()));
                prop_assert_eq!(by_index, scanned);
            }
            for name in ["data", "a", "b"] {
                let view = world.view();
                let one = view.get::<CsiVolumes>(("default", name)).unwrap();
                let mut all = view.scan::<CsiVolumes>(Scan::all()).map(Result::unwrap);
                prop_assert_eq!(one, all.find(|row| row.volume.id == name));
            }
        }
        Ok(())
    });
    run.unwrap();
    assert!(most.get() > 1, "several volumes were of one plugin");
}

#[test]
fn csi_27_what_an_allocation_left_is_known_also_when_it_is_gone() {
    let mut world = with_volume();
    let mut asks = job("asks");
    let request = VolumeRequest {
        name: "v".into(),
        r#type: "csi".into(),
        source: "data".into(),
        ..VolumeRequest::default()
    };
    asks.task_groups.to_mut()[0].volumes = [("v", request)].into();
    world.given(submitted(asks));
    let asks = world.index;
    world.given(placed(vec![alloc(70, "asks", 10)], asks));
    let left = |world: &World, number: u32| {
        let alloc = crate::Id::new(id(number).as_str());
        read::left_by(&world.view(), &alloc, world.index).unwrap()
    };
    let data = vec![("default".to_owned(), "data".to_owned())];
    assert_eq!(left(&world, 70), Some(Vec::new()), "it goes on");
    world.given(reported(&[70], "complete"));
    assert_eq!(left(&world, 70), Some(data.clone()));
    world.given(drover_events::eval::EvalsDeleted {
        alloc_ids: vec![id(70)],
        ..Default::default()
    });
    assert_eq!(left(&world, 70), Some(data), "it is gone");
    world.given(reported(&[40], "complete"));
    assert_eq!(left(&world, 40), Some(Vec::new()), "it asked for none");
    assert_eq!(left(&world, 71), None, "nobody ever knew it");
}

#[test]
fn csi_plugins_that_a_node_runs_in_one_part_only_are_counted_so() {
    let mut world = world();
    let alone = || {
        // No allocation runs it, so it stands by itself.
        let alone = CsiInfo {
            alloc_id: String::new(),
            ..info(60, true)
        };
        Map::from([("hostpath", alone)])
    };
    let parts = |world: &World| {
        let plugin = read::plugin(&world.view(), "hostpath").unwrap().unwrap();
        let counted = (plugin.row.controllers, plugin.row.nodes);
        (counted, plugin.controllers.len(), plugin.nodes.len())
    };
    world.given(registered(Node {
        csi_controller_plugins: alone(),
        ..node(10)
    }));
    assert_eq!(parts(&world), ((1, 0), 1, 0));
    world.given(registered(Node {
        csi_node_plugins: alone(),
        ..node(11)
    }));
    assert_eq!(parts(&world), ((1, 1), 1, 1));
}
