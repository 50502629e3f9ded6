//! `node_states`: what changes often about a node, beside its row in `nodes`.

use drover_events::Topic;
use drover_events::gojson::List;
use drover_events::model::NodeEvent;

use crate::engine::key::Id;
use crate::engine::table::{StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct NodeStates;

drover_events::wire! {
    /// The fast-changing fields of a node, under the model's names.
    pub struct NodeState {
        node_id: String = "NodeID",
        status: String = "Status",
        status_description: String = "StatusDescription",
        status_updated_at: i64 = "StatusUpdatedAt",
        last_missed_heartbeat_index: u64 = "LastMissedHeartbeatIndex",
        last_alloc_update_index: u64 = "LastAllocUpdateIndex",
        events: List<NodeEvent> = "Events",
        modify_index: u64 = "ModifyIndex",
    }
}

impl Table for NodeStates {
    const ID: u16 = 3;
    const NAME: &'static str = "node_states";
    type Key = Id;
    type Row = NodeState;
    const CONTINUES_ANOTHER: bool = true;

    fn key(row: &NodeState) -> Id {
        Id::new(row.node_id.as_str())
    }

    fn stream(row: &NodeState) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::Node, "", &row.node_id, &[]))
    }
}
