//! Which tokens and roles hold which policies, as they are now. Links that lead nowhere any more
//! are left out, whatever the stored rows still hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_events::acl::SealedToken;
use drover_events::model::{AclPolicy, AclRole, AclToken, AclTokenRoleLink, OneTimeToken};

use super::QueryResult;
use crate::engine::key::Id;
use crate::engine::scan::Scan;
use crate::engine::txn::ReadRows;
use crate::tables::acl_policies::{AclPolicies, AclPoliciesByJob};
use crate::tables::acl_roles::{AclRoles, AclRolesByName};
use crate::tables::acl_tokens::AclTokensBySecret;
use crate::tables::one_time_tokens::OneTimeTokensBySecret;

/// Why a token is refused whose secret is another's.
pub const SECRET_TAKEN: &str = "a token with this secret exists already";

/// The token with this hash of a secret; also one that has expired.
pub fn sealed_token_by_hash(
    from: &impl ReadRows,
    hash: &str,
) -> QueryResult<Option<Arc<SealedToken>>> {
    if hash.is_empty() {
        return Ok(None);
    }
    let mut rows = from.rows_by::<AclTokensBySecret>(Scan::with_key_prefix::<Id>(hash));
    rows.next().transpose()
}

/// The token with this hash of a secret, also one that has expired; its `SecretID` is blank, for
/// only the hash is stored.
///
/// # Errors
/// Those of the database.
pub fn acl_token_by_hash(from: &impl ReadRows, hash: &str) -> QueryResult<Option<AclToken>> {
    let found = sealed_token_by_hash(from, hash)?;
    Ok(found.map(|found| found.token.clone()))
}

/// The one-time token with this hash of a secret; also one that has expired.
pub fn one_time_token_by_hash(
    from: &impl ReadRows,
    hash: &str,
) -> QueryResult<Option<Arc<OneTimeToken>>> {
    if hash.is_empty() {
        return Ok(None);
    }
    let mut rows = from.rows_by::<OneTimeTokensBySecret>(Scan::with_key_prefix::<Id>(hash));
    rows.next().transpose()
}

/// The role with this name.
pub fn role_by_name(from: &impl ReadRows, name: &str) -> QueryResult<Option<Arc<AclRole>>> {
    let mut rows = from.rows_by::<AclRolesByName>(Scan::with_key_prefix::<String>(name));
    rows.next().transpose()
}

/// The roles a token is linked to that there still are.
pub fn roles_of_token(from: &impl ReadRows, token: &AclToken) -> QueryResult<Vec<Arc<AclRole>>> {
    let mut roles = Vec::with_capacity(token.roles.len());
    for link in token.roles.iter() {
        roles.extend(from.row::<AclRoles>(link.id.as_str())?);
    }
    Ok(roles)
}

/// The names of the policies a token holds, by itself and by its roles (ACL-01); some may not be
/// there.
pub fn policy_names_of_token(
    from: &impl ReadRows,
    token: &AclToken,
) -> QueryResult<BTreeSet<String>> {
    let mut names: BTreeSet<String> = token.policies.iter().cloned().collect();
    for role in roles_of_token(from, token)? {
        names.extend(role.policies.iter().map(|link| link.name.clone()));
    }
    Ok(names)
}

/// The policies that are attached to a job, or to a part of it (ACL-15).
pub fn policies_of_job(
    from: &impl ReadRows,
    job: super::JobKeyRef<'_>,
) -> QueryResult<Vec<Arc<AclPolicy>>> {
    let scan = Scan::with_key_prefix::<(String, String)>(job);
    from.rows_by::<AclPoliciesByJob>(scan).collect()
}

/// A token as it is shown: each role with the name it has now, none that is gone (ACL-05). Its
/// secret is empty.
pub fn shown_token(from: &impl ReadRows, token: &AclToken) -> QueryResult<AclToken> {
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
pub fn shown_role(from: &impl ReadRows, role: &AclRole) -> QueryResult<AclRole> {
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
