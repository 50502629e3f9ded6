//! Volumes and plugins as a part of the node: what servers know of them.

use std::sync::Arc;

use drover_events::model::ClientHostVolumeConfig;

use super::HostVolumes;
use crate::fingerprint;

/// What the attributes of plugins begin with, and what they end in.
const ATTRIBUTE: [&str; 2] = ["plugins.host_volume.", ".version"];

impl HostVolumes {
    /// Puts what is offered into the node; a change is reported to the servers. A volume
    /// that the cluster manages stands before one of the configuration with its name.
    pub(super) fn describe(&self) {
        if self.put_into_node() {
            self.described.notify_one();
        }
        self.changed.send_replace(());
    }

    /// Whether that changed something.
    fn put_into_node(&self) -> bool {
        let [begins, ends] = ATTRIBUTE;
        // Held from before it is collected: of two at once the later one knows no less.
        let mut node = self.node.lock();
        let mut offered = fingerprint::host_volumes(&self.settings.get());
        for held in self.held.lock().values().filter(|held| held.offered) {
            let kept = &held.kept;
            let reported = ClientHostVolumeConfig {
                name: kept.requested.name.clone(),
                path: kept.path.clone(),
                id: kept.requested.id.clone(),
                ..ClientHostVolumeConfig::default()
            };
            offered.insert(kept.requested.name.as_str(), reported);
        }
        let mut attributes = node.attributes.clone();
        attributes
            .to_mut()
            .retain(|name, _| !(name.starts_with(begins) && name.ends_with(ends)));
        for (plugin, version) in &*self.versions.lock() {
            attributes.insert(format!("{begins}{plugin}{ends}"), version.clone());
        }
        if node.host_volumes == offered && node.attributes == attributes {
            return false;
        }
        let mut changed = (**node).clone();
        changed.host_volumes = offered;
        changed.attributes = attributes;
        *node = Arc::new(changed);
        true
    }
}
