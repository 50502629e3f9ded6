//! The small blocks: logging, ports, addresses, ACL, telemetry, autopilot, rpc, TLS, UI,
//! plugins.

use super::hidden::Hidden;
use super::kinds::{
    HOUR, MILLISECOND, MINUTE, SECOND, kept, left_out, ns, seconds, set, switch, unread,
};
use super::read::BodyReader;
use super::settings::settings;
use super::unsupported::ENTERPRISE;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const SYSLOG: &str = "use log_file, or let the service manager keep standard error";

settings! {
/// How the agent logs.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// `TRACE`, `DEBUG`, `INFO`, `WARN`, `ERROR` or `OFF`.
    pub level: String = "INFO".into() => set named "log_level" [live] shown "LogLevel",
    /// JSON lines instead of text.
    pub json: bool => switch named "log_json" shown "LogJson",
    /// Source file and line in each record.
    pub include_location: bool
        => switch named "log_include_location" shown "LogIncludeLocation",
    /// A file to write to as well as standard error.
    pub file: Option<PathBuf> => set named "log_file" shown "LogFile",
    /// Begin a new file after this long.
    pub rotate_duration: Duration = 24 * HOUR => set named "log_rotate_duration",
    /// Begin a new file after this many bytes; 0 for no limit.
    pub rotate_bytes: u64 => set named "log_rotate_bytes" shown "LogRotateBytes",
    /// Keep this many old files; 0 keeps all.
    pub rotate_max_files: u64 => set named "log_rotate_max_files" shown "LogRotateMaxFiles",
    /// Send records to syslog.
    pub enable_syslog: bool => switch shown "EnableSyslog" unsupported SYSLOG,
    /// Syslog's facility.
    pub syslog_facility: String = "LOCAL0".into() => set shown "SyslogFacility" unsupported SYSLOG,
}
}

settings! {
/// The three ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    /// The HTTP API's; 0 lets the system choose.
    pub http: u16 = 4646 => set shown "HTTP",
    /// The internal transport's.
    pub rpc: u16 = 4647 => set shown "RPC",
    /// Gossip's.
    pub serf: u16 = 4648 => set shown "Serf",
}
}

settings! {
/// One address for each of the three ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Addresses {
    /// The HTTP API's.
    pub http: Option<String> => set,
    /// The internal transport's.
    pub rpc: Option<String> => set,
    /// Gossip's.
    pub serf: Option<String> => set,
}
}

/// How long what ACLs resolve to is kept.
const ACL_CACHE: Duration = Duration::from_secs(30);

settings! {
/// Access control.
#[derive(Clone, Debug, PartialEq)]
pub struct AclConfig {
    /// Whether requests need a token.
    pub enabled: bool => switch shown "Enabled",
    /// How long a client caches a token.
    pub token_ttl: Duration = ACL_CACHE => set [live] shown "TokenTTL" by ns,
    /// How long a client caches a policy.
    pub policy_ttl: Duration = ACL_CACHE => set [live] shown "PolicyTTL" by ns,
    /// How long a client caches a role.
    pub role_ttl: Duration = ACL_CACHE => set [live] shown "RoleTTL" by ns,
    /// The token other regions replicate with.
    pub replication_token: Hidden<String> => set [live] shown "ReplicationToken" by left_out
        unsupported "there is one region: tokens are made where they are used",
    /// The shortest life a token may be given.
    pub token_min_expiration_ttl: Duration = MINUTE
        => set [live] shown "TokenMinExpirationTTL" by ns,
    /// The longest life a token may be given.
    pub token_max_expiration_ttl: Duration = 24 * HOUR
        => set [live] shown "TokenMaxExpirationTTL" by ns,
}
}

const SINKS: &str = "metrics are pushed to statsd and statsite only: set statsd_address, or let \
    Prometheus read /v1/metrics?format=prometheus";

