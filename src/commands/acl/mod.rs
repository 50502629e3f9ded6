//! Commands about policies, roles, tokens and one-time tokens. Whether the caller may give them was
//! checked before; they carry secrets only as ciphertext (`SealedSecret`) or hash.

mod bootstrap;
mod one_time;
mod policy;
mod role;
#[cfg(test)]
mod role_test;
mod token;
#[cfg(test)]
mod token_test;

pub use bootstrap::BootstrapAcl;
pub use one_time::{
    DeleteExpiredOneTimeTokens, DeleteOneTimeTokens, ExchangeOneTimeToken, IssueOneTimeToken,
};
pub use policy::{DeleteAclPolicies, UpsertAclPolicies};
pub use role::{DeleteAclRoles, UpsertAclRoles};
pub use token::{CreateAclToken, DeleteAclTokens, TtlBounds, UpdateAclToken};

use drover_error::Refusal;
use drover_events::acl::ACL_LEVEL;
use drover_events::gojson::Base64;
use drover_projections::View;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::support::require_all_servers_support;

/// The longest description of a policy or role, and the longest name of a token.
const MAX_TEXT: usize = 256;

/// Refuses while a server may not support events about ACLs.
fn require_acl_support(view: &View) -> Result<(), Refusal> {
    require_all_servers_support(view, ACL_LEVEL, "ACLs")
}

/// The hash of what an object says, independent of its author and time.
fn content_hash(content: &Value) -> Base64 {
    Base64::from(Sha256::digest(content.to_string()).to_vec())
}

/// Refuses the object of a request where something is wrong with it: all of that in one text.
fn reject_invalid(what: &str, wrong: &[String]) -> Result<(), Refusal> {
    let (count, s) = match wrong.len() {
        0 => return Ok(()),
        1 => (1, ""),
        count => (count, "s"),
    };
    let list: String = wrong.iter().map(|one| format!("\t* {one}\n")).collect();
    let text = format!("{what} invalid: {count} error{s} occurred:\n{list}\n");
    Err(Refusal::bad_request(text))
}
