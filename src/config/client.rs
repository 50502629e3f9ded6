//! The `client` block.

use super::option;
use super::read::Reader;
use super::server::ServerJoin;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What a client was told.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConfig {
    /// Run a client.
    pub enabled: bool,
    /// Where the journal lies; absent means `<data_dir>/client`.
    pub state_dir: Option<PathBuf>,
    /// Where allocations live; absent means `<data_dir>/alloc`.
    pub alloc_dir: Option<PathBuf>,
    /// Where allocations are mounted; absent means `alloc_mounts` beside the data directory.
    pub alloc_mounts_dir: Option<PathBuf>,
    /// Where dynamic host volumes are made.
    pub host_volumes_dir: Option<PathBuf>,
    /// Where plugins that make host volumes lie.
    pub host_volume_plugin_dir: Option<PathBuf>,
    /// Where other plugins lie.
    pub common_plugin_dir: Option<PathBuf>,
    /// Servers to register with.
    pub servers: Vec<String>,
    /// How to find servers.
    pub server_join: ServerJoin,
    /// The node's class.
    pub node_class: String,
    /// The node's pool.
    pub node_pool: String,
    /// Options by name: see [`option`].
    pub options: BTreeMap<String, String>,
    /// The node's meta.
    pub meta: BTreeMap<String, String>,
    /// What is put into a task's root for `exec`.
    pub chroot_env: BTreeMap<String, String>,
    /// The interface whose addresses are used.
    pub network_interface: String,
    /// `ipv4` or `ipv6`.
    pub preferred_address_family: String,
    /// In Mbit/s; 0 means what the interface says.
    pub network_speed: u64,
    /// Overrides the processors' sum in MHz; 0 means as found.
    pub cpu_total_compute: u64,
    /// Overrides memory in MB; 0 means as found.
    pub memory_total_mb: u64,
    /// Overrides the disk's size in MB; 0 means as found.
    pub disk_total_mb: u64,
    /// Overrides the disk's free space in MB; 0 means as found.
    pub disk_free_mb: u64,
    /// Cores that may be reserved, `0-3,5`.
    pub reservable_cores: String,
    /// What is kept from tasks.
    pub reserved: Reserved,
    /// The longest a task's end may take.
    pub max_kill_timeout: Duration,
    /// Lowest port for plugins.
    pub client_min_port: u16,
    /// Highest port for plugins.
    pub client_max_port: u16,
    /// Lowest dynamic port.
    pub min_dynamic_port: u16,
    /// Highest dynamic port.
    pub max_dynamic_port: u16,
    /// How often dead allocations are looked for.
    pub gc_interval: Duration,
    /// How many are removed at once.
    pub gc_parallel_destroys: u32,
    /// Remove some when the disk is fuller than this, in percent.
    pub gc_disk_usage_threshold: f64,
    /// The same for inodes.
    pub gc_inode_usage_threshold: f64,
    /// Keep at most this many allocations.
    pub gc_max_allocs: u32,
    /// Remove volumes with their node.
    pub gc_volumes_on_node_gc: bool,
    /// Make an id of our own rather than use the machine's.
    pub no_host_uuid: bool,
    /// Nobody runs commands beside tasks of this node, whatever he may.
    pub disable_remote_exec: bool,
    /// Where CNI plugins lie.
    pub cni_path: String,
    /// Where CNI networks are described.
    pub cni_config_dir: String,
    /// The bridge's name.
    pub bridge_network_name: String,
    /// The bridge's addresses.
    pub bridge_network_subnet: String,
    /// The same for IPv6.
    pub bridge_network_subnet_ipv6: String,
    /// Hairpin mode of the bridge.
    pub bridge_network_hairpin_mode: bool,
    /// The default host network listens everywhere.
    pub bind_wildcard_default_host_network: bool,
    /// Parent of the tasks' control groups; empty means by cgroup version.
    pub cgroup_parent: String,
    /// Offer the built-in service discovery.
    pub nomad_service_discovery: bool,
    /// At most this many allocations; 0 for no limit.
    pub node_max_allocs: u32,
    /// Register ineligible.
    pub default_ineligible: bool,
    /// Host volumes by name.
    pub host_volumes: BTreeMap<String, HostVolume>,
    /// Host networks by name.
    pub host_networks: BTreeMap<String, HostNetwork>,
    /// Drain when stopping.
    pub drain_on_shutdown: Option<DrainOnShutdown>,
    /// Limits on downloads.
    pub artifact: ArtifactConfig,
    /// Template settings as given.
    pub template: serde_json::Value,
    /// Fingerprint settings by name, as given.
    pub fingerprint: serde_json::Value,
    /// The range of dynamic users.
    pub users: serde_json::Value,
}

