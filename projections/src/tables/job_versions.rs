//! `job_versions`: the tracked versions of every job, the current one included.

use drover_events::model::Job;

use crate::engine::table::Table;

/// The table; its key is (namespace, id, version).
pub struct JobVersions;

impl Table for JobVersions {
    const ID: u16 = 7;
    const NAME: &'static str = "job_versions";
    type Key = (String, String, u64);
    type Row = Job;

    fn key(row: &Job) -> (String, String, u64) {
        (row.namespace.clone(), row.id.clone(), row.version)
    }
}
