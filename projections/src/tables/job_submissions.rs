//! `job_submissions`: the source text of job versions.

use drover_events::model::JobSubmission;

use crate::engine::table::Table;

/// The table; its key is (namespace, job id, version).
pub struct JobSubmissions;

impl Table for JobSubmissions {
    const ID: u16 = 9;
    const NAME: &'static str = "job_submissions";
    type Key = (String, String, u64);
    type Row = JobSubmission;

    fn key(row: &JobSubmission) -> (String, String, u64) {
        (row.namespace.clone(), row.job_id.clone(), row.version)
    }
}
