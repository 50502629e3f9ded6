//! The settings of the client agent: one value, read through one accessor (ENV-01 to ENV-03).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

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

/// The one holder of the settings in use.
///
/// A reader gets the value as it is now and keeps it; a change copies, alters the copy and swaps
/// it, so no reader sees a half-changed one and no copy changes under its reader.
#[derive(Clone, Debug)]
pub struct SharedSettings {
    current: Arc<ArcSwap<ClientSettings>>,
}

impl SharedSettings {
    /// Holds `settings`.
    pub fn new(settings: ClientSettings) -> Self {
        Self {
            current: Arc::new(ArcSwap::from_pointee(settings)),
        }
    }

    /// The settings now.
    pub fn get(&self) -> Arc<ClientSettings> {
        self.current.load_full()
    }

    /// Replaces them by an altered copy; concurrent changes are all kept, one after the other.
    pub fn change(&self, alter: impl Fn(&mut ClientSettings)) {
        self.current.rcu(|now| {
            let mut copy = ClientSettings::clone(now);
            alter(&mut copy);
            copy
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_01_mod_05_holders_of_the_old_settings_see_no_change_and_no_change_is_lost() {
        let shared = SharedSettings::new(ClientSettings::default());
        let old = shared.get();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    for i in 0..100 {
                        shared.change(|s| {
                            s.client.meta.insert(format!("{thread}-{i}"), "x".into());
                        });
                    }
                });
            }
        });
        assert!(old.client.meta.is_empty());
        assert_eq!(shared.get().client.meta.len(), 400);
    }
}
