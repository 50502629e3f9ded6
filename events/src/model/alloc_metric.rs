//! Why an allocation went where it did, or nowhere.

use crate::gojson::{List, Map};
use crate::model::Resources;

crate::wire! {
    /// What the scheduler saw when it placed, or could not place.
    pub struct AllocMetric {
        nodes_evaluated: i64 = "NodesEvaluated",
        nodes_filtered: i64 = "NodesFiltered",
        nodes_in_pool: i64 = "NodesInPool",
        node_pool: String = "NodePool",
        nodes_available: Map<i64> = "NodesAvailable",
        class_filtered: Map<i64> = "ClassFiltered",
        constraint_filtered: Map<i64> = "ConstraintFiltered",
        nodes_exhausted: i64 = "NodesExhausted",
        class_exhausted: Map<i64> = "ClassExhausted",
        dimension_exhausted: Map<i64> = "DimensionExhausted",
        quota_exhausted: List<String> = "QuotaExhausted",
        resources_exhausted: Map<Resources> = "ResourcesExhausted",
        scores: Map<f64> = "Scores",
        score_meta_data: List<NodeScoreMeta> = "ScoreMetaData",
        allocation_time: i64 = "AllocationTime",
        coalesced_failures: i64 = "CoalescedFailures",
    }
}

crate::wire! {
    /// The scores of one node.
    pub struct NodeScoreMeta {
        node_id: String = "NodeID",
        scores: Map<f64> = "Scores",
        norm_score: f64 = "NormScore",
    }
}
