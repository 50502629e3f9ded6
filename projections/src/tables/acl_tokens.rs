//! `acl_tokens`: ACL tokens; their secrets as a hash, and as ciphertext for the API.

use drover_events::Topic;
use drover_events::acl::SealedToken;
use sha2::{Digest as _, Sha256};

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

/// The table; its key is the accessor.
pub struct AclTokens;

impl Table for AclTokens {
    const ID: u16 = 21;
    const NAME: &'static str = "acl_tokens";
    type Key = Id;
    type Row = SealedToken;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<AclTokensByCreate>(),
        IndexDef::of::<AclTokensBySecret>(),
        IndexDef::of::<AclTokensByGlobal>(),
        IndexDef::of::<AclTokensByExpiration>(),
        IndexDef::of::<AclTokensByKey>(),
    ];

    fn key(row: &SealedToken) -> Id {
        Id::new(row.token.accessor_id.as_str())
    }

    fn stream(row: &SealedToken) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::AclToken,
            "",
            &row.token.accessor_id,
            &[],
        ))
    }
}

/// What a token is found by: the SHA-256 of a domain and its secret, in hexadecimal. Secrets are
/// random UUIDs, so trying finds none.
pub fn secret_hash(secret: &str) -> String {
    hash_of("drover acl token secret", secret)
}

/// The same secret is another one in another domain.
pub(super) fn hash_of(domain: &str, secret: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(domain);
    hash.update([0]);
    hash.update(secret);
    hex::encode(hash.finalize())
}

/// All tokens, by their creation.
pub struct AclTokensByCreate;

impl Index for AclTokensByCreate {
    type Table = AclTokens;
    const NO: u8 = 1;
    const NAME: &'static str = "create";
    type Group = ();
    type Order = u64;

    fn entries(row: &SealedToken, out: &mut Entries) {
        out.add::<Self>((), row.token.create_index);
    }
}

/// The token with this hash of a secret.
pub struct AclTokensBySecret;

impl Index for AclTokensBySecret {
    type Table = AclTokens;
    const NO: u8 = 2;
    const NAME: &'static str = "secret";
    type Group = Id;
    type Order = ();

    fn entries(row: &SealedToken, out: &mut Entries) {
        out.add::<Self>(&row.secret.hash, ());
    }
}

/// The global tokens, or the local ones.
pub struct AclTokensByGlobal;

impl Index for AclTokensByGlobal {
    type Table = AclTokens;
    const NO: u8 = 3;
    const NAME: &'static str = "global";
    type Group = bool;
    type Order = ();

    fn entries(row: &SealedToken, out: &mut Entries) {
        out.add::<Self>(row.token.global, ());
    }
}

/// Global or local tokens that expire, soonest first (Unix nanoseconds).
pub struct AclTokensByExpiration;

impl Index for AclTokensByExpiration {
    type Table = AclTokens;
    const NO: u8 = 4;
    const NAME: &'static str = "expires";
    type Group = bool;
    type Order = i64;

    fn entries(row: &SealedToken, out: &mut Entries) {
        if let Some(expires) = &row.token.expiration_time {
            out.add::<Self>(row.token.global, expires.0);
        }
    }
}

/// The tokens whose secret is encrypted with a root key.
pub struct AclTokensByKey;

impl Index for AclTokensByKey {
    type Table = AclTokens;
    const NO: u8 = 5;
    const NAME: &'static str = "key_id";
    type Group = Id;
    type Order = ();

    fn entries(row: &SealedToken, out: &mut Entries) {
        out.add::<Self>(&row.secret.key_id, ());
    }
}
