//! `allocs`: instances of task groups on nodes. Deletions are not published.
//!
//! A row names its job by (namespace, id, job modify index): that is a row of `alloc_jobs`, stored
//! once. What lists show of the job is in the row. Six index entries at most: the row budget.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use drover_events::Topic;
use drover_events::model::Allocation;

use super::alloc_jobs::AllocJobs;
use crate::engine::error::StorageError;
use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};
use crate::engine::txn::ReadRows;

#[allow(missing_docs, reason = "the module says it")]
pub struct Allocs;

drover_events::wire! {
    /// An allocation without its job, and what names the job. It dereferences to the allocation.
    pub struct AllocRow {
        alloc: Allocation = "Alloc",
        job_modify_index: u64 = "JobModifyIndex",
        job_type: String = "JobType",
        job_version: u64 = "JobVersion",
    }
}

impl Deref for AllocRow {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        &self.alloc
    }
}

impl DerefMut for AllocRow {
    fn deref_mut(&mut self) -> &mut Allocation {
        &mut self.alloc
    }
}

impl AllocRow {
    /// The key of its job in `alloc_jobs`.
    pub fn job_key(&self) -> (String, String, u64) {
        (
            self.alloc.namespace.clone(),
            self.alloc.job_id.clone(),
            self.job_modify_index,
        )
    }

    /// The allocation with its job, as the API shows it.
    pub fn with_job(&self, from: &impl ReadRows) -> Result<Allocation, StorageError> {
        let mut alloc = self.alloc.clone();
        alloc.job = from.row::<AllocJobs>(&self.job_key())?;
        Ok(alloc)
    }
}

/// The allocation with its job.
pub fn get(from: &impl ReadRows, id: &str) -> Result<Option<Allocation>, StorageError> {
    let row: Option<Arc<AllocRow>> = from.row::<Allocs>(id)?;
    row.map(|row| row.with_job(from)).transpose()
}

impl Table for Allocs {
    const ID: u16 = 13;
    const NAME: &'static str = "allocs";
    type Key = Id;
    type Row = AllocRow;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<AllocsByNamespace>(),
        IndexDef::of::<AllocsByNode>(),
        IndexDef::of::<AllocsByJob>(),
        IndexDef::of::<AllocsByEval>(),
        IndexDef::of::<AllocsByDeployment>(),
        IndexDef::of::<AllocsBySigningKey>(),
    ];
    const PUBLISHES_DELETES: bool = false;

    fn key(row: &AllocRow) -> Id {
        Id::new(row.alloc.id.as_str())
    }

    fn stream(row: &AllocRow) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::Allocation,
            &row.alloc.namespace,
            &row.alloc.id,
            &[&row.alloc.job_id, &row.alloc.deployment_id],
        ))
    }
}

/// The allocations of a namespace, by their creation.
pub struct AllocsByNamespace;

impl Index for AllocsByNamespace {
    type Table = Allocs;
    const NO: u8 = 1;
    const NAME: &'static str = "namespace_create";
    type Group = String;
    type Order = u64;

    fn entries(row: &AllocRow, out: &mut Entries) {
        out.add::<Self>(&row.alloc.namespace, row.alloc.create_index);
    }
}

/// The allocations on a node, those that are not terminal first (`false` sorts before `true`).
pub struct AllocsByNode;

impl Index for AllocsByNode {
    type Table = Allocs;
    const NO: u8 = 2;
    const NAME: &'static str = "node";
    type Group = Id;
    type Order = bool;
    const WATCHED: bool = true;

    fn entries(row: &AllocRow, out: &mut Entries) {
        if !row.alloc.node_id.is_empty() {
            out.add::<Self>(&row.alloc.node_id, row.alloc.terminal_status());
        }
    }
}

/// The allocations of a job (namespace, id), by their creation.
pub struct AllocsByJob;

impl Index for AllocsByJob {
    type Table = Allocs;
    const NO: u8 = 3;
    const NAME: &'static str = "job";
    type Group = (String, String);
    type Order = u64;
    const WATCHED: bool = true;

    fn entries(row: &AllocRow, out: &mut Entries) {
        let alloc = &row.alloc;
        out.add::<Self>((&alloc.namespace, &alloc.job_id), alloc.create_index);
    }
}

/// The allocations an evaluation placed.
pub struct AllocsByEval;

impl Index for AllocsByEval {
    type Table = Allocs;
    const NO: u8 = 4;
    const NAME: &'static str = "eval";
    type Group = Id;
    type Order = ();
    const WATCHED: bool = true;

    fn entries(row: &AllocRow, out: &mut Entries) {
        if !row.alloc.eval_id.is_empty() {
            out.add::<Self>(&row.alloc.eval_id, ());
        }
    }
}

/// The allocations of a deployment.
pub struct AllocsByDeployment;

impl Index for AllocsByDeployment {
    type Table = Allocs;
    const NO: u8 = 5;
    const NAME: &'static str = "deployment";
    type Group = Id;
    type Order = ();
    const WATCHED: bool = true;

    fn entries(row: &AllocRow, out: &mut Entries) {
        if !row.alloc.deployment_id.is_empty() {
            out.add::<Self>(&row.alloc.deployment_id, ());
        }
    }
}

/// The allocations whose identities a key signed, while they are live (EV-17): until the client
/// says that the allocation is over.
pub struct AllocsBySigningKey;

impl Index for AllocsBySigningKey {
    type Table = Allocs;
    const NO: u8 = 6;
    const NAME: &'static str = "signing_key";
    type Group = Id;
    type Order = ();

    fn entries(row: &AllocRow, out: &mut Entries) {
        if !row.alloc.signing_key_id.is_empty() && !row.alloc.client_terminal() {
            out.add::<Self>(&row.alloc.signing_key_id, ());
        }
    }
}
