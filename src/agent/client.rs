//! The client of an agent, and the port on which servers are called.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::Failure;
use crate::client::agent::Client;
use crate::client::config::Settings;
use crate::client::start;
use crate::config::Config;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::server::{RpcServer, serve};
use crate::rpc::service::Dispatch;

/// Connections a client keeps to a server.
const CONNECTIONS: usize = 1;

/// Offers the servers' methods on the RPC port.
pub(super) async fn listen(
    config: &Config,
    service: Arc<dyn Dispatch>,
) -> Result<RpcServer, Failure> {
    let address = config.rpc_listen()?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let server = serve(listener, service)?;
    tracing::info!(address = %server.addr(), "RPC");
    Ok(server)
}

/// Starts the client: with `near`, it calls the server of its own process, else those configured.
pub(super) fn run(
    config: &Config,
    data_dir: &Path,
    near: Option<Arc<dyn Dispatch>>,
) -> Result<Arc<Client>, Failure> {
    let settings = settings(config, data_dir)?;
    let servers = config.client.servers.clone();
    let client = start::open(settings, |secret| match near {
        Some(service) => Caller::process(service, secret),
        None => Caller::network(Pool::new(CONNECTIONS), Servers::new(servers), secret),
    })?;
    tracing::info!(id = client.node_id(), "client started");
    Ok(client)
}

fn settings(config: &Config, data_dir: &Path) -> Result<Settings, Failure> {
    let mut client = config.client.clone();
    let raw_exec = config
        .plugins
        .get("raw_exec")
        .and_then(|p| p.config.get("enabled"));
    if raw_exec.is_some_and(|on| on.as_bool() == Some(true)) {
        client
            .options
            .insert("driver.raw_exec.enable".into(), "true".into());
    }
    Ok(Settings {
        client,
        region: config.region.clone(),
        datacenter: config.datacenter.clone(),
        name: config.node_name(),
        http_addr: config.http_advertise()?,
        state_dir: config.client_dir(data_dir),
        alloc_dir: config.alloc_dir(data_dir),
        dev: config.dev,
        ephemeral: config.dev && config.data_dir.is_none(),
        host_env: host_env(),
    })
}

fn host_env() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