settings! {
/// Metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryConfig {
    /// Length of one interval of the in-memory sink.
    pub in_memory_collection_interval: Duration = 10 * SECOND => set,
    /// How long the in-memory sink remembers.
    pub in_memory_retention_period: Duration = MINUTE => set,
    /// How often clients sample.
    pub collection_interval: Duration = SECOND => set shown "CollectionInterval" by seconds,
    /// Offer the Prometheus form.
    pub prometheus_metrics: bool => switch [live] shown "PrometheusMetrics",
    /// Publish per allocation.
    pub publish_allocation_metrics: bool => switch [live] shown "PublishAllocationMetrics",
    /// Publish per node.
    pub publish_node_metrics: bool => switch [live] shown "PublishNodeMetrics",
    /// Leave the host name out of gauges.
    pub disable_hostname: bool => switch shown "DisableHostname",
    /// Use the node's name in place of the host's.
    pub use_node_name: bool => switch shown "UseNodeName",
    /// Put a job's meta into an allocation's labels.
    pub include_alloc_metadata_in_metrics: bool => switch [live],
    /// Which meta keys may become labels.
    pub allowed_metadata_keys_in_metrics: Vec<String> => set [live],
    /// `+prefix` and `-prefix` rules.
    pub prefix_filter: Vec<String> => set [live],
    /// What happens to keys no rule names.
    pub filter_default: bool = true => set [live],
    /// Leave out summaries of dispatched jobs.
    pub disable_dispatched_job_summary_metrics: bool => switch [live],
    /// Leave labels off the rate metrics.
    pub disable_rpc_rate_metrics_labels: bool => switch [live],
    /// Show metrics only to callers who may read the agent. Not Nomad's.
    pub metrics_require_acl: bool => switch [live],
    /// Leave out the metrics of allocation hooks.
    pub disable_allocation_hook_metrics: bool => switch,
    /// Addresses of push sinks by their attribute's name.
    pub sinks: BTreeMap<String, String> => unread named "",
} compat {
    /// Leave out the metrics of quotas.
    disable_quota_utilization_metrics: bool => set unsupported ENTERPRISE,
    /// Push metrics to a statsite of this address.
    statsite_address = sinks => kept,
    /// Push metrics to a statsd of this address.
    statsd_address = sinks => kept,
    /// Push metrics to Datadog.
    datadog_address = sinks => kept unsupported SINKS,
    /// The tags that Datadog gets with them.
    datadog_tags: Vec<String> => set unsupported SINKS,
}
}

settings! {
/// Autopilot's settings for a new cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct AutopilotConfig {
    /// Remove dead servers.
    pub cleanup_dead_servers: bool = true => set shown "CleanupDeadServers",
    /// A server is unhealthy after longer silence than this.
    pub last_contact_threshold: Duration = 200 * MILLISECOND
        => set shown "LastContactThreshold" by ns,
    /// A server further behind is unhealthy.
    pub max_trailing_logs: u64 = 250 => set shown "MaxTrailingLogs",
    /// Never fewer voters than this.
    pub min_quorum: u64 => set shown "MinQuorum",
    /// How long a new server must be healthy before it votes.
    pub server_stabilization_time: Duration = 10 * SECOND
        => set shown "ServerStabilizationTime" by ns,
} compat {
    /// One voter of each zone.
    enable_redundancy_zones: bool => set,
    /// Leave upgrades of servers to the operator.
    disable_upgrade_migration: bool => set,
    /// Upgrades by a version that operators name.
    enable_custom_upgrades: bool => set,
}
}

const DEADLINES: &str = "requests have deadlines of their own";

settings! {
/// Transport between agents.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcConfig {
    /// How often an idle connection is probed.
    pub keep_alive_interval: Duration = 30 * SECOND => set,
    /// How long a write may take.
    pub connection_write_timeout: Duration = 10 * SECOND => set unsupported DEADLINES,
    /// How long a dial may take.
    pub dial_timeout: Duration = 10 * SECOND => set,
} compat {
    /// Connections that wait to be accepted.
    accept_backlog: u32 => set unsupported "the system's default is used",
    /// How long opening a stream may take.
    stream_open_timeout: Duration => set unsupported DEADLINES,
    /// How long closing one may take.
    stream_close_timeout: Duration => set unsupported DEADLINES,
}
}

