//! The small blocks: logging, ports, addresses, ACL, telemetry, autopilot, rpc, TLS, UI,
//! plugins.

use super::hidden::Hidden;
use super::read::Reader;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How the agent logs.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// `TRACE`, `DEBUG`, `INFO`, `WARN`, `ERROR` or `OFF`.
    pub level: String,
    /// JSON lines instead of text.
    pub json: bool,
    /// Source file and line in each record.
    pub include_location: bool,
    /// A file to write to as well as standard error.
    pub file: Option<PathBuf>,
    /// Begin a new file after this long.
    pub rotate_duration: Duration,
    /// Begin a new file after this many bytes; 0 for no limit.
    pub rotate_bytes: u64,
    /// Keep this many old files; 0 keeps all.
    pub rotate_max_files: u64,
    /// Send records to syslog.
    pub enable_syslog: bool,
    /// Syslog's facility.
    pub syslog_facility: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            level: "INFO".into(),
            json: false,
            include_location: false,
            file: None,
            rotate_duration: Duration::from_secs(24 * 3600),
            rotate_bytes: 0,
            rotate_max_files: 0,
            enable_syslog: false,
            syslog_facility: "LOCAL0".into(),
        }
    }
}

impl LogSettings {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("log_level", &mut self.level);
        r.switch("log_json", &mut self.json);
        r.switch("log_include_location", &mut self.include_location);
        r.set("log_file", &mut self.file);
        r.set("log_rotate_duration", &mut self.rotate_duration);
        r.set("log_rotate_bytes", &mut self.rotate_bytes);
        r.set("log_rotate_max_files", &mut self.rotate_max_files);
        r.switch("enable_syslog", &mut self.enable_syslog);
        r.set("syslog_facility", &mut self.syslog_facility);
    }
}

/// The three ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    /// The HTTP API's; 0 lets the system choose.
    pub http: u16,
    /// The internal transport's.
    pub rpc: u16,
    /// Gossip's.
    pub serf: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Ports {
            http: 4646,
            rpc: 4647,
            serf: 4648,
        }
    }
}

impl Ports {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("http", &mut self.http);
        r.set("rpc", &mut self.rpc);
        r.set("serf", &mut self.serf);
    }
}

/// One address for each of the three ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Addresses {
    /// The HTTP API's.
    pub http: Option<String>,
    /// The internal transport's.
    pub rpc: Option<String>,
    /// Gossip's.
    pub serf: Option<String>,
}

impl Addresses {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("http", &mut self.http);
        r.set("rpc", &mut self.rpc);
        r.set("serf", &mut self.serf);
    }
}

/// Access control.
#[derive(Clone, Debug, PartialEq)]
pub struct AclConfig {
    /// Whether requests need a token.
    pub enabled: bool,
    /// How long a client caches a token.
    pub token_ttl: Duration,
    /// How long a client caches a policy.
    pub policy_ttl: Duration,
    /// How long a client caches a role.
    pub role_ttl: Duration,
    /// The token other regions replicate with.
    pub replication_token: Hidden<String>,
    /// The shortest life a token may be given.
    pub token_min_expiration_ttl: Duration,
    /// The longest life a token may be given.
    pub token_max_expiration_ttl: Duration,
}

/// How long what ACLs resolve to is kept.
const ACL_CACHE: Duration = Duration::from_secs(30);

impl Default for AclConfig {
    fn default() -> Self {
        let ttl = ACL_CACHE;
        AclConfig {
            enabled: false,
            token_ttl: ttl,
            policy_ttl: ttl,
            role_ttl: ttl,
            replication_token: Hidden::default(),
            token_min_expiration_ttl: Duration::from_secs(60),
            token_max_expiration_ttl: Duration::from_secs(24 * 3600),
        }
    }
}

