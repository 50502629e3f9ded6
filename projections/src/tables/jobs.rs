//! `jobs`: the current version of every job.

use drover_events::Topic;
use drover_events::model::Job;

use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

/// The table; its key is (namespace, id).
pub struct Jobs;

impl Table for Jobs {
    const ID: u16 = 6;
    const NAME: &'static str = "jobs";
    type Key = (String, String);
    type Row = Job;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<JobsByType>(),
        IndexDef::of::<JobsCollectable>(),
        IndexDef::of::<JobsPeriodic>(),
        IndexDef::of::<JobsByPool>(),
        IndexDef::of::<JobsByModify>(),
    ];

    fn key(row: &Job) -> (String, String) {
        (row.namespace.clone(), row.id.clone())
    }

    fn stream(row: &Job) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::Job, &row.namespace, &row.id, &[]))
    }
}

/// The index of jobs, ordered by their type.
pub struct JobsByType;

impl Index for JobsByType {
    type Table = Jobs;
    const NO: u8 = 1;
    const NAME: &'static str = "type";
    type Group = String;
    type Order = ();

    fn entries(row: &Job, out: &mut Entries) {
        out.add::<Self>(&row.r#type, ());
    }
}

/// The jobs that garbage collection may look at.
pub struct JobsCollectable;

impl Index for JobsCollectable {
    type Table = Jobs;
    const NO: u8 = 2;
    const NAME: &'static str = "gc";
    type Group = ();
    type Order = ();

    fn entries(row: &Job, out: &mut Entries) {
        if is_collectable(row) {
            out.add::<Self>((), ());
        }
    }
}

/// Whether garbage collection may look at the job: never one with a
/// tagged version; a periodic or parameterized one once stopped; any other once dead, and a
/// service or system job only when stopped too.
pub fn is_collectable(job: &Job) -> bool {
    if job.version_tag.is_some() {
        return false;
    }
    if job.is_periodic_active() || job.is_parameterized() {
        return job.stop;
    }
    job.is_dead() && (job.stop || job.is_batch())
}

/// The jobs that have a periodic block.
pub struct JobsPeriodic;

impl Index for JobsPeriodic {
    type Table = Jobs;
    const NO: u8 = 3;
    const NAME: &'static str = "periodic";
    type Group = ();
    type Order = ();

    fn entries(row: &Job, out: &mut Entries) {
        if row.is_periodic() {
            out.add::<Self>((), ());
        }
    }
}

/// The jobs of a node pool.
pub struct JobsByPool;

impl Index for JobsByPool {
    type Table = Jobs;
    const NO: u8 = 4;
    const NAME: &'static str = "pool";
    type Group = String;
    type Order = ();

    fn entries(row: &Job, out: &mut Entries) {
        out.add::<Self>(&row.node_pool, ());
    }
}

/// All jobs, by their modify index.
pub struct JobsByModify;

impl Index for JobsByModify {
    type Table = Jobs;
    const NO: u8 = 5;
    const NAME: &'static str = "modify_index";
    type Group = ();
    type Order = u64;

    fn entries(row: &Job, out: &mut Entries) {
        out.add::<Self>((), row.modify_index);
    }
}
