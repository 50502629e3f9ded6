//! Which host ports of a node are taken, by address.

use std::sync::Arc;

/// One taken port: a hash of the host address, and the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    address: u64,
    port: u16,
}

impl PortKey {
    /// The key of a port on an address (its text as the node reports it).
    pub fn new(ip: &str, port: u16) -> Self {
        Self {
            address: hash(ip),
            port,
        }
    }

    pub fn port(self) -> u16 {
        self.port
    }
}

/// FNV-1a: the same on every machine. Two addresses of one node with the same hash would only
/// make a port look taken.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The taken ports of a node: sorted, shared between snapshots, absent while no port is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSet(Option<Arc<Vec<PortKey>>>);

impl PortSet {
    /// Whether a port is taken.
    pub fn contains(&self, key: PortKey) -> bool {
        self.0
            .as_ref()
            .is_some_and(|set| set.binary_search(&key).is_ok())
    }

    /// Takes a port; false if it was taken already.
    pub fn insert(&mut self, key: PortKey) -> bool {
        let set = Arc::make_mut(self.0.get_or_insert_default());
        match set.binary_search(&key) {
            Ok(_) => false,
            Err(at) => {
                set.insert(at, key);
                true
            }
        }
    }

    /// Frees a port.
    pub fn remove(&mut self, key: PortKey) {
        let Some(set) = &mut self.0 else { return };
        if let Ok(at) = set.binary_search(&key) {
            Arc::make_mut(set).remove(at);
        }
        if set.is_empty() {
            self.0 = None;
        }
    }

    /// How many ports are taken on an address between two numbers, both included.
    pub fn count_between(&self, ip: &str, low: u16, high: u16) -> usize {
        let Some(set) = &self.0 else { return 0 };
        let address = hash(ip);
        let from = set.partition_point(|k| *k < PortKey { address, port: low });
        let to = set.partition_point(|k| {
            *k <= PortKey {
                address,
                port: high,
            }
        });
        to.saturating_sub(from)
    }

    /// How many ports are taken.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |set| set.len())
    }

    /// Whether no port is taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Reads a list such as `22,80,8000-8080`; parts that are not numbers are left out.
pub fn parse_ranges(text: &str) -> Vec<(u16, u16)> {
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(low), Ok(high)) = (low.trim().parse(), high.trim().parse())
            && low <= high
        {
            ranges.push((low, high));
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_once_for_each_address() {
        let mut ports = PortSet::default();
        assert!(ports.insert(PortKey::new("10.0.0.1", 80)));
        assert!(!ports.insert(PortKey::new("10.0.0.1", 80)));
        assert!(ports.insert(PortKey::new("10.0.0.2", 80)));
        assert!(ports.insert(PortKey::new("10.0.0.1", 20_500)));
        let before = ports.clone();
        ports.remove(PortKey::new("10.0.0.2", 80));
        assert!(before.contains(PortKey::new("10.0.0.2", 80)));
        assert!(!ports.contains(PortKey::new("10.0.0.2", 80)));
        assert_eq!(ports.count_between("10.0.0.1", 20_000, 32_000), 1);
        ports.remove(PortKey::new("10.0.0.1", 80));
        ports.remove(PortKey::new("10.0.0.1", 20_500));
        assert!(ports.is_empty());
    }

    #[test]
    fn ranges_of_ports_are_read() {
        assert_eq!(
            parse_ranges("22, 80,8000-8080,x,9-3"),
            [(22, 22), (80, 80), (8000, 8080)]
        );
        assert_eq!(parse_ranges(""), []);
    }
}
