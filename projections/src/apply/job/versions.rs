//! Versions of a job and their submitted sources: how many are kept, and which never go.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::model::{Job, JobSubmission};

use crate::engine::outcome::Refused;
use crate::engine::scan::Scan;
use crate::engine::txn::{Ctx, Txn};
use crate::tables::job_submissions::JobSubmissions;
use crate::tables::job_versions::JobVersions;
use crate::tables::jobs::Jobs;

/// How many versions are kept where the job states no number.
const TRACKED_VERSIONS: u32 = 6;

/// Every kept version of a job, the newest first.
pub(crate) fn all(txn: &Txn<'_>, (namespace, id): (&str, &str)) -> Result<Vec<Arc<Job>>, Refused> {
    let scan = Scan::with_key_prefix::<(String, String)>((namespace, id)).reverse();
    Ok(txn.scan::<JobVersions>(scan).collect::<Result<_, _>>()?)
}

/// Adds a version and drops the oldest that need not be kept: the newest, tagged ones and the
/// latest stable one stay.
pub(crate) fn add(txn: &mut Txn<'_>, job: &Job, tracked: u32) -> Result<(), Refused> {
    txn.put::<JobVersions>(job.clone())?;
    if job.version == 0 {
        // The first of its job: versions go with their job.
        return Ok(());
    }
    let key = (job.namespace.as_str(), job.id.as_str());
    let keep = if tracked == 0 {
        TRACKED_VERSIONS
    } else {
        tracked
    } as usize;
    let mut untagged = all(txn, key)?;
    untagged.retain(|version| version.version_tag.is_none());
    if let Some(stable) = untagged.iter().position(|version| version.stable)
        && stable >= keep
    {
        untagged[keep - 1..=stable].rotate_right(1);
    }
    for version in untagged.iter().skip(keep) {
        drop_version(txn, key, version.version)?;
    }
    Ok(())
}

/// Keeps the source of a version as it was submitted.
pub(crate) fn add_submission(
    txn: &mut Txn<'_>,
    job: &Job,
    submission: &JobSubmission,
) -> Result<(), Refused> {
    txn.put::<JobSubmissions>(JobSubmission {
        namespace: job.namespace.clone(),
        job_id: job.id.clone(),
        version: job.version,
        job_modify_index: job.job_modify_index,
        ..submission.clone()
    })?;
    Ok(())
}

/// Drops every version and source of a job that is purged.
pub(crate) fn drop_all(txn: &mut Txn<'_>, key: (&str, &str)) -> Result<(), Refused> {
    for version in all(txn, key)? {
        drop_version(txn, key, version.version)?;
    }
    Ok(())
}

/// Changes a kept version and, if it is the current one, the job itself. False: not kept.
pub(crate) fn change(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    (namespace, id): (&str, &str),
    version: u64,
    change: impl Fn(&mut Job),
) -> Result<bool, Refused> {
    let found = txn.update::<JobVersions>((namespace, id, version), |job| {
        change(job);
        job.modify_index = ctx.index;
    })?;
    let current = txn.get::<Jobs>((namespace, id))?;
    if current.is_some_and(|job| job.version == version) {
        txn.update::<Jobs>((namespace, id), |job| {
            change(job);
            job.modify_index = ctx.index;
        })?;
    }
    Ok(found)
}

/// The versions that carry a tag, by the tag's name.
pub(crate) fn tags(txn: &Txn<'_>, key: (&str, &str)) -> Result<BTreeMap<String, u64>, Refused> {
    let mut tags = BTreeMap::new();
    for version in all(txn, key)? {
        if let Some(tag) = &version.version_tag {
            tags.insert(tag.name.clone(), version.version);
        }
    }
    Ok(tags)
}

fn drop_version(
    txn: &mut Txn<'_>,
    (namespace, id): (&str, &str),
    version: u64,
) -> Result<(), Refused> {
    txn.delete::<JobVersions>((namespace, id, version))?;
    txn.delete::<JobSubmissions>((namespace, id, version))?;
    Ok(())
}
