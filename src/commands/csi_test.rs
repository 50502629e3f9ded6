//! What commands about volumes and plugins come to, and what they refuse.

use drover_error::Code;
use drover_events::Event;
use drover_events::cluster::VersionBarrierRaised;
use drover_events::csi::*;
use drover_events::gojson::{Map, Time};
use drover_events::model::*;
use drover_events::node::NodeRegistered;
use drover_projections::Outcome;
use drover_projections::tables::csi_volumes::CsiVolumes;

use super::csi::*;
use super::testing::*;
use super::{Command, Decision};

fn volume(id: &str) -> CsiVolume {
    CsiVolume {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        plugin_id: "hostpath".into(),
        requested_capabilities: vec![CsiVolumeCapability {
            access_mode: "single-node-writer".into(),
            attachment_mode: "file-system".into(),
        }]
        .into(),
        ..CsiVolume::default()
    }
}

fn registers(volumes: Vec<CsiVolume>) -> RegisterVolumes {
    RegisterVolumes { volumes }
}

fn claims(alloc: u32, mode: u8, state: u8) -> ClaimVolume {
    ClaimVolume {
        claim: CsiVolumeClaimed {
            volume_id: "data".into(),
            allocation_id: id(alloc),
            mode,
            state,
            ..CsiVolumeClaimed::default()
        },
    }
}

fn plugin_on(number: u32, healthy: bool) -> NodeRegistered {
    let info = CsiInfo {
        plugin_id: "hostpath".into(),
        healthy,
        ..CsiInfo::default()
    };
    NodeRegistered {
        node: Box::new(Node {
            csi_node_plugins: Map::from([("hostpath", info)]),
            ..node(number)
        }),
        ..NodeRegistered::default()
    }
}

/// Node 10 with the plugin, and allocation 40 of a job whose group requests the volume `data`.
fn world() -> World {
    world_asking(vec![request("single-node-writer", false)])
}

fn request(access: &str, read_only: bool) -> VolumeRequest {
    VolumeRequest {
        name: "v".into(),
        r#type: "csi".into(),
        source: "data".into(),
        access_mode: access.into(),
        attachment_mode: "file-system".into(),
        read_only,
        ..VolumeRequest::default()
    }
}

/// The same where the group has these requests.
fn world_asking(requests: Vec<VolumeRequest>) -> World {
    world_at(drover_migrations::FEATURE_LEVEL, requests)
}

/// The same where all servers read this feature level.
fn world_at(level: u32, requests: Vec<VolumeRequest>) -> World {
    let mut world = World::new();
    world.given(VersionBarrierRaised {
        level,
        ..VersionBarrierRaised::default()
    });
    world.given(plugin_on(10, true));
    let mut job = job("web");
    let named = requests.into_iter().enumerate();
    let named = named.map(|(at, request)| (format!("v{at}"), request));
    job.task_groups.to_mut()[0].volumes = named.collect();
    world.given(drover_events::job::JobRegistered {
        job: std::sync::Arc::new(job),
        ..Default::default()
    });
    let web = world.index;
    world.given(placed(alloc(40, "web", 10), web));
    world.given(placed(alloc(41, "web", 10), web));
    world
}

#[test]
fn csi_01_what_lacks_something_is_refused_by_name() {
    let world = world();
    let refused = |command: &dyn Fn() -> RegisterVolumes| world.refusal(&command());
    let (code, text) = refused(&|| registers(Vec::new()));
    assert_eq!(
        (code, text.as_str()),
        (Code::BadRequest, "missing volume definition")
    );
    let (code, text) = refused(&|| registers(vec![CsiVolume::default()]));
    assert_eq!(code, Code::BadRequest);
    assert_eq!(
        text,
        "validation: missing volume id, missing plugin id, missing namespace, must include at \
         least one capability block"
    );
    let odd = || {
        let mut odd = volume("data");
        odd.snapshot_id = "s".into();
        odd.clone_id = "c".into();
        odd.requested_capabilities.to_mut()[0].access_mode = "any".into();
        registers(vec![odd])
    };
    assert_eq!(
        refused(&odd).1,
        "validation: only one of snapshot_id and clone_id is allowed, unknown access mode \"any\""
    );
    let deregister = |ids: Vec<String>| DeregisterVolumes {
        namespace: "default".into(),
        ids,
        force: false,
        deleted: false,
    };
    assert_eq!(
        world.refusal(&deregister(Vec::new())).1,
        "missing volume IDs"
    );
    assert_eq!(
        world.refusal(&deregister(vec![String::new()])).1,
        "missing volume IDs"
    );
    let text = world.refusal(&deregister(vec!["data".into()])).1;
    assert_eq!(text, "volume not found: data");
    assert_eq!(
        world.refusal(&ClaimVolume::default()).1,
        "missing volume ID"
    );
    let (_, text) = world.refusal(&DeleteCsiPlugin { id: String::new() });
    assert_eq!(text, "missing plugin ID");
}

