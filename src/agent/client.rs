//! The client of an agent, and the port on which servers are called.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::Failure;
use crate::client::agent::Client;
use crate::client::config::ClientSettings;
use crate::client::env::inherited;
use crate::client::start;
use crate::config::{Config, option};
use crate::net::Budget;
use crate::net::tls::Loader;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::{Dialing, Pool};
use crate::rpc::server::{CallerLimits, RpcServer, serve};
use crate::rpc::service::Dispatch;

/// Connections a client keeps to a server.
const CONNECTIONS: usize = 1;

/// Offers the servers' methods on the RPC port.
pub(super) async fn listen(
    config: &Config,
    service: Arc<dyn Dispatch>,
    limits: CallerLimits,
) -> Result<RpcServer, Failure> {
    let address = config.rpc_listen()?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let server = serve(listener, service, limits)?;
    tracing::info!(address = %server.addr(), "RPC");
    Ok(server)
}

/// What callers of the RPC port may take.
pub(super) fn limits(config: &Config, bodies: Arc<Budget>, tls: Arc<Loader>) -> CallerLimits {
    CallerLimits {
        keep_alive: config.rpc.keep_alive_interval,
        tls,
        ..CallerLimits::new(
            config.limits.rpc_max_conns_per_client,
            config.limits.rpc_handshake_timeout,
            bodies,
        )
    }
}

/// Starts the client: with `near`, it calls the server of its own process, else those configured.
pub(super) fn run(
    config: &Config,
    data_dir: &Path,
    near: Option<Arc<dyn Dispatch>>,
    tls: &Arc<Loader>,
) -> Result<Arc<Client>, Failure> {
    let settings = settings(config, data_dir)?;
    let servers = servers(config);
    if near.is_none() && servers.is_empty() {
        return Err(NO_SERVERS.into());
    }
    let client = start::open(settings, |secret| match near {
        Some(service) => Caller::process(service, secret),
        None => {
            let pool = Pool::dialing(CONNECTIONS, dialing(config, tls));
            Caller::network(pool, Servers::new(servers), secret)
        }
    })?;
    tracing::info!(id = client.node_id(), "client started");
    Ok(client)
}

/// How a server calls others, with its own certificate.
pub(super) fn caller(config: &Config, tls: &Arc<Loader>) -> Caller {
    let pool = Pool::dialing(CONNECTIONS, dialing(config, tls));
    Caller::network(pool, Servers::default(), "")
}

/// How connections to servers are made and kept.
fn dialing(config: &Config, tls: &Arc<Loader>) -> Dialing {
    Dialing {
        timeout: config.rpc.dial_timeout,
        keep_alive: config.rpc.keep_alive_interval,
        tls: Arc::clone(tls),
        ..Dialing::default()
    }
}

const NO_SERVERS: &str = "a client without a server in its own process needs to know where servers \
    are: client { servers = [\"host:4647\"] } or -servers host:4647";
/// Where servers listen for RPC unless configured otherwise.
const RPC_PORT: u16 = 4647;

/// The servers that are named, each with a port.
fn servers(config: &Config) -> Vec<String> {
    let join = &config.client.server_join;
    let all = config.client.servers.iter();
    all.chain(&join.start_join)
        .chain(&join.retry_join)
        .map(|addr| with_port(addr))
        .collect()
}

fn with_port(addr: &str) -> String {
    let bare_ipv6 = addr.parse::<std::net::Ipv6Addr>().is_ok();
    let has_port = !bare_ipv6
        && addr
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match (has_port, bare_ipv6) {
        (true, _) => addr.to_owned(),
        (false, true) => format!("[{addr}]:{RPC_PORT}"),
        (false, false) => format!("{addr}:{RPC_PORT}"),
    }
}

fn settings(config: &Config, data_dir: &Path) -> Result<ClientSettings, Failure> {
    let mut client = config.client.clone();
    let raw_exec = config
        .plugins
        .get("raw_exec")
        .and_then(|plugin| plugin.enabled);
    if let Some(enabled) = raw_exec {
        client
            .options
            .insert(option::RAW_EXEC_ENABLE.into(), enabled.to_string());
    }
    let host_env = inherited(environment(), denied(&client.options));
    Ok(ClientSettings {
        client,
        plugins: config.plugins.clone(),
        region: config.region.clone(),
        datacenter: config.datacenter.clone(),
        name: config.node_name(),
        http_addr: config.http_advertise()?,
        http_tls: config.tls.http,
        state_dir: config.client_dir(data_dir),
        alloc_dir: config.alloc_dir(data_dir),
        host_volumes_dir: config.host_volumes_dir(data_dir),
        plugin_dir: config.plugin_dir(data_dir),
        host_volume_plugin_dir: config.host_volume_plugin_dir(data_dir),
        collection_interval: config.telemetry.collection_interval,
        hook_metrics: !config.telemetry.disable_allocation_hook_metrics,
        dev: config.dev,
        ephemeral: config.dev && config.data_dir.is_none(),
        host_env,
    })
}

fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Variables of the agent that no task sees, where the options of the client name any.
fn denied(options: &BTreeMap<String, String>) -> Option<&str> {
    // The second name is what the option was called before.
    let names = [option::ENV_DENYLIST, option::ENV_BLACKLIST];
    let named = names.iter().find_map(|name| options.get(*name));
    named.map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_03_mod_05_blocks_and_lists_without_an_element_are_as_good_as_absent_ones() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("empty.hcl");
        let text = "http_api_response_headers {}\n\
                    client {\n  servers = []\n  options {}\n  meta {}\n  server_join {}\n\
                    reserved { reserved_ports = \"\" }\n}\n\
                    plugin \"raw_exec\" {}\n\
                    tls {}\nacl {}\nlimits {}\n\
                    tls {\n  http = false\n  ca_file = \"\"\n  cert_file = \"\"\n\
                    key_file = \"\"\n  tls_min_version = \"\"\n}\n\
                    acl {\n  enabled = false\n  token_ttl = \"30s\"\n}\n\
                    limits {\n  request_burst = \"5s\"\n}\n\
                    addresses {\n  http = \"\"\n  rpc = \"\"\n}\n";
        std::fs::write(&file, text).expect("written");
        let node_of = |files: &[std::path::PathBuf]| {
            let mut config = Config::dev();
            crate::config::load(&mut config, files).expect("loads");
            crate::config::check(&config).expect("checks");
            let shared = crate::config::Shared::new(config);
            let copy = shared.update(|config| config.name = "same".to_owned());
            assert!(servers(&copy).is_empty());
            let settings = settings(&copy, dir.path()).expect("settings");
            let facts = crate::client::fingerprint::probe(&settings);
            let (tls, acl, limits) = (copy.tls.clone(), copy.acl.clone(), copy.limits.clone());
            let listen = (copy.http_listen().ok(), copy.rpc_listen().ok());
            let blocks = (tls, acl, limits, listen);
            (settings.client.options, settings.client.meta, facts, blocks)
        };
        let (absent, empty) = (node_of(&[]), node_of(&[file]));
        assert_eq!((&absent.0, &absent.1), (&empty.0, &empty.1));
        assert_eq!(absent.3, empty.3);
        let names = |facts: &crate::client::fingerprint::Facts| {
            facts.attributes.keys().cloned().collect::<Vec<_>>()
        };
        assert!(!names(&absent.2).is_empty());
        assert_eq!(names(&absent.2), names(&empty.2));
    }

    #[test]
    fn what_a_plugin_block_says_wins_over_the_mode() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config::dev();
        let plugin = crate::config::PluginConfig {
            enabled: Some(false),
            ..crate::config::PluginConfig::default()
        };
        config.plugins.insert("raw_exec".to_owned(), plugin);
        let settings = settings(&config, dir.path()).expect("settings");
        assert_eq!(settings.client.options["driver.raw_exec.enable"], "false");
    }

    #[test]
    fn a_client_measures_as_the_configuration_says() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut config = Config::dev();
        let usual = settings(&config, dir.path()).expect("settings");
        assert!(usual.hook_metrics);
        config.telemetry.collection_interval = std::time::Duration::from_secs(77);
        config.telemetry.disable_allocation_hook_metrics = true;
        let settings = settings(&config, dir.path()).expect("settings");
        assert_eq!(settings.collection_interval.as_secs(), 77);
        assert!(!settings.hook_metrics);
    }

    #[test]
    fn each_time_of_connections_is_the_one_that_is_named_for_it() {
        use std::time::Duration;
        let mut config = Config::default();
        config.rpc.dial_timeout = Duration::from_secs(1);
        config.rpc.keep_alive_interval = Duration::from_secs(2);
        let dialing = dialing(&config, &Loader::clear());
        let times = [dialing.timeout, dialing.keep_alive];
        assert_eq!(times.map(|time| time.as_secs()), [1, 2]);
        let taken = limits(&config, Budget::new(1), Loader::clear());
        assert_eq!(taken.keep_alive.as_secs(), 2);
    }

    #[test]
    fn servers_without_a_port_listen_on_the_usual_one() {
        let mut config = Config::default();
        config.client.servers = vec!["a".into(), "b:5000".into(), "::1".into()];
        config.client.server_join.retry_join = vec!["[::2]:1".into()];
        assert_eq!(
            servers(&config),
            ["a:4647", "b:5000", "[::1]:4647", "[::2]:1"]
        );
        let dir = tempfile::tempdir().expect("a temporary directory");
        config.client = crate::config::ClientConfig::default();
        let refused = run(&config, dir.path(), None, &Loader::clear())
            .err()
            .expect("no servers");
        assert!(refused.to_string().contains("-servers host:4647"));
    }
}
