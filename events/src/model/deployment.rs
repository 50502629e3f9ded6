//! Deployments: a new version of a job taking over.

use crate::gojson::{List, Map, Time};

crate::wire! {
    /// A deployment of a job's version.
    pub struct Deployment {
        id: String = "ID",
        namespace: String = "Namespace",
        job_id: String = "JobID",
        job_version: u64 = "JobVersion",
        job_modify_index: u64 = "JobModifyIndex",
        job_spec_modify_index: u64 = "JobSpecModifyIndex",
        job_create_index: u64 = "JobCreateIndex",
        is_multiregion: bool = "IsMultiregion",
        task_groups: Map<DeploymentState> = "TaskGroups",
        status: String = "Status",
        status_description: String = "StatusDescription",
        eval_priority: i64 = "EvalPriority",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        create_time: i64 = "CreateTime",
        modify_time: i64 = "ModifyTime",
    }
}

crate::wire! {
    /// A deployment's state for one group.
    pub struct DeploymentState {
        auto_revert: bool = "AutoRevert",
        auto_promote: bool = "AutoPromote",
        progress_deadline: i64 = "ProgressDeadline",
        require_progress_by: Time = "RequireProgressBy",
        promoted: bool = "Promoted",
        placed_canaries: List<String> = "PlacedCanaries",
        desired_canaries: i64 = "DesiredCanaries",
        desired_total: i64 = "DesiredTotal",
        placed_allocs: i64 = "PlacedAllocs",
        healthy_allocs: i64 = "HealthyAllocs",
        unhealthy_allocs: i64 = "UnhealthyAllocs",
    }
}

crate::wire! {
    /// A new status for a deployment.
    pub struct DeploymentStatusUpdate {
        deployment_id: String = "DeploymentID",
        status: String = "Status",
        status_description: String = "StatusDescription",
        updated_at: i64 = "UpdatedAt",
    }
}
