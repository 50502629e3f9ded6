//! Bodies of the jobs' statuses.

use drover_events::gojson::List;

drover_events::wire! {
    /// A job and what became of it.
    pub(in crate::http) struct JobStatusesJob {
        id: String = "ID",
        namespace: String = "Namespace",
        name: String = "Name",
        r#type: String = "Type",
        node_pool: String = "NodePool",
        datacenters: List<String> = "Datacenters",
        priority: i64 = "Priority",
        version: u64 = "Version",
        submit_time: i64 = "SubmitTime",
        modify_index: u64 = "ModifyIndex",
        allocs: List<JobStatusesAlloc> = "Allocs",
        group_count_sum: i64 = "GroupCountSum",
        child_statuses: List<String> = "ChildStatuses",
        parent_id: String = "ParentID",
        latest_deployment: Option<JobStatusesLatestDeployment> = "LatestDeployment",
        stop: bool = "Stop",
        is_pack: bool = "IsPack",
        status: String = "Status",
    }

    /// An allocation of a job.
    pub(in crate::http) struct JobStatusesAlloc {
        id: String = "ID",
        group: String = "Group",
        client_status: String = "ClientStatus",
        node_id: String = "NodeID",
        deployment_status: JobStatusesDeployment = "DeploymentStatus",
        job_version: u64 = "JobVersion",
        followup_eval_id: String = "FollowupEvalID",
        has_paused_task: bool = "HasPausedTask",
    }

    /// What an allocation is in its deployment.
    pub(in crate::http) struct JobStatusesDeployment {
        canary: bool = "Canary",
        healthy: Option<bool> = "Healthy",
    }

    /// The newest deployment of a job.
    pub(in crate::http) struct JobStatusesLatestDeployment {
        id: String = "ID",
        is_active: bool = "IsActive",
        job_version: u64 = "JobVersion",
        status: String = "Status",
        status_description: String = "StatusDescription",
        all_auto_promote: bool = "AllAutoPromote",
        requires_promotion: bool = "RequiresPromotion",
    }
}
