//! A job as a user submits it, and what is kept about it.

use crate::gojson::{Base64, List, Map};
use crate::model::status::{DEFAULT_NAMESPACE, DEFAULT_PRIORITY, job_type};
use crate::model::{
    Affinity, Constraint, MigrateStrategy, ReschedulePolicy, Secret, Spread, Task, TaskGroup, Vault,
};

/// Which job: its namespace and its id.
pub type JobKey = (String, String);

crate::wire! {
    /// A job: the unit users submit, update and stop.
    pub struct Job = "job" {
        stop: bool = "Stop" [optional().default_bool(false)],
        region: String = "Region" [hcl().optional().default_text("global").empty_is_unset()],
        namespace: String = "Namespace"
            [hcl().optional().default_text(DEFAULT_NAMESPACE).empty_is_unset()],
        id: String = "ID" [hcl().optional().default_text("")],
        parent_id: String = "ParentID" [optional().default_text("")],
        name: String = "Name" [hcl().optional()],
        r#type: String = "Type" [hcl().optional().default_text(job_type::SERVICE).empty_is_unset()],
        priority: i64 = "Priority"
            [hcl().optional().default_int(DEFAULT_PRIORITY).empty_is_unset()],
        all_at_once: bool = "AllAtOnce" [hcl().optional().default_bool(false)],
        datacenters: List<String> = "Datacenters" [hcl()],
        node_pool: String = "NodePool" [hcl().optional().default_text("")],
        constraints: List<Constraint> = "Constraints" [hcl_as("constraint")],
        affinities: List<Affinity> = "Affinities" [hcl_as("affinity")],
        spreads: List<Spread> = "Spreads" [hcl_as("spread")],
        task_groups: List<TaskGroup> = "TaskGroups" [hcl_as("group").labelled("Name")],
        update: UpdateStrategy = "Update" [hcl()],
        multiregion: Option<Multiregion> = "Multiregion" [hcl()],
        periodic: Option<PeriodicConfig> = "Periodic" [hcl()],
        parameterized_job: Option<ParameterizedJobConfig> = "ParameterizedJob"
            [hcl_as("parameterized")],
        dispatched: bool = "Dispatched",
        dispatch_idempotency_token: String = "DispatchIdempotencyToken" (Public) [optional()],
        payload: Base64 = "Payload" (Configured),
        meta: Map<String> = "Meta" (Configured) [hcl()],
        consul_namespace: String = "ConsulNamespace" [optional().default_text("")],
        vault_namespace: String = "VaultNamespace" [optional().default_text("")],
        nomad_token_id: String = "NomadTokenID" (Public) [optional().default_text("")],
        status: String = "Status" [optional().default_text("")],
        status_description: String = "StatusDescription" [optional().default_text("")],
        stable: bool = "Stable" [optional().default_bool(false)],
        version: u64 = "Version" [optional().default_int(0)],
        submit_time: i64 = "SubmitTime" [optional()],
        create_index: u64 = "CreateIndex" [optional().default_int(0)],
        modify_index: u64 = "ModifyIndex" [optional().default_int(0)],
        job_modify_index: u64 = "JobModifyIndex" [optional().default_int(0)],
        ui: Option<JobUiConfig> = "UI" [hcl()],
        version_tag: Option<JobVersionTag> = "VersionTag",
    } + {
        task: List<Task> = "@Tasks" [hcl().labelled("Name")],
        reschedule: Option<ReschedulePolicy> = "Reschedule" [hcl()],
        migrate: Option<MigrateStrategy> = "Migrate" [hcl()],
        vault: Option<Vault> = "@Vault" [hcl()],
        secret: List<Secret> = "@Secrets" [hcl().labelled("Name")],
    }
}

crate::wire! {
    /// How a new version of a job replaces the old one; times in nanoseconds.
    pub struct UpdateStrategy = "update" {
        stagger: i64 = "Stagger" [hcl().duration().optional().default_seconds(30)],
        max_parallel: i64 = "MaxParallel" [hcl().optional().default_int(1)],
        health_check: String = "HealthCheck" [hcl().optional().default_text("checks")],
        min_healthy_time: i64 = "MinHealthyTime" [hcl().duration().optional().default_seconds(10)],
        healthy_deadline: i64 = "HealthyDeadline"
            [hcl().duration().optional().default_seconds(300)],
        progress_deadline: i64 = "ProgressDeadline"
            [hcl().duration().optional().default_seconds(600)],
        auto_revert: bool = "AutoRevert" [hcl().optional().default_bool(false)],
        auto_promote: bool = "AutoPromote" [hcl().optional().default_bool(false)],
        canary: i64 = "Canary" [hcl().optional().default_int(0)],
    }
}

