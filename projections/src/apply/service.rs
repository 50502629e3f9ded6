//! Service registrations.

use drover_events::model::ServiceRegistration;
use drover_events::service::*;

use super::ApplyResult;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::tables::services::Services;

/// Services are registered; one that is unchanged is not written.
pub(super) fn upserted(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &ServiceRegistrationsUpserted,
) -> ApplyResult {
    for service in &ev.services {
        let key = (service.namespace.as_str(), service.id.as_str());
        let known = txn.get::<Services>(key)?;
        let mut row = service.clone();
        if let Some(known) = known {
            row.create_index = known.create_index;
            row.modify_index = known.modify_index;
            if row == *known {
                continue;
            }
        } else {
            row.create_index = ctx.index;
        }
        row.modify_index = ctx.index;
        txn.put::<Services>(row)?;
    }
    Ok(Reply::None)
}

/// Services go: those named, and all of a node.
pub(super) fn deleted(
    txn: &mut Txn<'_>,
    _ctx: &Ctx,
    ev: &ServiceRegistrationsDeleted,
) -> ApplyResult {
    for key in &ev.services {
        if !txn.delete::<Services>((key.namespace.as_str(), key.id.as_str()))? {
            return Err(Refused::because(format!(
                "service registration {} not found in namespace \"{}\"",
                key.id, key.namespace
            )));
        }
    }
    if !ev.node_id.is_empty() {
        delete_all(txn, query::services_of_node(txn, &ev.node_id)?)?;
    }
    Ok(Reply::None)
}

/// The services of an allocation that ended go with it.
pub(super) fn alloc_ended(txn: &mut Txn<'_>, alloc: &str) -> Result<(), Refused> {
    delete_all(txn, query::services_of_alloc(txn, alloc)?)
}

fn delete_all(
    txn: &mut Txn<'_>,
    services: Vec<std::sync::Arc<ServiceRegistration>>,
) -> Result<(), Refused> {
    for service in services {
        txn.delete::<Services>((service.namespace.as_str(), service.id.as_str()))?;
    }
    Ok(())
}
