//! Routes that this version does not have: Nomad Enterprise's, and operations that are not built.
//! All their methods answer 501, the latter with why not or what to do instead, so that no caller
//! takes silence for success. Lists of auth methods and binding rules are empty, and there is
//! neither a license nor an OIDC issuer.

use super::answer::{Answer, JSON};
use super::front::Read;
use super::gate::Write;
use super::list;
use crate::error::{Code, Refusal};

/// The empty list, at the index of its table; a broken filter is refused all the same.
pub(super) fn empty(read: &Read<'_>, table: u16) -> Result<Answer, Refusal> {
    list::filter(read.options)?;
    Ok(Answer::of(JSON, "[]".to_owned()).at(read.view.last_changed_at(table)))
}

/// A route of Nomad Enterprise, by any method.
pub(super) async fn enterprise(_write: Write) -> Result<Answer, Refusal> {
    let text = "Nomad Enterprise only endpoint";
    Err(Refusal::new(Code::NotImplemented, text))
}

/// `GET /v1/operator/license`: there is none.
pub(super) fn license(_read: &Read<'_>) -> Result<Answer, Refusal> {
    Ok(Answer::nothing().status(204))
}

/// `GET /.well-known/openid-configuration`: there is no issuer to name.
pub(super) fn openid(_read: &Read<'_>) -> Result<Answer, Refusal> {
    Err(Refusal::not_found("OIDC Discovery endpoint disabled"))
}

/// An operation of Nomad's that is not built, by any method; why not, or what to do instead.
pub(super) async fn not_built(write: Write, why: &'static str) -> Result<Answer, Refusal> {
    let (method, path) = (&write.request.method, &write.request.path);
    Err(unsupported(&format!("{method} {path} is"), why))
}

/// 501 for what is not built, with why not or what to do instead.
pub(super) fn unsupported(what: &str, why: &str) -> Refusal {
    let text = format!("{what} not supported by this version: {why}");
    Refusal::new(Code::NotImplemented, text)
}

/// What to do instead of naming the servers of a client.
pub(super) const SERVERS: &str =
    "the servers of a client are in its configuration (client.servers), which is read at its start";

const ONE_SERVER: &str = "there is one server";
const NO_IDENTITY: &str = "a node proves who it is with its secret, which has no term";
const KEYS: &str = "keys are neither rotated nor deleted; GET /v1/operator/keyring/keys lists them";
const SCHEDULERS: &str = "how many schedulers there are is in the configuration of a server \
     (server.num_schedulers); \
     GET /v1/agent/self shows it";

/// Routes of Nomad's that are not built, and why not or what to do instead.
pub(super) const NOT_BUILT: [(&str, &str); 12] = [
    ("/v1/client/identity", NO_IDENTITY),
    ("/v1/client/identity/renew", NO_IDENTITY),
    ("/v1/agent/join", ONE_SERVER),
    ("/v1/agent/force-leave", ONE_SERVER),
    ("/v1/agent/schedulers", SCHEDULERS),
    ("/v1/agent/schedulers/config", SCHEDULERS),
    (
        "/v1/agent/keyring/{verb}",
        "there is no gossip between servers, and so no key of it",
    ),
    ("/v1/operator/raft/peer", ONE_SERVER),
    ("/v1/operator/raft/transfer-leadership", ONE_SERVER),
    ("/v1/operator/keyring/rotate", KEYS),
    ("/v1/operator/keyring/key/{id}", KEYS),
    (
        "/v1/operator/upgrade-check/vault-workload-identity",
        "no server speaks to a Vault; GET /v1/jobs?filter= finds jobs by what they hold",
    ),
];
