//! Policies, tokens and roles. What links rest on is checked here again: a role may be gone since
//! the decision (ACL-04), or a policy (ACL-09).

use drover_events::acl::*;
use drover_events::model::AclToken;

use super::ApplyResult;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::query::acl::{SECRET_TAKEN, role_by_name, sealed_token_by_hash};
use crate::tables::acl_policies::AclPolicies;
use crate::tables::acl_roles::AclRoles;
use crate::tables::acl_tokens::AclTokens;
use crate::tables::cluster_meta::ClusterMetaTable;
use crate::tables::one_time_tokens::{OneTimeTokens, OneTimeTokensByExpiration};

/// How many one-time tokens one event removes at most because they ran out, the oldest first.
pub const EXPIRED_PAGE: usize = 1_000;

/// Policies are created or changed.
pub(super) fn policies_upserted(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &AclPoliciesUpserted,
) -> ApplyResult {
    for policy in &ev.policies {
        let known = txn.get::<AclPolicies>(policy.name.as_str())?;
        let mut row = policy.clone();
        row.create_index = known.map_or(ctx.index, |known| known.create_index);
        row.modify_index = ctx.index;
        txn.put::<AclPolicies>(row)?;
    }
    Ok(Reply::None)
}

/// Policies go. Tokens and roles that name one keep the name, which grants nothing.
pub(super) fn policies_deleted(
    txn: &mut Txn<'_>,
    _ctx: &Ctx,
    ev: &AclPoliciesDeleted,
) -> ApplyResult {
    for name in &ev.names {
        txn.delete::<AclPolicies>(name.as_str())?;
    }
    Ok(Reply::None)
}

/// Roles are created or changed; one that is unchanged is not written.
pub(super) fn roles_upserted(txn: &mut Txn<'_>, ctx: &Ctx, ev: &AclRolesUpserted) -> ApplyResult {
    for role in &ev.roles {
        if let Some(other) = role_by_name(txn, &role.name)?
            && other.id != role.id
        {
            return Err(Refused::because(format!(
                "role with name {} already exists",
                role.name
            )));
        }
        for link in role.policies.iter() {
            if !ev.allow_missing_policies && !txn.exists::<AclPolicies>(link.name.as_str())? {
                return Err(Refused::because(format!(
                    "cannot find policy {}",
                    link.name
                )));
            }
        }
        let mut row = role.clone();
        row.create_index = ctx.index;
        if let Some(known) = txn.get::<AclRoles>(role.id.as_str())? {
            row.create_index = known.create_index;
            row.modify_index = known.modify_index;
            if row == *known {
                continue;
            }
        }
        row.modify_index = ctx.index;
        txn.put::<AclRoles>(row)?;
    }
    Ok(Reply::None)
}

/// Roles go. Tokens that are linked to one keep the link, which grants nothing (ACL-06).
pub(super) fn roles_deleted(txn: &mut Txn<'_>, _ctx: &Ctx, ev: &AclRolesDeleted) -> ApplyResult {
    for id in &ev.ids {
        if !txn.delete::<AclRoles>(id.as_str())? {
            return Err(Refused::because("ACL role not found"));
        }
    }
    Ok(Reply::None)
}

/// Tokens are created or changed. A token's secret never changes.
pub(super) fn tokens_upserted(txn: &mut Txn<'_>, ctx: &Ctx, ev: &AclTokensUpserted) -> ApplyResult {
    for sealed in &ev.tokens {
        check_roles(txn, &sealed.token)?;
        put_token(txn, ctx, sealed)?;
    }
    Ok(Reply::None)
}

fn check_roles(txn: &Txn<'_>, token: &AclToken) -> Result<(), Refused> {
    for link in token.roles.iter() {
        if !txn.exists::<AclRoles>(link.id.as_str())? {
            return Err(Refused::because(format!("cannot find role {}", link.id)));
        }
    }
    Ok(())
}

