//! `scaling_events`: what was recorded of a job's scaling, the last few of each group.

use drover_events::gojson::{List, Map};
use drover_events::model::ScalingEvent;

use crate::engine::table::Table;

/// The table; its key is (namespace, job id).
pub struct ScalingEvents;

drover_events::wire! {
    /// The events of a job's groups, newest first.
    pub struct JobScalingEvents {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        scaling_events: Map<List<ScalingEvent>> = "ScalingEvents",
        modify_index: u64 = "ModifyIndex",
    }
}

impl Table for ScalingEvents {
    const ID: u16 = 32;
    const NAME: &'static str = "scaling_events";
    type Key = (String, String);
    type Row = JobScalingEvents;

    fn key(row: &JobScalingEvents) -> (String, String) {
        (row.namespace.clone(), row.job_id.clone())
    }
}