#[test]
fn csi_02_csi_05_a_volume_is_registered_when_its_plugin_runs_and_once() {
    let mut world = world();
    let mut lost = volume("data");
    lost.plugin_id = "typo".into();
    let text = "no CSI plugin named: typo could be found";
    assert_eq!(world.refusal(&registers(vec![lost])).1, text);
    world.given(plugin_on(10, false));
    assert!(
        world
            .refusal(&registers(vec![volume("data")]))
            .1
            .contains("no healthy instance")
    );
    world.given(plugin_on(10, true));
    world.done(&registers(vec![volume("data")]));
    let row = world.row::<CsiVolumes>(("default", "data")).unwrap();
    assert_eq!(row.volume.create_index, world.index);
    assert!(row.volume.create_time > 0);
    let again = world.decide(&registers(vec![volume("data")])).unwrap();
    assert!(matches!(again, Decision::Nothing(_)), "{again:?}");
    let mut clear = volume("other");
    clear.secrets = Map::from([("k", "clear text".to_owned())]);
    assert_eq!(world.refusal(&registers(vec![clear])).0, Code::Internal);
    assert_eq!(
        world
            .refusal(&DeleteCsiPlugin {
                id: "hostpath".into()
            })
            .1,
        "plugin in use"
    );
}

/// The same volume with fields set that are the cluster's to say.
fn forged(volume: CsiVolume) -> CsiVolume {
    CsiVolume {
        access_mode: "multi-node-multi-writer".into(),
        attachment_mode: "block-device".into(),
        controller_required: true,
        controllers_expected: 7,
        controllers_healthy: 7,
        create_index: 7,
        create_time: 7,
        modify_index: 7,
        modify_time: 7,
        nodes_expected: 7,
        nodes_healthy: 7,
        provider: "forged".into(),
        provider_version: "9.9".into(),
        read_allocs: Map::from([(id(40), None)]),
        resource_exhausted: Time::from_secs(7),
        schedulable: true,
        write_allocs: Map::from([(id(41), None)]),
        ..volume
    }
}

#[test]
fn csi_03_what_is_the_clusters_to_say_comes_from_no_caller_into_the_log() {
    let mut world = world();
    let mut renamed = volume("data");
    renamed.name = "renamed".into();
    // A new volume, and one that is there.
    for reported in [volume("data"), renamed] {
        let command = registers(vec![forged(reported.clone())]);
        let Event::CsiVolumesRegistered(event) = world.event(&command) else {
            panic!("it is registered");
        };
        assert_eq!(event.volumes, std::slice::from_ref(&reported));
        world.done(&command);
        let row = world.row::<CsiVolumes>(("default", "data")).unwrap();
        assert_eq!(row.volume.name, reported.name);
        // The scheduler places no group that requests a volume without capacity.
        assert!(row.volume.resource_exhausted.is_unset());
        assert_eq!(row.volume.provider, "", "its plugin names none");
        assert!(!row.volume.controller_required && !row.in_use());
        // Nor is it an event that only such things are said otherwise.
        let again = world.decide(&command).unwrap();
        assert!(matches!(again, Decision::Nothing(_)), "{again:?}");
    }
}

