//! Scaling policies.

use drover_events::model::{ScalingPolicy, ScalingPolicyListStub};
use drover_projections::tables::scaling_policies::ScalingPolicies;
use drover_projections::watch::Interest;
use drover_projections::{Scan, Table as _};
use smallvec::SmallVec;

use super::answer::Answer;
use super::front::Read;
use super::gate::{demand, in_namespace};
use super::list::{self, storage};
use super::request::Request;
use crate::acl::{Acl, NamespaceCapability as Ns};
use crate::error::Refusal;

/// The table of the list.
pub(super) const TABLES: &[u16] = &[ScalingPolicies::ID];

/// `GET /v1/scaling/policies`.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let query = &read.request.query;
    let (job, kind) = (query.text("job"), query.text("type"));
    let namespace = read.options.namespace.as_str();
    let wanted = |policy: &ScalingPolicy| {
        let target = |name: &str| policy.target.get(name).map_or("", String::as_str);
        (namespace == "*" || target("Namespace") == namespace)
            && (job.is_empty() || target("Job") == job)
            && (kind.is_empty() || policy.r#type == kind)
            && policy.id.starts_with(read.options.prefix())
    };
    let filter = list::filter(read.options)?;
    let rows = list::of_table::<ScalingPolicies>(read, Scan::all())?;
    let rows = rows.seen_by(|acl, (_, policy)| may(acl, target(policy), Ns::ListScalingPolicies));
    let answer = list::render_whole(read.options, rows, |policy| {
        let wanted = wanted(&policy) && list::matches(filter.as_ref(), &policy)?;
        Ok(wanted.then_some(ScalingPolicyListStub {
            id: policy.id,
            enabled: policy.enabled,
            r#type: policy.r#type,
            target: policy.target,
            create_index: policy.create_index,
            modify_index: policy.modify_index,
        }))
    })?;
    // Nomad's floor, so that clients can wait for the first policy.
    let index = read.view.table_index::<ScalingPolicies>().max(1);
    Ok(answer.at(index))
}

/// Whether policies of a namespace may be seen: by a right of its own, or as what jobs say.
fn may(acl: &Acl, namespace: &str, own: Ns) -> bool {
    let as_jobs = || [Ns::ListJobs, Ns::ReadJob].map(|one| in_namespace(acl, namespace, &[one]));
    in_namespace(acl, namespace, &[own]) || as_jobs() == [true, true]
}

/// Whether any of the policies that are requested may be seen.
pub(super) fn listable(read: &Read<'_>) -> Result<(), Refusal> {
    let namespace = &read.options.namespace;
    demand(may(&read.identity.acl, namespace, Ns::ListScalingPolicies))
}

/// Whether the policy in the path may be seen. One that may not is as one that is not there, which
/// is refused here too: as soon, whether or not the request waits.
pub(super) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let acl = &read.identity.acl;
    demand(may(acl, "*", Ns::ReadScalingPolicy))?;
    let id = read.request.segment(3)?;
    let found = read.view.get::<ScalingPolicies>(id.as_str());
    let found = found.map_err(storage)?;
    match found {
        Some(policy) if may(acl, target(&policy), Ns::ReadScalingPolicy) => Ok(()),
        _ => Err(Refusal::not_found("policy not found")),
    }
}

/// The namespace of a policy's job.
fn target(policy: &ScalingPolicy) -> &str {
    policy.target.get("Namespace").map_or("", String::as_str)
}

/// The row of the policy in the path.
pub(super) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(3)?;
    let row = Interest::row::<ScalingPolicies>(id.as_str());
    Ok([row].into_iter().collect())
}

/// `GET /v1/scaling/policy/:id`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(3)?;
    let policy = read.view.get::<ScalingPolicies>(id.as_str());
    let policy = policy.map_err(storage)?;
    let policy = policy.ok_or_else(|| Refusal::not_found("policy not found"))?;
    Ok(Answer::json(&policy)?.at(policy.modify_index))
}
