//! The `client` block.

use super::kinds::{HOUR, MINUTE, SECOND, block, labelled, maybe, set, switch};
use super::option;
use super::server::ServerJoin;
use super::settings::settings;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const BRIDGE: &str = "there are no bridge or CNI networks: use the host network";
const SOCKETS: &str = "plugins listen on sockets of their own choice";

settings! {
/// The settings of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConfig {
    /// Run a client.
    pub enabled: bool => switch shown "Enabled",
    /// Where the journal lies; absent means `<data_dir>/client`.
    pub state_dir: Option<PathBuf> => set shown "StateDir",
    /// Where allocations live; absent means `<data_dir>/alloc`.
    pub alloc_dir: Option<PathBuf> => set shown "AllocDir",
    /// Where allocations are mounted; absent means `alloc_mounts` beside the data directory.
    pub alloc_mounts_dir: Option<PathBuf>
        => set unsupported "allocations are not mounted anywhere",
    /// Where dynamic host volumes are made.
    pub host_volumes_dir: Option<PathBuf> => set,
    /// Where plugins that make host volumes lie.
    pub host_volume_plugin_dir: Option<PathBuf> => set,
    /// Where other plugins lie.
    pub common_plugin_dir: Option<PathBuf>
        => set unsupported "secrets of tasks come from variables",
    /// Servers to register with.
    pub servers: Vec<String> => set shown "Servers",
    /// How to find servers.
    pub server_join: ServerJoin => block,
    /// The node's class.
    pub node_class: String => set shown "NodeClass",
    /// The node's pool.
    pub node_pool: String = "default".into() => set shown "NodePool",
    /// Options by name: see [`option`].
    pub options: BTreeMap<String, String> => set [live by take_options] shown "Options",
    /// The node's meta.
    pub meta: BTreeMap<String, String> => set [live] shown "Meta",
    /// What is put into a task's root for `exec`.
    pub chroot_env: BTreeMap<String, String> => set,
    /// The name of the interface whose addresses are used; no template.
    pub network_interface: String => set shown "NetworkInterface",
    /// `ipv4` or `ipv6`.
    pub preferred_address_family: String => set,
    /// In Mbit/s; 0 means what the interface says.
    pub network_speed: u64 => set,
    /// Overrides the processors' sum in MHz; 0 means as found.
    pub cpu_total_compute: u64 => set,
    /// Overrides memory in MB; 0 means as found.
    pub memory_total_mb: u64 => set,
    /// Overrides the disk's size in MB; 0 means as found.
    pub disk_total_mb: u64 => set,
    /// Overrides the disk's free space in MB; 0 means as found.
    pub disk_free_mb: u64
        => set unsupported "what is free is measured; set client.disk_total_mb or reserved.disk",
    /// Cores that may be reserved, `0-3,5`.
    pub reservable_cores: String => set unsupported "set reserved.cores: the rest may be reserved",
    /// What is kept from tasks.
    pub reserved: Reserved => block,
    /// The longest a task's end may take.
    pub max_kill_timeout: Duration = 30 * SECOND => set [live],
    /// Lowest port for plugins.
    pub client_min_port: u16 = 14_000 => set unsupported SOCKETS,
    /// Highest port for plugins.
    pub client_max_port: u16 = 14_512 => set unsupported SOCKETS,
    /// Lowest dynamic port.
    pub min_dynamic_port: u16 = 20_000 => set shown "MinDynamicPort",
    /// Highest dynamic port.
    pub max_dynamic_port: u16 = 32_000 => set shown "MaxDynamicPort",
    /// How often dead allocations are looked for.
    pub gc_interval: Duration = MINUTE => set [live],
    /// How many are removed at once.
    pub gc_parallel_destroys: u32 = 2 => set [live],
    /// Remove some when the disk is fuller than this, in percent.
    pub gc_disk_usage_threshold: f64 = 80.0 => set [live],
    /// The same for inodes.
    pub gc_inode_usage_threshold: f64 = 70.0 => set [live],
    /// Keep at most this many allocations.
    pub gc_max_allocs: u32 = 50 => set [live],
    /// Remove volumes with their node.
    pub gc_volumes_on_node_gc: bool => switch,
    /// Make an id of our own rather than use the machine's.
    pub no_host_uuid: bool = true => set unsupported "a node's id is always one of its own",
    /// Refuse commands beside tasks of this node, whatever rights the caller has.
    pub disable_remote_exec: bool => switch [live],
    /// Where CNI plugins lie.
    pub cni_path: String = "/opt/cni/bin".into() => set unsupported BRIDGE,
    /// Where CNI networks are described.
    pub cni_config_dir: String = "/opt/cni/config".into() => set unsupported BRIDGE,
    /// The bridge's name.
    pub bridge_network_name: String = "nomad".into() => set unsupported BRIDGE,
    /// The bridge's addresses.
    pub bridge_network_subnet: String = "172.26.64.0/20".into() => set unsupported BRIDGE,
    /// The same for IPv6.
    pub bridge_network_subnet_ipv6: String => set unsupported BRIDGE,
    /// Hairpin mode of the bridge.
    pub bridge_network_hairpin_mode: bool => switch unsupported BRIDGE,
    /// The default host network listens everywhere.
    pub bind_wildcard_default_host_network: bool = true
        => set unsupported "ports are bound by the tasks themselves",
    /// Parent of the tasks' control groups; empty means by cgroup version.
    pub cgroup_parent: String => set,
    /// Offer the built-in service discovery.
    pub nomad_service_discovery: bool = true => set,
    /// At most this many allocations; 0 for no limit.
    pub node_max_allocs: u32 => set,
    /// Register ineligible.
    pub default_ineligible: bool => set,
    /// Host volumes by name.
    pub host_volumes: BTreeMap<String, HostVolume> => labelled named "host_volume",
    /// Host networks by name.
    pub host_networks: BTreeMap<String, HostNetwork>
        => labelled named "host_network" unsupported "ports are not bound to networks by name",
    /// Drain when stopping.
    pub drain_on_shutdown: Option<DrainOnShutdown> => maybe,
    /// Limits on downloads.
    pub artifact: ArtifactConfig => block unsupported "artifacts are not downloaded",
    /// Template settings as given.
    pub template: serde_json::Value => set unsupported "templates are not rendered",
    /// Fingerprint settings by name, as given.
    pub fingerprint: serde_json::Value => set unsupported "what a node has is always looked up",
    /// The range of dynamic users.
    pub users: serde_json::Value => set unsupported "there are no dynamic users",
} compat {
    /// Take what processors can do from the system alone.
    cpu_disable_dmidecode: bool => set unsupported "dmidecode is not used",
    /// A file for what a client logs.
    log_file: String => set unsupported "a client logs where its agent does: log_file at the top",
}
}