impl AclConfig {
    /// Takes over what counts from now on without a restart: all but whether there are ACLs.
    pub fn copy_changing(&mut self, other: &Self) {
        let enabled = self.enabled;
        self.clone_from(other);
        self.enabled = enabled;
    }

    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.switch("enabled", &mut self.enabled);
        r.set("token_ttl", &mut self.token_ttl);
        r.set("policy_ttl", &mut self.policy_ttl);
        r.set("role_ttl", &mut self.role_ttl);
        r.set("replication_token", &mut self.replication_token.0);
        r.set(
            "token_min_expiration_ttl",
            &mut self.token_min_expiration_ttl,
        );
        r.set(
            "token_max_expiration_ttl",
            &mut self.token_max_expiration_ttl,
        );
    }
}

/// Metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryConfig {
    /// Length of one interval of the in-memory sink.
    pub in_memory_collection_interval: Duration,
    /// How long the in-memory sink remembers.
    pub in_memory_retention_period: Duration,
    /// How often clients sample.
    pub collection_interval: Duration,
    /// Offer the Prometheus form.
    pub prometheus_metrics: bool,
    /// Publish per allocation.
    pub publish_allocation_metrics: bool,
    /// Publish per node.
    pub publish_node_metrics: bool,
    /// Leave the host name out of gauges.
    pub disable_hostname: bool,
    /// Use the node's name in place of the host's.
    pub use_node_name: bool,
    /// Put a job's meta into an allocation's labels.
    pub include_alloc_metadata_in_metrics: bool,
    /// Which meta keys may become labels.
    pub allowed_metadata_keys_in_metrics: Vec<String>,
    /// `+prefix` and `-prefix` rules.
    pub prefix_filter: Vec<String>,
    /// What happens to keys no rule names.
    pub filter_default: bool,
    /// Leave out summaries of dispatched jobs.
    pub disable_dispatched_job_summary_metrics: bool,
    /// Leave labels off the rate metrics.
    pub disable_rpc_rate_metrics_labels: bool,
    /// Show metrics to those only who may read the agent. Not Nomad's.
    pub metrics_require_acl: bool,
    /// Leave out the metrics of allocation hooks.
    pub disable_allocation_hook_metrics: bool,
    /// Addresses of push sinks by their attribute's name.
    pub sinks: BTreeMap<String, String>,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        TelemetryConfig {
            in_memory_collection_interval: Duration::from_secs(10),
            in_memory_retention_period: Duration::from_secs(60),
            collection_interval: Duration::from_secs(1),
            prometheus_metrics: false,
            publish_allocation_metrics: false,
            publish_node_metrics: false,
            disable_hostname: false,
            use_node_name: false,
            include_alloc_metadata_in_metrics: false,
            allowed_metadata_keys_in_metrics: Vec::new(),
            prefix_filter: Vec::new(),
            filter_default: true,
            disable_dispatched_job_summary_metrics: false,
            disable_rpc_rate_metrics_labels: false,
            metrics_require_acl: false,
            disable_allocation_hook_metrics: false,
            sinks: BTreeMap::new(),
        }
    }
}

