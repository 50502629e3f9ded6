//! `deployments`: new versions of jobs taking over. Deletions are not published.

use drover_events::Topic;
use drover_events::model::Deployment;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct Deployments;

impl Table for Deployments {
    const ID: u16 = 11;
    const NAME: &'static str = "deployments";
    type Key = Id;
    type Row = Deployment;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<DeploymentsByNamespace>(),
        IndexDef::of::<DeploymentsByJob>(),
    ];
    const PUBLISHES_DELETES: bool = false;

    fn key(row: &Deployment) -> Id {
        Id::new(row.id.as_str())
    }

    fn stream(row: &Deployment) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::Deployment,
            &row.namespace,
            &row.id,
            &[&row.job_id],
        ))
    }
}

/// The deployments of a namespace, by their creation.
pub struct DeploymentsByNamespace;

impl Index for DeploymentsByNamespace {
    type Table = Deployments;
    const NO: u8 = 1;
    const NAME: &'static str = "namespace_create";
    type Group = String;
    type Order = u64;

    fn entries(row: &Deployment, out: &mut Entries) {
        out.add::<Self>(&row.namespace, row.create_index);
    }
}

/// The deployments of a job (namespace, id), by their creation.
pub struct DeploymentsByJob;

impl Index for DeploymentsByJob {
    type Table = Deployments;
    const NO: u8 = 2;
    const NAME: &'static str = "job";
    type Group = (String, String);
    type Order = u64;
    const WATCHED: bool = true;

    fn entries(row: &Deployment, out: &mut Entries) {
        out.add::<Self>((&row.namespace, &row.job_id), row.create_index);
    }
}