fn put_token(txn: &mut Txn<'_>, ctx: &Ctx, sealed: &SealedToken) -> Result<(), Refused> {
    let mut row = sealed.clone();
    row.token.secret_id.clear();
    row.token.create_index = ctx.index;
    row.token.modify_index = ctx.index;
    if let Some(known) = txn.get::<AclTokens>(row.token.accessor_id.as_str())? {
        row.token.create_index = known.token.create_index;
        row.token.create_time = known.token.create_time;
        row.secret = known.secret.clone();
    } else if sealed_token_by_hash(txn, &row.secret.hash)?.is_some() {
        return Err(Refused::because(SECRET_TAKEN));
    }
    txn.put::<AclTokens>(row)?;
    Ok(())
}

/// Tokens go, and the one-time tokens that stand for them.
pub(super) fn tokens_deleted(txn: &mut Txn<'_>, _ctx: &Ctx, ev: &AclTokensDeleted) -> ApplyResult {
    for accessor in &ev.accessor_ids {
        if !txn.delete::<AclTokens>(accessor.as_str())? {
            return Err(Refused::because(format!(
                "Cannot delete nonexistent tokens: {accessor}"
            )));
        }
        txn.delete::<OneTimeTokens>(accessor.as_str())?;
    }
    Ok(Reply::None)
}

/// The first management token: once, and again only by the index of the last time, which an
/// operator writes into a file on the server.
pub(super) fn bootstrapped(txn: &mut Txn<'_>, ctx: &Ctx, ev: &AclBootstrapped) -> ApplyResult {
    let mut meta = txn
        .get::<ClusterMetaTable>(())?
        .as_deref()
        .cloned()
        .unwrap_or_default();
    let last = meta.acl_bootstrap_index;
    if last != 0 && last != ev.reset_index {
        return Err(Refused::because(match ev.reset_index {
            0 => format!("ACL bootstrap already done (reset index: {last})"),
            given => {
                format!("Invalid bootstrap reset index (specified {given}, reset index: {last})")
            }
        }));
    }
    put_token(txn, ctx, &ev.token)?;
    meta.acl_bootstrap_index = ctx.index;
    txn.put::<ClusterMetaTable>(meta)?;
    Ok(Reply::None)
}

/// A one-time token is issued, in the place of one that the same token had.
pub(super) fn one_time_upserted(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &OneTimeTokensUpserted,
) -> ApplyResult {
    if !txn.exists::<AclTokens>(ev.token.accessor_id.as_str())? {
        return Err(Refused::because("ACL token not found"));
    }
    let mut row = ev.token.clone();
    row.one_time_secret_id.clone_from(&ev.secret.hash);
    row.create_index = ctx.index;
    row.modify_index = ctx.index;
    txn.put::<OneTimeTokens>(row)?;
    Ok(Reply::None)
}

/// One-time tokens are used up. Of two that use one up, only the first does.
pub(super) fn one_time_deleted(
    txn: &mut Txn<'_>,
    _ctx: &Ctx,
    ev: &OneTimeTokensDeleted,
) -> ApplyResult {
    for accessor in &ev.accessor_ids {
        if !txn.delete::<OneTimeTokens>(accessor.as_str())? {
            return Err(Refused::because("one-time token not found"));
        }
    }
    Ok(Reply::None)
}

/// One-time tokens that have run out go, a bounded number of them.
pub(super) fn one_time_expired(
    txn: &mut Txn<'_>,
    _ctx: &Ctx,
    ev: &OneTimeTokensExpired,
) -> ApplyResult {
    let mut gone = Vec::new();
    for row in txn.by_index::<OneTimeTokensByExpiration>(()) {
        let row = row?;
        if row.expires_at.0 > ev.timestamp || gone.len() == EXPIRED_PAGE {
            break;
        }
        gone.push(row.accessor_id.clone());
    }
    for accessor in &gone {
        txn.delete::<OneTimeTokens>(accessor.as_str())?;
    }
    Ok(Reply::Count(gone.len() as u64))
}
