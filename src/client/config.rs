//! The settings of the client agent: one value, read through one accessor, a
//! [`drover_config::Shared`] (ENV-01 to ENV-03).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use drover_config::{ClientConfig, PluginConfig};

/// Everything a client is configured with. A plain value: a clone shares nothing with the original.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientSettings {
    /// The `client` block.
    pub client: ClientConfig,
    /// Settings of drivers, and of plugins that are files, by their names.
    pub plugins: BTreeMap<String, PluginConfig>,
    /// The agent's region.
    pub region: String,
    /// The agent's datacenter.
    pub datacenter: String,
    /// The node's name.
    pub name: String,
    /// What the node says its HTTP address is.
    pub http_addr: String,
    /// Whether TLS is spoken there.
    pub http_tls: bool,
    /// Where ids and the journal lie.
    pub state_dir: PathBuf,
    /// Where allocations live.
    pub alloc_dir: PathBuf,
    /// Where plugins make volumes.
    pub host_volumes_dir: PathBuf,
    /// Where plugins are that are files.
    pub plugin_dir: PathBuf,
    /// Where plugins of host volumes are.
    pub host_volume_plugin_dir: PathBuf,
    /// How often what the machine and its tasks use is measured; at least a second.
    pub collection_interval: Duration,
    /// Whether it is measured how long the hooks of allocations and tasks take.
    pub hook_metrics: bool,
    /// Development mode: quick retries, an id of its own at every start.
    pub dev: bool,
    /// Nothing is kept: allocations end with the agent.
    pub ephemeral: bool,
    /// What tasks inherit of the agent's environment.
    pub host_env: BTreeMap<String, String>,
}
