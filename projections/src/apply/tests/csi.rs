//! CSI volumes: registration, claims and their steps back, what plugins follow from.

use drover_events::alloc::{AllocsUpdatedByClient, ClientAllocUpdate};
use drover_events::cluster::VersionBarrierRaised;
use drover_events::csi::*;
use drover_events::gojson::Map;
use drover_events::keyring::*;
use drover_events::model::*;
use drover_events::namespace::*;
use drover_events::node::NodesDeregistered;

use super::*;
use crate::query::csi as read;
use crate::tables::csi_plugins::CsiPlugins;
use crate::tables::csi_volumes::{CsiVolumeRow, CsiVolumes};

pub(super) const DATA: (&str, &str) = ("default", "data");

/// A world in which every server applies volumes.
pub(super) fn world() -> World {
    world_at(GROWN_LEVEL)
}

pub(super) fn world_at(level: u32) -> World {
    let mut world = World::new();
    world.given(VersionBarrierRaised {
        level,
        ..VersionBarrierRaised::default()
    });
    world
}

/// The job of a plugin: `kind` is controller, node or monolith.
pub(super) fn plugin_job(name: &str, kind: &str, job_type: &str) -> Job {
    let mut job = job(name);
    job.r#type = job_type.into();
    let task = Task {
        name: "plugin".into(),
        csi_plugin_config: Some(TaskCsiPluginConfig {
            id: "hostpath".into(),
            r#type: kind.into(),
            ..TaskCsiPluginConfig::default()
        }),
        ..Task::default()
    };
    let mut group = job.task_groups[0].clone();
    group.count = 1;
    group.tasks = vec![task].into();
    job.task_groups = vec![group].into();
    job
}

pub(super) fn info(alloc: u32, healthy: bool) -> CsiInfo {
    CsiInfo {
        plugin_id: "hostpath".into(),
        alloc_id: id(alloc),
        healthy,
        provider: "csi.example".into(),
        provider_version: "1.0".into(),
        requires_controller_plugin: true,
        controller_info: Some(CsiControllerInfo {
            supports_attach_detach: true,
            ..CsiControllerInfo::default()
        }),
        node_info: Some(CsiNodeInfo::default()),
        ..CsiInfo::default()
    }
}

/// A node that runs the plugin as controller and node.
pub(super) fn plugin_node(number: u32, alloc: u32, healthy: bool) -> Node {
    let given = Map::from([("hostpath", info(alloc, healthy))]);
    Node {
        csi_controller_plugins: given.clone(),
        csi_node_plugins: given,
        ..node(number)
    }
}

pub(super) fn volume(id: &str) -> CsiVolume {
    let capability = |access: &str| CsiVolumeCapability {
        access_mode: access.into(),
        attachment_mode: "file-system".into(),
    };
    CsiVolume {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        plugin_id: "hostpath".into(),
        external_id: format!("ext-{id}"),
        requested_capabilities: vec![
            capability("single-node-writer"),
            capability("multi-node-multi-writer"),
        ]
        .into(),
        ..CsiVolume::default()
    }
}

pub(super) fn registers(volumes: Vec<CsiVolume>) -> CsiVolumesRegistered {
    CsiVolumesRegistered {
        volumes,
        timestamp: 0,
    }
}

pub(super) fn claim(alloc: u32, mode: u8, access: &str) -> CsiVolumeClaimed {
    CsiVolumeClaimed {
        namespace: "default".into(),
        volume_id: "data".into(),
        allocation_id: id(alloc),
        mode,
        access_mode: access.into(),
        attachment_mode: "file-system".into(),
        ..CsiVolumeClaimed::default()
    }
}

pub(super) fn writes(alloc: u32) -> CsiVolumeClaimed {
    claim(alloc, claim_mode::WRITE, "single-node-writer")
}

pub(super) fn step(alloc: u32, to: u8) -> CsiVolumeClaimed {
    CsiVolumeClaimed {
        state: to,
        ..claim(alloc, claim_mode::GC, "")
    }
}

