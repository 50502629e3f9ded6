//! Who holds what: policies, tokens and roles, as they are now. Links that lead nowhere any more
//! are left out, whatever the stored rows still hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_events::acl::SealedToken;
use drover_events::model::{AclPolicy, AclRole, AclToken, AclTokenRoleLink, OneTimeToken};

use super::Found;
use crate::engine::key::Id;
use crate::engine::scan::Scan;
use crate::engine::txn::Read;
use crate::tables::acl_policies::{AclPolicies, AclPoliciesByJob};
use crate::tables::acl_roles::{AclRoles, AclRolesByName};
use crate::tables::acl_tokens::AclTokensBySecret;
use crate::tables::one_time_tokens::OneTimeTokensBySecret;

/// Why a token is refused whose secret is another's.
pub const SECRET_TAKEN: &str = "a token with this secret exists already";

/// The token with this hash of a secret; also one that has expired.
pub fn token_by_hash(from: &impl Read, hash: &str) -> Found<Option<Arc<SealedToken>>> {
    if hash.is_empty() {
        return Ok(None);
    }
    let mut rows = from.rows_by::<AclTokensBySecret>(Scan::group::<Id>(hash));
    rows.next().transpose()
}

/// The token with this hash of a secret, also one that has expired; its own secret is empty.
///
/// # Errors
/// Those of the database.
pub fn by_secret(from: &impl Read, hash: &str) -> Found<Option<AclToken>> {
    let found = token_by_hash(from, hash)?;
    Ok(found.map(|found| found.token.clone()))
}

/// The one-time token with this hash of a secret; also one that has expired.
pub fn one_time_token_by_hash(from: &impl Read, hash: &str) -> Found<Option<Arc<OneTimeToken>>> {
    if hash.is_empty() {
        return Ok(None);
    }
    let mut rows = from.rows_by::<OneTimeTokensBySecret>(Scan::group::<Id>(hash));
    rows.next().transpose()
}

/// The role with this name.
pub fn role_by_name(from: &impl Read, name: &str) -> Found<Option<Arc<AclRole>>> {
    let mut rows = from.rows_by::<AclRolesByName>(Scan::group::<String>(name));
    rows.next().transpose()
}

/// The roles a token is linked to that there still are.
pub fn roles_of_token(from: &impl Read, token: &AclToken) -> Found<Vec<Arc<AclRole>>> {
    let mut roles = Vec::with_capacity(token.roles.len());
    for link in token.roles.iter() {
        roles.extend(from.row::<AclRoles>(link.id.as_str())?);
    }
    Ok(roles)
}

/// The names of the policies a token holds, by itself and by its roles (ACL-01); some may not be
/// there.
pub fn policy_names_of_token(from: &impl Read, token: &AclToken) -> Found<BTreeSet<String>> {
    let mut names: BTreeSet<String> = token.policies.iter().cloned().collect();
    for role in roles_of_token(from, token)? {
        names.extend(role.policies.iter().map(|link| link.name.clone()));
    }
    Ok(names)
}

/// The policies that are attached to a job, or to a part of it (ACL-15).
pub fn policies_of_job(from: &impl Read, job: super::JobKey<'_>) -> Found<Vec<Arc<AclPolicy>>> {
    let scan = Scan::group::<(String, String)>(job);
    from.rows_by::<AclPoliciesByJob>(scan).collect()
}

/// A token as it is shown: each role with the name it has now, none that is gone (ACL-05). Its
/// secret is empty.
pub fn shown_token(from: &impl Read, token: &AclToken) -> Found<AclToken> {
    let mut shown = token.clone();
    if !shown.roles.is_nil() {
        let links = roles_of_token(from, token)?.into_iter();
        let links = links.map(|role| AclTokenRoleLink {
            id: role.id.clone(),
            name: role.name.clone(),
        });
        shown.roles = links.collect::<Vec<_>>().into();
    }
    Ok(shown)
}

/// A role as it is shown: without policies that are gone.
pub fn shown_role(from: &impl Read, role: &AclRole) -> Found<AclRole> {
    let mut shown = role.clone();
    let mut kept = Vec::with_capacity(role.policies.len());
    for link in role.policies.iter() {
        if from.row::<AclPolicies>(link.name.as_str())?.is_some() {
            kept.push(link.clone());
        }
    }
    if !shown.policies.is_nil() {
        shown.policies = kept.into();
    }
    Ok(shown)
}
