//! The computed class of a node: nodes of one class look the same to every check that is worked out
//! once for a class (SCH-19).
//!
//! It is stored with the node and compared by every server of every release: SHA-256 over the
//! fields that [`super::Level`] reads, in a fixed order, each with its length before it. A check
//! that reads more needs its field here and a new prefix.

use std::collections::BTreeMap;

use drover_events::model::{Attribute, Node};
use sha2::{Digest as _, Sha256};

use super::has_driver;

/// What the class begins with; another one for another meaning.
const PREFIX: &str = "v2:";
/// Attributes and metadata that are a node's own have this beginning; constraints on them look at
/// each node.
const UNIQUE: &str = "unique.";
/// Bytes of the hash that are kept.
const KEPT: usize = 16;

/// The class of a node.
pub fn computed_class(node: &Node) -> String {
    let mut hash = Hash(Sha256::new());
    for text in [&node.datacenter, &node.node_class, &node.node_pool] {
        hash.text(text);
    }
    for map in [&node.attributes, &node.meta] {
        let common = map.iter().filter(|(key, _)| !key.starts_with(UNIQUE));
        let common: BTreeMap<&str, &str> = common.map(|(k, v)| (k.as_str(), v.as_str())).collect();
        hash.count(common.len());
        for (key, value) in common {
            hash.text(key);
            hash.text(value);
        }
    }
    // Drivers that are known only from an attribute are among the attributes.
    let drivers: BTreeMap<&str, bool> = node
        .drivers
        .keys()
        .map(|name| (name.as_str(), has_driver(node, name)))
        .collect();
    hash.count(drivers.len());
    for (name, usable) in drivers {
        hash.text(name);
        hash.count(usize::from(usable));
    }
    networks(node, &mut hash);
    devices(node, &mut hash);
    let kept = hex::encode(&hash.0.finalize()[..KEPT]);
    format!("{PREFIX}{kept}")
}

/// Modes of networks, and names of host networks.
fn networks(node: &Node, hash: &mut Hash) {
    let mut modes: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = node
        .host_networks
        .keys()
        .map(|name| name.as_str())
        .collect();
    if let Some(resources) = &node.node_resources {
        modes.extend(resources.networks.iter().map(|n| n.mode.as_str()));
        for network in resources.node_networks.iter() {
            modes.push(&network.mode);
            names.extend(network.addresses.iter().map(|a| a.alias.as_str()));
        }
    }
    for mut list in [modes, names] {
        list.sort_unstable();
        list.dedup();
        hash.count(list.len());
        for text in list {
            hash.text(text);
        }
    }
}

/// Groups of devices, their attributes, and how many of each are healthy; which ones is a node's
/// own.
fn devices(node: &Node, hash: &mut Hash) {
    let groups = || node.node_resources.iter().flat_map(|r| r.devices.iter());
    hash.count(groups().count());
    for group in groups() {
        for text in [&group.vendor, &group.r#type, &group.name] {
            hash.text(text);
        }
        hash.count(group.instances.iter().filter(|one| one.healthy).count());
        let attributes: BTreeMap<&str, &Attribute> = group
            .attributes
            .iter()
            .map(|(name, attribute)| (name.as_str(), attribute))
            .collect();
        hash.count(attributes.len());
        for (name, attribute) in attributes {
            hash.text(name);
            hash.text(&super::devices::text(attribute));
        }
    }
}

/// A hash over fields that cannot run into one another.
struct Hash(Sha256);

impl Hash {
    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text);
    }
}
