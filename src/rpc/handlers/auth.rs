//! Nodes prove who they are with their secret; the state knows its hash only.

use drover_events::model::Node;
use drover_projections::tables::nodes;
use sha2::{Digest, Sha256};

use super::Clients;
use crate::error::ApiError;
use crate::identity::Identity;
use crate::raft::Origin;
use crate::rpc::service::Call;

/// Keeps hashes of node secrets apart from hashes of anything else.
const DOMAIN: &[u8] = b"drover node secret\0";

/// What is stored of a node's secret: SHA-256(domain ‖ secret), hexadecimal.
pub fn secret_hash(secret: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update(secret.trim().to_lowercase().as_bytes());
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

impl Clients {
    /// The node that calls, as it claims to be.
    pub(super) fn caller(&self, call: &Call, node_id: &str) -> Result<Node, ApiError> {
        let node = nodes::get(&self.server.projections.view(), node_id)?
            .ok_or_else(|| ApiError::not_found("node not found"))?;
        if call.token.is_empty() || node.secret_id != secret_hash(&call.token) {
            return Err(ApiError::permission_denied());
        }
        Ok(node)
    }

    /// Where a command of a node comes from.
    pub(super) fn origin(&self, call: &Call, node_id: &str) -> Origin {
        Origin {
            actor: Identity::node(node_id, &call.addr).actor,
            request_id: uuid::Uuid::new_v4().to_string(),
            ..Origin::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_30_a_secret_is_stored_as_its_hash() {
        let hash = secret_hash("ABC");
        assert_eq!(hash, secret_hash("abc"));
        assert_eq!(hash.len(), 64);
        assert!(!hash.contains("abc"));
    }
}
