//! Variables: one operation, decided here and nowhere else (VAR-02), with the quota of its
//! namespace (VAR-05).

use std::sync::Arc;

use drover_events::model::{VariableEncrypted, VariableMetadata};
use drover_events::variable::*;

use super::{ApplyResult, namespace};
use crate::engine::outcome::{Refused, Reply, VarOutcome};
use crate::engine::txn::{Ctx, Txn};
use crate::tables::variable_quotas::{VariableQuota, VariableQuotas};
use crate::tables::variables::Variables;

/// One operation on one variable. A conflict is an answer, not a refusal (VAR-03).
pub(super) fn applied(txn: &mut Txn<'_>, ctx: &Ctx, ev: &VariableApplied) -> ApplyResult {
    let known = txn.get::<Variables>(key(&ev.var))?;
    let known_index = known.as_ref().map_or(0, |known| known.modify_index);
    match ev.op {
        VarOp::Set => set(txn, ctx, ev, known),
        VarOp::Delete => delete(txn, ctx, &ev.var, known),
        VarOp::Cas | VarOp::DeleteCas if known_index != ev.var.modify_index => {
            Ok(conflict(&ev.var, known))
        }
        VarOp::Cas => set(txn, ctx, ev, known),
        VarOp::DeleteCas => delete(txn, ctx, &ev.var, known),
        VarOp::LockAcquire | VarOp::LockRelease => Err(Refused::because(format!(
            "variable operation \"{}\" is not known",
            ev.op.name()
        ))),
    }
}

fn key(var: &VariableEncrypted) -> (&str, &str) {
    (&var.namespace, &var.path)
}

fn set(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    ev: &VariableApplied,
    known: Option<Arc<VariableEncrypted>>,
) -> ApplyResult {
    let var = &ev.var;
    if !namespace::exists(txn, &var.namespace)? {
        return Err(Refused::because(format!(
            "namespace \"{}\" does not exist",
            var.namespace
        )));
    }
    let mut row = var.clone();
    row.create_index = ctx.index;
    row.create_time = ctx.time;
    row.modify_index = ctx.index;
    row.modify_time = ctx.time;
    row.lock = None;
    if let Some(known) = &known {
        row.create_index = known.create_index;
        row.create_time = known.create_time;
        row.lock = known.lock.clone();
    }
    let before = known.as_ref().map_or(0, |known| size(known));
    charge(txn, ctx, &var.namespace, size(&row) - before, ev.quota)?;
    let written = metadata(&row);
    txn.put::<Variables>(row)?;
    Ok(Reply::Variable(Box::new(VarOutcome::Written(written))))
}

fn delete(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    var: &VariableEncrypted,
    known: Option<Arc<VariableEncrypted>>,
) -> ApplyResult {
    let Some(known) = known else {
        return Ok(Reply::Variable(Box::new(VarOutcome::Deleted(None))));
    };
    charge(txn, ctx, &var.namespace, -size(&known), 0)?;
    txn.delete::<Variables>(key(var))?;
    Ok(Reply::Variable(Box::new(VarOutcome::Deleted(Some(
        metadata(&known),
    )))))
}

/// The variable that exists, or one without index and items where none does (VAR-04).
fn conflict(var: &VariableEncrypted, known: Option<Arc<VariableEncrypted>>) -> Reply {
    let known = known.map_or_else(
        || VariableEncrypted {
            namespace: var.namespace.clone(),
            path: var.path.clone(),
            ..VariableEncrypted::default()
        },
        |known| VariableEncrypted::clone(&known),
    );
    Reply::Variable(Box::new(VarOutcome::Conflict(known)))
}

/// What counts against the quota: the encrypted items, in bytes.
pub fn size(var: &VariableEncrypted) -> i64 {
    i64::try_from(var.data.len()).unwrap_or(i64::MAX)
}

/// Whether a namespace whose variables take `used` bytes may have so many more; less is always
/// allowed, and a quota of 0 allows any number.
///
/// # Errors
/// The refusal, in the words a client reads.
pub fn check_quota(namespace: &str, used: i64, by: i64, quota: u64) -> Result<i64, String> {
    let most = match quota {
        0 => i64::MAX,
        quota => i64::try_from(quota).unwrap_or(i64::MAX),
    };
    match used.checked_add(by) {
        Some(size) if by <= 0 || size <= most => Ok(size.max(0)),
        _ => Err(format!(
            "variables quota exceeded: the variables of namespace \"{namespace}\" take {used} \
             bytes, {by} more would pass the {most} they may take"
        )),
    }
}

/// Moves the namespace's quota row by the difference.
fn charge(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    namespace: &str,
    by: i64,
    quota: u64,
) -> Result<(), Refused> {
    let known = txn.get::<VariableQuotas>(namespace)?;
    let mut row = known.as_deref().cloned().unwrap_or_else(|| VariableQuota {
        namespace: namespace.to_owned(),
        create_index: ctx.index,
        ..VariableQuota::default()
    });
    row.size = check_quota(namespace, row.size, by, quota).map_err(Refused::because)?;
    row.modify_index = ctx.index;
    txn.put::<VariableQuotas>(row)?;
    Ok(())
}

fn metadata(var: &VariableEncrypted) -> VariableMetadata {
    VariableMetadata {
        namespace: var.namespace.clone(),
        path: var.path.clone(),
        lock: var.lock.clone(),
        create_index: var.create_index,
        create_time: var.create_time,
        modify_index: var.modify_index,
        modify_time: var.modify_time,
    }
}
