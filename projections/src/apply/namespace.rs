//! Namespaces. `default` exists without a row and cannot be removed.

use drover_events::model::Namespace;
use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_events::namespace::*;

use super::ApplyResult;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::txn::{Ctx, Txn};
use crate::query;
use crate::tables::namespaces::Namespaces;

/// Whether jobs and variables may name the namespace.
pub(super) fn exists(txn: &Txn<'_>, name: &str) -> Result<bool, Refused> {
    Ok(name == DEFAULT_NAMESPACE || txn.exists::<Namespaces>(name)?)
}

/// The namespace of a new cluster.
pub(super) fn create_built_in(txn: &mut Txn<'_>, ctx: &Ctx) -> Result<(), Refused> {
    if !txn.exists::<Namespaces>(DEFAULT_NAMESPACE)? {
        txn.put::<Namespaces>(Namespace {
            name: DEFAULT_NAMESPACE.to_owned(),
            description: "Default shared namespace".to_owned(),
            create_index: ctx.index,
            modify_index: ctx.index,
            ..Namespace::default()
        })?;
    }
    Ok(())
}

/// Namespaces are created or changed.
pub(super) fn upserted(txn: &mut Txn<'_>, ctx: &Ctx, ev: &NamespacesUpserted) -> ApplyResult {
    for namespace in &ev.namespaces {
        let known = txn.get::<Namespaces>(namespace.name.as_str())?;
        let create_index = known.map_or(ctx.index, |known| known.create_index);
        let row = Namespace {
            create_index,
            modify_index: ctx.index,
            ..namespace.clone()
        };
        txn.put::<Namespaces>(row)?;
    }
    Ok(Reply::None)
}

/// Namespaces go, unless something is still in them.
pub(super) fn deleted(txn: &mut Txn<'_>, _ctx: &Ctx, ev: &NamespacesDeleted) -> ApplyResult {
    for name in &ev.names {
        if name == DEFAULT_NAMESPACE {
            return Err(Refused::because("default namespace can not be deleted"));
        }
        if let Some(job) = query::live_job_of_namespace(txn, name)? {
            return Err(Refused::because(format!(
                "namespace \"{name}\" contains at least one non-terminal job \"{job}\". \
                 All jobs must be terminal in namespace before it can be deleted"
            )));
        }
        if query::namespace_has_variables(txn, name)? {
            return Err(Refused::because(format!(
                "namespace \"{name}\" contains at least one variable. \
                 All variables in namespace must be deleted before it can be deleted"
            )));
        }
        if let Some(volume) = query::csi::volume_of_namespace(txn, name)? {
            return Err(Refused::because(format!(
                "namespace \"{name}\" contains at least one CSI volume \"{volume}\". \
                 All CSI volumes in namespace must be deleted before it can be deleted"
            )));
        }
        if let Some(volume) = query::host_volumes::volume_of_namespace(txn, name)? {
            return Err(Refused::because(format!(
                "namespace \"{name}\" contains at least one host volume \"{volume}\". \
                 All host volumes in namespace must be deleted before it can be deleted"
            )));
        }
        if !txn.delete::<Namespaces>(name.as_str())? {
            return Err(Refused::because(format!("namespace \"{name}\" not found")));
        }
    }
    Ok(Reply::None)
}
