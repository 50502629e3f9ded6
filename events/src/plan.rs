//! The event of a committed scheduling plan.

use crate::model::{
    AllocState, Allocation, Deployment, DeploymentStatusUpdate, Evaluation, RescheduleTracker,
};
use crate::wire;

wire! {
    /// From what a scheduling decision was made. The same inputs give the same plan.
    pub struct DecisionInputs {
        /// The index of the view it was made on.
        snapshot_index: u64 = "SnapshotIndex",
        /// Its time, unix nanoseconds.
        now: i64 = "Now",
        /// Where its pseudo-random choices began.
        seed: u64 = "Seed",
        /// The version of the rules.
        scheduler_version: u32 = "SchedulerVersion",
    }

    /// A scheduling plan was committed, or one of several events of a large one.
    pub struct PlanApplied {
        /// The same for every event of one plan.
        plan_id: String = "PlanID",
        eval_id: String = "EvalID",
        decision: DecisionInputs = "Decision",
        /// Allocations that stop, with what the scheduler says of them.
        stopped: Vec<StoppedAlloc> = "AllocsStopped",
        /// Allocations that are placed or changed in place.
        placed: Vec<PlacedAlloc> = "AllocsUpdated",
        /// Allocations that give way to more important ones.
        preempted: Vec<PreemptedAlloc> = "AllocsPreempted",
        /// The deployment this plan creates, or whose totals it sets.
        deployment: Option<Deployment> = "Deployment",
        deployment_updates: Vec<DeploymentStatusUpdate> = "DeploymentUpdates",
        /// Evaluations created with it: of jobs that were preempted, and follow-ups.
        evals: Vec<Evaluation> = "Evals",
        /// Nodes that refused too many plans and take no more.
        ineligible_nodes: Vec<String> = "IneligibleNodes",
        /// Unix nanoseconds; create and modify time of the allocations.
        updated_at: i64 = "UpdatedAt",
    }

    /// An allocation as a plan writes it, without its job: that is the row of `alloc_jobs` named
    /// by (namespace, job id, job modify index).
    pub struct PlacedAlloc {
        alloc: Box<Allocation> = "Alloc",
        job_modify_index: u64 = "JobModifyIndex",
    }

    /// What a plan changes of an allocation it stops.
    pub struct StoppedAlloc {
        id: String = "ID",
        desired_description: String = "DesiredDescription",
        /// Only `lost` and `unknown` are the scheduler's to set; empty: as it was.
        client_status: String = "ClientStatus",
        /// The evaluation that will replace it later; empty: none.
        followup_eval_id: String = "FollowupEvalID",
        /// The allocation's history of statuses, when the plan adds to it.
        alloc_states: Option<Vec<AllocState>> = "AllocStates",
        reschedule_tracker: Option<RescheduleTracker> = "RescheduleTracker",
    }

    /// An allocation that gives way.
    pub struct PreemptedAlloc {
        id: String = "ID",
        /// The allocation that takes its place.
        preempted_by: String = "PreemptedByAllocation",
    }
}
