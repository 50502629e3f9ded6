//! Volumes of hosts: which node an allocation goes to for its volume.

use drover_events::cluster::VersionBarrierRaised;
use drover_events::csi::CSI_LEVEL;
use drover_events::host_volume::{HOST_VOLUME_LEVEL, HostVolumeDeleted, HostVolumeRegistered};
use drover_events::model::{
    ClientHostVolumeConfig, HostVolume, HostVolumeCapability, Job, Node, VolumeRequest,
};
use drover_projections::tables::host_volumes::HostVolumesByNode;

use super::world::World;
use drover_testkit::fixtures::{SECOND, job, node, update};

/// A node that offers these volumes.
fn offers(number: usize, volumes: &[&str]) -> Node {
    let mut node = node(number);
    let offered = |name: &&str| {
        let (name, read_only) = match name.strip_suffix(" ro") {
            Some(name) => (name, true),
            None => (*name, false),
        };
        let volume = ClientHostVolumeConfig {
            name: name.to_owned(),
            path: "/srv".to_owned(),
            read_only,
            ..ClientHostVolumeConfig::default()
        };
        (name.to_owned(), volume)
    };
    node.host_volumes = volumes.iter().map(offered).collect();
    node
}

/// A job whose group requests the volume `data`.
fn asking(kind: &str, count: i64, per_alloc: bool) -> Job {
    let mut spec = job(kind, count);
    let request = VolumeRequest {
        name: "v".to_owned(),
        r#type: "host".to_owned(),
        source: "data".to_owned(),
        per_alloc,
        ..VolumeRequest::default()
    };
    spec.task_groups[0].volumes = [("v".to_owned(), request)].into_iter().collect();
    spec
}

fn world(nodes: &[&[&str]], spec: Job) -> World {
    let mut world = World::new(0, spec);
    for (number, volumes) in nodes.iter().enumerate() {
        world.add_node(offers(number, volumes));
    }
    world
}

/// Names of live allocations without the job's, and the names of their nodes.
fn places(world: &World) -> Vec<(String, String)> {
    let live = world.live();
    let place = |id: &String| {
        let alloc = world.alloc(id);
        (alloc.name, alloc.node_name)
    };
    live.iter().map(place).collect()
}

fn on(number: usize) -> String {
    node(number).name
}

#[test]
fn a_group_goes_only_where_its_volume_is_and_may_be_written() {
    let mut world = world(
        &[&[], &["data ro"], &["data"], &["other"]],
        asking("service", 3, false),
    );
    let outcome = world.run("job-register");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let nodes: Vec<String> = places(&world).into_iter().map(|(_, node)| node).collect();
    assert_eq!(nodes, [on(2), on(2), on(2)]);
}

#[test]
fn a_node_without_the_volume_is_filtered_in_the_words_users_know_and_the_job_waits() {
    let spec = asking("service", 1, false);
    let mut world = world(&[&[], &["data ro"]], spec);
    let outcome = world.run("job-register");
    let metric = &outcome.failed["g"];
    let reasons: Vec<_> = metric.constraint_filtered.iter().collect();
    assert_eq!(
        reasons,
        [(&"missing compatible host volumes".to_owned(), &2)]
    );
    assert_eq!((metric.nodes_filtered, metric.nodes_exhausted), (2, 0));
    // The class as such is good: a node of it that has the volume lets the job continue.
    let blocked = outcome.blocked.expect("it waits");
    assert!(!blocked.escaped_computed_class);
    assert!(blocked.class_eligibility.values().all(|eligible| *eligible));
}

#[test]
fn hv_02_hv_04_each_index_goes_to_the_node_that_has_its_volume_and_stays_there() {
    // All nodes are of one class, which knows nothing of indexes.
    let nodes: [&[&str]; 4] = [&["data[2]"], &["data[0]"], &["data"], &["data[1]"]];
    let mut spec = asking("service", 3, true);
    spec.task_groups[0].update = Some(update(1, 0));
    spec.task_groups[0]
        .reschedule_policy
        .as_mut()
        .unwrap()
        .delay = 0;
    let mut world = world(&nodes, spec);
    let outcome = world.run("job-register");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let expected = [("j.g[0]", 1), ("j.g[1]", 3), ("j.g[2]", 0)]
        .map(|(name, number)| (name.to_owned(), on(number)));
    assert_eq!(places(&world), expected);
    world.heal();
    world.set_deployment("successful");
    let second = world.live()[1].clone();
    world.fail(&second);
    world.now += 60 * SECOND;
    world.run("alloc-failure");
    assert_eq!(places(&world), expected, "rescheduled");
    for _ in 0..3 {
        world.heal();
        world.change(|job| job.task_groups[0].tasks[0].user = "somebody".to_owned());
        world.run("job-register");
    }
    assert_eq!(places(&world), expected, "updated");
}

#[test]
fn hv_04_a_change_in_place_is_decided_by_the_volume_of_each_index() {
    // The volume without an index is not one of theirs, and lies where none of them runs.
    let nodes: [&[&str]; 4] = [&["data[2]"], &["data[0]"], &["data"], &["data[1]"]];
    let mut world = world(&nodes, asking("service", 3, true));
    let outcome = world.run("job-register");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    world.all_are("running");
    let before = (world.live(), places(&world));
    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = 9 * SECOND);
    let updates = world.run("job-register").desired["g"].clone();
    let decided = (updates.in_place_update, updates.destructive_update);
    assert_eq!(decided, (3, 0));
    assert_eq!((world.live(), places(&world)), before);
    // One that has lost its volume moves alone.
    world.add_node(offers(3, &["data"]));
    world.all_are("running");
    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = 8 * SECOND);
    let updates = world.run("job-register").desired["g"].clone();
    let decided = (updates.in_place_update, updates.destructive_update);
    assert_eq!(decided, (2, 1));
}