#[test]
fn csi_04_a_volume_stays_where_it_is() {
    let mut world = world();
    let zones = |names: &[&str]| {
        let zone = |name: &&str| CsiTopology {
            segments: Map::from([("zone", (*name).to_owned())]),
        };
        CsiVolume {
            topologies: names.iter().map(zone).collect(),
            ..volume("data")
        }
    };
    // Where that was not known, it may be said once.
    world.done(&registers(vec![zones(&[])]));
    world.done(&registers(vec![zones(&["z1", "z2"])]));
    for same in [&["z1", "z2"][..], &[]] {
        let decided = world.decide(&registers(vec![zones(same)])).unwrap();
        assert!(matches!(decided, Decision::Nothing(_)), "{decided:?}");
    }
    for other in [&["z1"][..], &["z1", "z2", "z3"], &["z1", "z3"]] {
        let refused = world.refusal(&registers(vec![zones(other)])).1;
        assert_eq!(refused, "volume topology cannot be updated", "{other:?}");
    }
}

#[test]
fn csi_20_csi_21_a_claim_is_what_its_allocation_asks_for() {
    let mut world = world();
    assert_eq!(
        world
            .refusal(&claims(40, claim_mode::WRITE, state::CLAIMED))
            .1,
        "volume not found: data"
    );
    world.done(&registers(vec![volume("data"), volume("other")]));
    let mut other = claims(40, claim_mode::WRITE, state::CLAIMED);
    other.claim.volume_id = "other".into();
    assert!(
        world
            .refusal(&other)
            .1
            .contains("does not ask for volume \"other\" to write to")
    );
    world.given(plugin_on(10, false));
    assert!(
        world
            .refusal(&claims(40, claim_mode::WRITE, state::CLAIMED))
            .1
            .contains("currently unschedulable")
    );
    world.given(plugin_on(10, true));
    // What the job says counts, not what its node does.
    let mut wide = claims(40, claim_mode::WRITE, state::CLAIMED);
    wide.claim.access_mode = "multi-node-multi-writer".into();
    world.done(&wide);
    let row = world.row::<CsiVolumes>(("default", "data")).unwrap();
    let held = &row.write_claims[&id(40)];
    assert_eq!(
        (held.node_id.as_str(), held.access_mode.as_str()),
        (&*id(10), "single-node-writer")
    );
    assert!(held.timestamp > 0);
    assert!(
        world
            .refusal(&claims(41, claim_mode::WRITE, state::CLAIMED))
            .1
            .contains("max claims reached")
    );
    let removal = DeregisterVolumes {
        namespace: "default".into(),
        ids: vec!["data".into()],
        force: true,
        deleted: false,
    };
    assert_eq!(world.refusal(&removal).1, "volume in use: data");
}

#[test]
fn a_volume_is_claimed_as_it_is_offered() {
    let mut world = world_asking(vec![request("multi-node-single-writer", false)]);
    world.done(&registers(vec![volume("data")]));
    let refusal = world
        .refusal(&claims(40, claim_mode::WRITE, state::CLAIMED))
        .1;
    assert!(
        refusal.contains("is not offered as file-system"),
        "{refusal}"
    );
}

#[test]
fn csi_16_an_allocation_that_asks_twice_has_one_claim_that_writes_if_it_does() {
    let reader = request("single-node-writer", true);
    let writer = request("single-node-writer", false);
    for requested in [
        vec![reader.clone(), writer.clone()],
        vec![writer.clone(), reader.clone()],
    ] {
        let mut world = world_asking(requested);
        world.done(&registers(vec![volume("data")]));
        world.done(&claims(40, claim_mode::READ, state::CLAIMED));
        let row = world.row::<CsiVolumes>(("default", "data")).unwrap();
        assert!(row.read_claims.is_empty());
        assert_eq!(row.write_claims[&id(40)].mode, claim_mode::WRITE);
        // The other one is the same claim.
        let again = world.decide(&claims(40, claim_mode::WRITE, state::CLAIMED));
        assert!(matches!(again, Ok(Decision::Nothing(_))));
    }
}