/// Options that are looked at whenever a task is started.
const CHANGING_OPTIONS: [&str; 2] = [option::USER_DENYLIST, option::USER_CHECKED_DRIVERS];

fn take_options(options: &mut BTreeMap<String, String>, other: &BTreeMap<String, String>) {
    for key in CHANGING_OPTIONS {
        match other.get(key) {
            Some(value) => options.insert(key.to_owned(), value.clone()),
            None => options.remove(key),
        };
    }
}

settings! {
/// What is kept from tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserved {
    /// MHz.
    pub cpu: u64 => set,
    /// MB.
    pub memory: u64 => set,
    /// MB.
    pub disk: u64 => set,
    /// The cores that no task of `exec` gets, `0-1`; those of `raw_exec` run on any core. What
    /// these cores can do is not offered, unless `cpu_total_compute` says what is.
    pub cores: String => set,
    /// `22,80,8500-8600`.
    pub reserved_ports: String => set,
}
}

settings! {
/// A directory offered to jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct HostVolume {
    /// Its path on the host.
    pub path: String => set,
    /// No task may write.
    pub read_only: bool => set,
}
}

settings! {
/// A network of the host that ports can be bound on.
#[derive(Clone, Debug, PartialEq)]
pub struct HostNetwork {
    /// Chosen by address.
    pub cidr: String => set,
    /// Chosen by interface.
    pub interface: String => set,
    /// Ports that are not given to tasks.
    pub reserved_ports: String => set,
}
}

settings! {
/// How a stopping client drains itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DrainOnShutdown {
    /// How long it may take.
    pub deadline: Duration = HOUR => set,
    /// Do not wait.
    pub force: bool => set,
    /// Leave system jobs running.
    pub ignore_system_jobs: bool => set,
}
}

settings! {
/// Limits on downloads.
#[derive(Clone, Debug, PartialEq)]
pub struct ArtifactConfig {
    /// How long one HTTP download may take.
    pub http_read_timeout: Duration = 30 * MINUTE => set,
    /// Its largest size, `100GB`.
    pub http_max_size: String = "100GB".into() => set,
    /// The largest size after unpacking.
    pub decompression_size_limit: String = "100GB".into() => set,
    /// The largest number of files after unpacking.
    pub decompression_file_count_limit: u64 = 4096 => set,
    /// Download without isolation.
    pub disable_filesystem_isolation: bool => set,
    /// Do not look at what came.
    pub disable_artifact_inspection: bool => set,
    /// Paths a download may see as well.
    pub filesystem_isolation_extra_paths: Vec<String> => set,
    /// Variables handed to the download.
    pub set_environment_variables: String => set,
} compat {
    /// How long a download of this kind may take.
    gcs_timeout: Duration => set,
    /// How long a download of this kind may take.
    git_timeout: Duration => set,
    /// How long a download of this kind may take.
    hg_timeout: Duration => set,
    /// How long a download of this kind may take.
    s3_timeout: Duration => set,
}
}
