//! A deployment as people read it.

use super::columns::{ColumnTable, pairs};
use super::show::{short, stamp};
use drover_events::model::Deployment;

/// A deployment's fields and its table.
pub(super) fn deployment_text(deployment: &Deployment, verbose: bool) -> String {
    let mut out = pairs(&[
        ("ID", short(&deployment.id, verbose)),
        ("Job ID", deployment.job_id.clone()),
        ("Job Version", deployment.job_version.to_string()),
        ("Status", deployment.status.clone()),
        ("Description", deployment.status_description.clone()),
    ]);
    let states = &deployment.task_groups;
    if states.is_empty() {
        return out;
    }
    let canaries = states.values().any(|state| state.desired_canaries > 0);
    let reverts = states.values().any(|state| state.auto_revert);
    let mut head = vec!["Task Group"];
    if reverts {
        head.push("Auto Revert");
    }
    if canaries {
        head.push("Promoted");
    }
    head.push("Desired");
    if canaries {
        head.push("Canaries");
    }
    head.extend(["Placed", "Healthy", "Unhealthy", "Progress Deadline"]);
    let mut table = ColumnTable::with_head(head);
    for (name, state) in states {
        let mut row = vec![name.clone()];
        if reverts {
            row.push(state.auto_revert.to_string());
        }
        if canaries {
            let wanted = state.desired_canaries > 0;
            row.push(if wanted {
                state.promoted.to_string()
            } else {
                "N/A".to_owned()
            });
        }
        row.push(state.desired_total.to_string());
        if canaries {
            row.push(state.desired_canaries.to_string());
        }
        row.extend([
            state.placed_allocs.to_string(),
            state.healthy_allocs.to_string(),
            state.unhealthy_allocs.to_string(),
            stamp(state.require_progress_by.nanos()),
        ]);
        table.row(row);
    }
    out.push_str(&format!("\n\nDeployed\n{table}"));
    out
}
