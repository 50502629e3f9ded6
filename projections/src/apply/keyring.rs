//! Root keys: their metadata and public halves. The material never comes here.

use drover_events::keyring::*;
use drover_events::model::status::root_key;

use super::ApplyResult;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::scan::Scan;
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::tables::root_keys::{RootKey, RootKeys};

/// A key's metadata is written. There is one active key: a new one takes the old one's place.
pub(super) fn upserted(txn: &mut Txn<'_>, ctx: &Ctx, ev: &RootKeyUpserted) -> ApplyResult {
    let known = txn.get::<RootKeys>(ev.key.key_id.as_str())?;
    let mut row = RootKey {
        meta: ev.key.clone(),
        public_key: ev.public_key.clone(),
    };
    row.meta.create_index = ctx.index;
    row.meta.modify_index = ctx.index;
    if let Some(known) = &known {
        row.meta.create_index = known.meta.create_index;
        if row.public_key.is_empty() {
            row.public_key = known.public_key.clone();
        }
    }
    if row.meta.state == root_key::ACTIVE {
        let retired = if ev.rekey {
            root_key::REKEYING
        } else {
            root_key::INACTIVE
        };
        let others: Vec<_> = txn
            .scan::<RootKeys>(Scan::all())
            .collect::<Result<_, _>>()?;
        for other in others {
            let other = &other.meta;
            if other.key_id != row.meta.key_id && other.state == root_key::ACTIVE {
                txn.update::<RootKeys>(other.key_id.as_str(), |key| {
                    key.meta.state = retired.to_owned();
                    key.meta.modify_index = ctx.index;
                })?;
            }
        }
    }
    txn.put::<RootKeys>(row)?;
    Ok(Reply::None)
}

/// A key goes: never the active one, and one in use only by force (KR-08).
pub(super) fn deleted(txn: &mut Txn<'_>, _ctx: &Ctx, ev: &RootKeyDeleted) -> ApplyResult {
    let Some(known) = txn.get::<RootKeys>(ev.key_id.as_str())? else {
        return Err(Refused::because("root key not found"));
    };
    if known.meta.state == root_key::ACTIVE {
        let text = "active root key cannot be deleted - call rotate first";
        return Err(Refused::because(text));
    }
    if !ev.force && query::root_key_in_use(txn, &ev.key_id)? {
        return Err(Refused::because("root key in use, cannot delete"));
    }
    txn.delete::<RootKeys>(ev.key_id.as_str())?;
    Ok(Reply::None)
}
