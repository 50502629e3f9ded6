//! Policies, tokens and roles.
//!
//! A caller that may do everything sees all of them. Every other caller sees the policies and roles
//! that the token in use holds, and that token alone. While ACLs are off there is none of it.

pub(in crate::http) mod bootstrap;
pub(in crate::http) mod one_time;
pub(in crate::http) mod policies;
pub(in crate::http) mod roles;
pub(in crate::http) mod tokens;

#[cfg(test)]
mod acl_test;

use std::collections::BTreeSet;

use drover_events::acl::{SealedSecret, SealedToken};
use drover_events::model::AclToken;
use drover_projections::query::acl::{policy_names_of_token, roles_of_token, shown_token};
use drover_projections::tables::acl_tokens::secret_hash;
use drover_projections::tables::auth_methods::AuthMethods;
use drover_projections::tables::binding_rules::BindingRules;
use drover_projections::{StorageError, Table as _, View};

use super::absent;
use super::answer::Answer;
use super::front::Read;
use super::gate::Write;
use super::list::storage;
use super::state::Api;
use crate::error::Refusal;
use crate::keyring::{Keyring, KeyringError};

/// The policy of callers that give no token.
const ANONYMOUS: &str = "anonymous";
/// How long a write waits for the cluster's first key.
const FIRST_KEY: std::time::Duration = std::time::Duration::from_secs(5);

/// Refuses while ACLs are off.
fn enabled(api: &Api) -> Result<(), Refusal> {
    match api.gate.is_guarded() {
        true => Ok(()),
        false => Err(Refusal::bad_request("ACL support disabled")),
    }
}

/// Routes of signing in by other services, which this version has not.
pub(in crate::http) const SIGN_IN: [&str; 8] = [
    "/v1/acl/auth-method",
    "/v1/acl/auth-method/{name}",
    "/v1/acl/binding-rule",
    "/v1/acl/binding-rule/{id}",
    "/v1/acl/oidc/auth-url",
    "/v1/acl/oidc/complete-auth",
    "/v1/acl/login",
    "/v1/acl/identity/client-introduction-token",
];

/// One of them.
pub(in crate::http) async fn sign_in(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let advice = "PUT /v1/acl/token makes tokens, and nodes join with a secret of their own";
    absent::not_built(write, advice).await
}

/// `GET /v1/acl/auth-methods`: none.
pub(in crate::http) fn auth_methods(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    absent::empty(read, AuthMethods::ID)
}

/// `GET /v1/acl/binding-rules`: none.
pub(in crate::http) fn binding_rules(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    absent::empty(read, BindingRules::ID)
}

/// The names of the policies that the caller holds.
fn held_policies(read: &Read<'_>) -> Result<BTreeSet<String>, Refusal> {
    match read.identity.token.as_deref() {
        // Those of now, whenever the rows are of.
        Some(token) => policy_names_of_token(&read.api.projections.view(), token).map_err(storage),
        // Those that are attached to its job.
        None if read.identity.claim.is_some() => {
            Ok(read.identity.actor.policies.iter().cloned().collect())
        }
        None => Ok([ANONYMOUS.to_owned()].into()),
    }
}

/// The ids of the roles that the caller holds.
fn held_roles(read: &Read<'_>) -> Result<BTreeSet<String>, Refusal> {
    let Some(token) = read.identity.token.as_deref() else {
        return Ok(BTreeSet::new());
    };
    let roles = roles_of_token(&read.api.projections.view(), token).map_err(storage)?;
    Ok(roles.iter().map(|role| role.id.clone()).collect())
}

/// A token as a caller that may read it sees it: its roles as they are now, and its secret. Where
/// the key of the secret is gone the rest is shown all the same.
fn shown(view: &View, keyring: &Keyring, sealed: &SealedToken) -> Result<AclToken, StorageError> {
    let mut token = shown_token(view, &sealed.token)?;
    match keyring.open_secret(&token.accessor_id, &sealed.secret) {
        Ok(secret) => token.secret_id.clone_from(&secret),
        Err(error) => {
            let accessor = token.accessor_id.as_str();
            tracing::warn!(accessor, %error, "the secret of a token cannot be shown");
        }
    }
    Ok(token)
}

/// A new token's accessor, its secret, and the secret as it is stored.
struct Fresh {
    accessor: String,
    secret: String,
    sealed: SealedSecret,
}

impl Fresh {
    /// With these. A new cluster has a key a moment after it has a leader.
    async fn with(api: &Api, accessor: String, secret: String) -> Result<Fresh, Refusal> {
        let _ = tokio::time::timeout(FIRST_KEY, api.keyring.wait_active()).await;
        let hash = secret_hash(&secret);
        let sealed = api.keyring.seal_secret(&accessor, &secret, hash);
        Ok(Fresh {
            sealed: sealed.map_err(|error: KeyringError| Refusal::internal(error.to_string()))?,
            accessor,
            secret,
        })
    }
}
