//! Commands about roles.

use std::collections::BTreeSet;

use drover_error::Refusal;
use drover_events::acl::*;
use drover_events::model::{AclRole, AclRolePolicyLink};
use drover_projections::View;
use drover_projections::query::acl::role_by_name;
use drover_projections::tables::acl_policies::AclPolicies;
use drover_projections::tables::acl_roles::AclRoles;
use serde_json::json;

use super::{MAX_TEXT, content_hash, reject_invalid, require_acl_support};
use crate::support::is_name;
use crate::{Command, Decision, Stamp};

/// Creates roles that have no id and updates those that have one.
#[derive(Clone, Debug)]
pub struct UpsertAclRoles {
    pub roles: Vec<AclRole>,
    /// Whether they may name policies that do not exist, as a copy of another region's may
    /// (ACL-09).
    pub allow_missing_policies: bool,
}

impl UpsertAclRoles {
    /// The roles as they are written; what is new gets its id from the stamp.
    fn normalize(&self, view: &View, stamp: &Stamp) -> Result<Vec<AclRole>, Refusal> {
        let mut roles = self.roles.clone();
        let mut names = BTreeSet::new();
        for (n, role) in roles.iter_mut().enumerate() {
            let mut seen = BTreeSet::new();
            let links = std::mem::take(&mut role.policies).into_vec();
            let links = links.into_iter();
            let links: Vec<AclRolePolicyLink> = links
                .filter(|link| seen.insert(link.name.clone()))
                .collect();
            role.policies = links.into();
            reject_invalid(&format!("role {n}"), &validation_errors(role))?;
            if role.id.is_empty() {
                role.id = stamp.uuid(n as u64);
            } else if !view.contains::<AclRoles>(role.id.as_str())? {
                return Err(Refusal::bad_request(format!(
                    "cannot find role {}",
                    role.id
                )));
            }
            let other = role_by_name(view, &role.name)?;
            let taken = other.is_some_and(|other| other.id != role.id);
            if taken || !names.insert(role.name.clone()) {
                let text = format!("role with name {} already exists", role.name);
                return Err(Refusal::bad_request(text));
            }
            if !self.allow_missing_policies {
                policies_exist(view, role)?;
            }
            role.create_index = 0;
            role.modify_index = 0;
            role.hash = content_hash(&json!([
                "acl role",
                role.name,
                role.description,
                role.policies,
            ]));
        }
        Ok(roles)
    }
}

impl Command for UpsertAclRoles {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        if self.roles.is_empty() {
            return Err(Refusal::bad_request("must specify as least one role"));
        }
        let roles = self.normalize(view, stamp)?;
        let allow_missing_policies = self.allow_missing_policies;
        // A role that is deleted meanwhile is not to come back, with all tokens that were linked to
        // it.
        let guards = roles
            .iter()
            .map(|role| view.guard::<AclRoles>(role.id.as_str()));
        let guards = guards.collect::<Result<_, _>>()?;
        let event = AclRolesUpserted {
            roles,
            allow_missing_policies,
        };
        Ok(Decision::guarded(event, guards))
    }
}

fn policies_exist(view: &View, role: &AclRole) -> Result<(), Refusal> {
    for link in role.policies.iter() {
        if !view.contains::<AclPolicies>(link.name.as_str())? {
            let text = format!("cannot find policy {}", link.name);
            return Err(Refusal::bad_request(text));
        }
    }
    Ok(())
}

fn validation_errors(role: &AclRole) -> Vec<String> {
    let mut errors = Vec::new();
    if !is_name(&role.name, &[]) {
        errors.push(format!("invalid name '{}'", role.name));
    }
    if role.description.len() > MAX_TEXT {
        errors.push(format!("description longer than {MAX_TEXT}"));
    }
    if role.policies.is_empty() {
        errors.push("at least one policy should be specified".to_owned());
    }
    errors
}

/// Roles are removed.
#[derive(Clone, Debug)]
pub struct DeleteAclRoles {
    /// Their ids.
    pub ids: Vec<String>,
}

impl Command for DeleteAclRoles {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        if self.ids.is_empty() {
            return Err(Refusal::bad_request("must specify as least one role"));
        }
        for id in &self.ids {
            if !view.contains::<AclRoles>(id.as_str())? {
                return Err(Refusal::not_found("ACL role not found"));
            }
        }
        let ids = self.ids.clone();
        Ok(Decision::unguarded(AclRolesDeleted { ids }))
    }
}