impl TelemetryConfig {
    /// Takes over what counts from now on without a restart.
    pub fn copy_changing(&mut self, other: &Self) {
        self.prometheus_metrics = other.prometheus_metrics;
        self.publish_allocation_metrics = other.publish_allocation_metrics;
        self.publish_node_metrics = other.publish_node_metrics;
        self.include_alloc_metadata_in_metrics = other.include_alloc_metadata_in_metrics;
        let (mine, theirs) = (
            &mut self.allowed_metadata_keys_in_metrics,
            &other.allowed_metadata_keys_in_metrics,
        );
        mine.clone_from(theirs);
        self.prefix_filter.clone_from(&other.prefix_filter);
        self.filter_default = other.filter_default;
        self.disable_dispatched_job_summary_metrics = other.disable_dispatched_job_summary_metrics;
        self.disable_rpc_rate_metrics_labels = other.disable_rpc_rate_metrics_labels;
        self.metrics_require_acl = other.metrics_require_acl;
    }

    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set(
            "in_memory_collection_interval",
            &mut self.in_memory_collection_interval,
        );
        r.set(
            "in_memory_retention_period",
            &mut self.in_memory_retention_period,
        );
        r.set("collection_interval", &mut self.collection_interval);
        r.switch("prometheus_metrics", &mut self.prometheus_metrics);
        r.switch(
            "publish_allocation_metrics",
            &mut self.publish_allocation_metrics,
        );
        r.switch("publish_node_metrics", &mut self.publish_node_metrics);
        r.switch("disable_hostname", &mut self.disable_hostname);
        r.switch("use_node_name", &mut self.use_node_name);
        r.switch(
            "include_alloc_metadata_in_metrics",
            &mut self.include_alloc_metadata_in_metrics,
        );
        r.set(
            "allowed_metadata_keys_in_metrics",
            &mut self.allowed_metadata_keys_in_metrics,
        );
        r.set("prefix_filter", &mut self.prefix_filter);
        r.set("filter_default", &mut self.filter_default);
        r.switch(
            "disable_dispatched_job_summary_metrics",
            &mut self.disable_dispatched_job_summary_metrics,
        );
        r.switch(
            "disable_rpc_rate_metrics_labels",
            &mut self.disable_rpc_rate_metrics_labels,
        );
        r.switch("metrics_require_acl", &mut self.metrics_require_acl);
        r.switch(
            "disable_allocation_hook_metrics",
            &mut self.disable_allocation_hook_metrics,
        );
        r.set("disable_quota_utilization_metrics", &mut bool::default());
        for key in ["statsite_address", "statsd_address", "datadog_address"] {
            let mut value = None;
            r.set(key, &mut value);
            if let Some(value) = value {
                self.sinks.insert(key.to_owned(), value);
            }
        }
        r.set("datadog_tags", &mut Vec::<String>::new());
    }
}

/// Autopilot's settings for a new cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct AutopilotConfig {
    /// Remove dead servers.
    pub cleanup_dead_servers: bool,
    /// A server not heard of for longer is unhealthy.
    pub last_contact_threshold: Duration,
    /// A server further behind is unhealthy.
    pub max_trailing_logs: u64,
    /// Never fewer voters than this.
    pub min_quorum: u64,
    /// How long a new server must be healthy before it votes.
    pub server_stabilization_time: Duration,
}

impl Default for AutopilotConfig {
    fn default() -> Self {
        AutopilotConfig {
            cleanup_dead_servers: true,
            last_contact_threshold: Duration::from_millis(200),
            max_trailing_logs: 250,
            min_quorum: 0,
            server_stabilization_time: Duration::from_secs(10),
        }
    }
}

impl AutopilotConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("cleanup_dead_servers", &mut self.cleanup_dead_servers);
        r.set("last_contact_threshold", &mut self.last_contact_threshold);
        r.set("max_trailing_logs", &mut self.max_trailing_logs);
        r.set("min_quorum", &mut self.min_quorum);
        r.set(
            "server_stabilization_time",
            &mut self.server_stabilization_time,
        );
        for key in [
            "enable_redundancy_zones",
            "disable_upgrade_migration",
            "enable_custom_upgrades",
        ] {
            r.set(key, &mut bool::default());
        }
    }
}

/// Transport between agents.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcConfig {
    /// How often an idle connection is probed.
    pub keep_alive_interval: Duration,
    /// How long a write may take.
    pub connection_write_timeout: Duration,
    /// How long a dial may take.
    pub dial_timeout: Duration,
}

impl Default for RpcConfig {
    fn default() -> Self {
        RpcConfig {
            keep_alive_interval: Duration::from_secs(30),
            connection_write_timeout: Duration::from_secs(10),
            dial_timeout: Duration::from_secs(10),
        }
    }
}

impl RpcConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("keep_alive_interval", &mut self.keep_alive_interval);
        r.set(
            "connection_write_timeout",
            &mut self.connection_write_timeout,
        );
        r.set("dial_timeout", &mut self.dial_timeout);
        r.set("accept_backlog", &mut u32::default());
        for key in ["stream_open_timeout", "stream_close_timeout"] {
            r.set(key, &mut Duration::default());
        }
    }
}

