//! What this machine is and has, as attributes and resources of its node (MOD-09).
//!
//! One probe per file; each adds to [`Facts`] and knows nothing of the others. A probe that finds
//! nothing adds nothing: a node without a fact is better than no node.

mod cpu;
pub mod host;
pub mod network;
pub mod storage;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use drover_events::gojson::Map;
use drover_events::model::status::{DEFAULT_NODE_POOL, eligibility, node as status};
use drover_events::model::{ClientHostVolumeConfig, Node, NodeReservedResources, NodeResources};

use crate::config::ClientSettings;
use crate::drivers::Registry;
use crate::ids::NodeIds;
use drover_base::version::{NOMAD_VERSION, VERSION};
use drover_config::{ClientConfig, HostVolume, option};

/// What the probes found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// `attr.*`.
    pub attributes: BTreeMap<String, String>,
    /// What can be given to tasks.
    pub resources: NodeResources,
}

impl Facts {
    /// Adds an attribute; an empty value adds none.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.attributes.insert(name.into(), value);
        }
    }
}

type Probe = fn(&mut Facts, &ClientSettings);

/// The probes by name, as `fingerprint.allowlist` and `fingerprint.denylist` know them.
const PROBES: &[(&str, Probe)] = &[
    ("arch", host::arch),
    ("cpu", cpu::probe),
    ("memory", memory),
    ("storage", storage::probe),
    ("host", host::probe),
    ("network", network::probe),
    ("cgroup", host::cgroup),
    ("signal", host::signals),
    ("nomad", nomad),
];

/// Runs all probes that the options allow.
pub fn probe(settings: &ClientSettings) -> Facts {
    let list = |key: &str| -> Vec<&str> {
        let text = settings.client.options.get(key).map_or("", String::as_str);
        text.split(',')
            .map(str::trim)
            .filter(|n| !n.is_empty())
            .collect()
    };
    let allow = list(option::FINGERPRINT_ALLOWLIST);
    let deny = list(option::FINGERPRINT_DENYLIST);
    let mut facts = Facts::default();
    facts.resources.min_dynamic_port = i64::from(settings.client.min_dynamic_port);
    facts.resources.max_dynamic_port = i64::from(settings.client.max_dynamic_port);
    for (name, probe) in PROBES {
        if (allow.is_empty() || allow.contains(name)) && !deny.contains(name) {
            probe(&mut facts, settings);
        }
    }
    facts
}

fn memory(facts: &mut Facts, settings: &ClientSettings) {
    memory_in(Path::new("/"), facts, settings);
}

/// What the files of a machine say whose root this is; what its operator says counts.
fn memory_in(root: &Path, facts: &mut Facts, settings: &ClientSettings) {
    let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let bytes = meminfo(&text, "MemTotal").unwrap_or(0);
    facts.set("memory.totalbytes", bytes.to_string());
    let configured = settings.client.memory_total_mb;
    let mb = if configured > 0 {
        configured
    } else {
        bytes >> 20
    };
    facts.resources.memory.memory_mb = i64::try_from(mb).unwrap_or(i64::MAX);
}

/// A line of `/proc/meminfo`, bytes.
pub fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_ascii_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kb| kb * 1024)
}

fn nomad(facts: &mut Facts, settings: &ClientSettings) {
    facts.set("nomad.version", NOMAD_VERSION);
    facts.set("drover.version", VERSION);
    facts.set(
        "nomad.service_discovery",
        settings.client.nomad_service_discovery.to_string(),
    );
    facts.set("unique.advertise.address", &settings.http_addr);
}

/// Metadata that every node has.
const META: &[(&str, &str)] = &[
    (
        "connect.sidecar_image",
        "docker.io/envoyproxy/envoy:v${NOMAD_envoy_version}",
    ),
    (
        "connect.gateway_image",
        "docker.io/envoyproxy/envoy:v${NOMAD_envoy_version}",
    ),
    ("connect.log_level", "info"),
    ("connect.proxy_concurrency", "1"),
    ("connect.transparent_proxy.default_uid", "101"),
    ("connect.transparent_proxy.default_outbound_port", "15001"),
];

/// What a configuration says of its node.
pub(super) fn configured_meta(config: &ClientConfig) -> Map<String> {
    let mut meta: Map<String> = META.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
    meta.extend(config.meta.clone());
    meta
}