/// Options that are looked at whenever a task is started.
const CHANGING_OPTIONS: [&str; 2] = [option::USER_DENYLIST, option::USER_CHECKED_DRIVERS];

impl ClientConfig {
    /// Takes over what counts from now on without a restart.
    pub fn copy_changing(&mut self, other: &Self) {
        self.meta.clone_from(&other.meta);
        self.gc_interval = other.gc_interval;
        self.gc_parallel_destroys = other.gc_parallel_destroys;
        self.gc_disk_usage_threshold = other.gc_disk_usage_threshold;
        self.gc_inode_usage_threshold = other.gc_inode_usage_threshold;
        self.gc_max_allocs = other.gc_max_allocs;
        self.max_kill_timeout = other.max_kill_timeout;
        self.disable_remote_exec = other.disable_remote_exec;
        for key in CHANGING_OPTIONS {
            match other.options.get(key) {
                Some(value) => self.options.insert(key.to_owned(), value.clone()),
                None => self.options.remove(key),
            };
        }
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            enabled: false,
            state_dir: None,
            alloc_dir: None,
            alloc_mounts_dir: None,
            host_volumes_dir: None,
            host_volume_plugin_dir: None,
            common_plugin_dir: None,
            servers: Vec::new(),
            server_join: ServerJoin::default(),
            node_class: String::new(),
            node_pool: "default".into(),
            options: BTreeMap::new(),
            meta: BTreeMap::new(),
            chroot_env: BTreeMap::new(),
            network_interface: String::new(),
            preferred_address_family: String::new(),
            network_speed: 0,
            cpu_total_compute: 0,
            memory_total_mb: 0,
            disk_total_mb: 0,
            disk_free_mb: 0,
            reservable_cores: String::new(),
            reserved: Reserved::default(),
            max_kill_timeout: Duration::from_secs(30),
            client_min_port: 14_000,
            client_max_port: 14_512,
            min_dynamic_port: 20_000,
            max_dynamic_port: 32_000,
            gc_interval: Duration::from_secs(60),
            gc_parallel_destroys: 2,
            gc_disk_usage_threshold: 80.0,
            gc_inode_usage_threshold: 70.0,
            gc_max_allocs: 50,
            gc_volumes_on_node_gc: false,
            no_host_uuid: true,
            disable_remote_exec: false,
            cni_path: "/opt/cni/bin".into(),
            cni_config_dir: "/opt/cni/config".into(),
            bridge_network_name: "nomad".into(),
            bridge_network_subnet: "172.26.64.0/20".into(),
            bridge_network_subnet_ipv6: String::new(),
            bridge_network_hairpin_mode: false,
            bind_wildcard_default_host_network: true,
            cgroup_parent: String::new(),
            nomad_service_discovery: true,
            node_max_allocs: 0,
            default_ineligible: false,
            host_volumes: BTreeMap::new(),
            host_networks: BTreeMap::new(),
            drain_on_shutdown: None,
            artifact: ArtifactConfig::default(),
            template: serde_json::Value::Null,
            fingerprint: serde_json::Value::Null,
            users: serde_json::Value::Null,
        }
    }
}

