//! Events about deployments.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{DeploymentStatusUpdate, Evaluation, Job, JobSubmission};
use crate::wire;

wire! {
    /// A deployment's status changed; perhaps the job went back to an older version with it.
    pub struct DeploymentStatusUpdated {
        update: DeploymentStatusUpdate = "DeploymentUpdate",
        /// The job as it is registered again, when it goes back to a stable version.
        job: Option<Arc<Job>> = "Job",
        eval: Option<Evaluation> = "Eval",
        /// The source of the version it goes back to.
        submission: Option<JobSubmission> = "Submission",
        /// By when each group must have made progress, unix nanoseconds, where the new status
        /// begins its time anew; a group that is not named follows the rule of before level 6.
        progress_by: BTreeMap<String, i64> = "RequireProgressBy",
    }

    /// Canaries were promoted.
    pub struct DeploymentPromoted {
        deployment_id: String = "DeploymentID",
        /// Of all groups; else of those named.
        all: bool = "All",
        groups: Vec<String> = "Groups",
        /// Unix nanoseconds.
        promoted_at: i64 = "PromotedAt",
        eval: Option<Evaluation> = "Eval",
        /// Whether a paused deployment keeps its description; before level 6 it became that of a
        /// running one.
        keeps_paused_description: bool = "SaysPaused",
    }

    /// The health of a deployment's allocations was set by an operator or the watcher.
    pub struct DeploymentAllocHealthUpdated {
        deployment_id: String = "DeploymentID",
        healthy: Vec<String> = "HealthyAllocationIDs",
        unhealthy: Vec<String> = "UnhealthyAllocationIDs",
        /// Unix nanoseconds.
        timestamp: i64 = "Timestamp",
        /// The status that follows from it.
        update: Option<DeploymentStatusUpdate> = "DeploymentUpdate",
        job: Option<Arc<Job>> = "Job",
        eval: Option<Evaluation> = "Eval",
        /// The source of the version the job goes back to.
        submission: Option<JobSubmission> = "Submission",
    }

    /// Deployments were removed by garbage collection.
    pub struct DeploymentsDeleted {
        ids: Vec<String> = "Deployments",
    }
}
