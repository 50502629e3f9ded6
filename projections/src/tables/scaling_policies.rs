//! `scaling_policies`: how groups of jobs may be scaled.

use drover_events::model::ScalingPolicy;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct ScalingPolicies;

impl Table for ScalingPolicies {
    const ID: u16 = 31;
    const NAME: &'static str = "scaling_policies";
    type Key = Id;
    type Row = ScalingPolicy;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<ScalingPoliciesByTarget>(),
        IndexDef::of::<ScalingPoliciesByType>(),
        IndexDef::of::<ScalingPoliciesByEnabled>(),
    ];

    fn key(row: &ScalingPolicy) -> Id {
        Id::new(row.id.as_str())
    }
}

/// The policies of a job (namespace, id), by group.
pub struct ScalingPoliciesByTarget;

impl Index for ScalingPoliciesByTarget {
    type Table = ScalingPolicies;
    const NO: u8 = 1;
    const NAME: &'static str = "target";
    type Group = (String, String);
    type Order = String;

    fn entries(row: &ScalingPolicy, out: &mut Entries) {
        let target = |name: &str| row.target.get(name).map_or("", String::as_str);
        out.add::<Self>((target("Namespace"), target("Job")), target("Group"));
    }
}

/// The policies of a type.
pub struct ScalingPoliciesByType;

impl Index for ScalingPoliciesByType {
    type Table = ScalingPolicies;
    const NO: u8 = 2;
    const NAME: &'static str = "type";
    type Group = String;
    type Order = ();

    fn entries(row: &ScalingPolicy, out: &mut Entries) {
        out.add::<Self>(&row.r#type, ());
    }
}

/// The policies in force, or those that are not.
pub struct ScalingPoliciesByEnabled;

impl Index for ScalingPoliciesByEnabled {
    type Table = ScalingPolicies;
    const NO: u8 = 3;
    const NAME: &'static str = "enabled";
    type Group = bool;
    type Order = ();

    fn entries(row: &ScalingPolicy, out: &mut Entries) {
        out.add::<Self>(row.enabled, ());
    }
}
