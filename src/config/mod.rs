//! The agent's configuration: one plain value, defaults with files laid over them, checked as a
//! whole. The command line lays the environment and its flags over what is read here; a reload
//! makes another value.
//!
//! - Every setting is declared once, in the struct of its block: see `settings.rs` before you add
//!   one. Later files win, lists grow, maps merge. Unknown keys are refused with their location.
//! - Nothing here has interior mutability. [`Shared`] is the only accessor: a change copies the
//!   value, alters the copy and swaps it; holders of the old value do not see it (ENV-01).
//! - It must not know its users: all of it is plain values, which the parts above turn into what
//!   they need, and the only folder imported here is `hcl1`, the language of the files.
//!
//! Start reading at [`Config`], then [`load()`].

mod audit;
mod block;
mod check;
mod client;
mod describe;
mod differences;
mod hidden;
mod kinds;
mod limits;
mod load;
pub mod option;
mod publisher;
mod read;
mod retention;
mod server;
mod settings;
mod shared;
mod size;
mod tls;
mod unsupported;

pub use audit::{AuditConfig, Guarantee};
pub use block::{
    AclConfig, Addresses, AutopilotConfig, LogSettings, PluginConfig, Ports, RpcConfig,
    TelemetryConfig, TlsConfig, UiConfig,
};
pub use check::{check, core_list, trusted_proxies};
pub use client::{
    ArtifactConfig, ClientConfig, DrainOnShutdown, HostNetwork, HostVolume, Reserved,
};
pub use drover_hcl1::{Location, SyntaxError};
pub use hidden::Hidden;
pub use limits::{BODIES, LimitsConfig, PER_CLIENT};
pub use load::{ConfigError, load};
pub use publisher::{
    EventPublisherConfig, KafkaConfig, NUMBERS, SECURITY_PROTOCOL, VERIFY_HOSTNAME,
};
pub use read::Problem;
pub use retention::{ArchiveConfig, Keep, RetentionConfig};
pub use server::{
    DefaultSchedulerConfig, PlanRejectionTracker, SearchConfig, ServerConfig, ServerJoin,
};
pub use settings::{ReloadMode, SettingInfo, all_settings};
pub use shared::Shared;
pub use tls::{CIPHER_SUITES, cipher_suites, min_version};
pub use unsupported::{UNSUPPORTED, Unsupported, WithoutEffect, advice, without_effect};

use block::plugins;
use drover_hcl1 as hcl1;
use kinds::{block, block_to_json, inline, set, switch, unread};
use serde_json::Value;
use settings::{settings, take_over};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use unsupported::ENTERPRISE;