pub(super) fn reported(allocs: &[u32], status: &str) -> AllocsUpdatedByClient {
    let update = |number: &u32| ClientAllocUpdate {
        id: id(*number),
        client_status: status.into(),
        ..ClientAllocUpdate::default()
    };
    AllocsUpdatedByClient {
        updates: allocs.iter().map(update).collect(),
        updated_at: START,
        ..AllocsUpdatedByClient::default()
    }
}

/// The job `web` with allocations 40 to 43 on node 10, the plugin's with 60 on it, and the volume.
pub(super) fn with_volume() -> World {
    with_volume_at(GROWN_LEVEL)
}

pub(super) fn with_volume_at(level: u32) -> World {
    let mut world = world_at(level);
    world.given(registered(node(10)));
    world.given(submitted(job("web")));
    let web = world.index;
    let allocs = (40..44).map(|number| alloc(number, "web", 10)).collect();
    world.given(placed(allocs, web));
    world.given(submitted(plugin_job("plug", "monolith", "service")));
    let plug = world.index;
    world.given(placed(vec![alloc(60, "plug", 10)], plug));
    world.given(reported(&[60], "running"));
    world.given(registered(plugin_node(10, 60, true)));
    world.given(registers(vec![volume("data")]));
    world
}

pub(super) fn raw(world: &World) -> CsiVolumeRow {
    world.view().get::<CsiVolumes>(DATA).unwrap().unwrap()
}

fn shown(world: &World) -> read::Volume {
    read::volume(&world.view(), DATA).unwrap().unwrap()
}

#[test]
fn csi_24_csi_07_one_of_two_writers_wins_and_the_claim_sets_the_modes() {
    let mut world = with_volume();
    let mut described = volume("other");
    described.access_mode = "multi-node-multi-writer".into();
    world.given(registers(vec![described]));
    let key = ("default", "other");
    let other = world.view().get::<CsiVolumes>(key).unwrap().unwrap();
    assert_eq!(other.volume.access_mode, "", "nobody has claimed it");
    world.given(writes(40));
    let first = raw(&world);
    assert_eq!(first.volume.access_mode, "single-node-writer");
    assert_eq!(first.volume.attachment_mode, "file-system");
    assert_eq!(first.write_claims[&id(40)].node_id, id(10));
    assert_eq!(first.volume.modify_index, world.index);
    let text = "volume \"data\" in namespace \"default\": volume max claims reached";
    assert_eq!(world.refused(writes(41)), text);
    // Neither does a wider request let a second claim in beside one that is exclusive, nor the
    // reverse.
    let wide = |alloc| claim(alloc, claim_mode::WRITE, "multi-node-multi-writer");
    assert_eq!(world.refused(wide(41)), text);
    world.given(writes(40));
    assert_eq!(raw(&world), first, "who holds it already may ask again");
    world.given(step(40, state::READY_TO_FREE));
    assert_eq!(raw(&world).volume.access_mode, "");
    assert_eq!(raw(&world).volume.attachment_mode, "");
    world.given(wide(41));
    world.given(wide(42));
    assert_eq!(world.refused(writes(43)), text);
    let blocks = CsiVolumeClaimed {
        attachment_mode: "block-device".into(),
        ..wide(43)
    };
    assert!(world.refused(blocks).contains("is attached as file-system"));
}

#[test]
fn csi_21_ns_04_a_claim_is_for_a_live_allocation_of_the_namespace_on_its_own_node() {
    let mut world = with_volume();
    assert_eq!(
        world.refused(writes(99)),
        format!("alloc \"{}\" not found", id(99))
    );
    let elsewhere = CsiVolumeClaimed {
        node_id: id(11),
        ..writes(40)
    };
    assert!(world.refused(elsewhere).contains("does not run on node"));
    let mut prod = volume("data");
    prod.namespace = "prod".into();
    assert!(
        world
            .refused(registers(vec![prod.clone()]))
            .contains("nonexistent namespace")
    );
    world.given(NamespacesUpserted {
        namespaces: vec![Namespace {
            name: "prod".into(),
            ..Namespace::default()
        }],
    });
    world.given(registers(vec![prod]));
    let foreign = CsiVolumeClaimed {
        namespace: "prod".into(),
        ..writes(40)
    };
    assert!(
        world
            .refused(foreign)
            .contains("is in namespace \"default\"")
    );
    world.given(reported(&[40], "complete"));
    assert!(world.refused(writes(40)).contains("has ended"));
    let unknown = CsiVolumeClaimed {
        volume_id: "nothing".into(),
        ..writes(41)
    };
    assert_eq!(world.refused(unknown), "volume not found: nothing");
    let odd = CsiVolumeClaimed {
        mode: 7,
        ..writes(41)
    };
    assert!(world.refused(odd).contains("is not known"));
}

