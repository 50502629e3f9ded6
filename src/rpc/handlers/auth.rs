//! Nodes prove who they are with their secret; the state knows its hash only.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use drover_projections::tables::nodes::Nodes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::Clients;
use crate::error::ApiError;
use crate::identity::Identity;
use crate::net::{admitting, deciding};
use crate::raft::Origin;
use crate::rpc::service::Call;

/// Keeps hashes of node secrets apart from hashes of anything else.
const DOMAIN: &[u8] = b"drover node secret\0";

/// What is stored of a node's secret: SHA-256(domain ‖ secret), hexadecimal.
pub fn secret_hash(secret: &str) -> String {
    drover_projections::hex(&digest(secret))
}

fn digest(secret: &str) -> impl Into<[u8; 32]> + Deref<Target = [u8]> {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update(secret.trim().to_lowercase().as_bytes());
    hash.finalize()
}

/// What was found of nodes' secrets: the modify index of the node's row, and the hash of the secret
/// that matched it.
pub(super) type Proven = Mutex<HashMap<String, (u64, [u8; 32])>>;

impl Clients {
    /// Checks that the node calls that the call is about. What was found of a secret holds as long
    /// as the node's row is the same.
    pub(super) async fn caller(
        self: &Arc<Self>,
        call: &Call,
        node_id: &str,
    ) -> Result<(), ApiError> {
        let (clients, token, id) = (self.clone(), call.token.clone(), node_id.to_owned());
        deciding(move || clients.prove(&token, &id)).await?
    }

    fn prove(&self, token: &str, node_id: &str) -> Result<(), ApiError> {
        let view = self.server.projections.view();
        let row = view.modified::<Nodes>(node_id)?;
        let row = row.ok_or_else(|| ApiError::not_found("node not found"))?;
        let proof = (row, digest(token).into());
        if self.proven.lock().get(node_id) == Some(&proof) {
            return Ok(());
        }
        let node = view.get::<Nodes>(node_id)?.unwrap_or_default();
        if token.is_empty() || node.secret_id != secret_hash(token) {
            return Err(ApiError::permission_denied());
        }
        self.proven.lock().insert(node_id.to_owned(), proof);
        Ok(())
    }

    /// Whether a call is from the node that it names. Everybody may ask that, so it is looked up
    /// beside the line of those who proved it.
    pub(super) async fn knows(self: &Arc<Self>, call: &Call) -> bool {
        if call.node.is_empty() {
            return false;
        }
        let (clients, token, id) = (self.clone(), call.token.clone(), call.node.clone());
        let proved = admitting(move || clients.prove(&token, &id)).await;
        proved.is_ok_and(|proved| proved.is_ok())
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
