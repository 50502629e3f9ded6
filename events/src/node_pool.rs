//! Events about node pools.

use crate::model::NodePool;
use crate::wire;

wire! {
    /// Node pools were created or changed.
    pub struct NodePoolsUpserted {
        node_pools: Vec<NodePool> = "NodePools",
    }

    /// Node pools were removed; those built in never are.
    pub struct NodePoolsDeleted {
        names: Vec<String> = "Names",
    }
}
