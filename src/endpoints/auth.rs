//! Nodes prove who they are with their secret; the state knows its hash only.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::sync::Arc;

use drover_projections::tables::nodes::Nodes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::Clients;
use crate::commands::Command;
use crate::error::ApiError;
use crate::identity::Identity;
use crate::net::{Asking, Rates, admitting, deciding};
use crate::proposer::Origin;
use crate::rpc::forward::ServerForward;
use crate::rpc::methods::{AclGetPolicies, AclGetRoles, AclResolveToken, NodeUpdateStatus};
use crate::rpc::service::Call;
use crate::rpc::sessions::NodeSession;
use crate::rpc::{Rpc as _, Streaming as _};

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

/// What is never refused for there being too much of it: a node whose heartbeat is refused would be
/// taken for lost, a session is what a server asked for, and what is forwarded is counted as the
/// request that it is.
const UNCOUNTED: [&str; 3] = [
    NodeUpdateStatus::NAME,
    NodeSession::NAME,
    ServerForward::NAME,
];

/// What a node asks about those who ask it: as often as they like, so it is counted apart from what
/// the node does itself.
const FOR_OTHERS: [&str; 3] = [
    AclResolveToken::NAME,
    AclGetRoles::NAME,
    AclGetPolicies::NAME,
];

/// What was found of nodes' secrets: the modify index of the node's row, and the hash of the secret
/// that matched it.
pub(super) type Proven = Mutex<HashMap<String, (u64, [u8; 32])>>;

/// What a secret says of who calls.
enum Proof {
    /// It is the node's.
    Proved,
    /// It is not.
    Wrong,
    /// There is no such node.
    NoNode,
}

/// A node that proved that it calls.
pub(super) struct Known<'c> {
    clients: &'c Clients,
    call: &'c Call,
    node_id: &'c str,
}

impl Known<'_> {
    /// Where a command of the node comes from.
    pub(super) fn origin(&self) -> Origin {
        self.clients.origin(self.call, self.node_id)
    }

    /// Submits a command of the node; its index.
    pub(super) async fn submit(&self, command: impl Command) -> Result<u64, ApiError> {
        let done = self.clients.server.submit(command, self.origin()).await?;
        Ok(done.index)
    }
}

impl Clients {
    /// Checks that the node calls that the call is about. What was found of a secret holds as long
    /// as the node's row is the same. Whether there is such a node is nobody's business who is not
    /// it.
    pub(super) async fn caller<'c>(
        self: &'c Arc<Self>,
        call: &'c Call,
        node_id: &'c str,
    ) -> Result<Known<'c>, ApiError> {
        match self.proof(call, node_id).await? {
            Proof::Proved => Ok(Known {
                clients: self,
                call,
                node_id,
            }),
            Proof::Wrong | Proof::NoNode => Err(ApiError::permission_denied()),
        }
    }

    /// The same for a heartbeat: a client that is told that its node is gone registers again.
    pub(super) async fn caller_or_gone<'c>(
        self: &'c Arc<Self>,
        call: &'c Call,
        node_id: &'c str,
    ) -> Result<Known<'c>, ApiError> {
        match self.proof(call, node_id).await? {
            Proof::NoNode => Err(ApiError::not_found("node not found")),
            Proof::Wrong => Err(ApiError::permission_denied()),
            Proof::Proved => Ok(Known {
                clients: self,
                call,
                node_id,
            }),
        }
    }

    async fn proof(self: &Arc<Self>, call: &Call, node_id: &str) -> Result<Proof, ApiError> {
        let (clients, token, id) = (self.clone(), call.token.clone(), node_id.to_owned());
        deciding(move || clients.prove(&token, &id)).await?
    }

    fn prove(&self, token: &str, node_id: &str) -> Result<Proof, ApiError> {
        let view = self.server.projections.view();
        let Some(row) = view.modified::<Nodes>(node_id)? else {
            return Ok(Proof::NoNode);
        };
        let proof = (row, digest(token).into());
        if self.proven.lock().get(node_id) == Some(&proof) {
            return Ok(Proof::Proved);
        }
        let node = view.get::<Nodes>(node_id)?.unwrap_or_default();
        if token.is_empty() || node.secret_id != secret_hash(token) {
            return Ok(Proof::Wrong);
        }
        self.proven.lock().insert(node_id.to_owned(), proof);
        Ok(Proof::Proved)
    }

    /// Whether somebody of the cluster calls: a server, or the node that it names.
    pub(super) async fn admits(self: &Arc<Self>, call: &Call) -> bool {
        self.is_server(call) || self.knows(call).await
    }

    /// Whether a call is from the node that it names. Everybody may ask that, so it is looked up
    /// beside the line of those who proved it.
    pub(super) async fn knows(self: &Arc<Self>, call: &Call) -> bool {
        if call.node.is_empty() {
            return false;
        }
        let (clients, token, id) = (self.clone(), call.token.clone(), call.node.clone());
        let proved = admitting(move || clients.prove(&token, &id)).await;
        proved.is_ok_and(|proved| matches!(proved, Ok(Proof::Proved)))
    }

    /// What a caller is called where calls are counted: a node only once it has proved that it is
    /// (AUTH-07). None where callers are not told apart.
    pub(super) fn label(&self, call: &Call) -> Option<String> {
        let config = self.server.configured();
        if !config.acl.enabled || config.telemetry.disable_rpc_rate_metrics_labels {
            return None;
        }
        Some(self.identity(call).label())
    }

    /// Counts a call against what its caller and his address may make; those of [`UNCOUNTED`] are
    /// counted against nothing.
    pub(super) fn within(&self, rates: &Rates, name: &str, call: &Call) -> Result<(), ApiError> {
        if !rates.are_set() || UNCOUNTED.contains(&name) {
            return Ok(());
        }
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let for_others = FOR_OTHERS.contains(&name);
        let who = self.identity(call).known_as();
        let who = who.map(|who| match for_others {
            true => format!("{who} for others"),
            false => who,
        });
        rates.take(&Asking {
            identity: who.as_deref(),
            proved: who.is_some() && !for_others,
            address: call.addr.parse().unwrap_or(nowhere),
            behind: None,
            namespace: None,
        })
    }

    /// Who calls, as far as that was found out already: nothing is read for it.
    fn identity(&self, call: &Call) -> Identity {
        let proof: [u8; 32] = digest(&call.token).into();
        let known = |(_, proved): &(u64, [u8; 32])| *proved == proof;
        let mut identity = match self.proven.lock().get(&call.node).is_some_and(known) {
            true => Identity::node(&call.node, &call.addr),
            false => {
                let known = self.server.gate.known(&call.token, &call.addr);
                known.unwrap_or_else(|| Identity::anonymous(&call.addr, Arc::default()))
            }
        };
        identity.certificate.clone_from(&call.certificate);
        identity
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
        // What is stored today is what every later release must find: SHA-256 of the domain and
        // the secret.
        let stored = "3a0cbd74505b999ac48fb6f1c7f0f749ff65f105dc678e95d130f97286116202";
        assert_eq!(hash, stored);
    }
}
