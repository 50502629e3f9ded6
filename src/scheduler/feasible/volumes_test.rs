//! What nodes are good for by their volumes.

use drover_events::model::{CsiInfo, CsiNodeInfo, CsiTopology, HostVolumeCapability};

use super::*;
use crate::cluster::{Holder, PluginFacts};

fn node(volumes: &[(&str, bool)]) -> Node {
    let offered = |(name, read_only): &(&str, bool)| {
        let volume = ClientHostVolumeConfig {
            name: (*name).to_owned(),
            path: "/data".to_owned(),
            read_only: *read_only,
            ..ClientHostVolumeConfig::default()
        };
        ((*name).to_owned(), volume)
    };
    Node {
        id: "n1".to_owned(),
        host_volumes: volumes.iter().map(offered).collect(),
        ..Node::default()
    }
}

fn request(kind: &str, source: &str, read_only: bool) -> VolumeRequest {
    VolumeRequest {
        r#type: kind.to_owned(),
        source: source.to_owned(),
        read_only,
        ..VolumeRequest::default()
    }
}

fn asks(requests: &[VolumeRequest]) -> VolumeAsks {
    let named = |one: &VolumeRequest| (format!("{}-{}", one.r#type, one.source), one.clone());
    let job = ("default".to_owned(), "j".to_owned());
    let group = TaskGroup {
        volumes: requests.iter().map(named).collect(),
        ..TaskGroup::default()
    };
    VolumeAsks::new(job, &group)
}

/// What is said of a node where nothing is planned.
fn reason(asks: &mut VolumeAsks, name: &str, node: &Node, volumes: &Volumes) -> Option<String> {
    asks.seek(name, volumes);
    let missing = asks.missing(node, volumes, &PlanVolumes::default());
    missing.map(|missing| missing.reason)
}

#[test]
fn a_node_must_have_every_volume_and_let_it_be_written_where_that_is_wanted() {
    let one = node(&[("data", false), ("certs", true)]);
    let host = |source: &str, read_only| request("host", source, read_only);
    for (wanted, suits) in [
        (vec![], true),
        (vec![host("data", false)], true),
        (vec![host("data", true)], true),
        (vec![host("certs", true)], true),
        (vec![host("certs", false)], false),
        (vec![host("other", true)], false),
        (vec![host("data", false), host("other", true)], false),
    ] {
        let reason = reason(&mut asks(&wanted), "j.g[0]", &one, &Volumes::default());
        let missing = (!suits).then(|| "missing compatible host volumes".to_owned());
        assert_eq!(reason, missing, "{wanted:?}");
    }
}

#[test]
fn hv_01_each_allocation_asks_for_the_volume_of_its_index() {
    let one = node(&[("data[1]", false)]);
    let mut wanted = request("host", "data", false);
    wanted.per_alloc = true;
    let mut wanted = asks(&[wanted]);
    for (name, suits) in [("j.g[0]", false), ("j.g[1]", true), ("j.g[10]", false)] {
        let reason = reason(&mut wanted, name, &one, &Volumes::default());
        assert_eq!(reason.is_none(), suits, "{name}");
    }
    let mut shared = asks(&[request("host", "data[1]", false)]);
    assert_eq!(
        reason(&mut shared, "j.g[0]", &one, &Volumes::default()),
        None
    );
}

#[test]
fn a_volume_of_the_cluster_must_be_ready_of_the_namespace_and_capable() {
    let mut one = node(&[("data", false)]);
    one.host_volumes.get_mut("data").unwrap().id = "v1".to_owned();
    let capability = |access: &str| HostVolumeCapability {
        access_mode: access.to_owned(),
        attachment_mode: "file-system".to_owned(),
    };
    let good = HostFacts {
        namespace: "default".to_owned(),
        ready: true,
        node_id: "n1".to_owned(),
        name: "data".to_owned(),
        capabilities: vec![
            capability("single-node-writer"),
            capability("single-node-single-writer"),
        ],
    };
    let mut plain = request("host", "data", false);
    let mut reads = request("host", "data", true);
    let is_suitable = |facts: Option<HostFacts>, wanted: &VolumeRequest| {
        let mut volumes = Volumes::default();
        volumes.set_host("v1".to_owned(), facts);
        reason(
            &mut asks(std::slice::from_ref(wanted)),
            "j.g[0]",
            &one,
            &volumes,
        )
        .is_none()
    };
    assert!(is_suitable(Some(good.clone()), &plain));
    assert!(!is_suitable(None, &plain), "nobody knows it");
    let mut pending = good.clone();
    pending.ready = false;
    assert!(!is_suitable(Some(pending), &plain));
    let mut other = good.clone();
    other.namespace = "other".to_owned();
    assert!(!is_suitable(Some(other), &plain));
    assert!(
        !is_suitable(Some(good.clone()), &reads),
        "it is no volume of readers"
    );
    reads.access_mode = "single-node-writer".to_owned();
    assert!(is_suitable(Some(good.clone()), &reads));
    plain.attachment_mode = "block-device".to_owned();
    assert!(!is_suitable(Some(good), &plain));
}

#[test]
fn where_one_may_write_a_volume_of_a_node_another_waits_until_it_is_gone() {
    let mut one = node(&[("data", false)]);
    one.host_volumes.get_mut("data").unwrap().id = "v1".to_owned();
    let mut volumes = Volumes::default();
    let capability = HostVolumeCapability {
        access_mode: "single-node-single-writer".to_owned(),
        attachment_mode: "file-system".to_owned(),
    };
    let facts = HostFacts {
        namespace: "default".to_owned(),
        ready: true,
        node_id: "n1".to_owned(),
        name: "data".to_owned(),
        capabilities: vec![capability],
    };
    volumes.set_host("v1".to_owned(), Some(facts));
    let mut wanted = request("host", "data", false);
    wanted.access_mode = "single-node-single-writer".to_owned();
    let mut wanted = asks(&[wanted]);
    assert_eq!(reason(&mut wanted, "j.g[0]", &one, &volumes), None);
    let uses = wanted.uses("n1");
    volumes.add_user("a1", "n1", &uses);
    assert!(reason(&mut wanted, "j.g[0]", &one, &volumes).is_some());
    // The plan stops the one that writes it: the next one may come in its place, and only one.
    let mut plan = PlanVolumes::default();
    plan.change("n1", &uses, false);
    assert_eq!(wanted.missing(&one, &volumes, &plan), None);
    plan.change("n1", &uses, true);
    assert!(wanted.missing(&one, &volumes, &plan).is_some());
    volumes.remove_user("a1", "n1", &uses);
    assert_eq!(reason(&mut wanted, "j.g[0]", &one, &volumes), None);
}

fn plugin_on(node: &mut Node, healthy: bool, max_volumes: i64, zone: &str) {
    let topology = CsiTopology {
        segments: [("zone".to_owned(), zone.to_owned())].into_iter().collect(),
    };
    let info = CsiInfo {
        healthy,
        node_info: Some(CsiNodeInfo {
            max_volumes,
            accessible_topology: Some(topology),
            ..CsiNodeInfo::default()
        }),
        ..CsiInfo::default()
    };
    node.csi_node_plugins.insert("p", info);
}

fn csi(volumes: &mut Volumes, id: &str, change: impl FnOnce(&mut CsiFacts)) {
    let mut facts = CsiFacts {
        plugin_id: "p".to_owned(),
        modes: ["single-node-writer", "multi-node-multi-writer"]
            .map(|mode| (mode.to_owned(), "file-system".to_owned()))
            .into(),
        ..CsiFacts::default()
    };
    change(&mut facts);
    let plugin = PluginFacts {
        nodes: 1,
        ..PluginFacts::default()
    };
    volumes.set_plugin("p", Some(plugin));
    volumes.set_csi(VolumeKey::Csi("default".into(), id.into()), Some(facts));
}

fn writer(id: &str) -> VolumeRequest {
    VolumeRequest {
        access_mode: "single-node-writer".to_owned(),
        attachment_mode: "file-system".to_owned(),
        ..request("csi", id, false)
    }
}

fn holder(alloc: &str, job: Option<&str>) -> Holder {
    Holder {
        alloc_id: alloc.to_owned(),
        job: job.map(|id| ("default".to_owned(), id.to_owned())),
        node_id: "n9".to_owned(),
        writes: true,
        access_mode: String::new(),
        attachment_mode: String::new(),
    }
}

/// What is said of a node with a healthy plugin in zone `a` about a volume like this.
fn reason_for(wanted: &VolumeRequest, change: impl FnOnce(&mut CsiFacts)) -> Option<String> {
    let mut volumes = Volumes::default();
    csi(&mut volumes, "data", change);
    let mut one = node(&[]);
    plugin_on(&mut one, true, 0, "a");
    reason(
        &mut asks(std::slice::from_ref(wanted)),
        "j.g[0]",
        &one,
        &volumes,
    )
}

#[test]
fn csi_29_who_holds_a_volume_is_told_apart_from_what_is_left_of_one_who_is_gone() {
    let held = |holders: Vec<Holder>| {
        reason_for(&writer("data"), |facts| {
            facts.holders = holders;
            facts.access_mode = "single-node-writer".to_owned();
        })
    };
    let taken = "CSI volume data has exhausted its available writer claims";
    assert_eq!(held(vec![]), None);
    assert_eq!(
        held(vec![holder("a1", Some("other"))]).as_deref(),
        Some(taken)
    );
    let left = format!(
        "{taken} and is claimed by a garbage collected allocation a1; waiting for claim to be \
         released"
    );
    assert_eq!(held(vec![holder("a1", None)]), Some(left));
    let both = vec![holder("a1", None), holder("a2", Some("other"))];
    assert_eq!(held(both).as_deref(), Some(taken), "one must go by itself");
}

#[test]
fn csi_30_what_the_same_job_holds_does_not_stand_in_its_way() {
    let own = reason_for(&writer("data"), |facts| {
        facts.holders = vec![holder("a1", Some("j"))];
        facts.access_mode = "single-node-writer".to_owned();
    });
    assert_eq!(own, None);
}

#[test]
fn a_volume_says_in_its_words_why_it_cannot_be_used() {
    let reads = VolumeRequest {
        read_only: true,
        ..writer("data")
    };
    let unusable = "CSI volume data is unschedulable or is read-only";
    let no_reader = "CSI volume data is unschedulable or has exhausted its available reader claims";
    let exhausted = |facts: &mut CsiFacts| facts.exhausted = true;
    assert_eq!(
        reason_for(&writer("data"), exhausted).as_deref(),
        Some(unusable)
    );
    assert_eq!(reason_for(&reads, exhausted).as_deref(), Some(no_reader));
    let controller = |facts: &mut CsiFacts| facts.controller_required = true;
    assert_eq!(
        reason_for(&writer("data"), controller).as_deref(),
        Some(unusable)
    );
    let readers = |facts: &mut CsiFacts| {
        facts.modes = [("multi-node-reader-only".into(), "file-system".into())].into();
    };
    assert_eq!(
        reason_for(&writer("data"), readers).as_deref(),
        Some(unusable)
    );
    let raw = VolumeRequest {
        attachment_mode: "block-device".to_owned(),
        ..writer("data")
    };
    assert_eq!(reason_for(&raw, |_| {}).as_deref(), Some(unusable));
    let written = |facts: &mut CsiFacts| {
        facts.holders = vec![holder("a1", Some("other"))];
        facts.access_mode = "single-node-writer".to_owned();
    };
    assert_eq!(reason_for(&reads, written).as_deref(), Some(no_reader));
    let many = VolumeRequest {
        access_mode: "multi-node-multi-writer".to_owned(),
        ..writer("data")
    };
    let shared = |facts: &mut CsiFacts| {
        facts.holders = vec![holder("a1", Some("other"))];
        facts.access_mode = "multi-node-multi-writer".to_owned();
    };
    assert_eq!(reason_for(&many, shared), None);
    assert!(
        reason_for(&writer("data"), shared).is_some(),
        "not beside others"
    );
    let elsewhere = reason_for(&writer("other"), |_| {});
    assert_eq!(elsewhere.as_deref(), Some("missing CSI Volume other"));
}

#[test]
fn a_node_needs_the_plugin_in_health_with_room_and_within_reach() {
    let mut volumes = Volumes::default();
    csi(&mut volumes, "data", |facts| {
        facts.topologies = ["a", "b"]
            .map(|zone| CsiTopology {
                segments: [("zone".to_owned(), zone.to_owned())].into_iter().collect(),
            })
            .into();
    });
    csi(&mut volumes, "other", |facts| {
        let mut held = holder("a1", Some("x"));
        held.node_id = "n1".to_owned();
        facts.holders = vec![held];
    });
    let mut wanted = asks(&[writer("data")]);
    let mut one = node(&[]);
    let missing = reason(&mut wanted, "j.g[0]", &one, &volumes);
    assert_eq!(
        missing.as_deref(),
        Some("CSI plugin p is missing from client n1")
    );
    plugin_on(&mut one, false, 0, "a");
    let unhealthy = reason(&mut wanted, "j.g[0]", &one, &volumes);
    assert_eq!(
        unhealthy.as_deref(),
        Some("CSI plugin p is unhealthy on client n1")
    );
    plugin_on(&mut one, true, 1, "a");
    let full = reason(&mut wanted, "j.g[0]", &one, &volumes);
    let text = "CSI plugin p has the maximum number of volumes on client n1";
    assert_eq!(full.as_deref(), Some(text));
    plugin_on(&mut one, true, 2, "a");
    assert_eq!(reason(&mut wanted, "j.g[0]", &one, &volumes), None);
    let mut plan = PlanVolumes::default();
    let mut of_other = wanted.uses("n1");
    of_other[0].key = VolumeKey::Csi("default".into(), "other".into());
    plan.change("n1", &of_other, true);
    assert_eq!(
        wanted.missing(&one, &volumes, &plan),
        None,
        "it is there already"
    );
    csi(&mut volumes, "third", |_| {});
    of_other[0].key = VolumeKey::Csi("default".into(), "third".into());
    plan.change("n1", &of_other, true);
    assert!(
        wanted.missing(&one, &volumes, &plan).is_some(),
        "the plan counts"
    );
    plugin_on(&mut one, true, 0, "c");
    let far = reason(&mut wanted, "j.g[0]", &one, &volumes);
    assert_eq!(far.as_deref(), Some("did not meet topology requirement"));
}

#[test]
fn ns_04_a_volume_of_another_namespace_is_none() {
    let mut volumes = Volumes::default();
    csi(&mut volumes, "data", |_| {});
    let facts = volumes.csi(&VolumeKey::Csi("default".into(), "data".into()));
    let facts = CsiFacts::clone(facts.unwrap());
    let mut volumes = Volumes::default();
    volumes.set_csi(VolumeKey::Csi("b".into(), "data".into()), Some(facts));
    let mut one = node(&[]);
    plugin_on(&mut one, true, 0, "a");
    let reason_here = reason(&mut asks(&[writer("data")]), "j.g[0]", &one, &volumes);
    assert_eq!(reason_here.as_deref(), Some("missing CSI Volume data"));
}

#[test]
fn a_group_that_sticks_to_volumes_goes_back_to_the_one_it_left() {
    let capability = HostVolumeCapability {
        access_mode: "single-node-writer".to_owned(),
        attachment_mode: "file-system".to_owned(),
    };
    let mut volumes = Volumes::default();
    let nodes = ["1", "2", "3"].map(|number| {
        let facts = HostFacts {
            namespace: "default".to_owned(),
            ready: true,
            node_id: format!("n{number}"),
            name: "data".to_owned(),
            capabilities: vec![capability.clone()],
        };
        volumes.set_host(format!("v{number}"), Some(facts));
        let mut one = node(&[("data", false)]);
        one.id = format!("n{number}");
        one.host_volumes.get_mut("data").unwrap().id = format!("v{number}");
        one
    });
    let mut request = request("host", "data", false);
    request.sticky = true;
    let mut wanted = asks(&[request]);
    let mut suits = |volumes: &Volumes, plan: &PlanVolumes| {
        wanted.seek("j.g[0]", volumes);
        nodes
            .each_ref()
            .map(|one| wanted.missing(one, volumes, plan).is_none())
    };
    let none = PlanVolumes::default();
    assert_eq!(suits(&volumes, &none), [true; 3], "it holds nothing");
    let claim = |id: &str| {
        let words = ["default", "j", "", id].map(str::to_owned);
        let [namespace, job, group, id] = words;
        (namespace, job, group, id)
    };
    volumes.set_sticky(claim("v2"), true);
    volumes.set_sticky(claim("gone"), true);
    assert_eq!(suits(&volumes, &none), [false, true, false]);
    // One of its allocations is there: the next one may go anywhere, until that one stops.
    let uses = [VolumeUse {
        key: VolumeKey::Host("n2".to_owned(), "data".to_owned()),
        job: ("default".to_owned(), "j".to_owned()),
        writes: true,
        access_mode: String::new(),
        attachment_mode: String::new(),
    }];
    volumes.add_user("a1", "n2", &uses);
    assert_eq!(suits(&volumes, &none), [true; 3]);
    let mut plan = PlanVolumes::default();
    plan.change("n2", &uses, false);
    assert_eq!(suits(&volumes, &plan), [false, true, false]);
    plan.change("n2", &uses, true);
    assert_eq!(suits(&volumes, &plan), [true; 3]);
    volumes.remove_user("a1", "n2", &uses);
    volumes.set_sticky(claim("v2"), false);
    assert_eq!(suits(&volumes, &none), [true; 3], "given back");
}

#[test]
fn every_reason_says_what_it_waits_for() {
    let volume = || Some(WaitsFor::Volume("a b".to_owned()));
    for why in [
        Denied::Unusable,
        Denied::InUse,
        Denied::Left("x".to_owned()),
    ] {
        for read_only in [true, false] {
            assert_eq!(waits_for(&denial("a b", &why, read_only)), volume());
        }
    }
    assert_eq!(waits_for("missing CSI Volume a b"), volume());
    let plugin = Some(WaitsFor::Plugin("p q".to_owned()));
    for what in [
        "is missing from client n",
        "is unhealthy on other clients",
        "has the maximum number of volumes on client n",
    ] {
        assert_eq!(waits_for(&format!("CSI plugin p q {what}")), plugin);
    }
    assert_eq!(waits_for(MISSING_HOST), Some(WaitsFor::Host));
    assert_eq!(waits_for(TOPOLOGY), Some(WaitsFor::Topology));
    assert_eq!(waits_for("missing drivers"), None);
}
