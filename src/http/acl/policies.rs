//! Policies.

use drover_events::model::{AclPolicy, AclPolicyListStub};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::acl_policies::AclPolicies;
use drover_projections::watch::Interest;
use smallvec::SmallVec;

use super::{ANONYMOUS, enabled, held_policies};
use crate::commands::acl::{DeleteAclPolicies, UpsertAclPolicies};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{Write, demand};
use crate::http::list::{self, storage};
use crate::http::request::Request;
use crate::http::rows;
use crate::http::sight::Rows;

fn stub(policy: AclPolicy) -> AclPolicyListStub {
    AclPolicyListStub {
        name: policy.name,
        description: policy.description,
        job_acl: policy.job_acl,
        hash: policy.hash,
        create_index: policy.create_index,
        modify_index: policy.modify_index,
    }
}

/// `GET /v1/acl/policies`: all, or those that the caller holds (ACL-07).
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    if !read.identity.is_management() {
        return own(read);
    }
    let rows = read.view.rows::<AclPolicies>(rows::named(read.options));
    render(read, rows.seen_by(|acl, _| acl.is_management()))
}

/// `GET /v1/acl/policy/self`: those that the caller holds.
pub(in crate::http) fn own(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    let mut names: Vec<String> = held_policies(read)?.into_iter().collect();
    if read.options.reverse() {
        names.reverse();
    }
    let prefix = read.options.prefix();
    let names = names.into_iter().filter(|name| name.starts_with(prefix));
    let rows = names.filter_map(|name| read.view.get::<AclPolicies>(name.as_str()).transpose());
    render(read, Box::new(rows))
}

fn render(read: &Read<'_>, rows: Rows<'_, AclPolicy>) -> Result<Answer, Refusal> {
    let rows = rows.map(|row| row.map(stub));
    let token = |row: &AclPolicyListStub| PageToken::Id(row.name.clone());
    let answer = list::render(read.options, TokenKind::Id, rows, token, Ok)?;
    Ok(answer.at(read.view.table_index::<AclPolicies>()))
}

/// The row of the policy in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let name = request.segment(3)?;
    Ok([Interest::row::<AclPolicies>(name.as_str())]
        .into_iter()
        .collect())
}

/// Whether the caller holds the policy in the path; every caller may read the one of anonymous
/// callers.
pub(in crate::http) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let name = read.request.segment(3)?;
    demand(name == ANONYMOUS || held_policies(read)?.contains(&name))
}

/// `GET /v1/acl/policy/:name`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    let name = read.request.segment(3)?;
    let policy = read.view.get::<AclPolicies>(name.as_str());
    let policy = policy.map_err(storage)?;
    let policy = policy.ok_or_else(|| Refusal::not_found("ACL policy not found"))?;
    Ok(Answer::json(&policy)?.at(policy.modify_index))
}

/// `PUT /v1/acl/policy/:name`.
pub(in crate::http) async fn upsert(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let policy: AclPolicy = write.json().await?;
    if policy.name != write.request.segment(3)? {
        return Err(Refusal::bad_request(
            "ACL policy name does not match request path",
        ));
    }
    let policies = vec![policy];
    let done = write.submit(UpsertAclPolicies { policies }).await?;
    Ok(Answer::nothing().written(done.index))
}

/// `DELETE /v1/acl/policy/:name`.
pub(in crate::http) async fn delete(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let names = vec![write.request.segment(3)?];
    let done = write.submit(DeleteAclPolicies { names }).await?;
    Ok(Answer::nothing().written(done.index))
}
