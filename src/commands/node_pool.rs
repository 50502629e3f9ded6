//! Commands about node pools.

use drover_events::gojson::Base64;
use drover_events::model::NodePool;
use drover_events::model::status::{ALL_NODE_POOL, DEFAULT_NODE_POOL};
use drover_events::node_pool::*;
use drover_projections::View;
use drover_projections::tables::node_pools::NodePools;
use sha2::{Digest as _, Sha256};

use super::support::is_name;
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// Pools are created or changed.
#[derive(Clone, Debug)]
pub struct UpsertNodePools {
    pub node_pools: Vec<NodePool>,
}

impl Command for UpsertNodePools {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.node_pools.is_empty() {
            return Err(Refusal::bad_request("must specify at least one node pool"));
        }
        let mut node_pools = self.node_pools.clone();
        for pool in &mut node_pools {
            let name = pool.name.clone();
            if !is_name(&name, &['_']) {
                return Err(Refusal::bad_request(format!(
                    "invalid node pool \"{name}\": invalid name \"{name}\", must match regex \
                     ^[a-zA-Z0-9-_]{{1,128}}$"
                )));
            }
            if pool.description.len() > 256 {
                return Err(Refusal::bad_request(format!(
                    "invalid node pool \"{name}\": description longer than 256"
                )));
            }
            if matches!(name.as_str(), ALL_NODE_POOL | DEFAULT_NODE_POOL) {
                let text = format!("modifying node pool \"{name}\" is not allowed");
                return Err(Refusal::bad_request(text));
            }
            pool.create_index = 0;
            pool.modify_index = 0;
            pool.hash = Base64::default();
            let text =
                serde_json::to_vec(pool).map_err(|error| Refusal::internal(error.to_string()))?;
            pool.hash = Base64::from(Sha256::digest(text).to_vec());
        }
        Ok(Decision::unguarded(NodePoolsUpserted { node_pools }))
    }
}

/// Pools are removed; apply refuses one that something is still in.
#[derive(Clone, Debug)]
pub struct DeleteNodePools {
    /// Their names.
    pub names: Vec<String>,
}

impl Command for DeleteNodePools {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.names.is_empty() {
            let text = "must specify at least one node pool to delete";
            return Err(Refusal::bad_request(text));
        }
        for name in &self.names {
            if matches!(name.as_str(), ALL_NODE_POOL | DEFAULT_NODE_POOL) {
                let text = format!("deleting node pool \"{name}\" is not allowed");
                return Err(Refusal::bad_request(text));
            }
            if !view.contains::<NodePools>(name.as_str())? {
                return Err(Refusal::not_found(format!("node pool {name} not found")));
            }
        }
        Ok(Decision::unguarded(NodePoolsDeleted {
            names: self.names.clone(),
        }))
    }
}
