//! Nodes prove their identity with their secret; the state has its hash only.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::sync::Arc;

use drover_events::{Actor, ActorKind};
use drover_projections::tables::nodes::Nodes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::ClientEndpoints;
use crate::acl::Acl;
use crate::commands::Command;
use crate::error::Refusal;
use crate::identity::Identity;
use crate::net::{Asking, Rates};
use crate::proposer::Origin;
use crate::requests::{self, Class, LeftOut, Received};
use crate::rpc::forward::ServerForward;
use crate::rpc::methods::{
    AclGetClaimPolicies, AclGetPolicies, AclGetRoles, AclResolveToken, NodeUpdateStatus,
};
use crate::rpc::service::{Access, Call};
use crate::rpc::sessions::NodeSession;
use crate::rpc::{Rpc as _, Streaming as _};
use crate::server::Server;
use crate::table_reads::{admitting, read_apart_from_api};

/// Keeps hashes of node secrets apart from hashes of anything else.
const DOMAIN: &[u8] = b"drover node secret\0";

/// What is stored of a node's secret: SHA-256(domain ‖ secret), hexadecimal.
pub fn secret_hash(secret: &str) -> String {
    hex::encode(&*digest(secret))
}

fn digest(secret: &str) -> impl Into<[u8; 32]> + Deref<Target = [u8]> {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update(secret.trim().to_lowercase().as_bytes());
    hash.finalize()
}

/// What is never refused for there being too much of it: a node whose heartbeat is refused would be
/// taken for lost, a session is what a server requested, and what is forwarded is counted as the
/// request that it is.
const UNCOUNTED: [&str; 3] = [
    NodeUpdateStatus::NAME,
    NodeSession::NAME,
    ServerForward::NAME,
];

/// What a node queries about its own callers: as often as they call, so it is counted apart from
/// what the node does itself.
const FOR_OTHERS: [&str; 4] = [
    AclResolveToken::NAME,
    AclGetClaimPolicies::NAME,
    AclGetRoles::NAME,
    AclGetPolicies::NAME,
];

/// What was found of nodes' secrets: the modify index of the node's row, and the hash of the secret
/// that matched it.
pub(super) type Proven = Mutex<HashMap<String, (u64, [u8; 32])>>;

/// What a secret says of the caller.
enum Proof {
    /// It is the node's.
    Proved,
    /// It is not.
    Wrong,
    /// There is no such node.
    NoNode,
}

/// That a caller may write, and in whose name: only checking a caller makes one.
pub(super) struct Allowed(Origin);

impl Allowed {
    fn by(actor: Actor) -> Self {
        Self(Origin {
            actor,
            request_id: uuid::Uuid::new_v4().to_string(),
            ..Origin::default()
        })
    }

    /// What no caller was checked for.
    #[cfg(test)]
    pub(super) const fn unrequested(origin: Origin) -> Self {
        Self(origin)
    }

    /// Lets a caller write on a condition over its identity.
    ///
    /// # Errors
    /// 403.
    pub(super) fn when(who: &Identity, may: bool) -> Result<Self, Refusal> {
        who.accepted()?;
        match may {
            true => Ok(Self::by(who.actor.clone())),
            false => Err(Refusal::permission_denied()),
        }
    }

    /// Where what the caller writes comes from.
    pub(super) const fn origin(&self) -> &Origin {
        &self.0
    }

    /// The same, for what outlives the call.
    pub(super) fn into_origin(self) -> Origin {
        self.0
    }
}

/// The server as handlers have it: it takes commands only of callers of which it was checked that
/// they may.
pub(super) struct Guarded(Arc<Server>);

impl Deref for Guarded {
    type Target = Arc<Server>;

