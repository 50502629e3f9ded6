//! `acl_tokens`: ACL tokens; their secrets as a hash, and as ciphertext for the API.

use drover_events::Topic;
use drover_events::model::AclToken;

use crate::key::Id;
use crate::table::{Entries, Index, IndexDef, StreamKey, Table};

/// The table; its key is the accessor.
pub struct AclTokens;

impl Table for AclTokens {
    const ID: u16 = 21;
    const NAME: &'static str = "acl_tokens";
    type Key = Id;
    type Row = AclToken;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<AclTokensByCreate>(),
        IndexDef::of::<AclTokensBySecret>(),
        IndexDef::of::<AclTokensByGlobal>(),
        IndexDef::of::<AclTokensByExpiration>(),
    ];

    fn key(row: &AclToken) -> Id {
        Id::new(row.accessor_id.as_str())
    }

    fn stream(row: &AclToken) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::AclToken, "", &row.accessor_id, &[]))
    }
}

/// All tokens, by their creation.
pub struct AclTokensByCreate;

impl Index for AclTokensByCreate {
    type Table = AclTokens;
    const NO: u8 = 1;
    const NAME: &'static str = "create";
    type Group = ();
    type Order = u64;

    fn entries(row: &AclToken, out: &mut Entries) {
        out.add::<Self>((), row.create_index);
    }
}

/// The token with this secret, as it is stored.
pub struct AclTokensBySecret;

impl Index for AclTokensBySecret {
    type Table = AclTokens;
    const NO: u8 = 2;
    const NAME: &'static str = "secret";
    type Group = Id;
    type Order = ();

    fn entries(row: &AclToken, out: &mut Entries) {
        out.add::<Self>(&row.secret_id, ());
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

    fn entries(row: &AclToken, out: &mut Entries) {
        out.add::<Self>(row.global, ());
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

    fn entries(row: &AclToken, out: &mut Entries) {
        if let Some(expires) = &row.expiration_time {
            out.add::<Self>(row.global, expires.0);
        }
    }
}