#[test]
fn csi_27_csi_25_ev_06_a_claim_of_an_ended_allocation_is_past_on_reads_and_the_row_stays() {
    let mut world = with_volume();
    world.given(claim(40, claim_mode::READ, "multi-node-multi-writer"));
    world.given(claim(41, claim_mode::WRITE, "multi-node-multi-writer"));
    assert!(shown(&world).row.past_claims.is_empty());
    world.given(reported(&[40], "failed"));
    let before = world.digests();
    let past = shown(&world).row;
    assert_eq!(past.past_claims.keys().collect::<Vec<_>>(), [&id(40)]);
    let known = &past.past_claims[&id(40)];
    assert_eq!(
        (known.mode, known.state),
        (claim_mode::READ, state::CLAIMED)
    );
    assert_eq!(
        known.node_id,
        id(10),
        "it is known although the client never said it"
    );
    assert!(
        past.read_claims.contains_key(&id(40)),
        "CSI-37: it is not free"
    );
    assert!(raw(&world).past_claims.is_empty());
    world.given(drover_events::eval::EvalsDeleted {
        alloc_ids: vec![id(40)],
        ..Default::default()
    });
    let gone = shown(&world).row.past_claims[&id(40)].clone();
    assert_eq!(gone, *known, "CSI-25: its row is not needed");
    for _ in 0..100 {
        shown(&world).shown();
    }
    let after = world.digests();
    let volumes = |all: &[(u16, String)]| all.iter().find(|(id, _)| *id == 16).cloned();
    assert_eq!(volumes(&before), volumes(&after));
}

#[test]
fn csi_31_csi_32_csi_37_a_claim_goes_step_by_step_and_keeps_what_it_was() {
    let mut world = with_volume();
    world.given(claim(40, claim_mode::READ, "single-node-writer"));
    world.given(step(40, state::UNPUBLISHING));
    world.given(step(40, state::NODE_DETACHED));
    let given = raw(&world);
    world.given(step(40, state::NODE_DETACHED));
    world.given(step(40, state::UNPUBLISHING));
    assert_eq!(
        raw(&world),
        given,
        "a step told twice, or one behind, changes nothing"
    );
    let past = &given.past_claims[&id(40)];
    assert_eq!(
        (past.mode, past.access_mode.as_str()),
        (claim_mode::READ, "single-node-writer")
    );
    assert_eq!(past.node_id, id(10));
    assert!(given.read_claims.contains_key(&id(40)));
    assert!(world.refused(writes(41)).contains("max claims"));
    assert!(
        world
            .refused(claim(40, claim_mode::READ, ""))
            .contains("is being released")
    );
    world.given(step(40, state::CONTROLLER_DETACHED));
    assert!(raw(&world).in_use());
    world.given(step(40, state::READY_TO_FREE));
    assert!(!raw(&world).in_use());
    let free = raw(&world);
    world.given(step(40, state::READY_TO_FREE));
    world.given(step(99, state::NODE_DETACHED));
    assert_eq!(raw(&world), free, "a claim that nobody holds is never made");
    world.given(writes(41));
}

#[test]
fn vw_12_vw_13_a_signal_moves_the_index_and_nothing_else() {
    let mut world = with_volume();
    world.given(writes(40));
    world.given(reported(&[40], "complete"));
    let mut expected = raw(&world);
    for _ in 0..100 {
        world.given(CsiVolumeClaimed {
            allocation_id: String::new(),
            ..claim(40, claim_mode::GC, "")
        });
    }
    expected.volume.modify_index = world.index;
    assert_eq!(raw(&world), expected);
    assert_eq!(shown(&world).row.past_claims.len(), 1);
}

