//! `acl_policies`: ACL policies.

use drover_events::Topic;
use drover_events::model::AclPolicy;

use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct AclPolicies;

impl Table for AclPolicies {
    const ID: u16 = 20;
    const NAME: &'static str = "acl_policies";
    type Key = String;
    type Row = AclPolicy;
    const INDEXES: &'static [IndexDef<Self>] = &[IndexDef::of::<AclPoliciesByJob>()];

    fn key(row: &AclPolicy) -> String {
        row.name.clone()
    }

    fn stream(row: &AclPolicy) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::AclPolicy, "", &row.name, &[]))
    }
}

/// The policies bound to workloads of a job (namespace, id) (EV-17).
pub struct AclPoliciesByJob;

impl Index for AclPoliciesByJob {
    type Table = AclPolicies;
    const NO: u8 = 1;
    const NAME: &'static str = "job";
    type Group = (String, String);
    type Order = ();

    fn entries(row: &AclPolicy, out: &mut Entries) {
        if let Some(job) = &row.job_acl {
            out.add::<Self>((&job.namespace, &job.job_id), ());
        }
    }
}
