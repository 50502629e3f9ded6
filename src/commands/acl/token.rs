//! Commands about tokens.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_error::{Code, Refusal};
use drover_events::acl::*;
use drover_events::gojson::{Base64, DurationTextOrEmpty, GoTime, List, format_duration};
use drover_events::model::status::TokenType;
use drover_events::model::{AclToken, AclTokenRoleLink};
use drover_projections::View;
use drover_projections::query::acl::{SECRET_TAKEN, role_by_name, sealed_token_by_hash};
use drover_projections::tables::acl_roles::AclRoles;
use drover_projections::tables::acl_tokens::AclTokens;
use serde_json::json;

use super::{MAX_TEXT, content_hash, reject_invalid, require_acl_support};
use crate::{Command, Decision, Stamp};

/// The most policies or roles of a token.
const MAX_LINKS: usize = 1_000;

/// How long a token that expires may live.
#[derive(Clone, Copy, Debug)]
pub struct TtlBounds {
    /// At least.
    pub min: Duration,
    /// At most.
    pub max: Duration,
}

/// A token is created. Its secret is encrypted before there is a command.
#[derive(Clone, Debug)]
pub struct CreateAclToken {
    /// The token, with an accessor made for it.
    pub token: AclToken,
    pub secret: SealedSecret,
    /// How long it may live.
    pub ttl: TtlBounds,
}

impl Command for CreateAclToken {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        let mut token = self.token.clone();
        token.secret_id.clear();
        token.create_time = GoTime(stamp.now);
        let ttl = token.expiration_ttl.0;
        if ttl > 0 {
            token.expiration_time = Some(GoTime(stamp.now.saturating_add(ttl)));
        }
        token.expiration_time.take_if(|time| time.0 == 0);
        link(view, &mut token)?;
        let mut wrong = validation_errors(&token);
        wrong.extend(wrong_life(&token, self.ttl));
        reject_invalid("token 0", &wrong)?;
        let guard = view.guard::<AclTokens>(token.accessor_id.as_str())?;
        if view.contains::<AclTokens>(token.accessor_id.as_str())? {
            let text = "a token with this accessor exists already";
            return Err(Refusal::new(Code::Conflict, text));
        }
        if sealed_token_by_hash(view, &self.secret.hash)?.is_some() {
            return Err(Refusal::new(Code::Conflict, SECRET_TAKEN));
        }
        set_content_hash(&mut token);
        let tokens = vec![SealedToken {
            token,
            secret: self.secret.clone(),
        }];
        Ok(Decision::guarded(AclTokensUpserted { tokens }, vec![guard]))
    }
}

/// A token is changed: its name, its type, its policies and its roles.
#[derive(Clone, Debug)]
pub struct UpdateAclToken {
    /// The token as it is to be. Fields that may not change are empty, or as they were.
    pub token: AclToken,
    /// The hash of the secret that was given with it; empty for none.
    pub secret_hash: String,
}

impl Command for UpdateAclToken {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        let accessor = self.token.accessor_id.as_str();
        let Some(known) = view.get::<AclTokens>(accessor)? else {
            let text = format!("cannot find token {accessor}");
            return Err(Refusal::not_found(text));
        };
        let mut token = self.token.clone();
        token.secret_id.clear();
        token.create_time = known.token.create_time;
        link(view, &mut token)?;
        let mut wrong = validation_errors(&token);
        wrong.extend(wrong_change(&known, self));
        reject_invalid("token 0", &wrong)?;
        token.expiration_time = known.token.expiration_time;
        token.expiration_ttl = known.token.expiration_ttl;
        set_content_hash(&mut token);
        let guard = view.guard::<AclTokens>(accessor)?;
        let tokens = vec![SealedToken {
            token,
            secret: known.secret,
        }];
        Ok(Decision::guarded(AclTokensUpserted { tokens }, vec![guard]))
    }
}

