//! A deployment as people read it.

use super::super::columns::{Table, pairs};
use super::super::show::{boolean, number, short, stamp, text};
use serde_json::Value as Json;

/// A deployment's fields and its table.
pub(in crate::cli) fn deployment_text(deployment: &Json, verbose: bool) -> String {
    let mut out = pairs(&[
        ("ID", short(&text(deployment, "ID"), verbose)),
        ("Job ID", text(deployment, "JobID")),
        ("Job Version", number(deployment, "JobVersion").to_string()),
        ("Status", text(deployment, "Status")),
        ("Description", text(deployment, "StatusDescription")),
    ]);
    let states: Vec<(&String, &Json)> = deployment["TaskGroups"]
        .as_object()
        .into_iter()
        .flatten()
        .collect();
    if states.is_empty() {
        return out;
    }
    let canaries = states.iter().any(|(_, s)| number(s, "DesiredCanaries") > 0);
    let reverts = states.iter().any(|(_, s)| boolean(s, "AutoRevert"));
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
    let mut table = Table::with_head(head);
    for (name, state) in states {
        let mut row = vec![name.clone()];
        if reverts {
            row.push(boolean(state, "AutoRevert").to_string());
        }
        if canaries {
            let wanted = number(state, "DesiredCanaries") > 0;
            row.push(if wanted {
                boolean(state, "Promoted").to_string()
            } else {
                "N/A".to_owned()
            });
        }
        row.push(number(state, "DesiredTotal").to_string());
        if canaries {
            row.push(number(state, "DesiredCanaries").to_string());
        }
        row.extend(
            ["PlacedAllocs", "HealthyAllocs", "UnhealthyAllocs"]
                .map(|k| number(state, k).to_string()),
        );
        row.push(stamp(state, "RequireProgressBy"));
        table.row(row);
    }
    out.push_str(&format!("\n\nDeployed\n{table}"));
    out
}
