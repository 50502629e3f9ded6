//! Events about root keys: their metadata, never their material.

use crate::gojson::Base64;
use crate::model::RootKeyMeta;
use crate::wire;

wire! {
    /// A root key's metadata was written. The material was in the key store, synced, before that.
    pub struct RootKeyUpserted {
        key: RootKeyMeta = "RootKeyMeta",
        /// The public half of the key that signs identities (Ed25519, 32 bytes).
        public_key: Base64 = "PublicKey",
        /// Whether what the former keys encrypt is to be encrypted again.
        rekey: bool = "Rekey",
    }

    /// A root key was removed; never the active one (KR-08).
    pub struct RootKeyDeleted {
        key_id: String = "KeyID",
        /// Also when something is still encrypted or signed with it.
        force: bool = "Force",
    }
}
