//! The guards of an event: what its proposer saw must still be so.

use drover_events::{EventId, Guard};

use crate::engine::error::StorageError;
use crate::engine::outcome::{Refused, Rejection};
use crate::engine::txn::Txn;
use crate::tables::node_use::NodeUses;

/// Checks the guards of an event; the first that does not hold refuses it.
pub(crate) fn check(txn: &Txn<'_>, guards: &[Guard]) -> Result<(), Refused> {
    for (position, guard) in guards.iter().enumerate() {
        if let Some(found) = fails(txn, guard)? {
            return Err(Refused::Rejected(Rejection::Guard {
                position: position as u32,
                found,
            }));
        }
    }
    Ok(())
}

/// What was found instead, if the guard does not hold.
fn fails(txn: &Txn<'_>, guard: &Guard) -> Result<Option<u64>, StorageError> {
    Ok(match guard {
        Guard::RowAt { table, key, index } => {
            let found = txn.modified_of(*table, key)?.unwrap_or(0);
            (found != *index).then_some(found)
        }
        Guard::RowAbsent { table, key } => txn.modified_of(*table, key)?,
        Guard::CountBelow {
            table,
            prefix,
            limit,
        } => {
            let found = txn.count_of(*table, prefix, *limit)?;
            (found >= *limit).then_some(found)
        }
        Guard::NodeMark { node, mark } => {
            let found = txn.get::<NodeUses>(node.as_str())?;
            let held = found.as_ref().map_or(EventId::ZERO, |usage| usage.mark);
            if held == *mark {
                return Ok(None);
            }
            Some(txn.modified::<NodeUses>(node.as_str())?.unwrap_or(0))
        }
    })
}
