//! Bodies of requests and answers about jobs that the model does not have.

use drover_events::gojson::{List, Map, Time};
use drover_events::model::{
    AllocMetric, Evaluation, JobDiff, JobSummary, Multiregion, PlanAnnotations, ScalingEvent,
};

drover_events::wire! {
    /// What lists of jobs show.
    pub(crate) struct JobListStub {
        id: String = "ID",
        parent_id: String = "ParentID",
        name: String = "Name",
        namespace: String = "Namespace",
        datacenters: List<String> = "Datacenters",
        node_pool: String = "NodePool",
        multiregion: Option<Multiregion> = "Multiregion",
        r#type: String = "Type",
        priority: i64 = "Priority",
        periodic: bool = "Periodic",
        parameterized_job: bool = "ParameterizedJob",
        stop: bool = "Stop",
        status: String = "Status",
        status_description: String = "StatusDescription",
        job_summary: Option<JobSummary> = "JobSummary",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        job_modify_index: u64 = "JobModifyIndex",
        submit_time: i64 = "SubmitTime",
        meta: Map<String> = "Meta" omit,
    }
}

drover_events::wire! {
    /// What came of a registration, a stop or an evaluation of a job.
    pub(crate) struct JobRegisterResponse {
        eval_id: String = "EvalID",
        eval_create_index: u64 = "EvalCreateIndex",
        job_modify_index: u64 = "JobModifyIndex",
        warnings: String = "Warnings",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

drover_events::wire! {
    /// What came of stopping a job.
    pub(crate) struct JobDeregisterResponse {
        eval_id: String = "EvalID",
        eval_create_index: u64 = "EvalCreateIndex",
        job_modify_index: u64 = "JobModifyIndex",
        volume_eval_id: String = "VolumeEvalID",
        volume_eval_index: u64 = "VolumeEvalIndex",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

drover_events::wire! {
    /// What a registration would do.
    pub(crate) struct JobPlanResponse {
        annotations: Option<PlanAnnotations> = "Annotations",
        failed_tg_allocs: Map<AllocMetric> = "FailedTGAllocs",
        job_modify_index: u64 = "JobModifyIndex",
        created_evals: List<Evaluation> = "CreatedEvals",
        diff: Option<JobDiff> = "Diff",
        next_periodic_launch: Time = "NextPeriodicLaunch",
        warnings: String = "Warnings",
        index: u64 = "Index",
    }
}

drover_events::wire! {
    /// What is wrong with a job.
    pub(crate) struct JobValidateResponse {
        driver_config_validated: bool = "DriverConfigValidated",
        validation_errors: List<String> = "ValidationErrors",
        error: String = "Error",
        warnings: String = "Warnings",
    }
}

drover_events::wire! {
    /// A request for a new evaluation.
    pub(in crate::http) struct JobEvaluateRequest {
        job_id: String = "JobID",
        eval_options: EvalOptions = "EvalOptions",
    }
}

drover_events::wire! {
    /// How to evaluate.
    pub(in crate::http) struct EvalOptions {
        force_reschedule: bool = "ForceReschedule",
    }
}

drover_events::wire! {
    /// A version to be marked stable or not.
    pub(in crate::http) struct JobStabilityRequest {
        job_id: String = "JobID",
        job_version: u64 = "JobVersion",
        stable: bool = "Stable",
    }
}

drover_events::wire! {
    /// Counts of a job's groups.
    pub(crate) struct JobScaleStatus {
        job_id: String = "JobID",
        namespace: String = "Namespace",
        job_create_index: u64 = "JobCreateIndex",
        job_modify_index: u64 = "JobModifyIndex",
        job_stopped: bool = "JobStopped",
        task_groups: Map<TaskGroupScaleStatus> = "TaskGroups",
    }
}

drover_events::wire! {
    /// Counts of one group.
    pub(crate) struct TaskGroupScaleStatus {
        desired: i64 = "Desired",
        placed: i64 = "Placed",
        running: i64 = "Running",
        healthy: i64 = "Healthy",
        unhealthy: i64 = "Unhealthy",
        events: List<ScalingEvent> = "Events",
    }
}
