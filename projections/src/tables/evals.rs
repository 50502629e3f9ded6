//! `evals`: work for the scheduler. Deletions are not published.

use drover_events::Topic;
use drover_events::model::Evaluation;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct Evals;

impl Table for Evals {
    const ID: u16 = 12;
    const NAME: &'static str = "evals";
    type Key = Id;
    type Row = Evaluation;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<EvalsByNamespace>(),
        IndexDef::of::<EvalsByJob>(),
        IndexDef::of::<EvalsOpenByJob>(),
    ];
    const PUBLISHES_DELETES: bool = false;
    const POSTED: &'static [usize] = &[1];

    fn key(row: &Evaluation) -> Id {
        Id::new(row.id.as_str())
    }

    fn stream(row: &Evaluation) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::Evaluation,
            &row.namespace,
            &row.id,
            &[&row.job_id, &row.deployment_id],
        ))
    }
}

/// The evaluations of a namespace, by their creation.
pub struct EvalsByNamespace;

impl Index for EvalsByNamespace {
    type Table = Evals;
    const NO: u8 = 1;
    const NAME: &'static str = "namespace_create";
    type Group = String;
    type Order = u64;

    fn entries(row: &Evaluation, out: &mut Entries) {
        out.add::<Self>(&row.namespace, row.create_index);
    }
}

/// The evaluations of a job (namespace, id), by their creation.
pub struct EvalsByJob;

impl Index for EvalsByJob {
    type Table = Evals;
    const NO: u8 = 2;
    const NAME: &'static str = "job";
    type Group = (String, String);
    type Order = u64;
    const WATCHED: bool = true;

    fn entries(row: &Evaluation, out: &mut Entries) {
        out.add::<Self>((&row.namespace, &row.job_id), row.create_index);
    }
}

/// The evaluations of a job (namespace, id) that are not terminal: what decides its status.
pub struct EvalsOpenByJob;

impl Index for EvalsOpenByJob {
    type Table = Evals;
    const NO: u8 = 3;
    const NAME: &'static str = "job_open";
    type Group = (String, String);
    type Order = u64;

    fn entries(row: &Evaluation, out: &mut Entries) {
        if !row.terminal_status() {
            out.add::<Self>((&row.namespace, &row.job_id), row.create_index);
        }
    }
}
