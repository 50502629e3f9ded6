//! Where a dynamic host volume is created: chooses a node where its description names none, and
//! checks the named one.

use std::collections::BTreeSet;

use drover_events::model::status::ALL_NODE_POOL;
use drover_events::model::{Constraint, HostVolume};

use super::cluster::{Cluster, NodeInfo};
use super::feasible::{OperandCache, constraint_text, holds};
use super::rng::Rng;

/// Why there is no node for a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNode {
    /// The named one is not known.
    #[error("no such node {0}")]
    Unknown(String),
    /// The named one is not ready, or does not meet the description.
    #[error("node {0} cannot take the volume: {1}")]
    Unfit(String, String),
    /// No node fits.
    #[error("no node meets constraints: {0}")]
    None(String),
}

/// What limits where a volume may be created, beside its description and what nodes report.
#[derive(Clone, Copy, Debug)]
pub struct PlacementLimits<'a> {
    /// Nodes that have a volume of its name, or are about to have one.
    pub nodes: &'a BTreeSet<String>,
    /// Whether its plugin has to create it, so that a node must run that; if not, the volume is
    /// there already.
    pub needs_plugin: bool,
}

/// The id of the node where a volume is created: the one that it names, or one chosen at random of
/// those that are ready, in its pool, run its plugin, meet its constraints and have no volume of
/// its name.
///
/// # Errors
/// Why no node fits.
pub fn place(
    cluster: &Cluster,
    volume: &HostVolume,
    limits: &PlacementLimits<'_>,
    seed: u64,
) -> Result<String, NoNode> {
    let plugin = limits.needs_plugin.then(|| Constraint {
        l_target: format!("${{attr.plugins.host_volume.{}.version}}", volume.plugin_id),
        operand: "is_set".to_owned(),
        ..Constraint::default()
    });
    let rules = (plugin.as_ref(), limits.nodes);
    let mut operands = OperandCache::default();
    if !volume.node_id.is_empty() {
        let unknown = || NoNode::Unknown(volume.node_id.clone());
        let info = cluster.node(&volume.node_id).ok_or_else(unknown)?;
        return match unfit(info, volume, rules, &mut operands) {
            Some(why) => Err(NoNode::Unfit(volume.node_id.clone(), why)),
            None => Ok(volume.node_id.clone()),
        };
    }
    let mut fit = Vec::new();
    let mut last = "there is no node".to_owned();
    for slot in cluster.by_node_id() {
        let Some(info) = &cluster.slot(*slot).info else {
            continue;
        };
        match unfit(info, volume, rules, &mut operands) {
            Some(why) => last = why,
            None => fit.push(info.node.id.as_str()),
        }
    }
    match Rng::new(seed).below(fit.len().max(1) as u64) {
        at if !fit.is_empty() => Ok(fit[at as usize].to_owned()),
        _ => Err(NoNode::None(last)),
    }
}

