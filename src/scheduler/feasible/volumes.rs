//! Volumes that a group asks for, on a node.
//!
//! Invariant: no answer of this module is kept for a class of nodes. A volume is a node's own, and
//! where every allocation has one of its own, it is another one for each index (HV-04).

use drover_events::model::{Node, TaskGroup, VolumeRequest};

use crate::reconcile::names::index_text;

/// What is said of a node without a volume that would do.
const MISSING_HOST: &str = "missing compatible host volumes";

/// What a group asks for.
#[derive(Clone, Debug, Default)]
pub struct VolumeAsks {
    host: Vec<Ask>,
}

/// One volume that is asked for.
#[derive(Clone, Debug)]
struct Ask {
    request: VolumeRequest,
    /// What it is for the allocation that is looked for: the source, with the index of the
    /// allocation where each has its own (HV-01).
    source: String,
}

impl VolumeAsks {
    /// What a group asks for.
    pub fn new(group: &TaskGroup) -> Self {
        let of = |kind: &str| {
            let requests = group.volumes.values();
            let requests = requests.filter(|request| request.r#type == kind);
            let ask = |request: &VolumeRequest| Ask {
                source: request.source.clone(),
                request: request.clone(),
            };
            requests.map(ask).collect()
        };
        Self { host: of("host") }
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.host.is_empty()
    }

    /// From here on it is about the allocation with this name.
    pub fn seek(&mut self, name: &str) {
        for ask in self.host.iter_mut().filter(|ask| ask.request.per_alloc) {
            ask.source = source_of(&ask.request, name);
        }
    }

    /// Why a node cannot give what is asked for.
    pub fn reason(&self, node: &Node) -> Option<String> {
        let suits = self.host.iter().all(|ask| ask.is_on(node));
        (!suits).then(|| MISSING_HOST.to_owned())
    }
}

impl Ask {
    fn is_on(&self, node: &Node) -> bool {
        let offered = node.host_volumes.get(&self.source);
        offered.is_some_and(|offered| self.request.read_only || !offered.read_only)
    }
}

/// The source of a volume for the allocation with this name.
pub fn source_of(request: &VolumeRequest, name: &str) -> String {
    match request.per_alloc {
        true => format!("{}{}", request.source, index_text(name)),
        false => request.source.clone(),
    }
}

#[cfg(test)]
mod tests {
    use drover_events::model::ClientHostVolumeConfig;

    use super::*;

    fn node(volumes: &[(&str, bool)]) -> Node {
        let offered = |(name, read_only): &(&str, bool)| {
            let volume = ClientHostVolumeConfig {
                name: (*name).to_owned(),
                path: "/data".to_owned(),
                read_only: *read_only,
                ..ClientHostVolumeConfig::default()
            };
            ((*name).to_owned(), volume)
        };
        Node {
            host_volumes: volumes.iter().map(offered).collect(),
            ..Node::default()
        }
    }

    fn asks(requests: &[(&str, &str, bool, bool)]) -> VolumeAsks {
        let request = |(kind, source, read_only, per_alloc): &(&str, &str, bool, bool)| {
            let request = VolumeRequest {
                r#type: (*kind).to_owned(),
                source: (*source).to_owned(),
                read_only: *read_only,
                per_alloc: *per_alloc,
                ..VolumeRequest::default()
            };
            (format!("{kind}-{source}"), request)
        };
        VolumeAsks::new(&TaskGroup {
            volumes: requests.iter().map(request).collect(),
            ..TaskGroup::default()
        })
    }

    #[test]
    fn a_node_must_have_every_volume_and_let_it_be_written_where_that_is_wanted() {
        let one = node(&[("data", false), ("certs", true)]);
        let missing = Some(MISSING_HOST.to_owned());
        for (wanted, suits) in [
            (vec![], true),
            (vec![("host", "data", false, false)], true),
            (vec![("host", "data", true, false)], true),
            (vec![("host", "certs", true, false)], true),
            (vec![("host", "certs", false, false)], false),
            (vec![("host", "other", true, false)], false),
            (
                vec![
                    ("host", "data", false, false),
                    ("host", "other", true, false),
                ],
                false,
            ),
        ] {
            let reason = asks(&wanted).reason(&one);
            assert_eq!(reason.is_none(), suits, "{wanted:?}");
            assert!(suits || reason == missing);
        }
    }

    #[test]
    fn hv_01_each_allocation_asks_for_the_volume_of_its_index() {
        let one = node(&[("data[1]", false)]);
        let mut wanted = asks(&[("host", "data", false, true)]);
        for (name, suits) in [("j.g[0]", false), ("j.g[1]", true), ("j.g[10]", false)] {
            wanted.seek(name);
            assert_eq!(wanted.reason(&one).is_none(), suits, "{name}");
        }
        let mut shared = asks(&[("host", "data[1]", false, false)]);
        shared.seek("j.g[0]");
        assert_eq!(shared.reason(&one), None);
    }
}
