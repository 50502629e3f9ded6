//! `namespaces`: namespaces. They have no topic.

use drover_events::model::Namespace;

use crate::engine::table::{Entries, Index, IndexDef, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct Namespaces;

impl Table for Namespaces {
    const ID: u16 = 26;
    const NAME: &'static str = "namespaces";
    type Key = String;
    type Row = Namespace;
    const INDEXES: &'static [IndexDef<Self>] = &[IndexDef::of::<NamespacesByQuota>()];

    fn key(row: &Namespace) -> String {
        row.name.clone()
    }
}

/// The namespaces under a quota.
pub struct NamespacesByQuota;

impl Index for NamespacesByQuota {
    type Table = Namespaces;
    const NO: u8 = 1;
    const NAME: &'static str = "quota";
    type Group = String;
    type Order = ();

    fn entries(row: &Namespace, out: &mut Entries) {
        if !row.quota.is_empty() {
            out.add::<Self>(&row.quota, ());
        }
    }
}