/// TLS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsConfig {
    /// For the HTTP API.
    pub http: bool,
    /// Between agents.
    pub rpc: bool,
    /// The authority's certificate.
    pub ca_file: Option<PathBuf>,
    /// This agent's certificate.
    pub cert_file: Option<PathBuf>,
    /// This agent's key.
    pub key_file: Option<PathBuf>,
    /// Servers must present a certificate of their region.
    pub verify_server_hostname: bool,
    /// Callers of the API must present a certificate.
    pub verify_https_client: bool,
    /// Accept plain connections too, while certificates are rolled out.
    pub rpc_upgrade_mode: bool,
    /// Suites allowed, comma separated.
    pub tls_cipher_suites: String,
    /// The agent's order of suites counts, not that of whoever connects to it.
    pub tls_prefer_server_cipher_suites: bool,
    /// The lowest version, `tls12` when empty.
    pub tls_min_version: String,
}

impl TlsConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.switch("http", &mut self.http);
        r.switch("rpc", &mut self.rpc);
        r.set("ca_file", &mut self.ca_file);
        r.set("cert_file", &mut self.cert_file);
        r.set("key_file", &mut self.key_file);
        r.switch("verify_server_hostname", &mut self.verify_server_hostname);
        r.switch("verify_https_client", &mut self.verify_https_client);
        r.switch("rpc_upgrade_mode", &mut self.rpc_upgrade_mode);
        r.set("tls_cipher_suites", &mut self.tls_cipher_suites);
        r.set("tls_min_version", &mut self.tls_min_version);
        r.switch(
            "tls_prefer_server_cipher_suites",
            &mut self.tls_prefer_server_cipher_suites,
        );
    }
}

/// The user interface's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct UiConfig {
    /// Serve it.
    pub enabled: bool,
    /// Let the CLI name links to it.
    pub show_cli_hints: bool,
    /// Its label, colours, links and policy, as given.
    pub extra: BTreeMap<String, serde_json::Value>,
}

impl Default for UiConfig {
    fn default() -> Self {
        UiConfig {
            enabled: true,
            show_cli_hints: true,
            extra: BTreeMap::new(),
        }
    }
}

impl UiConfig {
    pub(super) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("enabled", &mut self.enabled);
        r.set("show_cli_hints", &mut self.show_cli_hints);
        for key in ["content_security_policy", "consul", "vault", "label"] {
            let mut value = self.extra.remove(key);
            r.set(key, &mut value);
            if let Some(value) = value {
                self.extra.insert(key.to_owned(), value);
            }
        }
    }
}

/// A `plugin "<name>"` block: of a driver, or of a plugin that is a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginConfig {
    /// Whether the driver may be used; absent: as the driver's default is.
    pub enabled: Option<bool>,
    /// Whether tasks that do not say have process ids of their own: `private` or `host`.
    pub default_pid_mode: Option<String>,
    /// The same for shared memory and queues.
    pub default_ipc_mode: Option<String>,
    /// The capabilities that tasks may have; absent: the driver's own list.
    pub allow_caps: Option<Vec<String>>,
    /// Arguments of the file.
    pub args: Vec<String>,
    /// What the plugin is given, as it is written.
    pub config: serde_json::Map<String, serde_json::Value>,
}

/// Drivers that are built in, and those that Nomad has: blocks for the latter have no effect.
const DRIVERS: [&str; 6] = ["raw_exec", "exec", "mock_driver", "docker", "java", "qemu"];

impl PluginConfig {
    /// Whether a block of this name is for a file in `plugin_dir`.
    pub fn is_file(name: &str) -> bool {
        !DRIVERS.contains(&name)
    }

    pub(super) fn read(&mut self, name: &str, r: &mut Reader<'_>) {
        if Self::is_file(name) {
            r.set_here("args", &mut self.args);
            r.block("config", |r| self.config = r.whole());
            return;
        }
        r.set("args", &mut Vec::<String>::new());
        r.block("config", |r| match name {
            "raw_exec" => r.set("enabled", &mut self.enabled),
            "exec" => {
                r.set("default_pid_mode", &mut self.default_pid_mode);
                r.set("default_ipc_mode", &mut self.default_ipc_mode);
                r.set("allow_caps", &mut self.allow_caps);
                r.set("no_pivot_root", &mut bool::default());
            }
            _ => r.nobody(&format!("there is no driver {name:?} with settings here")),
        });
    }
}
