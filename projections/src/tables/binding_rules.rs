//! `binding_rules`: the roles and policies that logins get.

use drover_events::Topic;
use drover_events::model::AclBindingRule;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct BindingRules;

impl Table for BindingRules {
    const ID: u16 = 25;
    const NAME: &'static str = "binding_rules";
    type Key = Id;
    type Row = AclBindingRule;
    const INDEXES: &'static [IndexDef<Self>] = &[IndexDef::of::<BindingRulesByMethod>()];

    fn key(row: &AclBindingRule) -> Id {
        Id::new(row.id.as_str())
    }

    fn stream(row: &AclBindingRule) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::AclBindingRule,
            "",
            &row.id,
            &[&row.auth_method],
        ))
    }
}

/// The rules of a method (EV-17).
pub struct BindingRulesByMethod;

impl Index for BindingRulesByMethod {
    type Table = BindingRules;
    const NO: u8 = 1;
    const NAME: &'static str = "auth_method";
    type Group = String;
    type Order = ();

    fn entries(row: &AclBindingRule, out: &mut Entries) {
        out.add::<Self>(&row.auth_method, ());
    }
}
