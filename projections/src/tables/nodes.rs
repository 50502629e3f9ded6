//! `nodes`: machines, as they describe themselves and as operators mark them.
//!
//! What changes often (status, last missed heartbeat, last allocation update, node events) is the
//! row of `node_states` beside it; [`split`] and [`join`] go from a model node to the two and back.

use drover_events::Topic;
use drover_events::model::Node;

use super::node_states::{NodeState, NodeStates};
use crate::engine::error::StorageError;
use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};
use crate::engine::txn::ReadRows;

/// The table. Its rows have none of the fields of [`NodeState`].
pub struct Nodes;

impl Table for Nodes {
    const ID: u16 = 2;
    const NAME: &'static str = "nodes";
    type Key = Id;
    type Row = Node;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<NodesBySecret>(),
        IndexDef::of::<NodesByPool>(),
        IndexDef::of::<NodesBySigningKey>(),
        IndexDef::of::<NodesByPlugin>(),
    ];

    fn key(row: &Node) -> Id {
        Id::new(row.id.as_str())
    }

    fn stream(row: &Node) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::Node, "", &row.id, &[]))
    }
}

/// The node with this secret (as it is stored: a hash).
pub struct NodesBySecret;

impl Index for NodesBySecret {
    type Table = Nodes;
    const NO: u8 = 1;
    const NAME: &'static str = "secret_id";
    type Group = Id;
    type Order = ();

    fn entries(row: &Node, out: &mut Entries) {
        if !row.secret_id.is_empty() {
            out.add::<Self>(&row.secret_id, ());
        }
    }
}

/// The index of nodes, ordered by their pool.
pub struct NodesByPool;

impl Index for NodesByPool {
    type Table = Nodes;
    const NO: u8 = 2;
    const NAME: &'static str = "node_pool";
    type Group = String;
    type Order = ();

    fn entries(row: &Node, out: &mut Entries) {
        out.add::<Self>(&row.node_pool, ());
    }
}

/// The nodes whose identity a key signed.
pub struct NodesBySigningKey;

impl Index for NodesBySigningKey {
    type Table = Nodes;
    const NO: u8 = 3;
    const NAME: &'static str = "signing_key";
    type Group = Id;
    type Order = ();

    fn entries(row: &Node, out: &mut Entries) {
        if !row.identity_signing_key_id.is_empty() {
            out.add::<Self>(&row.identity_signing_key_id, ());
        }
    }
}

/// The nodes that report a CSI plugin, as a controller or as a node.
pub struct NodesByPlugin;

impl Index for NodesByPlugin {
    type Table = Nodes;
    const NO: u8 = 4;
    const NAME: &'static str = "csi_plugin";
    type Group = String;
    type Order = ();

    fn entries(row: &Node, out: &mut Entries) {
        let (controllers, nodes) = (&row.csi_controller_plugins, &row.csi_node_plugins);
        for id in controllers.keys() {
            out.add::<Self>(id, ());
        }
        for id in nodes.keys().filter(|id| !controllers.contains_key(*id)) {
            out.add::<Self>(id, ());
        }
    }
}

/// Takes the fast-changing fields out of a node.
pub fn split(mut node: Node) -> (Node, NodeState) {
    let state = NodeState {
        node_id: node.id.clone(),
        status: std::mem::take(&mut node.status),
        status_description: std::mem::take(&mut node.status_description),
        status_updated_at: std::mem::take(&mut node.status_updated_at),
        last_missed_heartbeat_index: std::mem::take(&mut node.last_missed_heartbeat_index),
        last_alloc_update_index: std::mem::take(&mut node.last_alloc_update_index),
        events: std::mem::take(&mut node.events),
        modify_index: node.modify_index,
    };
    (node, state)
}

/// Puts them back; the node's modify index is the later of the two.
pub fn join(mut node: Node, state: NodeState) -> Node {
    node.status = state.status;
    node.status_description = state.status_description;
    node.status_updated_at = state.status_updated_at;
    node.last_missed_heartbeat_index = state.last_missed_heartbeat_index;
    node.last_alloc_update_index = state.last_alloc_update_index;
    node.events = state.events;
    node.modify_index = node.modify_index.max(state.modify_index);
    node
}

/// The whole node, as the API shows it (its stored secret included).
pub fn get(from: &impl ReadRows, id: &str) -> Result<Option<Node>, StorageError> {
    let Some(node) = from.row::<Nodes>(id)? else {
        return Ok(None);
    };
    let state = from.row::<NodeStates>(id)?;
    let state = state
        .map(|state| NodeState::clone(&state))
        .unwrap_or_default();
    Ok(Some(join(Node::clone(&node), state)))
}

#[cfg(test)]
mod tests {
    use drover_events::gojson::Map;
    use drover_events::model::CsiInfo;

    use super::*;

    #[test]
    fn a_node_has_one_entry_for_each_plugin_that_it_reports() {
        let reported = |ids: [&str; 2]| Map::from(ids.map(|id| (id, CsiInfo::default())));
        let node = Node {
            csi_controller_plugins: reported(["both", "controller"]),
            csi_node_plugins: reported(["both", "node"]),
            ..Node::default()
        };
        let (mut found, mut wanted) = (Entries::default(), Entries::default());
        NodesByPlugin::entries(&node, &mut found);
        for id in ["both", "controller", "node"] {
            wanted.add::<NodesByPlugin>(id, ());
        }
        assert_eq!(found.list, wanted.list);
    }
}
