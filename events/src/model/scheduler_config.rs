//! The scheduler's settings.

crate::wire! {
    /// Cluster-wide settings of the scheduler.
    pub struct SchedulerConfiguration {
        scheduler_algorithm: String = "SchedulerAlgorithm",
        preemption_config: PreemptionConfig = "PreemptionConfig",
        memory_oversubscription_enabled: bool = "MemoryOversubscriptionEnabled",
        reject_job_registration: bool = "RejectJobRegistration",
        pause_eval_broker: bool = "PauseEvalBroker",
        node_limit_for_feasibility_checks: u64 = "NodeLimitForFeasibilityChecks",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// Which schedulers may preempt.
    pub struct PreemptionConfig {
        system_scheduler_enabled: bool = "SystemSchedulerEnabled",
        sys_batch_scheduler_enabled: bool = "SysBatchSchedulerEnabled",
        batch_scheduler_enabled: bool = "BatchSchedulerEnabled",
        service_scheduler_enabled: bool = "ServiceSchedulerEnabled",
    }
}