#[test]
fn csi_41_csi_42_a_volume_goes_when_nobody_uses_it_or_only_the_dead_do() {
    let mut world = with_volume();
    let gone = |force| CsiVolumeDeregistered {
        namespace: "default".into(),
        volume_ids: vec!["data".into()],
        force,
    };
    world.given(writes(40));
    assert_eq!(world.refused(gone(false)), "volume in use: data");
    assert_eq!(world.refused(gone(true)), "volume in use: data");
    world.given(reported(&[40], "complete"));
    assert_eq!(world.refused(gone(false)), "volume in use: data");
    world.given(gone(true));
    assert!(world.view().get::<CsiVolumes>(DATA).unwrap().is_none());
    assert_eq!(world.refused(gone(true)), "volume not found: data");
    world.given(registers(vec![volume("data")]));
    world.given(gone(false));
}

#[test]
fn ns_02_ns_07_volumes_are_of_their_namespace_and_keep_it() {
    let mut world = with_volume();
    world.given(NamespacesUpserted {
        namespaces: vec![Namespace {
            name: "prod".into(),
            ..Namespace::default()
        }],
    });
    let mut prod = volume("data");
    prod.namespace = "prod".into();
    prod.external_id = "another".into();
    world.given(registers(vec![prod]));
    assert_eq!(raw(&world).volume.external_id, "ext-data");
    let delete = NamespacesDeleted {
        names: vec!["prod".into()],
    };
    assert_eq!(
        world.refused(delete.clone()),
        "namespace \"prod\" contains at least one CSI volume \"data\". All CSI volumes in \
         namespace must be deleted before it can be deleted"
    );
    world.given(CsiVolumeDeregistered {
        namespace: "prod".into(),
        volume_ids: vec!["data".into()],
        force: false,
    });
    world.given(delete);
    assert_eq!(raw(&world).volume.external_id, "ext-data");
}

#[test]
fn kr_04_a_key_is_in_use_while_a_secret_of_a_volume_is_sealed_with_it() {
    let mut world = with_volume();
    let key = |number: u32| RootKeyUpserted {
        key: RootKeyMeta {
            key_id: id(number),
            state: "active".into(),
            ..RootKeyMeta::default()
        },
        ..RootKeyUpserted::default()
    };
    world.given(key(3));
    let mut with = volume("data");
    with.secrets = Map::from([("a", sealed(&id(3), "AAEC")), ("b", sealed(&id(3), "AAED"))]);
    world.given(registers(vec![with]));
    world.given(key(4));
    let delete = || RootKeyDeleted {
        key_id: id(3),
        force: false,
    };
    assert_eq!(world.refused(delete()), "root key in use, cannot delete");
    assert!(shown(&world).shown().secrets.is_nil());
    world.given(CsiVolumeDeregistered {
        namespace: "default".into(),
        volume_ids: vec!["data".into()],
        force: false,
    });
    world.given(delete());
}

#[test]
fn csi_13_csi_14_plg_12_health_is_joined_and_a_volume_outlives_its_plugin() {
    let mut world = with_volume();
    let now = shown(&world);
    assert!(now.schedulable() && now.row.volume.controller_required);
    let health = now.shown();
    assert_eq!((health.nodes_healthy, health.controllers_healthy), (1, 1));
    assert_eq!((health.nodes_expected, health.controllers_expected), (1, 1));
    assert_eq!(health.provider, "csi.example");
    assert!(!raw(&world).volume.schedulable, "only a copy says so");
    world.given(registered(plugin_node(10, 60, false)));
    assert!(!shown(&world).schedulable());
    world.given(registered(plugin_node(10, 60, true)));
    world.given(drover_events::job::JobDeregistered {
        job_id: "plug".into(),
        ..stop(false)
    });
    world.given(reported(&[60], "complete"));
    let gone = shown(&world);
    assert!(gone.plugin.is_none() && !gone.schedulable());
    assert!(
        gone.row.volume.controller_required,
        "CSI-45: it is still known to be needed"
    );
    assert_eq!(gone.shown().provider, "csi.example");
    world.given(submitted(plugin_job("plug", "monolith", "service")));
    let plug = world.index;
    world.given(placed(vec![alloc(61, "plug", 10)], plug));
    world.given(registered(plugin_node(10, 61, true)));
    assert!(shown(&world).schedulable());
    // A controller that cannot attach is not required.
    let mut lame = plugin_node(10, 61, true);
    for given in lame.csi_controller_plugins.values_mut() {
        given.controller_info = Some(CsiControllerInfo::default());
    }
    world.given(registered(lame));
    assert!(!shown(&world).row.volume.controller_required);
}

