//! A job as a user submits it, and what is kept about it.

use crate::gojson::{Base64, List, Map};
use crate::model::{Affinity, Constraint, Spread, TaskGroup};

crate::wire! {
    /// A job: the unit users submit, update and stop.
    pub struct Job {
        stop: bool = "Stop",
        region: String = "Region",
        namespace: String = "Namespace",
        id: String = "ID",
        parent_id: String = "ParentID",
        name: String = "Name",
        r#type: String = "Type",
        priority: i64 = "Priority",
        all_at_once: bool = "AllAtOnce",
        datacenters: List<String> = "Datacenters",
        node_pool: String = "NodePool",
        constraints: List<Constraint> = "Constraints",
        affinities: List<Affinity> = "Affinities",
        spreads: List<Spread> = "Spreads",
        task_groups: List<TaskGroup> = "TaskGroups",
        update: UpdateStrategy = "Update",
        multiregion: Option<Multiregion> = "Multiregion",
        periodic: Option<PeriodicConfig> = "Periodic",
        parameterized_job: Option<ParameterizedJobConfig> = "ParameterizedJob",
        dispatched: bool = "Dispatched",
        dispatch_idempotency_token: String = "DispatchIdempotencyToken" (Public),
        payload: Base64 = "Payload" (Configured),
        meta: Map<String> = "Meta" (Configured),
        consul_namespace: String = "ConsulNamespace",
        vault_namespace: String = "VaultNamespace",
        nomad_token_id: String = "NomadTokenID" (Public),
        status: String = "Status",
        status_description: String = "StatusDescription",
        stable: bool = "Stable",
        version: u64 = "Version",
        submit_time: i64 = "SubmitTime",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        job_modify_index: u64 = "JobModifyIndex",
        ui: Option<JobUiConfig> = "UI",
        version_tag: Option<JobVersionTag> = "VersionTag",
    }
}

crate::wire! {
    /// How a new version of a job replaces the old one; times in nanoseconds.
    pub struct UpdateStrategy {
        stagger: i64 = "Stagger",
        max_parallel: i64 = "MaxParallel",
        health_check: String = "HealthCheck",
        min_healthy_time: i64 = "MinHealthyTime",
        healthy_deadline: i64 = "HealthyDeadline",
        progress_deadline: i64 = "ProgressDeadline",
        auto_revert: bool = "AutoRevert",
        auto_promote: bool = "AutoPromote",
        canary: i64 = "Canary",
    }
}

crate::wire! {
    /// A job spread over regions.
    pub struct Multiregion {
        strategy: Option<MultiregionStrategy> = "Strategy",
        regions: List<MultiregionRegion> = "Regions",
    }
}

crate::wire! {
    /// How regions follow one another.
    pub struct MultiregionStrategy {
        max_parallel: i64 = "MaxParallel",
        on_failure: String = "OnFailure",
    }
}

crate::wire! {
    /// One region of a job.
    pub struct MultiregionRegion {
        name: String = "Name",
        count: i64 = "Count",
        datacenters: List<String> = "Datacenters",
        node_pool: String = "NodePool",
        meta: Map<String> = "Meta" (Configured),
    }
}

crate::wire! {
    /// When a periodic job is launched.
    pub struct PeriodicConfig {
        enabled: bool = "Enabled",
        spec: String = "Spec",
        specs: List<String> = "Specs",
        spec_type: String = "SpecType",
        prohibit_overlap: bool = "ProhibitOverlap",
        time_zone: String = "TimeZone",
    }
}

crate::wire! {
    /// What a dispatch of a parameterized job takes.
    pub struct ParameterizedJobConfig {
        payload: String = "Payload" (Public),
        meta_required: List<String> = "MetaRequired" (Public),
        meta_optional: List<String> = "MetaOptional" (Public),
    }
}

crate::wire! {
    /// What a user interface shows about a job.
    pub struct JobUiConfig {
        description: String = "Description",
        links: List<JobUiLink> = "Links",
    }
}

crate::wire! {
    /// A link a user interface shows.
    pub struct JobUiLink {
        label: String = "Label",
        url: String = "URL",
    }
}

crate::wire! {
    /// A name for a version of a job; the time in Unix nanoseconds.
    pub struct JobVersionTag {
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
