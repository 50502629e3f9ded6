//! Events about client nodes.

use std::collections::BTreeMap;

use crate::model::{DrainStrategy, Evaluation, Node, NodeEvent};
use crate::wire;

wire! {
    /// A node registered, or described itself again. Apply never takes its status from here for a
    /// node that is known (SCH-14).
    pub struct NodeRegistered {
        /// The description; its secret is a hash, never the secret itself.
        node: Box<Node> = "Node",
        /// What is added to the node's list of events.
        event: Option<NodeEvent> = "NodeEvent",
        /// Whether to create the node's pool if it does not exist.
        create_node_pool: bool = "CreateNodePool",
        /// Evaluations of the jobs that may now run there.
        evals: Vec<Evaluation> = "Evals",
    }

    /// Nodes were removed, by an operator or by garbage collection.
    pub struct NodesDeregistered {
        node_ids: Vec<String> = "NodeIDs",
        /// Evaluations of the jobs that had allocations there.
        evals: Vec<Evaluation> = "Evals",
    }

    /// A node's status changed: it made contact, lost it, or is taken for lost.
    pub struct NodeStatusUpdated {
        node_id: String = "NodeID",
        status: String = "Status",
        /// What is added to the node's list of events.
        event: Option<NodeEvent> = "NodeEvent",
        /// Unix seconds.
        updated_at: i64 = "UpdatedAt",
        /// The key that signed the identity the node now holds. Empty leaves it unchanged.
        identity_signing_key_id: String = "IdentitySigningKeyID",
        /// Evaluations of the jobs this concerns.
        evals: Vec<Evaluation> = "Evals",
    }

    /// Drains of nodes were set, changed, cancelled or completed.
    pub struct NodeDrainUpdated {
        /// By node id.
        updates: BTreeMap<String, DrainUpdate> = "Updates",
        /// Unix nanoseconds.
        updated_at: i64 = "UpdatedAt",
        /// The accessor id of the token that did it; empty while ACLs are off.
        updated_by: String = "UpdatedBy",
        /// Kept with the drain.
        meta: BTreeMap<String, String> = "Meta" (Configured),
        /// Evaluations of the jobs this concerns.
        evals: Vec<Evaluation> = "Evals",
    }

    /// What becomes of one node's drain.
    pub struct DrainUpdate {
        /// The new drain; none ends the one there is.
        drain_strategy: Option<DrainStrategy> = "DrainStrategy",
        /// Whether the node becomes eligible when the drain ends.
        mark_eligible: bool = "MarkEligible",
        /// Whether the drain ended because nothing is left to drain.
        complete: bool = "Complete",
        /// What is added to the node's list of events.
        event: Option<NodeEvent> = "NodeEvent",
    }

    /// A node was made eligible or ineligible for scheduling.
    pub struct NodeEligibilityUpdated {
        node_id: String = "NodeID",
        eligibility: String = "Eligibility",
        /// What is added to the node's list of events.
        event: Option<NodeEvent> = "NodeEvent",
        /// Unix nanoseconds.
        updated_at: i64 = "UpdatedAt",
        /// Evaluations of the jobs this concerns.
        evals: Vec<Evaluation> = "Evals",
    }

    /// Nodes reported something about themselves, such as a driver that lost its health.
    pub struct NodeEventsUpserted {
        /// By node id, the oldest first.
        events: BTreeMap<String, Vec<NodeEvent>> = "NodeEvents",
    }
}
