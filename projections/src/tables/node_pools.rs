//! `node_pools`: named groups of nodes.

use drover_events::Topic;
use drover_events::model::NodePool;

use crate::engine::table::{StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct NodePools;

impl Table for NodePools {
    const ID: u16 = 4;
    const NAME: &'static str = "node_pools";
    type Key = String;
    type Row = NodePool;

    fn key(row: &NodePool) -> String {
        row.name.clone()
    }

    fn stream(row: &NodePool) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::NodePool, "", &row.name, &[]))
    }
}
