//! `one_time_tokens`: tokens that are exchanged once, one per accessor. They live ten minutes.

use drover_events::model::OneTimeToken;

use crate::key::Id;
use crate::table::{Entries, History, Index, IndexDef, Table};

/// The table; its key is the accessor.
pub struct OneTimeTokens;

impl Table for OneTimeTokens {
    const ID: u16 = 22;
    const NAME: &'static str = "one_time_tokens";
    type Key = Id;
    type Row = OneTimeToken;
    const INDEXES: &'static [IndexDef<Self>] = &[IndexDef::of::<OneTimeTokensBySecret>()];
    const HISTORY: History = History::None;

    fn key(row: &OneTimeToken) -> Id {
        Id::new(row.accessor_id.as_str())
    }
}

/// The one-time token with this secret, as it is stored.
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
