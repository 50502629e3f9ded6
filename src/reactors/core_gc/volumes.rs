//! CSI volumes and plugins (PLG-03, VW-12).

use std::sync::Arc;

use drover_events::csi::{CsiVolumeClaimed, claim_mode};
use drover_projections::Scan;
use drover_projections::query::csi;
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::CsiVolumes;

use super::Cutoffs;
use crate::commands::Command;
use crate::commands::csi::{ClaimVolume, DeleteCsiPlugin};
use crate::error::Refusal;
use crate::reactors::each::Each;
use crate::reactors::runner::{Context, Failure};

/// Volumes that are looked at in one view.
const BATCH: usize = 1_000;

/// Removes plugins of which nothing is left, and gives a sign for each volume with claims that
/// should long be free: its index moves, and nothing else.
pub(super) async fn collect(
    context: &Context,
    cutoffs: &Cutoffs,
    each: &mut Each,
) -> Result<(), Failure> {
    for id in left_over(context, cutoffs, each)? {
        remove(context, id, each).await?;
    }
    for (namespace, volume_id) in waiting(context, cutoffs, each)? {
        let what = format!("claims on volume {volume_id} of namespace {namespace}");
        let claim = CsiVolumeClaimed {
            namespace,
            volume_id,
            mode: claim_mode::GC,
            ..CsiVolumeClaimed::default()
        };
        submit(context, ClaimVolume { claim }, &what, each).await?;
    }
    Ok(())
}

/// Removes a plugin. One that came into use meanwhile stays, and one that is gone is gone: neither
/// is a failure (PLG-03).
async fn remove(context: &Context, id: String, each: &mut Each) -> Result<(), Failure> {
    let command = Arc::new(DeleteCsiPlugin { id: id.clone() });
    match context.proposer.submit(command, "core_gc").await {
        Err(error) if error.concerns_all() => Err(error.into()),
        Err(error) => {
            let row = context.projections.view().get::<CsiPlugins>(id.as_str());
            if each.row(row)?.flatten().is_some_and(|row| !row.in_use()) {
                each.fail(&format!("plugin {id}"), &error);
            }
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

async fn submit(
    context: &Context,
    command: impl Command + 'static,
    what: &str,
    each: &mut Each,
) -> Result<(), Refusal> {
    match context.proposer.submit(Arc::new(command), "core_gc").await {
        Err(error) if error.concerns_all() => Err(error),
        done => {
            each.take(what, done);
            Ok(())
        }
    }
}

/// Plugins that nothing stands for any more.
fn left_over(
    context: &Context,
    cutoffs: &Cutoffs,
    each: &mut Each,
) -> Result<Vec<String>, Failure> {
    let view = context.projections.view();
    let mut found = Vec::new();
    for row in view.scan::<CsiPlugins>(Scan::all()) {
        let Some(row) = each.row(row)? else {
            continue;
        };
        if !row.in_use() && row.plugin.modify_time <= cutoffs.plugins {
            found.push(row.plugin.id);
        }
    }
    Ok(found)
}

/// Volumes with claims to free that have not changed for long: their modify time counts, whichever
/// change it is of. A sign leaves that as it is, so a volume is given one in each look until its
/// claims are free.
fn waiting(
    context: &Context,
    cutoffs: &Cutoffs,
    each: &mut Each,
) -> Result<Vec<(String, String)>, Failure> {
    let view = context.projections.view();
    let mut old = Vec::new();
    for row in view.scan::<CsiVolumes>(Scan::all()) {
        let Some(row) = each.row(row)? else {
            continue;
        };
        if !row.is_at_rest() && row.volume.modify_time <= cutoffs.claims {
            old.push(row);
        }
    }
    drop(view);
    let mut found = Vec::new();
    for batch in old.chunks(BATCH) {
        let view = context.projections.view();
        for row in batch {
            let volume = each.judge(&row.volume.id, || csi::with_past_claims(&view, row))?;
            if volume.is_some_and(|volume| !volume.row.past_claims.is_empty()) {
                found.push((row.volume.namespace.clone(), row.volume.id.clone()));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "plugins_test.rs"]
mod tests;
