//! What an operator may change of a CSI volume.

use drover_events::csi::*;
use drover_events::gojson::Map;
use drover_events::model::*;

use super::csi::{registers, reported, volume, with_volume};
use super::*;
use crate::query::csi as read;
use crate::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};

/// A volume with everything that may not change.
fn full(world: &mut World) -> CsiVolume {
    let mut first = volume("data");
    first.parameters = Map::from([("tier", "fast".to_owned())]);
    first.id = "full".into();
    first.snapshot_id = "s1".into();
    first.capacity = 100;
    world.given(registers(vec![first.clone()]));
    first
}

#[test]
fn csi_03_csi_04_what_cannot_change_must_be_as_it_is() {
    let mut world = with_volume();
    let first = full(&mut world);
    type Change = fn(&mut CsiVolume);
    let fixed: [(Change, &str); 7] = [
        (
            |v| v.plugin_id = "ebs".into(),
            "volume identity cannot be updated: full",
        ),
        (
            |v| v.external_id = "x".into(),
            "volume identity cannot be updated: full",
        ),
        (
            |v| v.snapshot_id = "s2".into(),
            "volume snapshot ID cannot be updated",
        ),
        (
            |v| v.clone_id = "c".into(),
            "volume clone ID cannot be updated",
        ),
        (
            |v| v.parameters = Map::from([("tier", "slow".to_owned())]),
            "volume parameters cannot be updated",
        ),
        (
            |v| v.requested_capabilities.to_mut().truncate(1),
            "volume requested capabilities update was not compatible with existing capability \
             in use",
        ),
        (
            |v| {
                let segments = Map::from([("rack", "r1".to_owned())]);
                v.requested_topologies = Some(CsiTopologyRequest {
                    required: vec![CsiTopology { segments }].into(),
                    ..CsiTopologyRequest::default()
                });
            },
            "volume topology request update was not compatible with existing topology",
        ),
    ];
    for (change, text) in fixed {
        let mut changed = first.clone();
        change(&mut changed);
        assert_eq!(world.refused(registers(vec![changed])), text);
    }
}

#[test]
fn csi_03_what_an_operator_may_change_is_changed_and_nothing_of_the_clusters() {
    let mut world = with_volume();
    let first = full(&mut world);
    let made = world.index;
    let mut again = first.clone();
    again.name = "renamed".into();
    again.mount_options = Some(CsiMountOptions {
        fs_type: "ext4".into(),
        ..CsiMountOptions::default()
    });
    again.secrets = Map::from([("k", sealed("key", "AAEC"))]);
    again.context = Map::from([("a", "b".to_owned())]);
    again.requested_capacity_min = 50;
    // Fields of the cluster are not anybody's to set.
    again.schedulable = true;
    again.write_allocs = Map::from([(id(40), None)]);
    again.access_mode = "multi-node-multi-writer".into();
    again.create_index = 1;
    world.given(registers(vec![again.clone()]));
    let key = ("default", "full");
    let row = world.view().get::<CsiVolumes>(key).unwrap().unwrap().volume;
    assert_eq!(
        (row.name.as_str(), row.requested_capacity_min),
        ("renamed", 50)
    );
    assert_eq!(row.mount_options, again.mount_options);
    assert_eq!(
        (&row.secrets, &row.context),
        (&again.secrets, &again.context)
    );
    assert!(!row.schedulable && row.write_allocs.is_empty() && row.access_mode.is_empty());
    assert_eq!((row.create_index, row.modify_index), (made, world.index));
    let mut large = first;
    large.requested_capacity_min = 200;
    assert!(world.refused(registers(vec![large])).contains("capacity"));
}

#[test]
fn csi_26_ev_11_the_node_of_an_old_claim_is_that_of_its_allocation() {
    let mut world = with_volume();
    // As rows were before claims knew their nodes, and before there were claims at all.
    let unknown = |mode| CsiVolumeClaimed {
        claim: mode,
        ..CsiVolumeClaimed::default()
    };
    let old = CsiVolumeRow {
        volume: CsiVolume {
            read_allocs: Map::from([(id(40), None)]),
            ..volume("data")
        },
        write_claims: Map::from([(id(41), unknown(mode::WRITE))]),
        past_claims: Map::from([(id(41), unknown(mode::WRITE))]),
        ..CsiVolumeRow::default()
    };
    for (ended, past) in [(vec![], vec![41]), (vec![40], vec![40, 41])] {
        world.given(reported(&ended, "complete"));
        let row = read::with_past_claims(&world.view(), &old).unwrap().row;
        assert_eq!(row.read_claims[&id(40)].node_id, id(10), "{ended:?}");
        assert_eq!(row.write_claims[&id(41)].node_id, id(10), "{ended:?}");
        let known: Vec<_> = row.past_claims.keys().cloned().collect();
        assert_eq!(known, past.iter().map(|n| id(*n)).collect::<Vec<_>>());
        for claim in row.past_claims.values() {
            assert_eq!(claim.node_id, id(10), "{ended:?}");
        }
    }
}