impl ClientConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.switch("enabled", &mut self.enabled);
        r.set("state_dir", &mut self.state_dir);
        r.set("alloc_dir", &mut self.alloc_dir);
        r.set("alloc_mounts_dir", &mut self.alloc_mounts_dir);
        r.set("host_volumes_dir", &mut self.host_volumes_dir);
        r.set("host_volume_plugin_dir", &mut self.host_volume_plugin_dir);
        r.set("common_plugin_dir", &mut self.common_plugin_dir);
        r.set("servers", &mut self.servers);
        r.block("server_join", |r| self.server_join.read(r));
        r.set("node_class", &mut self.node_class);
        r.set("node_pool", &mut self.node_pool);
        r.set("options", &mut self.options);
        r.set("meta", &mut self.meta);
        r.set("chroot_env", &mut self.chroot_env);
        r.set("node_max_allocs", &mut self.node_max_allocs);
        r.set("default_ineligible", &mut self.default_ineligible);
        self.read_resources(r);
        self.read_gc(r);
        self.read_network(r);
        r.set("max_kill_timeout", &mut self.max_kill_timeout);
        r.set("no_host_uuid", &mut self.no_host_uuid);
        r.switch("disable_remote_exec", &mut self.disable_remote_exec);
        r.set("cgroup_parent", &mut self.cgroup_parent);
        r.labelled("host_volume", |name, r| {
            self.host_volumes
                .entry(name.to_owned())
                .or_default()
                .read(r);
        });
        r.block("drain_on_shutdown", |r| {
            self.drain_on_shutdown.get_or_insert_default().read(r)
        });
        r.block("artifact", |r| self.artifact.read(r));
        r.set("template", &mut self.template);
        r.set("fingerprint", &mut self.fingerprint);
        r.set("users", &mut self.users);
        r.set("log_file", &mut String::new());
    }

    fn read_resources(&mut self, r: &mut Reader<'_>) {
        r.set("cpu_total_compute", &mut self.cpu_total_compute);
        r.set("cpu_disable_dmidecode", &mut bool::default());
        r.set("memory_total_mb", &mut self.memory_total_mb);
        r.set("disk_total_mb", &mut self.disk_total_mb);
        r.set("disk_free_mb", &mut self.disk_free_mb);
        r.set("reservable_cores", &mut self.reservable_cores);
        r.block("reserved", |r| self.reserved.read(r));
    }

    fn read_gc(&mut self, r: &mut Reader<'_>) {
        r.set("gc_interval", &mut self.gc_interval);
        r.set("gc_parallel_destroys", &mut self.gc_parallel_destroys);
        r.set("gc_disk_usage_threshold", &mut self.gc_disk_usage_threshold);
        r.set(
            "gc_inode_usage_threshold",
            &mut self.gc_inode_usage_threshold,
        );
        r.set("gc_max_allocs", &mut self.gc_max_allocs);
        r.switch("gc_volumes_on_node_gc", &mut self.gc_volumes_on_node_gc);
    }

    fn read_network(&mut self, r: &mut Reader<'_>) {
        r.set("network_interface", &mut self.network_interface);
        r.set(
            "preferred_address_family",
            &mut self.preferred_address_family,
        );
        r.set("network_speed", &mut self.network_speed);
        r.set("client_min_port", &mut self.client_min_port);
        r.set("client_max_port", &mut self.client_max_port);
        r.set("min_dynamic_port", &mut self.min_dynamic_port);
        r.set("max_dynamic_port", &mut self.max_dynamic_port);
        r.set("cni_path", &mut self.cni_path);
        r.set("cni_config_dir", &mut self.cni_config_dir);
        r.set("bridge_network_name", &mut self.bridge_network_name);
        r.set("bridge_network_subnet", &mut self.bridge_network_subnet);
        r.set(
            "bridge_network_subnet_ipv6",
            &mut self.bridge_network_subnet_ipv6,
        );
        r.switch(
            "bridge_network_hairpin_mode",
            &mut self.bridge_network_hairpin_mode,
        );
        let wildcard = &mut self.bind_wildcard_default_host_network;
        r.set("bind_wildcard_default_host_network", wildcard);
        r.set("nomad_service_discovery", &mut self.nomad_service_discovery);
        r.labelled("host_network", |name, r| {
            self.host_networks
                .entry(name.to_owned())
                .or_default()
                .read(r);
        });
    }
}

/// What is kept from tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reserved {
    /// MHz.
    pub cpu: u64,
    /// MB.
    pub memory: u64,
    /// MB.
    pub disk: u64,
    /// `0-1`.
    pub cores: String,
    /// `22,80,8500-8600`.
    pub reserved_ports: String,
}

