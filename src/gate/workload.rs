//! A workload that calls: a caller that gives what servers once signed of a task is that task for
//! as long as its allocation lives (AUTH-06). Nothing has to be renewed or taken back for that.

use std::sync::Arc;

use drover_events::model::{AclPolicy, JobAcl};
use drover_projections::query::acl::policies_of_job;
use drover_projections::tables::allocs::Allocs;
use drover_projections::{StorageError, View};

use super::resolver::{ResolvedSecret, Resolver, Working};
use crate::keyring::{Claims, DEFAULT_AUDIENCE, Keyring, Verified};

/// Where the variables lie that workloads may read by themselves.
const JOBS: &str = "nomad/jobs";

/// Whether this has the form of something signed (RFC 7515), which no token has.
#[must_use]
pub fn is_signed(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// A workload that lives, by what was signed of it.
pub struct Attested {
    /// What was signed.
    pub claim: Claims,
    /// Its allocation's group.
    pub task_group: String,
    /// The policies that are attached to its part of its job.
    pub policies: Vec<Arc<AclPolicy>>,
}

/// The workload that this was signed of, at a moment, Unix nanoseconds. None, where it is not
/// signed by a key that is here, was signed for another audience, or its allocation has ended or is
/// not there.
pub(super) fn attested(
    (keyring, verified): (&Keyring, &Verified),
    (view, token, now): (&View, &str, i64),
) -> Result<Option<Attested>, StorageError> {
    let Ok(claim) = verified.claims(keyring, token, now) else {
        return Ok(None);
    };
    if !claim.aud.iter().any(|one| one == DEFAULT_AUDIENCE) {
        return Ok(None);
    }
    let alloc = view.get::<Allocs>(claim.nomad_allocation_id.as_str())?;
    let Some(row) = alloc.filter(|row| !row.alloc.client_terminal()) else {
        return Ok(None);
    };
    let task_group = row.alloc.task_group;
    let job = (claim.nomad_namespace.as_str(), claim.nomad_job_id.as_str());
    let mut policies = policies_of_job(view, job)?;
    policies.retain(|policy| {
        let of = policy.job_acl.as_ref();
        of.is_some_and(|of| means(of, &task_group, &claim.nomad_task))
    });
    Ok(Some(Attested {
        claim,
        task_group,
        policies,
    }))
}

/// The identity of a caller that gives this at a moment, Unix nanoseconds;
/// `ResolvedSecret::Nobody`, where no workload that lives has it.
pub(super) fn find(
    resolver: &Resolver,
    keys: (&Keyring, &Verified),
    requested: (&View, &str, i64),
) -> Result<ResolvedSecret, StorageError> {
    let Some(attested) = attested(keys, requested)? else {
        return Ok(ResolvedSecret::Nobody);
    };
    let names = attested.policies.iter().map(|one| one.name.as_str());
    let own = own_paths(&attested.claim, &attested.task_group);
    let namespace = attested.claim.nomad_namespace.as_str();
    let (acl, policies) = resolver.of_workload(requested.0, names.collect(), (namespace, &own))?;
    Ok(ResolvedSecret::Workload(Arc::new(Working {
        acl: Arc::new(acl),
        policies,
        claim: Arc::new(attested.claim),
    })))
}

/// Whether a policy that is attached to a job is attached to this part of it.
fn means(of: &JobAcl, group: &str, task: &str) -> bool {
    let is = |named: &str, is: &str| named.is_empty() || named == is;
    is(&of.group, group) && is(&of.task, task)
}

/// The paths of the variables of all jobs, of its own, of its group and of itself (WI-08).
pub(super) fn own_paths(claim: &Claims, group: &str) -> Vec<String> {
    let job = format!("{JOBS}/{}", claim.nomad_job_id);
    let group = format!("{job}/{group}");
    let task = match claim.nomad_task.as_str() {
        "" => None,
        task => Some(format!("{group}/{task}")),
    };
    let all = [Some(JOBS.to_owned()), Some(job), Some(group), task];
    all.into_iter().flatten().collect()
}