#[test]
fn csi_34_what_is_done_already_is_no_event() {
    let mut world = world();
    world.done(&registers(vec![volume("data")]));
    let nothing = |world: &World, command: &ClaimVolume| {
        let decided = command.decide(
            &world.view(),
            &super::Stamp {
                id: drover_events::EventId::ZERO,
                now: 1,
            },
        );
        matches!(decided.unwrap(), Decision::Nothing(_))
    };
    assert!(nothing(
        &world,
        &claims(40, claim_mode::WRITE, state::NODE_DETACHED)
    ));
    world.done(&claims(40, claim_mode::WRITE, state::CLAIMED));
    assert!(nothing(
        &world,
        &claims(40, claim_mode::WRITE, state::CLAIMED)
    ));
    for step in [
        state::UNPUBLISHING,
        state::NODE_DETACHED,
        state::CONTROLLER_DETACHED,
        state::READY_TO_FREE,
    ] {
        let command = claims(40, claim_mode::GC, step);
        assert!(!nothing(&world, &command), "{}", state::name(step));
        world.done(&command);
        assert!(nothing(&world, &command), "{}", state::name(step));
    }
    let row = world.row::<CsiVolumes>(("default", "data")).unwrap();
    assert!(!row.in_use());
    // A signal is always an event: it is what wakes waiting workers (VW-12).
    let signal = claims(40, claim_mode::GC, state::CLAIMED);
    assert!(!nothing(&world, &signal));
    world.done(&signal);
    let after = world.row::<CsiVolumes>(("default", "data")).unwrap();
    assert_eq!(after.volume.modify_index, world.index);
    assert!(!after.in_use());
}

#[test]
fn nothing_is_written_that_some_server_would_not_apply() {
    let world = World::new();
    let (code, text) = world.refusal(&registers(vec![volume("data")]));
    assert_eq!(code, Code::Unavailable);
    assert!(text.contains("every server"));
    assert_eq!(
        world
            .refusal(&claims(40, claim_mode::READ, state::CLAIMED))
            .0,
        Code::Unavailable
    );
}

#[test]
fn what_a_server_of_before_would_refuse_is_not_written() {
    let requests = || vec![request("single-node-writer", false)];
    for (level, knows) in [
        (UNCONFIRMED_DETACH_LEVEL - 1, false),
        (UNCONFIRMED_DETACH_LEVEL, true),
    ] {
        let mut world = world_at(level, requests());
        world.done(&registers(vec![volume("data")]));
        world.done(&claims(40, claim_mode::WRITE, state::CLAIMED));
        world.done(&claims(40, claim_mode::WRITE, state::DETACH_UNCONFIRMED));
        let row = world.row::<CsiVolumes>(("default", "data")).unwrap();
        assert!(!row.in_use());
        assert_eq!(row.past_claims.len(), usize::from(knows), "{level}");
        let deletion = claims(40, claim_mode::DELETE, state::CLAIMED);
        let event = matches!(world.decide(&deletion).unwrap(), Decision::Event { .. });
        assert_eq!(event, knows, "{level}");
    }
}

#[test]
fn a_volume_that_is_being_deleted_is_refused_in_words_and_may_be_asked_for_again() {
    let mut world = world();
    world.done(&registers(vec![volume("data")]));
    world.done(&claims(40, claim_mode::DELETE, state::CLAIMED));
    let taken = claims(40, claim_mode::WRITE, state::CLAIMED);
    let text = "volume \"data\" in namespace \"default\" is being deleted".to_owned();
    assert_eq!(world.refusal(&taken), (Code::Conflict, text));
    // No command removes it but the one that deleted it.
    let removal = |force: bool, deleted: bool| DeregisterVolumes {
        namespace: "default".into(),
        ids: vec!["data".into()],
        force,
        deleted,
    };
    let text = "volume \"data\" is being deleted".to_owned();
    for force in [false, true] {
        let refused = world.refusal(&removal(force, false));
        assert_eq!(refused, (Code::Unavailable, text.clone()), "{force}");
    }
    world.decide(&removal(false, true)).unwrap();
    world.done(&claims(40, claim_mode::DELETE, state::READY_TO_FREE));
    // Nor where the delete began since that was decided.
    let Decision::Event { event, guards } = world.decide(&removal(true, false)).unwrap() else {
        panic!("it is removed");
    };
    world.done(&claims(40, claim_mode::DELETE, state::CLAIMED));
    let outcome = world.append(event, guards);
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    world.done(&claims(40, claim_mode::DELETE, state::READY_TO_FREE));
    world.done(&taken);
    let deletion = claims(40, claim_mode::DELETE, state::CLAIMED);
    let in_use = (Code::Refused, "volume in use: data".to_owned());
    assert_eq!(world.refusal(&deletion), in_use);
}
