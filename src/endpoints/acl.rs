//! Access control for agents that serve requests without tables: clients query what a token is, and
//! what its roles and policies say.
//!
//! A node that has proved who it is may query all of it. Every other caller gets what the token
//! holds that it calls with.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_events::ActorKind;
use drover_events::model::{AclPolicy, AclToken};
use drover_projections::query::acl::{
    policy_names_of_token, roles_of_token, sealed_token_by_hash, shown_role, shown_token,
};
use drover_projections::tables::acl_policies::AclPolicies;
use drover_projections::tables::acl_roles::AclRoles;
use drover_projections::tables::acl_tokens::{AclTokens, secret_hash};
use drover_projections::{StorageError, View};

use super::ClientEndpoints;
use crate::error::{Code, Refusal};
use crate::identity::Identity;
use crate::keyring::Claims;
use crate::rpc::methods::{
    AclClaimPoliciesRequest, AclClaimPoliciesResponse, AclPolicySetRequest, AclPolicySetResponse,
    AclRolesByIdRequest, AclRolesByIdResponse, AclWhoAmIResponse, AuthenticatedIdentity, Empty,
    ResolveAclTokenRequest, ResolveAclTokenResponse, WorkloadClaims,
};
use crate::rpc::service::Call;
use crate::table_reads::read_apart_from_api;

/// Names or ids of one call: a token has no more.
const MOST: usize = 1_000;
/// Bytes of rules in one answer.
const MOST_RULES: usize = 8 << 20;

/// What a caller may learn.
enum TokenScope {
    /// Whatever it requests.
    All,
    /// What this token holds.
    Of(Arc<AclToken>),
}

impl TokenScope {
    /// What a caller may learn: a node and a manager everything, a caller without a token nothing.
    fn to(who: Identity) -> Result<Self, Refusal> {
        who.accepted()?;
        match who.token {
            _ if who.actor.kind == ActorKind::Node => Ok(Self::All),
            Some(_) if who.is_management() => Ok(Self::All),
            Some(token) => Ok(Self::Of(token)),
            None => Err(Refusal::permission_denied()),
        }
    }

    /// Whether every one of these is among those that the caller holds.
    fn covers(
        &self,
        requested: &[String],
        held: impl FnOnce(&AclToken) -> Result<BTreeSet<String>, StorageError>,
    ) -> Result<bool, StorageError> {
        let TokenScope::Of(token) = self else {
            return Ok(true);
        };
        let held = held(token)?;
        Ok(requested.iter().all(|name| held.contains(name)))
    }
}

impl ClientEndpoints {
    fn has_acls(&self) -> Result<(), Refusal> {
        match self.server.config.acl.enabled {
            true => Ok(()),
            false => Err(Refusal::bad_request("ACL support disabled")),
        }
    }

    /// Does the work over a view, for a caller that may learn something.
    async fn reported<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        work: impl Fn(&View, &TokenScope) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.has_acls()?;
        let reported = TokenScope::to(self.authenticate(call).await?)?;
        let view = self.server.projections.view();
        self.server.gate.knows(&view)?;
        read_apart_from_api(move || work(&view, &reported)).await?
    }
}

fn few(field: &str, count: usize) -> Result<(), Refusal> {
    if count > MOST {
        let text = format!("{field} has {count} elements; at most {MOST} are accepted at once");
        return Err(Refusal::bad_request(text));
    }
    Ok(())
}

fn demand(allowed: bool) -> Result<(), Refusal> {
    match allowed {
        true => Ok(()),
        false => Err(Refusal::permission_denied()),
    }
}

/// `ACL.ResolveToken`: the token that has a secret; it is not repeated. A caller that knows the
/// secret may know the token.
pub(super) async fn resolve_token(
    endpoints: Arc<ClientEndpoints>,
    _call: Call,
    request: ResolveAclTokenRequest,
) -> Result<ResolveAclTokenResponse, Refusal> {
    endpoints.has_acls()?;
    let find = move || {
        let view = endpoints.server.projections.view();
        endpoints.server.gate.knows(&view)?;
        let found = sealed_token_by_hash(&view, &secret_hash(&request.secret_id))?;
        let token = found.map(|found| shown_token(&view, &found.token));
        Ok(ResolveAclTokenResponse {
            token: token.transpose()?,
            index: view.table_index::<AclTokens>(),
        })
    };
    read_apart_from_api(find).await?
}