#[test]
fn hv_04_one_index_without_a_place_says_nothing_of_the_next() {
    let mut world = world(&[&["data[1]"], &["data[3]"]], asking("service", 4, true));
    let outcome = world.run("job-register");
    let expected =
        [("j.g[1]", 0), ("j.g[3]", 1)].map(|(name, number)| (name.to_owned(), on(number)));
    assert_eq!(places(&world), expected);
    assert_eq!(outcome.failed["g"].coalesced_failures, 1);
    assert_eq!(outcome.finished.queued_allocations["g"], 2);
    world.add_node(offers(7, &["data[0]", "data[2]"]));
    let outcome = world.run("queued-allocs");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_eq!(places(&world)[0], ("j.g[0]".to_owned(), on(7)));
}

#[test]
fn a_change_in_place_needs_the_volume_still() {
    let mut world = world(&[&["data"], &["data"]], asking("service", 1, false));
    world.run("job-register");
    world.all_are("running");
    let (before, place) = (world.live(), places(&world)[0].1.clone());
    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = SECOND);
    world.run("job-register");
    assert_eq!(world.live(), before, "in place");
    let number = usize::from(place == on(1));
    world.add_node(offers(number, &["data ro"]));
    world.all_are("running");
    world.change(|job| job.task_groups[0].tasks[0].kill_timeout = 2 * SECOND);
    world.run("job-register");
    assert_eq!(
        places(&world)[0].1,
        on(1 - number),
        "moved to the other one"
    );
}

#[test]
fn a_system_job_runs_where_its_volume_is() {
    let mut world = world(&[&["data"], &[], &["data"]], asking("system", 1, false));
    let outcome = world.run("job-register");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let mut nodes: Vec<String> = places(&world).into_iter().map(|(_, node)| node).collect();
    nodes.sort();
    assert_eq!(nodes, [on(0), on(2)]);
}

/// The id of the volume that the cluster manages on a node.
fn managed_id(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-0000000000aa")
}

/// A node with a volume `data` that the cluster manages; it is ready once the node says so.
fn managed(world: &mut World, number: usize) {
    let mut offering = offers(number, &["data"]);
    world.add_node(offering.clone());
    let capability = HostVolumeCapability {
        access_mode: "single-node-writer".to_owned(),
        attachment_mode: "file-system".to_owned(),
    };
    world.apply(HostVolumeRegistered {
        volume: HostVolume {
            id: managed_id(number),
            name: "data".to_owned(),
            namespace: "default".to_owned(),
            node_id: offering.id.clone(),
            node_pool: "default".to_owned(),
            requested_capabilities: vec![capability].into(),
            ..HostVolume::default()
        },
    });
    offering.host_volumes.get_mut("data").unwrap().id = managed_id(number);
    world.add_node(offering);
}

#[test]
fn a_group_that_sticks_goes_back_to_its_volume_whatever_else_there_is() {
    let mut spec = asking("service", 2, false);
    let volumes = spec.task_groups[0].volumes.to_mut();
    volumes.get_mut("v").unwrap().sticky = true;
    spec.task_groups[0]
        .reschedule_policy
        .as_mut()
        .unwrap()
        .delay = 0;
    let mut world = World::new(0, spec);
    world.apply(VersionBarrierRaised {
        level: CSI_LEVEL,
        ..VersionBarrierRaised::default()
    });
    for number in 0..6 {
        managed(&mut world, number);
    }
    let outcome = world.run("job-register");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    world.all_are("running");
    let first: Vec<String> = places(&world).into_iter().map(|(_, node)| node).collect();
    let sorted = |world: &World| {
        let mut nodes: Vec<String> = places(world).into_iter().map(|(_, node)| node).collect();
        nodes.sort();
        nodes
    };
    let mut expected = first;
    expected.sort();
    for round in 0..4 {
        for id in world.live() {
            world.fail(&id);
            world.now += 600 * SECOND;
            world.run("alloc-failure");
        }
        assert_eq!(sorted(&world), expected, "round {round}");
    }
}

#[test]
fn a_group_that_sticks_waits_for_its_node_until_its_claim_or_its_volume_is_gone() {
    let mut spec = asking("service", 1, false);
    let volumes = spec.task_groups[0].volumes.to_mut();
    volumes.get_mut("v").unwrap().sticky = true;
    let mut world = World::new(0, spec);
    world.apply(VersionBarrierRaised {
        level: HOST_VOLUME_LEVEL,
        ..VersionBarrierRaised::default()
    });
    for number in 0..3 {
        managed(&mut world, number);
    }
    world.run("job-register");
    world.all_are("running");
    let placed = |world: &World| world.alloc(&world.live()[0]).node_id;
    let first = placed(&world);
    world.node_status(&first, "down");
    let outcome = world.run("node-update");
    let failed = &outcome.failed["g"];
    assert_eq!(
        failed.constraint_filtered["missing compatible host volumes"],
        2
    );
    let view = world.view();
    let gone = view.by_index::<HostVolumesByNode>(first.as_str()).next();
    let gone = gone.expect("its volume").unwrap();
    assert_eq!(gone.state, "unavailable");
    drop(view);
    // The node is back, and the group with it.
    world.node_status(&first, "ready");
    let outcome = world.run("node-update");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_eq!(placed(&world), first);
    world.all_are("running");
    world.node_status(&first, "down");
    assert!(!world.run("node-update").failed.is_empty());
    world.apply(HostVolumeDeleted {
        namespace: "default".to_owned(),
        volume_id: gone.id.clone(),
        force: true,
    });
    let outcome = world.run("node-update");
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert_ne!(placed(&world), first, "it sticks to nothing any more");
}