#[test]
fn plg_01_plg_03_a_plugin_goes_with_the_last_allocation_and_one_in_use_is_not_removed() {
    let mut world = with_volume();
    let row = |world: &World| world.view().get::<CsiPlugins>("hostpath").unwrap();
    let deleted = CsiPluginDeleted {
        id: "hostpath".into(),
    };
    assert_eq!(world.refused(deleted.clone()), "plugin in use");
    world.given(drover_events::job::JobDeregistered {
        job_id: "plug".into(),
        ..stop(true)
    });
    let left = row(&world).unwrap();
    assert_eq!(
        (left.plugin.nodes_expected, left.plugin.nodes_healthy),
        (0, 1)
    );
    world.given(reported(&[60], "complete"));
    assert!(row(&world).is_none());
    // The node still reports it for some seconds: what has ended is not there again.
    let mut again = plugin_node(10, 60, true);
    again.attributes = Map::from([("a", "b".to_owned())]);
    world.given(registered(again));
    assert!(row(&world).is_none());
    assert_eq!(world.refused(deleted), "plugin \"hostpath\" not found");
}

#[test]
fn plugins_are_counted_from_when_every_server_does() {
    let mut world = World::new();
    let mut given = plugin_node(10, 60, true);
    for part in [
        &mut given.csi_controller_plugins,
        &mut given.csi_node_plugins,
    ] {
        part.values_mut().for_each(|info| info.alloc_id.clear());
    }
    world.given(registered(given));
    assert!(
        world
            .view()
            .get::<CsiPlugins>("hostpath")
            .unwrap()
            .is_none()
    );
    world.given(VersionBarrierRaised {
        level: CSI_LEVEL,
        ..VersionBarrierRaised::default()
    });
    let plugin = read::plugin(&world.view(), "hostpath").unwrap().unwrap();
    assert_eq!((plugin.row.nodes, plugin.nodes.len()), (1, 1));
    assert_eq!(plugin.healthy_controllers().count(), 1);
    world.given(NodesDeregistered {
        node_ids: vec![id(10)],
        ..NodesDeregistered::default()
    });
    assert!(read::plugin(&world.view(), "hostpath").unwrap().is_none());
}

#[test]
fn csi_26_ev_11_rows_of_every_age_are_read_complete() {
    let old = CsiVolumeRow {
        volume: CsiVolume {
            read_allocs: Map::from([(id(40), None)]),
            write_allocs: Map::from([(id(41), None)]),
            ..volume("data")
        },
        past_claims: Map::from([(id(42), CsiVolumeClaimed::default())]),
        ..CsiVolumeRow::default()
    };
    let row = read::repaired(&old);
    for (claims, alloc, mode) in [
        (&row.read_claims, 40, claim_mode::READ),
        (&row.write_claims, 41, claim_mode::WRITE),
        (&row.past_claims, 42, claim_mode::READ),
    ] {
        let claim = &claims[&id(alloc)];
        assert_eq!(
            (claim.mode, claim.allocation_id.as_str()),
            (mode, id(alloc).as_str())
        );
        assert_eq!((claim.namespace.as_str(), claim.volume_id.as_str()), DATA);
        assert!(!claim.access_mode.is_empty() && !claim.attachment_mode.is_empty());
    }
    assert!(!row.volume.access_mode.is_empty());
    assert_eq!(read::repaired(&row), row, "what is complete stays");
}
