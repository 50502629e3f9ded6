//! Events about jobs, their versions and their launches.

use std::sync::Arc;

use crate::model::{Deployment, Evaluation, Job, JobSubmission, JobVersionTag, ScalingEvent};
use crate::wire;

wire! {
    /// A job was registered: its first specification, or a new one.
    ///
    /// Version, status and indexes of the job are set by apply; a specification equal to the
    /// stored one is never proposed.
    pub struct JobRegistered {
        job: Arc<Job> = "Job",
        /// The source as it was submitted.
        submission: Option<JobSubmission> = "Submission",
        /// The evaluation that places it; none for periodic and parameterized jobs.
        eval: Option<Evaluation> = "Eval",
        /// The deployment created together with it.
        deployment: Option<Deployment> = "Deployment",
        /// When a periodic job counts as launched for the first time, unix nanoseconds; 0: not.
        launch: i64 = "Launch",
        /// What is recorded about the count of a group, when a scaling action caused this.
        scaling: Option<GroupScaling> = "Scaling",
        /// How many versions are kept; 0 stands for 6.
        tracked_versions: u32 = "TrackedVersions",
    }

    /// A scaling event and the group it belongs to.
    pub struct GroupScaling {
        task_group: String = "TaskGroup",
        event: ScalingEvent = "ScalingEvent",
    }

    /// A job was stopped or purged.
    pub struct JobDeregistered {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        /// Whether the job's rows go, not only its allocations.
        purge: bool = "Purge",
        /// Whether its allocations stop without waiting for the shutdown delay.
        no_shutdown_delay: bool = "NoShutdownDelay",
        eval: Option<Evaluation> = "Eval",
        /// Unix nanoseconds.
        submit_time: i64 = "SubmitTime",
        /// How many versions are kept; 0 stands for 6.
        tracked_versions: u32 = "TrackedVersions",
        /// Whether scaling policies stay, disabled, while the job is stopped; before level 6 they
        /// went.
        keep_policies: bool = "KeepScalingPolicies",
    }

    /// Jobs were stopped or purged together, as garbage collection does.
    pub struct JobsDeregistered {
        jobs: Vec<DeregisteredJob> = "Jobs",
        evals: Vec<Evaluation> = "Evals",
        /// Unix nanoseconds.
        submit_time: i64 = "SubmitTime",
        /// How many versions are kept; 0 stands for 6.
        tracked_versions: u32 = "TrackedVersions",
        /// Whether scaling policies stay, disabled, while their jobs are stopped; before level 6
        /// they went.
        keep_policies: bool = "KeepScalingPolicies",
    }

    /// One job of several that were deregistered.
    pub struct DeregisteredJob {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        purge: bool = "Purge",
    }

    /// A version of a job was marked stable or unstable.
    pub struct JobStabilityUpdated {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        job_version: u64 = "JobVersion",
        stable: bool = "Stable",
    }

    /// A version of a job got a tag, or lost the one it had.
    pub struct JobVersionTagged {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        /// The tag's name.
        name: String = "Name",
        /// The version that gets it; unused when the tag is taken away.
        version: u64 = "Version",
        /// The tag; none takes away the one of this name.
        tag: Option<JobVersionTag> = "Tag",
    }

    /// Summaries were counted again: one page of jobs, in the order of (namespace, id).
    pub struct JobSummariesReconciled {
        /// `<namespace>.<id>` of the first job of the page; empty: from the start.
        page_token: String = "PageToken" (Public),
        per_page: u32 = "PerPage",
    }

    /// A launch slot of a periodic job was taken; no other launch may take it (guarded).
    pub struct PeriodicJobLaunched {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        /// Unix nanoseconds of the slot.
        launch: i64 = "Launch",
    }
}