impl Reserved {
    fn read(&mut self, r: &mut Reader<'_>) {
        r.set("cpu", &mut self.cpu);
        r.set("memory", &mut self.memory);
        r.set("disk", &mut self.disk);
        r.set("cores", &mut self.cores);
        r.set("reserved_ports", &mut self.reserved_ports);
    }
}

/// A directory offered to jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostVolume {
    /// Its path on the host.
    pub path: String,
    /// No task may write.
    pub read_only: bool,
}

impl HostVolume {
    fn read(&mut self, r: &mut Reader<'_>) {
        r.set("path", &mut self.path);
        r.set("read_only", &mut self.read_only);
    }
}

/// A network of the host that ports can be bound on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostNetwork {
    /// Chosen by address.
    pub cidr: String,
    /// Chosen by interface.
    pub interface: String,
    /// Ports nobody may have.
    pub reserved_ports: String,
}

impl HostNetwork {
    fn read(&mut self, r: &mut Reader<'_>) {
        r.set("cidr", &mut self.cidr);
        r.set("interface", &mut self.interface);
        r.set("reserved_ports", &mut self.reserved_ports);
    }
}

/// How a stopping client drains itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DrainOnShutdown {
    /// How long it may take.
    pub deadline: Duration,
    /// Do not wait.
    pub force: bool,
    /// Leave system jobs running.
    pub ignore_system_jobs: bool,
}

impl Default for DrainOnShutdown {
    fn default() -> Self {
        DrainOnShutdown {
            deadline: Duration::from_secs(3600),
            force: false,
            ignore_system_jobs: false,
        }
    }
}

impl DrainOnShutdown {
    fn read(&mut self, r: &mut Reader<'_>) {
        r.set("deadline", &mut self.deadline);
        r.set("force", &mut self.force);
        r.set("ignore_system_jobs", &mut self.ignore_system_jobs);
    }
}

/// Limits on downloads.
#[derive(Clone, Debug, PartialEq)]
pub struct ArtifactConfig {
    /// How long one HTTP download may take.
    pub http_read_timeout: Duration,
    /// Its largest size, `100GB`.
    pub http_max_size: String,
    /// The largest size after unpacking.
    pub decompression_size_limit: String,
    /// The largest number of files after unpacking.
    pub decompression_file_count_limit: u64,
    /// Download without isolation.
    pub disable_filesystem_isolation: bool,
    /// Do not look at what came.
    pub disable_artifact_inspection: bool,
    /// Paths a download may see as well.
    pub filesystem_isolation_extra_paths: Vec<String>,
    /// Variables handed to the download.
    pub set_environment_variables: String,
}

impl Default for ArtifactConfig {
    fn default() -> Self {
        ArtifactConfig {
            http_read_timeout: Duration::from_secs(1800),
            http_max_size: "100GB".into(),
            decompression_size_limit: "100GB".into(),
            decompression_file_count_limit: 4096,
            disable_filesystem_isolation: false,
            disable_artifact_inspection: false,
            filesystem_isolation_extra_paths: Vec::new(),
            set_environment_variables: String::new(),
        }
    }
}

impl ArtifactConfig {
    fn read(&mut self, r: &mut Reader<'_>) {
        r.set("http_read_timeout", &mut self.http_read_timeout);
        r.set("http_max_size", &mut self.http_max_size);
        r.set(
            "decompression_size_limit",
            &mut self.decompression_size_limit,
        );
        r.set(
            "decompression_file_count_limit",
            &mut self.decompression_file_count_limit,
        );
        r.set(
            "disable_filesystem_isolation",
            &mut self.disable_filesystem_isolation,
        );
        r.set(
            "disable_artifact_inspection",
            &mut self.disable_artifact_inspection,
        );
        let paths = &mut self.filesystem_isolation_extra_paths;
        r.set("filesystem_isolation_extra_paths", paths);
        r.set(
            "set_environment_variables",
            &mut self.set_environment_variables,
        );
        for key in ["gcs_timeout", "git_timeout", "hg_timeout", "s3_timeout"] {
            r.set(key, &mut Duration::default());
        }
    }
}
