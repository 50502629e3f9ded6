//! `one_time_tokens`: tokens that are exchanged once, one per accessor. They live ten minutes. A
//! row has the hash of its secret where the secret would be.

use drover_events::model::OneTimeToken;

use crate::engine::key::Id;
use crate::engine::table::{Entries, History, Index, IndexDef, Table};

/// The table; its key is the accessor.
pub struct OneTimeTokens;

impl Table for OneTimeTokens {
    const ID: u16 = 22;
    const NAME: &'static str = "one_time_tokens";
    type Key = Id;
    type Row = OneTimeToken;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<OneTimeTokensBySecret>(),
        IndexDef::of::<OneTimeTokensByExpiration>(),
    ];
    const HISTORY: History = History::None;

    fn key(row: &OneTimeToken) -> Id {
        Id::new(row.accessor_id.as_str())
    }
}

/// What a one-time token is found by, as a token is.
pub fn secret_hash(secret: &str) -> String {
    super::acl_tokens::hash_of("drover one-time token secret", secret)
}

/// The one-time token with this hash of a secret.
pub struct OneTimeTokensBySecret;

impl Index for OneTimeTokensBySecret {
    type Table = OneTimeTokens;
    const NO: u8 = 1;
    const NAME: &'static str = "secret";
    type Group = Id;
    type Order = ();

    fn entries(row: &OneTimeToken, out: &mut Entries) {
        out.add::<Self>(&row.one_time_secret_id, ());
    }
}

/// All one-time tokens, those that run out first (Unix nanoseconds).
pub struct OneTimeTokensByExpiration;

impl Index for OneTimeTokensByExpiration {
    type Table = OneTimeTokens;
    const NO: u8 = 2;
    const NAME: &'static str = "expires";
    type Group = ();
    type Order = i64;

    fn entries(row: &OneTimeToken, out: &mut Entries) {
        out.add::<Self>((), row.expires_at.0);
    }
}