/// The node that the client registers.
pub fn node(
    settings: &ClientSettings,
    ids: &NodeIds,
    facts: Facts,
    drivers: &Registry,
    now: i64,
) -> Node {
    let config = &settings.client;
    let drivers = drivers.fingerprint(now);
    let mut attributes = facts.attributes;
    for (name, info) in drivers.iter().filter(|(_, i)| i.detected) {
        attributes.insert(format!("driver.{name}"), "1".to_owned());
        for (key, value) in info.attributes.iter() {
            attributes
                .entry(key.clone())
                .or_insert_with(|| value.clone());
        }
    }
    let eligible = if config.default_ineligible {
        eligibility::INELIGIBLE
    } else {
        eligibility::ELIGIBLE
    };
    Node {
        id: ids.id.clone(),
        secret_id: ids.secret.clone(),
        name: settings.name.clone(),
        datacenter: settings.datacenter.clone(),
        node_class: config.node_class.clone(),
        node_pool: if config.node_pool.is_empty() {
            DEFAULT_NODE_POOL.to_owned()
        } else {
            config.node_pool.clone()
        },
        http_addr: settings.http_addr.clone(),
        tls_enabled: settings.http_tls,
        attributes: attributes.into(),
        meta: configured_meta(config),
        links: Map::empty(),
        drivers,
        csi_controller_plugins: Map::empty(),
        csi_node_plugins: Map::empty(),
        host_volumes: host_volumes(settings),
        node_resources: Some(facts.resources),
        reserved_resources: Some(reserved(settings)),
        node_max_allocs: i64::from(config.node_max_allocs),
        gc_volumes_on_node_gc: config.gc_volumes_on_node_gc,
        cgroup_parent: config.cgroup_parent.clone(),
        scheduling_eligibility: eligible.to_owned(),
        status: status::INIT.to_owned(),
        ..Node::default()
    }
}

/// The volumes that the configuration offers. They have no id: the cluster did not make them.
pub(super) fn host_volumes(settings: &ClientSettings) -> Map<ClientHostVolumeConfig> {
    let offered = |(name, volume): (&String, &HostVolume)| {
        let described = ClientHostVolumeConfig {
            name: name.clone(),
            path: volume.path.clone(),
            read_only: volume.read_only,
            ..ClientHostVolumeConfig::default()
        };
        (name.clone(), described)
    };
    settings.client.host_volumes.iter().map(offered).collect()
}

