//! A workload that asks: who gives what servers once signed of a task is that task for as long as
//! its allocation lives (AUTH-06). Nothing has to be renewed or taken back for that.

use std::sync::Arc;

use drover_events::model::JobAcl;
use drover_projections::query::acl::policies_of_job;
use drover_projections::tables::allocs::Allocs;
use drover_projections::{StorageError, View};

use super::resolver::{Found, Resolver, Working};
use crate::keyring::{Claims, DEFAULT_AUDIENCE, Keyring};

/// Where the variables lie that workloads may read by themselves.
const JOBS: &str = "nomad/jobs";

/// Whether this has the form of something signed (RFC 7515), which no token has.
pub(super) fn is_signed(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Who gives this at a moment, Unix nanoseconds. Nobody, where it is not signed by a key that is
/// here, was signed for somebody else's eyes, or its allocation has ended or is not there.
pub(super) fn find(
    resolver: &Resolver,
    keyring: &Keyring,
    (view, token, now): (&View, &str, i64),
) -> Result<Found, StorageError> {
    let Ok(claim) = keyring.verify(token, now) else {
        return Ok(Found::Nobody);
    };
    if !claim.aud.iter().any(|one| one == DEFAULT_AUDIENCE) {
        return Ok(Found::Nobody);
    }
    let alloc = view.get::<Allocs>(claim.nomad_allocation_id.as_str())?;
    let Some(row) = alloc.filter(|row| !row.alloc.client_terminal()) else {
        return Ok(Found::Nobody);
    };
    let group = row.alloc.task_group.as_str();
    let job = (claim.nomad_namespace.as_str(), claim.nomad_job_id.as_str());
    let attached = policies_of_job(view, job)?;
    let attached = attached.iter().filter(|policy| {
        let of = policy.job_acl.as_ref();
        of.is_some_and(|of| means(of, group, &claim.nomad_task))
    });
    let names = attached.map(|policy| policy.name.as_str()).collect();
    let own = own_paths(&claim, group);
    let (acl, policies) = resolver.of_workload(view, names, (job.0, &own))?;
    Ok(Found::Workload(Arc::new(Working {
        acl: Arc::new(acl),
        policies,
        claim: Arc::new(claim),
    })))
}

/// Whether a policy that is attached to a job is attached to this part of it.
fn means(of: &JobAcl, group: &str, task: &str) -> bool {
    let is = |named: &str, is: &str| named.is_empty() || named == is;
    is(&of.group, group) && is(&of.task, task)
}

/// The paths of the variables of all jobs, of its own, of its group and of itself (WI-08).
fn own_paths(claim: &Claims, group: &str) -> Vec<String> {
    let job = format!("{JOBS}/{}", claim.nomad_job_id);
    let group = format!("{job}/{group}");
    let task = match claim.nomad_task.as_str() {
        "" => None,
        task => Some(format!("{group}/{task}")),
    };
    let all = [Some(JOBS.to_owned()), Some(job), Some(group), task];
    all.into_iter().flatten().collect()
}