/// Resolves links to roles, given by id or by name, to ids, and leaves out what is there twice
/// (ACL-02, ACL-03); a role that does not exist is refused (ACL-04). A name is not kept: it may
/// change.
fn link(view: &View, token: &mut AclToken) -> Result<(), Refusal> {
    if token.policies.len() > MAX_LINKS || token.roles.len() > MAX_LINKS {
        let text = format!("a token has at most {MAX_LINKS} policies and as many roles");
        return Err(Refusal::bad_request(text));
    }
    let mut seen = BTreeSet::new();
    if !token.policies.is_nil() {
        let policies = std::mem::take(&mut token.policies).into_vec().into_iter();
        let policies: Vec<String> = policies.filter(|name| seen.insert(name.clone())).collect();
        token.policies = List::from(policies);
    }
    if token.roles.is_nil() {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    let mut roles = Vec::new();
    for link in std::mem::take(&mut token.roles).into_vec() {
        let id = match (link.id.as_str(), link.name.as_str()) {
            ("", name) => {
                let role = role_by_name(view, name)?;
                role.map(|role| role.id.clone())
                    .ok_or_else(|| unknown(name))?
            }
            (id, _) if view.contains::<AclRoles>(id)? => id.to_owned(),
            (id, _) => return Err(unknown(id)),
        };
        if seen.insert(id.clone()) {
            let name = String::new();
            roles.push(AclTokenRoleLink { id, name });
        }
    }
    token.roles = List::from(roles);
    Ok(())
}

fn unknown(role: &str) -> Refusal {
    Refusal::bad_request(format!("cannot find role {role}"))
}

fn validation_errors(token: &AclToken) -> Vec<String> {
    let mut wrong = Vec::new();
    if token.name.len() > MAX_TEXT {
        wrong.push("token name too long".to_owned());
    }
    let holds = !token.policies.is_empty() || !token.roles.is_empty();
    let text = match TokenType::of(&token.r#type) {
        Some(TokenType::Client) if !holds => "client token missing policies or roles",
        Some(TokenType::Management) if holds => {
            "management token cannot be associated with policies or roles"
        }
        Some(TokenType::Client | TokenType::Management) => "",
        None => "token type must be client or management",
    };
    if !text.is_empty() {
        wrong.push(text.to_owned());
    }
    wrong
}

fn wrong_life(token: &AclToken, bounds: TtlBounds) -> Option<String> {
    let ttl = token.expiration_ttl.0;
    if ttl < 0 {
        let text = format_duration(ttl);
        return Some(format!(
            "token expiration TTL '{text}' should not be negative"
        ));
    }
    let life = token.expiration_time?.0.saturating_sub(token.create_time.0);
    let nanos = |bound: Duration| i64::try_from(bound.as_nanos()).unwrap_or(i64::MAX);
    let (min, max) = (nanos(bounds.min), nanos(bounds.max));
    if life < 0 {
        Some("expiration time cannot be before create time".to_owned())
    } else if life > max {
        Some(format!(
            "expiration time cannot be more than {} in the future (was {})",
            format_duration(max),
            format_duration(life)
        ))
    } else if life < min {
        Some(format!(
            "expiration time cannot be less than {} in the future (was {})",
            format_duration(min),
            format_duration(life)
        ))
    } else {
        None
    }
}

/// What an update changes that stays as it is for ever. What is empty is not set.
fn wrong_change(known: &SealedToken, update: &UpdateAclToken) -> Vec<String> {
    let (had, token) = (&known.token, &update.token);
    let ttl = token.expiration_ttl;
    let time = token.expiration_time.filter(|time| time.0 != 0);
    let created = token.create_time;
    [
        (had.global != token.global, "cannot toggle global mode"),
        (
            ttl != DurationTextOrEmpty::default() && ttl != had.expiration_ttl,
            "cannot update expiration TTL",
        ),
        (
            time.is_some() && time != had.expiration_time,
            "cannot update expiration time",
        ),
        (
            created != GoTime::default() && created != had.create_time,
            "cannot update create time",
        ),
        (
            !update.secret_hash.is_empty() && update.secret_hash != known.secret.hash,
            "cannot update secret ID",
        ),
    ]
    .into_iter()
    .filter(|(wrong, _)| *wrong)
    .map(|(_, text)| text.to_owned())
    .collect()
}

/// Gives the token its hash, and takes away what apply sets.
pub(super) fn set_content_hash(token: &mut AclToken) {
    token.create_index = 0;
    token.modify_index = 0;
    token.hash = Base64::default();
    token.hash = content_hash(&json!([
        "acl token",
        token.name,
        token.r#type,
        token.global,
        token.policies,
        token.roles,
    ]));
}

/// Tokens are removed, all global or all local.
#[derive(Clone, Debug)]
pub struct DeleteAclTokens {
    /// Their accessors.
    pub accessor_ids: Vec<String>,
    /// Only those that had expired by then (Unix nanoseconds), whatever other tokens are named; 0:
    /// all. A token that does not exist is then no error.
    pub expired_by: i64,
}

impl DeleteAclTokens {
    /// Those named that had expired by then.
    fn expired(&self, view: &View) -> Result<Vec<String>, Refusal> {
        let mut gone = Vec::new();
        for accessor in &self.accessor_ids {
            let known = view.get::<AclTokens>(accessor.as_str())?;
            let expires = known.and_then(|known| known.token.expiration_time);
            if expires.is_some_and(|time| time.0 <= self.expired_by) {
                gone.push(accessor.clone());
            }
        }
        Ok(gone)
    }
}

impl Command for DeleteAclTokens {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        if self.expired_by != 0 {
            let accessor_ids = self.expired(view)?;
            return Ok(match accessor_ids.is_empty() {
                true => Decision::Nothing(drover_projections::Reply::Count(0)),
                false => Decision::unguarded(AclTokensDeleted { accessor_ids }),
            });
        }
        if self.accessor_ids.is_empty() {
            return Err(Refusal::bad_request("must specify as least one token"));
        }
        let mut missing = Vec::new();
        let mut global = BTreeSet::new();
        for accessor in &self.accessor_ids {
            match view.get::<AclTokens>(accessor.as_str())? {
                Some(known) => {
                    global.insert(known.token.global);
                }
                None => missing.push(accessor.as_str()),
            }
        }
        if !missing.is_empty() {
            let text = format!("Cannot delete nonexistent tokens: {}", missing.join(", "));
            return Err(Refusal::bad_request(text));
        }
        if global.len() > 1 {
            let text = "Cannot delete mixed global and non-global tokens";
            return Err(Refusal::bad_request(text));
        }
        let accessor_ids = self.accessor_ids.clone();
        Ok(Decision::unguarded(AclTokensDeleted { accessor_ids }))
    }
}
