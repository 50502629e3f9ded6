//! What an operator may change of a CSI volume.

use drover_events::csi::*;
use drover_events::gojson::{Map, Time};
use drover_events::model::*;

use super::csi::{claim, raw, registers, reported, step, volume, with_volume};
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
    // Fields of the cluster are not for clients to set.
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

/// The same volume, from a caller that also sets the cluster's own fields.
fn forged(volume: CsiVolume) -> CsiVolume {
    CsiVolume {
        access_mode: "multi-node-reader-only".into(),
        attachment_mode: "block-device".into(),
        controller_required: false,
        controllers_expected: 7,
        controllers_healthy: 7,
        create_index: 1,
        create_time: 1,
        modify_index: 1,
        modify_time: 1,
        nodes_expected: 7,
        nodes_healthy: 7,
        provider: "forged".into(),
        provider_version: "9.9".into(),
        read_allocs: Map::from([(id(43), None)]),
        resource_exhausted: Time::from_secs(1),
        schedulable: true,
        write_allocs: Map::from([(id(40), None), (id(43), None)]),
        ..volume
    }
}

#[test]
fn csi_03_a_volume_that_is_used_keeps_all_that_is_the_clusters_whoever_describes_it() {
    let mut world = with_volume();
    let shared = |alloc, how| claim(alloc, how, "multi-node-multi-writer");
    world.given(shared(40, claim_mode::READ));
    world.given(shared(41, claim_mode::WRITE));
    world.given(shared(42, claim_mode::WRITE));
    world.given(step(42, state::NODE_DETACHED));
    for (name, plugin_is_gone) in [("renamed", false), ("again", true)] {
        if plugin_is_gone {
            // Nothing says any more what was said of it but the row.
            world.given(drover_events::job::JobDeregistered {
                job_id: "plug".into(),
                ..stop(false)
            });
            world.given(reported(&[60], "complete"));
            let plugin = read::plugin(&world.view(), "hostpath").unwrap();
            assert!(plugin.is_none());
        }
        let mut expected = raw(&world);
        assert!(expected.volume.controller_required);
        assert_eq!(expected.volume.provider, "csi.example");
        assert_eq!(expected.past_claims.len(), 1);
        let mut again = forged(volume("data"));
        again.name = name.into();
        world.given(CsiVolumesRegistered {
            timestamp: 7,
            ..registers(vec![again])
        });
        // The name is the operator's; when that was is the cluster's.
        expected.volume.name = name.into();
        expected.volume.modify_index = world.index;
        expected.volume.modify_time = 7;
        assert_eq!(raw(&world), expected, "{name}");
    }
}

#[test]
fn csi_26_ev_11_the_node_of_an_old_claim_is_that_of_its_allocation() {
    let mut world = with_volume();
    // As rows were before claims knew their nodes, and before there were claims at all.
    let unknown = |mode| CsiVolumeClaimed {
        mode,
        ..CsiVolumeClaimed::default()
    };
    let old = CsiVolumeRow {
        volume: CsiVolume {
            read_allocs: Map::from([(id(40), None)]),
            ..volume("data")
        },
        write_claims: Map::from([(id(41), unknown(claim_mode::WRITE))]),
        past_claims: Map::from([(id(41), unknown(claim_mode::WRITE))]),
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
