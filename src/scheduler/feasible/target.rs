//! What `${…}` in a constraint, affinity or spread means on a node.

use drover_events::model::Node;

/// The value of a target on a node: itself if it is a literal, otherwise what the node has.
pub fn resolve<'a>(target: &'a str, node: &'a Node) -> Option<&'a str> {
    let Some(name) = target.strip_prefix("${") else {
        return Some(target);
    };
    let name = name.strip_suffix('}').unwrap_or(name);
    match name {
        "node.unique.id" => Some(&node.id),
        "node.datacenter" => Some(&node.datacenter),
        "node.unique.name" => Some(&node.name),
        "node.class" => Some(&node.node_class),
        "node.pool" => Some(&node.node_pool),
        _ => {
            if let Some(key) = name.strip_prefix("attr.") {
                node.attributes.get(key).map(String::as_str)
            } else if let Some(key) = name.strip_prefix("meta.") {
                node.meta.get(key).map(String::as_str)
            } else {
                None
            }
        }
    }
}

/// Whether a target depends on more than a node's computed class.
pub fn escapes_class(target: &str) -> bool {
    [
        "${unique.",
        "${node.unique.",
        "${attr.unique.",
        "${meta.unique.",
    ]
    .iter()
    .any(|prefix| target.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_looked_up_on_the_node() {
        let mut node = Node {
            id: "n1".into(),
            name: "first".into(),
            datacenter: "dc1".into(),
            node_pool: "gpu".into(),
            node_class: "big".into(),
            ..Node::default()
        };
        node.attributes.insert("kernel.name", "linux".to_owned());
        node.meta.insert("rack", "r1".to_owned());
        for (target, want) in [
            ("plain", Some("plain")),
            ("${node.unique.id}", Some("n1")),
            ("${node.class}", Some("big")),
            ("${node.unique.name}", Some("first")),
            ("${node.datacenter}", Some("dc1")),
            ("${node.pool}", Some("gpu")),
            ("${attr.kernel.name}", Some("linux")),
            ("${attr.none}", None),
            ("${meta.rack}", Some("r1")),
            ("${other}", None),
        ] {
            assert_eq!(resolve(target, &node), want, "{target}");
        }
        assert!(escapes_class("${attr.unique.hostname}"));
        assert!(!escapes_class("${attr.kernel.name}"));
    }
}
