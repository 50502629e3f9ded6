//! `variable_quotas`: the size of all variables of a namespace; it follows from them.

use crate::engine::table::{History, Table};

/// The table; its key is the namespace.
pub struct VariableQuotas;

drover_events::wire! {
    /// Bytes of ciphertext that a namespace's variables take.
    pub struct VariableQuota {
        namespace: String = "Namespace",
        size: i64 = "Size",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

impl Table for VariableQuotas {
    const ID: u16 = 29;
    const NAME: &'static str = "variable_quotas";
    type Key = String;
    type Row = VariableQuota;
    const HISTORY: History = History::Derived;

    fn key(row: &VariableQuota) -> String {
        row.namespace.clone()
    }
}
