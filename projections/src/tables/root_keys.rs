//! `root_keys`: what is known of root keys: metadata and public halves, never material.

use drover_events::gojson::Base64;
use drover_events::model::RootKeyMeta;

use crate::engine::key::Id;
use crate::engine::table::Table;

#[allow(missing_docs, reason = "the module says it")]
pub struct RootKeys;

drover_events::wire! {
    /// A root key; the public half signs identities (Ed25519, 32 bytes).
    pub struct RootKey {
        meta: RootKeyMeta = "Meta",
        public_key: Base64 = "PublicKey",
    }
}

impl Table for RootKeys {
    const ID: u16 = 30;
    const NAME: &'static str = "root_keys";
    type Key = Id;
    type Row = RootKey;

    fn key(row: &RootKey) -> Id {
        Id::new(row.meta.key_id.as_str())
    }
}
