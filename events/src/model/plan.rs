//! Plans: what the scheduler wants to change.

use std::sync::Arc;

use crate::gojson::{List, Map};
use crate::model::{AllocListStub, Allocation, Deployment, DeploymentStatusUpdate, Job};

crate::wire! { sparse:
    /// What the scheduler wants to change, by node; JSON leaves out what is empty.
    pub struct Plan {
        eval_id: String = "EvalID",
        eval_token: String = "EvalToken" (Secret),
        priority: i64 = "Priority",
        all_at_once: bool = "AllAtOnce",
        job: Option<Arc<Job>> = "Job",
        node_update: Map<List<Allocation>> = "NodeUpdate",
        node_allocation: Map<List<Allocation>> = "NodeAllocation",
        node_preemptions: Map<List<Allocation>> = "NodePreemptions",
        annotations: Option<PlanAnnotations> = "Annotations",
        deployment: Option<Deployment> = "Deployment",
        deployment_updates: List<DeploymentStatusUpdate> = "DeploymentUpdates",
        snapshot_index: u64 = "SnapshotIndex",
    }
}

crate::wire! {
    /// The part of a plan that was applied.
    pub struct PlanResult {
        node_update: Map<List<Allocation>> = "NodeUpdate",
        node_allocation: Map<List<Allocation>> = "NodeAllocation",
        node_preemptions: Map<List<Allocation>> = "NodePreemptions",
        deployment: Option<Deployment> = "Deployment",
        deployment_updates: List<DeploymentStatusUpdate> = "DeploymentUpdates",
        ineligible_nodes: List<String> = "IneligibleNodes",
        refresh_index: u64 = "RefreshIndex",
        alloc_index: u64 = "AllocIndex",
    }
}

crate::wire! {
    /// What a plan would do, in counts.
    pub struct PlanAnnotations {
        desired_tg_updates: Map<DesiredUpdates> = "DesiredTGUpdates",
        preempted_allocs: List<AllocListStub> = "PreemptedAllocs",
    }
}

crate::wire! {
    /// Counts of what a plan does to one group.
    pub struct DesiredUpdates {
        ignore: u64 = "Ignore",
        place: u64 = "Place",
        migrate: u64 = "Migrate",
        stop: u64 = "Stop",
        in_place_update: u64 = "InPlaceUpdate",
        destructive_update: u64 = "DestructiveUpdate",
        canary: u64 = "Canary",
        preemptions: u64 = "Preemptions",
        disconnect: u64 = "Disconnect",
        reconnect: u64 = "Reconnect",
        reschedule_now: u64 = "RescheduleNow",
        reschedule_later: u64 = "RescheduleLater",
    }
}
