//! The specifications that allocations name: (namespace, job, job modify index). A row of
//! `alloc_jobs` lives as long as an allocation names it, whatever becomes of the job.

use std::sync::Arc;

use drover_events::model::Job;

use super::versions;
use crate::engine::outcome::Refused;
use crate::engine::txn::Txn;
use crate::tables::alloc_job_counts::{AllocJobCount, AllocJobCounts};
use crate::tables::alloc_jobs::AllocJobs;
use crate::tables::allocs::AllocRow;
use crate::tables::jobs::Jobs;

/// The name of a specification.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    namespace: String,
    id: String,
    index: u64,
}

impl Name {
    /// The specification that an allocation names.
    pub(crate) fn of(row: &AllocRow) -> Self {
        Self {
            namespace: row.alloc.namespace.clone(),
            id: row.alloc.job_id.clone(),
            index: row.job_modify_index,
        }
    }

    fn key(&self) -> (&str, &str, u64) {
        (&self.namespace, &self.id, self.index)
    }
}

/// The specification of this name; it gets its row if it has none.
pub(crate) fn resolve(txn: &mut Txn<'_>, name: &Name, alloc: &str) -> Result<Arc<Job>, Refused> {
    if let Some(known) = txn.get::<AllocJobs>(name.key())? {
        return Ok(known);
    }
    let Some(job) = find(txn, name)? else {
        let text = format!("attempting to upsert allocation \"{alloc}\" without a job");
        return Err(Refused::because(text));
    };
    txn.put::<AllocJobs>(Job::clone(&job))?;
    txn.put::<AllocJobCounts>(AllocJobCount {
        namespace: name.namespace.clone(),
        job_id: name.id.clone(),
        job_modify_index: name.index,
        ..AllocJobCount::default()
    })?;
    Ok(job)
}

/// Adds to the counts of a specification's allocations, of all and of those that live; one without
/// an allocation is deleted.
pub(crate) fn add_counts(
    txn: &mut Txn<'_>,
    name: &Name,
    count: i64,
    live: i64,
) -> Result<(), Refused> {
    let known = txn.get::<AllocJobCounts>(name.key())?;
    let mut row = known.as_deref().cloned().unwrap_or_default();
    row.count = row.count.saturating_add_signed(count);
    row.live = row.live.saturating_add_signed(live);
    if row.count == 0 {
        txn.delete::<AllocJobCounts>(name.key())?;
        txn.delete::<AllocJobs>(name.key())?;
    } else if count != 0 || live != 0 {
        txn.put::<AllocJobCounts>(row)?;
    }
    Ok(())
}

fn find(txn: &Txn<'_>, name: &Name) -> Result<Option<Arc<Job>>, Refused> {
    let key = (name.namespace.as_str(), name.id.as_str());
    if let Some(job) = txn.get::<Jobs>(key)?
        && job.job_modify_index == name.index
    {
        return Ok(Some(job));
    }
    let versions = versions::all(txn, key)?;
    Ok(versions
        .into_iter()
        .find(|job| job.job_modify_index == name.index))
}
