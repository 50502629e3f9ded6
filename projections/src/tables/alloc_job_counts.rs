//! `alloc_job_counts`: how many allocations name a row of `alloc_jobs`.

use crate::engine::table::{History, Table};

/// The table; its key is (namespace, job id, job modify index).
pub struct AllocJobCounts;

drover_events::wire! {
    /// How many allocations were placed by this version of a job and are still there.
    pub struct AllocJobCount {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        job_modify_index: u64 = "JobModifyIndex",
        count: u64 = "Count",
        live: u64 = "Live",
    }
}

impl Table for AllocJobCounts {
    const ID: u16 = 15;
    const NAME: &'static str = "alloc_job_counts";
    type Key = (String, String, u64);
    type Row = AllocJobCount;
    const HISTORY: History = History::Derived;

    fn key(row: &AllocJobCount) -> (String, String, u64) {
        (
            row.namespace.clone(),
            row.job_id.clone(),
            row.job_modify_index,
        )
    }
}