/// `ACL.GetClaimPolicies`: the workload that something was signed of, as long as it lives, and the
/// policies of its part of its job. A caller that has what was signed may know them.
pub(super) async fn get_claim_policies(
    endpoints: Arc<ClientEndpoints>,
    _call: Call,
    request: AclClaimPoliciesRequest,
) -> Result<AclClaimPoliciesResponse, Refusal> {
    endpoints.has_acls()?;
    let index = endpoints.server.projections.applied_index();
    let attested = endpoints.server.gate.attested(&request.signed).await?;
    let Some(attested) = attested else {
        return Ok(AclClaimPoliciesResponse {
            index,
            ..AclClaimPoliciesResponse::default()
        });
    };
    let policies = attested.policies.iter();
    Ok(AclClaimPoliciesResponse {
        policies: policies
            .map(|policy| (policy.name.clone(), AclPolicy::clone(policy)))
            .collect(),
        task_group: attested.task_group,
        claims: Some(attested.claim),
        index,
    })
}

/// `ACL.WhoAmI`: the caller, as every method sees it (ACL-18). It needs no right and is for finding
/// faults; no route of the HTTP API answers it (ACL-19).
pub(super) async fn who_am_i(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    Empty {}: Empty,
) -> Result<AclWhoAmIResponse, Refusal> {
    let who = endpoints.authenticate(&call).await?;
    who.accepted()?;
    let shown = who.certificate.as_ref();
    let identity = AuthenticatedIdentity {
        acl_token: who.token.as_deref().cloned(),
        claims: who.claim.as_deref().map(claims),
        client_id: match who.actor.kind {
            ActorKind::Node => who.actor.id,
            _ => String::new(),
        },
        tls_name: shown.map_or_else(String::new, |shown| shown.common_name.clone()),
        remote_ip: call.addr,
    };
    let index = endpoints.server.projections.applied_index();
    Ok(AclWhoAmIResponse { identity, index })
}

fn claims(signed: &Claims) -> WorkloadClaims {
    WorkloadClaims {
        namespace: signed.nomad_namespace.clone(),
        job_id: signed.nomad_job_id.clone(),
        allocation_id: signed.nomad_allocation_id.clone(),
        task_name: signed.nomad_task.clone(),
        service_name: signed.nomad_service.clone(),
    }
}

/// `ACL.GetPolicies`: policies by name; those that are not there are left out.
pub(super) async fn get_policies(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: AclPolicySetRequest,
) -> Result<AclPolicySetResponse, Refusal> {
    few("Names", request.names.len())?;
    let work = move |view: &View, reported: &TokenScope| {
        let held = |token: &AclToken| policy_names_of_token(view, token);
        demand(reported.covers(&request.names, held)?)?;
        let mut answer = AclPolicySetResponse {
            index: view.table_index::<AclPolicies>(),
            ..AclPolicySetResponse::default()
        };
        let mut bytes = 0;
        for name in &request.names {
            if let Some(policy) = view.get::<AclPolicies>(name.as_str())? {
                bytes += policy.rules.len();
                answer.policies.insert(name.clone(), policy);
            }
            if bytes > MOST_RULES {
                let text = format!("the policies have more than {MOST_RULES} bytes of rules");
                return Err(Refusal::new(Code::PayloadTooLarge, text));
            }
        }
        Ok(answer)
    };
    endpoints.reported(&call, work).await
}

/// `ACL.GetRolesByID`: roles by id; those that are not there are left out.
pub(super) async fn get_roles(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: AclRolesByIdRequest,
) -> Result<AclRolesByIdResponse, Refusal> {
    few("ACLRoleIDs", request.role_ids.len())?;
    let work = move |view: &View, reported: &TokenScope| {
        let held = |token: &AclToken| {
            let roles = roles_of_token(view, token)?;
            Ok(roles.iter().map(|role| role.id.clone()).collect())
        };
        demand(reported.covers(&request.role_ids, held)?)?;
        let mut answer = AclRolesByIdResponse {
            index: view.table_index::<AclRoles>(),
            ..AclRolesByIdResponse::default()
        };
        for id in &request.role_ids {
            if let Some(role) = view.get::<AclRoles>(id.as_str())? {
                answer.roles.insert(id.clone(), shown_role(view, &role)?);
            }
        }
        Ok(answer)
    };
    endpoints.reported(&call, work).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Rejection;

    #[test]
    fn a_caller_whose_token_is_not_known_yet_tries_again_and_one_without_a_token_is_denied() {
        let early = Identity::refused("10.0.0.1", Rejection::Early);
        for (who, code) in [
            (early, Code::Unavailable),
            (Identity::default(), Code::PermissionDenied),
        ] {
            let refused = TokenScope::to(who).err().expect("it is refused");
            assert_eq!(refused.code, code);
        }
    }
}
