//! The agent's configuration: one plain value, defaults with files laid over them, checked as a
//! whole. The command line lays the environment and its flags over what is read here; a reload
//! makes another value.
//!
//! - Every block is a struct with public fields and a `read` that lays one file over it; later
//!   files win, lists grow, maps merge. Unknown keys are refused with their place.
//! - Nothing here has interior mutability. [`Shared`] is the only accessor: who wants a change
//!   copies, alters the copy and swaps it; holders of the old value do not see it (ENV-01).
//! - It must not know who uses it: no server, client or HTTP type appears here.
//!
//! Start reading at [`Config`], then [`load()`].

mod audit;
mod block;
mod check;
mod client;
mod describe;
mod differences;
mod hidden;
mod limits;
mod load;
pub mod option;
mod publisher;
mod read;
mod retention;
mod server;
mod shared;
mod size;
mod unsupported;

pub use audit::AuditConfig;
pub use block::{
    AclConfig, Addresses, AutopilotConfig, LogSettings, PluginConfig, Ports, RpcConfig,
    TelemetryConfig, TlsConfig, UiConfig,
};
pub use check::check;
pub use client::{
    ArtifactConfig, ClientConfig, DrainOnShutdown, HostNetwork, HostVolume, Reserved,
};
pub use drover_hcl1::{Place, SyntaxError};
pub use hidden::Hidden;
pub use limits::LimitsConfig;
pub use load::{ConfigError, load};
pub use publisher::{EventPublisherConfig, KafkaConfig, SECURITY_PROTOCOL, VERIFY_HOSTNAME};
pub use read::Problem;
pub use retention::RetentionConfig;
pub use server::{
    DefaultSchedulerConfig, PlanRejectionTracker, SearchConfig, ServerConfig, ServerJoin,
};
pub use shared::Shared;
pub use unsupported::{UNSUPPORTED, Unsupported, WithoutEffect, advice, without_effect};