settings! {
/// Everything an agent was configured with; absent blocks have their defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `-dev`: server and client in one, on the loopback interface.
    pub dev: bool => unread named "" shown "DevMode",
    /// The region's name.
    pub region: String = "global".into() => set shown "Region",
    /// The datacenter's name.
    pub datacenter: String = "dc1".into() => set shown "Datacenter",
    /// The agent's name; empty means the host's name.
    pub name: String => set,
    /// Where everything is kept; absent only in `-dev`, where the agent makes a temporary one.
    pub data_dir: Option<PathBuf> => set shown "DataDir",
    /// Where plugins lie that are files; absent means `<data_dir>/plugins`.
    pub plugin_dir: Option<PathBuf> => set shown "PluginDir",
    /// How the agent logs.
    pub log: LogSettings => inline named "" [live by take_over] shown "" by block_to_json,
    /// The address to listen on unless `addresses` names another.
    pub bind_addr: String = "0.0.0.0".into() => set shown "BindAddr",
    /// Profiling routes.
    pub enable_debug: bool => switch shown "EnableDebug",
    /// Leave gracefully on SIGINT.
    pub leave_on_interrupt: bool => switch shown "LeaveOnInt",
    /// Leave gracefully on SIGTERM.
    pub leave_on_terminate: bool => switch shown "LeaveOnTerm",
    /// When HTTP answers are compressed: `always`, `remote` (not for callers on this machine) or
    /// `never`; empty is `remote`.
    pub http_compression: String => set,
    /// Headers added to every HTTP answer.
    pub http_api_response_headers: BTreeMap<String, String>
        => set [live] shown "HTTPAPIResponseHeaders",
    /// Proxies (addresses and prefixes) whose `X-Forwarded-For` says where a request comes from; a
    /// certificate shown by such a proxy identifies no caller. Connections are counted as the
    /// proxy's own: `limits.http_max_conns_per_client` has to allow for them. Not Nomad's.
    pub http_trusted_proxies: Vec<String> => set shown "HTTPTrustedProxies",
    /// The three ports.
    pub ports: Ports => block shown "Ports" by block_to_json,
    /// Addresses to listen on, each defaulting to `bind_addr`.
    pub addresses: Addresses => block,
    /// Addresses advertised to others.
    pub advertise: Addresses => block,
    /// The server's block.
    pub server: ServerConfig => block shown "Server" by block_to_json,
    /// The client's block.
    pub client: ClientConfig => block [per_setting] shown "Client" by block_to_json,
    /// Access control.
    pub acl: AclConfig => block [per_setting] shown "ACL" by block_to_json,
    /// Limits on connections.
    pub limits: LimitsConfig => block [live] shown "Limits" by block_to_json,
    /// Metrics.
    pub telemetry: TelemetryConfig => block [per_setting] shown "Telemetry" by block_to_json,
    /// Where events are published.
    pub event_publisher: EventPublisherConfig => block,
    /// Autopilot's first settings.
    pub autopilot: AutopilotConfig => block shown "Autopilot" by block_to_json
        unsupported "there is one server: no other is dead, behind or new",
    /// Transport between agents.
    pub rpc: RpcConfig => block,
    /// TLS.
    pub tls: TlsConfig => block [live] shown "TLSConfig" by block_to_json,
    /// The user interface's settings.
    pub ui: UiConfig => block shown "UI" by block_to_json unsupported "there is no user interface",
    /// `plugin "<name>"` blocks by name.
    pub plugins: BTreeMap<String, PluginConfig>
        => plugins of PluginConfig named "plugin",
    /// The log of requests that change nothing but matter.
    pub audit: AuditConfig => block shown "Audit" by block_to_json,
    /// The files this was read from, in order.
    pub files: Vec<PathBuf> => unread named "" [computed] shown "Files",
} compat {
    /// Whether newer versions are looked for.
    disable_update_check: bool => set,
    /// Whether that look-up is without a signature of this agent.
    disable_anonymous_signature: bool => set,
    /// How Consul is reached.
    consul: Value => set unsupported "use services with provider = \"nomad\"",
    /// How Vault is reached.
    vault: Value => set unsupported "secrets of tasks come from variables",
    /// Policies for jobs.
    sentinel: Value => set unsupported ENTERPRISE,
    /// What is reported of an installation.
    reporting: Value => set unsupported ENTERPRISE,
    /// What wraps key material.
    keyring: Value => set
        unsupported "key material is wrapped by a file of the server; there is no external one",
    /// Another system's log.
    eventlog: Value => set unsupported "it is for another operating system",
}
}

/// What the address of a socket in the file system begins with.
const UNIX: &str = "unix://";

/// How often a development client looks for what can go.
const DEV_GC_INTERVAL: std::time::Duration = std::time::Duration::from_secs(600);

impl Config {
    /// What `-dev` starts from: a server and a client on the loopback interface, `raw_exec`
    /// enabled.
    pub fn dev() -> Config {
        let mut config = Config {
            dev: true,
            bind_addr: "127.0.0.1".into(),
            ..Config::default()
        };
        config.log.level = "DEBUG".into();
        config.enable_debug = true;
        config.server.enabled = true;
        config.server.bootstrap_expect = 1;
        config.client.enabled = true;
        config.client.network_interface = "lo".into();
        config
            .client
            .options
            .insert(option::RAW_EXEC_ENABLE.into(), "true".into());
        config
            .client
            .options
            .insert("test.tighten_network_timeouts".into(), "true".into());
        config.client.gc_interval = DEV_GC_INTERVAL;
        config.client.gc_disk_usage_threshold = 99.0;
        config.client.gc_inode_usage_threshold = 99.0;
        config.telemetry.prometheus_metrics = true;
        config.telemetry.publish_allocation_metrics = true;
        config.telemetry.publish_node_metrics = true;
        config
    }

    /// The addresses the HTTP API listens on; several may be named, separated by spaces. Sockets of
    /// this machine are apart ([`Config::http_sockets`]).
    ///
    /// # Errors
    /// The text that is not an address.
    pub fn http_listen(&self) -> Result<Vec<SocketAddr>, ConfigError> {
        let text = self.addresses.http.as_deref().unwrap_or(&self.bind_addr);
        text.split_whitespace()
            .filter(|one| !one.starts_with(UNIX))
            .map(|one| socket(one, self.ports.http, "addresses.http"))
            .collect()
    }

    /// The sockets in the file system that the HTTP API listens on: `unix:///path` among
    /// `addresses.http`. Access to a socket is that of its file.
    pub fn http_sockets(&self) -> Vec<PathBuf> {
        let text = self.addresses.http.as_deref().unwrap_or_default();
        let paths = text
            .split_whitespace()
            .filter_map(|one| one.strip_prefix(UNIX));
        paths.map(PathBuf::from).collect()
    }