/// Why a volume cannot be created on a node.
fn unfit(
    info: &NodeInfo,
    volume: &HostVolume,
    (plugin, taken): (Option<&Constraint>, &BTreeSet<String>),
    operands: &mut OperandCache,
) -> Option<String> {
    let node = &info.node;
    if !info.ready {
        return Some("it is not ready".to_owned());
    }
    let pool = volume.node_pool.as_str();
    if !matches!(pool, "" | ALL_NODE_POOL) && pool != node.node_pool {
        return Some(format!("it is in node pool {:?}", node.node_pool));
    }
    if node.host_volumes.contains_key(&volume.name) || taken.contains(&node.id) {
        return Some(format!("it has a volume {:?} already", volume.name));
    }
    if plugin.is_some_and(|plugin| !holds(plugin, node, operands)) {
        return Some(format!("it does not run plugin {:?}", volume.plugin_id));
    }
    let mut constraints = volume.constraints.iter();
    let unmet = constraints.find(|constraint| !holds(constraint, node, operands));
    unmet.map(|constraint| constraint_text(constraint).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use drover_events::model::{ClientHostVolumeConfig, Node};

    use super::*;

    static NONE: BTreeSet<String> = BTreeSet::new();
    const FREE: PlacementLimits<'static> = PlacementLimits {
        nodes: &NONE,
        needs_plugin: true,
    };

    fn node(id: &str, change: impl FnOnce(&mut Node)) -> Node {
        let mut node = Node {
            id: id.into(),
            node_pool: "default".into(),
            status: "ready".into(),
            scheduling_eligibility: "eligible".into(),
            ..Node::default()
        };
        let version = "plugins.host_volume.mkdir.version";
        node.attributes.insert(version, "1".to_owned());
        node.attributes.insert("os.name", id.to_owned());
        change(&mut node);
        node
    }

    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        cluster.upsert_node(node("a", |_| {}));
        cluster.upsert_node(node("b", |_| {}));
        cluster.upsert_node(node("down", |n| n.status = "down".into()));
        cluster.upsert_node(node("far", |n| n.node_pool = "far".into()));
        cluster.upsert_node(node("plain", |n| n.attributes = Default::default()));
        cluster.upsert_node(node("taken", |n| {
            let known = ClientHostVolumeConfig::default();
            n.host_volumes.insert("data", known);
        }));
        cluster
    }

    fn volume(change: impl FnOnce(&mut HostVolume)) -> HostVolume {
        let mut volume = HostVolume {
            name: "data".into(),
            plugin_id: "mkdir".into(),
            node_pool: "default".into(),
            ..HostVolume::default()
        };
        change(&mut volume);
        volume
    }

    #[test]
    fn a_volume_comes_to_any_node_that_can_have_it_and_to_no_other() {
        let cluster = cluster();
        let places = |volume: &HostVolume| -> BTreeSet<String> {
            let place = |seed| place(&cluster, volume, &FREE, seed).unwrap();
            (0..64).map(place).collect()
        };
        let any = ["a", "b"].map(str::to_owned).into();
        assert_eq!(places(&volume(|_| {})), any);
        let far = volume(|v| v.node_pool = "far".into());
        assert_eq!(places(&far), ["far".to_owned()].into());
        let all = volume(|v| v.node_pool = "all".into());
        assert_eq!(places(&all), ["a", "b", "far"].map(str::to_owned).into());
        let constraint = Constraint {
            l_target: "${attr.os.name}".into(),
            r_target: "b".into(),
            operand: "=".into(),
        };
        let one = volume(|v| v.constraints = vec![constraint].into());
        assert_eq!(places(&one), ["b".to_owned()].into());
        let promised = ["a".to_owned()].into();
        let rest = PlacementLimits {
            nodes: &promised,
            needs_plugin: false,
        };
        let there: BTreeSet<_> = (0..64)
            .map(|seed| place(&cluster, &volume(|_| {}), &rest, seed).unwrap())
            .collect();
        assert_eq!(there, ["b", "plain"].map(str::to_owned).into());
    }

    #[test]
    fn what_keeps_a_volume_from_a_node_is_told() {
        let cluster = cluster();
        let on = |id: &str| place(&cluster, &volume(|v| v.node_id = id.into()), &FREE, 1);
        assert_eq!(on("a"), Ok("a".to_owned()));
        assert_eq!(on("none"), Err(NoNode::Unknown("none".into())));
        for (id, why) in [
            ("down", "it is not ready"),
            ("far", "it is in node pool \"far\""),
            ("taken", "it has a volume \"data\" already"),
            ("plain", "it does not run plugin \"mkdir\""),
        ] {
            assert_eq!(on(id), Err(NoNode::Unfit(id.into(), why.into())));
        }
        let other = place(&cluster, &volume(|v| v.plugin_id = "zfs".into()), &FREE, 1);
        let text = other.unwrap_err().to_string();
        assert!(text.starts_with("no node meets constraints: "), "{text}");
        let nowhere = place(&Cluster::default(), &volume(|_| {}), &FREE, 1).unwrap_err();
        assert_eq!(nowhere, NoNode::None("there is no node".into()));
    }
}
