//! `variables`: variables; their items as ciphertext.

use drover_events::Topic;
use drover_events::model::VariableEncrypted;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

/// The table; its key is (namespace, path).
pub struct Variables;

impl Table for Variables {
    const ID: u16 = 28;
    const NAME: &'static str = "variables";
    type Key = (String, String);
    type Row = VariableEncrypted;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<VariablesByKey>(),
        IndexDef::of::<VariablesByPath>(),
    ];

    fn key(row: &VariableEncrypted) -> (String, String) {
        (row.namespace.clone(), row.path.clone())
    }

    fn stream(row: &VariableEncrypted) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::Variable,
            &row.namespace,
            &row.path,
            &[],
        ))
    }
}

/// The variables encrypted with a root key.
pub struct VariablesByKey;

impl Index for VariablesByKey {
    type Table = Variables;
    const NO: u8 = 1;
    const NAME: &'static str = "key_id";
    type Group = Id;
    type Order = ();

    fn entries(row: &VariableEncrypted, out: &mut Entries) {
        out.add::<Self>(&row.key_id, ());
    }
}

/// The variables of all namespaces, by path.
pub struct VariablesByPath;

impl Index for VariablesByPath {
    type Table = Variables;
    const NO: u8 = 2;
    const NAME: &'static str = "path";
    type Group = ();
    type Order = String;

    fn entries(row: &VariableEncrypted, out: &mut Entries) {
        out.add::<Self>((), &row.path);
    }
}
