//! Evaluations: work for the scheduler.

use crate::gojson::{List, Map, Time};
use crate::model::{AllocMetric, PlanAnnotations};

crate::wire! { sparse:
    /// A piece of work for the scheduler; JSON leaves out what is empty.
    pub struct Evaluation {
        id: String = "ID",
        namespace: String = "Namespace",
        priority: i64 = "Priority",
        r#type: String = "Type",
        triggered_by: String = "TriggeredBy",
        job_id: String = "JobID",
        job_modify_index: u64 = "JobModifyIndex",
        node_id: String = "NodeID",
        node_modify_index: u64 = "NodeModifyIndex",
        deployment_id: String = "DeploymentID",
        status: String = "Status",
        status_description: String = "StatusDescription",
        wait: i64 = "Wait",
        wait_until: Time = "WaitUntil",
        next_eval: String = "NextEval",
        previous_eval: String = "PreviousEval",
        blocked_eval: String = "BlockedEval",
        related_evals: List<EvaluationStub> = "RelatedEvals",
        failed_tg_allocs: Map<AllocMetric> = "FailedTGAllocs",
        plan_annotations: Option<PlanAnnotations> = "PlanAnnotations",
        class_eligibility: Map<bool> = "ClassEligibility",
        quota_limit_reached: String = "QuotaLimitReached",
        missing_non_node_resources: List<String> = "MissingNonNodeResources",
        escaped_computed_class: bool = "EscapedComputedClass",
        annotate_plan: bool = "AnnotatePlan",
        queued_allocations: Map<i64> = "QueuedAllocations",
        leader_acl: String = "LeaderACL" (Secret),
        snapshot_index: u64 = "SnapshotIndex",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        create_time: i64 = "CreateTime",
        modify_time: i64 = "ModifyTime",
    }
}

crate::wire! {
    /// What is shown of a related evaluation.
    pub struct EvaluationStub {
        id: String = "ID",
        namespace: String = "Namespace",
        priority: i64 = "Priority",
        r#type: String = "Type",
        triggered_by: String = "TriggeredBy",
        job_id: String = "JobID",
        node_id: String = "NodeID",
        deployment_id: String = "DeploymentID",
        status: String = "Status",
        status_description: String = "StatusDescription",
        wait_until: Time = "WaitUntil",
        next_eval: String = "NextEval",
        previous_eval: String = "PreviousEval",
        blocked_eval: String = "BlockedEval",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        create_time: i64 = "CreateTime",
        modify_time: i64 = "ModifyTime",
    }
}
