//! `job_summaries`: counts of a job's allocations and children; they follow from those.

use drover_events::model::JobSummary;

use crate::engine::table::Table;

/// The table; its key is (namespace, job id).
pub struct JobSummaries;

impl Table for JobSummaries {
    const ID: u16 = 8;
    const NAME: &'static str = "job_summaries";
    type Key = (String, String);
    type Row = JobSummary;

    fn key(row: &JobSummary) -> (String, String) {
        (row.namespace.clone(), row.job_id.clone())
    }
}
