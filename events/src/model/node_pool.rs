//! Node pools.

use crate::gojson::{Base64, DurationNanos, Map};

crate::wire! {
    /// A named set of nodes.
    pub struct NodePool {
        name: String = "Name",
        description: String = "Description",
        meta: Map<String> = "Meta" (Configured),
        scheduler_configuration: Option<NodePoolSchedulerConfiguration> = "SchedulerConfiguration",
        node_identity_ttl: DurationNanos = "NodeIdentityTTL",
        hash: Base64 = "Hash",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// Scheduler settings of a pool.
    pub struct NodePoolSchedulerConfiguration {
        scheduler_algorithm: String = "SchedulerAlgorithm",
        memory_oversubscription_enabled: Option<bool> = "MemoryOversubscriptionEnabled",
    }
}
