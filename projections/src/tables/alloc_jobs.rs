//! `alloc_jobs`: the jobs that allocations were placed by, stored once per version; a row goes
//! with the last allocation that names it (`alloc_job_counts`).

use drover_events::model::Job;

use crate::engine::table::Table;

/// The table; its key is (namespace, id, job modify index).
pub struct AllocJobs;

impl Table for AllocJobs {
    const ID: u16 = 14;
    const NAME: &'static str = "alloc_jobs";
    type Key = (String, String, u64);
    type Row = Job;

    fn key(row: &Job) -> (String, String, u64) {
        (row.namespace.clone(), row.id.clone(), row.job_modify_index)
    }
}