use drover_hcl1 as hcl1;
use read::Reader;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Everything an agent was configured with; absent blocks have their defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `-dev`: server and client in one, on the loopback interface.
    pub dev: bool,
    /// The region's name.
    pub region: String,
    /// The datacenter's name.
    pub datacenter: String,
    /// The agent's name; empty means the host's name.
    pub name: String,
    /// Where everything is kept; absent only in `-dev`, where the agent makes a temporary one.
    pub data_dir: Option<PathBuf>,
    /// Where plugins lie that are files; absent means `<data_dir>/plugins`.
    pub plugin_dir: Option<PathBuf>,
    /// How the agent logs.
    pub log: LogSettings,
    /// The address to listen on unless `addresses` names another.
    pub bind_addr: String,
    /// Profiling routes.
    pub enable_debug: bool,
    /// Leave gracefully on SIGINT.
    pub leave_on_interrupt: bool,
    /// Leave gracefully on SIGTERM.
    pub leave_on_terminate: bool,
    /// When HTTP answers are compressed: `always`, `remote` (not for callers on this machine) or
    /// `never`; empty is `remote`.
    pub http_compression: String,
    /// Headers added to every HTTP answer.
    pub http_api_response_headers: BTreeMap<String, String>,
    /// Proxies (addresses and prefixes) whose `X-Forwarded-For` says where a request comes from;
    /// what such a one shows as its certificate is nobody's. Connections are counted as the
    /// proxy's own: `limits.http_max_conns_per_client` is to leave room for them. Not Nomad's.
    pub http_trusted_proxies: Vec<String>,
    /// The three ports.
    pub ports: Ports,
    /// Addresses to listen on, each defaulting to `bind_addr`.
    pub addresses: Addresses,
    /// Addresses told to others.
    pub advertise: Addresses,
    /// The server's block.
    pub server: ServerConfig,
    /// The client's block.
    pub client: ClientConfig,
    /// Access control.
    pub acl: AclConfig,
    /// Limits on connections.
    pub limits: LimitsConfig,
    /// Metrics.
    pub telemetry: TelemetryConfig,
    /// Where events are published.
    pub event_publisher: EventPublisherConfig,
    /// Autopilot's first settings.
    pub autopilot: AutopilotConfig,
    /// Transport between agents.
    pub rpc: RpcConfig,
    /// TLS.
    pub tls: TlsConfig,
    /// The user interface's settings.
    pub ui: UiConfig,
    /// `plugin "<name>"` blocks by name.
    pub plugins: BTreeMap<String, PluginConfig>,
    /// The log of requests that change nothing but matter.
    pub audit: AuditConfig,
    /// The files this was read from, in order.
    pub files: Vec<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            dev: false,
            region: "global".into(),
            datacenter: "dc1".into(),
            name: String::new(),
            data_dir: None,
            plugin_dir: None,
            log: LogSettings::default(),
            bind_addr: "0.0.0.0".into(),
            enable_debug: false,
            leave_on_interrupt: false,
            leave_on_terminate: false,
            http_compression: String::new(),
            http_api_response_headers: BTreeMap::new(),
            http_trusted_proxies: Vec::new(),
            ports: Ports::default(),
            addresses: Addresses::default(),
            advertise: Addresses::default(),
            server: ServerConfig::default(),
            client: ClientConfig::default(),
            acl: AclConfig::default(),
            limits: LimitsConfig::default(),
            telemetry: TelemetryConfig::default(),
            event_publisher: EventPublisherConfig::default(),
            autopilot: AutopilotConfig::default(),
            rpc: RpcConfig::default(),
            tls: TlsConfig::default(),
            ui: UiConfig::default(),
            plugins: BTreeMap::new(),
            audit: AuditConfig::default(),
            files: Vec::new(),
        }
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

    /// Lays one parsed file over this configuration.
    pub(crate) fn read(&mut self, r: &mut Reader<'_>) {
        r.set("region", &mut self.region);
        r.set("datacenter", &mut self.datacenter);
        r.set("name", &mut self.name);
        r.set("data_dir", &mut self.data_dir);
        r.set("plugin_dir", &mut self.plugin_dir);
        self.log.read(r);
        r.set("bind_addr", &mut self.bind_addr);
        r.switch("enable_debug", &mut self.enable_debug);
        r.switch("leave_on_interrupt", &mut self.leave_on_interrupt);
        r.switch("leave_on_terminate", &mut self.leave_on_terminate);
        for key in ["disable_update_check", "disable_anonymous_signature"] {
            r.set(key, &mut bool::default());
        }
        r.set("http_compression", &mut self.http_compression);
        r.set(
            "http_api_response_headers",
            &mut self.http_api_response_headers,
        );
        r.set("http_trusted_proxies", &mut self.http_trusted_proxies);
        r.block("ports", |r| self.ports.read(r));
        r.block("addresses", |r| self.addresses.read(r));
        r.block("advertise", |r| self.advertise.read(r));
        r.block("server", |r| self.server.read(r));
        r.block("client", |r| self.client.read(r));
        r.block("acl", |r| self.acl.read(r));
        r.block("limits", |r| self.limits.read(r));
        r.block("telemetry", |r| self.telemetry.read(r));
        r.block("event_publisher", |r| self.event_publisher.read(r));
        r.block("autopilot", |r| self.autopilot.read(r));
        r.block("rpc", |r| self.rpc.read(r));
        r.block("audit", |r| self.audit.read(r));
        r.block("tls", |r| self.tls.read(r));
        r.block("ui", |r| self.ui.read(r));
        r.labelled("plugin", |name, r| {
            self.plugins
                .entry(name.to_owned())
                .or_default()
                .read(name, r)
        });
        // Files that are carried over have them; `unsupported` says what becomes of them.
        for key in [
            "consul",
            "vault",
            "sentinel",
            "reporting",
            "keyring",
            "eventlog",
        ] {
            r.set(key, &mut serde_json::Value::Null);
        }
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
    /// `addresses.http`. Who may open one is who may open the file.
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

    /// The address told to others for the HTTP API, `host:port`.
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

    /// The address told to others for the internal transport, `host:port`.
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

fn advertised(told: Option<&str>, listen: Option<SocketAddr>, port: u16) -> String {
    if let Some(told) = told {
        let has_port = told.parse::<SocketAddr>().is_ok()
            || told
                .rsplit_once(':')
                .is_some_and(|(h, p)| !h.contains(':') && p.parse::<u16>().is_ok());
        return if has_port {
            told.to_owned()
        } else {
            format!("{told}:{port}")
        };
    }
    match listen {
        Some(addr) if addr.ip().is_unspecified() => format!("127.0.0.1:{}", addr.port()),
        Some(addr) => addr.to_string(),
        None => format!("127.0.0.1:{port}"),
    }
}
