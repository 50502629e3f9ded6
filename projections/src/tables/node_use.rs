//! `node_use`: what is used on a node, and the mark that guards plans.

use drover_events::EventId;
use serde::{Deserialize, Serialize};

use crate::engine::key::Id;
use crate::engine::table::{History, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct NodeUses;

/// What the allocations that count hold of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeUse {
    /// The key of the row.
    #[serde(rename = "NodeID")]
    pub node_id: String,
    /// The event that last changed what fits on the node: a plan's placements, stops and
    /// preemptions, drain, eligibility, status, re-registration with other resources, an
    /// allocation back from unknown.
    pub mark: EventId,
    /// Allocations that hold resources.
    pub allocs: u64,
    /// MHz.
    pub cpu: i64,
    /// MiB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    /// MiB, at most.
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
    /// MiB of ephemeral disk.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
}

impl Table for NodeUses {
    const ID: u16 = 5;
    const NAME: &'static str = "node_use";
    type Key = Id;
    type Row = NodeUse;
    const HISTORY: History = History::Derived;

    fn key(row: &NodeUse) -> Id {
        Id::new(row.node_id.as_str())
    }
}