crate::wire! {
    /// A job spread over regions.
    pub struct Multiregion = "multiregion" {
        strategy: Option<MultiregionStrategy> = "Strategy" [hcl()],
        regions: List<MultiregionRegion> = "Regions" [hcl_as("region").labelled("Name")],
    }
}

crate::wire! {
    /// How regions follow one another.
    pub struct MultiregionStrategy = "strategy" {
        max_parallel: i64 = "MaxParallel" [hcl().optional()],
        on_failure: String = "OnFailure" [hcl().optional()],
    }
}

crate::wire! {
    /// One region of a job.
    pub struct MultiregionRegion = "region" {
        name: String = "Name",
        count: i64 = "Count" [hcl().optional()],
        datacenters: List<String> = "Datacenters" [hcl()],
        node_pool: String = "NodePool" [hcl()],
        meta: Map<String> = "Meta" (Configured) [hcl()],
    }
}

crate::wire! {
    /// When a periodic job is launched.
    pub struct PeriodicConfig = "periodic" {
        enabled: bool = "Enabled" [hcl().optional().default_bool(true)],
        spec: String = "Spec" [hcl_as("cron").optional().default_text("")],
        specs: List<String> = "Specs" [hcl_as("crons").default_list()],
        spec_type: String = "SpecType" [optional().default_text("cron").empty_is_unset()],
        prohibit_overlap: bool = "ProhibitOverlap" [hcl().optional().default_bool(false)],
        time_zone: String = "TimeZone" [hcl().optional().default_text("UTC").empty_is_unset()],
    }
}

crate::wire! {
    /// What a dispatch of a parameterized job takes.
    pub struct ParameterizedJobConfig = "parameterized" {
        payload: String = "Payload" (Public) [hcl().default_text("optional").empty_is_unset()],
        meta_required: List<String> = "MetaRequired" (Public) [hcl()],
        meta_optional: List<String> = "MetaOptional" (Public) [hcl()],
    }
}

crate::wire! {
    /// What a user interface shows about a job.
    pub struct JobUiConfig = "ui" {
        description: String = "Description" [hcl()],
        links: List<JobUiLink> = "Links" [hcl_as("link")],
    }
}

crate::wire! {
    /// A link a user interface shows.
    pub struct JobUiLink = "link" {
        label: String = "Label" [hcl()],
        url: String = "URL" [hcl()],
    }
}

crate::wire! {
    /// A name for a version of a job; the time in Unix nanoseconds.
    pub struct JobVersionTag = "version tag" {
        name: String = "Name",
        description: String = "Description",
        tagged_time: i64 = "TaggedTime",
    }
}

crate::wire! {
    /// The source a job was submitted as.
    pub struct JobSubmission {
        source: String = "Source" (Sensitive),
        format: String = "Format",
        variable_flags: Map<String> = "VariableFlags" (Sensitive),
        variables: String = "Variables" (Sensitive),
        namespace: String = "Namespace",
        job_id: String = "JobID",
        version: u64 = "Version",
        job_modify_index: u64 = "JobModifyIndex",
    }
}

crate::wire! {
    /// Counts of a job's allocations and children.
    pub struct JobSummary {
        job_id: String = "JobID",
        namespace: String = "Namespace",
        summary: Map<TaskGroupSummary> = "Summary",
        children: Option<JobChildrenSummary> = "Children",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// Counts of the children of a periodic or parameterized job.
    pub struct JobChildrenSummary {
        pending: i64 = "Pending",
        running: i64 = "Running",
        dead: i64 = "Dead",
    }
}

crate::wire! {
    /// Counts of a group's allocations.
    pub struct TaskGroupSummary {
        queued: i64 = "Queued",
        complete: i64 = "Complete",
        failed: i64 = "Failed",
        running: i64 = "Running",
        starting: i64 = "Starting",
        lost: i64 = "Lost",
        unknown: i64 = "Unknown",
    }
}