settings! {
/// TLS.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsConfig {
    /// For the HTTP API.
    pub http: bool => switch shown "EnableHTTP",
    /// Between agents.
    pub rpc: bool => switch shown "EnableRPC",
    /// The authority's certificate.
    pub ca_file: Option<PathBuf> => set shown "CAFile",
    /// This agent's certificate.
    pub cert_file: Option<PathBuf> => set shown "CertFile",
    /// This agent's key.
    pub key_file: Option<PathBuf> => set shown "KeyFile",
    /// Servers must present a certificate of their region.
    pub verify_server_hostname: bool => switch shown "VerifyServerHostname",
    /// Callers of the API must present a certificate.
    pub verify_https_client: bool => switch shown "VerifyHTTPSClient",
    /// Accept plain connections too, while certificates are rolled out.
    pub rpc_upgrade_mode: bool => switch shown "RPCUpgradeMode",
    /// Suites allowed, comma separated.
    pub tls_cipher_suites: String => set shown "TLSCipherSuites",
    /// The agent's order of suites counts, not the connecting client's.
    pub tls_prefer_server_cipher_suites: bool => switch shown "TLSPreferServerCipherSuites",
    /// The lowest version, `tls12` when empty.
    pub tls_min_version: String => set shown "TLSMinVersion",
}
}

settings! {
/// The user interface's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct UiConfig {
    /// Serve it.
    pub enabled: bool = true => set shown "Enabled",
    /// Let the CLI name links to it.
    pub show_cli_hints: bool = true => set,
    /// Its label, colours, links and policy, as given.
    pub extra: BTreeMap<String, serde_json::Value> => unread named "",
} compat {
    /// What browsers let it do.
    content_security_policy = extra => kept,
    /// A link to Consul's.
    consul = extra => kept,
    /// A link to Vault's.
    vault = extra => kept,
    /// A text and colours that distinguish clusters.
    label = extra => kept,
}
}

settings! {
/// A `plugin "<name>"` block: of a driver, or of a plugin that is a file.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginConfig {
    /// Whether the driver may be used; absent: as the driver's default is.
    pub enabled: Option<bool> => unread named "config.enabled",
    /// Whether tasks that do not say have process ids of their own: `private` or `host`.
    pub default_pid_mode: Option<String> => unread named "config.default_pid_mode",
    /// The same for shared memory and queues.
    pub default_ipc_mode: Option<String> => unread named "config.default_ipc_mode",
    /// The capabilities that tasks may have; absent: the driver's own list.
    pub allow_caps: Option<Vec<String>> => unread named "config.allow_caps",
    /// Arguments of the file.
    pub args: Vec<String> => unread unsupported "this driver is not a process of its own",
    /// What the plugin is given, as it is written.
    pub config: serde_json::Map<String, serde_json::Value> => unread,
} compat {
    /// Tasks of `exec` have the machine's root.
    no_pivot_root: bool
        => unread named "config.no_pivot_root" unsupported "a task's root is always its own",
}
}

/// Drivers that are built in, and those that Nomad has: settings for the latter are refused.
const DRIVERS: [&str; 6] = ["raw_exec", "exec", "mock_driver", "docker", "java", "qemu"];

impl PluginConfig {
    /// Whether a block of this name is for a file in `plugin_dir`.
    pub fn is_file(name: &str) -> bool {
        !DRIVERS.contains(&name)
    }

    fn read(&mut self, name: &str, r: &mut BodyReader<'_>) {
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

/// Reads `plugin` blocks, whose content depends on the plugin that each is for.
pub(super) fn plugins(
    all: &mut BTreeMap<String, PluginConfig>,
    name: &str,
    r: &mut BodyReader<'_>,
) {
    r.labelled(name, |label, r| {
        all.entry(label.to_owned()).or_default().read(label, r);
    });
}