fn reserved(settings: &ClientSettings) -> NodeReservedResources {
    let configured = &settings.client.reserved;
    let mut out = NodeReservedResources::default();
    let int = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
    out.cpu.cpu_shares = int(configured.cpu);
    let cores = cpu::reserved_cores(settings);
    if !cores.is_empty() {
        out.cpu.reserved_cpu_cores = cores.into();
    }
    out.memory.memory_mb = int(configured.memory);
    out.disk.disk_mb = int(configured.disk);
    out.networks
        .reserved_host_ports
        .clone_from(&configured.reserved_ports);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_09_this_machine_has_the_facts_that_jobs_ask_for() {
        let tmp = tempfile::tempdir().unwrap();
        let settings = ClientSettings {
            alloc_dir: tmp.path().to_owned(),
            name: "box".into(),
            datacenter: "dc1".into(),
            ..ClientSettings::default()
        };
        let facts = probe(&settings);
        for name in [
            "cpu.arch",
            "cpu.numcores",
            "cpu.totalcompute",
            "memory.totalbytes",
            "kernel.name",
            "kernel.version",
            "os.name",
            "unique.hostname",
            "unique.storage.volume",
            "unique.network.ip-address",
            "nomad.version",
            "os.signals",
            "os.cgroups.version",
        ] {
            assert!(
                facts.attributes.contains_key(name),
                "{name} in {:?}",
                facts.attributes
            );
        }
        assert!(facts.resources.cpu.cpu_shares > 0);
        assert!(facts.resources.memory.memory_mb > 0 && facts.resources.disk.disk_mb > 0);
        assert!(!facts.resources.networks.is_empty());
        let node = node(
            &settings,
            &NodeIds::random(),
            facts,
            &Registry::default(),
            5,
        );
        assert_eq!(
            (node.status.as_str(), node.node_pool.as_str()),
            ("initializing", "default")
        );
    }

    #[test]
    fn mod_09_memory_is_what_the_kernel_or_the_operator_says() {
        let tmp = tempfile::tempdir().unwrap();
        let found = |settings: &ClientSettings| {
            let mut facts = Facts::default();
            memory_in(tmp.path(), &mut facts, settings);
            let bytes = facts.attributes["memory.totalbytes"].clone();
            (bytes, facts.resources.memory.memory_mb)
        };
        let mut settings = ClientSettings::default();
        assert_eq!(found(&settings), ("0".to_owned(), 0), "nothing is said");
        fs::create_dir(tmp.path().join("proc")).unwrap();
        let text = "MemTotalAll: 1 kB\nMemFree: 7 kB\nMemTotal:        4096 kB\n";
        fs::write(tmp.path().join("proc/meminfo"), text).unwrap();
        assert_eq!(found(&settings), ("4194304".to_owned(), 4));
        settings.client.memory_total_mb = 512;
        assert_eq!(found(&settings), ("4194304".to_owned(), 512));
    }

    #[test]
    fn mod_09_each_figure_of_a_node_is_what_its_operator_says() {
        let mut settings = ClientSettings::default();
        let client = &mut settings.client;
        client.cpu_total_compute = 1_001;
        client.reserved.cpu = 1;
        client.memory_total_mb = 1_002;
        client.disk_total_mb = 1_003;
        client.min_dynamic_port = 1_004;
        client.max_dynamic_port = 1_005;
        let facts = probe(&settings);
        let found = &facts.resources;
        let figures = [
            found.cpu.cpu_shares,
            found.memory.memory_mb,
            found.disk.disk_mb,
            found.min_dynamic_port,
            found.max_dynamic_port,
        ];
        assert_eq!(figures, [1_001, 1_002, 1_003, 1_004, 1_005]);
        let topology = found.processors.topology.as_ref().unwrap();
        assert_eq!(topology.override_total_compute, 1_001);
        for (name, value) in [
            ("cpu.totalcompute", "1001".to_owned()),
            ("cpu.usablecompute", "1000".to_owned()),
            ("unique.storage.bytestotal", (1_003_u64 << 20).to_string()),
        ] {
            assert_eq!(facts.attributes[name], value, "{name}");
        }
    }

    #[test]
    fn each_switch_of_a_node_is_the_one_that_is_named_for_it() {
        let node_of = |change: fn(&mut ClientConfig)| {
            let mut settings = ClientSettings::default();
            change(&mut settings.client);
            let mut facts = Facts::default();
            nomad(&mut facts, &settings);
            let node = node(
                &settings,
                &NodeIds::random(),
                facts,
                &Registry::default(),
                5,
            );
            let services = node.attributes["nomad.service_discovery"].clone();
            (services, node.scheduling_eligibility)
        };
        let found = |services: &str, eligible: &str| (services.to_owned(), eligible.to_owned());
        assert_eq!(node_of(|_| ()), found("true", "eligible"));
        let without = node_of(|client| client.nomad_service_discovery = false);
        assert_eq!(without, found("false", "eligible"));
        let waiting = node_of(|client| client.default_ineligible = true);
        assert_eq!(waiting, found("true", "ineligible"));
    }

    #[test]
    fn the_volumes_of_the_configuration_are_told() {
        let mut settings = ClientSettings::default();
        for (name, path, read_only) in [("certs", "/etc/ssl", true), ("data[0]", "/srv", false)] {
            let volume = HostVolume {
                path: path.to_owned(),
                read_only,
            };
            settings.client.host_volumes.insert(name.to_owned(), volume);
        }
        let described = host_volumes(&settings);
        let described: Vec<_> = described
            .iter()
            .map(|(key, v)| (key.as_str(), &*v.name, &*v.path, v.read_only, &*v.id))
            .collect();
        let expected = [
            ("certs", "certs", "/etc/ssl", true, ""),
            ("data[0]", "data[0]", "/srv", false, ""),
        ];
        assert_eq!(described, expected);
    }

    #[test]
    fn what_an_operator_keeps_for_the_machine_is_told() {
        let mut settings = ClientSettings::default();
        let configured = &mut settings.client.reserved;
        (configured.cpu, configured.memory, configured.disk) = (500, 512, 1_024);
        configured.reserved_ports = "22,80,8500-8600".into();
        configured.cores = "0-1,6".into();
        let reserved = reserved(&settings);
        assert_eq!(reserved.cpu.cpu_shares, 500);
        assert_eq!(*reserved.cpu.reserved_cpu_cores, [0, 1, 6]);
        assert_eq!(reserved.memory.memory_mb, 512);
        assert_eq!(reserved.disk.disk_mb, 1_024);
        assert_eq!(reserved.networks.reserved_host_ports, "22,80,8500-8600");
    }

    #[test]
    fn mod_09_probes_can_be_left_out() {
        let mut settings = ClientSettings::default();
        settings
            .client
            .options
            .insert("fingerprint.denylist".into(), "cpu, memory".into());
        let facts = probe(&settings);
        assert!(!facts.attributes.contains_key("cpu.numcores"));
        assert_eq!(facts.resources.memory.memory_mb, 0);
        assert!(
            facts.attributes.contains_key("kernel.name"),
            "all others ran"
        );

        let list = "fingerprint.allowlist".to_owned();
        settings
            .client
            .options
            .insert(list, "arch,memory,host".into());
        let facts = probe(&settings);
        assert!(facts.attributes.contains_key("kernel.name"));
        assert!(facts.attributes.contains_key("cpu.arch"));
        assert!(
            !facts.attributes.contains_key("nomad.version"),
            "not allowed"
        );
        assert_eq!(facts.resources.memory.memory_mb, 0, "allowed and denied");
    }
}