    fn deref(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Guarded {
    pub(super) const fn new(server: Arc<Server>) -> Self {
        Self(server)
    }

    /// Submits a command of a caller that may; its index.
    pub(super) async fn submit(
        &self,
        allowed: &Allowed,
        command: impl Command,
    ) -> Result<u64, Refusal> {
        let done = self.0.submit(command, allowed.0.clone()).await?;
        Ok(done.index)
    }
}

/// Where a call comes from; within the process from nowhere.
fn address(call: &Call) -> IpAddr {
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    call.addr.parse().unwrap_or(nowhere)
}

/// What is written of a call that is denied.
fn denial(method: &str, actor: Actor) -> Received {
    Received {
        class: Class::Denied,
        request_id: uuid::Uuid::new_v4().to_string(),
        method: "RPC".to_owned(),
        path: method.to_owned(),
        namespace: String::new(),
        actor,
        trace: String::new(),
        ran: None,
        servers: Vec::new(),
        left_out: LeftOut::new(),
    }
}

/// A node that has proved that it calls.
fn of_node(call: &Call, node_id: &str) -> Allowed {
    Allowed::by(Identity::node(node_id, &call.addr).actor)
}

/// A node that registers: whether the secret that it brings is its own, the command itself decides.
pub(super) fn newcomer(call: &Call, node_id: &str) -> Allowed {
    of_node(call, node_id)
}

/// Whether the node calls that the call names, as was found out when the call came. Where it was
/// not, that may be because nothing could be read then.
fn is_found(call: &Call) -> bool {
    let found = call.found.get();
    found.is_some_and(|who| who.actor.kind == ActorKind::Node && who.actor.id == call.node)
}

impl ClientEndpoints {
    /// Checks that the caller is the node that the call is about and that the call names as its
    /// caller. What was found of a secret holds as long as the node's row is the same. Other
    /// callers do not learn whether there is such a node.
    pub(super) async fn authorize_node(
        self: &Arc<Self>,
        call: &Call,
        node_id: &str,
    ) -> Result<Allowed, Refusal> {
        if call.node != node_id {
            return Err(Refusal::permission_denied());
        }
        match self.proof(call, node_id).await? {
            Proof::Proved => Ok(of_node(call, node_id)),
            Proof::Wrong | Proof::NoNode => Err(Refusal::permission_denied()),
        }
    }

    /// The same for a heartbeat: a client that learns that its node is gone registers again.
    pub(super) async fn authorize_node_or_gone(
        self: &Arc<Self>,
        call: &Call,
        node_id: &str,
    ) -> Result<Allowed, Refusal> {
        if call.node != node_id {
            return Err(Refusal::permission_denied());
        }
        match self.proof(call, node_id).await? {
            Proof::NoNode => Err(Refusal::not_found("node not found")),
            Proof::Wrong => Err(Refusal::permission_denied()),
            Proof::Proved => Ok(of_node(call, node_id)),
        }
    }

    async fn proof(self: &Arc<Self>, call: &Call, node_id: &str) -> Result<Proof, Refusal> {
        let (endpoints, token, id) = (self.clone(), call.token.clone(), node_id.to_owned());
        read_apart_from_api(move || endpoints.prove(&token, &id)).await?
    }

    fn prove(&self, token: &str, node_id: &str) -> Result<Proof, Refusal> {
        let view = self.server.projections.view();
        let Some(row) = view.modify_index::<Nodes>(node_id)? else {
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

    /// Whether a member of the cluster calls: a server, or the node that it names.
    pub(super) async fn admits(self: &Arc<Self>, call: &Call) -> bool {
        self.is_server(call) || self.knows(call).await
    }

    /// Whether a call is from the node that it names. Every caller may have that looked up, so it
    /// is done beside the line of those that proved it.
    pub(super) async fn knows(self: &Arc<Self>, call: &Call) -> bool {
        if call.node.is_empty() {
            return false;
        }
        // Nodes that have proved their identity do not wait in the line of strangers.
        let is_known = self.proven.lock().contains_key(&call.node);
        let (endpoints, token, id) = (self.clone(), call.token.clone(), call.node.clone());
        let proves = move || endpoints.prove(&token, &id);
        let proved = match is_known {
            true => read_apart_from_api(proves).await,
            false => admitting(proves).await,
        };
        proved.is_ok_and(|proved| matches!(proved, Ok(Proof::Proved)))
    }

    /// What a caller is called where calls are counted: a node only once it has proved that it is
    /// (AUTH-07). None where callers are not distinguished.
    pub(super) fn label(&self, call: &Call) -> Option<String> {
        let config = self.server.configured();
        if !config.acl.enabled || config.telemetry.disable_rpc_rate_metrics_labels {
            return None;
        }
        Some(self.identity(call).label())
    }

    /// Counts a call against what its caller and the caller's address may make; those of
    /// [`UNCOUNTED`] are counted against nothing.
    pub(super) async fn within(
        self: &Arc<Self>,
        rates: &Rates,
        name: &str,
        call: &Call,
    ) -> Result<(), Refusal> {
        if !rates.are_set() || UNCOUNTED.contains(&name) {
            return Ok(());
        }
        let for_others = FOR_OTHERS.contains(&name);
        let who = self.identity(call).known_as();
        let who = who.map(|who| match for_others {
            true => format!("{who} for others"),
            false => who,
        });
        rates.take(&Asking {
            identity: who.as_deref(),
            proved: who.is_some() && !for_others,
            address: address(call),
            behind: None,
            namespace: None,
        })
    }

    /// Writes down that a call is denied, as a request that is (AUTH-11: without what it gave); of
    /// strangers only so many.
    pub(super) async fn denied(
        self: &Arc<Self>,
        name: &str,
        call: &Call,
        error: Refusal,
    ) -> Refusal {
        if call.noted.is_noted() {
            return error;
        }
        let (log, from) = (&self.server.requests, address(call));
        let who = self.identity(call);
        let space = who.known_as().is_some() || log.has_capacity_for_stranger(from);
        let written = match space {
            true => {
                let record = denial(name, who.actor);
                log.denied(record, crate::net::status(error.code)).await
            }
            false => log.leave_out(from),
        };
        match written {
            Ok(()) => error,
            Err(why) => requests::unwritten(why),
        }
    }

    /// Who calls, as far as that was found out already: nothing is read for it.
    fn identity(&self, call: &Call) -> Identity {
        if let Some(found) = call.found.get() {
            return found.clone();
        }
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

    /// Authorizes another server, for which a part of this one acts; `None` where the caller is no
    /// server.
    pub(super) fn authorize_server(&self, call: &Call, part: &str) -> Option<Allowed> {
        let origin = || Allowed(self.server.origin(part));
        self.is_server(call).then(origin)
    }

    /// Who calls: the one step that finds it out, for every method (AUTH-01). It refuses nothing. A
    /// node that proves that it is one is it; every other caller is what its token is.
    pub(super) async fn authenticate(self: &Arc<Self>, call: &Call) -> Result<Identity, Refusal> {
        let gate = &self.server.gate;
        let mut identity = match self.knows(call).await {
            true => Identity::node(&call.node, &call.addr),
            false => {
                let token = Some(call.token.as_str()).filter(|token| !token.is_empty());
                gate.authenticate_again(token, &call.addr, &call.verified)
                    .await?
            }
        };
        if !gate.is_guarded() {
            identity.acl = Arc::new(Acl::management());
        }
        identity.certificate.clone_from(&call.certificate);
        call.found.keep(&identity);
        Ok(identity)
    }

    /// Checks of a caller what a method requires of all its callers.
    pub(super) async fn admit(
        self: &Arc<Self>,
        access: Access,
        call: &Call,
    ) -> Result<(), Refusal> {
        let may = match access {
            // Which node they are about stands in the request: the handler checks.
            Access::NodeOrToken | Access::NodeOr(_) | Access::Token(_) => true,
            Access::Public | Access::NewNode => true,
            // A node that is gone has nothing to prove itself by: it is answered so.
            Access::NodeOrGone if is_found(call) => true,
            Access::NodeOrGone => !matches!(self.proof(call, &call.node).await?, Proof::Wrong),
            Access::Node if is_found(call) => true,
            Access::Node => matches!(self.proof(call, &call.node).await?, Proof::Proved),
            Access::Agent => self.admits(call).await,
            Access::Management => {
                let who = self.authenticate(call).await?;
                who.accepted()?;
                who.is_management()
            }
            Access::Peer => self.is_server(call),
            // Sessions that servers open end at clients.
            Access::Server => false,
        };
        match may {
            true => Ok(()),
            false => Err(Refusal::permission_denied()),
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
