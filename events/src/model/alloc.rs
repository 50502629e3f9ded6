//! Allocations: one instance of a task group on a node.

use std::sync::Arc;

use crate::gojson::{List, Map, Time};
use crate::model::{AllocMetric, AllocatedResources, DnsConfig, Job, Resources, TaskState};

crate::wire! { sparse:
    /// An allocation; JSON leaves out what is empty.
    pub struct Allocation {
        id: String = "ID",
        namespace: String = "Namespace",
        eval_id: String = "EvalID",
        name: String = "Name",
        node_id: String = "NodeID",
        node_name: String = "NodeName",
        job_id: String = "JobID",
        job: Option<Arc<Job>> = "Job",
        task_group: String = "TaskGroup",
        resources: Option<Resources> = "Resources",
        shared_resources: Option<Resources> = "SharedResources",
        task_resources: Map<Resources> = "TaskResources",
        allocated_resources: Option<AllocatedResources> = "AllocatedResources",
        metrics: Option<AllocMetric> = "Metrics",
        desired_status: String = "DesiredStatus",
        desired_description: String = "DesiredDescription",
        desired_transition: DesiredTransition = "DesiredTransition",
        client_status: String = "ClientStatus",
        client_description: String = "ClientDescription",
        task_states: Map<TaskState> = "TaskStates",
        alloc_states: List<AllocState> = "AllocStates",
        previous_allocation: String = "PreviousAllocation",
        next_allocation: String = "NextAllocation",
        deployment_id: String = "DeploymentID",
        deployment_status: Option<AllocDeploymentStatus> = "DeploymentStatus",
        reschedule_tracker: Option<RescheduleTracker> = "RescheduleTracker",
        network_status: Option<AllocNetworkStatus> = "NetworkStatus",
        followup_eval_id: String = "FollowupEvalID",
        preempted_allocations: List<String> = "PreemptedAllocations",
        preempted_by_allocation: String = "PreemptedByAllocation",
        signing_key_id: String = "SigningKeyID",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        alloc_modify_index: u64 = "AllocModifyIndex",
        create_time: i64 = "CreateTime",
        modify_time: i64 = "ModifyTime",
    }
}

crate::wire! {
    /// What lists of allocations show.
    pub struct AllocListStub {
        id: String = "ID",
        eval_id: String = "EvalID",
        name: String = "Name",
        namespace: String = "Namespace",
        node_id: String = "NodeID",
        node_name: String = "NodeName",
        job_id: String = "JobID",
        job_type: String = "JobType",
        job_version: u64 = "JobVersion",
        task_group: String = "TaskGroup",
        allocated_resources: Option<AllocatedResources> = "AllocatedResources",
        desired_status: String = "DesiredStatus",
        desired_description: String = "DesiredDescription",
        client_status: String = "ClientStatus",
        client_description: String = "ClientDescription",
        desired_transition: DesiredTransition = "DesiredTransition",
        task_states: Map<TaskState> = "TaskStates",
        deployment_status: Option<AllocDeploymentStatus> = "DeploymentStatus",
        followup_eval_id: String = "FollowupEvalID",
        next_allocation: String = "NextAllocation",
        reschedule_tracker: Option<RescheduleTracker> = "RescheduleTracker",
        preempted_allocations: List<String> = "PreemptedAllocations",
        preempted_by_allocation: String = "PreemptedByAllocation",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        create_time: i64 = "CreateTime",
        modify_time: i64 = "ModifyTime",
    }
}

crate::wire! {
    /// An allocation's health in its deployment.
    pub struct AllocDeploymentStatus {
        healthy: Option<bool> = "Healthy",
        timestamp: Time = "Timestamp",
        canary: bool = "Canary",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// What the servers want an allocation to do next.
    pub struct DesiredTransition {
        migrate: Option<bool> = "Migrate",
        reschedule: Option<bool> = "Reschedule",
        force_reschedule: Option<bool> = "ForceReschedule",
        no_shutdown_delay: Option<bool> = "NoShutdownDelay",
        migrate_disable_placement: Option<bool> = "MigrateDisablePlacement",
    }
}

crate::wire! {
    /// A change of an allocation's client status that rules depend on.
    pub struct AllocState {
        field: i64 = "Field",
        value: String = "Value",
        time: Time = "Time",
    }
}

crate::wire! {
    /// Earlier attempts of a rescheduled allocation.
    pub struct RescheduleTracker {
        events: List<RescheduleEvent> = "Events",
        last_reschedule: String = "LastReschedule",
    }
}

crate::wire! {
    /// One earlier attempt; time and delay in nanoseconds.
    pub struct RescheduleEvent {
        reschedule_time: i64 = "RescheduleTime",
        prev_alloc_id: String = "PrevAllocID",
        prev_node_id: String = "PrevNodeID",
        delay: i64 = "Delay",
    }
}

crate::wire! {
    /// The network an allocation got.
    pub struct AllocNetworkStatus {
        interface_name: String = "InterfaceName",
        address: String = "Address",
        address_ipv6: String = "AddressIPv6",
        dns: Option<DnsConfig> = "DNS",
    }
}
