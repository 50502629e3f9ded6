//! Events about allocations that are no plan: what clients report, what they are to do (EV-14).

use std::collections::BTreeMap;

use crate::model::{
    AllocDeploymentStatus, AllocNetworkStatus, DesiredTransition, Evaluation, TaskState,
};
use crate::wire;

/// The feature level that brought the nodes and causes of [`AllocsUpdatedByClient`].
pub const REPORT_LEVEL: u32 = 5;

wire! {
    /// Clients reported what became of their allocations.
    pub struct AllocsUpdatedByClient {
        updates: Vec<ClientAllocUpdate> = "Updates",
        /// Evaluations the server made of it (EVAL-15); a client cannot send any.
        evals: Vec<Evaluation> = "Evals",
        /// Server time, unix nanoseconds; a client's clock decides nothing (EV-15).
        updated_at: i64 = "UpdatedAt",
        /// The nodes that reported their allocations, the unchanged ones too. With it, the rows of
        /// nodes note that they did and are otherwise as they were; without it ([`REPORT_LEVEL`])
        /// the nodes are those of the updates, and their indexes move.
        nodes: Vec<String> = "Nodes",
    }

    /// What a client may say of an allocation, and nothing else.
    pub struct ClientAllocUpdate {
        id: String = "ID",
        client_status: String = "ClientStatus",
        client_description: String = "ClientDescription",
        task_states: BTreeMap<String, TaskState> = "TaskStates",
        network_status: Option<AllocNetworkStatus> = "NetworkStatus",
        deployment_status: Option<AllocDeploymentStatus> = "DeploymentStatus",
        /// The index of the event that caused what is reported: the placement of the allocation, or
        /// its last change by the servers; 0 where that is not known.
        cause: u64 = "Cause",
    }

    /// Allocations are to be moved, replaced, or stopped without delay.
    pub struct AllocsDesiredTransitionUpdated {
        /// By allocation id; only the flags that are set change anything.
        transitions: BTreeMap<String, DesiredTransition> = "Allocs",
        evals: Vec<Evaluation> = "Evals",
        /// Unix nanoseconds.
        updated_at: i64 = "UpdatedAt",
    }
}
