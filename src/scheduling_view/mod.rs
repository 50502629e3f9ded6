//! What the scheduler reads: the tables of one index, and the cluster at the same index.
//!
//! [`Snapshot`] is the two together; [`cache::Cache`] keeps the cluster (nodes, what they hold,
//! volumes and who uses them) beside the tables and follows them from index to index. The scheduler
//! itself knows no table; its callers (a worker, a plan that is only requested, an explanation of a
//! decision of long ago) bring this along.
//!
//! It must not know: what runs the scheduler, and what becomes of a plan. Invariants: nothing here
//! is truth, all of it can be read again from a view. A snapshot's two parts are of one index.

pub mod cache;
pub mod snapshot;
pub mod volume_cache;

pub use self::snapshot::Snapshot;