    /// Where others on the network can read along: what is spoken in clear text on addresses
    /// beyond this machine.
    pub fn clear_text(&self) -> Vec<String> {
        let beyond = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
        let http = match self.tls.http {
            true => Vec::new(),
            false => self.http_listen().unwrap_or_default(),
        };
        let rpc = self.rpc_listen().ok();
        let rpc = rpc.filter(|_| self.server.enabled && !self.tls.rpc);
        let named = http
            .into_iter()
            .map(|address| ("HTTP", address))
            .chain(rpc.map(|a| ("RPC", a)));
        named
            .filter(|(_, address)| beyond(address))
            .map(|(what, address)| format!("{what} on {address}"))
            .collect()
    }

    /// The address the internal transport listens on.
    ///
    /// # Errors
    /// The text that is not an address.
    pub fn rpc_listen(&self) -> Result<SocketAddr, ConfigError> {
        let text = self.addresses.rpc.as_deref().unwrap_or(&self.bind_addr);
        socket(text, self.ports.rpc, "addresses.rpc")
    }

    /// The address advertised to others for the HTTP API, `host:port`.
    ///
    /// # Errors
    /// The listening address cannot be read.
    pub fn http_advertise(&self) -> Result<String, ConfigError> {
        let listen = self.http_listen()?;
        Ok(advertised(
            self.advertise.http.as_deref(),
            listen.first().copied(),
            self.ports.http,
        ))
    }

    /// The address of an agent that CloudEvents name for their schemas: this one's, unless another
    /// is named.
    pub fn schemas_at(&self) -> String {
        match self.event_publisher.schemas.as_str() {
            "" => {
                let own = self.http_advertise().unwrap_or_default();
                let scheme = if self.tls.http { "https" } else { "http" };
                format!("{scheme}://{own}")
            }
            named => named.trim_end_matches('/').to_owned(),
        }
    }

    /// The address advertised to others for the internal transport, `host:port`.
    ///
    /// # Errors
    /// The listening address cannot be read.
    pub fn rpc_advertise(&self) -> Result<String, ConfigError> {
        let listen = self.rpc_listen()?;
        Ok(advertised(
            self.advertise.rpc.as_deref(),
            Some(listen),
            self.ports.rpc,
        ))
    }

    /// The agent's name: as configured, else the host's.
    pub fn node_name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok())
            .unwrap_or_else(|| "drover".to_owned())
    }

    /// Where the server keeps its files, given the data directory in use.
    pub fn server_dir(&self, data_dir: &Path) -> PathBuf {
        self.server
            .data_dir
            .clone()
            .unwrap_or_else(|| data_dir.join("server"))
    }

    /// Where the client keeps its journal and identity.
    pub fn client_dir(&self, data_dir: &Path) -> PathBuf {
        self.client
            .state_dir
            .clone()
            .unwrap_or_else(|| data_dir.join("client"))
    }

    /// Where allocation directories are made.
    pub fn alloc_dir(&self, data_dir: &Path) -> PathBuf {
        self.client
            .alloc_dir
            .clone()
            .unwrap_or_else(|| data_dir.join("alloc"))
    }

    /// Where plugins make volumes.
    pub fn host_volumes_dir(&self, data_dir: &Path) -> PathBuf {
        self.client
            .host_volumes_dir
            .clone()
            .unwrap_or_else(|| data_dir.join("host_volumes"))
    }

    /// Where plugins are that are files.
    pub fn plugin_dir(&self, data_dir: &Path) -> PathBuf {
        self.plugin_dir
            .clone()
            .unwrap_or_else(|| data_dir.join("plugins"))
    }

    /// Where plugins of host volumes are.
    pub fn host_volume_plugin_dir(&self, data_dir: &Path) -> PathBuf {
        self.client
            .host_volume_plugin_dir
            .clone()
            .unwrap_or_else(|| data_dir.join("host_volume_plugins"))
    }
}

fn socket(text: &str, port: u16, what: &'static str) -> Result<SocketAddr, ConfigError> {
    if let Ok(addr) = text.parse::<SocketAddr>() {
        return Ok(addr);
    }
    let host = text.trim_start_matches('[').trim_end_matches(']');
    let host = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    match host.parse::<IpAddr>() {
        Ok(ip) => Ok(SocketAddr::new(ip, port)),
        Err(_) => Err(ConfigError::Address {
            what,
            text: text.to_owned(),
        }),
    }
}

fn advertised(reported: Option<&str>, listen: Option<SocketAddr>, port: u16) -> String {
    if let Some(reported) = reported {
        let has_port = reported.parse::<SocketAddr>().is_ok()
            || reported
                .rsplit_once(':')
                .is_some_and(|(h, p)| !h.contains(':') && p.parse::<u16>().is_ok());
        return if has_port {
            reported.to_owned()
        } else {
            format!("{reported}:{port}")
        };
    }
    match listen {
        Some(addr) if addr.ip().is_unspecified() => format!("127.0.0.1:{}", addr.port()),
        Some(addr) => addr.to_string(),
        None => format!("127.0.0.1:{port}"),
    }
}
